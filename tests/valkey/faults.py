# SPDX-License-Identifier: Apache-2.0
"""faults: the store on a real cluster whose nodes die, stop, pause, fill up and hand slots over.

    faults.py CASE

After each fault: no value is wrong, each request had its answer by its deadline, and the store
serves again.
"""

import os
import random
import signal
import sys
import time

import cluster as clusters
import client
from client import DAMAGED, DONE, FAILED, FIND, FLUSH, FOREIGN, FULL, GET, MISS, PUT, REMOVE, SIZE
from client import Refusal, Store, name_of, outcomes, value_of
from cluster import Cluster, until

ROUNDS = {"few": 1, "usual": 1, "all": 20}[os.environ.get("QUIRE_TEST_EFFORT") or "usual"]
SEED = int(os.environ.get("QUIRE_TEST_SEED") or 1)
SLACK = 20  # seconds past a deadline: another process may have the processor
PATIENT = {"timeout": 20_000, "connect_timeout": 20_000}  # where nothing should time out
BIG = 200_000


def expect(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


def number_of(store, word):
    """A count in the text that tells the place."""
    words = store.place().replace(",", "").replace(";", "").split()
    return int(words[words.index(word) + 1])


class Load:
    """Random puts and gets of keys that are spread over all slots."""

    def __init__(self, store, seed):
        self.store, self.chance = store, random.Random(seed)
        self.next_key, self.counted = 0, {}

    def submit(self, count):
        for _ in range(count):
            kind = self.chance.choice([PUT, GET, GET])
            self.next_key += kind == PUT
            key = self.next_key if kind == PUT else self.chance.randint(1, self.next_key + 1)
            while not self.store.submit(kind, f"load {key}", BIG):
                self.store.reap(0.2)

    def drain(self):
        for result in self.store.drain():
            name = client.NAMES[result.outcome]
            self.counted[name] = self.counted.get(name, 0) + 1

    def serves(self):
        """True once everything that is put is there."""
        keys = [f"round {self.next_key} {i}" for i in range(60)]
        self.next_key += 1
        puts = self.store.run(PUT, keys, 1_000)
        gets = self.store.run(GET, keys, 1_000)
        return set(outcomes(puts)) == set(outcomes(gets)) == {"DONE"}

    def end(self, what):
        store = self.store
        print(f"{what}: {store.answers} answers {self.counted}, slowest {store.slowest:.2f} s; "
              f"{store.place()}")
        expect(store.wrong == 0, f"{store.wrong} wrong values")
        expect(store.slowest <= store.timeout + SLACK, f"an answer took {store.slowest} s")
        expect(set(self.counted) <= {"DONE", "MISS", "FAILED"}, f"{self.counted}")


def a_killed_primary_is_replaced():
    """kill -9 in mid transfer; a replica takes over, and the node comes back as its replica."""
    with Cluster(clusters.QUICK) as cluster, Store(
            nodes=cluster.nodes(), timeout=1_000) as store:
        load = Load(store, SEED)
        for number in range(ROUNDS):
            load.submit(100)
            load.drain()
            victim = load.chance.choice(cluster.primaries())
            load.submit(100)
            victim.kill()
            load.submit(100)
            load.drain()
            until(load.serves, "no service after a failover")
            victim.start()
            until(lambda: len(cluster.primaries()) == 3, "the node does not come back as replica")
            until(lambda: all(cluster.knows_all(server) for server in cluster.live()), "apart")
            until(load.serves, "no service after its return")
            print(f"failover {number + 1} of {ROUNDS}")
        expect(number_of(store, "lost") >= 1, "a connection was lost")
        load.end("failover")


def slots_move_under_load():
    """ASK and MOVED in pipelines: not one request fails, and none is a miss."""
    slots_move(5 * ROUNDS, "127.0.0.1")


def slots_move_between_addresses_of_ipv6():
    clusters.skip_without("::1")
    slots_move(ROUNDS, "::1")


def slots_move(count, host):
    with Cluster(replicas=False, host=host) as cluster, Store(
            nodes=cluster.nodes(), **PATIENT) as store:
        first = cluster.servers[0]
        by_slot = {}
        for key in range(2_000):
            by_slot.setdefault(first.ask("CLUSTER", "KEYSLOT", name_of(key)), []).append(key)
        fullest = sorted(by_slot.items(), key=lambda item: -len(item[1]))[:count]
        keys = [key for _, some in fullest for key in some]
        expect(outcomes(store.run(PUT, keys, 5_000)) == {"DONE": len(keys)}, "puts")
        fresh = iter(range(10_000, 100_000))
        for slot, some in fullest:
            source = cluster.owner(name_of(some[0]))
            target = random.Random(slot).choice(
                [server for server in cluster.servers if server is not source])

            def during(some=some, slot=slot):
                gets = store.run(GET, keys, 5_000)
                lost = [result for result in gets.values() if result.outcome != DONE]
                expect(not lost and len(gets) == len(keys), f"slot {slot}: {lost}")
                expect(store.one(FIND, some[-1]).outcome == DONE, "a find")
                key = f"fresh {next(fresh)}"
                expect(store.one(PUT, key, 70).outcome == DONE, "a put")
                expect(store.one(REMOVE, key).outcome == DONE, "a removal")
                expect(store.one(GET, key, 70).outcome == MISS, "it is removed")
            cluster.move(slot, source, target, during)
            agree_late(cluster, store, slot, target, source, some)
        expect(number_of(store, "redirects") >= 2 * len(fullest), store.place())
        expect(store.wrong == 0, "wrong values")
        print(f"{len(fullest)} slots moved; {store.answers} answers, {store.place()}")


def agree_late(cluster, store, slot, source, target, keys):
    """Moves a slot so that each of two nodes names the other as its owner for a while."""
    until(cluster.agrees, "the nodes do not agree")
    target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.name())
    source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target.name())
    for name in source.ask("CLUSTER", "GETKEYSINSLOT", slot, 1_000):
        source.ask("MIGRATE", cluster.host, target.port, name, 0, 5_000)
    source.ask("CLUSTER", "SETSLOT", slot, "NODE", target.name())
    for key in keys:
        store.submit(GET, key, 5_000)
    time.sleep(0.3)
    target.ask("CLUSTER", "SETSLOT", slot, "NODE", target.name())
    lost = [result for result in store.drain() if result.outcome != DONE]
    expect(not lost, f"slot {slot}, of which two nodes named each other: {lost}")


