# SPDX-License-Identifier: Apache-2.0
"""gpu: everything that wants a real GPU, from a tree that was built elsewhere: conformance, the
engine, migrations, compute-sanitizer, copies beyond 4 GiB, benchmarks, and what there is to compare
with.

    gpu.py [--out DIR] [--backend NAME]... [--minutes N] [--short] [--json]

It takes Python and a driver, no network and no compiler. Each part is a process with an end of its
own; what there was no time for says so. DIR gets gpu.json and each part's output. The status is 0
only if something passed and nothing failed.
"""

import argparse
import dataclasses
import importlib.util
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "release"
VENDORS = ("cuda", "hip", "vulkan")
# A few cases that go through every kernel, for tools that slow things down a hundredfold.
FEW = ("AttentionTest.random_shapes_over_bf16*:RopeTest.random*:MergeTest*:CopyTest*:FillTest*:"
       "MoveTest*:QuantisedWriteTest.every_row*")
SKIPPED = 77
SECOND = ["--seconds", "1"]


@dataclasses.dataclass
class Part:
    name: str
    command: list
    seconds: float          # at most
    reads: str = ""         # what of its output is kept as figures
    why_not: str = ""       # it is not run


@dataclasses.dataclass
class Outcome:
    name: str
    outcome: str            # passed, failed, skipped
    seconds: float = 0
    said: str = ""
    figures: object = None


def environment():
    return {**os.environ,
            "QUIRE_LIBRARY": os.environ.get("QUIRE_LIBRARY", str(BUILD / "abi" / "libquire.so")),
            "QUIRE_PLUGIN_PATH": os.environ.get("QUIRE_PLUGIN_PATH", str(BUILD / "backends"))}


def devices():
    """{backend: names of its devices}"""
    code, out, errors = ended([BUILD / "bindings" / "cli" / "quire", "devices", "--json"], 60)
    if code != 0:
        sys.exit(f"gpu: quire devices {'failed' if code else 'was not done after 60 s'}: {errors}")
    return {entry["name"]: [device["name"] for device in entry.get("devices", [])]
            for entry in json.loads(out)}


def conformance(backend, options):
    conform = BUILD / "tests" / "quire-conform"
    short = ["--short", "--only", FEW] if options.short else []
    yield Part(f"conformance {backend}", [conform, backend, "--json", *short], 240, "counts")
    yield Part(f"beyond 4 GiB {backend}", [conform, backend, "--json", "--huge", "--only", "Copy*"],
               60, "counts", "--short" if options.short else "")
    sanitizer = shutil.which("compute-sanitizer")
    for tool in ("memcheck", "racecheck") if backend == "cuda" else ():
        command = [sanitizer, "--tool", tool, "--error-exitcode", "9"]
        yield Part(f"{tool} {backend}", [*command, conform, backend, "--short", "--only", FEW], 90,
                   why_not="" if sanitizer else "no compute-sanitizer")


def engine(backend, others, options):
    program = BUILD / "examples" / "engine" / "quire-engine"
    for other in ["", *others]:
        moves = ["--migrate-to", other, "--migrate-to", backend] if other else []
        name = f"migration {backend} to {other} and back" if other else f"engine {backend}"
        yield Part(name, [program, "--device", backend, "--json", *moves], 90, "engine")
    if backend in ("cuda", "hip"):
        command = ["env", "QUIRE_TEST_DRIVER=real",
                   BUILD / "tests" / "fakegpu_driver_tests",
                   f"--gtest_filter=*/GraphCache.*/{backend}"]
        yield Part(f"graphs {backend}", command, 60, "tests")


def benchmarks(backend, options):
    folder = BUILD / "tests" / "bench"
    scale = ["--scale", "512", "--seconds", "0"] if options.short else SECOND
    one = ["--case", "32x4096-32/8-d128"] if options.short else []
    yield Part(f"decode {backend}", [folder / "bench_attention", "--device", backend, "--json",
                                     "--dtype", "bf16", "fp8", "f16", *one, *scale], 150, "cases")
    one = ["--case", "512"] if options.short else []
    yield Part(f"prefill {backend}", [folder / "bench_prefill", "--device", backend, "--json",
                                      "--dtype", "bf16", "fp8", "f16", *one, *scale], 90, "cases")
    yield Part(f"copies {backend}", [folder / "bench_copy", "--device", backend, "--json", *scale],
               60, "cases")


