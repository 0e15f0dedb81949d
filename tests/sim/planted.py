# SPDX-License-Identifier: Apache-2.0
"""planted: plays every script of tests/sim/planted, in which a device or the engine goes wrong and
says nothing.

The simulator must find the promise that the file is named by, and nothing once the script's `fault`
lines are taken out: so it can fail, and fails for that alone.

    planted.py SIMULATOR FOLDER
"""

import pathlib
import subprocess
import sys
import tempfile

TIMEOUT_SECONDS = 60


def play(simulator: str, script: pathlib.Path) -> tuple:
    command = [simulator, "--replay", str(script), "--known", "none", "--ignore", "none"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS,
                         check=False)
    found = [line for line in run.stdout.splitlines() if line.startswith("finding: ")]
    return run.returncode, found[0][len("finding: "):] if found else "nothing"


def main() -> int:
    simulator, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    scripts = sorted(folder.glob("*.txt"))
    if not scripts:
        print(f"planted: no script in {folder}")
        return 1
    failed = 0
    with tempfile.TemporaryDirectory() as directory:
        for script in scripts:
            promise = script.stem.rsplit("-", 1)[0]
            whole = pathlib.Path(directory) / script.name
            lines = script.read_text().splitlines(keepends=True)
            whole.write_text("".join(line for line in lines if not line.startswith("fault ")))
            with_fault, without = play(simulator, script), play(simulator, whole)
            good = with_fault == (1, promise) and without == (0, "nothing")
            failed += not good
            print(f"{script.name}: found {with_fault}, without its fault {without}"
                  f"{'' if good else ': FAILS'}")
    print(f"{len(scripts)} scripts, {failed} fail")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
