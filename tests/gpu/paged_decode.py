# SPDX-License-Identifier: Apache-2.0
"""paged_decode: decode attention over pages by two Triton kernels of our own, as in engines without
hand-written kernels; and a streaming read.

Pages are [block][head][token][dim]. A program handles one sequence, one KV head and a part of the
tokens; its query heads are padded to 16 rows, as tl.dot requires. Another kernel merges the parts.
"""

import dataclasses

import torch
import triton
import triton.language as tl

LOG2_E = 1.4426950408889634


@triton.jit
def attend_part(q, k, v, table, parts, lses, length, pages_a_row, pages_a_part, scale,
                GROUP: tl.constexpr, ROWS: tl.constexpr, DIM: tl.constexpr, PAGE: tl.constexpr,
                PAGES: tl.constexpr):
    """scale is for exponents to base 2. parts are [sequence][query head][part][dim]."""
    sequence, head, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    heads, part_count = tl.num_programs(1), tl.num_programs(2)
    dims, rows, slots = tl.arange(0, DIM), tl.arange(0, ROWS), tl.arange(0, PAGES * PAGE)
    q_heads = (sequence * heads + head) * GROUP + rows
    is_row = rows < GROUP
    queries = tl.load(q + q_heads[:, None] * DIM + dims[None, :], mask=is_row[:, None], other=0.0)
    top = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    result = tl.zeros([ROWS, DIM], tl.float32)
    begin = part * pages_a_part
    end = tl.minimum(begin + pages_a_part, tl.cdiv(length, PAGE))
    for page in range(begin, end, PAGES):
        pages = page + slots // PAGE
        is_token = (pages < end) & (page * PAGE + slots < length)
        blocks = tl.load(table + sequence * pages_a_row + pages, mask=is_token, other=0)
        at = ((blocks.to(tl.int64) * heads + head) * PAGE + slots % PAGE) * DIM
        keys = tl.load(k + at[:, None] + dims[None, :], mask=is_token[:, None], other=0.0)
        values = tl.load(v + at[:, None] + dims[None, :], mask=is_token[:, None], other=0.0)
        keys, values = keys.to(queries.dtype), values.to(queries.dtype)     # fp8 exactly
        scores = tl.dot(queries, tl.trans(keys)) * scale
        scores = tl.where(is_token[None, :], scores, float("-inf"))
        highest = tl.maximum(top, tl.max(scores, axis=1))
        weights = tl.exp2(scores - highest[:, None])
        old = tl.exp2(top - highest)
        total = total * old + tl.sum(weights, axis=1)
        result = result * old[:, None] + tl.dot(weights.to(values.dtype), values)
        top = highest
    states = q_heads * part_count + part
    tl.store(lses + states, top + tl.log2(total), mask=is_row)
    tl.store(parts + states[:, None] * DIM + dims[None, :],
             (result / total[:, None]).to(parts.dtype.element_ty), mask=is_row[:, None])


@triton.jit
def merge_parts(parts, lses, out, part_count, DIM: tl.constexpr, PARTS: tl.constexpr):
    """One program per query head of a sequence."""
    row, dims, indices = tl.program_id(0), tl.arange(0, DIM), tl.arange(0, PARTS)
    states = row * part_count + indices
    is_part = indices < part_count
    exponents = tl.load(lses + states, mask=is_part, other=float("-inf"))
    weights = tl.exp2(exponents - tl.max(exponents, axis=0))
    weights = weights / tl.sum(weights, axis=0)
    values = tl.load(parts + states[:, None] * DIM + dims[None, :], mask=is_part[:, None],
                     other=0.0)
    result = tl.sum(weights[:, None] * values, axis=0)
    tl.store(out + row * DIM + dims, result.to(out.dtype.element_ty))


@triton.jit
def read(numbers, sums, rounds, BLOCK: tl.constexpr):
    """Reads `rounds` blocks per program, and writes one number."""
    places = tl.program_id(0).to(tl.int64) * rounds * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for _ in range(rounds):
        total += tl.load(numbers + places)
        places += BLOCK
    tl.store(sums + tl.program_id(0), tl.sum(total, axis=0))


def reader(numbers, block=4096, rounds=16):
    """Returns a call that reads all of f32 `numbers`, whose count is a
    multiple of block * rounds."""
    programs = numbers.numel() // (block * rounds)
    assert programs * block * rounds == numbers.numel()
    sums = torch.empty(programs, dtype=torch.float32, device=numbers.device)

    def call():
        read[(programs,)](numbers, sums, rounds, BLOCK=block, num_warps=8)
        return sums
    return call


@dataclasses.dataclass(frozen=True)
class Tuning:
    pages: int          # per program, at a time
    warps: int
    stages: int         # of loads in flight
    programs: int       # at least this many per multiprocessor


TUNINGS = [Tuning(pages, warps, 3, programs) for pages, warps in ((4, 4), (8, 4), (8, 8))
           for programs in (2, 4, 8)]


def pages_a_part(tuning, programs, pages, multiprocessors):
    """Pages per part, if one part per row makes `programs` programs: as many as leave enough
    programs, in whole steps."""
    parts = max(1, -(-tuning.programs * multiprocessors // programs))
    steps = max(1, pages // (parts * tuning.pages))
    return steps * tuning.pages


def constants(tuning, group, dim, page):
    """What attend_part is compiled for, beside the types of its arguments."""
    return {"GROUP": group, "ROWS": max(16, triton.next_power_of_2(group)), "DIM": dim,
            "PAGE": page, "PAGES": tuning.pages, "num_warps": tuning.warps,
            "num_stages": tuning.stages}


def compile_decoder(shape, page, dtype, kv_dtype, tuning, multiprocessors):
    """Compiles what a decoder() of such tensors launches, into Triton's cache, which other
    processes find it in. It needs a GPU, and launches nothing."""
    _, batch, length, q_heads, kv_heads, dim = shape
    pages = -(-length // page)
    step = pages_a_part(tuning, batch * kv_heads, pages, multiprocessors)
    count = -(-pages // step)
    attend_part.warmup(dtype, kv_dtype, kv_dtype, torch.int32,
                       dtype if count == 1 else torch.float32, torch.float32, length, pages, step,
                       dim**-0.5 * LOG2_E, grid=(1,),
                       **constants(tuning, q_heads // kv_heads, dim, page))
    if count > 1:
        merge_parts.warmup(torch.float32, torch.float32, dtype, count, grid=(1,), DIM=dim,
                           PARTS=triton.next_power_of_2(count))


def decoder(q, k, v, table, length, tuning, multiprocessors):
    """Returns a call that attends q [batch, heads, 1, dim] to pages and returns a
    tensor of q's shape."""
    batch, q_heads, _, dim = q.shape
    kv_heads, page = k.shape[1], k.shape[2]
    group, pages = q_heads // kv_heads, -(-length // page)
    step = pages_a_part(tuning, batch * kv_heads, pages, multiprocessors)
    count = -(-pages // step)
    out = torch.empty_like(q)
    lses = torch.empty(batch * q_heads * count, dtype=torch.float32, device=q.device)
    # A single part is the result.
    parts = out if count == 1 else torch.empty(batch * q_heads * count, dim, dtype=torch.float32,
                                               device=q.device)

    def call():
        attend_part[(batch, kv_heads, count)](
            q, k, v, table, parts, lses, length, table.shape[1], step, dim**-0.5 * LOG2_E,
            **constants(tuning, group, dim, page))
        if count > 1:
            merge_parts[(batch * q_heads,)](parts, lses, out, count, DIM=dim,
                                            PARTS=triton.next_power_of_2(count))
        return out
    return call
