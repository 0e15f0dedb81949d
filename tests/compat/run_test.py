# SPDX-License-Identifier: Apache-2.0
"""run_test: run.py tells a program that works from one that prints something else, ends otherwise
or is refused, with programs that are made for it."""

import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import run  # noqa: E402

# By the folder of its library, what a program does: with its own library it prints `a`.
WORKS = "echo a"
DIFFERS = 'case "$QUIRE_LIBRARY" in *own*) echo a;; *) echo b;; esac'
FAILS = 'case "$QUIRE_LIBRARY" in *own*) echo a;; *) echo lost; exit 1;; esac'
REFUSED = 'case "$QUIRE_LIBRARY" in *own*) echo a;; *) echo older than the headers; exit 1;; esac'
BROKEN = "exit 1"


def side(name, root, body):
    made = run.Side(name, root / name)
    for path, _ in run.PROGRAMS.values():
        program = made.build / path
        program.parent.mkdir(parents=True, exist_ok=True)
        # `own` is the side's folder, whichever it is.
        program.write_text(f"#!/bin/sh\n{body.replace('*own*', f'*/{name}/*')}\n")
        program.chmod(0o755)
    return made


def verdicts(old_body, new_body):
    """Whether the old side's programs hold, and the new side's."""
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        cases = list(run.programs(side("old", root, old_body), side("new", root, new_body)))
    half = len(run.PROGRAMS)
    assert len(cases) == 2 * half, cases
    return [all(case.holds for case in part) for part in (cases[:half], cases[half:])]


def main():
    assert verdicts(WORKS, WORKS) == [True, True]
    assert verdicts(DIFFERS, WORKS) == [False, True]
    assert verdicts(WORKS, DIFFERS) == [True, False]
    assert verdicts(FAILS, WORKS) == [False, True]
    assert verdicts(WORKS, FAILS) == [True, False]
    assert verdicts(WORKS, REFUSED) == [True, True], "a newer program may be refused"
    assert verdicts(REFUSED, WORKS) == [False, True], "an older one may not"
    assert verdicts(BROKEN, WORKS) == [False, True]


if __name__ == "__main__":
    main()
