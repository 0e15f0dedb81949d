# SPDX-License-Identifier: Apache-2.0
"""Leases in Python: blocks taken, published, found, pinned and given back."""

import unittest

import numpy as np

import quire
from fixture import Books


class Leases(Books):
    def filled(self, lease, tokens):
        """Takes blocks for the tokens, publishes and keeps them."""
        with self.cache.begin() as step:
            ids = lease.take(step, len(tokens) // 4)
            named = lease.publish(step, tokens, ids)
            lease.give(step, ids[ids != named])
            step.commit()
            step.finish()
        return named

    def test_published_blocks_are_found_by_sequences_and_by_leases(self):
        lease = self.cache.lease()
        ids = self.filled(lease, range(12))
        self.assertEqual(self.cache.sequence().probe(range(13)), 12)
        self.assertEqual(lease.match(range(11)).tolist(), ids[:2].tolist())
        self.assertEqual(lease.match([5]).tolist(), [])
        other = self.cache.lease()
        with self.cache.begin() as step:
            self.assertEqual(other.match(range(8), quire.Match.PIN, step).tolist(),
                             ids[:2].tolist())
            self.assertTrue(other.pin(step, ids[:1]))
            step.commit()
            step.finish()
        self.assertEqual(other.info, quire.LeaseInfo(blocks_held=2, holds=3, blocks_lost=0))
        self.assertEqual(other.blocks()["holds"].tolist(), [2, 1])
        self.assertEqual(lease.blocks()["flags"].tolist(), [quire.LeaseFlags(3)] * 3)
        self.assertEqual(self.cache.stats.blocks_leased, 5)
        self.assertEqual(self.cache.stats.leases, 2)

    def test_duplicates_are_answered_with_what_was_there(self):
        lease = self.cache.lease()
        first = self.filled(lease, range(8))
        self.assertEqual(self.filled(lease, range(12))[:2].tolist(), first.tolist())
        self.assertEqual(lease.info.blocks_held, 3)

    def test_shortage_is_told_and_changes_nothing(self):
        space = quire.Namespace(self.cache, quota_blocks=3)
        lease = self.cache.lease(space)
        with self.cache.begin() as step:
            self.assertIsNone(lease.take(step, 5))
            self.assertEqual(lease.shortage, (2, quire.Reason.QUOTA))
            with self.assertRaises(quire.ArgumentError):
                lease.give(step, [1])
            with self.assertRaises(ValueError):
                lease.publish(step, range(8), [1])
            step.abort()
        self.assertEqual(lease.info.blocks_held, 0)
        lease.end()
        with self.assertRaises(quire.StaleError):
            lease.end()
        space.close()

    def test_a_run_is_inserted_and_found_in_one_call_each(self):
        lease = self.cache.lease()
        with self.cache.begin() as step:
            own = lease.take(step, 3)
            step.commit()
            step.finish()
        slots = (own[:, None].astype(np.int64) * 4 + np.arange(4)).reshape(-1)
        named, fresh = lease.insert(range(12), slots)
        self.assertEqual((named.tolist(), fresh), (own.tolist(), 3))
        self.assertEqual(lease.find(range(14), quire.Match.TOUCH).tolist(), own.tolist())
        self.assertEqual(lease.insert(np.arange(12), slots)[1], 0)
        self.assertEqual(lease.insert([], [])[1], 0)
        self.assertTrue(lease.pin(None, own[:2]))
        self.assertEqual(self.cache.evict(9).tolist(), own[2:].tolist())
        lease.give(None, own[:2])
        self.assertEqual(lease.info.blocks_held, 0)
        for tokens, wrong in (([0, 1, 2, -1], slots[:4]), (range(50, 54), [0, 1, 2, 3]),
                              (range(50, 54), [4, 5, 6, 8])):
            with self.assertRaises(quire.ArgumentError):
                lease.insert(tokens, wrong)
        with self.assertRaises(ValueError):
            lease.insert(range(8), slots[:4])
        with self.assertRaises(quire.ArgumentError):
            lease.find([1 << 32])
        with self.cache.begin() as step:
            for call in (lambda: lease.give(None, own), lambda: lease.insert(range(4), slots[:4])):
                with self.assertRaises(quire.BusyError):
                    call()
            step.abort()

    def test_evicted_and_forgotten_blocks_are_not_found(self):
        lease = self.cache.lease()
        ids = self.filled(lease, range(12))
        self.assertEqual(lease.forget(ids[2:]), 1)
        with self.cache.begin() as step:
            lease.give(step, ids[::-1])
            step.commit()
            step.finish()
        self.assertEqual(lease.match(range(12), quire.Match.TOUCH).tolist(), ids[:2].tolist())
        self.assertEqual(self.cache.evict(1).tolist(), [ids[1]])
        self.assertEqual(lease.match(range(12)).tolist(), ids[:1].tolist())

    def test_keys_separate(self):
        plain = self.cache.lease()
        keyed = self.cache.lease(keys=[quire.Key(quire.KeyType.SALT, b"salt")])
        self.filled(plain, range(8))
        self.assertEqual(len(keyed.match(range(8))), 0)
        with self.assertRaises(quire.ArgumentError):
            self.cache.lease(keys=[quire.Key(quire.KeyType.MEDIA, b"image", 0, 4)])

    def test_groups_have_a_column_each(self):
        cache = quire.Cache(self.instance,
                            [quire.Group(layers=1, kv_heads=1, head_dim=8) for _ in range(2)],
                            block_tokens=4, blocks=8, layer_groups=[0, 1])
        lease = cache.lease()
        with cache.begin() as step:
            ids = np.stack([lease.take(step, 2, group) for group in range(2)], axis=1)
            self.assertEqual(lease.publish(step, range(8), ids).tolist(), ids.tolist())
            step.commit()
            step.finish()
        self.assertEqual(lease.match(range(8)).tolist(), ids.tolist())
        cache.check()
        cache.close()

    def test_a_place_has_blocks_of_every_size(self):
        groups = [quire.Group(layers=1, kv_heads=1, head_dim=8, block_tokens=size)
                  for size in (4, 6)]
        with quire.Cache(self.instance, groups, block_tokens=2, blocks=16,
                         flags=quire.CacheFlags.EVENTS) as cache:
            self.assertEqual((cache.info.span_tokens, cache.info.span_blocks), (12, 5))
            lease = cache.lease()
            with cache.begin() as step:
                ids = np.hstack([lease.take(step, 6, 0).reshape(2, 3),
                                 lease.take(step, 4, 1).reshape(2, 2)])
                with self.assertRaisesRegex(ValueError, "10 are needed"):
                    lease.publish(step, range(24), ids[0])
                self.assertEqual(lease.publish(step, range(24), ids).tolist(), ids.tolist())
                step.commit()
                step.finish()
            self.assertEqual(lease.match(range(23)).tolist(), ids[:1].tolist())
            self.assertEqual(lease.find(range(30)).tolist(), ids.tolist())
            self.assertEqual(lease.match([1, 2]).tolist(), [])
            self.assertEqual(cache.sequence().probe(range(25)), 24)
            told = cache.events(limit=3)
            self.assertTrue(told.has_more)


if __name__ == "__main__":
    unittest.main()
