# SPDX-License-Identifier: Apache-2.0
"""layers: what includes what in core/ points down, between its folders and inside steps/.

    layers.py [--only order | self-test] [--root FOLDER]

  order      no file of core/ includes one of a folder in its own layer or above, and no file of
             steps/ one of its own layer there or above; a header and its source count as one
  self-test  each planted offence is found, and clean text passes

A new folder, or a new file of steps/, gets its place in the lists below.
"""

import argparse
import pathlib
import re
import sys
import tempfile

# From the bottom to the top; "" is core/ itself. Folders of one layer do not include each other.
FOLDERS = [["base"], ["blocks", "scales"], ["device"], ["transfer"], ["steps"],
           ["move", "replica", "session", "tiers"], ["parts"], ["inspect"], [""]]
# The same for the files of steps/.
STEPS = [["loads", "name_space", "pressure", "sequence_keys", "tier_orders", "touched_sequences",
          "unsaved", "write_orders"],
         ["step", "told_blocks"],
         ["step_records"],
         ["cache_books"],
         ["prefixes", "runs", "tenants", "witness"],
         ["changes", "plan", "preemption", "retreat", "withdrawal"],
         ["drafts", "needs", "rollback", "sequences", "taking"],
         ["admission", "leases"],
         ["lease_prefixes", "steps"],
         ["lease_runs"]]

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', re.MULTILINE)


def layer_of(name, layers):
    """The number of the layer that lists the name; None: no layer does."""
    return next((at for at, names in enumerate(layers) if name in names), None)


def split(path):
    """(folder, stem) of a path within core/."""
    path = pathlib.PurePosixPath(path)
    return path.parent.as_posix().replace(".", ""), path.stem


def problem_of(path, target):
    """What is wrong with a file of core/ that includes another; "" if nothing is."""
    (folder, stem), (other_folder, other_stem) = split(path), split(target)
    if (folder, stem) == (other_folder, other_stem):
        return ""
    inside = folder == other_folder
    if inside and folder != "steps":
        return ""
    layers, here, there = ((STEPS, stem, other_stem) if inside
                           else (FOLDERS, folder, other_folder))
    at, below = layer_of(here, layers), layer_of(there, layers)
    if at is None or below is None:
        return f"{here if at is None else there} has no layer yet: list it in layers.py"
    if below < at:
        return ""
    return "which is above it" if below > at else "which is in the same layer"


def order_problems(root):
    core = root / "core"
    files = sorted(path for path in core.rglob("*") if path.suffix in {".cpp", ".hpp"})
    problems = [] if files else [f"no code was found in {core}"]
    for path in files:
        name = path.relative_to(core).as_posix()
        text = path.read_text(encoding="utf-8")
        for match in INCLUDE.finditer(text):
            if match[1].startswith("quire/"):
                continue
            line = text.count("\n", 0, match.start()) + 1
            wrong = ("name it by its path from the root"
                     if not match[1].startswith("core/")
                     else problem_of(name, match[1].removeprefix("core/")))
            if wrong:
                problems.append(f"core/{name}:{line}: includes {match[1]}, {wrong}")
    return problems


def report(problems):
    for problem in problems:
        print(problem)
    return 1 if problems else 0


def planted():
    """(file of core/, what it includes, what the check must say; empty: nothing)."""
    return [
        ("blocks/journal.hpp", "core/base/status.hpp", ""),
        ("blocks/journal.cpp", "core/blocks/journal.hpp", ""),
        ("blocks/journal.hpp", "quire/step.h", ""),
        ("blocks/journal.hpp", "core/steps/step.hpp", "above it"),
        ("steps/steps.hpp", "core/cache.hpp", "above it"),
        ("move/move.cpp", "core/replica/log.hpp", "the same layer"),
        ("cache.cpp", "core/parts/cache_parts.hpp", ""),
        ("steps/preemption.cpp", "core/steps/admission.hpp", "above it"),
        ("steps/prefixes.hpp", "core/steps/tenants.hpp", "the same layer"),
        ("steps/admission.cpp", "core/steps/preemption.hpp", ""),
        ("steps/novel.hpp", "core/steps/step.hpp", "novel has no layer"),
        ("novel/thing.hpp", "core/base/status.hpp", "novel has no layer"),
        ("blocks/journal.hpp", "scopes.hpp", "by its path from the root"),
    ]


def self_test():
    problems = []
    for name, included, expected in planted():
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "core", name)
            path.parent.mkdir(parents=True)
            path.write_text(f'#include "{included}"\n', encoding="utf-8")
            said = order_problems(pathlib.Path(folder))
        if bool(expected) != bool(said) or (said and expected not in said[0]):
            problems.append(f"{name} includes {included}: expected {expected!r}, found {said}")
    known = [name for layers in (FOLDERS, STEPS) for layer in layers for name in layer]
    problems += [f"{name} is listed twice" for name in set(known)
                 if known.count(name) > 1 + (name == "steps")]
    return report(problems)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=["order", "self-test"])
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).parents[2])
    options = parser.parse_args()
    parts = {"order": lambda: report(order_problems(options.root.resolve())),
             "self-test": self_test}
    if options.only:
        return parts[options.only]()
    return max([run() for run in parts.values()])


if __name__ == "__main__":
    sys.exit(main())
