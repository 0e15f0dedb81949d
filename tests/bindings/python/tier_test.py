# SPDX-License-Identifier: Apache-2.0
"""Values go into stores below the device, and come back under their very label only."""

import os
import pathlib
import tempfile
import unittest

import numpy as np

import quire

BACKENDS = os.environ["QUIRE_TEST_BACKENDS"]


def label(number, **others):
    return quire.Label(bytes([number]) * 32, **others)


class Tiers(unittest.TestCase):
    def setUp(self):
        self.instance = quire.Instance(plugin_path=BACKENDS)
        self.addCleanup(self.instance.close)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.place = pathlib.Path(folder.name, "store")

    def disk(self, **options):
        return quire.Tier(self.instance, "disk", {"directory": self.place, "capacity": "16MiB"},
                          **options)

    def test_values_come_back_from_memory(self):
        with quire.Tier(self.instance, "memory", {"capacity": "1MiB"}) as tier:
            self.assertTrue(tier.put(label(1), b"one"))
            self.assertTrue(tier.put(label(2), np.arange(4, dtype=np.int32)))
            self.assertTrue(tier.put(label(1), b"two"))
            self.assertEqual(tier.get(label(1), 3, timeout=60), b"one")
            self.assertEqual(tier.get(label(2), 16), np.arange(4, dtype=np.int32).tobytes())
            self.assertIsNone(tier.get(label(3), 3))
            self.assertIsNone(tier.get(label(1, name_space=b"t" * 32), 3))
            self.assertTrue(tier.find(label(1)))
            self.assertFalse(tier.find(label(3)))
            found = {record.label: record.value_bytes for record in tier.records()}
            self.assertEqual(found, {label(1): 3, label(2): 16})
            tier.remove(label(1))
            self.assertFalse(tier.find(label(1)))
            stats = tier.stats
            self.assertEqual((stats.records, stats.value_bytes, stats.puts, stats.puts_known),
                             (1, 16, 2, 1))
            self.assertEqual((stats.hits, stats.misses, stats.foreign, stats.removed),
                             (2, 1, 1, 1))
            self.assertEqual(tier.info.capacity_bytes, 1 << 20)
            self.assertNotIn(quire.StoreFlags.PERSISTENT, tier.info.flags)

    def test_a_cache_finds_again_what_it_computed(self):
        device = quire.Device(self.instance, "cpu")
        self.addCleanup(device.close)
        queue = quire.Queue(device)
        self.addCleanup(queue.close)
        group = quire.Group(layers=1, kv_heads=1, head_dim=8, dtype=quire.DType.F32)
        tier = quire.Tier(self.instance, "memory")
        self.addCleanup(tier.close)
        cache = quire.Cache(self.instance, [group], [device], blocks=9, host_bytes=1 << 20)
        self.addCleanup(cache.close)
        cache.attach_tier(tier, fingerprint=b"model", load_timeout=60)

        def run(tokens):
            sequence = cache.sequence()
            item = quire.Item(sequence, tokens, may_load=True)
            for _ in range(3):
                with cache.begin([item], queue=queue) as step:
                    step.commit()
                    result = step.results[0].copy()
                    step.finish()
                queue.sync()
                if result["outcome"] == quire.RUN:
                    break
                self.assertEqual(result["outcome"], quire.LOADING)
                cache.wait_load(timeout=60)
            sequence.end()
            while cache.poll_tier().blocks_queued != 0:
                pass
            return int(result["hit_tokens"])

        prompt = list(range(70))
        self.assertEqual(run(prompt), 0)
        self.assertEqual(run(list(range(100, 100 + 8 * 16))), 0)
        self.assertEqual(run(prompt), 64)
        stats = cache.tier_stats
        self.assertEqual((stats.loads_used, stats.tokens_loaded), (1, 64))
        with self.assertRaises(quire.BusyError):
            tier.put(label(1), b"value")
        sequence = cache.sequence()
        cache.cancel_load(sequence)
        sequence.end()
        cache.detach_tier(timeout=60)
        with self.assertRaises(quire.ArgumentError):
            cache.poll_tier()

    def test_a_follower_reports_its_loads(self):
        group = quire.Group(layers=1, kv_heads=1, head_dim=8, dtype=quire.DType.F32)
        queues, caches = [], []
        for flags in (quire.CacheFlags.LOG, quire.CacheFlags.FOLLOWER):
            device = quire.Device(self.instance, "cpu")
            self.addCleanup(device.close)
            queues.append(quire.Queue(device))
            self.addCleanup(queues[-1].close)
            tier = quire.Tier(self.instance, "memory")
            self.addCleanup(tier.close)
            caches.append(quire.Cache(self.instance, [group], [device], blocks=9,
                                      host_bytes=1 << 20, flags=flags))
            self.addCleanup(caches[-1].close)
            caches[-1].attach_tier(tier, fingerprint=b"model", load_timeout=60,
                                   followers=len(caches) % 2)
        leader, follower = caches

        def step(items):
            with leader.begin(items, queue=queues[0]) as own:
                own.commit()
                with follower.apply_log(own.log(), queue=queues[1]) as followed:
                    followed.finish()
                results = [result.copy() for result in own.results]
                own.finish()
            for queue in queues:
                queue.sync()
            return results

        def run(tokens):
            sequence = leader.sequence()
            item = quire.Item(sequence, tokens, may_load=True)
            result = step([item])[0]
            while result["outcome"] == quire.LOADING:
                follower.wait_load(timeout=60)
                report = follower.report_loads()
                leader.take_report(report)
                with self.assertRaises(quire.ArgumentError):
                    leader.take_report(report)
                leader.wait_load(timeout=60)
                result = step([item])[0]
            sequence.end()
            for cache in caches:
                while cache.poll_tier().blocks_queued != 0:
                    pass
                step([])
            return int(result["hit_tokens"])

        prompt = list(range(70))
        self.assertEqual(run(prompt), 0)
        self.assertEqual(run(list(range(100, 100 + 8 * 16))), 0)
        self.assertEqual(run(prompt), 64)
        self.assertEqual(leader.tier_stats.loads_used, 1)
        self.assertGreater(follower.tier_stats.bytes_loaded, 0)
        self.assertEqual(follower.report_loads(), b"")
        with self.assertRaises(quire.UnsupportedError):
            leader.report_loads()
        for cache in caches:
            cache.detach_tier(timeout=60)

    def test_many_records_are_listed(self):
        with quire.Tier(self.instance, "memory") as tier:
            labels = [label(number, fingerprint=b"f" * 32) for number in range(200)]
            for one in labels:
                tier.put(one, b"value")
            self.assertEqual(sorted(record.label.key for record in tier.records()),
                             [one.key for one in labels])
            self.assertEqual({record.label.fingerprint for record in tier.records()}, {b"f" * 32})

    def test_values_outlive_a_disk_store(self):
        with self.disk() as tier:
            self.assertIn(quire.StoreFlags.PERSISTENT, tier.info.flags)
            self.assertTrue(tier.put(label(1), b"one" * 1000))
            tier.put(label(2), b"two")
            tier.flush()
            tier.remove(label(2))
            self.assertGreaterEqual(tier.compact(), 0)
        with self.disk(existing=True, read_only=True) as tier:
            self.assertEqual(tier.get(label(1), 3000), b"one" * 1000)
            self.assertGreaterEqual(tier.stats.recovered, 1)
            self.assertIn(str(self.place), tier.info.place)
            with self.assertRaises(quire.UnsupportedError):
                tier.put(label(3), b"three")

    def test_wrong_ones_are_refused(self):
        with self.assertRaisesRegex(quire.ArgumentError, "no option 'size'"):
            quire.Tier(self.instance, "memory", {"size": "1MiB"})
        with self.assertRaises(quire.BackendError):
            quire.Tier(self.instance, "none")
        with self.assertRaises(quire.ArgumentError):
            self.disk(existing=True)
        with self.assertRaisesRegex(quire.ArgumentError, "key has 3 bytes"):
            quire.Label(b"abc")
        with quire.Tier(self.instance, "memory", {"capacity": "4KiB"}) as tier:
            with self.assertRaisesRegex(quire.ArgumentError, "quire.Label"):
                tier.find(b"abc")
            with self.assertRaises(quire.ArgumentError):
                tier.put(label(1), bytes(8192))
            tier.put(label(1), b"one")
            with self.assertRaisesRegex(quire.ArgumentError, "3 bytes, not 4"):
                tier.get(label(1), 4)

    def test_two_owners_are_refused(self):
        with self.disk(), self.assertRaises(quire.BusyError):
            self.disk()

    def test_tiers_close_before_their_instance(self):
        tier = quire.Tier(self.instance, "memory")
        with self.assertRaises(quire.BusyError):
            self.instance.close()
        tier.close(timeout=60)
        tier.close()
        with self.assertRaises(quire.StaleError):
            tier.find(label(1))


if __name__ == "__main__":
    unittest.main()
