# SPDX-License-Identifier: Apache-2.0
"""quire.vllm's manager: what it tells of cached blocks by vLLM's hashes, in events and in its block
pool, against lookups of the tokens; and blocks that are held for others than requests."""

import hashlib
import random
import unittest

import quire
from quire import vllm
from vllm_model import Request

SIZE = 4


class Hashed(Request):
    """A request with hashes like vLLM's: of everything up to the end of each block."""

    def __init__(self, name, tokens, lookahead=0, **options):
        super().__init__(name, tokens, **options)
        self.lookahead = lookahead

    @property
    def block_hashes(self):
        ends = range(SIZE, self.num_tokens - self.lookahead + 1, SIZE)
        return [hashlib.sha256(
            repr((self.cache_salt, self.all_token_ids[:end + self.lookahead])).encode()).digest()
            for end in ends]


class Reader:
    """Follows events, as a router does."""

    def __init__(self, case):
        self.case = case
        self.known = {}  # hash -> (hash of the block before it, tokens)

    def read(self, manager):
        for event in manager.take_events():
            kind = type(event).__name__
            if kind == "AllBlocksCleared":
                self.known.clear()
            elif kind == "BlockRemoved":
                for name in event.block_hashes:
                    del self.known[name]
            else:
                self.store(event)

    def store(self, event):
        before = event.parent_block_hash
        for i, name in enumerate(event.block_hashes):
            self.case.assertNotIn(name, self.known)
            self.case.assertTrue(before is None or before in self.known, "its parent is told")
            self.known[name] = (before, event.token_ids[i * SIZE:(i + 1) * SIZE])
            before = name


