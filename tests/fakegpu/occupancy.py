# SPDX-License-Identifier: Apache-2.0
"""occupancy: how many blocks of a kernel a multiprocessor or compute unit holds.

NVIDIA: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability": warps and
blocks of a multiprocessor, 64 Ki registers in units of 256 per warp, and shared memory in units of
128 bytes, of which a block's own kibibyte goes first (Ampere, Ada and Hopper Tuning Guides).

AMD: LLVM's "User Guide for AMDGPU Backend" and its AMDGPUBaseInfo (getTotalNumVGPRs,
getVGPRAllocGranule, getMaxWavesPerEU): vector registers of a lane on one SIMD, their unit, and the
waves of a SIMD. LDS is 64 KiB per compute unit, which has four SIMDs on CDNA and two on RDNA.
"""

import dataclasses


@dataclasses.dataclass
class Nvidia:
    warps: int
    blocks: int
    shared_bytes: int


@dataclasses.dataclass
class Amd:
    registers: int      # of a lane
    unit: int
    waves: int          # of a SIMD
    simds: int
    lanes: int


NVIDIA = {
    "sm_80": Nvidia(64, 32, 164 << 10),
    "sm_86": Nvidia(48, 16, 100 << 10),
    "sm_89": Nvidia(48, 24, 100 << 10),
    "sm_90": Nvidia(64, 32, 228 << 10),
    "sm_100": Nvidia(64, 32, 228 << 10),
    "sm_120": Nvidia(48, 24, 100 << 10),
}
AMD = {
    # gfx908 has as many accumulation registers beside these, counted apart.
    "gfx908": Amd(256, 4, 10, 4, 64),
    "gfx90a": Amd(512, 8, 8, 4, 64),
    "gfx942": Amd(512, 8, 8, 4, 64),
    "gfx1030": Amd(1024, 8, 16, 2, 32),
    "gfx1100": Amd(1536, 24, 16, 2, 32),
    "gfx1101": Amd(1536, 24, 16, 2, 32),
    "gfx1102": Amd(1024, 16, 16, 2, 32),
    "gfx1200": Amd(1536, 24, 16, 2, 32),
    "gfx1201": Amd(1536, 24, 16, 2, 32),
}
LDS_BYTES = 64 << 10


def up(value, unit):
    return -(-value // unit) * unit


def of_nvidia(target, threads, registers, shared_bytes):
    """(blocks of a multiprocessor, what limits them)"""
    has = NVIDIA[target]
    warps = -(-threads // 32)
    limits = {
        "warps": has.warps // warps,
        "blocks": has.blocks,
        # A warp's registers come from one of the four parts.
        "registers": 4 * (16384 // up(registers * 32, 256)) // warps,
        "shared memory": has.shared_bytes // up(shared_bytes + 1024, 128),
    }
    limit = min(limits, key=limits.get)
    return limits[limit], limit


def of_amd(target, threads, registers, lds_bytes):
    """(blocks of a compute unit, what limits them)"""
    has = AMD[target]
    waves = -(-threads // has.lanes)
    of_simd = min(has.waves, has.registers // up(max(registers, 1), has.unit))
    limits = {
        "waves" if of_simd == has.waves else "registers": of_simd * has.simds // waves,
        "LDS": LDS_BYTES // lds_bytes if lds_bytes else 1 << 30,
    }
    limit = min(limits, key=limits.get)
    return limits[limit], limit
