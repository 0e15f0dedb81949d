# SPDX-License-Identifier: Apache-2.0
"""quire.vllm's manager with several groups: whatever it hands out, each token finds what it sees.

vllm_hybrid_other.py plays the same requests through vLLM's own manager as well.
"""

import hashlib
import random
import types
import unittest

import quire
from quire import vllm
from vllm_hybrid_engine import Engine, Script
from vllm_model import Request

SIZE = 4


def config(blocks, windows, size=SIZE):
    """A KVCacheConfig with a group per window; a negative one stands for chunks."""
    made = vllm.config(blocks, size, windows=[
        window if window is None or window > 0 else 0 for window in windows])
    kind = type("ChunkedLocalAttentionSpec", (types.SimpleNamespace,), {})
    for group, window in zip(made.kv_cache_groups, windows):
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


def fixed_group(name, **fields):
    """A KVCacheGroupSpec whose blocks a request has from its admission to its end."""
    kind = type(name, (types.SimpleNamespace,), {})
    return types.SimpleNamespace(kv_cache_spec=kind(**fields))


class Hashed(Request):
    """A request with vLLM's hashes, each of the tokens up to the end of a block of SIZE."""

    @property
    def block_hashes(self):
        return [hash_of(self.all_token_ids[:end])
                for end in range(SIZE, self.num_tokens + 1, SIZE)]


def hash_of(tokens):
    return hashlib.sha256(repr(tokens).encode()).digest()


def make_hashed(name, tokens):
    request = Hashed(name, list(tokens))
    request.num_in_flight_tokens = 0
    return request


class ByHash(Engine):
    """An engine that looks blocks up by hash, too: each must hold that content."""

    def __init__(self, *options):
        super().__init__(*options)
        self.found, self.checks = 0, 0
        self.known = {}  # tokens by their hash

    def check(self):
        super().check()
        self.checks += 1
        if self.checks % 8 != 0:
            return
        for request in self.running.values():
            tokens = request.tokens
            self.known.update((hash_of(tokens[:end]), tuple(tokens[:end]))
                              for end in range(SIZE, len(tokens) + 1, SIZE))
        for hash_, tokens in self.known.items():
            numbers, number = [], 0
            for token in tokens:
                number = self.prefixes.get((number, token))
                numbers.append(number)
            for group, size in enumerate(self.sizes):
                blocks = self.manager.block_pool.get_cached_block(hash_, [group])
                if blocks is not None:
                    self.check_block(group, size, blocks[0].block_id, numbers)

    def check_block(self, group, size, block, numbers):
        self.found += 1
        self.case.assertEqual(len(numbers) % size, 0)
        for slot, number in enumerate(numbers[-size:]):
            self.case.assertEqual(self.memory.get((block, slot)), (group, number))


class WithStates(Engine):
    """An engine whose manager has two more groups: states, which stay where they are."""

    def check(self):
        super().check()
        for name, request in self.running.items():
            states = self.manager.get_block_ids(name)[len(self.groups):]
            self.case.assertEqual([len(table) for table in states], [3, 3])
            self.case.assertEqual(getattr(request, "states", states), states)
            request.states = states
        held = [block for name in self.running for table in self.manager.get_block_ids(name)
                for block in table if block != 0]
        self.case.assertEqual(len(held), len(set(held)))


