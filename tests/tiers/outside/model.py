# SPDX-License-Identifier: Apache-2.0
"""model: which bytes a slot of the pool must hold, and under which name the store has a block.

A slot's bytes are a hash of all that decides K and V there: model, name space, keys and the tokens
up to it. So a block in the wrong place, of another tenant or in part differs in every byte.
"""

import ctypes
import dataclasses
import hashlib
import struct

ELEMENT_BYTES = {"f32": 4, "f16": 2, "int8": 1}
TYPE_NUMBERS = {"f32": (2 << 16) | (32 << 8) | 1, "f16": (2 << 16) | (16 << 8) | 1,
                "int8": (8 << 8) | 1}
KIND_NUMBERS = {"full": 0, "window": 1, "chunked": 2, "latent": 3}
SCALE_TOKEN_HEAD = 3


class Failure(Exception):
    """The library broke a promise."""


def expect(condition, message):
    if not condition:
        raise Failure(message)


def words(*numbers):
    return struct.pack(f"<{len(numbers)}I", *numbers)


def sha256(content):
    return hashlib.sha256(content).digest()


@dataclasses.dataclass
class GroupShape:
    kind: str
    layers: int
    heads: int
    k_dim: int
    v_dim: int
    dtype: str
    window: int
    sink: int

    @property
    def has_v(self):
        return self.kind != "latent"  # there V is the front of K

    @property
    def has_scales(self):
        return self.dtype == "int8"

    def needs(self, position, length):
        """True if a token after the first `length` sees that position."""
        if self.kind == "window":
            return position > length - self.window or position < self.sink
        if self.kind == "chunked":
            return position >= length - length % self.window
        return True

    def may_see_nothing(self):
        """True if the first token of a block may see nothing before it."""
        return self.kind == "chunked" or (self.kind == "window" and self.window == 1)

    def description(self, index):
        """The words that name this group in a block's name in the store."""
        scale = SCALE_TOKEN_HEAD if self.has_scales else 0
        dtype = TYPE_NUMBERS[self.dtype]
        return words(index, KIND_NUMBERS[self.kind], self.window, self.sink, self.layers,
                     self.heads, self.k_dim, self.v_dim, dtype, dtype, scale, scale)


@dataclasses.dataclass
class Cell:
    """A run of bytes that belongs to one token, layer and head."""

    offset: int
    size: int
    part: str
    layer: int
    head: int


@dataclasses.dataclass(eq=False)
class Sequence:
    handle: object  # quire.Sequence
    number: int
    namespace: str
    keys: tuple
    identity: tuple  # all that decides its content, but for its tokens
    todo: list  # tokens that the next step is given
    known: list = dataclasses.field(default_factory=list)
    computed: int = 0
    loading: bool = False
    sent: tuple = ()

    @property
    def keyless(self):
        return self.namespace == "nokey"


def content(sequence, position, group, cell):
    """The bytes that a cell of a token must hold."""
    what = repr((sequence.identity, group, cell.part, cell.layer, cell.head)).encode()
    prefix = words(*sequence.known[:position + 1])
    digest = hashlib.blake2b(what + prefix, digest_size=64).digest()
    return (digest * (cell.size // 64 + 1))[:cell.size]


class Memory:
    """A cache's pools, read and written as the headers say where each token lies."""

    def __init__(self, shapes, block_tokens, pools):
        self.shapes, self.block_tokens, self.pools = shapes, block_tokens, pools
        self.bytes = [
            memoryview((ctypes.c_uint8 * pool.size_bytes).from_address(pool.address)).cast("B")
            for pool in pools]

    def cells(self, group, block, slot):
        shape, pool = self.shapes[group], self.pools[group]
        size = ELEMENT_BYTES[shape.dtype]
        for layer in range(shape.layers):
            base = block * pool.block_stride + layer * pool.layer_stride
            for head in range(shape.heads):
                at = base + head * pool.k_head_stride + slot * pool.k_token_stride
                yield Cell(at, shape.k_dim * size, "K", layer, head)
                scale = base + head * pool.scale_head_stride + slot * 4
                if shape.has_scales:
                    yield Cell(scale + pool.k_scale_offset, 4, "scale of K", layer, head)
                if not shape.has_v:
                    continue
                at = base + pool.v_offset + head * pool.v_head_stride + slot * pool.v_token_stride
                yield Cell(at, shape.v_dim * size, "V", layer, head)
                if shape.has_scales:
                    yield Cell(scale + pool.v_scale_offset, 4, "scale of V", layer, head)

    def tokens(self, sequence, first, count):
        """(group, position, block) of the tokens [first, first + count)."""
        for group in range(len(self.shapes)):
            table = sequence.handle.blocks(group)
            for position in range(first, first + count):
                yield group, position, int(table[position // self.block_tokens])

    def write(self, sequence, first, count, garbage=False):
        """As a model that runs would, or a failed one."""
        for group, position, block in self.tokens(sequence, first, count):
            if block == 0:
                continue  # a window has passed it
            for cell in self.cells(group, block, position % self.block_tokens):
                value = content(sequence, position, group, cell)
                value = b"\xee" * cell.size if garbage else value
                self.bytes[group][cell.offset:cell.offset + cell.size] = value

    def check(self, sequence, length):
        """All that a token after the first `length` sees is right. Returns how many cells are."""
        checked = 0
        for group, position, block in self.tokens(sequence, 0, length):
            where = (f"sequence {sequence.number}, group {group} ({self.shapes[group].kind}), "
                     f"position {position} of {length}, block {block}")
            if block == 0:
                expect(not self.shapes[group].needs(position, length), f"{where}: needed")
                continue
            for cell in self.cells(group, block, position % self.block_tokens):
                found = self.bytes[group][cell.offset:cell.offset + cell.size]
                expect(found == content(sequence, position, group, cell),
                       f"{where}: wrong bytes in {cell}")
                checked += 1
        return checked


def block_names(fingerprint, shapes, block_tokens, sequence):
    """The store's keys of each full block of the tokens to do, one per group (docs/tiers.md)."""
    tenant = (bytes(32) if sequence.namespace == "default"
              else sha256(sequence.namespace.encode()))
    keys = words(len(sequence.keys))
    for key in sequence.keys:
        text = bytes(key.content)
        keys += words(int(key.type), len(text)) + text + bytes(-len(text) % 4)
    name = sha256(b"quire tier 1".ljust(16, b"\0") + fingerprint + tenant + words(block_tokens)
                  + words(len(keys) // 4) + keys)
    names = []
    for first in range(0, len(sequence.todo) - block_tokens + 1, block_tokens):
        name = sha256(name + words(0, 0) + words(*sequence.todo[first:first + block_tokens]))
        names.append([sha256(name + shape.description(i)) for i, shape in enumerate(shapes)])
    return names
