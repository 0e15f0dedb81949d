# SPDX-License-Identifier: Apache-2.0
"""run: runs test suites in one or more build folders and counts single cases.

    run.py              every suite that is not marked 'extended', in build/release
    run.py SUITE        one of them
    run.py --changed    the tests that uncommitted changes and the last commit can affect, with few
                        random cases
    run.py extended     what is too slow for every edit: the tests marked 'extended', including
                        those under valgrind; all suites under the address and undefined-behaviour
                        sanitizers, with few random cases and without the tests marked 'long'; those
                        with threads under the thread sanitizer
    run.py full         all of these, with every random case: hours

Meson's own summary counts programs, but we count cases, and "all passed" must not be possible when
nothing ran. Invariants:
  (1) every test that the build folder lists for the suite has a result, or counts as failed;
  (2) a program that ended badly counts as failed, even if every case it reported had passed;
  (3) results are from this run: older ones are deleted first;
  (4) a run without any case is a failure.

A seed derived from the commit selects the random cases; QUIRE_TEST_SEED=N repeats a run's choice
(tests/effort.hpp). The last line is just `N passed, N failed, N skipped`; the exit status is 0 only
if nothing failed.
"""

import argparse
import collections
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree

import budget
import changed

ROOT = pathlib.Path(__file__).resolve().parent.parent
MESSAGE_LINES = 60     # room for a sanitizer's report with its legend


@dataclasses.dataclass
class Run:
    build: str              # folder under build/
    suites: tuple = ()      # empty: all that are not extended
    effort: str = "usual"   # see tests/effort.hpp
    without: tuple = ("full",)  # suites whose tests it leaves out
    slowdown: int = 1       # under a tool
    names: tuple = None     # only these tests
    may_be_empty: bool = False

    @property
    def is_extended(self):
        return self.suites == ("extended",)

    @property
    def folder(self):
        return ROOT / "build" / self.build


@dataclasses.dataclass
class Case:
    group: str
    name: str
    outcome: str            # passed, failed, skipped
    seconds: float
    message: str = ""


def runs_of(suite):
    if suite not in ("extended", "full"):
        return [Run("release", (suite,) if suite else ())]
    if suite == "extended":
        watched = {"effort": "few", "without": ("full", "long"), "slowdown": 10}
        runs = [Run("release", ("extended",))]
    else:
        watched = {"effort": "usual", "without": (), "slowdown": 30}
        whole = {"effort": "all", "without": (), "slowdown": 10}
        runs = [Run("release", **whole), Run("release", ("extended",), **whole)]
    return [*runs, Run("sanitize", **watched),
            Run("threads", ("tools", "threads", "device", "disk", "conformance"), **watched)]


def run_of_changed():
    """The tests that the change can affect, or None for all; prints the reason on stderr."""
    run = Run("release", effort="few")
    chosen = changed.affected(ROOT, run.folder, listed_tests(run))
    return dataclasses.replace(run, names=tuple(chosen), may_be_empty=True)


def random_seed():
    """Changes with the commit, so that successive runs take other random cases."""
    if os.environ.get("QUIRE_TEST_SEED"):
        return os.environ["QUIRE_TEST_SEED"]
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True,
                            text=True)
    return str(int(commit.stdout[:8], 16)) if commit.returncode == 0 else "0"


def suites_of(test):
    return [suite.partition(":")[2] for suite in test["suite"]]


def listed_tests(run):
    """The tests for which this run must have results, under the names that Meson logs."""
    tests = json.loads((run.folder / "meson-info" / "intro-tests.json").read_text())
    wanted = {}
    for test in tests:
        suites = suites_of(test)
        if run.is_extended:
            chosen = "extended" in suites
        else:
            chosen = "extended" not in suites and (
                not run.suites or not set(suites).isdisjoint(run.suites))
        if not set(suites).isdisjoint(run.without):
            chosen = False
        if run.names is not None and test["name"] not in run.names:
            chosen = False
        if chosen:
            wanted[test["name"]] = test
    return wanted


def last_lines(text, count=MESSAGE_LINES):
    return "\n".join((text or "").strip().splitlines()[-count:])


def output_of(result):
    return last_lines(result["stdout"] + result.get("stderr", ""))


