# SPDX-License-Identifier: Apache-2.0
"""schedules: random operations on caches that share a store, which fails in every way it may.

    schedules.py PLUGIN [--seed N] [--count N] [--verbose]

PLUGIN is quire_store_fuzz.so. QUIRE_TEST_EFFORT sets how many seeds of 3,000 are played and
QUIRE_TEST_SEED the first of them; --seed plays that one alone, or --count of them from it on.
README.md says what is checked.
"""

import argparse
import os
import pathlib
import random
import sys
import time

import quire

from exact import play_exactly
from fuzz_store import (FIND_LIES, FIND_PRESENT_OR_UNKNOWN, FIND_SOMETIMES, FIND_TELLS,
                        FIND_UNKNOWN, FuzzStore)
from model import GroupShape, expect
from played_cache import MAX_SEQUENCES, PlayedCache, must_be_busy
from played_step import play_step

ALL = 3000
COUNTS = {"few": 60, "usual": 60, "all": ALL}
KINDS = [["full"], ["full"], ["full"], ["full", "full"], ["full", "window"], ["full", "window"],
         ["window"], ["chunked"], ["full", "chunked", "window"], ["latent"], ["latent", "window"]]
TOLD_LINES = 60  # of a failed schedule


def random_shape(kind, chance):
    latent = kind == "latent"
    layers = chance.choice([1, 2])
    heads = 1 if latent else chance.choice([1, 2])
    dim = chance.choice([2, 4])
    dtype = chance.choice(["f32", "f32", "int8", "f16"])
    window = chance.choice([1, 3, 6, 9]) if kind in ("window", "chunked") else 0
    sink = chance.choice([0, 0, 2, 5]) if kind == "window" else 0
    return GroupShape(kind, layers, heads, 4 if latent else dim, 2 if latent else dim, dtype,
                      window, sink)


class World:
    """One schedule: a device, one or two caches, and the store that they share."""

    def __init__(self, store, plugin, seed, verbose):
        self.store, self.chance, self.verbose, self.log = store, random.Random(seed), verbose, []
        self.cells_checked = self.found_in_store = self.loads_used = 0
        chance = self.chance
        store.reset(seed)
        self.ideal = chance.random() < 0.35  # only the order of answers is random
        self.set_store()
        self.block_tokens = chance.choice([1, 2, 4, 4, 8])
        kinds = chance.choice(KINDS)
        self.shapes = [random_shape(kind, chance) for kind in kinds]
        self.host_prefixes = chance.random() < 0.2 and kinds[0] == "full"
        self.only_full = all(shape.kind in ("full", "latent") for shape in self.shapes)
        self.may_see_nothing = all(shape.may_see_nothing() for shape in self.shapes)
        self.say("ideal" if self.ideal else "faulty", self.block_tokens, self.shapes,
                 self.store.settings())
        self.instance = quire.Instance(plugin_path=[str(plugin.parent)])
        self.device = quire.Device(self.instance, "cpu", inline=chance.random() < 0.7, threads=1)
        self.make_caches()
        self.trees = [[chance.randrange(1, 50)
                       for _ in range(self.block_tokens * chance.randrange(2, 9))]
                      for _ in range(3)]

    def set_store(self):
        chance, control = self.chance, self.store.control
        control.find_mode = chance.choice(
            [FIND_TELLS, FIND_UNKNOWN, FIND_SOMETIMES, FIND_PRESENT_OR_UNKNOWN] if self.ideal else
            [FIND_TELLS, FIND_UNKNOWN, FIND_UNKNOWN, FIND_SOMETIMES, FIND_LIES,
             FIND_PRESENT_OR_UNKNOWN])
        control.max_requests = chance.choice([1, 3, 3, 64, 256])
        control.max_delay = chance.choice([0, 0, 2, 5, 20])
        control.use_descriptor = chance.random() < 0.5
        control.remote = chance.random() < 0.5
        control.notices = chance.random() < 0.7
        control.cancel_honoured = chance.choice([0, 1, 2])
        if not self.ideal:
            self.store.set_faults(chance)

    def make_caches(self):
        count = self.chance.choice([1, 2, 2])
        same_model = self.chance.random() < 0.7
        self.caches = [PlayedCache(self, i, b"model%d" % (0 if same_model else i))
                       for i in range(count)]

    def prompt(self):
        """The beginning of one of three prompts, sometimes with another end."""
        tree = self.chance.choice(self.trees)
        prompt = tree[:self.chance.randrange(1, len(tree) + 1)]
        if self.chance.random() < 0.4:
            count = self.chance.randrange(0, self.block_tokens * 3 + 1)
            prompt = prompt + [self.chance.randrange(50, 53) for _ in range(count)]
        return prompt

    def say(self, *what):
        self.log.append(" ".join(map(str, what)))
        if self.verbose:
            print(self.log[-1], flush=True)

    def play(self):
        for played in self.caches:
            played.attach(**played.random_attachment())
        for number in range(self.chance.randrange(20, 90)):
            played = self.chance.choice(self.caches)
            play_operation(played)
            played.cache.check()
            played.check_stats(f"after operation {number}")
        self.store.let_go()
        for played in self.caches:
            played.end_play()
        self.store.be_truthful()
        for played in self.caches:
            play_exactly(played)
        for played in self.caches:
            played.detach(30.0)
            played.cache.check()
        expect(not self.store.control.wrong_requests, "the library made a wrong request")

    def close(self):
        for played in self.caches:
            played.close()
        self.device.close()
        self.instance.close()
        problem = self.store.problem()
        expect(problem is None, problem)


