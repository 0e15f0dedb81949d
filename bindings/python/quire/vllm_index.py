# SPDX-License-Identifier: Apache-2.0
"""vllm_index: the cached blocks by vLLM's hashes.

The library finds blocks by their tokens and knows no hash. The index learns which of them are
cached from the library's events, and their hashes from the requests that named them: it reads the
events after each request's tokens are named, so a block that is new then is that request's, and its
place says which. A cached block that no request named while the index was kept has no hash here.

It is kept from the first time that something asks for it, because it costs time for every block.
Connectors ask when they are bound, before there are requests. If there are requests, their cached
blocks are entered then.

A block that is evicted to host memory keeps its entry. Events tell on which levels it is; the
copies of a step tell which blocks they took, because a block may go and come back between two
reads of the events, into another one.

Invariants, once `sync` has read all events:
  (1) an entry's content is what a lookup finds, and its block, once it is settled, holds that
  (2) for every hash that was told as stored on a level and not as removed there is an entry there
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Set

from .vllm_books import DEVICE, Books, Changes, Stored, Tokens
from .vllm_retention import Retention
from .vllm_running import Running
from .sequence import Key

_ON_DEVICE = 1 << DEVICE


class Entry:
    """A cached block.

    number  the library's, in its events
    hash    vLLM's
    block   its block number; 0: it is not on the device
    place   how many blocks are before it
    parent  the entry of the block before it; None if it is first, or if that block is not cached
    tokens  its tokens, as the library has them
    keys    what else its content depends on
    levels     1 << level for each level on which it is
    is_shared  True if the content may be in another block
    kept    False if vLLM would not keep it (vllm_retention.py): then it is in no answer
    """

    __slots__ = ("number", "hash", "block", "place", "parent", "tokens", "keys", "levels",
                 "is_shared", "kept")

    def __init__(self, number: int, hash_: Any, block: int, place: int, parent: "Optional[Entry]",
                 tokens: Tokens, keys: List[Key]):
        self.number, self.hash, self.block, self.place = number, hash_, block, place
        self.parent, self.tokens, self.keys = parent, tokens, keys
        self.levels = _ON_DEVICE
        self.is_shared = False
        self.kept = True

    def chain(self) -> "List[Entry]":
        """The entries from the first block to this one; none if one between is not cached."""
        found: List[Entry] = []
        at: Optional[Entry] = self
        while at is not None:
            found.append(at)
            at = at.parent
        return found[::-1] if len(found) == self.place + 1 else []


class Index:
    """The cached blocks of one cache by hash.

    is_held     tells whether something holds an entry's block with its content
    look_up     finds the blocks of an entry and of those before it
    on_stored   gets a request and the first and last + 1 of its blocks that are new
    on_moved    gets a hash, and a level on which a block with it now is
    on_removed  gets a hash, a level on which no cached block has it any more, and True if none has
    on_cleared  is called when nothing is cached any more
    """

    def __init__(self, books: Books, is_held: Callable[[Entry], bool],
                 look_up: Callable[[Entry], List[int]],
                 retention: Optional[Retention] = None):
        self._books, self._retention = books, retention
        self._is_held, self._look_up = is_held, look_up
        self._entries: Dict[int, Entry] = {}
        self._by_hash: Dict[Any, List[Entry]] = {}
        self._by_block: Dict[int, Entry] = {}
        self._passing: Dict[Any, Entry] = {}  # by hash, those that are not kept
        self._by_host: Dict[int, Entry] = {}  # by the block of the host that has the content
        self._nameless: Set[int] = set()      # numbers of blocks that never get an entry
        self.on_stored: Optional[Callable[[Running, int, int], None]] = None
        self.on_moved: Optional[Callable[[Any, int], None]] = None
        self.on_removed: Optional[Callable[[Any, int, bool], None]] = None
        self.on_cleared: Optional[Callable[[], None]] = None

    # Questions. `sync` comes first.

    def __len__(self) -> int:
        if not self._books.host_blocks:
            return len(self._by_hash)
        return sum(1 for hash_ in self._by_hash if self._levels(hash_) & _ON_DEVICE)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._by_hash)

    def find(self, hash_: Any) -> Optional[Entry]:
        """The entry with a hash that has been cached for longest, of those on the device."""
        return self._settle(next((entry for entry in self._by_hash.get(hash_, ())
                                  if entry.levels & _ON_DEVICE), None))

    def keeps(self, hash_: Any) -> bool:
        """True if a block with the hash is cached and kept."""
        return hash_ in self._by_hash

    def _first(self, hash_: Any) -> Optional[Entry]:
        found = self._by_hash.get(hash_)
        return found[0] if found else None

    def _levels(self, hash_: Any) -> int:
        """1 << level for each level on which a block with a hash is."""
        levels = 0
        for entry in self._by_hash.get(hash_, ()):
            levels |= entry.levels
        return levels

    def at(self, block: int) -> Optional[Entry]:
        """The entry of a block."""
        entry = self._settle(self._by_block.get(block))
        return entry if entry is not None and entry.block == block and entry.kept else None

    # Changes.

    def enter(self, running: Running, blocks: List[int], tokens: Tokens,
              after: Dict[Any, List[int]]) -> None:
        """Enters what is cached of a request.

        blocks  those that a lookup finds for its first tokens
        after   {(number of a block or 0, tokens): the numbers of the blocks with these tokens that
                follow it}
        """
        parent = None
        for i, (block, hash_) in enumerate(zip(blocks, running.hash_list())):
            part = tokens[i * running.size:(i + 1) * running.size]
            numbers = after.get((parent.number if parent else 0, part.tobytes()), ())
            if len(numbers) != 1:
                return  # keys tell equal tokens apart, and events do not show them
            entry = self._entries.get(numbers[0])
            if entry is None:
                entry = Entry(numbers[0], hash_, block, i, parent, part, running.keys)
                self._add(entry)
            parent = entry

    def sync(self) -> None:
        """Reads the events. What they store has no hash: `note` has read what requests named."""
        changes = self._books.changes()
        self._take(changes)
        self.pass_over(changes.stored)

    def pass_over(self, stored: Iterable[Stored]) -> None:
        """Blocks that no request has named while the index was kept get no entry later either, when
        they are stored on another level."""
        if self._books.host_blocks:
            self._nameless.update(at.number for at in stored if at.number not in self._entries)

    def evicted(self, block: int, host_block: int) -> None:
        """The content of a block was moved to host memory."""
        self._by_host.pop(host_block, None)
        entry = self._by_block.pop(block, None)
        if entry is not None:
            entry.block = 0
            self._by_host[host_block] = entry

    def restored(self, host_block: int, block: int) -> None:
        """And back from there."""
        entry = self._by_host.pop(host_block, None)
        if entry is not None:
            entry.block = block
            self._by_block[block] = entry

    def forget(self, block: int) -> None:
        """The block is not to be found any more, although the library has it."""
        entry = self._by_block.get(block)
        if entry is not None:
            if self._books.host_blocks:
                self._nameless.add(entry.number)
            self._remove(entry, DEVICE)

    def note(self, running: Running, begin: int, end: int) -> None:
        """The tokens of a request's blocks from `begin` to `end` were just named."""
        changes = self._books.changes()
        self._take(changes)
        if running.last_entry is not None and running.last_entry not in self._entries:
            begin = 0  # the library may have begun again at the first block
        hashes, new = running.hash_list(), []
        end = min(end, len(hashes))
        for at in changes.stored:
            i = at.place // running.size
            if begin <= i < end and at.number not in self._entries and \
                    at.number not in self._nameless:
                block = running.blocks[i].block_id
                made = Entry(at.number, hashes[i], block, i, self._entries.get(at.parent),
                             at.tokens, running.keys)
                made.kept = self._keeps(running, i)
                if self._add(made):
                    new.append(i)
        self.pass_over(changes.stored)
        entry = None
        for i in range(begin, end):
            entry = self._first(hashes[i]) or self._passing.get(hashes[i])
            if entry is not None and not entry.kept and self._keeps(running, i):
                del self._passing[entry.hash]
                entry.kept = True
                if self._add(entry):
                    new.append(i)
            block = running.blocks[i].block_id
            if entry is not None and entry.block != block:
                entry.is_shared = True
                if entry.block == 0:  # it was in host memory, and the request computed it anew
                    entry.block = block
                    self._by_block[block] = entry
        running.last_entry = entry.number if entry is not None else -1
        self._tell_stored(running, sorted(new))

    def _keeps(self, running: Running, place: int) -> bool:
        return self._retention is None or self._retention.keeps(running.request, place)

    def _settle(self, entry: Optional[Entry]) -> Optional[Entry]:
        """The entry with its block made right. The library caches each content once. If another
        request has the content in a block of its own, the library may take that one, once the
        entry's is not held. It does not tell; a lookup does, unless no other block is free: then
        None."""
        if entry is None or not entry.is_shared or self._is_held(entry):
            return entry
        blocks = self._look_up(entry)
        if not blocks:
            return None
        if self._by_block.get(entry.block) is entry:
            del self._by_block[entry.block]
        entry.block = blocks[-1]
        self._by_block[entry.block] = entry
        return entry

    def _tell_stored(self, running: Running, new: List[int]) -> None:
        if self.on_stored is None:
            return
        while new:
            count = next((k for k in range(1, len(new)) if new[k] != new[0] + k), len(new))
            self.on_stored(running, new[0], new[0] + count)
            new = new[count:]

    def _take(self, changes: Changes) -> None:
        """What was removed, and what moved: a number that has an entry is stored on a level."""
        if changes.cleared:
            for entries in (self._entries, self._by_hash, self._by_block, self._passing,
                            self._by_host):
                entries.clear()
            if self.on_cleared is not None:
                self.on_cleared()
        for at in changes.stored:
            entry = self._entries.get(at.number)
            if entry is not None:
                self._arrive(entry, at.level)
        for number, level in changes.removed:
            entry = self._entries.get(number)
            if entry is not None:
                self._remove(entry, level)

    def _arrive(self, entry: Entry, level: int) -> None:
        is_new = not self._levels(entry.hash) & 1 << level
        entry.levels |= 1 << level
        if is_new and self.on_moved is not None:
            self.on_moved(entry.hash, level)

    def _add(self, entry: Entry) -> bool:
        """Adds an entry. True: it is kept, and no other one on the device has its hash."""
        if not entry.kept and entry.hash not in self._by_hash:
            self._passing.setdefault(entry.hash, entry)
            self._entries[entry.number] = entry
            self._by_block[entry.block] = entry
            return False
        entry.kept = True
        is_new = not self._levels(entry.hash) & _ON_DEVICE
        self._by_hash.setdefault(entry.hash, []).append(entry)
        self._entries[entry.number] = entry
        self._by_block[entry.block] = entry
        return is_new

    def _remove(self, entry: Entry, level: int) -> None:
        """The block of an entry is not on a level any more."""
        if level == DEVICE and self._by_block.get(entry.block) is entry:
            del self._by_block[entry.block]
        entry.levels &= ~(1 << level)
        if entry.levels == 0:
            self._drop(entry)
        levels = self._levels(entry.hash)
        if entry.kept and not levels & 1 << level and self.on_removed is not None:
            self.on_removed(entry.hash, level, levels == 0)

    def _drop(self, entry: Entry) -> None:
        del self._entries[entry.number]
        if not entry.kept:
            if self._passing.get(entry.hash) is entry:
                del self._passing[entry.hash]
            return
        same = self._by_hash[entry.hash]
        same.remove(entry)
        if not same:
            del self._by_hash[entry.hash]
