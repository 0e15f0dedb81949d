# SPDX-License-Identifier: Apache-2.0
"""vllm_trace: quire.vllm's manager on a production trace, beside a plain Python model of the same
interface: one request at a time is looked up, given blocks for its prompt and output, and freed.

    vllm_trace.py FOLDER_OF_THE_MODEL [--blocks N] [--requests N] [--json]

Both get the same requests, alternating, and must find the same tokens; only their calls are timed,
not the making of tokens.
"""

import argparse
import json
import os
import pathlib
import sys
import time
import types

from quire import vllm

ROOT = pathlib.Path(__file__).resolve().parents[3]
TRACES = pathlib.Path(os.environ.get("QUIRE_TRACES") or ROOT.parent / "shared" / "traces")
TRACE = TRACES / "mooncake_fast25_conversation_trace.jsonl"
HASH_TOKENS = 512
BLOCK_TOKENS = 16


class Quire:
    def __init__(self, blocks):
        self.manager = vllm.KVCacheManager(vllm.config(blocks, BLOCK_TOKENS),
                                           max_model_len=1 << 30)

    def admit(self, request, length):
        found = self.manager.get_computed_blocks(request)[1]
        return found, self.manager.allocate_slots(request, length - found, found)


class Plain:
    def __init__(self, model, blocks):
        self.manager = model.Model(blocks, BLOCK_TOKENS, 1 << 30)

    def admit(self, request, length):
        found = self.manager.get_computed_blocks(request)
        return found, self.manager.allocate_slots(request, length - found, found)


class Clocked:
    """A manager, and the processor time that its calls took."""

    def __init__(self, kind):
        self.kind, self.seconds, self.hits = kind, 0.0, 0

    def serve(self, name, tokens, length):
        request = types.SimpleNamespace(
            request_id=name, num_computed_tokens=0, all_token_ids=tokens[:length],
            num_tokens=length, root=None, cache_salt=None, skip_reading_prefix_cache=False)
        start = time.process_time()
        found, given = self.kind.admit(request, length)
        if given is not None and len(tokens) > length:
            request.all_token_ids, request.num_tokens = tokens, len(tokens)
            request.num_computed_tokens = length
            given = self.kind.manager.allocate_slots(request, len(tokens) - length)
        if given is None:
            sys.exit(f"request {name} does not fit: give more --blocks")
        self.kind.manager.free(request)
        self.seconds += time.process_time() - start
        self.hits += found


def requests(count):
    """(name, tokens, length of the prompt); prompts' tokens below 2^31, outputs' above."""
    given = 2 ** 31
    with TRACE.open() as lines:
        for number, line in zip(range(count), map(json.loads, lines)):
            prompt = [block * HASH_TOKENS + i for block in line["hash_ids"]
                      for i in range(HASH_TOKENS)][:line["input_length"]]
            output = max(0, line["output_length"] - 1)
            yield str(number), prompt + list(range(given, given + output)), line["input_length"]
            given += output


def main():
    parser = argparse.ArgumentParser(
        prog="./dev bench vllm", description="quire.vllm's manager on a production trace, compared "
        "with a plain Python model of the same interface.",
        epilog="example: ./dev bench vllm --requests 2000 --blocks 65536 --json")
    parser.add_argument("model", help=argparse.SUPPRESS)
    parser.add_argument("--blocks", type=int, default=65536, help="of 16 tokens each (65536)")
    parser.add_argument("--requests", type=int, default=1000, help="of the trace's 12,031 (1000)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = {"skipped": f"no {TRACE.name} in QUIRE_TRACES or ../shared/traces"}
    if TRACE.exists():
        sys.path.insert(0, options.model)
        import vllm_model
        managers = {"quire": Clocked(Quire(options.blocks)),
                    "plain": Clocked(Plain(vllm_model, options.blocks))}
        tokens = count = 0
        for name, all_tokens, length in requests(options.requests):
            for manager in managers.values():
                manager.serve(name, all_tokens, length)
            tokens, count = tokens + len(all_tokens), count + 1
        if managers["quire"].hits != managers["plain"].hits:
            sys.exit(f"hits differ: {managers['quire'].hits} and {managers['plain'].hits}")
        if count == 0:
            sys.exit("--requests is 0")
        result = {"requests": count, "tokens": tokens, "blocks": options.blocks,
                  "hit_tokens": managers["quire"].hits,
                  "seconds": {name: manager.seconds for name, manager in managers.items()},
                  "plain_over_quire": managers["plain"].seconds / managers["quire"].seconds}
    if options.json:
        print(json.dumps(result))
    elif "skipped" in result:
        print(f"skipped: {result['skipped']}")
    else:
        print(f"{result['requests']} requests, {result['tokens']} tokens, {result['blocks']} "
              f"blocks: {result['hit_tokens']} tokens found by both\n"
              f"quire.vllm {result['seconds']['quire']:8.2f} s\n"
              f"plain      {result['seconds']['plain']:8.2f} s, "
              f"{result['plain_over_quire']:.1f} times as long")


if __name__ == "__main__":
    main()
