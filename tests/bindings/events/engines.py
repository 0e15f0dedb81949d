# SPDX-License-Identifier: Apache-2.0
"""engines: a cache and its event publisher, in Python or in Go, that play the same operations.

The Go one is the program `player`, driven by a line of JSON per operation.
"""

import hashlib
import json
import struct
import subprocess

import quire

TENANTS = (0, 1, 2)  # 0: the default namespace; 1: one with a name; 2: one that has none
NAME = "named"       # tenant 1's


class PythonEngine:
    """Operations have the names and arguments of player/main.go."""

    def open(self, blocks, block_tokens, arrays, topic, kept, high_water, limit):
        self.instance = quire.Instance()
        self.cache = quire.Cache(self.instance, [quire.Group(layers=1, kv_heads=1, head_dim=8)],
                                 blocks=blocks, block_tokens=block_tokens,
                                 flags=quire.CacheFlags.EVENTS | quire.CacheFlags.EVENT_TOKENS)
        self.publisher = quire.EventPublisher(
            self.cache, "tcp://127.0.0.1:*", replay="tcp://127.0.0.1:*", topic=topic,
            arrays=arrays, kept=kept, high_water=high_water, limit=limit)
        self.tenants = [None] + [self.cache.namespace(event_tokens=True) for _ in range(2)]
        self.publisher.name(self.tenants[1], NAME)
        self.sequences = {}
        return {"endpoint": self.publisher.endpoint, "replay": self.publisher.replay_endpoint}

    def begin(self, tenant, keyed):
        keys = [quire.Key(quire.KeyType.SALT, b"salt")] if keyed else []
        return self.cache.sequence(namespace=self.tenants[tenant], keys=keys)

    def grow(self, sequence, tokens, tenant=0, keyed=False, fail=False):
        if sequence not in self.sequences:
            self.sequences[sequence] = self.begin(tenant, keyed)
        with self.cache.begin([quire.Item(self.sequences[sequence], tokens=tokens)]) as step:
            step.commit()
            step.finish(failed=True) if fail else step.finish()
        return {"run": int(step.results[0]["outcome"]) == quire.RUN}

    def end(self, sequence, drop=False):
        self.sequences.pop(sequence).end(drop)
        return {}

    def reset(self):
        self.cache.reset()
        return {}

    def snapshot(self):
        self.publisher.snapshot()
        return {}

    def publish(self):
        return {"more": self.publisher.publish()}

    def published(self):
        return {"published": self.publisher.published}

    def probe(self, tokens, tenant=0, keyed=False):
        sequence = self.begin(tenant, keyed)
        hits = sequence.probe(tokens)
        sequence.end()
        return {"hits": hits}

    def evictions(self):
        return {"evictions": self.cache.stats.evictions}

    def close(self):
        self.publisher.close()
        self.cache.check()
        self.cache.close()
        self.instance.close()


