# SPDX-License-Identifier: Apache-2.0
"""vllm_running: a request that holds blocks."""

from __future__ import annotations

from typing import Any, List

from .vllm_blocks import KVCacheBlock


class Running:
    """A request that holds blocks.

    sequence  its handle in the library
    blocks    its table; those from `given` on are reserved, and vLLM does not know of them
    room      tokens that the blocks given to vLLM have slots for
    known     tokens that the sequence has. With full attention: one for every slot of its blocks.
              With a window: only those that no rejected draft can take back, because a step
              releases what its first token does not see
    named     how many of these, from the first on, it knows by their ids: full blocks, which are
              cached
    due       how many it may know by their ids: named when something asks for it
    keyed     tokens whose places the sequence's keys cover
    mark      a request that reaches this many tokens has another full block to be named
    """

    __slots__ = ("request", "sequence", "blocks", "given", "room", "known", "named", "due", "mark",
                 "size", "keyed", "hashes")

    def __init__(self, request: Any, sequence: int, size: int, keyed: int):
        self.request = request
        self.sequence = sequence
        self.blocks: List[KVCacheBlock] = []
        self.given = self.room = self.known = self.named = self.due = 0
        self.mark = self.size = size
        self.keyed = keyed
        self.hashes: Any = None

    def give(self, count: int) -> List[KVCacheBlock]:
        """Gives vLLM blocks until it has `count`; returns those that are new to it."""
        new = self.blocks[self.given:count]
        for block in new:
            block.owner = self
        self.given = count
        self.room = count * self.size
        return new

    def name(self, end: int) -> None:
        """The first `end` tokens, whole blocks, may be named."""
        self.due = end
        self.mark = end + self.size

    def hash_of(self, block: KVCacheBlock) -> Any:
        """vLLM's hash of a block of this request if the block is cached, else None."""
        try:
            index = self.blocks.index(block)
        except ValueError:
            return None
        if (index + 1) * self.size > self.due:
            return None
        hashes = self.hashes if self.request is None else getattr(self.request, "block_hashes", ())
        return hashes[index] if hashes and index < len(hashes) else b"cached"

    def end(self) -> None:
        """Lets go of the request; its cached blocks can still tell their hashes."""
        for block in self.blocks[self.due // self.size:]:
            if block.owner is self:
                block.owner = None
        self.hashes = getattr(self.request, "block_hashes", None)
        self.request = None