class Told(unittest.TestCase):
    BLOCKS = 20

    def start(self, **options):
        self.manager = vllm.KVCacheManager(vllm.config(self.BLOCKS, SIZE), 256, SIZE, SIZE,
                                           enable_kv_cache_events=True, **options)
        self.lookahead = options.get("num_hash_lookahead_tokens", 0)
        self.reader = Reader(self)
        self.running = []
        self.seen = {}  # hash -> (salt, all tokens up to the end of the block)

    def tearDown(self):
        self.manager._cache.check()
        self.manager.close()

    def request(self, name, tokens, **options):
        return Hashed(name, tokens, self.lookahead, **options)

    def remember(self, request):
        for i, name in enumerate(request.block_hashes):
            end = (i + 1) * SIZE + self.lookahead
            self.seen[name] = (request.cache_salt, request.all_token_ids[:end])

    def agree(self):
        """What was told is what lookups find, and the pool's block for a hash has its content."""
        self.reader.read(self.manager)
        pool = self.manager.block_pool
        for name, (salt, tokens) in self.seen.items():
            count = (len(tokens) - self.lookahead) // SIZE
            probe = self.request("probe", [*tokens, 1 << 20], cache_salt=salt)
            blocks, found = self.manager.get_computed_blocks(probe)[:2]
            self.assertEqual(found >= count * SIZE, name in self.reader.known)
            cached = pool.get_cached_block(name, [0])
            shown = list(blocks.blocks[0][count - 1:count])  # none if there is no other block
            if shown or name not in self.reader.known:
                self.assertEqual(cached is not None, name in self.reader.known)
            if shown and cached is not None:
                self.assertIn(cached[0], self.blocks_with(salt, tokens, count) + shown)
            if name in self.reader.known:
                part = tokens[(count - 1) * SIZE:count * SIZE]
                self.assertEqual(self.reader.known[name][1], part)
        self.assertEqual(len(pool.cached_block_hash_to_block), len(self.reader.known))

    def blocks_with(self, salt, tokens, count):
        """The blocks of running requests that hold the last block's content."""
        return [self.manager.get_blocks(request.request_id).blocks[0][count - 1]
                for request in self.running if request.cache_salt == salt
                and request.num_computed_tokens >= count * SIZE
                and request.all_token_ids[:len(tokens)] == tokens]

    def admit(self, rng, number):
        own = rng.randrange(10)
        tokens = [7] * rng.randrange(1, 16) + [100 * number + i for i in range(own)]
        request = self.request(f"r{number}", tokens, cache_salt=rng.choice(("", "", "a", "b")),
                               skip_reading_prefix_cache=rng.random() < 0.3)
        found = self.manager.get_computed_blocks(request)[1]
        if self.manager.allocate_slots(request, request.num_tokens - found, found) is None:
            return None
        request.num_computed_tokens = request.num_tokens
        request.all_token_ids.append(rng.randrange(2))
        return request

    def play(self, seed, **options):
        self.start(**options)
        rng = random.Random(seed)
        running = self.running
        for number in range(60):
            request = self.admit(rng, number)
            running += [request] if request else []
            for request in list(running):
                done = rng.random() < 0.3
                if not done and self.manager.allocate_slots(request, 1) is not None:
                    request.num_computed_tokens += 1
                    request.all_token_ids.append(rng.randrange(2))
                    self.remember(request)
                    continue
                self.manager.free(request)
                running.remove(request)
            if rng.random() < 0.05 and not running:
                self.assertTrue(self.manager.reset_prefix_cache())
            if rng.random() < 0.3:
                self.agree()
        self.agree()

    def test_events_tell_what_lookups_find(self):
        for seed in range(25):
            with self.subTest(seed=seed):
                self.play(seed)
                self.tearDown()
        self.start()

    def test_lookahead_tokens_belong_to_a_block(self):
        for seed in range(25):
            with self.subTest(seed=seed):
                self.play(seed, num_hash_lookahead_tokens=1 + seed % 3)
                self.tearDown()
        self.start()

    def test_lookahead_finds_a_block_only_before_its_tokens(self):
        self.start(num_hash_lookahead_tokens=1)
        self.manager.allocate_slots(self.request("a", list(range(12))), 12)
        for tokens, found in ((list(range(12)), 8), ([*range(8), 1000], 4), ([*range(8), 8], 8),
                              (list(range(8)), 4), ([0], 0)):
            count = self.manager.get_computed_blocks(self.request("b", tokens))[1]
            self.assertEqual(count, found, tokens)

    def test_block_out_of_the_map_is_not_found_until_it_is_put_back(self):
        self.start()
        first = self.request("a", list(range(18)))
        self.manager.allocate_slots(first, 18)
        self.manager.free(first)
        pool, second = self.manager.block_pool, self.request("b", list(range(18)))
        tables = self.manager.get_computed_blocks(second)[0].get_block_ids()
        for place in range(4):
            key = second.block_hashes[place] + bytes(4)
            block = pool.cached_block_hash_to_block.get_one_block(key)
            self.assertEqual(block.block_id, tables[0][place])
            self.assertIsNone(pool.cached_block_hash_to_block.pop(key, block.block_id + 1))
            self.assertIs(pool.cached_block_hash_to_block.pop(key, block.block_id), block)
            self.assertIsNone(pool.cached_block_hash_to_block.pop(key, block.block_id))
            self.assertEqual(len(pool.cached_block_hash_to_block), 3)
            self.assertIsNone(pool.get_cached_block(key[:-4], [0]))
            blocks, found, _ = self.manager.get_computed_blocks(second)
            self.assertEqual(found, place * SIZE)
            self.assertEqual(blocks.get_block_ids()[0], tables[0][:place])
            pool.cached_block_hash_to_block.insert(key, block)
            self.assertEqual(self.manager.get_computed_blocks(second)[0].get_block_ids(), tables)
        self.assertEqual(self.manager.take_events()[0].block_hashes, first.block_hashes)
        for wrong in (key, second.block_hashes[0] + bytes(4)):
            with self.assertRaisesRegex(quire.UnsupportedError, "no content with this hash"):
                pool.cached_block_hash_to_block.insert(wrong, pool.blocks[self.BLOCKS - 1])

    def test_content_out_of_the_map_leaves_with_its_block(self):
        """The block gets another content, which is found; so is the old one, computed anew."""
        self.start()
        first = self.request("a", list(range(18)))
        self.manager.allocate_slots(first, 18)
        taken = self.manager.get_block_ids("a")[0][:4]
        self.manager.free(first)
        cache = self.manager.block_pool.cached_block_hash_to_block
        for hash_ in first.block_hashes:
            del cache._cache[hash_ + bytes(4)]
        self.assertEqual(dict(cache._cache), {})
        other = self.request("b", list(range(100, 100 + 19 * SIZE)))
        self.manager.allocate_slots(other, 19 * SIZE)  # the whole pool
        given = self.manager.get_block_ids("b")
        self.assertLessEqual(set(taken), set(given[0]))
        self.manager.free(other)
        blocks, found, _ = self.manager.get_computed_blocks(self.request(
            "c", other.all_token_ids))
        self.assertEqual((found, blocks.get_block_ids()[0]), (18 * SIZE, given[0][:18]))
        self.manager.allocate_slots(self.request("d", list(range(18))), 18)
        blocks, found, _ = self.manager.get_computed_blocks(self.request("e", list(range(18))))
        self.assertEqual((found, blocks.get_block_ids()[0]),
                         (16, self.manager.get_block_ids("d")[0][:4]))

    def test_event_has_the_fields_of_its_request(self):
        self.start(num_hash_lookahead_tokens=1)
        request = self.request("a", list(range(10)))
        request.session_id = "s"
        self.manager.allocate_slots(request, 10)
        event, = self.manager.take_events()
        self.assertEqual((event.block_hashes, event.parent_block_hash),
                         (request.block_hashes, None))
        self.assertEqual((event.token_ids, event.block_size), (list(range(8)), 4))
        self.assertEqual((event.session_id, event.group_idx, event.medium), ("s", 0, "GPU"))
        self.assertEqual(event.lookahead_token_ids, [[4], [8]])
        again = self.request("b", list(range(10)))
        again.kv_cache_report_mode = "full"
        self.manager.get_computed_blocks(again)
        event, = self.manager.take_events()
        self.assertEqual(event.block_hashes, request.block_hashes)
        self.assertEqual(self.manager.take_events(), [])

    def test_pool_that_is_asked_late_knows_what_requests_hold(self):
        self.start()
        manager = vllm.KVCacheManager(vllm.config(self.BLOCKS, SIZE), 256, SIZE)
        a, b = (self.request(name, [1, 2, 3, 4] * 2 + [name]) for name in (5, 6))
        for request in (a, b):
            found = manager.get_computed_blocks(request)[1]
            manager.allocate_slots(request, request.num_tokens - found, found)
        self.assertEqual(manager.get_block_ids(5)[0][:2], manager.get_block_ids(6)[0][:2])
        self.assertEqual(
            [manager.block_pool.get_cached_block(name, [0])[0].block_id for name in a.block_hashes],
            manager.get_block_ids(5)[0][:2])
        manager.close()


