# SPDX-License-Identifier: Apache-2.0
"""unittests: runs the test cases of one Python file, and reports each.

    unittests.py FILE [PATTERN] [--gtest_output=xml:FILE]

PATTERN, such as 'Close*', selects cases by Class.name.
"""

import argparse
import fnmatch
import importlib.util
import pathlib
import sys
import time
import traceback
import unittest

import report


class Cases(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.cases = []

    def startTest(self, test):
        super().startTest(test)
        self.started = time.monotonic()

    def note(self, test, outcome, message=""):
        suite, _, name = test.id().rpartition(".")
        suite = suite.rpartition(".")[2]
        self.cases.append(report.Case(suite, name, outcome, time.monotonic() - self.started,
                                      message))

    def addSuccess(self, test):
        self.note(test, "passed")

    def addSkip(self, test, reason):
        self.note(test, "skipped", reason)

    def addFailure(self, test, error):
        self.note(test, "failed", "".join(traceback.format_exception(*error)))

    addError = addFailure

    def addSubTest(self, test, subtest, error):
        if error is not None:
            self.note(test, "failed", f"{subtest}\n" + "".join(traceback.format_exception(*error)))


def all_cases(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from all_cases(test)
        else:
            yield test


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("pattern", nargs="?", default="*")
    report.add_option(parser)
    options = parser.parse_args()
    sys.path.insert(0, str(options.file.parent))
    spec = importlib.util.spec_from_file_location(options.file.stem, options.file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[options.file.stem] = module
    spec.loader.exec_module(module)
    cases = Cases()
    for test in all_cases(unittest.defaultTestLoader.loadTestsFromModule(module)):
        if fnmatch.fnmatch(test.id().partition(".")[2], options.pattern):
            test.run(cases)
    return report.write(cases.cases, options.gtest_output)


if __name__ == "__main__":
    sys.exit(main())
