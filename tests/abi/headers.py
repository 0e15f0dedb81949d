# SPDX-License-Identifier: Apache-2.0
"""headers: each public header compiles alone, and has no hole, in every C and C++ that users have.

    headers.py C-COMPILER C++-COMPILER INCLUDE-FOLDER HEADER...

Prints one line per language. Each header is included twice, and every struct that it defines is
measured, because a compiler looks for holes only in structs that are used. Then headers with one
offence each are tried, and the languages that they offend must refuse them.

If a compiler is not installed, the test is skipped.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
C = ["c99", "c11", "c17"]
CXX = ["c++11", "c++14", "c++17", "c++20", "c++2b"]    # 2b: what every compiler calls C++23
FLAGS = ["-Wall", "-Wextra", "-Wpadded", "-pedantic-errors", "-Werror", "-c", "-o", "/dev/null"]

STDINT = "#include <stdint.h>\n"
# (description, header, languages that must refuse it)
OFFENDERS = [
    ("a hole", STDINT + "typedef struct a {\n    uint32_t x;\n    uint64_t y;\n} a;\n", C + CXX),
    ("a hole at the end", STDINT + "typedef struct a {\n    uint64_t x;\n    uint32_t y;\n} a;\n",
     C + CXX),
    ("a bool", "typedef struct a { bool x; } a;\n", C),
    ("an include that is missing", "typedef struct a { uint32_t x; } a;\n", C + CXX),
    ("a nameless member of C11", "typedef struct a { union { int x; int y; }; } a;\n", ["c99"]),
    ("an assertion of C11", '_Static_assert(1, "one");\ntypedef struct a { int x; } a;\n',
     ["c99"] + CXX),
    ("a word of C++", "typedef struct a { int class; } a;\n", CXX),
    ("a bare C++ linkage", 'extern "C" int f(int);\ntypedef struct a { int x; } a;\n', C),
    ("a missing guard", "struct a { int x; };\ntypedef struct a a_t;\n", C + CXX),
    ("a conversion of C", STDINT + "static inline char *f(void *p) { return p; }\n", CXX),
]


def structs_of(text):
    return re.findall(r"^} (\w+);", text, re.MULTILINE)


def source_of(header, text):
    """Includes the header twice, and defines a type as large as each of its structs."""
    lines = [f'#include "{header}"'] * 2
    lines += [f"typedef char size_of_{name}[sizeof({name})];" for name in structs_of(text)]
    return "\n".join(lines) + "\n"


def compile_header(compiler, standard, folder, header):
    language = "c++" if "++" in standard else "c"
    text = pathlib.Path(folder, header).read_text(encoding="utf-8")
    command = [compiler, "-std=" + standard, *FLAGS, "-I", str(folder), "-x", language, "-"]
    return subprocess.run(command, input=source_of(header, text), capture_output=True, text=True)


def check_headers(compiler, standard, folder, headers):
    failed = []
    for header in headers:
        result = compile_header(compiler, standard, folder, header)
        if result.returncode != 0:
            failed.append(f"{header}: {result.stderr}")
    print(f"{compiler} {standard}: {len(headers) - len(failed)} of {len(headers)} headers")
    return failed


def check_offenders(compilers):
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        for what, text, offended in OFFENDERS:
            pathlib.Path(folder, "a.h").write_text(
                text if "guard" in what else "#ifndef A_H\n#define A_H\n" + text + "#endif\n")
            for standard in offended:
                result = compile_header(compilers[standard], standard, folder, "a.h")
                if result.returncode == 0:
                    failed.append(f"{compilers[standard]} {standard} takes {what}")
    print(f"{len(OFFENDERS)} planted offences")
    return failed


def main():
    c, cxx, folder, *headers = sys.argv[1:]
    for compiler in (c, cxx):
        if not shutil.which(compiler):
            print(f"{compiler} is not installed")
            return SKIPPED
    root = pathlib.Path(folder).resolve()
    names = [str(pathlib.Path(header).resolve().relative_to(root)) for header in headers]
    compilers = {**dict.fromkeys(C, c), **dict.fromkeys(CXX, cxx)}
    failed = []
    for standard, compiler in compilers.items():
        failed += check_headers(compiler, standard, root, names)
    failed += check_offenders(compilers)
    print("\n".join(failed))
    return 1 if failed or not names else 0


if __name__ == "__main__":
    sys.exit(main())