class Held(unittest.TestCase):
    """Blocks that a connector holds."""

    def setUp(self):
        self.manager = vllm.KVCacheManager(vllm.config(12, SIZE), 256, SIZE)
        self.pool = self.manager.block_pool
        self.request = Hashed("a", list(range(18)))
        self.manager.allocate_slots(self.request, 18)
        self.blocks = list(self.manager.get_blocks("a").blocks[0])

    def tearDown(self):
        self.manager._cache.check()
        self.manager.close()

    def found(self, tokens=18):
        probe = Hashed("probe", list(range(tokens)))
        return self.manager.get_computed_blocks(probe)[1]

    def press(self):
        """A request that takes every free block, and ends."""
        big = Hashed("big", [9] * SIZE * self.pool.get_num_free_blocks())
        self.assertIsNotNone(self.manager.allocate_slots(big, big.num_tokens))
        self.manager.free(big)

    def test_touched_blocks_outlive_their_request(self):
        self.pool.touch(self.blocks[:2])
        self.assertEqual([block.ref_cnt for block in self.blocks], [2, 2, 1, 1, 1])
        self.manager.free(self.request)
        self.assertEqual(self.pool.get_num_free_blocks(), 9)
        self.assertFalse(self.manager.reset_prefix_cache())
        self.press()
        self.assertEqual(self.found(), 8)
        self.pool.free_blocks(self.blocks[1::-1])
        self.assertEqual(self.pool.get_num_free_blocks(), 11)
        self.press()
        self.assertEqual(self.found(), 0)

    def test_cached_blocks_are_touched_without_a_request(self):
        self.manager.free(self.request)
        cached = [self.pool.get_cached_block(name, [0])[0]
                  for name in self.request.block_hashes[:3]]
        self.assertEqual(cached, self.blocks[:3])
        self.pool.touch(cached[:1])
        self.pool.touch(cached)
        self.assertEqual([block.ref_cnt for block in self.blocks], [2, 1, 1, 0, 0])
        self.press()
        self.assertEqual(self.found(), 12)
        self.pool.free_blocks(reversed(cached))
        self.press()
        self.assertEqual((self.found(), cached[0].ref_cnt), (4, 1))
        self.pool.free_blocks(cached[:1])
        self.assertEqual(self.pool.get_num_free_blocks(), 11)

    def test_blocks_before_a_touched_one_are_held_with_it(self):
        self.pool.touch(self.blocks[2:3])
        self.manager.free(self.request)
        self.assertEqual(self.pool.get_num_free_blocks(), 8)
        self.press()
        self.assertEqual(self.found(), 12)
        self.pool.free_blocks(self.blocks[2:3])
        self.assertEqual(self.pool.get_num_free_blocks(), 11)

    def test_what_is_neither_held_nor_cached_is_not_touched(self):
        self.manager.free(self.request)
        with self.assertRaises(quire.UnsupportedError):
            self.pool.touch([self.blocks[0], self.blocks[4]])
        self.assertEqual(self.pool.get_num_free_blocks(), 11)
        with self.assertRaises(quire.UnsupportedError):
            self.pool.free_blocks(self.blocks[:1])

    def test_new_blocks_are_held_until_each_is_returned(self):
        new = self.pool.get_new_blocks(4)
        self.assertEqual(set(new) & set(self.blocks), set())
        self.assertEqual([block.ref_cnt for block in new], [1] * 4)
        with self.assertRaises(ValueError):
            self.pool.get_new_blocks(3)
        self.pool.free_blocks(new[:1])
        self.assertEqual(self.pool.get_num_free_blocks(), 3)
        self.assertEqual(self.pool.get_new_blocks(0), [])
        self.pool.free_blocks(new[1:])
        self.assertEqual(self.pool.get_num_free_blocks(), 6)

    def test_request_computes_in_place_while_its_blocks_are_touched(self):
        self.pool.touch(self.blocks)
        for token in range(18, 40):
            self.request.num_computed_tokens = token
            self.request.all_token_ids.append(token)
            self.assertIsNotNone(self.manager.allocate_slots(self.request, 1))
        self.assertEqual(list(self.manager.get_blocks("a").blocks[0])[:5], self.blocks)
        self.manager.free(self.request)
        self.pool.free_blocks(reversed(self.blocks))
        self.assertEqual(self.pool.get_num_free_blocks(), 11)
        self.assertEqual(self.found(40), 36)

    def test_evicted_blocks_are_found_no_more_and_those_before_them_are(self):
        other = Hashed("b", list(range(18)))
        found = self.manager.get_computed_blocks(other)[1]
        self.manager.allocate_slots(other, 2, found)
        self.manager.evict_blocks({self.blocks[2].block_id})
        self.assertEqual(self.found(), 8)
        self.assertEqual([block.block_hash is not None for block in self.blocks],
                         [True, True, False, False, False])
        self.assertIsNone(self.pool.get_cached_block(self.request.block_hashes[2], [0]))
        self.assertEqual(self.pool.get_num_free_blocks(), 5)
        self.manager.free(self.request)
        self.assertEqual(self.found(), 8, "the other request holds it still")
        self.manager.free(other)
        self.assertEqual(self.found(), 8)
        self.assertEqual(self.pool.get_num_free_blocks(), 11)
        again = Hashed("c", list(range(18)))
        self.manager.allocate_slots(again, 10, 8)
        self.assertEqual(self.found(), 16)

    def test_cached_block_of_no_request_is_evicted(self):
        self.manager.free(self.request)
        self.pool.touch(self.blocks[:1])
        with self.assertRaises(quire.UnsupportedError):
            self.manager.evict_blocks({self.blocks[0].block_id})
        self.pool.free_blocks(self.blocks[:1])
        self.assertEqual(self.found(), 16)
        self.manager.evict_blocks({self.blocks[1].block_id})
        self.assertEqual(self.found(), 4)
        self.assertIsNone(self.pool.get_cached_block(self.request.block_hashes[1], [0]))
        self.assertIsNone(self.pool.get_cached_block(self.request.block_hashes[2], [0]))
        self.manager.evict_blocks({11})

    def test_free_blocks_come_in_the_order_in_which_they_are_taken(self):
        self.manager.free(self.request)
        order = self.pool.free_block_queue.get_all_free_blocks()
        self.assertEqual(len(order), self.pool.get_num_free_blocks())
        rest = self.pool.free_block_queue.iter_blocks_after(order[3])
        self.assertEqual(list(rest), order[4:])
        self.assertIs(self.pool.free_block_queue.fake_free_list_head.next_free_block, order[0])
        big = Hashed("big", [9] * SIZE * len(order))
        self.assertEqual(list(self.manager.allocate_slots(big, big.num_tokens).blocks[0]), order)
        self.assertEqual(self.pool.free_block_queue.get_all_free_blocks(), [])


if __name__ == "__main__":
    unittest.main()
