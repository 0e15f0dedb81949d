# SPDX-License-Identifier: Apache-2.0
"""sglang_requests: requests of SGLang's on a radix cache, without a model, for tests.

A prompt is a run of chunks of one page each, so a place in the tree has a number: the run of chunks
up to there. A slot has the number of its place as its content, as if K and V had been computed.
"""

import types
from array import array

import numpy as np
import torch
from sglang.srt.managers.schedule_batch import ReqKvInfo
from sglang.srt.mem_cache.allocator import PagedTokenToKVPoolAllocator, TokenToKVPoolAllocator
from sglang.srt.mem_cache.base_prefix_cache import EvictParams, InsertParams, MatchPrefixParams
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.memory_pool import ReqToTokenPool
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

ROWS = 32
SPACES = ((None, None), ("adapter", None), (None, "salt"), ("adapter", "salt"))


class Places:
    """The numbers of runs of chunks, from 1 on."""

    def __init__(self):
        self._numbers = {}

    def of(self, space, chunks):
        """[chunks] the number of each place on the way."""
        at, numbers = -1 - space, []
        for chunk in chunks:
            at = self._numbers.setdefault((at, chunk), len(self._numbers) + 1)
            numbers.append(at)
        return numbers


def params(page, pages, **others):
    """What SGLang makes a tree from, over a pool of that many pages."""
    kind = dict(dtype=torch.float16, device="cpu", kvcache=None, need_sort=False)
    allocator = (TokenToKVPoolAllocator(pages, **kind) if page == 1 else
                 PagedTokenToKVPoolAllocator(pages * page, page_size=page, **kind))
    rows = ReqToTokenPool(size=ROWS, max_context_len=pages * page, device="cpu",
                          enable_memory_saver=False)
    return CacheInitParams(disable=False, req_to_token_pool=rows,
                           token_to_kv_pool_allocator=allocator, page_size=page, **others)


def key(tokens, space=(None, None)):
    return RadixKey(array("q", tokens), space[0], cache_salt=space[1])


def unified(core):
    """Makes a unified radix cache over a tree core."""
    def make(parameters):
        parameters.tree_components = (ComponentType.FULL,)
        parameters.tree_core_backend = core
        return UnifiedRadixCache(parameters)
    return make


class Side:
    """A radix cache, its pool, and the requests that run on it."""

    def __init__(self, make, page, pages, places):
        self.params = params(page, pages)
        self.cache = make(self.params)
        self.is_unified = isinstance(self.cache, UnifiedRadixCache)
        self.allocator = self.params.token_to_kv_pool_allocator
        self.rows = self.params.req_to_token_pool.req_to_token
        self.page, self.size, self.places = page, pages * page, places
        self.content = np.zeros((pages + 1) * page, np.int64)
        self.free_rows = list(range(ROWS))

    def tokens(self, chunks):
        return [chunk * 256 + offset for chunk in chunks for offset in range(self.page)]

    def key(self, space, chunks):
        return key(self.tokens(chunks), SPACES[space])

    def check_content(self, space, chunks, slots):
        """Asserts that slots have the content of the run's beginning."""
        want = np.repeat(np.array(self.places.of(space, chunks), np.int64), self.page)
        want = want * self.page + np.tile(np.arange(self.page), len(chunks))
        slots = slots.numpy()
        assert (self.content[slots] == want[:len(slots)]).all(), "foreign content"

    def fill(self, space, chunks, slots, first):
        """As kernels do, from chunk `first` on."""
        numbers = np.array(self.places.of(space, chunks)[first:], np.int64)
        self.content[slots.numpy()] = (np.repeat(numbers, self.page) * self.page
                                       + np.tile(np.arange(self.page), len(numbers)))

    def match(self, space, chunks):
        """(tokens found, node); what is found has the right content."""
        result = self.cache.match_prefix(MatchPrefixParams(key=self.key(space, chunks)))
        slots = self.cache.path_device_indices(result.last_device_node)
        assert len(slots) == result.device_prefix_len
        self.check_content(space, chunks, slots)
        return result.device_prefix_len, result.last_device_node

    def allocate(self, count):
        """Slots, after an eviction if need be; None if the pool is short."""
        missing = count - self.allocator.available_size()
        if missing > 0:
            self.cache.evict(EvictParams(num_tokens=missing))
        return self.allocator.alloc(count) if count else torch.empty(0, dtype=torch.int64)

    def insert(self, space, chunks):
        """Fills slots of its own and inserts them; returns how many tokens were there, or None."""
        slots = self.allocate(len(chunks) * self.page)
        if slots is None:
            return None
        self.fill(space, chunks, slots, 0)
        result = self.cache.insert(InsertParams(key=self.key(space, chunks), value=slots.clone()))
        if not self.is_unified:  # which does so itself
            self.allocator.free(slots[:result.prefix_len])
        return result.prefix_len

    def start(self, space, chunks):
        """A request that has found what is cached, and computed the rest; None: no room."""
        found, node = self.match(space, chunks)
        lock = self.cache.lock(node)
        slots = self.allocate(len(chunks) * self.page - found)
        if slots is None:
            self.cache.unlock(lock)
            return None
        row = self.free_rows.pop()
        ids = array("q", self.tokens(chunks))
        self.rows[row, :found] = self.cache.path_device_indices(node).to(torch.int32)
        self.rows[row, found:len(ids)] = slots.to(torch.int32)
        self.fill(space, chunks, slots, found // self.page)
        return types.SimpleNamespace(
            kv=ReqKvInfo(req_pool_idx=row, cache_protected_len=found, kv_allocated_len=len(ids)),
            space=space, chunks=chunks, full_untruncated_fill_ids=ids, origin_input_ids=ids,
            extra_key=SPACES[space][0], cache_salt=SPACES[space][1], priority=None, lock=lock,
            last_node=node, finished=lambda: False, session=None, session_id=None,
            kv_rotation_base=None)

    def checkpoint(self, request, pages):
        """The request's first pages go into the tree."""
        self.cache.checkpoint(request, up_to=pages * self.page)

    def release(self, request):
        """What the tree does not own is free."""
        self.cache.free_kv_row(request.kv, [(request.kv.cache_protected_len,
                                             request.kv.kv_allocated_len)])
        self.cache.unlock(request.lock)
        self.free_rows.append(request.kv.req_pool_idx)

    def sizes(self):
        cache = self.cache
        total = cache.total_size()[0] if self.is_unified else cache.total_size()
        return total, cache.evictable_size(), cache.protected_size()
