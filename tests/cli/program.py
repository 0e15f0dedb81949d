# SPDX-License-Identifier: Apache-2.0
"""program: runs the `quire` command named by the first argument, and prints what a test missed."""

import os
import subprocess
import sys

QUIRE = sys.argv[1]


def run(*arguments, env=None):
    process = subprocess.run([QUIRE, *map(str, arguments)], capture_output=True, text=True,
                             stdin=subprocess.DEVNULL, timeout=60,
                             env={**os.environ, **(env or {})})
    return process.returncode, process.stdout, process.stderr


def expect(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


def refuses(cases):
    """Each of [(arguments, words)] exits with 2 or 1, the words on stderr, and an empty stdout."""
    for arguments, words in cases:
        code, out, err = run(*arguments)
        expect(code in (1, 2) and words in err and out == "",
               f"{arguments} must say {words!r} on stderr, said {err!r} and ended with {code}")
