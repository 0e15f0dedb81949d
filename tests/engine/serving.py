# SPDX-License-Identifier: Apache-2.0
"""serving: the example engine as a user runs it: its output, its counters and its refusals.

    serving.py ENGINE WEIGHTS_FOLDER CASE

Each case is one test. A case that needs the trained model exits 77 if it is not in the folder
that QUIRE_WEIGHTS names, or else in WEIGHTS_FOLDER.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

SKIPPED = 77
# 256 tokens are 16 blocks of 16, so this pool holds one and a half of the golden story.
TIGHT_POOL = ["--pool-blocks", "24", "--block-tokens", "16"]
IN_ONE_PROCESS = ["--tp", "2"]
IN_PROCESSES = ["--tp", "2", "--processes"]


class Engine:
    def __init__(self, program, folder):
        self.program = program
        self.folder = pathlib.Path(os.environ.get("QUIRE_WEIGHTS") or folder)

    def run(self, *options, **variables):
        return subprocess.run([self.program, *options], capture_output=True, timeout=300,
                              env={**os.environ, **variables})

    def trained(self):
        weights = self.folder / "stories260K.bin"
        if not weights.exists():
            print(f"no stories260K.bin in {self.folder}; name its folder with QUIRE_WEIGHTS")
            sys.exit(SKIPPED)
        return ["--weights", str(weights), "--tokenizer", str(self.folder / "tok512.bin")]

    def golden(self):
        self.trained()  # or the case is skipped
        return (self.folder / "stories260K_greedy_256.txt").read_bytes()

    def story(self, *options, **variables):
        return self.run(*self.trained(), "--prompt", "", "--steps", "256", "--temperature", "0",
                        *options, **variables)

    def workload(self, *options):
        """The table of the built-in workload, which must have succeeded."""
        result = self.run("--json", *options)
        expect(result.returncode == 0, result.stderr.decode() + result.stdout.decode())
        return json.loads(result.stdout)


def expect(condition, message):
    if not condition:
        print(f"FAILED: {message}")
        sys.exit(1)


def golden_story(engine):
    for options in ([], ["--block-tokens", "16"], ["--block-tokens", "64"],
                    ["--block-tokens", "8"], ["--block-tokens", "1", "--pool-blocks", "300"]):
        result = engine.story(*options)
        expect(result.returncode == 0, result.stderr.decode())
        expect(result.stdout == engine.golden(), f"{options} tell another story")


def golden_story_with_f16(engine):
    for options in ([], ["--block-tokens", "64"], ["--block-tokens", "1", "--pool-blocks", "300"],
                    ["--samples", "8", *TIGHT_POOL, "--preempt", "recompute"]):
        result = engine.story("--kv-dtype", "f16", *options)
        expect(result.returncode == 0, result.stderr.decode())
        copies = 8 if "--samples" in options else 1
        expect(result.stdout == copies * engine.golden(), f"{options} tell another story in f16")


def golden_story_with_f16_queries(engine):
    """Rounded queries, and heads with zeros after their own 8 elements, tell the same story."""
    rounded = ["--q-dtype", "f16"]
    for options in (["--pad-heads", "64"], rounded, [*rounded, "--pad-heads", "64"],
                    [*rounded, "--kv-dtype", "f16", "--pad-heads", "9", *IN_ONE_PROCESS],
                    [*rounded, "--pad-heads", "128", *IN_PROCESSES],
                    [*rounded, "--pad-heads", "64", "--migrate-to", "cpu@40/2"],
                    [*rounded, "--pad-heads", "64", "--samples", "8", *TIGHT_POOL, "--preempt",
                     "swap"],
                    ["--pad-heads", "16", "--samples", "8", *TIGHT_POOL, "--check"]):
        result = engine.story(*options)
        expect(result.returncode == 0, result.stderr.decode())
        copies = 8 if "--samples" in options else 1
        expect(result.stdout == copies * engine.golden(), f"{options} tell another story")


def bf16_queries_tell_one_story(engine):
    rounded = ["--q-dtype", "bf16", "--kv-dtype", "bf16"]
    alone = engine.story(*rounded)
    expect(alone.returncode == 0, alone.stderr.decode())
    expect(alone.stdout.split()[:8] == engine.golden().split()[:8],
           f"bf16 begins otherwise: {alone.stdout[:80]}")
    for options in (["--pad-heads", "64"], IN_ONE_PROCESS, IN_PROCESSES):
        result = engine.story(*rounded, *options)
        expect(result.returncode == 0, result.stderr.decode())
        expect(result.stdout == alone.stdout, f"{options} tell another story")


def samples_under_pressure(engine, how, *options):
    result = engine.story("--samples", "8", *TIGHT_POOL, "--preempt", how, "--check", "--json",
                          *options)
    expect(result.returncode == 0, result.stderr.decode())
    expect(result.stdout == 8 * engine.golden(), "a sample tells a different story")
    table = json.loads(result.stderr)
    expect(table["equal_texts"] == 8 and table["ties"] == 0, table)
    expect(table["forks"] == 7, table)
    kinds = {"swap": table["preemptions_swap"], "recompute": table["preemptions_recompute"]}
    expect(kinds[how] >= 10, table)
    expect(sum(kinds.values()) == kinds[how] == table["num_preemptions"], table)


def samples_swap(engine):
    samples_under_pressure(engine, "swap")


def samples_recompute(engine):
    samples_under_pressure(engine, "recompute")


def rounded_story_is_the_same_under_pressure(engine):
    for dtype in ("f16", "bf16", "fp8", "fp8-e5m2", "int8", "int4"):
        alone = engine.story("--kv-dtype", dtype)
        expect(alone.returncode == 0 and len(alone.stdout) > 400, alone.stderr.decode())
        # From f16 to 4 bits ever fewer words of the story stay the same.
        words = 1 if dtype == "int4" else 8
        expect(alone.stdout.split()[:words] == engine.golden().split()[:words],
               f"{dtype} begins otherwise: {alone.stdout[:80]}")
        result = engine.story("--kv-dtype", dtype, "--samples", "8", *TIGHT_POOL, "--preempt",
                              "swap", "--json")
        expect(result.returncode == 0, result.stderr.decode())
        table = json.loads(result.stderr)
        expect(table["preemptions_swap"] >= 10 and table["forks"] == 7, table)
        expect(result.stdout == 8 * alone.stdout,
               f"{dtype}: a swapped sample tells a different story")


def measured_scales_tell_the_story(engine):
    with tempfile.TemporaryDirectory() as folder:
        file = str(pathlib.Path(folder) / "story.cal")
        measured = engine.story("--calibrate", file)
        expect(measured.returncode == 0 and measured.stdout == engine.golden(),
               "measuring changes nothing: " + measured.stderr.decode())
        over_ranks = str(pathlib.Path(folder) / "ranks.cal")
        engine.story("--calibrate", over_ranks, *IN_ONE_PROCESS)
        expect(pathlib.Path(file).read_bytes() == pathlib.Path(over_ranks).read_bytes(),
               "two devices measure what one does")
        for dtype, scale in (("int8", "tensor"), ("int8", "head"), ("fp8", "tensor"),
                             ("fp8-e5m2", "head"), ("int4", "head")):
            kept = ["--kv-dtype", dtype, "--kv-scale", scale, "--calibration", file]
            alone = engine.story(*kept)
            words = 1 if dtype == "int4" else 8
            expect(alone.returncode == 0, alone.stderr.decode())
            expect(alone.stdout.split()[:words] == engine.golden().split()[:words],
                   f"{kept} begins otherwise: {alone.stdout[:80]}")
            for how in (IN_ONE_PROCESS, IN_PROCESSES):
                result = engine.story(*kept, *how)
                expect(result.stdout == alone.stdout, f"{kept} {how}: {result.stderr.decode()}")
        damaged = pathlib.Path(folder) / "damaged.cal"
        damaged.write_bytes(pathlib.Path(file).read_bytes()[:-1])
        kept = ["--kv-dtype", "int8", "--kv-scale", "head", "--calibration"]
        refused(engine, 1, "damaged calibration", *engine.trained(), "--prompt", "", *kept,
                str(damaged))
        refused(engine, 1, "another model", *kept, file)  # of the model made from a seed
        refused(engine, 1, "--calibrate", *kept, str(pathlib.Path(folder) / "none.cal"))


def golden_story_over_devices(engine, *how):
    for ranks in ("2", "4", "8"):  # the model has 4 KV heads: 8 ranks hold each one twice
        for options in ([], ["--block-tokens", "1", "--pool-blocks", "300"]):
            result = engine.story("--tp", ranks, *how, *options)
            expect(result.returncode == 0, result.stderr.decode())
            expect(result.stdout == engine.golden(), f"{ranks} ranks tell another story")


def golden_story_over_devices_in_one_process(engine):
    golden_story_over_devices(engine)


def golden_story_over_devices_in_processes(engine):
    golden_story_over_devices(engine, "--processes")


def samples_over_devices(engine):
    for how in (IN_ONE_PROCESS, IN_PROCESSES):
        for preempt in ("swap", "recompute"):
            samples_under_pressure(engine, preempt, *how)


def one_kv_head_on_both_devices(engine):
    for how in (IN_ONE_PROCESS, IN_PROCESSES):
        result = engine.run("--kv-heads", "1", "--prompt", "Tell me", "--steps", "60",
                            "--samples", "4", "--temperature", "1", "--check", "--json", *how)
        expect(result.returncode == 0, result.stderr.decode())
        expect(json.loads(result.stderr)["equal_texts"] == 4, result.stderr.decode())


def workload_over_devices(engine):
    for how in (IN_ONE_PROCESS, IN_PROCESSES):
        table = engine.workload(*how)
        expect(table["requests"] == 36 and table["equal_texts"] == table["texts"], table)
        for key in ("prefix_cache_hits", "forks", "copies_on_write", "num_preemptions"):
            expect(table[key] > 0, f"{how}: {key}: {table}")


def a_log_that_goes_wrong_stops_the_run(engine):
    for fault, words in (("damage", "damaged log: its checksum"),
                         ("repeat", "repeated log: number 2 was already applied"),
                         ("drop", "missing log: number 3 is next, but this is 4")):
        result = engine.run("--prompt", "Tell me", *IN_PROCESSES, "--log-fault", fault)
        shown = f"{fault}: {result.returncode}, {result.stderr.decode()}"
        expect(result.returncode == 1 and result.stdout == b"", shown)
        expect("rank 1: quire_log_apply: " + words in result.stderr.decode(), shown)


def ranks_end_with_the_first(engine):
    process = subprocess.Popen([engine.program, "--tp", "4", "--processes", "--no-check"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    process.stderr.read(1)  # a progress line: the ranks are running
    children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
    ranks = [int(rank) for rank in children.read_text().split()]
    expect(len(ranks) == 3, f"the engine has {len(ranks)} children")
    process.send_signal(signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + 20
    while any(is_running(rank) for rank in ranks):
        expect(time.monotonic() < deadline, "a rank outlives its leader")
        time.sleep(0.01)


def is_running(process):
    try:
        state = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def prompt_in_chunks(engine):
    prompt = "Tom and Lily went to the park. They saw a big dog."
    texts = set()
    for chunk in ("1", "7", "64"):
        result = engine.run(*engine.trained(), "--prompt", prompt, "--steps", "128",
                            "--chunk", chunk, "--check")
        expect(result.returncode == 0, result.stderr.decode())
        texts.add(result.stdout)
    expect(len(texts) == 1, "the size of a chunk changed the text")


def trained_workload(engine):
    table = engine.workload(*engine.trained(), "--pool-blocks", "64")
    expect(table["passed"], table)


def sampled_texts_differ_and_equal_the_dense_run(engine):
    result = engine.run("--prompt", "Tell me", "--steps", "60", "--temperature", "1",
                        "--samples", "4", "--check", "--json")
    expect(result.returncode == 0, result.stderr.decode())
    expect(json.loads(result.stderr)["equal_texts"] == 4, result.stderr.decode())


def workload(engine):
    table = engine.workload()
    expect(table["requests"] == 36 and table["equal_texts"] == table["texts"], table)
    for key in ("prefix_cache_hits", "forks", "copies_on_write", "num_preemptions"):
        expect(table[key] > 0, f"{key}: {table}")
    expect(table["worst_wasted_slots"] < table["block_tokens"], table)
    expect(table["peak_held_blocks"] < table["peak_contiguous_blocks"], table)


def workload_recomputed(engine):
    for options in (["--preempt", "recompute"], ["--host-bytes", "0"]):
        table = engine.workload(*options)
        expect(table["equal_texts"] == table["texts"], f"{options}: {table}")
        expect(table["preemptions_recompute"] > 0 and table["preemptions_swap"] == 0, table)


def workload_whatever_the_options(engine):
    for options in (["--preempt", "swap", "--pool-blocks", "64"], ["--preempt", "recompute"],
                    ["--block-tokens", "8", "--pool-blocks", "200"],
                    ["--block-tokens", "64", "--pool-blocks", "12"],
                    ["--chunk", "5", "--max-batch", "3"], ["--chunk", "1000"],
                    ["--pool-blocks", "32", "--max-batch", "40"], ["--pool-blocks", "2000"],
                    *(["--seed", str(seed)] for seed in range(2, 12))):
        table = engine.workload(*options)
        expect(table["passed"] and table["equal_texts"] == table["texts"], f"{options}: {table}")


def faults_change_the_text(engine):
    for fault in ("zero-attention", "wrong-block"):
        result = engine.run("--fault", fault, "--json")
        expect(result.returncode == 1, f"{fault} went unnoticed")
        expect(json.loads(result.stdout)["mismatches"], fault)


def faults_change_the_story(engine):
    for fault in ("zero-attention", "wrong-block"):
        result = engine.story("--fault", fault)
        expect(result.returncode == 0, result.stderr.decode())
        expect(result.stdout != engine.golden(), f"{fault} told the same story")


def refused(engine, status, words, *options):
    result = engine.run(*options)
    shown = f"{options}: {result.returncode}, {result.stderr.decode()}"
    expect(result.returncode == status, shown)
    expect(words in result.stderr.decode(), shown)
    expect(result.stdout == b"", shown)


def mistakes_are_explained(engine):
    refused(engine, 2, "--pool-blocks", "--pool-blocks", "0")
    refused(engine, 2, "--block-tokens", "--block-tokens", "12")
    refused(engine, 2, "--preempt", "--preempt", "sometimes")
    refused(engine, 2, "--steps", "--steps", "5")
    refused(engine, 2, "--tokenizer", "--weights", "model.bin")
    refused(engine, 2, "surplus", "surplus")
    refused(engine, 2, "--device", "--device", "cpu:one")
    refused(engine, 2, "--host-bytes", "--preempt", "swap", "--host-bytes", "0")
    refused(engine, 2, "--kv-dtype", "--kv-dtype", "int9")
    refused(engine, 2, "--check", "--kv-dtype", "int8", "--check")
    refused(engine, 2, "--q-dtype", "--q-dtype", "int8")
    refused(engine, 2, "--q-dtype f32", "--q-dtype", "f16", "--check")
    refused(engine, 2, "--pad-heads", "--pad-heads", "0")
    refused(engine, 1, "the model's heads have 32 elements", "--pad-heads", "31")
    refused(engine, 1, "the model's heads have 32 elements", "--pad-heads", "31", *IN_PROCESSES)
    refused(engine, 2, "has no scales", "--kv-scale", "head")
    refused(engine, 2, "--calibrate FILE", "--kv-dtype", "int8", "--kv-scale", "head")
    refused(engine, 2, "--calibration", "--kv-dtype", "int8", "--calibration", "a.cal")
    refused(engine, 2, "--calibrate", "--kv-dtype", "int8", "--calibrate", "a.cal")
    refused(engine, 2, "--processes", "--calibrate", "a.cal", *IN_PROCESSES)
    refused(engine, 1, "cannot be written", "--no-check", "--calibrate", "/nowhere/a.cal")
    refused(engine, 2, "--tp", "--processes")
    refused(engine, 2, "--tp", "--tp", "0")
    refused(engine, 2, "--processes", "--tp", "2", "--log-fault", "drop")
    refused(engine, 1, "cannot be divided evenly", "--tp", "3")
    refused(engine, 1, "does not divide", "--kv-heads", "3")
    refused(engine, 1, "abacus", "--device", "abacus")
    refused(engine, 1, "abacus", "--device", "abacus", *IN_PROCESSES)
    refused(engine, 1, "cannot be read", "--weights", "/nowhere/a", "--tokenizer", "/nowhere/b")
    refused(engine, 1, "--pool-blocks", "--pool-blocks", "4", "--prompt", "hello")
    refused(engine, 1, "longest sequence is 512", "--prompt", "x" * 600)
    refused(engine, 1, "longest sequence is 512", "--prompt", "x" * 100000)


def damaged_files_are_refused(engine):
    weights, tokenizer = engine.trained()[1::2]
    whole = pathlib.Path(weights).read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        damaged = pathlib.Path(folder) / "damaged.bin"
        for content, words in ((whole[:500000], "truncated inside tensor"),
                               (whole + b"!", "after its last tensor"),
                               (b"GGUF" + whole[4:], "GGUF")):
            damaged.write_bytes(content)
            refused(engine, 1, words, "--weights", str(damaged), "--tokenizer", tokenizer)
        damaged.write_bytes(pathlib.Path(tokenizer).read_bytes()[:1000])
        refused(engine, 1, "truncated at token", "--weights", weights,
                "--tokenizer", str(damaged))


def missing_library_is_explained(engine):
    environment = {**os.environ, "QUIRE_LIBRARY": "/nowhere/libquire.so.0"}
    result = subprocess.run([engine.program], capture_output=True, timeout=60, env=environment)
    expect(result.returncode == 1 and b"/nowhere/libquire.so.0" in result.stderr, result.stderr)


def moved(table, count):
    """The table's migrations, after checking that they recomputed nothing."""
    moves = table["migrations"]
    expect(len(moves) == count and table["repeated_tokens"] == 0, table)
    for move in moves:
        expect(move["bytes_moved"] >= move["live_bytes"] > 0 and move["blocks_moved"] > 0, move)
    return moves


