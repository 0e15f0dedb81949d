# SPDX-License-Identifier: Apache-2.0
"""peers: what the device itself can do, and what other implementations reach on it, by PyTorch: a
streaming read, a copy, a large matrix product; decode attention by scaled_dot_product_attention,
paged Triton kernels of our own, FlashInfer if it is installed, and flex_attention; and prompts by
the first. Prints JSON.

    peers.py [--device cuda | cpu] [--short] [--seconds N]

Figures are device time by events, the median of some rounds. Each round starts with a large read,
so that the caches hold none of the inputs and the device is busy while the call is enqueued; if a
call takes the host longer than that read, its time includes waiting. Decode counts K and V once, in
bf16, or in fp8 without scales. A peer whose result differs from a plain computation in f32 has no
figure. On the cpu the clock is the host's, and f16 stands in for bf16: this only checks that
everything runs. There Triton interprets, which needs a NumPy before 2.4.

A peer that raises has no figure and costs no other peer's; the reason is reported instead.
"""

import time

START = time.monotonic()    # before PyTorch, whose import and first use of a GPU take seconds

# ruff: noqa: E402
import argparse
import contextlib
import dataclasses
import json
import os
import statistics
import sys
import threading

import torch

GIB = 1 << 30
BLOCK = 16
# By the type of K and V; the one that takes longest to compile comes last.
PEERS = {"bf16": ("sdpa", "triton", "flashinfer", "flex"), "fp8": ("triton", "flashinfer")}
GRACE_SECONDS = 15


@dataclasses.dataclass(frozen=True)
class Sizes:
    # (name, sequences, tokens, query heads, KV heads, head dim)
    shapes: tuple = (("32x4096-32/8-d128", 32, 4096, 32, 8, 128),
                     ("8x32768-32/8-d128", 8, 32768, 32, 8, 128))
    prompts: tuple = (512, 2048, 8192)
    read_bytes: int = 4 * GIB
    product_side: int = 8192
    flush_bytes: int = GIB
    rounds: int = 20


# Lengths that no step divides, and heads without a group.
SHORT = Sizes((("2x208-8/2-d64", 2, 208, 8, 2, 64), ("1x48-2/2-d32", 1, 48, 2, 2, 32)), (16,),
              1 << 20, 64, 1 << 16, 2)


