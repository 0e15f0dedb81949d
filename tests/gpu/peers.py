# SPDX-License-Identifier: Apache-2.0
"""peers: what the device itself can do, and what others make of it, by PyTorch: a streaming read, a
copy, a large matrix product; decode attention by scaled_dot_product_attention, flex_attention, a
paged Triton kernel of our own, and FlashInfer where it is installed; and prompts by the first.
Prints JSON.

All figures are device time by events, the median of ROUNDS; decode counts K and V once.
"""

import json
import statistics
import sys

import torch

ROUNDS = 20
GIB = 1 << 30
# (name, sequences, tokens, query heads, KV heads, head dim)
SHAPES = [("32x4096-32/8-d128", 32, 4096, 32, 8, 128), ("8x32768-32/8-d128", 8, 32768, 32, 8, 128)]
BLOCK = 16
PROMPTS = (512, 2048, 8192)


def milliseconds(call):
    for _ in range(3):
        call()
    times = []
    for _ in range(ROUNDS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def ceilings():
    numbers = torch.empty(4 * GIB // 4, dtype=torch.float32, device="cuda").fill_(1)
    target = torch.empty_like(numbers)
    read = milliseconds(lambda: torch.sum(numbers))
    copied = milliseconds(lambda: target.copy_(numbers))
    side = 8192
    a, b = (torch.randn(side, side, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    product = milliseconds(lambda: a @ b)
    return {"read_gbps": 4 * GIB / read / 1e6, "copy_gbps": 8 * GIB / copied / 1e6,
            "bf16_tflops": 2 * side**3 / product / 1e9}


def paged_kernel():
    import triton
    import triton.language as tl

    @triton.jit
    def decode(q, k, v, table, out, length, blocks, scale, GROUP: tl.constexpr,
               DIM: tl.constexpr, PAGE: tl.constexpr):
        """One program for each sequence and KV head; pages [block][head][token][dim]."""
        sequence, head, heads = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
        dims, rows, slots = tl.arange(0, DIM), tl.arange(0, GROUP), tl.arange(0, PAGE)
        at = (sequence * heads + head) * GROUP * DIM
        queries = tl.load(q + at + rows[:, None] * DIM + dims[None, :]).to(tl.float32) * scale
        top = tl.full([GROUP], float("-inf"), tl.float32)
        total = tl.zeros([GROUP], tl.float32)
        result = tl.zeros([GROUP, DIM], tl.float32)
        for page in range(0, length // PAGE):
            block = tl.load(table + sequence * blocks + page).to(tl.int64)
            begin = (block * heads + head) * PAGE * DIM
            keys = tl.load(k + begin + slots[:, None] * DIM + dims[None, :]).to(tl.float32)
            values = tl.load(v + begin + slots[:, None] * DIM + dims[None, :]).to(tl.float32)
            scores = tl.sum(queries[:, None, :] * keys[None, :, :], axis=2)
            highest = tl.maximum(top, tl.max(scores, axis=1))
            weights = tl.exp(scores - highest[:, None])
            old = tl.exp(top - highest)
            total = total * old + tl.sum(weights, axis=1)
            result = result * old[:, None] + tl.sum(
                weights[:, :, None] * values[None, :, :], axis=1)
            top = highest
        result = result / total[:, None]
        tl.store(out + at + rows[:, None] * DIM + dims[None, :], result.to(out.dtype.element_ty))

    return decode


class Shape:
    def __init__(self, shape):
        self.name, self.batch, self.length, self.q_heads, self.kv_heads, self.dim = shape
        like = {"device": "cuda", "dtype": torch.bfloat16}
        self.q = torch.randn(self.batch, self.q_heads, 1, self.dim, **like)
        self.k, self.v = (torch.randn(self.batch, self.kv_heads, self.length, self.dim, **like)
                          for _ in range(2))
        self.bytes = 2 * self.k.numel() * 2

    def sdpa(self):
        attend = torch.nn.functional.scaled_dot_product_attention
        return lambda: attend(self.q, self.k, self.v, enable_gqa=True)

    def flex(self):
        from torch.nn.attention.flex_attention import flex_attention
        compiled = torch.compile(flex_attention)
        return lambda: compiled(self.q, self.k, self.v, enable_gqa=True)

    def paged(self):
        """K and V as pages, and tables that lead through them in disorder."""
        pages = self.length // BLOCK
        shape = (self.batch, self.kv_heads, pages, BLOCK, self.dim)
        order = torch.randperm(self.batch * pages, device="cuda")
        pools = []
        for side in (self.k, self.v):
            pool = torch.empty(self.batch * pages, self.kv_heads, BLOCK, self.dim, device="cuda",
                               dtype=side.dtype)
            pool[order] = side.view(shape).permute(0, 2, 1, 3, 4).reshape(pool.shape)
            pools.append(pool)
        return pools, order.view(self.batch, pages).to(torch.int32)

    def triton(self):
        kernel = paged_kernel()
        (k, v), table = self.paged()
        out = torch.empty_like(self.q)

        def call():
            kernel[(self.batch, self.kv_heads)](
                self.q, k, v, table, out, self.length, table.shape[1], self.dim**-0.5,
                GROUP=self.q_heads // self.kv_heads, DIM=self.dim, PAGE=BLOCK)
            return out
        return call

    def flashinfer(self):
        import flashinfer
        (k, v), table = self.paged()
        space = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(space, "HND")
        pages = table.shape[1]
        indptr = torch.arange(self.batch + 1, dtype=torch.int32, device="cuda") * pages
        last = torch.full((self.batch,), BLOCK, dtype=torch.int32, device="cuda")
        wrapper.plan(indptr, table.flatten(), last, self.q_heads, self.kv_heads, self.dim, BLOCK,
                     q_data_type=torch.bfloat16)
        q = self.q.view(self.batch, self.q_heads, self.dim)
        return lambda: wrapper.run(q, (k, v)).view(self.q.shape)

    def compare(self):
        wanted, results = None, {}
        for name in ("sdpa", "flex", "triton", "flashinfer"):
            try:
                call = getattr(self, name)()
                got = call().float()
                wanted = got if wanted is None else wanted
                error = (got - wanted).abs().max().item()
                took = milliseconds(call)
                results[name] = {"milliseconds": took, "gbps": self.bytes / took / 1e6,
                                 "largest_difference": error}
            except Exception as error:  # of whatever kind a peer's own trouble is
                results[name] = {"unavailable": f"{type(error).__name__}: {error}"[:200]}
        return results


def prompts():
    """Causal attention of whole prompts, contiguous; half of the scores are counted."""
    attend, results = torch.nn.functional.scaled_dot_product_attention, {}
    for tokens in PROMPTS:
        q, k, v = (torch.randn(1, heads, tokens, 128, device="cuda", dtype=torch.bfloat16)
                   for heads in (32, 8, 8))
        took = milliseconds(lambda: attend(q, k, v, is_causal=True, enable_gqa=True))
        results[str(tokens)] = {"milliseconds": took,
                                "tflops": 2 * 32 * tokens**2 * 128 / took / 1e9}
    return results


def main():
    if not torch.cuda.is_available():
        print("torch sees no GPU", file=sys.stderr)
        sys.exit(77)
    torch.manual_seed(1)
    result = {"device": torch.cuda.get_device_name(), "torch": torch.__version__,
              "ceilings": ceilings()}
    torch.cuda.empty_cache()
    result["decode_bf16"] = {shape[0]: Shape(shape).compare() for shape in SHAPES}
    result["prefill_bf16"] = prompts()
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
