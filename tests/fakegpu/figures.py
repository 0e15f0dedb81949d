# SPDX-License-Identifier: Apache-2.0
"""figures: tests/gpu/kernels.json, the figures of kernels that `./dev gpu --predict` needs.

They are checked in because a machine with a GPU has no disassembler. Those of the machine code come
from report.py, which also checks that the file is not out of date; those of memory are the limits
in kernel_counts_test.cpp, which are what the emulator counted.
"""

import json
import pathlib
import re

TESTS = pathlib.Path(__file__).resolve().parents[1]
FILE = TESTS / "gpu" / "kernels.json"
COMMAND = "ninja -C build/release kernel-figures"
TARGETS = ("sm_80", "sm_86", "sm_89", "sm_90", "gfx942", "gfx1100")
OF_CODE = ("registers", "shared", "blocks", "threads", "kv_bytes", "warp")
ROW = re.compile(r'\{"(\w+)", k(\w+), \{\{([^}]*)\}, \{([^}]*)\}\}\}')
NAME = re.compile(r'constexpr Shape k(\w+) = \{\s*"([^"]+)"')
# Compilers may schedule a little differently after a change that has nothing to do with speed.
MAY_DIFFER = 0.02


def limits():
    """{kernel: {shape: {lanes of a warp: what is asked for per KiB of K and V}}}"""
    text = (TESTS / "fakegpu" / "kernel_counts_test.cpp").read_text()
    names = dict(NAME.findall(text))
    counts = {}
    for kernel, shape, *of_vendors in ROW.findall(text):
        of_shape = counts.setdefault(kernel, {}).setdefault(names[shape], {})
        for lanes, values in zip(("32", "64"), of_vendors):
            if not values:      # a vendor that lacks the kernel
                continue
            _, _, instructions, passes, barriers = map(float, values.split(","))
            of_shape[lanes] = {"instructions": instructions, "passes": passes,
                               "barriers": barriers}
    return counts


def chosen(code_figures):
    """Of all figures that report.py has, those of kernels that time is predicted for."""
    timed = {name for target in code_figures if target.startswith("sm_")
             for name, figures in code_figures[target].items() if figures.get("warp")}
    return {name: {target: {key: code_figures[target][name][key] for key in OF_CODE
                            if key in code_figures[target][name]}
                   for target in TARGETS if name in code_figures.get(target, {})}
            for name in sorted(timed)}


def made(code_figures):
    return {"made_by": COMMAND, "code": chosen(code_figures),
            "counts": {kernel: of_shapes for kernel, of_shapes in limits().items()
                       if kernel in ("quire_attend_fragments", "quire_reduce")}}


def write(code_figures):
    FILE.write_text(json.dumps(made(code_figures), indent=1) + "\n")


def leaves(value, path=()):
    if not isinstance(value, dict):
        return {path: value}
    return {found: leaf for key, inner in value.items()
            for found, leaf in leaves(inner, (*path, key)).items()}


def differences(are, should):
    """What is out of date, in words."""
    are, should, problems = leaves(are), leaves(should), []
    for path in sorted(are.keys() | should.keys()):
        one, other = are.get(path), should.get(path)
        numbers = isinstance(one, (int, float)) and isinstance(other, (int, float))
        if one != other and not (numbers and abs(one - other) <= MAY_DIFFER * abs(other)):
            problems.append(f"tests/gpu/kernels.json has {one} for {' '.join(path)}, "
                            f"and should have {other}: run {COMMAND}")
    return problems


def out_of_date(code_figures):
    return differences(json.loads(FILE.read_text()), made(code_figures))
