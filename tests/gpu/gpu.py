# SPDX-License-Identifier: Apache-2.0
"""gpu: everything that needs a real GPU, from a tree that was built elsewhere: conformance, the
engine, migrations, compute-sanitizer, copies beyond 4 GiB, benchmarks, and peers to compare with.

    gpu.py [--out DIR] [--backend NAME]... [--minutes N] [--short] [--json]
    gpu.py --predict [OPTIONS]      what a model predicts instead, without a GPU: predict.py
    gpu.py --pack FOLDER|FILE.tar.gz

It needs Python and a driver, but no network and no compiler. Each part is a process with its own
time limit; a part that has no time left is reported as skipped. Some parts have seconds reserved,
at most half of the total: earlier parts, however slow, cannot take those. Programs print a line for
each case when it ends, so a part that is stopped keeps the cases before. DIR gets gpu.json, and all
output in gpu.log. The exit status is 0 only if something passed and nothing failed.
"""

import argparse
import contextlib
import csv
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
import tempfile
import time

import pack

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "release"
VENDORS = ("cuda", "hip", "vulkan")
# A few cases that reach every kernel, for tools that slow programs down a hundredfold.
FEW = ("AttentionTest.random_shapes_over_bf16*:RopeTest.random*:MergeTest*:CopyTest*:FillTest*:"
       "MoveTest*:QuantisedWriteTest.every_row*")
SKIPPED = 77
SECONDS_TO_DIE = 3
PATIENCE_SECONDS = 60       # without output, until a case of conformance counts as hung
# What Nsight Compute counts of each launch.
METRICS = ("gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum",
           "dram__throughput.avg.pct_of_peak_sustained_elapsed", "smsp__inst_executed.sum",
           "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
           "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
           "sm__warps_active.avg.pct_of_peak_sustained_active")
DTYPES = ("bf16", "fp8", "f16")
# Decode shapes, as bench attention names them; the first ones are also measured for peers.
FIRST_SHAPES = ("32x4096-32/8-d128", "8x32768-32/8-d128")
OTHER_SHAPES = ("8x4096-32/32-d128", "1x32768-32/8-d128", "64x1024-32/8-d128",
                "32x4096-64/8-d128", "32x4096-32/8-d64")


@dataclasses.dataclass
class Part:
    name: str
    command: list
    seconds: float          # at most
    reads: str = ""         # which of its output is kept as figures
    why_not: str = ""       # the reason if it is not run
    kept: float = 0         # seconds that earlier parts leave for it


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
        sys.exit(f"gpu: quire devices {'failed' if code else 'timed out after 60 s'}: {errors}")
    return {entry["name"]: [device["name"] for device in entry.get("devices", [])]
            for entry in json.loads(out)}


def counted():
    return ["--json", "--lines", "--patience", str(PATIENCE_SECONDS)]


def conformance(backend, options):
    conform = BUILD / "tests" / "quire-conform"
    short = ["--short", "--only", FEW] if options.short else []
    yield Part(f"conformance {backend}", [conform, backend, *counted(), *short], 240, "counts")


def slow_checks(backend, options):
    conform = BUILD / "tests" / "quire-conform"
    yield Part(f"beyond 4 GiB {backend}",
               [conform, backend, *counted(), "--huge", "--only", "Copy*"], 60, "counts",
               "--short" if options.short else "")
    sanitizer = shutil.which("compute-sanitizer")
    # In one process: the tool fails a process without CUDA calls, such as one that starts others.
    cases = [conform, "--cases", f"--backend={backend}", "--short", f"--gtest_filter={FEW}"]
    for tool in ("memcheck", "racecheck") if backend == "cuda" else ():
        command = [sanitizer, "--tool", tool, "--error-exitcode", "9"]
        yield Part(f"{tool} {backend}", [*command, *cases], 90, "sanitizer",
                   why_not="" if sanitizer else "no compute-sanitizer")


