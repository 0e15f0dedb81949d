# SPDX-License-Identifier: Apache-2.0
"""sglang_tree: SGLang's radix tree as published blocks of a cache.

A node is a place where a match or an insertion ended: the path of pages from the root to it. Quire
finds the pages, compares their tokens, holds those that are locked and decides what is evicted, so
a node has no tokens, and nothing has to be split.

Every page of SGLang's pool that is not in the tree is held by the engine's lease: SGLang's
allocator keeps the list of those that are free, and requests have the others. An insertion
publishes pages and lets go of them, in one call of the library; an eviction gives them back to the
engine's lease. So the numbers are the same on both sides, and a page that the engine has not taken
cannot be inserted.

Invariants: (1) a page is held by the engine's lease, or is in the tree; (2) a page of the tree was
used no later than the page before it, because paths are given back and touched from their ends on,
so a page is evicted after all that follow it.

Threads: one, SGLang's scheduler.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np

from . import errors
from .lease import ID
from .sglang_blocks import Blocks, Space, wide
from .sglang_slots import Slots, Values, slots_of

_ENGINE: Space = (None, None)
_NO_PAGES = np.empty(0, ID)


class Node:
    """A place in the tree.

    pages   from the root to here
    length  tokens
    id      a number that no other node has had
    locks   how often it is locked
    """

    __slots__ = ("space", "pages", "length", "id", "locks", "alive")

    def __init__(self, space: Space, pages: Any, length: int, number: int):
        self.space = space
        self.pages = pages
        self.length = length
        self.id = number
        self.locks = 0
        self.alive = True

    def __repr__(self) -> str:
        return f"<quire node {self.id}: {self.length} tokens>"


class Tree:
    """The pages that SGLang's requests can find.

    blocks      of the pool
    slots       the pool's, or Values for a tree without a pool
    on_evicted  is called with the pages that an eviction took out of the tree
    """

    def __init__(self, blocks: Blocks, slots: Slots,
                 on_evicted: Optional[Callable[[Any], None]] = None):
        self.blocks = blocks
        self.slots = slots
        self.page_size = blocks.page_size
        self._values = slots if isinstance(slots, Values) else None
        self._on_evicted = on_evicted
        self._nodes: Dict[int, Node] = {}  # by their last pages
        self._is_end = bytearray(blocks.count + 1)  # [page] it is a node's last
        self._ends = np.frombuffer(self._is_end, bool)  # the same
        self._numbered: Dict[int, Node] = {}  # by their ids
        self._made = 0
        self.root = self._make(_ENGINE, _NO_PAGES)
        self.count = 0  # pages in the tree
        self._evictable = 0  # those that no lock holds
        self._start()

    def _start(self) -> None:
        """The engine takes the whole pool."""
        self._engine = self.blocks.lease(_ENGINE)
        if self._values is None:
            step = self.blocks.begin()
            self.blocks.take(step, self._engine, self.blocks.count)
            self.blocks.end(step)

    def reset(self) -> None:
        """Forgets everything, locks included."""
        for node in self._nodes.values():
            node.alive = False
        self._nodes.clear()
        self._ends[:] = False
        self._numbered.clear()
        self.root = self._make(_ENGINE, _NO_PAGES)
        self.count = self._evictable = 0
        if self._values is not None:
            self._values.drop(self._values.pages_in_use())
        self.blocks.reset()
        self._start()

    def _make(self, space: Space, pages: Any) -> Node:
        self._made = number = self._made + 1
        node = self._numbered[number] = Node(space, pages, len(pages) * self.page_size, number)
        return node

    def node(self, space: Space, pages: Any) -> Node:
        """The node at the end of these pages, which are in the tree."""
        if len(pages) == 0:
            return self.root
        last = pages.item(-1)
        nodes = self._nodes
        if last in nodes:
            return nodes[last]
        node = nodes[last] = self._make(space, pages)
        self._is_end[last] = True
        return node

    def by_id(self, number: int) -> Node:
        """The node with an id. Errors: KeyError, it was evicted."""
        return self._numbered[number]

    def __str__(self) -> str:
        lines = [f"{node.length:8} tokens, extra_key and cache_salt {node.space}: pages "
                 f"{node.pages[:10].tolist()}{'...' if len(node.pages) > 10 else ''}"
                 for node in self._nodes.values()]
        return "\n".join([*lines, f"#tokens: {self.size}, of which {self.protected} are locked"])

    # Finding.

    def match(self, space: Space, ids: Any, count: int) -> Node:
        """The end of the longest prefix of the first `count` token ids that is in the tree, in
        whole pages; it counts as used now."""
        if count == 0:
            return self.root
        blocks = self.blocks
        lease = blocks.handles.get(space)
        return self.node(space, blocks.find(blocks.lease(space) if lease is None else lease, ids,
                                            count))

    # Inserting.

    def insert(self, space: Space, ids: Any, count: int, value: Any) -> Tuple[int, Node]:
        """Inserts the first `count` token ids, which are whole pages. Returns how many pages were
        there before, and the end.

        value  at least as many slots, which SGLang's allocator has handed out; where a page was
            there before, the slots remain the caller's

        Errors: ValueError, a slot is not the engine's to insert. Nothing changed.
        """
        if count == 0:
            return 0, self.root
        blocks = self.blocks
        lease = blocks.handles.get(space)
        if lease is None:
            lease = blocks.lease(space)
        if self._values is not None:
            named, fresh = self._insert_values(self._values, lease, ids, count, value[:count])
        elif lease == self._engine:
            value, slots = slots_of(value, count)
            named, fresh = blocks.insert(lease, ids, slots, count)
        else:
            named, fresh = self._insert_beside(lease, ids, count, value)
        self._evictable += fresh
        self.count += fresh
        return len(named) - fresh, self.node(space, named)

    def _insert_beside(self, lease: int, ids: Any, count: int, value: Any) -> Tuple[Any, int]:
        """Inserts in a space of its own, whose lease has taken none of the pages."""
        value, slots = slots_of(value, count)
        pages = self.slots.pages(value[:count])
        own = pages[len(self.blocks.look(lease, ids, count)):]
        self._hand_over(self._engine, lease, own)
        try:
            return self.blocks.insert(lease, ids, slots, count)
        except BaseException:
            self._hand_over(lease, self._engine, own)
            raise

    def _hand_over(self, giver: int, taker: int, pages: Any) -> None:
        """A lease gives pages to another: nothing else is free, so it gets these."""
        if len(pages) == 0:
            return
        step = self.blocks.begin()
        try:
            self.blocks.give(giver, pages, step)
            self._check_same(self.blocks.take(step, taker, len(pages)), pages)
        except BaseException as why:
            self.blocks.undo(step)
            if isinstance(why, errors.ArgumentError):
                raise ValueError(
                    f"a slot is not one that the allocator has handed out: {why}") from why
            raise
        self.blocks.end(step)

    def _insert_values(self, values: Values, lease: int, ids: Any, count: int,
                       value: Any) -> Tuple[Any, int]:
        """Inserts what is in no pool: takes pages for it. Errors: LimitError, there are too few."""
        blocks = self.blocks
        found = blocks.look(lease, ids, count)
        more = count // self.page_size - len(found)
        if self.count + more > blocks.count:  # to take them would evict pages of the tree
            raise errors.LimitError(f"a tree without a pool has {blocks.count} pages, of which "
                                    f"{self.count} are in use: {more} more have no room")
        step = blocks.begin()
        own: Any = blocks.take(step, lease, more)  # there are as many
        blocks.end(step)
        values.keep(own, value[len(found) * self.page_size:])
        try:
            pages = np.concatenate((found, own))
            return blocks.insert(lease, ids, wide(values.places(pages), count), count)
        except BaseException:
            values.drop(own)
            blocks.give(lease, own)
            raise

    # Holding.

    def lock(self, node: Node) -> int:
        """Nothing of the path is evicted until as many unlocks. Returns the change of evictable
        tokens.

        Errors: StaleError, the node was evicted.
        """
        if node is self.root:
            return 0
        if node.locks != 0:
            node.locks += 1
            return 0
        if not node.alive:
            raise errors.StaleError(f"{node!r} was evicted before it was locked")
        self.blocks.pin(self.blocks.lease(node.space), node.pages)
        node.locks = 1
        return self._held()

    def unlock(self, node: Node) -> int:
        """Takes a lock back. Errors: ArgumentError, the node is not locked."""
        if node is self.root:
            return 0
        if node.locks > 1:
            node.locks -= 1
            return 0
        if node.locks == 0:
            raise errors.ArgumentError(f"{node!r} is not locked")
        self.blocks.give(self.blocks.lease(node.space), _from_end(node.pages))
        node.locks = 0
        return self._held()

    def _held(self) -> int:
        """Notes that pages are held or not any more."""
        before, self._evictable = self._evictable, self.blocks.evictable
        return (self._evictable - before) * self.page_size

    # Evicting.

    def evict(self, count: int) -> Any:
        """Takes up to `count` pages out of the tree, the least recently used first, and returns
        their slots, which are free."""
        pages = self.blocks.evict(min(count, self.count)) if self.count != 0 else _NO_PAGES
        if len(pages) == 0:
            return self.slots.slots(pages)
        self.count -= len(pages)
        self._evictable -= len(pages)
        ends = pages[self._ends[pages]]
        self._ends[ends] = False
        for page in ends.tolist():
            node = self._nodes.pop(page)
            node.alive = False
            del self._numbered[node.id]
        if self._values is not None:
            self._values.drop(pages)
        else:
            step = self.blocks.begin()
            self._check_same(self.blocks.take(step, self._engine, len(pages)), pages)
            self.blocks.end(step)
        if self._on_evicted is not None:
            self._on_evicted(pages)
        return self.slots.slots(pages)

    def _check_same(self, taken: Optional[Any], pages: Any) -> None:
        if taken is None or not np.array_equal(np.sort(taken), np.sort(pages)):
            raise errors.InternalError("the pages that were taken are not the ones that are free")

    # Sizes, in tokens.

    def check(self) -> None:
        """Verifies Quire's bookkeeping, and the counts here. Errors: InternalError."""
        self.blocks.check()
        if self._evictable != self.blocks.evictable or len(self.pages()) != self.count:
            raise errors.InternalError(f"{self.count} pages, {self._evictable} of them evictable, "
                                       f"are not those of {self.blocks.stats}")

    def pages(self) -> Any:
        """All pages in the tree, in ascending order."""
        if self._values is not None:
            return self._values.pages_in_use()
        is_there = np.ones(self.blocks.count + 1, bool)
        is_there[0] = False
        is_there[self.blocks.unpublished(_ENGINE)] = False
        return np.flatnonzero(is_there).astype(ID)

    @property
    def size(self) -> int:
        return self.count * self.page_size

    @property
    def evictable(self) -> int:
        return self._evictable * self.page_size

    @property
    def protected(self) -> int:
        return self.size - self.evictable


