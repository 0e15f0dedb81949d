# SPDX-License-Identifier: Apache-2.0
"""played_step: one step of a cache, with everything that an engine may do to it on the way."""

import quire

from model import expect
from played_cache import LOADING, OUTCOMES, RUN


class PlayedStep:
    def __init__(self, played):
        self.played, self.world, self.chance = played, played.world, played.chance
        self.sequences = []  # in the order of their items
        self.results, self.known_before = {}, {}  # by a sequence's number

    def say(self, *what):
        self.played.say(*what)

    def item(self, sequence):
        chance, world = self.chance, self.world
        if not sequence.todo and sequence.computed == len(sequence.known):
            sequence.todo = [chance.randrange(1, 55) for _ in range(chance.randrange(1, 4))]
        if sequence.loading and chance.random() < 0.05 and not sequence.known:
            sequence.todo = world.prompt()  # other tokens drop the load
        may_load = chance.random() < 0.9
        max_hit_tokens = 0
        if not world.ideal and chance.random() < 0.1:
            max_hit_tokens = chance.choice([1, world.block_tokens, 2 * world.block_tokens,
                                            quire.NO_HITS])
        max_compute = chance.choice([0, 0, 0, 1, 3])
        sequence.sent = (list(sequence.todo), may_load, max_hit_tokens, max_compute)
        return quire.Item(sequence.handle, tokens=sequence.todo, max_compute=max_compute,
                          max_hit_tokens=max_hit_tokens, may_load=may_load)

    def take_results(self, sequences, results):
        for sequence, result in zip(sequences, results):
            self.results[sequence.number] = result.copy()
            self.sequences.append(sequence)

    def begin(self):
        """One to five items, sometimes the last one by quire_step_add."""
        candidates = list(self.played.sequences)
        self.chance.shuffle(candidates)
        chosen = candidates[:self.chance.randrange(1, min(5, len(candidates)) + 1)]
        later = []
        if len(chosen) > 1 and self.chance.random() < 0.3:
            later = [chosen.pop()]
        for sequence in chosen + later:
            self.known_before[sequence.number] = sequence.handle.info.known_tokens
        items = [self.item(sequence) for sequence in chosen]
        self.step = self.played.cache.begin(items, queue=self.played.queue,
                                            may_preempt=self.chance.random() < 0.3)
        self.take_results(chosen, self.step.results)
        if later:
            self.take_results(later, self.step.add([self.item(each) for each in later]))

    def check_results(self):
        for sequence in self.sequences:
            result = self.results[sequence.number]
            self.say("item", sequence.number, sequence.sent, "->", OUTCOMES[result["outcome"]],
                     {name: int(result[name]) for name in [
                         "hit_tokens", "first_position", "compute_count", "blocks_short",
                         "reason"]})
            if result["outcome"] == LOADING:
                self.check_loading(sequence)

    def check_loading(self, sequence):
        sequence.loading = True
        expect(not sequence.computed and sequence.sent[1],
               "an item loads that has computed tokens or may not load")
        expect(self.played.attached, "an item loads without a tier")
        expect(not sequence.keyless, "an item of a namespace without a key loads")
        expect(sequence.handle.info.known_tokens == self.known_before[sequence.number],
               "a loading item changed the known tokens")

    def running(self):
        return [sequence for sequence in self.sequences
                if self.results[sequence.number]["outcome"] == RUN]

    def drop_one(self, running):
        dropped = self.chance.choice(running)
        try:
            gone = set(self.step.drop(dropped.handle))
        except quire.BusyError as error:  # a preemption uses what the item gave up
            self.say("drop", dropped.number, error)
            return running
        self.say("drop", dropped.number, gone)
        return [sequence for sequence in running if sequence.handle.handle not in gone]

    def preempt_one(self):
        others = [each for each in self.played.sequences if each not in self.sequences]
        if not others:
            return
        preempted = self.chance.choice(others)
        how = self.chance.choice([quire.Preempt.AUTO, quire.Preempt.SWAP,
                                  quire.Preempt.RECOMPUTE])
        try:
            self.step.preempt(preempted.handle, how)
            self.say("preempt", preempted.number)
        except (quire.BusyError, quire.ArgumentError) as error:
            self.say("preempt", preempted.number, error)

    def abort(self):
        self.step.abort()
        self.say("abort")
        for sequence in self.sequences:
            expect(sequence.handle.info.known_tokens == self.known_before[sequence.number],
                   "an aborted step left known tokens")

    def commit(self, running):
        """Computes the rows and checks that each finds what a dense run would have there."""
        self.step.commit()
        for sequence in running:
            sequence.known, sequence.todo, sequence.loading = (
                sequence.known + sequence.todo, [], False)
        self.played.queue.sync()
        failed = self.chance.random() < 0.06
        self.write(running)
        for sequence in running:
            first = int(self.results[sequence.number]["first_position"])
            self.world.cells_checked += self.played.memory.check(sequence, first)
        if failed:
            self.write(running, garbage=True)
        self.step.finish(failed=failed)
        self.say("finish", "failed" if failed else "")

    def write(self, running, garbage=False):
        for sequence in running:
            result = self.results[sequence.number]
            first, count = int(result["first_position"]), int(result["compute_count"])
            expect(not sequence.known or first + count <= len(sequence.known),
                   "a row computes past the known tokens")
            self.played.memory.write(sequence, first, count, garbage)

    def play(self):
        self.begin()
        self.check_results()
        running = self.running()
        if running and self.chance.random() < 0.1:
            running = self.drop_one(running)
        if self.chance.random() < 0.1:
            self.preempt_one()
        if self.chance.random() < 0.12:
            self.abort()
            return
        self.commit(running)
        for sequence in self.played.sequences:
            sequence.computed = sequence.handle.info.computed_tokens


def play_step(played):
    if played.sequences:
        PlayedStep(played).play()
        played.cache.check()