def engine(backend, others, options):
    program = BUILD / "examples" / "engine" / "quire-engine"
    few = ["--chats", "8"] if options.short else []
    for other in ["", *others]:
        moves = ["--migrate-to", other, "--migrate-to", backend] if other else []
        name = f"migration {backend} to {other} and back" if other else f"engine {backend}"
        yield Part(name, [program, "--device", backend, "--json", *few, *moves], 90, "engine",
                   kept=0 if other else 15)
    small = ["--pool-blocks", "32", "--preempt", "recompute"]   # so prefixes leave it
    for tier, how in (("host tier", ["--host-prefixes"]), ("store", ["--tier", "memory"])):
        yield Part(f"{tier} {backend}",
                   [program, "--device", backend, "--json", "--check", *few, *small, *how], 60,
                   "engine")
    # The text of a prompt goes to stdout, and the figures to stderr.
    figures = ["sh", "-c", 'exec "$@" 2>&1 >/dev/null', "sh"]
    for first, second in ((backend, "cpu"), ("cpu", backend)):
        yield Part(f"hand-over {first} to {second}",
                   [*figures, program, "--prefill-on", first, "--decode-on", second, "--prompt",
                    "Tell me", "--steps", "200", "--json", "--check"], 60, "engine")
    if backend in ("cuda", "hip"):
        command = ["env", "QUIRE_TEST_DRIVER=real",
                   BUILD / "tests" / "fakegpu_driver_tests",
                   f"--gtest_filter=*/GraphCache.*/{backend}"]
        yield Part(f"graphs {backend}", command, 60, "tests", kept=15)


def measured(program, backend, options):
    scale = ["--scale", "512", "--seconds", "0"] if options.short else ["--seconds", "1"]
    return [BUILD / "tests" / "bench" / program, "--device", backend, "--json", *scale]


def decode(backend, shapes, options):
    return [*measured("bench_attention", backend, options), "--dtype", *DTYPES, "--case", *shapes]


def attention(backend, options):
    shapes = FIRST_SHAPES[:1] if options.short else FIRST_SHAPES
    yield Part(f"decode {backend}", decode(backend, shapes, options), 90, "cases", kept=40)
    one = ["--case", "512"] if options.short else []
    yield Part(f"prefill {backend}", [*measured("bench_prefill", backend, options), "--dtype",
                                      *DTYPES, *one], 90, "cases", kept=20)


def benchmarks(backend, options):
    yield Part(f"decode {backend} of other shapes", decode(backend, OTHER_SHAPES, options), 120,
               "cases", "--short" if options.short else "")
    yield Part(f"copies {backend}", measured("bench_copy", backend, options), 60, "cases")


def peers(options):
    has_torch = importlib.util.find_spec("torch") is not None
    program = pathlib.Path(__file__).with_name("peers.py")
    # It ends at most 15 s later (GRACE_SECONDS), counted from its start: within the reserved time.
    yield Part("ceilings and peers", [sys.executable, program, "--seconds", "70"], 90, "all",
               "" if has_torch else "no torch", kept=90)


def counters(options):
    """Nsight Compute's counts of the kernels of one benchmark, launch by launch."""
    tool = shutil.which("ncu")
    command = [tool, "--csv", "--page", "raw", "--metrics", ",".join(METRICS), "--kernel-name",
               "regex:quire_", "--launch-count", "40",
               *measured("bench_attention", "cuda", options), "--dtype", "bf16", "--case",
               FIRST_SHAPES[0]]
    yield Part("counters cuda", command, 90, "counters", "" if tool else "no ncu")


def parts_of(found, options):
    """All that says whether a backend is right and fast, one backend after another; then what takes
    long or says less."""
    wanted = [name for name in VENDORS if found.get(name) and name in (options.backend or VENDORS)]
    for backend in wanted:
        yield from conformance(backend, options)
        yield from attention(backend, options)
        if backend == wanted[0]:
            yield from peers(options)
        yield from engine(backend, [other for other in [*wanted, "cpu"] if other != backend],
                          options)
    for backend in wanted:
        yield from slow_checks(backend, options)
        yield from benchmarks(backend, options)
        if backend == "cuda":
            yield from counters(options)


def launches_of(text):
    """The rows of ncu's table: names, then units, then one row per launch."""
    names, units, *rows = [row for row in csv.reader(text.splitlines()) if len(row) > len(METRICS)]
    wanted = {name: names.index(name) for name in ("Kernel Name", *METRICS)}
    return {"units": {name: units[at] for name, at in wanted.items() if name in METRICS},
            "launches": [{name: row[at] for name, at in wanted.items()} for row in rows]}


def figures_of(part, text):
    if part.reads in ("tests", "sanitizer"):
        figures = {"passed": int(re.search(r"^\[  PASSED  \] ([1-9]\d*) tests?", text, re.M)[1])}
        if part.reads == "sanitizer":   # the tool ran and found nothing
            figures["summary"] = re.search(r"^=+ (\w+ SUMMARY: 0 .*)$", text, re.M)[1]
        return figures
    if part.reads == "counters":
        return launches_of(text)
    data = json.loads(text)
    if part.reads == "counts":
        return {"counts": data["counts"], "verdict": data["verdict"]}
    if part.reads == "engine":
        return {"migrations": data.get("migrations", []),     # none if it does not move
                **{name: data[name] for name in ("equal_texts", "texts", "repeated_tokens",
                                                 "tokens_per_second")}}
    return data


