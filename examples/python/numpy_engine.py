#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""numpy_engine: a small inference engine in numpy whose blocks are managed by Quire.

The scheduler, the memory and all kernels are the engine's. The engine calls Quire three times per
step: to learn which sequences run and from which position, to learn where each token's K and V go,
and to say that the step is done. Prompts that begin alike share blocks, samples of one prompt are
forks, and sequences that the pool is too small for are preempted and computed again; the texts stay
the same.
"""

import argparse
import collections
import json
import sys

import numpy as np

import quire
from checkpoint import BOS, EOS, Checkpoint, Pieces
from paged_kv import LAYOUTS, PagedKv, attend

MAX_ROWS = 64


class Forward:
    """Runs the model on the new tokens of a batch."""

    def __init__(self, checkpoint, kv, layout):
        self.shape, self.w = checkpoint.shape, checkpoint.weights
        self.kv, self.layout = kv, layout
        dims = np.arange(0, self.shape.head_dim, 2, dtype=np.float32) / self.shape.head_dim
        self.frequencies = 1.0 / np.float32(10000.0) ** dims

    @staticmethod
    def norm(x, gain):
        return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + np.float32(1e-5)) * gain

    def rotate(self, x, positions):
        """Rotary embedding of adjacent pairs, x [tokens][heads][head_dim]."""
        angles = positions[:, None].astype(np.float32) * self.frequencies
        cosine, sine = np.cos(angles)[:, None], np.sin(angles)[:, None]
        even, odd = x[..., 0::2], x[..., 1::2]
        out = np.empty_like(x)
        out[..., 0::2] = even * cosine - odd * sine
        out[..., 1::2] = even * sine + odd * cosine
        return out

    def __call__(self, tokens, views):
        """Returns the logits of the last token of each row."""
        w, begins = self.w, views.cu_q[:views.row_count + 1]
        x = w["embedding"][tokens]
        for layer in range(self.shape.layers):
            x = x + self.attention(layer, self.norm(x, w["attention_norm"][layer]), views)
            y = self.norm(x, w["ffn_norm"][layer])
            gate, up = y @ w["gate"][layer].T, y @ w["up"][layer].T
            x = x + (gate / (1 + np.exp(-gate)) * up) @ w["down"][layer].T
        return self.norm(x[begins[1:] - 1], w["final_norm"]) @ w["classifier"].T

    def attention(self, layer, x, views):
        s, w, count = self.shape, self.w, len(x)
        q = self.rotate((x @ w["wq"][layer].T).reshape(count, s.heads, -1), views.positions)
        k = self.rotate((x @ w["wk"][layer].T).reshape(count, s.kv_heads, -1), views.positions)
        self.kv.write(layer, views.slots, k, (x @ w["wv"][layer].T).reshape(k.shape))
        out = np.empty_like(q)
        for row in range(views.row_count):
            begin, end = views.cu_q[row], views.cu_q[row + 1]
            keys, values = self.kv.context(layer, views, row, self.layout)
            out[begin:end] = attend(q[begin:end], keys, values)
        return out.reshape(count, -1) @ w["wo"][layer].T


class Chat:
    """A request: what it asks for, and what it has so far."""

    def __init__(self, prompt, limit, ends=()):
        self.tokens = list(prompt)      # the prompt, then what was sampled
        self.prompt_count = len(prompt)
        self.limit = limit              # tokens at most
        self.ends = ends                # tokens that end it earlier
        self.told = 0                   # of these, how many Quire knows
        self.sequence = None

    @property
    def done(self):
        has_ended = len(self.tokens) > self.prompt_count and self.tokens[-1] in self.ends
        return has_ended or len(self.tokens) >= self.limit


class Engine:
    def __init__(self, checkpoint, blocks, block_tokens, layout):
        shape = checkpoint.shape
        self.shape = shape
        self.instance = quire.Instance()
        group = quire.Group(layers=shape.layers, kv_heads=shape.kv_heads, head_dim=shape.head_dim,
                            dtype="f32")
        # Without a device Quire keeps books only.
        self.cache = quire.Cache(self.instance, [group], blocks=blocks, block_tokens=block_tokens)
        self.batch = self.cache.batch(
            MAX_ROWS, -(-shape.seq_len // block_tokens), MAX_ROWS * shape.seq_len,
            max_context_tokens=MAX_ROWS * shape.seq_len,
            views=(quire.View.BLOCK_TABLE | quire.View.CSR | quire.View.SLOTS | quire.View.LENGTHS
                   | quire.View.POSITIONS | quire.View.CU_Q))
        self.forward = Forward(checkpoint, PagedKv(shape, blocks, block_tokens), layout)
        self.waiting = collections.deque()
        self.running = []
        self.hit_tokens = 0

    def add(self, chat):
        chat.sequence = self.cache.sequence()
        self.waiting.append(chat)

    def fork(self, chat):
        """Adds a chat that continues from all of this one so far, blocks included."""
        child = Chat(chat.tokens, chat.limit, chat.ends)
        child.told = chat.told
        child.sequence = chat.sequence.fork(chat.told)
        self.running.append(child)
        return child

    def step(self):
        """Computes one token of each chat that has room."""
        while self.waiting and len(self.running) < MAX_ROWS:
            self.running.append(self.waiting.popleft())
        # The oldest come first: later ones are preempted when blocks are short.
        items = [quire.Item(chat.sequence, tokens=chat.tokens[chat.told:]) for chat in self.running]
        with self.cache.begin(items, may_preempt=True,
                              preempt=quire.Preempt.RECOMPUTE) as step:
            results = step.results
            if not (results["outcome"] == quire.RUN).any():
                raise RuntimeError("the pool is too small for one chat: give it more blocks")
            step.commit(self.batch)
            self.forward.kv.copy(step.copies)
            rows = [(chat, result) for chat, result in zip(self.running, results)
                    if result["outcome"] == quire.RUN]
            tokens = np.concatenate([
                chat.tokens[result["first_position"]:][:result["compute_count"]]
                for chat, result in rows])
            logits = self.forward(tokens, self.batch.views())
            step.finish()
        for (chat, result), row in zip(rows, logits):
            chat.told = len(chat.tokens)
            self.hit_tokens += int(result["hit_tokens"])
            chat.tokens.append(int(row.argmax()))
        for chat in [chat for chat in self.running if chat.done]:
            self.running.remove(chat)
            chat.sequence.end()

    def run(self):
        while self.waiting or self.running:
            self.step()

    def close(self):
        self.cache.check()
        for thing in (self.batch, self.cache, self.instance):
            thing.close()


def arguments():
    parser = argparse.ArgumentParser(
        description="A numpy engine whose blocks are managed by Quire.",
        epilog="example: numpy_engine.py --weights stories260K.bin --tokenizer tok512.bin "
               "--layout flashinfer --samples 8 --pool-blocks 40")
    parser.add_argument("--weights", help="a llama2.c checkpoint; without it a seeded model")
    parser.add_argument("--tokenizer", help="its tokenizer; without it tokens are printed")
    parser.add_argument("--layout", choices=LAYOUTS, default="vllm",
                        help="the form of the tables that the attention reads")
    parser.add_argument("--steps", type=int, default=256, help="most tokens in a text")
    parser.add_argument("--samples", type=int, default=1, help="chats with the same prompt")
    parser.add_argument("--fork-at", type=int, default=0,
                        help="fork the first chat when it has this many tokens")
    parser.add_argument("--pool-blocks", type=int, default=256)
    parser.add_argument("--block-tokens", type=int, default=16)
    parser.add_argument("--json", action="store_true",
                        help="print token ids and counts as JSON instead of the text")
    return parser.parse_args()


def main():
    options = arguments()
    checkpoint = Checkpoint.load(options.weights) if options.weights else Checkpoint.seeded(1)
    engine = Engine(checkpoint, options.pool_blocks, options.block_tokens, options.layout)
    limit = min(options.steps, checkpoint.shape.seq_len)
    ends = (BOS, EOS) if options.weights else ()    # no token ends a seeded model's text
    chats = [Chat([BOS], limit + 1, ends) for _ in range(options.samples)]
    for chat in chats:
        engine.add(chat)
    while options.fork_at and len(chats[0].tokens) < options.fork_at and not chats[0].done:
        engine.step()
    if options.fork_at and not chats[0].done:
        chats.append(engine.fork(chats[0]))
    engine.run()
    texts = [chat.tokens[1:] for chat in chats]
    stats = engine.cache.stats
    if options.json:
        print(json.dumps({"texts": texts, "hit_tokens": engine.hit_tokens,
                          "preemptions": stats.num_preemptions, "forks": stats.forks,
                          "copies_on_write": stats.copies_on_write, "steps": stats.steps}))
    elif options.tokenizer:
        pieces = Pieces(options.tokenizer, checkpoint.shape.vocab)
        for text in texts:
            sys.stdout.buffer.write(pieces.text(text) + b"\n")
    else:
        for text in texts:
            print(*text)
    engine.close()


if __name__ == "__main__":
    main()
