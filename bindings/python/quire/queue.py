# SPDX-License-Identifier: Apache-2.0
"""queue, fence: the order in which a device works, and how to learn its progress."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any, Callable, Deque, Iterable, Optional, Tuple

from . import errors
from .device import Device
from .libquire import TIMED_OUT, ffi
from .objects import Object, expect

FAILED = 0xFFFFFFFFFFFFFFFF  # a fence's value: work before it failed
FOREVER = 0xFFFFFFFFFFFFFFFF
# Python handles signals, such as Ctrl-C's, only between calls, so a long wait is split.
SLICE_NS = 50_000_000


def nanoseconds(timeout: Optional[float]) -> int:
    """Converts seconds; None waits for ever."""
    return FOREVER if timeout is None else min(FOREVER - 1, max(0, int(timeout * 1e9)))


@dataclasses.dataclass(frozen=True)
class Native:
    """A stream or event of another API, quire_native of quire/base.h: kind is QUIRE_NATIVE_*."""

    kind: int
    value: int
    aux0: int = 0
    aux1: int = 0

    def _desc(self) -> Any:
        return ffi.new("quire_native *", {"kind": self.kind, "value": self.value,
                                          "aux0": self.aux0, "aux1": self.aux1})


def in_slices(timeout: Optional[float], call: Callable[[int], int]) -> bool:
    """Calls what waits for so many nanoseconds, again and again, so that signals are handled
    meanwhile. Returns False after `timeout` seconds."""
    left = nanoseconds(timeout)
    while True:
        slice_ns = min(left, SLICE_NS)
        if call(slice_ns) != TIMED_OUT:
            return True
        if left != FOREVER:
            left -= slice_ns
        if left == 0:
            return False


class Fence(Object):
    """A number that only grows; FAILED means that work before it failed."""

    _name = "fence"
    _destroy = "fence_destroy"

    def __init__(self, device: Device, value: int = 0):
        self._device = expect(device, Device, "device")
        library = device._library
        out = ffi.new("quire_fence **")
        library.call(library.api.fence_create, device, value, out)
        super().__init__(library, out[0])

    @property
    def value(self) -> int:
        """The value that the fence has reached."""
        out = ffi.new("uint64_t *")
        self._library.call(self._library.api.fence_read, self, out)
        return int(out[0])

    def signal(self, value: int) -> None:
        """Sets the value from the host. Errors: ArgumentError if it would not grow."""
        self._library.call(self._library.api.fence_signal, self, value)

    def wait(self, value: int, timeout: Optional[float] = None) -> bool:
        """Waits for the value; returns False after `timeout` seconds. Handles signals meanwhile."""
        return in_slices(timeout, lambda slice_ns: self._library.call(
            self._library.api.fence_wait, self, value, slice_ns))


class _Place(Fence):
    """How far a queue has got, and what its work uses until then. Only the queue ends it, and it
    stays open until that work has run, because the queue may be gone by then."""

    def __init__(self, device: Device):
        super().__init__(device)
        self.marks = 0
        self.fresh: list[Any] = []  # used by work after the last mark
        self._marked: Deque[Tuple[int, list[Any]]] = collections.deque()

    def keep(self, operand: Any) -> None:
        if isinstance(operand, Object):
            operand._use()
        self.fresh.append(operand)

    def forget(self, operands: Iterable[Any]) -> None:
        """Gives up operands that keep() was given last, of a call that has enqueued nothing."""
        for operand in operands:
            fresh = self.fresh
            for i in reversed(range(len(fresh))):
                if fresh[i] is operand:
                    del fresh[i]
                    _drop([operand])
                    break

    def mark_fresh(self) -> None:
        self._marked.append((self.marks, self.fresh))
        self.fresh = []

    def drop_used(self) -> None:
        if not self._marked:
            return
        reached = self.value
        while self._marked and self._marked[0][0] <= reached:
            _drop(self._marked.popleft()[1])

    def drop_all(self) -> None:
        self.mark_fresh()
        while self._marked:
            _drop(self._marked.popleft()[1])

    def _closing(self) -> None:
        self.drop_used()
        if self.fresh or self._marked:
            raise errors.BusyError("work that has not run uses arrays")

    def _give_way(self, closing: Object) -> None:
        """The device's end is also the end of its work. A device whose memory is in use stays."""
        used = [operand for _, operands in self._marked for operand in operands]
        if closing is self._device and not any(isinstance(thing, Object) for thing in used):
            self._device._until_closed.append(used)
            self._marked.clear()

    def __del__(self) -> None:
        """The garbage collector may come here before it comes to the queue."""


