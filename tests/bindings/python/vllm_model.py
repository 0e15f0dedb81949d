# SPDX-License-Identifier: Apache-2.0
"""vllm_model: a KV cache manager with vLLM's interface, written with dicts and lists.

It shares no code with the library and defines results, not speed. Each content has one block; a
free block is used before a cached one is evicted; eviction follows the order of the last release,
a sequence's tail before its head.
"""

import collections
import dataclasses


@dataclasses.dataclass
class Request:
    request_id: str
    all_token_ids: list
    num_computed_tokens: int = 0
    num_preemptions: int = 0
    cache_salt: str = ""
    skip_reading_prefix_cache: bool = False

    @property
    def num_tokens(self):
        return len(self.all_token_ids)

    @property
    def root(self):
        return self.cache_salt


class Block:
    __slots__ = ("refs", "node")

    def __init__(self):
        self.refs = 1
        self.node = None


class Node:
    """A block's content, following that of its parent."""

    __slots__ = ("parent", "key", "block")

    def __init__(self, parent, key, block):
        self.parent, self.key, self.block = parent, key, block


class Running:
    def __init__(self, path):
        self.table = [node.block for node in path]
        self.node = path[-1] if path else None       # last node on the cached path
        self.walked = len(path)                      # blocks that caching has passed


class Model:
    def __init__(self, num_blocks, block_size, max_model_len):
        self.size = block_size
        self.max_model_len = max_model_len
        self.total = self.free_count = num_blocks - 1
        self.children = {}                            # (parent node, key) -> node
        self.cached = collections.OrderedDict()       # node -> None, of unreferenced blocks
        self.running = {}                             # request id -> Running

    def key(self, request, index):
        begin = index * self.size
        return request.root, tuple(request.all_token_ids[begin:begin + self.size])

    def path(self, request, limit):
        found, node = [], None
        for index in range(limit // self.size):
            node = self.children.get((node, self.key(request, index)))
            if node is None:
                break
            found.append(node)
        return found

    def get_computed_blocks(self, request):
        return len(self.path(request, request.num_tokens - 1)) * self.size

    def available(self):
        return self.free_count + len(self.cached)

    def take(self):
        if self.free_count != 0:
            self.free_count -= 1
        else:
            node, _ = self.cached.popitem(last=False)
            del self.children[node.parent, node.key]
        return Block()

    def allocate_slots(self, request, num_new_tokens, num_new_computed_tokens=0, lookahead=0,
                       delay=False):
        """The number of new blocks, or None."""
        target = request.num_computed_tokens + num_new_computed_tokens + num_new_tokens
        need = min(target + lookahead, self.max_model_len)
        running = self.running.get(request.request_id)
        hits = [] if running else self.path(request, num_new_computed_tokens)
        have = len(running.table) if running else len(hits)
        fresh = max(0, -(-need // self.size) - have)
        if fresh > self.available() - sum(node in self.cached for node in hits):
            return None
        if running is None:
            for node in hits:
                self.cached.pop(node, None)
                node.block.refs += 1
            running = self.running[request.request_id] = Running(hits)
        running.table += [self.take() for _ in range(fresh)]
        if not delay:
            self.cache(request, running, min(target, request.num_tokens, need))
        return fresh

    def cache_blocks(self, request, count):
        self.cache(request, self.running[request.request_id], count)

    def cache(self, request, running, count):
        if running.walked >= count // self.size:
            return
        node = running.node
        if node is not None and self.children.get((node.parent, node.key)) is not node:
            running.node, running.walked = None, 0    # it was evicted in the meantime
        for index in range(running.walked, count // self.size):
            key, block = self.key(request, index), running.table[index]
            node = self.children.get((running.node, key))
            if node is None:
                if block.node is not None:
                    return                            # its node is unreachable
                node = block.node = Node(running.node, key, block)
                self.children[running.node, key] = node
            elif node.block is not block and block.node is None and node in self.cached:
                del self.cached[node]                 # the older one is unreferenced
                self.free_count += 1
                node.block, block.node = block, node
            running.node, running.walked = node, index + 1

    def free(self, request):
        running = self.running.pop(request.request_id, None)
        for block in reversed(running.table if running else []):
            block.refs -= 1
            if block.refs != 0:
                continue
            if block.node is None:
                self.free_count += 1
            else:
                self.cached[block.node] = None

    def usage(self):
        return (self.total - self.available()) / self.total
