# SPDX-License-Identifier: Apache-2.0
"""sglang_events: which pages entered the tree and left it, as SGLang's KV events.

SGLang makes the events itself, from nodes with keys and hashes. A segment is what an insertion
added, and is such a node. A page's hash covers all tokens before it, so the hash of the last page
of what was there continues the chain.

Threads: one, SGLang's scheduler.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Optional

from sglang.srt.mem_cache.radix_cache import (  # type: ignore[import-not-found, unused-ignore]
    RadixKey)


class Segment:
    """Pages of one path, as far as SGLang's events look at a node."""

    def __init__(self, key: Any, parent: Optional["Segment"] = None):
        self.key = key
        self.parent = parent
        self.children: Dict[Any, "Segment"] = {}
        self.hash_value: Optional[List[str]] = None
        self.event_hash_value: Optional[List[str]] = None


class Known(NamedTuple):
    """A page in the tree: the page before it, or 0, and its place in its segment."""

    before: int
    segment: Segment
    place: int


class PageEvents:
    """The events of a tree.

    store, remove  SGLang's functions that record one node's event
    """

    def __init__(self, page_size: int, store: Callable[..., None],
                 remove: Callable[[Segment], None]):
        self._page_size = page_size
        self._store, self._remove = store, remove
        self._pages: Dict[int, Known] = {}
        self._root = Segment(RadixKey([]))
        self._root.hash_value = []

    def clear(self) -> None:
        """Nothing is in the tree any more."""
        self._pages.clear()

    def stored(self, key: Any, pages: Any, there: int, session: Optional[str] = None) -> None:
        """An insertion found the first `there` of the pages, and added the others. A session's
        name goes into the event; SGLang's RadixCache gives none."""
        if there == len(pages):
            return
        before = int(pages[there - 1]) if there != 0 else 0
        segment = Segment(key[there * self._page_size:], self._end_at(before))
        if session is None:
            self._store(segment)
        else:
            self._store(segment, session_id=session)
        for index, page in enumerate(pages[there:].tolist()):
            self._pages[page] = Known(before, segment, index)
            before = page

    def removed(self, pages: Any) -> None:
        """These pages left the tree, the last of a path first. SGLang tells a node's pages from
        its first one on, so those of one segment are told together."""
        gone = [self._pages.pop(page) for page in pages.tolist()]
        last = 0
        for i, known in enumerate(gone, 1):
            after = gone[i] if i < len(gone) else None
            if after is not None and after.segment is known.segment and \
                    after.place == known.place - 1:
                continue
            self._remove(self._part(known.segment, known.place, gone[last].place + 1))
            last = i

    def _end_at(self, page: int) -> Segment:
        """A parent whose last hash is the page's."""
        known = self._pages.get(page)
        if known is None:
            return self._root
        return self._part(known.segment, known.place, known.place + 1)

    def _part(self, whole: Segment, first: int, end: int) -> Segment:
        size = self._page_size
        part = Segment(whole.key[first * size:end * size], self._root)
        for name in ("hash_value", "event_hash_value"):
            hashes = getattr(whole, name)
            setattr(part, name, None if hashes is None else hashes[first:end])
        return part

    def children(self) -> Dict[Any, Segment]:
        """The tree as it is now, made anew: runs of pages without a branch, by SGLang's keys."""
        after: Dict[int, List[int]] = {}
        for page, known in self._pages.items():
            after.setdefault(known.before, []).append(page)
        return self._below(0, after)

    def _below(self, top: int, after: Dict[int, List[int]]) -> Dict[Any, Segment]:
        found: Dict[Any, Segment] = {}
        waiting = [(found, page) for page in after.get(top, [])]
        while waiting:
            children, first = waiting.pop()
            segment, begin = self._pages[first].segment, self._pages[first].place
            last, end = first, begin + 1
            while True:
                more = after.get(last, [])
                if len(more) != 1 or self._pages[more[0]].segment is not segment:
                    break
                last, end = more[0], end + 1
            part = self._part(segment, begin, end)
            children[part.key.child_key(self._page_size)] = part
            waiting += [(part.children, page) for page in after.get(last, [])]
        return found
