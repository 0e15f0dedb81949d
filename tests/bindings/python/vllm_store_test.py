# SPDX-License-Identifier: Apache-2.0
"""Engines of vLLM share blocks through a store: a block is loaded bit for bit, or computed.

vLLM's own scheduler runs, with vLLM's KV cache manager, or with ours if QUIRE_VLLM_MANAGER=quire.
"""

import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1] / "valkey")]

import vllm_store_engine as engine  # noqa: E402

import cluster  # noqa: E402
import torch  # noqa: E402
from vllm.v1.kv_cache_interface import (  # noqa: E402
    KVCacheConfig, KVCacheGroupSpec, SlidingWindowSpec)

import quire  # noqa: E402
from quire import page_store, vllm_store, vllm_store_names, vllm_store_scheduler  # noqa: E402

BACKENDS = os.environ["QUIRE_TEST_BACKENDS"]
HAS_CLUSTER = (pathlib.Path(BACKENDS, "quire_store_valkey.so").exists()
               and cluster.shutil.which("redis-server") is not None)
BLOCK = engine.BLOCK
FORMS = {
    "NHD": engine.Form(), "HND": engine.Form(order="HND"),
    "divided": engine.Form(kernel_blocks=2),
    "divided HND": engine.Form(order="HND", kernel_blocks=4),
    "MLA": engine.Form(is_mla=True, head_dim=12),
    "fp8": engine.Form(dtype=torch.float8_e4m3fn), "bytes": engine.Form(dtype=torch.uint8),
    "one layer": engine.Form(layers=1, heads=1)}


