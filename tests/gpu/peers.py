# SPDX-License-Identifier: Apache-2.0
"""peers: what the device itself can do, and what other implementations reach on it, by PyTorch: a
streaming read, a copy, a large matrix product; decode attention by scaled_dot_product_attention
(as PyTorch chooses, and by its kernels of cuDNN and flash attention), paged Triton kernels of our
own, FlashInfer if it is installed, and flex_attention; and prompts by the first of these. Prints
JSON.

    peers.py [--device cuda | cpu] [--short] [--seconds N]
    peers.py --compile I/N      the I-th of N shares of the Triton kernels: it calls itself so

Figures are device time by events, the median of some rounds. Each round starts with a large read,
so that the caches hold none of the inputs and the device is busy while the call is enqueued; if a
call takes the host longer than that read, its time includes waiting. Decode runs over several
layers of K and V, one after another, and counts each once, in bf16, or in fp8 without scales. A
peer whose result differs from a plain computation in f32 has no figure. On the cpu the clock is the
host's, and f16 stands in for bf16: this only checks that everything runs. There Triton interprets,
which needs a NumPy before 2.4.

The Triton kernels are compiled by other processes, in parallel, while the ceilings are measured.
A peer that raises has no figure and costs no other peer's; the reason is reported instead.
"""

import time

START = time.monotonic()    # before PyTorch, whose import and first use of a GPU take seconds

# ruff: noqa: E402
import argparse
import contextlib
import dataclasses
import functools
import json
import os
import statistics
import subprocess
import sys
import threading

import torch

GIB = 1 << 30
BLOCK = 16
SDPA = {"sdpa": None, "sdpa_cudnn": "CUDNN_ATTENTION", "sdpa_flash": "FLASH_ATTENTION"}
# By the type of K and V.
PEERS = {"bf16": (*SDPA, "triton", "flashinfer", "flex"), "fp8": ("triton", "flashinfer")}
LAST = "flex"       # takes longest to compile, so it comes after all others
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
    layer_bytes: int = GIB      # of all layers of K and V together, at least; two layers at least


# Lengths that no step divides, and heads without a group.
SHORT = Sizes((("2x208-8/2-d64", 2, 208, 8, 2, 64), ("1x48-2/2-d32", 1, 48, 2, 2, 32)), (16,),
              1 << 20, 64, 1 << 16, 2, 0)


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


def attend(name, *tensors, **options):
    """scaled_dot_product_attention, by the kernel of this name in SDPA."""
    call = torch.nn.functional.scaled_dot_product_attention
    if SDPA[name] is None:
        return call(*tensors, **options)
    from torch.nn.attention import SDPBackend, sdpa_kernel
    with sdpa_kernel(getattr(SDPBackend, SDPA[name])):
        return call(*tensors, **options)


