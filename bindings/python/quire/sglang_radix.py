# SPDX-License-Identifier: Apache-2.0
"""sglang_radix: a radix cache of SGLang that is a prefix tree of Quire.

    import quire.sglang_radix
    quire.sglang_radix.register()  # before SGLang reads its arguments

    python -m sglang.launch_server --radix-cache-backend quire ...

SGLang's own class does what it does with requests; the tree below it is Quire's. What it cannot
serve exactly is refused when the cache is made; docs/sglang.md lists it.

Threads: one, SGLang's scheduler.
"""

from __future__ import annotations

import dataclasses
import operator
import time
from typing import Any, Callable, Dict, Optional, Sequence

# mypy: disable-error-code="import-not-found, unused-ignore"
import torch
from sglang.srt.mem_cache.allocator import (
    BaseTokenToKVPoolAllocator, PagedTokenToKVPoolAllocator, TokenToKVPoolAllocator)
from sglang.srt.mem_cache.base_prefix_cache import (
    DecLockRefResult, EvictParams, EvictResult, IncLockRefResult, InsertParams, InsertResult,
    MatchPrefixParams, MatchResult)
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.radix_cache import RadixCache, RadixKey

from .sglang_blocks import Blocks, Space, space_of
from .sglang_events import PageEvents
from .sglang_slots import Slots, Values
from .sglang_tree import Node, Tree, dfs_order

NAME = "quire"
SIMULATED_PAGES = 1 << 16  # of a tree without a pool

# SGLang 0.5.23 gives segments of a request back; older releases, any slots.
_FREES_SEGMENTS = hasattr(BaseTokenToKVPoolAllocator, "free_segment")
# Older releases return the slots of a match, newer ones its length.
_RETURNS_SLOTS = "device_indices" in MatchResult._fields
# Newer ones know where an insertion ended.
_RETURNS_END = any(field.name == "last_device_node" for field in dataclasses.fields(InsertResult))
# The space of a key, read in one call where all keys have a salt.
_space: Callable[[RadixKey], Space] = (operator.attrgetter("extra_key", "cache_salt")
                                       if hasattr(RadixKey, "cache_salt") else space_of)


def refuse(params: CacheInitParams) -> None:
    """Raises NotImplementedError if Quire's tree does not serve a cache like this exactly."""
    policy = params.eviction_policy.lower()
    why = None
    if params.is_eagle:
        why = "EAGLE's keys of two tokens each"
    elif policy != "lru":
        why = f"the eviction policy {policy!r}: it evicts the least recently used page (lru)"
    elif getattr(params, "enable_session_radix_cache", False):
        why = "session-aware eviction"
    elif params.page_size & (params.page_size - 1) or params.page_size > 256:
        why = f"pages of {params.page_size} tokens, but only powers of two up to 256"
    if why is not None:
        raise NotImplementedError(f"the radix cache of Quire does not serve {why}")


