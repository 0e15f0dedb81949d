# SPDX-License-Identifier: Apache-2.0
"""prose: what comments and pages say can be followed and read at first sight.

    prose.py [--only names | phrases | shared | cases | self-test] [--root FOLDER]

  names      a file that a comment or a page names is there
  phrases    comments and pages are free of phrases that have to be read twice (PHRASES)
  shared     what several pages say is said in the same words (SHARED): the text between the lines
             <!-- shared NAME --> and <!-- end NAME -->
  cases      a GoogleTest case that SECURITY.md names is there
  self-test  each planted offence is found, and clean text passes

Strings are not looked at: what a program prints is its tests' affair.
"""

import argparse
import io
import pathlib
import re
import subprocess
import sys
import tokenize

C_SUFFIXES = {".c", ".h", ".cpp", ".hpp", ".cu", ".cuh", ".glsl", ".comp", ".rs", ".go"}
HASH_SUFFIXES = {".sh", ".build", ".options"}
MADE = {"bindings/rust/quire-sys/src/bindings.rs"}
OLD_WORDS = {"docs/reworded-messages.md"}  # quotes what was reworded
FOREIGN_FOLDERS = ("bindings/go/include/",)  # copies

# A comment of C's kind, or text that must not be taken for one.
C_TEXT = re.compile(r'R"(?P<tag>[^(\s"]*)\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|`[^`]*`'
                    r"|'(?:\\.[^']*|[^'\\\n])'|(?P<comment>//[^\n]*|/\*.*?\*/)", re.DOTALL)
FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)

NAMED = re.compile(r"(?<![\w/.<>*{-])((?:[\w.-]+/)*[\w-]+\.(?:cpp|hpp|h|c|py|md|glsl|comp|rs|go|sh|"
                   r"build|script|cu|map|options))\b(?!\()")
# Named, and not ours: other projects' files, and names that stand for any.
FOREIGN = {"cuda.h", "hip_runtime_api.h", "vulkan.h", "llama2.c", "github.com/karpathy/llama2.c",
           "run.c", "1/include/mimalloc.h", "file_test.cpp", "script.script",
           "REPO/backends/backend.map", "REPO/backends/null/plugin.cpp"}

PHRASES = [
    (r"\bcomes? to be\b|\bcame to be\b", "say what it becomes"),
    (r"\bis told of\b|\bare told of\b|\bhas it from\b", "say who receives or notifies"),
    (r"\b(?:nobody|somebody|whom)\b", "say who, or: no one, unowned, unreferenced"),
    (r"\bone an? (?:row|head|token|shard|group|layer|block|step|call|item|line|side|page|"
     r"sequence|file|sign|language|operation)\b", "one per ..."),
    (r"(?:^|[.!?:]\s+)Of (?:a|an|the|all|each|these|those|this|its|what)\b",
     "put the subject first"),
    (r"(?:^|[.!?]\s+)(?:Is|Has|Does|Will|May|Can|Are|Do|Would|Must|Should)\b[^.!?]{0,90}\?",
     "a predicate's comment says: True if ..."),
]

# Pages that say the same; the first is the one to edit.
SHARED = {"engine": ("docs/guide.md", "bindings/go/README.md", "bindings/python/README.md",
                     "bindings/rust/quire/README.md")}

PROMISES = "SECURITY.md"
CASE = re.compile(r"`([A-Z]\w+)\.(\w+|\*)`")
DEFINED = re.compile(r"^TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", re.MULTILINE)


def case_problems(page, sources):
    """sources  the text of each file of C++"""
    cases = {case for text in sources for case in DEFINED.findall(text)}
    suites = {suite for suite, _ in cases}
    named = CASE.findall(page)
    problems = [f"{PROMISES}:1: there is no test {suite}.{case}" for suite, case in named
                if (suite not in suites if case == "*" else (suite, case) not in cases)]
    return problems if named else [f"{PROMISES}:1: names no test"]


