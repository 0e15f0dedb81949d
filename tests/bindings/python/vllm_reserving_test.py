# SPDX-License-Identifier: Apache-2.0
"""quire.vllm's manager: blocks for many requests at once, what its blocks tell, and which releases
and groups it refuses."""

import sys
import types
import unittest

import quire
from quire import vllm
from vllm_model import Request


class Reserving(unittest.TestCase):
    """Decoding of many requests at once."""

    def setUp(self):
        self.manager = vllm.KVCacheManager(vllm.config(400, 4), 256, 4)
        self.requests = [Request(f"r{i}", [i * 100 + j for j in range(8)]) for i in range(16)]
        for request in self.requests:
            self.manager.allocate_slots(request, 8)
            request.num_computed_tokens = 8

    def tearDown(self):
        self.manager._cache.check()
        self.manager.close()

    def decode(self):
        """A step of all requests; returns the blocks given out."""
        given = []
        for request in self.requests:
            request.all_token_ids.append(7)
            blocks = self.manager.allocate_slots(request, 1)
            given += blocks.get_block_ids()[0]
            request.num_computed_tokens += 1
        return given

    def test_one_step_of_the_library_serves_all_requests(self):
        steps = self.manager._cache.stats.steps
        given = [self.decode() for _ in range(8)]
        self.assertEqual([len(ids) for ids in given], [16, 0, 0, 0, 16, 0, 0, 0])
        self.assertEqual(len(set(given[0] + given[4])), 32)
        self.assertEqual(self.manager._cache.stats.steps, steps + 2)

    def test_reserved_blocks_count_as_free_and_are_given_back(self):
        pool = self.manager.block_pool
        free = pool.get_num_free_blocks()
        self.assertEqual(len(self.manager.allocate_slots(self.requests[0], 1).blocks[0]), 1)
        self.assertEqual(self.manager._table.reserved, 15)
        self.assertEqual(pool.get_num_free_blocks(), free - 1)
        self.assertAlmostEqual(self.manager.usage, 1 - (free - 1) / 399)
        big = Request("big", [9] * 4 * (free - 1))
        self.manager.max_model_len = 1 << 20
        self.assertEqual(len(self.manager.allocate_slots(big, len(big.all_token_ids)).blocks[0]),
                         free - 1)
        self.assertEqual((pool.get_num_free_blocks(), self.manager._table.reserved), (0, 0))
        self.manager._cache.check()
        self.manager.free(big)
        self.assertEqual(len(self.decode()), 15)

    def test_what_is_decoded_is_found(self):
        for _ in range(9):
            self.decode()
        for request in self.requests:
            twin = Request("twin", [*request.all_token_ids, 1])
            self.assertEqual(self.manager.get_computed_blocks(twin)[1], 16)

    def test_popped_blocks_are_held_until_they_are_freed(self):
        free = self.manager.block_pool.get_num_free_blocks()
        blocks = self.manager.pop_blocks_for_free(self.requests[0])
        self.assertEqual(self.manager.get_block_ids("r0"), ([],))
        self.assertEqual(self.manager.block_pool.get_num_free_blocks(), free)
        self.manager.block_pool.free_blocks(reversed(blocks))
        self.assertEqual(self.manager.block_pool.get_num_free_blocks(), free + 2)

    def test_blocks_tell_whether_they_are_cached(self):
        a = self.requests[0]
        self.manager.allocate_slots(a, 1)
        blocks = self.manager.get_blocks("r0")
        self.assertEqual(blocks.get_unhashed_block_ids(), blocks.get_block_ids()[0][2:])
        self.assertEqual([block.ref_cnt for block in blocks.blocks[0]], [1, 1, 1])

    def test_eagle_drops_the_last_block_that_is_found(self):
        manager = vllm.KVCacheManager(vllm.config(40, 4), 256, 4, use_eagle=True)
        manager.allocate_slots(Request("a", list(range(17))), 17)
        for length, found in ((17, 12), (9, 4), (5, 0), (4, 0)):
            count = manager.get_computed_blocks(Request("b", list(range(length))))[1]
            self.assertEqual(count, found)
        manager.close()

    def test_blocks_for_an_encoder_are_taken_once(self):
        config = vllm.config(16, 4)
        kind = type("CrossAttentionSpec", (types.SimpleNamespace,), {})
        config.kv_cache_groups[0].kv_cache_spec = kind(block_size=4)
        manager = vllm.KVCacheManager(config, 256, 4)
        request = Request("a", list(range(3)))
        new = manager.allocate_slots(request, 3, num_encoder_tokens=10)
        self.assertEqual(len(new.blocks[0]), 3)
        for token in range(3, 30):
            request.num_computed_tokens = token
            self.assertEqual(manager.allocate_slots(request, 1).blocks, ((),))
        self.assertEqual(len(manager.get_block_ids("a")[0]), 3)
        manager.close()


class Releases(unittest.TestCase):
    def test_release_that_was_not_tested_is_refused_by_name(self):
        had = sys.modules.get("vllm")
        for version, good in (("0.33.0", True), ("0.33.0+cpu", True), ("0.33.1", False),
                              ("0.18.1", False), ("0.34.0rc1", False)):
            sys.modules["vllm"] = types.SimpleNamespace(__version__=version)
            try:
                if good:
                    vllm.KVCacheManager(vllm.config(8, 4), 8).close()
                    continue
                with self.assertRaisesRegex(quire.UnsupportedError, version):
                    vllm.KVCacheManager(vllm.config(8, 4), 8)
            finally:
                del sys.modules["vllm"]
                if had is not None:
                    sys.modules["vllm"] = had

    def test_kind_of_group_that_is_not_known_is_refused_by_name(self):
        config = vllm.config(8, 4)
        kind = type("MambaSpec", (types.SimpleNamespace,), {})
        config.kv_cache_groups[0].kv_cache_spec = kind(block_size=4)
        with self.assertRaisesRegex(quire.UnsupportedError, "MambaSpec"):
            vllm.KVCacheManager(config, 8)

    def test_full_attention_with_a_window_keeps_its_blocks(self):
        """vLLM's FullAttentionSpec has a window if other layers of the group have none."""
        config = vllm.config(16, 4)
        kind = type("FullAttentionSpec", (types.SimpleNamespace,), {})
        config.kv_cache_groups[0].kv_cache_spec = kind(block_size=4, sliding_window=4)
        manager = vllm.KVCacheManager(config, 64)
        request = Request("a", list(range(20)))
        manager.allocate_slots(request, 20)
        request.num_computed_tokens = 20
        manager.allocate_slots(request, 8)
        self.assertNotIn(0, manager.get_block_ids("a")[0])
        manager.close()


if __name__ == "__main__":
    unittest.main()