def pool_of(params: CacheInitParams) -> Slots:
    """The slots of SGLang's pool. Errors: NotImplementedError, its allocator is another kind."""
    allocator = params.token_to_kv_pool_allocator
    if type(allocator) not in (TokenToKVPoolAllocator, PagedTokenToKVPoolAllocator):
        raise NotImplementedError(
            "the radix cache of Quire serves pools of full attention, with SGLang's "
            "TokenToKVPoolAllocator or PagedTokenToKVPoolAllocator, and not "
            f"{type(allocator).__name__}")
    if allocator.page_size != params.page_size:
        raise NotImplementedError(f"the tree's pages have {params.page_size} tokens, the "
                                  f"allocator's {allocator.page_size}")
    return Slots(params.page_size, allocator.device, allocator.size // params.page_size)


class Root(Node):
    """The root as SGLang looks at it."""

    __slots__ = ("_owner", "key", "hash_value", "value", "lock_ref", "parent")

    def __init__(self, node: Node, owner: "QuireRadixCache"):
        super().__init__(node.space, node.pages, 0, node.id)
        self._owner = owner
        self.key = RadixKey([])
        self.hash_value: Sequence[str] = []
        self.value: Sequence[int] = []
        self.lock_ref = 1
        self.parent = None

    @property
    def children(self) -> Dict[Any, Any]:
        """What is in the tree, made anew, for tests; it is known only where events are recorded."""
        if self._owner.events is None:
            raise NotImplementedError("a tree of Quire lists its nodes only with KV events")
        return self._owner.events.children()


class QuireRadixCache(RadixCache):  # type: ignore[misc]
    """SGLang's radix cache over a tree of Quire.

    simulated_pages  make a tree without a pool, for that many pages of any values
    """

    def __init__(self, params: CacheInitParams, simulated_pages: int = 0):
        refuse(params)
        self.tree: Optional[Tree] = None
        self.events: Optional[PageEvents] = None
        self._simulated_pages = simulated_pages
        super().__init__(params)
        self.page_size = params.page_size
        if self.disable:
            return
        if params.enable_kv_cache_events:
            self.events = PageEvents(params.page_size, *self._recorders())
        slots, pages = self._pool(params)
        self.tree = Tree(Blocks(pages, params.page_size), slots,
                         None if self.events is None else self.events.removed)
        self._enter_root()

    @classmethod
    def create_simulated(cls, disable: bool = False, mock_allocator: Any = None,
                         page_size: int = 1, enable_kv_cache_events: bool = False,
                         **others: Any) -> "QuireRadixCache":
        """A tree without a pool."""
        params = CacheInitParams(
            disable=disable, req_to_token_pool=None, token_to_kv_pool_allocator=mock_allocator,
            page_size=page_size, enable_kv_cache_events=enable_kv_cache_events,
            **{name: value for name, value in others.items() if value is not None})
        return cls(params, simulated_pages=SIMULATED_PAGES)

    def _pool(self, params: CacheInitParams) -> Any:
        if self._simulated_pages != 0:
            return (Values(params.page_size, self.device, self._simulated_pages),
                    self._simulated_pages)
        return pool_of(params), params.token_to_kv_pool_allocator.size // params.page_size

    def _recorders(self) -> Any:
        recorder = getattr(self, "kv_events", None)
        if recorder is not None:
            return recorder.record_store, recorder.record_remove
        return self._record_store_event, self._record_remove_event

    def _enter_root(self) -> None:
        tree = self.tree
        assert tree is not None
        tree.root = self.root_node = Root(tree.root, self)
        self._empty_match_result = self._result(tree.root)

    def reset(self) -> None:
        super().reset()
        if self.events is not None:
            self.events.clear()
        if self.tree is not None:
            self.tree.reset()
            self._enter_root()

    # Finding and inserting.

    def _result(self, node: Node) -> MatchResult:
        if _RETURNS_SLOTS:
            return MatchResult(device_indices=self.path_device_indices(node),
                               last_device_node=node, last_host_node=node,
                               **({"best_match_node": node}
                                  if "best_match_node" in MatchResult._fields else {}))
        return MatchResult(device_prefix_len=node.length, last_device_node=node,
                           last_host_node=node, best_match_node=node)

    def match_prefix(self, params: MatchPrefixParams) -> MatchResult:
        """The longest prefix of the key in the tree; it counts as used now."""
        key = params.key
        size = 0 if self.tree is None else len(key) // self.page_size * self.page_size
        if size == 0:
            return self._empty_match_result
        return self._result(
            self.tree.match(_space(key), ids_of(key), size))  # type: ignore[union-attr]

    def touch_prefix(self, key: RadixKey) -> None:
        """The prefix of the key in the tree counts as used now."""
        self.match_prefix(MatchPrefixParams(key=key))

    def insert(self, params: InsertParams) -> InsertResult:
        """Inserts whole pages; prefix_len of their tokens were in the tree before."""
        if self.tree is None:
            return InsertResult(prefix_len=0)
        key, value = params.key, params.value
        size = len(key) // self.page_size * self.page_size
        ids = ids_of(key)
        if value is None:
            value = torch.tensor(ids[:size], dtype=torch.int64)
        there, node = self.tree.insert(_space(key), ids, size, value)
        if self.events is not None:
            self.events.stored(key[:size], node.pages, there)
        there *= self.page_size
        return InsertResult(there, last_device_node=node) if _RETURNS_END else InsertResult(there)

    def path_device_indices(self, node: Node) -> torch.Tensor:
        """The slots of the path to a node."""
        if self.tree is None or node.length == 0:
            return self._empty_indices()
        return self.tree.slots.slots(node.pages)

    def _empty_indices(self) -> torch.Tensor:
        return torch.empty((0,), dtype=torch.int64, device=self.device)

    # Holding and evicting.

    def inc_lock_ref(self, node: Node) -> IncLockRefResult:
        """Nothing of the path to the node is evicted until as many dec_lock_ref()."""
        return IncLockRefResult(delta=0 if self.tree is None else self.tree.lock(node))

    def dec_lock_ref(self, node: Node, params: Any = None) -> DecLockRefResult:
        """Takes a lock back."""
        del params
        return DecLockRefResult(delta=0 if self.tree is None else self.tree.unlock(node))

    def evict(self, params: EvictParams) -> EvictResult:
        """Gives the least recently used pages back to SGLang's allocator."""
        if self.tree is None:
            return EvictResult()
        start = time.perf_counter()
        slots = self.tree.evict(-(-params.num_tokens // self.page_size))
        allocator = self.token_to_kv_pool_allocator
        if len(slots) != 0 and allocator is not None:
            if _FREES_SEGMENTS:
                allocator.free_segment(slots, start_pos=0)
            else:
                allocator.free(slots)
        self.update_eviction_metrics(len(slots), start)
        return EvictResult(num_tokens_evicted=len(slots))

    # Sizes and views.

    def evictable_size(self) -> int:
        """Tokens that an eviction can free."""
        return 0 if self.tree is None else self.tree.evictable

    def protected_size(self) -> int:
        """Tokens that are locked."""
        return 0 if self.tree is None else self.tree.protected

    def total_size(self) -> int:
        """Tokens in the tree."""
        return 0 if self.tree is None else self.tree.size

    def all_values_flatten(self) -> torch.Tensor:
        """The slots of all pages in the tree."""
        return self._empty_indices() if self.tree is None else (
            self.tree.slots.slots(self.tree.pages()))

    def dfs_weight_order(self, node_handles: Sequence[Node]) -> Sequence[int]:
        """Indices of requests, those with common prefixes side by side, the largest group first."""
        return dfs_order(node_handles)

    def pretty_print(self) -> None:
        """Prints the places that are in use, and the sizes."""
        print(self.tree)

    def sanity_check(self) -> None:
        """Verifies Quire's bookkeeping."""
        if self.tree is not None:
            self.tree.check()


def ids_of(key: RadixKey) -> Any:
    """The token ids of a key, of which there may be more than its length."""
    if key.is_bigram:
        raise NotImplementedError("the radix cache of Quire does not serve keys of two tokens each")
    return key.token_ids


def make(context: Any) -> QuireRadixCache:
    """The factory that SGLang calls. Errors: NotImplementedError names what is not served."""
    for served, what in ((not context.enable_hierarchical_cache, "HiCache"),
                         (not context.is_hybrid_swa, "sliding windows"),
                         (not context.is_hybrid_ssm, "recurrent states")):
        if not served:
            raise NotImplementedError(f"the radix cache of Quire does not serve {what}")
    return QuireRadixCache(context.params)


def register(name: str = NAME) -> None:
    """Makes the cache known to SGLang as --radix-cache-backend NAME. Again: nothing happens."""
    from sglang.srt.mem_cache import registry  # older releases have none

    if registry.get_radix_cache_factory(name) is not make:
        registry.register_radix_cache_backend(name, make)
