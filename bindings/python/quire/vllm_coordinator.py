# SPDX-License-Identifier: Apache-2.0
"""vllm_coordinator: vLLM's coordinator with its manager per group, as far as its scheduler and
connectors reach into them.

Everything else is missing, so that its use is an AttributeError.
"""

from __future__ import annotations

from typing import Any, Dict, List, Set, Tuple, Type

from .errors import UnsupportedError
from .vllm_blocks import KVCacheBlock
from .vllm_pool import BlockPool
from .vllm_spec import GroupSpec, Spec


class GroupManager:
    """vLLM's manager of one group, as far as the scheduler and connectors read it. The names of the
    classes below are vLLM's, for callers that ask for a group by its manager's class."""

    retains_longer_hit = False
    has_positionally_stable_blocks = True

    def __init__(self, number: int, spec: GroupSpec, pool: BlockPool, zeroes: bool,
                 use_eagle: bool):
        self.kv_cache_spec = spec.spec
        self.kv_cache_group_id = number
        self.block_size = spec.block_size
        self.dcp_world_size = spec.ranks
        self.block_pool = pool
        self._null_block = pool.null_block
        self.use_eagle = use_eagle
        self.records_new_block_ids = zeroes and spec.is_zeroed
        self.new_block_ids: List[int] = []
        self._pending_cow_copies: List[Tuple[KVCacheBlock, KVCacheBlock]] = []

    @property
    def req_to_blocks(self) -> Dict[str, List[KVCacheBlock]]:
        """The blocks of each request."""
        return {name: running.given(self.kv_cache_group_id)
                for name, running in self.block_pool.table.running.items()}

    @property
    def num_cached_block(self) -> Dict[str, int]:
        """How many blocks of each request are cached."""
        is_cached = self.kv_cache_group_id in self.block_pool.table.books.cached
        return {name: running.due // self.block_size if is_cached else 0
                for name, running in self.block_pool.table.running.items()}

    def take_pending_cow_copies(self) -> List[Tuple[KVCacheBlock, KVCacheBlock]]:
        """Copies that others have asked for: this manager needs none."""
        taken, self._pending_cow_copies = self._pending_cow_copies, []
        return taken

    def take_new_block_ids(self) -> List[int]:
        """Blocks to be zeroed that were given out since the last call."""
        taken, self.new_block_ids = self.new_block_ids, []
        return taken


class FullAttentionManager(GroupManager):
    """Of full attention."""


class SlidingWindowManager(GroupManager):
    """Of windows, cached or with bounded replay."""


class ChunkedLocalAttentionManager(GroupManager):
    """Of chunks."""


class MambaManager(GroupManager):
    """Of states."""


class CrossAttentionManager(GroupManager):
    """Of an encoder's tokens."""


class CircularBufferManager(GroupManager):
    """Of rings."""


KINDS: Tuple[Type[GroupManager], ...] = (
    FullAttentionManager, SlidingWindowManager, ChunkedLocalAttentionManager, MambaManager,
    CrossAttentionManager, CircularBufferManager)


def manager_kind(spec: GroupSpec) -> Type[GroupManager]:
    """The class of a group's manager."""
    if spec.crosses:
        return CrossAttentionManager
    if spec.is_ring:
        return CircularBufferManager
    if spec.is_uncached_state or spec.states:
        return MambaManager
    if spec.chunked:
        return ChunkedLocalAttentionManager
    return SlidingWindowManager if spec.window else FullAttentionManager


class KVCacheCoordinator:
    """vLLM's coordinators, as far as the scheduler and connectors read them."""

    enable_partial_hash_hits = False
    num_reprefillable_tokens = 0

    def __init__(self, managers: Tuple[GroupManager, ...], config: Any, spec: Spec,
                 eagle_groups: Set[int]):
        self.single_type_managers = managers
        self.kv_cache_config = config
        self.block_pool = managers[0].block_pool
        self.eagle_group_ids = eagle_groups
        self.retention_interval = getattr(config, "prefix_cache_retention_interval", None)
        self._spec = spec

    def get_blocks(self, request_id: str) -> Tuple[List[KVCacheBlock], ...]:
        """The blocks of a request, per group."""
        running = self.block_pool.table.running.get(request_id)
        return tuple([] if running is None else running.given(group)
                     for group in range(len(self.single_type_managers)))

    def get_num_blocks_to_allocate(self, request_id: str, num_tokens: int,
                                   new_computed_blocks: Any = ((),),
                                   num_encoder_tokens: int = 0, total_computed_tokens: int = 0,
                                   num_local_computed_tokens: int = 0,
                                   num_tokens_main_model: int = 0,
                                   apply_admission_cap: bool = False, prefill_end: int = 0) -> int:
        """How many more blocks a request needs to hold `num_tokens`."""
        running = self.block_pool.table.running.get(request_id)
        needed = 0
        for i, (group, found) in enumerate(zip(self._spec.groups, new_computed_blocks)):
            tokens = num_encoder_tokens if group.crosses and self._spec.fixed else num_tokens
            wanted = group.states or -(-tokens // group.block_size)
            if group.is_scratch:
                held = len(running.tables[i]) if running else group.passed(total_computed_tokens)
                wanted = group.scratch_blocks(num_tokens)
                if apply_admission_cap:
                    wanted = min(wanted, group.most_blocks)
                needed += max(0, wanted - held)
                continue
            if apply_admission_cap:
                wanted = min(wanted, group.most_blocks)
            needed += max(0, wanted - len(running.given(i) if running else found))
        return needed


class UnitaryKVCacheCoordinator(KVCacheCoordinator):
    """Of one group: callers tell it by its name."""


class HybridKVCacheCoordinator(KVCacheCoordinator):
    """Of several groups."""

    def find_longest_cache_hit_per_group(
            self, block_hashes: Any,
            max_cache_hit_length: int) -> Tuple[Tuple[List[KVCacheBlock], ...], Tuple[int, ...]]:
        """The blocks that are found in each group if the others are not asked, and for how many
        tokens. Errors: UnsupportedError if a group has a window, or EAGLE is used."""
        if self.eagle_group_ids or self._spec.has_windows:
            raise UnsupportedError("hits of single groups with windows or EAGLE are not supported "
                                   "by quire.vllm")
        index = self.block_pool.index()
        size = self._spec.block_size
        scale = size // self.block_pool.hash_block_size
        hashes = block_hashes[scale - 1::scale][:max_cache_hit_length // size]
        found: List[List[KVCacheBlock]] = []
        for i, group in enumerate(self._spec.groups):
            found.append([])
            for hash_ in hashes if not group.is_scratch else ():
                entry = index.find(i, hash_)
                if entry is None:
                    break
                found[i].append(self.block_pool.blocks[entry.block])
        return tuple(found), tuple(len(blocks) * size for blocks in found)
