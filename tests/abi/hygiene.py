# SPDX-License-Identifier: Apache-2.0
"""hygiene: what a shared object that strangers dlopen must not bring along.

Checked with readelf and nm on the files as they are shipped:
  * nothing needed but libc, libm, libgcc_s and the loader (no libstdc++, no GPU library),
  * no static TLS, which makes a late dlopen fail when the process's small reserve is used up,
  * no executable stack, all relocations bound and read-only from the start,
  * no export but the promised ones; above all no malloc and no operator new,
  * with --max-glibc, no symbol of a newer glibc than that.
"""

import argparse
import os
import re
import subprocess
import sys

SKIPPED = 77
ALLOWED_NEEDED = re.compile(r"(lib(c|m)\.so\.6|libgcc_s\.so\.1|ld-linux[-a-z0-9_]*\.so\.\d+)$")


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def needed_problems(dynamic):
    names = re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic)
    return [f"needs {name}" for name in names if not ALLOWED_NEEDED.match(name)]


def flag_problems(dynamic, segments):
    problems = []
    if "STATIC_TLS" in dynamic:
        problems.append("needs static TLS")
    if "BIND_NOW" not in dynamic:
        problems.append("binds lazily")
    if "TEXTREL" in dynamic:
        problems.append("has text relocations")
    if "GNU_RELRO" not in segments:
        problems.append("has no read-only relocations")
    stack = re.search(r"GNU_STACK.*\b(R?W?E?)\s+0x\d+$", segments, re.MULTILINE)
    if not stack or "E" in stack.group(1):
        problems.append("has an executable stack")
    return problems


def export_problems(symbols, prefix):
    names = [line.split()[-1].split("@")[0] for line in symbols.splitlines()
             if line.split()[-2] != "A"]
    if not names:
        return ["exports nothing"]
    return [f"exports {name}" for name in names if not name.startswith(prefix)]


def glibc_problems(symbols, newest):
    def number(text):
        return tuple(int(part) for part in text.split("."))
    versions = re.findall(r"(\S+)@+GLIBC_([0-9.]+)", symbols)
    return [f"wants {name} of glibc {version}" for name, version in versions
            if number(version) > number(newest)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--exports", metavar="PREFIX", help="what every exported name starts with")
    parser.add_argument("--max-glibc", metavar="VERSION")
    parser.add_argument("objects", nargs="+")
    options = parser.parse_args()

    host = os.confstr("CS_GNU_LIBC_VERSION").split()[1]
    if options.max_glibc and host not in ("2.34", "2.35", "2.36"):
        print(f"built against glibc {host}, whose headers choose newer symbols")
        return SKIPPED

    failed = False
    for path in options.objects:
        problems = []
        if options.exports:
            dynamic = run("readelf", "-dW", path)
            problems += needed_problems(dynamic)
            problems += flag_problems(dynamic, run("readelf", "-lW", path))
            problems += export_problems(run("nm", "-D", "--defined-only", path), options.exports)
        if options.max_glibc:
            problems += glibc_problems(run("nm", "-D", "--undefined-only", path), options.max_glibc)
        for problem in problems:
            print(f"{os.path.basename(path)} {problem}")
        failed = failed or bool(problems)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
