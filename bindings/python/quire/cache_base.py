# SPDX-License-Identifier: Apache-2.0
"""cache_base: what sequences, batches and steps need from the cache that they belong to."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence as Listed, Tuple

from .groups import Group, Shard
from .libquire import new
from .objects import Object


class CacheBase(Object):
    """A cache as seen from below. The only kind of it is Cache, which makes them all."""

    _name = "cache"
    _destroy = "cache_destroy"

    groups: List[Group]
    layer_groups: List[int]
    shards: List[Shard]

    def _call(self, function: str, *arguments: Any, beside: Listed[Object] = ()) -> int:
        library = self._library
        return library.call(getattr(library.api, function), self, *arguments, beside=beside)

    def _set_shards(self, shards: List[Shard]) -> None:
        self.shards = shards
        self._head_counts: Dict[Tuple[int, int], int] = {}

    def _host_visible(self, shard: int) -> bool:
        return not self.shards or self.shards[shard].device._host_visible

    def _heads(self, group: int, shard: int) -> int:
        """How many KV heads of a group a shard holds."""
        count = self._head_counts.get((group, shard))
        if count is None:
            info = new("quire_pool_info")
            self._call("cache_get_pool", group, shard, info)
            count = self._head_counts[group, shard] = int(info.head_count)
        return count