def golden_story_on_the_move(engine):
    for options in (["--migrate-to", "cpu"], ["--migrate-to", "cpu@20/2", "--tp", "4"],
                    ["--migrate-to", "cpu@18", "--migrate-to", "cpu@64/2", "--migrate-to",
                     "cpu/4", "--migrate-to", "cpu@32"]):
        result = engine.story(*options, "--check", "--json")
        expect(result.returncode == 0, result.stderr.decode())
        expect(result.stdout == engine.golden(), f"{options} tell another story")
        moved(json.loads(result.stderr), options.count("--migrate-to"))
    kept = ["--kv-dtype", "int8", "--migrate-to", "cpu@40/2", "--migrate-to", "cpu@24"]
    expect(engine.story(*kept).stdout == engine.story(*kept[:2]).stdout, "int8 on the move")


def samples_on_the_move(engine):
    result = engine.story("--samples", "8", *TIGHT_POOL, "--preempt", "swap", "--check", "--json",
                          "--migrate-every", "80", "--migrate-to", "cpu", "--migrate-to",
                          "cpu@22/2", "--migrate-to", "cpu@26")
    expect(result.returncode == 0, result.stderr.decode())
    expect(result.stdout == 8 * engine.golden(), "a sample on the move tells a different story")
    table = json.loads(result.stderr)
    expect(table["preemptions_swap"] >= 10, table)
    first, *others = moved(table, 3)
    # Same shards on the same backend: the host tier is handed over. Other shards: it is copied.
    expect(first["host_blocks_kept"] > 0 and first["host_blocks_copied"] == 0, first)
    expect(others[0]["host_blocks_copied"] > 0 and others[0]["host_blocks_kept"] == 0, others)


