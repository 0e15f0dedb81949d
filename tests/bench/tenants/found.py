# SPDX-License-Identifier: Apache-2.0
"""found: bench tenants finds what its own case says, and nothing of another tenant's.

    found.py BENCH_TENANTS

Few trials: the times only have to exist.
"""

import json
import subprocess
import sys

TOKENS = 64  # all but the last block of 16 are found


def main():
    process = subprocess.run([sys.argv[1], "--json", "--trials", "20", "--tokens", str(TOKENS)],
                             stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if process.returncode != 0:
        sys.exit(process.stderr)
    cases = {case["computed_by"]: case for case in json.loads(process.stdout)["cases"]}
    found = {name: case["found_tokens"] for name, case in cases.items()}
    assert found.pop("the same namespace") == TOKENS - 16, found
    assert len(found) == 4 and not any(found.values()), found
    for case in cases.values():
        assert case["median_ns"] > 0 and 0 <= case["distance"] <= 1, case


if __name__ == "__main__":
    main()
