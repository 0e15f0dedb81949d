# SPDX-License-Identifier: Apache-2.0
"""roofline: how long a kernel takes on a GPU, from what its machine code does per byte of K and V.

Blocks run in waves, as many at once as fit. A wave takes a ramp, in which a block looks up what to
read and later stores its share, and then as long as the slowest of:

  bytes       what is read from memory, by its streaming ceiling
  issue       instructions, by the schedulers of the multiprocessor with the most blocks
  wavefronts  passes through its shared memory, one per clock
  matrix      products of small matrices, by its matrix units
  chain       what one block takes by itself, each instruction after those whose results it needs,
              and longer by what it waits for units that other warps use: their share of the time

Launches come on top, and after the last wave the joining of a row's chunks. Waves are assumed not
to overlap, because published times of FlashAttention 2 are longest where there are many
(calibration.py). If they overlap, kernels with many waves are faster than predicted.
"""

import dataclasses

LIMITS = ("bytes", "issue", "wavefronts", "matrix", "chain")


@dataclasses.dataclass
class Kernel:
    """All figures but the last four per byte of K and V that a block works on."""
    instructions: float     # of all its warps
    wavefronts: float
    matrices: float         # products of 16x8x16
    clocks: float           # of the block by itself
    warps: int              # of a block
    blocks: int             # of a multiprocessor, at once
    before: float           # clocks before the first bytes are asked for
    after: float            # clocks after the last ones were used


@dataclasses.dataclass
class Launch:
    blocks: int
    block_bytes: float      # of K and V that a block works on
    memory_bytes: float     # that all of them read from memory
    empty_blocks: int = 0   # that end when they find that nothing is left for them
    empty_clocks: float = 0
    tail_clocks: float = 0  # after the last wave


@dataclasses.dataclass
class Times:
    """Seconds."""
    launches: float = 0
    ramps: float = 0        # with empty blocks and tails
    slowest: float = 0      # the sum of each wave's slowest limit
    limits: dict = dataclasses.field(default_factory=lambda: dict.fromkeys(LIMITS, 0.0))

    @property
    def total(self):
        return self.launches + self.ramps + self.slowest

    @property
    def binds(self):
        """The slowest limit, or "ramps" where these take longer than any."""
        return max((all_limits := self.limits | {"ramps": self.ramps}), key=all_limits.get)

    def add(self, other):
        self.launches += other.launches
        self.ramps += other.ramps
        self.slowest += other.slowest
        for name, value in other.limits.items():
            self.limits[name] += value


def clocks_among(device, kernel, resident):
    """Clocks per byte of a block among so many on its multiprocessor: by itself, and the time that
    it waits for each unit, which others use for their share of the time."""
    warps = kernel.warps * resident
    waits = 0.0
    for busy, users in (
            (kernel.instructions * device.issue_clocks, warps / device.schedulers),
            (kernel.matrices * device.matrix_clocks, warps / device.schedulers),
            (kernel.wavefronts, warps)):
        of_warp = busy / kernel.warps
        waits += of_warp * max(users - 1, 0) * of_warp / kernel.clocks
    return kernel.clocks + waits


def wave(device, kernel, launch, count, of_memory):
    """Seconds of each limit of a wave of `count` blocks; `of_memory` is its share of the bytes."""
    resident = -(-count // device.multiprocessors)
    on_one = resident * launch.block_bytes
    used = min(device.schedulers, kernel.warps * resident)
    return {
        "bytes": launch.memory_bytes * of_memory / device.ceiling,
        "issue": on_one * kernel.instructions * device.issue_clocks / used / device.clock_hz,
        "wavefronts": on_one * kernel.wavefronts / device.clock_hz,
        "matrix": on_one * kernel.matrices * device.matrix_clocks / used / device.clock_hz,
        "chain": launch.block_bytes * clocks_among(device, kernel, resident) / device.clock_hz,
    }


def times_of(device, kernel, launch):
    """Times of one launch."""
    slots = device.multiprocessors * kernel.blocks
    times = Times(launches=device.launch_s)
    whole, rest = divmod(launch.blocks, slots)
    ramp = (kernel.before + device.memory_clocks + kernel.after) / device.clock_hz
    for waves, count in ((whole, slots), (1 if rest else 0, rest)):
        if waves == 0:
            continue
        limits = wave(device, kernel, launch, count, count / launch.blocks)
        times.add(Times(ramps=waves * ramp, slowest=waves * max(limits.values()),
                        limits={name: waves * value for name, value in limits.items()}))
    empty = launch.empty_blocks / slots * launch.empty_clocks
    times.ramps += (empty + launch.tail_clocks) / device.clock_hz
    return times


def bytes_alone(device, memory_bytes, launches):
    """Times of a kernel of which nothing is known: what memory needs."""
    limits = dict.fromkeys(LIMITS, 0.0) | {"bytes": memory_bytes / device.ceiling}
    return Times(launches=launches * device.launch_s, slowest=limits["bytes"], limits=limits)


def of_code(figures):
    """A kernel whose hot loop was read, from an entry of kernels.json or published.json."""
    warp, warps = figures["warp"], figures["threads"] // 32
    return Kernel(*(warp[name] / figures["kv_bytes"]
                    for name in ("instructions", "wavefronts", "matrices")),
                  clocks=warp["clocks"] / figures["kv_bytes"] / warps, warps=warps,
                  blocks=figures["blocks"], before=warp["before"], after=warp["after"])