class Device:
    """The measured device, its clock, and the sizes."""

    def __init__(self, name, sizes, seconds):
        self.name, self.sizes = name, sizes
        self.end = START + seconds
        self.is_gpu = name == "cuda"    # AMD's GPUs too
        self.clock = "device" if self.is_gpu else "host"
        # When interpreted, tl.dot takes the bits of bf16 for integers.
        self.dtype = torch.bfloat16 if self.is_gpu else torch.float16
        self.unused = torch.zeros(sizes.flush_bytes // 4, dtype=torch.float32, device=name)
        if self.is_gpu:
            properties = torch.cuda.get_device_properties(0)
            self.title, self.multiprocessors = properties.name, properties.multi_processor_count
            self.cache_bytes = getattr(properties, "L2_cache_size", None)
        else:
            # Enough that the short shapes need several parts.
            self.title, self.multiprocessors, self.cache_bytes = "host processor", 4, None

    def is_time_over(self):
        return time.monotonic() > self.end

    def random(self, *shape):
        return torch.randn(*shape, device=self.name, dtype=self.dtype)

    def bytes_to_read(self):
        if not self.is_gpu:
            return self.sizes.read_bytes
        quarter = torch.cuda.mem_get_info()[0] // 4
        return min(self.sizes.read_bytes, quarter >> 28 << 28)

    def milliseconds(self, call):
        for _ in range(3):
            call()
        return statistics.median(self.once(call) for _ in range(self.sizes.rounds))

    def once(self, call):
        # Reads only: lines that a fill had changed would be written back during the timed call.
        torch.amax(self.unused)
        if not self.is_gpu:
            start = time.perf_counter()
            call()
            return (time.perf_counter() - start) * 1e3
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        end.synchronize()
        return start.elapsed_time(end)


def words(error):
    return f"{type(error).__name__}: {error}"[:200]


@contextlib.contextmanager
def said_in(failures, name):
    """Records an exception raised inside in `failures`, and goes on."""
    try:
        yield
    except Exception as error:      # a library may raise anything
        failures[name] = words(error)


def triton_reader(numbers, rounds):
    import paged_decode
    return paged_decode.reader(numbers, rounds=rounds)


def reads(device, numbers, results):
    """The best of several reads: none of them is sure to reach what the device can do."""
    readers = {"torch.sum": lambda: lambda: torch.sum(numbers),
               "torch.amax": lambda: lambda: torch.amax(numbers),
               **{f"triton, {16 * rounds} KiB a program":
                  lambda rounds=rounds: triton_reader(numbers, rounds) for rounds in (4, 16, 64)}}
    for name, make in readers.items():
        with said_in(results["unavailable"], name):
            gbps = results["read_bytes"] / device.milliseconds(make()) / 1e6
            results["reads_gbps"][name] = gbps
            if gbps > (results["read_gbps"] or 0):
                results.update(read_gbps=gbps, read_by=name)


def ceilings(device, results):
    """Fills in results; if a figure is missing, `unavailable` says why."""
    failures = {}
    results.update(clock=device.clock, cache_bytes=device.cache_bytes, read_gbps=None, read_by=None,
                   reads_gbps={}, copy_gbps=None, bf16_tflops=None, unavailable=failures)
    with said_in(failures, "read and copy"):
        size = results["read_bytes"] = device.bytes_to_read()
        numbers = torch.ones(size // 4, dtype=torch.float32, device=device.name)
        reads(device, numbers, results)
        target = torch.empty_like(numbers)
        copied = device.milliseconds(lambda: target.copy_(numbers))
        results["copy_gbps"] = 2 * size / copied / 1e6
    with said_in(failures, "product"):
        side = device.sizes.product_side
        a, b = device.random(side, side), device.random(side, side)
        product = device.milliseconds(lambda: a @ b)
        results["bf16_tflops"] = 2 * side**3 / product / 1e9


class Different(Exception):
    """A result is wrong."""


class Shape:
    """One decode shape, and for each peer its ways: (description, function that prepares it and
    returns a call that gives [batch, heads, 1, dim])."""

    def __init__(self, shape, kv_name, device):
        self.device, self.peers = device, PEERS[kv_name]
        self.name, self.batch, self.length, self.q_heads, self.kv_heads, self.dim = shape
        self.q = device.random(self.batch, self.q_heads, 1, self.dim)
        self.k, self.v = (device.random(self.batch, self.kv_heads, self.length, self.dim)
                          for _ in range(2))
        self.kv_dtype = torch.float8_e4m3fn if kv_name == "fp8" else device.dtype
        # K and V as stored: fp8 without scales.
        self.k, self.v = (side.to(self.kv_dtype).to(device.dtype) for side in (self.k, self.v))
        self.bytes = 2 * self.k.numel() * self.kv_dtype.itemsize
        self.wanted = torch.stack([self.dense(i) for i in range(self.batch)])

    def dense(self, sequence):
        """In f32, for one sequence: all of them would not fit."""
        group = self.q_heads // self.kv_heads
        q = self.q[sequence].float().view(self.kv_heads, group, self.dim)
        weights = torch.softmax(q @ self.k[sequence].float().mT * self.dim**-0.5, dim=-1)
        return (weights @ self.v[sequence].float()).view(self.q_heads, 1, self.dim)

    def sdpa(self):
        attend = torch.nn.functional.scaled_dot_product_attention
        yield {}, lambda: lambda: attend(self.q, self.k, self.v, enable_gqa=True)

    def flex(self):
        """Compiled only for this shape: after a second one PyTorch would compile for any."""
        import torch._dynamo
        from torch.nn.attention.flex_attention import flex_attention

        def prepare():
            torch._dynamo.reset()
            compiled = torch.compile(flex_attention, dynamic=False)
            return lambda: compiled(self.q, self.k, self.v, enable_gqa=True)
        yield {}, prepare

    def paged(self):
        """K and V as pages, and tables that list them in random order."""
        pages = self.length // BLOCK
        shape = (self.batch, self.kv_heads, pages, BLOCK, self.dim)
        order = torch.randperm(self.batch * pages, device=self.device.name)
        pools = []
        for side in (self.k, self.v):
            pool = torch.empty(self.batch * pages, self.kv_heads, BLOCK, self.dim,
                               device=self.device.name, dtype=side.dtype)
            pool[order] = side.view(shape).permute(0, 2, 1, 3, 4).reshape(pool.shape)
            pools.append(pool.to(self.kv_dtype))
        return pools, order.view(self.batch, pages).to(torch.int32)

    def triton(self):
        import paged_decode
        (k, v), table = self.paged()
        for tuning in paged_decode.TUNINGS:
            yield dataclasses.asdict(tuning), lambda tuning=tuning: paged_decode.decoder(
                self.q, k, v, table, self.length, tuning, self.device.multiprocessors)

    def flashinfer(self):
        import flashinfer
        (k, v), table = self.paged()
        like = {"dtype": torch.int32, "device": self.device.name}
        indptr = torch.arange(self.batch + 1, **like) * table.shape[1]
        last = torch.full((self.batch,), BLOCK, **like)
        q = self.q.view(self.batch, self.q_heads, self.dim)

        def prepare(how):
            space = torch.empty(256 << 20, dtype=torch.uint8, device=self.device.name)
            wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(space, "HND", **how)
            start = time.perf_counter()
            wrapper.plan(indptr, table.flatten(), last, self.q_heads, self.kv_heads, self.dim,
                         BLOCK, q_data_type=q.dtype, kv_data_type=k.dtype)
            how["first_plan_us"] = (time.perf_counter() - start) * 1e6
            return lambda: wrapper.run(q, (k, v)).view(self.q.shape)
        for has_tensor_cores in (True, False):
            how = {"use_tensor_cores": has_tensor_cores}
            yield how, lambda how=how: prepare(how)

    def measured(self, how, call):
        # Products are summed in f32; weights and results are rounded to the 8 bits of bf16.
        difference = (call().float() - self.wanted).abs().max().item()
        if not difference <= 2**-6 * self.wanted.abs().max().item():
            raise Different(f"its result differs by {difference}: {how}")
        took = self.device.milliseconds(call)
        return {"milliseconds": took, "gbps": self.bytes / took / 1e6, "clock": self.device.clock,
                "largest_difference": difference, **({"how": how} if how else {})}

    def best(self, ways):
        """The fastest way that the device has room for; a wrong result disqualifies the peer."""
        results, error = [], None
        for how, prepare in ways:
            try:
                results.append(self.measured(how, prepare()))
            except Different:
                raise
            except Exception as failure:    # a peer may raise anything
                error = failure
        if not results:
            raise error
        return min(results, key=lambda result: result["milliseconds"])

    def compare(self, results):
        """Replaces the entries of results, peer by peer."""
        for name in self.peers:
            if self.device.is_time_over():
                return
            try:
                results[name] = self.best(getattr(self, name)())
            except Exception as error:
                results[name] = {"unavailable": words(error)}


def prompt(device, tokens):
    """Causal attention of a whole prompt, contiguous; half of the scores are counted."""
    attend = torch.nn.functional.scaled_dot_product_attention
    q, k, v = (device.random(1, heads, tokens, 128) for heads in (32, 8, 8))
    took = device.milliseconds(lambda: attend(q, k, v, is_causal=True, enable_gqa=True))
    return {"milliseconds": took, "clock": device.clock,
            "tflops": 2 * 32 * tokens**2 * 128 / took / 1e9}


def prompts(device, results):
    for tokens in device.sizes.prompts:
        try:
            results[str(tokens)] = prompt(device, tokens)
        except Exception as error:
            results[str(tokens)] = {"unavailable": words(error)}


def decode(device, shape, kv_name, results):
    try:
        compared = Shape(shape, kv_name, device)
    except Exception as error:
        results.update({name: {"unavailable": words(error)} for name in results})
    else:
        compared.compare(results)


def measure(device, result):
    """Fills in result as it goes, so that what is there counts whatever comes later."""
    for kv_name, peers in PEERS.items():
        result[f"decode_{kv_name}"] = {
            shape[0]: {name: {"unavailable": "no time left (--seconds)"}
                       for name in peers} for shape in device.sizes.shapes}
    result["ceilings"], result["prefill_bf16"] = {}, {}
    ceilings(device, result["ceilings"])
    if device.is_gpu:
        with said_in(result["ceilings"]["unavailable"], "free memory"):
            torch.cuda.empty_cache()
    prompts(device, result["prefill_bf16"])
    for kv_name in PEERS:
        for shape in device.sizes.shapes:
            decode(device, shape, kv_name, result[f"decode_{kv_name}"][shape[0]])


def give_up(result):
    """Prints what there is: a peer that compiles for minutes costs no other peer's result."""
    try:
        # Without indents this is one call of C, during which no other thread changes the result.
        print(json.dumps(result), flush=True)
    finally:
        os._exit(0)


def main():
    parser = argparse.ArgumentParser(epilog="example: peers.py --device cpu --short")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="(cuda)")
    parser.add_argument("--short", action="store_true",
                        help="small shapes, only to check that it runs; the figures mean nothing")
    parser.add_argument("--seconds", type=float, default=600,
                        help="start no further peer after this many seconds (600), and end "
                        f"{GRACE_SECONDS} later at the latest")
    options = parser.parse_args()
    result = {"device": None, "torch": torch.__version__}
    left = START + options.seconds + GRACE_SECONDS - time.monotonic()
    timer = threading.Timer(max(0, left), give_up, [result])
    timer.daemon = True
    timer.start()
    if options.device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"    # read when Triton is imported
    elif not torch.cuda.is_available():
        print("torch sees no GPU", file=sys.stderr)
        sys.exit(77)
    torch.manual_seed(1)
    try:
        device = Device(options.device, SHORT if options.short else Sizes(), options.seconds)
        result["device"] = device.title
        measure(device, result)
    finally:
        timer.cancel()
        timer.join()    # if it has begun, it prints and ends the process
        print(json.dumps(result, indent=2), flush=True)


if __name__ == "__main__":
    main()