def check_cases(root):
    page = root / PROMISES
    sources = [path.read_text(encoding="utf-8") for path in (root / "tests").rglob("*.cpp")]
    return report(case_problems(page.read_text(encoding="utf-8") if page.exists() else "", sources))


def shared_text(text, name):
    """None: the page does not have it exactly once."""
    found = re.findall(rf"^<!-- shared {name} -->\n(.+?)^<!-- end {name} -->$", text,
                       re.DOTALL | re.MULTILINE)
    return found[0] if len(found) == 1 else None


def shared_problems(pages):
    """pages  the text of each page, by its name"""
    problems = []
    for name, (first, *others) in SHARED.items():
        wanted = shared_text(pages.get(first, ""), name)
        if wanted is None:
            problems.append(f"{first}:1: does not have the shared text '{name}' exactly once")
        problems += [f"{other}:1: its shared text '{name}' is not that of {first}"
                     for other in others
                     if wanted is None or shared_text(pages.get(other, ""), name) != wanted]
    return problems


def c_comments(text):
    for match in C_TEXT.finditer(text):
        if match["comment"]:
            yield text.count("\n", 0, match.start()) + 1, match["comment"]


def python_comments(text):
    previous = tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        starts = previous in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.NL)
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and starts):
            yield token.start[0], token.string
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            previous = token.type


def comments(path, text):
    """(first line, text) of each, neighbours as one."""
    if path.suffix == ".md":
        return [(1, FENCE.sub(lambda match: "\n" * match.group(0).count("\n"), text))]
    if path.suffix in C_SUFFIXES:
        found = list(c_comments(text))
    elif path.suffix == ".py":
        found = list(python_comments(text))
    else:
        found = [(number, line[line.index("#"):]) for number, line in
                 enumerate(text.splitlines(), 1) if re.search(r"(?:^|\s)#", line)]
    joined = []
    for number, comment in found:
        last = joined[-1] if joined else None
        if last and last[0] + last[1].count("\n") + 1 == number and comment[:2] != "/*":
            joined[-1] = (last[0], f"{last[1]}\n{comment}")
        else:
            joined.append((number, comment))
    return joined


def plain(comment):
    """The words alone, in as many lines."""
    return re.sub(r"(?m)^[ \t]*(?:///?!?|/\*+|\*/|\*|#+|>)[ \t]?|\*/$", "", comment)


def phrase_problems(path, text):
    problems = []
    for first, comment in comments(path, text):
        words = plain(comment)
        for paragraph in re.finditer(r"(?:[^\n]+\n?)+", words):
            for pattern, advice in PHRASES:
                for match in re.finditer(pattern, re.sub(r"\s", " ", paragraph.group(0))):
                    line = first + words.count("\n", 0, paragraph.start() + match.start())
                    problems.append(f"{path}:{line}: \"{match.group(0).strip()}\": {advice}")
    return problems


def name_problems(path, text, known):
    problems = []
    for first, comment in comments(path, text):
        for match in NAMED.finditer(comment):
            name = re.sub(r"^(?:\.\./)+", "", match.group(1))
            if name in FOREIGN or any(file == name or file.endswith("/" + name) for file in known):
                continue
            line = first + comment.count("\n", 0, match.start())
            problems.append(f"{path}:{line}: there is no {match.group(1)}")
    return problems


def files_of(root):
    listing = subprocess.run(["git", "-C", str(root), "ls-files", "-co", "--exclude-standard",
                              "-z"], capture_output=True, text=True)
    names = listing.stdout.split("\0") if listing.returncode == 0 else [
        path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()
        and not str(path.relative_to(root)).startswith(("build", ".env", "subprojects"))]
    return sorted({name for name in names if name and (root / name).is_file()})


