# SPDX-License-Identifier: Apache-2.0
"""levels: `quire replay` with a store below the cache finds on each level what the model finds.

    levels.py QUIRE SOURCE_ROOT

Generated traces are always tried. The conversation trace of kvcache-ai/Mooncake (FAST'25,
Apache-2.0) is looked for in QUIRE_TRACES, else beside the project in shared/traces: its first
requests.
"""

import json
import os
import pathlib
import sys
import tempfile

import concurrent_model
import levels_model
from program import expect, refuses, run

BLOCKS = 2_500          # of the device: far fewer than the prompts of a trace
UNBOUNDED = 200_000     # more than all blocks of a made trace


def replay(trace, *arguments, blocks=BLOCKS):
    code, out, err = run("replay", trace, "--blocks", blocks, *arguments, "--json")
    expect(code == 0, err)
    return json.loads(out)


def compare(trace, store_blocks, write="through", blocks=BLOCKS, limit=None):
    result = replay(trace, "--disk-blocks", store_blocks, "--disk-write", write,
                    "--limit", limit or 0, blocks=blocks)
    model = levels_model.replay(concurrent_model.read(trace, limit), blocks, store_blocks, write)
    block = concurrent_model.BLOCK
    got = tuple(result[key] for key in (
        "device_hit_tokens", "disk_hit_tokens", "disk_loads", "disk_read_blocks",
        "disk_written_blocks", "disk_evicted_blocks", "disk_cached_blocks"))
    wanted = (model.on_device * block, model.on_disk * block, model.loads, model.on_disk,
              model.store.written, model.store.evicted, len(model.store.names))
    print(f"{trace.name}, {blocks} blocks, {store_blocks} in a store, {write}: {got[0]} tokens "
          f"found on the device, {got[1]} in the store, {got[4]} blocks written, {got[5]} evicted")
    expect(got == wanted, f"the model says {wanted}, not {got}")
    expect(result["hit_tokens"] == got[0] + got[1], "every hit is of one level")
    expect(result["disk_unwritten_blocks"] == result["disk_loads_short"] == 0, "nothing is lost")
    return result


def store_agrees_with_the_model(folder):
    read = evicted = 0
    for seed in range(1, 4):
        trace = folder / f"made-{seed}.jsonl"
        expect(run("trace", "--requests", 300, "--seed", seed, "--output", trace)[0] == 0, "trace")
        endless = replay(trace, blocks=UNBOUNDED)
        alone = replay(trace)
        for store_blocks in (UNBOUNDED, 30_000, 3_000):
            result = compare(trace, store_blocks)
            read += result["disk_read_blocks"]
            evicted += result["disk_evicted_blocks"]
            expect(result["device_hit_tokens"] == alone["hit_tokens"], "a load costs no hit")
            if store_blocks == UNBOUNDED:
                expect(result["hit_tokens"] == endless["hit_tokens"],
                       "whatever was computed once is found")
        compare(trace, UNBOUNDED, write="selective")
    expect(read > 100_000 and evicted > 100_000, "the made traces load and evict")


# Loads make cached blocks of the host tier give way, so only the sum over the levels is determined.
def three_levels_find_everything(folder):
    trace = folder / "made-1.jsonl"
    endless = replay(trace, blocks=UNBOUNDED)
    for host_blocks in (3_000, 10_000):
        host = replay(trace, "--host-blocks", host_blocks)
        all_three = ("--host-blocks", host_blocks, "--disk-blocks", UNBOUNDED)
        result = replay(trace, *all_three)
        levels = [result[f"{level}_hit_tokens"] for level in ("device", "host", "disk")]
        print(f"{BLOCKS} + {host_blocks} blocks and a store: {levels} tokens found")
        expect(min(levels) > 0 and sum(levels) == result["hit_tokens"], "each level finds some")
        expect(result["disk_loads_short"] == 0 and result["hit_tokens"] == endless["hit_tokens"],
               "whatever was computed once is found")
        expect(levels[1] == 16 * result["promoted_blocks"], "a promoted block is a hit")
        # Blocks that are about to be lost are written. Some are lost before their turn.
        back = replay(trace, *all_three, "--disk-write", "back")
        expect(host["hit_tokens"] < back["hit_tokens"] <= endless["hit_tokens"], "back")
        expect(back["disk_written_blocks"] < result["disk_written_blocks"], "back writes less")
    short = replay(trace, "--host-blocks", 300, "--disk-blocks", UNBOUNDED)
    expect(short["disk_loads_short"] > 0 and short["hit_tokens"] < endless["hit_tokens"],
           "a load that the host tier has no room for is not begun, and counted")


def concurrent_requests_load(folder):
    trace = folder / "made-2.jsonl"
    store = ("--disk-blocks", UNBOUNDED)
    one_by_one = replay(trace, *store)
    keys = ("device_hit_tokens", "disk_hit_tokens", "disk_written_blocks", "disk_loads")
    for running in (1, 8):
        alone = replay(trace, "--mode", "concurrent", "--running", running)
        result = replay(trace, *store, "--mode", "concurrent", "--running", running)
        hits = result["hit_tokens"] + result["resumed_hit_tokens"]
        expect(hits == result["device_hit_tokens"] + result["disk_hit_tokens"], "levels")
        expect(result["hit_tokens"] > alone["hit_tokens"], "the store helps")
        if running == 1:
            expect([result[key] for key in keys] == [one_by_one[key] for key in keys],
                   "one request at a time is one after another")


