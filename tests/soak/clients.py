# SPDX-License-Identifier: Apache-2.0
"""clients: threads that play one client after the other: prompts that begin alike, conversations
that go on, forks, second tries, cancelled requests and connections that break.

Every text, also the part of it that a client who left has got, is compared with its dense run.
"""

import collections
import random
import threading
import time

import quire
from engine import BLOCK_TOKENS, Request, patiently
from integer_model import LONGEST, TENANTS, VOCAB

SYSTEM_PROMPTS = 3  # of each tenant
LIMIT = 200  # tokens of a text; the rest of LONGEST stays free


class Clients:
    """plants  names of faults that the soak must notice
    fail    fail(why) stops all"""

    def __init__(self, engine, count, seed, plants, fail):
        self.engine, self.plants, self.fail = engine, plants, fail
        self.counts = collections.Counter()
        self.lock = threading.Lock()  # of counts
        self.stopping = threading.Event()
        self.planted = []  # what planted faults keep
        self.next_plant = 0
        draw = random.Random(seed)
        # Some end where a block ends: then a prompt of nothing else is found whole.
        lengths = [draw.randrange(2, 6) * BLOCK_TOKENS + draw.choice((0, 0, 3, 7))
                   for _ in range(TENANTS * SYSTEM_PROMPTS)]
        self.systems = [[words(draw, length, length + 1) for length in lengths[tenant::TENANTS]]
                        for tenant in range(TENANTS)]
        self.threads = [threading.Thread(target=self._play, args=(random.Random(f"{seed} {i}"),),
                                         name=f"client {i}") for i in range(count)]

    def start(self):
        for thread in self.threads:
            thread.start()

    @property
    def alive(self):
        return any(thread.is_alive() for thread in self.threads)

    def count(self, name, by=1):
        with self.lock:
            self.counts[name] += by

    def _play(self, draw):
        try:
            while not self.stopping.wait(draw.expovariate(10)):
                self.count("clients")
                self._client(draw)
        except Exception as why:
            self.fail(why)

    def _client(self, draw):
        """One client: a first request, and what it does next until it leaves."""
        tenant = draw.randrange(TENANTS)
        prompt = draw.choice(self.systems[tenant])
        if draw.random() < 0.9:
            prompt = prompt + words(draw, 1, 24)
        request = Request(tenant, prompt, range(len(prompt)), self._limit(draw, prompt))
        self.engine.submit(request)
        while True:
            if not self._read(draw, request):
                return
            act = draw.choices(("leave", "continue", "come back", "fork", "retry", "ask again"),
                               (38, 14, 18, 14, 8, 8))[0]
            if act == "leave" or self.stopping.is_set() or len(request.tokens) > LIMIT - 40:
                return end(request.sequence)
            time.sleep(draw.expovariate(20))  # it reads and types
            request = getattr(self, "_" + act.replace(" ", "_"))(draw, request)

    @staticmethod
    def _limit(draw, tokens):
        return min(LIMIT, len(tokens) + draw.randrange(8, 48))

    def _read(self, draw, request):
        """Reads a text, or a part of it. False: the client has left."""
        chance = draw.random()
        if chance < 0.10:
            request.wait(len(request.tokens) + draw.randrange(0, 12))
            request.cancelled = True
            request.wait()
            end(request.sequence, draw.random() < 0.2)
            self.count("requests cancelled")
        elif chance < 0.18:
            request.wait(len(request.tokens) + draw.randrange(0, 12))
            end(request.sequence, draw.random() < 0.2)  # perhaps while the engine begins a step
            request.cancelled = True
            request.wait()
            self.count("clients that hung up")
        elif chance < 0.26:
            request.wait(len(request.tokens) + draw.randrange(1, 12))
            self._fork_running(draw, request)
            request.wait()
        else:
            self._wait_or_stop(request)
        self._compare(request)
        if chance < 0.18:
            return False
        if request.cancelled:  # the soak stops
            end(request.sequence)
        return not request.cancelled

    def _wait_or_stop(self, request):
        while not request.served:
            if self.stopping.is_set():
                request.cancelled = True
            request.wait(len(request.tokens) + 8)

    def _compare(self, request):
        tokens = list(request.tokens)
        compared = self.engine.model.compare(request.tenant, tokens, request.given)
        whole = len(tokens) >= request.limit
        self.count("texts compared, whole" if whole else "texts compared, partial")
        self.count("tokens compared", compared)
        with self.lock:
            if self.plants and time.monotonic() > self.next_plant and len(self.planted) < 800:
                self.next_plant = time.monotonic() + 0.02  # evenly, on a fast machine too
                for plant in self.plants:
                    self._plant(plant)

    def _plant(self, plant):
        if plant == "leak":
            self.planted.append(patiently(self.engine.cache.sequence))
        elif plant == "memory":
            self.planted.append(bytearray(b"x") * (4 << 20))
        elif plant == "descriptor":
            self.planted.append(open("/dev/null", "rb"))
        elif plant == "thread":
            self.planted.append(threading.Thread(target=time.sleep, args=(3,), daemon=True))
            self.planted[-1].start()

    # What a client does after a text. Each returns the next request.

    def _continue(self, draw, request):
        """The next turn of a conversation, in the same sequence."""
        return self._next(draw, request.tenant, request.tokens, request.given, request.sequence,
                          request.told, "conversations continued")

    def _come_back(self, draw, request):
        """The same, but its sequence has ended meanwhile: the prefix is found, or is not."""
        end(request.sequence)
        time.sleep(draw.expovariate(5))
        return self._next(draw, request.tenant, request.tokens, request.given, None, 0,
                          "conversations that came back")

    def _ask_again(self, draw, request):
        """The same prompt again: its answer is the same."""
        count = min(set(range(len(request.tokens))) - request.given)
        again = Request(request.tenant, request.tokens[:count], range(count),
                        self._limit(draw, request.tokens[:count]))
        end(request.sequence)
        self.engine.submit(again)
        self.count("prompts asked again")
        return again

    def _fork(self, draw, request):
        """Goes on from somewhere in the text, in a fork of the sequence."""
        count = draw.randrange(1, request.told + 1)
        child = self._forked(request.sequence, count)
        if child is None:
            return self._come_back(draw, request)
        end(request.sequence)
        return self._next(draw, request.tenant, request.tokens[:count], request.given, child, count,
                          "texts forked")

    def _retry(self, draw, request):
        """Goes on from an earlier place of the text, in the same sequence, made shorter."""
        count = draw.randrange(1, request.told + 1)
        patiently(lambda: request.sequence.truncate(count))
        return self._next(draw, request.tenant, request.tokens[:count], request.given,
                          request.sequence, count, "texts truncated")

    def _next(self, draw, tenant, tokens, given, sequence, told, name):
        added = words(draw, 2, 16)
        given = {place for place in given if place < len(tokens)}
        given |= set(range(len(tokens), len(tokens) + len(added)))
        tokens = tokens + added
        request = Request(tenant, tokens, given, self._limit(draw, tokens))
        request.sequence, request.told = sequence, told
        self.engine.submit(request)
        self.count(name)
        return request

    def _fork_running(self, draw, request):
        """Forks a text while it is served, and reads both."""
        with request.changed:
            count, tokens = request.told, request.tokens[:request.told]
        child = self._forked(request.sequence, count) if count else None
        if child is None:
            return
        other = self._next(draw, request.tenant, tokens, request.given, child, count,
                           "texts forked while served")
        self._wait_or_stop(other)
        self._compare(other)
        end(other.sequence)

    def _forked(self, sequence, count):
        try:
            return patiently(lambda: sequence.fork(count), 50)
        except (quire.LimitError, quire.BusyError):  # the quota is full, or it is swapped out
            self.count("forks refused")
            return None


def words(draw, least, most):
    return [draw.randrange(VOCAB) for _ in range(draw.randrange(least, most))]


def end(sequence, drop_prefix=False):
    patiently(lambda: sequence.end(drop_prefix))


assert LIMIT < LONGEST
