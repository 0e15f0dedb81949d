# SPDX-License-Identifier: Apache-2.0
"""tiers_page: every command on docs/tiers.md runs, in their order.

    tiers_page.py QUIRE PAGE ENGINE

`quire` and `engine` are the programs of this build, and STORE is a directory that a client of this
test has filled. NODES are those of a cluster, where redis-server and the store for it are there.
DECODE is an address of this machine. A command that ends in & must have succeeded in the end.
"""

import contextlib

import os
import pathlib
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile

from program import QUIRE, expect
from tier import fill

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "valkey"))
from cluster import Cluster  # pylint: disable=wrong-import-position

PAGE = pathlib.Path(sys.argv[2])
PROGRAMS = {"quire": str(pathlib.Path(QUIRE).resolve()),
            "engine": str(pathlib.Path(sys.argv[3]).resolve())}


def commands():
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    return [shlex.split(line, comments=True) for line in lines if line.strip()]


def has_cluster():
    plugin = pathlib.Path(os.environ["QUIRE_PLUGIN_PATH"], "quire_store_valkey.so")
    return plugin.exists() and shutil.which("redis-server") is not None


def run(words, folder):
    expect(words[0] in PROGRAMS, f"{words[0]} is a program that the page may use")
    process = subprocess.run([PROGRAMS[words[0]], *words[1:]], capture_output=True, text=True,
                             errors="replace", timeout=120, cwd=folder, stdin=subprocess.DEVNULL,
                             env=os.environ)
    expect(process.returncode == 0, f"{words}: {process.stdout}{process.stderr}")


def start(words, folder):
    """A command that later ones meet."""
    expect(words[0] in PROGRAMS, f"{words[0]} is a program that the page may use")
    return subprocess.Popen([PROGRAMS[words[0]], *words[1:]], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, cwd=folder, stdin=subprocess.DEVNULL,
                            env=os.environ)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def main(folder, resources):
    store = pathlib.Path(folder) / "store"
    store.mkdir()
    fill(store)
    nodes, ran, left_out, started = None, 0, 0, []
    decode = f"127.0.0.1:{free_port()}"
    for words in commands():
        words = [{"STORE": str(store), "DECODE": decode}.get(word, word) for word in words]
        if any("NODES" in word for word in words):
            if not has_cluster():
                left_out += 1
                continue
            nodes = nodes or resources.enter_context(Cluster(replicas=False)).nodes()
            words = [word.replace("NODES", nodes) for word in words]
        if words[-1] == "&":
            started.append(start(words[:-1], folder))
        else:
            run(words, folder)
        ran += 1
    for process in started:
        output, _ = process.communicate(timeout=120)
        expect(process.returncode == 0 and b"was lost" not in output, f"{process.args}: {output}")
    expect(ran >= 6, f"{ran} commands")
    print(f"{ran} commands ran, {left_out} were left out: ./dev setup valkey has what they need")


with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
    main(name, stack)