def _drop(operands: Iterable[Any]) -> None:
    for operand in operands:
        if isinstance(operand, Object):
            operand._uses.pop()


class Queue(Object):
    """Runs work in order; queues run independently. With `native`: the engine's own stream.

    Calls only enqueue. The queue keeps the arrays passed to them until they have been used, so the
    caller may drop them, but must not write into them meanwhile.
    """

    _name = "queue"
    _destroy = "queue_destroy"

    def __init__(self, device: Device, native: Optional[Native] = None):
        self._device = expect(device, Device, "device")
        self._place = _Place(device)
        library = device._library
        out = ffi.new("quire_queue **")
        try:
            library.call(library.api.queue_create, device,
                         ffi.NULL if native is None else native._desc(), out)
        except BaseException:
            self._place.close()
            raise
        super().__init__(library, out[0])

    def sync(self, timeout: Optional[float] = None) -> None:
        """Waits until all enqueued work has run. Errors: TimeoutError."""
        if self._advance() and not self._place.wait(self._place.marks, timeout):
            raise errors.TimeoutError("the queue still runs")
        self._library.call(self._library.api.queue_sync, self)
        self._place.drop_all()

    def abandon(self) -> None:
        """Gives up a queue whose work never ends; its device can then only be abandoned."""
        self._abandon("queue_abandon")

    def signal(self, fence: Fence, value: int) -> None:
        """Enqueues a signal: the fence gets the value when all earlier work has run."""
        self._library.call(self._library.api.queue_signal, self, fence, value)

    def after(self, fence: Fence, value: int) -> None:
        """Enqueues a wait: later work runs after the fence has reached the value."""
        self._library.call(self._library.api.queue_after, self, fence, value)

    def signal_native(self, native: Native) -> None:
        """Enqueues a signal of the engine's own semaphore, for when all earlier work has run."""
        self._library.call(self._library.api.queue_signal_native, self, native._desc())

    def after_native(self, native: Native) -> None:
        """Enqueues a wait: later work runs after the engine's own semaphore was signalled."""
        self._library.call(self._library.api.queue_after_native, self, native._desc())

    def _enqueue(self, operands: Iterable[Any], function: Any, *arguments: Any) -> None:
        """Calls what enqueues work, and keeps arrays, and memory open, until it has run.

        They are kept first, because an interrupt may come when the call returns.
        """
        for operand in operands:
            self._place.keep(operand)
        try:
            self._library.call(function, *arguments)
        except errors.QuireError:
            self._place.forget(operands)
            raise

    def _advance(self) -> bool:
        """Enqueues a mark. False: the queue failed and accepts none."""
        self._place.marks += 1
        try:
            self.signal(self._place, self._place.marks)
        except errors.DeviceLostError:
            return False
        return True

    def _mark(self) -> None:
        """Releases the arrays that have been used. Called where a step ends."""
        place = self._place
        if place.fresh:
            if not self._advance():  # it failed: what still reads the arrays ends with the device
                self._device._until_closed.append(place.fresh)
                place.fresh = []
                return
            place.mark_fresh()
        place.drop_used()

    def _closing(self) -> None:
        self._mark()

    def _closed(self) -> None:
        # Enqueued work runs on and may still read what is kept.
        self._place._end()