def check(root, part):
    known = files_of(root)
    if part == "shared":
        return report(shared_problems({name: (root / name).read_text(encoding="utf-8")
                                       for pages in SHARED.values() for name in pages
                                       if name in known}))
    problems = []
    for name in known:
        path = pathlib.PurePosixPath(name)
        if (path.suffix not in C_SUFFIXES | HASH_SUFFIXES | {".md", ".py"}
                or name in MADE | OLD_WORDS or name.startswith(FOREIGN_FOLDERS)):
            continue
        text = (root / name).read_text(encoding="utf-8")
        problems += (name_problems(path, text, known) if part == "names"
                     else phrase_problems(path, text))
    return report(problems if known else [f"no file was found in {root}"])


def report(problems):
    for problem in problems:
        print(problem)
    return 1 if problems else 0


def planted():
    """(part, file name, text, what the check must say; empty: nothing)."""
    return [
        ("names", "a.cpp", "int a;  // see gone.hpp\n", "a.cpp:1: there is no gone.hpp"),
        ("names", "a.cpp", "// see a.cpp and core/kept.hpp\n", ""),
        ("names", "a.cpp", 'const char *a = "gone.hpp";\n', ""),
        ("names", "a.md", "text\n\nsee [it](../gone.md)\n", "a.md:3: there is no ../gone.md"),
        ("names", "a.md", "```\ngone.md\n```\n", ""),
        ("names", "a.py", '"""x: reads gone.py."""\n', "a.py:1: there is no gone.py"),
        ("phrases", "a.cpp", "// A block that\n// nobody has.\n", "a.cpp:2: \"nobody\""),
        ("phrases", "a.cpp", "/* One entry,\n * one a row. */\n", "a.cpp:2: \"one a row\""),
        ("phrases", "a.cpp", "// Has the launch so many\n// blocks?\nint a;\n", "a.cpp:1: \"Has"),
        ("phrases", "a.py", "# It is good. Of a mask nothing is kept.\n", "a.py:1: \". Of a\""),
        ("phrases", "a.sh", "x=1 # what it comes to be\n", "a.sh:1: \"comes to be\""),
        ("phrases", "a.cpp", "// True if a row has blocks.\n", ""),
        ("phrases", "a.cpp", 'say("nobody");\n', ""),
    ]


def self_test():
    problems = []
    known = ["a.cpp", "core/kept.hpp"]
    for part, name, text, expected in planted():
        path = pathlib.PurePosixPath(name)
        found = (name_problems(path, text, known) if part == "names"
                 else phrase_problems(path, text))
        if bool(expected) != bool(found) or (found and not found[0].startswith(expected)):
            problems.append(f"{text!r}: expected {expected or 'nothing'!r}, found {found}")
    return report(problems + shared_self_test() + case_self_test())


def shared_self_test():
    pages = dict.fromkeys(SHARED["engine"],
                          "a\n<!-- shared engine -->\nb\n<!-- end engine -->\nc\n")
    first, second = SHARED["engine"][:2]
    planted = [({}, 0), ({second: pages[second].replace("b", "B")}, 1), ({second: "c\n"}, 1),
               ({second: pages[second] * 2}, 1), ({first: ""}, len(pages))]
    return [f"{changed}: expected {count} problems of shared text" for changed, count in planted
            if len(shared_problems({**pages, **changed})) != count]


def case_self_test():
    sources = ["TEST(Block, is_kept) {\n", "TEST_F(Row,\n       ends) {\n"]
    planted = [("`Block.is_kept`, `Row.ends`, `Row.*`", 0), ("`Block.is_gone`", 1), ("`Page.*`", 1),
               ("nothing", 1)]
    return [f"{page}: expected {count} problems of cases" for page, count in planted
            if len(case_problems(page, sources)) != count]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=["names", "phrases", "shared", "cases",
                                             "self-test"])
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).parents[2])
    options = parser.parse_args()
    root = options.root.resolve()
    parts = {"names": lambda: check(root, "names"), "phrases": lambda: check(root, "phrases"),
             "shared": lambda: check(root, "shared"), "cases": lambda: check_cases(root),
             "self-test": self_test}
    if options.only:
        return parts[options.only]()
    return max([run() for run in parts.values()])


if __name__ == "__main__":
    sys.exit(main())