def a_stopped_node_costs_only_its_own():
    """SIGSTOP: its system still accepts connections, and nothing answers."""
    with Cluster(replicas=False) as cluster, Store(
            nodes=cluster.nodes(), timeout=700, connect_timeout=700,
            breaker_cooldown=300) as store:
        load = Load(store, SEED)
        keys = [f"mine {i}" for i in range(90)]
        expect(set(outcomes(store.run(PUT, keys, 1_000))) == {"DONE"}, "puts")
        for number in range(ROUNDS):
            victim = cluster.servers[number % 3]
            lost = {key for key in keys if cluster.owner(name_of(key)) is victim}
            expect(0 < len(lost) < 90, "the keys are spread")
            load.submit(200)
            victim.signal(signal.SIGSTOP)
            load.drain()
            expect(all(result.outcome == FAILED for result in store.run(GET, lost, 1_000).values()),
                   "a stopped node answered")
            expect(number_of(store, "breaks") >= 1, "the breaker did not open")
            until(lambda: set(outcomes(store.run(GET, set(keys) - lost, 1_000))) == {"DONE"},
                  "the other nodes do not serve")
            with_others = cluster.nodes([server for server in cluster.servers
                                         if server is not victim])
            second = Store(nodes=f"{cluster.nodes([victim])},{with_others}", timeout=700,
                           connect_timeout=700, scan=0)
            for key in keys:
                second.submit(PUT, key, BIG)
            expect(second.close() <= 0.7 + SLACK, "close_wait hung")
            victim.signal(signal.SIGCONT)
            until(load.serves, "no service after SIGCONT")
            until(lambda: set(outcomes(store.run(GET, keys, 1_000))) == {"DONE"}, "all are back")
            print(f"stop {number + 1} of {ROUNDS}")
        load.end("stopped")


