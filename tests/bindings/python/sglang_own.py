# SPDX-License-Identifier: Apache-2.0
"""sglang_own: SGLang's own unit tests of its radix cache, as they are and with Quire's.

    sglang_own.py [--json] [--gtest_output=xml:FILE]

QUIRE_SGLANG names a checkout of SGLang, and QUIRE_SGLANG_PYTHON a Python with that release and
pytest; without them there is one case, which is skipped. A test that passes as it is must pass with
ours, unless sglang_own_known.txt lists it with a reason; and a listed test must fail.
"""

import argparse
import os
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import own_tests  # noqa: E402
import report  # noqa: E402

KNOWN = HERE / "sglang_own_known.txt"
NAME = "test_radix_cache_unit.py"


def outcomes(whose, files, work):
    """{test: outcome} of one run."""
    environment = {**os.environ, "QUIRE_SGLANG_RADIX": whose, "PYTHONPATH": os.pathsep.join(
        [str(HERE), os.environ.get("PYTHONPATH", "")])}
    found = own_tests.outcomes(
        os.environ["QUIRE_SGLANG_PYTHON"], ["-p", "sglang_own_plugin", *map(str, files)],
        work / f"{whose}.xml", work, environment)
    return {name.rpartition("test_radix_cache_unit.")[2]: each for name, each in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="the outcomes of both, not compared")
    report.add_option(parser)
    options = parser.parse_args()
    checkout = os.environ.get("QUIRE_SGLANG")
    files = sorted(pathlib.Path(checkout, "test").rglob(NAME)) if checkout else []
    if not files or "QUIRE_SGLANG_PYTHON" not in os.environ:
        reason = f"no {NAME} in QUIRE_SGLANG, or no QUIRE_SGLANG_PYTHON"
        return report.write([report.Case("SGLangOwn", "tests", "skipped", 0, reason)],
                            options.gtest_output)
    with tempfile.TemporaryDirectory() as work:
        both = {whose: outcomes(whose, files, pathlib.Path(work)) for whose in ("theirs", "ours")}
    return own_tests.conclude(both, KNOWN, options)


if __name__ == "__main__":
    sys.exit(main())
