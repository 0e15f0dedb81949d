# SPDX-License-Identifier: Apache-2.0
"""vllm_running: a request that holds blocks."""

from __future__ import annotations

from typing import Any, Iterator, List, Optional, Tuple

from .sequence import Key
from .vllm_blocks import KVCacheBlock


def group_suffix(group: int) -> bytes:
    """How vLLM appends a group's number to a hash."""
    return group.to_bytes(4, "big")


def hashes_of(request: Any, scale: int) -> Any:
    """vLLM's hashes of a request's full blocks; `scale` of them are for one block."""
    hashes = getattr(request, "block_hashes", None) or ()
    return hashes if scale == 1 else hashes[scale - 1::scale]


class Running:
    """A request that holds blocks.

    sequence  its handle in the library
    tables    its table per group; the blocks from `given` on are reserved, and vLLM does not know
              of them
    blocks    the first of these, which tells how many blocks there are in each
    room      tokens that the blocks given to vLLM have slots for
    known     tokens that the sequence has. With full attention: one for every slot of its blocks.
              With a window: only those that no rejected draft can take back, because a step
              releases what its first token does not see
    named     how many of these, from the first on, it knows by their ids: full blocks, which are
              cached
    due       how many it may know by their ids: named when something asks for it
    keyed     tokens whose places the sequence's keys cover
    mark      a request that reaches this many tokens has another full block to be named
    keys      what its content depends on besides its tokens
    scale     how many of vLLM's hashes there are per block: the last one is the block's
    bad       blocks from this one on must not be found any more; None: all may be
    bad_end   and those from this one on were not cached anyway

    With an index, see vllm_index.py:
    walked      how many of its first blocks were published, or are cached in others: its twins
    fresh       the most that `walked` ever was
    twins       blocks of the request whose content is cached in others
    last_entry  the index's number for the last one walked; None: none yet

    With a window:
    processed  tokens whose steps are done
    passed     how many of the first blocks were returned, or never taken, per group: null blocks in
               `tables`
    front      how many of the first blocks the sequence has given up, per group
    keepers    (numbers of blocks, sequence): other sequences that hold such of them as steps still
               read; each ends when `passed` has these numbers
    """

    __slots__ = ("request", "sequence", "tables", "blocks", "given", "room", "known", "named",
                 "due", "mark", "size", "keyed", "keys", "scale", "last_entry", "bad", "bad_end",
                 "hashes", "processed", "passed", "front", "keepers")

    def __init__(self, request: Any, sequence: int, size: int, keyed: int, keys: List[Key],
                 scale: int, tables: List[List[KVCacheBlock]]):
        self.request = request
        self.sequence = sequence
        self.tables, self.blocks = tables, tables[0]
        self.given = self.room = self.known = self.named = self.due = 0
        self.mark = self.size = size
        self.keyed, self.keys, self.scale = keyed, keys, scale
        self.bad: Optional[int] = None
        self.bad_end = 0
        self.last_entry: Optional[int] = None
        self.processed = 0
        self.passed, self.front = [0] * len(tables), [0] * len(tables)
        self.keepers: List[Tuple[List[int], int]] = []
        self.hashes: Any = None

    def give(self, count: int) -> Tuple[List[KVCacheBlock], ...]:
        """Gives vLLM blocks until it has `count` per group; returns those that are new to it."""
        first = self.given
        self.given = count
        self.room = count * self.size
        if len(self.tables) == 1:
            new = self.blocks[first:count]
            for block in new:
                block.owner = self
            return (new,)
        groups = tuple([table[first:count] for table in self.tables])
        for new in groups:
            for block in new:
                block.owner = self
        return groups

    def held(self) -> Iterator[KVCacheBlock]:
        """The blocks that vLLM has, those of one group after those of another; null blocks too."""
        for table in self.tables:
            yield from table[:self.given]

    def adopt(self, count: int, owns: bool) -> None:
        """Gives vLLM the first blocks, which were found. `owns`: some of them were in host memory,
        and no request is known of what they hold now."""
        if owns:
            for table in self.tables:
                for block in table[self.given:count]:
                    block.owner = self
        self.given = max(self.given, count)

    def name(self, end: int) -> None:
        """The first `end` tokens, whole blocks, may be named."""
        self.due = end
        self.mark = end + self.size

    def bad_blocks(self) -> List[int]:
        """The blocks that were cached and must not be found any more."""
        return [block.block_id for table in self.tables for block in table[self.bad:self.bad_end]
                if not block.is_null]

    def hash_list(self) -> Any:
        """vLLM's hashes of its full blocks, as far as they are known."""
        return hashes_of(self.request, self.scale) if self.hashes is None else self.hashes

    def has(self, group: int, place: int, block: int, hash_: Any) -> bool:
        """True if this block is at this place of the request, with the content of a hash."""
        if place >= self.due // self.size or self.tables[group][place].block_id != block:
            return False
        hashes = self.hash_list()
        return place < len(hashes) and bool(hashes[place] == hash_)

    def place_of(self, block: KVCacheBlock) -> Optional[Tuple[int, int]]:
        """The group of one of its blocks, and how many blocks are before it."""
        for group, table in enumerate(self.tables):
            if block in table:
                return group, table.index(block)
        return None

    def tokens_to(self, block: KVCacheBlock) -> Optional[int]:
        """How many of the request's tokens there are up to the end of one of its blocks, if the
        block is cached, else None."""
        place = self.place_of(block)
        end = 0 if place is None else (place[1] + 1) * self.size
        return end if 0 < end <= self.due else None

    def hash_of(self, block: KVCacheBlock) -> Any:
        """vLLM's hash of a block of this request, with the group's number as vLLM has it, if the
        block is cached, else None."""
        place = self.place_of(block)
        if place is None or (place[1] + 1) * self.size > self.due:
            return None
        hashes = self.hash_list()
        return hashes[place[1]] + group_suffix(place[0]) if place[1] < len(hashes) else b"cached"

    def end(self) -> None:
        """Lets go of the request; its cached blocks can still tell their hashes."""
        for table in self.tables:
            for block in table[self.due // self.size:]:
                if block.owner is self:
                    block.owner = None
        self.hashes = self.hash_list()
        self.request = None
