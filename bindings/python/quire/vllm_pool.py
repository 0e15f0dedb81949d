# SPDX-License-Identifier: Apache-2.0
"""vllm_pool: vLLM's block pool, as far as its scheduler and connectors use it.

Everything else is missing, so that its use is an AttributeError.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, Iterator, List, MutableMapping, Optional, Tuple

from .errors import UnsupportedError
from .vllm_blocks import Blocks, KVCacheBlock
from .vllm_events import Events
from .vllm_free import FreeList, free_order
from .vllm_index import Entry, Index, Name
from .vllm_pins import Pins
from .vllm_running import Running, group_suffix
from .vllm_table import Table


class FreeQueue(FreeList):
    """vLLM's list of free blocks, to be read: all but their number takes time in all blocks."""

    def __init__(self, pool: "BlockPool"):
        super().__init__()
        self._pool = pool

    @property
    def num_free_blocks(self) -> int:
        """How many there are."""
        return self._pool.get_num_free_blocks()

    def get_all_free_blocks(self) -> List[KVCacheBlock]:
        """The free and the cached blocks, the next one to be taken first; those in reserve last."""
        table = self._pool.table
        reserved = [block for running in table.running.values()
                    for group in running.reserved() for block in group]
        return self._pool.blocks.of(free_order(table.books.cache)) + reserved


def _name(key: Any) -> Name:
    """A group's number and a hash of a key of vLLM's map, which ends with the number."""
    return int.from_bytes(key[-4:], "big"), key[:-4]


class _Map(MutableMapping[Any, Any]):
    """The dict in vLLM's map from hashes to cached blocks: a block or, if several have the hash,
    {number: block}. What is taken out is not found any more, and what is put back is found."""

    def __init__(self, pool: "BlockPool"):
        self._pool = pool

    def __len__(self) -> int:
        return len(self._pool.index())

    def __iter__(self) -> Iterator[Any]:
        return iter(self.__copy__())

    def __copy__(self) -> Dict[Any, Any]:
        index = self._pool.index()
        found = ((name, self._of(index, name)) for name in list(index))
        return {name[1] + group_suffix(name[0]): blocks for name, blocks in found if blocks}

    def _of(self, index: Index, name: Name) -> Any:
        ids = index.blocks(*name)
        blocks = {block: self._pool.blocks[block] for block in ids}
        return blocks if len(ids) > 1 else blocks[ids[0]] if ids else None

    def __getitem__(self, key: Any) -> Any:
        found = self._of(self._pool.index(), _name(key))
        if found is None:
            raise KeyError(key)
        return found

    def __delitem__(self, key: Any) -> None:
        found = self[key]
        for block in [*found] if isinstance(found, dict) else [found.block_id]:
            self._pool.cached_block_hash_to_block.pop(key, block)

    def __setitem__(self, key: Any, value: Any) -> None:
        for block in value.values() if isinstance(value, dict) else [value]:
            self._pool.cached_block_hash_to_block.insert(key, block)


class CachedBlocks:
    """vLLM's map from hashes to cached blocks. Its hashes end with the group's number, as vLLM's
    do."""

    def __init__(self, pool: "BlockPool"):
        self._pool, self._cache = pool, _Map(pool)

    def __len__(self) -> int:
        return len(self._cache)

    def pop(self, key: Any, block_id: int) -> Optional[KVCacheBlock]:
        """Takes a block out: no lookup finds it until it is inserted again, or its content has left
        the cache; requests keep it, and the blocks after it stay cached. A request that computes
        the content again does not make it found. Returns the block; None if it has not this hash.
        Errors: UnsupportedError if blocks move to host memory."""
        if self._pool.table.books.host_blocks:
            raise UnsupportedError("a block cannot be taken out of the map of hashes if evicted "
                                   "blocks are kept in host memory")
        return self._pool.blocks[block_id] if self._pool.index().hide(_name(key), block_id) \
            else None

    def insert(self, key: Any, block: KVCacheBlock) -> None:
        """Puts a block back. Errors: UnsupportedError if it was not taken out, or its content has
        left the cache: a block's content is what a request computed."""
        index = self._pool.index()
        if not self.contain(key, block.block_id) and \
                not index.show(_name(key), block.block_id):
            raise UnsupportedError(f"block {block.block_id} has no content with this hash")

    def get_one_block(self, key: Any) -> Optional[KVCacheBlock]:
        """A cached block with a hash."""
        entry = self._pool.index().find(*_name(key))
        return None if entry is None else self._pool.blocks[entry.block]

    def contain(self, key: Any, block_id: int) -> bool:
        """True if a block is cached with a hash."""
        entry = self._pool.index().at(block_id)
        return entry is not None and entry.hash + group_suffix(entry.group) == key


