# SPDX-License-Identifier: Apache-2.0
"""vllm_admission: requests that hold nothing get their first blocks.

The usual request has one group, a prompt without keys, and finds exactly what was looked up. It is
admitted here in as few calls as that allows, because a scheduler's step may admit hundreds. Every
other request is undone, and goes through Table.admit and Table.grow, which know all cases.
"""

from __future__ import annotations

from typing import Any, List, Optional, Tuple

import numpy as np

from . import elements
from .elements import UNKNOWN
from .vllm_blocks import KVCacheBlock
from .vllm_running import Running
from .vllm_table import Table


class Admission:
    """Starts the requests of one table."""

    def __init__(self, table: Table):
        self._table, self._books = table, table.books
        self._size = table.books.block_size
        self._has_usual = table.books.caches and not table.books.is_exact and not table.late \
            and not table.lookahead and table.books.group_count == 1

    def start(self, request: Any, verified: int, need: int, found: int, cached: int,
              spare: int, encoder_tokens: int = 0,
              computed: int = 0) -> Optional[Tuple[List[KVCacheBlock], ...]]:
        """Enters a request in the table, and returns its new blocks per group. None: there are too
        few, or fewer than `spare` would be left; nothing changed. The numbers are those of
        Table.grow and Table.admit."""
        table = self._table
        if self._has_usual and need > found and spare == 0:
            new = self._start_usual(request, need, found, cached)
            if new is not None:
                return new
        running = table.admit(request, encoder_tokens, computed)
        try:
            return table.grow(running, verified, need, found, cached, spare)
        finally:
            if request.request_id not in table.running:
                self._books.end(running.sequence)

    def _start_usual(self, request: Any, need: int, found: int,
                     cached: int) -> Optional[Tuple[List[KVCacheBlock], ...]]:
        """`start` for the usual request. None: it is not that one, and nothing changed."""
        table, size = self._table, self._size
        content, keys = table.content.of(request)
        if keys:
            return None
        count = -(-need // size)
        known = count * size
        end = min(max(found, cached // size * size), known)
        if end == known:
            tokens = content[:end]
        else:
            tokens = np.full(known, UNKNOWN, elements.TOKEN)
            tokens[:end] = content[:end]
        admitted = self._books.admit(tokens, found)
        if admitted is None:
            return None
        running = Running(request, admitted[0], table.shape, len(content), keys,
                          [table.blocks.of(admitted[1])])
        running.known = known
        running.adopt(found, self._books.host_blocks != 0)
        if end != 0:
            running.named = end
            running.name(end)
        table.running[request.request_id] = running
        if table.index is not None and end > found:
            table.index.note(running, found // size, end // size)
        return running.give(need)
