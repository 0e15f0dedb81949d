# SPDX-License-Identifier: Apache-2.0
"""check: lengths and format of the project's code, and a proof that this check detects offences.

    check.py [--only lengths | format | self-test] [--fix] [--root FOLDER]

  lengths    a code file has at most 600 lines, a function 70, a line 100 columns, and its first
             lines name its licence
  format     clang-format has nothing to change in C and C++; --fix applies its changes
  self-test  each planted offence is found, and clean text passes

Functions of C and C++ are found by their braces, without a compiler: outside every function, a
brace after something in parentheses opens one.
"""

import argparse
import ast
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

FILE_LINES = 600
FUNCTION_LINES = 70
COLUMNS = 100
SKIPPED = 77

C_SUFFIXES = {".c", ".h", ".cpp", ".hpp", ".cu", ".cuh"}
CODE_SUFFIXES = C_SUFFIXES | {".py", ".sh", ".comp", ".glsl", ".rs", ".go", ".build", ".options"}
CODE_NAMES = {"dev", "run"}
MADE = {"bindings/rust/quire-sys/src/bindings.rs"}    # generated, as a test checks

# A comment, a raw string, a string, a character; digit separators (1'000) are not characters.
NOISE = re.compile(
    r"//[^\n]*|/\*.*?\*/"
    r'|R"(?P<tag>[^(\s"]*)\(.*?\)(?P=tag)"'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'",
    re.DOTALL)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
CONTAINER = re.compile(r"^\s*(?:template\s*<.*>\s*)?(?:typedef\s+|inline\s+|static\s+)*"
                       r"(?:namespace|class|struct|union|enum|extern)\b[^()]*$", re.DOTALL)


def blank(match):
    """As many empty lines."""
    return re.sub(r"[^\n]", " ", match.group(0))


def c_functions(text):
    """(first line, number of lines) of every function in C or C++ text, including its head."""
    text = DIRECTIVE.sub(blank, NOISE.sub(blank, text))
    found = []
    head_start = 0
    start = None            # where the head of the current function starts
    depth = 0               # open braces inside that function
    for position in (match.start() for match in re.finditer(r"[{};]", text)):
        sign = text[position]
        if start is not None:
            depth += {"{": 1, "}": -1, ";": 0}[sign]
            if depth == 0:
                first = text.count("\n", 0, start) + 1
                found.append((first, text.count("\n", start, position) + 1))
                start = None
                head_start = position + 1
            continue
        head = text[head_start:position]
        if sign == "{" and ")" in head and not CONTAINER.match(head):
            start = head_start + len(head) - len(head.lstrip())
            depth = 1
        else:
            head_start = position + 1
    return found


def python_functions(text):
    return [(node.lineno, node.end_lineno - node.lineno + 1) for node in ast.walk(ast.parse(text))
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]


def shell_functions(text):
    found = []
    for match in re.finditer(r"^[\w-]+\(\) \{.*?^\}", text, re.MULTILINE | re.DOTALL):
        found.append((text.count("\n", 0, match.start()) + 1, match.group(0).count("\n") + 1))
    return found


def functions(path, text):
    if path.suffix in C_SUFFIXES:
        return c_functions(text)
    if path.suffix == ".py":
        return python_functions(text)
    if path.suffix == ".sh" or path.name in CODE_NAMES:
        return shell_functions(text)
    return []


def length_problems(path, text):
    lines = text.splitlines()
    problems = []
    if len(lines) > FILE_LINES:
        problems.append(f"{path}: {len(lines)} lines; a file has at most {FILE_LINES}")
    for number, line in enumerate(lines, 1):
        if len(line) > COLUMNS:
            problems.append(f"{path}:{number}: {len(line)} columns; a line has at most {COLUMNS}")
    for number, length in functions(path, text):
        if length > FUNCTION_LINES:
            problems.append(f"{path}:{number}: a function of {length} lines; it has at most "
                            f"{FUNCTION_LINES}")
    if not any("SPDX-License-Identifier: Apache-2.0" in line for line in lines[:3]):
        problems.append(f"{path}:1: does not begin with its SPDX-License-Identifier")
    return problems


def code_files(root):
    """Files that git tracks or would add; without git, every file outside the build folders."""
    command = ["git", "-C", str(root), "ls-files", "-co", "--exclude-standard", "-z"]
    listing = subprocess.run(command, capture_output=True, text=True)
    if listing.returncode == 0:
        names = [pathlib.Path(name) for name in listing.stdout.split("\0") if name]
    else:
        names = [path.relative_to(root) for path in root.rglob("*")
                 if not str(path.relative_to(root)).startswith(("build", ".env", "subprojects"))]
    return sorted(name for name in set(names) if (root / name).is_file()
                  and (name.suffix in CODE_SUFFIXES or name.name in CODE_NAMES)
                  and name.as_posix() not in MADE)


