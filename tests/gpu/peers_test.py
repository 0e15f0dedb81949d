# SPDX-License-Identifier: Apache-2.0
"""peers_test: peers.py runs on the processor, and each available peer computes the right result.

    peers_test.py

It needs PyTorch and Triton, which nothing else here needs: from this Python, or from the one that
QUIRE_TORCH_PYTHON names. Skipped without them.
"""

import json
import os
import pathlib
import subprocess
import sys
import time

FOLDER = pathlib.Path(__file__).parent
PYTHON = os.environ.get("QUIRE_TORCH_PYTHON", sys.executable)
SKIPPED = 77
# Triton's interpreter uses arrays of one element as numbers, which NumPy 2.4 refuses.
NEEDED = "import numpy, torch, triton; int(numpy.zeros(1))"
# A peer that compiles forever, with a PyTorch that takes long to import.
SLOW = """
import sys, time
sys.path.insert(0, {folder!r})
sys.argv = ["peers.py", "--device", "cpu", "--short", "--seconds", "30"]
class Slow:
    def find_spec(name, *others):
        if name == "torch":
            time.sleep(12)
sys.meta_path.insert(0, Slow)
import peers
peers.GRACE_SECONDS = 0
peers.ceilings = peers.prompts = lambda device, results: None
peers.Shape.triton = lambda shape: time.sleep(600)
peers.main()
"""
# Peers that raise in places, FlashInfer (a fake) when it plans without tensor cores; a compiler
# that accepts only calls for a single shape, each after a reset; and an interrupted end.
RAISING = """
import dataclasses, os, sys, types
sys.path.insert(0, {folder!r})
sys.argv = ["peers.py", "--device", "cpu", "--short"]
os.environ["TRITON_INTERPRET"] = "1"
import torch
import torch._dynamo
import paged_decode
import peers

def raising(*arguments, **others):
    raise RuntimeError("no compiler")

class Wrapper:
    def __init__(self, space, layout, use_tensor_cores):
        self.has_plan = use_tensor_cores

    def plan(self, *arguments, **others):
        self.has_plan or raising()

def compiled(function, backend=None, **others):
    if backend:     # PyTorch's own call, where nothing else compiles
        return really_compiled(function, backend=backend, **others)
    assert others == {{"dynamic": False}} and resets.pop()
    return function

def measured(shape, how, call):
    if "use_tensor_cores" in how:
        return {{"milliseconds": 1.0, "how": how}}
    return really_measured(shape, how, call)

def made(shape, sizes, *others):
    return raising() if sizes[0].startswith("1x48") else really_made(shape, sizes, *others)

def ended(device, results):
    really_prompts(device, results)
    before = device.unused._version
    device.once(lambda: None)
    assert device.unused._version == before

def decode(device, shape, kv_name, chosen, results):
    if chosen == [peers.LAST] and shape[0].startswith("1x48"):
        raise KeyboardInterrupt
    really_decode(device, shape, kv_name, chosen, results)

resets = []
torch._dynamo.reset = lambda: resets.append(True)
really_compiled, torch.compile = torch.compile, compiled
paged_decode.reader = paged_decode.decoder = raising
sys.modules["flashinfer"] = types.SimpleNamespace(BatchDecodeWithPagedKVCacheWrapper=Wrapper)
really_measured, peers.Shape.measured = peers.Shape.measured, measured
really_made, peers.Shape.__init__ = peers.Shape.__init__, made
really_prompts, peers.prompts = peers.prompts, ended
really_decode, peers.decode = peers.decode, decode
peers.SHORT = dataclasses.replace(peers.SHORT, prompts=(-1, 16))
peers.main()
"""
# A kernel that merges its parts wrongly must be detected.
BROKEN = """
import sys
sys.path.insert(0, {folder!r})
sys.argv = ["peers.py", "--device", "cpu", "--short"]
import os
os.environ["TRITON_INTERPRET"] = "1"
import paged_decode
paged_decode.LOG2_E = 1.0
import peers
peers.Shape.sdpa = peers.Shape.flex = peers.Shape.triton
peers.main()
"""


