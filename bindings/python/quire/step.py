# SPDX-License-Identifier: Apache-2.0
"""step: what one iteration of an engine changes.

    with cache.begin(items, tokens, queue=queue) as step:
        step.commit(batch)
        for layer in range(layers):
            batch.kv_write(layer, k, v)
            batch.attend(layer, q, out)
        step.finish()

If an exception leaves the block, an open step is aborted and a committed one is finished as failed,
so the cache can continue either way. Leaving the block normally with an unfinished step is an
error.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, List, Optional, Sequence as Listed, Union

import numpy as np

from . import elements, errors
from .batch import Batch
from .cache_base import CacheBase
from .elements import ITEM, PREEMPTION, RESULT
from .libquire import INCOMPLETE, NO_BLOCKS, ffi
from .open_step import OpenStep
from .queue import Queue
from .sequence import Sequence

WAIT = 0  # outcomes of an item
RUN = 1
LOADING = 2

_ITEM_BYTES = ITEM.itemsize
_RESULT_BYTES = RESULT.itemsize


class Reason(enum.IntEnum):
    """Why an item waits."""

    NONE = 0
    POOL = 1
    WATERMARK = 2
    QUOTA = 3
    PREEMPTED = 4


class Preempt(enum.IntEnum):
    """How a sequence is preempted: QUIRE_PREEMPT_* of quire/step.h."""

    AUTO = 0
    SWAP = 1
    RECOMPUTE = 2


class MaskKind(enum.IntEnum):
    """How an item's mask is given: QUIRE_MASK_* of quire/step.h."""

    NONE = 0
    PARENTS = 1
    BITS = 2


class CopyKind(enum.IntEnum):
    """Why a block is copied: QUIRE_COPY_* of quire/step.h."""

    ON_WRITE = 0
    SWAP_OUT = 1
    SWAP_IN = 2
    TOKEN = 3
    ZERO = 4


class ItemFlags(enum.IntFlag):
    """QUIRE_ITEM_MAY_LOAD of quire/step.h."""

    MAY_LOAD = 1


@dataclasses.dataclass(frozen=True)
class Item:
    """What one sequence wants from a step: quire_step_item of quire/step.h.

    For many items, fill an array of quire.ITEM and one of tokens; that needs no Python object per
    row.

    mask  with PARENTS, each draft's parent; with BITS, the words described in quire/step.h
    max_hit_tokens  of a sequence with nothing computed at most this many tokens are found; 0: no
        limit, NO_HITS: none
    may_load  its prefix may be loaded from the cache's tier; the item then waits for that
    """

    sequence: Sequence
    tokens: elements.Tokens = ()
    max_compute: int = 0
    drafts: int = 0
    lookahead: int = 0
    mask_kind: MaskKind = MaskKind.NONE
    mask: elements.Tokens = ()
    mask_rows: int = 0
    max_hit_tokens: int = 0
    may_load: bool = False


Items = Union["np.ndarray[Any, Any]", Listed[Item]]


def flatten(items: Listed[Item]) -> Any:
    """(ITEM array, tokens) of a list of items."""
    array = np.zeros(len(items), ITEM)
    words: List[Any] = []
    count = 0
    for row, item in zip(array, items):
        if not isinstance(item, Item) or not isinstance(item.sequence, Sequence):
            raise errors.ArgumentError(f"{item!r} is not a quire.Item with a quire.Sequence")
        tokens = elements.taken_tokens(item.tokens)
        mask = elements.taken(item.mask, elements.TOKEN, "mask")
        row["seq"] = item.sequence.handle
        row["token_offset"], row["token_count"] = count, len(tokens)
        row["max_compute"], row["draft_count"] = item.max_compute, item.drafts
        row["lookahead"], row["mask_kind"] = item.lookahead, item.mask_kind
        row["mask_rows"] = item.mask_rows
        row["max_hit_tokens"] = item.max_hit_tokens
        row["flags"] = ItemFlags.MAY_LOAD * item.may_load
        row["mask_offset"] = count + len(tokens) if item.mask_kind != MaskKind.NONE else 0
        words += [tokens, mask]
        count += len(tokens) + len(mask)
    return array, np.concatenate(words) if words else np.empty(0, elements.TOKEN)


