# SPDX-License-Identifier: Apache-2.0
"""cycles: load, work, unload leaves a process unchanged, also under another malloc.

    cycles.py PROGRAM OWNING-MALLOC COUNT

Then each kind of leak that a cycle could leave is planted, and must be reported.
"""

import os
import subprocess
import sys

PLANTED = {"mapping": "mappings", "descriptor": "descriptors", "thread": "threads",
           "memory": "resident KiB"}
PLANTED_CYCLES = "50"
FOREIGN_CYCLES = "20"


def run(*command, **environment):
    result = subprocess.run(command, env=dict(os.environ, **environment), capture_output=True,
                            text=True)
    return result.returncode, result.stdout + result.stderr


def grew(words):
    """The lines whose second number is above the first."""
    lines = [line.rpartition("->") for line in words.splitlines() if "->" in line]
    return [left.rsplit(maxsplit=1)[0] for left, _, right in lines
            if int(right) > int(left.split()[-1])]


def main():
    program, owning_malloc, count = sys.argv[1:]
    failed = []
    status, words = run(program, count)
    print(f"{count} cycles:\n{words}")
    if status != 0:
        failed.append("the process changed")
    for what, line in PLANTED.items():
        status, words = run(program, PLANTED_CYCLES, "--plant", what)
        found = status == 1 and line in grew(words)
        print(f"planted {what}: {'reported' if found else 'NOT REPORTED: ' + words}")
        failed += [] if found else [what]
    # This malloc never reuses memory, so memory grows: it only matters that the cycles completed.
    status, words = run(program, FOREIGN_CYCLES, LD_PRELOAD=owning_malloc)
    if "descriptors" not in words or "owning_malloc" in words:
        failed.append(f"with another malloc: {status}: {words}")
    status, words = run(program, "1", "--plant", "foreign", LD_PRELOAD=owning_malloc)
    if status != 99 or "foreign pointer" not in words:
        failed.append(f"the other malloc accepted a foreign pointer: {status}: {words}")
    print("\n".join(failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
