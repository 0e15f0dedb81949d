# SPDX-License-Identifier: Apache-2.0
"""vllm: a manager on Quire with the methods of vLLM V1's KVCacheManager and the same meaning.

vLLM's scheduler calls it like its own. It returns block numbers; the K and V stay where the engine
keeps them. It reads these attributes of a request: request_id, all_token_ids, num_tokens,
num_computed_tokens; and, if they exist, num_preemptions, skip_reading_prefix_cache, cache_salt,
lora_request, mm_features.

Where it differs:
  - hits are verified token by token, and nothing is hashed in Python: request.block_hashes is not
    read
  - each content is cached once, and free blocks are used before a cached one is evicted, so there
    are at least as many hits (exact LRU, block by block)
  - it has one group of full or windowed attention: in vLLM the groups of a hybrid model share one
    range of block ids, in Quire they do not. Events, encoder tokens and evict_blocks are refused
  - where prefixes are cached, token ids are 0 to 2^32-2; others are refused

How it works: every request has a sequence, and each call that needs a block is a step of its own.
The step adds tokens as unknown, so they are neither looked up in the cache nor put there; they get
their ids block by block, when vLLM says that they may be cached. Only the tokens that vLLM found
have ids from the start. In between the library is not called, so decoding costs two calls of the
library per block.

Threads: one, like vLLM's.
"""

from __future__ import annotations

import dataclasses
import types
from typing import Any, Dict, List, Optional, Sequence as Listed, Tuple, Union

import numpy as np

from . import elements
from .cache import Cache, CacheFlags
from .errors import ArgumentError, UnsupportedError
from .groups import Group, GroupKind
from .instance import Instance
from .sequence import Key, KeyType, Sequence
from .step import RUN, Item

# Live requests, including those that wait; a sequence that holds nothing takes some 100 bytes.
_MAX_REQUESTS = 1 << 16


@dataclasses.dataclass(frozen=True)
class KVCacheBlock:
    """One block, by its number; 0 is the null block."""

    block_id: int
    block_hash: None = None

    @property
    def is_null(self) -> bool:
        return self.block_id == 0


@dataclasses.dataclass(frozen=True)
class KVCacheBlocks:
    """Blocks of each group."""

    blocks: Tuple[Listed[KVCacheBlock], ...]

    def __add__(self, other: "KVCacheBlocks") -> "KVCacheBlocks":
        return KVCacheBlocks(tuple([*a, *b] for a, b in zip(self.blocks, other.blocks)))

    def get_block_ids(self, allow_none: bool = False) -> Optional[Tuple[List[int], ...]]:
        """The numbers of each group's blocks; None, if allowed, when there are no blocks."""
        if allow_none and not any(self.blocks):
            return None
        return tuple([block.block_id for block in group] for group in self.blocks)

    def new_empty(self) -> "KVCacheBlocks":
        return KVCacheBlocks(tuple(() for _ in self.blocks))


@dataclasses.dataclass
class PrefixCacheStats:
    """Counts since they were last taken: lookups, tokens looked up, and tokens found."""

    reset: bool = False
    requests: int = 0
    queries: int = 0
    hits: int = 0
    preempted_requests: int = 0
    preempted_queries: int = 0
    preempted_hits: int = 0

    def record(self, num_tokens: int, num_hits: int, preempted: bool) -> None:
        if preempted:
            self.preempted_requests += 1
            self.preempted_queries += num_tokens
            self.preempted_hits += num_hits
        else:
            self.requests += 1
            self.queries += num_tokens
            self.hits += num_hits


@dataclasses.dataclass
class _Running:
    """A request that holds blocks.

    known  tokens that the sequence has. With full attention: one for every slot of its blocks. With
           a window: only those that no rejected draft can take back, because a step releases what
           its first token does not see
    named  how many of these, from the first on, it knows by their ids: full blocks, which are
           cached
    room   tokens that its blocks have slots for
    """

    sequence: Sequence
    known: int = 0
    named: int = 0
    room: int = 0


Computed = Union[Tuple[KVCacheBlocks, int], Tuple[KVCacheBlocks, int, int]]


def _ids(request: Any) -> Any:
    tokens = request.all_token_ids
    return getattr(tokens, "_x", tokens)  # vLLM's read-only list is slow to walk