def check_lengths(root):
    files = code_files(root)
    problems = [] if files else [f"no code was found in {root}"]
    for name in files:
        problems += length_problems(name, (root / name).read_text(encoding="utf-8"))
    return report(problems)


def clang_format(root):
    ours = root / ".env" / "bin" / "clang-format"
    return str(ours) if ours.exists() else shutil.which("clang-format")


def check_format(root, fix):
    program = clang_format(root)
    if not program:
        print("clang-format is not installed; ./dev check brings it")
        return SKIPPED
    files = [str(name) for name in code_files(root) if name.suffix in C_SUFFIXES]
    if not files:
        return 0
    mode = ["-i"] if fix else ["--dry-run", "--Werror"]
    status = subprocess.run([program, *mode, *files], cwd=root).returncode
    if status:
        print("./dev check --fix formats what can be formatted")
    return 1 if status else 0


def report(problems):
    for problem in problems:
        print(problem)
    return 1 if problems else 0


# Self-test. ---------------------------------------------------------------------------------------

LICENCE = "// SPDX-License-Identifier: Apache-2.0\n"


def function_text(head, length):
    return f"{head} {{\n" + "    f();\n" * (length - 2) + "}\n"


def planted():
    """(description, file name, text, what the check must say; empty: nothing)."""
    limit, over = FUNCTION_LINES, FUNCTION_LINES + 1
    decoy = 'namespace a {\nclass B : C {\n    int d_ = g(1);\n    int e_{2};\n'
    brace = 'const char *kBrace = "{"; // {\n#define OPEN {\n'
    shell = LICENCE.replace("//", "#")
    wide = LICENCE + "// " + "x" * (COLUMNS - 3)
    return [
        ("a short function", "a.cpp", LICENCE + function_text("int f(int a)", limit), ""),
        ("a long function", "a.cpp", LICENCE + function_text("int f(int a)", over),
         "a.cpp:2: a function"),
        ("a long C function", "a.c", LICENCE + function_text("void f(void)", over),
         "a.c:2: a function"),
        ("a long method", "a.h",
         LICENCE + decoy + function_text("void f() const", over) + "};\n}\n", "a.h:6: a function"),
        ("a long test", "a.cpp", LICENCE + function_text("TEST(A, b)", over),
         "a.cpp:2: a function"),
        ("a long function after braces in text", "a.cpp",
         LICENCE + brace + function_text("int f()", over), "a.cpp:4: a function"),
        ("a long class", "a.h", LICENCE + "class A {\n" + "    int a;\n" * over + "};\n", ""),
        ("a long table", "a.c", LICENCE + "static int a[] = {\n" + "    1,\n" * over + "};\n", ""),
        ("a long Python function", "a.py",
         shell + "def f():\n" + "    g()\n" * FUNCTION_LINES, "a.py:2: a function"),
        ("a long shell function", "a.sh", shell + function_text("f()", over), "a.sh:2: a function"),
        ("a full file", "a.c", LICENCE + "\n" * (FILE_LINES - 1), ""),
        ("a long file", "a.c", LICENCE + "\n" * FILE_LINES, "a.c: 601 lines"),
        ("a full line", "a.c", wide, ""),
        ("a long line", "a.c", wide + "x", "a.c:2: 101 columns"),
        ("no licence", "a.c", "int a;\n", "a.c:1: does not begin"),
    ]


def self_test():
    problems = []
    for what, name, text, expected in planted():
        found = length_problems(pathlib.Path(name), text)
        if bool(expected) != bool(found) or (found and not found[0].startswith(expected)):
            problems.append(f"{what}: expected {expected or 'nothing'!r}, found {found}")
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "a.c").write_text(LICENCE + function_text("void f(void)", FUNCTION_LINES + 1))
        command = [sys.executable, __file__, "--only", "lengths", "--root", folder]
        if subprocess.run(command, capture_output=True).returncode != 1:
            problems.append("a long function in a folder did not fail the check")
        (root / "a.c").write_text(LICENCE)
        if subprocess.run(command, capture_output=True).returncode != 0:
            problems.append("a clean folder failed the check")
    return report(problems)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=["lengths", "format", "self-test"])
    parser.add_argument("--fix", action="store_true")
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).parents[2])
    options = parser.parse_args()
    root = options.root.resolve()
    parts = {"lengths": lambda: check_lengths(root),
             "format": lambda: check_format(root, options.fix),
             "self-test": self_test}
    if options.only:
        return parts[options.only]()
    return max([parts[name]() for name in parts])


if __name__ == "__main__":
    sys.exit(main())
