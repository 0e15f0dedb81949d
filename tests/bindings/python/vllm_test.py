# SPDX-License-Identifier: Apache-2.0
"""quire.vllm's manager against a plain model of it, and against golden numbers of a production
trace."""

import json
import os
import pathlib
import random
import types
import unittest

import numpy as np

import quire
from quire import vllm
from vllm_model import Model, Request

ROOT = pathlib.Path(__file__).resolve().parents[3]
TRACES = pathlib.Path(os.environ.get("QUIRE_TRACES") or ROOT.parent / "shared" / "traces")
TRACE = TRACES / "mooncake_fast25_conversation_trace.jsonl"

# blocks: hit tokens, blocks cached at the end. Exact LRU, from two independent programs.
GOLDEN = {
    16384: (6229248, 16382),
    65536: (8082640, 65534),
    262144: (26641616, 262142),
    1048576: (49165984, 1048574),
    8000000: (54097440, 5919726),
}


class Differential(unittest.TestCase):
    """A scheduler like vLLM's: continuous batching, chunks of prompts, drafts, preemption of the
    newest; every result is compared."""

    BLOCKS, SIZE = 24, 4

    def setUp(self):
        self.manager = vllm.KVCacheManager(vllm.config(self.BLOCKS, self.SIZE), max_model_len=64,
                                           log_stats=True)
        self.model = Model(self.BLOCKS, self.SIZE, 64)

    def tearDown(self):
        self.manager._cache.check()
        self.manager.close()

    def prompt(self, rng, number):
        family = rng.randrange(4)
        length = rng.randrange(1, 40)
        own = rng.randrange(length + 1)
        tokens = [family * 1000 + i for i in range(own)]
        return tokens + [100000 + number * 100 + i for i in range(length - own)]

    def agree(self, rng, request, new, found, lookahead):
        delay = rng.random() < 0.1
        held = {i for running in self.manager._running for i in self.ids(running)}
        blocks = self.manager.allocate_slots(request, new, found, num_lookahead_tokens=lookahead,
                                             delay_cache_blocks=delay)
        count = self.model.allocate_slots(request, new, found, lookahead, delay)
        self.assertEqual(blocks is None, count is None)
        if blocks is None:
            return False
        ids = blocks.get_block_ids()[0]
        self.assertEqual(len(ids), count)
        self.assertEqual(held & set(ids), set(), "new blocks are in no table yet")
        return True

    def ids(self, name):
        return self.manager.get_block_ids(name)[0]

    def cache(self, rng, request):
        """Caches some of the computed tokens, like a scheduler whose steps overlap."""
        count = rng.randrange(request.num_computed_tokens + 1)
        for manager in (self.manager, self.model):
            manager.cache_blocks(request, count)

    def admit(self, rng, request):
        blocks, found = self.manager.get_computed_blocks(request)
        self.assertEqual(found, self.model.get_computed_blocks(request))
        ids = blocks.get_block_ids()[0]
        self.assertIn(len(ids), (0, found // self.SIZE))
        if rng.random() < 0.15:                 # do not share some of what was found
            found = rng.randrange(found // self.SIZE + 1) * self.SIZE
            ids = ids[:found // self.SIZE]
        left = request.num_tokens - found
        new = left if rng.random() < 0.7 else rng.randrange(1, left + 1)
        if not self.agree(rng, request, new, found, 0):
            return False
        if ids:
            self.assertEqual(self.ids(request.request_id)[:len(ids)], ids)
        request.num_computed_tokens = found + new
        return True

    def decode(self, rng, request):
        left = request.num_tokens - request.num_computed_tokens
        if left > 1:                    # the rest of a chunked prompt
            new = rng.randrange(1, left + 1)
            if not self.agree(rng, request, new, 0, 0):
                return False
            request.num_computed_tokens += new
            return True
        drafts = rng.randrange(4) if rng.random() < 0.3 else 0
        if not self.agree(rng, request, 1 + drafts, 0, rng.randrange(3)):
            return False
        accepted = rng.randrange(drafts + 1)
        request.num_computed_tokens += 1 + accepted
        for _ in range(accepted + 1):
            request.all_token_ids.append(rng.randrange(2))
        return True

    def play(self, seed, steps):
        rng = random.Random(seed)
        waiting, running, number = [], [], 0
        for _ in range(steps):
            if len(waiting) < 3:
                number += 1
                waiting.append(Request(f"r{number}", self.prompt(rng, number),
                                       cache_salt="s" if rng.random() < 0.2 else ""))
            for request in list(running):
                if request not in running:
                    continue
                while not self.decode(rng, request):
                    victim = running.pop()
                    for manager in (self.manager, self.model):
                        manager.free(victim)
                    victim.num_computed_tokens = 0
                    victim.num_preemptions += 1
                    waiting.insert(0, victim)
                    if victim is request:
                        break
            while waiting and len(running) < 5 and self.admit(rng, waiting[0]):
                running.append(waiting.pop(0))
            for request in list(running):
                if rng.random() < 0.1:
                    self.cache(rng, request)
                if request.num_tokens > 45 or rng.random() < 0.08:
                    running.remove(request)
                    for manager in (self.manager, self.model):
                        manager.free(request)
            self.assertAlmostEqual(self.manager.usage, self.model.usage())

    def test_random_scheduling_gives_the_models_answers(self):
        for seed in range(40):
            with self.subTest(seed=seed):
                self.play(seed, 120)
                self.tearDown()
                self.setUp()

    def test_prefix_cache_is_reset_when_nobody_holds_blocks(self):
        request = Request("a", list(range(9)))
        self.manager.allocate_slots(request, 9)
        self.assertFalse(self.manager.reset_prefix_cache())
        self.manager.free(request)
        self.assertEqual(self.manager.get_computed_blocks(request)[1], 8)
        self.assertTrue(self.manager.reset_prefix_cache())
        self.assertEqual(self.manager.get_computed_blocks(request)[1], 0)

    def test_stats_are_taken_once(self):
        request = Request("a", list(range(9)))
        self.manager.allocate_slots(request, 9)
        self.manager.get_computed_blocks(request)
        stats = self.manager.make_prefix_cache_stats()
        self.assertEqual((stats.requests, stats.queries, stats.hits), (1, 9, 8))
        self.assertEqual(self.manager.make_prefix_cache_stats().queries, 0)
        silent = vllm.KVCacheManager(vllm.config(8, 4), 8)
        silent.get_computed_blocks(request)
        self.assertTrue(silent.reset_prefix_cache())
        self.assertIsNone(silent.make_prefix_cache_stats())
        silent.close()

    def test_tokens_of_drafts_are_not_cached(self):
        request = Request("a", list(range(6)))
        self.manager.allocate_slots(request, 8)          # two drafts
        other = Request("b", [*range(6), 50, 51, 52])
        self.assertEqual(self.manager.get_computed_blocks(other)[1], 4)

    def test_token_that_is_known_later_is_cached_then(self):
        """Asynchronous scheduling: slots for a token before it is sampled."""
        request = Request("a", list(range(7)))
        self.manager.allocate_slots(request, 7)
        request.num_computed_tokens = 7
        self.manager.allocate_slots(request, 2)
        request.all_token_ids += [7, 8]
        self.manager.cache_blocks(request, 9)
        request.num_computed_tokens = 9
        self.manager.allocate_slots(request, 1)
        self.assertEqual(self.manager.get_computed_blocks(Request("b", list(range(10))))[1], 8)

    def test_new_blocks_of_a_request_are_not_those_of_another(self):
        a, b, c, d = (Request(name, list(range(17))) for name in "abcd")
        self.manager.allocate_slots(a, 17)
        new = self.manager.allocate_slots(b, 17, 0).get_block_ids()[0]
        self.assertEqual(len(new), 5)
        self.assertEqual(new, self.ids("b"))
        self.assertEqual(set(new) & set(self.ids("a")), set())
        new = self.manager.allocate_slots(c, 13, 4).get_block_ids()[0]
        self.assertEqual(self.ids("c"), [self.ids("a")[0], *new])
        self.assertEqual(set(new) & {*self.ids("a"), *self.ids("b")}, set())
        blocks, found = self.manager.get_computed_blocks(d)
        self.assertEqual((blocks.get_block_ids()[0], found), (self.ids("a")[:4], 16))

    def test_lookup_finds_no_more_than_it_is_told(self):
        self.manager.allocate_slots(Request("a", list(range(17))), 17)
        request = Request("b", list(range(17)))
        for most, found in ((0, 0), (3, 0), (4, 4), (11, 8), (16, 16), (99, 16), (None, 16)):
            blocks, count = self.manager.get_computed_blocks(request, most)
            self.assertEqual((count, blocks.get_block_ids()[0]),
                             (found, self.ids("a")[:found // 4]))

    def test_cache_blocks_caches_no_token_in_flight(self):
        request = Request("a", list(range(7)))
        other = Request("b", list(range(20)))
        self.manager.allocate_slots(request, 7)
        request.num_computed_tokens = 7
        self.manager.allocate_slots(request, 6)          # for tokens that are not sampled yet
        request.all_token_ids += range(7, 13)
        for told, cached in ((7, 4), (8, 8), (5, 8), (11, 8), (13, 12), (99, 12)):
            self.manager.cache_blocks(request, told)
            self.assertEqual(self.manager.get_computed_blocks(other)[1], cached)

    def test_accepted_drafts_are_cached_at_the_end(self):
        request = Request("a", list(range(6)))
        self.manager.allocate_slots(request, 8)          # two drafts
        request.all_token_ids += [6, 7, 8]               # both accepted, and one more sampled
        request.num_computed_tokens = 8
        self.manager.cache_blocks(request, request.num_computed_tokens)
        self.manager.free(request)
        self.assertEqual(self.manager.get_computed_blocks(Request("b", list(range(9))))[1], 8)

    def test_what_is_delayed_is_cached_when_vllm_says_so(self):
        request, other = Request("a", list(range(9))), Request("b", list(range(9)))
        self.manager.allocate_slots(request, 0, num_external_computed_tokens=8,
                                    delay_cache_blocks=True)
        self.assertEqual(self.manager.get_computed_blocks(other)[1], 0)
        self.manager.cache_blocks(request, 8)
        self.assertEqual(self.manager.get_computed_blocks(other)[1], 8)

    def test_request_that_skips_the_cache_finds_nothing_and_fills_it(self):
        self.manager.allocate_slots(Request("a", list(range(9))), 9)
        skipping = Request("b", list(range(13)), skip_reading_prefix_cache=True)
        self.assertEqual(self.manager.get_computed_blocks(skipping)[1], 0)
        self.assertEqual(len(self.manager.allocate_slots(skipping, 13).blocks[0]), 4)
        self.assertEqual(self.manager.get_computed_blocks(Request("c", list(range(13))))[1], 12)

    def test_tokens_that_the_library_has_no_number_for_are_compared(self):
        """Placeholders of media and of embeddings: any numbers of 64 bits, in prompts."""
        for strange in (-1, 2 ** 32, 2 ** 32 - 1, 2 ** 62):
            salt = str(strange)
            a = Request("a", [1, 2, strange, 4, 5, 6, 7, 8, 9], cache_salt=salt)
            self.assertEqual(self.manager.get_computed_blocks(a)[1], 0)
            self.assertEqual(len(self.manager.allocate_slots(a, 9).blocks[0]), 3)
            same = Request("b", [1, 2, strange, 4, 5, 6, 7, 8, 10], cache_salt=salt)
            self.assertEqual(self.manager.get_computed_blocks(same)[1], 8)
            for other in (0, strange + 1):
                different = Request("c", [1, 2, other, 4, 5, 6, 7, 8, 9], cache_salt=salt)
                self.assertEqual(self.manager.get_computed_blocks(different)[1], 0)
            self.manager.free(a)

    def test_sampled_tokens_without_a_number_are_not_cached(self):
        request = Request("a", list(range(7)))
        self.manager.allocate_slots(request, 7)
        request.all_token_ids += [-1, 8, 9, 10, 11, 12]
        request.num_computed_tokens = 7
        self.manager.allocate_slots(request, 6)
        for tokens in ([*range(7), -1, 8, 9, 10, 11, 12], [*range(7), 0, 8, 9, 10, 11, 12]):
            self.assertEqual(self.manager.get_computed_blocks(Request("b", tokens))[1], 4)

    def test_words_are_refused_as_tokens(self):
        for wrong in ("a", 1.5, 2 ** 64):
            request = Request("a", [1, 2, wrong, 4, 5])
            for call in (lambda: self.manager.get_computed_blocks(request),
                         lambda: self.manager.allocate_slots(request, 5)):
                with self.assertRaisesRegex(quire.ArgumentError, "all_token_ids"):
                    call()
            self.assertEqual((self.manager.usage, self.ids("a")), (0.0, []))
            uncached = vllm.KVCacheManager(vllm.config(8, 4), 8, enable_caching=False)
            self.assertEqual(len(uncached.allocate_slots(request, 5).blocks[0]), 2)
            uncached.close()

    def test_embeddings_belong_to_the_content(self):
        embeds = np.arange(12 * 3, dtype=np.float32).reshape(12, 3)
        changed = embeds.copy()
        changed[5] += 1
        requests = [Request(name, [0] * 12) for name in "abc"]
        for request, content in zip(requests, (embeds, embeds.copy(), changed)):
            request.prompt_embeds = content
        self.manager.allocate_slots(requests[0], 12)
        found = [self.manager.get_computed_blocks(request)[1] for request in requests[1:]]
        self.assertEqual(found, [8, 4], "the changed row is in the second block")
        self.assertEqual(self.manager.get_computed_blocks(Request("d", [0] * 12))[1], 0)

    def test_tokens_that_a_request_got_instead_are_looked_up(self):
        self.manager.allocate_slots(Request("a", list(range(9))), 9)
        request = Request("b", [*range(8), 50])
        self.assertEqual(self.manager.get_computed_blocks(request)[1], 8)
        request.all_token_ids[4:] = [60, 61, 62, 63, 64]
        self.assertEqual(self.manager.get_computed_blocks(request)[1], 4)

    def test_admission_leaves_what_it_was_told_to(self):
        request = Request("a", list(range(40)))
        allocate = self.manager.allocate_slots
        self.assertIsNone(allocate(request, 4, reserved_blocks=23))
        self.assertIsNotNone(allocate(request, 4, reserved_blocks=22))
        request.num_computed_tokens = 4
        self.assertIsNone(allocate(request, 4, reserved_blocks=22), "a running one leaves it too")
        self.assertIsNotNone(allocate(request, 4, reserved_blocks=21))
        # 21 blocks are left. `whole` must fit with its 16, and the first chunk must leave the
        # reserved blocks free; it need not do both at once.
        whole = Request("b", list(range(200, 292)))
        for reserved in (21, 22):
            self.assertIsNone(allocate(whole, 4, full_sequence_must_fit=True,
                                       reserved_blocks=reserved))
            self.assertEqual(self.manager.get_block_ids("b"), ([],))
        self.assertIsNotNone(allocate(whole, 4, full_sequence_must_fit=True, reserved_blocks=20))
        self.manager.free(whole)
        allocate(Request("c", list(range(300, 324))), 24)
        self.assertIsNone(allocate(whole, 4, full_sequence_must_fit=True), "15 are left")

    def test_what_is_not_offered_is_refused(self):
        request = Request("a", [1])
        with self.assertRaises(ValueError):
            self.manager.allocate_slots(request, 0)
        for call in (lambda: self.manager.allocate_slots(request, 1, num_encoder_tokens=1),
                     lambda: vllm.KVCacheManager(vllm.config(8, 4097), 8),
                     lambda: vllm.KVCacheManager(vllm.config(8, 4), 8, pcp_world_size=2)):
            with self.assertRaises(quire.UnsupportedError):
                call()
        groups = vllm.config(8, 4, windows=(None, 8))
        groups.kv_cache_groups[1].kv_cache_spec.block_size = 8
        for caches in (False, True):
            with self.assertRaisesRegex(quire.UnsupportedError, r"\[4, 8\] tokens .* own manager"):
                vllm.KVCacheManager(groups, 8, enable_caching=caches)
        with self.assertRaisesRegex(quire.UnsupportedError, "17 KV cache groups"):
            vllm.KVCacheManager(vllm.config(8, 4, windows=[None] * 17), 8)
        uncached = vllm.config(8, 4, windows=(None, None))
        uncached.kv_cache_groups[1].kv_cache_spec.prefix_cacheable = False
        with self.assertRaisesRegex(quire.UnsupportedError, "blocks are not cached"):
            vllm.KVCacheManager(uncached, 8)
        vllm.KVCacheManager(uncached, 8, enable_caching=False).close()
        with self.assertRaisesRegex(ValueError, "num_new_computed_tokens"):
            self.manager.allocate_slots(request, 1, num_new_computed_tokens=4)
        newer = vllm.KVCacheManager(vllm.config(8, 4), 8, scheduler_block_size=4)
        self.assertEqual(newer.get_computed_blocks(request)[1:], (0, 0))
        newer.close()


class Windowed(unittest.TestCase):
    def test_request_goes_on_in_a_pool_of_its_window(self):
        """The prompt fills the three blocks; later tokens reuse those that left its window."""
        manager = vllm.KVCacheManager(vllm.config(4, 4, sliding_window=8), max_model_len=64)
        request = Request("a", list(range(12)))
        self.assertEqual(len(manager.allocate_slots(request, 12).blocks[0]), 3)
        for token in range(12, 60):
            request.num_computed_tokens = token
            request.all_token_ids.append(token)
            self.assertIsNotNone(manager.allocate_slots(request, 1), token)
        manager.close()

    def play(self, seed):
        rng = random.Random(seed)
        window = rng.choice((1, 2, 3, 4, 7, 8, 9))
        manager = vllm.KVCacheManager(vllm.config(12, 4, sliding_window=window), max_model_len=256)
        request = Request("a", [rng.randrange(2) for _ in range(rng.randrange(1, 20))])
        found = manager.get_computed_blocks(request)[1]
        self.assertIsNotNone(manager.allocate_slots(request, request.num_tokens - found, found))
        request.num_computed_tokens = request.num_tokens
        request.all_token_ids.append(rng.randrange(2))
        while request.num_tokens < 150:
            drafts, lookahead = rng.randrange(6), rng.randrange(3)
            self.assertIsNotNone(manager.allocate_slots(request, 1 + drafts,
                                                        num_lookahead_tokens=lookahead))
            first, end = request.num_computed_tokens, request.num_computed_tokens + 1 + drafts
            table = manager.get_block_ids("a")[0]
            seen = table[max(0, first - window + 1) // 4:-(-end // 4)]
            self.assertEqual(len(set(seen)), -(-end // 4) - max(0, first - window + 1) // 4)
            self.assertNotIn(0, seen, "what the drafts and the token before them see is present")
            accepted = rng.randrange(drafts + 1)
            request.num_computed_tokens += 1 + accepted
            request.all_token_ids += [rng.randrange(2) for _ in range(1 + accepted)]
            if rng.random() < 0.3:
                manager.cache_blocks(request, request.num_computed_tokens)
            manager._cache.check()
        manager.free(request)
        again = Request("b", request.all_token_ids)
        self.assertGreater(manager.get_computed_blocks(again)[1], 100)
        manager.close()

    def test_rejected_drafts_find_their_window_whole(self):
        for seed in range(60):
            with self.subTest(seed=seed):
                self.play(seed)


def trace():
    with TRACE.open() as lines:
        for number, line in enumerate(lines):
            yield number, json.loads(line)


def trace_tokens(number, request):
    """32-bit ids for a request's tokens: prompts' below 2^31, outputs' above."""
    blocks = np.asarray(request["hash_ids"], np.uint32)
    prompt = (blocks[:, None] * np.uint32(512) + np.arange(512, dtype=np.uint32)).reshape(-1)
    output = request["output_length"] - 1
    first = 2 ** 31 + trace_tokens.given
    trace_tokens.given += max(0, output)
    names = np.arange(first, first + max(0, output), dtype=np.uint64).astype(np.uint32)
    return np.concatenate([prompt[:request["input_length"]], names])


@unittest.skipUnless(TRACE.exists(), f"no {TRACE.name} in QUIRE_TRACES or ../shared/traces")
class Trace(unittest.TestCase):
    """One request at a time: lookup, prompt, output, end."""

    def replay(self, blocks, host_blocks=0):
        manager = vllm.KVCacheManager(vllm.config(blocks, 16, host_blocks=host_blocks),
                                      max_model_len=1 << 30)
        trace_tokens.given = 0
        hits = 0
        for number, line in trace():
            tokens = trace_tokens(number, line)
            length = line["input_length"]
            request = types.SimpleNamespace(request_id=str(number), num_computed_tokens=0,
                                            all_token_ids=tokens[:length], num_tokens=length)
            _, found = manager.get_computed_blocks(request)
            self.assertIsNotNone(manager.allocate_slots(request, length - found, found))
            hits += found
            output = len(tokens) - length
            if output > 0:
                request.all_token_ids, request.num_tokens = tokens, len(tokens)
                request.num_computed_tokens = length
                self.assertIsNotNone(manager.allocate_slots(request, output))
            manager.free(request)
            manager.take_host_copies()
        cached = manager._cache.stats.blocks_cached + manager.host_stats().cached
        manager.close()
        return hits, cached

    def test_hits_are_golden_in_65536_blocks(self):
        self.assertEqual(self.replay(65536), GOLDEN[65536])

    def test_hits_are_golden_in_65536_blocks_on_two_levels(self):
        self.assertEqual(self.replay(9000, 65536 - 9000 + 1), GOLDEN[65536])

    @unittest.skipUnless(os.environ.get("QUIRE_TEST_ALL"), "long: a test of ./dev test extended")
    def test_hits_are_golden_in_every_pool(self):
        for blocks, golden in GOLDEN.items():
            with self.subTest(blocks=blocks):
                self.assertEqual(self.replay(blocks), golden)


if __name__ == "__main__":
    unittest.main()