def given(items: Items, tokens: Optional[elements.Tokens],
          results: Optional["np.ndarray[Any, Any]"]) -> Any:
    """(item pointer, count, token pointer, count, results, result pointer) of a call."""
    if not isinstance(items, np.ndarray):
        if tokens is not None:
            raise errors.ArgumentError("quire.Items carry their own tokens; pass `tokens` only "
                                       "with an array of quire.ITEM")
        items, tokens = flatten(items)
    item_pointer, count = elements.read(items, ITEM, "quire_step_item[]", "items")
    if tokens is None:
        token_pointer, token_count = ffi.NULL, 0
    else:
        token_pointer, token_count = elements.read_tokens(tokens)
    if results is None:
        results = np.zeros(count, RESULT)
    result_pointer, room = elements.written(results, RESULT, "quire_step_result[]", "results")
    if room < count:
        raise errors.ArgumentError(f"results has room for {room} of {count} items")
    return item_pointer, count, token_pointer, token_count, results, result_pointer


class Step(OpenStep):
    """An open step, later a committed one. Made by Cache.begin.

    results  of the items that it was begun with, an array of quire.RESULT
    """

    __slots__ = ("results",)

    def __init__(self, cache: CacheBase, handle: int, queues: Listed[Queue],
                 results: "np.ndarray[Any, Any]"):
        super().__init__(cache, handle, queues)
        self.results = results

    def add(self, items: Items, tokens: Optional[elements.Tokens] = None,
            results: Optional["np.ndarray[Any, Any]"] = None) -> "np.ndarray[Any, Any]":
        """Adds items, and returns the result of each. On an error none of them was added."""
        call = given(items, tokens, results)
        self._cache._call("step_add", self.handle, call[0], call[1], _ITEM_BYTES, call[2], call[3],
                          call[5], _RESULT_BYTES)
        return call[4]  # type: ignore[no-any-return]

    def drop(self, sequence: Sequence) -> List[int]:
        """Takes a sequence's item back; returns the handles of all sequences that left with it."""
        count = ffi.new("uint32_t *")
        room = 16
        while True:
            dropped = ffi.new("quire_seq[]", room)
            status = self._cache._call("step_drop", self.handle, sequence.handle, dropped, room,
                                       count)
            if status != INCOMPLETE:
                return [int(dropped[i]) for i in range(count[0])]
            room = count[0]

    def preempt(self, sequence: Sequence, how: Preempt = Preempt.AUTO) -> Optional[int]:
        """Gives up the blocks of a sequence that is not in the step. Returns how many the step can
        use. None: it was to be swapped, but the host tier is too small; nothing changed."""
        freed = ffi.new("uint32_t *")
        status = self._cache._call("step_preempt", self.handle, sequence.handle, how, freed)
        return None if status == NO_BLOCKS else int(freed[0])

    def _list(self, function: str, dtype: "np.dtype[Any]", ctype: str) -> "np.ndarray[Any, Any]":
        count = ffi.new("uint32_t *")
        room = 16
        while True:
            array = np.zeros(room, dtype)
            self._cache._call(function, self.handle, ffi.from_buffer(ctype, array, True), room,
                              dtype.itemsize, count)
            if count[0] <= room:
                return array[:count[0]]
            room = count[0]

    @property
    def preempted(self) -> "np.ndarray[Any, Any]":
        """The sequences that were preempted, an array of quire.PREEMPTION."""
        return self._list("step_preempted", PREEMPTION, "quire_preemption[]")

    @property
    def copies(self) -> "np.ndarray[Any, Any]":
        """The copies that the step needs, in order, an array of quire.COPY; the engine makes them
        if the cache keeps books only."""
        return self._list("step_copies", elements.COPY, "quire_block_copy[]")

    def log(self) -> bytes:
        """The log of a leader's committed step, to be sent to its followers."""
        size = ffi.new("uint64_t *")
        room = 4096
        while True:
            buffer = ffi.new("uint8_t[]", room)
            status = self._cache._call("step_log", self.handle, buffer, room, size)
            if status != INCOMPLETE:
                return bytes(ffi.buffer(buffer, size[0]))
            room = size[0]

    def commit(self, batch: Optional[Batch] = None) -> None:
        """Makes the step final: its copies and tables are enqueued."""
        self._cache._call("step_commit", self.handle, ffi.NULL if batch is None else batch)
        self._committed(batch)

    def _committed(self, batch: Optional[Batch]) -> None:
        self._state = "committed"
        if batch is not None:
            batch._bind(self._queues)
