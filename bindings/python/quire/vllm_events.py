# SPDX-License-Identifier: Apache-2.0
"""vllm_events: KV cache events as vLLM's own objects, from what the library told."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import sys
from typing import Any, Dict, List, Optional, Sequence as Listed, Tuple

from . import vllm_release
from .vllm_index import Name
from .vllm_running import Running, hashes_of


@dataclasses.dataclass
class BlockStored:
    """Blocks that were cached, each after the one before it."""

    block_hashes: List[Any]
    parent_block_hash: Any
    token_ids: List[int]
    block_size: int
    lora_id: Optional[int]
    medium: str
    lora_name: Optional[str]
    extra_keys: Any
    group_idx: int
    session_id: Optional[str]
    lookahead_token_ids: Optional[List[List[int]]]
    kv_cache_spec_kind: Optional[str] = None
    kv_cache_spec_sliding_window: Optional[int] = None


@dataclasses.dataclass
class BlockRemoved:
    """Blocks that are cached no longer."""

    block_hashes: List[Any]
    medium: str
    group_idx: int


@dataclasses.dataclass
class AllBlocksCleared:
    """Nothing is cached any more."""


class _WithoutVllm:
    """What stands for vLLM's modules where vLLM does not run: hashes as they are, no extra keys."""

    BlockStored, BlockRemoved, AllBlocksCleared = BlockStored, BlockRemoved, AllBlocksCleared

    @staticmethod
    def maybe_convert_block_hash(hash_: Any) -> Any:
        return hash_

    @staticmethod
    def to_event_extra_keys(keys: Any) -> None:
        return None

    @staticmethod
    def generate_block_hash_extra_keys(request: Any, start: int, end: int,
                                       first: int) -> Tuple[None, int]:
        return None, first

    @staticmethod
    def generate_lookahead_block_hash_extra_keys(request: Any, start: int, end: int, hashed: int,
                                                 first: int) -> Tuple[None, int]:
        return None, first


class Events:
    """The events that take_events returns next, in the order in which they came.

    sizes      tokens per block of each group; 0: it is not cached
    lookahead  tokens after each block that its hash covers
    specs      vLLM's spec of each group
    scale      how many of vLLM's hashes there are per block
    moves      True if blocks move between levels
    """

    medium = "GPU"
    _media = (medium, "CPU")  # by level

    def __init__(self, sizes: Listed[int], lookahead: int, specs: Listed[Any],
                 scale: int, moves: bool = False):
        self._sizes, self._lookahead, self._scale = sizes, lookahead, scale
        self._moves = moves
        self._said: Dict[Name, Any] = {}  # the event of each block that may move
        self._kinds: Any = _WithoutVllm
        self._hashes: Any = _WithoutVllm
        self._specs: List[Tuple[Optional[str], Optional[int]]] = [(None, None)] * len(specs)
        if "vllm.v1.request" in sys.modules:
            self._kinds = importlib.import_module("vllm.distributed.kv_events")
            self._hashes = importlib.import_module("vllm.v1.core.kv_cache_utils")
            kinds: Any = importlib.import_module("vllm.v1.kv_cache_interface")
            self._specs = [(kinds.get_kv_cache_spec_kind(spec).value,
                            kinds.get_kv_cache_spec_sliding_window(spec)) for spec in specs]
        self.queue: List[Any] = []

    def take(self) -> List[Any]:
        """The events since the last call, with what kind of group each one is of; another may have
        added some."""
        taken, self.queue = self.queue, []
        for event in taken:
            group = getattr(event, "group_idx", None)
            if not hasattr(event, "kv_cache_spec_kind") or group is None:
                continue
            if 0 <= group < len(self._specs):
                event.kv_cache_spec_kind, event.kv_cache_spec_sliding_window = self._specs[group]
            else:
                vllm_release.warn("Group index `%s` not in KV cache metadata", group)
        return taken

    def stored(self, group: int, running: Running, begin: int, end: int) -> None:
        """Blocks of a request in a group, the first and the last + 1, were cached."""
        hashes = running.hash_list(group)
        self._tell(running.request, group, hashes, begin, end)
        if self._moves:
            for i in range(begin, end):
                self._said[group, hashes[i]] = self._one(self.queue[-1], i - begin,
                                                         self._sizes[group])

    @staticmethod
    def _one(event: Any, i: int, size: int) -> Any:
        """The event of one of an event's blocks."""
        one = copy.copy(event)
        if i:
            one.parent_block_hash = event.block_hashes[i - 1]
        one.block_hashes = event.block_hashes[i:i + 1]
        one.token_ids = event.token_ids[i * size:(i + 1) * size]
        one.extra_keys = event.extra_keys and event.extra_keys[i:i + 1]
        one.lookahead_token_ids = event.lookahead_token_ids and event.lookahead_token_ids[i:i + 1]
        one.session_id = None  # another request's blocks make this one move
        return one

    def moved(self, name: Name, level: int) -> None:
        """A block with this name is now on a level."""
        event = copy.copy(self._said[name])
        event.medium = self._media[level]
        self.queue.append(event)

    def reused(self, request: Any, tokens: int) -> None:
        """A request that asks for it found its first tokens, whole blocks."""
        hashes = hashes_of(request, self._scale)
        for group, size in enumerate(self._sizes):
            if size:
                self._tell(request, group, hashes, 0, tokens // size)

    def _tell(self, request: Any, group: int, hashes: Any, begin: int, end: int) -> None:
        size, lookahead, convert = self._sizes[group], self._lookahead, self._hashes
        tokens = request.all_token_ids
        extra, media = [], 0
        for i in range(begin, end):
            start, stop = i * size, (i + 1) * size
            if lookahead:
                keys, media = convert.generate_lookahead_block_hash_extra_keys(
                    request, start, stop, stop + lookahead, media)
            else:
                keys, media = convert.generate_block_hash_extra_keys(request, start, stop, media)
            extra.append(keys)
        lora = getattr(request, "lora_request", None)
        self.queue.append(self._kinds.BlockStored(
            block_hashes=[convert.maybe_convert_block_hash(hashes[i]) for i in range(begin, end)],
            parent_block_hash=(
                convert.maybe_convert_block_hash(hashes[begin - 1]) if begin else None),
            token_ids=tokens[begin * size:end * size], block_size=size,
            lora_id=lora.adapter_id if lora else None, medium=self.medium,
            lora_name=lora.name if lora else None,
            extra_keys=convert.to_event_extra_keys(extra), group_idx=group,
            session_id=getattr(request, "session_id", None),
            lookahead_token_ids=[tokens[(i + 1) * size:(i + 1) * size + lookahead]
                                 for i in range(begin, end)] if lookahead else None))

    def removed(self, name: Name, level: int, is_last: bool) -> None:
        """No block on a level has this name any more; is_last: none on any."""
        if is_last:
            self._said.pop(name, None)
        self.queue.append(self._kinds.BlockRemoved(
            block_hashes=[self._hashes.maybe_convert_block_hash(name[1])],
            medium=self._media[level], group_idx=name[0]))

    def cleared(self) -> None:
        """Nothing is cached any more."""
        self._said.clear()
        self.queue.append(self._kinds.AllBlocksCleared())
