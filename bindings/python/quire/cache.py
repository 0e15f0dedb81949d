# SPDX-License-Identifier: Apache-2.0
"""cache: the paged KV cache: pools, prefixes, sequences and steps."""

from __future__ import annotations

import dataclasses
import enum
import pathlib
import weakref
from typing import Any, Iterable, List, Optional, Sequence as Listed, Tuple, Union

import numpy as np

from . import cache_tier as _tier, elements, errors, lease as _lease, sequence as _sequence
from .attention import Attention
from .batch import Batch, View
from .cache_base import CacheBase
from .cache_tier import CacheTierStats, TierProgress, TierWrite
from .device import Device
from .events import EVENT, Events
from .groups import Group, Shard
from .instance import Instance
from .lease import Lease
from .libquire import INCOMPLETE, NO_BLOCKS, TIMED_OUT, ffi, new
from .objects import Abandoned, expect
from .queue import Queue, nanoseconds
from .sequence import Key, Namespace, Sequence
from .session import Path, Reader
from .step import Items, Preempt, Step, given
from .tier import Tier

_MAX_LAYERS = 4096
_ITEM_BYTES = elements.ITEM.itemsize
_RESULT_BYTES = elements.RESULT.itemsize


class CacheFlags(enum.IntFlag):
    """QUIRE_CACHE_* of quire/cache.h."""

    NO_PREFIX = 1
    FIXED_HASH = 2
    LOG = 4
    FOLLOWER = 8
    CALIBRATE = 16
    ZERO_ON_FREE = 32
    AUDIT = 64
    EVENTS = 128
    EVENT_TOKENS = 256
    HOST_PREFIXES = 512
    ONE_POOL = 1024
    LEASES_ONLY = 2048
    PARTIAL_HITS = 4096


class Victim(enum.IntEnum):
    """Which sequence is preempted first: QUIRE_VICTIM_* of quire/cache.h."""

    NEWEST = 0
    PRIORITY = 1


@dataclasses.dataclass(frozen=True)
class Pool:
    """Where a group's K and V lie on a shard: quire_pool_info of quire/cache.h, in bytes."""

    address: int
    size_bytes: int
    block_stride: int
    layer_stride: int
    v_offset: int
    k_head_stride: int
    k_token_stride: int
    v_head_stride: int
    v_token_stride: int
    blocks: int
    block_tokens: int
    host_blocks: int
    layer_begin: int
    layer_count: int
    head_begin: int
    head_count: int
    k_scale_offset: int
    v_scale_offset: int
    scale_head_stride: int
    scales: int


@dataclasses.dataclass(frozen=True)
class CacheInfo:
    """The shape and size of a cache: quire_cache_info of quire/cache.h."""

    group_count: int
    layer_count: int
    block_tokens: int
    shard_count: int
    pool_tokens: int
    max_sequences: int
    pool_bytes: int
    host_bytes: int
    span_tokens: int
    span_blocks: int


@dataclasses.dataclass(frozen=True)
class CacheStats:
    """quire_cache_stats of quire/cache.h; vLLM's names where the meaning is the same."""

    prefix_cache_queries: int
    prefix_cache_hits: int
    num_preemptions: int
    preemptions_swap: int
    preemptions_recompute: int
    tokens_preempted: int
    evictions: int
    copies_on_write: int
    blocks_swapped_out: int
    blocks_swapped_in: int
    forks: int
    steps: int
    bytes_hashed: int
    bytes_compared: int
    sequences: int
    sequences_lost: int
    host_blocks_used: int
    blocks_total: int
    blocks_free: int
    blocks_cached: int
    blocks_held: int
    nodes: int
    kv_cache_usage_perc: float
    migrations: int
    bytes_migrated: int
    blocks_demoted: int
    blocks_promoted: int
    host_blocks_cached: int
    leases: int
    blocks_leased: int


