# SPDX-License-Identifier: Apache-2.0
"""vllm_pins: blocks that are held for others than requests, as by vLLM's touch and free_blocks.

A pin is a sequence, which holds blocks from its first one on: a fork of a request that holds the
block, or a new one that finds it. It holds the blocks before it too. Blocks without content are
held by a lease.
"""

from __future__ import annotations

from typing import Any, Iterable, List, Optional, Sequence as Listed, Set

import numpy as np

from .elements import UNKNOWN
from .errors import UnsupportedError
from .lease import Lease
from .step import RUN
from .vllm_blocks import KVCacheBlock
from .vllm_running import Running
from .vllm_table import Table


class _Pin:
    """A sequence that holds the blocks `ids`; some of them, `asked`, are to be returned."""

    __slots__ = ("sequence", "ids", "asked")

    def __init__(self, sequence: int, ids: Set[int], asked: List[int]):
        self.sequence, self.ids, self.asked = sequence, ids, asked


class Pins:
    """The pins of one cache."""

    def __init__(self, table: Table):
        self._table = table
        self._pins: List[_Pin] = []
        self._lease: Optional[Lease] = None  # holds the blocks without content
        self._taken: Set[int] = set()

    def count(self, block: int) -> int:
        """How often a block is pinned and not returned."""
        return sum(pin.asked.count(block) for pin in self._pins) + (block in self._taken)

    def holds(self, block: int) -> bool:
        """True if a pin holds the block, asked for or not."""
        return block in self._taken or any(block in pin.ids for pin in self._pins)

    def add(self, blocks: Iterable[KVCacheBlock], holders: Iterable[Running]) -> None:
        """Holds blocks that `holders` hold or that are cached. Errors: UnsupportedError if one is
        neither; then none of them is held."""
        left = [block for block in blocks if not block.is_null]
        added: List[_Pin] = []
        try:
            while left:
                pin = self._pin(left[-1], holders)
                added.append(pin)
                rest = []
                for block in left:
                    if block.block_id in pin.ids and block.block_id not in pin.asked:
                        pin.asked.append(block.block_id)
                    else:
                        rest.append(block)
                left = rest
        except UnsupportedError:
            for pin in added:
                self._table.books.end(pin.sequence)
            raise
        self._pins += added

    def _pin(self, block: KVCacheBlock, holders: Iterable[Running]) -> _Pin:
        for running in holders:
            place = running.place_of(block)
            if place is not None and place[0] not in running.slots and \
                    place[1] * running.sizes[place[0]] < running.room:
                size = running.sizes[place[0]]
                pin = self._fork(running, block, (place[1] + 1) * size if size else running.known)
                if pin is not None:
                    return pin
        index = self._table.index
        entry = index.at(block.block_id) if index is not None else None
        chain = entry.chain() if entry is not None else []
        sequence = self._take([e.tokens for e in chain], chain[-1].keys) if chain else None
        if sequence is None:
            raise UnsupportedError(f"block {block.block_id} cannot be held: no request holds it, "
                                   "and it is not cached, or there is no block beside it")
        return self._of(sequence)

    def new(self, count: int) -> List[int]:
        """Takes and holds blocks without content. Errors: ValueError if there are too few."""
        cache = self._table.books.cache
        self._table.give_back()
        with cache.begin() as step:
            taken = self._own().take(step, count)
            if taken is None:
                raise ValueError(f"there are not {count} free blocks")
            step.commit()
            step.finish()
        ids: List[int] = taken.tolist()
        self._taken.update(ids)
        return ids

    def _own(self) -> Lease:
        if self._lease is None:
            self._lease = self._table.books.cache.lease()
        return self._lease

    def forget(self, block: int) -> None:
        """If a block is cached, it is not found any more, nor those after it."""
        for group in self._table.books.cached:
            if self._table.books.forget(group, block):
                return

    def _give(self, blocks: Listed[int]) -> None:
        """Returns blocks that `new` took."""
        self._taken.difference_update(blocks)
        with self._table.books.cache.begin() as step:
            self._own().give(step, blocks)
            step.commit()
            step.finish()

    def _of(self, sequence: int) -> _Pin:
        """A pin whose blocks are all that a sequence holds."""
        tables = self._table.books.tables(sequence)
        return _Pin(sequence, {block for table in tables for block in table if block != 0}, [])

    def _fork(self, running: Running, block: KVCacheBlock, tokens: int) -> Optional[_Pin]:
        """A pin of the block that ends the first tokens of a request. With a window it holds all
        that the request has: a shorter fork would lack what the window passed since. None: vLLM
        has the block for a moment, and the library does not."""
        books = self._table.books
        count = running.known if books.windows else min(tokens, running.known)
        pin = self._of(books.fork(running.sequence, count))
        if block.block_id in pin.ids:
            return pin
        books.end(pin.sequence)
        return None

    def _take(self, tokens: List[Any], keys: Any) -> Optional[int]:
        """A sequence that holds the cached blocks of these tokens. The step that takes them needs
        one more block, and returns it."""
        books = self._table.books
        self._table.give_back()
        sequence = books.create(keys)
        count = sum(map(len, tokens))
        result = books.begin(sequence, np.append(np.concatenate(tokens), np.uint32(UNKNOWN)), 0)
        if result.outcome != RUN or result.hit_tokens != count:
            books.abort()
            books.end(sequence)
            return None
        books.close_step()
        books.truncate(sequence, count)
        return sequence

    def remove(self, blocks: Iterable[KVCacheBlock]) -> bool:
        """Returns blocks. False if one of them is not held; then nothing changed."""
        ids = [block.block_id for block in blocks if not block.is_null]
        # First those pins whose blocks all return, so that they end; the largest of them first.
        pins = sorted(self._pins, key=lambda p: (len(set(p.asked) - set(ids)), -len(p.asked)))
        left = [list(pin.asked) for pin in pins]
        taken = [name for name in ids if name in self._taken]
        if len(taken) != len(set(taken)):
            return False
        for name in (name for name in ids if name not in self._taken):
            asked = next((asked for asked in left if name in asked), None)
            if asked is None:
                return False
            asked.remove(name)
        if taken:
            self._give(taken)
        for pin, asked in zip(pins, left):
            pin.asked = asked
            if not asked:
                self._table.books.end(pin.sequence)
                self._pins.remove(pin)
        return True
