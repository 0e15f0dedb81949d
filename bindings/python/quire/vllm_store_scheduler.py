# SPDX-License-Identifier: Apache-2.0
"""vllm_store_scheduler: the scheduler's half of QuireStoreConnector.

It asks the store which blocks of a prompt are there, in a thread, while the scheduler goes on with
others: until the answer is there, vLLM asks again. It then says which blocks the workers load, and
with each step which blocks that step fills, which the workers save.

A request whose load failed is not looked up again, so that a store that keeps a bad value cannot
hold it up twice. A block is saved once, and again if the store was found to have lost it.

Threads: those of the lookups touch the store and nothing else.
"""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import os
import time
from typing import Any, Dict, Iterable, List, Optional, Set, Tuple

from .page_store import PageStore, page_label
from .vllm_store_names import ROOT, Chain, block_names

# Blocks of one message to a worker: (name, block id).
Blocks = List[Tuple[bytes, int]]

_KNOWN = 1 << 18  # names, of about 120 bytes each


@dataclasses.dataclass
class _Lookup:
    first: int  # block that was asked for first
    future: "concurrent.futures.Future[int]"
    deadline: float


@dataclasses.dataclass
class _State:
    """A request that the scheduler has."""

    request: Any
    chain: Chain
    lookup: Optional[_Lookup] = None
    loading: Blocks = dataclasses.field(default_factory=list)
    saved: int = 0  # blocks
    has_failed: bool = False


class StoreScheduler:
    """Which blocks are loaded and saved.

    kinds      the fingerprint of each shard: a block is there if all its shards are
    threads    lookups under way at once
    """

    def __init__(self, store: PageStore, kinds: List[bytes], block_size: int, *,
                 loads: bool, saves: bool, threads: int = 4):
        self._store, self._kinds, self._block_size = store, kinds, block_size
        self._loads, self._saves = loads, saves
        self._states: Dict[str, _State] = {}
        self._to_load: Dict[str, Blocks] = {}
        self._root = ROOT
        # Names that the store was given, or has: those that were used last.
        self._known: "collections.OrderedDict[bytes, None]" = collections.OrderedDict()
        self._pool = concurrent.futures.ThreadPoolExecutor(threads, "quire lookups")

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def reset(self) -> None:
        """Shares nothing with what was before: from now on all names are new."""
        self._root = os.urandom(len(ROOT))
        self._known.clear()
        self._states.clear()  # what these have computed is not saved
        self._to_load.clear()

    def seen(self, request: Any) -> None:
        """A request has come."""
        self._state(request)

    def matched(self, request: Any, computed: int) -> Tuple[Optional[int], bool]:
        """As get_num_new_matched_tokens of a connector."""
        state = self._state(request)
        if (not self._loads or state is None or state.has_failed
                or request.skip_reading_prefix_cache):
            return 0, False
        first, last = computed // self._block_size, (request.num_tokens - 1) // self._block_size
        lookup = state.lookup
        if lookup is None or lookup.first != first:
            names = block_names(state.chain, request, self._block_size, last)[first:]
            if not names or computed % self._block_size != 0:
                return 0, False
            state.lookup = lookup = _Lookup(
                first, self._pool.submit(self._find, names),
                time.monotonic() + self._store.timeout)
        if not lookup.future.done() and time.monotonic() < lookup.deadline:
            return None, False
        found = self._end(lookup)
        for name in state.chain.names[first + found:last]:
            self._known.pop(name, None)
        return found * self._block_size, found > 0

    def allocated(self, request: Any, block_ids: List[int], tokens: int) -> None:
        """As update_state_after_alloc: `tokens` are to be loaded."""
        state = self._states.get(request.request_id)
        if state is None or state.lookup is None:
            return
        lookup, state.lookup = state.lookup, None
        if tokens == 0:
            return
        end = lookup.first + tokens // self._block_size
        chosen = list(zip(state.chain.names, block_ids))[lookup.first:end]
        self._to_load[request.request_id] = state.loading = chosen
        self._note(name for name, _ in chosen)

    def step(self, output: Any) -> Tuple[Dict[str, Blocks], Blocks]:
        """What the workers load from this step on, and what they save after it."""
        loads, self._to_load = self._to_load, {}
        saves: Blocks = []
        blocks = getattr(output, "kv_connector_block_state", None)
        for request_id, count in (output.num_scheduled_tokens.items() if self._saves else ()):
            state, held = self._states.get(request_id), (
                blocks.get_block_ids(request_id) if blocks is not None else None)
            if state is not None and held is not None:
                saves += self._filled(state, held[0], count)
        return loads, saves

    def loaded(self, finished: Set[str], failed_blocks: Set[int]) -> None:
        """The workers' answer: these requests' loads ended, and these blocks are not there."""
        for request_id in finished:
            state = self._states.get(request_id)
            failed = [name for name, block in state.loading if block in failed_blocks
                      ] if state is not None else []
            if state is not None:
                state.has_failed, state.loading = state.has_failed or bool(failed), []
            for name in failed:
                self._known.pop(name, None)

    def ended(self, request_id: str) -> None:
        """The request is over."""
        self._states.pop(request_id, None)
        self._to_load.pop(request_id, None)

    def _state(self, request: Any) -> Optional[_State]:
        """None: a request whose tokens may change is not served."""
        if request.resumable:
            return None
        return self._states.setdefault(request.request_id,
                                       _State(request, Chain(self._root)))

    def _find(self, names: List[bytes]) -> int:
        """How many of these blocks, from the first on, are there with all their shards."""
        return min(self._store.leading([page_label(kind, name) for name in names])
                   for kind in self._kinds)

    def _end(self, lookup: _Lookup) -> int:
        if not lookup.future.done():  # too late
            lookup.future.cancel()
            return 0
        return lookup.future.result()

    def _note(self, names: Iterable[bytes]) -> None:
        for name in names:
            self._known[name] = None
            self._known.move_to_end(name)
        while len(self._known) > _KNOWN:
            self._known.popitem(last=False)

    def _filled(self, state: _State, block_ids: List[int], count: int) -> Blocks:
        """The blocks that are full when this step of `count` tokens has run, and were not saved."""
        size = self._block_size
        computed = state.request.num_computed_tokens  # before the step
        names = block_names(state.chain, state.request, size, (computed + count) // size)
        state.saved = min(state.saved, computed // size)
        filled = list(zip(names, block_ids))[state.saved:]
        state.saved = len(names)
        chosen = [(name, block) for name, block in filled if name not in self._known]
        self._note(name for name, _ in filled)
        return chosen
