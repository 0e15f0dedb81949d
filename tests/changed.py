# SPDX-License-Identifier: Apache-2.0
"""changed: finds the tests that a change can affect, from what the build knows.

The change is the last commit and everything uncommitted. A test is affected if a changed file is

  - an input of a program, library or generated file that it runs or opens, headers included: ninja
    knows these;
  - one of its own arguments, or in the folder of the test's script;
  - in a folder that READS lists for it: files that a script finds by itself, unknown to ninja.

A script that receives the source root and is not in READS is affected by everything. A changed
meson.build or a deleted file stands for all files of its folder. A changed file that no test is
known to read affects all tests, unless it is prose: an error here may cost time, not a test.
"""

import fnmatch
import json
import os
import pathlib
import subprocess
import sys

PROSE = (".md", ".txt")
# Test name -> the parts of the source tree that it reads beyond what Meson was told.
READS = {
    "C example": [],
    "a *": [],
    "concurrent*": [],
    "disk*": ["tests/disk"],
    "exactly the listed files*": ["include", "docs", "backends"],
    "fuzzing can fail": ["tests/fuzz"],
    "go*": ["bindings/go", "examples/go", "tests/bindings/events"],
    "golden*": [],
    "graphs of a carried tree": ["tests/gpu"],
    "gpu": ["tests/gpu", "tests/bench"],
    "headers alone*": [],
    "kept inputs of*": ["tests/fuzz/corpus"],
    "nothing installed*": ["include", "docs", "bindings", "backends"],
    "python event_publisher": ["tests/bindings/events"],
    "rust*": ["bindings/rust", "examples/rust", "tests/bindings/script/rust",
              "tests/bench/bindings/rust"],
    "style*": [""],
    "targets": ["backends/cpu/kernels"],
    "valkey*": ["tests/valkey"],
    "what ./dev gpu predicts": ["tests/fakegpu", "backends/gpu", "docs/performance"],
    "what compilers made of*": ["tests/gpu"],
}


def git(root, *arguments):
    result = subprocess.run(["git", "-C", root, *arguments, "-z"], capture_output=True, text=True,
                            check=True)
    return [path for path in result.stdout.split("\0") if path]


def changed_files(root):
    has_parent = subprocess.run(["git", "-C", root, "rev-parse", "-q", "--verify", "HEAD~1"],
                                capture_output=True).returncode == 0
    return sorted({*git(root, "diff", "--name-only", "HEAD~1" if has_parent else "HEAD"),
                   *git(root, "ls-files", "-o", "--exclude-standard")})


class Graph:
    """The inputs of each target of a build folder, as paths from the source root."""

    def __init__(self, root, folder):
        self.root, self.folder = root, folder
        self.inputs_of = {}
        self.headers = {}   # object file -> files that its compiler read
        for line in self.ninja("deps").splitlines():
            if line.startswith("    "):
                of_object.append(line.strip())
            elif ":" in line:
                of_object = self.headers.setdefault(line.partition(":")[0], [])

    def ninja(self, tool, *arguments):
        return subprocess.run(["ninja", "-C", self.folder, "-t", tool, *arguments],
                              capture_output=True, text=True).stdout

    def in_source(self, path):
        """The path from the source root, or None."""
        path = pathlib.Path(os.path.normpath(self.folder / path))
        is_source = path.is_relative_to(self.root) and not path.is_relative_to(self.folder)
        return path.relative_to(self.root).as_posix() if is_source else None

    def inputs(self, target):
        """Inputs of a target, given by its path from the build folder."""
        if target not in self.inputs_of:
            found = set()
            for path in self.ninja("inputs", target).splitlines():
                found.update(map(self.in_source, [path, *self.headers.get(path, [])]))
            self.inputs_of[target] = found - {None}
        return self.inputs_of[target]


def targets_of(graph, test, outputs):
    """The targets that a test runs or opens."""
    known = {path for paths in outputs.values() for path in paths}
    words = {os.path.relpath(graph.folder / word, graph.folder) for word in test["cmd"]}
    return [*(known & words), *(path for target in test["depends"] for path in outputs[target])]


def reads(graph, test, outputs):
    """(files, folders) of the source tree; the folder "" is the whole tree."""
    files, folders = set(), set()
    for target in targets_of(graph, test, outputs):
        files |= graph.inputs(target)
    takes_root = False
    for word in test["cmd"]:
        path = graph.in_source(word)
        takes_root |= path == "."
        if path is None or path == ".":
            continue
        if (graph.root / path).is_dir():
            folders.add(path)
        else:
            files.add(path)
        if path.endswith(".py"):
            folders.add(str(pathlib.PurePosixPath(path).parent))
    known = [more for name, more in READS.items() if fnmatch.fnmatch(test["name"], name)]
    folders.update(folder for more in known for folder in more)
    if takes_root and not known:
        folders.add("")
    return files, folders


def is_in(path, folder):
    return folder in ("", ".") or path.startswith(folder + "/")


def affects(root, path, files, folders):
    if path in files or any(is_in(path, folder) for folder in folders):
        return True
    if pathlib.PurePosixPath(path).name != "meson.build" and (root / path).exists():
        return False
    folder = str(pathlib.PurePosixPath(path).parent)
    return any(is_in(other, folder) for other in files)


def affected(root, folder, tests):
    """The names of those of the given tests that the change can affect. Says why on stderr."""
    targets = json.loads((folder / "meson-info" / "intro-targets.json").read_text())
    outputs = {target["id"]: [pathlib.Path(path).relative_to(folder).as_posix()
                              for path in target["filename"]] for target in targets}
    graph = Graph(root, folder)
    read = {name: reads(graph, test, outputs) for name, test in tests.items()}
    chosen = set()
    for path in changed_files(root):
        found = {name for name, what in read.items() if affects(root, path, *what)}
        beside_style = {name for name in found if not name.startswith("style")}
        if not beside_style and not path.endswith(PROSE):
            found = set(tests)
        print(f"changed: {path}: {len(found)} of {len(tests)} tests", file=sys.stderr)
        chosen |= found
    return sorted(chosen)
