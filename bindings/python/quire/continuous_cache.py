# SPDX-License-Identifier: Apache-2.0
"""continuous_cache: what transformers' scheduler and its model see of the blocks.

It takes the place of PagedAttentionCache, and is one, because transformers tells it by its class.
Of that class's own memory, ledger and sectors it has none: the books are the library's. Blocks that
are cached and that no request holds count as free, since the library takes them when it needs them.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Tuple

import torch  # type: ignore[import-not-found, unused-ignore]
from transformers.generation.continuous_batching.cache import (  # type: ignore
    PagedAttentionCache)

from .continuous_forward import ContinuousForward
from .continuous_rows import ContinuousRows

_NAME = "full_attention"  # one stand-in for all layers, under a name that transformers knows


class _Wanted(NamedTuple):
    """What a request needs, in place of transformers' number of blocks."""

    request: str
    tokens: int


class _Allocator:
    """The part of a CacheAllocator that is asked for where there are no slots to list."""

    index = 0
    layer_type = _NAME
    read_trash_index = write_trash_index = 0
    blocks_per_sector = 1

    def __init__(self) -> None:
        self.block_table: Dict[str, List[int]] = {}

    def get_seqlen_k(self, past_length: int, query_length: int) -> int:
        return past_length + query_length

    def needs_new_blocks(self, request_id: str, past_length: int, query_length: int) -> _Wanted:
        return _Wanted(request_id, query_length)


class _Pool:
    """Sectors: there are none, so none has to be given back."""

    def try_to_free_sectors(self) -> None:
        pass


class ContinuousCache(PagedAttentionCache):  # type: ignore[misc, unused-ignore]
    """The cache of one manager. It does not own the rows."""

    max_blocks_per_request = 0        # no block table is filled for flash attention
    max_decode_fast_path_length = 0
    read_cache_limit = 0              # no index of what attention reads is built

    def __init__(self, rows: ContinuousRows, forward: ContinuousForward, config: Any,
                 batching: Any, dtype: Any):
        self._rows, self._forward = rows, forward
        self.config, self.dtype, self.device = config, dtype, torch.device("cpu")
        blocks = rows.store.blocks
        usable = min(blocks.pool(group).blocks - 1 for group in range(len(blocks.groups)))
        self.num_blocks = self.num_sectors = usable
        self.max_tokens_read = usable * blocks.pool(0).block_tokens
        self.max_batch_tokens = batching.max_batch_tokens or rows.store.max_query_tokens
        self.bytes_per_sector = max(1, blocks.info.pool_bytes // (usable + 1))
        self.allow_block_sharing = batching.allow_block_sharing
        self.use_prefix_sharing = batching.allow_block_sharing and rows.shares
        self.cache_allocators = {_NAME: _Allocator()}
        self.pool = _Pool()

    # The scheduler's questions.

    def can_store_request_tokens(self, state: Any, request_len: int, dry_run: bool = False) -> bool:
        left = len(state.remaining_prefill_tokens) - 1
        if state.num_children > 0 and request_len >= left >= 0:
            request_len = left  # the scheduler leaves a token for the forks
        return self._rows.reserve(state, request_len)

    def count_storable_requests(self, list_blocks_needed: List[Dict[str, Any]]) -> int:
        return self._rows.storable([(wanted[_NAME].request, wanted[_NAME].tokens)
                                    for wanted in list_blocks_needed])

    def search_prefix_match(self, request_id: str, prompt_ids: List[int]) -> int:
        return self._rows.find(request_id, prompt_ids) if self.use_prefix_sharing else 0

    def compute_free_capacity(self, relative: bool = True) -> float:
        part = self._rows.free_part()
        return part if relative else part * self.num_blocks * self.bytes_per_sector

    def evict_cached_blocks(self) -> bool:
        """Cached blocks are free already. True: asking for the same again will help."""
        return self._rows.lost_hit()

    def count_new_complete_blocks(self, state: Any, request_len: int) -> Dict[str, int]:
        return {}  # the library publishes them

    def mark_complete_blocks(self, state: Any, complete_blocks: Dict[str, int]) -> None:
        pass

    # Ends and forks.

    def free_blocks(self, request_id: str, no_cache: bool = False) -> None:
        self._forward.drop()
        self._rows.free(request_id)

    def free_all_requests(self, clear_ledgers: bool = False) -> None:
        self._forward.drop()
        self._rows.free_all()
        if clear_ledgers:
            self._rows.store.blocks.reset()

    def reset(self) -> None:
        self.free_all_requests(clear_ledgers=True)

    def prepare_fork_request(self, src_state: Any, dst_req_ids: List[str],
                             copy_src_and_dst: Any) -> List[str]:
        return self._rows.fork(src_state.request_id, dst_req_ids)

    def perform_cache_copy(self, copy_src_and_dst: Any) -> None:
        """The library copies a shared block when one of its sequences writes to it."""

    # The batch.

    def extend_read_and_write_indices(self, request_id: str, past_length: int, query_length: int,
                                      read_index: Any, write_index: Any) -> None:
        self._rows.check_scheduled(request_id, past_length, query_length)

    def update(self, key_states: Any, value_states: Any, layer_idx: int,
               kwargs: Any = None) -> Tuple[Any, Any]:
        return self._forward.update(key_states, value_states, layer_idx)
