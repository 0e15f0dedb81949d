# SPDX-License-Identifier: Apache-2.0
"""lease: blocks held by something that is not a sequence: quire/lease.h.

    lease = cache.lease()
    with cache.begin() as step:
        ids = lease.take(step, 4)
        named = lease.publish(step, tokens, ids)
        lease.give(step, ids[ids != named])
        step.commit()
        step.finish()

Block ids are arrays of int32. A call that lacks blocks changes nothing and returns None; `shortage`
then says how many, and why.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, Optional, Sequence as Listed, Tuple

import numpy as np

from . import elements
from .cache_base import CacheBase
from .libquire import INCOMPLETE, NO_BLOCKS, ffi, new
from .objects import expect
from .open_step import OpenStep
from .sequence import Key, Namespace, _keys

BLOCK = elements._fields("quire_lease_block")
ID = np.dtype(np.int32)


class Match(enum.IntEnum):
    """What a match does with what it finds: QUIRE_MATCH_* of quire/lease.h."""

    LOOK = 0
    TOUCH = 1
    PIN = 2


class LeaseFlags(enum.IntFlag):
    """The state of a block that a lease holds: QUIRE_LEASE_* of quire/lease.h."""

    PUBLISHED = 1
    OWNED = 2


@dataclasses.dataclass(frozen=True)
class LeaseInfo:
    """A lease's counts: quire_lease_info of quire/lease.h."""

    blocks_held: int
    holds: int
    blocks_lost: int


