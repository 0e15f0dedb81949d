# SPDX-License-Identifier: Apache-2.0
"""queue, fence: the order in which a device works, and how one learns where it is."""

from __future__ import annotations

import collections
from typing import Any, Deque, Optional, Tuple

from . import errors
from .device import Device
from .library import TIMED_OUT, ffi
from .objects import Object

FAILED = 0xFFFFFFFFFFFFFFFF  # a fence's value: work before it failed
FOREVER = 0xFFFFFFFFFFFFFFFF


def nanoseconds(timeout: Optional[float]) -> int:
    """None waits for ever."""
    return FOREVER if timeout is None else min(FOREVER - 1, max(0, int(timeout * 1e9)))


class Fence(Object):
    """A number that only grows; FAILED says that work before it failed."""

    _name = "fence"
    _destroy = "fence_destroy"

    def __init__(self, device: Device, value: int = 0):
        self._device = device
        library = device._library
        out = ffi.new("quire_fence **")
        library.call(library.api.fence_create, device, value, out)
        super().__init__(library, out[0])

    @property
    def value(self) -> int:
        out = ffi.new("uint64_t *")
        self._library.call(self._library.api.fence_read, self, out)
        return int(out[0])

    def signal(self, value: int) -> None:
        """Sets it from the host. Errors: ArgumentError, it would not grow."""
        self._library.call(self._library.api.fence_signal, self, value)

    def wait(self, value: int, timeout: Optional[float] = None) -> bool:
        """Waits for the value; False: `timeout` seconds went by."""
        status = self._library.call(self._library.api.fence_wait, self, value,
                                    nanoseconds(timeout))
        return status != TIMED_OUT


class Queue(Object):
    """Work runs in order; queues run independently.

    Calls only enqueue. Arrays that they were given are kept here until they have been used, so one
    may be dropped; what is written into one meanwhile is the caller's mistake.
    """

    _name = "queue"
    _destroy = "queue_destroy"

    def __init__(self, device: Device):
        self._device = device
        library = device._library
        out = ffi.new("quire_queue **")
        library.call(library.api.queue_create, device, ffi.NULL, out)
        super().__init__(library, out[0])
        self._place: Optional[Fence] = None  # how far the queue is, while arrays are kept
        self._marks = 0
        self._fresh: list[Any] = []  # kept since the last mark
        self._kept: Deque[Tuple[int, list[Any]]] = collections.deque()

    def sync(self) -> None:
        """Waits until all that was enqueued has run."""
        self._library.call(self._library.api.queue_sync, self)
        self._fresh = []
        self._kept.clear()

    def signal(self, fence: Fence, value: int) -> None:
        """Enqueues: the fence gets the value when all earlier work has run."""
        self._library.call(self._library.api.queue_signal, self, fence, value)

    def after(self, fence: Fence, value: int) -> None:
        """Enqueues: later work runs after the fence reached the value."""
        self._library.call(self._library.api.queue_after, self, fence, value)

    def _keep(self, array: Any) -> None:
        self._fresh.append(array)

    def _mark(self) -> None:
        """Lets go of what has been used. Called where a step ends."""
        if not self._fresh and not self._kept:
            return
        if self._place is None:
            self._place = Fence(self._device)
        if self._fresh:
            self._marks += 1
            self.signal(self._place, self._marks)
            self._kept.append((self._marks, self._fresh))
            self._fresh = []
        reached = self._place.value
        while self._kept and self._kept[0][0] <= reached:
            self._kept.popleft()

    def _closing(self) -> None:
        try:
            self._mark()
        except errors.QuireError:  # it failed, and signals nothing any more
            self._device._until_closed.append(self._fresh)
            self._fresh = []

    def _closed(self) -> None:
        # Enqueued work runs on and may still read what is kept: the device keeps it from here.
        if self._kept:
            self._device._left_behind.append((self._place, self._marks, self._kept))
        elif self._place is not None:
            self._place.close()
        self._device._forget_finished()
