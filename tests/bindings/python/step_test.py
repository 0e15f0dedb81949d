# SPDX-License-Identifier: Apache-2.0
"""Steps, sequences and namespaces in Python; their refusals, and that a refusal changes nothing."""

import copy
import gc
import os
import pickle
import unittest

import numpy as np

import quire
from fixture import Books


PHYSICAL_BYTES = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


class Steps(Books):
    def test_prefix_of_another_sequence_is_found(self):
        self.grown(range(12))
        again = self.cache.sequence()
        result = self.run_step(quire.Item(again, tokens=range(12)))[0]
        self.assertEqual(result["outcome"], quire.RUN)
        self.assertEqual(result["hit_tokens"], 8)
        self.assertEqual(result["first_position"], 8)
        self.assertEqual(result["compute_count"], 4)

    def test_tokens_may_have_any_integer_type(self):
        self.grown([1, 2, 3, 4, 5, 6, 7, 200])
        largest = quire.UNKNOWN - 1
        self.grown([largest] * 5)
        for dtype in (np.int64, np.int32, np.int16, np.uint8, np.uint64, ">i8"):
            tokens = np.array([1, 2, 3, 4, 5, 6, 7, 200, 9], dtype)
            self.assertEqual(self.cache.sequence().probe(tokens), 8)
            self.assertEqual(self.cache.sequence().probe(np.repeat(tokens, 2)[::2]), 8)
            self.assertEqual(self.run_step(
                quire.Item(self.cache.sequence(), tokens=tokens))["hit_tokens"][0], 8)
        for dtype in (np.int64, np.uint64):
            self.assertEqual(self.cache.sequence().probe(np.full(5, largest, dtype)), 4)
        self.assertEqual(self.cache.sequence().probe(np.zeros(0, np.int64)), 0)

    def test_arrays_say_the_same_as_items(self):
        sequences = [self.cache.sequence() for _ in range(3)]
        items = np.zeros(3, quire.ITEM)
        items["seq"] = [s.handle for s in sequences]
        items["token_offset"], items["token_count"] = [0, 2, 5], [2, 3, 1]
        results = np.zeros(3, quire.RESULT)
        with self.cache.begin(items, np.arange(6, dtype=np.uint32), results=results) as step:
            self.assertIs(step.results, results)
            step.commit()
            step.finish()
        self.assertEqual(list(results["compute_count"]), [2, 3, 1])
        self.assertEqual([s.info.known_tokens for s in sequences], [2, 3, 1])

    def test_short_of_blocks_is_a_result(self):
        result = self.run_step(quire.Item(self.cache.sequence(), tokens=range(80)))[0]
        self.assertEqual(result["outcome"], quire.WAIT)
        self.assertEqual(quire.Reason(result["reason"]), quire.Reason.POOL)
        self.assertEqual(result["blocks_short"], 5)

    def test_error_within_a_step_undoes_it(self):
        sequence = self.cache.sequence()
        with self.assertRaises(ZeroDivisionError):
            with self.cache.begin([quire.Item(sequence, tokens=[1, 2])]):
                raise ZeroDivisionError
        self.assertEqual(sequence.info.known_tokens, 0)
        with self.assertRaises(ZeroDivisionError):
            with self.cache.begin([quire.Item(sequence, tokens=[1, 2])]) as step:
                step.commit()
                raise ZeroDivisionError
        self.assertEqual((sequence.info.known_tokens, sequence.info.computed_tokens), (2, 0))

    def test_step_that_is_left_open_is_an_error(self):
        with self.assertRaisesRegex(quire.BusyError, "left open"):
            with self.cache.begin():
                pass
        with self.assertRaisesRegex(quire.BusyError, "left committed"):
            with self.cache.begin() as step:
                step.commit()
        self.run_step()

    def test_items_come_and_go(self):
        first, second = self.cache.sequence(), self.cache.sequence()
        with self.cache.begin() as step:
            step.add([quire.Item(first, tokens=[1, 2, 3])])
            results = step.add([quire.Item(second, tokens=[4])])
            self.assertEqual(results[0]["row"], 1)
            self.assertEqual(step.drop(first), [first.handle])
            step.commit()
            step.finish()
        self.assertEqual((first.info.known_tokens, second.info.known_tokens), (0, 1))

    def test_preempted_sequence_comes_back(self):
        sequence = self.grown(range(9))
        with self.cache.begin() as step:
            self.assertEqual(step.preempt(sequence, quire.Preempt.RECOMPUTE), 3)
            self.assertEqual(list(step.preempted["blocks"]), [3])
            step.commit()
            step.finish()
        self.assertIn(quire.SequenceFlags.PREEMPTED, sequence.info.flags)
        result = self.run_step(quire.Item(sequence))[0]
        self.assertEqual(result["hit_tokens"], 8)

    def test_swap_without_a_host_tier_is_none(self):
        sequence = self.grown(range(9))
        with self.cache.begin() as step:
            self.assertIsNone(step.preempt(sequence, quire.Preempt.SWAP))
            step.abort()

    def test_copies_are_listed(self):
        sequence = self.grown(range(6))
        fork = sequence.fork()
        with self.cache.begin([quire.Item(fork, tokens=[7])]) as step:
            step.commit()
            kinds = [quire.CopyKind(kind) for kind in step.copies["kind"]]
            step.finish()
        self.assertEqual(kinds, [quire.CopyKind.ON_WRITE])
        self.assertEqual(list(sequence.blocks())[:1], list(fork.blocks())[:1])
        self.assertNotEqual(sequence.blocks()[1], fork.blocks()[1])

    def test_drafts_are_accepted(self):
        sequence = self.grown([1])
        self.run_step(quire.Item(sequence, tokens=[2, 3, 4], drafts=2))
        sequence.accept(1)
        self.assertEqual(sequence.info.known_tokens, 3)
        self.run_step(quire.Item(sequence, tokens=[9, 3, 4, 5], drafts=3,
                                 mask_kind=quire.MaskKind.PARENTS, mask_rows=3,
                                 mask=[0xFFFFFFFF, 0xFFFFFFFF, 1]))
        sequence.accept_path([0])
        self.assertEqual(sequence.info.known_tokens, 5)

    def test_unknown_tokens_are_named_later(self):
        sequence = self.grown([1, 2, 3, quire.UNKNOWN])
        sequence.set_tokens(3, [4])
        self.assertEqual(self.cache.sequence().probe([1, 2, 3, 4, 5]), 4)
        spans = np.zeros(1, quire.SPAN)
        spans["seq"], spans["position"], spans["token_count"] = sequence.handle, 3, 1
        with self.assertRaises(quire.ArgumentError):
            self.cache.set_tokens(spans, np.array([5], np.uint32))

    def test_sequence_shortens_and_ends(self):
        sequence = self.grown(range(9))
        sequence.truncate(5)
        self.assertEqual(sequence.info.known_tokens, 5)
        sequence.end()
        with self.assertRaises(quire.StaleError):
            sequence.end()

    def test_tenants_do_not_share(self):
        tenant = self.cache.namespace(b"key", quota_blocks=2)
        self.grown(range(8))
        own = self.cache.sequence(namespace=tenant)
        self.assertEqual(self.run_step(quire.Item(own, tokens=range(8)))[0]["hit_tokens"], 0)
        result = self.run_step(quire.Item(own, tokens=range(8)))[0]
        self.assertEqual(quire.Reason(result["reason"]), quire.Reason.QUOTA)
        self.assertEqual(tenant.info.blocks_held, 2)
        with self.assertRaises(quire.BusyError):
            tenant.close()
        own.end()
        tenant.close()

    def test_keys_part_sequences(self):
        salted = [quire.Key(quire.KeyType.SALT, b"a")]
        self.grown(range(8), keys=salted)
        self.assertEqual(self.cache.sequence().probe(range(9)), 0)
        self.assertEqual(self.cache.sequence(keys=salted).probe(range(9)), 8)

    def test_log_is_followed(self):
        leader = self.make(flags=quire.CacheFlags.LOG)
        follower = self.make(flags=quire.CacheFlags.FOLLOWER)
        sequence = leader.sequence()
        with leader.begin([quire.Item(sequence, tokens=range(6))]) as step:
            step.commit()
            log = step.log()
            with follower.apply_log(log) as followed:
                followed.finish()
            step.finish()
        with self.assertRaises(quire.QuireError):
            follower.apply_log(log[:-1])
        leader.close()
        follower.close()

    def test_stats_count(self):
        self.grown(range(8))
        stats = self.cache.stats
        self.assertEqual((stats.steps, stats.blocks_held, stats.blocks_total), (1, 2, 15))
        self.assertAlmostEqual(stats.kv_cache_usage_perc, 2 / 15)
        self.assertEqual(self.cache.info.block_tokens, 4)
        self.cache.reset()
        self.assertEqual(self.cache.sequence().probe(range(9)), 0)

    def test_dump_has_tokens_only_when_asked(self):
        self.grown(range(8))
        dump = self.cache.dump()
        self.assertTrue(dump.startswith(b'{"record":"quire dump","version":1,"tokens":false}\n'))
        self.assertTrue(dump.splitlines()[-1].startswith(b'{"record":"end",'))
        self.assertEqual(self.cache.dump(), dump)
        self.assertNotIn(b'"tokens":[0,1,2,3]', dump)
        self.assertIn(b'"tokens":[0,1,2,3]', self.cache.dump(with_tokens=True))


