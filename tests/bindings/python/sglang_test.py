# SPDX-License-Identifier: Apache-2.0
"""SGLang's pages come back from a store bit for bit, or not at all.

SGLang's own file backend runs beside ours, on SGLang's own host pools."""

import os
import pathlib
import queue
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

import torch
from sglang.srt.managers.cache_controller import (
    HiCacheController, PrefetchOperation, StorageOperation)
from sglang.srt.mem_cache.hicache_storage import (
    HiCacheFile, HiCacheStorageFailureInjector, PoolHitPolicy, PoolName, PoolTransfer)
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.storage.backend_factory import StorageBackendFactory
from sglang.srt.mem_cache.utils import get_storage_hash_str

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "valkey")]

import cluster  # noqa: E402
import sglang_pools as pools  # noqa: E402

import quire  # noqa: E402
import quire.sglang  # noqa: E402

BACKENDS = os.environ["QUIRE_TEST_BACKENDS"]
HAS_CLUSTER = (pathlib.Path(BACKENDS, "quire_store_valkey.so").exists()
               and cluster.shutil.which("redis-server") is not None)
KEYS = [f"{number:064x}" for number in range(16)]


def extra(store="memory", options=None, **others):
    return {"backend_name": "quire", "module_path": "quire.sglang", "class_name": "QuireStorage",
            "interface_v1": 1, "plugin_path": BACKENDS, "store": store,
            "options": options or {}, **others}


def raw(page):
    """Its bytes; a random page has NaNs, which equal nothing."""
    return None if page is None else page.contiguous().view(torch.uint8).tolist()


