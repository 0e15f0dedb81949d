# SPDX-License-Identifier: Apache-2.0
"""sglang_core: a tree core of SGLang's unified radix cache that is a prefix tree of Quire.

    import quire.sglang_core
    quire.sglang_core.register()

    SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND=quire python -m sglang.launch_server ...

The unified cache drives it by numbers of nodes. It serves models of full attention on one pool.
Every other method of SGLang's interface, also of a newer release, is refused by its name.

Threads: one, SGLang's scheduler.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NoReturn, Optional, Sequence, Tuple

# mypy: disable-error-code="import-not-found, unused-ignore"
import torch
from sglang.srt.mem_cache.base_prefix_cache import (
    DecLockRefParams, DecLockRefResult, IncLockRefResult, InsertParams, InsertResult,
    MatchPrefixParams, MatchResult)
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.events import KVCacheEventRecorder
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.unified_cache import tree_core_registry
from sglang.srt.mem_cache.unified_cache.cache_action import FreeDeviceKV
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.mem_cache.unified_cache.unified_tree_core_interface import (
    EvictDeviceNextNodeResult, InsertStepResult, UnifiedTreeCoreInterface)

from .sglang_blocks import Blocks, space_of
from .sglang_events import PageEvents
from .sglang_radix import NAME, pool_of, refuse, ids_of
from .sglang_tree import Node, Tree, dfs_order

_FULL = ComponentType.FULL
# The most that one step of an eviction frees. The unified cache asks after each step whether there
# is room now, so this bounds what is evicted in excess.
_STEP_TOKENS = 256


def _refused(name: str) -> Callable[..., NoReturn]:
    def method(self: Any, *arguments: Any, **named: Any) -> NoReturn:
        raise NotImplementedError(f"the tree core of Quire does not serve {name}")
    return method


def _off(what: str) -> Any:
    """An attribute of the core that SGLang sets to True to switch something on."""
    def switch(self: Any, value: bool) -> None:
        if value:
            raise NotImplementedError(f"the tree core of Quire does not serve {what}")
    return property(lambda self: False, switch)


# Everything that SGLang's interface asks for, refused.
_Refusing: Any = type("_Refusing", (UnifiedTreeCoreInterface,), {
    name: _refused(name) for name in UnifiedTreeCoreInterface.__abstractmethods__})


class QuireTreeCore(_Refusing):  # type: ignore[misc]
    """SGLang's tree core over a tree of Quire."""

    enable_hicache = _off("HiCache")
    enable_storage = _off("HiCache's storage")
    enable_external_cache_linker = _off("a linker to an external cache")
    is_write_back = _off("HiCache's write-back")
    has_swa_host_pool = _off("sliding windows")
    is_host_memory_buffer_only = _off("host memory as a buffer")
    write_through_threshold = 256
    is_eagle = False
    enable_session_radix_cache = False

    def __init__(self, params: CacheInitParams, components: Dict[Any, Any]):
        refuse(params)
        if not {"device_prefix_len", "last_visited_node_id"} <= set(MatchResult._fields):
            raise NotImplementedError("the tree core of Quire serves SGLang 0.5.23, and in this "
                                      "release a match has other fields")
        if set(components) != {_FULL} or params.component_registry_override:
            names = sorted(getattr(kind, "name", str(kind)) for kind in components)
            raise NotImplementedError("the tree core of Quire serves SGLang's own FULL component "
                                      f"alone, and not {', '.join(names)} or one's own")
        slots = pool_of(params)
        self.page_size = params.page_size
        self.device = params.token_to_kv_pool_allocator.device
        self.kv_events = KVCacheEventRecorder(
            enabled=params.enable_kv_cache_events, page_size=params.page_size,
            dynamo_format=params.dynamo_kv_event_format, lora_names=params.kv_event_lora_names)
        self._events: Optional[PageEvents] = None
        if params.enable_kv_cache_events:
            self._events = PageEvents(params.page_size, self.kv_events.record_store,
                                      self.kv_events.record_remove)
        pages = params.token_to_kv_pool_allocator.size // params.page_size
        self._tree = Tree(Blocks(pages, params.page_size), slots,
                          None if self._events is None else self._events.removed)
        self._wanted = 0  # tokens of the eviction that is under way
        self._enter_root()

    def _enter_root(self) -> None:
        self.root_node = self._tree.root
        self._empty = self._result(self.root_node)

    def reset(self) -> None:
        """Forgets everything, locks included. The unified cache records the event."""
        if self._events is not None:
            self._events.clear()
        self._tree.reset()
        self._wanted = 0
        self._enter_root()

    def set_hicache_enabled(self) -> NoReturn:
        """Refused: there is no host tier."""
        raise NotImplementedError("the tree core of Quire does not serve HiCache")

    # Nodes.

    def node_by_id(self, node_id: int) -> Node:
        """The node with a number. Errors: KeyError, it was evicted."""
        return self._tree.by_id(node_id)

    def root_node_handle(self, extra_key: Optional[str] = None) -> int:
        """The root's number, in every space."""
        del extra_key
        return self.root_node.id

    def is_root(self, node_id: int) -> bool:
        """True for the root's number."""
        return node_id == self.root_node.id

    def is_backuped(self, node_id: int) -> bool:
        """False: there is no host tier."""
        self.node_by_id(node_id)
        return False

    def is_full_device_evicted(self, node_id: int) -> bool:
        """False: what was evicted is no node any more."""
        self.node_by_id(node_id)
        return False

    def dfs_weight_order(self, node_ids: Sequence[int]) -> List[int]:
        """Indices of requests, those with common prefixes side by side."""
        return dfs_order([self.node_by_id(node_id) for node_id in node_ids])

    # Finding and inserting.

    def _result(self, node: Node) -> MatchResult:
        number = node.id
        return MatchResult(
            device_prefix_len=node.length, last_device_node=number, last_host_node=number,
            best_match_node=number, full_kv_hit_length=node.length, cache_actions=[],
            last_visited_node_id=number if node is not self.root_node else None)

    @property
    def empty_match_result(self) -> MatchResult:
        """Nothing was found."""
        return self._empty

    def match_prefix(self, params: MatchPrefixParams) -> MatchResult:
        """The longest prefix of the key in the tree; it counts as used now."""
        key = params.key
        size = len(key) // self.page_size * self.page_size
        if size == 0:
            return self._empty
        return self._result(self._tree.match(space_of(key), ids_of(key), size))

    def supports_fast_match_prefix(self) -> bool:
        """False, as with SGLang's own cores."""
        return False

    def collect_full_device_indices(self, from_node_id: int, until_node_id: int) -> torch.Tensor:
        """The slots of the path from a node up to another, without that one's."""
        pages = self.node_by_id(from_node_id).pages
        until = self.node_by_id(until_node_id).pages
        return self._tree.slots.slots(pages[len(until):])

    def begin_insert(self, params: InsertParams) -> InsertStepResult:
        """Inserts whole pages, in one step. The caller's slots of tokens that were there before,
        from prev_prefix_len on, are for SGLang to free."""
        if params.rotation_base is not None:
            raise NotImplementedError("the tree core of Quire does not serve sharded pages")
        key, value = params.key, params.value
        size = len(key) // self.page_size * self.page_size
        ids = ids_of(key)
        if value is None:
            value = torch.tensor(ids[:size], dtype=torch.int64)
        there, node = self._tree.insert(space_of(key), ids, size, value)
        if self._events is not None:
            self._events.stored(key[:size], node.pages, there, params.session_id)
        known = there * self.page_size
        actions = []
        if params.prev_prefix_len < known:
            actions.append(FreeDeviceKV([value[params.prev_prefix_len:known]]))
        return InsertStepResult(actions=actions, result=self._inserted(params, node, known, size))

    @staticmethod
    def _inserted(params: InsertParams, node: Node, known: int, size: int) -> InsertResult:
        result = InsertResult(prefix_len=known, last_device_node=node.id, mamba_exist=size == 0)
        if params.track_adopted_ranges and size != 0:
            result.adopted_ranges = {}
            result.record_adopted_range(_FULL, known, size)
        return result

    def has_ongoing_insert(self) -> bool:
        """False: an insertion is over when begin_insert() returns."""
        return False

    def end_insert(self) -> List[Any]:
        """Nothing is left to do."""
        return []

    # Holding.

    def inc_lock_ref(self, node_id: int, skip_lock_components: Sequence[Any] = ()
                     ) -> IncLockRefResult:
        """Nothing of the path to the node is evicted until it is unlocked."""
        skipped = tuple(skip_lock_components)
        node = self.node_by_id(node_id)
        if _FULL in skipped:
            return IncLockRefResult(node_id=node_id, skipped_lock_components=skipped)
        return IncLockRefResult(delta=-self._tree.lock(node), node_id=node_id,
                                skipped_lock_components=skipped)

    def dec_lock_ref(self, node_id: int, params: DecLockRefParams, skip_swa: bool = False
                     ) -> DecLockRefResult:
        """Takes back the lock that the receipt is of."""
        del skip_swa
        if params.node_id != node_id:
            raise ValueError(f"the receipt of a lock on node {params.node_id} does not unlock "
                             f"node {node_id}")
        if _FULL not in params.skipped_lock_components:
            self._tree.unlock(self.node_by_id(node_id))
        return DecLockRefResult()

    # Evicting.

    def evict_device_start(self, component_type: Any, request_cnt: int) -> None:
        """Up to that many tokens are to be evicted."""
        self._only_full(component_type)
        self._wanted = request_cnt

    def evict_device_next_node(self, component_type: Any, tracker: Dict[Any, int]
                               ) -> EvictDeviceNextNodeResult:
        """Evicts some of the least recently used pages; no node is left for SGLang to evict."""
        self._only_full(component_type)
        result = EvictDeviceNextNodeResult()
        wanted = min(self._wanted - tracker.get(_FULL, 0), _STEP_TOKENS)
        if wanted > 0:
            slots = self._tree.evict(-(-wanted // self.page_size))
            if len(slots) != 0:
                result.device_frees[_FULL].append(slots)
                result.tracker[_FULL] = len(slots)
                result.made_progress = True
        return result

    def evict_device_end(self, component_type: Any) -> None:
        """The eviction is over."""
        self._only_full(component_type)
        self._wanted = 0

    def _only_full(self, component_type: Any) -> None:
        if component_type != _FULL:
            raise NotImplementedError(f"the tree core of Quire has no {component_type!r}")

    # Sizes and views.

    def evictable_size(self) -> int:
        """Tokens that an eviction can free."""
        return self._tree.evictable

    full_evictable_size = evictable_size

    def protected_size(self) -> int:
        """Tokens that are locked."""
        return self._tree.protected

    full_protected_size = protected_size

    def component_evictable_size(self, component_type: Any) -> int:
        """Those of FULL; the others are absent."""
        return self._tree.evictable if component_type == _FULL else 0

    def component_protected_size(self, component_type: Any) -> int:
        """Those of FULL; the others are absent."""
        return self._tree.protected if component_type == _FULL else 0

    def _absent(self) -> int:
        return 0

    swa_evictable_size = swa_protected_size = _absent
    mamba_evictable_size = mamba_protected_size = _absent

    def total_size(self) -> Tuple[int, int]:
        """(tokens in the tree, 0)."""
        return self._tree.size, 0

    def all_values_flatten(self) -> torch.Tensor:
        """The slots of all pages in the tree."""
        return self._tree.slots.slots(self._tree.pages())

    def all_mamba_values_flatten(self) -> torch.Tensor:
        """None are there."""
        return torch.empty((0,), dtype=torch.int64, device=self.device)

    def sanity_check(self, ongoing_write_through: Sequence[Any], ongoing_load_back: Sequence[Any]
                     ) -> None:
        """Verifies Quire's bookkeeping."""
        if ongoing_write_through or ongoing_load_back:
            raise AssertionError("the tree core of Quire has no host tier to copy to")
        self._tree.check()

    def pretty_print(self) -> None:
        """Prints the places that are in use, and the sizes."""
        print(self._tree)


def make(params: CacheInitParams, components: Dict[Any, Any]) -> QuireTreeCore:
    """The factory that SGLang calls. Errors: NotImplementedError names what is not served."""
    return QuireTreeCore(params, components)


def register(name: str = NAME) -> None:
    """Makes the core known to SGLang by a name. Again: nothing happens."""
    if tree_core_registry.get_tree_core_factory(name) is not make:
        tree_core_registry.register_tree_core_backend(name, make)