class Engines(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        # The store lives as long as one engine has it open, so the test has it open as well.
        self.store = self.keep("memory")

    def keep(self, name, options=None, **others):
        opened = page_store.share(name, options, plugin_path=BACKENDS, **others)
        self.addCleanup(page_store.release, opened)
        return opened

    def make(self, form=None, extra=None, blocks=64, **others):
        settings = {"store": "memory", "plugin_path": BACKENDS, "identity": "weights"}
        made = engine.Engine(engine.config(settings | (extra or {}), **others), form, blocks)
        self.addCleanup(made.close)
        return made

    def filled(self, prompts, **others):
        """An engine that has computed prompts, and written their blocks."""
        first = self.make(**others)
        for number, tokens in enumerate(prompts):
            first.add(f"first-{number}", tokens)
        first.run()
        first.flush()
        return first


class Sharing(Engines):
    def test_blocks_of_each_form_are_shared(self):
        for name, form in FORMS.items():
            with self.subTest(name):
                extra = {"identity": name}
                tokens = list(range(200))
                first = self.filled([tokens], form=form, extra=extra)
                second = self.make(form=form, extra=extra)
                second.add("second", tokens)
                self.assertEqual(second.run()["second"], first.outputs["first-0"])
                self.assertEqual(second.computed, 200 - 12 * BLOCK + 2)
                self.assertEqual(first.computed, 202)

    def test_orders_in_memory_share(self):
        self.filled([range(100)], form=FORMS["NHD"])
        second = self.make(form=FORMS["HND"])
        second.add("second", range(100))
        second.run()
        self.assertEqual(second.computed, 6)

    def test_a_prompt_of_whole_blocks_computes_its_last(self):
        self.filled([range(64)])
        second = self.make()
        second.add("second", range(64), most=1)
        second.run()
        self.assertEqual(second.computed, BLOCK)

    def test_what_was_generated_is_shared(self):
        first = self.make()
        first.add("turn", range(40), most=40)
        said = first.run()["turn"]
        first.flush()
        second = self.make()
        second.add("next", [*range(40), *said, 7, 8])
        second.run()
        self.assertEqual(second.computed, 82 - 64 + 2)

    def test_local_blocks_come_first(self):
        self.filled([range(160)])
        second = self.make()
        second.add("a", range(80))
        second.run()
        second.computed = 0
        gets = self.store.stats.gets
        second.add("b", range(160))
        second.run()
        self.assertEqual(self.store.stats.gets - gets, 5 - 1 + 0)
        self.assertEqual(second.computed, BLOCK + 2)

    def test_a_block_is_written_once(self):
        first = self.filled([range(100), range(100), range(80)])
        self.assertEqual(self.store.stats.puts, 6)
        second = self.make()
        second.add("second", range(100))
        second.run()
        second.flush()
        self.assertEqual(self.store.stats.puts, 6)
        self.assertEqual(first.worker._mover.dropped_blocks, 0)

    def test_what_the_store_has_lost_is_written_again(self):
        first = self.filled([range(100)])
        self.store.clear(first.worker._kinds)
        self.assertTrue(first.scheduler.reset_prefix_cache())
        first.computed = 0
        first.add("again", range(100))
        first.run()
        first.flush()
        self.assertEqual((first.computed, self.store.stats.puts), (102, 12))

    def test_salts_and_models_are_apart(self):
        self.filled([range(100)])
        for extra, salt in (({}, "tenant"), ({"identity": "others"}, None)):
            second = self.make(extra=extra)
            second.add("second", range(100), salt=salt)
            second.run()
            self.assertEqual(second.computed, 102)

    def test_roles(self):
        self.filled([range(100)], role="kv_consumer")
        self.assertEqual(self.store.stats.puts, 0)
        self.filled([range(100)], role="kv_producer", policy="fail")
        self.assertEqual((self.store.stats.puts, self.store.stats.finds), (6, 1))

    def test_random_requests(self):
        for is_async in (False, True):
            with self.subTest(is_async=is_async):
                chance = random.Random(11)
                extra = {"identity": f"random {is_async}"}
                engines = [self.make(extra=extra, blocks=blocks, is_async=is_async, tokens=tokens)
                           for blocks, tokens in ((20, 40), (30, 64), (24, 200))]
                texts = [[chance.randrange(50) for _ in range(300)] for _ in range(4)]
                for number in range(150):
                    one = chance.choice(engines)
                    length = chance.randint(1, 200)
                    tail = [chance.randrange(50) for _ in range(chance.randint(0, 30))]
                    one.add(f"{number}", chance.choice(texts)[:length] + tail,
                            most=chance.randint(1, 40), salt=chance.choice([None, None, "a"]))
                    for other in engines:
                        for _ in range(chance.randint(0, 12)):
                            other.step()
                for one in engines:
                    one.run()
                    one.close()
                self.assertEqual(self.store.stats.errors, 0)
                self.assertGreater(self.store.stats.gets, 300)


class Faults(Engines):
    def compute_again(self, second, tokens, least):
        second.add("second", tokens)
        second.run()
        self.assertGreaterEqual(second.computed, least)
        self.assertEqual(second.scheduler.connector._planner._states, {})

    def test_a_lost_block_is_computed_with_those_after_it(self):
        for lost in (0, 3, 5):
            with self.subTest(lost=lost):
                extra = {"identity": f"lost {lost}"}
                self.filled([range(100)], extra=extra)
                get = self.store.get
                with mock.patch.object(self.store, "get", lambda labels, pages: [
                        found and index < lost for index, found in enumerate(get(labels, pages))]):
                    second = self.make(extra=extra)
                    second.add("second", range(100))
                    second.run()
                self.assertEqual(second.computed, 102 - lost * BLOCK)

    def test_a_block_that_is_found_and_never_read_holds_nothing_up(self):
        self.filled([range(100)])
        finds = self.store.stats.finds
        with mock.patch.object(self.store, "get", lambda labels, _: [False] * len(labels)):
            second = self.make()
            self.compute_again(second, range(100), 102)
        self.assertLess(self.store.stats.finds - finds, 10)

    def test_a_block_of_other_kernels_is_a_miss(self):
        self.filled([range(100)], form=FORMS["divided"])
        self.compute_again(self.make(form=FORMS["NHD"]), range(100), 102)

    def test_a_value_of_another_size_is_a_miss(self):
        self.filled([range(100)], form=engine.Form(layers=2))
        self.compute_again(self.make(), range(100), 102)

    def test_damage_on_disk(self):
        extra = {"store": "disk", "options": {"directory": str(self.folder / "store"),
                                              "capacity": "64MiB"}}
        first = self.filled([range(100)], extra=extra)
        row = first.worker._mover._layers.read([3])[0].numpy().tobytes()
        first.close()
        for path in (self.folder / "store").rglob("*"):
            data = bytearray(path.read_bytes()) if path.is_file() else b""
            place = data.find(row[40:100])
            if place >= 0:
                data[place + 300] ^= 4
                path.write_bytes(data)
                break
        else:
            self.fail("the block was not found on disk")
        second = self.make(extra=extra)
        second.add("second", range(100))
        second.run()
        self.assertIn(102 - second.computed, [0, 16, 32, 48, 64, 80])
        second.flush()
        second.close()
        third = self.make(extra=extra)
        third.add("third", range(100))
        third.run()
        self.assertEqual(third.computed, 6)

    def test_a_full_buffer_drops_blocks(self):
        first = self.make(extra={"save_buffer": 0})
        first.add("first", range(100))
        first.run()
        self.assertEqual(first.worker._mover.dropped_blocks, 6)

    def test_a_request_may_end_while_it_loads(self):
        from vllm.v1.request import RequestStatus
        self.filled([range(200), range(1000, 1200)])
        second = self.make()
        for start in (0, 1000):
            second.add(f"r{start}", range(start, start + 200))
        while not any(one.status == RequestStatus.WAITING_FOR_REMOTE_KVS
                      for one in second.scheduler.requests.values()):
            second.step()
        second.scheduler.finish_requests("r0", RequestStatus.FINISHED_ABORTED)
        second.run()
        for _ in range(200):
            second.step()
        self.assertEqual(second.scheduler.requests, {})

    def test_after_a_reset_nothing_old_is_found(self):
        first = self.filled([range(100)])
        self.assertTrue(first.scheduler.reset_prefix_cache(reset_connector=True))
        first.computed = 0
        first.add("again", range(100))
        first.run()
        self.assertEqual(first.computed, 102)
        first.flush()
        second = self.make()
        second.add("second", range(100))
        second.run()
        self.assertEqual(second.computed, 6)


class Settings(Engines):
    def test_what_is_not_served_is_refused(self):
        with self.assertRaisesRegex(quire.ArgumentError, "kv_load_failure_policy"):
            self.make(policy="fail")
        config = engine.config({"plugin_path": BACKENDS})
        with self.assertRaisesRegex(quire.ArgumentError, "names no store"):
            engine.Engine(config)
        spec = engine.Form().spec()
        window = SlidingWindowSpec(block_size=BLOCK, num_kv_heads=1, head_size=4,
                                   dtype=torch.float16, sliding_window=32)
        for groups, text in (([spec, spec], "2 KV cache groups"), ([window], "SlidingWindowSpec")):
            kv_config = KVCacheConfig(4, [], [KVCacheGroupSpec([f"layer.{index}"], one)
                                              for index, one in enumerate(groups)])
            with self.assertRaisesRegex(quire.UnsupportedError, text):
                vllm_store.QuireStoreConnector(
                    engine.config({"store": "memory", "plugin_path": BACKENDS}),
                    engine.KVConnectorRole.SCHEDULER, kv_config)
        config = engine.config({"store": "memory", "plugin_path": BACKENDS})
        config.parallel_config.world_size = 2
        with self.assertRaisesRegex(quire.UnsupportedError, "use valkey"):
            engine.Engine(config)
        with self.assertRaisesRegex(quire.UnsupportedError, "first dimension"):
            self.make().worker.register_kv_caches({"layer.0": torch.zeros(7, 2, 16, 4)})

    def test_shards_of_ranks(self):
        shape = vllm_store_names.Shape(tp=4, pp=2, replicas=2)
        self.assertEqual(shape.shards, 4)
        self.assertEqual([shape.shard_of(rank) for rank in range(8)], [0, 0, 1, 1, 2, 2, 3, 3])
        self.assertEqual([shape.is_writer(rank) for rank in range(8)], [True, False] * 4)

    def test_a_block_is_there_with_all_its_shards(self):
        kinds = [bytes([number]) * 32 for number in range(2)]
        planner = vllm_store_scheduler.StoreScheduler(self.store, kinds, BLOCK, loads=True,
                                                      saves=True)
        self.addCleanup(planner.close)
        donor = self.make()
        donor.add("one", range(100))
        request = donor.scheduler.requests["one"]
        names = vllm_store_names.block_names(
            vllm_store_names.Chain(vllm_store_names.ROOT), request, BLOCK, 6)
        for kind, count in zip(kinds, (5, 2)):
            self.store.put([page_store.page_label(kind, name) for name in names[:count]],
                           [[(torch.zeros(8).data_ptr(), 32)]] * count)
        for computed, tokens in ((0, 32), (BLOCK, 16)):
            planner.matched(request, computed)
            planner._states["one"].lookup.future.result()
            self.assertEqual(planner.matched(request, computed), (tokens, True))


class Processes(Engines):
    def other(self, extra):
        subprocess.run([sys.executable, str(HERE / "vllm_store_other.py"), repr(extra)], check=True,
                       timeout=240)

    def read(self, extra):
        second = self.make(extra=extra)
        for number in range(3):
            second.add(f"{number}", range(1000 * number, 1000 * number + 150))
        second.run()
        self.assertEqual(second.computed, 3 * (150 - 144 + 2))
        return second

    def test_through_a_disk_after_the_other_has_ended(self):
        extra = {"store": "disk", "options": {"directory": str(self.folder / "store"),
                                              "capacity": "64MiB"}}
        self.other(extra)
        self.read(extra)

    def test_a_disk_has_one_owner(self):
        extra = {"store": "disk", "options": {"directory": str(self.folder / "store"),
                                              "capacity": "64MiB"}}
        self.make(extra=extra)
        run = subprocess.run([sys.executable, str(HERE / "vllm_store_other.py"), repr(extra)],
                             capture_output=True, text=True, check=False, timeout=240)
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("share valkey among several", run.stderr)

    @unittest.skipUnless(HAS_CLUSTER, "no redis-server, or no store on Valkey (./dev setup valkey)")
    def test_through_a_cluster(self):
        with cluster.Cluster() as servers:
            extra = {"store": "valkey", "timeout": 1.0,
                     "options": {"nodes": servers.nodes(), "timeout": "400"}}
            self.other(extra)
            self.read(extra).close()
            self.tamper(servers)
            second = self.make(extra=extra)
            second.add("tampered", range(150))
            second.run()
            self.assertGreater(second.computed, 8)
            self.stop(servers, second)

    def tamper(self, servers):
        """Each value loses a byte, changes one, or takes another's place."""
        fields = [(server, name) for server in servers.primaries()
                  for name in server.ask("KEYS", "*")]
        values = [server.ask("GET", name) for server, name in fields]
        for index, (server, name) in enumerate(fields):
            value = bytearray(values[index])
            value[-1 - index] ^= 1
            changed = (bytes(value), values[index][:-1], values[index - 1])[index % 3]
            server.ask("SET", name, changed)

    def stop(self, servers, second):
        """A cluster that answers nothing costs a request its deadline, and no step."""
        second.step_seconds.clear()
        for server in servers.live():
            server.signal(signal.SIGSTOP)
        try:
            second.computed = 0
            second.add("stopped", range(5000, 5150))
            second.add("short", range(9))
            second.run()
        finally:
            for server in servers.live():
                server.signal(signal.SIGCONT)
        self.assertEqual(second.computed, 150 + 9 + 4)
        self.assertLess(max(second.step_seconds), 0.3)


if __name__ == "__main__":
    unittest.main()
