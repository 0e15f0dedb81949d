# SPDX-License-Identifier: Apache-2.0
"""Routers of other projects that follow a publisher find what the cache finds: over random work
with evictions, failed steps and resets, and after they lost messages."""

import importlib.util
import os
import random
import tempfile
import unittest

MISSING = [name for name in ("zmq", "msgpack") if importlib.util.find_spec(name) is None]
if MISSING:
    raise unittest.SkipTest(f"{' and '.join(MISSING)} is not installed")

import engines  # noqa: E402
import judges  # noqa: E402
from subscriber import Subscriber  # noqa: E402

PLAYER = os.environ.get("QUIRE_TEST_EVENT_PLAYER")
TURNS = 1000 if os.environ.get("QUIRE_TEST_ALL") else 150
BURST = 2500  # messages
TOPIC = f"kv@pod@{judges.Llmd.MODEL}"
BUILT = tempfile.TemporaryDirectory()  # judges' programs


class Work:
    """Random prompts that share prefixes, on an engine."""

    def __init__(self, engine, block_tokens, seed):
        self.engine, self.block_tokens = engine, block_tokens
        self.random = random.Random(seed)
        self.live, self.count = {}, 0
        self.prompts = [[]]

    def prompt(self):
        """A known prompt, cut and continued by tokens of few values."""
        known = self.random.choice(self.prompts)
        tokens = known[:self.random.randrange(len(known) + 1)]
        tokens += [self.random.randrange(70000, 70003)
                   for _ in range(self.random.randrange(1, 8 * self.block_tokens))]
        self.prompts.append(tokens)
        del self.prompts[:-64]
        return tokens

    def step(self):
        if self.live and (len(self.live) > 5 or self.random.random() < 0.35):
            number = self.random.choice(list(self.live))
            if self.random.random() < 0.4:
                del self.live[number]
                self.engine.end(number)
                return
            more = [self.random.randrange(70000, 70003)
                    for _ in range(self.random.randrange(1, self.block_tokens + 1))]
            self.live[number] += more
            self.engine.grow(number, tokens=more, fail=self.random.random() < 0.1)
            return
        self.count += 1
        tokens, chance = self.prompt(), self.random.random()
        tenant = 0 if chance < 0.7 else 1 if chance < 0.85 else 2
        answer = self.engine.grow(self.count, tokens=tokens, tenant=tenant,
                                  keyed=self.random.random() < 0.1)
        if answer["run"]:
            self.live[self.count] = tokens
        else:  # the pool is full of live sequences
            self.engine.end(self.count)

    def question(self):
        """Whole blocks of a prompt, and a token that is left to compute."""
        prompt = self.random.choice(self.prompts + list(self.live.values()))
        blocks = max(1, len(prompt) // self.block_tokens)
        tokens = (prompt + [70000] * self.block_tokens)[:blocks * self.block_tokens]
        return tokens, self.random.choice(engines.TENANTS)


class Routers:
    """The cases of one judge and one engine."""

    judge = None      # a class of judges.py
    in_go = False
    has_store = False
    arrays = False    # the form of the events
    block_tokens = 4

    def setUp(self):
        reason = self.judge.missing()
        if reason is None and self.in_go and not PLAYER:
            reason = "the Go package is not built: ./dev setup go installs what it needs"
        if reason:
            self.skipTest(reason)
        self.engine = (engines.GoEngine(PLAYER) if self.in_go else engines.StoreEngine()
                       if self.has_store else engines.PythonEngine())
        self.addCleanup(self.engine.close)

    def router(self):
        arguments = [self.block_tokens]
        if self.judge is judges.Llmd:
            arguments.append(BUILT.name)
        router = self.judge(*arguments)
        self.addCleanup(router.close)
        return router

    def open(self, **options):
        options = {"kept": 1000, "high_water": 10000, "limit": 16, **options}
        at = self.engine.open(blocks=48, block_tokens=self.block_tokens, arrays=self.arrays,
                              topic=TOPIC, **options)
        subscriber = Subscriber(self.engine, at, slow=options["high_water"] < 100)
        self.addCleanup(subscriber.close)
        return subscriber

    def compare(self, work, router, count):
        """The number of questions to which both answered with a block or more."""
        found = 0
        for _ in range(count):
            tokens, tenant = work.question()
            hits = self.engine.probe(tokens=[*tokens, 1], tenant=tenant)["hits"]
            wanted = hits // self.block_tokens
            if tenant != 2:
                name = engines.NAME if tenant == 1 else None
                self.assertEqual(router.find(tokens, name), wanted, (tokens, tenant))
                found += wanted != 0
        return found

    def test_find_what_the_cache_finds(self):
        router, subscriber = self.router(), self.open()
        work = Work(self.engine, self.block_tokens, seed=1)
        found = 0
        for turn in range(TURNS):
            for _ in range(4):
                work.step()
            if turn % 100 == 99:
                self.engine.reset()
            for message in subscriber.read():
                router.message(*message)
            found += self.compare(work, router, 8)
        self.assertEqual(subscriber.lost, 0)
        self.assertGreater(self.engine.evictions()["evictions"], TURNS)
        self.assertGreater(found, TURNS)

    def test_find_it_again_after_they_lost_messages(self):
        self.block_tokens = 64  # long messages
        router, subscriber = self.router(), self.open(kept=4, high_water=20)
        work = Work(self.engine, self.block_tokens, seed=2)
        for _ in range(3):
            lost = subscriber.lost
            for _ in range(BURST):  # the buffers of both sides fill up, and then the queue
                work.step()
                self.engine.snapshot()
                self.engine.publish()
            for message in subscriber.read():
                router.message(*message)
            self.assertGreater(subscriber.lost, lost)
            self.assertGreater(self.compare(work, router, 600), 20)
        self.assertGreaterEqual(subscriber.replays, 3)


class StoreRouters(Routers):
    """The engine has a store. What it has does not fit into the messages that are kept in the other
    case."""

    has_store = True
    test_find_it_again_after_they_lost_messages = None


class PlainFollowsPython(Routers, unittest.TestCase):
    judge = judges.Plain


class PlainFollowsPythonInArrays(Routers, unittest.TestCase):
    judge = judges.Plain
    arrays = True


class PlainFollowsAStore(StoreRouters, unittest.TestCase):
    judge = judges.Plain


class PlainFollowsGo(Routers, unittest.TestCase):
    judge = judges.Plain
    in_go = True


class DynamoFollowsPython(Routers, unittest.TestCase):
    judge = judges.Dynamo


class DynamoFollowsGo(Routers, unittest.TestCase):
    judge = judges.Dynamo
    in_go = True


class DynamoWireFollowsPython(Routers, unittest.TestCase):
    judge = judges.DynamoWire


class DynamoWireFollowsPythonInArrays(Routers, unittest.TestCase):
    judge = judges.DynamoWire
    arrays = True


class DynamoWireFollowsAStore(StoreRouters, unittest.TestCase):
    judge = judges.DynamoWire


class DynamoWireFollowsGo(Routers, unittest.TestCase):
    judge = judges.DynamoWire
    in_go = True


class LlmdFollowsPython(Routers, unittest.TestCase):
    judge = judges.Llmd
    arrays = True


class LlmdFollowsAStore(StoreRouters, unittest.TestCase):
    judge = judges.Llmd
    arrays = True


class LlmdFollowsGo(Routers, unittest.TestCase):
    judge = judges.Llmd
    in_go = True
    arrays = True


if __name__ == "__main__":
    unittest.main()