def _from_end(pages: Any) -> Any:
    return pages[::-1].copy()


def dfs_order(nodes: Sequence[Node]) -> List[int]:
    """The indices of nodes depth first: of the branches at a place the one with the most nodes
    first, and the place itself after them."""
    order: List[int] = []
    _visit([(index, node.pages) for index, node in enumerate(nodes)], 0, order)
    return order


def _visit(group: List[Tuple[int, Any]], depth: int, order: List[int]) -> None:
    """Appends the group's indices; all of its paths are equal up to `depth`."""
    branches: Dict[int, List[Tuple[int, Any]]] = {}
    ends = []
    for index, pages in group:
        if len(pages) == depth:
            ends.append(index)
        else:
            branches.setdefault(int(pages[depth]), []).append((index, pages))
    for branch in sorted(branches.values(), key=len, reverse=True):
        _visit(branch, _common(branch, depth + 1), order)
    order += ends


def _common(group: List[Tuple[int, Any]], depth: int) -> int:
    """How far all paths of the group are equal, if they are so up to `depth`."""
    first = group[0][1]
    end = min(len(pages) for _, pages in group)
    for _, pages in group[1:]:
        differs = first[depth:end] != pages[depth:end]
        if differs.any():
            end = depth + int(differs.argmax())
    return end
