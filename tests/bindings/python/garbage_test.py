# SPDX-License-Identifier: Apache-2.0
"""What has no references any more is destroyed in the library, in whatever order it goes."""

import gc
import random
import time
import unittest
import unittest.mock
import warnings
import weakref

import numpy as np

import quire
from quire import libquire
from fixture import BLOCK_TOKENS

KINDS = {"instance": ("create", "destroy"), "device": ("open", "close"),
         "queue": ("create", "destroy"), "fence": ("create", "destroy"),
         "memory": ("create", "destroy"), "cache": ("create", "destroy"),
         "batch": ("create", "destroy")}
TOKENS = 3
ORDERS = 40


class Engine:
    """What an engine's own objects are to the collector: a cycle."""

    def __init__(self):
        self.itself = self

    def run(self, count, task):
        for i in range(count):
            task(i)

    def log(self, level, component, message):
        pass


class Garbage(unittest.TestCase):
    """Counts the objects that live in the library, because a weak reference says only that Python's
    are gone."""

    def setUp(self):
        gc.collect()
        self.alive = dict.fromkeys(KINDS, 0)
        api = libquire.load().api
        for kind, names in KINDS.items():
            for name, step in zip(names, (1, -1)):
                self.count(api, f"{kind}_{name}", kind, step)
        self.random = random.Random(1)
        gc.disable()
        self.addCleanup(gc.enable)

    def count(self, api, name, kind, step):
        function = getattr(api, name)

        def counted(*arguments):
            status = function(*arguments)
            self.alive[kind] += step if status >= 0 else 0
            return status

        setattr(api, name, counted)
        self.addCleanup(setattr, api, name, function)

    def living(self):
        return {kind: count for kind, count in self.alive.items() if count}

    def wait_until_living(self, wanted):
        """Work ends when the device gets to it; what waits for it is tried again at each close."""
        for _ in range(5000):
            quire.Instance().close()
            if self.living() == wanted:
                return
            time.sleep(0.002)
        self.assertEqual(self.living(), wanted)

    def parts(self, gated=False, run_tasks=None):
        """One of each, used by a step, and what refers to them; by name, parents first."""
        made = {"instance": quire.Instance()}
        made["device"] = quire.Device(made["instance"], "cpu", threads=2, run_tasks=run_tasks)
        made["queue"] = queue = quire.Queue(made["device"])
        made["gate"] = gate = quire.Fence(made["device"])
        made["cache"] = cache = quire.Cache(
            made["instance"], [quire.Group(layers=1, kv_heads=1, head_dim=8, dtype="f32")],
            [made["device"]], blocks=16, block_tokens=BLOCK_TOKENS)
        made["batch"] = batch = cache.batch(4, 8, 32, views=quire.View.BLOCK_TABLE,
                                            attention=quire.Attention(2))
        made["memory"] = out = quire.Memory(made["device"], TOKENS * 2 * 8 * 4, host=True)
        made["array"] = out.array()
        made["sequence"] = cache.sequence()
        if gated:
            queue.after(gate, 1)
        made["keys"] = keys = np.ones((TOKENS, 1, 8), np.float32)
        with cache.begin([quire.Item(made["sequence"], range(TOKENS))], queue=queue) as step:
            step.commit(batch)
            batch.kv_write(0, keys, keys)
            batch.attend(0, np.ones((TOKENS, 2, 8), np.float32), out)
            step.finish()
        made["views"] = batch.views()
        made["table"] = made["views"].block_table
        if not gated:
            queue.sync()
        return made

    def drop_arrays(self, made):
        """The collector does not see what a numpy array refers to."""
        del made["array"], made["table"]

    def orders(self, names):
        yield list(names)
        yield list(reversed(names))
        for _ in range(ORDERS):
            yield self.random.sample(list(names), len(names))


