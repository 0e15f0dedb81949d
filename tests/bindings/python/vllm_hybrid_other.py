# SPDX-License-Identifier: Apache-2.0
"""quire.vllm's manager beside vLLM's own, with several groups: the same requests through both.

In a pool that holds everything the managers decide alike: the same tokens are found, or more of
them, as many blocks are held, and null blocks take the same places. In a pool that is too small
without prefix caching they admit the same requests. With prefix caching they evict different blocks
there; then each token must still find what it sees, which vllm_hybrid_engine.py checks for both.
"""

import dataclasses
import math
import random
import unittest

import torch
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core import kv_cache_manager, single_type_kv_cache_manager
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec, CircularBufferSpec, FullAttentionSpec, KVCacheConfig,
    KVCacheGroupSpec, MambaSpec, SlidingWindowMLASpec, SlidingWindowSpec)
from vllm.v1.request import Request

import quire
import vllm_scratch_test
from quire import vllm, vllm_plugin
from vllm_hybrid_engine import Engine, Replayed, Ring, Script
from vllm_hybrid_test import SIZE, groups

LONGEST = 512


def spec(window, size):
    common = dict(block_size=size, num_kv_heads=1, head_size=1, dtype=torch.float32)
    if isinstance(window, Ring):
        return CircularBufferSpec(**common, head_size_v=0)
    if isinstance(window, Replayed):
        return SlidingWindowMLASpec(**common, sliding_window=window.window, bounded_replay=True)
    if window is None:
        return FullAttentionSpec(**common)
    if window < 0:
        return ChunkedLocalAttentionSpec(**common, attention_chunk_size=-window)
    return SlidingWindowSpec(**common, sliding_window=window)


def config(blocks, windows, each):
    return KVCacheConfig(num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=[
        KVCacheGroupSpec([f"layer{i}"], spec(window, size))
        for i, (window, size) in enumerate(zip(windows, each))])


def with_states(model, size, mode):
    """The model with a group of Mamba as well, whose blocks have `size` tokens."""
    state = MambaSpec(block_size=size, shapes=((1, 1),), dtypes=(torch.float32,),
                      mamba_cache_mode=mode)
    model.kv_cache_groups.append(KVCacheGroupSpec(["mamba"], state))
    return model


def make_request(name, tokens):
    return Request(request_id=name, prompt_token_ids=list(tokens),
                   sampling_params=SamplingParams(max_tokens=400), pooling_params=None,
                   block_hasher=HASHER)


init_none_hash(sha256)
HASHER = get_request_block_hasher(SIZE, sha256)


