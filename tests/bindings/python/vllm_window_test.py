# SPDX-License-Identifier: Apache-2.0
"""quire.vllm's manager with a sliding window or chunks: when blocks are returned, with steps in
flight, against the definition of what a token sees."""

import random
import types
import unittest

from quire import vllm
from vllm_model import Request

SIZE, BLOCKS = 4, 40


def config(window, is_chunked):
    if not is_chunked:
        return vllm.config(BLOCKS, SIZE, sliding_window=window)
    made = vllm.config(BLOCKS, SIZE)
    kind = type("ChunkedLocalAttentionSpec", (types.SimpleNamespace,), {})
    made.kv_cache_groups[0].kv_cache_spec = kind(block_size=SIZE, attention_chunk_size=window)
    return made


class Engine:
    """Schedules steps that end some time later, in their order."""

    def __init__(self, case, seed):
        self.case, self.rng = case, random.Random(seed)
        self.is_chunked = seed % 3 == 0
        self.window = self.rng.choice((1, 2, 3, 4, 7, 8, 9, 16))
        self.manager = vllm.KVCacheManager(config(self.window, self.is_chunked), 512, SIZE, SIZE)
        self.most = seed % 4  # steps in flight; 0: each one ends before the next is scheduled
        self.running, self.in_flight = [], []

    def first_seen(self, place):
        """The first place that the token at a place sees."""
        if self.is_chunked:
            return place // self.window * self.window
        return max(0, place - self.window + 1)

    def table(self, request):
        return self.manager.get_block_ids(request.request_id)[0]

    def schedule(self):
        """One step of all requests that get their blocks."""
        step = []
        for request in self.running:
            left = request.num_tokens - request.num_computed_tokens
            new = self.rng.randrange(1, min(left, 24) + 1)
            drafts = self.rng.randrange(3) if new == left and self.most == 0 else 0
            self.allocate(step, request, new, drafts, 0)
        if len(self.running) < 3:
            name = f"r{self.rng.random()}"
            tokens = [self.rng.randrange(2) for _ in range(self.rng.randrange(1, 60))]
            request = Request(name, tokens)
            request.num_in_flight_tokens = 0
            found = self.manager.get_computed_blocks(request)[1]
            if self.allocate(step, request, request.num_tokens - found, 0, found):
                self.running.append(request)
        self.in_flight.append(step)

    def allocate(self, step, request, new, drafts, found):
        busy = {block for s in self.in_flight for _, _, blocks, _ in s for block in blocks}
        blocks = self.manager.allocate_slots(request, new + drafts, found)
        if blocks is None:
            return False
        given = blocks.get_block_ids()[0]
        self.case.assertFalse(busy & set(given), "a step in flight sees it")
        first = request.num_computed_tokens + found
        table = self.table(request)
        done = first - request.num_in_flight_tokens
        nulls = min(self.first_seen(done) // SIZE, len(table))
        self.case.assertEqual([i for i, block in enumerate(table) if block == 0],
                              list(range(nulls)), "what the steps that are done have passed")
        end = first + new + drafts
        seen = table[self.first_seen(first) // SIZE:-(-end // SIZE)]
        self.case.assertNotIn(0, seen)
        step.append((request, new, seen, drafts))
        request.num_computed_tokens = end
        request.num_in_flight_tokens += new + drafts
        if self.most and end == request.num_tokens:
            request.all_token_ids.append(self.rng.randrange(2))
        return True

    def end_step(self):
        for request, new, _, drafts in self.in_flight.pop(0):
            request.num_in_flight_tokens -= new + drafts
            kept = self.rng.randrange(drafts + 1)
            request.num_computed_tokens -= drafts - kept
            while request.num_tokens <= request.num_computed_tokens:
                request.all_token_ids.append(self.rng.randrange(2))
            if request.num_tokens > 150 and request.num_in_flight_tokens == 0:
                self.manager.free(request)
                self.running.remove(request)

    def held(self):
        return {block for request in self.running for block in self.table(request)} - {0}

    def play(self):
        for _ in range(80):
            self.schedule()
            while len(self.in_flight) > self.rng.randrange(self.most + 1):
                self.end_step()
            self.manager._cache.check()
            self.case.assertEqual(self.manager.block_pool.get_num_free_blocks(),
                                  BLOCKS - 1 - len(self.held()))


class Windows(unittest.TestCase):
    def test_blocks_are_returned_when_the_steps_that_see_them_are_done(self):
        for seed in range(24):
            with self.subTest(seed=seed):
                engine = Engine(self, seed)
                engine.play()
                engine.manager.close()

    def test_finished_request_returns_what_its_window_has_passed(self):
        for tokens in (31, 32, 33):
            manager = vllm.KVCacheManager(vllm.config(BLOCKS, SIZE, sliding_window=8), 512, SIZE)
            request = Request("a", list(range(tokens)))
            manager.allocate_slots(request, tokens)
            free = manager.block_pool.get_num_free_blocks()
            manager.remove_skipped_blocks("a", 0)
            self.assertEqual(manager.block_pool.get_num_free_blocks(), free)
            manager.remove_skipped_blocks("a", tokens)
            passed = (tokens - 8 + 1) // SIZE
            self.assertEqual(manager.block_pool.get_num_free_blocks(), free + passed)
            self.assertEqual(manager.get_block_ids("a")[0][:passed + 1].count(0), passed)
            manager._cache.check()
            manager.free(request)
            self.assertEqual(manager.block_pool.get_num_free_blocks(), BLOCKS - 1)
            manager.close()

    def test_last_free_block_does_not_keep_a_window_from_moving(self):
        """The pool is full, and the request ends at the end of a block."""
        manager = vllm.KVCacheManager(vllm.config(9, SIZE, sliding_window=8), 512, SIZE)
        request = Request("a", list(range(32)))
        manager.allocate_slots(request, 32)
        self.assertEqual(manager.block_pool.get_num_free_blocks(), 0)
        manager.remove_skipped_blocks("a", 32)
        self.assertEqual(manager.block_pool.get_num_free_blocks(), 6)
        manager.close()

    def test_blocks_that_a_connector_need_not_load_are_not_kept(self):
        for new in (0, 3, 20):
            manager = vllm.KVCacheManager(vllm.config(BLOCKS, SIZE, sliding_window=8), 512, SIZE)
            request = Request("a", list(range(60)))
            given = manager.allocate_slots(request, new, num_external_computed_tokens=28,
                                           delay_cache_blocks=True)
            table = manager.get_block_ids("a")[0]
            self.assertEqual([block == 0 for block in table],
                             [True] * 5 + [False] * (-(-(28 + new) // SIZE) - 5))
            self.assertEqual(given.get_block_ids()[0], table[5:])
            self.assertEqual(manager.block_pool.get_num_free_blocks(),
                             BLOCKS - 1 - len(table[5:]))
            manager._cache.check()
            manager.close()

    def test_chunks_are_found_as_windows_are(self):
        manager = vllm.KVCacheManager(config(8, True), 512, SIZE)
        request = Request("a", list(range(30)))
        manager.allocate_slots(request, 30)
        manager.free(request)
        blocks, found = manager.get_computed_blocks(Request("b", list(range(23))))[:2]
        self.assertEqual((found, [b.block_id == 0 for b in blocks.blocks[0]]),
                         (20, [True] * 4 + [False]))
        manager.close()


if __name__ == "__main__":
    unittest.main()
