# SPDX-License-Identifier: Apache-2.0
"""objects: the base of everything that owns an object in the library.

A child keeps its parent alive, so nothing in use goes away by itself. If an object is still in use,
close() raises BusyError, which says by what, and changes nothing.

An object that is never closed is closed with its last reference. If it is in use then, because
enqueued work has not run, or because the garbage collector came to a parent before its child, it
waits: whenever another object is closed, all that wait are tried again. No object refers to its
children, so all of this needs no garbage collector unless the engine's own objects form a cycle.

Threads: any. While another thread is using an object, close() raises BusyError.
"""

from __future__ import annotations

import collections
import sys
import warnings
import weakref
from types import TracebackType
from typing import Any, Deque, List, NamedTuple, Optional, Tuple, Type, TypeVar

from . import errors
from .libquire import TIMED_OUT, Library
from .pointers import Pointer

_Self = TypeVar("_Self", bound="Object")


_Kind = TypeVar("_Kind")


def expect(thing: Any, kind: Type[_Kind], name: str) -> _Kind:
    """Returns the thing. Errors: ArgumentError if it is of another kind."""
    if not isinstance(thing, kind):
        raise errors.ArgumentError(f"{name} is not a quire.{kind.__name__}: {thing!r}")
    return thing


class Abandoned(NamedTuple):
    """Bytes that an abandoned object's device may still touch; they are never freed."""

    device_bytes: int
    host_bytes: int
    engine_bytes: int


# Abandoned objects, with the arrays that a device may still write into.
_abandoned: List[Any] = []


class Lasting:
    """What may have to outlast its last reference. The list of what waits is then the only one."""

    __slots__ = ()

    _name = "object"

    def _finalize(self) -> None:
        """Ends what has no references any more. Errors: BusyError if it is still in use."""
        raise NotImplementedError

    def _end(self) -> bool:
        """Finalizes it. False: it is still in use, and waits."""
        try:
            self._finalize()
        except errors.BusyError:
            _waiting.append(self)
            return False
        except errors.QuireError as why:
            warnings.warn(f"a garbage-collected {self._name} could not be closed: {why}",
                          ResourceWarning, stacklevel=1)
        return True

    def _give_way(self, closing: "Object") -> None:
        """Called while it waits, before an object is closed."""


_waiting: Deque[Lasting] = collections.deque()


def end_waiting() -> None:
    """Ends what waits and is no longer in use, and what waited only for that."""
    ended = True
    while ended:
        ended = False
        for _ in range(len(_waiting)):
            try:
                thing = _waiting.popleft()
            except IndexError:  # another thread does the same
                return
            ended = thing._end() or ended


class Object(Pointer, Lasting):
    """Owns one pointer of the library."""

    _destroy = ""  # the function that destroys it
    _destroy_arguments: Tuple[int, ...] = ()  # what it takes beside the object

    def __init__(self, library: Library, pointer: Any):
        super().__init__(pointer)
        self._library = library
        # Arrays of its memory.
        self._arrays: "weakref.WeakSet[Any]" = weakref.WeakSet()

    def close(self) -> None:
        """Destroys the object. Closing it again does nothing.

        Errors: BusyError, and the object stays open, while children, arrays of its memory, a call
        in another thread or work that has not run use it.
        """
        for thing in list(_waiting):
            thing._give_way(self)
        end_waiting()
        self._finalize()
        end_waiting()

    def _finalize(self) -> None:
        try:
            if self._owned is not None:
                self._closing()
        except errors.StaleError:  # so is the object itself, which its destruction shows
            pass
        destroy, error = getattr(self._library.api, self._destroy), self._library.error()
        arguments = self._destroy_arguments
        pointer, self._owned = self._owned, None
        if pointer is None:
            return
        try:
            if len(self._arrays) != 0:
                raise errors.BusyError(f"arrays refer to the {self._name}: delete them")
            if self._uses:
                raise errors.BusyError(f"another thread is in a call on the {self._name}, or work "
                                       "that has not run uses it: sync its queue")
            try:
                status = destroy(pointer, *arguments, error)
            except BaseException:  # an interrupt, when the call returned
                self._closed()
                raise
            if status < 0:
                self._library.fail(status, error)
            if status == TIMED_OUT:
                raise errors.TimeoutError(f"the {self._name} is not closed: work on it still runs")
        except errors.StaleError:  # it went with a cache or device that was abandoned
            _abandoned.append(self)
        except errors.QuireError:
            self._owned = pointer
            raise
        self._closed()

    def _abandon(self, call: str, *arguments: Any) -> None:
        """Gives up what the library cannot end. The object is then closed, and stays in memory."""
        self._library.call(getattr(self._library.api, call), self, *arguments)
        _abandoned.append(self)
        self._owned = None

    def _closing(self) -> None:
        """Work to do while the object is still open."""

    def _closed(self) -> None:
        """Work to do after the object was destroyed."""

    def __copy__(self) -> Any:
        raise TypeError(f"a {self._name} cannot be copied: it has one owner")

    def __deepcopy__(self, memo: Any) -> Any:
        return self.__copy__()

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(f"a {self._name} cannot be pickled: it belongs to this process")

    def __enter__(self: _Self) -> _Self:
        self._pointer
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        if kind is None:
            self.close()
            return
        try:  # the first exception matters more than that something is still in use
            self.close()
        except errors.QuireError:
            pass

    def __del__(self) -> None:
        if getattr(self, "_owned", None) is None or sys is None or sys.is_finalizing():
            return
        if self._end():  # its parents may have waited for it
            end_waiting()
