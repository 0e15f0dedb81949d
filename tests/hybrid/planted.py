# SPDX-License-Identifier: Apache-2.0
"""planted: quire-hybrid must fail for each fault that it can plant, in the check that the fault
breaks, and pass on the same seeds without it.

    planted.py PROGRAM
"""

import re
import subprocess
import sys

TIMEOUT_SECONDS = 120
SEEDS = ("--first", "1", "--seeds", "60", "--keep-going")

# Fault: the check that must notice it, with or without others.
PLANTED = {
    "copy": "wrong_content",
    "table": "wrong_content",
    "hit": "hit_first",
    "books": "blocks_held",
    "finish": "read_failed_content",
}


def play(program: str, *arguments: str) -> tuple:
    run = subprocess.run([program, *SEEDS, *arguments], capture_output=True, text=True,
                         timeout=TIMEOUT_SECONDS, check=False)
    return run.returncode, set(re.findall(r"^failed: (\w+),", run.stdout, re.MULTILINE))


def main() -> int:
    program = sys.argv[1]
    failed = 0
    status, found = play(program)
    if status != 0:
        print(f"without a fault: status {status}, found {sorted(found)}: FAILS")
        failed += 1
    for fault, check in PLANTED.items():
        status, found = play(program, "--plant", fault)
        good = status == 1 and check in found
        failed += not good
        print(f"{fault}: status {status}, found {sorted(found)}{'' if good else ': FAILS'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
