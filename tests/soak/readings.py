# SPDX-License-Identifier: Apache-2.0
"""readings: what a process holds, read every few seconds, and whether it grows.

Slopes are least squares over the second half of a run, so that caches, arenas and imports have
filled. A slope has twice its standard error beside it. Memory may rise by MEMORY_BYTES per ten
minutes, and never by more than MEMORY_SHARE of what is resident. A second half of less than ten
minutes may rise by MEMORY_BYTES, and one of less than a minute, in which a process is still filling
up, by SHORT_BYTES: that only finds leaks of whole buffers. Descriptors and threads must not change
at all.
"""

import ctypes
import dataclasses
import os
import sys
import time

MEMORY_BYTES = 1 << 20
MEMORY_SHARE = 0.02
SHORT_BYTES = 16 << 20
FEWEST = 8  # readings that a slope is fitted to half of
_MIB = 1 << 20


class _Mallinfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in
                ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks",
                 "uordblks", "fordblks", "keepcost")]


def _malloc_bytes():
    """Bytes that malloc has handed out, in all arenas. The library's own memory is part of it."""
    call = ctypes.CDLL(None).mallinfo2  # glibc 2.33 and newer, which libquire needs anyway
    call.restype = _Mallinfo
    info = call()
    return info.uordblks + info.hblkhd


@dataclasses.dataclass(frozen=True)
class Reading:
    seconds: float
    resident_bytes: int
    malloc_bytes: int
    python_blocks: int
    cache_bytes: int  # host memory that the cache has from its allocator
    descriptors: int
    threads: int
    sequences: int
    blocks_held: int
    blocks_cached: int
    blocks_free: int
    nodes: int


def read(seconds, engine):
    """A reading. The caller makes sure that nothing short-lived exists."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        resident = int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    stats = engine.cache.stats
    return Reading(seconds, resident, _malloc_bytes(), sys.getallocatedblocks(),
                   engine.instance.live_bytes, descriptors(), threads(), stats.sequences,
                   stats.blocks_held, stats.blocks_cached, stats.blocks_free, stats.nodes)


def descriptors():
    return len(os.listdir("/proc/self/fd")) - 1  # without the one that lists them


def threads():
    """The fewest of several counts: a thread that was joined is listed until the kernel is done
    with it, a moment later."""
    counts = []
    for _ in range(5):
        counts.append(len(os.listdir("/proc/self/task")))
        time.sleep(0.004)
    return min(counts)


@dataclasses.dataclass(frozen=True)
class Slope:
    name: str
    per_minute: float
    error: float  # twice the standard error, per minute
    rise: float  # over the second half
    allowed: float
    least: int
    most: int

    @property
    def grows(self):
        return self.rise > self.allowed


def fit(points):
    """(slope, twice its standard error) of (x, y) points, at least three."""
    count = len(points)
    mean_x, mean_y = (sum(point[i] for point in points) / count for i in (0, 1))
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    left = sum((y - mean_y - slope * (x - mean_x)) ** 2 for x, y in points)
    return slope, 2 * (left / (count - 2) / spread) ** 0.5


def slopes(readings):
    """The slope of everything that must not grow, over the second half of the readings."""
    half = readings[len(readings) // 2:]
    length = half[-1].seconds - half[0].seconds
    resident = sum(reading.resident_bytes for reading in half) / len(half)
    memory = min(MEMORY_BYTES * max(1, length / 600), MEMORY_SHARE * resident)
    if length < 60:
        memory = SHORT_BYTES
    found = []
    for name in ("resident_bytes", "malloc_bytes", "cache_bytes", "descriptors", "threads"):
        values = [getattr(reading, name) for reading in half]
        slope, error = fit([(reading.seconds, value) for reading, value in zip(half, values)])
        if name.endswith("bytes"):
            rise, allowed = slope * length, memory
        else:
            rise, allowed = max(values) - min(values), 0
        found.append(Slope(name, slope * 60, error * 60, rise, allowed, min(values), max(values)))
    return found


def growth(readings):
    """(slopes, complaints)."""
    if len(readings) < FEWEST:
        return [], [f"{len(readings)} readings are too few to fit slopes: run longer"]
    found = slopes(readings)
    return found, [f"{s.name} grew by {amount(s.name, s.rise)} in the second half; "
                   f"{amount(s.name, s.allowed)} are allowed" for s in found if s.grows]


def amount(name, value):
    return f"{value / _MIB:.3f} MiB" if name.endswith("bytes") else f"{value:g}"
