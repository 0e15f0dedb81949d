# SPDX-License-Identifier: Apache-2.0
"""type_hints: the package's type hints are correct, and a program that uses it can see them.

    type_hints.py SITE
"""

import importlib.util
import pathlib
import subprocess
import sys
import tempfile

if importlib.util.find_spec("mypy") is None:
    print("mypy is not installed")
    sys.exit(77)

USE = """
import quire

def count(cache: quire.Cache) -> int:
    sequence = cache.sequence()
    reveal_type(sequence.info.known_tokens)
    sequence.truncate("1")
    return cache.stats.steps
"""

site = pathlib.Path(sys.argv[1])


def mypy(*arguments):
    with tempfile.TemporaryDirectory() as cache:
        return subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", cache,
                               *arguments], capture_output=True, text=True)


def expect(condition, message):
    if not condition:
        print(f"FAILED: {message}")
        sys.exit(1)


whole = mypy(site / "quire")
expect(whole.returncode == 0, whole.stdout + whole.stderr)
with tempfile.TemporaryDirectory() as folder:
    use = pathlib.Path(folder) / "use.py"
    use.write_text(USE)
    used = mypy(use)
expect('Revealed type is "int"' in used.stdout or "builtins.int" in used.stdout, used.stdout)
expect(used.stdout.count("error:") == 1 and 'expected "int"' in used.stdout, used.stdout)
