# SPDX-License-Identifier: Apache-2.0
"""cache_tier: a store below a cache's prefixes: quire/cache_tier.h."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, Optional

from . import errors
from .libquire import INCOMPLETE, ffi, new
from .objects import expect
from .queue import in_slices, nanoseconds
from .tier import Tier


class TierWrite(enum.IntEnum):
    """Which cached blocks are written to the store: QUIRE_TIER_WRITE_* of quire/cache_tier.h."""

    NONE = 0
    THROUGH = 1
    SELECTIVE = 2
    BACK = 3


@dataclasses.dataclass(frozen=True)
class TierProgress:
    """How far a cache's tier is: quire_cache_tier_progress of quire/cache_tier.h."""

    loads_running: int
    loads_ready: int
    loads_ended: int
    blocks_queued: int
    descriptor: int  # for select; -1: the store has no such thing


@dataclasses.dataclass(frozen=True)
class CacheTierStats:
    """Counts since the tier was attached: quire_cache_tier_stats of quire/cache_tier.h."""

    loads_begun: int
    loads_ready: int
    loads_used: int
    loads_missed: int
    loads_failed: int
    loads_late: int
    loads_expired: int
    loads_cancelled: int
    loads_short: int
    tokens_loaded: int
    bytes_loaded: int
    values_damaged: int
    values_foreign: int
    blocks_written: int
    bytes_written: int
    blocks_known: int
    blocks_refused: int
    blocks_dropped: int
    blocks_evicted: int
    blocks_lost: int


def _filled(kind: Any, struct: Any) -> Any:
    return kind(*(getattr(struct, field.name) for field in dataclasses.fields(kind)))


def _limit(seconds: Optional[float]) -> int:
    if seconds is None:
        return 0
    if not seconds >= 0:
        raise errors.ArgumentError(f"a time of {seconds} seconds: it must be 0 or more")
    return max(1, nanoseconds(seconds))


def attach(cache: Any, tier: Tier, fingerprint: bytes, write: TierWrite, min_load_tokens: int,
           load_timeout: Optional[float], load_expiry: Optional[float], max_load_bytes: int,
           max_write_bytes: int, max_told_blocks: int, followers: int) -> None:
    """Cache.attach_tier."""
    if len(fingerprint) > 32:
        raise errors.ArgumentError(f"fingerprint has {len(fingerprint)} bytes: at most 32")
    desc = new("quire_cache_tier_desc", fingerprint=fingerprint.ljust(32, b"\0"), write=write,
               min_load_tokens=min_load_tokens, load_timeout_ns=_limit(load_timeout),
               load_expiry_ns=_limit(load_expiry), max_load_bytes=max_load_bytes,
               max_write_bytes=max_write_bytes, max_told_blocks=max_told_blocks,
               followers=followers)
    cache._call("cache_attach_tier", expect(tier, Tier, "tier"), desc, beside=(tier,))


def detach(cache: Any, timeout: Optional[float]) -> None:
    """Cache.detach_tier."""
    if not in_slices(timeout, lambda ns: cache._call("cache_detach_tier_wait", ns)):
        raise errors.TimeoutError("the store did not end in time: the tier is still attached")


def poll(cache: Any) -> TierProgress:
    """Cache.poll_tier."""
    progress = new("quire_cache_tier_progress")
    cache._call("cache_poll_tier", progress)
    return _filled(TierProgress, progress)  # type: ignore[no-any-return]


def wait(cache: Any, timeout: Optional[float]) -> TierProgress:
    """Cache.wait_load."""
    progress = new("quire_cache_tier_progress")
    if not in_slices(timeout, lambda ns: cache._call("cache_load_wait", ns, progress)):
        raise errors.TimeoutError("no load ended in time")
    return _filled(TierProgress, progress)  # type: ignore[no-any-return]


def stats(cache: Any) -> CacheTierStats:
    """Cache.tier_stats."""
    counts = new("quire_cache_tier_stats")
    cache._call("cache_get_tier_stats", counts)
    return _filled(CacheTierStats, counts)  # type: ignore[no-any-return]


def report(cache: Any) -> bytes:
    """Cache.report_loads."""
    size = ffi.new("uint64_t *")
    room = 2048
    while True:
        buffer = ffi.new("uint8_t[]", room)
        if cache._call("cache_report_loads", buffer, room, size) != INCOMPLETE:
            return bytes(ffi.buffer(buffer, size[0]))
        room = size[0]


def take(cache: Any, content: bytes) -> None:
    """Cache.take_report."""
    cache._call("cache_take_report", ffi.from_buffer(content), len(content))


def cancel(cache: Any, sequence: Any) -> None:
    """Sequence.cancel_load."""
    cache._call("cache_cancel_load", ffi.cast("quire_seq", sequence.handle))
