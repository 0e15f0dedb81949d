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
# The blocks of a multiprocessor on targets that rows leave out: sm_89, sm_100 and sm_120.
BLOCKS = {"quire_attend_fragments": (2, 4, 2), "quire_attend_prefill": (1, 1, 1)}


def add_decode(name, row, blocks, per_byte):
    """blocks: on sm_80, sm_86 and sm_90, and on those that rows leave out. per_byte: on sm_80 and
    sm_86, on sm_89 and sm_90, on newer ones."""
    NVIDIA[name] = dataclasses.replace(
        row, needs=(*MATRIX, "ldmatrix"), per_byte=per_byte[1],
        other_per_byte={"sm_80": per_byte[0], "sm_86": per_byte[0], "sm_100": per_byte[2],
                        "sm_120": per_byte[2]},
        blocks=dict(zip(("sm_80", "sm_86", "sm_90"), blocks)))
    BLOCKS[name] = blocks[3:]


# A round serves a page of 16 rows of K and of V. Loops of before and after it, and of the careful
# way, count too; and all of a block's work is in the loop over its items. Narrow units have up to 8
# queries, wide ones up to 16. bf16 and f16 take as many instructions.
for dim, asked_bytes, blocks, of_width in (
        (64, 41504, (3, 2, 3, 2, 3, 2),
         {"": (44, 21, (0.045,) * 3), "wide_": (56, 29, (0.062,) * 3)}),
        (96, 61984, (2, 1, 2, 1, 2, 1),
         {"": (56, 23, (0.037,) * 3), "wide_": (68, 31, (0.046,) * 3)}),
        (128, 82464, (2, 1, 2, 1, 2, 1),
         {"": (68, 25, (0.032,) * 3), "wide_": (80, 33, (0.04, 0.04, 0.041))})):
    for width, (reciprocals, calls, per_byte) in of_width.items():
        for name in ("bf16", "f16"):
            add_decode(f"quire_decode_{width}{name}_{dim}",
                       Row(128, reciprocals=reciprocals, calls=calls, asked_bytes=asked_bytes,
                           kv_bytes=64 * dim), blocks, per_byte)
# Codes have half the bytes, and are converted: e4m3 with an instruction of sm_89 and newer, by more
# of them on others.
for dim, asked_bytes, width, blocks, reciprocals, calls, per_byte in (
        (64, 22560, "", (4,) * 6, 60, 15,
         {"i8": (0.157, 0.158, 0.169), "e4m3": (0.181, 0.131, 0.135),
          "e5m2": (0.125, 0.127, 0.139)}),
        (96, 32800, "", (3,) * 6, 66, 15,
         {"i8": (0.128, 0.129, 0.14), "e4m3": (0.152, 0.102, 0.105),
          "e5m2": (0.097, 0.098, 0.109)}),
        (128, 43040, "", (3, 2, 4, 2, 3, 2), 72, 15,
         {"i8": (0.116, 0.118, 0.117), "e4m3": (0.14, 0.09, 0.081),
          "e5m2": (0.085, 0.086, 0.084)}),
        (64, 22560, "wide_", (3,) * 6, 76, 23,
         {"i8": (0.185, 0.188, 0.206), "e4m3": (0.209, 0.161, 0.173),
          "e5m2": (0.154, 0.157, 0.176)}),
        (96, 32800, "wide_", (2,) * 6, 82, 23,
         {"i8": (0.149, 0.15, 0.166), "e4m3": (0.173, 0.131, 0.132),
          "e5m2": (0.118, 0.119, 0.135)}),
        (128, 43040, "wide_", (2,) * 6, 88, 23,
         {"i8": (0.132, 0.132, 0.136), "e4m3": (0.156, 0.105, 0.1),
          "e5m2": (0.101, 0.102, 0.103)})):
    for name, limits in per_byte.items():
        add_decode(f"quire_decode_{width}{name}_{dim}",
                   Row(128, reciprocals=reciprocals, calls=calls, asked_bytes=asked_bytes,
                       kv_bytes=32 * dim), blocks, limits)
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