def ended_cases(errors):
    """The cases of which programs printed a line when they ended."""
    cases = []
    for line in errors.splitlines():
        if line.startswith('{"case"'):
            with contextlib.suppress(ValueError):   # the last one may be cut off
                cases.append(json.loads(line))
    return cases


def without_cases(errors):
    return "\n".join(line for line in errors.splitlines() if not line.startswith('{"case"'))


def figures_of_failed(part, out, errors):
    """None if there are none: the good cases of a benchmark count even if others failed, and so do
    those that ended before the part was stopped."""
    if part.reads in ("", "tests", "sanitizer"):
        return None
    try:
        return figures_of(part, out)
    except (ValueError, LookupError, TypeError):
        cases = ended_cases(errors)
    if not cases:
        return None
    if part.reads != "counts":
        return {"cases": cases}
    outcomes = [case["outcome"] for case in cases]
    return {"counts": {"cases": {name: outcomes.count(word) for name, word in
                                 (("passed", "yes"), ("failed", "no"), ("skipped", "skip"))}},
            "failed": [case["case"] for case in cases if case["outcome"] == "no"],
            "verdict": "it was stopped"}


def failures_of(figures):
    cases = figures.get("cases", []) if isinstance(figures, dict) else []
    return "\n".join(f"{case['case']} {case.get('dtype', '')}: {case['failed']}"
                     for case in cases if "failed" in case)


def ended(command, limit, log=None):
    """(exit status, standard output, standard error); the status is None on a timeout.
    The process group is killed however the command ends: a compiler left running would
    disturb later measurements. `log` gets the standard error as it comes, then the output.

    Files, not pipes: a process that left the group, or cannot be killed, could hold a pipe forever.
    """
    with tempfile.TemporaryDirectory() as folder:
        paths = [pathlib.Path(folder, "out"), log or pathlib.Path(folder, "errors")]
        start = log.stat().st_size if log and log.exists() else 0
        with paths[0].open("wb") as out, paths[1].open("ab") as errors:
            process = subprocess.Popen(command, env=environment(), stdin=subprocess.DEVNULL,
                                       stdout=out, stderr=errors, start_new_session=True)
        code = None
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(limit)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(SECONDS_TO_DIE)
        out, errors = (path.read_bytes() for path in paths)
    if log:
        with log.open("ab") as file:
            file.write(out)
    return code, out.decode(errors="replace"), errors[start:].decode(errors="replace")


def how_it_ended(code):
    if code >= 0:
        return f"it ended with {code}"
    with contextlib.suppress(ValueError):
        return f"it was ended by {signal.Signals(-code).name}"
    return f"it was ended by signal {-code}"


def run(part, left, options):
    if part.why_not:
        return Outcome(part.name, "skipped", said=part.why_not)
    if left < 5:
        return Outcome(part.name, "skipped", said="no time left (--minutes)")
    start = time.monotonic()
    # A short run also has to pass where processors pose as GPUs, however slow they are.
    limit = min(part.seconds * (10 if options.short else 1), left)
    log = options.out / "gpu.log" if options.out else None
    if log:
        with log.open("a") as file:
            file.write(f"\n== {part.name}: {' '.join(map(str, part.command))}\n")
    try:
        code, out, errors = ended(part.command, limit, log)
    except OSError as error:
        return Outcome(part.name, "failed", 0, f"cannot be started: {error}")
    outcome = Outcome(part.name, "passed" if code == 0 else "failed", time.monotonic() - start)
    said = without_cases(errors).strip()
    if code is None:    # it may still have printed everything
        outcome.figures = figures_of_failed(part, out, errors)
        outcome.said = f"{(said or out.strip())[-300:]}\ntimed out after {limit:.0f} s"
    elif code == SKIPPED:
        outcome.outcome, outcome.said = "skipped", said[-300:]
    elif part.reads == "counters" and "ERR_NVGPUCTRPERM" in out + errors:
        outcome.outcome, outcome.said = "skipped", "the driver lets only root read counters"
    elif code != 0:
        outcome.figures = figures_of_failed(part, out, errors)
        said = "\n".join(filter(None, [said, failures_of(outcome.figures)]))
        outcome.said = f"{(said or out.strip())[-600:]}\n{how_it_ended(code)}"
    elif part.reads:
        try:
            outcome.figures = figures_of(part, out)
        except (ValueError, LookupError, TypeError) as error:
            outcome.outcome = "failed"
            outcome.said = f"its output is not what was expected: {error!r}"
    return outcome


