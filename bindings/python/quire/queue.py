# SPDX-License-Identifier: Apache-2.0
"""queue, fence: the order in which a device works, and how to learn its progress."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any, Deque, Optional, Tuple

from . import errors
from .device import Device
from .libquire import TIMED_OUT, ffi
from .objects import Object, expect

FAILED = 0xFFFFFFFFFFFFFFFF  # a fence's value: work before it failed
FOREVER = 0xFFFFFFFFFFFFFFFF
# Python handles signals, such as Ctrl-C's, only between calls, so a long wait is split.
_SLICE_NS = 50_000_000


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
        left = nanoseconds(timeout)
        while True:
            slice_ns = min(left, _SLICE_NS)
            status = self._library.call(self._library.api.fence_wait, self, value, slice_ns)
            if status != TIMED_OUT:
                return True
            if left != FOREVER:
                left -= slice_ns
            if left == 0:
                return False


class Queue(Object):
    """Runs work in order; queues run independently. With `native`: the engine's own stream.

    Calls only enqueue. The queue keeps the arrays passed to them until they have been used, so the
    caller may drop them, but must not write into them meanwhile.
    """

    _name = "queue"
    _destroy = "queue_destroy"

    def __init__(self, device: Device, native: Optional[Native] = None):
        self._device = expect(device, Device, "device")
        library = device._library
        out = ffi.new("quire_queue **")
        library.call(library.api.queue_create, device,
                     ffi.NULL if native is None else native._desc(), out)
        super().__init__(library, out[0])
        self._place: Optional[Fence] = None  # how far the queue has got, while arrays are kept
        self._marks = 0
        self._fresh: list[Any] = []  # kept since the last mark
        self._kept: Deque[Tuple[int, list[Any]]] = collections.deque()

    def sync(self, timeout: Optional[float] = None) -> None:
        """Waits until all enqueued work has run. Errors: TimeoutError."""
        place = self._next_mark()
        if place is not None and not place.wait(self._marks, timeout):
            raise errors.TimeoutError("the queue still runs")
        self._library.call(self._library.api.queue_sync, self)
        self._fresh = []
        self._kept.clear()

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

    def _keep(self, array: Any) -> None:
        self._fresh.append(array)

    def _next_mark(self) -> Optional[Fence]:
        """Enqueues a mark on the queue's own fence. None: the queue failed and accepts no mark."""
        if self._place is None:
            self._place = Fence(self._device)
        self._marks += 1
        try:
            self.signal(self._place, self._marks)
        except errors.DeviceLostError:
            return None
        return self._place

    def _mark(self) -> None:
        """Releases the arrays that have been used. Called where a step ends."""
        if not self._fresh and not self._kept:
            return
        place = self._place
        if self._fresh:
            place = self._next_mark()
            if place is None:  # it failed: what still reads the arrays ends with the device
                self._device._until_closed.append(self._fresh)
                self._fresh = []
                return
            self._kept.append((self._marks, self._fresh))
            self._fresh = []
        if place is None:
            return
        reached = place.value
        while self._kept and self._kept[0][0] <= reached:
            self._kept.popleft()

    def _closing(self) -> None:
        self._mark()

    def _closed(self) -> None:
        # Enqueued work runs on and may still read what is kept, so the device keeps it from now on.
        if self._kept:
            self._device._left_behind.append((self._place, self._marks, self._kept))
        elif self._place is not None:
            self._place.close()
        self._device._forget_finished()
