# SPDX-License-Identifier: Apache-2.0
"""engine: serves requests of many clients from one cache that is too small for them.

One thread calls step() and everything in "Chores"; clients submit, cancel and wait from threads of
their own, and also end, fork and truncate sequences themselves.
"""

import collections
import random
import threading
import time

import numpy as np

import quire
from counting_instance import CountingInstance
from integer_model import DIM, HEADS, LONGEST, TENANTS, IntegerModel

BLOCK_TOKENS = 8
ROWS = 16  # requests that are served at a time; the others wait
CHUNK = 32
PATIENCE = 8  # steps that a request waits before others give up their blocks for it
QUOTAS = (0, 56, 56, 0)  # blocks of each tenant


def patiently(call, tries=20000):
    """Calls again while the sequence is in the open step, or the cache moves."""
    for _ in range(tries):
        try:
            return call()
        except quire.BusyError:
            time.sleep(0.0005)
    return call()


class Request:
    """One text. tokens and the flags change under `changed`."""

    def __init__(self, tenant, tokens, given, limit):
        self.tenant, self.tokens, self.given, self.limit = tenant, list(tokens), set(given), limit
        self.told = 0  # of the tokens, how many Quire knows
        self.sequence = None
        self.waits = 0  # steps in a row
        self.cancelled = False  # by the client; the engine lets go of it before its next step
        self.served = False  # the engine no longer touches it
        self.changed = threading.Condition()

    def wait(self, count=None):
        """Waits until the text has `count` tokens, or is no longer served."""
        with self.changed:
            while not self.served and (count is None or len(self.tokens) < count):
                self.changed.wait(1)

    def let_go(self):
        with self.changed:
            self.served = True
            self.changed.notify_all()


