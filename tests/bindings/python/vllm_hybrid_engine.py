# SPDX-License-Identifier: Apache-2.0
"""vllm_hybrid_engine: plays random requests through a KV cache manager with vLLM's interface, and
keeps what each slot of each block holds.

A slot's content is the group whose layers wrote it and all tokens up to its own. Before a token is
computed, everything that it sees must be there: so a block that two owners write, a hit on other
content, or a block that is returned too early is found, whatever the manager believes.
"""

import math
import random

SLOTS_OF_DRAFTS = object()


class Attention:
    """One group's layers: a full one, a window, or chunks (a negative number)."""

    def __init__(self, window):
        self.window = window

    def first_seen(self, place):
        """The first place that the token at a place sees."""
        if self.window is None:
            return 0
        if self.window < 0:
            return place // -self.window * -self.window
        return max(0, place - self.window + 1)

    def seen_from(self, first, size):
        """The first block that a step from a place on sees."""
        return self.first_seen(first) // size


class Replayed(Attention):
    """A window's layers whose blocks are not cached (vLLM's bounded replay): after a hit its last
    tokens, as many as the window shows, are computed once more, for these layers only."""


class Ring:
    """Layers with one block per request, whatever its length, that is not cached: each token has
    the slot of the one that is a block's size before it."""

    window = None

    def seen_from(self, first, size):
        return 0


SCRATCH = (Replayed, Ring)


