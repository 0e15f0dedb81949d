# SPDX-License-Identifier: Apache-2.0
"""vllm_books: the library's calls that quire.vllm makes, without an object per step.

The cache keeps books only, so a step is done when it is finished, and each is over before the next
call. Structs are made once and used again.

Threads: one, like vLLM's.
"""

from __future__ import annotations

import math
from typing import Any, Callable, List, NamedTuple, Optional, Sequence as Listed, Tuple

import numpy as np

from . import elements
from .cache import Cache, CacheFlags
from .elements import COPY, EVENT, ITEM, RESULT, SPAN, UNKNOWN
from .errors import ArgumentError
from .events import EventKind
from .instance import Instance
from .lease import Lease
from .libquire import NO_BLOCKS, ffi, new
from .sequence import Key
from .step import RUN, CopyKind
from .vllm_spec import Spec

# Live requests, including those that wait; a sequence that holds nothing takes some 100 bytes.
_MAX_REQUESTS = 1 << 16
_TOKENS = ffi.typeof("quire_token[]")
Tokens = Any  # an array of token ids
_EVENTS_READ = 512  # per call
_ITEM_BYTES, _RESULT_BYTES = ITEM.itemsize, RESULT.itemsize
_EVENT_FIELDS = ("kind", "block", "group", "parent", "position", "token_offset", "level")
_DROP_PREFIX = 1    # QUIRE_END_DROP_PREFIX
DEVICE, HOST = 0, 1  # QUIRE_LEVEL_*


class Stored(NamedTuple):
    """A block that can be found.

    number  never used for other tokens; the blocks of all groups with the same tokens have it
    group   of the cache
    parent  the number of the block before it; 0 if it is first
    place   of its first token
    level   DEVICE or HOST
    """

    number: int
    group: int
    parent: int
    place: int
    tokens: Tokens
    level: int


class Changes(NamedTuple):
    """What quire_cache_events told: what was removed, removed it before it stored the rest.

    cleared  everything stored before was removed
    removed  (number, group, level) of blocks that are not found there any more. A block that moves
             to another level is stored there too
    """

    cleared: bool
    removed: List[Tuple[int, int, int]]
    stored: List[Stored]


def _flags(groups: int, caches: bool, host_blocks: int) -> CacheFlags:
    flags = CacheFlags.ONE_POOL if groups > 1 else CacheFlags(0)
    if not caches:
        return flags | CacheFlags.NO_PREFIX
    flags |= CacheFlags.EVENTS | CacheFlags.EVENT_TOKENS
    return flags | CacheFlags.HOST_PREFIXES if host_blocks else flags


def _ignore(source: int, target: int) -> None:
    pass


