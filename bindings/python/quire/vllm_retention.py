# SPDX-License-Identifier: Apache-2.0
"""vllm_retention: which blocks of a windowed model vLLM keeps for later requests.

With prefix_cache_retention_interval vLLM caches, of the blocks that a window passes, only those
that a later request needs to go on from certain places: the end of every interval, and the last
place at which the same prompt can be resumed. The library caches all of them. The others are in its
books until they are evicted, but they have no hash, are in no event, and no lookup ends at them.

A place that several requests pass is kept if one of them keeps it.
"""

from __future__ import annotations

import math
from typing import Any, Dict, Optional, Sequence as Listed

from .errors import UnsupportedError
from .vllm_spec import GroupSpec


class Retention:
    """What is kept of requests.

    interval  tokens; 0: only what the same prompt needs
    windows   of the groups that have one, by their numbers; the blocks of other groups are all kept
    states    the groups of Mamba, whose blocks are states
    needs     for these groups, the blocks before a place that a request going on from there sees
    """

    def __init__(self, interval: int, windows: Dict[int, int], block_size: int,
                 states: Listed[int] = (), use_eagle: bool = False):
        self._use_eagle = use_eagle
        self._segment = interval // block_size
        self._size = block_size
        self.needs = {group: -(-(window - 1) // block_size) for group, window in windows.items()}
        self.needs.update({group: 1 for group in states})

    def keeps(self, request: Any, group: int, block: int) -> bool:
        """True if the request's block of this number, from 0, is kept in a group."""
        need = self.needs.get(group)
        if need is None:
            return True
        shared = getattr(request, "shared_prefix_boundary", 0) // self._size
        last = (request.num_prompt_tokens - 1) // self._size
        ends = [last, shared]
        if self._use_eagle:  # what is found ends a block earlier
            ends = [last - 1, request.num_prompt_tokens // self._size - 1, shared, shared - 1]
        for end in ends:
            if end - need <= block < end:
                return True
        return self._segment != 0 and block % self._segment >= self._segment - need


def retention_of(config: Any, groups: Listed[GroupSpec], use_eagle: bool) -> Optional[Retention]:
    """The retention of a KVCacheConfig. None: everything is kept, as with EAGLE, whose lookups
    also need a block that they then drop."""
    interval = getattr(config, "prefix_cache_retention_interval", None)
    windows = {i: group.window for i, group in enumerate(groups)
               if group.window and not group.chunked}
    states = [i for i, group in enumerate(groups) if group.is_state]
    if interval is None or not windows and not states:
        return None
    size = math.lcm(*(group.block_size for group in groups))
    if interval < 0 or interval % size != 0:
        raise ValueError(f"prefix_cache_retention_interval is {interval}: it must be non-negative, "
                         f"and a multiple of scheduler_block_size, {size}")
    if any(group.block_size != size for group in groups):
        raise UnsupportedError("prefix_cache_retention_interval is not supported by quire.vllm "
                               "where the groups' blocks have different numbers of tokens")
    if use_eagle and not states:
        return None
    return Retention(interval, windows, size, states, use_eagle)
