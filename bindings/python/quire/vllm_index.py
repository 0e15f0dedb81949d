# SPDX-License-Identifier: Apache-2.0
"""vllm_index: the cached blocks by vLLM's hashes.

The library finds blocks by their tokens and knows no hash. The index learns which of them are
cached from the library's events, and their hashes from the requests that named them: it reads the
events after each request's tokens are named, so a block that is new then is that request's, and its
place says which. A cached block that no request named while the index was kept has no hash here.

It is kept from the first time that something asks for it, because it costs time for every block.
Connectors ask when they are bound, before there are requests. If there are requests, their cached
blocks are entered then.

The blocks of all groups with the same tokens have one number, and an entry each. Which blocks are
before one is a matter of tokens, so any group's entry tells it.

A block that is evicted to host memory keeps its entry. Events tell on which levels it is; the
copies of a step tell which blocks they took, because a block may go and come back between two
reads of the events, into another one.

Invariants, once `sync` has read all events:
  (1) an entry's content is what a lookup finds, and its block, once it is settled, holds that
  (2) for every hash that was told as stored on a level and not as removed there is an entry there
"""

from __future__ import annotations

from typing import (
    Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence as Listed, Set, Tuple)

from .vllm_books import DEVICE, Books, Changes, Stored, Tokens
from .vllm_retention import Retention
from .vllm_running import Running
from .sequence import Key

_ON_DEVICE = 1 << DEVICE
Name = Tuple[int, Any]  # a group's number, and vLLM's hash


class Entry:
    """A cached block.

    number  the library's, in its events
    group   the KV cache group's number
    hash    vLLM's
    block   its block number; 0: it is not on the device
    place   how many blocks are before it
    parent  an entry of the block before it, of this group or another; None if it is first, or if
            that one is not cached
    tokens  its own, as the library has them
    keys    what else its content depends on
    levels     1 << level for each level on which it is
    is_shared  True if the content may be in another block
    kept    False if vLLM would not keep it (vllm_retention.py): then it is in no answer
    is_hidden  True if someone has taken it out of the map of hashes, see `hide`
    """

    __slots__ = ("number", "group", "hash", "block", "place", "parent", "tokens", "keys", "levels",
                 "is_shared", "kept", "is_hidden")

    def __init__(self, number: int, group: int, hash_: Any, block: int, place: int,
                 parent: "Optional[Entry]", tokens: Tokens, keys: List[Key]):
        self.number, self.group, self.hash = number, group, hash_
        self.block, self.place = block, place
        self.parent, self.tokens, self.keys = parent, tokens, keys
        self.levels = _ON_DEVICE
        self.is_shared = False
        self.kept = True
        self.is_hidden = False

    @property
    def name(self) -> Name:
        """What it is looked up by."""
        return self.group, self.hash

    def chain(self) -> "List[Entry]":
        """Entries of the blocks from the first to this one; none if one between is not cached."""
        found: List[Entry] = []
        at: Optional[Entry] = self
        while at is not None:
            found.append(at)
            at = at.parent
        return found[::-1] if len(found) == self.place + 1 else []


