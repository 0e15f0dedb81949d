# SPDX-License-Identifier: Apache-2.0
"""vllm_scratch: the blocks of groups that are not cached, beside groups that are.

vLLM has two kinds of such groups (`prefix_cacheable` is False): windows with bounded replay, whose
tokens are computed again after a hit, and rings, one block per request. A lookup leaves these
groups out, and no request is given blocks of another one. After a hit, a window's blocks that the
next token sees nothing of are null, and the others are new: the scheduler runs the last tokens of
the hit once more, which fills them. Layers with cached windows would lack there what these tokens
see, so such groups beside bounded replay are refused.

A hit ends at whole blocks of these groups too: so vLLM aligns it, and so a ring needs nothing of
the tokens before.

The library caches the blocks of all groups of a cache together, so it does not know these groups.
Their blocks come from the same pool, on a lease:
  - a request's growth takes them in the step that gives its sequence blocks, so that it gets all of
    its blocks or none
  - a window's block is returned once the steps of all tokens that see it are done, as vLLM does;
    no step in flight reads it then, so that nothing else needs to hold it
  - the others are returned when the request ends

Invariants:
  (1) the lease holds the blocks in these groups' tables of all requests, each once
  (2) a table begins with as many null blocks as have been passed, and has no others
"""

from __future__ import annotations

from typing import Dict, List

from .vllm_blocks import Blocks, KVCacheBlock
from .vllm_books import Books
from .vllm_running import Running


class Scratch:
    """What requests of one cache do about groups that are not cached; without them nothing."""

    def __init__(self, books: Books, blocks: Blocks):
        self._books, self._blocks = books, blocks
        self._groups = [(i, group) for i, group in enumerate(books.groups) if group.is_scratch]
        self._wanted: Dict[int, int] = {}  # by group, blocks that the next step takes
        self._taken: List[int] = []

    def __bool__(self) -> bool:
        return bool(self._groups)

    def start(self, running: Running, computed: int) -> None:
        """A request begins after so many computed tokens: it gets null blocks for those of their
        blocks that the next token sees nothing of."""
        for group, spec in self._groups:
            passed = spec.passed(computed)
            running.tables[group] += [self._blocks[0]] * passed
            running.shown[group] = passed

    def plan(self, running: Running, need: int) -> int:
        """The next step gives a request blocks for `need` tokens; returns how many it takes."""
        self._wanted = {group: spec.scratch_blocks(need) - len(running.tables[group])
                        for group, spec in self._groups
                        if spec.scratch_blocks(need) > len(running.tables[group])}
        return sum(self._wanted.values())

    def take(self) -> bool:
        """Takes the planned blocks in the open step. False: there are too few."""
        count = sum(self._wanted.values())
        if count == 0:
            return True
        taken = self._books.take(count)
        if taken is None:
            return False
        self._taken = taken
        return True

    def settle(self, running: Running) -> None:
        """The step was run: the request has the blocks."""
        taken = self._taken
        for group, count in self._wanted.items():
            running.tables[group] += self._blocks.of(taken[:count])
            taken = taken[count:]
        self._wanted, self._taken = {}, []

    def advance(self, running: Running, processed: int) -> None:
        """The steps of a request's first `processed` tokens are done."""
        given: List[KVCacheBlock] = []
        for group, spec in self._groups:
            table = running.tables[group]
            end = min(spec.passed(processed), len(table))
            begin = end
            while begin > 0 and not table[begin - 1].is_null:
                begin -= 1
            if begin < end:
                given += table[begin:end]
                table[begin:end] = [self._blocks[0]] * (end - begin)
        self._give(given)

    def end(self, running: Running) -> None:
        """The request ends."""
        self._give([block for group, _ in self._groups for block in running.tables[group]
                    if not block.is_null])

    def _give(self, blocks: List[KVCacheBlock]) -> None:
        if blocks:
            self._books.give([block.block_id for block in blocks])
