# SPDX-License-Identifier: Apache-2.0
"""vllm_pins: blocks that are held for others than requests, as by vLLM's touch and free_blocks.

The library holds blocks for sequences, each from its first block on. So a pin is a sequence: a fork
of a request that holds the block, or a new one that finds it. It holds the blocks before it too.
"""

from __future__ import annotations

from typing import Any, Iterable, List, Optional, Set

import numpy as np

from .elements import UNKNOWN
from .errors import UnsupportedError
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

    def count(self, block: int) -> int:
        """How often a block is pinned and not returned."""
        return sum(pin.asked.count(block) for pin in self._pins)

    def holds(self, block: int) -> bool:
        """True if a pin holds the block, asked for or not."""
        return any(block in pin.ids for pin in self._pins)

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
            if block in running.blocks[:running.given]:
                return self._fork(running, running.blocks.index(block) + 1)
        index = self._table.index
        entry = index.at(block.block_id) if index is not None else None
        chain = entry.chain() if entry is not None else []
        sequence = self._take([e.tokens for e in chain], chain[-1].keys) if chain else None
        if sequence is None:
            raise UnsupportedError(f"block {block.block_id} cannot be held: no request holds it, "
                                   "and it is not cached, or there is no block beside it")
        return _Pin(sequence, set(self._table.books.blocks(sequence)), [])

    def new(self, count: int) -> List[int]:
        """Takes and holds blocks without content. Errors: ValueError if there are too few."""
        books = self._table.books
        self._table.give_back()
        sequences = [books.create([]) for _ in range(count)]
        if not books.extend(sequences):
            for sequence in sequences:
                books.end(sequence)
            raise ValueError(f"there are not {count} free blocks")
        ids = [books.blocks(sequence)[0] for sequence in sequences]
        self._pins += [_Pin(sequence, {i}, [i]) for sequence, i in zip(sequences, ids)]
        return ids

    def _fork(self, running: Running, count: int) -> _Pin:
        tokens = min(count * running.size, running.known)
        sequence = self._table.books.fork(running.sequence, tokens)
        return _Pin(sequence, {b.block_id for b in running.blocks[:count]}, [])

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
        for name in ids:
            asked = next((asked for asked in left if name in asked), None)
            if asked is None:
                return False
            asked.remove(name)
        for pin, asked in zip(pins, left):
            pin.asked = asked
            if not asked:
                self._table.books.end(pin.sequence)
                self._pins.remove(pin)
        return True
