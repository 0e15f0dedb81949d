# SPDX-License-Identifier: Apache-2.0
"""capacity: `quire capacity` counts what a model of the same fleet counts.

    capacity.py QUIRE SOURCE_ROOT

Made traces are always tried. The conversation trace of kvcache-ai/Mooncake (FAST'25, Apache-2.0) is
looked for in QUIRE_TRACES, else beside the project in shared/traces: its first requests.
"""

import collections
import json
import os
import pathlib
import sys
import tempfile

from program import expect, refuses, run

TOKENS = 512            # of a hash id
TOKEN_BYTES = 1 << 10
BLOCK_BYTES = TOKENS * TOKEN_BYTES
KEPT_BYTES = 400        # of each value besides, in the cluster
ENDLESS = 1 << 40


class Lru:
    """Names by age. What a request holds is no candidate for eviction."""

    def __init__(self, capacity):
        self.capacity, self.evicted = capacity, 0
        self.aged, self.held = collections.OrderedDict(), {}

    def find(self, name):
        if name in self.aged:
            del self.aged[name]
            self.held[name] = True
        return name in self.held

    def add(self, name):
        if len(self.aged) + len(self.held) == self.capacity:
            self.aged.popitem(last=False)
            self.evicted += 1
        self.held[name] = True

    def release(self, names):
        for name in names:
            self.aged[name] = True
        self.held = {}


def chances(seed):
    """SplitMix64."""
    mask = (1 << 64) - 1
    while True:
        seed = (seed + 0x9E3779B97F4A7C15) & mask
        z = seed
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
        yield z ^ z >> 31