class References(Garbage):
    """With the garbage collector off."""

    def test_last_reference_frees_in_every_order(self):
        for order in self.orders(list(self.parts())):
            made = self.parts()
            for name in order:
                del made[name]
            self.assertEqual(self.living(), {}, order)

    def test_work_that_has_not_run_is_waited_for(self):
        for order in self.orders(["instance", "device", "queue", "cache", "batch", "memory",
                                  "array", "sequence", "keys", "views", "table"]):
            made = self.parts(gated=True)
            keys = weakref.ref(made["keys"])
            for name in order:
                del made[name]
            self.assertEqual(self.living(), {"instance": 1, "device": 1, "queue": 1, "cache": 1,
                                             "batch": 1, "memory": 1, "fence": 2}, order)
            self.assertIsNotNone(keys())
            made.pop("gate").signal(1)
            self.wait_until_living({})
            self.assertIsNone(keys())

    def test_callback_does_not_keep_its_device(self):
        self.parts(run_tasks=lambda count, task: [task(i) for i in range(count)])
        self.assertEqual(self.living(), {})

    def test_error_of_a_callback_does_not_keep_its_device(self):
        def run(count, task):
            raise KeyError("mine")

        made = self.parts(run_tasks=run)
        with self.assertRaises(quire.DeviceLostError):
            quire.merge(made["queue"], np.ones((2, 64, 4, 64), np.float32),
                        np.zeros((2, 64, 4), np.float32), np.zeros((64, 4, 64), np.float32))
            made["queue"].sync()
        self.assertIsInstance(made["device"].task_error, KeyError)
        del made
        self.wait_until_living({})

    def test_queue_that_fails_to_start_leaves_nothing(self):
        instance = quire.Instance()
        device = quire.Device(instance, "cpu", threads=1)
        with self.assertRaises(quire.QuireError):
            quire.Queue(device, native=quire.Native(kind=99, value=1))
        device.close()
        instance.close()
        self.assertEqual(self.living(), {})

    def test_memory_stays_until_it_is_copied(self):
        made = self.parts()
        target = quire.Memory(made["device"], 64, host=True)
        made["queue"].after(made["gate"], 1)
        made["memory"].copy_to(target, made["queue"], 64)
        with self.assertRaisesRegex(quire.BusyError, "has not run"):
            target.close()
        gate = made["gate"]
        del made, target
        self.assertEqual(self.living()["memory"], 2)
        gate.signal(1)
        del gate
        self.wait_until_living({})


    def test_end_of_a_device_ends_what_waits_for_its_work(self):
        instance = quire.Instance()
        device = quire.Device(instance, "cpu", threads=1)
        queue, gate = quire.Queue(device), quire.Fence(device)
        queue.after(gate, 1)
        parts = np.ones((2, 64, 4, 64), np.float32)
        quire.merge(queue, parts, np.zeros((2, 64, 4), np.float32),
                    np.zeros((64, 4, 64), np.float32))
        queue.close()
        parts = weakref.ref(parts)
        self.assertIsNotNone(parts())
        gate.close()
        device.close()
        instance.close()
        self.assertEqual(self.living(), {})
        del device, queue, gate
        self.assertIsNone(parts())


class Cycles(Garbage):
    """The collector finalizes the parts of a cycle in an order of its own."""

    def check_collected(self):
        self.assertNotEqual(self.living(), {})
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            gc.collect()
        self.assertEqual([str(one.message) for one in said], [])
        self.assertEqual(self.living(), {})

    def test_cycle_of_the_engines_is_freed(self):
        for _ in range(ORDERS):
            engine = Engine()
            engine.parts = self.parts()
            del engine
            self.check_collected()

    def test_cycle_through_callbacks_is_freed(self):
        engine = Engine()
        engine.instance = quire.Instance(log=engine.log)
        engine.parts = self.parts(run_tasks=engine.run)
        self.drop_arrays(engine.parts)
        del engine
        self.check_collected()

    def test_cycle_through_an_exception_is_freed(self):
        def fail():
            made = self.parts()
            try:
                made["cache"].begin([quire.Item(made["sequence"], [-1])])
            except quire.ArgumentError as why:
                caught = why
            raise RuntimeError(caught)

        try:
            fail()
        except RuntimeError:
            pass
        self.check_collected()

    def test_every_order_of_finalizers_frees(self):
        """The collector's order is that of creation; others are forced here."""
        kinds = ["instance", "device", "queue", "gate", "cache", "batch", "memory"]
        for order in self.orders(kinds):
            made = self.parts()
            self.drop_arrays(made)
            for name in order:
                made[name].__del__()
            self.assertEqual(self.living(), {}, order)

    def test_queue_is_whole_until_its_own_finalizer(self):
        """A finalizer of the engine's may come in between, and use it."""
        made = self.parts()
        made["queue"]._place.__del__()
        made["queue"].sync()
        made.clear()
        self.assertEqual(self.living(), {})

    @unittest.mock.patch("warnings.warn", lambda *arguments, **options: None)
    def test_lost_steps_are_undone_in_every_order(self):
        for order in self.orders(["queue", "cache", "batch", "committed", "open"]):
            made = self.parts()
            self.drop_arrays(made)
            queue, cache = made["queue"], made["cache"]
            made["committed"] = cache.begin([quire.Item(made["sequence"], [7])], queue=queue)
            made["committed"].commit(made["batch"])
            made["open"] = cache.begin([quire.Item(cache.sequence(), [7])], queue=queue)
            del queue, cache
            for name in order:
                made[name].__del__()
            made.clear()
            self.wait_until_living({})

    def test_work_that_has_not_run_is_waited_for(self):
        for _ in range(ORDERS):
            engine = Engine()
            engine.parts = self.parts(gated=True)
            gate, keys = engine.parts.pop("gate"), weakref.ref(engine.parts["keys"])
            del engine
            gc.collect()
            self.assertEqual(self.living()["memory"], 1)
            self.assertIsNotNone(keys())
            gate.signal(1)
            del gate
            self.wait_until_living({})
            gc.collect()
            self.assertIsNone(keys())


if __name__ == "__main__":
    unittest.main()