def a_paused_node_is_waited_for_until_the_deadline():
    with Cluster(replicas=False) as cluster, Store(nodes=cluster.nodes(), timeout=500) as store:
        load = Load(store, SEED)
        load.submit(100)
        load.drain()
        for number in range(ROUNDS):
            load.submit(100)
            cluster.servers[number % 3].ask("CLIENT", "PAUSE", 2_000, "ALL")
            load.drain()
            load.submit(100)
            load.drain()
            until(load.serves, "no service after the pause")
        expect(load.counted.get("FAILED", 0) >= 1, "nothing was paused")
        load.end("paused")


TAMPERED = ["a byte of the value", "a byte of the size", "a byte of the key", "the last byte",
            "one byte more", "only the header", "half of the header", "no byte", "something else",
            "a list", "it is deleted"]


def ways_to_tamper(cluster, key):
    """What a tampering hand does to a key's value, and the outcomes that a get may have then."""
    name = name_of(key)
    node = cluster.owner(name)
    record = node.ask("GET", name)
    flipped = bytes([record[-1] ^ 1])

    def put(content):
        return lambda: node.ask("SET", name, content)
    other = bytearray(record)
    other[40] ^= 1
    return node, {
        "a byte of the value": (put(record[:-1] + flipped), DAMAGED),
        "a byte of the size": (put(record[:33] + b"\7" + record[34:]), DAMAGED),
        "a byte of the key": (put(bytes(other)), DAMAGED),
        "the last byte": (put(record[:-1]), DAMAGED),
        "one byte more": (put(record + b"x"), DAMAGED),
        "only the header": (put(record[:client.HEADER_BYTES]), DAMAGED),
        "half of the header": (put(record[:50]), DAMAGED),
        "no byte": (put(b""), DAMAGED),
        "something else": (put(b"hello" * 100), DAMAGED),
        "a list": (lambda: (node.ask("DEL", name), node.ask("RPUSH", name, "a")), DAMAGED),
        "it is deleted": (lambda: node.ask("DEL", name), MISS),
    }


def tampered_values_are_never_given():
    with Cluster(replicas=False) as cluster, Store(nodes=cluster.nodes(), **PATIENT) as store:
        for number, what in enumerate(TAMPERED):
            key = f"tampered {number}"
            expect(store.one(PUT, key, 3_000).outcome == DONE, "a put")
            node, ways = ways_to_tamper(cluster, key)
            ways[what][0]()
            result = store.one(GET, key, 3_000)
            expect(result.outcome == ways[what][1], f"{what}: {result}")
            expect(store.find(key) == "UNKNOWN", f"{what}: find still answers PRESENT")
            expect(store.one(FIND, key).outcome == MISS, f"{what}: it is found again")
            expect(node.ask("EXISTS", name_of(key)) == 0, f"{what}: it was left")
            ways[what][0]()
            expect(store.one(PUT, key, 3_000).outcome == DONE, f"{what}: no put over it")
            if store.one(GET, key, 3_000).outcome == DAMAGED:  # its header was right
                expect(store.one(PUT, key, 3_000).outcome == DONE, f"{what}: no second put")
            expect(store.one(GET, key, 3_000).outcome == DONE, f"{what}: put, and not there")
        another_labels_value(cluster, store)
        stats = store.stats()
        expect(stats["damaged"] >= len(TAMPERED) and stats["foreign"] == 2, stats)
        expect(store.wrong == 0 and store.notice_count() >= len(TAMPERED), store.notices)


def another_labels_value(cluster, store):
    """A value under another key, and the same key of another model or tenant."""
    for key in ("a", "b"):
        store.one(PUT, key, 800)
    record = cluster.owner(name_of("a")).ask("GET", name_of("a"))
    cluster.owner(name_of("b")).ask("SET", name_of("b"), record)
    expect(store.one(GET, "b", 800).outcome == DAMAGED, "another key's value")
    expect(store.one(GET, "a", 800, model=2).outcome == FOREIGN, "another model's")
    expect(store.one(GET, "a", 800, tenant=2).outcome == FOREIGN, "another tenant's")
    expect(store.one(GET, "a", 801).outcome == SIZE, "another size")
    expect(store.one(GET, "a", 800).outcome == DONE, "the own one stays")
    expect(cluster.owner(name_of("b")).ask("EXISTS", name_of("b")) == 0, "the copy was left")


