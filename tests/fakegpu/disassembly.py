# SPDX-License-Identifier: Apache-2.0
"""disassembly: what a kernel's machine code does in its loops.

Reads the text of nvdisasm for NVIDIA's GPUs, and that of llvm-objdump for AMD's. A loop is what
lies between a branch backwards and its target; code that the compiler moved out of line, such as a
slow path, is not counted to the loop that it returns to.
"""

import dataclasses
import re

NVIDIA_LINE = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)([^;]*);")
NVIDIA_LABEL = re.compile(r"^(\.L_x_\d+):")
AMD_LINE = re.compile(r"^\s+([a-z]\w+)\s*(.*?)\s*// ([0-9A-F]+): [0-9A-F ]+(<[^>]*>)?")
AMD_KERNEL = re.compile(r"^([0-9a-f]+) <(\w+)>:$")


@dataclasses.dataclass
class Code:
    names: list         # of the instructions, in order
    operands: list
    loops: list         # (first, last), indices of instructions
    jumps: dict = dataclasses.field(default_factory=dict)   # index -> (target, may go on instead)
    conditions: list = dataclasses.field(default_factory=list)  # of each instruction, or None

    def in_loops(self):
        inside = set()
        for first, last in self.loops:
            inside.update(range(first, last + 1))
        return sorted(inside)

    def count(self, pattern, where=None):
        expression = re.compile(pattern)
        indices = range(len(self.names)) if where is None else where
        return sum(1 for index in indices if expression.match(self.names[index]))

    def hot_loop(self, pattern):
        """The loop with the most instructions that match, of those without such a loop in them."""
        matching = [loop for loop in self.loops
                    if self.count(pattern, range(loop[0], loop[1] + 1)) > 0]
        innermost = [(first, last) for first, last in matching
                     if not any(first <= other[0] and other[1] <= last and other != (first, last)
                                for other in matching)]
        def matches(loop):
            return self.count(pattern, range(loop[0], loop[1] + 1)), loop[0] - loop[1]
        return max(innermost, key=matches, default=None)

    def following(self, index):
        """The instructions that may run after it."""
        target, may_go_on = self.jumps.get(index, (None, True))
        ends = self.names[index].split(".")[0] in ("EXIT", "RET", "BRX", "JMX", "KILL")
        if ends and not (self.conditions and self.conditions[index]):
            may_go_on = False
        going_on = [index + 1] if may_go_on and index + 1 < len(self.names) else []
        return going_on + ([] if target is None else [target])

    def round_of(self, loop, pattern):
        """The instructions of one round that takes as many that match as it can: the fewest.

        Loops within the loop are passed once, and jumps out of it are not followed.
        """
        expression = re.compile(pattern)
        best = {loop[0]: (0, 0)}    # before an instruction: (-matching, all) on the way to it
        came_from = {}
        for index in range(loop[0], loop[1] + 1):
            if index not in best:
                continue
            taken = (best[index][0] - bool(expression.match(self.names[index])), best[index][1] + 1)
            if index == loop[1]:
                return way_to(index, came_from)
            for other in self.following(index):
                if other > index and taken < best.get(other, (1, 0)):
                    best[other], came_from[other] = taken, index
        return None


def way_to(index, came_from):
    way = [index]
    while way[-1] in came_from:
        way.append(came_from[way[-1]])
    return way[::-1]


def code_of(lines, instruction_of, label_of, target_of):
    names, operands, conditions, labels, jumps = [], [], [], {}, []
    for line in lines:
        label = label_of(line)
        if label:
            labels[label] = len(names)
            continue
        found = instruction_of(line)
        if not found:
            continue
        target, may_go_on = target_of(*found)
        if target:
            jumps.append((len(names), target, may_go_on))
        conditions.append((found[0] or "").strip() or None)
        names.append(found[1])
        operands.append(found[2])
    loops = [(labels[target], index) for index, target, _ in jumps
             if labels.get(target, len(names)) <= index and not names[index].startswith("CALL")]
    return Code(names, operands, loops,
                {index: (labels.get(target), may_go_on) for index, target, may_go_on in jumps},
                conditions)


