# SPDX-License-Identifier: Apache-2.0
"""concurrent: a concurrent replay hits, preempts and keeps the same tokens as the model, exactly.

    concurrent.py QUIRE SOURCE_ROOT short|whole

Generated traces are always tried. The conversation trace of kvcache-ai/Mooncake (FAST'25,
Apache-2.0) is looked for in QUIRE_TRACES, else beside the project in shared/traces: its first
requests, or all.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import concurrent_model
from program import QUIRE, expect, run


def compare(trace, blocks, running, limit=None):
    arguments = [QUIRE, "replay", str(trace), "--mode", "concurrent", "--blocks", str(blocks),
                 "--running", str(running), "--limit", str(limit or 0), "--json"]
    process = subprocess.run(arguments, capture_output=True, text=True, check=True,
                             stdin=subprocess.DEVNULL)
    result = json.loads(process.stdout)
    model = concurrent_model.replay(concurrent_model.read(trace, limit), blocks, running)
    got = tuple(result[key] for key in ("hit_tokens", "resumed_hit_tokens", "preemptions",
                                        "cached_blocks"))
    wanted = (model.hits, model.resumed_hits, model.preemptions, len(model.cached))
    print(f"{trace.name}, {blocks} blocks, {running} running: {got[0]} tokens hit, {got[1]} by "
          f"resumed requests, {got[2]} preemptions, {got[3]} blocks cached, "
          f"{result['manager_seconds']:.2f} s")
    expect(got == wanted, f"the model says {wanted}")
    return result


def made_traces(folder):
    preemptions = hits = 0
    for seed in range(1, 7):
        trace = folder / f"made-{seed}.jsonl"
        code, _, err = run("trace", "--requests", 300, "--seed", seed, "--output", trace)
        expect(code == 0, err)
        result = compare(trace, 2_500, 4 * seed)
        preemptions += result["preemptions"]
        hits += result["hit_tokens"] + result["resumed_hit_tokens"]
    expect(preemptions > 20 and hits > 100_000, "the made traces preempt and hit")
    lengths = folder / "made.csv"
    code, _, err = run("trace", "--kind", "azure", "--requests", 300, "--output", lengths)
    expect(code == 0, err)
    result = compare(lengths, 1_500, 12)
    expect(result["hit_tokens"] == 0 and result["resumed_hit_tokens"] > 0,
           "only a preempted request finds something: its own blocks")


def conversation_trace(source_root, whole):
    shared = pathlib.Path(source_root).parent / "shared" / "traces"
    folder = pathlib.Path(os.environ.get("QUIRE_TRACES") or shared)
    trace = folder / "mooncake_fast25_conversation_trace.jsonl"
    if not trace.exists():
        print(f"skipped: no {trace.name} in QUIRE_TRACES or ../shared/traces")
        return
    if whole:
        compare(trace, 65_536, 64)
    else:
        compare(trace, 16_384, 64, limit=300)
        compare(trace, 12_000, 16, limit=600)


with tempfile.TemporaryDirectory() as name:
    made_traces(pathlib.Path(name))
conversation_trace(sys.argv[2], sys.argv[3] == "whole")