def values_may_go_at_any_time():
    """FLUSHALL, the end of a time to live, a full node, and eviction."""
    keys = [f"value {i}" for i in range(200)]
    with Cluster(replicas=False) as cluster:
        with Store(nodes=cluster.nodes(), **PATIENT) as store:
            store.run(PUT, keys, 5_000)
            for server in cluster.servers:
                server.ask("FLUSHALL")
            expect(outcomes(store.run(GET, keys, 5_000)) == {"MISS": 200}, "after FLUSHALL")
            expect(store.notice_count() == 200 and store.stats()["records"] == 0,
                   f"{store.notices} notices, {store.stats()}")
            full_then_evicting(cluster, store)
        with Store(nodes=cluster.nodes(), ttl=1, max_value="4KiB", **PATIENT) as store:
            expect(store.one(PUT, "brief", 4_096).outcome == DONE, "a put with an end")
            left = cluster.owner(name_of("brief")).ask("PTTL", name_of("brief"))
            expect(0 <= left <= 1_000 or left == -2, f"{left} ms are left")
            until(lambda: store.one(GET, "brief", 4_096).outcome == MISS, "it does not end")
            try:
                store.submit(PUT, "large", 4_097)
                expect(False, "a value above max_value was taken")
            except Refusal as refusal:
                expect("4097" in str(refusal) and "4096" in str(refusal), refusal)


def full_then_evicting(cluster, store):
    for server in cluster.servers:
        used = int(server.info("memory")["used_memory"])
        server.ask("CONFIG", "SET", "maxmemory", used + 3_000_000)
    keys = [f"full {i}" for i in range(120)]
    counted = outcomes(store.run(PUT, keys, 100_000))
    expect(set(counted) == {"DONE", "FULL"}, f"noeviction: {counted}")
    there = outcomes(store.run(GET, keys, 100_000))
    expect(there == {"DONE": counted["DONE"], "MISS": counted["FULL"]}, f"{there}")
    expect(store.stats()["puts_refused"] == counted["FULL"], store.stats())
    for server in cluster.servers:
        server.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    again = outcomes(store.run(PUT, keys, 100_000))
    expect("DONE" in again, f"allkeys-lru: {again}")
    there = outcomes(store.run(GET, keys, 100_000))
    expect(set(there) == {"DONE", "MISS"} and store.wrong == 0, f"evicted: {there}")
    print(f"full: {counted}; evicting: {there}")
    for server in cluster.servers:
        server.ask("CONFIG", "SET", "maxmemory", 0)


def another_process_puts_and_the_index_follows():
    """A scan finds what another process put, and forgets what has gone; find never lies long."""
    keys = [f"shared {i}" for i in range(300)]
    with Cluster(replicas=False) as cluster, Store(nodes=cluster.nodes(), scan=1, **PATIENT) as one:
        with Store(nodes=cluster.nodes(), scan=0, known=50, **PATIENT) as two:
            two.run(PUT, keys, 500)
            expect(two.stats()["records"] == 50, "the index is bounded")
            until(lambda: all(one.find(key) == "PRESENT" for key in keys), "a scan finds them")
            expect(one.find("no such") == "UNKNOWN", "an unknown key")
            expect(outcomes(one.run(GET, keys, 500)) == {"DONE": 300}, "gets")
            expect(one.find(keys[0], model=2) == "ABSENT", "another model's label")
            two.run(REMOVE, keys[:100])
            until(lambda: all(one.find(key) == "UNKNOWN" for key in keys[:100]), "they are gone")
            expect(all(one.find(key) == "PRESENT" for key in keys[100:]), "the others stay")
            expect(one.notice_count() >= 1, "no notice tells it")
            expect(two.one(FLUSH).outcome == DONE, "a flush")
        with Store(nodes=cluster.nodes(), scan=60, **PATIENT) as three:
            expect(three.stats()["recovered"] == 200, "what is there at open")


LIST = [a_killed_primary_is_replaced, slots_move_under_load,
        slots_move_between_addresses_of_ipv6, a_stopped_node_costs_only_its_own,
        a_paused_node_is_waited_for_until_the_deadline, tampered_values_are_never_given,
        values_may_go_at_any_time, another_process_puts_and_the_index_follows]

if __name__ == "__main__":
    clusters.skip_without_server()
    {case.__name__: case for case in LIST}[sys.argv[1]]()
