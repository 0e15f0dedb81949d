# SPDX-License-Identifier: Apache-2.0
"""run: runs the benchmark programs one after another, so that none disturbs another's figures.

    run.py BUILD_FOLDER [NAME] [--json]

With --json each program gets --benchmark_format=json and must print one JSON object; standard
output is then one object, {program name: that object}.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("name", nargs="?")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()

    listed = json.loads((options.build / "meson-info" / "intro-benchmarks.json").read_text())
    chosen = [bench for bench in listed if options.name in (None, bench["name"])]
    if not chosen:
        names = ", ".join(bench["name"] for bench in listed) or "none was built"
        sys.exit(f"no benchmark is called {options.name!r}; there are: {names}")

    results = {}
    for bench in chosen:
        print(f"measuring {bench['name']} ...", file=sys.stderr, flush=True)
        command = bench["cmd"] + (["--benchmark_format=json"] if options.json else [])
        process = subprocess.run(command, env={**os.environ, **bench["env"]}, text=True,
                                 stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE if options.json else None)
        if process.returncode != 0:
            sys.exit(f"{bench['name']} ended with {process.returncode}")
        if options.json:
            results[bench["name"]] = json.loads(process.stdout)
    if options.json:
        print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