class Refusals(Books):
    """Each mistake raises a Python error, and leaves the cache unchanged."""

    def refuse(self, kind, call):
        before = self.cache.stats
        with self.assertRaises(kind) as caught:
            call()
        self.assertEqual(self.cache.stats, before)
        self.cache.check()
        return str(caught.exception)

    def test_tokens_of_another_type(self):
        sequence = self.cache.sequence()
        for tokens in (np.zeros(4), np.zeros(4, bool), np.zeros((2, 2), np.uint32),
                       np.zeros((2, 2), np.int64), np.float32(1),
                       np.arange(8, dtype=np.uint32)[::2], [-1], [2 ** 32], ["a"], [1.5], None):
            with self.subTest(tokens=tokens):
                self.refuse(quire.ArgumentError,
                            lambda: self.cache.begin([quire.Item(sequence, tokens=tokens)]))

    def test_numbers_that_are_no_tokens_are_named(self):
        sequence = self.cache.sequence()
        for dtype in (np.int64, np.int32, np.int8, np.uint64):
            for at, number in ((0, -1), (2, 2 ** 32), (3, -2 ** 63), (1, 2 ** 64 - 1)):
                if not np.iinfo(dtype).min <= number <= np.iinfo(dtype).max:
                    continue
                tokens = np.zeros(4, dtype)
                tokens[at] = number
                calls = (lambda: self.cache.begin([quire.Item(sequence, tokens=tokens)]),
                         lambda: self.cache.begin(np.zeros(0, quire.ITEM), tokens),
                         lambda: sequence.set_tokens(0, tokens), lambda: sequence.probe(tokens))
                for call in calls:
                    said = self.refuse(quire.ArgumentError, call)
                    self.assertEqual(said, f"tokens[{at}] is {number}: it must be 0 to 4294967295")
        for number in (-1, 2 ** 32):
            said = self.refuse(quire.ArgumentError, lambda: sequence.probe([0, number]))
            self.assertIn(f"the number {number}", said)

    def test_items_of_another_type(self):
        items = np.zeros(2, quire.ITEM)
        for wrong in (items.view(np.uint8), np.zeros(2), items[::-1], [1, 2], 5,
                      [quire.ITEM], items.reshape(1, 2)):
            with self.subTest(items=wrong):
                self.refuse((quire.ArgumentError, TypeError), lambda: self.cache.begin(wrong))

    def test_results_that_cannot_be_written(self):
        items = np.zeros(2, quire.ITEM)
        short = np.zeros(1, quire.RESULT)
        fixed = np.zeros(2, quire.RESULT)
        fixed.flags.writeable = False
        for results in (short, fixed, np.zeros(2), [0, 0]):
            self.refuse(quire.ArgumentError, lambda: self.cache.begin(items, results=results))

    def test_ranges_past_the_tokens(self):
        items = np.zeros(1, quire.ITEM)
        items["seq"], items["token_count"] = self.cache.sequence().handle, 5
        text = self.refuse(quire.ArgumentError,
                           lambda: self.cache.begin(items, np.zeros(4, np.uint32)))
        self.assertIn("items[0]", text)

    def test_sequence_of_another_cache(self):
        other = self.make()
        foreign = other.sequence()
        for _ in range(3):
            foreign = other.sequence()
        self.refuse(quire.StaleError, lambda: self.cache.begin([quire.Item(foreign, tokens=[1])]))
        tenant = other.namespace()
        self.refuse(quire.StaleError, lambda: self.cache.sequence(namespace=tenant))
        other.close()
        self.refuse(quire.StaleError, lambda: foreign.info)

    def test_step_of_another_cache(self):
        other = self.make()
        with other.begin() as step:
            self.refuse(quire.StaleError, lambda: self.cache._call("step_abort", step.handle))
            step.abort()
        other.close()

    def test_ended_step(self):
        with self.cache.begin() as step:
            step.abort()
        for call in (step.commit, step.abort, step.finish, lambda: step.add([])):
            self.refuse(quire.StaleError, call)

    def test_one_step_at_a_time(self):
        with self.cache.begin() as step:
            self.refuse(quire.BusyError, self.cache.begin)
            step.abort()

    def test_numbers_that_do_not_fit(self):
        for options in ({"blocks": -1}, {"blocks": 2 ** 32}, {"blocks": 1.5}, {"blocks": "8"},
                        {"block_tokens": 3}, {"blocks": 1}, {"blocks": 0}, {"victim": 7},
                        {"layer_groups": [0, 0]}, {"layer_groups": [1]}, {"calibration": b"junk"}):
            with self.subTest(options=options):
                self.refuse((quire.QuireError, OverflowError, TypeError),
                            lambda: self.make(**options))

    @unittest.skipIf(PHYSICAL_BYTES > 1 << 36, "a machine that may have room for 2^31 blocks")
    def test_books_larger_than_memory(self):
        self.refuse(quire.HostMemoryError, lambda: self.make(blocks=2 ** 31 - 1))
        self.refuse(quire.HostMemoryError, lambda: self.cache.migrate(blocks=2 ** 31 - 1))

    def test_types_that_are_none_are_refused_at_once(self):
        for dtype in ("bf8", "", np.int16, 5, 2048, object(), "F16"):
            for fields in ({"dtype": dtype}, {"dtype": "f16", "v_dtype": dtype}):
                with self.subTest(fields=fields):
                    with self.assertRaisesRegex(quire.ArgumentError, "element type"):
                        quire.Group(layers=1, kv_heads=1, head_dim=8, **fields)
            with self.assertRaisesRegex(quire.ArgumentError, "element type"):
                quire.Attention(2, dtype=dtype)
        quire.Group(layers=1, kv_heads=1, head_dim=8, dtype=int(quire.DType.BF16))

    def test_types_are_named_in_messages(self):
        names = {quire.DType.I8: "int8", quire.DType.I4: "int4",
                 quire.DType.F8_E4M3FN: "fp8_e4m3", quire.DType.F8_E5M2: "fp8_e5m2"}
        for dtype, name in names.items():
            group = quire.Group(layers=1, kv_heads=1, head_dim=8, dtype=dtype)
            said = self.refuse(quire.ArgumentError,
                               lambda: quire.Cache(self.instance, [group], blocks=8))
            self.assertIn(f"with type {name}:", said)
        latent = quire.Group(layers=1, kv_heads=1, head_dim=8, v_head_dim=4, dtype="f16",
                             v_dtype="bf16", kind=quire.GroupKind.LATENT)
        said = self.refuse(quire.ArgumentError,
                           lambda: quire.Cache(self.instance, [latent], blocks=8))
        self.assertIn("v_dtype bf16 is not k_dtype", said)

    def test_opaque_rows_have_a_size_alone(self):
        rows = quire.Group(layers=2, opaque_bytes=132)
        keys = quire.Group(layers=2, kv_heads=1, head_dim=8)
        block_bytes = 16 * 2 * (132 + 2 * 8 * 2)
        with quire.Cache(self.instance, [keys, rows], pool_bytes=9 * block_bytes) as cache:
            self.assertEqual((cache.pool(1).blocks, cache.pool(1).k_token_stride), (9, 132))
            sequence = cache.sequence()
            with cache.begin([quire.Item(sequence, tokens=range(1, 34))]) as step:
                step.commit()
                step.finish()
            for group in (0, 1):
                self.assertEqual(len(sequence.blocks(group)), 3)
        both = {"layers": 1, "kv_heads": 1, "head_dim": 8, "opaque_bytes": 8}
        said = self.refuse(quire.ArgumentError, lambda: quire.Cache(
            self.instance, [quire.Group(**both)], blocks=8))
        self.assertIn("opaque_bytes", said)

    def test_groups_that_are_none(self):
        for group in ({"layers": 0}, {"head_dim": 0}, {"dtype": "f12"}, {"dtype": np.int16},
                      {"kind": 9}, {"dtype": "i8"}):
            fields = {"layers": 1, "kv_heads": 1, "head_dim": 8, **group}
            with self.subTest(group=group):
                self.refuse((quire.QuireError, TypeError),
                            lambda: quire.Cache(self.instance, [quire.Group(**fields)], blocks=8))


