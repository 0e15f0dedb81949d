# SPDX-License-Identifier: Apache-2.0
"""chain: how many clocks a warp of NVIDIA's takes by itself, from its machine code.

A multiprocessor hides one warp's waits with the others' instructions, and the other limits of a
kernel count those. This is the limit that remains with few warps: instructions start in order, one
per clock, each when the registers that it reads are there and its unit is free. Copies to shared
memory land after the latency of memory, and DEPBAR waits for all but so many groups of them.

The latencies are published measurements (CLOCKS). Which bytes a kernel loads from a cache cannot be
read from its code: copies count as memory, other loads as the second-level cache.
"""

import dataclasses
import re

# Instructions that write no register.
WITHOUT_RESULT = ("ST", "RED", "LDGSTS", "LDGDEPBAR", "DEPBAR", "BRA", "BRX", "BAR", "BSSY",
                  "BSYNC", "BREAK", "EXIT", "CALL", "RET", "NOP", "WARPSYNC", "MEMBAR", "ERRBAR",
                  "CCTL", "YIELD", "KILL", "NANOSLEEP", "UBLKCP", "UTMALDG", "SYNCS")
OPERAND = re.compile(r"U?P[0-6]\b|U?R\d+(?:\.64)?")
STEADY = 4      # rounds after which every round takes as long


@dataclasses.dataclass
class Clocks:
    memory: float
    cache: float        # of the second level
    shared: float
    matrix: float       # the result of HMMA.16816 with sums in f32
    matrix_unit: float  # that it occupies one of the four units
    shuffle: float = 23
    special: float = 18
    special_unit: float = 8     # four lanes per clock
    barrier: float = 30
    plain: float = 4.5  # FFMA 4, IMAD and LOP3 4 to 5


# Memory, caches, shared memory and matrices: Luo and others, "Benchmarking and Dissecting the
# Nvidia Hopper GPU Architecture via Microbenchmarking" (arXiv 2402.13499), tables of latencies;
# H100's matrix unit by the same paper, which reached 62.9 % of its peak with mma.sync. The rest:
# Abdelkhalik and others, "Demystifying the Nvidia Ampere Architecture" (arXiv 2208.11174). Quoted
# from memory: their tables were out of reach when this was written.
CLOCKS = {
    "sm_80": Clocks(memory=466, cache=262, shared=29, matrix=26, matrix_unit=8),
    "sm_86": Clocks(memory=542, cache=273, shared=30, matrix=33, matrix_unit=32),
    "sm_90": Clocks(memory=479, cache=263, shared=29, matrix=32, matrix_unit=6.4),
}
CLOCKS["sm_89"] = CLOCKS["sm_86"]
CLOCKS["sm_90a"] = CLOCKS["sm_90"]


def base(name):
    return name.split(".")[0]


def words_of(name, place):
    """Registers that the place-th register operand stands for; 0 is the result."""
    if name.startswith("HMMA"):
        long = name.startswith("HMMA.16816")
        return ((4, 4, 2, 4) if long else (4, 2, 1, 4))[min(place, 3)]
    if base(name) == "LDSM":
        return 4 if name.endswith(".4") else 2 if name.endswith(".2") else 1
    is_value = place == 0 if base(name).startswith("LD") else place > 0
    if re.match(r"(LD|ST)", name) and is_value:
        return 4 if ".128" in name else 2 if ".64" in name else 1
    if ".WIDE" in name and place in (0, 3):
        return 2
    return 1


def split(operand):
    """Bare predicates or registers of an operand, such as an address."""
    return OPERAND.findall(operand)


def registers(found, words):
    kind, number = re.match(r"(U?[RP])(\d+)", found).groups()
    words = 2 if found.endswith(".64") else words
    return [f"{kind}{int(number) + i}" for i in range(words)]


def reads_and_writes(name, operands, condition):
    parts = [part.strip() for part in operands.split(",")]
    reads, writes = [], []
    if condition:
        reads += split(condition)
    has_result = not any(name.startswith(word) for word in WITHOUT_RESULT)
    only_predicates = "SETP" in name or base(name) in ("PLOP3", "R2P")
    is_leading, has_register, place = has_result, False, 0
    for part in parts:
        found = split(part)
        is_predicate = re.fullmatch(r"U?P(\d|T)", part) is not None
        is_register = re.fullmatch(r"U?R(\d+|Z)(\.\w+)*", part) is not None
        if is_leading and is_predicate:
            writes += [one for item in found for one in registers(item, 1)]
            continue
        if is_leading and is_register and not has_register and not only_predicates:
            writes += [one for item in found for one in registers(item, words_of(name, 0))]
            has_register = True
            continue
        is_leading = False
        place += 1
        for item in found:
            words = words_of(name, place) if is_register else 1
            reads += registers(item, words)
    return reads, writes


def wavefronts_of(name):
    """Passes through shared memory of an instruction without conflicts."""
    if base(name) == "SHFL":
        return 1
    if base(name) == "LDSM":
        return words_of(name, 0)
    if re.match(r"(LDS|STS|LDGSTS)(\.|$)", name):
        return 4 if ".128" in name else 2 if ".64" in name else 1
    return 0