def run_parts(parts, seconds, options):
    """Yields the (part, outcome) of one part after another."""
    end = time.monotonic() + seconds
    kept = [0 if part.why_not else part.kept for part in parts]
    scale = min(1, seconds / 2 / max(sum(kept), 1))
    for index, part in enumerate(parts):
        print(f"{part.name} ...", file=sys.stderr, flush=True)
        of_later_ones = scale * sum(kept[index + 1:])
        yield part, run(part, end - time.monotonic() - of_later_ones, options)


def figures_of_peers(outcomes):
    """PyTorch's figures; empty if there are none."""
    for outcome in outcomes:
        if outcome.name == "ceilings and peers" and outcome.figures:
            return outcome.figures
    return {}


def cases_of(outcomes, part):
    return [(outcome.name.split()[1], case) for outcome in outcomes
            if outcome.name.startswith(part) and outcome.figures
            for case in outcome.figures.get("cases", [])
            if not {"unsupported", "failed"} & case.keys()]


def is_late(case):
    """True if the host took longer to enqueue than the device to compute, so
    that the device waited."""
    return case["clock"] == "device" and case["milliseconds"] * 1000 <= case.get("call_us", 0)


def print_decode(outcomes):
    """Decode compared with a streaming read of the device and with its own copy, measured by the
    same program; the times of peers; and the host's time to plan a step and to enqueue a layer."""
    peers = figures_of_peers(outcomes)
    read = peers.get("ceilings", {}).get("read_gbps")
    rows = cases_of(outcomes, "decode")
    if not rows:
        return
    print(f"\n{'by':10} {'case':20} {'dtype':5} {'clock':6} {'ms':>9}  {'GB/s':>8} {'of read':>8} "
          f"{'of copy':>8} {'plan us':>8} {'call us':>8}")
    for backend, case in rows:
        print_row(backend, case["case"], case["dtype"], case, read,
                  f"{100 * case['share_of_stream']:6.1f} % {case['plan_us']:8.1f} "
                  f"{case['call_us']:8.1f}")
    for dtype in ("bf16", "fp8"):
        for name, results in peers.get(f"decode_{dtype}", {}).items():
            for peer, case in results.items():
                if "unavailable" in case:
                    print(f"{peer:10} {name:20} {dtype:5} {case['unavailable']}")
                else:
                    print_row(peer, name, dtype, case, read, f"{'-':>8} {'-':>8} {'-':>8}")
    for name, why in peers.get("ceilings", {}).get("unavailable", {}).items():
        print(f"{'ceiling':10} {name}: {why}")
    if any(is_late(case) for _, case in rows):
        print("* the host was slower than the device, so that part of the time is waiting")


def print_row(by, name, dtype, case, read, rest):
    share = f"{100 * case['gbps'] / read:6.1f} %" if read else "-"
    print(f"{by:10} {name:20} {dtype:5} {case['clock']:6} {case['milliseconds']:9.3f}"
          f"{'*' if is_late(case) else ' '} {case['gbps']:8.1f} {share:>8} {rest}")


def print_prefill(outcomes):
    """Prompts compared with a large matrix product of the device, and PyTorch's time for them."""
    peers = figures_of_peers(outcomes)
    rows = cases_of(outcomes, "prefill")
    if not rows:
        return
    print(f"\n{'by':10} {'tokens':>7} {'dtype':5} {'clock':6} {'ms':>9} {'TFLOP/s':>9} "
          f"{'of product':>10} {'plan us':>8} {'call us':>8}")
    product = peers.get("ceilings", {}).get("bf16_tflops")
    for backend, case in rows:
        print_prompt(backend, case["case"], case["dtype"], case, case["gflops"] / 1000, product,
                     f"{case['plan_us']:8.1f} {case['call_us']:8.1f}")
    for tokens, results in peers.get("prefill_bf16", {}).items():
        for peer, case in results.items():
            if "unavailable" in case:
                print(f"{peer:10} {tokens:>7} {'bf16':5} {case['unavailable']}")
            else:
                print_prompt(peer, tokens, "bf16", case, case["tflops"], product,
                             f"{'-':>8} {'-':>8}")


