# SPDX-License-Identifier: Apache-2.0
"""fixture: small caches for the tests of the Python binding."""

import unittest

import numpy as np

import quire

BLOCK_TOKENS = 4


class Books(unittest.TestCase):
    """A cache without memory: 15 usable blocks of 4 tokens."""

    def setUp(self):
        self.instance = quire.Instance()
        self.cache = self.make()

    def tearDown(self):
        self.cache.check()
        self.cache.close()
        self.instance.close()

    def make(self, **options):
        options.setdefault("blocks", 16)
        return quire.Cache(self.instance, [quire.Group(layers=1, kv_heads=1, head_dim=8)],
                           block_tokens=BLOCK_TOKENS, **options)

    def run_step(self, *items, cache=None, **options):
        """Begins, commits and finishes a step; returns its results."""
        with (cache or self.cache).begin(list(items), **options) as step:
            step.commit()
            step.finish()
        return step.results

    def grown(self, tokens, **options):
        """A sequence whose tokens are computed."""
        sequence = self.cache.sequence(**options)
        self.run_step(quire.Item(sequence, tokens=tokens))
        return sequence


class Served(unittest.TestCase):
    """A cache on the cpu: two layers, 2 query heads on 1 KV head of 8 elements, f32."""

    HEADS = 2
    DIM = 8

    def setUp(self):
        self.instance = quire.Instance()
        self.device = quire.Device(self.instance, "cpu", threads=1)
        self.queue = quire.Queue(self.device)
        self.cache = quire.Cache(
            self.instance, [quire.Group(layers=2, kv_heads=1, head_dim=self.DIM, dtype="f32")],
            [self.device], blocks=16, block_tokens=BLOCK_TOKENS)
        self.batch = self.cache.batch(4, 8, 32, views=ALL_VIEWS, max_context_tokens=64,
                                      attention=quire.Attention(self.HEADS))
        self.random = np.random.default_rng(1)

    def tearDown(self):
        self.cache.check()
        for thing in (self.batch, self.cache, self.queue, self.device, self.instance):
            thing.close()

    def numbers(self, *shape, dtype=np.float32):
        return self.random.standard_normal(shape).astype(dtype)

    def operands(self, tokens):
        """k, v, q and out for a step."""
        return (self.numbers(tokens, 1, self.DIM), self.numbers(tokens, 1, self.DIM),
                self.numbers(tokens, self.HEADS, self.DIM),
                np.zeros((tokens, self.HEADS, self.DIM), np.float32))


ALL_VIEWS = (quire.View.BLOCK_TABLE | quire.View.CSR | quire.View.SLOTS | quire.View.CONTEXT_SLOTS
             | quire.View.LENGTHS | quire.View.POSITIONS | quire.View.CU_Q)


def attention(q, k, v):
    """Causal attention of the last rows over k and v's tokens, in f64; k and v have one head."""
    queries, keys = len(q), len(k)
    out = np.zeros(q.shape)
    for i in range(queries):
        seen = keys - queries + i + 1
        scores = q[i].astype(np.float64) @ k[:seen, 0].astype(np.float64).T / np.sqrt(q.shape[2])
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        out[i] = weights / weights.sum(axis=1, keepdims=True) @ v[:seen, 0].astype(np.float64)
    return out