class Shape:
    """One decode shape, several layers of it, and for each peer its ways: (description, function
    that prepares a layer and returns a call that gives [batch, heads, 1, dim])."""

    def __init__(self, shape, kv_name, device):
        self.device = device
        self.name, self.batch, self.length, self.q_heads, self.kv_heads, self.dim = shape
        self.q = device.random(self.batch, self.q_heads, 1, self.dim)
        self.kv_dtype = torch.float8_e4m3fn if kv_name == "fp8" else device.dtype
        # Bytes of a layer.
        self.bytes = (2 * self.batch * self.kv_heads * self.length * self.dim *
                      self.kv_dtype.itemsize)
        count = max(2, -(-device.sizes.layer_bytes // self.bytes))
        self.layers = [self.layer() for _ in range(count)]
        self.pages = None
        self.wanted = [torch.stack([self.dense(layer, i) for i in range(self.batch)])
                       for layer in (self.layers[0], self.layers[-1])]

    def layer(self):
        """K and V as stored: fp8 without scales."""
        return [self.device.random(self.batch, self.kv_heads, self.length, self.dim)
                .to(self.kv_dtype).to(self.device.dtype) for _ in range(2)]

    def dense(self, layer, sequence):
        """In f32, for one sequence: all of them would not fit."""
        group = self.q_heads // self.kv_heads
        k, v = (side[sequence].float() for side in layer)
        q = self.q[sequence].float().view(self.kv_heads, group, self.dim)
        weights = torch.softmax(q @ k.mT * self.dim**-0.5, dim=-1)
        return (weights @ v).view(self.q_heads, 1, self.dim)

    def sdpa(self, name="sdpa"):
        yield {}, lambda layer: lambda: attend(name, self.q, *layer, enable_gqa=True)

    def sdpa_cudnn(self):
        return self.sdpa("sdpa_cudnn")

    def sdpa_flash(self):
        return self.sdpa("sdpa_flash")

    def flex(self):
        """Compiled only for this shape: after a second one PyTorch would compile for any."""
        import torch._dynamo
        from torch.nn.attention.flex_attention import flex_attention

        torch._dynamo.reset()
        compiled = torch.compile(flex_attention, dynamic=False)
        yield {}, lambda layer: lambda: compiled(self.q, *layer, enable_gqa=True)

    def paged(self):
        """Each layer's K and V as pages, and a table that lists them in random order."""
        if self.pages is not None:
            return self.pages
        pages = self.length // BLOCK
        shape = (self.batch, self.kv_heads, pages, BLOCK, self.dim)
        order = torch.randperm(self.batch * pages, device=self.device.name)
        pools = []
        for layer in self.layers:
            pools.append([])
            for side in layer:
                pool = torch.empty(self.batch * pages, self.kv_heads, BLOCK, self.dim,
                                   device=self.device.name, dtype=side.dtype)
                pool[order] = side.view(shape).permute(0, 2, 1, 3, 4).reshape(pool.shape)
                pools[-1].append(pool.to(self.kv_dtype))
        self.pages = pools, order.view(self.batch, pages).to(torch.int32)
        return self.pages

    def layers_of(self, name):
        return self.layers if name in (*SDPA, "flex") else self.paged()[0]

    def triton(self):
        import paged_decode
        table = self.paged()[1]
        for tuning in paged_decode.TUNINGS:
            yield dataclasses.asdict(tuning), lambda layer, tuning=tuning: paged_decode.decoder(
                self.q, *layer, table, self.length, tuning, self.device.multiprocessors)

    def flashinfer(self):
        import flashinfer
        pools, table = self.paged()
        like = {"dtype": torch.int32, "device": self.device.name}
        indptr = torch.arange(self.batch + 1, **like) * table.shape[1]
        last = torch.full((self.batch,), BLOCK, **like)
        q = self.q.view(self.batch, self.q_heads, self.dim)
        k = pools[0][0]

        def planned(how):
            space = torch.empty(256 << 20, dtype=torch.uint8, device=self.device.name)
            wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(space, "HND", **how)
            start = time.perf_counter()
            wrapper.plan(indptr, table.flatten(), last, self.q_heads, self.kv_heads, self.dim,
                         BLOCK, q_data_type=q.dtype, kv_data_type=k.dtype)
            how["first_plan_us"] = (time.perf_counter() - start) * 1e6
            return wrapper

        def prepare(how, shared, layer):    # all layers share a plan
            if not shared:
                shared.append(planned(how))
            return lambda: shared[0].run(q, tuple(layer)).view(self.q.shape)
        for has_tensor_cores in (True, False):
            how = {"use_tensor_cores": has_tensor_cores}
            yield how, functools.partial(prepare, how, [])

    def measured(self, how, calls):
        # Products are summed in f32; weights and results are rounded to the 8 bits of bf16.
        largest = 0
        for call, wanted in zip((calls[0], calls[-1]), self.wanted):
            difference = (call().float() - wanted).abs().max().item()
            if not difference <= 2**-6 * wanted.abs().max().item():
                raise Different(f"its result differs by {difference}: {how}")
            largest = max(largest, difference)

        def all_layers():
            for call in calls:
                call()
        took = self.device.milliseconds(all_layers) / len(calls)
        return {"milliseconds": took, "gbps": self.bytes / took / 1e6, "clock": self.device.clock,
                "layers": len(calls), "largest_difference": largest,
                **({"how": how} if how else {})}

    def best(self, name):
        """The fastest way that the device has room for; a wrong result disqualifies the peer."""
        results, error = [], None
        for how, prepare in getattr(self, name)():
            try:
                calls = [prepare(layer) for layer in self.layers_of(name)]
                results.append(self.measured(how, calls))
            except Different:
                raise
            except Exception as failure:    # a peer may raise anything
                error = failure
        if not results:
            raise error
        return min(results, key=lambda result: result["milliseconds"])

    def compare(self, peers, results):
        """Replaces the entries of results, peer by peer."""
        for name in peers:
            if self.device.is_time_over():
                return
            try:
                results[name] = self.best(name)
            except Exception as error:
                results[name] = {"unavailable": words(error)}


def triton_jobs(device):
    import paged_decode
    return [(shape, BLOCK, device.dtype, torch.float8_e4m3fn if kv == "fp8" else device.dtype,
             tuning, device.multiprocessors)
            for tuning in paged_decode.TUNINGS for shape in device.sizes.shapes for kv in PEERS]


def compile_share(device, share):
    """Compiles the share "I/N" of the Triton kernels."""
    import paged_decode
    index, count = map(int, share.split("/"))
    for job in triton_jobs(device)[index::count]:
        paged_decode.compile_decoder(*job)


@contextlib.contextmanager
def compiling(device):
    """Starts the compilers of Triton's kernels, and yields a function that waits for them, for at
    most half of the time left. What they have not compiled then is compiled at its first use."""
    count = 0
    if device.is_gpu:
        with contextlib.suppress(Exception):    # no Triton: its peers will say so
            count = min(len(triton_jobs(device)), max(1, (os.cpu_count() or 1) - 2))
    command = [sys.executable, __file__, "--compile"]
    processes = [subprocess.Popen([*command, f"{index}/{count}"], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.DEVNULL) for index in range(count)]

    def wait():
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, (device.end - time.monotonic()) / 2))
    try:
        yield wait
    finally:
        for process in processes:
            process.kill()


