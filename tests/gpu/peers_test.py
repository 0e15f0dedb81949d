# SPDX-License-Identifier: Apache-2.0
"""peers_test: peers.py runs on the processor, and each peer that is there computes what it should.

    peers_test.py

It takes PyTorch and Triton, which nothing else here needs: of this Python, or of the one that
QUIRE_TORCH_PYTHON names. Skipped where there are none.
"""

import json
import os
import pathlib
import subprocess
import sys

FOLDER = pathlib.Path(__file__).parent
PYTHON = os.environ.get("QUIRE_TORCH_PYTHON", sys.executable)
SKIPPED = 77
# Triton's interpreter takes arrays of one element for numbers, which NumPy 2.4 refuses.
NEEDED = "import numpy, torch, triton; int(numpy.zeros(1))"
# One that takes for ever to compile.
SLOW = """
import sys, time
sys.path.insert(0, {folder!r})
sys.argv = ["peers.py", "--device", "cpu", "--short", "--seconds", "15"]
import peers
peers.GRACE_SECONDS = 0
peers.ceilings = peers.prompts = lambda device: {{}}
peers.Shape.triton = lambda shape: time.sleep(600)
peers.main()
"""
# A kernel that merges its parts wrongly must be noticed.
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
    return process, json.loads(process.stdout) if process.returncode == 0 else None


def check_agreement():
    process, result = ran(FOLDER / "peers.py", "--device", "cpu", "--short")
    assert process.returncode == 0, process.stderr
    ceilings = result["ceilings"]
    for name in ("read_gbps", "copy_gbps", "bf16_tflops"):
        assert ceilings[name] > 0, ceilings
    assert all(case["tflops"] > 0 for case in result["prefill_bf16"].values()), result
    assert len(result["decode_bf16"]) == 2, result
    for peers in result["decode_fp8"].values():
        assert peers["triton"].get("milliseconds", 0) > 0, peers
    for peers in result["decode_bf16"].values():
        assert set(peers) == {"sdpa", "triton", "flashinfer", "flex"}, peers
        for name in ("sdpa", "triton"):     # flex takes a compiler, FlashInfer a GPU
            assert peers[name].get("milliseconds", 0) > 0, peers
            assert peers[name]["clock"] == "host", peers


def check_that_it_sees():
    process, result = ran("-c", BROKEN.format(folder=str(FOLDER)))
    assert process.returncode == 0, process.stderr
    said = result["decode_bf16"]["2x208-8/2-d64"]["triton"]
    assert "another one" in said.get("unavailable", ""), said


def check_time_limit():
    process, result = ran(FOLDER / "peers.py", "--device", "cpu", "--short", "--seconds", "0")
    assert process.returncode == 0, process.stderr
    for peers in result["decode_bf16"].values():
        assert all("no time left" in peer["unavailable"] for peer in peers.values()), peers


def check_that_the_slow_cost_no_others():
    process, result = ran("-c", SLOW.format(folder=str(FOLDER)))
    assert process.returncode == 0, process.stderr
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
    check_time_limit()
    check_that_the_slow_cost_no_others()
    return 0


if __name__ == "__main__":
    sys.exit(main())
