# SPDX-License-Identifier: Apache-2.0
"""run: runs the benchmark programs one after another, so that none disturbs another's figures.

    run.py BUILD_FOLDER [NAME [OPTION...]] [--json]

Options go to the named program; `NAME --help` lists them. With --json standard output is one JSON
object: the named program's own, else {program name: its object}.
"""

import json
import os
import pathlib
import subprocess
import sys


def is_google(bench):
    return any(suite.endswith(":google") for suite in bench["suite"])


def command_of(bench, options, wants_json):
    json_option = "--benchmark_format=json" if is_google(bench) else "--json"
    return bench["cmd"] + options + ([json_option] if wants_json else [])


def main():
    options = sys.argv[1:]
    build = pathlib.Path(options.pop(0))
    wants_help = "--help" in options or "-h" in options
    wants_json = "--json" in options and not wants_help
    options = [option for option in options if option != "--json"]
    name = options.pop(0) if options and not options[0].startswith("-") else None

    listed = json.loads((build / "meson-info" / "intro-benchmarks.json").read_text())
    names = ", ".join(bench["name"] for bench in listed) or "none was built"
    if name is None and options in (["--help"], ["-h"]):
        print("usage: ./dev bench [NAME [OPTION...]] [--json]\n\n"
              f"Benchmarks: {names}. NAME --help lists its options.\n\n"
              "example: ./dev bench attention --dtype f16 --threads 2 --json")
        return
    if name is None and options:
        sys.exit(f"{options[0]}: name the benchmark before its options; there are: {names}")
    chosen = [bench for bench in listed if name in (None, bench["name"])]
    if not chosen:
        sys.exit(f"no benchmark is called {name!r}; there are: {names}")

    results = {}
    for bench in chosen:
        if not wants_help:
            print(f"measuring {bench['name']} ...", file=sys.stderr, flush=True)
        process = subprocess.run(command_of(bench, options, wants_json),
                                 env={**os.environ, **bench["env"]}, text=True,
                                 stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE if wants_json else None)
        if process.returncode != 0:
            sys.exit(f"{bench['name']} ended with {process.returncode}")
        if wants_json:
            results[bench["name"]] = json.loads(process.stdout)
    if results:
        print(json.dumps(results if name is None else results[name], indent=2))


if __name__ == "__main__":
    main()
