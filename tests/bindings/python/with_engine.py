# SPDX-License-Identifier: Apache-2.0
"""with_engine: runs a file of unit tests in a Python that has an engine.

    with_engine.py PACKAGE VERSION VARIABLE FILE [PATTERN] [--gtest_output=xml:FILE]

The environment's VARIABLE names that Python; without it, this one is tried. If it has no such
release of the package there is one case, and it is skipped.
"""

import argparse
import os
import pathlib
import subprocess
import sys

BINDINGS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(BINDINGS))

import report  # noqa: E402


def main():
    parser = argparse.ArgumentParser()
    for name in ("package", "version", "variable"):
        parser.add_argument(name)
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("pattern", nargs="?", default="*")
    report.add_option(parser)
    options = parser.parse_args()
    python = os.environ.get(options.variable) or sys.executable
    has = subprocess.run(
        [python, "-c", "import importlib.metadata as m, torch, cffi, numpy; "
         f"assert m.version('{options.package}').split('+')[0] == '{options.version}'"],
        capture_output=True, check=False)
    if has.returncode != 0:
        reason = (f"no {options.package} {options.version} with torch, cffi and numpy in "
                  f"{options.variable}")
        return report.write([report.Case(options.file.stem, "tests", "skipped", 0, reason)],
                            options.gtest_output)
    words = [python, str(BINDINGS / "unittests.py"), str(options.file), options.pattern]
    if options.gtest_output:
        words.append(f"--gtest_output={options.gtest_output}")
    os.execv(python, words)


if __name__ == "__main__":
    sys.exit(main())
