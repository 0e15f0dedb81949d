# SPDX-License-Identifier: Apache-2.0
"""shape: overhead.py prints a figure for each language that it was given.

    shape.py OVERHEAD C_PROGRAM [LANGUAGE COMMAND...]...
"""

import json
import subprocess
import sys

command = [sys.executable, *sys.argv[1:], "--"]
languages = [sys.argv[2], *[after for before, after in zip(sys.argv[2:], sys.argv[3:])
                            if before == "--"]]
out = subprocess.run([*command, "--json", "--rounds", "2", "--steps", "2"], check=True,
                     capture_output=True, text=True).stdout
result = json.loads(out)["languages"]
assert list(result) == languages, (list(result), languages)
for name, row in result.items():
    assert row["step_us"] > 0 and set(row) == {"step_us", "overhead_us", "overhead_percent"}, row
table = subprocess.run([*command, "--rounds", "2", "--steps", "2"], check=True,
                       capture_output=True, text=True).stdout
assert all(name in table for name in languages), table
refused = subprocess.run([*command, "--rounds", "100"], capture_output=True, text=True)
assert refused.returncode != 0 and "--rounds" in refused.stderr, refused
