# SPDX-License-Identifier: Apache-2.0
"""tiers_page: every command on docs/tiers.md runs, in their order.

    tiers_page.py QUIRE PAGE ENGINE

`quire` and `engine` are the programs of this build, and STORE is a directory that a client of this
test has filled.
"""

import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

from program import QUIRE, expect
from tier import fill

PAGE = pathlib.Path(sys.argv[2])
PROGRAMS = {"quire": str(pathlib.Path(QUIRE).resolve()),
            "engine": str(pathlib.Path(sys.argv[3]).resolve())}


def commands():
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    return [shlex.split(line, comments=True) for line in lines if line.strip()]


with tempfile.TemporaryDirectory() as name:
    store = pathlib.Path(name) / "store"
    store.mkdir()
    fill(store)
    ran = 0
    for words in commands():
        expect(words[0] in PROGRAMS, f"{words[0]} is a program that the page may use")
        words = [PROGRAMS[words[0]], *words[1:]]
        words = [str(store) if word == "STORE" else word for word in words]
        process = subprocess.run(words, capture_output=True, text=True, errors="replace",
                                 timeout=120, cwd=name, stdin=subprocess.DEVNULL, env=os.environ)
        expect(process.returncode == 0, f"{words}: {process.stdout}{process.stderr}")
        ran += 1
    expect(ran >= 6, f"{ran} commands")
