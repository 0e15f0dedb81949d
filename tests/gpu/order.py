# SPDX-License-Identifier: Apache-2.0
"""order: what ./dev gpu runs first, that slow parts leave others the seconds kept for them, and
what it takes for a sanitizer that found nothing.

    order.py
"""

import argparse
import pathlib
import runpy
import sys

GPU = runpy.run_path(str(pathlib.Path(__file__).with_name("gpu.py")))
OPTIONS = argparse.Namespace(out=None, short=False, backend=None)


def slow_parts_leave_others_their_time():
    Part = GPU["Part"]
    parts = [Part("slow", ["sleep", "60"], 60), Part("kept", ["sleep", "0.5"], 60, kept=6),
             Part("none is kept of this", ["true"], 60, why_not="no reason", kept=100),
             Part("late", ["sleep", "60"], 60)]
    outcomes = {part.name: outcome for part, outcome in GPU["run_parts"](parts, 12, OPTIONS)}
    slow, kept = outcomes["slow"], outcomes["kept"]
    assert slow.outcome == "failed" and 5 < slow.seconds < 11, slow
    assert kept.outcome == "passed", kept
    # What it did not take is there for those behind it.
    assert outcomes["late"].seconds > 1, outcomes["late"]


def at_most_half_of_the_time_is_kept():
    Part = GPU["Part"]
    parts = [Part("slow", ["sleep", "60"], 60), Part("kept", ["true"], 60, kept=60)]
    outcomes = [outcome for _, outcome in GPU["run_parts"](parts, 11, OPTIONS)]
    assert 5 < outcomes[0].seconds < 10, outcomes
    assert outcomes[1].outcome == "passed", outcomes


def correctness_comes_first_and_figures_have_time():
    found = {"cuda": ["one"], "vulkan": ["one"]}
    parts = list(GPU["parts_of"](found, OPTIONS))
    names = [part.name for part in parts]
    assert names[:4] == ["conformance cuda", "conformance vulkan", "decode cuda", "prefill cuda"]
    kept = {part.name for part in parts if part.kept}
    assert {"decode cuda", "prefill cuda", "engine cuda", "graphs cuda", "decode vulkan"} <= kept
    # Of nine minutes all of it is kept, and not only a share.
    assert sum(part.kept for part in parts) <= 9 * 60 / 2


def sanitizers_have_to_have_looked():
    Part = GPU["Part"]
    part = Part("memcheck cuda", [], 60, "sanitizer")
    summary = "========= ERROR SUMMARY: 0 errors\n"
    cases = "[  PASSED  ] 30 tests.\n"
    figures = GPU["figures_of"](part, cases + summary)
    assert figures == {"passed": 30, "summary": "ERROR SUMMARY: 0 errors"}, figures
    for text in (cases, cases + summary.replace("0", "2"), "[  PASSED  ] 0 tests.\n" + summary):
        try:
            figures = GPU["figures_of"](part, text)
        except TypeError:
            continue
        raise AssertionError(f"{text!r} was taken for {figures}")


def main():
    sanitizers_have_to_have_looked()
    slow_parts_leave_others_their_time()
    at_most_half_of_the_time_is_kept()
    correctness_comes_first_and_figures_have_time()


if __name__ == "__main__":
    sys.exit(main())
