# SPDX-License-Identifier: Apache-2.0
"""run: plants one bug at a time, and says which test notices it.

    run.py                          all mutants: about half an hour
    run.py --only NAME --only NAME  these
    run.py --area undo              those of one area
    run.py --list FILE              other mutants, in the form of mutants.toml
    run.py --json                   for programs

A mutant is killed when a test fails, crashes or hangs, and survives when all pass. First all tests
run without one, and must pass. Exits with 1 if a mutant survives.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

import mutants as planted

FOLDER = planted.ROOT / "build" / "mutation"
BUILD = FOLDER / "build" / "release"
# The tests that run, the quickest first; a stage in which one fails ends the mutant.
STAGES = (
    ("unit_0", "unit_1", "regress", "abi", "tiers"),
    ("model", "sim", "what the simulator found", "threads", "steady_state",
     "steady_state_followed"),
    ("device_0", "device_1", "golden", "dump", "serving samples swap", "serving samples recompute",
     "serving prompt in chunks", "serving workload",
     "serving golden story over devices in processes"),
)
TIMEOUTS = "0.5"  # of what the tests are allowed: an endless loop is noticed sooner
FEW_CASES = {"QUIRE_TEST_EFFORT": "few", "GTEST_FAIL_FAST": "1"}


def first_failure(log):
    """The test that failed, with GoogleTest's name of its case; empty if none did."""
    for line in log.read_text().splitlines():
        result = json.loads(line)
        if result["result"] in ("OK", "SKIP", "EXPECTEDFAIL"):
            continue
        name = result["name"].rpartition(" - ")[2].partition(":")[2]
        for printed in result["stdout"].splitlines():
            if printed.startswith("[  FAILED  ] ") and "." in printed:
                return f"{name}: {printed[13:].split(' ')[0].rstrip(',')}"
        return f"{name}: {result['result'].lower()}"
    return ""


def run_stage(tests, number, seed):
    """What noticed mutant `number`; empty if all these tests pass. Builds first for number 0."""
    logs = BUILD / "meson-logs"
    for old in logs.glob("testlog*"):
        old.unlink()
    environment = {**os.environ, **FEW_CASES, "QUIRE_MUTANT": str(number),
                   "QUIRE_TEST_SEED": str(seed)}
    process = subprocess.run(
        [sys.executable, "-m", "mesonbuild.mesonmain", "test", "-C", BUILD,
         *(["--no-rebuild"] if number else []), "--maxfail", "1",
         "--timeout-multiplier", TIMEOUTS, *tests],
        env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    log = logs / "testlog.json"
    if not log.exists():
        raise SystemExit(f"mutation: no test ran\n{process.stdout[-2000:]}{process.stderr[-2000:]}")
    failure = first_failure(log)
    return failure or ("" if process.returncode == 0 else "meson test: " + str(process.returncode))


def noticed_by(number, seed):
    for tests in STAGES:
        failure = run_stage(tests, number, seed)
        if failure:
            return failure
    return ""


def build(chosen):
    print(f"planting {len(chosen)} mutants in {FOLDER.relative_to(planted.ROOT)} ...",
          file=sys.stderr)
    planted.make_copy(FOLDER, chosen)
    subprocess.run([FOLDER / ".ci" / "build.sh", "release", "build.ninja"], check=True)


def report(results, as_json):
    if as_json:
        print(json.dumps(results, indent=1))
        return
    for result in results:
        verdict = result["noticed_by"] or "SURVIVED"
        print(f"{result['area']:12}  {result['name']:44}  {result['seconds']:5.0f} s  {verdict}")
    killed = sum(bool(result["noticed_by"]) for result in results)
    print(f"{killed} of {len(results)} mutants were killed")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0],
                                     formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="example: run.py --area undo")
    parser.add_argument("--only", action="append", metavar="NAME", help="this mutant; repeatable")
    parser.add_argument("--area", help="the mutants of this area")
    parser.add_argument("--list", type=pathlib.Path, default=planted.LIST, metavar="FILE",
                        help="other mutants than those of mutants.toml")
    parser.add_argument("--seed", type=int, default=1, help="of the random cases; default 1")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    try:
        known = planted.read(options.list)
        build(known)
    except planted.Bad as bad:
        sys.exit(f"mutation: {bad}")
    chosen = [mutant for mutant in known
              if (not options.only or mutant.name in options.only)
              and (not options.area or mutant.area == options.area)]
    if not chosen:
        sys.exit("mutation: no mutant of that name or area")
    failure = noticed_by(0, options.seed)
    if failure:
        sys.exit(f"mutation: without a mutant a test fails already: {failure}")
    results = []
    for place, mutant in enumerate(chosen, 1):
        began = time.monotonic()
        noticed = noticed_by(mutant.number, options.seed)
        results.append({"name": mutant.name, "area": mutant.area, "why": mutant.why,
                        "noticed_by": noticed, "seconds": time.monotonic() - began})
        print(f"{place} of {len(chosen)}: {mutant.name}: {noticed or 'SURVIVED'}", file=sys.stderr,
              flush=True)
    report(results, options.json)
    return 0 if all(result["noticed_by"] for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