def times_follow_from_the_counts(folder):
    trace = folder / "made-3.jsonl"
    store = ("--disk-blocks", UNBOUNDED, "--block-bytes", "2MiB")
    costs = ("--disk-read-bandwidth", "7GB/s", "--disk-write-bandwidth", "5GB/s",
             "--disk-latency", "250us")
    result = replay(trace, *store, *costs)
    size = 2 << 20
    read, written = size * result["disk_read_blocks"], size * result["disk_written_blocks"]
    expect((result["disk_read_bytes"], result["disk_written_bytes"]) == (read, written), "bytes")
    for key, wanted in (("disk_reading_seconds", read / 7e9 + 250e-6 * result["disk_loads"]),
                        ("disk_writing_seconds", written / 5e9)):
        expect(abs(result[key] - wanted) < 1e-9 * wanted, f"{key} is {wanted}, not {result[key]}")
    bare = replay(trace, *store)
    expect("disk_reading_seconds" not in bare and bare["disk_read_bytes"] == read,
           "without a bandwidth there are no seconds")
    again = replay(trace, *store, *costs)
    for one in (result, again):
        del one["manager_seconds"]
    expect(result == again, "the same trace gives the same numbers")
    code, out, _ = run("replay", trace, "--blocks", BLOCKS, *store)
    expect(code == 0 and "disk hit tokens" in out, "the table has the levels too")


def replay_refuses(folder):
    trace = folder / "made-1.jsonl"
    disk = ("--disk-blocks", 100)
    size = ("--block-bytes", "1MiB")
    refuses([(("replay", trace, "--blocks", BLOCKS, *arguments), words) for arguments, words in (
        (("--disk-write", "back"), "--disk-write needs --disk-blocks"),
        ((*disk, "--tier", "memory"), "a cache has one store"),
        (("--tier-option", "a=b"), "--tier-option needs --tier"),
        (("--tier", "memory", "--tier-option", "colour"), "NAME=VALUE"),
        (("--tier", "abacus"), "abacus"),
        (("--disk-read-bandwidth", "1GB/s", *size), "--disk-read-bandwidth needs --disk-blocks"),
        (("--disk-write-bandwidth", "1GB/s", *size), "--disk-write-bandwidth needs --disk-blocks"),
        ((*disk, "--disk-latency", "1ms"), "--disk-latency needs --disk-read-bandwidth"),
        ((*disk, "--disk-read-bandwidth", "1GB/s"), "--disk-read-bandwidth needs --block-bytes"),
        ((*disk, *size, "--disk-read-bandwidth", "0"), "--disk-read-bandwidth must be above 0"),
        ((*disk, *size, "--disk-write-bandwidth", "fast"), "fast is not a quantity"),
        ((*disk, *size, "--disk-read-bandwidth", "1GB/s", "--disk-latency", "5"), "is not a time"),
        ((*disk, *size, "--disk-read-bandwidth", "1GB/s", "--disk-latency", "-1us"), "not a time"),
        ((*disk, "--disk-write", "sideways"), "through, selective or back"),
        ((*disk, "--block-bytes", "0"), "--block-bytes must be 1 to 4GiB"),
        ((*disk, "--block-bytes", "5GiB"), "--block-bytes must be 1 to 4GiB"),
        (size, "--block-bytes needs --host-bandwidth, --disk-blocks or --tier"),
        (("--host-blocks", 9, "--host-bandwidth", "1GB/s"), "--host-bandwidth needs --block-bytes"),
        ((*disk, "--baseline"), "a bare LRU keeps no store"),
        (("--disk-blocks", -1), "must not be negative"),
        (("--disk-blocks", 2 ** 32), "--disk-blocks"),
        (("--disk-blocks", "64GiB"), "--disk-blocks"),
        ((*disk, "--block-tokens", 17), "power of two"),
    )])
    (folder / "empty").mkdir()
    code, _, err = run("replay", trace, "--blocks", BLOCKS, *disk,
                       env={"QUIRE_PLUGIN_PATH": str(folder / "empty")})
    expect(code == 1 and err.startswith("quire: "), f"without a backend the reason is said: {err}")


def conversation_trace(source_root):
    shared = pathlib.Path(source_root).parent / "shared" / "traces"
    folder = pathlib.Path(os.environ.get("QUIRE_TRACES") or shared)
    trace = folder / "mooncake_fast25_conversation_trace.jsonl"
    if not trace.exists():
        print(f"skipped: no {trace.name} in QUIRE_TRACES or ../shared/traces")
        return
    expect(compare(trace, 1_000_000, blocks=12_000, limit=300)["disk_hit_tokens"] > 0, "loads")


with tempfile.TemporaryDirectory() as name:
    place = pathlib.Path(name)
    store_agrees_with_the_model(place)
    three_levels_find_everything(place)
    concurrent_requests_load(place)
    times_follow_from_the_counts(place)
    replay_refuses(place)
conversation_trace(sys.argv[2])