@dataclasses.dataclass(frozen=True)
class Migration:
    """The result of a migration: quire_migrate_info of quire/migrate.h.

    moved  False: the live blocks do not fit, blocks_short are missing, and nothing changed
    moves  where each block went, an array of quire.MOVE
    """

    moved: bool
    moves: "np.ndarray[Any, Any]"
    blocks_moved: int
    blocks_dropped: int
    bytes_moved: int
    live_bytes: int
    host_blocks_kept: int
    host_blocks_copied: int
    host_bytes_copied: int
    blocks_short: int


ShardLike = Union[Shard, Device]


def _fill(kind: Any, info: Any) -> Any:
    return kind(**{field.name: getattr(info, field.name) for field in dataclasses.fields(kind)})


def _array(kind: str, structs: Listed[Any]) -> Any:
    """Copies the structs into one array."""
    array = ffi.new(f"{kind}[]", len(structs))
    for i, struct in enumerate(structs):
        array[i] = struct[0]
    return array


def _as_shards(shards: Iterable[ShardLike]) -> List[Shard]:
    listed = [s if isinstance(s, Shard) else Shard(s) for s in shards]
    for shard in listed:
        expect(shard.device, Device, "a shard's device")
    return listed


class Cache(CacheBase):
    """A cache over shards of devices; without shards it keeps books only.

    groups              groups of layers that are alike; layer_groups names each layer's group
    shards              devices, or parts of them; a step runs on one queue per shard
    blocks, pool_bytes, pool_fraction
                        the size of each group's pool: exactly one, unless the groups give theirs
    calibration         the bytes of a calibration, if scales come from one

    The other arguments are those of quire_cache_desc in quire/cache.h; 0 selects the default.
    """

    def __init__(self, instance: Instance, groups: Listed[Group], shards: Iterable[ShardLike] = (),
                 *, layer_groups: Optional[Listed[int]] = None, block_tokens: int = 0,
                 blocks: int = 0, pool_bytes: int = 0, pool_fraction: float = 0,
                 reserve_bytes: int = 0, host_bytes: int = 0, host_blocks: int = 0,
                 max_sequences: int = 0, max_sequence_tokens: int = 0, watermark_blocks: int = 0,
                 flags: CacheFlags = CacheFlags(0), victim: Victim = Victim.NEWEST,
                 hash_seed: int = 0, swap_bytes_per_second: float = 0,
                 prefill_tokens_per_second: float = 0, calibration: Optional[bytes] = None,
                 calibration_margin: float = 0):
        self._instance = expect(instance, Instance, "instance")
        self._batches: "weakref.WeakSet[Batch]" = weakref.WeakSet()
        self.groups = list(groups)
        self.layer_groups = self._layers(layer_groups)
        self._set_shards(_as_shards(shards))
        parts = [_array("quire_group_desc", [group._desc() for group in self.groups]),
                 _array("quire_shard_desc", [shard._desc() for shard in self.shards]),
                 ffi.new("uint32_t[]", self.layer_groups)]
        desc = new("quire_cache_desc", groups=parts[0], group_count=len(self.groups),
                   group_stride=ffi.sizeof("quire_group_desc"), layer_groups=parts[2],
                   shards=parts[1] if self.shards else ffi.NULL, shard_count=len(self.shards),
                   shard_stride=ffi.sizeof("quire_shard_desc"), block_tokens=block_tokens,
                   blocks=blocks, pool_bytes=pool_bytes, pool_fraction=pool_fraction,
                   reserve_bytes=reserve_bytes, host_bytes=host_bytes, host_blocks=host_blocks,
                   max_sequences=max_sequences, max_sequence_tokens=max_sequence_tokens,
                   watermark_blocks=watermark_blocks, flags=int(flags), victim=victim,
                   hash_seed=hash_seed, swap_bytes_per_second=swap_bytes_per_second,
                   prefill_tokens_per_second=prefill_tokens_per_second,
                   calibration_margin=calibration_margin)
        if calibration is not None:
            desc.calibration = parts_of_calibration = ffi.from_buffer(calibration)
            desc.calibration_bytes = len(parts_of_calibration)
        out = ffi.new("quire_cache **")
        library = instance._library
        library.call(library.api.cache_create, instance, desc, out,
                     beside=[shard.device for shard in self.shards])
        super().__init__(library, out[0])

    def _layers(self, layer_groups: Optional[Listed[int]]) -> List[int]:
        if sum(group.layers for group in self.groups) > _MAX_LAYERS:
            raise errors.ArgumentError(f"more than {_MAX_LAYERS} layers")
        counted = [g for g, group in enumerate(self.groups) for _ in range(group.layers)]
        if layer_groups is None:
            return counted
        if len(layer_groups) != len(counted):
            raise errors.ArgumentError(
                f"layer_groups names {len(layer_groups)} layers; the groups have {len(counted)}")
        return list(layer_groups)

    # Information.

    @property
    def info(self) -> CacheInfo:
        """The cache's shape and size."""
        info = new("quire_cache_info")
        self._call("cache_get_info", info)
        return _fill(CacheInfo, info)  # type: ignore[no-any-return]

    @property
    def stats(self) -> CacheStats:
        """The cache's counters, and the state of its blocks."""
        stats = new("quire_cache_stats")
        self._call("cache_get_stats", stats)
        return _fill(CacheStats, stats)  # type: ignore[no-any-return]

    def pool(self, group: int = 0, shard: int = 0) -> Pool:
        """Where a group's K and V lie on a shard."""
        info = new("quire_pool_info")
        self._call("cache_get_pool", group, shard, info)
        return _fill(Pool, info)  # type: ignore[no-any-return]

    def reset(self) -> None:
        """Forgets every published prefix; call it after a change of weights."""
        self._call("cache_reset")

    def check(self) -> None:
        """Verifies all bookkeeping; O(everything). Errors: InternalError says what is wrong."""
        self._call("cache_check")

    def dump(self, with_tokens: bool = False) -> bytes:
        """Everything that decides what the cache does next, as text (docs/dump.md). Also works on a
        cache that a broken invariant has stopped.

        with_tokens  include prompts and answers, and not only their hashes
        """
        size = ffi.new("uint64_t *")
        room = 1 << 16
        while True:
            buffer = ffi.new("uint8_t[]", room)
            status = self._call("cache_dump", int(with_tokens), buffer, room, size)
            if status != INCOMPLETE:
                return bytes(ffi.buffer(buffer, size[0]))
            room = size[0]

    def events(self, restart: bool = False, limit: int = 1024) -> Events:
        """What changed since the last call among the blocks that are found: quire/events.h. The
        cache needs CacheFlags.EVENTS.

        restart  forget what was told: everything that is found is told again
        limit    the most events; has_more says that there are others
        """
        events, tokens = np.zeros(limit, EVENT), np.zeros(limit * self.info.span_tokens, np.uint32)
        info = new("quire_events_info")
        self._call("cache_events", int(restart), ffi.from_buffer("quire_cache_event[]", events),
                   limit, EVENT.itemsize, ffi.from_buffer("quire_token[]", tokens), len(tokens),
                   info)
        return Events(events[:info.event_count], tokens[:info.token_count], bool(info.has_more))

    def abandon(self) -> Abandoned:
        """Gives up a cache whose device no longer answers: waits for nothing, and frees nothing
        that the device may still touch. Everything that belongs to the cache is then stale."""
        info = new("quire_abandon_info")
        self._abandon("cache_abandon", info)
        return Abandoned(info.device_bytes, info.host_bytes, info.engine_bytes)

    # Namespaces, sequences and batches.

    def namespace(self, key: bytes = b"", quota_blocks: int = 0,
                  event_tokens: bool = False) -> Namespace:
        """Creates a tenant. The key must come from the server, never from a request.

        event_tokens  events carry the tenant's tokens
        """
        return Namespace(self, key, quota_blocks, event_tokens)

    def sequence(self, namespace: Optional[Namespace] = None, keys: Listed[Key] = (),
                 priority: int = 0, cross_tokens: int = 0) -> Sequence:
        """Creates an empty sequence; it holds nothing until a step runs it."""
        return _sequence.create(self, namespace, keys, priority, cross_tokens)

    def import_sequence(self, source: Union[bytes, Reader], *, fingerprint: bytes = b"",
                        name_space: bytes = b"", namespace: Optional[Namespace] = None,
                        keys: Listed[Key] = (), priority: int = 0,
                        cross_tokens: int = 0) -> Optional[Sequence]:
        """Creates a sequence from what Sequence.export returned, or from an object with read().

        The sequence is in the host tier, and the next step that runs it brings it to the device.
        fingerprint, name_space, keys and cross_tokens must be those of the exported one.
        Returns  None  the host tier is short of blocks
        Errors   ArgumentError, the session is damaged or foreign; IncompatibleError, it is of
                 another version; what source.read() raised; EOFError.
        """
        return _sequence.from_session(self, source, fingerprint, name_space, namespace, keys,
                                      priority, cross_tokens)

    def restore(self, path: Path, *, fingerprint: bytes = b"", name_space: bytes = b"",
                namespace: Optional[Namespace] = None, keys: Listed[Key] = (), priority: int = 0,
                cross_tokens: int = 0) -> Optional[Sequence]:
        """Creates a sequence from a file of Sequence.save. See import_sequence. Errors:
        SystemCallError, the file cannot be read."""
        return _sequence.from_session(self, pathlib.Path(path), fingerprint, name_space, namespace,
                                      keys, priority, cross_tokens)

    def set_tokens(self, spans: "np.ndarray[Any, Any]", tokens: elements.Tokens) -> None:
        """Names unknown tokens of many sequences, with an array of quire.SPAN."""
        span_pointer, count = elements.read(spans, elements.SPAN, "quire_token_span[]", "spans")
        token_pointer, token_count = elements.read_tokens(tokens)
        self._call("seq_set_tokens", span_pointer, count, elements.SPAN.itemsize, token_pointer,
                   token_count)

    def batch(self, max_rows: int, max_blocks_per_row: int, max_query_tokens: int, *,
              max_context_tokens: int = 0, views: View = View(0),
              attention: Union[Attention, Listed[Attention], None] = None,
              max_mask_words: int = 0, max_cross_tokens: int = 0, pad_null_slot: bool = False,
              shared_prefix: bool = False) -> Batch:
        """Creates memory that the tables of steps are written to.

        attention  one for all groups, one per group, or one per shard and group (shard by shard)
        """
        batch = Batch(self, max_rows=max_rows, max_blocks_per_row=max_blocks_per_row,
                      max_query_tokens=max_query_tokens, max_context_tokens=max_context_tokens,
                      views=views, attention=attention, max_mask_words=max_mask_words,
                      max_cross_tokens=max_cross_tokens, pad_null_slot=pad_null_slot,
                      shared_prefix=shared_prefix)
        self._batches.add(batch)
        return batch

    # Leases.

    def lease(self, namespace: Optional[Namespace] = None, keys: Listed[Key] = ()) -> Lease:
        """Creates a lease that holds nothing; its keys are keys of whole sequences."""
        return _lease.create(self, namespace, keys)

    def evict(self, count: int, group: int = 0) -> Any:
        """Evicts up to `count` cached blocks of a group, the least recently used first; their ids.

        Errors: BusyError while a step is open.
        """
        return _lease.evict(self, count, group)

    # Steps.

    def _step_desc(self, queue: Union[Queue, Listed[Queue], None], tag: int, may_preempt: bool,
                   preempt: Preempt) -> Tuple[Any, Any, Listed[Queue]]:
        queues: Listed[Queue] = ()
        if queue is not None:
            queues = (queue,) if isinstance(queue, Queue) else queue
        pointers = ffi.new("quire_queue *[]", [q._pointer for q in queues])
        desc = ffi.new("quire_step_desc *")
        desc.struct_size = ffi.sizeof("quire_step_desc")
        desc.flags = int(may_preempt)
        desc.queue_count = len(queues)
        if queues:
            desc.queues = pointers
        desc.preempt = preempt
        desc.queue_tag = tag
        return desc, pointers, queues

    def begin(self, items: Items = (), tokens: Optional[elements.Tokens] = None, *,
              queue: Union[Queue, Listed[Queue], None] = None, tag: int = 0,
              may_preempt: bool = False, preempt: Preempt = Preempt.AUTO,
              results: Optional["np.ndarray[Any, Any]"] = None) -> Step:
        """Opens a step and adds items; the step's `results` says what becomes of each.

        items    an array of quire.ITEM, with `tokens` beside it, or a list of quire.Item
        queue    where the step runs: one queue, or one per shard
        tag      names the queue if the cache keeps books only
        results  an array of quire.RESULT to be written, so that none has to be made
        """
        desc, _pointers, queues = self._step_desc(queue, tag, may_preempt, preempt)
        call = given(items, tokens, results)
        out = ffi.new("quire_step *")
        try:
            self._call("step_begin", desc, call[0], call[1], _ITEM_BYTES, call[2], call[3],
                       call[5], _RESULT_BYTES, out, beside=queues)
            return Step(self, int(out[0]), queues, call[4])
        except BaseException:
            if out[0] != 0:  # an interrupt came after it was opened
                Step(self, int(out[0]), queues, call[4]).undo()
            raise

    def apply_log(self, log: bytes, *, queue: Union[Queue, Listed[Queue], None] = None,
                  tag: int = 0, batch: Optional[Batch] = None) -> Step:
        """A follower's step: applies the next log of its leader. The step is already committed."""
        desc, _pointers, queues = self._step_desc(queue, tag, False, Preempt.AUTO)
        out = ffi.new("quire_step *")
        self._call("log_apply", ffi.from_buffer(log), len(log), desc,
                   ffi.NULL if batch is None else batch, out, beside=queues)
        step = Step(self, int(out[0]), queues, np.zeros(0, elements.RESULT))
        step._committed(batch)
        return step

    # A store below the cache.

    def attach_tier(self, tier: Tier, *, fingerprint: bytes = b"",
                    write: TierWrite = TierWrite.THROUGH, min_load_tokens: int = 0,
                    load_timeout: Optional[float] = None, load_expiry: Optional[float] = None,
                    max_load_bytes: int = 0, max_write_bytes: int = 0,
                    max_told_blocks: int = 0, followers: int = 0) -> None:
        """Puts a store below the cache's prefixes; it then serves this cache alone. The arguments
        are the fields of quire_cache_tier_desc in quire/cache_tier.h, times in seconds."""
        _tier.attach(self, tier, fingerprint, write, min_load_tokens, load_timeout, load_expiry,
                     max_load_bytes, max_write_bytes, max_told_blocks, followers)

    def detach_tier(self, timeout: Optional[float] = None) -> None:
        """Writes what waits, flushes the store and takes it away. Errors: TimeoutError after
        `timeout` seconds; the tier is then still attached, and only detach_tier helps."""
        _tier.detach(self, timeout)

    def poll_tier(self) -> TierProgress:
        """Makes progress with loads and writes, and says how far they are."""
        return _tier.poll(self)

    def wait_load(self, timeout: Optional[float] = None) -> TierProgress:
        """Waits until a load ends, or until none is running. Errors: TimeoutError."""
        return _tier.wait(self, timeout)

    def cancel_load(self, sequence: Sequence) -> None:
        """Drops the sequence's load, if it has one."""
        _tier.cancel(self, sequence)

    def report_loads(self) -> bytes:
        """A follower's next report for its leader, which says how loads went; empty: there is
        nothing to report. Send it: each load is in one report."""
        return _tier.report(self)

    def take_report(self, report: bytes) -> None:
        """Takes a report of a follower of this leader."""
        _tier.take(self, report)

    @property
    def tier_stats(self) -> CacheTierStats:
        """What the tier has loaded and written."""
        return _tier.stats(self)

    # Migration and calibration.

    def migrate(self, shards: Iterable[ShardLike] = (), *, blocks: int = 0, pool_bytes: int = 0,
                pool_fraction: float = 0, reserve_bytes: int = 0,
                group_blocks: Optional[Listed[int]] = None, host_bytes: int = 0,
                host_blocks: int = 0, copy_host_tier: bool = False, wait: bool = True,
                timeout: Optional[float] = None) -> Migration:
        """Moves the cache to other devices, or to pools of another size: all of it, or nothing.
        Batches and queues from before can no longer be used with it.

        wait     first waits until finished steps have run, for at most `timeout` seconds
        Errors   BusyError, a step is open or not finished; TimeoutError, steps still run.
        """
        for batch in list(self._batches):
            if len(batch._arrays) != 0:
                raise errors.BusyError("arrays refer to a batch's tables, which a migration ends: "
                                       "delete the arrays first")
        targets = _as_shards(shards)
        if group_blocks is not None and len(group_blocks) != len(self.groups):
            raise errors.ArgumentError(
                f"group_blocks has {len(group_blocks)} numbers for {len(self.groups)} groups")
        parts = [_array("quire_shard_desc", [shard._desc() for shard in targets]),
                 ffi.new("uint32_t[]", list(group_blocks or ()))]
        desc = new("quire_migrate_desc", flags=int(copy_host_tier), shard_count=len(targets),
                   shard_stride=ffi.sizeof("quire_shard_desc"), blocks=blocks,
                   pool_bytes=pool_bytes, pool_fraction=pool_fraction,
                   reserve_bytes=reserve_bytes, host_bytes=host_bytes, host_blocks=host_blocks,
                   move_stride=elements.MOVE.itemsize)
        if targets:
            desc.shards = parts[0]
        if group_blocks is not None:
            desc.group_blocks = parts[1]
        status, info, moves = self._migrate(desc, wait, timeout, [s.device for s in targets])
        if status != NO_BLOCKS:
            self._set_shards(targets)
        fields = {f.name: getattr(info, f.name) for f in dataclasses.fields(Migration)
                  if f.name not in ("moved", "moves")}
        return Migration(moved=status != NO_BLOCKS, moves=moves, **fields)

    def _migrate(self, desc: Any, wait: bool, timeout: Optional[float],
                 devices: Listed[Device]) -> Tuple[int, Any, "np.ndarray[Any, Any]"]:
        info = new("quire_migrate_info")
        stats = self.stats
        room = stats.blocks_held + stats.blocks_cached + stats.host_blocks_used
        while True:
            moves = np.zeros(max(1, room), elements.MOVE)
            desc.moves = ffi.from_buffer("quire_block_move[]", moves, True)
            desc.move_capacity = len(moves)
            if wait:
                status = self._call("cache_migrate_wait", desc, info, nanoseconds(timeout),
                                    beside=devices)
            else:
                status = self._call("cache_migrate", desc, info, beside=devices)
            if status == TIMED_OUT:
                raise errors.TimeoutError("steps still run; nothing changed")
            if status == NO_BLOCKS:
                return status, info, moves[:0]
            if status != INCOMPLETE:
                return status, info, moves[:info.move_count]
            room = info.move_count

    def save_calibration(self, timeout: Optional[float] = None) -> bytes:
        """What CacheFlags.CALIBRATE has measured so far. Errors: TimeoutError, steps still run."""
        size = ffi.new("uint64_t *")
        self._call("cache_save_calibration_wait", ffi.NULL, 0, size, 0)
        buffer = ffi.new("uint8_t[]", size[0])
        status = self._call("cache_save_calibration_wait", buffer, size[0], size,
                            nanoseconds(timeout))
        if status == TIMED_OUT:
            raise errors.TimeoutError("steps still run; nothing was written")
        return bytes(ffi.buffer(buffer, size[0]))
