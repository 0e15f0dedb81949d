# SPDX-License-Identifier: Apache-2.0
"""The event publisher: its batches are those that vLLM encodes; its sockets answer as vLLM's."""

import builtins
import importlib.util
import json
import pathlib
import subprocess
import sys
import textwrap
import unittest
import unittest.mock

import numpy as np
import quire
from quire.event_wire import EventWire

import fixture

MISSING = [name for name, package in (("zmq", "pyzmq"), ("msgpack", "msgpack"))
           if importlib.util.find_spec(name) is None]
GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "events" / "golden.json"
END = b"\xff" * 8


def read(events, block_tokens):
    """Events of golden.json as Cache.events returns them."""
    rows, tokens = np.zeros(len(events), quire.EVENT), []
    for row, event in zip(rows, events):
        for field in ("kind", "flags", "block", "parent", "ns", "group", "level"):
            row[field] = event[field]
        if event["kind"] == quire.EventKind.STORED:
            row["token_count"], row["token_offset"] = block_tokens, len(tokens)
            tokens += event["tokens"]
    return quire.Events(rows, np.array(tokens, np.uint32), False)


@unittest.skipIf(MISSING, f"{MISSING} is not installed")
class Bytes(unittest.TestCase):
    def check(self, arrays, form):
        import msgpack
        golden = json.loads(GOLDEN.read_text())
        groups = [quire.Group(layers=1, kv_heads=1, head_dim=8, kind=quire.GroupKind(g["kind"]),
                              window=g["window"]) for g in golden["groups"]]
        names = {0: None, **{int(ns): name for ns, name in golden["names"].items()}}
        wire = EventWire(groups, golden["block_tokens"], names, arrays)
        wire._base = int(golden["base"])
        for case in golden["cases"]:
            with self.subTest(case=case["name"]):
                said = wire.say(read(case["events"], golden["block_tokens"]))
                batch = msgpack.packb([golden["seconds"], said, golden["rank"]])
                self.assertEqual(batch.hex(), case[form])

    def test_maps_are_those_of_vllm(self):
        self.check(False, "map")

    def test_arrays_are_those_of_vllm_before_maps(self):
        self.check(True, "array")


