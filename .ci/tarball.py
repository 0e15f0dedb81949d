# SPDX-License-Identifier: Apache-2.0
"""tarball: packs what `meson install` leaves, to be unpacked and used anywhere.

    tarball.py BUILD PREFIX NAME [--output FOLDER] [--max-glibc VERSION] [--preset 0-9]

Writes FOLDER/NAME.tar.xz, whose files lie in a folder NAME. The binaries must pass
tests/abi/hygiene.py, so that a tarball that needs a newer glibc is never written; then they are
stripped of the names by which that test recognises code that queries the processor first.

Equal installed files give equal bytes: names are sorted, owners are 0, and times are
SOURCE_DATE_EPOCH, or otherwise the commit's.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
HYGIENE = ROOT / "tests" / "abi" / "hygiene.py"


def time_of_source():
    if "SOURCE_DATE_EPOCH" in os.environ:
        return int(os.environ["SOURCE_DATE_EPOCH"])
    commit = subprocess.run(["git", "-C", ROOT, "log", "-1", "--format=%ct"], capture_output=True,
                            text=True)
    if commit.returncode != 0:
        sys.exit("tarball: no commit to take the time from; set SOURCE_DATE_EPOCH")
    return int(commit.stdout)


def install(build, stage):
    command = [sys.executable, "-m", "mesonbuild.mesonmain", "install", "-C", build, "--quiet",
               "--no-rebuild", "--destdir", str(stage)]
    subprocess.run(command, check=True, stdout=sys.stderr)


def binaries(tree):
    """Returns (shared objects, programs): a program's name does not contain .so."""
    files = [path for path in sorted(tree.rglob("*")) if path.is_file() and not path.is_symlink()]
    elf = [path for path in files if path.read_bytes()[:4] == b"\x7fELF"]
    return [path for path in elf if ".so" in path.name], [p for p in elf if ".so" not in p.name]


def check(tree, max_glibc):
    objects, programs = binaries(tree)
    if not objects or not programs:
        sys.exit("tarball: the installed tree has no library or no program")
    every = ["--baseline", "--any-host", "--max-glibc", max_glibc]
    exports = ["--exports", "quire_"]
    # The machine's own OpenSSL, so that its fixes reach the plugin; without it, only that one does
    # not load.
    needs = ["--may-need", "libssl.so.3", "--may-need", "libcrypto.so.3"]
    secured = [path for path in objects if path.name == "quire_store_valkey.so"]
    own = [path for path in objects if path not in secured]
    for kind, paths in ((exports, own), ([*exports, *needs], secured), (["--program"], programs)):
        if not paths:
            continue
        command = [sys.executable, HYGIENE, *kind, *every, *paths]
        if subprocess.run([*map(str, command)], stdout=sys.stderr).returncode != 0:
            sys.exit("tarball: not written, for the reasons above")


def strip(tree):
    for path in sum(binaries(tree), []):
        subprocess.run([os.environ.get("STRIP", "strip"), str(path)], check=True)


def pack(tree, name, time, path, preset):
    def same_for_all(entry):
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = "root"
        entry.mtime = time
        # Permissions that a umask removed from a checkout's files must not affect the tarball.
        is_run = entry.isdir() or entry.mode & 0o100
        entry.mode = 0o777 if entry.issym() else 0o755 if is_run else 0o644
        return entry
    with tarfile.open(path, "w:xz", format=tarfile.USTAR_FORMAT, preset=preset) as archive:
        for member in [tree, *sorted(tree.rglob("*"))]:
            inside = pathlib.PurePosixPath(name, member.relative_to(tree).as_posix())
            archive.add(member, str(inside), recursive=False, filter=same_for_all)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build")
    parser.add_argument("prefix")
    parser.add_argument("name")
    parser.add_argument("--output", type=pathlib.Path, help="default: the build folder")
    parser.add_argument("--max-glibc", default="2.34")
    parser.add_argument("--preset", type=int, default=6, help="of xz: 0 is fastest, 9 is smallest")
    options = parser.parse_args()
    path = (options.output or pathlib.Path(options.build)) / (options.name + ".tar.xz")
    time = time_of_source()
    with tempfile.TemporaryDirectory() as folder:
        stage = pathlib.Path(folder, "stage")
        install(options.build, stage)
        tree = stage / options.prefix.lstrip("/")
        check(tree, options.max_glibc)
        strip(tree)
        half = pathlib.Path(folder, "tarball")
        pack(tree, options.name, time, half, options.preset)
        shutil.copyfile(half, path)
    print(path)


if __name__ == "__main__":
    main()
