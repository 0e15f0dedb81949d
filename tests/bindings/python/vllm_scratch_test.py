# SPDX-License-Identifier: Apache-2.0
"""quire.vllm's manager with groups that are not cached beside groups that are: windows with bounded
replay, and rings. Whatever it hands out, each token finds what it sees."""

import math
import random
import types
import unittest

import quire
from quire import vllm
from vllm_hybrid_engine import Engine, Replayed, Ring, Script
from vllm_hybrid_test import SIZE, ByHash, fixed_group, make_hashed, make_request

RING = 12  # tokens


def spec(window, size):
    if isinstance(window, Ring):
        return fixed_group("CircularBufferSpec", block_size=size, prefix_cacheable=False)
    if isinstance(window, Replayed):
        return fixed_group("SlidingWindowMLASpec", block_size=size, sliding_window=window.window,
                           prefix_cacheable=False)
    return vllm.config(2, size, window).kv_cache_groups[0]


def config(blocks, windows, sizes):
    return types.SimpleNamespace(num_blocks=blocks, kv_cache_groups=[
        spec(window, size) for window, size in zip(windows, sizes)])


def groups(rng):
    """Groups, one of them full, and their blocks' sizes: with bounded replay, or with rings beside
    other kinds, or both beside full ones."""
    replayed = rng.choice((SIZE, 2 * SIZE, 2 * SIZE + 1, 3 * SIZE))
    if rng.random() < 0.6:
        windows = [None] * rng.randrange(2) + [Replayed(replayed)] * rng.randrange(1, 3) + \
            [Ring()] * rng.randrange(2)
    else:
        windows = [rng.choice((None, 5, 9)) for _ in range(rng.randrange(1, 3))] + [Ring()]
    rng.shuffle(windows)
    windows.insert(rng.randrange(len(windows) + 1), None)
    sizes = (SIZE, SIZE, 2 * SIZE)
    size, ring = rng.choice(sizes), rng.choice((SIZE, RING))
    return windows, [ring if isinstance(window, Ring) else
                     rng.choice(sizes) if isinstance(window, Replayed) else size
                     for window in windows]


class Scratch(unittest.TestCase):
    def play(self, seed, blocks, kind=Engine, make=make_request):
        rng = random.Random(seed)
        windows, sizes = groups(rng)
        most = rng.randrange(3)
        manager = vllm.KVCacheManager(config(blocks, windows, sizes), 512, math.lcm(*sizes), SIZE)
        engine = kind(self, manager, make, windows, sizes, blocks, most)
        script = Script(seed, most)
        for _ in range(10):
            script.play([engine], 20)
            manager._cache.check()
        for name in list(engine.running):
            while engine.in_flight:
                engine.end_step()
            engine.finish(name, False)
        manager.block_pool.free_blocks(reversed(engine.popped))
        self.assertEqual(manager.block_pool.get_num_free_blocks(), blocks - 1)
        self.assertTrue(manager.reset_prefix_cache())
        manager._cache.check()
        manager.close()
        return engine

    def test_tokens_find_what_they_see(self):
        found = 0
        for seed in range(10):
            with self.subTest(seed=seed):
                found += sum(self.play(seed, 2000).hits.values())
        self.assertGreater(found, 0)

    def test_tokens_find_what_they_see_in_a_small_pool(self):
        refused, found = 0, 0
        for seed in range(100, 110):
            with self.subTest(seed=seed):
                engine = self.play(seed, 110)
                refused += engine.refused
                found += sum(engine.hits.values())
        self.assertGreater(refused, 0)
        self.assertGreater(found, 0)

    def test_hashes_name_what_is_cached(self):
        found = 0
        for seed in range(300, 304):
            with self.subTest(seed=seed):
                found += self.play(seed, 400, ByHash, make_hashed).found
        self.assertGreater(found, 0)

    def test_rings_without_prefix_caching(self):
        for seed in range(400, 406):
            with self.subTest(seed=seed):
                windows, sizes = [Ring(), None, 9][:2 + seed % 2], [RING, SIZE, SIZE]
                sizes = sizes[:len(windows)]
                manager = vllm.KVCacheManager(config(110, windows, sizes), 512, RING, SIZE,
                                              enable_caching=False)
                engine = Engine(self, manager, make_request, windows, sizes, 110, seed % 3)
                Script(seed, seed % 3).play([engine], 150)
                manager._cache.check()
                manager.close()

    def test_replay_gets_new_blocks_and_shares_the_others(self):
        windows, sizes = [None, Replayed(8)], [4, 4]
        manager = vllm.KVCacheManager(config(60, windows, sizes), 512, 4, 4)
        first, second = make_request("a", range(30)), make_request("b", range(30))
        manager.allocate_slots(first, 30)
        blocks, found, _ = manager.get_computed_blocks(second)
        self.assertEqual((found, blocks.blocks[1]), (28, []))
        manager.allocate_slots(second, 0, found, blocks)  # a chunk within the 8 replayed tokens
        full, window = manager.get_block_ids("b")
        self.assertEqual(full, manager.get_block_ids("a")[0][:7])
        self.assertEqual([block == 0 for block in window], [True] * 5 + [False] * 2)
        self.assertFalse(set(window) & set(manager.get_block_ids("a")[1]) - {0})
        second.num_computed_tokens = 24
        manager.allocate_slots(second, 6)
        self.assertEqual(manager.get_block_ids("b")[1][:7], window)
        manager.free(first)
        manager.free(second)
        self.assertEqual(manager.block_pool.get_num_free_blocks(), 59)
        manager.close()

    def test_request_that_lacks_blocks_gets_none(self):
        """The full group's blocks are there, and those of the window are not."""
        for left in range(9):
            manager = vllm.KVCacheManager(config(60, [Replayed(8), None], [4, 4]), 512, 4, 4)
            manager.block_pool.get_new_blocks(59 - left)
            request = make_request("a", range(10))
            given = manager.allocate_slots(request, 16)
            self.assertEqual(given is None, left < 8)
            self.assertEqual(manager.block_pool.get_num_free_blocks(), left if left < 8 else 0)
            manager._cache.check()
            manager.close()

    def test_admission_counts_the_blocks_that_are_held_at_a_time(self):
        for blocks, fits in ((31, False), (32, True)):
            # 25 of the full group; of the window's 8 tokens and 16 in flight 7, which is its most
            manager = vllm.KVCacheManager(config(1 + blocks, [None, Replayed(8)], [4, 4]), 512, 4,
                                          4, max_in_flight_tokens=16)
            given = manager.allocate_slots(make_request("a", range(100)), 16,
                                           full_sequence_must_fit=True)
            self.assertEqual(given is not None, fits)
            manager.close()

    def test_replay_is_refused_where_its_tokens_would_lack_what_they_see(self):
        with self.assertRaisesRegex(quire.UnsupportedError, "bounded replay beside"):
            vllm.KVCacheManager(config(60, [None, Replayed(8), 9], [4] * 3), 512, 4, 4)
        full = fixed_group("FullAttentionSpec", block_size=4, prefix_cacheable=False)
        made = config(60, [None], [4])
        made.kv_cache_groups.append(full)
        with self.assertRaisesRegex(quire.UnsupportedError, "not cached"):
            vllm.KVCacheManager(made, 512, 4, 4)
        with self.assertRaisesRegex(quire.UnsupportedError, "without a group of attention"):
            vllm.KVCacheManager(config(60, [Ring()], [4]), 512, 4, 4)


if __name__ == "__main__":
    unittest.main()
