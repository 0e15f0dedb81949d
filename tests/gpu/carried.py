# SPDX-License-Identifier: Apache-2.0
"""carried: what ./dev gpu --pack packs is enough, and fits. Its part "graphs" runs with the driver
that the loader finds, and opens nothing in the folder where the tree was built.

    carried.py BUILD_ROOT
"""

import argparse
import json
import os
import pathlib
import runpy
import shutil
import subprocess
import sys
import tempfile

import pack

BUILD = pathlib.Path(sys.argv[1])
# Names that an installed driver has; HIP's always ends in a number.
DRIVERS = ("libcuda.so.1", "libamdhip64.so.6")


def carry(tree):
    """Packs a tree, as ./dev gpu --pack does, and adds a folder of drivers."""
    programs = [name for name in pack.PROGRAMS if (BUILD / name).exists()]
    said, fits = pack.pack(BUILD, tree, "packed", programs)
    assert fits or BUILD.name != "release", said    # sanitizers make programs large
    for name in pack.PROGRAMS:
        if name not in programs:
            print(f"not built, so not packed: {name}")
    (tree / "drivers").mkdir()
    for name in DRIVERS:
        shutil.copy(BUILD / "tests" / "fakegpu" / name, tree / "drivers")


def problem_of_run(tree):
    """The problem with the script of the pack, in words."""
    if not (tree / "build/release/bindings/cli/quire").exists():
        return ""
    ran = subprocess.run([tree / "run", "--backend", "vulkan", "--minutes", "0.01", "--json"],
                         capture_output=True, text=True)
    result = json.loads(ran.stdout) if ran.stdout else {"version": ran.stderr}
    return "" if result["version"] == "packed" else f"run: {result}"


def problem_of(gpu, backend, tree):
    """The problem with the part, in words."""
    opened = tree / f"opened by {backend}"
    os.environ.update(LD_LIBRARY_PATH=str(tree / "drivers"), LD_DEBUG="files",
                      LD_DEBUG_OUTPUT=str(opened))
    options = argparse.Namespace(out=None, short=True)
    part = next(part for part in gpu["engine"](backend, [], options)
                if part.name == f"graphs {backend}")
    outcome = gpu["run"](part, part.seconds * 10, options)
    if outcome.outcome != "passed":
        return f"{outcome.outcome}: {outcome.said}"
    if not outcome.figures["passed"]:
        return "nothing was run"
    said = "".join(path.read_text() for path in tree.glob(opened.name + ".*"))
    begun = [line.split("calling init: ")[1] for line in said.splitlines()
             if "calling init: " in line]
    missing = [name for name in ("libquire.so", f"quire_backend_{backend}.so")
               if not any(path.startswith(str(tree)) and path.endswith(name) for path in begun)]
    if missing:
        return f"not opened: {missing} in {begun}"
    foreign = [path for path in begun if path.startswith(str(BUILD))]
    return f"opened where the tree was built: {foreign}" if foreign else ""


def main():
    for name in ("QUIRE_LIBRARY", "QUIRE_PLUGIN_PATH", "QUIRE_CUDA_LIBRARY", "QUIRE_HIP_LIBRARY"):
        os.environ.pop(name, None)
    failed = False
    with tempfile.TemporaryDirectory() as name:
        tree = pathlib.Path(name).resolve() / "packed"
        carry(tree)
        if problem := problem_of_run(tree):
            print(problem)
            failed = True
        gpu = runpy.run_path(str(tree / "tests" / "gpu" / "gpu.py"))
        for backend in ("cuda", "hip"):
            if problem := problem_of(gpu, backend, tree):
                print(f"graphs {backend}: {problem}")
                failed = True
    return 1 if failed else 0


sys.exit(main())
