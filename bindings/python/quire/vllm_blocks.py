# SPDX-License-Identifier: Apache-2.0
"""vllm_blocks: blocks as vLLM's scheduler, workers and connectors see them.

There is one KVCacheBlock per block number. It knows the request that got it last, and derives from
it what vLLM stores in each block: so handing out a block costs one assignment.
"""

from __future__ import annotations

from typing import Any, List, Optional, Sequence as Listed, Tuple


class KVCacheBlock:
    """One block, by its number; 0 is the null block.

    owner  the request (vllm_running.Running) that got the block last, as a new one
    """

    __slots__ = ("block_id", "owner", "pool")

    def __init__(self, block_id: int, pool: Any = None):
        self.block_id = block_id
        self.owner: Any = None
        self.pool = pool

    @property
    def is_null(self) -> bool:
        """True for the block that no request owns."""
        return self.block_id == 0

    @property
    def block_hash(self) -> Any:
        """vLLM's hash of the block, or another value that is not None, if the block is cached."""
        return None if self.owner is None else self.owner.hash_of(self)

    @property
    def block_hash_num_tokens(self) -> Optional[int]:
        """How many tokens the hash covers, if the block is cached."""
        count: Optional[int] = None if self.owner is None else self.owner.tokens_to(self)
        return count

    _block_hash = block_hash

    @property
    def ref_cnt(self) -> int:
        """How many requests hold the block."""
        return 0 if self.pool is None else self.pool.references(self)

    def __repr__(self) -> str:
        return f"KVCacheBlock(block_id={self.block_id})"


class Blocks:
    """The block objects of a pool, by number. All are made at once, like vLLM's: made one by one,
    they would make the garbage collector run during a step."""

    def __init__(self, count: int, pool: Any):
        self._all = [KVCacheBlock(i, pool) for i in range(count)]

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, block_id: int) -> KVCacheBlock:
        return self._all[block_id]

    def of(self, ids: List[int]) -> List[KVCacheBlock]:
        """The blocks with these numbers."""
        blocks = self._all
        return [blocks[i] for i in ids]

    def forget(self) -> None:
        """Nothing is cached any more."""
        for block in self._all:
            block.owner = None


class KVCacheBlocks:
    """Blocks of each group; not to be changed."""

    __slots__ = ("blocks",)

    def __init__(self, blocks: Tuple[Listed[KVCacheBlock], ...]):
        self.blocks = blocks  # not a frozen dataclass, which takes twice as long to make

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KVCacheBlocks) and self.blocks == other.blocks

    def __repr__(self) -> str:
        return f"KVCacheBlocks(blocks={self.blocks})"

    def __add__(self, other: "KVCacheBlocks") -> "KVCacheBlocks":
        return KVCacheBlocks(tuple([*a, *b] for a, b in zip(self.blocks, other.blocks)))

    def get_block_ids(self, allow_none: bool = False, *,
                      group_ids: Optional[Listed[int]] = None) -> Optional[Tuple[List[int], ...]]:
        """The numbers of each group's blocks; None, if allowed, when there are no blocks."""
        groups = self.blocks
        if group_ids is not None:
            groups = tuple(groups[i] for i in group_ids)
        if allow_none and not any(groups):
            return None
        return tuple([block.block_id for block in group] for group in groups)

    def get_unhashed_block_ids(self) -> List[int]:
        """The numbers of the blocks that are not cached."""
        if len(self.blocks) != 1:
            raise ValueError("only one group is supported")
        return [block.block_id for block in self.blocks[0] if block.block_hash is None]

    def get_unhashed_block_ids_all_groups(self) -> List[List[int]]:
        """The numbers of each group's blocks that are not cached, without null blocks."""
        return [[block.block_id for block in group
                 if not block.is_null and block.block_hash is None] for group in self.blocks]

    def new_empty(self) -> "KVCacheBlocks":
        """No blocks in each group."""
        return KVCacheBlocks(tuple(() for _ in self.blocks))
