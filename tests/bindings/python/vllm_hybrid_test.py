# SPDX-License-Identifier: Apache-2.0
"""quire.vllm's manager with several groups: whatever it hands out, each token finds what it sees.

vllm_hybrid_other.py plays the same requests through vLLM's own manager as well.
"""

import math
import random
import types
import unittest

import quire
from quire import vllm
from vllm_hybrid_engine import Engine, Script
from vllm_model import Request

SIZE = 4


def config(blocks, windows, sizes):
    """A KVCacheConfig with a group per window; a negative one stands for chunks."""
    made = vllm.config(blocks, SIZE, windows=[
        window if window is None or window > 0 else 0 for window in windows])
    kind = type("ChunkedLocalAttentionSpec", (types.SimpleNamespace,), {})
    for group, window, size in zip(made.kv_cache_groups, windows, sizes):
        group.kv_cache_spec.block_size = size
        if window is not None and window < 0:
            group.kv_cache_spec = kind(block_size=size, attention_chunk_size=-window)
    return made


def make_request(name, tokens):
    request = Request(name, list(tokens))
    request.num_in_flight_tokens = 0
    return request


def groups(rng, chunks=range(1, 20)):
    kinds = [rng.choice((None, None, rng.randrange(1, 20), -rng.choice(chunks)))
             for _ in range(rng.randrange(1, 4))]
    return [None, *kinds] if rng.random() < 0.8 else [5, *kinds]


def sizes(rng, windows):
    """Tokens per block of each group; in half of the cases they differ, if a group is full."""
    if None not in windows or rng.random() < 0.5:
        return [SIZE] * len(windows)
    return [rng.choice((SIZE, 2 * SIZE, 3 * SIZE)) for _ in windows]


class Hybrid(unittest.TestCase):
    def play(self, seed, blocks, operations):
        rng = random.Random(seed)
        windows, most = groups(rng), rng.randrange(3)
        each = sizes(rng, windows)
        manager = vllm.KVCacheManager(config(blocks, windows, each), 512, math.lcm(*each), SIZE,
                                      use_eagle=seed % 5 == 0)
        engine = Engine(self, manager, make_request, windows, each, blocks, most)
        script = Script(seed, most)
        for _ in range(operations // 20):
            script.play([engine], 20)
            manager._cache.check()
        self.assertTrue(engine.hits)
        manager.close()
        return sum(engine.hits.values()), engine.refused

    def test_every_token_finds_what_it_sees(self):
        for seed in range(12):
            with self.subTest(seed=seed):
                self.play(seed, 2000, 200)

    def test_every_token_finds_what_it_sees_in_a_small_pool(self):
        refused = 0
        for seed in range(100, 124):
            with self.subTest(seed=seed):
                refused += self.play(seed, 90, 200)[1]
        self.assertGreater(refused, 0)

    def test_cached_block_of_a_request_can_be_touched(self):
        """Also one that its window shows no more to tokens that the block's end precedes."""
        for windows, each in (((None, 9), (4, 4)), ((None, 9, -8), (4, 4, 4)), ((None, 9), (8, 4))):
            with self.subTest(windows=windows, each=each):
                manager = vllm.KVCacheManager(config(80, windows, each), 512, math.lcm(*each), 4)
                request = make_request("a", range(50))
                pool = manager.block_pool
                while request.num_computed_tokens < 50:
                    manager.allocate_slots(request, 1, num_lookahead_tokens=2)
                    request.num_computed_tokens += 1
                    for group in manager.get_blocks("a").blocks:
                        for block in group:
                            if not block.is_null and block.block_hash is not None:
                                pool.touch([block])
                                self.assertEqual(block.ref_cnt, 2)
                                pool.free_blocks([block])
                manager.free(request)
                self.assertEqual(pool.get_num_free_blocks(), 79)
                manager._cache.check()
                manager.close()


if __name__ == "__main__":
    unittest.main()
