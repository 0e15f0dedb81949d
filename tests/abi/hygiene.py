# SPDX-License-Identifier: Apache-2.0
"""hygiene: what a shared object that strangers dlopen must not bring along.

Checked with readelf and nm on the files as they are shipped:
  * nothing needed but libc and libm, and ld-linux, which is part of glibc and holds __tls_get_addr
    (no libstdc++, no libgcc_s, no GPU library),
  * no GNU_UNIQUE symbol: it binds to another library's of the same name, and pins its object,
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
ALLOWED_NEEDED = re.compile(r"(lib(c|m)\.so\.6|ld-linux[-a-z0-9_]*\.so\.\d+)$")


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
    stack = re.search(r"GNU_STACK\s+(?:0x[0-9a-f]+\s+){5}([RWE ]+)0x", segments)
    if not stack or "E" in stack.group(1):
        problems.append("has an executable stack")
    return problems


def unique_problems(symbols):
    return [f"has the GNU_UNIQUE symbol {line.split()[-1]}" for line in symbols.splitlines()
            if " UNIQUE " in line]


def export_problems(symbols, prefix):
    names = [line.split()[-1].split("@")[0] for line in symbols.splitlines()
             if line.split()[-2] != "A"]
    if not names:
        return ["exports nothing"]
    return [f"exports {name}" for name in names if not name.startswith(prefix)]


def glibc_problems(symbols, newest):
    def number(text):
        return tuple(int(part) for part in text.split("."))
    wanted = re.findall(r"(\S+)@+GLIBC_(\S+)", symbols)
    return [f"wants {name} of glibc {version}" for name, version in wanted
            if not version[0].isdigit() or number(version) > number(newest)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--exports", metavar="PREFIX", help="what every exported name starts with")
    parser.add_argument("--max-glibc", metavar="VERSION")
    parser.add_argument("--any-host", action="store_true",
                        help="check --max-glibc although this machine's headers may be too new")
    parser.add_argument("objects", nargs="+")
    options = parser.parse_args()

    host = os.confstr("CS_GNU_LIBC_VERSION").split()[1]
    too_new = host not in ("2.34", "2.35", "2.36")
    if options.max_glibc and too_new and not options.any_host:
        print(f"built against glibc {host}, whose headers choose newer symbols")
        return SKIPPED

    failed = False
    for path in options.objects:
        problems = []
        if options.exports:
            dynamic = run("readelf", "-dW", path)
            problems += needed_problems(dynamic)
            problems += flag_problems(dynamic, run("readelf", "-lW", path))
            problems += unique_problems(run("readelf", "-sW", path))
            problems += export_problems(run("nm", "-D", "--defined-only", path), options.exports)
        if options.max_glibc:
            problems += glibc_problems(run("nm", "-D", "--undefined-only", path), options.max_glibc)
        for problem in problems:
            print(f"{os.path.basename(path)} {problem}")
        failed = failed or bool(problems)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