def _keys(request: Any) -> List[Key]:
    """What determines K and V besides the tokens."""
    keys = []
    salt = getattr(request, "cache_salt", None)
    if salt:
        keys.append(Key(KeyType.SALT, str(salt).encode()))
    adapter = getattr(request, "lora_request", None)
    if adapter is not None:
        keys.append(Key(KeyType.ADAPTER, str(adapter.lora_name).encode()))
    for media in getattr(request, "mm_features", None) or ():
        place = media.mm_position
        keys.append(Key(KeyType.MEDIA, str(media.identifier).encode(), place.offset,
                        place.offset + place.length))
    return keys


def _skips(request: Any) -> bool:
    return bool(getattr(request, "skip_reading_prefix_cache", False))


class KVCacheManager:
    """vLLM V1's KVCacheManager on Quire.

    kv_cache_config needs num_blocks, the null block included, and kv_cache_groups, each of which
    has a kv_cache_spec with block_size, and sliding_window if it is windowed. The other arguments
    are vLLM's; with scheduler_block_size, which newer versions pass, get_computed_blocks returns
    three values as theirs does.
    """

    def __init__(self, kv_cache_config: Any, max_model_len: int,
                 scheduler_block_size: Optional[int] = None, hash_block_size: Optional[int] = None,
                 max_in_flight_tokens: Optional[int] = None, enable_caching: bool = True,
                 use_eagle: bool = False, log_stats: bool = False,
                 enable_kv_cache_events: bool = False, dcp_world_size: int = 1,
                 pcp_world_size: int = 1, metrics_collector: Any = None, watermark: float = 0.0,
                 instance: Optional[Instance] = None):
        if len(kv_cache_config.kv_cache_groups) != 1:
            raise UnsupportedError("several KV cache groups are not supported: vLLM numbers their "
                                   "blocks as one pool")
        for name, asked in (("events", enable_kv_cache_events), ("EAGLE", use_eagle),
                            ("context parallelism", dcp_world_size * pcp_world_size > 1)):
            if asked:
                raise UnsupportedError(f"{name} is not supported by this manager")
        spec = kv_cache_config.kv_cache_groups[0].kv_cache_spec
        window = getattr(spec, "sliding_window", None) or 0
        self.kv_cache_config = kv_cache_config
        self.max_model_len = max_model_len
        self.enable_caching = enable_caching
        self.log_stats = log_stats
        self.prefix_cache_stats = PrefixCacheStats() if log_stats else None
        self.empty_kv_cache_blocks = KVCacheBlocks(((),))
        self.watermark_blocks = int(watermark * kv_cache_config.num_blocks)
        self._answers_three = scheduler_block_size is not None
        self._block_size: int = spec.block_size
        self._windowed = window != 0
        self._cache = Cache(
            instance or Instance(),
            [Group(layers=1, kv_heads=1, head_dim=1, window=window,
                   kind=GroupKind.WINDOW if window else GroupKind.FULL)],
            block_tokens=self._block_size, blocks=kv_cache_config.num_blocks,
            max_sequences=_MAX_REQUESTS,
            flags=CacheFlags(0) if enable_caching else CacheFlags.NO_PREFIX)
        self._running: Dict[str, _Running] = {}
        self._probe = self._cache.sequence()  # without keys or tokens; lookups start from it
        self._taken: Tuple[Any, Any] = (None, None)

    @property
    def usage(self) -> float:
        """The share of all blocks that requests hold."""
        return self._cache.stats.kv_cache_usage_perc

    def make_prefix_cache_stats(self) -> Optional[PrefixCacheStats]:
        """The counts since the last call; None without log_stats."""
        stats = self.prefix_cache_stats
        self.prefix_cache_stats = PrefixCacheStats() if self.log_stats else None
        return stats

    # Lookup.

    def _tokens(self, request: Any, begin: int, end: int) -> "np.ndarray[Any, Any]":
        """Tokens [begin, end) of a request. A prompt is looked up, perhaps repeatedly, and then
        cached, so it is converted only once."""
        ids = _ids(request)
        owner, tokens = self._taken
        if owner is not request or len(tokens) != len(ids) or tokens[-1] != ids[-1]:
            tokens = elements.taken(ids[begin:end], elements.TOKEN, "all_token_ids")
            if elements.UNKNOWN in tokens:
                raise ArgumentError(f"all_token_ids has {elements.UNKNOWN}, which stands for a "
                                    "token that is not known yet")
            if begin != 0 or end == 0 or end != len(ids):
                return tokens  # type: ignore[no-any-return]
            self._taken = request, tokens
        return tokens[begin:end]  # type: ignore[no-any-return]

    def get_computed_blocks(self, request: Any,
                            max_cache_hit_length: Optional[int] = None) -> Computed:
        """The blocks that are found for a request, and how many tokens they hold: at most
        max_cache_hit_length, and never the request's last token. Nothing is taken yet."""
        blocks, count = self.empty_kv_cache_blocks, 0
        if self.enable_caching and not _skips(request):
            tokens = self._tokens(request, 0, request.num_tokens)
            if max_cache_hit_length is not None:
                tokens = tokens[:max_cache_hit_length + 1]
            keys = _keys(request)
            probe = self._cache.sequence(keys=keys) if keys else self._probe
            count = probe.probe(tokens)
            if count != 0:
                blocks = self._found(probe, tokens, count)
            if keys:
                probe.end()
            if self.prefix_cache_stats is not None:
                self.prefix_cache_stats.record(request.num_tokens, count,
                                               getattr(request, "num_preemptions", 0) > 0)
        return (blocks, count, 0) if self._answers_three else (blocks, count)

    def _found(self, probe: Sequence, tokens: Any, count: int) -> KVCacheBlocks:
        """The blocks that were found: a step would take them, but it is aborted. The step needs a
        block for the token after them; if there is none, there would be none for the request
        either."""
        with self._cache.begin([Item(probe, tokens=tokens[:count + 1])]) as step:
            ids = probe.blocks(step=step)[:count // self._block_size]
            step.abort()
        return self._made(ids)

    def _made(self, ids: Any) -> KVCacheBlocks:
        if len(ids) == 0:
            return self.empty_kv_cache_blocks
        return KVCacheBlocks(([KVCacheBlock(i) for i in ids.tolist()],))

    # Allocation.

    def allocate_slots(self, request: Any, num_new_tokens: int, num_new_computed_tokens: int = 0,
                       new_computed_blocks: Optional[KVCacheBlocks] = None,
                       num_lookahead_tokens: int = 0, num_external_computed_tokens: int = 0,
                       delay_cache_blocks: bool = False, num_encoder_tokens: int = 0,
                       full_sequence_must_fit: bool = False, reserved_blocks: int = 0,
                       has_scheduled_reqs: bool = True) -> Optional[KVCacheBlocks]:
        """Makes room for a request's next tokens and, unless that is delayed, caches those that
        fill blocks and are not drafts. Returns the new blocks: no other request has them, whatever
        is cached beyond num_new_computed_tokens. None: there are too few, and nothing changed."""
        if num_encoder_tokens:
            raise UnsupportedError("encoder tokens are not supported")
        if num_new_tokens == 0 and num_external_computed_tokens == 0:
            raise ValueError("num_new_tokens is 0, and there are no external tokens")
        running = self._running.get(request.request_id)
        target = (request.num_computed_tokens + num_new_computed_tokens
                  + num_external_computed_tokens + num_new_tokens)
        need = min(target + num_lookahead_tokens, self.max_model_len)
        verified = min(target, request.num_tokens, need)
        cached = 0 if delay_cache_blocks else verified
        size = self._block_size
        if running is not None:
            if need <= running.room:
                self._cache_first(request, running, cached)
                return self.empty_kv_cache_blocks
            return self._grow(request, running, verified, need, 0, cached, reserved_blocks)
        spare = reserved_blocks
        if full_sequence_must_fit:
            whole = min(request.num_tokens, self.max_model_len)
            spare = max(spare, -(-whole // size) + -need // size)
        spare += self.watermark_blocks if has_scheduled_reqs else 0
        running = _Running(self._cache.sequence(keys=_keys(request)))
        try:
            return self._grow(request, running, verified, need, num_new_computed_tokens, cached,
                              spare)
        finally:
            if request.request_id not in self._running:
                running.sequence.end()

    def _grow(self, request: Any, running: _Running, verified: int, need: int, found: int,
              cached: int, spare: int) -> Optional[KVCacheBlocks]:
        """Runs a step of this request alone. The first `found` tokens must be in the cache, and the
        full blocks of the first `cached` tokens are put there."""
        size = self._block_size
        known = -(-need // size) * size
        if self._windowed:
            known = max(verified, running.known + 1, found + 1)
        end = max(found, cached // size * size)
        names: Any = ()
        if self.enable_caching and end > running.named:
            names = self._tokens(request, running.named, end)
        tokens = np.full(known - running.known, elements.UNKNOWN, elements.TOKEN)
        if len(names) != 0:
            tokens[:found] = names[:found]
        item = Item(running.sequence, tokens=tokens, lookahead=max(0, need - known))
        with self._cache.begin([item]) as step:
            result = step.results[0]
            if result["outcome"] != RUN or not self._leaves(spare):
                step.abort()
                return None
            if result["hit_tokens"] < found:
                raise ValueError(f"num_new_computed_tokens is {found}, but {result['hit_tokens']} "
                                 "tokens of the request are in the cache")
            step.commit()
            step.finish()
        held = max(running.room, found) // size
        blocks = running.sequence.blocks(first=held)
        running.known = known
        running.room = (held + len(blocks)) * size
        if len(names) > found:
            running.sequence.set_tokens(running.named + found, names[found:])
        running.named = max(running.named, end)
        self._running[request.request_id] = running
        return self._made(blocks)

    def _leaves(self, spare: int) -> bool:
        """True if at least `spare` blocks are left for others."""
        if spare == 0:
            return True
        stats = self._cache.stats
        return stats.blocks_free + stats.blocks_cached >= spare

    def _cache_first(self, request: Any, running: _Running, count: int) -> None:
        """Caches the full blocks of a request's first `count` tokens."""
        end = min(count, running.room, request.num_tokens) // self._block_size * self._block_size
        if not self.enable_caching or end <= running.named:
            return
        names = self._tokens(request, running.named, end)
        if end > running.known:
            # With a window the sequence has fewer tokens than slots. A step adds the missing
            # tokens; it needs no block.
            tokens = np.full(end - running.known, elements.UNKNOWN, elements.TOKEN)
            with self._cache.begin([Item(running.sequence, tokens=tokens)]) as step:
                if step.results[0]["outcome"] != RUN:
                    step.abort()
                    return
                step.commit()
                step.finish()
            running.known = end
        running.sequence.set_tokens(running.named, names)
        running.named = end

    def cache_blocks(self, request: Any, num_computed_tokens: int) -> None:
        """Caches the full blocks of the first num_computed_tokens, and no others."""
        running = self._running.get(request.request_id)
        if running is not None:
            self._cache_first(request, running, num_computed_tokens)

    # Release.

    def free(self, request: Any) -> None:
        """Returns a request's blocks; those that are cached stay cached, and the tail counts as
        older than the head."""
        running = self._running.pop(request.request_id, None)
        if running is not None:
            running.sequence.end()

    def reset_prefix_cache(self) -> bool:
        """Forgets what is cached. Returns False, and does nothing, while requests hold blocks."""
        if self._cache.stats.blocks_held != 0:
            return False
        self._cache.reset()
        if self.prefix_cache_stats is not None:
            self.prefix_cache_stats.reset = True
        return True

    # The blocks that requests hold.

    def get_blocks(self, request_id: str) -> KVCacheBlocks:
        """The blocks that a request holds."""
        running = self._running.get(request_id)
        if running is None:
            return self.empty_kv_cache_blocks
        return self._made(running.sequence.blocks())

    def get_block_ids(self, request_id: str) -> Tuple[List[int], ...]:
        """The numbers of the blocks that a request holds, per group."""
        ids = self.get_blocks(request_id).get_block_ids()
        assert ids is not None
        return ids

    def get_num_common_prefix_blocks(self, running_request_id: str) -> List[int]:
        """How many leading blocks are shared by all requests that hold any."""
        common: Any = None
        for running in self._running.values():
            table = running.sequence.blocks()
            if common is None:
                common = table
                continue
            count = min(len(common), len(table))
            differs = np.nonzero(common[:count] != table[:count])[0]
            common = common[:differs[0] if len(differs) else count]
        return [0 if common is None else len(common)]

    def remove_skipped_blocks(self, request_id: str, processed_computed_tokens: int = 0,
                              num_prompt_tokens: Optional[int] = None,
                              total_computed_tokens: int = 0) -> None:
        """Does nothing: blocks that a window has passed are returned with the next allocation.
        (vLLM's version decides which of the two names the number has.)"""

    def new_step_starts(self) -> None:
        """Does nothing: every allocation is a step."""

    def take_events(self) -> List[Any]:
        """Returns no events: they are not offered."""
        return []

    def evict_blocks(self, block_ids: Any) -> None:
        """Raises UnsupportedError."""
        raise UnsupportedError("evict_blocks is not supported: blocks leave the cache only by age")

    def close(self) -> None:
        """Releases everything."""
        self._cache.close()


def config(num_blocks: int, block_size: int, sliding_window: Optional[int] = None) -> Any:
    """A KVCacheConfig as far as the manager reads it, for callers without vLLM."""
    spec = types.SimpleNamespace(block_size=block_size, sliding_window=sliding_window)
    return types.SimpleNamespace(num_blocks=num_blocks, kv_cache_groups=[
        types.SimpleNamespace(kv_cache_spec=spec)])
