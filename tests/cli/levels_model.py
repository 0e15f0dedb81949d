# SPDX-License-Identifier: Apache-2.0
"""levels_model: what a sequential replay finds on the device and in a store below it.

It shares no code with the library. The device is concurrent_model's exact LRU, with one request at
a time. A load changes nothing there: a loaded block takes the place of a computed one. The store is
a queue of block names whose oldest goes first, and a block that it has is not written again.

Units: counts are blocks of 16 tokens.
"""

import collections

import concurrent_model
from concurrent_model import BLOCK


class Store:
    def __init__(self, blocks):
        self.blocks = blocks
        self.names = collections.OrderedDict()
        self.written = self.evicted = 0

    def put(self, name):
        if name in self.names:
            return
        if len(self.names) == self.blocks:
            self.names.popitem(last=False)
            self.evicted += 1
        self.names[name] = None
        self.written += 1


class Levels:
    """write: through or selective."""

    def __init__(self, blocks, store_blocks, write):
        self.device = concurrent_model.Cache(blocks)
        self.store = Store(store_blocks)
        self.writes_all = write == "through"
        self.on_device = self.on_disk = self.loads = 0
        self.numbers = {}  # (name of the block before, key) -> name

    def names_of(self, seq, count):
        name, names = 0, []
        for index in range(count):
            name = self.numbers.setdefault((name, self.device.key(seq, index)),
                                           len(self.numbers) + 1)
            names.append(name)
        return names

    def serve(self, seq):
        length, hits = seq.request["input_length"], self.device.hits
        if not self.device.admit(seq, length):
            raise ValueError(f"request {seq.number} does not fit")
        found = (self.device.hits - hits) // BLOCK
        for _ in range(seq.request["output_length"] - 1):
            self.device.append(seq)
        names = self.names_of(seq, seq.length // BLOCK)
        self.device.release(seq)
        end = found
        while end < (length - 1) // BLOCK and names[end] in self.store.names:
            end += 1
        self.on_device += found
        self.on_disk += end - found
        self.loads += end != found
        for name in names[found:] if self.writes_all else names[:end]:
            self.store.put(name)


def replay(requests, blocks, store_blocks, write="through"):
    levels = Levels(blocks, store_blocks, write)
    for number, request in enumerate(requests):
        levels.serve(concurrent_model.Running(number, request))
    return levels
