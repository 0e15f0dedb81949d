# SPDX-License-Identifier: Apache-2.0
"""vllm: a manager on Quire with the methods of vLLM V1's KVCacheManager and the same meaning.

vLLM's scheduler calls it like its own. It returns block numbers; the K and V stay where the engine
keeps them. It reads these attributes of a request: request_id, all_token_ids, num_tokens,
num_computed_tokens; and, if they exist, status, num_preemptions, num_in_flight_tokens,
skip_reading_prefix_cache, kv_cache_report_mode, cache_salt, lora_request, mm_features,
prompt_embeds, block_hashes, session_id.

Where it differs:
  - hits are verified token by token, and nothing is hashed in Python: request.block_hashes only
    names blocks, in events and to those who ask the block pool (vllm_index.py)
  - each content is cached once, and free blocks are used before a cached one is evicted, so there
    are at least as many hits (exact LRU, block by block)
  - the groups of a hybrid model take their blocks from one pool, as in vLLM. A block of full
    attention that is evicted takes the other groups' blocks of its tokens with it
  - what it does not serve is refused in words, when the manager is made or at the call

docs/vllm.md says how it is installed, and vllm_table.py how it works. Decoding costs one step of
the library per block_size tokens, for all requests together.

Threads: one, like vLLM's.
"""

from __future__ import annotations

import types
from typing import Any, List, NamedTuple, Optional, Sequence as Listed, Tuple, Union

from . import vllm_release
from .errors import UnsupportedError
from .instance import Instance
from .vllm_admission import Admission
from .vllm_blocks import KVCacheBlock as KVCacheBlock, KVCacheBlocks as KVCacheBlocks
from .vllm_books import Books
from .vllm_coordinator import HybridKVCacheCoordinator, UnitaryKVCacheCoordinator, manager_kind
from .vllm_events import Events
from .vllm_pool import BlockPool
from .vllm_request import skips_cache
from .vllm_retention import dropping, retention_of
from .vllm_served import served, why_theirs
from .vllm_table import Table

New = Tuple[List[KVCacheBlock], ...]  # blocks per group
Computed = Union[Tuple[KVCacheBlocks, int], Tuple[KVCacheBlocks, int, int]]


def _processed(request: Any, computed: int) -> int:
    """How many of a request's computed tokens are those of steps that are done."""
    return max(0, computed - getattr(request, "num_in_flight_tokens", 0))


class HostStats(NamedTuple):
    """Blocks in host memory, and how many were moved there, and found there and brought back."""

    cached: int
    demoted: int
    promoted: int


