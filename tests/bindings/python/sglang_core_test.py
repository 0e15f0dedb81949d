# SPDX-License-Identifier: Apache-2.0
"""The core of SGLang's unified radix cache over a tree of Quire: its results and events are those
of SGLang's own core, and what it does not serve is refused. Random operations on both are in
sglang_radix_test.py."""

import collections
import dataclasses
import unittest
from unittest import mock

from sglang.srt.disaggregation.kv_events import BlockRemoved, BlockStored
from sglang.srt.mem_cache.base_prefix_cache import EvictParams, InsertParams, MatchPrefixParams
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType

from quire import sglang_core

import sglang_requests as requests  # noqa: E402


def fields_of(result):
    """{field: value} of a result; the numbers of nodes differ from core to core."""
    names = getattr(result, "_fields", None) or [
        field.name for field in dataclasses.fields(result)]
    return {name: getattr(result, name) for name in names if "node" not in name}


class Core(unittest.TestCase):
    """The tree core of the unified radix cache."""

    def made(self, page=4, pages=64, **others):
        sglang_core.register()
        sglang_core.register()
        return requests.unified("quire")(requests.params(page, pages, **others))

    def inserted(self, cache, tokens):
        slots = cache.token_to_kv_pool_allocator.alloc(len(tokens))
        return cache.insert(InsertParams(key=requests.key(tokens), value=slots))

    def test_an_eviction_for_an_allocation_stops_soon(self):
        cache = self.made(page=1, pages=2000)
        self.inserted(cache, range(1000))
        self.inserted(cache, range(5000, 6000))
        cache.evict_for_alloc(EvictParams(num_tokens=300))
        self.assertGreaterEqual(cache.token_to_kv_pool_allocator.available_size(), 300)
        self.assertLess(cache.token_to_kv_pool_allocator.available_size(), 300 + 256)

    def test_a_node_that_was_evicted_is_not_known(self):
        cache = self.made()
        node = self.inserted(cache, range(8)).last_device_node
        cache.evict(EvictParams(num_tokens=4))
        with self.assertRaises(KeyError):
            cache.inc_lock_ref(node)

    def test_a_receipt_of_another_node_unlocks_nothing(self):
        cache = self.made()
        node = self.inserted(cache, range(8)).last_device_node
        receipt = cache.inc_lock_ref(node).to_dec_params()
        other = self.inserted(cache, range(4)).last_device_node
        with self.assertRaises(ValueError):
            cache.dec_lock_ref(other, receipt)
        self.assertEqual(cache.protected_size(), 8)
        cache.dec_lock_ref(node, receipt)
        self.assertEqual(cache.protected_size(), 0)

    def test_events_tell_what_is_cached(self):
        told = []
        for core in ("python", "quire"):
            sglang_core.register()
            cache = requests.unified(core)(requests.params(4, 64, enable_kv_cache_events=True))
            for tokens in (range(16), [*range(8), 99, 98, 97, 96]):
                self.inserted(cache, list(tokens))
            cache.evict(EvictParams(num_tokens=999))
            told.append(cache.take_events())
        stored, removed = [[[event for event in events if isinstance(event, kind)]
                            for events in told] for kind in (BlockStored, BlockRemoved)]
        self.assertEqual(*stored)
        self.assertEqual(*[sorted(each for event in events for each in event.block_hashes)
                           for events in removed])

    def test_events_name_the_session_of_an_insertion(self):
        told = []
        for core in ("python", "quire"):
            sglang_core.register()
            cache = requests.unified(core)(requests.params(4, 64, enable_kv_cache_events=True))
            for tokens, session in ((range(8), "one"), (range(8), "two"), (range(16), "two"),
                                    ([*range(4), 9, 9, 9, 9], None)):
                slots = cache.token_to_kv_pool_allocator.alloc(len(tokens))
                cache.insert(InsertParams(key=requests.key(tokens), value=slots,
                                          session_id=session))
            cache.reset()
            told.append(cache.take_events())
        self.assertEqual(*told)
        self.assertEqual([event.session_id for event in told[1][1:-1]], ["one", "two", None])

    def test_results_are_those_of_SGLangs_core(self):
        results = []
        for core in ("python", "quire"):
            sglang_core.register()
            cache = requests.unified(core)(requests.params(4, 64))
            found = []
            for length in (8, 0, 3, 12):
                slots = cache.token_to_kv_pool_allocator.alloc(-(-length // 4) * 4)[:length]
                found.append(cache.insert(InsertParams(
                    key=requests.key(range(length)), value=slots, track_adopted_ranges=True)))
            match = cache.match_prefix(MatchPrefixParams(key=requests.key(range(9))))
            found += [match] + [
                lock for skipped in ((), (ComponentType.FULL,))
                for lock in [cache.inc_lock_ref(match.last_device_node, skipped)]]
            found += [cache.dec_lock_ref(match.last_device_node, lock.to_dec_params())
                      for lock in found[-2:]]
            results.append([fields_of(each) for each in found])
        self.assertEqual(*results)

    def test_another_release_of_SGLang_is_refused(self):
        older = collections.namedtuple("MatchResult", ("device_indices", "last_device_node"))
        with mock.patch.object(sglang_core, "MatchResult", older), \
                self.assertRaisesRegex(NotImplementedError, "0.5.23"):
            self.made()

    def test_what_SGLang_switches_on_is_refused(self):
        cache = self.made()
        for switch in ("enable_hicache", "enable_storage", "enable_external_cache_linker",
                       "is_write_back", "has_swa_host_pool", "is_host_memory_buffer_only"):
            with self.subTest(switch), self.assertRaises(NotImplementedError):
                setattr(cache.tree_core, switch, True)
            setattr(cache.tree_core, switch, False)
            self.assertIs(getattr(cache.tree_core, switch), False)
        with self.assertRaisesRegex(NotImplementedError, "linker"):
            cache.init_cache_linker(mock.MagicMock(pools=()))
        self.assertIsNone(cache.linker)

    def test_what_is_not_served_is_refused(self):
        with self.assertRaises(NotImplementedError):
            self.made(eviction_policy="lfu")
        core = self.made().tree_core
        for call in (lambda: core.build_backup_spec(1), lambda: core.drive_host_eviction(None, 1)):
            with self.assertRaises(NotImplementedError):
                call()
        with self.assertRaisesRegex(NotImplementedError, "HiCache"):
            core.set_hicache_enabled()