def ran(*arguments):
    process = subprocess.run([PYTHON, *arguments], stdin=subprocess.DEVNULL, capture_output=True,
                             text=True)
    return process, json.loads(process.stdout) if process.stdout else None


def check_agreement():
    process, result = ran(FOLDER / "peers.py", "--device", "cpu", "--short")
    assert process.returncode == 0, process.stderr
    ceilings = result["ceilings"]
    for name in ("read_gbps", "copy_gbps", "bf16_tflops"):
        assert ceilings[name] > 0, ceilings
    assert all(set(peers) == {"sdpa", "sdpa_cudnn", "sdpa_flash"} and peers["sdpa"]["tflops"] > 0
               for peers in result["prefill_bf16"].values()), result
    assert len(result["decode_bf16"]) == 2, result
    for peers in result["decode_fp8"].values():
        assert peers["triton"].get("milliseconds", 0) > 0, peers
    for peers in result["decode_bf16"].values():
        assert set(peers) == {"sdpa", "sdpa_cudnn", "sdpa_flash", "triton", "flashinfer",
                              "flex"}, peers
        for name in ("sdpa", "triton"):     # flex needs a compiler, FlashInfer a GPU
            assert peers[name].get("milliseconds", 0) > 0, peers
            assert peers[name]["clock"] == "host" and peers[name]["layers"] == 2, peers
        # The processor has no cuDNN: a kernel is the named one, or there is no figure.
        assert "unavailable" in peers["sdpa_cudnn"], peers


def check_that_it_sees():
    process, result = ran("-c", BROKEN.format(folder=str(FOLDER)))
    assert process.returncode == 0, process.stderr
    said = result["decode_bf16"]["2x208-8/2-d64"]["triton"]
    assert "result differs" in said.get("unavailable", ""), said


def check_that_the_raising_cost_no_others():
    process, result = ran("-c", RAISING.format(folder=str(FOLDER)))
    assert process.returncode != 0 and "KeyboardInterrupt" in process.stderr, process.stderr
    ceilings = result["ceilings"]
    assert ceilings["read_gbps"] > 0 and ceilings["copy_gbps"] > 0, ceilings
    assert set(ceilings["reads_gbps"]) == {"torch.sum", "torch.amax"}, ceilings
    assert len(ceilings["unavailable"]) == 3, ceilings
    assert "unavailable" in result["prefill_bf16"]["-1"]["sdpa"], result
    assert result["prefill_bf16"]["16"]["sdpa"]["tflops"] > 0, result
    first, second = result["decode_bf16"].values()
    for name in ("sdpa", "flashinfer", "flex"):
        assert first[name].get("milliseconds", 0) > 0, first
    assert first["flashinfer"]["how"]["first_plan_us"] > 0, first
    assert "no time left" in second.pop("flex")["unavailable"], "it was interrupted before"
    for peer in (first["triton"], *second.values()):
        assert "no compiler" in peer["unavailable"], (first, second)


def check_time_limit():
    process, result = ran(FOLDER / "peers.py", "--device", "cpu", "--short", "--seconds", "0")
    assert process.returncode == 0, process.stderr
    for peers in result["decode_bf16"].values():
        assert all("no time left" in peer["unavailable"] for peer in peers.values()), peers


def check_that_the_slow_cost_no_others():
    start = time.monotonic()
    process, result = ran("-c", SLOW.format(folder=str(FOLDER)))
    assert process.returncode == 0, process.stderr
    assert time.monotonic() - start < 30 + 8, "it does not count from its start"
    peers = result["decode_bf16"]["2x208-8/2-d64"]
    assert peers["sdpa"]["milliseconds"] > 0, peers
    assert "no time left" in peers["triton"]["unavailable"], peers


def main():
    needed = subprocess.run([PYTHON, "-c", NEEDED], capture_output=True, text=True)
    if needed.returncode != 0:
        print(f"skipped: {PYTHON}: {needed.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return SKIPPED
    check_agreement()
    check_that_it_sees()
    check_that_the_raising_cost_no_others()
    check_time_limit()
    check_that_the_slow_cost_no_others()
    return 0


if __name__ == "__main__":
    sys.exit(main())