def model(requests, engine_count, copies, engine_blocks, cluster_blocks, affinity, seed):
    # pylint: disable=too-many-locals
    """What is found in the engines and in the cluster, read, written and evicted, in blocks."""
    chance = chances(seed)
    duration = max(request.get("timestamp", 0) for request in requests) + 1
    arrivals = sorted(((request.get("timestamp", 0) + duration * copy // copies) % duration, copy,
                       number) for copy in range(copies) for number, request in enumerate(requests))
    engines = [Lru(engine_blocks) for _ in range(engine_count)]
    cluster = Lru(cluster_blocks)
    last = {}
    out = collections.Counter()
    for _, copy, number in arrivals:
        request = requests[number]
        size = request["input_length"]
        full, findable = size // TOKENS, (size - 1) // TOKENS
        count = (size + max(request["output_length"], 1) - 1) // TOKENS
        names = [(copy, name) for name in request["hash_ids"][:full]]
        names += [(copy, number, place, "answer") for place in range(full, count)]
        at = (next(chance) >> 32) * engine_count >> 32
        if (next(chance) >> 11) / 2**53 < affinity:
            for name in names[:findable]:
                if name not in last:
                    break
                at = last[name]
        engine = engines[at]
        local = next((i for i in range(findable) if not engine.find(names[i])), findable)
        found = next((i for i in range(local, findable)
                      if cluster_blocks == 0 or not cluster.find(names[i])), findable)
        for name in names[local:]:
            if not engine.find(name):
                engine.add(name)
        engine.release(reversed(list(dict.fromkeys(names))))
        last.update(dict.fromkeys(names[:full], at))
        if cluster_blocks:
            for name in names[found:]:
                if not cluster.find(name):
                    cluster.add(name)
            out["written"] += count - found
            cluster.release(dict.fromkeys(names[local:]))
        out["local"] += local
        out["read"] += found - local
    out["kept"], out["evicted"] = len(cluster.aged), cluster.evicted
    return out


def simulated(trace, engines, copies, engine_blocks, cluster_blocks, affinity, seed, limit=0):
    # pylint: disable=too-many-arguments
    cluster = (["--cluster-memory", cluster_blocks * (BLOCK_BYTES + KEPT_BYTES)]
               if cluster_blocks else [])
    code, out, err = run("capacity", trace, "--engines", engines, "--copies", copies,
                         "--token-bytes", TOKEN_BYTES, "--block-tokens", TOKENS, *cluster,
                         "--engine-memory", engine_blocks * BLOCK_BYTES, "--affinity", affinity,
                         "--seed", seed, "--limit", limit, "--json")
    expect(code == 0, err)
    return json.loads(out)


def compare(trace, limit=None, **fleet):
    requests = [json.loads(line) for line in trace.read_text().splitlines()][:limit]
    wanted = model(requests, fleet["engines"], fleet["copies"], fleet["engine_blocks"],
                   fleet["cluster_blocks"], fleet["affinity"], fleet["seed"])
    got = simulated(trace, limit=limit or 0, **fleet)
    tokens = got["input_tokens"]
    expect(tokens == fleet["copies"] * sum(request["input_length"] for request in requests), got)
    for name, key in (("local", "engine_hit_rate"), ("read", "cluster_hit_rate")):
        expect(got[key] == wanted[name] * TOKENS / tokens, f"{fleet}: {got}, not {wanted}")
    if fleet["cluster_blocks"]:
        expect((got["cluster_blocks"], got["cluster_evicted_blocks"]) ==
               (wanted["kept"], wanted["evicted"]), f"{fleet}: {got}, not {wanted}")
        seconds = got["hours"] * 3600
        sent = wanted["written"] * (BLOCK_BYTES + 250) / seconds
        expect(abs(got["written_bytes_per_second"] / sent - 1) < 1e-9, f"{got}, not {wanted}")
    return wanted


def fleets_equal_the_model(folder):
    total = collections.Counter()
    for seed in range(1, 4):
        trace = folder / f"made-{seed}.jsonl"
        expect(run("trace", "--requests", 200, "--seed", seed, "--output", trace)[0] == 0, "trace")
        for engines, copies, blocks, cluster, affinity in (
                (1, 1, 400, 0, 0), (1, 1, 400, 2_000, 0), (4, 4, 300, 1_500, 0.5),
                (7, 3, 150, 900, 0.9), (3, 5, 500, 100_000, 0), (5, 2, 200, 700, 1)):
            total += compare(trace, engines=engines, copies=copies, engine_blocks=blocks,
                             cluster_blocks=cluster, affinity=affinity, seed=seed)
    print(dict(total))
    expect(min(total["read"], total["local"], total["evicted"]) > 1_000, f"too little: {total}")


def endless_cluster_finds_whatever_was_computed(folder):
    trace = folder / "made-1.jsonl"
    one = simulated(trace, 1, 1, 1 << 20, 0, 0, 1)
    for engines, affinity in ((1, 0), (6, 0.3), (50, 0), (50, 1)):
        many = simulated(trace, engines, 1, 200, 1 << 22, affinity, 1)
        both = many["engine_hit_rate"] + many["cluster_hit_rate"]
        expect(abs(both - one["engine_hit_rate"]) < 1e-12, f"{many} beside {one}")


def a_whole_fleet_is_like_a_part_of_it(folder):
    """Cluster and traffic grow with the engines: the rates stay, where routes play no part."""
    trace = folder / "made-2.jsonl"
    rates = [simulated(trace, count, count, 200, 400 * count, 1, 1) for count in (10, 40)]
    part, whole = [rate["engine_hit_rate"] + rate["cluster_hit_rate"] for rate in rates]
    print(f"hit rate of 10 engines {part:.4f}, of 40 {whole:.4f}")
    expect(abs(part / whole - 1) < 0.02, f"{rates}")


def a_slow_link_is_worth_nothing(folder):
    how = ["--engines", 4, "--token-bytes", "64KiB", "--engine-memory", "8GiB",
           "--cluster-memory", "1TiB", "--prefill", "20k", "--json"]
    worth = []
    for link in ("12GB/s", "1MB/s"):
        code, out, err = run("capacity", folder / "made-1.jsonl", *how, "--link", link)
        expect(code == 0, err)
        worth.append(json.loads(out)["engines_saved"])
    expect(worth[0] > 0 and worth[1] == 0, f"{worth}")


def mistakes_are_named(folder):
    trace = folder / "made-1.jsonl"
    azure = folder / "azure.csv"
    expect(run("trace", "--kind", "azure", "--requests", 5, "--output", azure)[0] == 0, "trace")
    late = folder / "late.jsonl"
    late.write_text('{"timestamp": 1e300, "input_length": 9, "output_length": 1, "hash_ids": [1]}')
    plain = ["--engines", 2, "--token-bytes", "1KiB", "--engine-memory", "1GiB"]
    refuses([(["capacity", trace, *plain, "--affinity", 2], "--affinity"),
             (["capacity", trace, *plain, "--block-tokens", 3], "--block-tokens"),
             (["capacity", trace, *plain, "--nodes", 0], "--nodes"),
             (["capacity", trace, *plain, "--engine-price", 2], "--prefill"),
             (["capacity", trace, *plain, "--engine-price", "nan"], "a price"),
             (["capacity", trace, *plain, "--memory-price", "inf"], "a price"),
             (["capacity", late, *plain], "timestamp"),
             (["capacity", trace, *plain, "--copies", 1 << 31], "--copies"),
             (["capacity", trace, *plain[:4], "--engine-memory", "1MiB"], "give them more memory"),
             (["capacity", trace, *plain, "--cluster-memory", "1MiB"], "give them more memory"),
             (["capacity", azure, *plain], "nothing of prefixes")])


def conversation_trace():
    folder = os.environ.get("QUIRE_TRACES") or pathlib.Path(sys.argv[2]).parent / "shared/traces"
    trace = pathlib.Path(folder, "mooncake_fast25_conversation_trace.jsonl")
    if not trace.exists():
        print(f"skipped: there is no {trace}")
        return
    compare(trace, limit=1_500, engines=6, copies=2, engine_blocks=800, cluster_blocks=6_000,
            affinity=0.6, seed=3)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        fleets_equal_the_model(folder)
        endless_cluster_finds_whatever_was_computed(folder)
        a_whole_fleet_is_like_a_part_of_it(folder)
        a_slow_link_is_worth_nothing(folder)
        mistakes_are_named(folder)
    conversation_trace()


main()
