# SPDX-License-Identifier: Apache-2.0
"""engines: a cache and its event publisher, in Python or in Go, that play the same operations.

The Go one is the program `player`, driven by a line of JSON per operation.
"""

import json
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