class Engine:
    """counts   what happened, by name
    random   decides when steps are aborted or fail"""

    def __init__(self, model, seed, blocks, host_blocks, threads=1):
        self.model, self.random, self.counts = model, random.Random(seed), collections.Counter()
        self.blocks, self.threads = blocks, threads
        self.instance = CountingInstance()
        self.device = quire.Device(self.instance, "cpu", threads=threads)
        self.queue = quire.Queue(self.device)
        bytes_per_token = sum(2 * group.layers for group in model.GROUPS) * HEADS * DIM * 4
        self.host_bytes = host_blocks * BLOCK_TOKENS * bytes_per_token
        self.cache = quire.Cache(self.instance, model.GROUPS, [self.device], blocks=blocks,
                                 block_tokens=BLOCK_TOKENS, host_bytes=self.host_bytes,
                                 max_sequences=256, max_sequence_tokens=LONGEST)
        self.tenants = [self.cache.namespace(b"tenant %d" % i, QUOTAS[i]) for i in range(TENANTS)]
        self.batch = self._new_batch()
        self.wrong_tokens = 0  # to plant: the next texts get one wrong token each
        self.inbox = collections.deque()
        self.sequences = {}  # by handle, all that were submitted; some have ended
        self.running = []

    def _new_batch(self):
        return self.cache.batch(ROWS, LONGEST // BLOCK_TOKENS, ROWS * LONGEST,
                                attention=quire.Attention(HEADS))

    def submit(self, request):
        if request.sequence is None:
            request.sequence = patiently(
                lambda: self.cache.sequence(self.tenants[request.tenant]))
        self.sequences[request.sequence.handle] = request.sequence
        self.inbox.append(request)

    def step(self):
        """Computes a token, or a chunk of a prompt, for each request that has room. False: no
        request ran."""
        self._drop_cancelled()
        while self.inbox and len(self.running) < ROWS:
            self.running.append(self.inbox.popleft())
        # The oldest come first: later ones are preempted when blocks are short.
        asked = [request for request in self.running if self.random.random() > 0.02]
        if not asked:
            return False
        try:
            step = self._begin(asked)
        except quire.StaleError:  # a client hung up: its sequence ended since
            self.counts["steps refused because a client hung up"] += 1
            self._drop_ended()
            return True
        with step:
            return self._serve(step, asked)

    def _begin(self, asked):
        items = [quire.Item(request.sequence, tokens=request.tokens[request.told:],
                            max_compute=CHUNK) for request in asked]
        how = self.random.choice(list(quire.Preempt))
        return self.cache.begin(items, queue=self.queue, may_preempt=True, preempt=how)

    def _serve(self, step, asked):
        results = step.results
        for reason in results["reason"][results["outcome"] != quire.RUN]:
            self.counts[f"waits: {quire.Reason(reason).name.lower()}"] += 1
        rows = [pair for pair in zip(asked, results) if pair[1]["outcome"] == quire.RUN]
        chance = self.random.random()
        if chance < 0.01:
            step.abort()
            self.counts["steps aborted"] += 1
            return True
        if chance < 0.02 and rows:
            gone = self._drop(step, rows)
            if gone is None:
                return True
            rows = [pair for pair in rows if pair[0].sequence.handle not in gone]
        elif chance < 0.05:
            self._preempt_idle(step, asked)
        starving = self._starving(asked, results)
        if starving:
            self._make_room(step, starving, rows)
        step.commit(self.batch)
        if not rows:
            step.finish()
            self.queue.sync()
            return False
        fails = 0.05 < chance < 0.08
        chosen = self._forward(rows, fails)
        step.finish(failed=fails)
        self.counts["steps failed"] += fails
        self._take(rows, None if fails else chosen)
        return True

    def _drop(self, step, rows):
        """Takes an item back, a prompt rather than one more token: later items may have found its
        blocks. Returns the handles that left. None: the step was aborted, because a sequence was
        preempted for blocks that the item gave up, which quire_step_drop says."""
        computed = [int(result["compute_count"]) for _, result in rows]
        try:
            gone = step.drop(self.random.choices(rows, computed)[0][0].sequence)
        except quire.BusyError:
            self.counts["drops refused"] += 1
            step.abort()
            return None
        self.counts["items dropped"] += len(gone)
        return gone

    @staticmethod
    def _starving(asked, results):
        """The requests that have waited for many steps."""
        for request, result in zip(asked, results):
            request.waits = 0 if result["outcome"] == quire.RUN else request.waits + 1
        starving = [request for request in asked if request.waits >= PATIENCE]
        for request in starving:
            request.waits = 0
        return starving

    def _preempt_idle(self, step, asked):
        gone = set(step.preempted["seq"])  # by Quire, for this step's items
        for request in self.running:
            idle = request not in asked and request.sequence.handle not in gone
            if idle and request.told != 0:
                try:
                    step.preempt(request.sequence, self.random.choice(list(quire.Preempt)))
                    self.counts["preempted by the engine"] += 1
                except quire.StaleError:  # its client hung up
                    pass

    def _make_room(self, step, starving, rows):
        """Takes the blocks of sequences whose clients read or wait for another text: no item does
        so if its own sequence has nothing on the device. And those of a starving tenant's newer
        requests, because Quire preempts for a shortage of the pool, and not for a quota."""
        safe = {request.sequence.handle for request, _ in rows}
        for tenant in range(TENANTS):
            own = [request for request in self.running if request.tenant == tenant]
            kept = own[:1] if any(request in starving for request in own) else own
            safe |= {request.sequence.handle for request in kept}
        safe |= set(step.preempted["seq"])
        for handle, sequence in list(self.sequences.items()):
            if handle not in safe:
                try:
                    freed = step.preempt(sequence, self.random.choice(list(quire.Preempt)))
                    self.counts["preempted to make room"] += bool(freed)
                except quire.StaleError:
                    del self.sequences[handle]

    def _forward(self, rows, fails):
        """The token after the last computed one of each row. A step that fails leaves wrong values
        in its blocks, which must not be seen again."""
        parts = [result["first_position"] + np.arange(result["compute_count"])
                 for _, result in rows]
        tokens = np.concatenate([np.array(request.tokens)[part]
                                 for (request, _), part in zip(rows, parts)])
        tenants = np.repeat([request.tenant for request, _ in rows], [len(part) for part in parts])

        def attend(layer, k, v, q):
            out = np.empty_like(q)
            self.batch.kv_write(layer, k, v + 3 if fails else v)
            self.batch.attend(layer, q, out)
            self.queue.sync()
            return out

        chosen = self.model.forward(tenants, tokens, np.concatenate(parts), attend)
        return chosen[np.cumsum([len(part) for part in parts]) - 1]

    def _take(self, rows, chosen):
        for i, (request, result) in enumerate(rows):
            with request.changed:
                request.told = len(request.tokens)
                reached = result["first_position"] + result["compute_count"]
                if chosen is not None and reached == len(request.tokens):
                    wrong, self.wrong_tokens = self.wrong_tokens > 0, max(0, self.wrong_tokens - 1)
                    request.tokens.append(int(chosen[i]) ^ wrong)
                request.served = len(request.tokens) >= request.limit
                request.changed.notify_all()
        self.running = [request for request in self.running if not request.served]

    def _drop_cancelled(self):
        for request in [request for request in self.running if request.cancelled]:
            self.running.remove(request)
            request.let_go()
        for request in [request for request in list(self.inbox) if request.cancelled]:
            self.inbox.remove(request)
            request.let_go()

    def forget_ended(self):
        for handle, sequence in list(self.sequences.items()):
            try:
                sequence.info
            except quire.StaleError:
                del self.sequences[handle]

    def _drop_ended(self):
        for request in list(self.running):
            try:
                request.sequence.info
            except quire.StaleError:
                self.running.remove(request)
                request.let_go()

    # Chores, between steps.

    def migrate(self):
        """Moves the cache to a new device and another size, and closes the old device."""
        device = quire.Device(self.instance, "cpu", threads=self.threads)
        queue = quire.Queue(device)
        wanted = self.blocks + 8 * (self.counts["migrations"] % 2 == 0)
        moved = self.cache.migrate([device], blocks=wanted, host_bytes=self.host_bytes,
                                   copy_host_tier=True).moved
        old = (self.queue, self.device) if moved else (queue, device)
        if moved:
            self.batch.close()
            self.queue, self.device, self.batch = queue, device, self._new_batch()
        for thing in old:
            thing.close()
        self.counts["migrations" if moved else "migrations that did not fit"] += 1

    def left_over(self):
        """What is still held when every client has gone, as a list of complaints."""
        self.queue.sync()
        self.cache.begin(queue=self.queue).abort()  # the library notices that the last step is done
        self.cache.check()
        for tenant in self.tenants:
            tenant.close()
        stats = self.cache.stats
        left = [f"{getattr(stats, name)} {name} at the end"
                for name in ("sequences", "blocks_held", "host_blocks_used")
                if getattr(stats, name) != 0]
        if stats.blocks_free + stats.blocks_cached != stats.blocks_total:
            left.append(f"{stats.blocks_free} blocks are free and {stats.blocks_cached} cached, of "
                        f"{stats.blocks_total}")
        self.cache.reset()
        stats = self.cache.stats
        if stats.blocks_free != stats.blocks_total or stats.nodes != 0:
            left.append(f"after a reset {stats.blocks_free} of {stats.blocks_total} blocks are "
                        f"free, and the prefix tree has {stats.nodes} nodes")
        return left

    def close(self):
        """Destroys everything. Returns what the cache did not give back, as complaints."""
        for thing in (self.batch, self.cache, self.queue, self.device):
            thing.close()
        bytes_left, blocks_left = self.instance.live_bytes, self.instance.live_blocks
        self.instance.close()
        return [f"a closed cache kept {bytes_left} bytes of host memory, in {blocks_left} blocks"
                ] if bytes_left or blocks_left else []


def serve_alone(model, seed):
    """Makes an engine and everything that it needs, serves two texts on it, and destroys it."""
    engine = Engine(model, seed, blocks=40, host_blocks=8)
    prompt = [int(token) for token in np.random.default_rng(seed).integers(0, 512, 20)]
    requests = [Request(tenant, prompt, range(20), 40) for tenant in (0, 3)]
    for request in requests:
        engine.submit(request)
    while not all(request.served for request in requests):
        engine.step()
    for request in requests:
        model.compare(request.tenant, request.tokens, request.given)
        request.sequence.end()
    return engine.left_over() + engine.close()