def wait_load(played):
    began = time.monotonic()
    try:
        played.cache.wait_load(played.chance.choice([0.0, 0.001, 0.02]))
        played.say("waited for a load")
    except quire.TimeoutError:
        played.say("no load in time")
    took = time.monotonic() - began
    expect(took < 60, f"wait_load took {took} s")  # its limit is far shorter


def end_sequence(played):
    sequence = played.sequences[played.chance.randrange(len(played.sequences))]
    drop_prefix = played.chance.random() < 0.2
    played.say("end", sequence.number, "and its prefix" if drop_prefix else "")
    played.end(sequence, drop_prefix)


def cancel_load(played):
    sequence = played.chance.choice(played.sequences)
    played.say("cancel the load of", sequence.number)
    played.cache.cancel_load(sequence.handle)


def truncate(played):
    sequence = played.chance.choice(played.sequences)
    length = played.chance.randrange(0, len(sequence.known) + 1)
    played.say("truncate", sequence.number, length)
    sequence.handle.truncate(length)
    sequence.known = sequence.known[:length]
    sequence.computed = sequence.handle.info.computed_tokens


def fork(played):
    sequence = played.chance.choice(played.sequences)
    if not sequence.known:
        return
    length = played.chance.randrange(1, len(sequence.known) + 1)
    try:
        played.fork(sequence, length)
    except (quire.BusyError, quire.LimitError) as error:
        played.say("fork", sequence.number, error)


def hold_answers(played):
    control = played.world.store.control
    control.hold = played.chance.random() < 0.3
    control.take_none = played.chance.random() < 0.3
    played.say("hold", control.hold, "take none", control.take_none)


def evict_all(played):
    played.world.store.evict_all()
    played.say("the store evicts all")


def detach_and_attach(played):
    """Detaching may take several calls, and steps go on in between."""
    played.say("detach")
    for turn in range(400):
        try:
            played.detach(0.005)
            break
        except quire.TimeoutError:
            if turn > 3:
                played.world.store.let_go()
            if played.chance.random() < 0.3:
                play_step(played)
    expect(not played.attached, "detaching never ends")
    if played.chance.random() < 0.3:
        play_step(played)
    played.attach(**played.random_attachment())


def reset(played):
    """As an engine does that loads other weights."""
    played.say("reset")
    played.cache.reset()
    played.world.store.let_go()
    played.detach(20.0)
    played.end_all()
    played.resets += 1
    played.attach(**played.random_attachment())


def close_too_early(played):
    must_be_busy(played.cache.close, "closing a cache with a tier")


def attach_twice(played):
    must_be_busy(lambda: played.cache.attach_tier(played.tier), "a second tier")


def has_room(played):
    return len(played.sequences) < MAX_SEQUENCES


def always(played):
    return True


def has_sequences(played):
    return bool(played.sequences)


def is_faulty(played):
    return not played.world.ideal


# The first that its limit and condition allow is played.
OPERATIONS = [
    (0.25, has_room, lambda played: played.new_sequence()),
    (0.70, always, play_step),
    (0.76, always, lambda played: played.cache.poll_tier()),
    (0.80, always, wait_load),
    (0.86, has_sequences, end_sequence),
    (0.89, has_sequences, cancel_load),
    (0.91, has_sequences, truncate),
    (0.93, lambda played: has_sequences(played) and has_room(played), fork),
    (0.95, is_faulty, hold_answers),
    (0.96, lambda played: is_faulty(played) and played.chance.random() < 0.5, evict_all),
    (0.975, is_faulty, detach_and_attach),
    (0.98, lambda played: is_faulty(played) and played.chance.random() < 0.4, reset),
    (0.985, always, close_too_early),
    (1.0, always, attach_twice),
]


def play_operation(played):
    drawn = played.chance.random()
    next(play for limit, is_possible, play in OPERATIONS
         if drawn < limit and is_possible(played))(played)


def chosen_seeds(options):
    if options.seed is not None:
        return range(options.seed, options.seed + options.count)
    count = COUNTS[os.environ.get("QUIRE_TEST_EFFORT") or "usual"]
    begin = int(os.environ.get("QUIRE_TEST_SEED") or 0) if count < ALL else 0
    return [1 + (begin + i) % ALL for i in range(count)]


def play_seed(store, options, seed):
    world = None
    try:
        world = World(store, options.plugin, seed, options.verbose)
        world.play()
        world.close()
    except Exception:
        told = [] if options.verbose or world is None else world.log[-TOLD_LINES:]
        print(*told, f"FAILED: seed {seed}", sep="\n", flush=True)
        raise
    return world


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("plugin", type=pathlib.Path)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    options.plugin = options.plugin.resolve()
    store = FuzzStore(options.plugin)
    seeds = chosen_seeds(options)
    worlds = cells = loads = found = 0
    for seed in seeds:
        world = play_seed(store, options, seed)
        worlds += 1
        cells += world.cells_checked
        loads += world.loads_used
        found += world.found_in_store
    print(f"{worlds} schedules from seed {seeds[0]} on, {cells} cells checked, {found} prompts "
          f"found in the store, {loads} loads used")
    if options.seed is None and not (cells and loads and found):
        sys.exit("FAILED: the schedules check nothing")


if __name__ == "__main__":
    main()
