# SPDX-License-Identifier: Apache-2.0
"""Finding libquire and backends; callbacks; migration; calibration; the headers' declarations."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import textwrap
import os
import unittest

import numpy as np

import quire
from quire import libquire
from fixture import Books, Served, attention

PACKAGE = pathlib.Path(quire.__file__).parent
# For what the wheel does not contain: other backends, and libraries that are wrong on purpose.
BACKENDS = os.environ.get("QUIRE_TEST_BACKENDS", "")
SHORT_TABLE = os.environ.get("QUIRE_TEST_SHORT_TABLE", "")


def outcome(code, **environment):
    """The output of a program that runs in a separate process."""
    program = "import quire\n" + textwrap.dedent(code)
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                            env={**os.environ, **environment}, timeout=60)
    return result.returncode, result.stdout + result.stderr


class Finding(unittest.TestCase):
    def refuse(self, kind, path):
        status, printed = outcome("""
            try:
                quire.Instance()
            except quire.QuireError as why:
                print(type(why).__name__, why)
            """, QUIRE_LIBRARY=str(path))
        self.assertEqual(status, 0, printed)
        self.assertTrue(printed.startswith(kind), printed)
        return printed

    def test_missing_library_says_where_it_looked(self):
        printed = self.refuse("LibraryNotFoundError", "/no/libquire.so.0")
        self.assertIn("/no/libquire.so.0", printed)
        self.assertIn("QUIRE_LIBRARY", printed)

    def test_file_that_is_no_library(self):
        self.refuse("LibraryNotFoundError", __file__)

    def test_library_that_is_another(self):
        self.refuse("IncompatibleError", "libm.so.6")

    @unittest.skipIf(not SHORT_TABLE, "the build did not name the planted library")
    def test_library_that_is_older(self):
        self.assertIn("older", self.refuse("IncompatibleError", SHORT_TABLE))

    def test_another_major_version(self):
        opened = libquire.load()
        table = libquire.ffi.new("const quire_api **")
        with self.assertRaises(quire.IncompatibleError):
            opened.call(opened._handle.quire_get_api, 1, 0, table)

    def test_process_has_one_library(self):
        with self.assertRaises(quire.ArgumentError):
            quire.Instance(library="/another/libquire.so.0")

    def test_carried_backend_is_found(self):
        with quire.Instance() as instance:
            found = {backend.name: backend for backend in instance.backends}
        self.assertTrue(found["cpu"].loaded)
        if not os.environ.get("QUIRE_LIBRARY"):
            self.assertTrue(found["cpu"].path.startswith(str(PACKAGE)))


class Abandoning(Books):
    def test_cache_is_stale_with_all_that_belongs_to_it(self):
        cache = self.make()
        sequence = cache.sequence()
        self.assertEqual(cache.abandon(), (0, 0, 0))  # it had no memory
        self.assertTrue(cache.closed)
        with self.assertRaises(quire.StaleError):
            cache.stats
        with self.assertRaises(quire.StaleError):
            sequence.info
        cache.close()  # a second time has no effect

    def test_device_goes_with_its_queue(self):
        device = quire.Device(self.instance, "cpu", threads=1)
        queue, other = quire.Queue(device), quire.Queue(device)
        other.abandon()
        with self.assertRaises(quire.StaleError):
            other.sync()
        device.abandon()
        with self.assertRaises(quire.StaleError):
            queue.sync()
        queue.close()


class Backends(unittest.TestCase):
    def setUp(self):
        self.instance = quire.Instance()

    def tearDown(self):
        self.instance.close()

    def test_reason_is_shown_where_none_loads(self):
        with tempfile.TemporaryDirectory() as folder:
            broken = pathlib.Path(folder) / "quire_backend_broken.so"
            broken.write_text("no backend")
            with quire.Instance(plugin_path=folder) as instance:
                reason, = [b for b in instance.backends if b.path == str(broken)]
        self.assertFalse(reason.loaded)
        self.assertNotEqual(reason.message, "")

    @unittest.skipIf(not BACKENDS, "the build did not name its backends")
    def test_backend_is_loaded_by_its_path(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder) / "quire_backend_mine.so"
            with self.assertRaises(quire.BackendError):
                self.instance.load_backend(copy)
            shutil.copy(pathlib.Path(BACKENDS) / "quire_backend_null.so", copy)
            copy.chmod(0o700)
            loaded = self.instance.load_backend(copy)
        self.assertEqual((loaded.name, loaded.loaded, loaded.device_count), ("null", True, 0))
        self.assertIn(loaded.name, [backend.name for backend in self.instance.backends])
        with self.assertRaisesRegex(quire.BackendError, "same name"):
            self.instance.load_backend(next(b.path for b in self.instance.backends
                                            if b.name == "cpu"))

    def test_device_that_is_not_there(self):
        for options in ({"backend": "none"}, {"backend": "cpu", "index": 9}):
            with self.assertRaises(quire.QuireError):
                quire.Device(self.instance, **options)
        with self.assertRaises(quire.ArgumentError):
            quire.Device(self.instance, "cpu", pin_threads=True, run_tasks=lambda n, task: None)

    def test_log_is_called_and_may_raise(self):
        status, printed = outcome("""
            import sys
            sys.unraisablehook = lambda why: print("raised", why.exc_value)
            def log(level, component, message):
                raise RuntimeError("mine")
            instance = quire.Instance(log=log, plugin_path="/nowhere")
            with instance, quire.Device(instance, "cpu") as device:
                cache = quire.Cache(instance, [quire.Group(1, 1, 8)], [device], blocks=16)
                cache.close()
            print("lives")
            """)
        self.assertEqual(status, 0, printed)
        self.assertIn("lives", printed)

    def test_forked_child_is_refused(self):
        status, printed = outcome("""
            import os
            instance = quire.Instance()
            device = quire.Device(instance, "cpu")
            if os.fork() == 0:
                try:
                    device.info
                    os._exit(1)
                except quire.ForkedError:
                    os._exit(0)
            print(os.waitstatus_to_exitcode(os.wait()[1]))
            """)
        self.assertEqual(printed.strip().splitlines()[-1], "0", printed)

    def test_interpreter_ends_with_everything_open(self):
        status, printed = outcome("""
            instance = quire.Instance()
            device = quire.Device(instance, "cpu")
            queue = quire.Queue(device)
            cache = quire.Cache(instance, [quire.Group(1, 1, 8)], [device], blocks=16)
            step = cache.begin(queue=queue)
            """)
        self.assertEqual(status, 0, printed)


class Tasks(unittest.TestCase):
    """The engine's own threads."""

    def serve(self, run_tasks):
        with quire.Instance() as instance, \
                quire.Device(instance, "cpu", threads=2, run_tasks=run_tasks) as device:
            queue = quire.Queue(device)
            parts = np.ones((2, 64, 4, 64), np.float32)
            out = np.zeros((64, 4, 64), np.float32)
            try:
                quire.merge(queue, parts, np.zeros((2, 64, 4), np.float32), out)
                queue.sync()
            finally:
                error = device.task_error
                queue.close()
            return out, error

    def test_kernels_run_in_them(self):
        counts = []

        def run(count, task):
            counts.append(count)
            for i in reversed(range(count)):
                task(i)

        out, error = self.serve(run)
        self.assertIsNone(error)
        self.assertTrue((out == 1).all())
        self.assertTrue(counts)

    def test_what_they_raise_stops_the_device(self):
        def run(count, task):
            raise KeyError("mine")

        with self.assertRaises(quire.DeviceLostError):
            self.serve(run)


