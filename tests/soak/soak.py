#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""soak: serves clients that come and go, at overload, for as long as is wanted, and fails if a
text is not its dense run's, if memory, descriptors or threads grow, or if something stays held.

The seed decides what each client asks; threads decide in which order, so a run with the same seed
is like another, not equal to it. A wrong text is printed whole: it can be checked alone.
"""

import argparse
import dataclasses
import gc
import json
import os
import signal
import sys
import threading
import time
import traceback

import readings
from clients import Clients
from engine import Engine, serve_alone
from integer_model import IntegerModel

PLANTS = ("leak", "memory", "text", "descriptor", "thread")
STUCK_SECONDS = 30
FEWEST_CLIENTS = 80
LATE_SECONDS = 60  # a run goes on for so long until everything below has happened

# What must happen in every complete run: the overload is one.
CACHE_COUNTS = ("preemptions_swap", "preemptions_recompute", "blocks_swapped_out",
                "blocks_swapped_in", "tokens_preempted", "evictions", "copies_on_write", "forks",
                "prefix_cache_hits", "migrations")
SOAK_COUNTS = ("waits: pool", "waits: quota", "waits: preempted", "steps aborted", "steps failed",
               "items dropped", "requests cancelled", "clients that hung up",
               "conversations continued", "conversations that came back", "texts forked",
               "texts forked while served", "texts truncated",
               "prompts asked again", "texts compared, whole",
               "texts compared, partial", "engines made and destroyed")


class Soak:
    def __init__(self, options):
        self.options, self.seconds = options, options.minutes * 60
        self.interrupted = False
        self.errors = []  # exceptions of any thread
        self.complaints = []
        self.readings = []
        self.stats = None  # of the cache when it ended
        self.model = IntegerModel(options.seed)
        serve_alone(self.model, options.seed)  # what the first device leaves open stays open
        self.before = (readings.descriptors(), readings.threads())
        self.engine = Engine(self.model, options.seed, options.blocks, options.host_blocks,
                             threads=2)
        self.clients = Clients(self.engine, options.clients, options.seed, options.plant,
                               self.fail)
        self.started = self.last_ran = time.monotonic()
        read_every = min(5, max(0.2, self.seconds / 20))
        self._chores = [[0, every, call] for every, call in (
            (read_every, self.read), (min(23, self.seconds / 4), self.engine.migrate),
            (min(60, self.seconds / 3), self.engine.cache.reset))]
        self._next_line = 0

    def fail(self, why):
        self.errors.append(why)
        self.clients.stopping.set()

    @property
    def age(self):
        return time.monotonic() - self.started

    def run(self):
        signal.signal(signal.SIGINT, self._interrupt)
        for chore in self._chores:
            chore[0] = chore[1]
        print(f"serving {self.options.clients} clients at a time for {self.options.minutes:g} "
              f"minutes, seed {self.options.seed}; Ctrl-C ends it", file=sys.stderr, flush=True)
        self.clients.start()
        if "text" in self.options.plant:
            self.engine.wrong_tokens = 1
        try:
            while self.clients.alive:
                self._round()
            self._end()
        except Exception as why:
            self.fail(why)
            self._give_up()

    def _interrupt(self, *_):
        self.interrupted = True
        self.clients.stopping.set()

    def _round(self):
        late = self.age - self.seconds
        if late >= LATE_SECONDS or late >= 0 and not self._missing():
            self.clients.stopping.set()
        stopping = self.clients.stopping.is_set()
        for chore in () if stopping else self._chores:
            if self.age >= chore[0]:
                chore[0] = self.age + chore[1]
                chore[2]()
        if self.engine.step():
            self.last_ran = time.monotonic()
            return
        if not self.engine.running and not self.engine.inbox:
            self.last_ran = time.monotonic()
        if time.monotonic() - self.last_ran > STUCK_SECONDS:
            raise RuntimeError(f"no request ran for {STUCK_SECONDS} seconds: "
                               f"{self.engine.cache.stats}")
        time.sleep(0.002)

    def read(self):
        """Comes after an engine was made and destroyed, because allocators give memory back to the
        system then: readings of any other time would be of two kinds."""
        self.complaints += serve_alone(self.model, self.options.seed)
        self.clients.count("engines made and destroyed")
        self.engine.forget_ended()
        gc.collect()
        self.engine.cache.check()
        self.readings.append(readings.read(self.age, self.engine))
        last = self.readings[-1]
        if sys.stderr.isatty() or self.age >= self._next_line:
            self._next_line = self.age + min(60, self.seconds / 4)
            texts = sum(self.clients.counts[name] for name in SOAK_COUNTS if "compared" in name)
            mib = [f"{count / 2 ** 20:.3f}" for count in
                   (last.resident_bytes, last.malloc_bytes, last.cache_bytes)]
            print(f"{self.age:7.1f} s: {texts} texts, MiB: {mib[0]} resident, {mib[1]} of malloc, "
                  f"{mib[2]} of the cache, {last.descriptors} descriptors, {last.threads} threads, "
                  f"blocks: {last.blocks_held} held, {last.blocks_cached} cached, "
                  f"{last.blocks_free} free", file=sys.stderr, flush=True)

    def _end(self):
        """Every client has gone: nothing may be left."""
        for thread in self.clients.threads:
            thread.join()
        self.stats = self.engine.cache.stats
        if self.errors:
            return self._give_up()
        self.complaints += self.engine.left_over() + self.engine.close()
        gc.collect()
        after = (readings.descriptors(), readings.threads())
        for name, old, new in zip(("descriptors", "threads"), self.before, after):
            if old != new:
                self.complaints.append(f"{new} {name} after everything was closed; {old} before")
        self.complaints += readings.growth(self.readings)[1] if self.judged else []
        if not self.interrupted:
            self.complaints += [f"it never happened: {name}" for name in self._missing()]

    def _missing(self):
        """What must happen in a complete run, and has not yet."""
        counts = self.counts()
        few = ["readings"] if len(self.readings) < readings.FEWEST else []
        if counts["clients"] < FEWEST_CLIENTS:
            few.append(f"the {FEWEST_CLIENTS}th client")
        return few + [name for name in CACHE_COUNTS + SOAK_COUNTS if counts[name] == 0]

    @property
    def judged(self):
        """An interrupted run may be too short for slopes."""
        return not self.interrupted or len(self.readings) >= readings.FEWEST

    def _give_up(self):
        self.stats = self.engine.cache.stats
        deadline = time.monotonic() + 5
        while self.clients.alive and time.monotonic() < deadline:
            self.engine._drop_cancelled()
            for request in self.engine.running + list(self.engine.inbox):
                request.cancelled = True
            time.sleep(0.01)

    def counts(self):
        stats = self.stats or self.engine.cache.stats
        named = {name: getattr(stats, name) for name in CACHE_COUNTS + ("steps",)}
        with self.clients.lock:
            clients = dict(self.clients.counts)
        ours = {**dict.fromkeys(SOAK_COUNTS + ("clients",), 0), **self.engine.counts, **clients}
        ours.pop("migrations", None)
        return {**named, **ours}

    def report(self):
        found = readings.growth(self.readings)[0]
        failed = bool(self.errors or self.complaints)
        if self.options.json:
            print(json.dumps({
                "seed": self.options.seed, "seconds": round(self.age, 1), "failed": failed,
                "interrupted": self.interrupted, "counts": self.counts(),
                "slopes": [dataclasses.asdict(slope) for slope in found],
                "complaints": self.complaints, "errors": [repr(why) for why in self.errors],
                "readings": [dataclasses.asdict(reading) for reading in self.readings]}))
        else:
            self._print_table(found)
        for why in self.errors:
            traceback.print_exception(why)
        for complaint in self.complaints:
            print(f"FAILED: {complaint}", file=sys.stderr)
        if failed:
            print(f"FAILED with --seed {self.options.seed}", file=sys.stderr)
        return failed

    def _print_table(self, found):
        ended = "interrupted after" if self.interrupted else "ran for"
        print(f"{ended} {self.age:.0f} s with seed {self.options.seed}, {self.options.clients} "
              f"clients at a time\n")
        for name, count in self.counts().items():
            print(f"  {name:<42}{count:>14,}")
        if not found:
            return print("\n  too few readings for slopes")
        print(f"\n  {'over the second half':<22}{'per minute':>26}{'rise':>13}{'allowed':>13}"
              f"{'least':>14}{'most':>14}")
        for slope in found:
            scale, unit = (1024, " KiB") if slope.name.endswith("bytes") else (1, "")
            rate = f"{slope.per_minute / scale:.2f} ± {slope.error / scale:.2f}{unit}"
            columns = [readings.amount(slope.name, value)
                       for value in (slope.rise, slope.allowed, slope.least, slope.most)]
            print(f"  {slope.name:<22}{rate:>26}{columns[0]:>13}{columns[1]:>13}"
                  f"{columns[2]:>14}{columns[3]:>14}")


def arguments():
    parser = argparse.ArgumentParser(
        prog="./dev soak",
        description="Serves clients that come and go, at overload. Fails if a text is not its "
                    "dense run's, if memory, descriptors or threads grow, or if anything stays "
                    "held at the end. Ctrl-C ends it with the report so far.",
        epilog="example: ./dev soak --minutes 30 --seed 7 --json > soak.json")
    parser.add_argument("--minutes", type=float, default=30, help="default: 30")
    parser.add_argument("--seed", type=int, default=1, help="of the model and the clients")
    parser.add_argument("--clients", type=int, default=32, help="at a time, each in a thread")
    parser.add_argument("--blocks", type=int, default=96, help="of the pool of each group")
    parser.add_argument("--host-blocks", type=int, default=24, help="of the host tier, to swap to")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--plant", choices=PLANTS, action="append", default=[],
                        help="plant a fault that the soak must notice; may be repeated")
    options = parser.parse_args()
    if not options.minutes > 0:
        parser.error("--minutes must be more than 0")
    return options


def main():
    if "glibc.malloc.tcache_count" not in os.environ.get("GLIBC_TUNABLES", ""):
        # malloc counts what a thread has freed and kept for itself as handed out.
        os.environ["GLIBC_TUNABLES"] = "glibc.malloc.tcache_count=0"
        os.execv(sys.executable, [sys.executable, *sys.argv])
    soak = Soak(arguments())
    soak.run()
    failed = soak.report()
    sys.stdout.flush()
    sys.stderr.flush()
    if soak.clients.alive:
        os._exit(1)  # a thread hangs; it was reported
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
