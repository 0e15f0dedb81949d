# SPDX-License-Identifier: Apache-2.0
"""pointers: one pointer of the library, and who uses it right now.

Threads: any. A list counts the uses, because its append and pop are atomic.
"""

from __future__ import annotations

from typing import Any, List

from . import errors


class Pointer:
    """A pointer that calls take as an argument; None once the object behind it is closed."""

    _name = "object"

    def __init__(self, pointer: Any):
        self._owned = pointer
        # One entry per running call, and per operand of work that may not have run.
        self._uses: List[None] = []

    @property
    def closed(self) -> bool:
        """True once the object is closed or abandoned."""
        return self._owned is None

    @property
    def _pointer(self) -> Any:
        pointer = self._owned
        if pointer is None:
            raise errors.StaleError(f"the {self._name} is closed")
        return pointer

    def _use(self) -> Any:
        """The pointer, for a use; the caller removes an entry from _uses after it. Adds the entry
        first and then reads the pointer; close() does both in the opposite order."""
        self._uses.append(None)
        pointer = self._owned
        if pointer is None:
            self._uses.pop()
            raise errors.StaleError(f"the {self._name} is closed")
        return pointer