class Migrations(Served):
    def serve(self, tokens, known=()):
        """Computes tokens of self.chat, and compares with numpy over all tokens so far."""
        k, v, q, out = self.operands(len(tokens))
        self.keys = np.concatenate([self.keys, k]) if len(known) else k
        self.values = np.concatenate([self.values, v]) if len(known) else v
        with self.cache.begin([quire.Item(self.chat, tokens=tokens)], queue=self.queue) as step:
            step.commit(self.batch)
            if self.device.info.host_visible:
                operands = [k, v, q, out]
            else:
                operands = [quire.Memory(self.device, a.nbytes, host=True) for a in (k, v, q, out)]
                for memory, a in zip(operands, (k, v, q)):
                    memory.array(np.float32, a.shape)[:] = a
            self.batch.kv_write(0, operands[0], operands[1])
            self.batch.attend(0, operands[2], operands[3])
            step.finish()
        self.queue.sync()
        if isinstance(operands[3], quire.Memory):
            out[:] = operands[3].array(np.float32, out.shape)
            for memory in operands:
                memory.close()
        np.testing.assert_allclose(out, attention(q, self.keys, self.values), rtol=1e-5, atol=1e-5)

    def swap_device(self, backend):
        device = quire.Device(self.instance, backend)
        queue = quire.Queue(device)
        moved = self.cache.migrate([device], blocks=24)
        self.assertTrue(moved.moved)
        self.assertEqual((moved.blocks_moved, len(moved.moves)), (2, 2))
        with self.assertRaises(quire.StaleError):
            self.batch.views()
        self.batch.close()
        self.queue.close()
        self.device.close()
        self.device, self.queue = device, queue
        self.batch = self.cache.batch(4, 8, 32, attention=quire.Attention(self.HEADS))

    def test_live_cache_changes_its_device(self):
        self.chat = self.cache.sequence()
        self.serve(range(6))
        self.swap_device("cpu")
        self.serve([6], known=range(6))
        self.assertEqual(self.cache.stats.tokens_preempted, 0)

    def test_live_cache_changes_its_vendor_and_back(self):
        path = pathlib.Path(BACKENDS) / "quire_backend_vulkan.so"
        if not path.exists():
            self.skipTest("no Vulkan backend was built")
        backend = self.instance.load_backend(path)
        if backend.device_count == 0:
            self.skipTest("there is no Vulkan device")
        self.chat = self.cache.sequence()
        self.serve(range(6))
        self.swap_device("vulkan")
        self.serve([6], known=range(6))
        self.swap_device("cpu")
        self.serve([7], known=range(7))

    def test_what_does_not_fit_stays(self):
        self.chat = self.cache.sequence()
        self.serve(range(6))
        with quire.Device(self.instance, "cpu") as device:
            moved = self.cache.migrate([device], blocks=2)
            self.assertEqual((moved.moved, moved.blocks_short), (False, 1))
        self.serve([6], known=range(6))
        with self.assertRaises(quire.ArgumentError):
            self.cache.migrate([])
        with self.assertRaises(quire.ArgumentError):
            self.cache.migrate([self.device], group_blocks=[8, 8])


