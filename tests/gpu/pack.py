# SPDX-License-Identifier: Apache-2.0
"""pack: what ./dev gpu needs of a built tree, in one folder or archive, for a machine that has a
GPU and no build. It holds a script `run`, which takes ./dev gpu's options.
"""

import pathlib
import shutil
import subprocess
import tarfile
import tempfile

MIB = 1 << 20
MOST_BYTES = 64 * MIB       # what such a machine may accept
SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.xz")
PROGRAMS = ("abi/libquire.so", "bindings/cli/quire", "examples/engine/quire-engine",
            "tests/quire-conform", "tests/bench/bench_attention", "tests/bench/bench_prefill",
            "tests/bench/bench_copy")
# Built only where their compilers are; the cpu's plugin is for migrations.
OPTIONAL = ("tests/fakegpu_driver_tests", "backends/quire_backend_cuda.so",
            "backends/quire_backend_hip.so", "backends/quire_backend_vulkan.so",
            "backends/quire_backend_cpu.so", "backends/quire_store_memory.so")
RUN = '#!/bin/sh\nexec python3 "$(dirname "$0")/tests/gpu/gpu.py" "$@"\n'


class Missing(Exception):
    """The tree has no build, or not all of it."""


def scripts(folder):
    """Programs of the folder, without tests."""
    return sorted(path for path in folder.glob("*.py")
                  if not path.name.endswith("_test.py") and path.name not in ("order.py",
                                                                              "carried.py"))


def strip(path):
    """Removes debug data, if there is a tool for it."""
    if tool := shutil.which("strip"):
        subprocess.run([tool, "--strip-debug", path], check=False, capture_output=True)


def fill(tree, build, version, programs):
    missing = [name for name in programs if not (build / name).exists()]
    if missing:
        raise Missing(f"{build} has no {', '.join(missing)}: run ./dev build first")
    for name in [*programs, *OPTIONAL]:
        if (build / name).exists():
            to = tree / "build" / "release" / name
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(build / name, to)
            strip(to)
    (tree / "tests" / "gpu").mkdir(parents=True)
    for path in scripts(pathlib.Path(__file__).parent):
        shutil.copy(path, tree / "tests" / "gpu")
    (tree / "version").write_text(version + "\n")
    (tree / "run").write_text(RUN)
    (tree / "run").chmod(0o755)


def size_of(path):
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def pack(build, target, version, programs=PROGRAMS):
    """Makes the folder or archive `target` of a build; returns what there is to say about it, and
    whether it fits.

    Raises Missing, and FileExistsError if `target` is a folder with something in it.
    """
    if target.name.endswith(SUFFIXES):
        with tempfile.TemporaryDirectory() as folder:
            tree = pathlib.Path(folder, target.name.split(".")[0])
            fill(tree, build, version, programs)
            kind = target.name.rsplit(".")[-1].replace("tgz", "gz")
            with tarfile.open(target, "w" if kind == "tar" else f"w:{kind}") as archive:
                archive.add(tree, tree.name)
    else:
        if target.is_dir() and any(target.iterdir()):
            raise FileExistsError(f"{target} is not empty")
        fill(target, build, version, programs)
    size_bytes = size_of(target)
    start = f"run {target.name}/run"
    if target.is_file():
        start = f"unpack it and run {target.name.split('.')[0]}/run"
    lines = [f"{target}: {size_bytes / MIB:.1f} MiB, 1 path to carry; {start} there"]
    if size_bytes > MOST_BYTES:
        lines.append(f"that is more than {MOST_BYTES // MIB} MiB")
    return "\n".join(lines), size_bytes <= MOST_BYTES
