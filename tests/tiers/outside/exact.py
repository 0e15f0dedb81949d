# SPDX-License-Identifier: Apache-2.0
"""exact: once the store is truthful, a prompt finds the longest run of blocks that it holds."""

import quire

from fuzz_store import FIND_LIES
from model import block_names, expect
from played_cache import LOADING, RUN

PROMPTS = 4
TURNS = 3000


def stored_tokens(played, sequence):
    """How many tokens of the prompt's beginning the store holds, but for its last one."""
    if sequence.keyless:
        return 0
    world = played.world
    names = block_names(played.fingerprint(), world.shapes, world.block_tokens, sequence)
    blocks = 0
    for keys in names[:(len(sequence.todo) - 1) // world.block_tokens]:
        if not all(world.store.has(key) for key in keys):
            break
        blocks += 1
    return blocks * world.block_tokens


def load(played, sequence):
    """Begins steps until one runs or waits for blocks. Returns (open step or None, result)."""
    for _ in range(TURNS):
        step = played.cache.begin(
            [quire.Item(sequence.handle, tokens=sequence.todo, may_load=True)],
            queue=played.queue)
        result = step.results[0].copy()
        if result["outcome"] == RUN:
            return step, result
        step.abort()
        if result["outcome"] != LOADING:
            return None, result
        played.cache.wait_load(60.0)
    return expect(False, f"never runs: {result}, {played.cache.tier_stats}")


def compute(played, sequence, step, result):
    step.commit()
    played.queue.sync()
    sequence.known, sequence.todo = sequence.todo, []
    first = int(result["first_position"])
    played.memory.write(sequence, first, int(result["compute_count"]))
    played.world.cells_checked += played.memory.check(sequence, first)
    step.finish()


def check_hits(played, sequence, hit_tokens, expected, was_short):
    world = played.world
    told = f"found {hit_tokens} tokens of {sequence.known}, expected {expected}"
    finds_all = world.store.control.find_mode != FIND_LIES and not world.may_see_nothing
    if finds_all and not was_short:
        expect(hit_tokens >= expected, told)
    if world.only_full and not world.host_prefixes and not sequence.keyless:
        expect(hit_tokens == 0 or expected > 0, told)


def play_prompt(played):
    world = played.world
    prompt = world.prompt()
    namespace = played.chance.choice(["default", "A", "B", "nokey"])
    if len(prompt) < 2:
        prompt = prompt * (world.block_tokens + 1)
    sequence = played.new_sequence(prompt, namespace)
    on_device = sequence.handle.probe(sequence.todo)
    in_store = stored_tokens(played, sequence)
    before = played.cache.tier_stats
    step, result = load(played, sequence)
    played.say("exact", namespace, "device", on_device, "store", in_store, result)
    if step is not None:
        was_short = played.cache.tier_stats.loads_short > before.loads_short
        compute(played, sequence, step, result)
        check_hits(played, sequence, int(result["hit_tokens"]), max(on_device, in_store),
                   was_short)
        world.loads_used += played.cache.tier_stats.loads_used - before.loads_used
        world.found_in_store += in_store > 0
    played.end(sequence)
    played.cache.check()
    played.check_stats("exact")


def play_exactly(played):
    played.detach(30.0)
    played.attach(write=quire.TierWrite.THROUGH)
    for _ in range(PROMPTS):
        play_prompt(played)
    played.settle()
