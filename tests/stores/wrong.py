# SPDX-License-Identifier: Apache-2.0
"""wrong: the conformance suite notices each mistake of a wrong store.

    wrong.py SUITE STORE.so

The store without a mistake passes, so what fails is the mistake.
"""

import os
import re
import subprocess
import sys

MISTAKES = (
    "tenants share",
    "models share",
    "keys are cut",
    "a bit of keys is lost",
    "cookies are cut",
    "removals are forgotten",
    "flags are not looked at",
    "a refusal comes too late",
    "strides are not looked at",
    "a byte is flipped",
    "sizes do not matter",
    "failures are called done",
    "answers lose their label",
    "evictions are not told",
    "an answer is lost",
    "an answer comes twice",
    "the descriptor stays silent",
    "the descriptor is always readable",
    "find guesses yes",
    "find guesses no",
    "list leaves out the last of a page",
    "list repeats",
    "hits are not counted",
    "records are miscounted",
    "the room is exceeded",
    "unknown options are ignored",
    "persistence is a claim",
    "stores are not closed",
)


def run(suite, store, mistake):
    """The cases that failed, and the whole output."""
    result = subprocess.run(
        [suite, store, "--option", "capacity=64MiB", "--patience", "2", "--gtest_brief=1"],
        env={**os.environ, "QUIRE_WRONG_STORE": mistake, "QUIRE_TEST_EFFORT": "few"},
        capture_output=True, text=True, timeout=300)
    failed = sorted(set(re.findall(r"^\[  FAILED  \] (\w+\.\w+)", result.stdout, re.MULTILINE)))
    return result.returncode, failed, result.stdout + result.stderr


def main():
    suite, store = sys.argv[1:]
    code, _, output = run(suite, store, "")
    if code != 0:
        sys.exit(f"the store without a mistake fails:\n{output}")
    missed = 0
    for mistake in MISTAKES:
        code, failed, output = run(suite, store, mistake)
        missed += code == 0
        print(f"{mistake}: {', '.join(failed[:3]) or ('ended with %d' % code)}")
        if code == 0:
            print("    NOT NOTICED")
    print(f"{len(MISTAKES) - missed} of {len(MISTAKES)} mistakes were noticed")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
