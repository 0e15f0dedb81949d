# SPDX-License-Identifier: Apache-2.0
"""vllm_table: the requests that hold blocks, and how they get, name and return them.

Every request has a sequence. A step adds its tokens as unknown where they must not be looked up;
they get their ids, and so enter the cache, when vLLM says that they may be cached: `name_later`
notes it, and `name_due` tells the library about all of them at once, before anything can notice.

A decoding request needs a block every block_size tokens. When the first of them needs one, all of
them get one, in one step of the library: `reserve`. Reserved blocks count as free. When blocks are
short they are given back, and nothing is reserved while few are left, so that no request waits, and
hardly a cached block is evicted, for the sake of a reservation.

Invariants:
  (1) reserved == the sum of len(blocks) - given over all requests
  (2) named <= due <= room, all of them whole blocks
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional

import numpy as np

from . import elements
from .elements import SPAN, UNKNOWN
from .sequence import Key
from .step import RUN
from .vllm_blocks import Blocks, KVCacheBlock
from .vllm_books import Books
from .vllm_request import Content, ids, tokens as converted
from .vllm_running import Running

_LEAST_RESERVED = 4  # requests: a step for fewer of them saves nothing
_RESERVED_SHARE = 8  # a reservation takes at most one in 8 of the blocks that are left


class Table:
    """The requests that hold blocks of one cache.

    late  computed tokens, the last ones, that may be computed again and are not cached yet
    """

    def __init__(self, books: Books, blocks: Blocks, late: int = 0):
        self.books = books
        self.blocks = blocks
        self.content = Content(books.block_size)
        self.running: Dict[str, Running] = {}
        self.reserved = 0
        self.late = late
        self._due: Dict[Running, None] = {}

    def free_count(self) -> int:
        """Blocks that a request could take."""
        return self.books.available() + self.reserved

    # Growth.

    def admit(self, request: Any) -> Running:
        """A request that holds nothing yet; `grow` enters it in the table."""
        keys: List[Key] = []
        count = 0
        if self.books.caches:
            tokens, keys = self.content.of(request)
            count = len(tokens)
        return Running(request, self.books.create(keys), self.books.block_size, count)

    def grow(self, running: Running, verified: int, need: int, found: int, cached: int,
             spare: int) -> Optional[List[KVCacheBlock]]:
        """Gives a request slots for `need` tokens, and returns its new blocks. None: there are too
        few, or fewer than `spare` would be left; nothing changed.

        found   tokens that must be in the cache, for a request that holds nothing
        cached  tokens whose full blocks may enter the cache
        """
        size = self.books.block_size
        count = -(-need // size)
        if count == len(running.blocks) + 1 and running.given != 0:
            self._reserve()
        before = len(running.blocks) - running.given
        if self.books.windowed or count > len(running.blocks):
            if not self._step(running, verified, need, found, cached, spare):
                return None
        elif spare and self.free_count() - (count - running.given) < spare:
            return None
        self.running[running.request.request_id] = running
        running.given = max(running.given, found // size)
        new = running.give(max(count, running.given))
        self.reserved += len(running.blocks) - running.given - before
        self.name_later(running, cached)
        return new

    def _step(self, running: Running, verified: int, need: int, found: int, cached: int,
              spare: int) -> bool:
        """Runs a step of this request alone. False: it waits, and nothing changed."""
        size = self.books.block_size
        known = max(-(-need // size) * size, found + size if found >= need else 0)
        if self.books.windowed:
            known = max(verified, running.known + 1, found + 1)
        tokens = np.full(known - running.known, UNKNOWN, elements.TOKEN)
        cached = max(0, cached - self.late)
        end = max(found, cached // size * size) if self.books.caches and running.known == 0 else 0
        end = min(end, known)
        tokens[:end] = self.content.of(running.request)[0][:end] if end else 0
        named = self._open(running, tokens, max(0, need - known), found, end, spare)
        if named is None:
            return False
        self.books.close_step()
        self._read(running, known, named)
        return True

    def _open(self, running: Running, tokens: Any, lookahead: int, found: int, end: int,
              spare: int) -> Optional[int]:
        """Opens the step, in which the first `end` tokens are named; more than `found` of them may
        be in the cache, and must then be unknown. Returns how many are named; None: it waits."""
        result = self.books.begin(running.sequence, tokens, lookahead)
        if result.outcome == RUN and result.hit_tokens > found:
            self.books.abort()
            tokens[found:] = UNKNOWN
            end = found
            result = self.books.begin(running.sequence, tokens, lookahead)
        if result.outcome != RUN:
            self.books.abort()
            if self.reserved == 0:
                return None
            self.give_back()
            return self._open(running, tokens, lookahead, found, end, spare)
        if spare and self.free_count() < spare:
            self.books.abort()
            return None
        hits = result.hit_tokens
        if hits < found:
            self.books.abort()
            raise ValueError(f"num_new_computed_tokens is {found}, but {hits} tokens of the "
                             "request are in the cache")
        return end

    def _read(self, running: Running, known: int, named: int) -> None:
        """Reads the request's table after a step."""
        running.known = known
        if named > running.named:
            running.named = named
            running.name(named)
        held = len(running.blocks)
        first = 0 if self.books.windowed else held
        running.blocks[first:] = self.blocks.of(self.books.blocks(running.sequence, first))

    # Reservation.

    def _reserve(self) -> None:
        """Gives a block to every request that has none in reserve, if enough of them are left."""
        if self.books.windowed or len(self.running) < _LEAST_RESERVED:
            return
        wanting = [r for r in self.running.values() if len(r.blocks) == r.given]
        count = len(wanting)
        if count < _LEAST_RESERVED or count * _RESERVED_SHARE > self.books.available():
            return
        self.name_due()
        if not self.books.extend([r.sequence for r in wanting]):
            return
        for running in wanting:
            running.known += self.books.block_size
            ids_ = self.books.blocks(running.sequence, len(running.blocks))
            running.blocks.append(self.blocks[ids_[0]])
        self.reserved += count

    def give_back(self) -> None:
        """Returns all reserved blocks."""
        for running in self.running.values():
            if len(running.blocks) > running.given:
                running.known = running.given * running.size
                del running.blocks[running.given:]
                self.books.truncate(running.sequence, running.known)
        self.reserved = 0

    # Naming.

    def name_later(self, running: Running, count: int) -> None:
        """The full blocks of a request's first `count` tokens may enter the cache."""
        if not self.books.caches or count < running.mark:
            return
        count = min(count, running.request.num_tokens) - self.late
        end = min(count, running.room) // running.size * running.size
        if end <= running.due:
            return
        running.name(end)
        self._due[running] = None
        if self.books.windowed:
            self.name_due()

    def name_due(self) -> None:
        """Names all tokens that are due."""
        if not self._due:
            return
        due, self._due = self._due, {}
        if len(due) == 1:
            for running in due:
                self._name(running)
            return
        values: List[int] = []
        rows = []
        for running in due:
            part = ids(running.request)[running.named:running.due]
            rows.append((running.sequence, running.named, len(values), len(part), 0))
            values.extend(part)
        tokens, wide = converted(values)
        if wide is not None:
            for running in due:
                self._name(running)
            return
        self.books.name(np.array(rows, SPAN), tokens)
        for running in due:
            running.named = running.due

    def _name(self, running: Running) -> None:
        """Names the tokens of one request that are due."""
        tokens, wide = converted(ids(running.request)[running.named:running.due])
        if wide is not None and self._unkeyed(running, wide):
            running.due, running.mark = running.named, 1 << 62  # caches nothing any more
            return
        if running.due > running.known and not self._catch_up(running):
            running.name(running.named)
            return
        self.books.name_one(running.sequence, running.named, tokens)
        running.named = running.due

    def _unkeyed(self, running: Running, wide: Any) -> bool:
        """True if a token that the library has no number for is in no key of the request."""
        strange = (wide < 0) | (wide >= UNKNOWN)
        return bool(running.named + np.flatnonzero(strange)[-1] >= running.keyed)

    def _catch_up(self, running: Running) -> bool:
        """With a window the sequence has fewer tokens than slots. A step adds the missing tokens;
        it needs no block."""
        tokens = np.full(running.due - running.known, UNKNOWN, elements.TOKEN)
        if self.books.begin(running.sequence, tokens, 0).outcome != RUN:
            self.books.abort()
            return False
        self.books.close_step()
        running.known = running.due
        return True

    # Release.

    def remove(self, request_id: str) -> Optional[Running]:
        """Takes a request out of the table; `end` returns its blocks."""
        running = self.running.pop(request_id, None)
        if running is None:
            return None
        if running in self._due:
            self.name_due()
        self.reserved -= len(running.blocks) - running.given
        return running

    def end(self, running: Running) -> None:
        """Returns a removed request's blocks; those that are cached stay cached, and the tail
        counts as older than the head."""
        self.books.end(running.sequence)
        running.end()
        self.content.forget()
