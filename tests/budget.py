# SPDX-License-Identifier: Apache-2.0
"""budget: how much of the time allowed for building and testing is used, and what uses it.

    budget.py [--top N]     the slowest steps of the last builds and test runs, all folders together

The budgets are those of tests/README.md: a run from a clean checkout without a compiler cache, on
two cores. A run over its budget does not fail, because machines differ; the author of a new test
checks the line that every run prints.
"""

import argparse
import collections
import json
import os
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
MINUTES = {"test": 14, "test --changed": 3, ".ci/run": 40}
TIMES = "test-times.json"


def minutes(seconds):
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def line(what, seconds):
    allowed = MINUTES[what] * 60
    return (f"time: {what} took {minutes(seconds)} of the {minutes(allowed)} allowed for a cold "
            f"run ({100 * seconds / allowed:.0f} %)")


def report(what, started):
    """Prints how long this run took, and .ci/run as a whole so far if it is part of that."""
    if what in MINUTES:
        print(line(what, time.time() - started))
    if os.environ.get("QUIRE_CI_STARTED"):
        print(line(".ci/run", time.time() - float(os.environ["QUIRE_CI_STARTED"])))


def remember(folder, seconds_of):
    """Records the time of each test of a build folder, keeping the times of the others."""
    path = folder / TIMES
    known = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**known, **seconds_of}, indent=1))


def build_steps(folder):
    """(seconds, output) of each command in Ninja's last run."""
    steps = {}
    for row in (folder / ".ninja_log").read_text().splitlines():
        if not row.startswith("#"):
            begin, end, _, output, command = row.split("\t")
            # A command with several outputs has a row for each.
            steps.setdefault((command, begin, end), output)
    return [((int(end) - int(begin)) / 1000, output) for (_, begin, end), output in steps.items()]


def steps_of(folder):
    if (folder / ".ninja_log").exists():
        for seconds, output in build_steps(folder):
            yield seconds, folder.name, "build", output
    if (folder / TIMES).exists():
        for name, seconds in json.loads((folder / TIMES).read_text()).items():
            yield seconds, folder.name, "test", name


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0],
                                     epilog="example: budget.py --top 40")
    parser.add_argument("--top", type=int, default=20, help="how many steps; default 20")
    options = parser.parse_args()
    steps = sorted((step for folder in sorted(ROOT.glob("build/*/")) for step in steps_of(folder)),
                   reverse=True)
    if not steps:
        sys.exit("budget: no build or test run recorded yet: ./dev test")
    print(f"{'seconds':>8}  {'folder':9}  step")
    for seconds, folder, kind, name in steps[:options.top]:
        print(f"{seconds:8.1f}  {folder:9}  {kind} {name}")
    sums = collections.Counter()
    for seconds, folder, kind, _ in steps:
        sums[folder, kind] += seconds
    print("\nSums over parallel steps:")
    for (folder, kind), seconds in sums.most_common():
        print(f"{seconds:8.1f}  {folder:9}  {kind}")


if __name__ == "__main__":
    main()
