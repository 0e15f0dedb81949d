# SPDX-License-Identifier: Apache-2.0
"""Attention on numpy arrays: results, refusals, and the lifetime of arrays."""

import gc
import signal
import sys
import threading
import unittest
import weakref

import numpy as np

import quire
from fixture import Served, attention


class Attends(Served):
    def test_result_is_numpys(self):
        chat = self.cache.sequence()
        keys, values = [], []
        for tokens in (6, 1, 1, 5):
            k, v, q, out = self.operands(tokens)
            lse = np.zeros((tokens, self.HEADS), np.float32)
            keys.append(k)
            values.append(v)
            known = list(range(tokens))
            with self.cache.begin([quire.Item(chat, tokens=known)], queue=self.queue) as step:
                step.commit(self.batch)
                self.batch.kv_write(0, k, v)
                self.batch.attend(0, q, out, lse=lse)
                step.finish()
            self.queue.sync()
            wanted = attention(q, np.concatenate(keys), np.concatenate(values))
            np.testing.assert_allclose(out, wanted, rtol=2e-6, atol=2e-6)
            self.assertTrue(np.isfinite(lse).all())

    def test_rows_may_lie_apart(self):
        wide = self.numbers(5, 3 * 4 * self.DIM)
        k, v = wide[:, :self.DIM], wide[:, self.DIM:2 * self.DIM]
        q = wide[:, 2 * self.DIM:4 * self.DIM]
        out = np.zeros((5, 2 * self.DIM), np.float32)
        with self.cache.begin([quire.Item(self.cache.sequence(), tokens=range(5))],
                              queue=self.queue) as step:
            step.commit(self.batch)
            self.batch.kv_write(1, k, v)
            self.batch.attend(1, q, out)
            step.finish()
        self.queue.sync()
        shape = (5, self.HEADS, self.DIM)
        wanted = attention(q.reshape(shape), k.reshape(5, 1, -1), v.reshape(5, 1, -1))
        np.testing.assert_allclose(out.reshape(shape), wanted, rtol=2e-6, atol=2e-6)

    def test_halves_are_taken_in_f16(self):
        batch = self.cache.batch(4, 8, 32, attention=quire.Attention(self.HEADS, dtype=np.float16))
        k, v, q = (self.numbers(5, n, self.DIM, dtype=np.float16) for n in (1, 1, self.HEADS))
        out = np.zeros_like(q)
        with self.cache.begin([quire.Item(self.cache.sequence(), tokens=range(5))],
                              queue=self.queue) as step:
            step.commit(batch)
            batch.kv_write(0, k, v)
            batch.attend(0, q, out)
            step.finish()
        self.queue.sync()
        np.testing.assert_allclose(out, attention(q, k, v), rtol=2e-3, atol=2e-3)
        batch.close()

    def test_memory_of_the_device_serves_as_operand(self):
        k, v, q, out = self.operands(3)
        memory = [quire.Memory(self.device, a.nbytes, host=True) for a in (k, v, q, out)]
        for target, a in zip(memory, (k, v, q)):
            target.array(np.float32, a.shape)[:] = a
        with self.cache.begin([quire.Item(self.cache.sequence(), tokens=range(3))],
                              queue=self.queue) as step:
            step.commit(self.batch)
            self.batch.kv_write(0, memory[0], memory[1].address)
            self.batch.attend(0, memory[2], memory[3])
            step.finish()
        self.queue.sync()
        result = memory[3].array(np.float32, out.shape)
        np.testing.assert_allclose(result, attention(q, k, v), rtol=2e-6, atol=2e-6)
        del result
        for part in memory:
            part.close()

    def test_dlpack_goes_in_and_out(self):
        class Foreign:
            """A tensor of another library."""

            def __init__(self, array):
                self.array = array

            def __dlpack__(self, **options):
                return self.array.__dlpack__(**options)

            def __dlpack_device__(self):
                return self.array.__dlpack_device__()

        k, v, q, out = self.operands(4)
        with self.cache.begin([quire.Item(self.cache.sequence(), tokens=range(4))],
                              queue=self.queue) as step:
            step.commit(self.batch)
            self.batch.kv_write(0, Foreign(k), Foreign(v))
            self.batch.attend(0, Foreign(q), Foreign(out))
            step.finish()
        self.queue.sync()
        np.testing.assert_allclose(out, attention(q, k, v), rtol=2e-6, atol=2e-6)
        lengths = np.from_dlpack(self.batch.views().lengths)
        self.assertEqual(lengths[0], 4)
        del lengths
        gc.collect()

    def test_states_of_parts_merge(self):
        parts, lses = self.numbers(3, 4, 2, self.DIM), self.numbers(3, 4, 2)
        out, lse = np.zeros((4, 2, self.DIM), np.float32), np.zeros((4, 2), np.float32)
        quire.merge(self.queue, parts, lses, out, lse=lse)
        self.queue.sync()
        weights = np.exp(lses.astype(np.float64))
        np.testing.assert_allclose(lse, np.log(weights.sum(0)), rtol=1e-5)
        wanted = (weights[..., None] * parts).sum(0) / weights.sum(0)[..., None]
        np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-6)

    def test_rope_turns_keys_and_queries(self):
        """Scores depend only on the distance of tokens: shifted by a prefix outside the window, the
        window's results do not change."""
        rope = quire.Rope(base=100.0)
        group = quire.Group(layers=1, kv_heads=1, head_dim=self.DIM, dtype="f32",
                            kind=quire.GroupKind.WINDOW, window=4)
        cache = quire.Cache(self.instance, [group], [self.device], blocks=32, block_tokens=4)
        batch = cache.batch(2, 16, 64, attention=quire.Attention(self.HEADS, rope=rope))
        k, v, q, _ = self.operands(8)
        results = []
        for padding in (0, 24):
            shifted = [np.concatenate([self.numbers(padding, *a.shape[1:]), a]) for a in (k, v, q)]
            turned = shifted[2].copy()
            out = np.zeros_like(turned)
            tokens = range(100 * padding, 100 * padding + padding + 8)
            with cache.begin([quire.Item(cache.sequence(), tokens=tokens)],
                             queue=self.queue) as step:
                step.commit(batch)
                batch.kv_write(0, shifted[0], shifted[1], q=turned)
                batch.attend(0, turned, out)
                step.finish()
            self.queue.sync()
            self.assertFalse(np.array_equal(turned, shifted[2]))
            results.append(out[-4:])
        np.testing.assert_allclose(results[0], results[1], rtol=1e-4, atol=1e-5)
        batch.close()
        cache.close()


