# SPDX-License-Identifier: Apache-2.0
"""Many pages at once go into a store and come back whole, or not at all."""

import os
import pathlib
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

import numpy as np

import quire
from quire import page_store

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "valkey"))

import cluster  # noqa: E402

BACKENDS = os.environ["QUIRE_TEST_BACKENDS"]
HAS_CLUSTER = (pathlib.Path(BACKENDS, "quire_store_valkey.so").exists()
               and cluster.shutil.which("redis-server") is not None)
KIND = page_store.fingerprint({"model": "one"})


def labels(count, kind=KIND):
    return [page_store.page_label(kind, b"%d" % number) for number in range(count)]


def pieces(rows):
    """Each row in two pieces."""
    return [[(row.ctypes.data, 5), (row.ctypes.data + 5, row.nbytes - 5)] for row in rows]


class Pages(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.place = pathlib.Path(folder.name, "store")
        self.rows = np.random.default_rng(1).integers(0, 256, (40, 100), np.uint8)

    def open(self, store="memory", options=None, **others):
        opened = page_store.PageStore(store, options, plugin_path=BACKENDS, **others)
        self.addCleanup(opened.close)
        return opened

    def come_back(self, store):
        self.assertEqual(store.put(labels(40)[:30], pieces(self.rows[:30])), [True] * 30)
        self.assertEqual(store.find(labels(40)), [True] * 30 + [False] * 10)
        self.assertEqual(store.leading(labels(40)), 30)
        self.assertEqual(store.leading(labels(40)[31:]), 0)
        self.assertEqual(store.leading([]), 0)
        read = np.zeros_like(self.rows)
        self.assertEqual(store.get(labels(40), pieces(read)), [True] * 30 + [False] * 10)
        np.testing.assert_array_equal(read[:30], self.rows[:30])
        short = np.zeros((1, 99), np.uint8)
        self.assertEqual(store.get(labels(1), pieces(short)), [False])
        others = labels(3, page_store.fingerprint({"model": "two"}))
        self.assertEqual(store.find(others), [False] * 3)

    def test_pages_come_back(self):
        for store, options in (("memory", None), ("disk", {"directory": self.place})):
            with self.subTest(store):
                self.come_back(self.open(store, options))

    @unittest.skipUnless(HAS_CLUSTER, "no redis-server, or no store on Valkey (./dev setup valkey)")
    def test_pages_come_back_on_each_number_of_lanes(self):
        with cluster.Cluster(replicas=False) as servers:
            for lanes in (1, 3, None):
                with self.subTest(lanes=lanes):
                    options = {"nodes": servers.nodes(), "prefix": f"{lanes}:"}
                    store = self.open("valkey", options, lanes=lanes)
                    self.come_back(store)
                    self.come_back(self.open("valkey", options, lanes=2))
                    store.close()

    def test_one_kind_is_removed(self):
        store = self.open()
        other = page_store.fingerprint({"model": "two"})
        for kind in (KIND, other):
            store.put(labels(10, kind), pieces(self.rows[:10]))
        store.clear([KIND])
        self.assertEqual(store.find(labels(10) + labels(10, other)), [False] * 10 + [True] * 10)

    def test_a_call_ends_at_its_deadline(self):
        store = self.open(timeout=0.2)
        store.put(labels(40), pieces(self.rows))

        def slow(*_):
            time.sleep(0.05)
            return True

        with mock.patch.object(quire.Tier, "find", slow):
            start = time.monotonic()
            found = store.find(labels(40))
            self.assertLess(time.monotonic() - start, 2)
        self.assertLess(found.count(True), 40)
        self.assertEqual(found.count(False), store.stats.errors)

    def test_failures_are_counted_and_never_raised(self):
        store = self.open()
        with mock.patch.object(quire.Tier, "get_pieces", side_effect=quire.SystemCallError("no")):
            with self.assertLogs("quire.page_store") as logs:
                self.assertEqual(store.get(labels(5), pieces(self.rows[:5])), [False] * 5)
        self.assertEqual(len(logs.output), 1)
        self.assertEqual((store.stats.gets, store.stats.get_failures, store.stats.errors),
                         (5, 5, 5))

    def test_wrong_settings_are_refused(self):
        for lanes in (0, 2):
            with self.assertRaisesRegex(quire.ArgumentError, "lanes"):
                self.open(lanes=lanes)
        with self.assertRaisesRegex(quire.ArgumentError, "a page has 5000 bytes"):
            self.open(options={"capacity": "4KiB"}).check_page_bytes(5000)

    def test_names_decide(self):
        one = page_store.fingerprint({"a": 1, "b": "2"})
        self.assertEqual(one, page_store.fingerprint({"b": "2", "a": 1}))
        self.assertNotEqual(one, page_store.fingerprint({"a": 1, "b": 2}))
        self.assertNotEqual(one, page_store.fingerprint({"a": 1}))
        keys = {page_store.page_label(kind, name).key
                for kind in (KIND, one) for name in (b"", b"1")}
        self.assertEqual(len(keys), 4)

    def test_users_of_a_process_share(self):
        opened = [page_store.share("memory", {"capacity": "1MiB"}, plugin_path=BACKENDS)
                  for _ in range(2)]
        self.assertIs(*opened)
        page_store.release(opened[0])
        self.assertEqual(opened[1].put(labels(1), pieces(self.rows[:1])), [True])
        page_store.release(opened[1])
        self.assertEqual(opened[1]._lanes, [])

    def test_threads_may_call_at_once(self):
        store = self.open("disk", {"directory": self.place}, timeout=60)
        failures = []

        def work(number):
            names = [page_store.page_label(KIND, b"%d %d" % (number, index))
                     for index in range(40)]
            read = np.zeros_like(self.rows)
            done = [*store.put(names, pieces(self.rows)), *store.get(names, pieces(read))]
            if not all(done) or (read != self.rows).any():
                failures.append(number)

        threads = [threading.Thread(target=work, args=[number]) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])


if __name__ == "__main__":
    unittest.main()
