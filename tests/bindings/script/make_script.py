# SPDX-License-Identifier: Apache-2.0
"""make_script: writes operations on a cache as data; README.md defines them.

    make_script.py SEED LENGTH
"""

import random
import sys

PLACES = 12
LEASES = 3
# First tokens of texts: equal texts share blocks.
CONTENTS = (1000, 1000, 1000, 2000, 3000)

# README.md says what they are.
FIELDS = {
    "cache": "blocks host_blocks",
    "create": "s priority",
    "end": "s",
    "begin": "tag may_preempt how",
    "add": "s first count max_compute drafts unknown",
    "pair": "s t first count",
    "drop": "s",
    "preempt": "s how",
    "abort": "",
    "commit": "",
    "finish": "",
    "fail": "",
    "fork": "s child tokens",
    "truncate": "s tokens",
    "accept": "s count",
    "set": "s position first count",
    "probe": "s first count",
    "migrate": "blocks",
    "reset": "",
    "info": "s",
    "blocks": "s",
    "lease": "l",
    "unlease": "l",
    "take": "l count",
    "publish": "l first",
    "match": "l first count how",
    "give": "l count",
    "pin": "l id",
    "forget": "l",
    "held": "l",
    "evict": "count",
    "stats": "",
}

# Each of them is done in some script.
OF_LEASES = {"lease", "unlease", "take", "publish", "match", "give", "pin", "forget", "held",
             "evict"}


def place(rng):
    return rng.randrange(PLACES)


def count(rng):
    return rng.choice((0, 1, 1, 2, 3, 5, 8, 13, 30))


def add(rng):
    return (f"add {place(rng)} {rng.choice(CONTENTS)} {count(rng)} {rng.choice((0, 0, 0, 1, 4))} "
            f"{rng.choice((0, 0, 0, 0, 1, 2))} {rng.choice((0, 0, 0, 1))}")


def lease(rng):
    return rng.randrange(LEASES)


def match(rng, how):
    return f"match {lease(rng)} {rng.choice(CONTENTS)} {count(rng)} {how}"


def change(rng):
    """What a lease does within a step; most of what it gets is given back."""
    at = lease(rng)
    give = f"give {at} {rng.randrange(4)}"
    pins = [f"pin {at} {rng.randrange(42)}" for _ in range(3)]
    kinds = (
        [f"take {at} {rng.randrange(4)}", f"publish {at} {rng.choice(CONTENTS)}", give],
        [f"take {at} {rng.choice((1, 2, 50))}", give],
        [match(rng, 2), f"give {at} {rng.randrange(9)}"],
        pins,
    )
    return rng.choice(kinds)


def iteration(rng):
    """One step of an engine, sometimes with a mistake."""
    lines = [f"begin {rng.randrange(2)} {rng.randrange(2)} {rng.randrange(3)}"]
    lines += [add(rng) for _ in range(rng.randrange(1, 6))]
    if rng.random() < 0.3:
        lines.insert(rng.randrange(1, len(lines) + 1), f"preempt {place(rng)} {rng.randrange(3)}")
    if rng.random() < 0.1:
        lines.append(f"drop {place(rng)}")
    if rng.random() < 0.1:
        lines.insert(rng.randrange(1, len(lines) + 1), other(rng))
    if rng.random() < 0.4:
        at = rng.randrange(1, len(lines) + 1)
        lines[at:at] = change(rng)
    lines.append("abort" if rng.random() < 0.05 else "commit")
    # As many as were begun, on average: a cache moves only where none is left.
    lines += ["fail" if rng.random() < 0.05 else "finish"] * rng.choice((0, 1, 1, 1, 1, 2))
    return lines


def other(rng):
    """An operation between steps."""
    kinds = {
        "create": (24, lambda: f"create {place(rng)} {rng.randrange(3)}"),
        "end": (8, lambda: f"end {place(rng)}"),
        "finish": (4, lambda: "finish"),
        "pair": (16, lambda: f"pair {place(rng)} {place(rng)} {rng.choice(CONTENTS)} {count(rng)}"),
        "fork": (8, lambda: f"fork {place(rng)} {place(rng)} {count(rng) + rng.randrange(12)}"),
        "truncate": (6, lambda: f"truncate {place(rng)} {count(rng)}"),
        "accept": (12, lambda: f"accept {place(rng)} {rng.randrange(3)}"),
        "set": (8, lambda: f"set {place(rng)} {count(rng)} {rng.choice(CONTENTS)} 1"),
        "probe": (8, lambda: f"probe {place(rng)} {rng.choice(CONTENTS)} {count(rng)}"),
        "migrate": (2, lambda: f"migrate {rng.choice((24, 40, 64))}"),
        "reset": (1, lambda: "reset"),
        "info": (12, lambda: f"info {place(rng)}"),
        "blocks": (8, lambda: f"blocks {place(rng)}"),
        "lease": (9, lambda: f"lease {lease(rng)}"),
        "unlease": (5, lambda: f"unlease {lease(rng)}"),
        "match": (6, lambda: match(rng, rng.randrange(3))),
        "change": (2, lambda: change(rng)[0]),  # a mistake: no step is open
        "forget": (6, lambda: f"forget {lease(rng)}"),
        "held": (5, lambda: f"held {lease(rng)}"),
        "evict": (4, lambda: f"evict {rng.randrange(4)}"),
        "stats": (4, lambda: "stats"),
    }
    weights = [weight for weight, _ in kinds.values()]
    return rng.choices([make for _, make in kinds.values()], weights)[0]()


def named(line):
    op, *numbers = line.split()
    return " ".join([op, *map("=".join, zip(FIELDS[op].split(), numbers, strict=True))])


def make(seed, length):
    rng = random.Random(seed)
    lines = ["cache 40 6", *(f"create {i} {i % 3}" for i in range(PLACES // 2))]
    while len(lines) < length:
        lines += iteration(rng)
        lines += [other(rng) for _ in range(rng.randrange(4))]
    return [named(line) for line in [*lines, "stats"]]


if __name__ == "__main__":
    print("\n".join(make(int(sys.argv[1]), int(sys.argv[2]))))
