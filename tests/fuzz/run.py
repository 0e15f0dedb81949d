# SPDX-License-Identifier: Apache-2.0
"""run: lets libFuzzer look for inputs that break what the targets of tests/fuzz promise.

    run.py                          every target, one after another, three minutes each
    run.py ops log --minutes 20     these targets, longer
    run.py --merge                  keep what is new: shrinks the corpus of each target into corpus/
    run.py --json                   for programs

Each target starts from the kept inputs, corpus/TARGET, and from what earlier runs found in
build/fuzz/work/TARGET. An input that breaks a promise is put into build/fuzz/findings/TARGET; the
command that plays it again is printed. Exits with 1 if there is one. The target `canary` has a
planted bug: it fails if that is not found in CANARY_RUNS executions.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build" / "fuzz"
CANARY_RUNS = 200_000  # it took 3,000 to 39,000 in ten runs
# One input: more than its share is a finding too.
LIMITS = ["-timeout=30", "-rss_limit_mb=3000", "-max_len=4096", "-len_control=0"]
# A cache that was abandoned keeps its books until the process ends (abandon.h), so these targets
# run in pieces of so many executions, each in a process of its own.
PIECE_RUNS = {"backend": 800}
KEPT_BYTES = 12 << 10  # of one target's kept inputs
SANITIZERS = {"ASAN_OPTIONS": "detect_leaks=1:quarantine_size_mb=64",
              "UBSAN_OPTIONS": "print_stacktrace=1"}


def targets():
    """The names of the targets that are built."""
    return sorted(path.name.removeprefix("fuzz_") for path in (BUILD / "tests/fuzz").glob("fuzz_*")
                  if path.is_file() and os.access(path, os.X_OK))


def program_of(target):
    return BUILD / "tests" / "fuzz" / f"fuzz_{target}"


def folder(kind, target):
    path = BUILD / kind / target
    path.mkdir(parents=True, exist_ok=True)
    return path


def last(pattern, text, default=0):
    found = re.findall(pattern, text)
    return found[-1] if found else default


def read_log(text):
    """The figures of a run, from what libFuzzer printed."""
    runs = max(int(last(r"stat::number_of_executed_units: (\d+)", text)),
               int(last(r"(?m)^#(\d+)\s", text)))
    covered, features = last(r" cov: (\d+) ft: (\d+)", text, (0, 0))
    return {"executions": runs, "coverage": int(covered), "features": int(features),
            "corpus": int(last(r" corp: (\d+)/", text))}


def reason(text):
    """Why the run stopped, in one line; empty if it simply ended."""
    for pattern in (r"broken promise: .*", r".*runtime error: .*", r"SUMMARY: .*", r"ERROR: .*"):
        found = re.search(pattern, text)
        if found:
            return found.group(0).strip()[:200]
    return ""


def execute(target, limits, corpora):
    """One process of the target."""
    return subprocess.run(
        [program_of(target), *LIMITS, *limits, "-print_final_stats=1",
         f"-artifact_prefix={folder('findings', target)}/", *corpora],
        env={**os.environ, **SANITIZERS}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        errors="replace")


def fuzz_canary(work):
    for old in work.iterdir():  # from nothing, or there would be nothing to find
        old.unlink()
    process = execute("canary", [f"-runs={CANARY_RUNS}"], [work])
    return {**read_log(process.stderr), "failed": process.returncode == 0, "reason": "",
            "log": process.stderr}


def fuzz_pieces(target, seconds, corpora):
    """Runs the target until the time is over or a process fails."""
    executions, log, end = 0, "", time.monotonic() + seconds
    limits = [f"-runs={PIECE_RUNS[target]}"] if target in PIECE_RUNS else []
    while True:
        left = max(1, round(end - time.monotonic()))
        process = execute(target, [*limits, f"-max_total_time={left}"], corpora)
        figures = read_log(process.stderr)
        executions += figures["executions"]
        log += process.stderr
        failed = process.returncode != 0
        if failed or not limits or time.monotonic() >= end:
            return {**figures, "executions": executions, "failed": failed, "log": log,
                    "reason": reason(process.stderr) if failed else ""}


def fuzz(target, seconds):
    """Runs one target; its figures, and its findings."""
    findings = folder("findings", target)
    before = set(findings.iterdir())
    corpora = [folder("work", target)]
    kept = HERE / "corpus" / target
    if kept.is_dir():
        corpora.append(kept)
    began = time.monotonic()
    if target == "canary":
        result = fuzz_canary(corpora[0])
    else:
        result = fuzz_pieces(target, seconds, corpora)
    took = max(time.monotonic() - began, 1e-9)
    result.update(target=target, seconds=took, per_second=result["executions"] / took,
                  findings=sorted(str(path) for path in set(findings.iterdir()) - before))
    log = BUILD / "findings" / f"{target}.log"
    log.write_text(result.pop("log"), encoding="utf-8")
    return result


def merge(target):
    """Keeps the smallest inputs that reach what all known ones reach, up to KEPT_BYTES."""
    kept = HERE / "corpus" / target
    kept.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as fresh:
        subprocess.run([program_of(target), "-merge=1", *LIMITS, fresh, kept,
                        folder("work", target)], env={**os.environ, **SANITIZERS}, check=True,
                       stdin=subprocess.DEVNULL, capture_output=True)
        inputs = sorted(pathlib.Path(fresh).iterdir(), key=lambda path: path.stat().st_size)
        named = {path for path in kept.iterdir() if "-" in path.name}  # of a bug, kept for ever
        for old in set(kept.iterdir()) - named:
            old.unlink()
        total = sum(path.stat().st_size for path in named)
        for path in inputs:
            total += path.stat().st_size
            if total > KEPT_BYTES:
                break
            (kept / path.name[:16]).write_bytes(path.read_bytes())
    print(f"{target}: {len(list(kept.iterdir()))} inputs kept", file=sys.stderr)


def report(results):
    print(f"{'target':16}{'executions':>12}{'exec/s':>10}{'corpus':>8}{'coverage':>10}"
          f"{'features':>10}{'seconds':>9}  findings")
    for row in results:
        verdict = len(row["findings"])
        if row["target"] == "canary":
            verdict = "NOT FOUND" if row["failed"] else "the planted one"
        print(f"{row['target']:16}{row['executions']:12}{row['per_second']:10.0f}"
              f"{row['corpus']:8}{row['coverage']:10}{row['features']:10}{row['seconds']:9.0f}"
              f"  {verdict}")
    for row in results:
        if not row["failed"]:
            continue
        print(f"\n{row['target']}: {row['reason'] or 'failed'}")
        print(f"    log     {BUILD / 'findings' / row['target']}.log")
        for path in row["findings"]:
            print(f"    replay  {program_of(row['target'])} {path}")


def main():
    parser = argparse.ArgumentParser(prog="./dev fuzz", description=__doc__.split("\n")[0],
                                     epilog="example: ./dev fuzz ops log --minutes 20")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="default: all")
    parser.add_argument("--minutes", type=float, default=3, metavar="N",
                        help="for each target; default 3")
    parser.add_argument("--merge", action="store_true",
                        help="do not fuzz: shrink what was found into the kept inputs")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    known = targets()
    unknown = [name for name in options.targets if name not in known]
    if unknown:
        sys.exit(f"fuzz: there is no target '{unknown[0]}'; there are {', '.join(known)}")
    chosen = options.targets or known
    if options.merge:
        for target in chosen:
            if target != "canary":
                merge(target)
        return 0
    results = []
    for place, target in enumerate(chosen, 1):
        print(f"{place} of {len(chosen)}: {target} ...", file=sys.stderr, flush=True)
        row = fuzz(target, max(1, round(options.minutes * 60)))
        results.append(row)
        print(f"    {row['executions']} executions, {row['coverage']} branches, "
              f"{'FAILED' if row['failed'] else 'as expected'}", file=sys.stderr, flush=True)
    if options.json:
        print(json.dumps(results, indent=1))
    else:
        report(results)
    return 1 if any(row["failed"] for row in results) else 0


if __name__ == "__main__":
    sys.exit(main())
