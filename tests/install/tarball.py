# SPDX-License-Identifier: Apache-2.0
"""tarball: the packed tree has the same bytes each time, is clean, and works where it is unpacked.

    tarball.py SCRIPT BUILD PREFIX

SCRIPT itself runs tests/abi/hygiene.py on the binaries; that it refuses is shown with a glibc older
than they can have been built for.
"""

import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile

from tree import expect, stranger

SKIPPED = 77
SCRIPT, BUILD, PREFIX = sys.argv[1:4]
NAME = "quire-test"
EPOCH = 1700000000


def pack(folder, *options):
    folder.mkdir()
    command = [sys.executable, SCRIPT, BUILD, PREFIX, NAME, "--output", str(folder),
               "--preset", "0", *options]
    process = subprocess.run(command, capture_output=True, text=True,
                             env={**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH)})
    return process, folder / (NAME + ".tar.xz")


def look_at_members(archive):
    members = archive.getmembers()
    names = [member.name for member in members]
    expect(names[0] == NAME and all(name.startswith(NAME + "/") for name in names[1:]),
           "all lies in one folder")
    expect(names == sorted(names, key=pathlib.PurePosixPath), f"names are sorted: {names}")
    expect({(member.uid, member.gid, member.uname, member.mtime) for member in members} ==
           {(0, 0, "root", EPOCH)}, "owners and times are fixed")


def main(folder):
    host = os.confstr("CS_GNU_LIBC_VERSION").split()[1]
    if host not in ("2.34", "2.35", "2.36"):
        print(f"built against glibc {host}, whose headers choose newer symbols")
        return SKIPPED
    process, path = pack(folder / "first")
    expect(process.returncode == 0, f"it is written: {process.stderr}")
    _, again = pack(folder / "second")
    expect(path.read_bytes() == again.read_bytes(), "a second run gives the same bytes")
    with tarfile.open(path) as archive:
        look_at_members(archive)
        archive.extractall(folder / "unpacked")
    tree = folder / "unpacked" / NAME
    out = subprocess.run([tree / "bin" / "quire", "devices", "--json"], check=True, text=True,
                         capture_output=True, env=stranger()).stdout
    found = [backend["path"] for backend in json.loads(out) if backend["name"] == "cpu"]
    expect(len(found) == 1 and found[0].startswith(str(tree)), f"it finds its own plugins: {out}")

    process, path = pack(folder / "old", "--max-glibc", "2.33")
    expect(process.returncode == 1 and "from glibc 2.34" in process.stderr,
           f"a symbol too new for the glibc is reported: {process.stderr}")
    expect(not path.exists(), "and nothing is written")
    return 0


with tempfile.TemporaryDirectory() as name:
    sys.exit(main(pathlib.Path(name).resolve()))
