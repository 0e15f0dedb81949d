# SPDX-License-Identifier: Apache-2.0
"""stated: every exported function states how its time grows, and the benchmark detects a wrong one.

    stated.py BENCH_EXPONENTS HEADER...

Sizes are tiny: figures only have to exist and be above 0.
"""

import json
import pathlib
import re
import subprocess
import sys

SCALE = "256"


def run(program, *options):
    return subprocess.run([program, *options], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True)


def functions(header):
    """(name, the comment before it) of each exported function."""
    comment = ""
    for line in pathlib.Path(header).read_text().splitlines():
        if line.startswith("/*"):
            comment = ""
        if line.startswith(("/*", " *")):
            comment += line + "\n"
            continue
        found = re.match(r"QUIRE_EXPORT .*?\b(quire_\w+)\(", line)
        if found and not found[1].endswith("_query_v0"):  # a plugin's own
            yield found[1], comment
        comment = ""


def main():
    program, *headers = sys.argv[1:]
    exported = dict(pair for header in headers for pair in functions(header))
    assert len(exported) > 60, exported.keys()
    silent = [name for name, comment in exported.items() if "* Time     " not in comment
              and "/* Time     " not in comment]
    assert not silent, f"no line 'Time' above {silent}"

    process = run(program, "--json", "--scale", SCALE, "--seconds", "0")
    assert process.returncode == 0, process.stderr
    cases = json.loads(process.stdout)["cases"]
    assert cases, "nothing was measured"
    for case in cases:
        assert case["function"] in exported, case
        assert len(case["sizes"]) == len(case["microseconds"]) == 4, case
        assert all(number > 0 for number in case["microseconds"]), case
        assert isinstance(case["exponent"], float) and case["stated"] in (0, 1), case

    planted = run(program, "--case", "planted_square")
    assert planted.returncode == 1 and "TOO STEEP" in planted.stdout, planted
    assert "Example:" in run(program, "--help").stdout, "--help has no example"
    refused = run(program, "--case", "none")
    assert refused.returncode != 0 and "none" in refused.stderr, refused


if __name__ == "__main__":
    main()