def workload_on_the_move(engine):
    table = engine.workload("--migrate-to", "cpu@96", "--migrate-to", "cpu@128/2",
                            "--migrate-to", "cpu")
    expect(table["passed"] and table["equal_texts"] == 56, table)
    first = moved(table, 3)[0]
    expect(first["blocks_dropped"] > 0, first)


def moves_that_cannot_be_are_explained(engine):
    refused(engine, 2, "DEVICE@BLOCKS", "--migrate-to", "cpu@1")
    refused(engine, 2, "DEVICE@BLOCKS", "--migrate-to", "@64")
    refused(engine, 2, "excludes", "--tp", "2", "--processes", "--migrate-to", "cpu")
    refused(engine, 1, "nowhere", "--migrate-to", "nowhere@64", "--no-check")
    # Refused before the first step, although the migration would come much later.
    refused(engine, 1, "no backend nowhere", "--migrate-to", "nowhere@64", "--no-check",
            "--migrate-every", "1000000")
    refused(engine, 1, "no device cpu:7", "--migrate-to", "cpu:7", "--no-check",
            "--migrate-every", "1000000")
    refused(engine, 1, "divided evenly", "--migrate-to", "cpu/5", "--no-check",
            "--migrate-every", "1000000")
    refused(engine, 1, "ended before", "--migrate-to", "cpu@64", "--migrate-every", "100000",
            "--no-check")


