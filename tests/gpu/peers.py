# SPDX-License-Identifier: Apache-2.0
"""peers: what the device itself can do, and what others make of it, by PyTorch: a streaming read,
a copy, a large matrix product; decode attention by scaled_dot_product_attention, paged Triton
kernels of our own, FlashInfer where it is installed, and flex_attention; and prompts by the first.
Prints JSON.

    peers.py [--device cuda | cpu] [--short] [--seconds N]

Figures are device time by events, the median of some rounds; before each a large fill, so that the
caches hold nothing of the inputs and the device is busy until the call is enqueued. Decode counts K
and V once, in bf16, or in fp8 without scales; whoever's result is not that of a plain computation
in f32 has no figure. On the cpu it is the host's clock, and f16 for bf16: to see that all of it
runs. There Triton interprets, which takes a NumPy before 2.4.
"""

import argparse
import dataclasses
import json
import os
import statistics
import sys
import threading
import time

import torch

GIB = 1 << 30
BLOCK = 16
# By the type of K and V; what takes longest to compile last.
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
    fill_bytes: int = GIB
    rounds: int = 20


# Lengths that no step divides, and heads without a group.
SHORT = Sizes((("2x208-8/2-d64", 2, 208, 8, 2, 64), ("1x48-2/2-d32", 1, 48, 2, 2, 32)), (16,),
              1 << 20, 64, 1 << 16, 2)


class Device:
    """What is measured, by which clock, and with what sizes."""

    def __init__(self, name, sizes, seconds):
        self.name, self.sizes = name, sizes
        self.end = time.monotonic() + seconds
        self.is_gpu = name == "cuda"    # of AMD's too
        self.clock = "device" if self.is_gpu else "host"
        # Interpreted, tl.dot takes the bits of bf16 for whole numbers.
        self.dtype = torch.bfloat16 if self.is_gpu else torch.float16
        self.filled = torch.empty(sizes.fill_bytes, dtype=torch.uint8, device=name)
        if self.is_gpu:
            properties = torch.cuda.get_device_properties(0)
            self.title, self.multiprocessors = properties.name, properties.multi_processor_count
            self.cache_bytes = getattr(properties, "L2_cache_size", None)
        else:
            # As many as make the short shapes need several parts.
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
        self.filled.zero_()
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


def ceilings(device):
    """The read is the best of several: none of them is sure to be what the device can do."""
    import paged_decode
    size = device.bytes_to_read()
    numbers = torch.ones(size // 4, dtype=torch.float32, device=device.name)
    target = torch.empty_like(numbers)
    readers = {"torch.sum": lambda: torch.sum(numbers),
               "torch.amax": lambda: torch.amax(numbers),
               **{f"triton, {16 * rounds} KiB a program":
                  paged_decode.reader(numbers, rounds=rounds) for rounds in (4, 16, 64)}}
    reads = {name: size / device.milliseconds(call) / 1e6 for name, call in readers.items()}
    copied = device.milliseconds(lambda: target.copy_(numbers))
    side = device.sizes.product_side
    a, b = device.random(side, side), device.random(side, side)
    product = device.milliseconds(lambda: a @ b)
    best = max(reads, key=reads.get)
    return {"clock": device.clock, "read_gbps": reads[best], "read_by": best, "reads_gbps": reads,
            "read_bytes": size, "cache_bytes": device.cache_bytes,
            "copy_gbps": 2 * size / copied / 1e6, "bf16_tflops": 2 * side**3 / product / 1e9}


class Different(Exception):
    """A result is not what it should be."""


class Shape:
    """One shape of decoding, and for each peer the ways that it has: (what way, a call that gives
    [batch, heads, 1, dim])."""

    def __init__(self, shape, kv_name, device):
        self.device, self.peers = device, PEERS[kv_name]
        self.name, self.batch, self.length, self.q_heads, self.kv_heads, self.dim = shape
        self.q = device.random(self.batch, self.q_heads, 1, self.dim)
        self.k, self.v = (device.random(self.batch, self.kv_heads, self.length, self.dim)
                          for _ in range(2))
        self.kv_dtype = torch.float8_e4m3fn if kv_name == "fp8" else device.dtype
        # What K and V are as they are kept: fp8 without scales.
        self.k, self.v = (side.to(self.kv_dtype).to(device.dtype) for side in (self.k, self.v))
        self.bytes = 2 * self.k.numel() * self.kv_dtype.itemsize
        self.wanted = torch.stack([self.dense(i) for i in range(self.batch)])

    def dense(self, sequence):
        """In f32, and of one sequence: all of them would not fit."""
        group = self.q_heads // self.kv_heads
        q = self.q[sequence].float().view(self.kv_heads, group, self.dim)
        weights = torch.softmax(q @ self.k[sequence].float().mT * self.dim**-0.5, dim=-1)
        return (weights @ self.v[sequence].float()).view(self.q_heads, 1, self.dim)

    def sdpa(self):
        attend = torch.nn.functional.scaled_dot_product_attention
        yield {}, lambda: attend(self.q, self.k, self.v, enable_gqa=True)

    def flex(self):
        from torch.nn.attention.flex_attention import flex_attention
        compiled = torch.compile(flex_attention)
        yield {}, lambda: compiled(self.q, self.k, self.v, enable_gqa=True)

    def paged(self):
        """K and V as pages, and tables that lead through them in disorder."""
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
            yield dataclasses.asdict(tuning), paged_decode.decoder(
                self.q, k, v, table, self.length, tuning, self.device.multiprocessors)

    def flashinfer(self):
        import flashinfer
        (k, v), table = self.paged()
        like = {"dtype": torch.int32, "device": self.device.name}
        indptr = torch.arange(self.batch + 1, **like) * table.shape[1]
        last = torch.full((self.batch,), BLOCK, **like)
        q = self.q.view(self.batch, self.q_heads, self.dim)
        for has_tensor_cores in (True, False):
            space = torch.empty(256 << 20, dtype=torch.uint8, device=self.device.name)
            wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
                space, "HND", use_tensor_cores=has_tensor_cores)
            start = time.perf_counter()
            wrapper.plan(indptr, table.flatten(), last, self.q_heads, self.kv_heads, self.dim,
                         BLOCK, q_data_type=q.dtype, kv_data_type=k.dtype)
            said = {"use_tensor_cores": has_tensor_cores,
                    "first_plan_us": (time.perf_counter() - start) * 1e6}
            yield said, lambda wrapper=wrapper: wrapper.run(q, (k, v)).view(self.q.shape)

    def measured(self, how, call):
        # Products are summed in f32; weights and results are rounded to the 8 bits of bf16.
        difference = (call().float() - self.wanted).abs().max().item()
        if not difference <= 2**-6 * self.wanted.abs().max().item():
            raise Different(f"its result is another one, by {difference}: {how}")
        took = self.device.milliseconds(call)
        return {"milliseconds": took, "gbps": self.bytes / took / 1e6, "clock": self.device.clock,
                "largest_difference": difference, **({"how": how} if how else {})}

    def best(self, ways):
        """Of those that a device has room for; one that is wrong is no peer."""
        results, error = [], None
        for how, call in ways:
            try:
                results.append(self.measured(how, call))
            except Different:
                raise
            except Exception as failure:    # of whatever kind a peer's own trouble is
                error = failure
        if not results:
            raise error
        return min(results, key=lambda result: result["milliseconds"])

    def compare(self, results):
        """Replaces what is in results, peer by peer."""
        for name in self.peers:
            if self.device.is_time_over():
                return
            try:
                results[name] = self.best(getattr(self, name)())
            except Exception as error:
                results[name] = {"unavailable": f"{type(error).__name__}: {error}"[:200]}


