# SPDX-License-Identifier: Apache-2.0
"""A tree of Quire finds what SGLang's own finds, and evicts the least recently used page.

Random operations run on SGLang's RadixCache, on Quire's, and on a list of pages and times."""

import os
import random
import types
import unittest
from array import array

import torch
from sglang.srt.disaggregation.kv_events import AllBlocksCleared, BlockRemoved, BlockStored
from sglang.srt.mem_cache import registry
from sglang.srt.mem_cache.base_prefix_cache import EvictParams, InsertParams, MatchPrefixParams
from sglang.srt.mem_cache.radix_cache import RadixCache, RadixKey

import quire
from quire import sglang_core
from quire.sglang_radix import NAME, SIMULATED_PAGES, QuireRadixCache, make, register

import sglang_requests as requests  # noqa: E402

OPERATIONS = int(os.environ.get("QUIRE_SGLANG_OPERATIONS", "36000"))  # for each page size


class Times:
    """The least recently used pages: when each page of the tree was used last."""

    def __init__(self, page):
        self.page, self.now = page, 0
        self.used, self.locks = {}, {}  # by place; (time, depth)

    def use(self, numbers):
        self.now += 1
        for depth, number in enumerate(numbers):
            self.used[number] = (self.now, -depth)

    def found(self, numbers):
        return sum(number in self.used for number in numbers)

    def lock(self, numbers):
        for number in numbers:
            self.locks[number] = self.locks.get(number, 0) + 1

    def unlock(self, numbers):
        self.now += 1
        for depth, number in enumerate(numbers):
            self.locks[number] -= 1
            if self.locks[number] == 0:
                del self.locks[number]
                self.used[number] = (self.now, -depth)

    def evict(self, pages):
        free = sorted((time, number) for number, time in self.used.items()
                      if number not in self.locks)
        for _, number in free[:pages]:
            del self.used[number]

    def sizes(self):
        total, locked = len(self.used) * self.page, len(self.locks) * self.page
        return total, total - locked, locked


