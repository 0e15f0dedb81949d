# SPDX-License-Identifier: Apache-2.0
"""installed: the tree of `meson install` works wherever it is moved, and has only the listed files.

    installed.py CASE BUILD SOURCE PREFIX LIBDIR

Each case installs into a folder of its own, moves the tree, and uses it without QUIRE_ variables.
"""

import json
import pathlib
import re
import shutil
import sys
import tempfile

from tree import Tree, compiler, expect, planted, stranger

SKIPPED = 77
CASE, BUILD, SOURCE, PREFIX, LIBDIR = sys.argv[1:6]
HERE = pathlib.Path(__file__).parent
# A machine without the compiler for it has no vulkan, cuda or hip backend.
BACKENDS = sorted(path.stem.removeprefix("quire_backend_")
                  for path in pathlib.Path(BUILD, "backends").glob("quire_backend_*.so"))


def differences(tree):
    listed = (HERE / "files.txt").read_text().split()
    for backend in {"cuda", "hip", "vulkan"} - set(BACKENDS):
        listed = [name for name in listed if f"backend_{backend}" not in name]
    if not pathlib.Path(BUILD, "backends", "quire_store_valkey.so").exists():
        listed = [name for name in listed if "store_valkey" not in name]
    found = tree.files()
    return ([f"{name} is installed and not listed" for name in found if name not in listed] +
            [f"{name} is listed and not installed" for name in listed if name not in found])


def files(tree, folder):
    expect(differences(tree) == [], f"tests/install/files.txt is the tree: {differences(tree)}")
    planted(tree.root / "bin" / "abi_tests", "")
    (tree.libdir / "libquire.so").unlink()
    expect(len(differences(tree)) == 2, "a superfluous and a missing file are detected")


def told_places(tree):
    wanted = [SOURCE.encode(), BUILD.encode()]
    return [str(path) for path in sorted(tree.root.rglob("*"))
            if path.is_file() and any(place in path.read_bytes() for place in wanted)]


def clean(tree, folder):
    expect(told_places(tree) == [], f"no file names {SOURCE} or {BUILD}: {told_places(tree)}")
    leak = planted(tree.libdir / "pkgconfig" / "leak.pc", f"prefix={BUILD}\n")
    expect(told_places(tree) == [str(leak)], "a file that does is detected")


def client(tree, folder):
    flags = tree.flags("quire", "--cflags", "--libs")
    first, other = folder / "first", folder / "client"
    example = pathlib.Path(SOURCE, "examples", "c", "first.c")
    tree.run(*compiler("CC"), "-std=c99", example, *flags, "-ldl", "-o", first)
    tree.run(*compiler("CC"), "-std=c99", HERE / "client.c", *flags, "-ldl", "-o", other)
    path = {**stranger(), "LD_LIBRARY_PATH": str(tree.libdir)}
    out = tree.run(first, env=path).stdout
    expect("chat 1: 32 tokens found" in out, f"the example finds its prefix: {out!r}")
    cpu = f"{tree.plugins}/quire_backend_cpu.so\n"
    for name, run in {"linked": tree.run(other, env=path),
                      "by its full path": tree.run(other, tree.libdir / "libquire.so.0", env=path),
                      }.items():
        expect(run.stdout == cpu, f"{name}: the plugin beside the library, not {run.stdout!r}")

    # The other way to find a library: the program's own list of folders.
    tree.run(*compiler("CC"), "-std=c99", HERE / "client.c", *flags, "-ldl",
             f"-Wl,-rpath,{tree.libdir}", "-o", other)
    expect(tree.run(other).stdout == cpu, "with a run path no variable is needed")
    expect(tree.run(other, "libquire.so.0").stdout == cpu, "nor by dlopen")


def command(tree, folder):
    found = {backend["name"]: backend for backend in
             json.loads(tree.run(tree.command, "devices", "--json").stdout)}
    expect(sorted(found) == BACKENDS and len(found["cpu"]["devices"]) == 1,
           f"all backends are there, and the processor: {found}")
    expect(found["cpu"]["path"] == f"{tree.plugins}/quire_backend_cpu.so", "of this tree")
    out = tree.run(tree.command, "conform", "cpu", "--short", "--only", "FillTest.*")
    expect("cpu 0.1.0" in out.stdout and "cases: 6 passed, 0 failed" in out.stdout,
           f"the conformance suite runs: {out.stdout}")