def latency_of(name, clocks):
    first = base(name)
    if first in ("HMMA", "HGMMA", "QMMA"):
        return clocks.matrix
    if first in ("LDSM", "LDS"):
        return clocks.shared + wavefronts_of(name) - 1
    if first in ("LDG", "LD", "ATOMG", "ATOM"):
        return clocks.cache
    if first in ("LDC", "ULDC", "S2R", "S2UR"):
        return 2 * clocks.special
    if first in ("SHFL", "VOTE", "REDUX", "MATCH"):
        return clocks.shuffle
    if first in ("MUFU", "FRND", "F2I", "I2F", "F2F", "POPC"):
        return clocks.special
    return clocks.plain


def unit_of(name, clocks):
    """(unit, clocks that it is busy)"""
    first = base(name)
    if first == "HMMA":
        return "matrix", clocks.matrix_unit * (1 if "16816" in name else 0.5)
    if first in ("MUFU", "FRND", "F2I", "I2F", "F2F", "POPC"):
        return "special", clocks.special_unit
    passes = wavefronts_of(name)
    return ("shared", passes) if passes else (first, 1)


class Warp:
    """A warp that has its multiprocessor for itself."""

    def __init__(self, clocks):
        self.clocks = clocks
        self.now = 0.0
        self.ready, self.free = {}, {}
        self.landing, self.groups = 0.0, []

    def run(self, code, indices):
        for index in indices:
            condition = code.conditions[index] if code.conditions else None
            self.start(code.names[index], code.operands[index], condition)
        return self.now

    def start(self, name, operands, condition):
        reads, writes = reads_and_writes(name, operands, condition)
        unit, busy = unit_of(name, self.clocks)
        start = max([self.now + 1, self.free.get(unit, 0.0),
                     *(self.ready.get(register, 0.0) for register in reads)])
        first = base(name)
        if first == "DEPBAR":
            start = max(start, self.landed(operands))
        elif first == "BAR":
            start += self.clocks.barrier
        elif first == "LDGSTS":
            self.landing = max(self.landing, start + self.clocks.memory)
        elif first == "LDGDEPBAR":
            self.groups.append(self.landing)
            self.landing = 0.0
        self.now = start
        self.free[unit] = start + busy
        for register in writes:
            self.ready[register] = start + latency_of(name, self.clocks)

    def landed(self, operands):
        found = re.search(r"SB\d+,\s*(0x[0-9a-f]+)", operands)
        late = int(found.group(1), 16) if found else 0
        return max(self.groups[:len(self.groups) - late], default=0.0)


def clocks_of_round(code, indices, target):
    """Clocks of a round once every round takes as long."""
    warp = Warp(CLOCKS[target])
    for _ in range(STEADY):
        before = warp.run(code, indices)
    for _ in range(STEADY):
        after = warp.run(code, indices)
    return (after - before) / STEADY


def shortest_way(code, start, ends):
    """The fewest instructions from `start` to the first of `ends`; None if there is no way."""
    came_from, reached, waiting = {}, {start}, [start]
    for index in waiting:
        if index in ends:
            way = [index]
            while way[-1] in came_from:
                way.append(came_from[way[-1]])
            return way[::-1]
        for other in code.following(index):
            if other not in reached:
                reached.add(other)
                came_from[other] = index
                waiting.append(other)
    return None


def without_loads(code, way):
    """The way without loads under a condition: a shortest way makes none, as it takes no detour."""
    return [index for index in way
            if not (code.conditions[index] and base(code.names[index]) == "LDG")]


def clocks_around(code, loop, target, other_loads=0):
    """Clocks before the loop, and after it until the warp ends.

    other_loads: before the loop, each after the one before, that a shortest way leaves out.
    """
    ends = {index for index, name in enumerate(code.names) if base(name) == "EXIT"}
    before = shortest_way(code, 0, {loop[0]})
    leaving = loop[1] + 1 if loop[1] + 1 < len(code.names) else loop[1]
    after = shortest_way(code, leaving, ends)
    before, after = (Warp(CLOCKS[target]).run(code, without_loads(code, way)) if way else 0.0
                     for way in (before, after))
    return before + other_loads * CLOCKS[target].cache, after


def figures_of(code, target, pattern, join="", other_loads=0):
    """Figures of the hot loop and of what is around it, for a prediction of times; None without
    such a loop. `join` names the loads of the loop that adds chunks, if there is one apart;
    other_loads are those of clocks_around().
    """
    loop = code.hot_loop(pattern)
    way = None if loop is None else code.round_of(loop, rf"{pattern}|LDGSTS")
    if way is None:
        return None
    names = [code.names[index] for index in way]
    before, after = clocks_around(code, loop, target, other_loads)
    figures = {
        "instructions": len(way),
        "wavefronts": sum(map(wavefronts_of, names)),
        "matrices": sum(1 for name in names if name.startswith("HMMA.16816")) +
        sum(1 for name in names if name.startswith("HMMA.1688.")) / 2,
        "clocks": round(clocks_of_round(code, way, target)),
        "before": round(before),
        "after": round(after),
    }
    adding = code.hot_loop(join) if join else None
    if adding and adding != loop:
        way = code.round_of(adding, rf"{join}|MUFU\.EX2")
        figures["join"] = round(clocks_of_round(code, way, target))
    return figures
