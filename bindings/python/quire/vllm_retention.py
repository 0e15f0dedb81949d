# SPDX-License-Identifier: Apache-2.0
"""vllm_retention: which blocks of a windowed model vLLM keeps for later requests.

With prefix_cache_retention_interval, or where the groups' blocks have different numbers of tokens,
vLLM caches, of the blocks that a window passes, only those that a later request needs to go on from
certain places: the end of every interval, or of every span, and the last place at which the same
prompt can be resumed. The library caches all of them. The others are in its books until they are
evicted, but they have no hash, are in no event, and no lookup ends at them.

A place that several requests pass is kept if one of them keeps it.
"""

from __future__ import annotations

import math
from typing import Any, Dict, Optional, Sequence as Listed

from .vllm_spec import GroupSpec


class Retention:
    """What is kept of requests.

    interval  tokens; 0: only what the same prompt needs; None: the end of every span
    windows   of the groups that have one, by their numbers; the blocks of other groups are all kept
    sizes     tokens per block of each group
    states    the groups of Mamba, whose blocks are states
    needs     for these groups, the blocks before a place that a request going on from there sees
    """

    def __init__(self, interval: Optional[int], windows: Dict[int, int], sizes: Listed[int],
                 states: Listed[int] = (), use_eagle: bool = False):
        self.interval, self.sizes = interval, sizes
        self._use_eagle = use_eagle
        self._span = math.lcm(*sizes)
        self._segment = self._span if interval is None else interval
        self.needs = {group: -(-(window - 1) // sizes[group]) for group, window in windows.items()}
        self.needs.update({group: 1 for group in states})

    def keeps(self, request: Any, group: int, block: int) -> bool:
        """True if the request's block of this number, from 0, is kept in a group."""
        need = self.needs.get(group)
        if need is None:
            return True
        size = self.sizes[group]
        segment = self._segment // size
        if segment != 0 and block % segment >= segment - need:
            return True
        if self.interval is None:
            return False
        shared = getattr(request, "shared_prefix_boundary", 0) // self._span
        last = (request.num_prompt_tokens - 1) // self._span
        ends = [last, shared]
        if self._use_eagle:  # what is found ends a block earlier
            ends = [last - 1, request.num_prompt_tokens // self._span - 1, shared, shared - 1]
        return any(end * self._span // size - need <= block < end * self._span // size
                   for end in ends)


def retention_of(config: Any, groups: Listed[GroupSpec], use_eagle: bool) -> Optional[Retention]:
    """The retention of a KVCacheConfig. None: everything is kept, as with EAGLE, whose lookups
    also need a block that they then drop."""
    interval = getattr(config, "prefix_cache_retention_interval", None)
    windows = {i: group.window for i, group in enumerate(groups)
               if group.window and group.passes and not group.chunked}
    states = [i for i, group in enumerate(groups) if group.is_state]
    span = math.lcm(*[group.block_size for group in groups if not group.is_scratch])
    sizes = [span if group.is_scratch else group.block_size for group in groups]
    if interval is None:  # of a span, vLLM keeps what a request needs that goes on from its end
        is_mixed = any(size != span for size in sizes)
        return Retention(None, windows, sizes) if windows and is_mixed and not use_eagle else None
    if not windows and not states:
        return None
    if interval < 0 or interval % span != 0:
        raise ValueError(f"prefix_cache_retention_interval is {interval}: it must be non-negative, "
                         f"and a multiple of scheduler_block_size, {span}")
    if use_eagle and not states:
        return None
    return Retention(interval, windows, sizes, states, use_eagle)