def peers(options):
    has_torch = importlib.util.find_spec("torch") is not None
    yield Part("ceilings and peers", [sys.executable, pathlib.Path(__file__).with_name("peers.py")],
               120, "all", "" if has_torch else "no torch")


def parts_of(found, options):
    wanted = [name for name in options.backend or VENDORS if found.get(name)]
    for backend in wanted:
        yield from conformance(backend, options)
    for backend in wanted:
        yield from engine(backend, [other for other in [*wanted, "cpu"] if other != backend],
                          options)
    for backend in wanted:
        yield from benchmarks(backend, options)
    if wanted:
        yield from peers(options)


def figures_of(part, text):
    if part.reads == "tests":
        return {"passed": int(re.search(r"^\[  PASSED  \] ([1-9]\d*) tests?", text, re.M)[1])}
    data = json.loads(text)
    if part.reads == "counts":
        return {"counts": data["counts"], "verdict": data["verdict"]}
    if part.reads == "engine":
        return {"migrations": data.get("migrations", []),     # none where it stays
                **{name: data[name] for name in ("equal_texts", "texts", "repeated_tokens",
                                                 "tokens_per_second")}}
    return data


def ended(command, limit):
    """(exit status, standard output, standard error); None: it was not done, and is no more, with
    all that it started."""
    process = subprocess.Popen(command, text=True, env=environment(), stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, errors="replace",
                               start_new_session=True)
    try:
        out, errors = process.communicate(timeout=limit)
        return process.returncode, out, errors
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return None, *process.communicate()


def run(part, left, options):
    folder = options.out
    if part.why_not:
        return Outcome(part.name, "skipped", said=part.why_not)
    if left < 5:
        return Outcome(part.name, "skipped", said="there was no time left: --minutes")
    start = time.monotonic()
    # With little of everything it runs where processors pose as GPUs, however slow they are.
    limit = min(part.seconds * (10 if options.short else 1), left)
    try:
        code, out, errors = ended(part.command, limit)
    except OSError as error:
        return Outcome(part.name, "failed", 0, f"cannot be started: {error}")
    if folder:
        stem = folder / part.name.replace(" ", "_").replace(":", "_")
        stem.with_suffix(".out").write_text(out + errors)
    outcome = Outcome(part.name, "passed" if code == 0 else "failed", time.monotonic() - start)
    if code is None:
        outcome.said = f"not done after {limit:.0f} s: {(errors or out).strip()[-300:]}"
    elif code == SKIPPED:
        outcome.outcome, outcome.said = "skipped", errors.strip()[-300:]
    elif code != 0:
        outcome.said = (errors or out).strip()[-600:]
    elif part.reads:
        try:
            outcome.figures = figures_of(part, out)
        except (ValueError, LookupError, TypeError) as error:
            outcome.outcome = "failed"
            outcome.said = f"its output is not what was expected: {error!r}"
    return outcome


def ceiling(outcomes, name):
    """What the device itself can do, where it was measured."""
    for outcome in outcomes:
        if outcome.name == "ceilings and peers" and outcome.figures:
            return outcome.figures["ceilings"][name]
    return None


def cases_of(outcomes, part):
    return [(outcome.name.split()[1], case) for outcome in outcomes
            if outcome.name.startswith(part) and outcome.figures
            for case in outcome.figures["cases"] if "unsupported" not in case]


def print_decode(outcomes):
    """Decode beside the device's own copy, measured by the same program, and a streaming read."""
    read = ceiling(outcomes, "read_gbps")
    rows = cases_of(outcomes, "decode")
    if rows:
        print(f"\n{'backend':8} {'case':20} {'dtype':6} {'ms':>9} {'GB/s':>8} {'of copy':>8} "
              f"{'of read':>8}")
    for backend, case in rows:
        share = f"{100 * case['gbps'] / read:6.1f} %" if read else "-"
        print(f"{backend:8} {case['case']:20} {case['dtype']:6} {case['milliseconds']:9.3f} "
              f"{case['gbps']:8.1f} {100 * case['share_of_stream']:6.1f} % {share:>8}")


