# SPDX-License-Identifier: Apache-2.0
"""hygiene: checks what a shared object that strangers dlopen must not contain.

Checked with readelf and nm on the files as shipped:
  * needs only libc, libm and ld-linux, which is part of glibc and holds __tls_get_addr
    (no libstdc++, no libgcc_s, no GPU library),
  * no GNU_UNIQUE symbol: it binds to another library's of the same name, and pins its object,
  * no static TLS, which makes a late dlopen fail when the process's small reserve is used up,
  * no executable stack, all relocations bound and read-only from the start,
  * exports only the promised symbols; above all no malloc and no operator new,
  * with --max-glibc, no symbol of a newer glibc than that,
  * with --baseline, no instruction that an x86-64 processor may lack, except in functions of the
    namespaces avx2, avx512, amx and bf16, which are called only after querying the processor.
    (Their names must be there: check before you strip.)
With --program, executables: the same, except for exports and unique symbols, which do not matter.
"""

import argparse
import os
import re
import subprocess
import sys

SKIPPED = 77
# SSE3 to AVX-512, by name. tzcnt is left out: a bsf that compilers emit on purpose disassembles as
# tzcnt, with the same result on every processor.
NEWER_INSTRUCTION = re.compile(
    r"(v[a-z0-9]+|addsubp[sd]|h(add|sub)p[sd]|lddqu|movddup|movs[hl]dup|fisttp\w*|pshufb|pabs[bwd]"
    r"|ph(add|sub)\w+|pmaddubsw|pmulhrsw|psign[bwd]|palignr|p?blend\w+|dpp[sd]|(extract|insert)ps"
    r"|mpsadbw|packusdw|pcmp(eq|gt)q|p(extr|insr)[bdq]|phminposuw|pmaxs[bd]|pmaxu[dw]|pmins[bd]"
    r"|pminu[dw]|pmov[sz]x\w+|pmuldq|pmulld|ptest|round[ps][sd]|movntdqa|crc32\w*|pcmp[ei]str\w+"
    r"|popcnt\w*|lzcnt\w*|andn|bextr|blsi|blsr|blsmsk|mulx|pdep|pext|rorx|sarx|shlx|shrx|movbe\w*"
    r"|aes\w+|pclmul\w+|sha1\w+|sha256\w+|rdrand|rdseed|ad[co]x|cmpxchg16b)$")
# Old instructions that begin with v: verr and verw, used by the kernel.
OLD_INSTRUCTION = re.compile(r"ver[rw]$")
ALLOWED_NEEDED = re.compile(r"(lib(c|m)\.so\.6|ld-linux[-a-z0-9_]*\.so\.\d+)$")

# In a mangled name: quire::cpu::avx2, avx512, amx and bf16, lambdas and templates in them too.
ASKS_FIRST = re.compile(r"5quire3cpu(4avx2|6avx512|3amx|4bf16)")


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def needed_problems(dynamic, also_allowed):
    names = re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic)
    return [f"needs {name}" for name in names
            if not ALLOWED_NEEDED.match(name) and name not in also_allowed]


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
    return [f"needs {name} from glibc {version}" for name, version in wanted
            if not version[0].isdigit() or number(version) > number(newest)]


def instruction_problems(listing):
    """From `objdump -d`: each newer instruction once, with the first function that contains it."""
    found, function = {}, "?"
    for line in listing.splitlines():
        head = re.match(r"[0-9a-f]+ <(.+)>:$", line)
        function = head.group(1) if head else function
        if ASKS_FIRST.search(function):
            continue
        for word in line.partition(":\t")[2].split(" ")[:2]:
            if NEWER_INSTRUCTION.match(word) and not OLD_INSTRUCTION.match(word):
                found.setdefault(word, function)
    return [f"has the instruction {word}, in {where}" for word, where in found.items()]


def problems_of(path, options):
    problems = []
    if options.exports or options.program:
        dynamic = run("readelf", "-dW", path)
        problems += needed_problems(dynamic, options.may_need)
        problems += flag_problems(dynamic, run("readelf", "-lW", path))
    if options.exports:
        problems += unique_problems(run("readelf", "-sW", path))
        problems += export_problems(run("nm", "-D", "--defined-only", path), options.exports)
    if options.max_glibc:
        problems += glibc_problems(run("nm", "-D", "--undefined-only", path), options.max_glibc)
    if options.baseline:
        problems += instruction_problems(run("objdump", "-d", "--no-show-raw-insn", path))
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--exports", metavar="PREFIX", help="prefix of every exported name")
    parser.add_argument("--program", action="store_true", help="the objects are executables")
    parser.add_argument("--baseline", action="store_true",
                        help="allow only instructions that every x86-64 processor has")
    parser.add_argument("--may-need", action="append", default=[], metavar="LIBRARY",
                        help="a library that the objects may need beside the C library")
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
        problems = problems_of(path, options)
        for problem in problems:
            print(f"{os.path.basename(path)} {problem}")
        failed = failed or bool(problems)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
