# SPDX-License-Identifier: Apache-2.0
"""engine_faults: an engine generates on while its cluster fails: every text equals a dense run.

    engine_faults.py ENGINE WEIGHTS_FOLDER CASE

The cluster holds the prompts of the whole workload, so the engine loads while a node is killed,
stopped or paused, slots move, or values are changed. The fault begins at a random moment, once the
engine has begun to load.
"""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time

import cluster as clusters
from cluster import QUICK, Cluster, Refused, until

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "engine"))
# pylint: disable=wrong-import-position
import serving
import stores
from serving import expect

ROUNDS = {"few": 1, "usual": 1, "all": 20}[os.environ.get("QUIRE_TEST_EFFORT") or "usual"]
SEED = int(os.environ.get("QUIRE_TEST_SEED") or 1)
LIMIT = 100     # seconds; a run without faults takes two


def tier(cluster, timeout):
    words = ["--tier", "valkey", "--block-tokens", "1", "--json", "--check", "--pool-blocks", "700",
             "--chunk", "16"]
    for option in (f"nodes={cluster.nodes()}", f"timeout={timeout}", f"connect_timeout={timeout}",
                   "breaker_cooldown=200"):
        words += ["--tier-option", option]
    return words


def keys_of(server):
    return server.ask("KEYS", "quire:*")


def failover(cluster, chance):
    victim = chance.choice(cluster.primaries())
    victim.kill()
    yield
    victim.start()
    until(lambda: len(cluster.primaries()) == 3, "the node does not come back as replica")
    until(lambda: all(cluster.knows_all(server) for server in cluster.live()), "apart")


def partition(cluster, chance):
    victim = chance.choice(cluster.servers)
    victim.signal(signal.SIGSTOP)
    yield
    victim.signal(signal.SIGCONT)


def slow_node(cluster, chance):
    for _ in range(4):
        chance.choice(cluster.servers).ask("CLIENT", "PAUSE", 400, "ALL")
        time.sleep(0.3)
    yield


def slot_moves(cluster, chance):
    """Slots with values go to another node, and back."""
    for _ in range(3):
        source, target = chance.sample(cluster.servers, 2)
        names = keys_of(source)
        slot = source.ask("CLUSTER", "KEYSLOT", chance.choice(names))
        cluster.move(slot, source, target)
    yield


def tampered_values(cluster, chance):
    """Other bits in a quarter of all values, or another value in their place."""
    for server in cluster.servers:
        names = keys_of(server)
        for name in chance.sample(names, len(names) // 4):
            try:
                record = bytearray(server.ask("GET", name) or b"?")
                record[chance.randrange(len(record))] ^= 1 << chance.randrange(8)
                server.ask("SET", name, bytes(record), "XX")
            except Refused:
                pass    # it is a list by now
    yield


def lost_values(cluster, chance):
    for server in cluster.servers:
        for name in keys_of(server):
            if chance.random() < 0.3:
                server.ask("DEL", name)
    yield


def whole_cluster_dies(cluster, _):
    for server in cluster.servers:
        server.kill()
    yield
    for server in cluster.servers:
        server.start()
    until(lambda: all(cluster.is_well(server) for server in cluster.servers), "not well")


def run_with(engine, cluster, fault, chance):
    """The engine's report, of a run in whose middle the fault begins."""
    began = []

    def reads():
        calls = cluster.calls()
        return calls.get("get", 0) + calls.get("getrange", 0)

    def strike():
        until(lambda: reads() > before, "the engine asks for nothing")
        time.sleep(delay)
        began.append(fault(cluster, chance))
        next(began[0])

    before, delay = reads(), chance.uniform(0, 0.5)
    hand = threading.Thread(target=strike)
    start = time.monotonic()
    hand.start()
    try:
        result = engine.run(*tier(cluster, 400))
    except subprocess.TimeoutExpired:
        sys.exit("FAILED: the engine hangs")
    seconds = time.monotonic() - start
    hand.join()
    for _ in began[0]:  # it ends
        pass
    expect(result.returncode == 0, result.stderr.decode() + result.stdout.decode())
    return {**json.loads(result.stdout), "given": stores.given(result)}, seconds


def main():
    clusters.skip_without_server()
    engine = serving.Engine(*sys.argv[1:3])
    fault = {one.__name__: one for one in CASES}[sys.argv[3]]
    chance = random.Random(f"{SEED} {fault.__name__}")
    counted = {"runs": 0, "texts": 0, "given": 0, "slowest": 0}
    with Cluster(QUICK, replicas=fault is failover) as cluster:
        while counted["runs"] < ROUNDS:
            stores.given(engine.run(*tier(cluster, 20_000)))    # fills it
            report, seconds = run_with(engine, cluster, fault, chance)
            counted["slowest"] = max(counted["slowest"], round(seconds, 1))
            expect(report["passed"] and report["equal_texts"] == report["texts"], report)
            expect(seconds < LIMIT, f"{seconds} s")
            counted["runs"] += 1
            counted["texts"] += report["equal_texts"]
            counted["given"] += report["given"]
            print(f"{fault.__name__} {counted['runs']} of {ROUNDS}", flush=True)
    print(f"{fault.__name__}: {counted}")


CASES = [failover, partition, slow_node, slot_moves, tampered_values, lost_values,
         whole_cluster_dies]

if __name__ == "__main__":
    main()
