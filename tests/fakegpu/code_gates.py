# SPDX-License-Identifier: Apache-2.0
"""code_gates: what the machine code of each kernel may hold, and must.

The limits are what was measured, the most of all targets of a vendor, so kernels can only become
better. A new kernel adds a row; a fast one names the instructions that it needs, and how many bytes
of K and V a round of its hot loop serves, with the warp instructions that it may spend per byte.
"""

import dataclasses

import chain
import disassembly
import occupancy


@dataclasses.dataclass
class Row:
    threads: int
    generic: int = 0            # loads and stores of an address in any memory
    short_shared: int = 0       # 2-byte loads from shared memory, in loops
    reciprocals: int = 0        # in loops
    calls: int = 0              # in loops
    local: int = 0              # loads and stores of spilled registers or of a stack
    needs: tuple = ()           # figures that must not be 0
    blocks: dict = dataclasses.field(default_factory=dict)  # of a multiprocessor, at least
    asked_bytes: int = 0        # of shared memory, by the launch
    hot: str = r"HMMA|HGMMA"    # instructions of the hot loop
    kv_bytes: int = 0           # that one round of it serves; 0: rounds differ
    per_byte: float = 0.0
    other_per_byte: dict = dataclasses.field(default_factory=dict)  # of some targets
    wait_distance: int = 0      # from a load to its wait, the median, at least
    timed: str = ""             # instructions of the loop whose clocks ./dev gpu --predict needs,
    #                             if it is not the hot loop of kv_bytes
    # Loads on the way to that loop, one after the other, that the shortest way leaves out: one
    # thread reads whether a kernel before found a fault, and pages are found in the block table.
    other_loads: int = 2


MATRIX = ("matrix", "async_copies")
JOIN = r"LDG\.E\.128"       # in the loop that adds the chunks of a row, which decode kernels have
NVIDIA = {
    "quire_attend": Row(64, reciprocals=34, calls=20),
    "quire_attend_fragments": Row(128, short_shared=48, reciprocals=46, calls=24, needs=MATRIX,
                                  timed=r"HMMA",
                                  blocks={"sm_80": 3, "sm_86": 2, "sm_90": 4}),
    "quire_attend_prefill": Row(512, short_shared=52, reciprocals=58, calls=29, needs=MATRIX,
                                asked_bytes=74768, blocks={"sm_80": 1, "sm_86": 1, "sm_90": 1}),
    "quire_copy": Row(128),
    "quire_fence_passed": Row(1),
    "quire_fence_signal": Row(1),
    "quire_fill": Row(128),
    "quire_items": Row(64, reciprocals=3, calls=2),
    "quire_kv_write": Row(64, reciprocals=1, calls=4),
    "quire_kv_write_any": Row(64, reciprocals=1, calls=3),
    "quire_merge": Row(128, reciprocals=1, calls=2),
    "quire_move": Row(64, reciprocals=8, calls=8),
    "quire_reduce": Row(64, timed=r"LDG", other_loads=1),
    "quire_rows": Row(64, reciprocals=2),
}
# bf16 and f16 take as many instructions. A round serves a page of 16 rows of K and of V. Loops of
# before and after it, and of the careful way, count too; and all of a block's work is in the loop
# over its items.
for dim, row in {
    64: Row(128, reciprocals=41, calls=24, asked_bytes=41504, kv_bytes=4096, per_byte=0.061,
            blocks={"sm_80": 3, "sm_86": 2, "sm_90": 3}),
    96: Row(128, reciprocals=49, calls=25, asked_bytes=61984, kv_bytes=6144, per_byte=0.05,
            blocks={"sm_80": 2, "sm_86": 1, "sm_90": 2}),
    128: Row(128, reciprocals=57, calls=25, asked_bytes=82464, kv_bytes=8192, per_byte=0.039,
             blocks={"sm_80": 2, "sm_86": 1, "sm_90": 2}),
}.items():
    row.needs = (*MATRIX, "ldmatrix")
    NVIDIA |= {f"quire_decode_{name}_{dim}": row for name in ("bf16", "f16")}
# Codes have half the bytes, and are converted: e4m3 with an instruction of sm_89 and newer, by more
# of them on others. Instructions per byte: sm_80 and sm_86, sm_89 and sm_90, newer ones.
for dim, (asked_bytes, reciprocals, blocks, per_byte) in {
    64: (22560, 49, 3, {"i8": (0.177, 0.185, 0.2), "e4m3": (0.207, 0.16, 0.168),
                        "e5m2": (0.147, 0.15, 0.17)}),
    96: (32800, 53, 2, {"i8": (0.154, 0.155, 0.162), "e4m3": (0.178, 0.131, 0.131),
                        "e5m2": (0.123, 0.124, 0.131)}),
    128: (43040, 57, 2, {"i8": (0.131, 0.131, 0.13), "e4m3": (0.154, 0.107, 0.1),
                         "e5m2": (0.1, 0.101, 0.101)}),
}.items():
    NVIDIA |= {f"quire_decode_{name}_{dim}":
               Row(128, reciprocals=reciprocals, calls=57 if name == "e4m3" else 25,
                   needs=(*MATRIX, "ldmatrix"),
                   asked_bytes=asked_bytes, kv_bytes=32 * dim, per_byte=limits[1],
                   other_per_byte={"sm_80": limits[0], "sm_86": limits[0], "sm_100": limits[2],
                                   "sm_120": limits[2]},
                   blocks={"sm_80": blocks, "sm_86": 2, "sm_90": blocks})
               for name, limits in per_byte.items()}
