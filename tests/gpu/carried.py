# SPDX-License-Identifier: Apache-2.0
"""carried: the part "graphs" of ./dev gpu runs the programs of a carried tree, with the driver that
the loader finds: it opens nothing in the folder where the tree was built.

    carried.py SOURCE_ROOT BUILD_ROOT
"""

import argparse
import os
import pathlib
import runpy
import shutil
import sys
import tempfile

SOURCE, BUILD = map(pathlib.Path, sys.argv[1:])
# Names that an installed driver has; HIP's always ends in a number.
DRIVERS = ("libcuda.so.1", "libamdhip64.so.6")


def carry(tree):
    """Makes a tree with the files that gpu.py looks for, and a folder of drivers."""
    build = tree / "build" / "release"
    for folder in (build / "abi", build / "backends", build / "tests", tree / "tests" / "gpu",
                   tree / "drivers"):
        folder.mkdir(parents=True)
    shutil.copy(SOURCE / "tests" / "gpu" / "gpu.py", tree / "tests" / "gpu")
    shutil.copy(BUILD / "abi" / "libquire.so", build / "abi")
    shutil.copy(BUILD / "tests" / "fakegpu_driver_tests", build / "tests")
    for plugin in (BUILD / "backends").glob("quire_backend_*.so"):
        shutil.copy(plugin, build / "backends")
    for name in DRIVERS:
        shutil.copy(BUILD / "tests" / "fakegpu" / name, tree / "drivers")


def problem_of(gpu, backend, tree):
    """The problem with the part, in words."""
    opened = tree / f"opened by {backend}"
    os.environ.update(LD_LIBRARY_PATH=str(tree / "drivers"), LD_DEBUG="files",
                      LD_DEBUG_OUTPUT=str(opened))
    part = next(part for part in gpu["engine"](backend, [], None)
                if part.name == f"graphs {backend}")
    options = argparse.Namespace(out=None, short=True)
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
        tree = pathlib.Path(name).resolve()
        carry(tree)
        gpu = runpy.run_path(str(tree / "tests" / "gpu" / "gpu.py"))
        for backend in ("cuda", "hip"):
            if problem := problem_of(gpu, backend, tree):
                print(f"graphs {backend}: {problem}")
                failed = True
    return 1 if failed else 0


sys.exit(main())
