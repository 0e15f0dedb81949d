# SPDX-License-Identifier: Apache-2.0
"""vllm_states: what is special about groups of Mamba whose states are cached (mode "align").

A state is one block. vLLM's worker writes a request's state where each step ends, into the block of
the step's last token, and into each block that ends within the step and that the request has: so a
step of the library stops there (`stops`). The blocks between, which the request does not have, are
null. Blocks for drafts follow the state's.

A state that was cached in this step of the scheduler is not there yet, so a request that is given
it has to wait for the next step (`is_new`).
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Set, Tuple

from .vllm_books import Books
from .vllm_request import ids
from .vllm_retention import Retention
from .vllm_running import Running, hashes_of


class States:
    """The cached states of one cache; without such groups it is never asked.

    offers  by request id: (group, block, tokens) of the states that were cached since they were
            taken
    """

    def __init__(self, books: Books):
        self._books = books
        self._new: Set[Tuple[int, Any]] = set()
        self.offers: Dict[str, List[Tuple[int, int, int]]] = {}

    def stops(self, running: Running, known: int) -> List[int]:
        """Where a step to the first `known` tokens leaves states within it, in increasing order."""
        found: Set[int] = set()
        for group in self._books.states:
            size = running.sizes[group]
            table = running.tables[group]
            end = len(table) - self._books.groups[group].drafts
            for place in range(max(0, running.known - 1) // size, end):
                stop = (place + 1) * size
                if stop >= known:
                    break
                if stop > running.known and not table[place].is_null:
                    found.add(stop)
        return sorted(found) if running.known else []

    def named(self, running: Running, begin: int, end: int,
              retention: Optional[Retention]) -> None:
        """The tokens between two ends of blocks were named: states among their blocks are
        cached."""
        for group in self._books.states:
            size, table = running.sizes[group], running.tables[group]
            for place in range(begin // size, min(end // size, len(table))):
                block = table[place]
                if block.is_null or retention is not None and not retention.keeps(
                        running.request, group, place):
                    continue
                self._new.add(self._name(running.hash_list(group), group, place, block.block_id))
                self.offers.setdefault(running.request.request_id, []).append(
                    (group, block.block_id, (place + 1) * size))

    @staticmethod
    def _name(hashes: Any, group: int, place: int, block: int) -> Tuple[int, Any]:
        return group, hashes[place] if place < len(hashes) else block

    def is_new(self, request: Any, blocks: Any, scales: List[int]) -> bool:
        """True if a state among the blocks that were found for a request was cached in this step of
        the scheduler."""
        for group in self._books.states if self._new else ():
            found = blocks[group]
            if found and self._name(hashes_of(request, scales[group]), group, len(found) - 1,
                                    found[-1].block_id) in self._new:
                return True
        return False

    def new_step(self) -> None:
        """A step of the scheduler begins."""
        self._new.clear()

    def take_offers(self) -> Dict[str, List[Tuple[int, int, int]]]:
        """`offers`, once."""
        taken, self.offers = self.offers, {}
        return taken

    def end(self, running: Running) -> None:
        """A request ends: its blocks may get another content before anything could read them."""
        self.offers.pop(running.request.request_id, None)

    def attended(self, request: Any, table: Any, most: Optional[int],
                 drops_last: bool) -> Optional[int]:
        """How many of a request's first tokens are cached in the groups of full attention, at most
        `most` and never the last one, whole blocks; with drops_last before the last block that is.
        None: there are no states, or no hashes to tell by."""
        index = table.index
        full = [i for i in self._books.cached if not self._books.groups[i].passes]
        if not self._books.states or index is None or not full:
            return None
        size = self._books.block_size
        first = full[0]  # the hashes of the ends of spans are those of all groups
        hashes = hashes_of(request, table.shape.scales[first] * (size // self._books.sizes[first]))
        if not hashes:
            return None
        longest = len(ids(request)) - 1
        if most is not None:
            longest = min(longest, most)
        count = (longest + size) // size if drops_last else longest // size
        index.sync()
        found = 0
        for hash_ in hashes[:count]:
            if not all(index.keeps(group, hash_) for group in full):
                break
            found += 1
        return max(0, found - drops_last) * size
