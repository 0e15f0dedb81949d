# SPDX-License-Identifier: Apache-2.0
"""kept: compiles kernels for one target, or copies what the same compilation gave before.

    kept.py [--messages FILE] [--reads FILE...] SOURCE OUTPUT -- COMPILER [ARGUMENT...]

Runs COMPILER ARGUMENT... SOURCE -o OUTPUT. --messages: the file that gets what it prints on
standard error. --reads: all files of the project that SOURCE includes: the compiler is asked
what it read, and a file that the list lacks is an error, because its changes would not be seen.

Why: the kernels take most of a build, and ccache, which keeps the other objects, can keep neither
PTX nor code of a GPU. Results are kept where ccache is installed, in $XDG_CACHE_HOME/quire/kernels,
or ~/.cache/quire/kernels; the longest unused go first. The key is the compiler's version, the
arguments, and the content of every file of the project that is read. Headers of the system, which
nvcc reads too, are not in it: none of them says what a kernel computes.

Threads: any number of builds may share the folder; an entry appears whole, by a rename.
"""

import argparse
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
MOST_ENTRIES = 120  # about six builds


def folder():
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base) / "quire" / "kernels"


def key_of(options, command):
    """A name for what the compilation gives: the same in every checkout."""
    digest = hashlib.sha256()
    version = subprocess.run([command[0], "--version"], capture_output=True, check=True).stdout
    arguments = [argument.replace(str(ROOT), "") for argument in command[1:]]
    for part in (version, *(argument.encode() for argument in arguments)):
        digest.update(b"%d:" % len(part) + part)
    for file in (options.source, *options.reads):
        digest.update(hashlib.sha256(pathlib.Path(file).read_bytes()).digest())
    return digest.hexdigest()


def copy_kept(entry, outputs):
    """False if the entry is not there, or is not whole any more."""
    try:
        for i, output in enumerate(outputs):
            shutil.copyfile(entry / str(i), output)
        os.utime(entry)
    except OSError:
        return False
    return True


def keep(entry, outputs):
    """Only saves time: a full disk or a folder that may not be written is no error."""
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=entry.parent) as unfinished:
            whole = pathlib.Path(unfinished) / "whole"
            whole.mkdir()
            for i, output in enumerate(outputs):
                shutil.copyfile(output, whole / str(i))
            shutil.rmtree(entry, ignore_errors=True)  # it lacked something
            whole.rename(entry)
        entries = sorted(entry.parent.iterdir(), key=lambda path: path.stat().st_mtime)
        for old in entries[:-MOST_ENTRIES]:
            shutil.rmtree(old, ignore_errors=True)
    except OSError:
        pass


def check_reads(options, rule):
    """rule: a Makefile's, which names what was read."""
    words = rule.partition(":")[2].replace("\\\n", " ").split()
    of_project = {path for path in map(os.path.realpath, words)
                  if path.startswith(str(ROOT) + os.sep) and f"{os.sep}.env{os.sep}" not in path}
    missing = of_project - {os.path.realpath(path) for path in (options.source, *options.reads)}
    if missing:
        names = ", ".join(sorted(os.path.relpath(path, ROOT) for path in missing))
        sys.exit(f"kept: {options.source} reads files that --reads lacks, so changes of them "
                 f"would not be seen: {names}: add them to gpu_kernel_files in meson.build")


def compile_source(options, command):
    with tempfile.TemporaryDirectory() as scratch:
        rule = pathlib.Path(scratch) / "rule.d"
        asks = ["-MD", "-MF", str(rule)] if options.reads else []
        run = subprocess.run([*command, *asks, options.source, "-o", options.output],
                             stderr=subprocess.PIPE if options.messages else None)
        if options.messages:
            pathlib.Path(options.messages).write_bytes(run.stderr)
        if run.returncode != 0:
            sys.stderr.write(run.stderr.decode(errors="replace") if options.messages else "")
            sys.exit(run.returncode)
        if asks:
            check_reads(options, rule.read_text())


def main():
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--messages")
    parser.add_argument("--reads", nargs="*", default=[])
    parser.add_argument("source")
    parser.add_argument("output")
    options = parser.parse_args(sys.argv[1:split])
    command = sys.argv[split + 1:]
    outputs = [options.output] + ([options.messages] if options.messages else [])
    if not shutil.which("ccache"):
        compile_source(options, command)
        return
    entry = folder() / key_of(options, command)
    if not copy_kept(entry, outputs):
        compile_source(options, command)
        keep(entry, outputs)


main()
