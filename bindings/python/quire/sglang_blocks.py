# SPDX-License-Identifier: Apache-2.0
"""sglang_blocks: SGLang's pages as blocks of a cache without memory, and the leases that hold them.

A page of SGLang's pool is the block with the same number: slot s is token s % page_size of block
s // page_size. SGLang's page 0, for padding, is the null block. There is one lease per space, that
is, per extra_key and cache_salt: its keys keep the spaces apart.

SGLang orders its kernels itself: whatever reads a page is launched after the kernels that wrote it.
So a single call is final at once, and changes nothing if it fails. Several calls that are one
change have a step of their own, which can be taken back. The library is called directly, with
buffers that are made once, and reads SGLang's own arrays of tokens and slots: a call of 128 pages
takes a few microseconds, as long as a few lines of Python.

Threads: one, SGLang's scheduler.
"""

from __future__ import annotations

from array import array
from typing import Any, Dict, List, Optional, Tuple

import numpy as np

from . import errors
from .cache import Cache, CacheFlags, CacheStats
from .groups import Group
from .instance import Instance
from .lease import ID, Lease, LeaseFlags, Match
from .libquire import NO_BLOCKS, ffi, new
from .sequence import Key, KeyType
from .step import _ITEM_BYTES, _RESULT_BYTES

Space = Tuple[Optional[str], Optional[str]]  # extra_key and cache_salt
MAX_SPACES = 4096  # leases at once: those that pin nothing are ended to make room
_MAX_KEY_BYTES = 4096
_NULL = ffi.NULL
_from_buffer = ffi.from_buffer
_IDS = ffi.typeof("int32_t[]")
_WIDE = ffi.typeof("int64_t[]")  # what SGLang keeps tokens and slots in
_LOOK, _TOUCH = int(Match.LOOK), int(Match.TOUCH)


def _keys(space: Space) -> List[Key]:
    """The space as keys of whole sequences. None and "" are different texts."""
    keys = []
    for kind, text in zip((KeyType.OTHER, KeyType.SALT), space):
        if text is None:
            continue
        content = text.encode()
        if not 0 < len(content) + 1 <= _MAX_KEY_BYTES:
            raise ValueError(f"an extra_key or cache_salt of {len(content)} bytes is longer than "
                             f"the {_MAX_KEY_BYTES - 1} that Quire compares")
        keys.append(Key(kind, b"\x00" + content))
    return keys


