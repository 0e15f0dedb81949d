# SPDX-License-Identifier: Apache-2.0
"""hygiene_offenders: hygiene.py finds each offence in an object that was built to commit it.

    hygiene_offenders.py HYGIENE COMPILER...

Each offender is the clean object with one thing changed, so that only that thing is reported. The
clean object passes.
"""

import pathlib
import subprocess
import sys
import tempfile

SOURCE = 'extern "C" __attribute__((visibility("default"))) int quire_f() { return 1; }\n'
CLEAN = ["-shared", "-fPIC", "-fvisibility=hidden", "-O1",
         "-Wl,-z,relro", "-Wl,-z,now", "-Wl,-z,noexecstack"]
VISIBLE = '__attribute__((visibility("default")))'

# (description, source text, compiler arguments, what hygiene.py must say)
OFFENDERS = [
    ("shared C++ runtime", "#include <iostream>\nvoid f() { std::cout << 1; }\n", [],
     "needs libstdc++.so.6"),
    ("shared unwinder",
     "void g(); void f() { try { g(); } catch (...) {} }\nvoid g() { throw 1; }\n",
     ["-static-libstdc++", "-shared-libgcc"], "needs libgcc_s.so.1"),
    ("another library", "", ["-Wl,--no-as-needed", "-lresolv"], "needs libresolv.so.2"),
    ("unique symbol",
     f"template <class T> struct {VISIBLE} A {{ static int x; }};\n"
     "template <class T> int A<T>::x;\nint *f() { return &A<int>::x; }\n"
     "template struct A<int>;\n", [], "has the GNU_UNIQUE symbol _ZN1AIiE1xE"),
    ("static TLS",
     '__thread int quire_x __attribute__((tls_model("initial-exec")));\n'
     "int f() { return quire_x; }\n", [], "needs static TLS"),
    ("executable stack", "", ["-Wl,-z,execstack"], "has an executable stack"),
    ("lazy binding", "", ["-Wl,-z,lazy"], "binds lazily"),
    ("writable relocations", "", ["-Wl,-z,norelro"], "has no read-only relocations"),
    ("text relocation", 'asm(".text\\n.quad quire_f\\n");\n', ["-Wl,-z,notext"],
     "has text relocations"),
    ("malloc", f'extern "C" {VISIBLE} void *malloc(unsigned long) {{ return 0; }}\n', [],
     "exports malloc"),
    ("operator new", f"{VISIBLE} void *operator new(unsigned long) {{ return (void *)8; }}\n", [],
     "exports _Znwm"),
    ("a newer processor's vectors",
     '__attribute__((target("avx2"))) void quire_g(float *a) '
     "{ for (int i = 0; i < 64; ++i) a[i] *= 2; }\n", ["-O3"], "has the instruction v"),
    ("a newer processor's count of bits",
     '__attribute__((target("popcnt"))) int quire_g(unsigned a) '
     "{ return __builtin_popcount(a); }\n", [], "has the instruction popcnt, in _Z7quire_gj"),
    ("a newer instruction beside code that asks first",
     "namespace quire::cpu::avx2 { __attribute__((target(\"popcnt\"), noinline)) "
     "int f(unsigned a) { return __builtin_popcount(a); } }\n"
     '__attribute__((target("popcnt"))) int quire_g(unsigned a) '
     "{ return __builtin_popcount(a + 1); }\n", ["-std=c++17"],
     "has the instruction popcnt, in _Z7quire_gj"),
    ("a newer C library", '#include <dlfcn.h>\nvoid *f() { return dlsym(0, "f"); }\n', [],
     "needs dlsym from glibc 2.34"),
]


def build(compiler, folder, name, text, arguments):
    source = pathlib.Path(folder, name + ".cpp")
    source.write_text(text)
    target = source.with_suffix(".so")
    subprocess.run([*compiler, *CLEAN, str(source), *arguments, "-o", str(target)], check=True)
    return target


def judge(hygiene, target):
    # 2.33: the offender that links dlsym offends on every machine that can build this project.
    command = [sys.executable, hygiene, "--exports", "quire_", str(target)]
    result = subprocess.run(command, capture_output=True, text=True)
    newer = subprocess.run([sys.executable, hygiene, "--max-glibc", "2.33", "--any-host",
                            "--baseline", str(target)], capture_output=True, text=True)
    return max(result.returncode, newer.returncode), result.stdout + newer.stdout


def program_problems(hygiene, compiler, folder):
    """A program with its own C++ runtime passes; one without it does not."""
    source = pathlib.Path(folder, "program.cpp")
    source.write_text("#include <iostream>\nint main() { std::cout << 1; }\n")
    problems = []
    for static, expected in ((["-static-libstdc++", "-static-libgcc"], ""),
                             ([], "program needs libstdc++.so.6\n")):
        target = source.with_suffix("")
        hard = [flag for flag in CLEAN if flag.startswith("-Wl")]
        subprocess.run([*compiler, *hard, str(source), *static, "-o", str(target)], check=True)
        result = subprocess.run([sys.executable, hygiene, "--program", str(target)],
                                capture_output=True, text=True)
        if (result.returncode != 0) != bool(expected) or expected not in result.stdout:
            problems.append(f"program: expected {expected!r}, found {result.stdout!r}")
    return problems


def main():
    hygiene, *compiler = sys.argv[1:]
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        status, words = judge(hygiene, build(compiler, folder, "clean", SOURCE, []))
        if status != 0:
            print(f"the clean object was refused: {words}")
            failed = True
        for number, (what, text, arguments, expected) in enumerate(OFFENDERS):
            target = build(compiler, folder, f"offender{number}", text + SOURCE, arguments)
            status, words = judge(hygiene, target)
            found = status == 1 and expected in words
            print(f"{what}: {'found' if found else 'NOT FOUND: ' + repr(words)}")
            failed = failed or not found
        for problem in program_problems(hygiene, compiler, folder):
            print(problem)
            failed = True
        empty = build(compiler, folder, "empty", "static int x;\n", ["-Wno-unused"])
        status, words = judge(hygiene, empty)
        if status != 1 or "exports nothing" not in words:
            print(f"an object without exports passed: {words!r}")
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
