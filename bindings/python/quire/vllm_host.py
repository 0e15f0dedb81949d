# SPDX-License-Identifier: Apache-2.0
"""vllm_host: a worker's host memory for evicted blocks, and the copies between it and the device.

A step's copies depend on each other: a block of the host tier is read and then written again, often
within one step. `waves` sorts them into groups without such dependences, so that the copies of a
group can be given to the device at once.

Addresses are plain numbers, so the same code serves a device and, in tests, host memory alone.

Threads: one, the worker's. On a device all copies run on its current stream, in order, before the
kernels that are launched next.
"""

from __future__ import annotations

import ctypes
from typing import Any, Callable, Dict, List, NamedTuple, Sequence as Listed, Set, Tuple

import numpy as np

from .errors import ArgumentError

Place = Tuple[bool, int]      # True: on the host; the block's number
Copy = Tuple[Place, Place]    # from, to
Move = Callable[[Any, Any, Any], None]  # copies from addresses to addresses so many bytes


class Region(NamedTuple):
    """Blocks of one layer, or of some layers, that lie after one another on the device."""

    address: int
    block_bytes: int


def copies_of(rows: "np.ndarray[Any, Any]") -> List[Copy]:
    """The copies of rows (to_host, src, dst)."""
    return [((not out, src), (bool(out), dst)) for out, src, dst in rows.tolist()]


def needed(copies: Listed[Copy]) -> List[Copy]:
    """The copies without those whose target is overwritten before it is read."""
    kept: List[Copy] = []
    overwritten: Set[Place] = set()
    for source, target in reversed(copies):
        if target not in overwritten:
            kept.append((source, target))
            overwritten.add(target)
            overwritten.discard(source)
    return kept[::-1]


def waves(copies: Listed[Copy]) -> List[List[Copy]]:
    """The copies in groups, to be run in order; those of one group may run in any order."""
    groups: List[List[Copy]] = []
    read: Dict[Place, int] = {}     # how many groups there are up to the last one that reads it
    written: Dict[Place, int] = {}  # and that writes it
    for source, target in copies:
        group = max(written.get(source, 0), written.get(target, 0), read.get(target, 0))
        if group == len(groups):
            groups.append([])
        groups[group].append((source, target))
        read[source] = max(read.get(source, 0), group + 1)
        written[target] = group + 1
    return groups


def move_on_host(sources: Any, targets: Any, sizes: Any) -> None:
    """Copies within host memory."""
    for source, target, size in zip(sources.tolist(), targets.tolist(), sizes.tolist()):
        ctypes.memmove(target, source, size)


class HostBlocks:
    """The host tier's blocks, for each region.

    address  where memory for size_bytes(regions, count) begins
    count    blocks; their numbers are from 1 on
    move     copies: vLLM's swap_blocks_batch, with arrays of addresses and sizes
    """

    def __init__(self, regions: Listed[Region], address: int, count: int, move: Move):
        self.count = count
        self._move = move
        self._sizes = np.array([region.block_bytes for region in regions], np.int64)
        first = address + count * (np.cumsum(self._sizes) - self._sizes)
        self._bases = {False: np.array([region.address for region in regions], np.int64),
                       True: first - self._sizes}  # of block 0, which the host tier does not have

    @staticmethod
    def size_bytes(regions: Listed[Region], count: int) -> int:
        """How much memory `count` blocks take."""
        return count * sum(region.block_bytes for region in regions)

    def run(self, rows: "np.ndarray[Any, Any]") -> None:
        """Runs the copies of some steps, in their order."""
        copies = copies_of(rows)
        for place in (place for copy in copies for place in copy):
            if place[0] and not 1 <= place[1] <= self.count:
                raise ArgumentError(f"a copy names block {place[1]} of {self.count} in host memory")
        for group in waves(needed(copies)):
            self._move(self._addresses([source for source, _ in group]),
                       self._addresses([target for _, target in group]),
                       np.tile(self._sizes, len(group)))

    def _addresses(self, places: Listed[Place]) -> "np.ndarray[Any, Any]":
        return np.concatenate([self._bases[on_host] + block * self._sizes
                               for on_host, block in places])
