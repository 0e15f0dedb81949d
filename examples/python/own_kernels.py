#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""own_kernels: an engine's kernels on the K and V of a cache with memory.

Quire owns the pool, copies its blocks and moves them to other levels; the engine's kernels write K
and V into it and read them. Here they are numpy on the device `cpu`; a kernel on a GPU gets the
same addresses and strides. At the end Quire's own attention reads what the engine wrote.
"""

import ctypes

import numpy as np

import quire

LAYERS, Q_HEADS, KV_HEADS, DIM = 2, 4, 2, 16


def strided(pool, offset, head_stride, token_stride):
    """K or V of the pool as an array [layer][block][slot][head][dim], without a copy."""
    whole = np.ctypeslib.as_array(
        (ctypes.c_uint8 * pool.size_bytes).from_address(pool.address))[offset:]
    return np.lib.stride_tricks.as_strided(
        whole.view(np.float32),
        (pool.layer_count, pool.blocks, pool.block_tokens, pool.head_count, DIM),
        (pool.layer_stride, pool.block_stride, token_stride, head_stride, 4))


class Kernels:
    """The engine's kernels, on one shard's part of one group."""

    def __init__(self, pool):
        self.block_tokens = pool.block_tokens
        self.k = strided(pool, 0, pool.k_head_stride, pool.k_token_stride)
        self.v = strided(pool, pool.v_offset, pool.v_head_stride, pool.v_token_stride)

    def write(self, layer, views, k, v):
        """k, v: [tokens][heads][dim] of the step's new tokens."""
        blocks, places = np.divmod(views.slots, self.block_tokens)
        self.k[layer, blocks, places] = k
        self.v[layer, blocks, places] = v

    def attend(self, layer, views, row, q):
        """q: [heads][dim] of the row's last token."""
        length = int(views.lengths[row])
        blocks = views.block_table[row, :-(-length // self.block_tokens)]
        k, v = (side[layer, blocks].reshape(-1, KV_HEADS, DIM)[:length] for side in
                (self.k, self.v))
        out = np.empty_like(q)
        for head in range(Q_HEADS):
            scores = k[:, head * KV_HEADS // Q_HEADS] @ q[head] * np.float32(DIM ** -0.5)
            weights = np.exp(scores - scores.max())
            out[head] = weights / weights.sum() @ v[:, head * KV_HEADS // Q_HEADS]
        return out


def main():
    instance = quire.Instance()
    device = quire.Device(instance, "cpu")
    queue = quire.Queue(device)
    cache = quire.Cache(instance, [quire.Group(LAYERS, KV_HEADS, DIM, dtype="f32")], [device],
                        blocks=32)
    batch = cache.batch(max_rows=2, max_blocks_per_row=8, max_query_tokens=64,
                        attention=quire.Attention(Q_HEADS),
                        views=quire.View.SLOTS | quire.View.BLOCK_TABLE | quire.View.LENGTHS)
    kernels = Kernels(cache.pool())
    random = np.random.default_rng(1)
    sequences = [cache.sequence() for _ in range(2)]
    worst = 0.0
    for counts in ((20, 33), (1, 1), (1, 1)):  # two prompts, then two steps of one token each
        items = [quire.Item(sequence, list(random.integers(0, 100, count)))
                 for sequence, count in zip(sequences, counts)]
        total = sum(counts)
        with cache.begin(items, queue=queue) as step:
            step.commit(batch)
            queue.sync()  # the tables are written by the queue
            views = batch.views()
            for layer in range(LAYERS):
                k, v = random.standard_normal((2, total, KV_HEADS, DIM), np.float32)
                q = random.standard_normal((total, Q_HEADS, DIM), np.float32)
                kernels.write(layer, views, k, v)
                theirs = np.empty_like(q)
                batch.attend(layer, q, theirs)
                queue.sync()
                for row, last in enumerate(np.cumsum(counts) - 1):
                    own = kernels.attend(layer, views, row, q[last])
                    worst = np.maximum(worst, abs(own - theirs[last]).max())  # keeps a NaN
            step.finish()
    print(f"the engine's kernels and Quire's differ by {worst:.1e} at most")
    return bool(worst < 1e-5)


if __name__ == "__main__":
    raise SystemExit(not main())
