# SPDX-License-Identifier: Apache-2.0
"""vllm_leased: vLLM's own manager on blocks of Quire, for models that quire.vllm does not serve
itself.

vLLM's coordinator and its managers per group decide everything, and find blocks by vLLM's hashes.
The blocks are Quire's (vllm_free.py): a lease holds those that requests hold, and a cache keeps the
others in the order in which they are taken again.

Each of vLLM's pools has a cache: there is one, and with HiSparse another one for its blocks in host
memory.

Threads: one, like vLLM's.
"""

from __future__ import annotations

import importlib
from typing import Any, List

from .vllm_free import LeasedBlocks

pools: Any = importlib.import_module("vllm.v1.core.block_pool")
hisparse: Any = importlib.import_module("vllm.v1.hisparse.block_pool")
coordinators: Any = importlib.import_module("vllm.v1.core.kv_cache_coordinator")
managers: Any = importlib.import_module("vllm.v1.core.single_type_kv_cache_manager")
manager: Any = importlib.import_module("vllm.v1.core.kv_cache_manager")


class _Leased:
    """A pool whose free blocks are Quire's."""

    def __init__(self, *arguments: Any, **named: Any):
        super().__init__(*arguments, **named)
        self.blocks: List[Any]
        self.free_block_queue = LeasedBlocks(self.blocks)


class BlockPool(_Leased, pools.BlockPool):  # type: ignore[misc]
    """vLLM's pool of blocks."""


class HostBlockPool(_Leased, hisparse.SharedEventQueueBlockPool):  # type: ignore[misc]
    """vLLM's pool of HiSparse's blocks in host memory."""


class KVCacheManager(manager.KVCacheManager):  # type: ignore[misc]
    """vLLM's manager, with vLLM's arguments."""

    def __init__(self, *arguments: Any, **named: Any):
        theirs, coordinators.BlockPool = coordinators.BlockPool, BlockPool
        try:
            super().__init__(*arguments, **named)
        finally:
            coordinators.BlockPool = theirs

    def close(self) -> None:
        """Releases Quire's books."""
        for pool in {single.block_pool for single in self.coordinator.single_type_managers}:
            pool.free_block_queue.cache.close()


def install() -> None:
    """Has HiSparse take its blocks in host memory from Quire where it has the others from it."""
    def host_pool(*arguments: Any, event_owner: Any, **named: Any) -> Any:
        kind = HostBlockPool if isinstance(event_owner, BlockPool) else \
            hisparse.SharedEventQueueBlockPool
        return kind(*arguments, event_owner=event_owner, **named)

    managers.SharedEventQueueBlockPool = host_pool
