# SPDX-License-Identifier: Apache-2.0
"""vllm_admission: requests that hold nothing get their first blocks.

The usual request has a prompt without keys, and exactly what was looked up is found for it. It is
admitted here in as few calls as that allows, because a scheduler's step may admit hundreds. Every
other request is undone, and goes through Table.admit and Table.grow, which know all cases.
"""

from __future__ import annotations

from typing import Any, List, Optional

import numpy as np

from . import elements
from .elements import UNKNOWN
from .step import RUN
from .vllm_blocks import KVCacheBlock
from .vllm_running import Running
from .vllm_table import Table


class Admission:
    """Starts the requests of one table."""

    def __init__(self, table: Table):
        self._table, self._books = table, table.books
        self._size = table.books.block_size
        self._next = 0  # a sequence without tokens and keys, for the next request; 0: none yet
        self._has_usual = table.books.caches and not table.books.windowed and not table.late \
            and not table.lookahead

    def start(self, request: Any, verified: int, need: int, found: int, cached: int,
              spare: int) -> Optional[List[KVCacheBlock]]:
        """Enters a request in the table, and returns its new blocks. None: there are too few, or
        fewer than `spare` would be left; nothing changed. The numbers are those of Table.grow."""
        table = self._table
        if self._has_usual and need > found:
            content, keys = table.content.of(request)
            size = self._size
            end = min(max(found, cached // size * size), -(-need // size) * size)
            if not keys and self._begin(content, need, found, end):
                if spare and table.free_count() < spare:
                    self._books.abort()
                    return None
                return self._finish(request, content, need, found, end)
        running = table.admit(request)
        try:
            return table.grow(running, verified, need, found, cached, spare)
        finally:
            if request.request_id not in table.running:
                self._books.end(running.sequence)

    def _begin(self, content: Any, need: int, found: int, end: int) -> bool:
        """Opens the step of a request. False: it is not the usual one, and no step is open."""
        known = -(-need // self._size) * self._size
        if end == known:
            tokens = content[:end]
        else:
            tokens = np.full(known, UNKNOWN, elements.TOKEN)
            tokens[:end] = content[:end]
        if self._next == 0:
            self._next = self._books.create([])
        result = self._books.begin(self._next, tokens, 0)
        if result.outcome == RUN and result.hit_tokens == found:
            return True
        self._books.abort()
        return False

    def _finish(self, request: Any, content: Any, need: int, found: int,
                end: int) -> List[KVCacheBlock]:
        """Closes the step, and enters the request in the table."""
        table, size = self._table, self._size
        self._books.close_step()
        running = Running(request, self._next, size, len(content), [], table.scale)
        self._next = 0
        count = -(-need // size)
        running.known = count * size
        running.blocks = table.blocks.of(self._books.blocks(running.sequence))
        running.given = found // size
        if end != 0:
            running.named = end
            running.name(end)
        table.running[request.request_id] = running
        if table.index is not None and end > found:
            table.index.note(running, running.given, end // size)
        return running.give(count)