class Pair:
    """SGLang's tree and Quire's, on which the same happens."""

    def __init__(self, makers, page, pages, seed):
        self.random, self.page, self.pages = random.Random(seed), page, pages
        self.places, self.times = requests.Places(), Times(page)
        self.theirs, self.ours = [requests.Side(maker, page, pages, self.places)
                                  for maker in makers]
        self.live, self.locks, self.known = [], [], [[0]]
        self.same = True  # both have evicted the same
        self.compared = 0

    def prompt(self):
        """(space, chunks): mostly a prompt from before, cut or with another end."""
        chunks = list(self.random.choice(self.known))
        chunks = chunks[:self.random.randint(0, len(chunks))]
        chunks += [self.random.randrange(3) for _ in range(self.random.randint(1, 6))]
        chunks = chunks[:self.pages // 3]
        if len(self.known) < 40:
            self.known.append(chunks)
        else:
            self.known[self.random.randrange(40)] = chunks
        space = self.random.randrange(4) if self.random.random() < 0.2 else 0
        return space, chunks

    def equal(self, theirs, ours):
        if self.same:
            assert theirs == ours, f"theirs {theirs}, ours {ours}"
            self.compared += 1

    def numbers(self, space, chunks, tokens):
        return self.places.of(space, chunks)[:tokens // self.page]

    # Each operation says what it did to the tree of pages and times.

    def match(self):
        space, chunks = self.prompt()
        want = self.times.found(self.places.of(space, chunks)) * self.page
        (theirs, _), (ours, _) = [s.match(space, chunks) for s in (self.theirs, self.ours)]
        assert ours == want, f"ours {ours}, used pages {want}"
        self.equal(theirs, ours)
        self.times.use(self.numbers(space, chunks, ours))

    def room(self, side, tokens):
        """Before an allocation: the model evicts what the side will."""
        missing = tokens - side.allocator.available_size()
        if missing > 0:
            self.same = False
            if side is self.ours:
                self.times.evict(-(-missing // self.page))

    def insert(self):
        space, chunks = self.prompt()
        for side in (self.theirs, self.ours):
            self.room(side, len(chunks) * self.page)
        numbers = self.places.of(space, chunks)
        there = self.times.found(numbers) * self.page
        theirs, ours = [s.insert(space, chunks) for s in (self.theirs, self.ours)]
        assert ours is None or ours == there, f"ours {ours}, used pages {there}"
        self.equal(theirs, ours)
        if ours is not None:
            self.times.use(numbers)

    def lock(self):
        space, chunks = self.prompt()
        nodes = []
        for side in (self.theirs, self.ours):
            found, node = side.match(space, chunks)
            nodes.append((found, side.cache.lock(node)))
        numbers = self.numbers(space, chunks, nodes[1][0])
        self.times.use(numbers)
        self.times.lock(numbers)
        self.locks.append((space, chunks, nodes))

    def unlock(self):
        if not self.locks:
            return
        space, chunks, nodes = self.locks.pop(self.random.randrange(len(self.locks)))
        for side, (found, lock) in zip((self.theirs, self.ours), nodes):
            assert side.match(space, chunks)[0] >= found, "a locked page was evicted"
            side.cache.unlock(lock)
        want = self.times.found(self.places.of(space, chunks)) * self.page
        self.times.use(self.numbers(space, chunks, want))
        self.times.unlock(self.numbers(space, chunks, nodes[1][0]))

    def start(self):
        if len(self.live) >= 12:
            return
        space, chunks = self.prompt()
        numbers = self.places.of(space, chunks)
        pair = []
        for side in (self.theirs, self.ours):
            found, node = side.match(space, chunks)
            if side is self.ours:
                self.times.use(numbers[:found // self.page])
                self.times.lock(numbers[:found // self.page])
            lock = side.cache.lock(node)
            self.room(side, len(chunks) * self.page - found)
            pair.append(side.start(space, chunks))
            side.cache.unlock(lock)
            if side is self.ours:
                if pair[-1] is None:
                    self.times.use(numbers[:found // self.page])
                    self.times.unlock(numbers[:found // self.page])
        if None in pair:
            self.same = False
            for side, request in zip((self.theirs, self.ours), pair):
                if request is not None:
                    self.drop(side, request)
            return
        self.live.append(pair)

    def drop(self, side, request):
        if side is self.ours:
            self.times.unlock(self.protected(request))
        side.release(request)

    def protected(self, request):
        return self.numbers(request.space, request.chunks, request.kv.cache_protected_len)

    def checkpoint(self, finish=False):
        if not self.live:
            return
        pair = self.random.choice(self.live)
        done = max(request.kv.cache_protected_len for request in pair) // self.page
        pages = len(pair[0].chunks) if finish else self.random.randint(done, len(pair[0].chunks))
        for side, request in zip((self.theirs, self.ours), pair):
            if pages == 0:
                continue
            before = self.protected(request)
            side.checkpoint(request, pages)
            if side is self.ours:
                numbers = self.places.of(request.space, request.chunks)[:pages]
                self.times.use(numbers)
                self.times.lock(numbers)
                self.times.unlock(before)
            length = request.kv.cache_protected_len
            assert length == pages * self.page
            side.check_content(request.space, request.chunks,
                               side.rows[request.kv.req_pool_idx, :length].long())
        if finish:
            self.finish(pair)

    def finish(self, pair=None):
        """A request ends; without a checkpoint it was aborted."""
        if not self.live:
            return
        pair = pair or self.random.choice(self.live)
        self.live.remove(pair)
        for side, request in zip((self.theirs, self.ours), pair):
            self.drop(side, request)

    def evict(self):
        """A part, or all that is not locked: then both trees have the same again."""
        pages = self.random.choice((1, 2, 5, self.pages))
        tokens = pages * self.page - self.random.randrange(self.page)
        pages = -(-tokens // self.page)
        for side in (self.theirs, self.ours):
            evictable = side.cache.evictable_size()
            freed = side.cache.evict(EvictParams(num_tokens=tokens)).num_tokens_evicted
            assert freed >= min(tokens, evictable)
            if side is self.ours:
                assert freed == min(pages * self.page, evictable)
        self.times.evict(pages)
        locked = [(found[0], found[1]) for found in ([n[0] for n in nodes]
                                                     for _, _, nodes in self.locks)]
        locked += [tuple(r.kv.cache_protected_len for r in pair) for pair in self.live]
        self.same = pages == self.pages and all(a == b for a, b in locked)

    def check(self):
        assert self.ours.sizes() == self.times.sizes()
        self.equal(self.theirs.sizes(), self.ours.sizes())
        for side, at in ((self.theirs, 0), (self.ours, 1)):
            held = sum(pair[at].kv.kv_allocated_len - pair[at].kv.cache_protected_len
                       for pair in self.live)
            free = side.allocator.available_size()
            assert free + side.sizes()[0] + held == side.size, "a slot is lost"

    def run(self, count):
        for number in range(count):
            kind = self.random.choices(
                (self.match, self.insert, self.lock, self.unlock, self.start, self.checkpoint,
                 lambda: self.checkpoint(True), self.finish, self.evict),
                (20, 15, 8, 9, 12, 14, 8, 3, 4))[0]
            kind()
            if number % 8 == 0:
                self.check()
        self.ours.cache.sanity_check()


class Differential(unittest.TestCase):
    """Each page size with as many random operations."""

    def run_pages(self, page, makers, operations):
        compared = done = 0
        for seed in range(6):
            with self.subTest(seed=seed):
                pages = random.Random(seed).choice((40, 90, 400))
                pair = Pair(makers, page, pages, seed)
                pair.run(operations // 6)
                compared += pair.compared
                done += operations // 6
        self.assertGreater(compared, done // 20)  # enough of them while both had the same

    def run_radix(self, page):
        self.run_pages(page, (RadixCache, QuireRadixCache), OPERATIONS)

    def run_core(self, page):
        sglang_core.register()
        makers = [requests.unified(core) for core in ("python", "quire")]
        self.run_pages(page, makers, OPERATIONS // 4)

    def test_pages_of_1_token_agree_with_SGLang(self):
        self.run_radix(1)

    def test_pages_of_16_tokens_agree_with_SGLang(self):
        self.run_radix(16)

    def test_pages_of_64_tokens_agree_with_SGLang(self):
        self.run_radix(64)

    def test_a_core_with_pages_of_1_token_agrees_with_SGLang(self):
        self.run_core(1)

    def test_a_core_with_pages_of_16_tokens_agrees_with_SGLang(self):
        self.run_core(16)

    def test_a_core_with_pages_of_64_tokens_agrees_with_SGLang(self):
        self.run_core(64)


class Backend(unittest.TestCase):
    """One property at a time."""

    def made(self, page=4, pages=64, **others):
        return QuireRadixCache(requests.params(page, pages, **others))

    def inserted(self, cache, tokens, space=(None, None)):
        slots = cache.token_to_kv_pool_allocator.alloc(len(tokens))
        return slots, cache.insert(InsertParams(key=requests.key(tokens, space), value=slots))

    def test_a_slot_of_SGLang_is_a_slot_of_Quire(self):
        cache = self.made()
        slots, result = self.inserted(cache, range(16))
        self.assertEqual(result.last_device_node.pages.tolist(), (slots[::4] // 4).tolist())

    def test_slots_that_were_not_handed_out_are_refused(self):
        cache = self.made(page=1)
        slots, _ = self.inserted(cache, range(3))
        for wrong in ([1 << 40, 5, 6], [-1, 5, 6], [0, 5, 6], [65, 66, 67], [4, 4, 5],
                      slots.tolist()):
            with self.subTest(slots=wrong), self.assertRaises(ValueError):
                cache.insert(InsertParams(key=requests.key([7, 8, 9]), value=torch.tensor(wrong)))
            self.assertEqual(cache.total_size(), 3)
        cache.sanity_check()

    def test_slots_that_are_no_pages_are_refused(self):
        cache = self.made()
        for wrong in ([4, 5, 7, 6], [5, 6, 7, 8], [4, 5, 6, 8]):
            with self.subTest(slots=wrong), self.assertRaises(ValueError):
                cache.insert(InsertParams(key=requests.key(range(4)), value=torch.tensor(wrong)))
        self.assertEqual(cache.total_size(), 0)

    def test_numbers_that_are_no_tokens_are_refused(self):
        cache = self.made(page=1)
        for wrong in (-1, 1 << 32, (1 << 32) - 1):
            with self.subTest(token=wrong), self.assertRaises(ValueError):
                self.inserted(cache, [1, wrong])
            with self.subTest(token=wrong), self.assertRaises(ValueError):
                cache.match_prefix(MatchPrefixParams(key=requests.key([wrong])))

    def test_a_node_that_was_evicted_cannot_be_locked(self):
        cache = self.made()
        _, result = self.inserted(cache, range(8))
        cache.evict(EvictParams(num_tokens=4))
        with self.assertRaises(quire.StaleError):
            cache.inc_lock_ref(result.last_device_node)

    def test_an_unlock_too_many_is_refused(self):
        cache = self.made()
        _, result = self.inserted(cache, range(8))
        with self.assertRaises(quire.ArgumentError):
            cache.dec_lock_ref(result.last_device_node)

    def test_a_reset_forgets_everything(self):
        cache = self.made()
        _, result = self.inserted(cache, range(8))
        cache.inc_lock_ref(result.last_device_node)
        cache.reset()
        cache.token_to_kv_pool_allocator.clear()
        self.assertEqual((cache.total_size(), cache.protected_size()), (0, 0))
        self.assertEqual(self.inserted(cache, range(8))[1].prefix_len, 0)
        self.inserted(cache, range(100, 100 + 4 * 62))
        self.assertEqual(cache.evict(EvictParams(num_tokens=999)).num_tokens_evicted, 256)
        cache.sanity_check()

    def test_events_tell_what_is_cached(self):
        cache = self.made(enable_kv_cache_events=True)
        theirs = RadixCache(requests.params(4, 64, enable_kv_cache_events=True))
        for tokens, space in ((range(16), (None, None)), ([*range(8), 99, 98, 97, 96],) * 2,
                              (range(16), ("adapter", None)), (range(12), (None, "salt"))):
            space = space if isinstance(space, tuple) else (None, None)
            for one in (theirs, cache):
                self.inserted(one, list(tokens), space)
        told = cache.take_events()
        self.assertEqual(told, theirs.take_events())
        self.assertIsInstance(told[0], AllBlocksCleared)
        stored = [each for event in told if isinstance(event, BlockStored)
                  for each in event.block_hashes]
        cache.evict(EvictParams(num_tokens=999))
        removed = [each for event in cache.take_events() if isinstance(event, BlockRemoved)
                   for each in event.block_hashes]
        self.assertEqual(sorted(stored), sorted(removed))

    def test_requests_are_ordered_as_SGLang_orders_them(self):
        orders = []
        for cache in (RadixCache(requests.params(1, 400)), self.made(page=1, pages=400)):
            shuffled = random.Random(5)
            prompts = [[shuffled.randrange(3) for _ in range(6)] for _ in range(40)]
            for prompt in prompts:
                self.inserted(cache, prompt)
            nodes = [cache.match_prefix(MatchPrefixParams(key=requests.key(prompt)))
                     .last_device_node for prompt in prompts]
            orders.append([prompts[i] for i in cache.dfs_weight_order(nodes)])
        groups = [[tuple(p[:2]) for p in order] for order in orders]
        for group in groups:  # prompts with a common beginning are side by side
            self.assertEqual(len([1 for a, b in zip(group, group[1:]) if a != b]) + 1,
                             len(set(group)))
        self.assertCountEqual(map(tuple, orders[0]), map(tuple, orders[1]))
        firsts = [[p[0] for p in order] for order in orders]
        self.assertEqual(*firsts)

    def test_what_is_not_served_is_refused(self):
        for others in ({"is_eagle": True}, {"eviction_policy": "lfu"}, {"eviction_policy": "slru"},
                       {"enable_session_radix_cache": True}):
            with self.subTest(**others), self.assertRaises(NotImplementedError):
                self.made(**others)
        with self.assertRaises(NotImplementedError):
            parameters = requests.params(4, 16)
            parameters.token_to_kv_pool_allocator = types.SimpleNamespace(device="cpu", size=64)
            QuireRadixCache(parameters)
        key = RadixKey(array("q", range(8)), is_bigram=True)
        with self.assertRaises(NotImplementedError):
            self.made().match_prefix(MatchPrefixParams(key=key))

    def test_a_disabled_tree_holds_nothing(self):
        parameters = requests.params(4, 16)
        parameters.disable = True
        cache = QuireRadixCache(parameters)
        self.assertEqual(self.inserted(cache, range(8))[1].prefix_len, 0)
        self.assertEqual(cache.match_prefix(
            MatchPrefixParams(key=requests.key(range(8)))).device_prefix_len, 0)
        self.assertEqual(cache.total_size(), 0)

    def test_a_tree_without_a_pool_keeps_any_values(self):
        cache = QuireRadixCache.create_simulated(page_size=2, enable_kv_cache_events=True)
        values = torch.tensor([70, 5, 5, -9])
        cache.insert(InsertParams(key=requests.key([1, 2, 3, 4]), value=values))
        cache.insert(InsertParams(key=requests.key([1, 2, 8, 9, 3])))
        found = cache.match_prefix(MatchPrefixParams(key=requests.key([1, 2, 3, 4, 5])))
        self.assertEqual(cache.path_device_indices(found.last_device_node).tolist(),
                         values.tolist())
        first, = cache.root_node.children.values()
        self.assertEqual((list(first.key), len(first.children)), ([1, 2], 2))
        cache.evict(EvictParams(num_tokens=99))
        self.assertEqual((cache.root_node.children, len(cache.all_values_flatten())), ({}, 0))
        cache.sanity_check()
        with self.assertRaises(NotImplementedError):
            self.made().root_node.children

    def test_a_tree_without_a_pool_refuses_what_it_has_no_room_for(self):
        cache = QuireRadixCache.create_simulated(page_size=1)
        most = SIMULATED_PAGES
        cache.insert(InsertParams(key=requests.key(range(most - 1))))
        with self.assertRaisesRegex(quire.LimitError, "have no room"):
            cache.insert(InsertParams(key=requests.key([most, most + 1])))
        self.assertEqual(cache.total_size(), most - 1)
        cache.sanity_check()
        cache.insert(InsertParams(key=requests.key([most])))
        self.assertEqual(cache.total_size(), most)
        with self.assertRaises(quire.LimitError):
            cache.insert(InsertParams(key=requests.key([most, 1])))
        cache.sanity_check()
        cache.evict(EvictParams(num_tokens=most))
        cache.insert(InsertParams(key=requests.key([most, 1])))
        self.assertEqual(cache.total_size(), 2)
        cache.sanity_check()

    def test_an_evicted_path_is_told_from_its_first_page_on(self):
        cache = QuireRadixCache.create_simulated(page_size=1, enable_kv_cache_events=True)
        cache.insert(InsertParams(key=requests.key([1, 2, 3])))
        cache.insert(InsertParams(key=requests.key([1, 2, 4, 5])))
        stored = [hash_ for event in cache.take_events() if hasattr(event, "token_ids")
                  for hash_ in event.block_hashes]
        cache.evict(EvictParams(num_tokens=9))
        removed = [hash_ for event in cache.take_events() for hash_ in event.block_hashes]
        one, two, three, four, five = stored
        self.assertEqual(removed, [three, four, five, one, two])

    def test_it_is_known_to_SGLang_by_name(self):
        register()
        register()
        self.assertIs(registry.get_radix_cache_factory(NAME), make)
        context = types.SimpleNamespace(params=requests.params(4, 16), is_hybrid_swa=False,
                                        is_hybrid_ssm=False, enable_hierarchical_cache=False)
        self.assertIsInstance(make(context), QuireRadixCache)
        context.enable_hierarchical_cache = True
        with self.assertRaises(NotImplementedError):
            make(context)

    def test_many_spaces_need_no_more_leases_than_there_are(self):
        cache = self.made(page=1, pages=64)
        for number in range(4200):
            self.inserted(cache, [number % 5], (None, f"salt {number}"))
            if cache.total_size() > 60:
                cache.evict(EvictParams(num_tokens=30))
        cache.sanity_check()