def start(run, seed):
    """Runs Meson's test command, which builds what it needs; its log files hold the results."""
    for old in [*run.folder.glob("*.xml"), *(run.folder / "meson-logs").glob("testlog*")]:
        old.unlink()
    command = [sys.executable, "-m", "mesonbuild.mesonmain", "test", "-C", str(run.folder),
               "--timeout-multiplier", str(run.slowdown)]
    for suite in run.suites:
        command += ["--suite", suite]
    if not run.is_extended:
        command += ["--no-suite", "extended"]
    for suite in run.without:
        command += ["--no-suite", suite]
    command += run.names or ()
    environment = {**os.environ, "QUIRE_TEST_EFFORT": run.effort, "QUIRE_TEST_SEED": seed}
    print(" ".join(["testing", run.build, *run.suites, "..."]), file=sys.stderr, flush=True)
    return subprocess.run(command, env=environment, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def read_log(folder):
    """Test name -> what Meson recorded about its process."""
    logs = [*(folder / "meson-logs").glob("testlog*.json")]
    lines = logs[0].read_text().splitlines() if logs else []
    results = {}
    for line in lines:
        result = json.loads(line)
        # "unit - quire:block pool", without a suite "quire:block pool"
        name = result["name"].rpartition(" - ")[2].partition(":")[2]
        results[name] = result
    return results


def read_cases(folder):
    """Meson's name of a GoogleTest program -> the elements of its cases."""
    logs = [*(folder / "meson-logs").glob("testlog*.junit.xml")]
    cases = collections.defaultdict(list)
    if logs:
        for suite in ElementTree.parse(logs[0]).getroot().iter("testsuite"):
            program = suite.get("name").partition(".")[2].rpartition(".")[0]
            cases[program] += suite.findall("testcase")
    return cases


def case_of(element, group):
    name = f'{element.get("classname")}.{element.get("name")}'
    seconds = float(element.get("time", 0))
    failures = element.findall("failure") + element.findall("error")
    if failures:
        text = "\n".join(failure.text or failure.get("message") or "" for failure in failures)
        return Case(group, name, "failed", seconds, last_lines(text))
    skip = element.find("skipped")
    if skip is not None:
        # GoogleTest's text starts with the line FILE:LINE.
        lines = (skip.text or skip.get("message") or "no reason given").strip().splitlines()
        return Case(group, name, "skipped", seconds, " ".join(lines[1:] or lines))
    if element.get("status") == "notrun":
        return Case(group, name, "skipped", seconds, "disabled in its source")
    return Case(group, name, "passed", seconds)


def program_cases(group, name, result, elements):
    """The cases of one GoogleTest program, plus one if the program itself went wrong."""
    cases = [case_of(element, group) for element in elements]
    if not cases:
        message = f'ended with {result["returncode"]} and reported no case\n'
        cases.append(Case(group, name, "failed", 0, message + output_of(result)))
    elif result["is_fail"] and not any(case.outcome == "failed" for case in cases):
        message = f'{result["result"]}: ended with {result["returncode"]} although no case failed\n'
        cases.append(Case(group, name, "failed", 0, message + output_of(result)))
    return cases


def exit_case(group, name, result):
    if result["result"] == "SKIP":
        reason = last_lines(output_of(result), 1)
        return Case(group, name, "skipped", result["duration"], reason)
    if result["result"] in ("OK", "EXPECTEDFAIL"):
        return Case(group, name, "passed", result["duration"])
    message = f'{result["result"]}: ended with {result["returncode"]}\n' + output_of(result)
    return Case(group, name, "failed", result["duration"], message)


def collect(run, seed):
    listed = listed_tests(run)
    if not listed:
        if run.may_be_empty:
            return []
        known = json.loads((run.folder / "meson-info" / "intro-tests.json").read_text())
        names = sorted({suite for test in known for suite in suites_of(test)} | {"extended"})
        return [Case(" ".join(run.suites) or run.build, "suite", "failed", 0,
                     f"no such suite, or it is empty; the suites are: {', '.join(names)}")]
    process = start(run, seed)
    log = read_log(run.folder)
    if not log:
        text = f"none of {len(listed)} programs ran\n" + last_lines(process.stdout)
        return [Case(" ".join(run.suites) or run.build, "meson test", "failed", 0, text)]
    budget.remember(run.folder, {name: result["duration"] for name, result in log.items()})
    elements = read_cases(run.folder)
    cases = []
    for name, test in listed.items():
        suite = suites_of(test)[0]
        group = suite if run.build == "release" else f"{run.build}: {suite}"
        if name not in log:
            message = "did not run\n" + last_lines(process.stdout)
            cases.append(Case(group, name, "failed", 0, message))
        elif test["protocol"] == "gtest":
            cases += program_cases(group, name, log[name], elements[log[name]["name"]])
        else:
            cases.append(exit_case(group, name, log[name]))
    if process.returncode != 0 and not any(case.outcome == "failed" for case in cases):
        cases.append(Case(run.build, "meson test", "failed", 0, last_lines(process.stdout)))
    return cases


def print_report(cases):
    groups = {}
    for case in cases:
        count = groups.setdefault(case.group, collections.Counter())
        count[case.outcome] += 1
        count["seconds"] += case.seconds
    width = max([len("suite"), *map(len, groups)])
    print(f"{'suite':{width}}  passed  failed  skipped  seconds")
    for group, count in groups.items():
        print(f"{group:{width}}  {count['passed']:6}  {count['failed']:6}  {count['skipped']:7}"
              f"  {count['seconds']:7.1f}")
    for case in cases:
        if case.outcome == "skipped":
            print(f"skipped: {case.group}: {case.name}: {case.message}")
    for case in cases:
        if case.outcome == "failed":
            print(f"\nFAILED: {case.group}: {case.name}")
            print("\n".join("    " + line for line in case.message.splitlines()))
    print()


def main():
    started = time.time()
    parser = argparse.ArgumentParser(usage="run.py [SUITE | extended | full | --changed]")
    parser.add_argument("suite", nargs="?", default="")
    parser.add_argument("--changed", action="store_true")
    options = parser.parse_args()
    seed = random_seed()
    print(f"random cases: QUIRE_TEST_SEED={seed}", file=sys.stderr)
    cases = []
    for run in [run_of_changed()] if options.changed else runs_of(options.suite):
        cases += collect(run, seed)
    print_report(cases)
    print(f"random cases: QUIRE_TEST_SEED={seed}")
    budget.report("test --changed" if options.changed else f"test {options.suite}".strip(),
                  float(os.environ.get("QUIRE_STARTED") or started))
    count = collections.Counter(case.outcome for case in cases)
    if not cases and not options.changed:
        count["failed"] = 1
    print(f"{count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped")
    return 1 if count["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
