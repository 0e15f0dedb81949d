# SPDX-License-Identifier: Apache-2.0
"""event_wire: a cache's events in the form in which vLLM publishes its own, so that a router that
follows vLLM follows Quire.

Source: the module vllm.distributed.kv_events of vLLM 0.33.0. A batch is the msgpack array [seconds,
events, rank]; an event is a map whose "type" names it. As an array, the form of earlier releases,
which llm-d reads, an event has the same values in the same order, with its type first.

block_hashes  A router only compares these numbers; what it looks up are the hashes that it computes
              from token_ids itself. So a block's number serves, plus a random base in [2^62, 2^63)
              per publisher: routers keep the blocks of many engines in one table, where two
              engines' numbers must differ. As a base is above 2^32, every msgpack library writes a
              hash as 64 bits, the only width that llm-d's decoder takes.
lora_name     The name of a namespace that has one: to a router that is other content of equal
              tokens, which is what a namespace is.

What a router that goes by tokens alone must not find is left out: keyed blocks, blocks without
tokens, namespaces other than the default one that have no name, and all blocks after one that is
left out.
"""

from __future__ import annotations

import secrets
from typing import Any, Dict, Iterator, List, Optional, Sequence, Set, Tuple

from .events import EventFlags, EventKind, Events
from .groups import Group, GroupKind

# Words for the levels: vLLM's for device memory, the host tier and a store; and Dynamo's for one
# that other machines share, which vLLM calls STORAGE of another locality, and Dynamo passes over.
_MEDIA = ("GPU", "CPU", "STORAGE", "EXTERNAL")
_WITH_TOKENS = EventFlags.HAS_TOKENS | EventFlags.KEYED

# vLLM's kv_cache_spec_kind. Routers count on the blocks of full attention only.
_KINDS = {GroupKind.FULL: "full_attention", GroupKind.WINDOW: "sliding_window",
          GroupKind.CHUNKED: "chunked_local_attention", GroupKind.LATENT: "mla_attention",
          GroupKind.CROSS: "cross_attention"}


def _spec(group: Group) -> Tuple[str, Optional[int]]:
    return _KINDS[GroupKind(group.kind)], group.window or None


def _continues(last: Any, kind: str, group: int, level: int) -> bool:
    return (last is not None and last["type"] == kind and last["group_idx"] == group
            and last["medium"] == _MEDIA[level])


class EventWire:
    """Follows what one cache tells, and says it in vLLM's words."""

    def __init__(self, groups: Sequence[Group], block_tokens: int, names: Dict[int, Optional[str]],
                 arrays: bool):
        self._specs = [_spec(group) for group in groups]
        self._block_tokens = block_tokens
        self._names = names
        self._arrays = arrays
        self._base = secrets.randbits(62) | 1 << 62
        # Blocks, per group and level.
        self._told: List[List[Set[int]]] = [[set() for _ in _MEDIA] for _ in groups]

    def say(self, read: Events) -> List[Any]:
        """The events of a batch. Neighbours that continue each other become one."""
        said: List[Any] = []
        last: Any = None  # what the next event may continue
        for (kind, flags, block, parent, ns, group, level, _position, count, offset,
             _reserved) in read.events.tolist():
            if kind == EventKind.CLEARED:
                for told in self._places():
                    told.clear()
                said.append({"type": "AllBlocksCleared"})
                last = None
            elif kind == EventKind.REMOVED:
                last = self._remove(block, group, level, last, said)
            elif (flags & _WITH_TOKENS == EventFlags.HAS_TOKENS and level < len(_MEDIA)
                  and ns in self._names
                  and (parent == 0 or any(parent in told for told in self._places()))):
                self._told[group][level].add(block)
                tokens = read.tokens[offset:offset + count].tolist()
                last = self._store(block, parent, ns, (group, level), tokens, last, said)
        return [list(event.values()) for event in said] if self._arrays else said

    def _places(self) -> Iterator[Set[int]]:
        return (told for levels in self._told for told in levels)

    def _remove(self, block: int, group: int, level: int, last: Any, said: List[Any]) -> Any:
        if level >= len(_MEDIA) or block not in self._told[group][level]:
            return last
        self._told[group][level].remove(block)
        if not _continues(last, "BlockRemoved", group, level):
            last = {"type": "BlockRemoved", "block_hashes": [], "medium": _MEDIA[level],
                    "group_idx": group}
            said.append(last)
        last["block_hashes"].append(self._base + block)
        return last

    def _store(self, block: int, parent: int, ns: int, place: Tuple[int, int], tokens: List[int],
               last: Any, said: List[Any]) -> Any:
        group, level = place
        before = self._base + parent if parent != 0 else None
        if (not _continues(last, "BlockStored", group, level)
                or last["block_hashes"][-1] != before or last["lora_name"] != self._names[ns]):
            kind, window = self._specs[group]
            last = {"type": "BlockStored", "block_hashes": [], "parent_block_hash": before,
                    "token_ids": [], "block_size": self._block_tokens, "lora_id": None,
                    "medium": _MEDIA[level], "lora_name": self._names[ns]}
            if self._arrays:
                last["extra_keys"] = None
            last["group_idx"] = group
            last["kv_cache_spec_kind"] = kind
            if window is not None:
                last["kv_cache_spec_sliding_window"] = window
            said.append(last)
        last["block_hashes"].append(self._base + block)
        last["token_ids"] += tokens
        return last
