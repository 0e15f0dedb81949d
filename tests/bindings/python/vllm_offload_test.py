# SPDX-License-Identifier: Apache-2.0
"""quire.vllm's manager with host memory: what each step reads after the copies, how much is found,
and what events and the block pool say of blocks that move."""

import hashlib
import itertools
import random
import unittest

import numpy as np

import quire
from quire import vllm
from quire.vllm_host import HostBlocks, Region, move_on_host, needed, waves
from vllm_hash_test import Hashed
from vllm_model import Request

SIZE = 4
LAYERS = 2


def manager_of(blocks, host, **options):
    return vllm.KVCacheManager(vllm.config(blocks, SIZE, host_blocks=host), 256, SIZE, SIZE,
                               **options)


def row(request, position, layer):
    """K and V of a token: they depend on all tokens up to it, and on nothing else."""
    text = repr((layer, request.cache_salt, request.all_token_ids[:position + 1]))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


class Worker:
    """Pools of two layers, one row per token; `packed`: block after block, with both layers in
    each, instead of layer after layer."""

    def __init__(self, case, blocks, host, packed):
        self.case, self.packed = case, packed
        self.pool = np.zeros((blocks, LAYERS, SIZE) if packed else (LAYERS, blocks, SIZE),
                             np.uint64)
        block, layer = SIZE * 8, blocks * SIZE * 8
        at = self.pool.ctypes.data
        regions = [Region(at, LAYERS * block)] if packed else \
            [Region(at + i * layer, block) for i in range(LAYERS)]
        self.memory = np.zeros(HostBlocks.size_bytes(regions, host), np.uint8)
        self.host = HostBlocks(regions, self.memory.ctypes.data, host, move_on_host)

    def slots(self, block, layer):
        return self.pool[block, layer] if self.packed else self.pool[layer, block]

    def write(self, request, ids, begin, end):
        for layer in range(LAYERS):
            for i in range(begin, end):
                self.slots(ids[i // SIZE], layer)[i % SIZE] = row(request, i, layer)

    def read(self, request, ids, end):
        for layer in range(LAYERS):
            for i in range(end):
                self.case.assertEqual(int(self.slots(ids[i // SIZE], layer)[i % SIZE]),
                                      row(request, i, layer),
                                      f"{request.request_id} at {i} of {end}, layer {layer}")


class Copies(unittest.TestCase):
    """The copies of a step in groups, against the same copies one after another."""

    def make(self, rng):
        """Random copies, and what they leave in each place, one after another."""
        places = [(host, block) for host in (False, True) for block in range(1, 5)]
        copies = []
        for _ in range(rng.randrange(12)):
            out = rng.random() < 0.5
            copies.append(((not out, rng.randrange(1, 5)), (out, rng.randrange(1, 5))))
        content = {place: place for place in places}
        for source, target in copies:
            content[target] = content[source]
        return copies, {place: place for place in places}, content

    def test_groups_leave_what_the_copies_leave(self):
        rng = random.Random(1)
        for _ in range(2000):
            copies, content, expected = self.make(rng)
            for group in waves(needed(copies)):
                rng.shuffle(group)
                for source, target in group:
                    content[target] = content[source]
            self.assertEqual(content, expected, copies)

    def test_copies_of_a_group_touch_no_target_twice(self):
        rng = random.Random(2)
        for _ in range(2000):
            for group in waves(self.make(rng)[0]):
                targets = [target for _, target in group]
                self.assertEqual(len(set(targets)), len(targets))
                self.assertFalse({source for source, _ in group} & set(targets))

    def test_what_is_overwritten_unread_is_not_copied(self):
        device, host = [(False, i) for i in range(3)], [(True, i) for i in range(3)]
        kept = needed([(device[1], host[1]), (device[2], host[1]), (host[1], device[1])])
        self.assertEqual(kept, [(device[2], host[1]), (host[1], device[1])])

    def test_a_block_that_the_host_does_not_have_is_refused(self):
        host = HostBlocks([Region(0, 8)], 0, 3, move_on_host)
        for block in (0, 4):
            with self.assertRaisesRegex(quire.ArgumentError, f"block {block} of 3"):
                host.run(np.array([[1, 1, block]], np.int32))


class Content(unittest.TestCase):
    """A scheduler like vLLM's, with workers: continuous batching, chunks of prompts, drafts,
    preemption of the newest. After a step's copies each block that the step reads holds K and V of
    its tokens."""

    def play(self, seed, steps, blocks, host, packed):
        self.rng = random.Random(seed)
        self.manager = manager_of(blocks, host)
        self.worker = Worker(self, blocks, host, packed)
        self.running, self.number, self.found, self.reserved = [], 0, 0, 0
        for _ in range(steps):
            self.step()
        self.manager._cache.check()
        stats = self.manager.host_stats()
        self.manager.close()
        return stats

    def prompt(self):
        self.number += 1
        family, length = self.rng.randrange(5), self.rng.randrange(1, 40)
        own = self.rng.randrange(length + 1)
        tokens = [family * 1000 + i for i in range(own)]
        tokens += [100000 + self.number * 100 + i for i in range(length - own)]
        return Request(f"r{self.number}", tokens, cache_salt=self.rng.choice(["", "", "", "s"]))

    def allocate(self, request, new, found=0, lookahead=0):
        return self.manager.allocate_slots(request, new, found,
                                           num_lookahead_tokens=lookahead) is not None

    def admit(self, request):
        found = self.manager.get_computed_blocks(request)[1]
        new = self.rng.randrange(1, request.num_tokens - found + 1)
        if not self.allocate(request, new, found):
            return None
        self.found += found
        return found, found + new

    def continues(self, request):
        begin = request.num_computed_tokens
        left = request.num_tokens - begin
        new = self.rng.randrange(1, left + 1) if left > 1 else 1
        lookahead = self.rng.randrange(3) if left == 1 else 0
        return (begin, begin + new) if self.allocate(request, new, 0, lookahead) else None

    def schedule(self):
        """[(request, first token, last + 1)] of a step."""
        planned = []
        for request in list(self.running):
            if request not in self.running:
                continue
            part = self.continues(request)
            while part is None and self.running[-1] is not request:
                self.manager.free(self.running.pop())  # not planned yet: newer ones come later
                part = self.continues(request)
            if part is None:
                self.manager.free(self.running.pop())
                break
            planned.append((request, *part))
        for _ in range(self.rng.randrange(3)):
            request = self.prompt()
            part = self.admit(request)
            if part is None:
                break
            self.running.append(request)
            planned.append((request, *part))
        return planned

    def step(self):
        planned = self.schedule()
        self.reserved = max(self.reserved, self.manager._table.reserved)
        self.worker.host.run(self.manager.take_host_copies())
        tables = [self.manager.get_block_ids(request.request_id)[0] for request, _, _ in planned]
        for (request, begin, end), ids in zip(planned, tables):
            self.worker.write(request, ids, begin, end)
        for (request, _, end), ids in zip(planned, tables):
            self.worker.read(request, ids, end)
            request.num_computed_tokens = end
            if end == request.num_tokens:
                request.all_token_ids.append(self.rng.randrange(2))
        for request in [r for r in self.running if self.rng.random() < 0.15]:
            self.running.remove(request)
            self.manager.free(request)

    def test_each_block_that_a_step_reads_holds_its_tokens(self):
        promoted = 0
        for seed, packed in itertools.product(range(12), (False, True)):
            blocks, host = 12 + seed, (2, 5, 30)[seed % 3]
            stats = self.play(seed, 150, blocks, host, packed)
            self.assertGreater(self.found, 0)
            self.assertGreater(stats.demoted, 100)
            promoted += stats.promoted
        self.assertGreater(promoted, 200)

    def test_blocks_in_reserve_move_like_others(self):
        stats = self.play(1, 400, 90, 60, False)
        self.assertGreater(self.reserved, 4)
        self.assertGreater(min(stats), 20)

    def test_a_copy_left_out_is_noticed(self):
        """The test above can fail."""
        broken = vllm.KVCacheManager.take_host_copies
        try:
            vllm.KVCacheManager.take_host_copies = lambda manager: broken(manager)[1:]
            with self.assertRaises(AssertionError):
                self.play(0, 150, 12, 30, False)
        finally:
            vllm.KVCacheManager.take_host_copies = broken
        self.manager.close()


class Found(unittest.TestCase):
    """Both pools find what one of both sizes finds, less the block that is free for exchanges."""

    def replay(self, manager, seed, requests, together):
        rng, hits, running = random.Random(seed), [], []
        for number in range(requests):
            family, own = rng.randrange(8), rng.randrange(1, 30)
            request = Request(f"r{number}", [family * 1000 + i for i in range(own)]
                              + [10**6 + number * 100 + i for i in range(rng.randrange(10))] + [7])
            if len(running) == together:
                manager.free(running.pop(rng.randrange(together)))
            found = manager.get_computed_blocks(request)[1]
            blocks = manager.allocate_slots(request, request.num_tokens - found, found)
            self.assertIsNotNone(blocks)
            hits.append(found)
            running.append(request)
            if rng.random() < 0.3 or together == 1:
                manager.free(running.pop())
        manager._cache.check()
        return hits

    def compare(self, blocks, host, together):
        for seed in range(5):
            manager, whole = manager_of(blocks, host), manager_of(blocks + host - 1, 0)
            hits = self.replay(manager, seed, 300, together)
            self.assertEqual(hits, self.replay(whole, seed, 300, together))
            self.assertGreater(manager.host_stats().promoted, 10)
            self.assertGreater(sum(hits), 0)
            manager.close()
            whole.close()

    def test_one_request_at_a_time_finds_what_one_pool_finds(self):
        self.compare(12, 20, 1)

    def test_a_small_host_tier_finds_what_one_pool_finds(self):
        self.compare(20, 3, 1)

    def test_several_requests_find_what_one_pool_finds(self):
        self.compare(34, 20, 3)

    def test_a_hit_in_host_memory_counts_like_any_other(self):
        manager = manager_of(9, 20, log_stats=True)
        for first in (0, 1000, 0):
            request = Request(f"r{first}", list(range(first, first + 29)))
            found = manager.get_computed_blocks(request)[1]
            manager.record_prefix_cache_stats(request, found)
            self.assertIsNotNone(manager.allocate_slots(request, 29 - found, found))
            manager.free(request)
        self.assertEqual(found, 28)
        self.assertEqual(manager.prefix_cache_stats.hits, 28)
        self.assertEqual(manager.host_stats().promoted, 7)
        self.assertEqual(manager.usage, 0.0)
        self.assertEqual(manager.block_pool.get_num_free_blocks(), 8)
        self.assertTrue(manager.reset_prefix_cache())
        self.assertEqual(manager.get_computed_blocks(request)[1], 0)
        manager.close()


class Reader:
    """Follows events per medium."""

    def __init__(self, case):
        self.case, self.known = case, {"GPU": {}, "CPU": {}}

    def read(self, manager):
        for event in manager.take_events():
            kind = type(event).__name__
            if kind == "AllBlocksCleared":
                for known in self.known.values():
                    known.clear()
            elif kind == "BlockRemoved":
                for name in event.block_hashes:
                    del self.known[event.medium][name]
            else:
                self.store(event)

    def store(self, event):
        before, known = event.parent_block_hash, self.known[event.medium]
        for i, name in enumerate(event.block_hashes):
            self.case.assertNotIn(name, known)
            self.case.assertTrue(before is None or any(before in k for k in self.known.values()))
            known[name] = (before, event.token_ids[i * SIZE:(i + 1) * SIZE])
            before = name


class Told(unittest.TestCase):
    """Events and the block pool, while blocks move."""

    BLOCKS, HOST = 16, 12
    twins = True  # requests may have a content that is cached in blocks of their own

    def request(self, rng, number):
        family, own = rng.randrange(4), rng.randrange(1, 24)
        tokens = [family * 1000 + i for i in range(own)]
        tokens += [10**6 + number * 100 + i for i in range(rng.randrange(8))] + [7]
        return Hashed(f"r{number}", tokens)

    def start(self, **options):
        self.manager = manager_of(self.BLOCKS, self.HOST, **options)
        self.reader, self.content = Reader(self), {}
        self.worker = Worker(self, self.BLOCKS, self.HOST, False)

    def step(self, rng, number, running):
        request = self.request(rng, number)
        found = self.manager.get_computed_blocks(request)[1]
        if self.twins and rng.random() < 0.2:  # do not share some of what was found
            found = rng.randrange(found // SIZE + 1) * SIZE
        new = request.num_tokens - found
        if self.manager.allocate_slots(request, new, found) is None:
            self.manager.free(running.pop(rng.randrange(len(running))))
            return
        self.worker.host.run(self.manager.take_host_copies())
        ids = self.manager.get_block_ids(request.request_id)[0]
        self.worker.write(request, ids, found, request.num_tokens)
        for i, name in enumerate(request.block_hashes):
            end = (i + 1) * SIZE
            self.content[name] = (request.block_hashes[i - 1] if i else None,
                                  request.all_token_ids[end - SIZE:end], request, i)
        running.append(request)
        if rng.random() < 0.7:
            self.manager.free(running.pop(rng.randrange(len(running))))

    def check_events(self):
        self.reader.read(self.manager)
        known = self.reader.known
        stats = self.manager._books.stats()
        self.assertLessEqual(len(known["CPU"]), stats.host_blocks_cached)
        self.assertFalse(known["GPU"].keys() & known["CPU"].keys())
        found = {name for name, (_, _, request, i) in self.content.items()
                 if self.manager.get_computed_blocks(
                     Request("p", request.all_token_ids[:(i + 1) * SIZE] + [9]))[1] > i * SIZE}
        self.assertEqual(known["GPU"].keys() | known["CPU"].keys(), found)
        for told in known.values():
            for name, said in told.items():
                self.assertEqual(said, self.content[name][:2])

    def check_pool(self):
        """Exactly the blocks on the device are found by hash, and hold what the hash says."""
        pool = self.manager.block_pool
        found = 0
        for name, (_, _, request, i) in self.content.items():
            blocks = pool.get_cached_block(name, [0])
            if blocks is None:
                continue
            found += 1
            block = blocks[0].block_id
            for slot in range(SIZE):
                self.assertEqual(int(self.worker.slots(block, 0)[slot]),
                                 row(request, i * SIZE + slot, 0))
            self.assertTrue(pool.cached_block_hash_to_block.contain(name + bytes(4), block))
            self.assertEqual(blocks[0].block_hash, name + bytes(4))
        if self.twins:  # then a block may have to be looked up, which takes free blocks
            self.assertLessEqual(found, len(pool.cached_block_hash_to_block))
        else:
            self.assertEqual(found, len(pool.cached_block_hash_to_block))
        return found

    def play(self, every, check, **options):
        for seed in range(6):
            rng, running = random.Random(seed), []
            self.start(**options)
            for number in range(150):
                self.step(rng, number, running)
                if number % every == 0:
                    check()
            self.assertGreater(self.manager.host_stats().promoted, 20)
            self.manager._cache.check()
            self.manager.close()

    def test_events_tell_where_each_block_is(self):
        self.play(1, self.check_events, enable_kv_cache_events=True)

    def test_events_that_are_read_rarely_add_up(self):
        self.play(13, self.check_events, enable_kv_cache_events=True)

    def test_the_pool_finds_the_blocks_on_the_device_by_hash(self):
        self.play(5, self.check_pool, enable_kv_cache_events=True)

    def test_the_pool_finds_every_block_on_the_device_if_none_has_twins(self):
        self.twins = False
        self.play(5, self.check_pool, enable_kv_cache_events=True)

    def test_a_pool_that_is_read_late_names_no_block_wrongly(self):
        for seed in range(6):
            rng, running = random.Random(seed), []
            self.start()
            for number in range(60):
                self.step(rng, number, running)
            counts = [0]
            for number in range(60, 120):
                counts.append(self.check_pool())
                self.step(rng, number, running)
            self.assertGreater(max(counts), 3)
            self.manager.close()

    def test_a_block_that_moved_says_where_it_is_now(self):
        self.HOST = 20
        self.start(enable_kv_cache_events=True)
        first = self.fill("a", 0)
        self.fill("b", 1000)
        events = self.manager.take_events()
        moved = [event for event in events if event.medium == "CPU"]
        self.assertEqual({event.block_hashes[0] for event in moved},
                         set(first.block_hashes))
        last = next(event for event in moved if event.block_hashes == first.block_hashes[14:])
        self.assertEqual(last.token_ids, first.all_token_ids[56:])
        self.assertEqual(last.parent_block_hash, first.block_hashes[13])
        removed = [event for event in events if type(event).__name__ == "BlockRemoved"]
        self.assertEqual({event.medium for event in removed}, {"GPU"})
        self.manager.close()

    def fill(self, name, base):
        """A request that takes every block, and returns them."""
        request = Hashed(name, list(range(base, base + 60)))
        self.assertIsNotNone(self.manager.allocate_slots(request, 60))
        self.manager.free(request)
        return request

    def test_a_block_that_is_computed_anew_is_found_where_it_is_now(self):
        """Its content goes to host memory and counts on the device again, between two reads of the
        events: so they tell nothing."""
        self.HOST = 20
        self.start(enable_kv_cache_events=True)
        first = self.fill("a", 0)
        self.manager.take_events()
        again = Hashed("b", first.all_token_ids)
        self.assertIsNotNone(self.manager.allocate_slots(again, 60))
        self.assertGreater(self.manager.host_stats().demoted, 0)
        self.assertEqual(self.manager.take_events(), [])
        ids = self.manager.get_block_ids("b")[0]
        pool = self.manager.block_pool
        found = [pool.get_cached_block(name, [0])[0] for name in first.block_hashes]
        self.assertEqual([block.block_id for block in found], ids)
        for block, name in zip(found, first.block_hashes):
            self.assertTrue(pool.cached_block_hash_to_block.contain(name + bytes(4),
                                                                    block.block_id))
        self.manager.free(again)
        self.manager.close()

    def test_a_block_that_is_touched_does_not_move(self):
        self.start()
        pool = self.manager.block_pool
        request = Hashed("a", list(range(17)))
        self.assertIsNotNone(self.manager.allocate_slots(request, 17))
        self.manager.free(request)
        block = pool.get_cached_block(request.block_hashes[3], [0])[0]
        pool.touch([block])
        other = Hashed("b", list(range(1000, 1044)))
        self.assertIsNotNone(self.manager.allocate_slots(other, 44))
        self.manager.free(other)
        self.fill_rest()
        self.assertIs(pool.get_cached_block(request.block_hashes[3], [0])[0], block)
        self.assertEqual(block.ref_cnt, 1)
        self.assertNotIn(block.block_id, self.manager.take_host_copies()[:, 1].tolist())
        pool.free_blocks([block])
        self.assertEqual(block.ref_cnt, 0)
        self.manager.close()

    def fill_rest(self):
        """A request that takes the blocks that are not held."""
        tokens = self.manager.block_pool.get_num_free_blocks() * SIZE
        rest = Hashed("rest", list(range(5000, 5000 + tokens)))
        self.assertIsNotNone(self.manager.allocate_slots(rest, tokens))
        self.manager.free(rest)

    def test_free_blocks_are_those_of_the_device(self):
        self.start()
        for name, base in (("a", 0), ("b", 1000)):
            self.fill(name, base)
        free = self.manager.block_pool.free_block_queue.get_all_free_blocks()
        self.assertEqual(sorted(block.block_id for block in free), list(range(1, self.BLOCKS)))
        self.manager.close()


class Refused(unittest.TestCase):
    """What host memory does not go with."""

    def test_a_window(self):
        with self.assertRaisesRegex(quire.UnsupportedError, "windowed model"):
            vllm.KVCacheManager(vllm.config(9, SIZE, 8, host_blocks=4), 64, SIZE)

    def test_no_prefix_caching(self):
        with self.assertRaisesRegex(quire.UnsupportedError, "without prefix caching"):
            manager_of(9, 4, enable_caching=False)

    def test_blocks_that_are_zeroed(self):
        config = vllm.config(9, SIZE, host_blocks=4)
        config.needs_kv_cache_zeroing = True
        with self.assertRaisesRegex(quire.UnsupportedError, "zeroed blocks"):
            vllm.KVCacheManager(config, 64, SIZE)

    def test_tokens_that_a_connector_loads(self):
        manager = manager_of(9, 4)
        with self.assertRaisesRegex(quire.UnsupportedError, "a connector loads"):
            manager.allocate_slots(Request("a", list(range(9))), 1,
                                   num_external_computed_tokens=8)
        manager.close()


if __name__ == "__main__":
    unittest.main()
