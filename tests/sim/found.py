# SPDX-License-Identifier: Apache-2.0
"""found: plays every script of tests/sim/found: a defect that was mended stays so.

A script whose promise is in open_defects.hpp shows a defect that is open: it must still be played
to its end, and is told apart in the list.

    found.py SIMULATOR OPEN_DEFECTS FOLDER
"""

import pathlib
import re
import subprocess
import sys

TIMEOUT_SECONDS = 60


def open_promises(header: pathlib.Path) -> set:
    return set(re.findall(r'"([a-z-]+),?"', header.read_text()))


def main() -> int:
    simulator, header, folder = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    known = open_promises(header)
    scripts = sorted(folder.glob("*.txt"))
    if not scripts:
        print(f"found: no script in {folder}")
        return 1
    failed = []
    for script in scripts:
        promise = script.stem.rsplit("-", 1)[0]
        play = subprocess.run([simulator, "--replay", str(script)], capture_output=True, text=True,
                              timeout=TIMEOUT_SECONDS, check=False)
        state = "open" if promise in known else "mended"
        if play.returncode != 0 and not (promise in known and play.returncode == 1):
            failed.append(script.name)
            state = f"FAILS\n{play.stdout}{play.stderr}"
        print(f"{script.name}: {state}")
    print(f"{len(scripts)} scripts, {len(failed)} fail")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