class Lives(Books):
    """Closing, and objects that are left to the garbage collector."""

    def test_closed_objects_refuse(self):
        other = self.make()
        sequence = other.sequence()
        other.close()
        other.close()
        self.assertTrue(other.closed)
        for call in (lambda: other.stats, other.sequence, other.begin, sequence.end, other.check):
            with self.assertRaises(quire.StaleError):
                call()

    def test_instance_waits_for_its_caches(self):
        with self.assertRaises(quire.BusyError):
            self.instance.close()
        self.assertFalse(self.instance.closed)
        self.instance.backends

    def test_what_nobody_holds_is_closed(self):
        for _ in range(64):
            cache = self.make(blocks=1024)
            batch = cache.batch(4, 8, 32)
            del cache, batch
        gc.collect()
        self.assertEqual(self.cache.stats.sequences, 0)

    def test_step_that_is_lost_is_undone(self):
        sequence = self.cache.sequence()
        for commits in (False, True):
            step = self.cache.begin([quire.Item(sequence, tokens=[1, 2])])
            if commits:
                step.commit()
            with self.assertWarnsRegex(ResourceWarning, "a step was garbage-collected and undone"):
                del step
            self.assertEqual(sequence.info.computed_tokens, 0)
        self.run_step()

    def test_handles_have_one_owner(self):
        for thing in (self.instance, self.cache):
            for copied in (copy.copy, copy.deepcopy, pickle.dumps):
                with self.assertRaises(TypeError):
                    copied(thing)

    def test_things_of_another_kind_are_refused(self):
        for call in (lambda: quire.Device(None), lambda: quire.Queue(None), lambda: quire.Fence(5),
                     lambda: quire.Memory("cpu", 8), lambda: quire.Cache(None, []),
                     lambda: self.cache.migrate(["cpu"]), lambda: self.make(shards=[None]),
                     lambda: self.cache.sequence(keys=[1]),
                     lambda: self.cache.begin([quire.Item(None, tokens=[1])]),
                     lambda: self.cache.sequence().fork(-1), lambda: self.make(blocks=-1),
                     lambda: quire.Cache(self.instance, [quire.Group(1 << 40, 1, 8)], blocks=8)):
            with self.assertRaises(quire.ArgumentError):
                call()

    def test_cache_with_an_open_step_is_busy(self):
        other = self.make()
        with other.begin() as step:
            with self.assertRaises(quire.BusyError):
                other.close()
            step.abort()
        other.close()

    def test_error_says_what_was_wrong(self):
        with self.assertRaises(quire.ArgumentError) as caught:
            self.make(blocks=1)
        self.assertIsInstance(caught.exception, ValueError)
        self.assertEqual(caught.exception.status, -1)
        self.assertIn("quire_cache_create", str(caught.exception))