def print_prefill(outcomes):
    """Prompts beside a large matrix product of the device."""
    product = ceiling(outcomes, "bf16_tflops")
    rows = cases_of(outcomes, "prefill")
    if rows:
        print(f"\n{'backend':8} {'tokens':>7} {'dtype':6} {'ms':>9} {'TFLOP/s':>9} "
              f"{'of product':>10}")
    for backend, case in rows:
        tflops = case["gflops"] / 1000
        share = f"{100 * tflops / product:6.1f} %" if product else "-"
        print(f"{backend:8} {case['case']:>7} {case['dtype']:6} {case['milliseconds']:9.3f} "
              f"{tflops:9.3f} {share:>10}")


def print_sizes(outcomes):
    """Copies by the kernel and by the driver, where a backend has both."""
    rows = [(outcome.name.split()[1], size) for outcome in outcomes
            if outcome.name.startswith("copies") and outcome.figures
            for size in outcome.figures.get("sizes", [])]
    if rows:
        print(f"\n{'backend':8} {'copies':14} {'KiB':>6} {'by kernel':>10} {'by driver':>10} "
              f"{'as chosen':>10}  GB/s")
    for backend, size in rows:
        print(f"{backend:8} {size['case']:14} {size['block_bytes'] / 1024:6.0f} "
              f"{size['kernel_gbps']:10.1f} {size['driver_gbps']:10.1f} "
              f"{size['chosen_gbps']:10.1f}")


def print_table(outcomes):
    width = max(len(outcome.name) for outcome in outcomes)
    print(f"{'part':{width}}  outcome  seconds")
    for outcome in outcomes:
        print(f"{outcome.name:{width}}  {outcome.outcome:7}  {outcome.seconds:7.1f}  "
              f"{outcome.said.splitlines()[-1] if outcome.said else ''}")
    print_decode(outcomes)
    print_prefill(outcomes)
    print_sizes(outcomes)
    for outcome in outcomes:
        if outcome.outcome == "failed":
            print(f"\nFAILED: {outcome.name}\n{outcome.said}")


def version():
    """What is measured: the commit, where git knows it."""
    git = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"],
                         capture_output=True, text=True) if shutil.which("git") else None
    return git.stdout.strip() if git and git.returncode == 0 else "unknown"


def main():
    parser = argparse.ArgumentParser(
        prog="./dev gpu", description="Runs everything that wants a real GPU, from a tree that was "
        "built before.", epilog="example: ./dev gpu --out figures --minutes 9")
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR", help="gets gpu.json and outputs")
    parser.add_argument("--backend", action="append", choices=VENDORS, help="only these")
    parser.add_argument("--minutes", type=float, default=9, help="at most (9)")
    parser.add_argument("--short", action="store_true",
                        help="small shapes, to see that it runs; figures then say nothing")
    parser.add_argument("--json", action="store_true", help="one object instead of the table")
    options = parser.parse_args()
    if not (BUILD / "tests" / "quire-conform").exists():
        sys.exit("gpu: nothing is built in build/release: ./dev build, here or where there is a "
                 "compiler, and carry the tree")
    found = devices()
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + 60 * options.minutes
    outcomes = []
    result = {"date": time.strftime("%Y-%m-%d", time.gmtime()), "version": version(),
              "devices": {name: found.get(name, []) for name in VENDORS}, "parts": []}
    for part in parts_of(found, options):
        print(f"{part.name} ...", file=sys.stderr, flush=True)
        outcomes.append(run(part, end - time.monotonic(), options))
        result["parts"].append(dataclasses.asdict(outcomes[-1]))
        if options.out:     # whoever ends us early has what came before
            (options.out / "gpu.json").write_text(json.dumps(result, indent=2) + "\n")
    if options.json:
        print(json.dumps(result, indent=2))
    elif outcomes:
        print_table(outcomes)
    if not outcomes:
        print("no device of cuda, hip or vulkan was found; `quire devices` says why",
              file=sys.stderr)
    counted = {outcome.outcome for outcome in outcomes}
    return 0 if "passed" in counted and "failed" not in counted else 1


if __name__ == "__main__":
    sys.exit(main())
