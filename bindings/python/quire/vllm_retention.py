# SPDX-License-Identifier: Apache-2.0
"""vllm_retention: which blocks of a windowed model vLLM keeps for later requests.

With prefix_cache_retention_interval vLLM caches, of the blocks that a window passes, only those
that a later request needs to go on from certain places: the end of every interval, and the last
place at which the same prompt can be resumed. The library caches all of them. The others are in its
books until they are evicted, but they have no hash, are in no event, and no lookup ends at them.

A place that several requests pass is kept if one of them keeps it.
"""

from __future__ import annotations

from typing import Any, Optional


class Retention:
    """What is kept of requests.

    interval  tokens; 0: only what the same prompt needs
    need      blocks before a place that a request going on from there sees
    """

    def __init__(self, interval: int, window: int, block_size: int):
        self._segment = interval // block_size
        self._size = block_size
        self.need = -(-(window - 1) // block_size)

    def keeps(self, request: Any, block: int) -> bool:
        """True if the request's block of this number, from 0, is kept."""
        end = (request.num_prompt_tokens - 1) // self._size
        if end - self.need <= block < end:
            return True
        return self._segment != 0 and block % self._segment >= self._segment - self.need


def retention_of(config: Any, window: int, chunked: bool, block_size: int,
                 use_eagle: bool) -> Optional[Retention]:
    """The retention of a KVCacheConfig. None: everything is kept, as with EAGLE, whose lookups
    also need a block that they then drop."""
    interval = getattr(config, "prefix_cache_retention_interval", None)
    if interval is None or not window or chunked or use_eagle:
        return None
    if interval < 0 or interval % block_size != 0:
        raise ValueError(f"prefix_cache_retention_interval is {interval}: a multiple of the block "
                         f"size, {block_size}, and not negative")
    return Retention(interval, window, block_size)
