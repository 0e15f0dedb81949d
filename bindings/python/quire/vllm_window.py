# SPDX-License-Identifier: Apache-2.0
"""vllm_window: returns the blocks of a request that its window, or its chunk, has passed.

vLLM returns a block when the steps of all tokens that see it are done. The library returns those
that the window has passed before a step's first token, when that step is committed. So two things
are needed:
  - once more steps are done, a step of one token lets the library return what they have passed
  - if a step begins after tokens whose own steps still run, they may read what it passes: a keeper
    holds these blocks until those steps are done
"""

from __future__ import annotations

from typing import List, Optional, Set

import numpy as np

from . import elements
from .elements import UNKNOWN
from .step import RUN
from .vllm_blocks import Blocks
from .vllm_books import Books
from .vllm_running import Running


class Keeper:
    """Holds blocks that a request has given up and steps may still read, by a fork of its sequence.

    counts  it ends when so many of the request's first blocks are passed, per group
    """

    __slots__ = ("counts", "_books", "_sequence")

    def __init__(self, counts: List[int], books: Books, sequence: int):
        self.counts = counts
        self._books, self._sequence = books, sequence

    def blocks(self) -> Set[int]:
        """The blocks that it holds."""
        return {block for table in self._books.tables(self._sequence)
                for block in table if block != 0}

    def end(self) -> None:
        """Lets them go."""
        self._books.end(self._sequence)


def _exceeds(counts: List[int], others: List[int]) -> bool:
    return any(count > other for count, other in zip(counts, others))


class Window:
    """What requests of one cache do about their windows; with full attention nothing."""

    def __init__(self, books: Books, blocks: Blocks):
        self._books, self._blocks = books, blocks

    def advance(self, running: Running, processed: int) -> None:
        """The steps of a request's first `processed` tokens are done."""
        if processed <= running.processed:
            return
        running.processed = processed
        passed = self._passed(running)
        if _exceeds(passed, running.passed):
            if _exceeds(passed, running.front):
                self.add(running, processed)
                self.add(running, running.known + 1)
            self._settle(running)

    def _passed(self, running: Running) -> List[int]:
        """How many of a request's blocks, per group, no step reads any more."""
        room = running.room
        return [min(count, -(-room // size)) if size else 0
                for count, size in zip(self._books.passed(running.processed), running.sizes)]

    def _settle(self, running: Running) -> None:
        """Null blocks take the places of those that no step reads and the sequence has given up. It
        has others still, if a step had to wait for blocks."""
        null = self._blocks[0]
        passed = list(running.passed)
        for group, count in enumerate(self._passed(running)):
            begin, end = passed[group], min(count, running.front[group])
            if begin < end:
                running.tables[group][begin:end] = [null] * (end - begin)
                passed[group] = end
        running.passed = passed
        for keeper in [k for k in running.keepers if not _exceeds(k.counts, running.passed)]:
            keeper.end()
            running.keepers.remove(keeper)

    def add(self, running: Running, known: int) -> bool:
        """Adds unknown tokens to a sequence until it has `known`, in a step. False: it waits."""
        if known <= running.known:
            return True
        kept = self.keep(running)
        tokens = np.full(known - running.known, UNKNOWN, elements.TOKEN)
        if self._books.begin(running.sequence, tokens, 0).outcome != RUN:
            self._books.abort()
            self.undo(running, kept)
            return False
        self._books.close_step()
        first, running.known = running.known, known
        self.stepped(running, first)
        if known > running.room:  # the step took a block that vLLM has not asked for
            running.known = running.room
            self._books.truncate(running.sequence, running.room)
        return True

    # A step of a request.

    def keep(self, running: Running) -> Optional[Keeper]:
        """Before a step: holds what it passes and others may still read."""
        if running.known == 0:
            return None
        passes = self._books.passed(running.known)
        seen = list(map(max, running.front, self._books.passed(running.processed)))
        if not _exceeds(passes, seen):
            return None
        keeper = Keeper(passes, self._books, self._books.fork(running.sequence, running.known))
        running.keepers.append(keeper)
        return keeper

    def undo(self, running: Running, keeper: Optional[Keeper]) -> None:
        """The step was not run after all."""
        if keeper is not None:
            keeper.end()
            running.keepers.pop()

    def stepped(self, running: Running, first: int) -> None:
        """A step was run whose first token is this one."""
        running.front = list(map(max, running.front, self._books.passed(first)))
        if running.keepers or _exceeds(running.front, running.passed):
            self._settle(running)

    def end(self, running: Running) -> None:
        """The request ends."""
        for keeper in running.keepers:
            keeper.end()
        running.keepers.clear()