def template(tree, folder):
    mine = folder / "mine"
    shutil.copytree(tree.root / "share" / "quire" / "backend", mine)
    source = mine / "plugin.cpp"
    source.write_text(source.read_text().replace('"null"', '"mine"'))
    plugin = mine / "quire_backend_mine.so"
    tree.run(*compiler("CXX"), "-std=c++20", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared",
             *tree.flags("quire-backend", "--cflags"), source, "-o", plugin, "-static-libstdc++",
             f"-Wl,--version-script={mine / 'backend.map'}")
    environment = {**stranger(), "QUIRE_PLUGIN_PATH": str(mine)}
    listed = json.loads(tree.run(tree.command, "devices", "--json", env=environment).stdout)
    names = [backend["name"] for backend in listed if backend["loaded"]]
    expect(names == ["mine", *BACKENDS], f"the new one comes first: {names}")
    expect(listed[0]["path"] == str(plugin), "from where it was built")
    where = tree.flags("quire-backend", "--variable=backenddir")
    shutil.copy(plugin, where[0])
    listed = json.loads(tree.run(tree.command, "devices", "--json").stdout)
    expect([backend["name"] for backend in listed] == sorted([*BACKENDS, "mine"]),
           f"put into backenddir it is found without a variable: {listed}")


def store(tree, folder):
    """A store of another author begins as a copy of ours, and is found and tested as ours is."""
    mine = folder / "mine"
    shutil.copytree(tree.root / "share" / "quire" / "store", mine)
    source = mine / "plugin.c"
    source.write_text(source.read_text().replace('"memory"', '"mine"'))
    plugin = mine / "quire_store_mine.so"
    tree.run(*compiler("CC"), "-std=c11", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared",
             *tree.flags("quire-backend", "--cflags"), source, mine / "values.c", "-o", plugin,
             "-pthread", f"-Wl,--version-script={mine / 'store.map'}")
    out = tree.run(tree.command, "conform-store", plugin, "--option", "capacity=64MiB").stdout
    expect(re.search(r"PASSED  \] [1-9]\d* tests", out), f"it conforms: {out[-600:]}")
    out = tree.run(tree.command, "conform-store", "disk", "--option", "directory={dir}",
                   "--option", "capacity=64MiB", "--only", "Value*").stdout
    expect(re.search(r"PASSED  \] [1-9]\d* tests", out), f"ours is found by name: {out[-600:]}")
    found = {**stranger(), "QUIRE_PLUGIN_PATH": str(mine)}
    told = tree.run(tree.command, "tier", "ls", "--store", "mine", fails=True, env=found).stderr
    expect("begins empty" in told, f"the library loads it: {told}")


def vendor(tree, folder):
    sources = sorted((HERE.parent / "toy").glob("*.c"))
    plugin = folder / "quire_backend_toy.so"
    script = tree.root / "share" / "quire" / "backend" / "backend.map"
    tree.run(*compiler("CC"), "-std=c99", "-O2", "-fPIC", "-shared", "-pthread",
             *tree.flags("quire-backend", "--cflags"), *sources, "-o", plugin, "-lm",
             f"-Wl,--version-script={script}")
    out = tree.run(tree.command, "conform", plugin, "--short").stdout
    expect(re.search(r"cases: [1-9]\d* passed, 0 failed", out), f"it conforms: {out[-600:]}")


def lost(tree, folder):
    compiled = pathlib.Path(PREFIX, LIBDIR, "quire", "backends-0")
    if compiled.exists():
        print(f"{compiled} is there: a Quire is installed on this machine")
        return SKIPPED
    shutil.rmtree(tree.plugins)
    process = tree.run(tree.command, "devices", "--json")
    expect(json.loads(process.stdout) == [], "no backend is listed")
    for words in (str(tree.plugins), str(compiled), "QUIRE_PLUGIN_PATH"):
        expect(words in process.stderr, f"{words!r} is in {process.stderr!r}")
    process = tree.run(tree.command, "conform", "cpu", fails=True)
    expect(str(tree.plugins) in process.stderr, f"conform says it too: {process.stderr!r}")
    for name in tree.libdir.glob("libquire*"):
        name.unlink()
    process = tree.run(tree.command, "devices", fails=True)
    expect(f"{tree.libdir}/libquire.so.0" in process.stderr and "QUIRE_LIBRARY" in process.stderr,
           f"a missing library is named: {process.stderr!r}")
    return 0


with tempfile.TemporaryDirectory() as name:
    home = pathlib.Path(name).resolve()
    sys.exit(globals()[CASE](Tree(BUILD, PREFIX, LIBDIR, home), home))