def prompts(device):
    """Causal attention of whole prompts, contiguous; half of the scores are counted."""
    attend, results = torch.nn.functional.scaled_dot_product_attention, {}
    for tokens in device.sizes.prompts:
        q, k, v = (device.random(1, heads, tokens, 128) for heads in (32, 8, 8))
        took = device.milliseconds(lambda: attend(q, k, v, is_causal=True, enable_gqa=True))
        results[str(tokens)] = {"milliseconds": took, "clock": device.clock,
                                "tflops": 2 * 32 * tokens**2 * 128 / took / 1e9}
    return results


def measure(device, result):
    """Fills in result, so that what is there counts whatever comes later."""
    for kv_name, peers in PEERS.items():
        result[f"decode_{kv_name}"] = {
            shape[0]: {name: {"unavailable": "there was no time left: --seconds"}
                       for name in peers} for shape in device.sizes.shapes}
    result["ceilings"] = ceilings(device)
    if device.is_gpu:
        torch.cuda.empty_cache()
    result["prefill_bf16"] = prompts(device)
    for kv_name in PEERS:
        for shape in device.sizes.shapes:
            Shape(shape, kv_name, device).compare(result[f"decode_{kv_name}"][shape[0]])


def give_up(result):
    """A peer that compiles for minutes does not take what others gave."""
    print(json.dumps(result, indent=2), flush=True)
    os._exit(0)


def main():
    parser = argparse.ArgumentParser(epilog="example: peers.py --device cpu --short")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="(cuda)")
    parser.add_argument("--short", action="store_true",
                        help="small shapes, to see that it runs; figures then say nothing")
    parser.add_argument("--seconds", type=float, default=600,
                        help="begin with no other peer after so many (600), and end "
                        f"{GRACE_SECONDS} later at the latest")
    options = parser.parse_args()
    if options.device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"    # read where Triton is imported
    elif not torch.cuda.is_available():
        print("torch sees no GPU", file=sys.stderr)
        sys.exit(77)
    torch.manual_seed(1)
    device = Device(options.device, SHORT if options.short else Sizes(), options.seconds)
    result = {"device": device.title, "torch": torch.__version__}
    timer = threading.Timer(options.seconds + GRACE_SECONDS, give_up, [result])
    timer.daemon = True
    timer.start()
    measure(device, result)
    timer.cancel()
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