class KVCacheManager:
    """vLLM V1's KVCacheManager on Quire.

    kv_cache_config needs num_blocks, the null block included, and kv_cache_groups, each of which
    has a kv_cache_spec with block_size, and sliding_window if it is windowed. With
    quire_host_blocks evicted blocks are kept in host memory, and found there: take_host_copies. The
    other arguments are vLLM's; without scheduler_block_size, which older versions do not pass,
    get_computed_blocks returns two values as theirs does.

    Once vllm_plugin has installed it, vLLM's manager on Quire's blocks is made instead for models
    that this one does not serve.

    theirs  vLLM's manager on Quire's blocks, once it is installed
    """

    theirs: Any = None

    def __new__(cls, *arguments: Any, **named: Any) -> Any:
        """This manager, or theirs."""
        reason = why_theirs(*arguments, **named) if cls.theirs is not None else None
        if reason is None:
            return super().__new__(cls)
        vllm_release.warn("vLLM's manager runs, on blocks of Quire: %s", reason)
        return cls.theirs(*arguments, **named)

    def __init__(self, kv_cache_config: Any, max_model_len: int,
                 scheduler_block_size: Optional[int] = None, hash_block_size: Optional[int] = None,
                 max_in_flight_tokens: Optional[int] = None, enable_caching: bool = True,
                 use_eagle: bool = False, num_hash_lookahead_tokens: int = 0,
                 num_prefill_lookahead: int = 0, log_stats: bool = False,
                 enable_kv_cache_events: bool = False, dcp_world_size: int = 1,
                 pcp_world_size: int = 1, metrics_collector: Any = None, watermark: float = 0.0,
                 enable_mamba_shared_prefix_checkpoint: bool = False,
                 instance: Optional[Instance] = None):
        vllm_release.check()
        spec = served(kv_cache_config, max_model_len, None, hash_block_size, max_in_flight_tokens,
                      enable_caching, use_eagle, num_hash_lookahead_tokens,
                      dcp_world_size=dcp_world_size, pcp_world_size=pcp_world_size)
        self.kv_cache_config = kv_cache_config
        self.max_model_len = max_model_len
        self.enable_caching = enable_caching and not spec.crosses
        self.enable_kv_cache_events = enable_kv_cache_events
        self.use_eagle = use_eagle
        self.log_stats = log_stats
        self.metrics_collector = None
        self.num_kv_cache_groups = len(spec.groups)
        self.mamba_shared_prefix_checkpoint = False
        self.prefix_cache_stats = vllm_release.prefix_cache_stats() if log_stats else None
        self.empty_kv_cache_blocks = KVCacheBlocks(tuple(() for _ in spec.groups))
        self.watermark_blocks = int(watermark * kv_cache_config.num_blocks)
        self._answers_three = scheduler_block_size is not None
        self._spec, self._sizes = spec, spec.sizes
        self.host_blocks: int = getattr(kv_cache_config, "quire_host_blocks", 0)
        self._books = Books(instance, spec, kv_cache_config.num_blocks, self.enable_caching,
                            self.host_blocks)
        self._cache = self._books.cache
        hash_size = hash_block_size or spec.block_size
        self._events = Events(spec.sizes, num_hash_lookahead_tokens,
                              [group.spec for group in spec.groups],
                              spec.block_size // hash_size, self.host_blocks != 0) \
            if enable_kv_cache_events and self.enable_caching else None
        eagle_groups = {i for i, group in enumerate(kv_cache_config.kv_cache_groups)
                        if getattr(group, "is_eagle_group", False)}
        if use_eagle and not eagle_groups:
            eagle_groups = set(range(len(spec.groups)))
        drops = dropping(spec.groups, eagle_groups) if use_eagle else ()
        self._pool = BlockPool(kv_cache_config.num_blocks, self.enable_caching, hash_size,
                               num_hash_lookahead_tokens, self._events)
        self._table = Table(self._books, self._pool.blocks, max(0, num_prefill_lookahead - 1),
                            num_hash_lookahead_tokens, hash_size,
                            retention_of(kv_cache_config, spec, drops, use_eagle))
        self._pool.serve(self._table)
        if self.enable_caching and getattr(self._table.retention, "interval", None) is not None:
            self._pool.index()
        self._admission = Admission(self._table)
        self._running = self._table.running
        self._zeroes = bool(getattr(kv_cache_config, "needs_kv_cache_zeroing", False))
        kind = UnitaryKVCacheCoordinator if len(spec.groups) == 1 else HybridKVCacheCoordinator
        self.coordinator = kind(
            tuple(manager_kind(group)(i, group, self._pool, self._zeroes, i in drops)
                  for i, group in enumerate(spec.groups)), kv_cache_config, spec, eagle_groups)
        self.coordinator.num_reprefillable_tokens = self._table.late

    @property
    def block_pool(self) -> BlockPool:
        """The block pool, for connectors: once it was read, blocks are known by vLLM's hashes."""
        if self.enable_caching:
            self._pool.index()
        return self._pool

    @property
    def usage(self) -> float:
        """The share of all blocks that requests hold."""
        return self._pool.get_usage()

    # Statistics.

    def make_prefix_cache_stats(self) -> Any:
        """The counts since the last call; None without log_stats."""
        stats = self.prefix_cache_stats
        self.prefix_cache_stats = vllm_release.prefix_cache_stats() if self.log_stats else None
        return stats

    def prefix_cache_lookup_enabled(self, request: Any) -> bool:
        """True if the request may be looked up in the cache."""
        return self.enable_caching and not skips_cache(request)

    def record_prefix_cache_stats(self, request: Any, num_hits: int) -> None:
        """Counts a lookup, and the tokens that it found."""
        if self.prefix_cache_stats is not None and self.prefix_cache_lookup_enabled(request):
            self.prefix_cache_stats.record(request.num_tokens, num_hits,
                                           getattr(request, "num_preemptions", 0) > 0)

    def estimate_cached_tokens(self, request: Any) -> int:
        """How many of a request's tokens are cached."""
        running = self._running.get(request.request_id)
        return 0 if running is None else running.due

    # Lookup.

    def get_computed_blocks(self, request: Any,
                            max_cache_hit_length: Optional[int] = None) -> Computed:
        """The blocks that are found for a request, and how many tokens they hold: at most
        max_cache_hit_length, and never the request's last token. And the end of the tokens that it
        shares with others, if they are more, but the windows' blocks before that end are not kept;
        else 0. Nothing is taken yet."""
        blocks, count, shared = self.empty_kv_cache_blocks, 0, 0
        if self.prefix_cache_lookup_enabled(request):
            count, tables, shared = self._table.look_up(request, max_cache_hit_length,
                                                        self.use_eagle)
            if tables[0]:
                of = self._pool.blocks.of
                blocks = KVCacheBlocks((of(tables[0]),) if len(tables) == 1 else
                                       tuple([of(ids) for ids in tables]))
            if count and getattr(request, "kv_cache_report_mode", "") == "full" and self._events:
                self._events.reused(request, count)
            if not self._answers_three:
                self.record_prefix_cache_stats(request, count)
        return (blocks, count, shared) if self._answers_three else (blocks, count)

    def get_computed_blocks_for_connector(
            self, request: Any, max_cache_hit_length: Optional[int] = None
    ) -> Tuple[KVCacheBlocks, int, int, bool]:
        """What get_computed_blocks finds; False, because a hit ends at the same place in all
        groups."""
        found = self.get_computed_blocks(request, max_cache_hit_length)
        return found[0], found[1], found[2] if len(found) > 2 else 0, False

    def truncate_computed_blocks(self, blocks: KVCacheBlocks,
                                 num_computed_tokens: int) -> KVCacheBlocks:
        """The first blocks of a lookup's result, for a number of tokens in whole blocks."""
        counts = [num_computed_tokens // size if size else 0 for size in self._sizes]
        if any(count * size != num_computed_tokens or count > len(group)
               for count, size, group in zip(counts, self._sizes, blocks.blocks) if size):
            raise ValueError(f"{num_computed_tokens} tokens are not the first whole blocks")
        return self.create_kv_cache_blocks(tuple(
            list(group[:count]) for count, group in zip(counts, blocks.blocks)))

    def create_kv_cache_blocks(self, blocks: Tuple[List[KVCacheBlock], ...]) -> KVCacheBlocks:
        """The blocks as a result."""
        return KVCacheBlocks(blocks) if any(blocks) else self.empty_kv_cache_blocks

    # Allocation.

    def allocate_slots(self, request: Any, num_new_tokens: int, num_new_computed_tokens: int = 0,
                       new_computed_blocks: Optional[KVCacheBlocks] = None,
                       num_lookahead_tokens: int = 0, num_external_computed_tokens: int = 0,
                       delay_cache_blocks: bool = False, num_encoder_tokens: int = 0,
                       full_sequence_must_fit: bool = False, reserved_blocks: int = 0,
                       has_scheduled_reqs: bool = True,
                       skip_zeroing_group_ids: Tuple[int, ...] = ()) -> Optional[KVCacheBlocks]:
        """Makes room for a request's next tokens and, unless that is delayed, caches those that
        fill blocks and are not drafts. Returns the new blocks: no other request has them, whatever
        is cached beyond num_new_computed_tokens. None: there are too few, and nothing changed."""
        target = request.num_computed_tokens + num_new_computed_tokens \
            + num_external_computed_tokens
        if target > self.max_model_len:
            target = self.max_model_len
        target += num_new_tokens
        need = target + num_lookahead_tokens
        if need > self.max_model_len:
            need = self.max_model_len
        running = self._running.get(request.request_id)
        if num_external_computed_tokens and self.host_blocks:
            raise UnsupportedError("quire.vllm keeps blocks in host memory, and a connector loads "
                                   "tokens: it may write to a block whose content is still to be "
                                   "copied; use only one of the two")
        if running is not None and self._spec.windowed:
            self._table.advance(running, _processed(request, target - num_new_tokens))
        if running is not None and need <= running.room and num_new_tokens > 0:
            if target >= running.mark and not delay_cache_blocks:
                self._table.name_later(running, target)
            return self.empty_kv_cache_blocks
        if num_new_tokens + num_external_computed_tokens + num_new_computed_tokens == 0:
            raise ValueError("num_new_tokens is 0, and there are no computed tokens to adopt")
        if self._spec.crosses:
            target = need = num_encoder_tokens
        elif num_encoder_tokens and not any(group.crosses for group in self._spec.groups):
            raise UnsupportedError("encoder tokens need a group of cross-attention")
        spare = reserved_blocks + self._headroom(request, running, has_scheduled_reqs)
        if full_sequence_must_fit:
            left = self._spec.left_of(min(request.num_tokens, self.max_model_len), need,
                                      target - num_new_tokens)
            spare = max(spare, left + spare - reserved_blocks)
        cached = 0 if delay_cache_blocks else min(target, request.num_tokens)
        if self._spec.windowed and num_external_computed_tokens and running is None:
            new = self._load(request, target - num_new_tokens, target, need,
                             num_new_computed_tokens, cached, spare, num_encoder_tokens)
        else:
            new = self._grow(request, target, need, num_new_computed_tokens, cached, spare,
                             num_encoder_tokens, target - num_new_tokens)
        if new is None:
            return None
        if self._zeroes:
            for manager, blocks in zip(self.coordinator.single_type_managers, new):
                if manager.records_new_block_ids and \
                        manager.kv_cache_group_id not in skip_zeroing_group_ids:
                    manager.new_block_ids += [block.block_id for block in blocks]
        return KVCacheBlocks(new) if any(new) else self.empty_kv_cache_blocks

    def _headroom(self, request: Any, running: Any, has_scheduled_reqs: bool) -> int:
        """Blocks that the admission of a waiting request must leave."""
        if self.watermark_blocks == 0 or not has_scheduled_reqs:
            return 0
        status = getattr(request, "status", None)
        waits = running is None if status is None else status.name in ("WAITING", "PREEMPTED")
        return self.watermark_blocks if waits else 0

    def _grow(self, request: Any, target: int, need: int, found: int, cached: int,
              spare: int, encoder_tokens: int, computed: int) -> Optional[New]:
        running = self._running.get(request.request_id)
        verified = min(target, request.num_tokens, need)
        if running is not None:
            if need <= running.room:
                self._table.name_later(running, cached)
                return ()
            return self._table.grow(running, verified, need, 0, cached, spare)
        if need <= 0:
            return ()
        return self._admission.start(request, verified, need, found, cached, spare, encoder_tokens,
                                     computed)

    def _load(self, request: Any, loaded: int, target: int, need: int, found: int, cached: int,
              spare: int, encoder_tokens: int) -> Optional[New]:
        """_grow for a request whose first `loaded` tokens a connector loads: it takes blocks for
        these, returns those that the window has passed, and takes the others."""
        if self._grow(request, loaded, loaded, found, 0, spare, encoder_tokens, loaded) is None:
            return None
        running = self._running[request.request_id]
        self._table.advance(running, _processed(request, loaded))
        if self._grow(request, target, need, 0, cached, spare, 0, loaded) is None:
            self.free(request)
            return None
        return tuple([block for block in running.given(group)[found // size if size else 0:]
                      if not block.is_null] for group, size in enumerate(self._sizes))

    def cache_blocks(self, request: Any, num_computed_tokens: int) -> None:
        """Caches the full blocks of the first num_computed_tokens, and no others."""
        running = self._running.get(request.request_id)
        if running is not None:
            self._table.name_later(running, num_computed_tokens)

    # Release.

    def free(self, request: Any) -> None:
        """Returns a request's blocks; those that are cached stay cached, and the tail counts as
        older than the head."""
        running = self._table.remove(request.request_id)
        if running is not None:
            self._table.end(running)

    def pop_blocks_for_free(self, request: Any) -> List[KVCacheBlock]:
        """Forgets a request, whose blocks are returned, last first, to block_pool.free_blocks."""
        running = self._table.remove(request.request_id)
        return [] if running is None else self._pool.pop(running)

    def reset_prefix_cache(self) -> bool:
        """Forgets what is cached. Returns False, and does nothing, while requests hold blocks."""
        if not self._pool.reset_prefix_cache():
            return False
        if self.prefix_cache_stats is not None:
            self.prefix_cache_stats.reset = True
        return True

    # The blocks that requests hold.

    def get_blocks(self, request_id: str) -> KVCacheBlocks:
        """The blocks that a request holds."""
        return self.create_kv_cache_blocks(self.coordinator.get_blocks(request_id))

    def get_block_ids(self, request_id: str) -> Tuple[List[int], ...]:
        """The numbers of the blocks that a request holds, per group."""
        return self.get_block_ids_for_computed_tokens(request_id, self.max_model_len)

    def get_block_ids_for_computed_tokens(self, request_id: str,
                                          num_computed_tokens: int) -> Tuple[List[int], ...]:
        """The numbers of a request's blocks for its first tokens, per group."""
        running = self._running.get(request_id)
        if running is None:
            return tuple([] for _ in self._sizes)
        tokens = None if self._spec.crosses else num_computed_tokens
        return tuple([block.block_id for block in running.given(group, tokens)]
                     for group in range(len(self._sizes)))

    def get_num_common_prefix_blocks(self, running_request_id: str) -> List[int]:
        """0 per group: cascade attention, which used it, has been removed from vLLM."""
        return [0] * self.num_kv_cache_groups

    def remove_skipped_blocks(self, request_id: str, processed_computed_tokens: int,
                              num_prompt_tokens: Optional[int] = None) -> None:
        """Returns the blocks that the window has passed, when the steps of so many of a request's
        tokens are done; null blocks take their places."""
        running = self._running.get(request_id)
        if running is not None and self._spec.windowed:
            self._table.advance(running, processed_computed_tokens)

    # Once per step.

    def new_step_starts(self) -> None:
        """Nothing: what is cached can be found at once."""

    def take_new_block_ids(self) -> List[int]:
        """Blocks to be zeroed that were given out since the last call."""
        return [block for manager in self.coordinator.single_type_managers
                for block in manager.take_new_block_ids()]

    def record_blocks_for_zeroing(self, request_id: str, start_token: int) -> None:
        """Has a request's blocks zeroed again, from a token at the start of a block on."""
        if self._zeroes:
            for manager, ids in zip(self.coordinator.single_type_managers,
                                    self.get_block_ids(request_id)):
                if manager.records_new_block_ids:
                    manager.new_block_ids += ids[start_token // manager.block_size:]

    def take_events(self) -> List[Any]:
        """What entered and left the cache since the last call, as vLLM's events."""
        return self._pool.take_events()

    def take_kv_cache_block_copies(self) -> Tuple[List[Any], List[Any]]:
        """The copies that others have asked for, and their blocks. This manager asks for none:
        only whole blocks are found."""
        pairs = [pair for manager in self.coordinator.single_type_managers
                 for pair in manager.take_pending_cow_copies()]
        return ([vllm_release.block_copy(source.block_id, target.block_id)
                 for source, target in pairs], [block for pair in pairs for block in pair])

    def take_boundary_state_offloads(self) -> Any:
        """Nothing: no states are cached."""
        return {}

    def finalize_partial_tail_offloads(self, request: Any) -> List[Any]:
        """Nothing: only whole blocks are cached."""
        return []

    def evict_blocks(self, block_ids: Any) -> None:
        """Blocks of requests are not found any more: their content is wrong."""
        self._pool.evict_blocks(block_ids)

    # Host memory.

    def take_host_copies(self) -> Any:
        """The copies between blocks and host memory since the last call: rows (1: to the host,
        0: from it; from block; to block). The engine makes them in this order, before anything else
        writes to a block. Blocks of the host have numbers from 1 to host_blocks."""
        return self._books.take_copies()

    def host_stats(self) -> "HostStats":
        """What host memory holds, and what went there and came back."""
        stats = self._books.stats()
        return HostStats(stats.host_blocks_cached, stats.blocks_demoted, stats.blocks_promoted)

    def close(self) -> None:
        """Releases everything."""
        self._cache.close()


def config(num_blocks: int, block_size: int, sliding_window: Optional[int] = None,
           host_blocks: int = 0, windows: Listed[Optional[int]] = ()) -> Any:
    """A KVCacheConfig as far as the manager reads it, for callers without vLLM: one group, or one
    for each of `windows`, of which None stands for full attention."""
    specs = [types.SimpleNamespace(block_size=block_size, sliding_window=window)
             for window in windows or (sliding_window,)]
    return types.SimpleNamespace(
        num_blocks=num_blocks, quire_host_blocks=host_blocks,
        kv_cache_groups=[types.SimpleNamespace(kv_cache_spec=spec) for spec in specs])
