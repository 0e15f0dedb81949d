# SPDX-License-Identifier: Apache-2.0
"""open_step: how a step ends, also one that its engine has lost."""

from __future__ import annotations

import sys
import warnings
from types import TracebackType
from typing import Optional, Sequence as Listed, Type, TypeVar

from . import errors
from .cache_base import CacheBase
from .libquire import ffi
from .objects import Lasting, end_waiting
from .queue import Native, Queue

_Self = TypeVar("_Self", bound="OpenStep")


class OpenStep(Lasting):
    """A step until it ends. The only kind of it is Step, which adds what a step changes."""

    __slots__ = ("_cache", "_queues", "_state", "handle")

    _name = "step"

    def __init__(self, cache: CacheBase, handle: int, queues: Listed[Queue]):
        self._cache = cache
        self._queues = queues
        self._state = "open"
        self.handle = handle

    @property
    def ended(self) -> bool:
        """True once it was finished or aborted."""
        return self._state == "ended"

    def abort(self) -> None:
        """Undoes everything since begin."""
        self._cache._call("step_abort", self.handle)
        self._state = "ended"
        end_waiting()

    def finish(self, failed: bool = False, signal: Optional[Native] = None) -> None:
        """Says that all of the step has been enqueued, or that it failed.

        signal  what the engine's own work signals at its end, if it runs on no queue of the step
        """
        native = ffi.NULL if signal is None else signal._desc()
        self._cache._call("step_finish", self.handle, native, int(failed))
        self._state = "ended"
        for queue in self._queues:
            queue._mark()
        end_waiting()

    def undo(self) -> None:
        """Ends the step so that nothing of it is kept, whether or not it was committed.

        What the library says counts: an interrupt may have come before _state was changed.
        """
        try:
            self.abort()
        except errors.BusyError:  # it is committed
            self.finish(failed=True)
        except errors.StaleError:
            self._state = "ended"

    def _finalize(self) -> None:
        """A lost step can no longer be ended, so it is undone; else the cache would wait for it."""
        if self._state == "ended" or self._cache.closed:
            return
        self.undo()
        warnings.warn("a step was garbage-collected and undone: commit and finish it, or abort it",
                      ResourceWarning, stacklevel=1)

    def __del__(self) -> None:
        if getattr(self, "_state", "ended") != "ended" and sys is not None and (
                not sys.is_finalizing()):
            self._end()

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        state = self._state
        if state == "ended":
            return
        try:
            self.undo()
        except errors.QuireError:
            if kind is None:
                raise
        if kind is None:
            raise errors.BusyError("the step was left open: commit and finish it, or abort it"
                                   if state == "open" else
                                   "the step was left committed: finish it")