class StoreEngine(PythonEngine):
    """A Python engine with a store below its cache, which has all that was ever computed."""

    KEYS = (b"", b"blue", b"")  # by tenant; the last one has no name outside of the cache

    def open(self, blocks, block_tokens, arrays, topic, kept, high_water, limit):
        self.instance = quire.Instance()
        self.device = quire.Device(self.instance, "cpu")
        self.queue = quire.Queue(self.device)
        self.cache = quire.Cache(
            self.instance, [quire.Group(layers=1, kv_heads=1, head_dim=8, dtype=quire.DType.F32)],
            [self.device], blocks=blocks, block_tokens=block_tokens, host_bytes=1 << 20,
            flags=quire.CacheFlags.EVENTS | quire.CacheFlags.EVENT_TOKENS)
        self.tier = quire.Tier(self.instance, "memory", {"capacity": "256MiB"})
        self.block_tokens, self.model = block_tokens, 0
        self.attach()
        self.publisher = quire.EventPublisher(
            self.cache, "tcp://127.0.0.1:*", replay="tcp://127.0.0.1:*", topic=topic,
            arrays=arrays, kept=kept, high_water=high_water, limit=limit)
        self.tenants = [None] + [self.cache.namespace(event_tokens=True, key=key)
                                 for key in self.KEYS[1:]]
        self.publisher.name(self.tenants[1], NAME)
        self.sequences, self.loaded = {}, 0
        return {"endpoint": self.publisher.endpoint, "replay": self.publisher.replay_endpoint}

    def attach(self):
        self.model += 1
        self.cache.attach_tier(self.tier, fingerprint=bytes([self.model]), load_timeout=600)

    def grow(self, sequence, tokens, tenant=0, keyed=False, fail=False):
        if sequence not in self.sequences:
            self.sequences[sequence] = self.begin(tenant, keyed)
        outcome = quire.LOADING
        while outcome == quire.LOADING:
            item = quire.Item(self.sequences[sequence], tokens=tokens, may_load=True)
            with self.cache.begin([item], queue=self.queue) as step:
                step.commit()
                outcome = int(step.results[0]["outcome"])
                step.finish(failed=True) if fail and outcome == quire.RUN else step.finish()
            self.queue.sync()
            if outcome == quire.LOADING:
                self.cache.wait_load()
        while self.cache.poll_tier().blocks_queued:
            pass
        return {"run": outcome == quire.RUN}

    def reset(self):
        self.loaded += self.cache.tier_stats.loads_used
        self.cache.reset()
        self.cache.detach_tier()
        self.attach()
        return {}

    def keys_of(self, tokens, tenant):
        """The keys of the values of the whole blocks, as docs/tiers.md has them."""
        words = lambda *numbers: struct.pack(f"<{len(numbers)}I", *numbers)
        sha = lambda content: hashlib.sha256(content).digest()
        key = self.KEYS[tenant]
        name = sha(b"quire tier 1".ljust(16, b"\0") + bytes([self.model]).ljust(32, b"\0")
                   + (sha(key) if key else bytes(32)) + words(self.block_tokens, 1, 0))
        f32 = int(quire.DType.F32)
        for at in range(0, len(tokens) - self.block_tokens + 1, self.block_tokens):
            name = sha(name + words(0, 0, *tokens[at:at + self.block_tokens]))
            yield sha(name + words(0, 0, 0, 0, 1, 1, 8, 8, f32, f32, 0, 0))

    def probe(self, tokens, tenant=0, keyed=False):
        """What the device has, and after it the store."""
        hits = super().probe(tokens, tenant, keyed)["hits"]
        if tenant == 2 or keyed:
            return {"hits": hits}
        stored = {bytes(record.label.key) for record in self.tier.records()}
        keys = list(self.keys_of(tokens[:-1], tenant))
        while hits // self.block_tokens < len(keys) and keys[hits // self.block_tokens] in stored:
            hits += self.block_tokens
        return {"hits": hits}

    def close(self):
        self.loaded += self.cache.tier_stats.loads_used
        self.publisher.close()
        self.cache.check()
        self.cache.detach_tier()
        self.cache.close()
        self.tier.close()
        self.queue.close()
        self.device.close()
        self.instance.close()
        if self.loaded == 0:
            raise AssertionError("nothing was loaded from the store")


class GoEngine:
    """The same by the Go program at `path`."""

    def __init__(self, path):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, bufsize=1)

    def __getattr__(self, name):
        def ask(*positional, **arguments):
            for key, value in zip(("sequence", "tokens") if name == "grow" else
                                  ("tokens",) if name == "probe" else ("sequence",), positional):
                arguments[key] = value
            self.process.stdin.write(json.dumps({"do": name, **arguments}) + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
            if not answer:
                raise RuntimeError(f"the player ended at {name}: {self.process.wait()}")
            return json.loads(answer)
        return ask

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=60)
        self.process.stdout.close()
        if self.process.returncode != 0:
            raise RuntimeError(f"the player ended with {self.process.returncode}")