def print_prompt(by, tokens, dtype, case, tflops, product, rest):
    share = f"{100 * tflops / product:6.1f} %" if product else "-"
    print(f"{by:10} {tokens:>7} {dtype:5} {case['clock']:6} {case['milliseconds']:9.3f} "
          f"{tflops:9.3f} {share:>10} {rest}")


def print_sizes(outcomes):
    """Copies by the kernel and by the driver, for backends that have both."""
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
    """The measured version: the commit, if git or the pack knows it."""
    packed = ROOT / "version"
    if packed.exists():
        return packed.read_text().strip()
    git = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"],
                         capture_output=True, text=True) if shutil.which("git") else None
    return git.stdout.strip() if git and git.returncode == 0 else "unknown"


def driver():
    """The version of NVIDIA's driver, if its tool is installed."""
    tool = shutil.which("nvidia-smi")
    command = [tool, "--query-gpu=driver_version", "--format=csv,noheader"]
    said = subprocess.run(command, capture_output=True, text=True) if tool else None
    return said.stdout.split("\n")[0] if said and said.returncode == 0 else "unknown"


def minutes(text):
    value = float(text)
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError("must be a number above 0")
    return value


def show(result, outcomes, options):
    if options.json:
        print(json.dumps(result, indent=2))
    elif outcomes:
        names = [f"{name}: {', '.join(found)}" for name, found in result["devices"].items()
                 if found]
        print(f"{result['date']}, version {result['version']}, driver {result['driver']}\n"
              f"{'; '.join(names)}")
        if options.short:
            print("short run: its figures mean nothing")
        print_table(outcomes)


def packed(target):
    try:
        said, fits = pack.pack(BUILD, target, version())
    except (pack.Missing, OSError) as error:
        sys.exit(f"gpu: --pack {target}: {error}")
    print(said)
    return 0 if fits else 1


def main():
    parser = argparse.ArgumentParser(
        prog="./dev gpu", description="Runs everything that needs a real GPU, from a tree that was "
        "built before. The exit status is 0 if something passed and nothing failed.",
        epilog="example: ./dev gpu --out figures --minutes 9")
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR", help="gets gpu.json and gpu.log")
    parser.add_argument("--pack", type=pathlib.Path, metavar="TARGET",
                        help="run nothing: put what a run needs into this folder or .tar.gz")
    parser.add_argument("--backend", action="append", choices=VENDORS,
                        help="only this one; may be given again")
    parser.add_argument("--minutes", type=minutes, default=9, help="at most (9)")
    parser.add_argument("--short", action="store_true",
                        help="small shapes, only to check that it runs; the figures mean nothing")
    parser.add_argument("--json", action="store_true", help="one object instead of the table")
    parser.add_argument("--predict", action="store_true",
                        help="run nothing, and print what a model predicts for known GPUs: "
                        "--predict --help lists its options")
    if "--predict" in sys.argv[1:]:
        import predict      # a machine that only measures need not have it
        return predict.main([word for word in sys.argv[1:] if word != "--predict"])
    options = parser.parse_args()
    if not (BUILD / "tests" / "quire-conform").exists():
        sys.exit("gpu: nothing is built in build/release: run ./dev build, here or on a machine "
                 "with a compiler, and copy that tree here")
    if options.pack:
        return packed(options.pack)
    found = devices()
    if options.out:
        try:
            options.out.mkdir(parents=True, exist_ok=True)
            (options.out / "gpu.log").unlink(missing_ok=True)
        except OSError as error:
            sys.exit(f"gpu: --out {options.out}: {error.strerror}")
    outcomes = []
    result = {"date": time.strftime("%Y-%m-%d", time.gmtime()), "version": version(),
              "driver": driver(), "parts": [],
              "devices": {name: found.get(name, []) for name in VENDORS}}
    try:
        for _, outcome in run_parts(list(parts_of(found, options)), 60 * options.minutes, options):
            outcomes.append(outcome)
            result["parts"].append(dataclasses.asdict(outcomes[-1]))
            if options.out:     # a run that is stopped early leaves the results so far
                (options.out / "gpu.json").write_text(json.dumps(result, indent=2) + "\n")
    except KeyboardInterrupt:
        show(result, outcomes, options)
        print("interrupted", file=sys.stderr)
        return 130
    show(result, outcomes, options)
    if not outcomes:
        print(f"no device found for {', '.join(options.backend or VENDORS)}; `quire devices` "
              "says why", file=sys.stderr)
    counted = {outcome.outcome for outcome in outcomes}
    return 0 if "passed" in counted and "failed" not in counted else 1


if __name__ == "__main__":
    sys.exit(main())
