# SPDX-License-Identifier: Apache-2.0
"""transformers_speed: processor time of a Llama with a QuireCache beside sdpa and a DynamicCache.

    transformers_speed.py [--tokens 64,512,4096] [--dtypes f32,bf16] [--rounds 3] [--json]

A Llama of 125 M parameters with random weights: 12 layers, 768 wide, 12 heads. *prefill* is a
forward of so many tokens into an empty cache, *decode* one more token after them. Both models have
the same weights and take turns; a figure is the median over the rounds of user and system time of
all threads of the process. One thread computes, so that spinning threads do not count.
"""

import argparse
import copy
import json
import statistics
import sys
import time

try:
    import torch
    import transformers
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(0)

import quire
import quire.transformers

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
STEPS = 8  # decoded tokens per round


def models(dtype):
    """The same model with sdpa and with Quire's attention."""
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=32000, hidden_size=768, intermediate_size=2048, num_hidden_layers=12,
        num_attention_heads=12, num_key_value_heads=12, max_position_embeddings=8192,
        pad_token_id=None, bos_token_id=1, eos_token_id=2)
    ours = transformers.LlamaForCausalLM._from_config(
        copy.deepcopy(config), attn_implementation="quire").to(dtype).eval()
    other = transformers.LlamaForCausalLM._from_config(
        copy.deepcopy(config), attn_implementation="sdpa").to(dtype).eval()
    other.load_state_dict(ours.state_dict())
    return {"sdpa": other, "quire": ours}


def forward(model, ids, cache):
    """Processor seconds of a forward."""
    start = time.process_time()
    with torch.no_grad():
        model(input_ids=ids, past_key_values=cache, logits_to_keep=1)
    return time.process_time() - start


def measure(pair, device, dtype, tokens, rounds):
    """{phase: {name: median milliseconds}}"""
    figures = {phase: {name: [] for name in pair} for phase in ("prefill", "decode")}
    cache = quire.transformers.QuireCache(
        pair["quire"], device, blocks=tokens // 16 + 16, dtype=dtype)
    forward(pair["quire"], torch.ones(1, 8, dtype=torch.long), cache)  # learns the layers
    for number in range(rounds):
        ids = torch.randint(3, 32000, (1, tokens + STEPS))
        cache.reset()
        caches = {"sdpa": transformers.DynamicCache(config=pair["sdpa"].config), "quire": cache}
        for name in sorted(pair, reverse=number % 2 == 0):
            figures["prefill"][name].append(forward(pair[name], ids[:, :tokens], caches[name]))
        for step in range(STEPS):
            one = ids[:, tokens + step:tokens + step + 1]
            for name in sorted(pair, reverse=step % 2 == 0):
                figures["decode"][name].append(forward(pair[name], one, caches[name]))
    whole = cache.whole_layers
    cache.close()
    if whole:
        sys.exit(f"layers {whole} did not attend over the blocks")
    return {phase: {name: 1e3 * statistics.median(seconds) for name, seconds in row.items()}
            for phase, row in figures.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", default="64,512,4096")
    parser.add_argument("--dtypes", default="f32,bf16")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    with quire.Instance() as instance, quire.Device(
            instance, "cpu", threads=1, inline=True) as device:
        for dtype in given.dtypes.split(","):
            pair = models(DTYPES[dtype])
            for tokens in map(int, given.tokens.split(",")):
                found = measure(pair, device, dtype, tokens, given.rounds)
                for phase, row in found.items():
                    rows.append({"dtype": dtype, "tokens": tokens, "phase": phase, **row,
                                 "ratio": row["quire"] / row["sdpa"]})
                    if not given.json:
                        print(f"{dtype:5} {tokens:6} {phase:8} sdpa {row['sdpa']:10.2f} ms  quire "
                              f"{row['quire']:10.2f} ms  ratio {rows[-1]['ratio']:.2f}",
                              flush=True)
    if given.json:
        print(json.dumps({"transformers": transformers.__version__, "torch": torch.__version__,
                          "rows": rows}))


if __name__ == "__main__":
    main()