class Engine:
    """Schedules steps, which end in their order and some time later.

    case          the unittest.TestCase
    manager       the KV cache manager
    make_request  makes a request from its name and tokens
    windows       one per group, see Attention, or a Replayed or Ring
    sizes         tokens per block of each group
    blocks        the pool's, the null block included
    most          steps in flight at a time; 0: each one ends before the next is scheduled
    """

    def __init__(self, case, manager, make_request, windows, sizes, blocks, most):
        self.case, self.manager, self.make_request = case, manager, make_request
        self.groups = [window if isinstance(window, SCRATCH) else Attention(window)
                       for window in windows]
        self.replay = max((group.window for group in self.groups if isinstance(group, Replayed)),
                          default=0)
        self.sizes, self.span = sizes, math.lcm(*sizes)
        self.blocks, self.most = blocks, most
        self.memory = {}      # (block, slot) -> (group, tokens)
        self.running, self.in_flight, self.waiting, self.popped = {}, [], [], []
        self.prefixes = {(): 0}  # the number of each sequence of tokens
        self.hits, self.refused = {}, 0

    # Contents.

    def content(self, request, place):
        """The number of a request's tokens up to a place."""
        numbers = request.numbers
        while len(numbers) <= place:
            before = numbers[-1] if numbers else 0
            key = before, request.tokens[len(numbers)]
            numbers.append(self.prefixes.setdefault(key, len(self.prefixes)))
        return numbers[place]

    def write(self, item):
        request, first, new, drafts, tables = item
        for group, (size, table) in enumerate(zip(self.sizes, tables)):
            if isinstance(self.groups[group], Ring):
                self.turn(item, group)
                continue
            begin = first
            if not isinstance(self.groups[group], Replayed):
                begin = max(first, request.hit)  # what was found is not written again
            for place in range(begin, first + new + drafts):
                value = (group, self.content(request, place)) if place < first + new \
                    else SLOTS_OF_DRAFTS
                block = table[place // size]
                if block == 0 and place < request.hit:
                    continue  # the next token after the hit does not see it
                self.case.assertNotEqual(block, 0, "a new token has no slot")
                self.memory[block, place % size] = value

    def turn(self, item, group):
        """A ring has what the request's last tokens left, and takes the new ones."""
        request, first, new, _, tables = item
        size = self.sizes[group]
        self.case.assertEqual(len(tables[group]), 1)
        block = tables[group][0]
        self.case.assertEqual(request.rings.setdefault(group, block), block)
        if not request.is_carried and first > request.first:
            for place in range(max(request.first, first - size), first):
                self.case.assertEqual(self.memory[block, place % size],
                                      (group, request.name, self.content(request, place)))
        for place in range(first, first + new):
            self.memory[block, place % size] = group, request.name, self.content(request, place)

    def load(self, request, begin, end, tables):
        """A connector writes what it has to the blocks that it is given."""
        for group, (size, table) in enumerate(zip(self.sizes, tables)):
            if isinstance(self.groups[group], SCRATCH):
                self.carry(request, end, group, table)
                continue
            for place in range(begin, end):
                if table[place // size] != 0:
                    self.memory[table[place // size], place % size] = (
                        group, self.content(request, place))

    def carry(self, request, end, group, table):
        """A load of the request's own blocks writes those of a window that is not cached too."""
        size = self.sizes[group]
        for place in range(end if request.is_carried and not isinstance(
                self.groups[group], Ring) else 0):
            if table[place // size] != 0:
                self.memory[table[place // size], place % size] = (
                    group, self.content(request, place))

    def read(self, item):
        request, first, new, _, tables = item
        for group, (attention, size, table) in enumerate(zip(self.groups, self.sizes, tables)):
            if isinstance(attention, Ring):
                continue
            begin = attention.first_seen(first)
            if isinstance(attention, Replayed) and not request.is_carried:
                seen = attention.first_seen(request.hit) // size * size
                begin = max(begin, request.first, seen if request.hit else 0)
            for place in range(begin, first + new):
                found = self.memory.get((table[place // size], place % size))
                self.case.assertEqual(found, (group, self.content(request, place)),
                                      f"{request.name}, group {group}, place {place} of {first}")

    def seen(self, item):
        """The blocks that a step reads and writes."""
        _, first, new, drafts, tables = item
        return {block for attention, size, table in zip(self.groups, self.sizes, tables)
                for block in table[attention.seen_from(first, size):
                                   -(-(first + new + drafts) // size)]}

    # Operations.

    def add(self, name, tokens):
        self.waiting.append((name, list(tokens)))

    def step(self, draw):
        """One step of the requests that get their blocks; `draw(name)` gives a random source."""
        items = []
        self.manager.new_step_starts()
        for request in list(self.running.values()):
            source = draw(request.name)
            left = len(request.tokens) - request.engine.num_computed_tokens
            new = source.randrange(1, min(left, 12) + 1)
            drafts = source.randrange(3) if new == left and self.most == 0 else 0
            self.allocate(items, request, new, drafts, 0)
        while self.waiting:
            request = Playing(*self.waiting[0], self.make_request(*self.waiting[0]))
            blocks, found, _ = self.manager.get_computed_blocks(request.engine)
            self.case.assertEqual(found % self.span, 0)
            self.case.assertLess(found, len(request.tokens))
            source, left = draw(request.name), len(request.tokens) - found
            loaded = source.randrange(left // self.span + 1) * self.span % left \
                if source.random() < 0.2 else 0
            request.is_carried = bool(self.replay and loaded and source.random() < 0.5)
            if self.replay and not request.is_carried and found + loaded <= self.replay:
                found, loaded, blocks = 0, 0, None
            replayed = 0 if request.is_carried else self.replay if found + loaded else 0
            request.hit = found + loaded
            request.first = request.hit - replayed
            new = source.randrange(1, len(request.tokens) - request.first + 1)
            if not self.allocate(items, request, new, 0, found, blocks, loaded):
                break
            self.hits[request.name] = found
            self.running[request.name] = request
            self.waiting.pop(0)
        for item in items:
            self.write(item)
        for item in items:
            self.read(item)
        self.in_flight.append(items)
        self.check()

    def allocate(self, items, request, new, drafts, found, blocks=None, loaded=0):
        """Gets slots for new tokens and drafts, after those that were found, and those that a
        connector loads."""
        engine = request.engine
        first = request.first if request.name not in self.running else engine.num_computed_tokens
        replayed = engine.num_computed_tokens + found + loaded - first
        given = self.manager.allocate_slots(engine, max(0, new + drafts - replayed), found, blocks,
                                            num_external_computed_tokens=loaded)
        if given is None:
            self.refused += 1
            return False
        busy = set().union(*(self.seen(item) for step in self.in_flight for item in step)) - {0}
        for group in given.get_block_ids():
            self.case.assertFalse(busy & set(group), "a step in flight sees it")
        tables = self.manager.get_block_ids(request.name)
        for group, size, table in zip(self.groups, self.sizes, tables):
            if not isinstance(group, Ring):
                self.case.assertGreaterEqual(len(table) * size, first + new + drafts)
        self.load(request, first + replayed - loaded, first + replayed, tables)
        items.append((request, first, new, drafts, tables))
        engine.num_computed_tokens = first + new + drafts
        engine.num_in_flight_tokens = getattr(engine, "num_in_flight_tokens", 0) + new + drafts
        if self.most and first + new == len(request.tokens):
            request.sample(1)
        return True

    def end_step(self):
        """The oldest step ends; its drafts are rejected."""
        for request, _, new, drafts, _ in self.in_flight.pop(0):
            engine = request.engine
            engine.num_in_flight_tokens -= new + drafts
            if request.name not in self.running:
                continue
            engine.num_computed_tokens -= drafts
            if engine.num_computed_tokens == len(request.tokens):
                request.sample(1)

    def finish(self, name, waits):
        """A request ends, once no step of it is in flight. `waits`: something still reads its
        blocks; they are returned with the next one that waits."""
        request = self.running.get(name)
        if request is None or request.engine.num_in_flight_tokens != 0:
            return
        del self.running[name]
        if not waits:
            self.manager.free(request.engine)
            return
        popped, self.popped = self.popped, self.manager.pop_blocks_for_free(request.engine)
        if popped:
            self.manager.block_pool.free_blocks(reversed(popped))

    def held(self):
        tables = [table for name in self.running for table in self.manager.get_block_ids(name)]
        return ({block for table in tables for block in table} |
                {block.block_id for block in self.popped}) - {0}

    def check(self):
        free = self.blocks - 1 - len(self.held() | self.kept())
        self.case.assertEqual(self.manager.block_pool.get_num_free_blocks(), free)

    def kept(self):
        """Blocks that quire.vllm holds a moment longer than its tables tell: what one window has
        passed while a step in flight may read another window's block of the same tokens."""
        if not hasattr(self.manager, "_books"):
            return set()
        return {block for running in self.manager._pool._holders()
                for keeper in running.keepers for block in keeper.blocks()}


class Playing:
    """A request, its tokens, and the numbers of its prefixes."""

    def __init__(self, name, tokens, engine):
        self.name, self.tokens, self.engine = name, list(tokens), engine
        self.numbers = []
        self.rings = {}  # by group, the block
        self.hit = self.first = 0  # tokens that were found or loaded; the first that was computed
        self.is_carried = False  # True if a connector has loaded all groups' blocks
        self.source = random.Random(name)

    def sample(self, count):
        for _ in range(count):
            token = self.source.randrange(2)
            self.tokens.append(token)
            if hasattr(self.engine, "append_output_token_ids"):
                self.engine.append_output_token_ids(token)
            else:
                self.engine.all_token_ids.append(token)


class Script:
    """Random operations, the same for every manager that plays them."""

    def __init__(self, seed, most):
        self.rng, self.seed, self.most = random.Random(seed), seed, most
        self.count = 0
        alphabet = self.rng.choice((2, 5))
        self.beginnings = [[self.rng.randrange(alphabet) for _ in range(120)] for _ in range(3)]

    def draw(self, place):
        return lambda name: random.Random(f"{self.seed} {place} {name}")

    def play(self, engines, operations):
        names = []
        for place in range(operations):
            draw = self.draw(place)
            chance = self.rng.random()
            if chance < 0.25 and len(names) < 40:
                tokens = self.rng.choice(self.beginnings)[:self.rng.randrange(0, 110)] + [
                    self.rng.randrange(5) for _ in range(self.rng.randrange(1, 20))]
                name = f"r{self.seed}.{self.count}"
                self.count += 1
                names.append(name)
                for engine in engines:
                    engine.add(name, tokens)
            elif chance < 0.4 and names:
                name, waits = names.pop(self.rng.randrange(len(names))), self.rng.random() < 0.3
                for engine in engines:
                    engine.finish(name, waits)
                    if name in engine.running:
                        names.append(name)
                        break
            else:
                for engine in engines:
                    engine.step(draw)
            left = self.rng.randrange(self.most + 1)
            for engine in engines:
                while len(engine.in_flight) > left:
                    engine.end_step()