def on_vulkan(engine):
    """The options, if there is a device."""
    result = engine.run("--device", "vulkan", "--prompt", "Tell", "--steps", "1")
    if b"device count is 0" in result.stderr:
        print("vulkan has no device here: mesa-vulkan-drivers")
        sys.exit(SKIPPED)
    return ["--device", "vulkan"]


def golden_story_on_vulkan(engine):
    for options in (["--block-tokens", "64"], ["--kv-dtype", "f16"]):
        result = engine.story(*on_vulkan(engine), *options)
        expect(result.returncode == 0, result.stderr.decode())
        expect(result.stdout == engine.golden(), f"{options} tell another story")


def samples_on_vulkan(engine):
    for how in ("swap", "recompute"):
        result = engine.story("--samples", "2", *TIGHT_POOL, "--preempt", how, "--check", "--json",
                              *on_vulkan(engine))
        expect(result.returncode == 0, result.stderr.decode())
        expect(result.stdout == 2 * engine.golden(), "a sample tells a different story")
        table = json.loads(result.stderr)
        expect(table["forks"] == 1 and table["copies_on_write"] > 0, table)
        expect(table["equal_texts"] == 2 and table[f"preemptions_{how}"] > 0, table)


def workload_on_vulkan(engine):
    table = engine.workload(*on_vulkan(engine))
    expect(table["requests"] == 36 and table["equal_texts"] == table["texts"], table)
    for key in ("prefix_cache_hits", "forks", "copies_on_write", "num_preemptions"):
        expect(table[key] > 0, f"{key}: {table}")


