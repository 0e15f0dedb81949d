# SPDX-License-Identifier: Apache-2.0
"""vllm_table: the requests that hold blocks, and how they get, name and return them.

Every request has a sequence. A step adds its tokens as unknown where they must not be looked up;
they get their ids, and so enter the cache, when vLLM says that they may be cached: `name_later`
notes it, and `name_due` tells the library about all of them at once, before anything can notice.

A decoding request needs a block every block_size tokens. When the first of them needs one, all of
them get one, in one step of the library: `reserve`. Reserved blocks count as free. When blocks are
short they are given back, and nothing is reserved while few are left, so that no request waits, and
hardly a cached block is evicted, for the sake of a reservation.

Invariants:
  (1) reserved == the number of blocks past `room` in the tables of all requests
  (2) named <= due <= room, all of them whole blocks
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Callable, Collection, Container, Dict, List, Optional, Set, Tuple

import numpy as np

from . import elements
from .elements import SPAN, UNKNOWN
from .sequence import Key
from .step import RUN
from .vllm_blocks import Blocks, KVCacheBlock
from .vllm_books import Books
from .vllm_index import Entry, Index
from .vllm_retention import Retention
from .vllm_request import Content, ids, tokens as converted
from .vllm_running import Running, Shape, hashes_of
from .vllm_scratch import Scratch
from .vllm_window import Window

_LEAST_RESERVED = 4  # requests: a step for fewer of them saves nothing
_RESERVED_SHARE = 8  # a reservation takes at most one in 8 of the blocks that are left
_NEVER = 1 << 62     # a request with this mark caches nothing more
Tables = List[List[int]]  # numbers of blocks, per group


def _first_in(blocks: List[int], some: Container[int]) -> int:
    """How many blocks are before the first one that is among some; all if none is."""
    return next((i for i, block in enumerate(blocks) if block in some), len(blocks))


class Table:
    """The requests that hold blocks of one cache.

    late       computed tokens, the last ones, that may be computed again and are not cached yet
    lookahead  tokens after a block that belong to its content
    shape      of the groups' blocks
    index      the cached blocks by hash, once something has asked for it
    retention  which blocks of a windowed model are kept; None: all are
    bad        blocks that must not be found any more: how many requests hold each of them
    """

    def __init__(self, books: Books, blocks: Blocks, late: int = 0, lookahead: int = 0,
                 hash_size: int = 0, retention: Optional[Retention] = None):
        self.retention = retention
        self.books = books
        self.blocks = blocks
        self.content = Content(books.block_size, lookahead)
        self.running: Dict[str, Running] = {}
        self.reserved = 0
        self.late, self.lookahead = late, lookahead
        self.shape = Shape(books.block_size, books.sizes,
                           books.block_size // (hash_size or books.block_size),
                           [0] * books.group_count, books.slots,
                           None if retention is None else retention.keeps)
        self._is_single = books.group_count == 1
        self.index: Optional[Index] = None
        self.bad: Counter[int] = Counter()
        self.window = Window(books, blocks)
        self.scratch = Scratch(books, blocks)
        self._due: Dict[Running, None] = {}

    def free_count(self) -> int:
        """Blocks that a request could take."""
        return self.books.available() + self.reserved

    # Lookup.

    def look_up(self, request: Any, most: Optional[int],
                drops_last: bool) -> Tuple[int, Tables, int]:
        """How many of a request's first tokens are found, at most `most` and never the last one,
        and in which blocks of each group; with drops_last without the last block. And how many are
        cached in all: more, if blocks that are not kept follow, else 0."""
        if self._due:
            self.name_due()
        tokens, keys = self.content.of(request)
        if self.lookahead:
            tokens = np.append(tokens, np.uint32(UNKNOWN))
        if drops_last:
            count, tables, cached = self._found_before_one(keys, tokens, len(ids(request)), most)
            cached = max(cached, count)
        else:
            tokens = tokens if most is None else tokens[:most + 1]
            count, tables = self.found(keys, tokens)
            cached = count
        unit = self.books.alignment
        while count and (count % unit or not self._is_kept(request, count)):
            count, tables = self.found(keys, tokens[:count - (count % unit or unit) + 1])
        return count, tables, cached if cached > count else 0

    def _found_before_one(self, keys: List[Key], tokens: Any, known: int,
                          most: Optional[int]) -> Tuple[int, Tables, int]:
        """What is found before a block that is found as well: so vLLM drops a block from a hit, and
        from one in several groups a block that may hold the last of the `known` tokens. And how
        many tokens are found in full attention: with that block, if it drops none."""
        size = self.books.block_size
        most = known - 1 if most is None else min(most, known - 1)
        longest = np.append(tokens, np.uint32(UNKNOWN))
        longest = longest[:most + 1 + (0 if self._is_single else size)]
        first = whole = self.found(keys, longest)[0]
        while True:
            if whole <= size:
                count, tables = 0, self.nothing
                break
            end = min(whole - size, most)
            count, tables = self.found(keys, tokens[:end + 1])
            if count == end // size * size:
                break
            # The block after a shorter hit must be found too.
            whole = self.found(keys, longest[:count + size + 1])[0]
        if self.retention is None or any(self.retention.drops(group) for group in self.books.cached
                                         if not self.books.groups[group].passes):
            return count, tables, count
        unit = self.books.alignment
        return count, tables, min(first, most) // unit * unit

    def _is_kept(self, request: Any, tokens: int) -> bool:
        """True if the blocks are kept that a lookup needs which ends after so many tokens."""
        if self.retention is None or self.retention.interval is None:
            return True
        assert self.index is not None
        self.index.sync()
        hashes = hashes_of(request, self.shape.scale)
        for group in self.retention.needs:
            if not all(place < len(hashes) and self.index.keeps(group, hashes[place])
                       for place in self.retention.places(group, tokens)):
                return False
        return True

    def found(self, keys: List[Key], tokens: Any,
              bad: Optional[Collection[int]] = None) -> Tuple[int, Tables]:
        """How many of some tokens are found, the last one apart, and in which blocks of each group.
        There are no blocks if the token after them cannot get one: then a request could not take
        them. bad: blocks that must not be found; None: as for a request."""
        bad = self._unfound() if bad is None else bad
        if not keys and not bad and self._is_single:
            count, ids_ = self.books.look_up(tokens)
            return count, [ids_]
        probe = self.books.create(keys) if keys else self.books.probe_all
        try:
            count = self.books.probe(probe, tokens)
            while count:
                tables = self._shown(probe, tokens[:count + 1], count)
                if not bad:
                    return count, tables
                good = self._end_of_good(tables, bad)
                if good >= count:
                    return count, tables
                count = self.books.probe(probe, tokens[:good + 1])
            return 0, self.nothing
        finally:
            if keys:
                self.books.end(probe)

    def _unfound(self) -> Collection[int]:
        """The blocks that must not be found."""
        if self.index is None or not self.index.hidden:
            return self.bad
        self.index.sync()  # a hidden block may have left the cache
        return {*self.bad, *self.index.hidden}

    def _end_of_good(self, tables: Tables, bad: Container[int]) -> int:
        """The end of the first tokens whose blocks in tables are not bad."""
        return min(_first_in(table, bad) * size
                   for table, size in zip(tables, self.books.sizes) if size)

    @property
    def nothing(self) -> Tables:
        """No blocks in any group."""
        return [[] for _ in self.books.groups]

    def _shown(self, probe: int, tokens: Any, count: int) -> Tables:
        """The blocks that were found: a step would take them, but it is aborted."""
        self.books.begin(probe, tokens, 0)
        tables = self.books.tables(probe, step=self.books.step)
        self.books.abort()
        return [table[:count // size] if size else []
                for table, size in zip(tables, self.books.sizes)]

    # Growth.

    def admit(self, request: Any, encoder_tokens: int = 0, computed: int = 0) -> Running:
        """A request that holds nothing yet, and begins after so many computed tokens; `grow` enters
        it in the table."""
        keys: List[Key] = []
        count = 0
        if self.books.caches:
            keys = self.content.of(request)[1]
            count = len(ids(request))
        running = Running(request, self.books.create(keys, encoder_tokens), self.shape, count, keys,
                          [[] for _ in self.books.groups])
        if count < self.lookahead:
            running.mark = _NEVER  # the keys lack some of the first tokens
        if self.scratch:
            self.scratch.start(running, computed)
        return running

    def advance(self, running: Running, processed: int) -> None:
        """The steps of a request's first `processed` tokens are done."""
        self.window.advance(running, processed)
        if self.scratch:
            self.scratch.advance(running, processed)

    def grow(self, running: Running, verified: int, need: int, found: int, cached: int,
             spare: int) -> Optional[Tuple[List[KVCacheBlock], ...]]:
        """Gives a request slots for `need` tokens, and returns its new blocks per group. None:
        there are too few, or fewer than `spare` would be left; nothing changed.

        found   tokens that must be in the cache, for a request that holds nothing
        cached  tokens whose full blocks may enter the cache
        """
        size = self.books.block_size
        count = -(-need // size)
        if count == len(running.blocks) + 1 and running.room != 0:
            self._reserve()
        before = len(running.blocks) - running.room // size if self._is_single else \
            self._reserved(running)
        if self.books.is_exact or count > len(running.blocks):
            if not self._step(running, verified, need, found, cached, spare):
                return None
        elif spare:
            taken = self.books.group_count * (count - running.room // size)
            if self.free_count() - taken < spare:
                return None
        self.running[running.request.request_id] = running
        running.adopt(found, self.books.host_blocks != 0)
        new = running.give(need if need > running.room else running.room)
        self.reserved += (len(running.blocks) - running.room // size if self._is_single else
                          self._reserved(running)) - before
        self.name_later(running, cached)
        return new

    def _reserved(self, running: Running) -> int:
        """How many blocks a request has that vLLM does not know of."""
        if self._is_single:
            return len(running.blocks) - running.room // running.size
        return sum(map(len, running.reserved()))

    def _step(self, running: Running, verified: int, need: int, found: int, cached: int,
              spare: int) -> bool:
        """Runs a step of this request alone. False: it waits, and nothing changed."""
        size = self.books.block_size
        known = max(-(-need // size) * size, found + size if found >= need else 0)
        if self.books.is_exact:
            known = max(verified, running.known + 1, found + 1)
        if self.scratch:
            self.scratch.plan(running, need)
        tokens = np.full(known - running.known, UNKNOWN, elements.TOKEN)
        cached = self._cacheable(running, cached)
        end = max(found, cached // size * size) if self.books.caches and running.known == 0 else 0
        end = min(end, known)
        tokens[:end] = self.content.of(running.request)[0][:end] if end else 0
        kept = self.window.keep(running) if self.books.windows else None
        named = self._open(running, tokens, max(0, need - known), found, end, spare)
        if named is None:
            self.window.undo(running, kept)
            return False
        self.books.close_step()
        if self.scratch:
            self.scratch.settle(running)
        self._read(running, known, named, found)
        if self.index is not None and named > found:
            self.index.note(running, found // size, named // size)
        return True

    def _open(self, running: Running, tokens: Any, lookahead: int, found: int, end: int,
              spare: int) -> Optional[int]:
        """Opens the step, in which the first `end` tokens are named; more than `found` of them may
        be in the cache, and must then be unknown. Returns how many are named; None: it waits."""
        result = self.books.begin(running.sequence, tokens, lookahead)
        if result.outcome == RUN and result.hit_tokens > found:
            self.books.abort()
            tokens[found:] = UNKNOWN
            end = found
            result = self.books.begin(running.sequence, tokens, lookahead)
        if result.outcome != RUN or not self.scratch.take():
            self.books.abort()
            if self.reserved == 0:
                return None
            self.give_back()
            return self._open(running, tokens, lookahead, found, end, spare)
        if spare and self.free_count() < spare:
            self.books.abort()
            return None
        hits = result.hit_tokens
        if hits < found:
            self.books.abort()
            raise ValueError(f"num_new_computed_tokens is {found}, but {hits} tokens of the "
                             "request are in the cache")
        return end

    def _read(self, running: Running, known: int, named: int, found: int) -> None:
        """Reads the blocks that a step added to the request's table."""
        first, running.known = running.known or found, known
        if named > running.named:
            running.named = named
            running.name(named)
        self._read_tables(running)
        if self.books.windows:
            self.window.stepped(running, first)
            if running.room == 0:
                running.passed = running.front

    def _read_tables(self, running: Running) -> None:
        """Reads the blocks that were added to a request's tables."""
        for group, table in enumerate(running.tables):
            if group in running.slots:
                continue
            table += self.blocks.of(self.books.blocks(running.sequence, len(table), group=group))

    # Reservation.

    def _reserve(self) -> None:
        """Gives a block to every request that has none in reserve, if enough of them are left."""
        if self.books.is_exact or len(self.running) < _LEAST_RESERVED:
            return
        size = self.books.block_size
        wanting = [r for r in self.running.values() if len(r.blocks) * size == r.room]
        count = len(wanting)
        blocks = count * self.books.group_count
        if count < _LEAST_RESERVED or blocks * _RESERVED_SHARE > self.books.available():
            return
        self.name_due()
        if not self.books.extend([r.sequence for r in wanting]):
            return
        for running in wanting:
            running.known += size
            if self._is_single:
                last = self.books.blocks(running.sequence, len(running.blocks))
                running.blocks.append(self.blocks[last[0]])
            else:
                self._read_tables(running)
        self.reserved += blocks

    def give_back(self) -> None:
        """Returns all reserved blocks."""
        for running in self.running.values():
            self.trim(running)
        self.reserved = 0

    def trim(self, running: Running) -> None:
        """Returns the reserved blocks of one request, which still count as reserved."""
        if self._reserved(running):
            running.known = running.room
            for table, size in zip(running.tables, running.sizes):
                if size:
                    del table[-(-running.room // size):]
            self.books.truncate(running.sequence, running.known)

    # Naming.

    def _cacheable(self, running: Running, count: int) -> int:
        """How many of a request's first `count` tokens may enter the cache."""
        if self.lookahead:
            count = min(count, running.request.num_tokens - self.lookahead)
        return max(0, count - self.late)

    def name_later(self, running: Running, count: int) -> None:
        """The full blocks of a request's first `count` tokens may enter the cache."""
        if not self.books.caches or count < running.mark:
            return
        count = self._cacheable(running, min(count, running.request.num_tokens))
        end = min(count, running.room) // running.size * running.size
        if end <= running.due:
            return
        running.name(end)
        self._due[running] = None
        if self.books.is_exact:
            self.name_due()

    def name_due(self) -> None:
        """Names all tokens that are due."""
        if not self._due:
            return
        due, self._due = self._due, {}
        if len(due) == 1 or self.index is not None:
            for running in due:
                self._name(running)
            return
        values: List[int] = []
        rows = []
        for running in due:
            part = self._part(running)
            rows.append((running.sequence, running.named, len(values), len(part), 0))
            values.extend(part)
        tokens, wide = converted(values)
        if wide is not None:
            for running in due:
                self._name(running)
            return
        self.books.name(np.array(rows, SPAN), tokens)
        for running in due:
            running.named = running.due

    def _name(self, running: Running) -> None:
        """Names the tokens of one request that are due."""
        tokens, wide = converted(self._part(running))
        if wide is not None and self._unkeyed(running, wide):
            running.due, running.mark = running.named, _NEVER
            return
        if running.due > running.known and not self.window.add(running, running.due):
            running.name(running.named)
            return
        self.books.name_one(running.sequence, running.named, tokens)
        begin, running.named = running.named, running.due
        if self.index is not None:
            self.index.note(running, begin // running.size, running.due // running.size)

    def _part(self, running: Running) -> Any:
        """The ids of the tokens that are due."""
        return ids(running.request)[running.named + self.lookahead:running.due + self.lookahead]

    def _unkeyed(self, running: Running, wide: Any) -> bool:
        """True if a token that the library has no number for is in no key of the request."""
        strange = (wide < 0) | (wide >= UNKNOWN)
        last = running.named + self.lookahead + np.flatnonzero(strange)[-1]
        return bool(last >= running.keyed)

    # Release.

    def remove(self, request_id: str) -> Optional[Running]:
        """Takes a request out of the table; `end` returns its blocks."""
        running = self.running.pop(request_id, None)
        if running is None:
            return None
        if running in self._due:
            self.name_due()
        self.reserved -= self._reserved(running)
        return running

    def end(self, running: Running) -> None:
        """Returns a removed request's blocks; those that are cached stay cached, and the tail
        counts as older than the head."""
        if running.bad is None:
            self.books.end(running.sequence)
        else:
            self._end_bad(running)
        if running.keepers:
            self.window.end(running)
        if self.scratch:
            self.scratch.end(running)
        running.end()
        self.content.forget()

    def make_bad(self, running: Running, blocks: Set[int]) -> List[int]:
        """If a request's cached blocks are among these, neither the first of them nor the blocks
        after it are to be found any more. Returns those."""
        if running in self._due:
            self.name_due()
        end = running.due
        if end == 0:
            return []
        tables = [[block.block_id for block in table[:end // size]] if size else []
                  for table, size in zip(running.tables, running.sizes)]
        first = self._end_of_good(tables, blocks)
        if first >= end:
            return []
        bad = running.blocks_between(first, end)
        if running.bad is None:
            running.bad_end = end
        running.bad = first
        running.due, running.mark = first, _NEVER
        self.bad += Counter(bad)
        return bad

    def _end_bad(self, running: Running) -> None:
        """Forgets the blocks that must not be found. Those before them stay cached, because another
        sequence holds them meanwhile."""
        bad, kept = running.bad or 0, 0
        if bad != 0:
            kept = self.books.fork(running.sequence, bad)
        self.books.drop(running.sequence)
        if kept:
            self.books.end(kept)
        self.bad -= Counter(running.blocks_between(bad, running.bad_end))

    # Hashes.

    def start_index(self, is_held: Callable[[Entry], bool]) -> Index:
        """Keeps the cached blocks by hash from now on. Those of running requests are entered."""
        self.name_due()
        stored = self.books.changes().stored
        self.index = Index(self.books, is_held, self._blocks_of, self.retention)
        self.books.on_evicted, self.books.on_restored = self.index.evicted, self.index.restored
        for running in self.running.values():
            if running.due != 0:
                content, keys = self.content.of(running.request)
                tables = self.found(keys, np.append(content[:running.due], np.uint32(UNKNOWN)))[1]
                self.index.enter(running, tables, content, stored)
        self.index.pass_over(stored)
        return self.index

    def _blocks_of(self, entry: Entry) -> List[int]:
        """The blocks of an entry's group that a lookup finds for its tokens and those before
        them."""
        chain = entry.chain()
        if not chain:
            return []
        tokens = np.concatenate([e.tokens for e in chain] + [np.full(1, UNKNOWN, elements.TOKEN)])
        count, tables = self.found(entry.keys, tokens, self.bad)
        return tables[entry.group] if count == len(tokens) - 1 else []