def prompt(device, name, tokens):
    """Causal attention of a whole prompt, contiguous; half of the scores are counted."""
    q, k, v = (device.random(1, heads, tokens, 128) for heads in (32, 8, 8))
    took = device.milliseconds(lambda: attend(name, q, k, v, is_causal=True, enable_gqa=True))
    return {"milliseconds": took, "clock": device.clock,
            "tflops": 2 * 32 * tokens**2 * 128 / took / 1e9}


def prompts(device, results):
    for tokens in device.sizes.prompts:
        of_size = results.setdefault(str(tokens), {})
        for name in SDPA:
            try:
                of_size[name] = prompt(device, name, tokens)
            except Exception as error:
                of_size[name] = {"unavailable": words(error)}


def decode(device, shape, kv_name, peers, results):
    try:
        compared = Shape(shape, kv_name, device)
    except Exception as error:
        results.update({name: {"unavailable": words(error)} for name in peers})
    else:
        compared.compare(peers, results)


def measure(device, result):
    """Fills in result as it goes, so that what is there counts whatever comes later."""
    for kv_name, peers in PEERS.items():
        result[f"decode_{kv_name}"] = {
            shape[0]: {name: {"unavailable": "no time left (--seconds)"}
                       for name in peers} for shape in device.sizes.shapes}
    result["ceilings"], result["prefill_bf16"] = {}, {}
    with compiling(device) as wait:
        ceilings(device, result["ceilings"])
        if device.is_gpu:
            with said_in(result["ceilings"]["unavailable"], "free memory"):
                torch.cuda.empty_cache()
        prompts(device, result["prefill_bf16"])
        wait()
    for is_last in (False, True):
        for kv_name, peers in PEERS.items():
            for shape in device.sizes.shapes:
                chosen = [name for name in peers if (name == LAST) == is_last]
                if chosen and not device.is_time_over():
                    decode(device, shape, kv_name, chosen, result[f"decode_{kv_name}"][shape[0]])


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
    parser.add_argument("--compile", metavar="I/N", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.compile:
        return compile_share(Device(options.device, dataclasses.replace(Sizes(), flush_bytes=4),
                                    options.seconds), options.compile)
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
