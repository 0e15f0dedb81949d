# SPDX-License-Identifier: Apache-2.0
"""readme: checks that a page shows an example's source, and the output of it and other programs.

    readme.py PAGE SOURCE PROGRAM...           the whole source is one block of the page
    readme.py --parts PAGE SOURCE PROGRAM...   each block of C is part of the source
"""

import pathlib
import re
import subprocess
import sys


def blocks_of(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def shows(page, source, by_parts):
    blocks = blocks_of(page, "c")
    if by_parts:
        return blocks != [] and all(block in source for block in blocks)
    return source.partition("\n")[2] in blocks  # without the licence line


def main():
    by_parts = sys.argv[1] == "--parts"
    page_path, source_path, *programs = sys.argv[2 if by_parts else 1:]
    page = pathlib.Path(page_path).read_text(encoding="utf-8")
    if not shows(page, pathlib.Path(source_path).read_text(encoding="utf-8"), by_parts):
        what = "a block of C that is not in" if by_parts else "no block of C that is"
        print(f"{page_path} has {what} {source_path}")
        return 1
    for path in programs:
        program = subprocess.run([path], capture_output=True, text=True)
        if program.returncode != 0:
            print(f"{path} ended with {program.returncode}: {program.stdout}{program.stderr}")
            return 1
        if program.stdout not in blocks_of(page, "text"):
            print(f"{page_path} does not show the output of {path}:\n{program.stdout}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