class Index:
    """The cached blocks of one cache by hash.

    is_held     tells whether something holds an entry's block with its content
    look_up     finds the blocks of an entry's group up to its own
    hidden      cached blocks that lookups must not find, and their entries
    on_stored   gets a group, and a request and the first and last + 1 of its blocks that are new
    on_moved    gets a name, and a level on which a block with it now is
    on_removed  gets a name, a level on which no cached block has it any more, and True if none has
    on_cleared  is called when nothing is cached any more
    """

    def __init__(self, books: Books, is_held: Callable[[Entry], bool],
                 look_up: Callable[[Entry], List[int]], retention: Optional[Retention] = None):
        self._books, self._retention = books, retention
        self._is_held, self._look_up = is_held, look_up
        self._entries: Dict[int, List[Entry]] = {}  # by number
        self._by_name: Dict[Name, List[Entry]] = {}
        self._by_block: Dict[int, Entry] = {}
        self._passing: Dict[Name, Entry] = {}  # those that are not kept
        self._by_host: Dict[int, Entry] = {}  # by the block of the host that has the content
        self._nameless: Set[int] = set()      # numbers of blocks that never get an entry
        self.hidden: Dict[int, Entry] = {}
        self.on_stored: Optional[Callable[[int, Running, int, int], None]] = None
        self.on_moved: Optional[Callable[[Name, int], None]] = None
        self.on_removed: Optional[Callable[[Name, int, bool], None]] = None
        self.on_cleared: Optional[Callable[[], None]] = None

    # Questions. `sync` comes first.

    def __len__(self) -> int:
        if self.hidden:
            return sum(1 for name in self._by_name if self.keeps(*name))
        if not self._books.host_blocks:
            return len(self._by_name)
        return sum(1 for name in self._by_name if self._levels(name) & _ON_DEVICE)

    def __iter__(self) -> Iterator[Name]:
        return iter(self._by_name)

    def find(self, group: int, hash_: Any) -> Optional[Entry]:
        """The entry of a group with a hash that has been cached for longest, of those on the
        device."""
        return self._settle(next(self._seen(group, hash_), None))

    def blocks(self, group: int, hash_: Any) -> List[int]:
        """The blocks of a group with a hash that are on the device."""
        found = [self._settle(entry) for entry in self._seen(group, hash_)]
        return [entry.block for entry in found if entry is not None]

    def _seen(self, group: int, hash_: Any) -> Iterator[Entry]:
        return (entry for entry in self._by_name.get((group, hash_), ())
                if entry.levels & _ON_DEVICE and not entry.is_hidden)

    def keeps(self, group: int, hash_: Any) -> bool:
        """True if a block of a group with the hash is cached and kept."""
        entries = self._by_name.get((group, hash_), ())
        return any(not entry.is_hidden for entry in entries) if self.hidden else len(entries) != 0

    def _first(self, name: Name) -> Optional[Entry]:
        found = self._by_name.get(name)
        return found[0] if found else None

    def _levels(self, name: Name) -> int:
        """1 << level for each level on which a block with a name is."""
        levels = 0
        for entry in self._by_name.get(name, ()):
            levels |= entry.levels
        return levels

    def _of(self, number: int, group: int) -> Optional[Entry]:
        """The entry of a group with a number."""
        return next((e for e in self._entries.get(number, ()) if e.group == group), None)

    def _any_of(self, number: int) -> Optional[Entry]:
        """An entry of any group with a number."""
        found = self._entries.get(number)
        return found[0] if found else None

    def at(self, block: int) -> Optional[Entry]:
        """The entry of a block."""
        entry = self._settle(self._by_block.get(block))
        return entry if entry is not None and entry.block == block and entry.kept and \
            not entry.is_hidden else None

    # Changes.

    def enter(self, running: Running, tables: List[List[int]], tokens: Tokens,
              stored: Listed[Stored]) -> None:
        """Enters what is cached of a request.

        tables  the blocks that a lookup finds for its first tokens, per group; 0: the window has
                passed it there, and it may be cached nevertheless
        stored  all that is cached
        """
        after: Dict[Any, Set[int]] = {}
        groups: Dict[int, Set[int]] = {}
        for at in stored:
            after.setdefault((at.parent, at.tokens.tobytes()), set()).add(at.number)
            groups.setdefault(at.number, set()).add(at.group)
        number, parent = 0, None
        hashes = running.hash_list()
        count = min(len(tables[group]) for group in self._books.cached)
        for i in range(min(count, len(hashes))):
            part = tokens[i * running.size:(i + 1) * running.size]
            numbers = after.get((number, part.tobytes()), ())
            if len(numbers) != 1:
                return  # keys tell equal tokens apart, and events do not show them
            number = next(iter(numbers))
            for group in groups[number]:
                found = tables[group][i]
                block = found or running.tables[group][i].block_id
                if block != 0 and self._of(number, group) is None:
                    entry = Entry(number, group, hashes[i], block, i, parent, part, running.keys)
                    entry.is_shared = found == 0
                    entry.kept = self._keeps(running, group, i)
                    self._add(entry)
            parent = self._any_of(number)

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

    def hide(self, name: Name, block: int) -> bool:
        """A block that is found by a hash is not to be found any more, by hash or by tokens, until
        it is shown or leaves the cache. False: it is not found by this hash."""
        entry = self.at(block)
        if entry is None or entry.name != name:
            return False
        entry.is_hidden = True
        self.hidden[block] = entry
        return True

    def show(self, name: Name, block: int) -> bool:
        """A hidden block is found again by its hash. False: it is not hidden, or has another."""
        entry = self.hidden.get(block)
        if entry is None or entry.name != name:
            return False
        self._unhide(entry)
        return True

    def _unhide(self, entry: Entry) -> None:
        entry.is_hidden = False
        if self.hidden.get(entry.block) is entry:
            del self.hidden[entry.block]

    def note(self, running: Running, begin: int, end: int) -> None:
        """The tokens of a request's blocks from `begin` to `end` were just named."""
        changes = self._books.changes()
        self._take(changes)
        if running.last_entry is not None and running.last_entry not in self._entries:
            begin = 0  # the library may have begun again at the first block
        hashes = running.hash_list()
        end = min(end, len(hashes))
        new: List[List[int]] = [[] for _ in running.tables]
        for at in changes.stored:
            place = at.place // running.size
            if begin <= place < end and at.number not in self._nameless and \
                    self._enter_stored(running, at, place):
                new[at.group].append(place)
        self.pass_over(changes.stored)
        for group in self._books.cached:
            self._meet(running, group, range(begin, end), new[group])
            self._tell_stored(group, running, sorted(new[group]))
        running.last_entry = -1
        for group in self._books.cached if end > begin else ():
            last = self._first((group, hashes[end - 1]))
            if last is not None:
                running.last_entry = last.number
                break

    def _enter_stored(self, running: Running, at: Stored, place: int) -> bool:
        """Enters what was stored for a group with a request's tokens. True: it is kept, and no
        other entry on the device has its name."""
        block = running.tables[at.group][place].block_id
        if block == 0 or self._of(at.number, at.group) is not None:
            return False  # the request's window has passed it, or it is known
        made = Entry(at.number, at.group, running.hash_list()[place], block, place,
                     self._any_of(at.parent), at.tokens, running.keys)
        made.kept = self._keeps(running, at.group, place)
        return self._add(made)

    def _meet(self, running: Running, group: int, places: range, new: List[int]) -> None:
        """A request has blocks of its own with contents that are cached, in them or in others.
        Appends to `new` the places of those that are kept from now on."""
        hashes = running.hash_list()
        for i in places:
            name = group, hashes[i]
            entry = self._first(name) or self._passing.get(name)
            if entry is not None and not entry.kept and self._keeps(running, group, i):
                del self._passing[name]
                entry.kept = True
                if self._add(entry):
                    new.append(i)
            block = running.tables[group][i].block_id
            passing = self._passing.get(name)
            # Keys that vLLM does not hash make several contents of one name.
            for entry in [*self._by_name.get(name, ()), *([passing] if passing else ())]:
                self._share(entry, block)

    def _share(self, entry: Entry, block: int) -> None:
        """A request had the content of an entry in a block; 0: its window has passed that."""
        if entry.block == block:
            return
        entry.is_shared = True
        if entry.block == 0 and block != 0:  # it was in host memory, and the request computed it
            entry.block = block
            self._by_block[block] = entry

    def _keeps(self, running: Running, group: int, place: int) -> bool:
        return self._retention is None or self._retention.keeps(running.request, group, place)

    def _settle(self, entry: Optional[Entry]) -> Optional[Entry]:
        """The entry with its block made right. The library caches each content once. If another
        request has the content in a block of its own, the library may take that one, once the
        entry's is not held. It does not tell; a lookup does, unless no other block is free, or a
        window shows the block to nothing that comes after it: then None."""
        if entry is None or not entry.is_shared or self._is_held(entry):
            return entry
        blocks = self._look_up(entry)
        if not blocks or blocks[entry.place] == 0:
            return None
        if self._by_block.get(entry.block) is entry:
            del self._by_block[entry.block]
        entry.block = blocks[entry.place]
        self._by_block[entry.block] = entry
        return entry

    def _tell_stored(self, group: int, running: Running, new: List[int]) -> None:
        if self.on_stored is None:
            return
        while new:
            count = next((k for k in range(1, len(new)) if new[k] != new[0] + k), len(new))
            self.on_stored(group, running, new[0], new[0] + count)
            new = new[count:]

    def _take(self, changes: Changes) -> None:
        """What was removed, and what moved: a number that has an entry is stored on a level."""
        if changes.cleared:
            for entries in (self._entries, self._by_name, self._by_block, self._passing,
                            self._by_host, self.hidden):
                entries.clear()
            if self.on_cleared is not None:
                self.on_cleared()
        for at in changes.stored:
            entry = self._of(at.number, at.group)
            if entry is not None:
                self._arrive(entry, at.level)
        for number, group, level in changes.removed:
            entry = self._of(number, group)
            if entry is not None:
                self._remove(entry, level)

    def _arrive(self, entry: Entry, level: int) -> None:
        is_new = not self._levels(entry.name) & 1 << level
        entry.levels |= 1 << level
        if is_new and self.on_moved is not None:
            self.on_moved(entry.name, level)

    def _add(self, entry: Entry) -> bool:
        """Adds an entry. True: it is kept, and no other one on the device has its name."""
        self._entries.setdefault(entry.number, []).append(entry)
        self._by_block[entry.block] = entry
        if not entry.kept and entry.name not in self._by_name:
            self._passing.setdefault(entry.name, entry)
            return False
        entry.kept = True
        is_new = not self._levels(entry.name) & _ON_DEVICE
        self._by_name.setdefault(entry.name, []).append(entry)
        return is_new

    def _remove(self, entry: Entry, level: int) -> None:
        """The block of an entry is not on a level any more."""
        if entry.is_hidden:
            self._unhide(entry)
        if level == DEVICE and self._by_block.get(entry.block) is entry:
            del self._by_block[entry.block]
        entry.levels &= ~(1 << level)
        if entry.levels == 0:
            self._drop(entry)
        levels = self._levels(entry.name)
        if entry.kept and not levels & 1 << level and self.on_removed is not None:
            self.on_removed(entry.name, level, levels == 0)

    def _drop(self, entry: Entry) -> None:
        same_number = self._entries[entry.number]
        same_number.remove(entry)
        if not same_number:
            del self._entries[entry.number]
        if not entry.kept:
            if self._passing.get(entry.name) is entry:
                del self._passing[entry.name]
            return
        same = self._by_name[entry.name]
        same.remove(entry)
        if not same:
            del self._by_name[entry.name]
