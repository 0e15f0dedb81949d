# SPDX-License-Identifier: Apache-2.0
"""vllm_pool: the parts of vLLM's manager that its scheduler and connectors reach into: the block
pool, and the coordinator with its manager per group.

They offer what those callers use. Everything else is missing, so that its use is an AttributeError.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Tuple

from .errors import UnsupportedError
from .vllm_blocks import Blocks, KVCacheBlock
from .vllm_running import Running
from .vllm_table import Table


class _Queue:
    """vLLM's list of free blocks, as far as it is counted."""

    def __init__(self, pool: "BlockPool"):
        self._pool = pool

    @property
    def num_free_blocks(self) -> int:
        return self._pool.get_num_free_blocks()


class BlockPool:
    """vLLM's BlockPool: blocks by number, how many are free, and the return of what
    pop_blocks_for_free took."""

    def __init__(self, count: int, enable_caching: bool):
        self.num_gpu_blocks = count
        self.enable_caching = enable_caching
        self.blocks = Blocks(count, self)
        self.null_block = self.blocks[0]
        self.free_block_queue = _Queue(self)
        self.table: Table
        self._popped: Dict[Tuple[int, ...], List[Running]] = {}

    def get_num_free_blocks(self) -> int:
        """Blocks that a request could take, cached ones included."""
        return self.table.free_count()

    def get_usage(self) -> float:
        """The share of all blocks that requests hold."""
        return 1.0 - self.get_num_free_blocks() / max(1, self.num_gpu_blocks - 1)

    def references(self, block: KVCacheBlock) -> int:
        """How many requests hold a block."""
        return sum(block in running.blocks[:running.given]
                   for running in self.table.running.values())

    def pop(self, running: Running) -> List[KVCacheBlock]:
        """The blocks of a removed request, which holds them until free_blocks returns them."""
        blocks = running.blocks[:running.given]
        self._popped.setdefault(tuple(block.block_id for block in blocks), []).append(running)
        return blocks

    def free_blocks(self, ordered_blocks: Iterable[KVCacheBlock]) -> None:
        """Returns the blocks of one popped request, last block first."""
        ids = tuple(block.block_id for block in ordered_blocks)[::-1]
        if not ids:
            return
        if ids not in self._popped:
            raise UnsupportedError("free_blocks takes all blocks of one request, as "
                                   "pop_blocks_for_free returned them, in reverse order")
        popped = self._popped[ids]
        self.table.end(popped.pop())
        if not popped:
            del self._popped[ids]

    def touch(self, blocks: Any) -> None:
        """Raises UnsupportedError."""
        raise UnsupportedError("touch is not supported: a block is held by a request or by none")

    def get_cached_block(self, block_hash: Any, kv_cache_group_ids: Any) -> Any:
        """Raises UnsupportedError."""
        raise UnsupportedError("get_cached_block is not supported: blocks are found by their "
                               "tokens, not by vLLM's hashes")

    def evict_blocks(self, block_ids: Any) -> None:
        """Raises UnsupportedError."""
        raise UnsupportedError("evict_blocks is not supported: blocks leave the cache only by age")


class GroupManager:
    """vLLM's manager of one group, as far as the scheduler and connectors read it."""

    retains_longer_hit = False

    def __init__(self, spec: Any, block_size: int, pool: BlockPool, zeroes: bool, use_eagle: bool):
        self.kv_cache_spec = spec
        self.kv_cache_group_id = 0
        self.block_size = block_size
        self.block_pool = pool
        self._null_block = pool.null_block
        self.use_eagle = use_eagle
        self.records_new_block_ids = zeroes
        self.new_block_ids: List[int] = []

    @property
    def req_to_blocks(self) -> Dict[str, List[KVCacheBlock]]:
        """The blocks of each request."""
        return {name: running.blocks[:running.given]
                for name, running in self.block_pool.table.running.items()}

    @property
    def num_cached_block(self) -> Dict[str, int]:
        """How many blocks of each request are cached."""
        return {name: running.due // running.size
                for name, running in self.block_pool.table.running.items()}

    def take_new_block_ids(self) -> List[int]:
        """Blocks to be zeroed that were given out since the last call."""
        taken, self.new_block_ids = self.new_block_ids, []
        return taken


class Coordinator:
    """vLLM's coordinator, as far as the scheduler and connectors read it."""

    enable_partial_hash_hits = False
    num_reprefillable_tokens = 0
    def __init__(self, manager: GroupManager, config: Any, most_blocks: int):
        self.single_type_managers = (manager,)
        self.kv_cache_config = config
        self.block_pool = manager.block_pool
        self.eagle_group_ids = {0} if manager.use_eagle else set()
        self.retention_interval = getattr(config, "prefix_cache_retention_interval", None)
        self._most_blocks = most_blocks

    def get_blocks(self, request_id: str) -> Tuple[List[KVCacheBlock], ...]:
        """The blocks of a request, per group."""
        running = self.block_pool.table.running.get(request_id)
        return ([] if running is None else running.blocks[:running.given],)

    def get_num_blocks_to_allocate(self, request_id: str, num_tokens: int,
                                   new_computed_blocks: Any = ((),),
                                   num_encoder_tokens: int = 0, total_computed_tokens: int = 0,
                                   num_local_computed_tokens: int = 0,
                                   num_tokens_main_model: int = 0,
                                   apply_admission_cap: bool = False, prefill_end: int = 0) -> int:
        """How many more blocks a request needs to hold `num_tokens`."""
        size = self.single_type_managers[0].block_size
        wanted = -(-num_tokens // size)
        if apply_admission_cap:
            wanted = min(wanted, self._most_blocks)
        running = self.block_pool.table.running.get(request_id)
        held = running.given if running else len(new_computed_blocks[0])
        return max(0, wanted - held)
