# SPDX-License-Identifier: Apache-2.0
"""page_store: pages of an engine's own under labels, many at once.

A tier answers one request after another, so a page store opens the same store several times, as
lanes, and asks all of them at once. A label decides its lane, so what a lane knows of its labels
stays true. A store with one owner, such as the disk, has one lane.

A page that is wrong, missing, damaged or late is False and never an exception: an engine computes
it again. The first failure is logged, and all are counted.

Threads: any. A call ends at its deadline, or, where another call on the lane is then under way, at
that one's.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import hashlib
import logging
import threading
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from . import errors
from .instance import Instance
from .tier import Label, Piece, StoreFlags, Tier

LANES = 8  # a few round trips at once hide most of their time
TIMEOUT = 2.0  # seconds

_logger = logging.getLogger("quire.page_store")


@dataclasses.dataclass
class PageStats:
    """Counts since open."""

    puts: int = 0
    gets: int = 0
    finds: int = 0
    put_failures: int = 0
    get_failures: int = 0  # not found, damaged, of another size, failed or late
    errors: int = 0  # of both, those that were no plain answer


def fingerprint(identity: Mapping[str, Any]) -> bytes:
    """A digest of what is alike for all pages of a kind; the names' order does not matter."""
    text = repr(sorted((name, repr(value)) for name, value in identity.items()))
    return hashlib.sha256(b"quire page 1\0" + text.encode()).digest()


def page_label(kind: bytes, name: bytes) -> Label:
    """The label of the page of this kind, a fingerprint, with this name. The key covers both, so
    that pages of two kinds never displace each other."""
    key = hashlib.sha256(b"quire page key 1\0" + kind + name).digest()
    return Label(key, kind)


