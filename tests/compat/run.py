# SPDX-License-Identifier: Apache-2.0
"""run: whether programs and plugins of an earlier commit work with this library, and the reverse.

    run.py [COMMIT] [--json]

COMMIT is a commit or tag; without one, the latest tag. Its library, cpu and toy backends, command
and example programs are built below build/compat, as it builds itself, so its own mimalloc is
downloaded. This checkout must be built.

What docs/compatibility.md promises is tried with real programs: each must print what it prints
with the library of its own time. A program that is newer than the library may be refused instead,
in words that name both. Exits with 1 if one case does not hold.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILT = "build/release"
LIBRARY = "abi/libquire.so"
PLUGINS = {"cpu": "backends/quire_backend_cpu.so", "toy": "tests/toy/quire_backend_toy.so"}
COMMAND = "bindings/cli/quire"
CONFORM = "tests/quire-conform"
ENGINE = "examples/engine/quire-engine"
PROGRAMS = {  # and their arguments
    "first": ("examples/c/first", ()),
    "attend": ("examples/c/attend", ()),
    "engine": (ENGINE, ("--check",)),
}
TARGETS = (*PLUGINS.values(), COMMAND, *(path for path, _ in PROGRAMS.values()))
REFUSED = ("older", "libquire", "headers")  # words of which a refusal has some

Case = collections.namedtuple("Case", ("name", "holds", "detail"))


def run(*command, folder=ROOT, environment=None):
    return subprocess.run([str(part) for part in command], cwd=folder, text=True,
                          env={**os.environ, **(environment or {})}, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=1800)


def must(*command, folder=ROOT):
    done = run(*command, folder=folder)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n"
                 f"{done.stdout[-2000:]}")
    return done.stdout.strip()


def checkout(commit):
    """The commit's files, built, and the folder they are in."""
    folder = ROOT / "build" / "compat" / must("git", "rev-parse", "--short", commit)
    if not (folder / "dev").exists():
        folder.mkdir(parents=True, exist_ok=True)
        archive = folder.with_suffix(".tar")
        must("git", "archive", "-o", archive, commit)
        must("tar", "xf", archive, "-C", folder)
        archive.unlink()
    print(f"building {folder.name} ...", file=sys.stderr, flush=True)
    must(".ci/install.sh", folder=folder)
    must(".ci/build.sh", "release", "build.ninja", folder=folder)  # which has the library's name
    rules = (folder / BUILT / "build.ninja").read_text()
    library = re.search(r"^build (abi/libquire\.so[.\d]*):", rules, re.MULTILINE)[1]
    must(".ci/build.sh", "release", library, *TARGETS, folder=folder)
    return folder


class Side:
    """A checkout's build."""

    def __init__(self, name, folder):
        self.name, self.folder, self.build = name, folder, folder / BUILT

    def environment(self, plugin):
        return {"QUIRE_LIBRARY": str(self.build / LIBRARY), "QUIRE_PLUGIN_PATH": str(plugin.parent)}


def program_output(name, side, library, plugins):
    """What a side's program prints with a library, and its status."""
    path, arguments = PROGRAMS[name]
    environment = library.environment(plugins.build / PLUGINS["cpu"])
    done = run(side.build / path, *arguments, folder=side.folder, environment=environment)
    # Lines with times differ from run to run.
    lines = [line for line in done.stdout.splitlines() if " s" not in line and "ms" not in line]
    return done.returncode, "\n".join(lines), done.stdout


def programs(old, new):
    for side, other in ((old, new), (new, old)):
        for name in PROGRAMS:
            code, expected, _ = program_output(name, side, side, side)
            title = f"{name} of {side.name}, library and plugin of {other.name}"
            if code != 0:
                yield Case(title, False, f"it ends with {code} with its own library")
                continue
            code, printed, whole = program_output(name, side, other, other)
            if code == 0 and printed == expected:
                yield Case(title, True, "the same output")
            elif code != 0 and side is new and any(word in whole for word in REFUSED):
                yield Case(title, True, f"refused: {whole.strip().splitlines()[-1]}")
            else:
                yield Case(title, False, f"status {code}: {whole.strip()[-300:]}")


def plugins(old, new):
    for side, other in ((old, new), (new, old)):
        for name in ("attend", "engine"):
            _, expected, _ = program_output(name, side, side, side)
            code, printed, whole = program_output(name, side, side, other)
            holds = code == 0 and printed == expected
            yield Case(f"{name} and library of {side.name}, plugin of {other.name}", holds,
                       "the same output" if holds else f"status {code}: {whole.strip()[-300:]}")
    for side, other in ((old, new), (new, old)):
        for name, path in PLUGINS.items():
            plugin = side.build / path
            title = f"plugin {name} of {side.name}, library of {other.name}"
            listed = run(other.build / COMMAND, "devices", "--json",
                         environment=other.environment(plugin))
            found = [backend for backend in json.loads(listed.stdout or "[]")
                     if backend["name"] == name and backend["path"] == str(plugin)]
            loaded = bool(found) and found[0]["loaded"] and bool(found[0]["devices"])
            yield Case(f"{title}: devices", loaded, "listed" if loaded else listed.stdout[-300:])
    for name, path in PLUGINS.items():
        verdict = run(new.build / COMMAND, "conform", old.build / path, "--short",
                      environment={**new.environment(new.build / PLUGINS["cpu"]),
                                   "QUIRE_CONFORM": str(new.build / CONFORM)})
        # Words of messages, which no release promises, are among what a backend may do.
        musts = re.findall(r" must +(\w+)", verdict.stdout)
        holds = bool(musts) and set(musts) == {"yes"}
        yield Case(f"plugin {name} of {old.name}: what the suite of {new.name} says it must do",
                   holds, f"{len(musts)} musts" if holds else verdict.stdout[-600:])


def main():
    parser = argparse.ArgumentParser(
        description="Whether programs and plugins of an earlier commit work with this library, and "
        "the reverse.", epilog="example: ./dev test compat v0.1.0 --json")
    parser.add_argument("commit", nargs="?", help="or a tag; default: the latest tag")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    commit = options.commit or run("git", "describe", "--tags", "--abbrev=0").stdout.strip()
    if options.commit is None and " " in commit:
        sys.exit("no release is tagged yet: name a commit, as in ./dev test compat HEAD~100")
    old, new = Side(commit, checkout(commit)), Side("this checkout", ROOT)
    cases = []
    for part in (programs, plugins):
        for case in part(old, new):
            cases.append(case)
            print(f"{'holds' if case.holds else 'FAILS':6} {case.name}: {case.detail}",
                  file=sys.stderr if options.json else sys.stdout, flush=True)
    if options.json:
        print(json.dumps([case._asdict() for case in cases], indent=2))
    failed = sum(not case.holds for case in cases)
    print(f"{len(cases) - failed} of {len(cases)} hold",
          file=sys.stderr if options.json else sys.stdout)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
