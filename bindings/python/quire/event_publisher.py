# SPDX-License-Identifier: Apache-2.0
"""event_publisher: publishes a cache's events over ZeroMQ as vLLM's publisher does, for routers
(Dynamo, llm-d) and stores that follow it.

A message has three frames: the topic, its number (8 bytes, big-endian, from 0) and a batch
(event_wire). A subscriber that sees a gap in the numbers sends [empty, first number] to the replay
socket and gets [empty, topic, number, batch] for each batch from there on that is still kept, and
[empty, empty, 2^64 - 1, empty] after the last. What is no longer kept cannot be replayed: then the
next publish() begins again with AllBlocksCleared and everything that is found, for all subscribers.

Nothing waits for a subscriber: one that is too slow loses messages, and sees the gap. The work of
publish() is bounded by `limit` events and one replay.

Threads: any; calls take turns. pyzmq and msgpack are imported when a publisher is created.
"""

from __future__ import annotations

import collections
import importlib
import threading
import time
from types import TracebackType
from typing import Any, Deque, Dict, NamedTuple, Optional, Type

from . import errors
from .cache import Cache
from .event_wire import EventWire
from .objects import expect
from .sequence import Namespace

_END = (-1).to_bytes(8, "big", signed=True)  # the number after a replay's last batch

_CLEARED = ({"type": "AllBlocksCleared"}, ["AllBlocksCleared"])


class _Batch(NamedTuple):
    number: int
    content: bytes
    begins: bool  # with AllBlocksCleared: nothing before it is needed