def of_nvidia(text):
    """Each kernel's code, from nvdisasm."""
    def target(condition, name, rest):
        found = re.search(r"`\((\.L_x_\d+)\)", rest)
        # The compiler also leaves divergent code by a CALL of a place in the same kernel.
        if not found or not name.startswith(("BRA", "CALL.REL.NOINC")):
            return None, True
        # BRA P1, and BRA.DIV, jump on a condition too.
        return found.group(1), bool(condition) or not rest.strip().startswith("`")

    def instruction(line):
        found = NVIDIA_LINE.match(line)
        return found.groups()[1:] if found else None

    def label(line):
        found = NVIDIA_LABEL.match(line)
        return found.group(1) if found else None

    kernels = {}
    for part in re.split(r"^\s*\.section\s+\.text\.", text, flags=re.MULTILINE)[1:]:
        name = part.split(",", 1)[0]
        # Another section follows the last instruction.
        body = re.split(r"^\s*\.section\s", part, flags=re.MULTILINE)[0]
        kernels[name] = code_of(body.splitlines(), instruction, label, target)
    return kernels


def of_amd(text):
    """Each kernel's code, from llvm-objdump -d."""
    kernels = {}
    for line in text.splitlines():
        found = AMD_KERNEL.match(line)
        if found:
            start, name = int(found.group(1), 16), found.group(2)
            code, places = Code([], [], []), {}
            kernels[name] = code
            continue
        found = AMD_LINE.match(line)
        if not found or not kernels:
            continue
        index = len(code.names)
        places[int(found.group(3), 16)] = index
        if re.match(r"s_c?branch", found.group(1)) and found.group(4):
            offset = re.match(r"<\w+(?:\+0x([0-9a-f]+))?>", found.group(4)).group(1) or "0"
            target = places.get(start + int(offset, 16))
            if target is not None:      # else forwards
                code.loops.append((target, index))
        code.names.append(found.group(1))
        code.operands.append(found.group(2))
    return kernels


def figures_of_nvidia(code):
    loops = code.in_loops()
    return {
        "instructions": len(code.names),
        # LD and ST, unlike LDG and STG, find out at run time which memory an address is in.
        "generic": code.count(r"(LD|ST)(\.|$)"),
        "short_shared": code.count(r"LDS\.[US]16", loops),
        "reciprocals": code.count(r"MUFU\.RCP", loops),
        "calls": code.count(r"CALL", loops),
        "local": code.count(r"(LDL|STL)(\.|$)"),
        "ldmatrix": code.count(r"LDSM"),
        "matrix": code.count(r"HMMA\.(1688|16816)|HGMMA"),
        "async_copies": code.count(r"LDGSTS|UBLKCP|UTMALDG"),
        "barriers": code.count(r"BAR\.", loops),
    }


def wait_distances(code):
    """For each wait for loads: how many instructions lie between it and the load before it."""
    distances, last = [], None
    for index, name in enumerate(code.names):
        if re.match(r"(global|flat|buffer)_load", name):
            last = index
        is_wait = name == "s_wait_loadcnt" or (
            name == "s_waitcnt" and "vmcnt" in code.operands[index])
        if is_wait and last is not None:
            distances.append(index - last - 1)
            last = None
    return distances


def figures_of_amd(code):
    distances = sorted(wait_distances(code))
    loops = code.in_loops()
    return {
        "instructions": len(code.names),
        "generic": code.count(r"flat_(load|store)"),
        "short_shared": code.count(r"ds_(read|load)_[ui]16", loops),
        "reciprocals": code.count(r"v_rcp", loops),
        "calls": code.count(r"s_swappc|s_setpc", loops),
        "local": code.count(r"scratch_(load|store)"),
        "matrix": code.count(r"v_(mfma|wmma)"),
        "wait_distance": distances[len(distances) // 2] if distances else 0,
    }


def per_byte(code, pattern, kv_bytes):
    """Warp instructions of the hot loop per byte of K and V that one round of it serves."""
    loop = code.hot_loop(pattern)
    round_of_it = None if loop is None else code.round_of(loop, rf"{pattern}|LDGSTS")
    return None if round_of_it is None else len(round_of_it) / kv_bytes
