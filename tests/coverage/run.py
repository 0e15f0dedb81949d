# SPDX-License-Identifier: Apache-2.0
"""run: which lines and branches of core/ and abi/ the tests reach through the C ABI.

    run.py                  runs the suites, and prints a table by folder
    run.py --files          by file
    run.py --html FOLDER    also pages that show each line
    run.py --json           for programs

Only libquire.so counts: a test that links parts of the core runs other objects, and files that
libquire does not contain are left out. A branch of a template is taken if one of its instances
takes it. Not counted are branches that only an exception takes, and the branch of QUIRE_ASSERT that
stops a cache. Exits with 1 if a test fails or less is reached than LEAST says.
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
BUILD = ROOT / "build" / "coverage"
LEAST = {"line": 95.0, "branch": 90.0}  # percent
SUITES = ("unit", "model", "regress", "sim", "threads", "device", "cli", "engine", "decoding",
          "tiers")
# Counting allocates, and adds to what the library imports.
OTHERS = ("abi", "a hundred cycles of load, work, unload leave the process unchanged")


def run_tests():
    """Whether all tests pass; old counts are removed first."""
    for old in BUILD.rglob("*.gcda"):
        old.unlink()
    meson = [sys.executable, "-m", "mesonbuild.mesonmain", "test", "-C", BUILD,
             "--timeout-multiplier", "10"]
    environment = {**os.environ, "QUIRE_TEST_EFFORT": "usual"}
    suites = [part for suite in SUITES for part in ("--suite", suite)]
    passed = True
    for chosen in ([*suites, "--no-suite", "extended"], OTHERS):
        print(f"testing {' '.join(chosen)} ...", file=sys.stderr, flush=True)
        process = subprocess.run([*meson, *chosen], env=environment, stdin=subprocess.DEVNULL,
                                 capture_output=True, text=True)
        if process.returncode != 0:
            failures = [line for line in process.stdout.splitlines()
                        if re.search(r" (FAIL|TIMEOUT|ERROR|UNEXPECTEDPASS) ", line)]
            print("\n".join(failures) or process.stdout[-2000:], file=sys.stderr)
            passed = False
    return passed


def measure(html):
    """gcovr's summary."""
    command = [sys.executable, "-m", "gcovr", "--root", ROOT, "--filter", "core/", "--filter",
               "abi/", "--exclude-throw-branches", "--exclude-unreachable-branches",
               "--gcov-suspicious-hits-threshold=0",  # a loop here runs 2^32 times and more
               "--merge-mode-functions=separate", "--merge-lines",
               "--exclude-branches-by-pattern", r"\s*QUIRE_ASSERT\(",
               "--json-summary", BUILD / "coverage.json"]
    if html:
        html.mkdir(parents=True, exist_ok=True)
        command += ["--html-details", html / "index.html"]
    subprocess.run([*command, BUILD], check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
    summary = json.loads((BUILD / "coverage.json").read_text())
    linked = linked_sources()
    summary["files"] = [file for file in summary["files"] if is_linked(file["filename"], linked)]
    return summary


def linked_sources():
    """The names of those whose object some process loaded; a static library leaves others out."""
    return {counts.name.removesuffix(".gcda") for counts in BUILD.rglob("*.gcda")}


def is_linked(name, linked):
    flat = "_".join(pathlib.PurePath(name).parts[1:])  # as Meson names objects
    return not name.endswith(".cpp") or flat in linked


def percent(covered, total):
    return 100.0 * covered / total if total else 100.0


def by_place(summary, by_file):
    """Place -> counts of its lines and branches."""
    places = collections.defaultdict(collections.Counter)
    for file in summary["files"]:
        path = pathlib.PurePath(file["filename"])
        place = str(path if by_file else path.parent)
        for what in ("line", "branch"):
            for kind in ("covered", "total"):
                places[place][f"{what}_{kind}"] += file[f"{what}_{kind}"]
    return places


def total(summary):
    return sum(by_place(summary, False).values(), collections.Counter())


def too_little(counts):
    """What is missing, in words; empty if enough is reached."""
    return [f"{percent(counts[f'{what}_covered'], counts[f'{what}_total']):.1f} % of "
            f"{'branches' if what == 'branch' else 'lines'}, {least:.0f} % are wanted"
            for what, least in LEAST.items()
            if percent(counts[f"{what}_covered"], counts[f"{what}_total"]) < least]


def table(summary, by_file):
    places = by_place(summary, by_file)
    width = max(map(len, places))
    rows = [f"{'':{width}}  lines     of      %  branches     of      %"]
    for place, counts in [*sorted(places.items()), ("together", total(summary))]:
        cells = [f"{place:{width}}"]
        for what in ("line", "branch"):
            covered, all_of = counts[f"{what}_covered"], counts[f"{what}_total"]
            cells.append(f"{covered:{5 if what == 'line' else 8}} {all_of:6} "
                         f"{percent(covered, all_of):6.1f}")
        rows.append("  ".join(cells))
    return "\n".join(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0],
                                     epilog="example: ./dev test coverage --html /tmp/coverage")
    parser.add_argument("--files", action="store_true", help="a row per file")
    parser.add_argument("--html", type=pathlib.Path, metavar="FOLDER", help="write pages there")
    parser.add_argument("--json", action="store_true", help="print gcovr's summary")
    parser.add_argument("--again", action="store_true", help="report on the last run's counts")
    options = parser.parse_args()
    passed = options.again or run_tests()
    summary = measure(options.html)
    print(json.dumps(summary) if options.json else table(summary, options.files))
    missing = too_little(total(summary))
    for text in missing:
        print(f"coverage: {text}", file=sys.stderr)
    return 1 if missing or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