class Events(Books):
    def setUp(self):
        super().setUp()
        flags = quire.CacheFlags.EVENTS | quire.CacheFlags.EVENT_TOKENS
        self.noted = quire.Cache(self.instance, [quire.Group(layers=1, kv_heads=1, head_dim=8)],
                                 block_tokens=4, blocks=16, flags=flags)

    def tearDown(self):
        self.noted.close()
        super().tearDown()

    def read(self, **options):
        """All events as (kind, block, parent, tokens)."""
        found, more = [], True
        while more:
            events = self.noted.events(limit=2, **options)
            options, more = {}, events.has_more
            found += [(int(e["kind"]), int(e["block"]), int(e["parent"]),
                       events.tokens_of(e).tolist()) for e in events.events]
        return found

    def test_stored_removed_and_told_again(self):
        sequence = self.noted.sequence()
        with self.noted.begin([quire.Item(sequence, tokens=range(9))]) as step:
            step.commit()
            step.finish()
        cleared, first, second = self.read()
        self.assertEqual(cleared[0], quire.EventKind.CLEARED)
        self.assertEqual((first[2], first[3]), (0, [0, 1, 2, 3]))
        self.assertEqual((second[2], second[3]), (first[1], [4, 5, 6, 7]))
        self.assertEqual(self.read(), [])
        again = self.read(restart=True)
        self.assertEqual([event[3] for event in again], [[], [0, 1, 2, 3], [4, 5, 6, 7]])
        self.assertGreater(again[1][1], second[1])
        sequence.end(drop_prefix=True)
        self.assertEqual([event[:2] for event in self.read()],
                         [(quire.EventKind.REMOVED, again[2][1]),
                          (quire.EventKind.REMOVED, again[1][1])])

    def test_a_cache_that_notes_nothing_says_so(self):
        with self.assertRaisesRegex(quire.UnsupportedError, "QUIRE_CACHE_EVENTS"):
            self.cache.events()

if __name__ == "__main__":
    unittest.main()