def golden_story_between_cpu_and_vulkan(engine):
    on_vulkan(engine)
    for options in (["--migrate-to", "vulkan@20", "--migrate-to", "cpu@64"],
                    ["--device", "vulkan", "--migrate-to", "cpu@40/2"]):
        result = engine.story(*options, "--check", "--json")
        expect(result.returncode == 0, result.stderr.decode())
        expect(result.stdout == engine.golden(), f"{options} tell another story")
        moved(json.loads(result.stderr), options.count("--migrate-to"))


def samples_between_cpu_and_vulkan(engine):
    """Some sequences are swapped out, and one plugin's host tier is copied to another's."""
    on_vulkan(engine)
    result = engine.story("--samples", "8", *TIGHT_POOL, "--preempt", "swap", "--check", "--json",
                          "--migrate-every", "80", "--migrate-to", "vulkan", "--migrate-to", "cpu")
    expect(result.returncode == 0, result.stderr.decode())
    expect(result.stdout == 8 * engine.golden(), "a sample on the move tells a different story")
    table = json.loads(result.stderr)
    expect(table["preemptions_swap"] > 0 and table["forks"] > 0, table)
    copied = [move["host_blocks_copied"] for move in moved(table, 2)]
    expect(sum(copied) > 0, f"no sequence was swapped out: {copied}")


