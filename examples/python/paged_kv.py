# SPDX-License-Identifier: Apache-2.0
"""paged_kv: an engine's own K and V in blocks, and attention that finds them in Quire's tables.

Quire decides which block holds what; the memory and the kernels are the engine's. A step's tables
can be read in two ways, those of vLLM's and of FlashInfer's kernels, which take exactly these
arrays:

    "vllm"        block_table [rows][blocks], lengths [rows]
    "flashinfer"  indptr [rows + 1], indices, last_page_len [rows]
"""

import numpy as np

import quire

LAYOUTS = ("vllm", "flashinfer")


class PagedKv:
    """k, v: [layers][blocks][block_tokens][kv_heads][head_dim]."""

    def __init__(self, shape, blocks, block_tokens):
        sides = (shape.layers, blocks, block_tokens, shape.kv_heads, shape.head_dim)
        self.k = np.zeros(sides, np.float32)
        self.v = np.zeros(sides, np.float32)
        self.block_tokens = block_tokens

    def copy(self, copies):
        """Makes the copies that a committed step needs before its kernels run, in order."""
        for copy in copies:
            kind, src, dst = quire.CopyKind(copy["kind"]), copy["src"], copy["dst"]
            for side in (self.k, self.v):
                if kind == quire.CopyKind.ON_WRITE:
                    side[:, dst] = side[:, src]
                elif kind == quire.CopyKind.ZERO:
                    side[:, dst] = 0
                else:
                    raise NotImplementedError(f"{kind.name}: this engine has no host tier")

    def write(self, layer, slots, k, v):
        """Writes the K and V of new tokens, [tokens][kv_heads][head_dim], into their slots."""
        blocks, places = np.divmod(slots, self.block_tokens)
        self.k[layer, blocks, places] = k
        self.v[layer, blocks, places] = v

    def context(self, layer, views, row, layout):
        """K and V of a row's tokens, [length][kv_heads][head_dim]."""
        if layout == "vllm":
            length = views.lengths[row]
            blocks = views.block_table[row, :-(-length // self.block_tokens)]
        else:
            blocks = views.csr_indices[views.csr_indptr[row]:views.csr_indptr[row + 1]]
            length = (len(blocks) - 1) * self.block_tokens + views.csr_last_page_len[row]
        sides = (-1, *self.k.shape[3:])
        return (self.k[layer, blocks].reshape(sides)[:length],
                self.v[layer, blocks].reshape(sides)[:length])


def attend(q, k, v):
    """Causal attention of the last tokens of k and v: q [tokens][heads][head_dim]."""
    tokens, heads, head_dim = q.shape
    length, kv_heads, _ = k.shape
    grouped = q.reshape(tokens, kv_heads, heads // kv_heads, head_dim)
    scores = np.einsum("tkgd,lkd->tkgl", grouped, k) / np.float32(head_dim ** 0.5)
    hidden = np.arange(length)[None, :] > np.arange(length - tokens, length)[:, None]
    scores[np.broadcast_to(hidden[:, None, None, :], scores.shape)] = -np.inf
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return np.einsum("tkgl,lkd->tkgd", weights, v).reshape(q.shape)
