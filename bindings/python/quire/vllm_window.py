# SPDX-License-Identifier: Apache-2.0
"""vllm_window: returns the blocks of a request that its window, or its chunk, has passed.

vLLM returns a block when the steps of all tokens that see it are done. The library returns those
that the window has passed before a step's first token, when that step is committed. So two things
are needed:
  - once more steps are done, a step of one token lets the library return what they have passed
  - if a step begins after tokens whose own steps still run, they may read what it passes: a keeper
    holds these blocks until those steps are done

States of a recurrence (vLLM's mode "align") are given up in the same way: a step that ends in
another block than its request's state is in leaves the older block, which the worker still reads.
"""

from __future__ import annotations

from typing import Dict, List, Optional, Sequence as Listed, Set, Tuple

import numpy as np

from . import elements
from .elements import UNKNOWN
from .errors import UnsupportedError
from .step import RUN
from .vllm_blocks import Blocks
from .vllm_books import Books
from .vllm_running import Running


class Keeper:
    """Holds blocks that a request has given up and steps may still read: those of a fork of its
    sequence, or single cached ones.

    counts  it ends when so many of the request's first blocks are passed, per group
    """

    __slots__ = ("counts", "_books", "_sequence", "_pinned")

    def __init__(self, counts: List[int], books: Books, sequence: int = 0,
                 pinned: Listed[Tuple[int, int]] = ()):
        self.counts = counts
        self._books, self._sequence, self._pinned = books, sequence, pinned

    def blocks(self) -> Set[int]:
        """The blocks that it holds."""
        tables = self._books.tables(self._sequence) if self._sequence else []
        return {block for table in tables for block in table if block != 0} | {
            block for _, block in self._pinned}

    def end(self) -> None:
        """Lets them go."""
        if self._sequence:
            self._books.end(self._sequence)
        for group, block in self._pinned:
            self._books.unpin(group, block)


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
                if not self._books.states:
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
        kept = self.keep(running, known)
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

    def keep(self, running: Running, known: int) -> Optional[Keeper]:
        """Before a step that ends with the first `known` tokens: holds what it passes and others
        may still read. Errors: UnsupportedError if that would hold a state which the step
        changes."""
        if running.known == 0:
            return None
        passes = self._books.passed(running.known)
        seen = list(map(max, running.front, self._books.passed(running.processed)))
        after = self._books.passed(known)
        left = [group for group in self._books.states if after[group] > passes[group]]
        is_seen = _exceeds(passes, seen)
        for group in left:
            passes[group] += 1  # the block that the state is in
        if not is_seen and not (left and _exceeds(passes, seen)):
            return None
        if not is_seen and len(self._books.windows) > len(self._books.states):
            pinned = self._pinned(running, left)
            if pinned:
                keeper = Keeper(passes, self._books, 0, pinned)
                running.keepers.append(keeper)
                return keeper
        if is_seen and len(left) < len(self._books.states):
            raise UnsupportedError("a window passes blocks that a step in flight reads, and the "
                                   "next step changes a state of Mamba in its place: use vLLM's "
                                   "own manager, or no asynchronous scheduling")
        keeper = Keeper(passes, self._books, self._books.fork(running.sequence, running.known))
        running.keepers.append(keeper)
        return keeper

    def _pinned(self, running: Running, groups: List[int]) -> List[Tuple[int, int]]:
        """Holds the states of a request in some groups, without the windows' blocks. None of them,
        if one is not cached."""
        pinned: List[Tuple[int, int]] = []
        for group in groups:
            place = (running.known - 1) // running.sizes[group]
            block = running.tables[group][place].block_id
            if not self._books.pin(group, block):
                for other, held in pinned:
                    self._books.unpin(other, held)
                return []
            pinned.append((group, block))
        return pinned

    def keep_found(self, running: Running, states: Dict[int, int]) -> None:
        """After the first step of a request: holds the states, blocks by group, that were found,
        which the worker reads in that step."""
        if states:
            counts = list(running.passed)
            for group, block in states.items():
                counts[group] += 1
                held = self._books.pin(group, block)
                assert held, "a state that was just found is not cached"
            running.keepers.append(Keeper(counts, self._books, 0, list(states.items())))

    def undo(self, running: Running, keeper: Optional[Keeper]) -> None:
        """The step was not run after all."""
        if keeper is not None:
            keeper.end()
            running.keepers.pop()

    def stepped(self, running: Running, first: int) -> None:
        """A step was run whose first token is this one, and whose last ones are known."""
        front = self._books.passed(first)
        for group in self._books.states:
            front[group] = self._books.groups[group].passed(running.known)
            self._read_states(running, group, first)
        running.front = list(map(max, running.front, front))
        if running.keepers or _exceeds(running.front, running.passed):
            self._settle(running)

    def _read_states(self, running: Running, group: int, first: int) -> None:
        """Reads the table of a group of states from the entry after the state on that a step went
        on from. That one stays in the request's table until it is passed."""
        size = running.sizes[group]
        begin = -(-first // size)
        table = running.tables[group]
        if begin > len(table):  # nothing was there before: the step began with a hit
            table += [self._blocks[0]] * (begin - len(table))
        del table[begin:]
        table += self._blocks.of(self._books.blocks(running.sequence, begin, group=group))

    def end(self, running: Running) -> None:
        """The request ends."""
        for keeper in running.keepers:
            keeper.end()
        running.keepers.clear()
