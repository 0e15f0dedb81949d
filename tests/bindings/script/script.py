# SPDX-License-Identifier: Apache-2.0
"""script: runs the operations of a file on a cache and prints each result; README.md."""

import pathlib
import sys

import numpy as np

import quire

NAMES = {quire.ArgumentError: "argument", quire.StaleError: "stale", quire.BusyError: "busy",
         quire.UnsupportedError: "unsupported", quire.LimitError: "limit"}
OF_STEP = ("add", "drop", "preempt", "abort", "commit")
OF_SEQUENCE = ("end", "fork", "truncate", "accept", "set", "probe", "info", "blocks", "pair",
               "add", "drop", "preempt")
OF_LEASE = ("unlease", "take", "publish", "match", "give", "pin", "forget", "held")


def numbers(first, count, unknown=0):
    return [first + i if i + unknown < count else quire.UNKNOWN for i in range(count)]


class Script:
    def __init__(self):
        self.places, self.step, self.committed = {}, None, []
        self.leases, self.hands = {}, {}

    def run(self, op, a):
        changes = op in ("take", "publish", "give", "pin") or op == "match" and a[3] == 2
        if (op in OF_STEP or changes) and self.step is None:
            return ["none"]
        if op in OF_LEASE and a[0] not in self.leases:
            return ["none"]
        if op in OF_SEQUENCE and a[0] not in self.places:
            return ["none"]
        try:
            table = self.leases if op in OF_LEASE else self.places
            return getattr(self, op)(table.get(a[0]), a)
        except quire.QuireError as error:
            return [NAMES.get(type(error), "other")]

    def cache(self, _, a):
        group = quire.Group(layers=1, kv_heads=1, head_dim=8)
        self.instance = quire.Instance()
        self.cache_ = quire.Cache(self.instance, [group], block_tokens=4, blocks=a[0],
                                  host_blocks=a[1])
        return ["ok"]

    def create(self, sequence, a):
        if sequence is not None:
            return ["taken"]
        self.places[a[0]] = self.cache_.sequence(priority=a[1])
        return ["ok"]

    def end(self, sequence, a):
        sequence.end()
        del self.places[a[0]]
        return ["ok"]

    def begin(self, _, a):
        self.step = self.cache_.begin([], tag=a[0], may_preempt=bool(a[1]),
                                      preempt=quire.Preempt(a[2]))
        return ["ok"]

    def add(self, sequence, a):
        item = quire.Item(sequence, tokens=numbers(a[1], a[2], a[5]), max_compute=a[3],
                          drafts=a[4])
        result = self.step.add([item])[0]
        return ["ok", *(result[name] for name in (
            "outcome", "reason", "hit_tokens", "first_position", "compute_count", "blocks_short",
            "row"))]

    def drop(self, sequence, _):
        return ["ok", len(self.step.drop(sequence))]

    def preempt(self, sequence, a):
        freed = self.step.preempt(sequence, quire.Preempt(a[1]))
        return ["short"] if freed is None else ["ok", freed]

    def abort(self, *_):
        self.step.abort()
        self.step = None
        return ["ok"]

    def commit(self, *_):
        self.step.commit()
        gone = self.step.preempted
        self.committed.append(self.step)
        copies, self.step = self.step.copies, None
        return ["ok", len(copies), len(gone), int(gone["computed_tokens"].sum())]

    def finish(self, *_):
        if not self.committed:
            return ["none"]
        self.committed.pop(0).finish()
        return ["ok"]

    def fail(self, *_):
        if not self.committed:
            return ["none"]
        self.committed.pop(0).finish(failed=True)
        return ["ok"]

    def fork(self, sequence, a):
        if a[1] in self.places:
            return ["taken"]
        self.places[a[1]] = sequence.fork(a[2])
        return ["ok"]

    def truncate(self, sequence, a):
        sequence.truncate(a[1])
        return ["ok"]

    def accept(self, sequence, a):
        sequence.accept(a[1])
        return ["ok"]

    def pair(self, sequence, a):
        if a[1] not in self.places:
            return ["none"]
        items = np.zeros(2, quire.ITEM)
        items["seq"] = sequence.handle, self.places[a[1]].handle
        items["token_offset"], items["token_count"] = (0, a[3]), a[3]
        tokens = numbers(a[2], a[3]) + numbers(a[2] + 7, a[3])
        step = self.cache_.begin(items, tokens)
        results = step.results
        step.commit()
        step.finish()
        return ["ok", *(result[name] for result in results for name in (
            "outcome", "hit_tokens", "first_position", "compute_count", "row"))]

    def set(self, sequence, a):
        sequence.set_tokens(a[1], numbers(a[2], a[3]))
        return ["ok"]

    def probe(self, sequence, a):
        return ["ok", sequence.probe(numbers(a[1], a[2]))]

    def migrate(self, _, a):
        done = self.cache_.migrate(blocks=a[0])
        return ["ok", int(done.moved), done.blocks_moved, done.blocks_dropped, done.blocks_short]

    def reset(self, *_):
        self.cache_.reset()
        return ["ok"]

    def info(self, sequence, _):
        i = sequence.info
        return ["ok", i.known_tokens, i.computed_tokens, i.draft_tokens, i.blocks_held,
                i.preemptions]

    def blocks(self, sequence, _):
        return ["ok", *sequence.blocks()]

    def lease(self, _, a):
        if a[0] in self.leases:
            return ["taken"]
        self.leases[a[0]], self.hands[a[0]] = self.cache_.lease(), []
        return ["ok"]

    def unlease(self, lease, a):
        lease.end()
        del self.leases[a[0]]
        return ["ok"]

    def asked(self, lease, place, ids):
        """A shortage, or the ids, which become the hand."""
        if ids is None:
            return ["short", *map(int, lease.shortage)]
        self.hands[place] = ids.tolist()
        return ["ok", *self.hands[place]]

    def take(self, lease, a):
        return self.asked(lease, a[0], lease.take(self.step, a[1]))

    def publish(self, lease, a):
        hand = self.hands[a[0]]
        tokens = numbers(a[1], len(hand) * 4)
        return self.asked(lease, a[0], lease.publish(self.step, tokens, hand))

    def match(self, lease, a):
        step = self.step if a[3] == 2 else None
        ids = lease.match(numbers(a[1], a[2]), quire.Match(a[3]), step)
        return self.asked(lease, a[0], ids)

    def give(self, lease, a):
        lease.give(self.step, self.hands[a[0]][:a[1]])
        return ["ok"]

    def pin(self, lease, a):
        if lease.pin(self.step, [a[1]]):
            return ["ok"]
        return ["short", *map(int, lease.shortage)]

    def forget(self, lease, a):
        return ["ok", lease.forget(self.hands[a[0]])]

    def held(self, lease, _):
        return ["ok", *(block[name] for block in lease.blocks()
                        for name in ("block", "holds", "flags"))]

    def evict(self, _, a):
        return ["ok", *self.cache_.evict(a[0])]

    def stats(self, *_):
        s = self.cache_.stats
        return ["ok", s.prefix_cache_queries, s.prefix_cache_hits, s.num_preemptions, s.evictions,
                s.copies_on_write, s.blocks_swapped_out, s.blocks_swapped_in, s.forks, s.steps,
                s.sequences, s.blocks_free, s.blocks_cached, s.blocks_held, s.leases,
                s.blocks_leased]


def main():
    script = Script()
    for number, line in enumerate(pathlib.Path(sys.argv[1]).read_text().splitlines(), 1):
        op, *words = line.split()
        print(number, *script.run(op, [int(word.partition("=")[2]) for word in words] or [0]))
    script.cache_.check()


if __name__ == "__main__":
    main()
