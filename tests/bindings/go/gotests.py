# SPDX-License-Identifier: Apache-2.0
"""gotests: the Go package's own tests, go vet, its headers, and the example in its README; or the
tests of the server in examples/go.

    gotests.py GO SOURCE_ROOT [--example] [--race] [--gtest_output=xml:FILE]
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import report  # noqa: E402


def run(command, folder):
    # Nothing is downloaded: the module needs only the standard library.
    environment = {**os.environ, "GOPROXY": "off", "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=mod"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def single(name, process):
    outcome = "passed" if process.returncode == 0 else "failed"
    return report.Case("Go", name, outcome, 0, "" if outcome == "passed"
                       else process.stdout + process.stderr)


def package_tests(go, module, race):
    process = run([go, "test", "-json", "-count=1", "-timeout=120s", *(["-race"] if race else []),
                   "./..."], module)
    cases, said = [], {}
    for line in process.stdout.splitlines():
        event = json.loads(line) if line.startswith("{") else {}
        name = event.get("Test")
        if event.get("Action") == "output":
            said[name] = said.get(name, "") + event["Output"]
        elif name and event.get("Action") in ("pass", "fail", "skip"):
            outcome = {"pass": "passed", "fail": "failed", "skip": "skipped"}[event["Action"]]
            cases.append(report.Case("GoRace" if race else "Go", name, outcome, event["Elapsed"],
                                     said[name] if outcome != "passed" else ""))
    if process.returncode != 0 and not any(case.outcome == "failed" for case in cases):
        cases.append(report.Case("Go", "tests", "failed", 0, "".join(said.values())
                                 + process.stderr))
    return cases


def headers(root):
    """The vendored headers equal the library's."""
    module = root / "bindings" / "go" / "include" / "quire"
    wanted = {path.name: path.read_bytes() for path in (root / "include" / "quire").glob("*.h")}
    found = {path.name: path.read_bytes() for path in module.glob("*.h")}
    differing = sorted(name for name in wanted.keys() | found.keys()
                       if wanted.get(name) != found.get(name))
    return report.Case("Go", "vendored_headers_are_the_librarys",
                       "failed" if differing else "passed", 0,
                       f"cp include/quire/*.h bindings/go/include/quire: {', '.join(differing)}"
                       if differing else "")


def readme(go, module):
    """The first example, in a separate module."""
    text = (module / "README.md").read_text()
    program = re.search(r"```go\n(.*?)```", text, re.S).group(1)
    promised = re.search(r"```text\n(.*?)```", text, re.S).group(1)
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "main.go").write_text(program)
        run([go, "mod", "init", "example"], folder)
        run([go, "mod", "edit", "-require", "quire@v0.1.0", f"-replace=quire={module}"], folder)
        process = run([go, "run", "."], folder)
    if process.returncode == 0 and process.stdout != promised:
        process.returncode = 1
    return single("readme_example_prints_what_it_says", process)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("go")
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("--example", action="store_true")
    parser.add_argument("--race", action="store_true")
    report.add_option(parser)
    options = parser.parse_args()
    module = options.root / ("examples" if options.example else "bindings") / "go"
    cases = package_tests(options.go, module, options.race)
    if not options.race:
        formatted = run([str(pathlib.Path(options.go).parent / "gofmt"), "-l", "."], module)
        formatted.returncode = formatted.returncode or len(formatted.stdout)
        cases += [single("vet", run([options.go, "vet", "./..."], module)),
                  single("gofmt", formatted)]
    if not options.race and not options.example:
        cases += [headers(options.root), readme(options.go, module)]
    return report.write(cases, options.gtest_output)


if __name__ == "__main__":
    sys.exit(main())