class Calibrations(Served):
    def test_measured_scales_serve_codes(self):
        group = quire.Group(layers=1, kv_heads=1, head_dim=8, dtype="f32")
        measured = quire.Cache(self.instance, [group], [self.device], blocks=16,
                               flags=quire.CacheFlags.CALIBRATE)
        batch = measured.batch(4, 8, 32, attention=quire.Attention(self.HEADS))
        k, v, q, out = self.operands(6)
        with measured.begin([quire.Item(measured.sequence(), tokens=range(6))],
                            queue=self.queue) as step:
            step.commit(batch)
            batch.kv_write(0, k, v)
            step.finish()
        content = measured.save_calibration()
        calibration = quire.Calibration.of(content)
        np.testing.assert_array_equal(calibration.amax(0), [[abs(k).max()], [abs(v).max()]])
        self.assertEqual(calibration.merged(calibration).content, content)
        batch.close()
        measured.close()

        coded = quire.Cache(self.instance, [quire.Group(1, 1, 8, dtype="i8",
                                                        scale=quire.Scale.HEAD)],
                            [self.device], blocks=16, calibration=content)
        batch = coded.batch(4, 8, 32, attention=quire.Attention(self.HEADS))
        with coded.begin([quire.Item(coded.sequence(), tokens=range(6))],
                         queue=self.queue) as step:
            step.commit(batch)
            batch.kv_write(0, k, v)
            batch.attend(0, q, out)
            step.finish()
        self.queue.sync()
        np.testing.assert_allclose(out, attention(q, k, v), atol=0.05)
        batch.close()
        coded.close()

    def test_damaged_calibration_is_refused(self):
        for content in (b"", b"x" * 100):
            with self.assertRaises(quire.ArgumentError):
                quire.Calibration.of(content)
        with self.assertRaises(quire.UnsupportedError):
            self.cache.save_calibration()


