# SPDX-License-Identifier: Apache-2.0
"""concurrent_model: what a concurrent replay must hit, modelled with dicts and lists.

It shares no code with the library. A trace's tokens are known by their names: a prompt's block by
its hash id and its place in it, a block with output tokens by its request and number. The scheduler
is the one that bindings/cli/replay_concurrent.hpp describes; the cache is exact LRU with one block
for each content, which evicts in the order of the last release, a sequence's tail before its head.

Units: lengths are tokens; blocks hold 16.
"""

import collections
import json

BLOCK = 16
BLOCKS_PER_ID = 512 // BLOCK


class Block:
    __slots__ = ("refs", "node")

    def __init__(self):
        self.refs = 1
        self.node = None


class Node:
    __slots__ = ("parent", "key", "block")

    def __init__(self, parent, key, block):
        self.parent, self.key, self.block = parent, key, block


class Running:
    __slots__ = ("number", "request", "made", "length", "table", "node", "published")

    def __init__(self, number, request):
        self.number, self.request = number, request
        self.made = 0
        self.clear()

    def clear(self):
        self.length = 0        # computed
        self.table = []
        self.node = None       # last node on the published path
        self.published = 0     # blocks walked by publication


class Cache:
    def __init__(self, blocks):
        self.free = blocks - 1
        self.cached = collections.OrderedDict()      # node -> None, oldest release first
        self.children = {}                           # (parent node, key) -> node
        self.hits = self.resumed_hits = self.preemptions = 0

    def key(self, seq, index):
        request = seq.request
        if (index + 1) * BLOCK <= request["input_length"]:
            return request["hash_ids"][index // BLOCKS_PER_ID], index % BLOCKS_PER_ID
        return "output", seq.number, index

    def alive(self, node):
        return node is None or self.children.get((node.parent, node.key)) is node

    def take(self):
        """A block, or None if every one is held."""
        if self.free:
            self.free -= 1
        elif self.cached:
            node, _ = self.cached.popitem(last=False)
            del self.children[node.parent, node.key]
        else:
            return None
        return Block()

    def release(self, seq):
        for block in reversed(seq.table):
            block.refs -= 1
            if block.refs:
                continue
            if block.node is None:
                self.free += 1
            else:
                self.cached[block.node] = None
        seq.clear()

    def publish(self, seq):
        if not self.alive(seq.node):
            seq.node, seq.published = None, 0
        for index in range(seq.published, seq.length // BLOCK):
            key, block = self.key(seq, index), seq.table[index]
            node = self.children.get((seq.node, key))
            if node is None:
                if block.node is not None:
                    return             # its node is unreachable
                node = Node(seq.node, key, block)
                self.children[seq.node, key] = node
                block.node = node
            elif node.block is not block and block.node is None and node in self.cached:
                del self.cached[node]  # the older one is unreferenced
                self.free += 1
                node.block = block
                block.node = node
            seq.node, seq.published = node, index + 1

    def admit(self, seq, length):
        """Computes all of the sequence; False if it does not fit."""
        path, node = [], None
        for index in range((length - 1) // BLOCK):
            node = self.children.get((node, self.key(seq, index)))
            if node is None:
                break
            path.append(node)
        unheld = sum(1 for node in path if node in self.cached)
        fresh = -(-length // BLOCK) - len(path)
        if fresh > self.free + len(self.cached) - unheld:
            return False
        for node in path:
            if node in self.cached:
                del self.cached[node]
                node.block.refs = 1
            else:
                node.block.refs += 1
            seq.table.append(node.block)
        for _ in range(fresh):
            seq.table.append(self.take())
        hit = len(path) * BLOCK
        self.hits += hit if seq.made == 0 else 0
        self.resumed_hits += hit if seq.made else 0
        seq.length = length
        seq.published, seq.node = len(path), path[-1] if path else None
        self.publish(seq)
        return True

    def append(self, seq):
        """Computes one more token; False if there is no block for it."""
        if seq.length % BLOCK == 0:
            block = self.take()
            if block is None:
                return False
            seq.table.append(block)
        seq.length += 1
        if seq.length % BLOCK == 0:
            self.publish(seq)
        return True


def decode(cache, running, waiting):
    """One token per sequence; True if nothing had to be preempted."""
    calm, index = True, 0
    while index < len(running):
        seq = running[index]
        while not cache.append(seq):
            victim = running.pop()
            cache.release(victim)
            cache.preemptions += 1
            waiting.appendleft(victim)
            calm = False
            if victim is seq:
                return calm
        seq.made += 1
        index += 1
    return calm


def replay(requests, blocks, limit):
    """Runs the trace; returns the cache, whose counters are the result."""
    cache = Cache(blocks)
    waiting = collections.deque(Running(i, request) for i, request in enumerate(requests))
    running = []
    while waiting or running:
        if decode(cache, running, waiting):
            while waiting and len(running) < limit:
                seq = waiting[0]
                if not cache.admit(seq, seq.request["input_length"] + seq.made):
                    break
                seq.made += 1
                running.append(waiting.popleft())
        if not running:
            raise ValueError(f"request {waiting[0].number} does not fit")
        for seq in running:
            if seq.made >= seq.request["output_length"]:
                cache.release(seq)
        running = [seq for seq in running if seq.made < seq.request["output_length"]]
    return cache


def read(path, count=None):
    """A trace in either format; prompts without hash ids get unique ids."""
    with open(path, encoding="utf-8") as file:
        lines = file.read().split()
    if not lines[0].startswith("TIMESTAMP"):
        with open(path, encoding="utf-8") as file:
            return [json.loads(line) for line, _ in zip(file, range(count or 1 << 62))]
    requests = []
    for number, line in enumerate(line for line in lines[1:] if "," in line):
        _, context, generated = line.split(",")
        ids = [("own", number, i) for i in range(-(-int(context) // 512))]
        requests.append({"input_length": int(context), "output_length": int(generated),
                         "hash_ids": ids})
    return requests[:count]