def golden_story_on(engine, device):
    result = engine.story("--device", device, "--kv-dtype", "f16")
    expect(result.returncode == 0, result.stderr.decode())
    expect(result.stdout == engine.golden(), f"{device} tells a different story")


def golden_story_on_cuda(engine):
    golden_story_on(engine, "cuda")


def golden_story_on_hip(engine):
    golden_story_on(engine, "hip")


def golden_story_by(engine, kernels, device, head_dim, **variables):
    """With 16-bit queries; these kernels, and no others, compute attention in each of 5 layers."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "launches.json"
        result = engine.story("--device", device, "--kv-dtype", "f16", "--q-dtype", "f16",
                              "--pad-heads", head_dim, **variables, FAKEGPU_LAUNCHES=str(file))
        expect(result.returncode == 0, result.stderr.decode())
        expect(result.stdout == engine.golden(), f"{device} tells a different story")
        launches = json.loads(file.read_text())
    served = {kernel: count for kernel, count in launches.items()
              if kernel.startswith(("quire_attend", "quire_decode", "quire_reduce"))}
    expect(served == dict.fromkeys(kernels, 5 * 256), f"not {kernels} alone: {launches}")


def golden_story_by_decode_kernels_on_cuda(engine):
    golden_story_by(engine, ["quire_decode_f16_64"], "cuda", "64")


def golden_story_by_decode_kernels_for_long_heads_on_cuda(engine):
    golden_story_by(engine, ["quire_decode_f16_128"], "cuda", "128")


def golden_story_by_plain_kernels_on_cuda(engine):
    golden_story_by(engine, ["quire_attend_fragments", "quire_reduce"], "cuda", "64",
                    QUIRE_GPU_ATTENTION="plain")


def golden_story_by_plain_kernels_on_hip(engine):
    """HIP has no decode kernels; once it has some, they must be named here."""
    golden_story_by(engine, ["quire_attend_fragments", "quire_reduce"], "hip", "64")


def samples_swapped_on(engine, device):
    result = engine.story("--samples", "2", *TIGHT_POOL, "--preempt", "swap", "--check", "--json",
                          "--device", device)
    expect(result.returncode == 0, result.stderr.decode())
    expect(result.stdout == 2 * engine.golden(), "a sample tells a different story")
    table = json.loads(result.stderr)
    expect(table["forks"] == 1 and table["copies_on_write"] > 0, table)
    expect(table["equal_texts"] == 2 and table["preemptions_swap"] > 0, table)


def samples_swapped_on_cuda(engine):
    samples_swapped_on(engine, "cuda")


def samples_swapped_on_hip(engine):
    samples_swapped_on(engine, "hip")


def golden_story_between_all_vendors(engine):
    on_vulkan(engine)
    stations = ["cuda@40", "hip@24", "cuda@32", "vulkan@32", "hip@40", "vulkan@24", "cpu@48/2"]
    options = [word for station in stations for word in ("--migrate-to", station)]
    result = engine.story(*options, "--migrate-every", "30", "--check", "--json")
    expect(result.returncode == 0, result.stderr.decode())
    expect(result.stdout == engine.golden(), f"{options} tell another story")
    moved(json.loads(result.stderr), len(stations))


CASES = [golden_story, golden_story_with_f16, golden_story_with_f16_queries,
         bf16_queries_tell_one_story, samples_swap, samples_recompute, prompt_in_chunks,
         golden_story_over_devices_in_one_process, golden_story_over_devices_in_processes,
         one_kv_head_on_both_devices, a_log_that_goes_wrong_stops_the_run, ranks_end_with_the_first,
         sampled_texts_differ_and_equal_the_dense_run, workload, faults_change_the_story,
         mistakes_are_explained, golden_story_on_the_move, samples_on_the_move,
         moves_that_cannot_be_are_explained, damaged_files_are_refused,
         missing_library_is_explained]
LONG_CASES = [trained_workload, rounded_story_is_the_same_under_pressure,
              measured_scales_tell_the_story, samples_over_devices, workload_over_devices,
              workload_recomputed, faults_change_the_text, workload_on_the_move]
EXTENDED_CASES = [workload_whatever_the_options]  # minutes
VULKAN_CASES = [golden_story_on_vulkan, samples_on_vulkan, golden_story_between_cpu_and_vulkan,
                samples_between_cpu_and_vulkan]
VULKAN_EXTENDED_CASES = [workload_on_vulkan]
CUDA_CASES = [golden_story_on_cuda, golden_story_by_decode_kernels_on_cuda,
              golden_story_by_decode_kernels_for_long_heads_on_cuda,
              golden_story_by_plain_kernels_on_cuda, samples_swapped_on_cuda]
HIP_CASES = [golden_story_on_hip, golden_story_by_plain_kernels_on_hip, samples_swapped_on_hip]
GPU_CASES = [golden_story_between_all_vendors]
LISTS = {"--list": CASES, "--list-long": LONG_CASES, "--list-extended": EXTENDED_CASES,
         "--list-vulkan": VULKAN_CASES, "--list-vulkan-extended": VULKAN_EXTENDED_CASES,
         "--list-cuda": CUDA_CASES, "--list-hip": HIP_CASES, "--list-gpu": GPU_CASES}


def main(lists):
    if len(sys.argv) == 2 and sys.argv[1].startswith("--list"):
        print("\n".join(case.__name__ for case in lists.get(sys.argv[1], [])))
        return
    program, folder, name = sys.argv[1:]
    {case.__name__: case for case in sum(lists.values(), [])}[name](Engine(program, folder))


if __name__ == "__main__":
    main(LISTS)
