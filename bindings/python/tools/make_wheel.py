# SPDX-License-Identifier: Apache-2.0
"""make_wheel: packs the package, libquire and the cpu backend into a wheel, and installs it.

    make_wheel.py WHEEL SITE SOURCE_ROOT FFI LIBRARY BACKEND

SITE is a folder for PYTHONPATH with the wheel's contents: the tests run on what is shipped, with
the library that it carries. Needs no network.
"""

import pathlib
import shutil
import subprocess
import sys


def stage(folder, root, ffi, library, backend):
    """Makes the source tree that setuptools packs."""
    binding = root / "bindings" / "python"
    package = folder / "quire"
    shutil.copytree(binding / "quire", package,
                    ignore=shutil.ignore_patterns("__pycache__", "_ffi.py"))
    for name in ("pyproject.toml", "setup.py", "README.md"):
        shutil.copy(binding / name, folder)
    shutil.copy(root / "LICENSE", folder)
    shutil.copy(root / "docs" / "bundled-licences.txt", folder)
    shutil.copy(ffi, package / "_ffi.py")
    backends = package / "lib" / "quire" / "backends-0"
    backends.mkdir(parents=True)
    for source, target in ((library, package / "lib" / "libquire.so.0"),
                           (backend, backends / backend.name)):
        shutil.copy(source.resolve(), target)
        subprocess.run(["strip", "--strip-unneeded", target], check=True)


def main():
    wheel, site, root, ffi, library, backend = map(pathlib.Path, sys.argv[1:])
    folder = wheel.parent.resolve() / "stage"
    packed = wheel.parent.resolve() / "packed"
    for old in (folder, packed, site):
        shutil.rmtree(old, ignore_errors=True)
    folder.mkdir(parents=True)
    stage(folder, root, ffi, library, backend)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation",
                    "--wheel-dir", packed, folder], check=True)
    made, = packed.glob("*.whl")
    if made.name != wheel.name:
        sys.exit(f"make_wheel: setuptools named it {made.name}, not {wheel.name}")
    shutil.move(made, wheel)
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", "--target", site, wheel],
                   check=True)
    shutil.rmtree(folder)
    shutil.rmtree(packed)


if __name__ == "__main__":
    main()