class Hybrid(unittest.TestCase):
    def play(self, seed, blocks, operations):
        rng = random.Random(seed)
        windows, most = groups(rng), rng.randrange(3)
        size = SIZE * rng.choice((1, 1, 2, 3))
        manager = vllm.KVCacheManager(config(blocks, windows, size), 512, size, SIZE,
                                      use_eagle=seed % 5 == 0)
        engine = Engine(self, manager, make_request, windows, [size] * len(windows), blocks, most)
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

    def test_blocks_are_found_by_their_hashes(self):
        for seed in (*range(200, 206), 263, 280, 376):
            with self.subTest(seed=seed):
                rng = random.Random(seed)
                windows, most = [None, *groups(rng)], rng.randrange(3)
                size = SIZE * rng.choice((1, 2, 3)) if seed % 3 else SIZE
                manager = vllm.KVCacheManager(config(400, windows, size), 512, size, SIZE,
                                              enable_kv_cache_events=seed % 2 == 0)
                self.assertEqual(len(manager.block_pool.cached_block_hash_to_block), 0)
                engine = ByHash(self, manager, make_hashed, windows, [size] * len(windows), 400,
                                most)
                Script(seed, most).play([engine], 150)
                manager._cache.check()
                self.assertGreater(engine.found, 0)
                manager.close()

    def test_every_token_finds_what_it_sees_in_a_small_pool(self):
        refused = 0
        for seed in range(100, 124):
            with self.subTest(seed=seed):
                refused += self.play(seed, 90, 200)[1]
        self.assertGreater(refused, 0)

    def test_states_stay_where_they_are(self):
        for seed in range(6):
            with self.subTest(seed=seed):
                rng = random.Random(seed)
                windows, most = groups(rng), rng.randrange(3)
                made = config(150, windows)
                made.kv_cache_groups += [fixed_group(
                    "MambaSpec", block_size=512, mamba_cache_mode="none",
                    num_speculative_blocks=2)] * 2
                manager = vllm.KVCacheManager(made, 512, SIZE, SIZE, enable_caching=False)
                engine = WithStates(self, manager, make_request, windows, [SIZE] * len(windows),
                                    150, most)
                Script(seed, most).play([engine], 150)
                manager._cache.check()
                manager.close()

    def test_encoder_blocks_are_those_of_its_tokens(self):
        for size, tokens in ((4, 19), (8, 19), (4, 0)):
            made = config(40, [None])
            made.kv_cache_groups.append(fixed_group("CrossAttentionSpec", block_size=size))
            manager = vllm.KVCacheManager(made, 512, SIZE, SIZE, enable_caching=False)
            request = make_request("a", range(30))
            manager.allocate_slots(request, 10, num_encoder_tokens=tokens)
            request.num_computed_tokens = 10
            first = manager.get_block_ids("a")[1]
            self.assertEqual(len(first), -(-tokens // size))
            self.assertEqual(manager.allocate_slots(request, 20).get_block_ids()[1], [])
            self.assertEqual(manager.get_block_ids("a")[1], first)
            manager.free(request)
            self.assertEqual(manager.block_pool.get_num_free_blocks(), 39)
            with self.assertRaisesRegex(quire.UnsupportedError, "prefix caching with uncached"):
                vllm.KVCacheManager(made, 512, SIZE, SIZE)
            manager.close()

    def test_mamba_is_refused_where_its_states_follow_the_tokens(self):
        for mode, drafts in (("all", 0), ("align", 0), ("none", 1)):
            made = config(40, [None])
            made.kv_cache_groups.append(fixed_group(
                "MambaSpec", mamba_cache_mode=mode, num_speculative_blocks=drafts, block_size=16))
            for caches in (False, True):
                with self.assertRaisesRegex(quire.UnsupportedError, f"mode {mode} .* own manager"):
                    vllm.KVCacheManager(made, 512, SIZE, SIZE, enable_caching=caches)

    def test_uncached_states_move_from_block_to_block(self):
        """Mode "none" with small blocks: a token needs the state that the one before it left."""
        for seed in range(8):
            with self.subTest(seed=seed):
                rng = random.Random(seed)
                windows, most = [None, *groups(rng)], rng.randrange(3)
                made = config(120, windows)
                made.kv_cache_groups += [fixed_group(
                    "MambaSpec", block_size=SIZE, mamba_cache_mode="none",
                    num_speculative_blocks=0)] * 2
                with self.assertRaisesRegex(quire.UnsupportedError, "uncached Mamba"):
                    vllm.KVCacheManager(made, 512, SIZE, SIZE)
                manager = vllm.KVCacheManager(made, 512, SIZE, SIZE, enable_caching=False)
                windows += [2, 2]
                engine = Engine(self, manager, make_request, windows, [SIZE] * len(windows),
                                120, most)
                Script(seed, most).play([engine], 150)
                manager._cache.check()
                manager.close()

    def test_cached_block_of_a_request_can_be_touched(self):
        """Also one that its window shows no more to tokens that the block's end precedes."""
        for windows in ((None, 9), (None, 9, -8)):
            with self.subTest(windows=windows):
                manager = vllm.KVCacheManager(config(80, windows), 512, 4, 4)
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