class PageStore:
    """The lanes of one store.

    store, options  as quire.Tier's
    lanes           None: 8 if others may open the store too, else 1
    timeout         seconds for one call, however many pages it has
    plugin_path     where stores are looked for before the usual places
    """

    def __init__(self, store: str, options: Optional[Mapping[str, Any]] = None, *,
                 lanes: Optional[int] = None, timeout: float = TIMEOUT,
                 plugin_path: Union[str, List[str], None] = None):
        if lanes is not None and lanes < 1:
            raise errors.ArgumentError(f"lanes is {lanes}: it must be at least 1")
        self.timeout = timeout
        self.stats = PageStats()
        self._lock = threading.Lock()
        self._instance = Instance(plugin_path=plugin_path)
        self._lanes: List[Tier] = []
        self._pool: Optional[concurrent.futures.ThreadPoolExecutor] = None
        texts = {name: str(value) for name, value in (options or {}).items()}
        try:
            self._open(store, texts, lanes)
        except BaseException:
            self.close()
            raise

    def _open(self, store: str, options: Mapping[str, str], lanes: Optional[int]) -> None:
        self._lanes.append(Tier(self._instance, store, options))
        info = self._lanes[0].info
        self.is_shared = StoreFlags.REMOTE in info.flags
        self.max_page_bytes = info.max_value_bytes
        self.place = info.place
        if not self.is_shared and (lanes or 1) != 1:
            raise errors.ArgumentError(f"the store {store} has one owner: lanes must be 1")
        count = lanes if lanes is not None else LANES if self.is_shared else 1
        for _ in range(1, count):
            self._lanes.append(Tier(self._instance, store, options))
        if count > 1:  # so many that calls of three threads do not wait for each other's turn
            self._pool = concurrent.futures.ThreadPoolExecutor(3 * count, "quire pages")

    def close(self) -> None:
        """Ends the store once its requests have ended. Closing it again does nothing."""
        if self._pool is not None:
            self._pool.shutdown()
        for tier in self._lanes:
            tier.close()
        self._lanes = []
        self._instance.close()

    def check_page_bytes(self, size_bytes: int) -> None:
        """Errors: ArgumentError if the store does not take pages of this size."""
        if not 0 < size_bytes <= self.max_page_bytes:
            raise errors.ArgumentError(f"a page has {size_bytes} bytes, and {self.place} takes "
                                       f"values of at most {self.max_page_bytes}")

    def find(self, labels: Sequence[Label]) -> List[bool]:
        """Which pages are there?"""
        self._count(finds=len(labels))
        return self._ask(labels, lambda tier, index, left: tier.find(labels[index], left))

    def leading(self, labels: Sequence[Label]) -> int:
        """How many pages are there before the first that is not."""
        if len(self._lanes) > 1:  # one round trip of all costs less than one of each
            return _leading(self.find(labels))
        end = time.monotonic() + self.timeout
        for index, label in enumerate(labels):
            self._count(finds=1)
            left = end - time.monotonic()
            if not self._one(lambda tier, _, left: tier.find(label, left), 0, index, left):
                return index
        return len(labels)

    def put(self, labels: Sequence[Label], pages: Sequence[Sequence[Piece]]) -> List[bool]:
        """Stores pages; True also for one that was there. A page is given by its pieces, which are
        the caller's again when the call returns."""
        done = self._ask(labels, lambda tier, index, left:
                         tier.put_pieces(labels[index], pages[index], left))
        self._count(puts=len(labels), put_failures=done.count(False))
        return done

    def get(self, labels: Sequence[Label], pages: Sequence[Sequence[Piece]]) -> List[bool]:
        """Fills pages. Those of which it answers False may hold anything."""
        done = self._ask(labels, lambda tier, index, left:
                         tier.get_pieces(labels[index], pages[index], left))
        self._count(gets=len(labels), get_failures=done.count(False))
        return done

    def clear(self, kinds: Sequence[bytes]) -> None:
        """Removes all pages of these kinds. Errors: UnsupportedError if the store cannot tell what
        it has."""
        for tier in self._lanes[:1]:
            found = [record.label for record in tier.records()
                     if record.label.fingerprint in kinds]
            for label in found:
                tier.remove(label, self.timeout)

    def _ask(self, labels: Sequence[Label], request: Callable[[Tier, int, float], bool]
             ) -> List[bool]:
        """Runs a request for each label, on its lane; all lanes at once."""
        done = [False] * len(labels)
        end = time.monotonic() + self.timeout
        parts: Dict[int, List[int]] = {}
        for index, label in enumerate(labels):
            parts.setdefault(label.key[0] % len(self._lanes), []).append(index)

        def run(lane: int) -> None:
            for index in parts[lane]:
                done[index] = self._one(request, lane, index, end - time.monotonic())

        lanes = list(parts)
        others = [self._pool.submit(run, lane) for lane in lanes[1:]] if self._pool else []
        if lanes:
            run(lanes[0])
        for other in others:
            other.result()
        return done

    def _one(self, request: Callable[[Tier, int, float], bool], lane: int, index: int, left: float
             ) -> bool:
        if left <= 0:
            return self._failed("the deadline passed")
        try:
            return request(self._lanes[lane], index, left)
        except errors.QuireError as why:
            return self._failed(str(why))

    def _failed(self, why: str) -> bool:
        self._count(errors=1)
        if self.stats.errors == 1:
            _logger.warning("a page of %s counts as not there: %s. Further ones are only counted.",
                            self.place, why)
        return False

    def _count(self, **counts: int) -> None:
        with self._lock:
            for name, count in counts.items():
                setattr(self.stats, name, getattr(self.stats, name) + count)


def _leading(found: Sequence[bool]) -> int:
    return found.index(False) if False in found else len(found)


_open: Dict[str, Tuple[PageStore, int]] = {}
_open_lock = threading.Lock()


def share(store: str, options: Optional[Mapping[str, Any]] = None, **settings: Any) -> PageStore:
    """The page store of this process with these settings, opened by its first user."""
    name = repr((store, sorted((options or {}).items()), sorted(settings.items())))
    with _open_lock:
        opened, users = _open.get(name) or (PageStore(store, options, **settings), 0)
        _open[name] = opened, users + 1
        return opened


def release(opened: PageStore) -> None:
    """Gives up a store that `share` returned; its last user closes it."""
    with _open_lock:
        for name, (other, users) in list(_open.items()):
            if other is opened:
                if users > 1:
                    _open[name] = other, users - 1
                    return
                del _open[name]
    opened.close()
