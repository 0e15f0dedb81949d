# SPDX-License-Identifier: Apache-2.0
"""readme: the README shows the first example as it is, and what all of them print.

    readme.py README SOURCE PROGRAM...
"""

import pathlib
import re
import subprocess
import sys


def blocks_of(readme, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)


def main():
    readme = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")
    source = pathlib.Path(sys.argv[2]).read_text(encoding="utf-8")
    shown = source.partition("\n")[2]  # without the line that names the licence
    if shown not in blocks_of(readme, "c"):
        print(f"the README's C block is not {sys.argv[2]} from its second line on")
        return 1
    for path in sys.argv[3:]:
        program = subprocess.run([path], capture_output=True, text=True)
        if program.returncode != 0:
            print(f"{path} ended with {program.returncode}: {program.stdout}{program.stderr}")
            return 1
        if program.stdout not in blocks_of(readme, "text"):
            print(f"the README does not show what {path} prints:\n{program.stdout}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
