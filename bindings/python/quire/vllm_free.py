# SPDX-License-Identifier: Apache-2.0
"""vllm_free: vLLM's list of free blocks: to be read, or as vLLM's block pool uses it.

Threads: one, like vLLM's.
"""

from __future__ import annotations

import json
from typing import Any, Iterator, List, Optional

import numpy as np

from .cache import Cache
from .groups import Group
from .instance import Instance
from .libquire import NO_BLOCKS, ffi, new


def free_order(cache: Cache) -> List[int]:
    """The free and the cached blocks in the order in which they would be taken. Reads a dump of the
    whole cache: for tests, and for whoever has time."""
    heads, after = {}, {}
    for line in cache.dump().splitlines():
        record = json.loads(line)
        if record.get("tier") == "host":
            continue
        if record["record"] == "list":
            heads[record["list"]] = record["head"]
        elif record["record"] == "block":
            after[record["id"]] = record["next"]
    order: List[int] = []
    for name in ("free", "cached"):
        at = heads[name]
        while at is not None:
            order.append(at)
            at = after[at]
    return order


class _End:
    """What stands before the first and after the last free block of the list."""

    def __init__(self, queue: "FreeList"):
        self._queue = queue

    @property
    def next_free_block(self) -> Any:
        """The first free block, or the other end."""
        return next(iter(self._queue.get_all_free_blocks()), self._queue.fake_free_list_tail)

    @property
    def prev_free_block(self) -> Any:
        """The last free block, or the other end."""
        return next(iter(self._queue.get_all_free_blocks()[::-1]), self._queue.fake_free_list_head)


class FreeList:
    """vLLM's list of free blocks, to be read: it takes time in all blocks."""

    def __init__(self) -> None:
        self.fake_free_list_head, self.fake_free_list_tail = _End(self), _End(self)

    def get_all_free_blocks(self) -> List[Any]:
        """The free and the cached blocks, the next one to be taken first."""
        raise NotImplementedError

    def iter_blocks_after(self, cursor: Optional[Any]) -> Iterator[Any]:
        """The free blocks after one of them, or from the first one on."""
        blocks = iter(self.get_all_free_blocks())
        if cursor is not None and cursor not in blocks:
            return iter(())
        return blocks


class LeasedBlocks(FreeList):
    """vLLM's FreeKVCacheBlockQueue: the blocks that no request holds, in the same order. A lease
    holds the others, and block 0 is not among them. To Quire a block that is appended is a cached
    prefix of one token, its own number: what is in it only vLLM knows.

    num_free_blocks  how many there are
    """

    def __init__(self, blocks: List[Any]):
        super().__init__()
        self._blocks = blocks
        self.num_free_blocks = len(blocks) - 1
        self.cache = Cache(Instance(), [Group(layers=1, kv_heads=1, head_dim=1)], block_tokens=1,
                           blocks=len(blocks), max_sequences=1, max_sequence_tokens=1)
        self._lease = self.cache.lease()
        self._cached = bytearray(len(blocks))  # 1: published, and evicted when it is taken
        self._api, self._library = self.cache._library.api, self.cache._library
        self._pointer = self.cache._owned or self.cache._pointer
        self._error, self._result = new("quire_error"), new("quire_lease_result")
        self._step_desc, self._step = new("quire_step_desc"), ffi.new("uint64_t *")
        self._ids = np.zeros(len(blocks), np.int32)
        self._ids_pointer = ffi.from_buffer("int32_t[]", self._ids, True)
        self._number = ffi.new("int64_t *")
        self._found = ffi.new("int32_t *")
        self._count = ffi.new("uint32_t *")

    def _do(self, function: Any, *arguments: Any) -> int:
        status: int = function(self._pointer, *arguments, self._error)
        if status < 0:
            self._library.fail(status, self._error)
        return status

    def popleft_n(self, count: int) -> List[Any]:
        """Takes the next blocks: free ones first, then cached ones, the first that were appended
        first."""
        if count == 0:
            return []
        api, lease, step = self._api, self._lease.handle, self._step
        self._do(api.step_begin, self._step_desc, ffi.NULL, 0, 0, ffi.NULL, 0, ffi.NULL, 0, step)
        short = self._do(api.lease_take, step[0], lease, 0, count, self._ids_pointer,
                         self._result) == NO_BLOCKS
        self._do(api.step_commit, step[0], ffi.NULL)
        self._do(api.step_finish, step[0], ffi.NULL, 0)
        if short:
            raise ValueError(f"{self._result.blocks_short} blocks are missing of {count}")
        self.num_free_blocks -= count
        taken = self._ids[:count].tolist()
        cached, blocks = self._cached, self._blocks
        for block in taken:
            cached[block] = 0
        return [blocks[block] for block in taken]

    def popleft(self) -> Any:
        """Takes the next block."""
        return self.popleft_n(1)[0]

    def append_n(self, blocks: List[Any]) -> None:
        """Returns blocks that are taken again after all others, the first of them first."""
        api, lease = self._api, self._lease.handle
        self.num_free_blocks += len(blocks)
        for block in blocks:
            number = block.block_id
            if self._cached[number]:
                self._give([number])
                continue
            self._number[0] = number
            self._do(api.lease_insert, lease, self._number, self._number, 1, self._found,
                     self._result)
            self._cached[number] = 1

    def append(self, block: Any) -> None:
        """Returns a block that is taken again after all others."""
        self.append_n([block])

    def prepend_n(self, blocks: List[Any]) -> None:
        """Returns blocks that are taken again before all others, the first of them first."""
        self.num_free_blocks += len(blocks)
        numbers = [block.block_id for block in blocks][::-1]
        self._forget([number for number in numbers if self._cached[number]])
        self._give(numbers)

    def remove(self, block: Any) -> None:
        """Takes this block."""
        number = block.block_id
        if self._cached[number]:
            self._fill([number])
            self._do(self._api.lease_pin, 0, self._lease.handle, 0, self._ids_pointer, 1,
                     self._result)
            self.num_free_blocks -= 1
            return
        others = []  # a block without content: vLLM itself does not hold such, only its tests do
        while (taken := self.popleft()) is not block:
            others.append(taken)
        self.prepend_n(others)

    def get_all_free_blocks(self) -> List[Any]:
        """The blocks in the order in which they are taken. Reads a dump of the whole cache."""
        return [self._blocks[number] for number in free_order(self.cache)]

    def _fill(self, numbers: List[int]) -> None:
        self._ids[:len(numbers)] = numbers

    def _give(self, numbers: List[int]) -> None:
        self._fill(numbers)
        self._do(self._api.lease_give, 0, self._lease.handle, 0, self._ids_pointer, len(numbers))

    def _forget(self, numbers: List[int]) -> None:
        if numbers:
            self._fill(numbers)
            self._do(self._api.lease_forget, self._lease.handle, 0, self._ids_pointer,
                     len(numbers), self._count)
            for number in numbers:
                self._cached[number] = 0