class Lease:
    """A set of blocks of one namespace. Lives until it is ended, or its cache is closed."""

    __slots__ = ("_cache", "handle", "shortage")

    def __init__(self, cache: CacheBase, handle: int):
        self._cache = cache
        self.handle = handle
        # The last call that returned None lacked so many blocks, for this Reason (its number).
        self.shortage: Tuple[int, int] = (0, 0)

    def end(self) -> None:
        """Gives everything back. Errors: BusyError while the open step has changed it."""
        self._cache._call("lease_end", self.handle)

    @property
    def info(self) -> LeaseInfo:
        """The lease's counts."""
        info = new("quire_lease_info")
        self._cache._call("lease_get_info", self.handle, info)
        return LeaseInfo(info.blocks_held, info.holds, info.blocks_lost)

    def blocks(self, group: int = 0) -> Any:
        """What it holds in a group, as an array of quire.lease.BLOCK; a move keeps the order."""
        out = np.zeros(64, BLOCK)
        count = ffi.new("uint32_t *")
        while True:
            status = self._cache._call("lease_blocks", self.handle, group, 0,
                                       ffi.from_buffer("quire_lease_block[]", out), len(out),
                                       BLOCK.itemsize, count)
            if status != INCOMPLETE:
                return out[:count[0]]
            out = np.zeros(count[0], BLOCK)

    def take(self, step: OpenStep, count: int, group: int = 0) -> Optional[Any]:
        """Takes `count` blocks for the caller to fill."""
        ids = np.zeros(count, ID)
        taken = self._asked("lease_take", _handle(step), self.handle, group, count, _pointer(ids))
        return None if taken is None else ids

    def give(self, step: Optional[OpenStep], ids: Any, group: int = 0) -> None:
        """Gives blocks back, or unpins them: each is held once less. Without a step, which needs
        that none is open, final at once."""
        pointer, count = _read(ids)
        self._cache._call("lease_give", _handle_or_0(step), self.handle, group, pointer, count)

    def pin(self, step: Optional[OpenStep], ids: Any, group: int = 0) -> bool:
        """Holds blocks once more; without a step as give(). False: the quota is short."""
        pointer, count = _read(ids)
        return self._asked("lease_pin", _handle_or_0(step), self.handle, group, pointer,
                           count) is not None

    def match(self, tokens: elements.Tokens, how: Match = Match.LOOK,
              step: Optional[OpenStep] = None) -> Optional[Any]:
        """The longest cached run of whole spans at the front of `tokens`: ids[span, block], and
        ids[span] in a cache of one group. A span has a block per group, or where groups have
        block_tokens of their own, those of group 0 that fill it, then group 1's, and so on
        (CacheInfo.span_tokens and span_blocks). Pinning needs the open step."""
        pointer, count = elements.read_tokens(tokens)
        ids, blocks = self._room(count)
        found = self._asked("lease_match", _handle_or_0(step), self.handle,
                            pointer, count, how, _pointer(ids))
        return None if found is None else _spans(ids[:found * blocks], blocks)

    def publish(self, step: OpenStep, tokens: elements.Tokens, ids: Any) -> Optional[Any]:
        """Publishes filled blocks, ids[span, block] or ids[span] as match() has them, and returns
        the ones that are found there from now on. Those of the caller that are not among them are
        its to give."""
        pointer, count = elements.read_tokens(tokens)
        own = np.ascontiguousarray(ids, ID).reshape(-1)
        named, blocks = self._room(count)
        if len(own) != len(named):
            raise ValueError(f"{len(own)} ids for {count} tokens, with {blocks} blocks per span: "
                             f"{len(named)} are needed")
        made = self._asked("lease_publish", _handle(step), self.handle, pointer, count,
                           _pointer(own), _pointer(named))
        return None if made is None else _spans(named, blocks)

    def find(self, tokens: Any, how: Match = Match.LOOK) -> Any:
        """match() without a step, of tokens in an array of int64; it does not pin."""
        numbers = np.ascontiguousarray(tokens, np.int64)
        ids, blocks = self._room(len(numbers))
        found = self._asked("lease_find", self.handle, _wide(numbers), len(numbers), how,
                            _pointer(ids))
        return _spans(ids[:(found or 0) * blocks], blocks)

    def insert(self, tokens: Any, slots: Any) -> Tuple[Any, int]:
        """Publishes filled blocks and gives them back, final at once: what becomes of a request's
        blocks when it is over, where a lease holds all that is not cached.

        tokens  of whole blocks
        slots   the place of each: block * block_tokens + its place in the block

        Returns the blocks that are found from now on, and how many of them are new. Where the
        tokens were there before, the caller's block is left alone.

        Errors: ArgumentError, a token is out of range, or the slots are not those of whole blocks
        that the lease has taken and holds alone; BusyError, a step is open or not done. Nothing
        changed.
        """
        numbers = np.ascontiguousarray(tokens, np.int64)
        places = np.ascontiguousarray(slots, np.int64)
        if len(numbers) != len(places):
            raise ValueError(f"{len(places)} slots for {len(numbers)} tokens")
        named = np.zeros(len(numbers), ID)
        fresh = self._asked("lease_insert", self.handle, _wide(numbers), _wide(places),
                            len(numbers), _pointer(named))
        block_tokens = self._cache.info.block_tokens  # type: ignore[attr-defined]
        return named[:len(numbers) // block_tokens], fresh or 0

    def forget(self, ids: Any, group: int = 0) -> int:
        """Withdraws published blocks that no other holds; returns how many."""
        pointer, count = _read(ids)
        forgotten = ffi.new("uint32_t *")
        self._cache._call("lease_forget", self.handle, group, pointer, count, forgotten)
        return int(forgotten[0])

    def _room(self, tokens: int) -> Tuple[Any, int]:
        """Ids for the spans of so many tokens, and how many a place has."""
        info = self._cache.info  # type: ignore[attr-defined]
        return np.zeros(tokens // info.span_tokens * info.span_blocks, ID), info.span_blocks

    def _asked(self, function: str, *arguments: Any) -> Optional[int]:
        result = new("quire_lease_result")
        if self._cache._call(function, *arguments, result) == NO_BLOCKS:
            self.shortage = (result.blocks_short, result.reason)
            return None
        return int(result.blocks)

    def __repr__(self) -> str:
        return f"<quire.Lease {self.handle:#x}>"


def _handle(step: OpenStep) -> int:
    return expect(step, OpenStep, "step").handle


def _handle_or_0(step: Optional[OpenStep]) -> int:
    return 0 if step is None else _handle(step)


def _wide(numbers: Any) -> Any:
    return ffi.from_buffer("int64_t[]", numbers) if len(numbers) != 0 else ffi.NULL


def _pointer(ids: Any) -> Any:
    # Not NULL even if there are no entries, for that is refused.
    return ffi.from_buffer("int32_t[]", ids) if len(ids) != 0 else ffi.new("int32_t[1]")


def _read(ids: Any) -> Tuple[Any, int]:
    array = np.ascontiguousarray(ids, ID).reshape(-1)
    pointer = ffi.new("int32_t[]", array.tolist()) if len(array) != 0 else ffi.NULL
    return pointer, len(array)


def _spans(ids: Any, blocks: int) -> Any:
    return ids if blocks == 1 else ids.reshape(-1, blocks)


def create(cache: CacheBase, namespace: Optional[Namespace], keys: Listed[Key]) -> Lease:
    """Cache.lease."""
    number, array, _kept = _keys(cache, namespace, keys)
    desc = new("quire_lease_desc", ns=number, keys=array if len(keys) != 0 else ffi.NULL,
               key_count=len(keys), key_stride=ffi.sizeof("quire_key"))
    out = ffi.new("quire_lease *")
    cache._call("lease_create", desc, out)
    return Lease(cache, int(out[0]))


def evict(cache: CacheBase, count: int, group: int) -> Any:
    """Cache.evict."""
    ids = np.zeros(count, ID)
    evicted = ffi.new("uint32_t *")
    cache._call("cache_evict", group, count, _pointer(ids), evicted)
    return ids[:evicted[0]]
