# SPDX-License-Identifier: Apache-2.0
"""checkpoint: a Llama model's weights and pieces, from llama2.c's files or from a seed.

The legacy checkpoint: seven int32 (dim, hidden_dim, layers, heads, kv_heads, vocab, seq_len; a
negative vocab means that the classifier is not the embedding), then f32 tensors in the order of
_order. The tokenizer: one int32, then for each token an f32 score, an int32 length, and its bytes.
"""

import dataclasses
import pathlib
import struct
import sys

import numpy as np

BOS = 1
EOS = 2


@dataclasses.dataclass(frozen=True)
class Shape:
    dim: int = 64
    hidden: int = 172
    layers: int = 3
    heads: int = 8
    kv_heads: int = 4
    vocab: int = 128
    seq_len: int = 512

    @property
    def head_dim(self):
        return self.dim // self.heads


def _order(shape, has_classifier):
    """(name, sides) of the tensors in a file, in order."""
    layers, dim, kv_dim = shape.layers, shape.dim, shape.kv_heads * shape.head_dim
    yield "embedding", (shape.vocab, dim)
    yield "attention_norm", (layers, dim)
    yield "wq", (layers, dim, dim)
    yield "wk", (layers, kv_dim, dim)
    yield "wv", (layers, kv_dim, dim)
    yield "wo", (layers, dim, dim)
    yield "ffn_norm", (layers, dim)
    yield "gate", (layers, shape.hidden, dim)
    yield "down", (layers, dim, shape.hidden)
    yield "up", (layers, shape.hidden, dim)
    yield "final_norm", (dim,)
    yield "unused", (2, shape.seq_len, shape.head_dim // 2)
    if has_classifier:
        yield "classifier", (shape.vocab, dim)


class Checkpoint:
    """weights[name] is an array; one array holds a tensor of all layers."""

    def __init__(self, shape, weights):
        self.shape = shape
        self.weights = weights
        weights.setdefault("classifier", weights["embedding"])

    @classmethod
    def load(cls, path):
        content = pathlib.Path(path).read_bytes()
        *sizes, vocab, seq_len = struct.unpack("<7i", content[:28])
        shape = Shape(*sizes, abs(vocab), seq_len)
        weights, at = {}, 28
        for name, sides in _order(shape, vocab < 0):
            count = int(np.prod(sides))
            if at + 4 * count > len(content):
                sys.exit(f"{path} ends inside {name}: it is not a llama2.c checkpoint, or it is "
                         "truncated")
            weights[name] = np.frombuffer(content, "<f4", count, at).reshape(sides)
            at += 4 * count
        return cls(shape, weights)

    @classmethod
    def seeded(cls, seed):
        """Random weights whose attention is sharp enough that a wrong block shows in the text."""
        shape, random = Shape(), np.random.default_rng(seed)
        weights = {}
        for name, sides in _order(shape, True):
            scale = {"wq": 1.7, "wk": 1.7, "classifier": 3.0}.get(name, 1.0) / sides[-1] ** 0.5
            weights[name] = (np.ones(sides, np.float32) if "norm" in name else
                             random.standard_normal(sides, np.float32) * np.float32(scale))
        weights["embedding"] *= shape.dim ** 0.5
        return cls(shape, weights)


class Pieces:
    """The bytes of each token."""

    def __init__(self, path, vocab):
        content, at = pathlib.Path(path).read_bytes(), 4
        self._pieces = []
        for _ in range(vocab):
            length = struct.unpack_from("<i", content, at + 4)[0]
            self._pieces.append(content[at + 8:at + 8 + length])
            at += 8 + length

    def text(self, tokens):
        """The text of tokens that follow a BOS."""
        out = b"".join(self._bytes(self._pieces[token]) for token in tokens)
        return out[1:] if out.startswith(b" ") else out

    @staticmethod
    def _bytes(piece):
        is_byte = len(piece) == 6 and piece.startswith(b"<0x")
        return bytes([int(piece[3:5], 16)]) if is_byte else piece
