# SPDX-License-Identifier: Apache-2.0
"""A sequence leaves its cache as bytes, a stream or a file, and goes on in another one."""

import io
import os
import pathlib
import stat
import tempfile
import unittest

import numpy as np

import quire
from quire.handover import Receiver, Sender
from fixture import BLOCK_TOKENS, Books, Served, attention


class Sessions(Served):
    WHO = {"fingerprint": b"model", "name_space": b"tenant"}

    def setUp(self):
        super().setUp()
        self.batch.close()
        self.cache.close()
        self.cache = quire.Cache(
            self.instance, [quire.Group(layers=2, kv_heads=1, head_dim=self.DIM, dtype="f32")],
            [self.device], blocks=16, block_tokens=BLOCK_TOKENS, host_bytes=8192)
        self.batch = self.cache.batch(4, 8, 32, attention=quire.Attention(self.HEADS))

    def serve(self, sequence, k, v, tokens):
        """Runs a step over these tokens in both layers; returns the queries and outputs."""
        q = self.numbers(len(tokens), self.HEADS, self.DIM)
        out = np.zeros_like(q)
        with self.cache.begin([quire.Item(sequence, tokens=tokens)], queue=self.queue) as step:
            first = int(step.results[0]["first_position"])
            step.commit(self.batch)
            for layer in range(2):
                self.batch.kv_write(layer, k, v)
            self.batch.attend(1, q, out)
            step.finish()
        self.queue.sync()
        return q, out, first

    def grown(self, count=10):
        sequence = self.cache.sequence()
        self.k, self.v = self.numbers(count, 1, self.DIM), self.numbers(count, 1, self.DIM)
        self.serve(sequence, self.k, self.v, range(count))
        return sequence

    def goes_on(self, sequence):
        """Runs one more token; its output is over all K and V."""
        self.assertEqual(sequence.info.flags, quire.SequenceFlags.SWAPPED)
        k, v = self.numbers(1, 1, self.DIM), self.numbers(1, 1, self.DIM)
        q, out, first = self.serve(sequence, k, v, [77])
        self.assertEqual(first, len(self.k))
        np.testing.assert_allclose(out, attention(q, np.concatenate([self.k, k]),
                                                  np.concatenate([self.v, v])), atol=1e-5)

    def test_bytes_come_back(self):
        sequence = self.grown()
        content = sequence.export(**self.WHO)
        sequence.end(drop_prefix=True)
        back = self.cache.import_sequence(content, **self.WHO)
        self.assertEqual(back.export(**self.WHO), content)
        self.assertEqual((back.info.known_tokens, back.info.computed_tokens), (10, 10))
        self.goes_on(back)

    def test_a_sequence_is_handed_over(self):
        sequence = self.grown()
        sender = Sender(self.cache, sequence, b"model", tokens=range(10), name_space=b"tenant")
        receiver = Receiver(self.cache, b"model", b"tenant")
        while not sender.is_whole:
            piece = sender.read(500)
            self.assertEqual(receiver.write(piece), len(piece))
        sender.end()
        receiver.end()
        self.goes_on(quire.Sequence(self.cache, receiver.sequence_handle))

    def hand_over(self, sequence, sent, **receiving):
        sender = Sender(self.cache, sequence, b"model", tokens=sent, name_space=b"tenant")
        receiver = Receiver(self.cache, b"model", b"tenant", **receiving)
        try:
            while not sender.is_whole:
                piece = np.frombuffer(sender.read(500), np.uint8)
                self.assertEqual(receiver.write(piece), len(piece))
            return receiver.sequence
        finally:
            sender.end()
            receiver.end()

    def test_a_sequence_arrives_with_its_tenant_and_keys(self):
        tenant = self.cache.namespace(b"key")
        keys = [quire.Key(quire.KeyType.SALT, b"salt")]
        tokens = list(range(10))
        numbers = self.numbers(10, 1, self.DIM)
        sequence = self.cache.sequence(tenant, keys)
        self.serve(sequence, numbers, numbers, tokens)
        self.queue.sync()
        arrived = self.hand_over(sequence, np.array(tokens), tokens=tokens, namespace=tenant,
                                 keys=keys)
        self.assertEqual(arrived.export(**self.WHO), sequence.export(**self.WHO))
        with self.assertRaisesRegex(quire.ArgumentError, "other keys"):
            self.hand_over(sequence, tokens, namespace=tenant)
        for others in ([*tokens[:-1], 77], tokens[:-1], [*tokens, 10]):
            with self.assertRaisesRegex(quire.ArgumentError, "foreign hand-over"):
                self.hand_over(sequence, tokens, tokens=others, namespace=tenant, keys=keys)
        with self.assertRaisesRegex(quire.ArgumentError, "tokens has the number -1"):
            self.hand_over(sequence, [-1])

    def test_streams_take_and_give_parts(self):
        class Slow(io.BytesIO):
            def write(self, data):
                return super().write(data[:100])

            def read(self, size=-1):
                return super().read(min(size, 100))

        sequence = self.grown()
        slow = Slow()
        info = sequence.export_to(slow, **self.WHO)
        self.assertEqual((info.known_tokens, info.computed_tokens, info.blocks, info.size_bytes),
                         (10, 10, 3, len(slow.getvalue())))
        slow.seek(0)
        self.goes_on(self.cache.import_sequence(slow, **self.WHO))

    def test_file_comes_back(self):
        sequence = self.grown()
        with tempfile.TemporaryDirectory() as name:
            path = pathlib.Path(name, "one.session")
            info = sequence.save(path, **self.WHO)
            self.assertEqual(info.size_bytes, path.stat().st_size)
            self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)
            self.assertEqual(path.read_bytes(), sequence.export(**self.WHO))
            self.goes_on(self.cache.restore(str(path), **self.WHO))
            with self.assertRaises(quire.SystemCallError) as caught:
                sequence.save(pathlib.Path(name, "missing", "two"))
            self.assertTrue(caught.exception.native_code)
            with self.assertRaises(quire.SystemCallError):
                self.cache.restore(pathlib.Path(name, "missing"))
            self.assertEqual(os.listdir(name), ["one.session"])

    def test_damaged_and_foreign_ones_are_refused(self):
        sequence = self.grown()
        content = sequence.export(**self.WHO)
        for wrong in (b"", b"x" * 300, content[:-1], content[:300] + b"!" + content[301:]):
            with self.subTest(size=len(wrong)), self.assertRaises((quire.ArgumentError, EOFError)):
                self.cache.import_sequence(wrong, **self.WHO)
        for who in ({}, {"fingerprint": b"other", "name_space": b"tenant"},
                    {"fingerprint": b"model"}):
            with self.assertRaisesRegex(quire.ArgumentError, "foreign session"):
                self.cache.import_sequence(content, **who)
        with self.assertRaisesRegex(quire.ArgumentError, "other keys"):
            self.cache.import_sequence(content, **self.WHO,
                                       keys=[quire.Key(quire.KeyType.SALT, b"salt")])
        with self.assertRaisesRegex(quire.ArgumentError, "33 bytes"):
            sequence.export(fingerprint=b"x" * 33)
        self.assertEqual(self.cache.stats.host_blocks_used, 0)

    def test_short_host_tier_is_a_result(self):
        content = self.grown(30).export()
        kept = []
        while (back := self.cache.import_sequence(content)) is not None:
            kept.append(back)
        self.assertGreater(len(kept), 0)

    def test_exceptions_of_a_file_come_out(self):
        class Broken:
            def __init__(self, why):
                self.why = why

            def write(self, data):
                raise self.why

            def read(self, size):
                raise self.why

        sequence = self.grown()
        for why in (OSError("full"), KeyboardInterrupt(), ZeroDivisionError()):
            with self.assertRaises(type(why)) as caught:
                sequence.export_to(Broken(why))
            self.assertIs(caught.exception, why)
            with self.assertRaises(type(why)) as caught:
                self.cache.import_sequence(Broken(why))
            self.assertIs(caught.exception, why)

        class Odd:
            def write(self, data):
                return len(data) + 1

            def read(self, size):
                return b"x" * (size + 1)

        with self.assertRaisesRegex(OSError, "took"):
            sequence.export_to(Odd())
        with self.assertRaisesRegex(OSError, "returned"):
            self.cache.import_sequence(Odd())
        self.serve(sequence, self.k[:1], self.v[:1], [5])

    def test_other_calls_find_the_sequence_busy_meanwhile(self):
        sequence, other, said = self.grown(), self.cache.sequence(), []

        class Meddler:
            def write(_, data):
                with self.assertRaisesRegex(quire.BusyError, "being exported"):
                    sequence.end()
                with self.assertRaises(quire.BusyError):
                    self.cache.close()
                said.append(other.info.known_tokens)

        sequence.export_to(Meddler())
        self.assertGreater(len(said), 1)


class WithoutMemory(Books):
    def test_a_cache_of_books_has_no_sessions(self):
        with self.assertRaises(quire.UnsupportedError):
            self.grown(range(BLOCK_TOKENS)).export()
        with self.assertRaises(quire.UnsupportedError):
            self.cache.import_sequence(b"")


if __name__ == "__main__":
    unittest.main()
