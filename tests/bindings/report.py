# SPDX-License-Identifier: Apache-2.0
"""report: reports single cases of a test program in GoogleTest's format, so that Meson and
tests/run.py count them like those of GoogleTest."""

import argparse
import dataclasses
import xml.etree.ElementTree as ElementTree


@dataclasses.dataclass
class Case:
    suite: str
    name: str
    outcome: str            # passed, failed, skipped
    seconds: float = 0
    message: str = ""


def add_option(parser: argparse.ArgumentParser):
    parser.add_argument("--gtest_output", help="xml:FILE, as Meson asks GoogleTest")


def write(cases, gtest_output):
    """Prints the cases; also writes them where Meson looks. Returns the exit status."""
    for case in cases:
        print(f"{case.outcome}: {case.suite}.{case.name}" +
              (f"\n{case.message}" if case.message else ""))
    if gtest_output:
        root = ElementTree.Element("testsuites")
        suites = {}
        for case in cases:
            if case.suite not in suites:
                suites[case.suite] = ElementTree.SubElement(root, "testsuite", name=case.suite)
            element = ElementTree.SubElement(suites[case.suite], "testcase", name=case.name,
                                             classname=case.suite, time=f"{case.seconds:.3f}",
                                             status="run")
            if case.outcome == "failed":
                ElementTree.SubElement(element, "failure").text = case.message
            elif case.outcome == "skipped":
                # The first line is the place; tests/run.py drops it.
                ElementTree.SubElement(element, "skipped").text = "\n" + case.message
        ElementTree.ElementTree(root).write(gtest_output.removeprefix("xml:"))
    failed = [case for case in cases if case.outcome == "failed"]
    print(f"{len(cases)} cases, {len(failed)} failed")
    return 1 if failed or not cases else 0