@unittest.skipIf(MISSING, f"{MISSING} is not installed")
class Publishing(fixture.Books):
    def make(self, **options):
        return super().make(flags=quire.CacheFlags.EVENTS | quire.CacheFlags.EVENT_TOKENS)

    def publisher(self, **options):
        options.setdefault("replay", "tcp://127.0.0.1:*")
        publisher = quire.EventPublisher(self.cache, "tcp://127.0.0.1:*", **options)
        self.addCleanup(publisher.close)
        return publisher

    def connect(self, publisher):
        """A subscriber and a client of the replay socket."""
        import zmq
        context = zmq.Context()
        self.addCleanup(context.destroy, linger=0)
        subscriber, client = context.socket(zmq.SUB), context.socket(zmq.DEALER)
        subscriber.subscribe(b"")
        subscriber.connect(publisher.endpoint)
        client.connect(publisher.replay_endpoint)
        for socket in (subscriber, client):
            socket.setsockopt(zmq.RCVTIMEO, 20000)
            self.addCleanup(socket.close, 0)
        for _ in range(200):
            publisher.snapshot()
            publisher.publish()
            if subscriber.poll(50):
                break
        return subscriber, client

    def replayed(self, publisher, client, first):
        """The numbers and contents of a replay, without its end."""
        client.send_multipart([b"", first.to_bytes(8, "big")])
        for _ in range(200):
            publisher.publish()
            if client.poll(50):
                break
        got = []
        while True:
            frames = client.recv_multipart()
            if frames == [b"", b"", END, b""]:
                return got
            self.assertEqual(frames[:2], [b"", b""])  # no topic
            got.append((int.from_bytes(frames[2], "big"), frames[3]))

    def test_message_has_topic_number_and_batch(self):
        import msgpack
        publisher = self.publisher(topic="kv@pod@model", rank=2)
        subscriber, _client = self.connect(publisher)
        while subscriber.poll(0):
            topic, last, _content = subscriber.recv_multipart()
        self.grown([1, 2, 3, 4, 5])
        self.assertFalse(publisher.publish())
        topic, number, content = subscriber.recv_multipart()
        self.assertEqual(topic, b"kv@pod@model")
        self.assertEqual(int.from_bytes(number, "big"), int.from_bytes(last, "big") + 1)
        _seconds, (stored,), rank = msgpack.unpackb(content)
        self.assertEqual((stored["token_ids"], rank), ([1, 2, 3, 4], 2))
        publisher.publish()
        self.assertEqual(publisher.published, int.from_bytes(number, "big") + 1)

    def test_replay_begins_where_it_was_asked_to(self):
        publisher = self.publisher()
        subscriber, client = self.connect(publisher)
        for token in range(3):
            self.grown([token] * 5)
            publisher.publish()
        last = publisher.published - 1
        self.assertEqual([number for number, _ in self.replayed(publisher, client, last - 1)],
                         [last - 1, last])
        self.assertEqual(publisher.published, last + 1)
        self.assertEqual(self.replayed(publisher, client, last + 1), [])

    def test_what_is_not_kept_is_followed_by_everything(self):
        import msgpack
        publisher = self.publisher(kept=2)
        subscriber, client = self.connect(publisher)
        for token in range(3):
            self.grown([token] * 5)
            publisher.publish()
        after = publisher.published
        self.assertEqual(len(self.replayed(publisher, client, after - 3)), 2)
        publisher.publish()
        got = self.replayed(publisher, client, after)
        self.assertEqual(len(got), 1)
        _seconds, events, _rank = msgpack.unpackb(got[0][1])
        self.assertEqual(events[0], {"type": "AllBlocksCleared"})
        self.assertEqual([e["token_ids"] for e in events[1:]], [[t] * 4 for t in range(3)])
        # Everything is kept now: no replay needs another beginning.
        self.replayed(publisher, client, 0)
        publisher.publish()
        self.assertEqual(publisher.published, after + 1)

    def test_requests_that_are_none_change_nothing(self):
        publisher = self.publisher()
        _subscriber, client = self.connect(publisher)
        before = publisher.published
        for frames in ([b""], [b"", b"1"], [b"", b"x" * 8, b""], [b"x" * 8]):
            client.send_multipart(frames)
        self.assertEqual(self.replayed(publisher, client, before), [])
        self.assertEqual(publisher.published, before)

    def test_failed_read_begins_again(self):
        publisher = self.publisher()
        publisher.publish()
        with unittest.mock.patch.object(self.cache, "events", side_effect=KeyboardInterrupt):
            with self.assertRaises(KeyboardInterrupt):
                publisher.publish()
        publisher.publish()
        self.assertEqual(publisher.published, 2)

    def test_process_ends_with_a_publisher_open_and_a_subscriber_that_does_not_read(self):
        code = """
            import quire, zmq
            cache = quire.Cache(quire.Instance(), [quire.Group(layers=1, kv_heads=1, head_dim=8)],
                                blocks=16, block_tokens=4,
                                flags=quire.CacheFlags.EVENTS | quire.CacheFlags.EVENT_TOKENS)
            publisher = quire.EventPublisher(cache, "tcp://127.0.0.1:*")
            stuck = zmq.Context().socket(zmq.SUB)
            stuck.setsockopt(zmq.RCVHWM, 1)
            stuck.setsockopt(zmq.LINGER, 0)
            stuck.subscribe(b"")
            stuck.connect(publisher.endpoint)
            while not stuck.poll(50):
                publisher.snapshot()
                publisher.publish()
            for _ in range(20000):
                publisher.snapshot()
                publisher.publish()
            print("done")
        """
        ended = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], timeout=60,
                               capture_output=True, text=True)
        self.assertEqual((ended.returncode, ended.stdout), (0, "done\n"), ended.stderr)

    def test_wrong_use_is_refused_in_words(self):
        publisher = self.publisher()
        for options in ({"kept": 0}, {"limit": 0}, {"high_water": -1}):
            with self.assertRaisesRegex(quire.ArgumentError, "at least 1"):
                self.publisher(**options)
        with self.assertRaisesRegex(quire.SystemCallError, "cannot open"):
            quire.EventPublisher(self.cache, publisher.endpoint)
        with self.assertRaisesRegex(quire.ArgumentError, "name is empty"):
            publisher.name(self.cache.namespace(event_tokens=True), "")
        publisher.close()
        publisher.close()
        with self.assertRaisesRegex(quire.StaleError, "closed"):
            publisher.publish()


class WithoutPackages(fixture.Books):
    def test_missing_package_is_named(self):
        imported = builtins.__import__

        def without(name, *arguments, **more):
            if name == "zmq":
                raise ImportError("No module named 'zmq'")
            return imported(name, *arguments, **more)

        with unittest.mock.patch("importlib.import_module", side_effect=without):
            with self.assertRaisesRegex(ImportError, r"pyzmq.*pip install 'quire\[events\]'"):
                quire.EventPublisher(self.cache, "tcp://127.0.0.1:*")


if __name__ == "__main__":
    unittest.main()