def _optional(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as why:
        raise ImportError(f"an EventPublisher needs {package} ({why}): "
                          "pip install 'quire[events]'") from why


class EventPublisher:
    """Publishes what quire.Cache.events tells; the cache's only reader of them.

        publisher = quire.EventPublisher(cache, "tcp://*:5557", replay="tcp://*:5558")
        ...
        publisher.publish()     # after each step, and now and then while there are none

    endpoint    where it listens; with connect=True, the subscriber's address
    replay      where it listens for requests to replay; None: it does not, and a subscriber that
                joins late or loses a message has to wait for the next snapshot()
    topic       vLLM's default is "", llm-d needs "kv@POD@MODEL"
    arrays      events as arrays, which llm-d needs, and not as maps
    rank        the data-parallel rank that each batch names
    kept        batches that can be replayed
    high_water  messages that wait for one subscriber before it loses some
    limit       the most events that one publish() reads

    The blocks of the default namespace are published if the cache has CacheFlags.EVENT_TOKENS; see
    also name().
    Errors      ImportError, pyzmq or msgpack is missing; SystemCallError, ZeroMQ cannot listen.
    """

    def __init__(self, cache: Cache, endpoint: str, *, replay: Optional[str] = None,
                 connect: bool = False, topic: str = "", arrays: bool = False, rank: int = 0,
                 kept: int = 1000, high_water: int = 100_000, limit: int = 1024):
        for name, number in (("kept", kept), ("high_water", high_water), ("limit", limit)):
            if number < 1:
                raise errors.ArgumentError(f"{name} is {number}: at least 1")
        self._cache = expect(cache, Cache, "cache")
        self._zmq = _optional("zmq", "pyzmq")
        self._pack = _optional("msgpack", "msgpack").packb
        self._topic, self._rank, self._limit = topic.encode(), rank, limit
        self._names: Dict[int, Optional[str]] = {0: None}
        self._wire = EventWire(cache.groups, cache.info.block_tokens, self._names, arrays)
        self._batches: Deque[_Batch] = collections.deque(maxlen=kept)
        self._next = 0
        self._begin = True  # the next read begins again
        self._lock = threading.Lock()
        self._context = self._zmq.Context()
        self._replies: Any = None
        try:
            self._messages = self._socket(self._zmq.PUB, endpoint, high_water, connect)
            if replay is not None:  # room for everything that is kept, twice: as vLLM has
                self._replies = self._socket(self._zmq.ROUTER, replay, 2 * (kept + 1), False)
        except BaseException:
            self._context.destroy()
            raise

    def _socket(self, kind: int, endpoint: str, high_water: int, connect: bool) -> Any:
        socket = self._context.socket(kind)
        socket.setsockopt(self._zmq.SNDHWM, high_water)
        socket.setsockopt(self._zmq.LINGER, 0)  # so that no process waits for subscribers to exit
        try:
            (socket.connect if connect else socket.bind)(endpoint)
        except self._zmq.ZMQError as why:
            raise errors.SystemCallError(f"ZeroMQ cannot open {endpoint}: {why}",
                                         native_code=why.errno or 0) from None
        return socket

    @property
    def endpoint(self) -> str:
        """Where it publishes; the port is known even if the given one was *."""
        return str(self._messages.getsockopt_string(self._zmq.LAST_ENDPOINT))

    @property
    def replay_endpoint(self) -> Optional[str]:
        """Where it replays."""
        if self._replies is None:
            return None
        return str(self._replies.getsockopt_string(self._zmq.LAST_ENDPOINT))

    @property
    def published(self) -> int:
        """How many messages were published, which is the number of the next one."""
        return self._next

    def name(self, namespace: Namespace, name: str) -> None:
        """Publishes the blocks of a namespace, too, which gives its tokens away (event_tokens).
        Routers see the name as that of a LoRA adapter: it has to be part of what they look up.

        Blocks that were published without a name before are told again.
        """
        expect(namespace, Namespace, "namespace")
        if not name:
            raise errors.ArgumentError("name is empty: a router would take the namespace's blocks "
                                       "for those of the default namespace")
        with self._lock:
            self._names[namespace.handle] = name
            self._begin = True

    def snapshot(self) -> None:
        """Lets the next publish() begin again, for subscribers that cannot ask for a replay."""
        with self._lock:
            self._begin = True

    def publish(self) -> bool:
        """Publishes what changed since the last call, as one message, if anything did. True: there
        is more to tell, which the next call does.

        Errors: StaleError, it is closed; those of Cache.events, and the next call begins again.
        """
        with self._lock:
            if self._context.closed:
                raise errors.StaleError("the publisher is closed")
            if self._replies is not None:
                self._replay()
            begin, self._begin = self._begin, True  # if anything below fails or is interrupted
            read = self._cache.events(begin, self._limit)
            said = self._wire.say(read)
            if said:
                self._send(self._pack([time.time(), said, self._rank]), said[0] in _CLEARED)
            self._begin = False
            return read.has_more

    def _send(self, content: bytes, begins: bool) -> None:
        batch = _Batch(self._next, content, begins)
        self._next += 1
        self._batches.append(batch)
        self._messages.send_multipart((self._topic, batch.number.to_bytes(8, "big"), content))

    def _replay(self) -> None:
        """Answers one request, if there is any."""
        try:
            request = self._replies.recv_multipart(self._zmq.NOBLOCK)
        except self._zmq.Again:
            return
        if len(request) != 3 or len(request[2]) != 8:
            return  # not a request; there is no form for an answer
        client, first = request[0], int.from_bytes(request[2], "big")
        oldest = self._batches[0].number if self._batches else self._next
        if first < oldest and not any(batch.begins for batch in self._batches):
            self._begin = True
        for batch in self._batches:
            if batch.number >= first:
                self._reply(client, self._topic, batch.number.to_bytes(8, "big"), batch.content)
        self._reply(client, b"", _END, b"")

    def _reply(self, client: bytes, *frames: bytes) -> None:
        self._replies.send_multipart((client, b"", *frames), self._zmq.NOBLOCK)

    def close(self) -> None:
        """Stops publishing; what subscribers have not received yet is lost. The cache stays open.
        Closing it again does nothing."""
        with self._lock:
            self._context.destroy()

    def __enter__(self) -> "EventPublisher":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()
