# SPDX-License-Identifier: Apache-2.0
"""gpu_test: ./dev gpu does what it says, in a short run on lavapipe.

    gpu_test.py SOURCE_ROOT [--gtest_output=xml:FILE]
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "bindings"))
import report  # noqa: E402

PROGRAM = pathlib.Path(__file__).with_name("gpu.py")


def gpu(*options, **variables):
    return subprocess.run([sys.executable, PROGRAM, *options], capture_output=True, text=True,
                          env={**os.environ, **variables}, timeout=1450)


def case(name, problem):
    return report.Case("Gpu", name, "failed" if problem else "passed", 0, problem or "")


def says_when_there_is_none():
    with tempfile.TemporaryDirectory() as empty:
        process = gpu("--backend", "cuda", QUIRE_CUDA_LIBRARY=f"{empty}/libcuda.so.1")
    good = process.returncode == 1 and "no device" in process.stderr
    return case("without_a_device_it_fails", "" if good else process.stdout + process.stderr)


def stops_in_time():
    """Parts for which no time is left are named, not run."""
    process = gpu("--backend", "vulkan", "--minutes", "0.05", "--short", "--json")
    parts = json.loads(process.stdout)["parts"]
    late = [part for part in parts if "no time left" in part["said"]]
    return case("it_ends_when_its_time_is_over", "" if late else process.stdout)


def problem_of(result, folder):
    parts = {part["name"]: part for part in result["parts"]}
    wanted = {"conformance vulkan": "passed", "engine vulkan": "passed",
              "migration vulkan to cpu and back": "passed", "decode vulkan": "passed",
              "prefill vulkan": "passed", "copies vulkan": "passed",
              "host tier vulkan": "passed", "store vulkan": "passed",
              "hand-over vulkan to cpu": "passed", "hand-over cpu to vulkan": "passed",
              "beyond 4 GiB vulkan": "skipped"}
    for name, outcome in wanted.items():
        part = parts.get(name)
        if part is None or part["outcome"] != outcome:
            return f"{name}: {part}"
    for case in parts["decode vulkan"]["figures"]["cases"]:
        if case["clock"] not in ("device", "host") or not case["plan_us"] > 0:
            return str(case)
    moved = parts["migration vulkan to cpu and back"]["figures"]
    if [move["to"] for move in moved["migrations"]] != ["cpu", "vulkan"]:
        return str(moved)
    if moved["equal_texts"] != moved["texts"] or moved["repeated_tokens"] != 0:
        return str(moved)
    if parts["conformance vulkan"]["figures"]["counts"]["cases"]["failed"] != 0:
        return str(parts["conformance vulkan"]["figures"])
    kept = {path.name for path in folder.iterdir()}
    if kept != {"gpu.json", "gpu.log"}:
        return f"kept: {kept}"
    log = (folder / "gpu.log").read_text()
    missing = [name for name in wanted if wanted[name] == "passed" and f"== {name}: " not in log]
    missing += [word for word in ('{"case":"32x4096', '{"case":"CopyTest.') if word not in log]
    return f"not in the log: {missing}" if missing else ""


def runs_everything():
    with tempfile.TemporaryDirectory() as folder:
        process = gpu("--backend", "vulkan", "--short", "--json", "--minutes", "24",
                      "--out", folder)
        problem = "it failed"
        if process.returncode == 0:
            problem = problem_of(json.loads(process.stdout), pathlib.Path(folder))
    return case("it_runs_every_part", problem and problem + process.stdout + process.stderr)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=pathlib.Path)
    report.add_option(parser)
    options = parser.parse_args()
    listed = subprocess.run([options.root / "build/release/bindings/cli/quire", "devices",
                             "--json"], capture_output=True, text=True, check=True)
    vulkan = [entry for entry in json.loads(listed.stdout) if entry["name"] == "vulkan"]
    cases = [says_when_there_is_none()]
    if vulkan and vulkan[0].get("devices"):
        cases += [stops_in_time(), runs_everything()]
    else:
        cases.append(report.Case("Gpu", "it_runs_every_part", "skipped", 0, "no vulkan device"))
    return report.write(cases, options.gtest_output)


if __name__ == "__main__":
    sys.exit(main())
