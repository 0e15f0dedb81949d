# SPDX-License-Identifier: Apache-2.0
"""planted: each defect that quire-gpupaths can plant is found within a few seeds, and is needed for
that: without it the same seeds are clean.

    planted.py PROGRAM BACKEND
"""

import subprocess
import sys

SKIPPED = 77

# The defect, which calls are left out (the first one, and how many), and what must be found.
EVERYWHERE = [
    ("copy_on_device", 1, 1, {"content", "tenant"}),
    ("copy_to_host", 1, 1, {"content", "tenant"}),
    ("copy_from_host", 4, 1, {"content", "tenant"}),
    ("fill", 1, 1, {"tenant"}),
    ("fence_wait", 1, 1000, {"content", "tenant"}),
    ("kv_write", 3, 1, {"content", "tenant"}),
    ("move_tokens", 1, 1, {"content", "tenant"}),
]
IN_DRIVERS = [
    ("driver:copy", 3, 1, {"content", "tenant"}),
    ("driver:fill", 1, 1000, {"content", "tenant"}),
    ("driver:wait", 1, 1000, {"content", "tenant"}),
]


# Where a defect shows nothing: lavapipe has one VkQueue and runs its submissions in their order, so
# that no wait between them matters.
UNSEEN = {"vulkan": {"driver:wait"}}


def play(program, backend, *options):
    command = [program, "--backend", backend, "--no-faults", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


def main():
    program, backend = sys.argv[1:3]
    seeds = 60 if backend == "vulkan" else 400
    missed = []
    for defect, nth, count, promises in EVERYWHERE + (IN_DRIVERS if backend != "cpu" else []):
        if defect in UNSEEN.get(backend, ()):
            continue
        done = play(program, backend, "--seeds", str(seeds), "--plant", defect, "--nth", str(nth),
                    "--count", str(count))
        if done.returncode == SKIPPED:
            print(done.stdout)
            return SKIPPED
        first = next((line for line in done.stdout.splitlines() if line.startswith("FOUND")), "")
        promise = first.split(":")[0].removeprefix("FOUND ")
        print(f"{defect}: {first or 'nothing found'}")
        if done.returncode != 1 or promise not in promises:
            missed.append(defect)
            print(done.stdout + done.stderr)
    if missed:
        print("not found: " + ", ".join(missed))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
