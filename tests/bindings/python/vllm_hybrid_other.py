# SPDX-License-Identifier: Apache-2.0
"""quire.vllm's manager beside vLLM's own, with several groups: the same requests through both.

In a pool that holds everything the managers decide alike: the same tokens are found, or more of
them, as many blocks are held, and null blocks take the same places. In a pool that is too small
without prefix caching they admit the same requests. With prefix caching they evict different blocks
there; then each token must still find what it sees, which vllm_hybrid_engine.py checks for both.
"""

import random
import unittest

import torch
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec, FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec,
    SlidingWindowSpec)
from vllm.v1.request import Request

from quire import vllm
from vllm_hybrid_engine import Engine, Script
from vllm_hybrid_test import SIZE, groups

LONGEST = 512


def spec(window):
    common = dict(block_size=SIZE, num_kv_heads=1, head_size=1, dtype=torch.float32)
    if window is None:
        return FullAttentionSpec(**common)
    if window < 0:
        return ChunkedLocalAttentionSpec(**common, attention_chunk_size=-window)
    return SlidingWindowSpec(**common, sliding_window=window)


def config(blocks, windows):
    return KVCacheConfig(num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=[
        KVCacheGroupSpec([f"layer{i}"], spec(window)) for i, window in enumerate(windows)])


def make_request(name, tokens):
    return Request(request_id=name, prompt_token_ids=list(tokens),
                   sampling_params=SamplingParams(max_tokens=400), pooling_params=None,
                   block_hasher=HASHER)


init_none_hash(sha256)
HASHER = get_request_block_hasher(SIZE, sha256)


class Hybrid(unittest.TestCase):
    def engines(self, seed, blocks, **options):
        rng = random.Random(seed)
        # vLLM forgets blocks of a chunk that begins within a block, and has no chunks with EAGLE.
        windows, most = groups(rng, range(SIZE, 20, SIZE)), rng.randrange(3)
        if options.get("use_eagle"):
            windows = [window and abs(window) for window in windows]
        made = [Engine(self, kind(config(blocks, windows), LONGEST, scheduler_block_size=SIZE,
                                  hash_block_size=SIZE, max_in_flight_tokens=LONGEST, **options),
                       make_request, windows, SIZE, blocks, most)
                for kind in (vllm.KVCacheManager, KVCacheManager)]
        return made, Script(seed, most)

    def nulls(self, engine):
        return {name: [[block == 0 for block in table]
                       for table in engine.manager.get_block_ids(name)]
                for name in engine.running}

    def test_large_pool_finds_what_vllm_finds(self):
        ours, theirs = 0, 0
        for seed in range(12):
            with self.subTest(seed=seed):
                engines, script = self.engines(seed, 4000, use_eagle=seed % 4 == 0)
                script.play(engines, 250)
                self.assertEqual(set(engines[0].hits), set(engines[1].hits))
                for name, found in engines[1].hits.items():
                    self.assertGreaterEqual(engines[0].hits[name], found, name)
                ours += sum(engines[0].hits.values())
                theirs += sum(engines[1].hits.values())
                engines[0].manager.close()
        self.assertGreater(theirs, 0)
        print(f"found: {ours} tokens, vLLM {theirs}")

    def test_small_pool_without_caching_admits_what_vllm_admits(self):
        steps, alike = 0, 0
        for seed in range(20, 32):
            with self.subTest(seed=seed):
                engines, script = self.engines(seed, 120, enable_caching=False)
                for _ in range(250):
                    before = [engine.refused for engine in engines]
                    same = self.nulls(engines[0]) == self.nulls(engines[1])
                    script.play(engines, 1)
                    if same:
                        steps += 1
                        alike += len({engine.refused - count
                                      for engine, count in zip(engines, before)}) == 1
                engines[0].manager.close()
        print(f"decided alike: {alike} of {steps} steps")
        self.assertGreater(alike, 0.99 * steps)  # see docs/vllm.md about a full pool

    def test_small_pool_keeps_contents(self):
        ours, theirs = 0, 0
        for seed in range(40, 52):
            with self.subTest(seed=seed):
                engines, script = self.engines(seed, 150)
                script.play(engines, 250)
                ours += sum(engines[0].hits.values())
                theirs += sum(engines[1].hits.values())
                engines[0].manager.close()
        print(f"found in a small pool: {ours} tokens, vLLM {theirs}")


if __name__ == "__main__":
    unittest.main()