class Headers(Books):
    ENUMS = {
        "DTYPE": quire.DType, "GROUP": quire.GroupKind, "SCALE": quire.Scale,
        "VICTIM": quire.cache.Victim, "SEQ": quire.SequenceFlags, "KEY": quire.KeyType,
        "PREEMPT": quire.Preempt, "MASK": quire.MaskKind, "WAIT": quire.Reason,
        "CACHE": quire.CacheFlags, "VIEW": quire.View, "ROPE": (quire.RopePairing,
                                                                quire.RopeScaling),
        "MATCH": quire.Match, "LEASE": quire.LeaseFlags,
        "TIER_WRITE": quire.TierWrite, "ITEM": quire.step.ItemFlags,
        "STORE": (quire.StoreFlags, quire.tier._Open, quire.tier._Kind, quire.tier._Outcome),
    }

    def test_numbers_are_the_headers(self):
        ffi = libquire.ffi
        for prefix, kinds in self.ENUMS.items():
            for kind in kinds if isinstance(kinds, tuple) else (kinds,):
                for member in kind:
                    if member.name == "NONE" and prefix == "WAIT":
                        continue
                    with self.subTest(prefix=prefix, member=member):
                        self.assertEqual(ffi.integer_const(f"QUIRE_{prefix}_{member.name}"), member)
        for kind in quire.errors.BY_STATUS.values():
            names = [n for n in ("ARG", "STALE", "BUSY", "UNSUPPORTED", "STRUCT", "HOST_MEMORY",
                                 "DEVICE_MEMORY", "DEVICE_LOST", "BACKEND", "INCOMPATIBLE",
                                 "REENTRANT", "FORKED", "LIMIT", "OS", "INTERNAL")
                     if ffi.integer_const(f"QUIRE_E_{n}") == kind.status]
            self.assertEqual(len(names), 1, kind)

    def test_every_error_of_the_library_has_a_class(self):
        self.assertEqual(sorted(quire.errors.BY_STATUS), list(range(-15, 0)))

    def test_every_function_of_the_library_is_called(self):
        """A function added to the headers is offered here too."""
        names = [name for name, _ in libquire.ffi.typeof("quire_api").fields][4:]
        text = "".join(path.read_text() for path in PACKAGE.glob("*.py")
                       if path.name != "_ffi.py")
        self.assertEqual([name for name in names if name not in text], [])

    def test_size_is_estimated(self):
        size = quire.estimate_size(layer_count=32, kv_heads=8, k_head_dim=128,
                                   memory_bytes=1 << 30)
        self.assertEqual(size.kv_bytes_per_token, 131072)
        with self.assertRaises(TypeError):
            quire.estimate_size(layers=32)
        with self.assertRaises(quire.ArgumentError):
            quire.estimate_size(layer_count=32)

    def test_version_is_the_librarys(self):
        self.assertEqual(quire.__version__, f"{libquire.MAJOR}.{libquire.MINOR}.0")


if __name__ == "__main__":
    unittest.main()