class Books:
    """A cache that keeps books only. Several groups take their blocks from one pool.

    spec         of the groups, and what a block of each one holds
    sizes        tokens per block of each group; 0: a sequence has all its blocks from the
                 beginning, or the group is scratch (vllm_scratch.py)
    cached       vLLM's numbers of the library's groups, in the library's order: all but scratch
    block_size   tokens per block of the groups that have one for their tokens
    alignment    what a hit is a multiple of, in tokens
    slots        tokens per block of the scratch groups by their numbers; 0: of a ring
    is_exact     True if a sequence must not have more tokens than are computed: a step returns what
                 a window passes, or the groups' blocks do not end at the same tokens
    can_forget   True if cached blocks can be evicted by their numbers
    host_blocks  where evicted blocks are kept
    on_evicted   gets a block, and the block of the host that its content was moved to
    on_restored  gets a block of the host, and the block that its content was moved to
    """

    def __init__(self, instance: Optional[Instance], spec: Spec, blocks: int, caches: bool,
                 host_blocks: int = 0):
        groups = spec.groups
        self.groups, self.group_count = groups, len(groups)
        self.windows = [(i, group) for i, group in enumerate(groups) if group.passes]
        self.cached = [i for i, group in enumerate(groups) if not group.is_scratch]
        self._place = {group: place for place, group in enumerate(self.cached)}
        self.sizes, self.block_size = spec.sizes, spec.block_size
        self.alignment = spec.alignment
        self.slots = spec.slots
        unit = math.gcd(self.block_size, *(group.block_size for group in groups if group.crosses))
        self._unit, self._states = unit, max(group.states for group in groups)
        self._has_encoder = spec.fixed and self._states == 0
        self.is_exact = len(self.windows) != 0 or spec.fixed or len(spec.slots) != 0
        self.caches = caches
        self.can_forget = caches and len(self.windows) < len(self.cached) and not host_blocks
        self.cache = Cache(
            instance or Instance(),
            [groups[i].group(unit, len(groups) == 1) for i in self.cached],
            block_tokens=unit, blocks=blocks, max_sequences=_MAX_REQUESTS,
            host_blocks=host_blocks, flags=_flags(len(self.cached), caches, host_blocks))
        self.host_blocks = host_blocks
        self._copies: List["np.ndarray[Any, Any]"] = []
        self.on_evicted: Callable[[int, int], None] = _ignore
        self.on_restored: Callable[[int, int], None] = _ignore
        self._library = self.cache._library
        self._api = self._library.api
        self._error = new("quire_error")
        self._desc = ffi.new("quire_step_desc *")
        self._desc.struct_size = ffi.sizeof("quire_step_desc")
        self._plain = ffi.new("quire_seq_desc *")
        self._plain.struct_size = ffi.sizeof("quire_seq_desc")
        self._item = ffi.new("quire_step_item *")
        self._result = ffi.new("quire_step_result *")
        self._handle = ffi.new("uint64_t *")
        self._count = ffi.new("uint32_t *")
        self._stats = ffi.new("quire_cache_stats *")
        self._stats.struct_size = ffi.sizeof("quire_cache_stats")
        self._events = np.zeros(_EVENTS_READ, EVENT)
        self._event_tokens = np.zeros(_EVENTS_READ * self.block_size, elements.TOKEN)
        self._events_info = new("quire_events_info")
        self._grow_ids(64)
        self._unknown = np.full(self.block_size, UNKNOWN, elements.TOKEN)
        self._lease: Optional[Lease] = None
        self._taken = new("quire_lease_result")
        self._next = 0  # a sequence without keys and tokens, for the next `admit`; 0: none yet
        self.probe_all = self.create([])  # without keys or tokens; lookups start from it

    def _do(self, function: Any, *arguments: Any) -> None:
        """Calls the library: Library.call, without what several threads and other objects need."""
        status = function(self.cache._owned or self.cache._pointer, *arguments, self._error)
        if status < 0:
            self._library.fail(status, self._error)

    def passed(self, computed: int) -> List[int]:
        """How many of its first blocks a token sees nothing of, in each group, if `computed` are
        before it; 0 in scratch groups."""
        return [0 if group.is_scratch else group.passed(computed) for group in self.groups]

    # State.

    def stats(self) -> Any:
        """The cache's counters; valid until the next call of this."""
        self._do(self._api.cache_get_stats, self._stats)
        return self._stats

    def available(self) -> int:
        """Blocks that a request could take."""
        stats = self.stats()
        return int(stats.blocks_free + stats.blocks_cached)

    def changes(self) -> Changes:
        """What changed since the last call among the blocks that are found."""
        found = Changes(False, [], [])
        if not self.caches:
            return found
        info, tokens = self._events_info, self._event_tokens
        info.has_more = 1
        while info.has_more:
            self._do(self._api.cache_events, 0,
                     ffi.from_buffer("quire_cache_event[]", self._events, True), _EVENTS_READ,
                     EVENT.itemsize, ffi.from_buffer(_TOKENS, tokens, True), len(tokens), info)
            part = self._events[:info.event_count]
            for kind, number, group, parent, place, first, level in zip(*(
                    part[field].tolist() for field in _EVENT_FIELDS)):
                if kind == EventKind.STORED:
                    found.stored.append(Stored(
                        number, self.cached[group], parent, place,
                        tokens[first:first + self.block_size].copy(), level))
                elif kind == EventKind.REMOVED:
                    found.removed.append((number, self.cached[group], level))
                else:
                    found = Changes(True, [], [])
        return found

    # Sequences.

    def create(self, keys: Listed[Key], encoder_tokens: int = 0) -> int:
        """A new sequence's handle. It gets the blocks of an encoder's tokens, or of states, with
        its first step."""
        if keys:
            return self.cache.sequence(keys=keys).handle
        self._plain.cross_tokens = self._states * self._unit or \
            (encoder_tokens if self._has_encoder else 0)
        self._do(self._api.seq_create, self._plain, self._handle)
        return int(self._handle[0])

    def end(self, sequence: int) -> None:
        """Ends a sequence; what is cached stays cached."""
        self._do(self._api.seq_end, sequence, 0)

    def drop(self, sequence: int) -> None:
        """Ends a sequence and forgets what is cached of its tokens, except blocks that another
        sequence holds."""
        self._do(self._api.seq_end, sequence, _DROP_PREFIX)

    def fork(self, sequence: int, tokens: int) -> int:
        """A new sequence that holds the blocks of another's first tokens."""
        self._do(self._api.seq_fork, sequence, tokens, self._handle)
        return int(self._handle[0])

    def truncate(self, sequence: int, tokens: int) -> None:
        """Shortens a sequence."""
        self._do(self._api.seq_truncate, sequence, tokens)

    def probe(self, sequence: int, tokens: Any) -> int:
        """How many of the tokens are in the cache."""
        pointer = ffi.from_buffer(_TOKENS, tokens) if len(tokens) else ffi.NULL
        self._do(self._api.prefix_probe, sequence, pointer, len(tokens), self._count)
        return int(self._count[0])

    def look_up(self, tokens: "np.ndarray[Any, Any]") -> Tuple[int, List[int]]:
        """How many of the tokens, the last one apart, are found without keys, and in which blocks
        of the only group: probe, and the blocks of a step that is aborted; no blocks if the step
        would wait. It calls the library directly, because it is called for every request."""
        api, error, cache = self._api, self._error, self.cache._owned or self.cache._pointer
        total, probe, count = len(tokens), self.probe_all, self._count
        if total == 0:
            return 0, []
        pointer = ffi.from_buffer(_TOKENS, tokens)
        status = api.prefix_probe(cache, probe, pointer, total, count, error)
        found = count[0]
        if found == 0 and status >= 0:
            return 0, []
        item = self._item
        item.seq, item.token_count, item.lookahead = probe, min(found + 1, total), 0
        status = min(status, 0) or api.step_begin(cache, self._desc, item, 1, _ITEM_BYTES, pointer,
                                                  item.token_count, self._result, _RESULT_BYTES,
                                                  self._handle, error)
        if status < 0:
            self._library.fail(status, error)
        blocks = found // self.block_size
        if blocks > len(self._ids):
            self._grow_ids(2 * blocks)
        status = api.step_blocks(cache, self._handle[0], probe, 0, 0, self._ids_pointer, blocks,
                                 count, error)
        held = min(blocks, count[0])
        self.abort()
        if status < 0:
            self._library.fail(status, error)
        return found, ffi.unpack(self._ids_pointer, held)

    def tables(self, sequence: int, first: int = 0, step: int = 0) -> List[List[int]]:
        """A sequence's block table of each group, as `blocks` reads it; empty for scratch."""
        return [self.blocks(sequence, first, step, group) if group in self._place else []
                for group in range(self.group_count)]

    def blocks(self, sequence: int, first: int = 0, step: int = 0, group: int = 0) -> List[int]:
        """A sequence's block table in a group, from an entry on; with a step, as the step plans
        it."""
        place = self._place[group]
        while True:
            room = len(self._ids)
            self._do(self._api.step_blocks, step, sequence, place, first, self._ids_pointer, room,
                     self._count)
            wanted = max(0, self._count[0] - first)
            if wanted <= room:
                return self._ids[:wanted].tolist()  # type: ignore[no-any-return]
            self._grow_ids(2 * wanted)

    def forget(self, group: int, block: int) -> bool:
        """Withdraws a block that is cached in a group and that only the cache holds. False: it is
        not cached in this group."""
        try:
            self._own().forget([block], self._place[group])
        except ArgumentError:
            return False
        return True

    def take(self, count: int) -> Optional[List[int]]:
        """Takes blocks without content in the open step. None: there are too few."""
        lease = self._own()
        ids = np.zeros(count, np.int32)
        status = self.cache._call("lease_take", self.step, lease.handle, 0, count,
                                  ffi.from_buffer("int32_t[]", ids, True), self._taken)
        return None if status == NO_BLOCKS else ids.tolist()

    def give(self, blocks: Listed[int]) -> None:
        """Returns blocks that `take` took."""
        with self.cache.begin() as step:
            self._own().give(step, blocks)
            step.commit()
            step.finish()

    def _own(self) -> Lease:
        """The lease that holds single blocks."""
        if self._lease is None:
            self._lease = self.cache.lease()
        return self._lease

    def _grow_ids(self, count: int) -> None:
        self._ids = np.empty(count, np.int32)
        self._ids_pointer = ffi.from_buffer("int32_t[]", self._ids, True)

    def name(self, spans: "np.ndarray[Any, Any]", tokens: "np.ndarray[Any, Any]") -> None:
        """Names tokens of many sequences, spans being an array of quire.SPAN."""
        self.cache.set_tokens(spans, tokens)

    def name_one(self, sequence: int, position: int, tokens: "np.ndarray[Any, Any]") -> None:
        """Names tokens of one sequence."""
        spans = np.zeros(1, SPAN)
        spans[0] = (sequence, position, 0, len(tokens), 0)
        self.cache.set_tokens(spans, tokens)

    # Steps.

    def begin(self, sequence: int, tokens: "np.ndarray[Any, Any]", lookahead: int) -> Any:
        """Opens a step of one sequence. Returns its result, valid until the next step: an item that
        waits leaves the step open too."""
        item = self._item
        item.seq, item.token_count, item.lookahead = sequence, len(tokens), lookahead
        pointer = ffi.from_buffer(_TOKENS, tokens) if len(tokens) else ffi.NULL
        self._do(self._api.step_begin, self._desc, item, 1, _ITEM_BYTES, pointer,
                 len(tokens), self._result, _RESULT_BYTES, self._handle)
        return self._result

    def admit(self, tokens: "np.ndarray[Any, Any]",
              found: int) -> Optional[Tuple[int, List[int]]]:
        """A new sequence with these tokens, and its blocks in the only group, if exactly `found` of
        the tokens are in the cache and enough blocks are left. None: nothing changed. It calls the
        library directly, because it is called for every request."""
        api, error, cache = self._api, self._error, self.cache._owned or self.cache._pointer
        if self._next == 0:
            self._next = self.create([])
        sequence, item, count = self._next, self._item, len(tokens)
        item.seq, item.token_count, item.lookahead = sequence, count, 0
        status = api.step_begin(cache, self._desc, item, 1, _ITEM_BYTES,
                                ffi.from_buffer(_TOKENS, tokens), count, self._result,
                                _RESULT_BYTES, self._handle, error)
        if status < 0:
            self._library.fail(status, error)
        if self._result.outcome != RUN or self._result.hit_tokens != found:
            self.abort()
            return None
        step, blocks = self._handle[0], count // self.block_size
        self._next = 0
        if blocks > len(self._ids):
            self._grow_ids(2 * blocks)
        status = api.step_commit(cache, step, ffi.NULL, error)
        if status == 0 and self.host_blocks:
            self._note_copies(step)
        status = status or api.step_finish(cache, step, ffi.NULL, 0, error) \
            or api.step_blocks(cache, 0, sequence, 0, 0, self._ids_pointer, blocks, self._count,
                               error)
        if status != 0:
            self._library.fail(status, error)
        return sequence, ffi.unpack(self._ids_pointer, blocks)

    @property
    def step(self) -> int:
        """The handle of the open step."""
        return int(self._handle[0])

    def abort(self) -> None:
        """Undoes the open step."""
        self._do(self._api.step_abort, self._handle[0])

    def close_step(self) -> None:
        """Commits the open step and finishes it."""
        step = self._handle[0]
        self._do(self._api.step_commit, step, ffi.NULL)
        if self.host_blocks:
            self._note_copies(step)
        self._do(self._api.step_finish, step, ffi.NULL, 0)

    def extend(self, sequences: List[int]) -> bool:
        """Adds a block of unknown tokens to each sequence in one step. False: there are too few
        blocks, and nothing changed."""
        items = np.zeros(len(sequences), ITEM)
        items["seq"] = sequences
        items["token_count"] = self.block_size
        results = np.zeros(len(sequences), RESULT)
        self._do(self._api.step_begin, self._desc,
                   ffi.from_buffer("quire_step_item[]", items), len(items), ITEM.itemsize,
                   ffi.from_buffer("quire_token[]", self._unknown), self.block_size,
                   ffi.from_buffer("quire_step_result[]", results, True), RESULT.itemsize,
                   self._handle)
        if (results["outcome"] != RUN).any():
            self.abort()
            return False
        self.close_step()
        return True

    # Copies.

    def _note_copies(self, step: int) -> None:
        """Keeps the copies of a committed step, which the engine must make."""
        room = 64
        while True:
            copies = np.zeros(room, COPY)
            self._do(self._api.step_copies, step,
                     ffi.from_buffer("quire_block_copy[]", copies, True), room, COPY.itemsize,
                     self._count)
            if self._count[0] <= room:
                break
            room = self._count[0]
        if self._count[0] == 0:
            return
        copies = copies[:self._count[0]]
        self._copies.append(copies)
        for kind, source, target in zip(*(copies[name].tolist()
                                          for name in ("kind", "src", "dst"))):
            (self.on_evicted if kind == CopyKind.SWAP_OUT else self.on_restored)(source, target)

    def take_copies(self) -> "np.ndarray[Any, Any]":
        """Rows (1: to the host, 0: from it; from block; to block) of the copies since the last
        call, in the order in which they must be made."""
        taken, self._copies = self._copies, []
        copies = np.concatenate([np.zeros(0, COPY), *taken])
        assert np.isin(copies["kind"], (CopyKind.SWAP_OUT, CopyKind.SWAP_IN)).all()
        return np.stack([copies["kind"] == CopyKind.SWAP_OUT, copies["src"], copies["dst"]],
                        axis=1).astype(np.int32)