class Backends(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.generator = torch.Generator().manual_seed(1)

    def make(self, pool=None, settings=None, **fields):
        """A backend as SGLang makes it."""
        backend = StorageBackendFactory.create_backend(
            "dynamic", pools.config(settings or extra(), **fields), pool)
        self.addCleanup(backend.close)
        if pool is not None:
            backend.register_mem_pool_host(pool)
        return backend

    def filled(self, make=pools.mha_pool, layout="page_first", **options):
        pool = make(layout, **options)
        pools.fill(pool, self.generator)
        return pool

    def disk(self, **others):
        return extra("disk", {"directory": self.folder / "store", "capacity": "64MiB"}, **others)

    def assert_page(self, ours, page, theirs, other):
        self.assertTrue(torch.equal(pools.page_bytes(ours, page), pools.page_bytes(theirs, other)))


class Pages(Backends):
    def test_pages_of_each_layout_come_back(self):
        kinds = ([(pools.mha_pool, layout, False) for layout in pools.MHA_LAYOUTS]
                 + [(pools.mla_pool, layout, True) for layout in pools.MLA_LAYOUTS])
        for make, layout, is_mla in kinds:
            with self.subTest(pool=make.__name__, layout=layout):
                first, second = self.filled(make, layout), self.filled(make, layout)
                before = [pools.page_bytes(second, page).clone() for page in range(16)]
                writer = self.make(first, is_mla_model=is_mla)
                reader = self.make(second, is_mla_model=is_mla)
                self.assertEqual(writer.batch_exists(KEYS), 0)
                done = writer.batch_set_v1(KEYS[:4], pools.indices(first, [3, 9, 0, 15]))
                self.assertEqual(done, [True] * 4)
                self.assertEqual(reader.batch_exists(KEYS), 4)
                done = reader.batch_get_v1(KEYS[:5], pools.indices(second, [8, 1, 2, 6, 7]))
                self.assertEqual(done, [True] * 4 + [False])
                for page, other in ((8, 3), (1, 9), (2, 0), (6, 15)):
                    self.assert_page(second, page, first, other)
                for page in set(range(16)) - {8, 1, 2, 6, 7}:
                    self.assertTrue(torch.equal(pools.page_bytes(second, page), before[page]))

    def test_a_page_has_the_bytes_of_the_file_backend(self):
        for make, layouts in ((pools.mha_pool, pools.MHA_LAYOUTS),
                              (pools.mla_pool, pools.MLA_LAYOUTS)):
            for layout in layouts:
                with self.subTest(pool=make.__name__, layout=layout):
                    pool = self.filled(make, layout)
                    files = HiCacheFile(pools.config(), str(self.folder / make.__name__ / layout))
                    ours = self.make(pool)
                    page = pool.get_data_page(8)
                    files.set(KEYS[0], page)
                    ours.batch_set_v1(KEYS[:1], pools.indices(pool, [2]))
                    written = next(pathlib.Path(files.file_path).glob("*.bin")).read_bytes()
                    got = ours.get(KEYS[0], pool.get_dummy_flat_data_page())
                    self.assertEqual(got.view(torch.uint8).numpy().tobytes(), written)

    def test_both_interfaces_know_the_same_pages(self):
        pool = self.filled(layout="layer_first")
        backend = self.make(pool)
        self.assertTrue(backend.batch_set(KEYS[:2], [pool.get_data_page(0), pool.get_data_page(4)]))
        self.assertEqual(backend.batch_get_v1(KEYS[:2], pools.indices(pool, [5, 6])), [True] * 2)
        self.assert_page(pool, 5, pool, 0)
        self.assert_page(pool, 6, pool, 1)
        backend.batch_set_v1(KEYS[2:3], pools.indices(pool, [9]))
        targets = [pool.get_dummy_flat_data_page() for _ in range(3)]
        got = backend.batch_get([KEYS[2], KEYS[3], KEYS[0]], targets)
        self.assertIs(got[0], targets[0])
        self.assertIsNone(got[1])
        self.assertEqual(raw(got[0]), raw(pool.get_data_page(36)))
        self.assertEqual(raw(got[2]), raw(pool.get_data_page(0)))

    def test_all_that_decides_the_content_is_in_the_name(self):
        pool = self.filled()
        settings = [
            (pool, {}), (pool, {"model_name": "org/other"}), (pool, {"tp_rank": 1, "tp_size": 2}),
            (pool, {"tp_size": 2}), (pool, {"pp_rank": 1, "pp_size": 2}),
            (pool, {"attn_cp_rank": 1, "attn_cp_size": 2}),
            (pool, {"settings": extra(identity="second weights")}),
            (self.filled(layout="page_first_direct"), {}), (self.filled(dtype=torch.bfloat16), {}),
            (self.filled(page=8), {}), (self.filled(layers=4), {}),
            (self.filled(dims=(4, 4)), {}), (self.filled(pools.mla_pool), {})]
        backends = [self.make(one, **fields) for one, fields in settings]
        for number, backend in enumerate(backends):
            self.assertEqual(backend.batch_exists(KEYS[:1]), 0, number)
            done = backend.batch_set_v1(KEYS[:1], pools.indices(settings[number][0], [number]))
            self.assertEqual(done, [True])
        self.assertEqual(backends[0].stats.put_failures, 0)

    def test_ranks_of_an_mla_model_share_pages(self):
        pool = self.filled(pools.mla_pool)
        writer = self.make(pool, is_mla_model=True, tp_size=4)
        reader = self.make(pool, is_mla_model=True, tp_size=4, tp_rank=3)
        writer.batch_set_v1(KEYS[:1], pools.indices(pool, [0]))
        self.assertEqual(reader.batch_exists(KEYS), 1)
        writer.register_mem_host_pool_v2(pool, PoolName.MAMBA)
        reader.register_mem_host_pool_v2(pool, PoolName.MAMBA)
        state = PoolTransfer(name=PoolName.MAMBA, keys=KEYS[:1],
                             host_indices=pools.indices(pool, [1]))
        self.assertEqual(writer.batch_set_v2([state]), {PoolName.MAMBA: [True]})
        self.assertEqual(reader.batch_get_v2([state]), {PoolName.MAMBA: [False]})

    def test_settings_are_checked(self):
        with self.assertRaisesRegex(quire.ArgumentError, "names no store"):
            self.make(settings={key: value for key, value in extra().items() if key != "store"})
        with self.assertRaisesRegex(quire.ArgumentError, "one owner: lanes must be 1"):
            self.make(settings=self.disk(lanes=2))
        with self.assertRaisesRegex(quire.UnsupportedError, "such as valkey"):
            self.make(settings=self.disk(), is_mla_model=True, tp_size=2)
        small = self.make(settings=extra(options={"capacity": "1KiB"}))
        with self.assertRaisesRegex(quire.ArgumentError, "a page has"):
            small.register_mem_pool_host(self.filled(page=64))
        with self.assertRaises(quire.BackendError):
            self.make(settings=extra("nosuch"))

    def test_indices_that_do_not_fit_are_refused(self):
        pool = self.filled()
        backend = self.make(pool)
        self.assertEqual(backend.batch_set_v1(KEYS[:2], pools.indices(pool, [0])), [False] * 2)
        self.assertEqual(backend.batch_get_v1(KEYS[:1], pools.indices(pool, [0, 1])), [False])
        self.assertEqual(backend.batch_get_v1([], pools.indices(pool, [])), [])
        self.assertEqual(backend.batch_exists([]), 0)


class AsTheFileBackend(Backends):
    """The same calls of both answer the same."""

    def test_random_calls(self):
        pool = self.filled()
        files = HiCacheFile(pools.config(), str(self.folder / "files"))
        ours = self.make(pool)
        chance = random.Random(3)
        answers = {True: 0, False: 0}
        for _ in range(400):
            keys = chance.sample(KEYS, chance.randint(1, 5))
            values = [pool.get_data_page(4 * KEYS.index(key)) for key in keys]
            kind = chance.choice(["set", "exists", "batch_exists", "get", "clear", "batch_get"])
            if kind == "set" and chance.random() < 0.4:
                both = [backend.batch_set(keys, values) for backend in (files, ours)]
            elif kind == "exists":
                both = [backend.exists(keys[0]) for backend in (files, ours)]
            elif kind == "batch_exists":
                both = [backend.batch_exists(keys) for backend in (files, ours)]
            elif kind == "get":
                got = [backend.get(keys[0], pool.get_dummy_flat_data_page())
                       for backend in (files, ours)]
                both = [raw(one) for one in got]
            elif kind == "clear":
                both = ([True, True] if chance.random() < 0.95 else
                        [backend.clear() for backend in (files, ours)])
            else:
                got = [backend.batch_get(keys, [pool.get_dummy_flat_data_page() for _ in keys])
                       for backend in (files, ours)]
                both = [[raw(one) for one in each] for each in got]
            self.assertEqual(*both, kind)
            if kind in ("get", "exists"):
                answers[bool(both[0])] += 1
        self.assertGreater(min(answers.values()), 20)

    def test_hits_of_several_pools(self):
        chance = random.Random(5)
        names = [PoolName.SWA, PoolName.INDEXER, PoolName.MAMBA]
        seen = set()
        for number in range(150):
            pool = pools.mha_pool("page_first")
            both = [HiCacheFile(pools.config(), str(self.folder / str(number))), self.make(
                pool, extra(identity=str(number)))]
            transfers = []
            for name in names:
                there = [key for key in KEYS[:8] if chance.random() < 0.8]
                chosen = [KEYS.index(key) for key in there]
                for backend in both:
                    backend.register_mem_host_pool_v2(pool, name)
                    backend.batch_set_v2([PoolTransfer(
                        name=name, keys=there, host_indices=pools.indices(pool, chosen))])
                policy = chance.choice([PoolHitPolicy.ALL_PAGES, PoolHitPolicy.TRAILING_PAGES])
                transfers.append(PoolTransfer(name=name, keys=KEYS[:chance.randint(0, 3)],
                                              hit_policy=policy))
            kept = KEYS[:chance.randint(0, 8)]
            for backend in both:
                backend.batch_set(kept, [pool.get_data_page(0)] * len(kept))
            asked = transfers[:chance.randint(0, 3)]
            theirs, ours = [backend.batch_exists_v2(KEYS[:8], asked) for backend in both]
            self.assertEqual(ours, theirs)
            seen.add(theirs.kv_hit_pages)
            both[1].close()
        self.assertGreaterEqual(len(seen), 7)
        with self.assertRaises(ValueError):
            backend = self.make(pool)
            backend.set(KEYS[0], pool.get_data_page(0))
            backend.batch_exists_v2(KEYS, [PoolTransfer(
                name=PoolName.SWA, hit_policy=PoolHitPolicy.BLOCK_GROUPS)])

    def test_sglangs_failure_injector_wraps_it(self):
        name = "SGLANG_TEST_HICACHE_BACKEND_RANDOM_FAILURE"
        os.environ[name] = "0.5"
        self.addCleanup(os.environ.pop, name)
        pool = self.filled()
        backend = self.make(pool)
        self.assertIsInstance(backend, HiCacheStorageFailureInjector)
        outcomes = [backend.batch_set_v1(KEYS[:1], pools.indices(pool, [0]))[0] for _ in range(60)]
        self.assertEqual(set(outcomes), {True, False})


class Controllers(Backends):
    """SGLang's own code that backs up, looks up and prefetches, without its threads."""

    def controller(self, backend, pool, is_generic=False):
        made = object.__new__(HiCacheController)
        made.storage_backend, made.storage_host_pool, made.mem_pool_host = backend, pool, pool
        made.page_size, made.prefetch_sync_queue = pool.page_size, queue.Queue()
        made.page_get_func = made._generic_page_get if is_generic else made._page_get_zero_copy
        made.page_set_func = made._generic_page_set if is_generic else made._page_set_zero_copy
        return made

    def back_up(self, controller, tokens, pages, extra_key=None):
        key = RadixKey(tokens, extra_key=extra_key)
        operation = StorageOperation(
            pools.indices(controller.mem_pool_host, pages), tokens,
            hash_value=get_storage_hash_str(key, None, page_size=controller.page_size))
        controller._page_backup(operation)
        return operation.completed_tokens

    def prefetch(self, controller, tokens, pages, extra_key=None):
        """The tokens that a lookup finds, and those that are then read."""
        operation = PrefetchOperation("request", RadixKey(tokens, extra_key=extra_key))
        hashes, found = controller._storage_hit_query(operation)
        operation.hash_value = hashes
        operation.host_indices = pools.indices(controller.mem_pool_host, pages[:len(hashes)])
        return found, controller._page_transfer(operation) * controller.page_size

    def test_what_one_engine_backs_up_another_prefetches(self):
        """More pages than one call of the storage has."""
        for name, is_generic in (("files", True), ("ours", True), ("ours", False)):
            with self.subTest(backend=name, is_generic=is_generic):
                first, second = self.filled(pages=300), self.filled(pages=300)
                settings = extra(identity=str(is_generic))
                both = ([HiCacheFile(pools.config(), str(self.folder / "files"))] * 2
                        if name == "files" else
                        [self.make(first, settings), self.make(second, settings)])
                writer, reader = [self.controller(backend, pool, is_generic)
                                  for backend, pool in zip(both, (first, second))]
                tokens, pages = list(range(1200)), list(range(299, -1, -1))
                self.assertEqual(self.back_up(writer, tokens, pages), 1200)
                longer = tokens + [7] * 40
                self.assertEqual(self.prefetch(reader, longer, list(range(300))), (1200, 1200))
                for page in range(300):
                    self.assert_page(second, page, first, 299 - page)
                self.assertEqual(self.prefetch(reader, [5, *tokens], [0]), (0, 0))
                self.assertEqual(self.prefetch(reader, tokens, [0], "a salt"), (0, 0))

    def test_a_lost_page_ends_a_prefetch(self):
        first = self.filled()
        backend = self.make(first)
        controller = self.controller(backend, first)
        self.assertEqual(self.back_up(controller, list(range(32)), list(range(8))), 32)
        keys = get_storage_hash_str(list(range(32)), None, page_size=4)
        get = backend._store.get
        lost = backend._labels(keys)[5]
        with mock.patch.object(backend._store, "get", lambda labels, pages: [
                found and label != lost for label, found in zip(labels, get(labels, pages))]):
            self.assertEqual(self.prefetch(controller, list(range(32)), list(range(8, 16))),
                             (32, 20))


class Faults(Backends):
    def test_a_damaged_page_is_a_miss_and_others_are_served(self):
        pool = self.filled(page=64)
        backend = self.make(pool, self.disk())
        backend.batch_set_v1(KEYS[:8], pools.indices(pool, range(8)))
        backend.close()
        content = pools.page_bytes(pool, 3).numpy().tobytes()
        for path in (self.folder / "store").rglob("*"):
            data = bytearray(path.read_bytes()) if path.is_file() else b""
            place = data.find(content[:64])
            if place >= 0:
                data[place + 100] ^= 1
                path.write_bytes(data)
                break
        else:
            self.fail("the page was not found on disk")
        other = self.filled(page=64)
        backend = self.make(other, self.disk())
        done = backend.batch_get_v1(KEYS[:8], pools.indices(other, range(8)))
        self.assertEqual(done, [True] * 3 + [False] + [True] * 4)
        for page in (0, 1, 2, 4, 5, 6, 7):
            self.assert_page(other, page, pool, page)
        self.assertEqual(backend.batch_exists(KEYS[:8]), 3)
        other.set_from_flat_data_page(9 * 64, pool.get_data_page(3 * 64))
        backend.batch_set_v1(KEYS[3:4], pools.indices(other, [9]))
        self.assertEqual(backend.batch_get_v1(KEYS[3:4], pools.indices(other, [3])), [True])
        self.assert_page(other, 3, pool, 3)

    def test_a_page_of_another_size_is_a_miss(self):
        pool = self.filled()
        backend = self.make(pool)
        backend.set(KEYS[0], pool.get_data_page(0)[:-1])
        self.assertEqual(backend.batch_get_v1(KEYS[:1], pools.indices(pool, [1])), [False])
        self.assertIsNone(backend.get(KEYS[0], pool.get_dummy_flat_data_page()))

    def test_a_full_store_refuses_pages(self):
        pool = self.filled(page=64)
        backend = self.make(pool, self.disk() | {"options": {
            "directory": self.folder / "store", "capacity": "1MiB", "segment": "128KiB"}})
        for _ in range(40):
            pools.fill(pool, self.generator)
            keys = [f"{random.randrange(1 << 60):064x}" for _ in range(8)]
            for done in backend.batch_set_v1(keys, pools.indices(pool, range(8))):
                self.assertIsInstance(done, bool)
        done = backend.batch_get_v1(keys, pools.indices(pool, range(8, 16)))
        self.assertIn(True, done)
        for page, found in enumerate(done):
            if found:
                self.assert_page(pool, 8 + page, pool, page)


class Processes(Backends):
    """Pages that another process wrote."""

    def other(self, settings, seed, action="write"):
        subprocess.run([sys.executable, str(HERE / "sglang_other.py"), action, str(seed),
                        repr(settings)], check=True, timeout=240)

    def test_through_a_disk_after_the_other_has_ended(self):
        settings = {**self.disk(), "options": {"directory": str(self.folder / "store"),
                                               "capacity": "64MiB"}}
        self.other(settings, 7)
        self.read(settings, 7)

    def read(self, settings, seed):
        theirs, ours = pools.mha_pool("page_first"), self.filled()
        pools.fill(theirs, torch.Generator().manual_seed(seed))
        backend = self.make(ours, settings)
        self.assertEqual(backend.batch_exists(KEYS), 16)
        done = backend.batch_get_v1(KEYS, pools.indices(ours, range(16)))
        self.assertEqual(done, [True] * 16)
        for page in range(16):
            self.assert_page(ours, page, theirs, page)
        return backend, ours, theirs

    @unittest.skipUnless(HAS_CLUSTER, "no redis-server, or no store on Valkey (./dev setup valkey)")
    def test_through_a_cluster(self):
        with cluster.Cluster() as servers:
            settings = extra("valkey", {"nodes": servers.nodes(), "timeout": "500"}, timeout=1.5)
            self.other(settings, 7)
            backend, ours, theirs = self.read(settings, 7)
            self.lose_and_tamper(servers, backend, ours, theirs)
            self.stop_nodes(servers, backend, ours)

    def lose_and_tamper(self, servers, backend, ours, theirs):
        """One page is removed, one truncated, two exchanged."""
        labels = backend._labels(KEYS[:5])
        fields = []
        for server in servers.primaries():
            for name in server.ask("KEYS", "*"):
                fields.append((server, name))
        self.assertEqual(len(fields), 16)
        values = {name: server.ask("GET", name) for server, name in fields}
        place = {number: next(item for item in fields if label.key in values[item[1]])
                 for number, label in enumerate(labels)}
        server, name = place[1]
        server.ask("DEL", name)
        server, name = place[2]
        server.ask("SET", name, values[name][:-3])
        for number, other in ((3, 4), (4, 3)):
            server, name = place[number]
            server.ask("SET", name, values[place[other][1]])
        done = backend.batch_get_v1(KEYS[:6], pools.indices(ours, range(6)))
        self.assertEqual(done, [True, False, False, False, False, True])
        for page in (0, 5):
            self.assert_page(ours, page, theirs, page)

    def stop_nodes(self, servers, backend, ours):
        """A cluster that does not answer costs the deadline, and all pages."""
        for server in servers.live():
            server.signal(signal.SIGSTOP)
        try:
            start = time.monotonic()
            done = backend.batch_get_v1(KEYS, pools.indices(ours, range(16)))
            self.assertEqual(done, [False] * 16)
            self.assertFalse(any(backend.batch_set_v1(KEYS, pools.indices(ours, range(16)))))
            self.assertLess(time.monotonic() - start, 6)
        finally:
            for server in servers.live():
                server.signal(signal.SIGCONT)


if __name__ == "__main__":
    unittest.main()