class Tables(Served):
    def commit(self, *items):
        with self.cache.begin(list(items), queue=self.queue) as step:
            step.commit(self.batch)
            step.finish()
        self.queue.sync()
        return self.batch.views()

    def test_tables_are_vllms_flashinfers_and_sglangs(self):
        one, two = self.cache.sequence(), self.cache.sequence()
        views = self.commit(quire.Item(one, tokens=range(6)),
                            quire.Item(two, tokens=range(100, 103)))
        first, second = list(one.blocks()), list(two.blocks())
        self.assertEqual(list(views.block_table[0, :3]), first + [0])
        self.assertEqual(list(views.block_table[1, :2]), second + [0])
        self.assertEqual(list(views.csr_indptr[:3]), [0, 2, 3])
        self.assertEqual(list(views.csr_indices), first + second)
        self.assertEqual(list(views.csr_last_page_len[:2]), [2, 3])
        self.assertEqual(list(views.lengths[:3]), [6, 3, 0])
        self.assertEqual(list(views.cu_q[:3]), [0, 6, 9])
        self.assertEqual(list(views.positions), [0, 1, 2, 3, 4, 5, 0, 1, 2])
        slots = [first[i // 4] * 4 + i % 4 for i in range(6)]
        slots += [second[0] * 4 + i for i in range(3)]
        self.assertEqual(list(views.slots), slots)
        self.assertEqual(list(views.context_slots), slots)
        self.assertEqual((views.row_count, views.query_tokens, views.max_length), (2, 9, 6))
        self.assertEqual(views.block_table.ctypes.data, views.address("block_table"))
        with self.assertRaises(AttributeError):
            views.shared_prefix

    def test_table_keeps_its_batch_open(self):
        table = self.commit(quire.Item(self.cache.sequence(), tokens=[1])).block_table
        part = table[:1, :1]
        del table
        with self.assertRaisesRegex(quire.BusyError, "arrays"):
            self.batch.close()
        self.assertEqual(part[0, 0], 1)
        del part
        self.batch.close()

    def test_memory_keeps_itself_open(self):
        memory = quire.Memory(self.device, 64, host=True)
        array = memory.array(np.float32)
        self.assertEqual((array.shape, float(array.sum())), ((16,), 0.0))
        with self.assertRaises(quire.BusyError):
            memory.close()
        array[:] = 1
        del array
        memory.close()
        with self.assertRaises(quire.StaleError):
            memory.array()

    def test_memory_of_the_engine_is_used_where_it_lies(self):
        own = np.zeros(2 * 4096, np.uint8)
        page = own[-own.ctypes.data % 4096:][:4096]
        page[:16] = np.arange(16)
        source = quire.Memory(self.device, over=page)
        target = quire.Memory(self.device, 64, host=True)
        source.copy_to(target, self.queue, 16)
        target.copy_to(source, self.queue, 8, offset=4, target_offset=32)
        self.queue.sync()
        self.assertEqual(list(page[32:40]), list(range(4, 12)))
        source.close()
        target.close()
        page.flags.writeable = False
        for bad in (page, np.zeros((4, 4))[:, ::2], 5):
            with self.assertRaises(quire.ArgumentError):
                quire.Memory(self.device, over=bad)

    def test_native_kinds_that_a_backend_does_not_know_are_refused(self):
        semaphore = quire.Native(kind=0x301, value=1)
        for call in (lambda: quire.Queue(self.device, semaphore),
                     lambda: self.queue.signal_native(semaphore),
                     lambda: self.queue.after_native(semaphore)):
            with self.assertRaises(quire.UnsupportedError):
                call()

    def test_tables_stand_against_a_migration(self):
        table = self.commit(quire.Item(self.cache.sequence(), tokens=[1])).block_table
        with quire.Device(self.instance, "cpu", threads=1) as target:
            with self.assertRaisesRegex(quire.BusyError, "tables"):
                self.cache.migrate([target], blocks=16)
        self.assertEqual(table[0, 0], 1)

    def test_windows_stay_within_memory(self):
        memory = quire.Memory(self.device, 64, host=True)
        with self.assertRaises(quire.ArgumentError):
            memory.array(object, 2)
        for shape, offset in ((17, 0), (16, 4), ((2, 9), 0), (1, -4), (-2, 0), (1, 2), (1, 64)):
            with self.subTest(shape=shape, offset=offset), self.assertRaises(quire.ArgumentError):
                memory.array(np.float32, shape, offset=offset)
        memory.close()

    def test_memory_is_copied(self):
        source, target = (quire.Memory(self.device, 64, host=True) for _ in range(2))
        source.array(np.uint8)[:] = np.arange(64)
        source.copy_to(target, self.queue, 16, offset=8, target_offset=4)
        self.queue.sync()
        self.assertEqual(list(target.array(np.uint8)[3:21]), [0, *range(8, 24), 0])
        with self.assertRaises(quire.ArgumentError):
            source.copy_to(target, self.queue, 64, offset=8)
        gc.collect()
        source.close()
        target.close()


class Operands(Served):
    """The library never receives operands that it would read or write past their end."""

    def setUp(self):
        super().setUp()
        self.chat = self.cache.sequence()
        self.step = self.cache.begin([quire.Item(self.chat, tokens=range(3))], queue=self.queue)
        self.step.commit(self.batch)
        self.k, self.v, self.q, self.out = self.operands(3)

    def tearDown(self):
        self.step.finish(failed=True)
        self.queue.sync()
        super().tearDown()

    def refuse(self, call, *arguments, kind=quire.ArgumentError, **options):
        with self.assertRaises(kind) as caught:
            call(*arguments, **options)
        return str(caught.exception)

    def test_wrong_types_and_shapes(self):
        q, out = self.q, self.out
        attend = self.batch.attend
        fixed = out.copy()
        fixed.flags.writeable = False
        for bad in (q.astype(np.float64), q.astype(np.float16), q[:2], q[:, :1], q[:, ::2], q[::-1],
                    np.repeat(q, 2, axis=2)[:, :, ::2], None, "q", [1.0], q.T,
                    np.frombuffer(bytes(q.nbytes + 1), np.uint8)[1:].view(np.float32)
                    .reshape(q.shape)):
            with self.subTest(bad=getattr(bad, "shape", bad)):
                self.refuse(attend, 0, bad, out)
                self.refuse(attend, 0, q, bad)
        self.refuse(attend, 0, q, fixed)
        one = self.numbers(1, 1, self.DIM)
        over = np.lib.stride_tricks.as_strided(out, out.shape, (4, *out.strides[1:]))
        for bad in (np.broadcast_to(q[:1], q.shape), over, q.astype(">f4")):
            self.refuse(attend, 0, bad, out)
            self.refuse(attend, 0, q, bad)
        self.refuse(self.batch.kv_write, 0, np.broadcast_to(one, self.k.shape), self.v)
        self.refuse(self.batch.kv_write, 0, self.k.tolist(), self.v)
        self.refuse(attend, 0, q, out, lse=np.zeros(5, np.float32))
        self.refuse(attend, 0, q, out, lse=np.zeros((3, 2)))
        self.refuse(self.batch.kv_write, 0, self.k, self.v[:1])
        self.refuse(self.batch.kv_write, 0, self.k, self.v.astype(np.float16))
        self.refuse(self.batch.kv_write, 0, self.k[:, :, :4], self.v)

    def test_layers_that_are_none(self):
        for layer in (-1, 2, 1 << 40):
            self.assertIn("layer", self.refuse(self.batch.attend, layer, self.q, self.out))

    def test_memory_that_is_too_small_or_elsewhere(self):
        small = quire.Memory(self.device, self.q.nbytes - 4, host=True)
        self.assertIn("bytes", self.refuse(self.batch.attend, 0, small, self.out))
        with quire.Device(self.instance, "cpu", threads=1) as other:
            foreign = quire.Memory(other, self.q.nbytes, host=True)
            self.refuse(self.batch.attend, 0, foreign, self.out)
            foreign.close()
            queue = quire.Queue(other)
            self.refuse(self.batch.attend, 0, self.q, self.out, queue=queue)
            self.refuse(quire.Queue.signal, queue, quire.Fence(self.device), 1)
            queue.close()
        small.close()
        self.refuse(self.batch.attend, 0, small, self.out, kind=quire.StaleError)

    def test_batch_without_attention(self):
        batch = self.cache.batch(4, 8, 32)
        self.refuse(batch.attend, 0, self.q, self.out)
        batch.close()
        self.refuse(batch.views, kind=quire.StaleError)

    def test_attention_that_no_kernel_serves(self):
        for options in (quire.Attention(3, dtype="i8"), quire.Attention(0),
                        quire.Attention(2, scale=float("nan"))):
            with self.subTest(options=options), self.assertRaises(quire.QuireError):
                self.cache.batch(4, 8, 32, attention=options)


class Lifetimes(Served):
    def test_arrays_live_until_the_queue_has_used_them(self):
        gate = quire.Fence(self.device)
        self.queue.after(gate, 1)
        k, v, q, out = self.operands(3)
        wanted = attention(q, k, v)
        used = weakref.ref(q)
        with self.cache.begin([quire.Item(self.cache.sequence(), tokens=range(3))],
                              queue=self.queue) as step:
            step.commit(self.batch)
            self.batch.kv_write(0, k, v)
            self.batch.attend(0, q, out)
            step.finish()
        del k, v, q
        gc.collect()
        self.assertIsNotNone(used())
        gate.signal(1)
        self.queue.sync()
        self.assertIsNone(used())
        np.testing.assert_allclose(out, wanted, rtol=2e-6, atol=2e-6)
        gate.close()

    def test_queue_that_is_closed_leaves_its_arrays_to_the_device(self):
        queue, gate = quire.Queue(self.device), quire.Fence(self.device)
        parts, lses, out = self.numbers(1, 2, 2, 8), np.zeros((1, 2, 2), np.float32), None
        out = np.zeros((2, 2, 8), np.float32)
        used = weakref.ref(parts)
        queue.after(gate, 1)
        quire.merge(queue, parts, lses, out)
        wanted = parts[0].copy()
        queue.close()
        del parts, lses
        gc.collect()
        self.assertIsNotNone(used())
        gate.signal(1)
        self.queue.sync()
        gate.close()
        with quire.Queue(self.device) as last:
            last.sync()
        for _ in range(1000):
            if np.array_equal(out, wanted):
                break
            threading.Event().wait(0.001)
        np.testing.assert_array_equal(out, wanted)

    def test_use_in_another_thread_keeps_it_open(self):
        gate = quire.Fence(self.device)
        waiting = threading.Thread(target=lambda: gate.wait(1))
        waiting.start()
        while sys._current_frames()[waiting.ident].f_code.co_name != "call":
            pass  # not yet inside the library
        with self.assertRaisesRegex(quire.BusyError, "another thread"):
            gate.close()
        gate.signal(1)
        waiting.join()
        gate.close()

    def test_wait_is_interrupted_by_a_signal(self):
        gate = quire.Fence(self.device)
        self.queue.after(gate, 1)
        for wait in (self.queue.sync, lambda: gate.wait(1)):
            signal.signal(signal.SIGALRM, interrupt)
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with self.assertRaises(Interrupted):
                wait()
        with self.assertRaises(quire.TimeoutError):
            self.queue.sync(timeout=0.01)
        gate.signal(1)
        self.queue.sync()
        gate.close()

    def test_threads_share_a_cache(self):
        wrong = []

        def serve(tag):
            try:
                for _ in range(50):
                    sequence = cache.sequence()
                    try:
                        item = quire.Item(sequence, tokens=[tag, 2, 3])
                        with cache.begin([item], tag=tag) as step:
                            step.commit()
                            step.finish()
                    except quire.BusyError:
                        pass
                    sequence.end()
            except BaseException as why:
                wrong.append(why)

        cache = quire.Cache(self.instance, [quire.Group(layers=1, kv_heads=1, head_dim=8)],
                            blocks=64)
        threads = [threading.Thread(target=serve, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        cache.check()
        self.assertEqual(cache.stats.blocks_held, 0)
        cache.close()

    def test_fences_are_waited_for(self):
        with quire.Fence(self.device, 3) as fence:
            self.assertEqual(fence.value, 3)
            self.assertFalse(fence.wait(5, timeout=0.01))
            self.queue.signal(fence, 5)
            self.assertTrue(fence.wait(5))
            with self.assertRaises(quire.ArgumentError):
                fence.signal(4)


class Interrupted(Exception):
    """The exception that a signal handler raises."""


def interrupt(number, frame):
    raise Interrupted


if __name__ == "__main__":
    unittest.main()