class BlockPool:
    """vLLM's BlockPool: blocks by number and by hash, how many are free, references that are no
    request's, and the return of what pop_blocks_for_free took."""

    def __init__(self, count: int, enable_caching: bool, hash_block_size: int,
                 lookahead: int, events: Optional[Events]):
        self.num_gpu_blocks = count
        self.enable_caching = enable_caching
        self.hash_block_size = hash_block_size
        self.num_hash_lookahead_tokens = lookahead
        self.enable_kv_cache_events = events is not None
        self.medium = Events.medium
        self.blocks = Blocks(count, self)
        self.null_block = self.blocks[0]
        self.free_block_queue = FreeQueue(self)
        self.cached_block_hash_to_block = CachedBlocks(self)
        self.cached_block_hashes_by_block: Dict[int, Any] = {}  # only whole blocks are found
        self.metrics_collector = None
        self.events = events
        self.table: Table
        self.pins: Pins
        self._popped: Dict[Tuple[int, ...], List[Running]] = {}

    def serve(self, table: Table) -> None:
        """The requests whose blocks these are."""
        self.table, self.pins = table, Pins(table)
        if self.events is not None:
            self.index()

    def get_num_free_blocks(self) -> int:
        """Blocks that a request could take, cached ones included."""
        return self.table.free_count()

    def get_usage(self) -> float:
        """The share of all blocks that requests hold."""
        return 1.0 - self.get_num_free_blocks() / max(1, self.num_gpu_blocks - 1)

    # Hashes.

    def index(self) -> Index:
        """The cached blocks by hash, up to date. It is kept from the first call on."""
        index = self.table.index
        if index is None:
            index = self.table.start_index(self._is_held)
            if self.events is not None:
                index.on_stored, index.on_removed = self.events.stored, self.events.removed
                index.on_moved, index.on_cleared = self.events.moved, self.events.cleared
        self.table.name_due()
        index.sync()
        return index

    def get_cached_block(self, block_hash: Any,
                         kv_cache_group_ids: List[int]) -> Optional[List[KVCacheBlock]]:
        """The cached block with a hash in each group asked for; None if a group lacks it."""
        index = self.index()
        entries = [index.find(group, block_hash) for group in kv_cache_group_ids]
        if any(entry is None for entry in entries):
            return None
        return [self.blocks[entry.block] for entry in entries if entry is not None]

    def evict_blocks(self, block_ids: Iterable[int]) -> None:
        """Blocks are not found any more, nor those after them. Requests keep those that they hold.
        Errors: UnsupportedError if a block is touched, or if it cannot be known whether it is
        cached; nothing changed."""
        ids = {block_id for block_id in block_ids if block_id != 0}
        if ids and max(ids) >= self.num_gpu_blocks:
            raise ValueError(f"there is no block {max(ids)}")
        index = self.index()
        held = {block.block_id for running in self._holders() for block in running.held()}
        can_forget = self.table.books.can_forget
        for block_id in ids - held:
            is_cached = index.at(block_id) is not None
            if self.pins.holds(block_id) or (is_cached and not can_forget):
                raise UnsupportedError(f"block {block_id} cannot be evicted: no request holds it")
        for running in self._holders():
            bad = self.table.make_bad(running, ids)
            for block_id in bad:
                index.forget(block_id)
        for block_id in ids - held if can_forget else ():
            self.pins.forget(block_id)

    def take_events(self) -> List[Any]:
        """vLLM's events since the last call."""
        if self.events is None:
            return []
        self.index()
        return self.events.take()

    @property
    def kv_event_queue(self) -> List[Any]:
        """The events that take_events would return."""
        if self.events is None:
            return []
        self.index()
        return self.events.queue

    def reset_prefix_cache(self) -> bool:
        """Forgets what is cached. Returns False, and does nothing, while something holds blocks."""
        books = self.table.books
        if books.stats().blocks_held != 0:
            return False
        books.cache.reset()
        self.blocks.forget()
        return True

    # References.

    def _holders(self) -> Iterator[Running]:
        """Everything that holds a request's blocks."""
        yield from self.table.running.values()
        for popped in self._popped.values():
            yield from popped

    def _is_held(self, entry: Entry) -> bool:
        """True if something holds the block of an entry, with the entry's content."""
        return any(running.has(entry.group, entry.place, entry.block, entry.hash)
                   for running in self._holders()) or self.pins.holds(entry.block)

    def references(self, block: KVCacheBlock) -> int:
        """How many requests and others hold a block."""
        return self.pins.count(block.block_id) + sum(
            block in running.held() for running in self._holders())

    def pop(self, running: Running) -> List[KVCacheBlock]:
        """The blocks of a removed request, which holds them until free_blocks returns them."""
        self.table.trim(running)
        blocks = list(running.held())
        self._popped.setdefault(tuple(block.block_id for block in blocks), []).append(running)
        return blocks

    def touch(self, blocks: Iterable[KVCacheBlock]) -> None:
        """Holds blocks that are held or cached, until free_blocks returns each of them; and, as
        long, the blocks before them. Errors: UnsupportedError if a block is neither."""
        self.index()
        self.pins.add(blocks, list(self._holders()))

    def get_new_blocks(self, num_blocks: int) -> List[KVCacheBlock]:
        """Takes blocks, and holds them until free_blocks returns each of them. Errors: ValueError
        if there are too few."""
        return self.blocks.of(self.pins.new(num_blocks))

    def free_blocks(self, ordered_blocks: Iterable[KVCacheBlock]) -> None:
        """Returns touched or new blocks, or the blocks of one popped request, last block first."""
        blocks = list(ordered_blocks)
        ids = tuple(block.block_id for block in blocks)[::-1]
        popped = self._popped.get(ids)
        if popped:
            self.table.end(popped.pop())
            if not popped:
                del self._popped[ids]
        elif not self.pins.remove(blocks):
            raise UnsupportedError("free_blocks takes what touch or get_new_blocks held, or all "
                                   "blocks of one request as pop_blocks_for_free returned them, "
                                   "reversed")