class Hybrid(unittest.TestCase):
    def engines(self, seed, blocks, size=SIZE, **options):
        rng = random.Random(seed)
        # vLLM forgets blocks of a chunk that begins within a block, and has no chunks with EAGLE.
        windows, most = groups(rng, range(size, 5 * size, size)), rng.randrange(3)
        if options.get("use_eagle"):
            windows = [window and abs(window) for window in windows]
        each = [size] * len(windows)
        made = [Engine(self, kind(config(blocks, windows, each), LONGEST,
                                  scheduler_block_size=size, hash_block_size=SIZE,
                                  max_in_flight_tokens=LONGEST, **options),
                       make_request, windows, each, blocks, most)
                for kind in (vllm.KVCacheManager, KVCacheManager)]
        return made, Script(seed, most)

    def engines_with_scratch(self, seed, blocks):
        rng = random.Random(seed)
        windows, each = vllm_scratch_test.groups(rng)
        most = rng.randrange(3)
        made = [Engine(self, kind(config(blocks, windows, each), LONGEST,
                                  scheduler_block_size=math.lcm(*each), hash_block_size=SIZE,
                                  max_in_flight_tokens=LONGEST, use_eagle=seed % 4 == 0),
                       make_request, windows, each, blocks, most)
                for kind in (vllm.KVCacheManager, KVCacheManager)]
        return made, Script(seed, most)

    def test_large_pool_with_groups_that_are_not_cached_finds_what_vllm_finds(self):
        found = [0, 0]
        for seed in range(140, 150):
            with self.subTest(seed=seed):
                engines, script = self.engines_with_scratch(seed, 4000)
                script.play(engines, 250)
                for name, count in engines[1].hits.items():
                    self.assertGreaterEqual(engines[0].hits[name], count, name)
                if engines[0].hits == engines[1].hits:
                    self.assertEqual(self.nulls(engines[0]), self.nulls(engines[1]))
                found = [count + sum(engine.hits.values())
                         for count, engine in zip(found, engines)]
                engines[0].manager.close()
        self.assertGreater(found[1], 0)
        print(f"found beside groups that are not cached: {found[0]} tokens, vLLM {found[1]}")

    def test_small_pool_with_groups_that_are_not_cached_keeps_contents(self):
        refused = 0
        for seed in range(170, 176):
            with self.subTest(seed=seed):
                engines, script = self.engines_with_scratch(seed, 150)
                script.play(engines, 250)
                refused += engines[0].refused
                engines[0].manager.close()
        self.assertGreater(refused, 0)

    def test_retention_keeps_what_vllm_keeps(self):
        """With EAGLE in some groups and without."""
        found = 0
        for seed in range(40):
            with self.subTest(seed=seed):
                rng = random.Random(seed)
                windows = [None, *(rng.choice((None, 3, 5, 9, 17))
                                   for _ in range(rng.randrange(1, 3)))]
                if not any(windows):
                    windows.append(9)
                use_eagle = seed % 4 != 0
                size = SIZE * rng.choice((1, 2))
                made = dataclasses.replace(
                    config(4000, windows, [size] * len(windows)),
                    prefix_cache_retention_interval=rng.choice((None, 0, 0, 2 * size, 8 * size)))
                for group in made.kv_cache_groups:
                    group.is_eagle_group = use_eagle and rng.random() < 0.5
                found += self.retain(rng, made, size, use_eagle)
        self.assertGreater(found, 0)

    def retain(self, rng, made, size, use_eagle):
        ours, theirs = (kind(made, LONGEST, scheduler_block_size=size, hash_block_size=SIZE,
                             max_in_flight_tokens=LONGEST, use_eagle=use_eagle)
                        for kind in (vllm.KVCacheManager, KVCacheManager))
        beginning, total = [rng.randrange(9) for _ in range(120)], 0
        pool = ours.block_pool  # from here on blocks have hashes
        for number in range(12):
            tokens = beginning[:rng.randrange(1, 120)] + [
                rng.randrange(9) for _ in range(rng.randrange(1, 9))]
            request = make_request(f"r{number}", tokens)
            blocks, count, shared = ours.get_computed_blocks(request)
            other, wanted, boundary = theirs.get_computed_blocks(request)
            self.assertEqual(count, wanted)
            if made.prefix_cache_retention_interval is not None:
                self.assertEqual(shared, boundary)
                request.shared_prefix_boundary = boundary
            ours.allocate_slots(request, len(tokens) - count, count, blocks)
            theirs.allocate_slots(request, len(tokens) - count, count, other)
            scale = size // SIZE
            for group in range(len(made.kv_cache_groups)):
                for hash_ in request.block_hashes[scale - 1::scale]:
                    self.assertEqual(pool.get_cached_block(hash_, [group]) is None,
                                     theirs.block_pool.get_cached_block(hash_, [group]) is None)
            ours.free(request)
            theirs.free(request)
            total += count
        ours.close()
        return total

    def test_lookups_miss_what_is_taken_out_of_the_map_as_vllms_do(self):
        found, missed = 0, 0
        for seed in range(24):
            with self.subTest(seed=seed):
                rng = random.Random(seed)
                windows = [None, *(rng.choice((None, 3, 5, 9, 17))
                                   for _ in range(rng.randrange(3)))]
                use_eagle = seed % 3 == 0
                size = SIZE * rng.choice((1, 2)) if len(windows) > 1 else SIZE
                made = [kind(config(4000, windows, [size] * len(windows)), LONGEST,
                             scheduler_block_size=size, hash_block_size=SIZE,
                             max_in_flight_tokens=LONGEST, use_eagle=use_eagle)
                        for kind in (vllm.KVCacheManager, KVCacheManager)]
                counts = self.take_out(rng, made, len(windows), size // SIZE)
                found, missed = found + counts[0], missed + counts[1]
                made[0].close()
        self.assertGreater(found, 0)
        self.assertGreater(missed, 0)

    def take_out(self, rng, made, groups, scale):
        """Requests with one beginning are cached, some blocks are taken out, and then put back."""
        beginning, requests = [rng.randrange(9) for _ in range(80)], []
        maps = [manager.block_pool.cached_block_hash_to_block for manager in made]
        for number in range(4):
            request = make_request(f"r{number}", beginning[:rng.randrange(80)] + [
                number] * rng.randrange(1, 40))
            requests.append(request)
            for manager in made:
                blocks, count, _ = manager.get_computed_blocks(request)
                manager.allocate_slots(request, request.num_tokens - count, count, blocks)
                manager.free(request)
        found, missed = 0, 0
        for _ in range(12):
            out = []
            for _ in range(rng.randrange(1, 4)):
                group = rng.randrange(groups)
                hashes = rng.choice(requests).block_hashes[scale - 1::scale]
                key = rng.choice(hashes or [b""]) + group.to_bytes(4, "big")
                if all(key in each_map._cache for each_map in maps):
                    out.append((key, [each_map._cache.pop(key) for each_map in maps]))
            for request in requests:
                counts = [manager.get_computed_blocks(request)[1] for manager in made]
                self.assertEqual(*counts)
                missed += counts[0]
            for key, blocks in out:
                for each_map, block in zip(maps, blocks):
                    each_map._cache[key] = block
            for request in requests:
                counts = [manager.get_computed_blocks(request)[1] for manager in made]
                self.assertEqual(*counts)
                found += counts[0]
        return found, found - missed

    def install(self):
        self.addCleanup(setattr, kv_cache_manager, "KVCacheManager", KVCacheManager)
        self.addCleanup(setattr, vllm.KVCacheManager, "theirs", None)
        vllm_plugin.install()

    def test_managers_of_groups_are_known_by_the_classes_of_vllms(self):
        self.install()
        kinds = [getattr(single_type_kv_cache_manager, name)
                 for name in dir(single_type_kv_cache_manager) if name.endswith("Manager")]
        for model, caches in ((config(60, [None, 9, -8, Ring()], [SIZE] * 4), True),
                              (with_states(config(60, [None], [SIZE]), LONGEST, "none"), False)):
            made = [kind(model, LONGEST, scheduler_block_size=LONGEST, hash_block_size=SIZE,
                         max_in_flight_tokens=LONGEST, enable_caching=caches)
                    for kind in (vllm.KVCacheManager, KVCacheManager)]
            self.assertIs(type(made[0]), vllm.KVCacheManager)
            ours, theirs = ([[isinstance(manager, kind) for kind in kinds]
                             for manager in each.coordinator.single_type_managers]
                            for each in made)
            for our, their in zip(ours, theirs):
                self.assertEqual([kind for kind, is_one in zip(kinds, our) if is_one],
                                 [kind for kind, is_one in zip(kinds, their) if is_one])
            made[0].close()

    def test_models_that_are_not_served_have_vllms_manager_once_it_is_installed(self):
        models = [with_states(config(60, [None], [SIZE]), SIZE, "align"),
                  config(60, [None, None], [SIZE, 2 * SIZE]),
                  config(60, [None, 9], [SIZE, 2 * SIZE])]
        for caches in (False, True):
            for model in models:
                with self.assertRaisesRegex(quire.UnsupportedError, "own manager"):
                    vllm.KVCacheManager(model, LONGEST, enable_caching=caches)
        self.install()
        for caches in (False, True):
            for model in models:
                made = vllm.KVCacheManager(
                    model, LONGEST, scheduler_block_size=2 * SIZE, hash_block_size=SIZE,
                    max_in_flight_tokens=LONGEST, enable_caching=caches)
                self.assertIsInstance(made, KVCacheManager)
                made.close()

    def test_vllms_manager_on_blocks_of_quire_decides_as_it_does_on_its_own(self):
        """Also which blocks are evicted: in a small pool both give out the same ones."""
        self.install()
        found = refused = 0
        for seed in range(300, 312):
            with self.subTest(seed=seed):
                rng = random.Random(seed)
                windows = [None, *(rng.choice((None, 5, 9, 17)) for _ in range(rng.randrange(3)))]
                each = [SIZE * rng.choice((1, 2, 3)) for _ in windows] + [5 * SIZE]
                windows, most = [*windows, None], rng.randrange(3)
                engines = [Engine(self, kind(config(150, windows, each), LONGEST,
                                             scheduler_block_size=math.lcm(*each),
                                             hash_block_size=SIZE, max_in_flight_tokens=LONGEST,
                                             enable_caching=seed % 3 != 0,
                                             use_eagle=seed % 2 == 0),
                                  make_request, windows, each, 150, most)
                           for kind in (vllm.KVCacheManager, KVCacheManager)]
                script = Script(seed, most)
                for _ in range(250):
                    script.play(engines, 1)
                    ours, theirs = ({name: engine.manager.get_block_ids(name)
                                     for name in engine.running} for engine in engines)
                    self.assertEqual(ours, theirs)
                self.assertEqual(engines[0].hits, engines[1].hits)
                found += sum(engines[0].hits.values())
                refused += engines[0].refused
                engines[0].manager.close()
        self.assertGreater(found, 0)
        self.assertGreater(refused, 0)

    def nulls(self, engine):
        return {name: [[block == 0 for block in table]
                       for table in engine.manager.get_block_ids(name)]
                for name in engine.running}

    def compare(self, seeds, size=SIZE):
        ours, theirs = 0, 0
        for seed in seeds:
            with self.subTest(seed=seed):
                engines, script = self.engines(seed, 4000, size, use_eagle=seed % 4 == 0)
                script.play(engines, 250)
                self.assertEqual(set(engines[0].hits), set(engines[1].hits))
                for name, found in engines[1].hits.items():
                    self.assertGreaterEqual(engines[0].hits[name], found, name)
                ours += sum(engines[0].hits.values())
                theirs += sum(engines[1].hits.values())
                engines[0].manager.close()
        self.assertGreater(theirs, 0)
        print(f"found: {ours} tokens, vLLM {theirs}")

    def test_large_pool_finds_what_vllm_finds(self):
        self.compare(range(12))

    def test_large_pool_with_blocks_of_several_hashes_finds_what_vllm_finds(self):
        self.compare(range(60, 72), 2 * SIZE)

    def test_small_pool_without_caching_admits_what_vllm_admits(self):
        steps, alike = 0, 0
        for seed in range(20, 32):
            with self.subTest(seed=seed):
                engines, script = self.engines(seed, 120, SIZE << seed % 2, enable_caching=False)
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
                engines, script = self.engines(seed, 150, SIZE << seed % 2)
                script.play(engines, 250)
                ours += sum(engines[0].hits.values())
                theirs += sum(engines[1].hits.values())
                engines[0].manager.close()
        print(f"found in a small pool: {ours} tokens, vLLM {theirs}")


if __name__ == "__main__":
    unittest.main()
