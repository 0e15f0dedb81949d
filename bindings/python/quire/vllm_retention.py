# SPDX-License-Identifier: Apache-2.0
"""vllm_retention: which blocks of a windowed model vLLM keeps for later requests.

With prefix_cache_retention_interval, or beside groups with larger blocks that are not cached, vLLM
caches, of the blocks that a window passes, only those that a later request needs to go on from
certain places: the end of every interval, or of every span, which hits are multiples of, and the
last place at which the same prompt can be resumed. The library caches all of them. The others are
in its books until they are evicted, but they have no hash, are in no event, and no lookup ends at
them.

With EAGLE a lookup of a group finds one more block and drops it, so that block is kept as well, and
the places at which a prompt can be resumed are a span earlier.

A place that several requests pass is kept if one of them keeps it.

The rules are those of vLLM 0.33.0: reachable_block_mask of its managers of single types, and
replay_boundaries of its coordinators.
"""

from __future__ import annotations

from typing import Any, Container, Dict, Iterator, Optional, Sequence as Listed

from .vllm_spec import GroupSpec, Spec


class Retention:
    """What is kept of requests.

    interval   tokens; 0: only what the same prompt needs; None: the end of every span
    span       tokens: what hits are multiples of
    windows    of the groups that have one, by their numbers; of other groups all blocks are kept
    size       tokens per block
    drops      the groups whose lookups drop a block, with EAGLE
    use_eagle  True if there are any, also without a window
    needs      for windows, the blocks that a request sees that goes on from a place, and the one
               after it that its lookup drops
    """

    def __init__(self, interval: Optional[int], span: int, windows: Dict[int, int], size: int,
                 drops: Container[int] = (), use_eagle: bool = False):
        self.interval, self._size = interval, size
        self._use_eagle, self._drops = use_eagle, drops
        self._span = span
        self._segment = span if interval is None else interval
        self._past = {group: int(group in drops) for group in windows}
        self.needs = {group: -(-(window - 1) // size) + self._past[group]
                      for group, window in windows.items()}

    def drops(self, group: int) -> bool:
        """True if lookups of a group drop a block."""
        return group in self._drops

    def places(self, group: int, tokens: int) -> range:
        """The blocks of a group that a lookup needs which ends after so many tokens."""
        end = tokens // self._size + self._past[group]
        return range(max(0, end - self.needs[group]), end)

    def keeps(self, request: Any, group: int, block: int) -> bool:
        """True if the request's block of this number, from 0, is kept in a group."""
        need = self.needs.get(group)
        if need is None:
            return True
        segment, past = self._segment // self._size, self._past[group]
        if segment != 0 and (need >= segment or
                             block >= past and (block - past) % segment >= segment - need):
            return True
        return self.interval is not None and any(
            block in self.places(group, end // self._span * self._span)
            for end in self._ends(request, group))

    def _ends(self, request: Any, group: int) -> Iterator[int]:
        """Where requests may go on with the same prompt, or with a prefix that others share."""
        prompt = request.num_prompt_tokens
        if self._use_eagle:
            yield max(0, (prompt - 1) // self._span - 1) * self._span
            yield max(0, prompt // self._span - 1) * self._span
        else:
            yield prompt - 1
        shared = getattr(request, "shared_prefix_boundary", 0)
        if shared:
            yield shared
            if group in self._drops:
                yield max(0, shared - self._size)


def dropping(groups: Listed[GroupSpec], eagle_groups: Container[int]) -> Listed[int]:
    """The groups whose lookups drop a block: those of EAGLE and those like them, which vLLM looks
    up together."""
    marked = [group.spec for i, group in enumerate(groups) if i in eagle_groups]
    return [i for i, group in enumerate(groups) if group.spec in marked]


def retention_of(config: Any, spec: Spec, drops: Container[int],
                 use_eagle: bool) -> Optional[Retention]:
    """The retention of a KVCacheConfig. None: everything is kept."""
    interval = getattr(config, "prefix_cache_retention_interval", None)
    groups, span = spec.groups, spec.alignment
    windows = {i: group.window for i, group in enumerate(groups)
               if group.window and group.passes and not group.chunked}
    size = spec.block_size
    if not windows or interval is None and size == span:
        return None
    if interval is None:  # of a span, vLLM keeps what a request needs that goes on from its end
        return Retention(None, span, windows, size, drops)
    if interval < 0 or interval % span != 0:
        raise ValueError(f"prefix_cache_retention_interval is {interval}: it must be non-negative, "
                         f"and a multiple of scheduler_block_size, {span}")
    return Retention(interval, span, windows, size, drops, use_eagle)