# The blocks of a multiprocessor on targets that these rows leave out: sm_89, sm_100 and sm_120.
BLOCKS = {"quire_attend_fragments": (2, 4, 2), "quire_attend_prefill": (1, 1, 1),
          "quire_decode_bf16_64": (2, 3, 2), "quire_decode_f16_64": (2, 3, 2),
          "quire_decode_bf16_96": (1, 2, 1), "quire_decode_f16_96": (1, 2, 1),
          "quire_decode_bf16_128": (1, 2, 1), "quire_decode_f16_128": (1, 2, 1)}
for name in ("i8", "e4m3", "e5m2"):
    BLOCKS |= {f"quire_decode_{name}_{dim}": (blocks, blocks, blocks)
               for dim, blocks in ((64, 3), (96, 2), (128, 2))}
# Figures of the kernels that time is spent in.
AMD = {
    "quire_attend": Row(64, reciprocals=27),
    "quire_attend_fragments": Row(128, short_shared=704, reciprocals=43, local=12,
                                  blocks={"gfx90a": 1, "gfx942": 1}),
    "quire_attend_prefill": Row(256, short_shared=704, reciprocals=43, local=40,
                                blocks={"gfx90a": 1, "gfx942": 1}),
    "quire_kv_write": Row(64, reciprocals=3),
    "quire_kv_write_any": Row(64, reciprocals=3),
    "quire_reduce": Row(64, reciprocals=12),
}


def row_of(rows, name):
    """The kernel's row, with what it says of this target; None without a row."""
    row = rows.get(name)
    if row is None or rows is not NVIDIA:
        return row
    blocks = dict(zip(("sm_89", "sm_100", "sm_120"), BLOCKS.get(name, ())))
    return dataclasses.replace(row, blocks={**blocks, **row.blocks})


def judge(name, target, row, figures, code=None):
    """What is worse than the row says, in words."""
    problems = []
    for field in ("generic", "short_shared", "reciprocals", "calls", "local"):
        limit = getattr(row, field)
        if figures[field] > limit:
            problems.append(f"{target}: {name} has {figures[field]} of '{field}', "
                            f"and may have {limit}")
    for field in row.needs:
        if figures[field] == 0:
            problems.append(f"{target}: {name} has none of '{field}'")
    if figures.get("blocks", 1 << 30) < row.blocks.get(target, 0):
        problems.append(f"{target}: {figures['blocks']} blocks of {name} fit a multiprocessor, and "
                        f"{row.blocks[target]} should, for {figures['limit']}")
    if figures.get("wait_distance", row.wait_distance) < row.wait_distance:
        problems.append(f"{target}: {name} waits {figures['wait_distance']} instructions after a "
                        f"load, and should {row.wait_distance}")
    if row.kv_bytes and code is not None:
        spent = disassembly.per_byte(code, row.hot, row.kv_bytes)
        figures["per_byte"] = spent and round(spent, 4)
        if spent is None:
            problems.append(f"{target}: {name} has no loop with {row.hot}")
        elif spent > (limit := row.other_per_byte.get(target, row.per_byte)):
            problems.append(f"{target}: {name} spends {spent:.4f} instructions per byte of K and V,"
                            f" and may spend {limit}")
    return problems


def look(vendor, target, codes, resources):
    """(figures, problems) of a target; `resources` maps a kernel to (registers, shared bytes)."""
    rows, figures_of, blocks_of = {
        "nvidia": (NVIDIA, disassembly.figures_of_nvidia, occupancy.of_nvidia),
        "amd": (AMD, disassembly.figures_of_amd, occupancy.of_amd)}[vendor]
    all_figures, problems = {}, []
    for name, code in sorted(codes.items()):
        row = row_of(rows, name)
        if row is None:
            if vendor == "nvidia":
                problems.append(f"{target}: {name} has no row in code_gates.py")
            continue
        figures = figures_of(code)
        registers, shared = resources[name][:2]
        figures["registers"], figures["shared"] = registers, shared or row.asked_bytes
        figures["blocks"], figures["limit"] = blocks_of(target, row.threads, registers,
                                                        figures["shared"])
        problems += judge(name, target, row, figures, code)
        figures["threads"] = row.threads
        timed = row.hot if row.kv_bytes else row.timed
        if timed and target in chain.CLOCKS:
            figures["kv_bytes"] = row.kv_bytes
            figures["warp"] = chain.figures_of(code, target, timed, JOIN if row.kv_bytes else "",
                                               row.other_loads)
        all_figures[name] = figures
    return all_figures, problems


def table(target, all_figures):
    columns = ("registers", "shared", "blocks", "limit", "generic", "short_shared", "reciprocals",
               "calls", "local", "matrix", "ldmatrix", "async_copies", "barriers", "wait_distance",
               "per_byte")
    used = [column for column in columns if any(column in f for f in all_figures.values())]
    lines = [f"{target:24} " + " ".join(f"{column:>13}" for column in used)]
    for name, figures in all_figures.items():
        lines.append(f"  {name:22} " + " ".join(f"{figures.get(column, '-')!s:>13}"
                                                for column in used))
    return "\n".join(lines)