class Blocks:
    """The blocks of SGLang's pool.

    pages       that SGLang hands out; the null block comes on top
    page_size   tokens: a power of two up to 256
    """

    def __init__(self, pages: int, page_size: int):
        if page_size < 1 or page_size & (page_size - 1) or page_size > 256:
            raise ValueError(f"a page_size of {page_size} is no power of two up to 256")
        self.page_size = page_size
        self.count = pages
        self._cache = Cache(Instance(), [Group(1, 1, 16)], blocks=pages + 1,
                            block_tokens=page_size, max_sequences=MAX_SPACES + 1,
                            flags=CacheFlags.LEASES_ONLY)
        self._api = self._cache._library.api
        self._pointer = self._cache._pointer
        self._find, self._insert = self._api.lease_find, self._api.lease_insert
        self._error = new("quire_error")
        self._result = new("quire_lease_result")
        self._stats = new("quire_cache_stats")
        self._opened = ffi.new("quire_step *")
        self._number = ffi.new("uint32_t *")
        self._desc = new("quire_step_desc")
        self._leases: Dict[Space, Lease] = {}
        self.handles: Dict[Space, int] = {}  # of the leases

    # Spaces.

    def lease(self, space: Space) -> int:
        """The handle of the space's lease."""
        handle = self.handles.get(space)
        if handle is None:
            if len(self._leases) == MAX_SPACES:
                self._end_idle()
            lease = self._leases[space] = self._cache.lease(keys=_keys(space))
            handle = self.handles[space] = lease.handle
        return handle

    def _end_idle(self) -> None:
        """Ends leases that hold nothing; what they published is found by the next with its keys."""
        for space, lease in list(self._leases.items()):
            if lease.info.blocks_held == 0:
                lease.end()
                del self._leases[space], self.handles[space]
        if len(self._leases) == MAX_SPACES:
            raise errors.LimitError(f"{MAX_SPACES} pairs of extra_key and cache_salt hold pages")

    def reset(self) -> None:
        """Forgets everything that was published, and gives all blocks back."""
        for lease in self._leases.values():
            lease.end()
        self._leases.clear()
        self.handles.clear()
        self._cache.reset()

    # Changes.

    def begin(self) -> int:
        """Opens a step for calls that are one change, until end() or undo()."""
        status = self._api.step_begin(self._pointer, self._desc, _NULL, 0, _ITEM_BYTES, _NULL, 0,
                                      _NULL, _RESULT_BYTES, self._opened, self._error)
        if status < 0:
            self._fail(status)
        return int(self._opened[0])

    def end(self, step: int) -> None:
        """Makes the step's changes final."""
        status = self._api.step_commit(self._pointer, step, _NULL, self._error)
        if status >= 0:
            status = self._api.step_finish(self._pointer, step, _NULL, 0, self._error)
        if status < 0:
            self._fail(status)

    def undo(self, step: int) -> None:
        """Takes the step's changes back."""
        status = self._api.step_abort(self._pointer, step, self._error)
        if status < 0:
            self._fail(status)

    def take(self, step: int, lease: int, count: int) -> Optional[Any]:
        """Free blocks for SGLang to fill; None if there are not as many."""
        ids = np.empty(count, ID)
        status = self._api.lease_take(self._pointer, step, lease, 0, count, _written(ids),
                                      self._result, self._error)
        if status < 0:
            self._fail(status)
        return None if status == NO_BLOCKS else ids

    def give(self, lease: int, ids: Any, step: int = 0) -> None:
        """Gives blocks back: the first are evicted first."""
        status = self._api.lease_give(self._pointer, step, lease, 0, _written(ids), len(ids),
                                      self._error)
        if status < 0:
            self._fail(status)

    def pin(self, lease: int, ids: Any) -> None:
        """Holds published blocks."""
        status = self._api.lease_pin(self._pointer, 0, lease, 0, _written(ids), len(ids),
                                     self._result, self._error)
        if status < 0:
            self._fail(status)

    def find(self, lease: int, tokens: Any, count: int, how: int = _TOUCH) -> Any:
        """The blocks of the longest prefix that is published; they count as used now."""
        ids = np.empty(count // self.page_size, ID)
        if type(tokens) is array and tokens.typecode == "q" and len(tokens) >= count:
            read = _from_buffer(_WIDE, tokens)
        else:
            read = wide(tokens, count)
        status = self._find(self._pointer, lease, read, count, how, _from_buffer(_IDS, ids),
                            self._result, self._error)
        if status < 0:
            self._fail(status)
        found = self._result.blocks
        return ids if found == len(ids) else ids[:found].copy()

    def look(self, lease: int, tokens: Any, count: int) -> Any:
        """The same, without counting as used."""
        return self.find(lease, tokens, count, _LOOK)

    def insert(self, lease: int, tokens: Any, slots: Any, count: int) -> Tuple[Any, int]:
        """Publishes the slots' pages and lets go of them, and returns those that are found from now
        on, and how many of them are new.

        Errors: ArgumentError, a token is out of range, or the slots are not whole pages that the
        lease has taken and holds alone. Nothing changed.
        """
        named = np.empty(count // self.page_size, ID)
        if type(tokens) is array and tokens.typecode == "q" and len(tokens) >= count:
            read = _from_buffer(_WIDE, tokens)
        else:
            read = wide(tokens, count)
        status = self._insert(self._pointer, lease, read, slots, count, _from_buffer(_IDS, named),
                              self._result, self._error)
        if status < 0:
            self._fail(status)
        return named, self._result.blocks

    def evict(self, count: int) -> Any:
        """Evicts up to `count` blocks that no lease holds, the least recently used first."""
        ids = np.empty(count, ID)
        status = self._api.cache_evict(self._pointer, 0, count, _written(ids), self._number,
                                       self._error)
        if status < 0:
            self._fail(status)
        return ids[:self._number[0]]

    # State.

    def unpublished(self, space: Space) -> Any:
        """The blocks that the space's lease holds and has not published."""
        held = self._leases[space].blocks()
        return held["block"][(held["flags"] & LeaseFlags.PUBLISHED) == 0]

    @property
    def evictable(self) -> int:
        """Blocks that are found and that no lease holds."""
        status = self._api.cache_get_stats(self._pointer, self._stats, self._error)
        if status < 0:
            self._fail(status)
        return int(self._stats.blocks_cached)

    @property
    def stats(self) -> CacheStats:
        """The cache's counts."""
        return self._cache.stats

    def check(self) -> None:
        """Verifies all bookkeeping."""
        self._cache.check()

    def why(self) -> str:
        """The message of the last call that was refused."""
        text: bytes = ffi.string(self._error.message)
        return text.decode("utf-8", "replace")

    def _fail(self, status: int) -> None:
        self._cache._library.fail(status, self._error)


def _written(ids: Any) -> Any:
    return ffi.from_buffer(_IDS, ids)


def wide(numbers: Any, count: int) -> Any:
    """The first `count` of an array of 64-bit numbers, or of a list, where they lie.

    Errors: ValueError, there are fewer, or one has more bits.
    """
    if type(numbers) is not array or numbers.typecode != "q":
        try:
            numbers = np.ascontiguousarray(numbers[:count], np.int64)
        except OverflowError as why:
            raise ValueError(f"a number is too large: {why}") from None
    if len(numbers) < count:
        raise ValueError(f"there are {len(numbers)} numbers, not {count}")
    return ffi.from_buffer(_WIDE, numbers)


def space_of(key: Any) -> Space:
    """The space of a RadixKey of any release."""
    return key.extra_key, getattr(key, "cache_salt", None)

