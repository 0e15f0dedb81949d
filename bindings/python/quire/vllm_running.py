# SPDX-License-Identifier: Apache-2.0
"""vllm_running: a request that holds blocks."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from .sequence import Key
from .vllm_blocks import KVCacheBlock


def group_suffix(group: int) -> bytes:
    """How vLLM appends a group's number to a hash."""
    return group.to_bytes(4, "big")


def hashes_of(request: Any, scale: int) -> Any:
    """vLLM's hashes of a request's full blocks; `scale` of them are for one block."""
    hashes = getattr(request, "block_hashes", None) or ()
    return hashes if scale == 1 else hashes[scale - 1::scale]


class Shape(NamedTuple):
    """The blocks of a cache.

    size    tokens per block
    sizes   tokens per block of each group, see Running
    scale   how many of vLLM's hashes there are per block
    zeros   a 0 per group
    slots   tokens per block of the scratch groups (vllm_scratch.py); 0: of a ring
    keeps   tells of a request, a group and a block's number whether the block has a hash once it is
            cached; None: all have
    """

    size: int
    sizes: List[int]
    scale: int
    zeros: List[int]
    slots: Dict[int, int] = {}
    keeps: Optional[Callable[[Any, int, int], bool]] = None


class Running:
    """A request that holds blocks.

    sequence  its handle in the library
    tables    its table per group; the blocks past `room` are reserved, and vLLM does not know of
              them
    blocks    the first of these
    size      tokens per block
    sizes     that of each group; 0: it has all blocks of the group from the beginning, or the group
              is scratch
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
    bad       the blocks after so many tokens must not be found any more; None: all may be
    bad_end   and those after so many were not cached anyway

    With an index, see vllm_index.py:
    last_entry  the index's number for the last one that was noted; None: none yet

    With a window:
    processed  tokens whose steps are done
    passed     how many of the first blocks were returned, or never taken, per group: null blocks in
               `tables`
    front      how many of the first blocks the sequence has given up, per group
    keepers    what holds such of them as steps still read (vllm_window.Keeper)
    shown      how many entries of its table vLLM has, per scratch group: `room` does not cut these
    slots      tokens per block of the scratch groups; 0: of a ring
    """

    __slots__ = ("request", "sequence", "tables", "blocks", "room", "known", "named", "due",
                 "mark", "size", "sizes", "keyed", "keys", "scale", "last_entry", "bad", "bad_end",
                 "hashes", "processed", "passed", "front", "keepers", "shown", "slots",
                 "keeps")

    def __init__(self, request: Any, sequence: int, shape: Shape, keyed: int, keys: List[Key],
                 tables: List[List[KVCacheBlock]]):
        self.request = request
        self.sequence = sequence
        self.tables, self.blocks = tables, tables[0]
        self.room = self.known = self.named = self.due = 0
        self.sizes, self.scale = shape.sizes, shape.scale
        self.mark = self.size = shape.size
        self.keyed, self.keys = keyed, keys
        self.bad: Optional[int] = None
        self.bad_end = 0
        self.last_entry: Optional[int] = None
        self.processed = 0
        self.passed = self.front = shape.zeros  # replaced, never changed
        self.keepers: List[Any] = []
        self.shown: Dict[int, int] = {}
        self.slots, self.keeps = shape.slots, shape.keeps
        self.hashes: Any = None

    def give(self, need: int) -> Tuple[List[KVCacheBlock], ...]:
        """Gives vLLM blocks until it has some for `need` tokens per group; returns those that are
        new to it."""
        room, size = self.room, self.size
        if len(self.tables) == 1:
            count = -(-need // size)
            new = self.blocks[room // size:count]  # the room of one group ends with a block
            for block in new:
                block.owner = self
            self.room = count * size
            return (new,)
        groups = tuple([self._new_scratch(group) if group in self.slots else
                        table[-(-room // size):-(-need // size)] if each else
                        [] if room else list(table)
                        for group, (table, each) in enumerate(zip(self.tables, self.sizes))])
        if self.slots:
            self.shown = {group: len(self.tables[group]) for group in self.slots}
        for new in groups:
            for block in new:
                if not block.is_null:
                    block.owner = self
        self.room = min([-(-need // each) * each for each in (size, *self.slots.values()) if each])
        return groups

    def _new_scratch(self, group: int) -> List[KVCacheBlock]:
        return [block for block in self.tables[group][self.shown[group]:] if not block.is_null]

    def given(self, group: int, tokens: Optional[int] = None) -> List[KVCacheBlock]:
        """The blocks of a group that vLLM has, or those for its first tokens."""
        if group in self.slots:
            slots, shown = self.slots[group], self.shown[group]
            return self.tables[group][:shown if tokens is None or not slots else
                                      min(shown, -(-tokens // slots))]
        end, size = self.room if tokens is None else min(tokens, self.room), self.sizes[group]
        return self.tables[group][:-(-end // size)] if size else list(self.tables[group])

    def held(self) -> Iterator[KVCacheBlock]:
        """The blocks that vLLM has, those of one group after those of another; null blocks too."""
        for group in range(len(self.tables)):
            yield from self.given(group)

    def reserved(self) -> List[List[KVCacheBlock]]:
        """The blocks per group that vLLM does not know of."""
        return [table[-(-self.room // size):] if size else []
                for table, size in zip(self.tables, self.sizes)]

    def adopt(self, tokens: int, owns: bool) -> None:
        """Gives vLLM the blocks of the first tokens, which were found. `owns`: some of them were in
        host memory, and no request is known of what they hold now."""
        if owns:
            for table, size in zip(self.tables, self.sizes):
                for block in table[self.room // size:tokens // size] if size else ():
                    block.owner = self
        self.room = max(self.room, tokens)

    def name(self, end: int) -> None:
        """The first `end` tokens, whole blocks, may be named."""
        self.due = end
        self.mark = end + self.size

    def blocks_between(self, begin: int, end: int) -> List[int]:
        """The numbers of the blocks, of all groups, of the tokens between two ends of blocks."""
        return [block.block_id for table, size in zip(self.tables, self.sizes)
                if size for block in table[begin // size:end // size] if not block.is_null]

    def hash_list(self, group: int = 0) -> Any:
        """vLLM's hashes of its full blocks in a group, as far as they are known."""
        kept = self.hashes
        return hashes_of(self.request, self.scale) if kept is None else kept[group]

    def has(self, group: int, place: int, block: int, hash_: Any) -> bool:
        """True if this block is at this place of the request, with the content of a hash."""
        if place >= self.due // self.sizes[group] or \
                self.tables[group][place].block_id != block:
            return False
        hashes = self.hash_list(group)
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
        end = 0 if place is None else (place[1] + 1) * self.sizes[place[0]]
        return end if 0 < end <= self.due else None

    def hash_of(self, block: KVCacheBlock) -> Any:
        """vLLM's hash of a block of this request, with the group's number as vLLM has it, if the
        block is cached, else None."""
        found = self.place_of(block)
        if found is None or self.sizes[found[0]] == 0 or \
                (found[1] + 1) * self.sizes[found[0]] > self.due:
            return None
        group, place = found
        hashes = self.hash_list(group)
        if self.request is not None and self.keeps is not None and \
                not self.keeps(self.request, group, place):
            return None
        hash_ = hashes[place] if place < len(hashes) else b""
        return b"cached" if hash_ == b"" else None if hash_ is None else \
            hash_ + group_suffix(group)

    def end(self) -> None:
        """Lets go of the request; its cached blocks can still tell their hashes."""
        for table, size in zip(self.tables, self.sizes):
            for block in table[self.due // size if size else 0:]:
                if block.owner is self:
                    block.owner = None
        self.hashes = [self._kept_hashes(group) for group in range(len(self.tables))]
        self.request = None

    def _kept_hashes(self, group: int) -> Any:
        """The hashes of a group, with None for blocks that have none."""
        keeps, hashes = self.keeps, self.hash_list(group)
        return hashes if keeps is None else [
            hash_ if keeps(self.request, group, place) else None
            for place, hash_ in enumerate(hashes)]
