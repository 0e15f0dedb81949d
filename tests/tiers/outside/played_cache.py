# SPDX-License-Identifier: Apache-2.0
"""played_cache: a cache with a fuzz store below it, its sequences, and what must hold of them."""

import dataclasses
import hashlib
import time

import quire

from model import Memory, Sequence, expect

WAIT, RUN, LOADING = range(3)  # QUIRE_OUTCOME_*
OUTCOMES = ["WAIT", "RUN", "LOADING"]
MAX_SEQUENCES = 12
ENDED_LOADS = ["loads_used", "loads_missed", "loads_failed", "loads_late", "loads_expired",
               "loads_cancelled"]


def must_be_busy(call, what):
    try:
        call()
    except quire.BusyError:
        return
    expect(False, f"{what} was not refused")


def group_of(shape):
    return quire.Group(
        layers=shape.layers, kv_heads=shape.heads, head_dim=shape.k_dim, v_head_dim=shape.v_dim,
        dtype=shape.dtype, kind=getattr(quire.GroupKind, shape.kind.upper()),
        window=shape.window, sink_tokens=shape.sink,
        scale=quire.Scale.TOKEN_HEAD if shape.has_scales else quire.Scale(0))


class PlayedCache:
    def __init__(self, world, number, model):
        self.world, self.number, self.model, self.chance = world, number, model, world.chance
        self.queue = quire.Queue(world.device)
        self.cache = self.create()
        self.memory = Memory(world.shapes, world.block_tokens,
                             [self.cache.pool(group) for group in range(len(world.shapes))])
        self.namespaces = {"default": None, "A": self.cache.namespace(key=b"A"),
                           "B": self.cache.namespace(key=b"B"), "nokey": self.cache.namespace()}
        self.sequences, self.made, self.resets = [], 0, 0
        self.tier, self.attached, self.last_stats = None, False, None

    def create(self):
        world, chance = self.world, self.chance
        flags = quire.CacheFlags(0)
        if world.host_prefixes:
            flags |= quire.CacheFlags.HOST_PREFIXES
        for flag, part in [(quire.CacheFlags.ZERO_ON_FREE, 0.3), (quire.CacheFlags.AUDIT, 0.3),
                           (quire.CacheFlags.EVENTS, 0.2)]:
            if chance.random() < part:
                flags |= flag
        blocks = chance.choice([12, 24, 40, 80])
        a_block = sum(shape.layers * shape.heads * world.block_tokens
                      * (shape.k_dim + shape.v_dim) * 4 + 64 for shape in world.shapes)
        host_bytes = chance.choice([a_block * 6, a_block * 16, a_block * 64, 1 << 20])
        self.say("cache: blocks", blocks, "host bytes", host_bytes, flags)
        return quire.Cache(world.instance, [group_of(shape) for shape in world.shapes],
                           [world.device], block_tokens=world.block_tokens, blocks=blocks,
                           host_bytes=host_bytes, flags=flags, hash_seed=1,
                           max_sequences=2 * MAX_SEQUENCES)

    def say(self, *what):
        self.world.say(f"cache {self.number}:", *what)

    def fingerprint(self):
        """Another one after each reset, because that stands for new weights."""
        return hashlib.sha256(self.model + b"%d" % self.resets).digest()

    def random_attachment(self):
        chance, ideal = self.chance, self.world.ideal
        write = chance.choice([quire.TierWrite.THROUGH] * 4 + [
            quire.TierWrite.SELECTIVE, quire.TierWrite.BACK, quire.TierWrite.NONE])
        settings = {"write": quire.TierWrite.THROUGH if ideal else write}
        if not ideal:
            settings["load_timeout"] = chance.choice(
                [None, None, 1e-9, 0.001, 0.05, 1e9, 18446744073.0])
            settings["load_expiry"] = chance.choice([None, None, 1e-9, 0.01, 18446744073.0])
            settings["min_load_tokens"] = chance.choice(
                [0, 0, 1, self.world.block_tokens * 3, 1000])
        settings["max_load_bytes"] = chance.choice([0, 0, 1, 4096])
        settings["max_write_bytes"] = chance.choice([0, 0, 1, 4096])
        return settings

    def attach(self, **settings):
        if self.tier is None:
            self.tier = quire.Tier(self.world.instance, "fuzz")
        self.say("attach", settings)
        self.cache.attach_tier(self.tier, fingerprint=self.fingerprint(), **settings)
        self.attached, self.last_stats = True, None

    def detach(self, seconds):
        self.cache.detach_tier(seconds)
        self.attached = False

    def new_sequence(self, prompt=None, namespace=None):
        chance = self.chance
        namespace = namespace or chance.choice(["default", "default", "default", "A", "B",
                                                "nokey"])
        keys = ()
        if prompt is None and chance.random() < 0.15:
            keys = (quire.Key(quire.KeyType(1), b"lora%d" % chance.randrange(2)),)
        handle = self.cache.sequence(self.namespaces[namespace], keys=list(keys))
        tenant = f"nokey{self.number}" if namespace == "nokey" else namespace
        identity = (self.model, self.resets, tenant,
                    tuple((int(key.type), bytes(key.content)) for key in keys))
        todo = list(self.world.prompt() if prompt is None else prompt)
        return self.add(Sequence(handle, self.made, namespace, keys, identity, todo))

    def add(self, sequence):
        self.made += 1
        self.sequences.append(sequence)
        self.say("sequence", sequence.number, sequence.namespace, sequence.keys, sequence.known,
                 sequence.todo)
        return sequence

    def fork(self, sequence, length):
        handle = sequence.handle.fork(length)
        return self.add(dataclasses.replace(
            sequence, handle=handle, number=self.made, known=sequence.known[:length], todo=[],
            computed=handle.info.computed_tokens, loading=False))

    def end(self, sequence, drop_prefix=False):
        self.sequences.remove(sequence)
        sequence.handle.end(drop_prefix=drop_prefix)

    def end_all(self):
        for sequence in list(self.sequences):
            self.end(sequence)

    def check_stats(self, when):
        """Counts never fall, and every load that began ended once or is still there."""
        stats = self.cache.tier_stats
        for field in dataclasses.fields(stats) if self.last_stats is not None else ():
            expect(getattr(stats, field.name) >= getattr(self.last_stats, field.name),
                   f"{when}: {field.name} fell")
        self.last_stats = stats
        progress = self.cache.poll_tier()
        stats = self.cache.tier_stats
        there = progress.loads_running + progress.loads_ready
        lost = stats.loads_begun - there - sum(getattr(stats, name) for name in ENDED_LOADS)
        # A load that the host tier turned out to have no room for is short; one that needs no
        # block ends as nothing.
        allowed = lost >= 0 if self.world.may_see_nothing else 0 <= lost <= stats.loads_short
        expect(allowed, f"{when}: {lost} loads without an end: {stats}, {progress}")

    def settle(self, seconds=20):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            progress = self.cache.poll_tier()
            if progress.blocks_queued == 0 and progress.loads_running == 0:
                return progress
        return expect(False, f"does not settle: {progress}")

    def end_play(self):
        """Ended sequences leave nothing: no load, no block, no host block."""
        self.check_stats("at the end")
        self.end_all()
        progress = self.settle()
        expect(progress.loads_ready == 0, f"loads outlive their sequences: {progress}")
        self.cache.check()
        self.check_stats("after the end")
        stats = self.cache.stats
        expect(stats.sequences == stats.blocks_held == stats.host_blocks_used == 0,
               f"something is held without sequences: {stats}")

    def close(self):
        self.memory = None
        for namespace in self.namespaces.values():
            if namespace is not None:
                namespace.close()
        self.queue.sync()
        self.cache.check()
        self.cache.close()
        self.tier.close()
        self.queue.close()
