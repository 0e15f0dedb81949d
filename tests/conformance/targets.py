# SPDX-License-Identifier: Apache-2.0
"""targets: the cpu backend's attention is right on every instruction set that it has kernels for.

    targets.py QUIRE CONFORM SOURCE

Instruction sets that this processor lacks are named and skipped; every other test uses the best
one. For 64-bit ARM, clang only compiles the kernels, and the result must contain its instructions.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

CASES = "Attention*:Quantised*:Invariance*:Option*"


def run(*command, **environment):
    return subprocess.run([str(part) for part in command], env=dict(os.environ, **environment),
                          capture_output=True, text=True)


def target_of(quire, asked):
    """The instruction set that is used when `asked` is the upper limit."""
    listed = run(quire, "devices", QUIRE_CPU_TARGET=asked)
    return re.search(r"host processor, (\w+),", listed.stdout).group(1)


def another_word_is_refused(quire):
    listed = run(quire, "devices", QUIRE_CPU_TARGET="sse")
    is_told = 'QUIRE_CPU_TARGET is "sse"' in listed.stdout and "avx2" in listed.stdout
    print(f"another word: {'refused' if is_told else listed.stdout + listed.stderr}")
    return is_told


def conforms(quire, suite, target):
    result = run(quire, "conform", "cpu", "--short", "--only", CASES, QUIRE_CONFORM=suite,
                 QUIRE_CPU_TARGET=target)
    cases = re.search(r"^cases: .*$", result.stdout, re.MULTILINE)
    print(f"{target}: {cases.group(0) if cases else result.stdout + result.stderr}")
    return result.returncode == 0 and cases is not None


def compiles_for_arm(source):
    tile = source / "backends" / "cpu" / "kernels" / "tile.cpp"
    # The headers of a compiler for this machine. The C++ headers depend on the processor only
    # through glibc's, which need to know that it has 64 bits.
    found = run("g++", "-E", "-v", "-x", "c++", "/dev/null").stderr
    listed = re.search(r"#include <...> search starts here:\n(.*?)\nEnd", found, re.DOTALL)
    folders = [f"-isystem{line.strip()}" for line in listed.group(1).splitlines()
               if "/lib/gcc/" not in line]
    with tempfile.TemporaryDirectory() as folder:
        assembly = pathlib.Path(folder, "tile.s")
        result = run("clang++", "--target=aarch64-linux-gnu", "-D__x86_64__", "-std=c++20", "-O2",
                     "-ffp-contract=off", "-fno-exceptions", "-Wall", "-Wextra", "-Werror",
                     "-DQUIRE_CPU_TARGET=plain", f"-I{source / 'backends' / 'cpu'}",
                     f"-I{source / 'include'}", *folders, "-S", tile, "-o", assembly)
        if result.returncode != 0:
            print(f"aarch64: {result.stderr}")
            return False
        text = assembly.read_text()
    counts = {name: len(re.findall(rf"\t{name}\t", text)) for name in ("fmla", "fcvtl")}
    print(f"aarch64: compiled, {counts}")
    return all(count > 0 for count in counts.values())


def main():
    quire, suite, source = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    best = target_of(quire, "amx")
    print(f"the best here is {best}")
    good = compiles_for_arm(source) and another_word_is_refused(quire)
    for target in ("amx", "avx512", "avx2", "plain"):
        if target_of(quire, target) != target:
            print(f"{target}: left out, this processor lacks it")
        elif target != best:
            good = conforms(quire, suite, target) and good
    return 0 if good and target_of(quire, "plain") == "plain" else 1


if __name__ == "__main__":
    sys.exit(main())
