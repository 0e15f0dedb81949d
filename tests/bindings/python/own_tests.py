# SPDX-License-Identifier: Apache-2.0
"""own_tests: runs a project's own tests with its parts and with ours, and compares the outcomes.

A test that passes with theirs must pass with ours, unless a file of known ones lists it; and a
listed test must fail, unless its reason begins with "by chance". In such a file a reason in
brackets stands above the tests that it explains; a name that begins with * stands for many. A run
in which none passes with theirs has failed: it compares nothing.
"""

import fnmatch
import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import report


def outcomes(python, arguments, result, folder, environment):
    """{classname::test: outcome} of pytest with these arguments, which writes to `result`."""
    run = subprocess.run(
        [python, "-m", "pytest", "-q", "--noconftest", "-p", "no:cacheprovider", "--rootdir",
         str(folder), "--continue-on-collection-errors", f"--junitxml={result}", *arguments],
        cwd=folder, env={**environment, "PYTHONDONTWRITEBYTECODE": "1"}, capture_output=True,
        text=True, check=False)
    if not result.exists():
        sys.exit(f"pytest did not run:\n{run.stdout[-4000:]}\n{run.stderr[-4000:]}")
    found = {}
    for case in ElementTree.parse(result).iter("testcase"):
        kinds = {child.tag for child in case}
        outcome = ("failed" if kinds & {"failure", "error"} else
                   "skipped" if "skipped" in kinds else "passed")
        found[f"{case.get('classname', '')}::{case.get('name')}"] = outcome
    return found


def known(path):
    """{test or pattern: reason} of a file of known ones."""
    reasons, reason = {}, ""
    for line in path.read_text().splitlines():
        if line.startswith("["):
            reason = line.strip("[]")
        elif line and not line.startswith("#"):
            reasons[line] = reason
    return reasons


def compare(theirs, ours, path):
    """The report's cases: the tests that pass with theirs."""
    cases, reasons = [], known(path)
    patterns = [pattern for pattern in reasons if pattern.startswith("*")]
    for name in sorted(theirs):
        if theirs[name] != "passed":
            continue
        module, _, test = name.partition("::")
        got = ours.get(name, "missing")
        listed = name if name in reasons else next(
            (pattern for pattern in patterns if fnmatch.fnmatchcase(name, pattern)), None)
        by_chance = listed is not None and reasons[listed].startswith("by chance")
        if listed is not None and not (by_chance and got == "passed"):
            outcome, message = ("skipped", f"known: {reasons[listed]}")
            if got == "passed":
                outcome, message = "failed", f"passes: take it out of {path.name}"
        else:
            outcome, message = ("passed", "") if got == "passed" else ("failed", got)
        cases.append(report.Case(module, test, outcome, 0, message))
    return cases or [report.Case("own_tests", "theirs", "failed", 0, "no test passes with theirs")]


def conclude(both, path, options):
    """Prints {whose parts: {test: outcome}}, theirs first, or compares them; the exit status."""
    if options.json:
        print(json.dumps(both, indent=1, sort_keys=True))
        return 0
    for name, found in both.items():
        print(f"{name}: {sum(outcome == 'passed' for outcome in found.values())} pass of "
              f"{len(found)}")
    return report.write(compare(*both.values(), path), options.gtest_output)
