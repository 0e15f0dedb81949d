# SPDX-License-Identifier: Apache-2.0
"""sglang_radix_clock: how long SGLang's radix caches take beside Quire's.

    sglang_radix_clock.py [--tokens N] [--rounds N] [--page N ...] [--json]

Each cache inserts a prompt that it does not know, finds it, locks and unlocks it, and reads its
slots; they take turns with the same prompts in one process, each in a pool of its own that holds
all of them. The figures are medians in microseconds. `radix` is SGLang's RadixCache, `unified` its
UnifiedRadixCache with the core in brackets. It runs in a Python with SGLang; docs/sglang.md says
how.
"""

import argparse
import json
import pathlib
import random
import statistics
import sys
import time
from array import array

import torch
from sglang.srt.mem_cache.base_prefix_cache import InsertParams, MatchPrefixParams
from sglang.srt.mem_cache.radix_cache import RadixCache, RadixKey

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import sglang_requests as requests  # noqa: E402

from quire import sglang_core  # noqa: E402
from quire.sglang_radix import QuireRadixCache  # noqa: E402

MAKERS = {"radix": RadixCache, "radix (quire)": QuireRadixCache,
          "unified (python)": requests.unified("python"),
          "unified (rust)": requests.unified("rust"),
          "unified (quire)": requests.unified("quire")}
# A figure of Quire's is at most so many times that of SGLang's own.
PAIRS = {"radix (quire)": "radix", "unified (quire)": "unified (rust)"}


class Clock:
    """The seconds of each operation of one cache."""

    def __init__(self, maker, page, pages):
        parameters = requests.params(page, pages)
        self.cache = maker(parameters)
        self.allocator = parameters.token_to_kv_pool_allocator
        self.seconds = {}

    def time(self, what, call):
        start = time.perf_counter()
        result = call()
        self.seconds.setdefault(what, []).append(time.perf_counter() - start)
        return result

    def round(self, tokens):
        cache = self.cache
        # The prompt's last token is still to be computed: SGLang looks for what is before it.
        insertion = InsertParams(key=RadixKey(tokens), value=self.allocator.alloc(len(tokens)))
        query = MatchPrefixParams(key=RadixKey(array("q", tokens)))
        self.time("insert", lambda: cache.insert(insertion))
        found = self.time("match", lambda: cache.match_prefix(query))
        assert found.device_prefix_len == len(tokens)
        lock = self.time("lock", lambda: cache.lock(found.last_device_node))
        self.time("unlock", lambda: cache.unlock(lock))
        self.time("slots", lambda: cache.path_device_indices(found.last_device_node))

    def medians(self):
        return {what: round(statistics.median(each) * 1e6, 1)
                for what, each in self.seconds.items()}


def measure(page, count, rounds):
    """{cache: {operation: microseconds}}."""
    clocks = {name: Clock(maker, page, rounds * count // page) for name, maker in MAKERS.items()}
    numbers = random.Random(page)
    for _ in range(rounds):
        tokens = array("q", [numbers.randrange(100_000) for _ in range(count)])
        order = list(clocks)
        numbers.shuffle(order)
        for name in order:
            clocks[name].round(tokens)
    return {name: clock.medians() for name, clock in clocks.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--page", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    sglang_core.register()
    table = {page: measure(page, options.tokens, options.rounds) for page in options.page}
    if options.json:
        print(json.dumps(table))
        return
    for page, caches in table.items():
        print(f"{options.tokens} tokens, pages of {page}: microseconds")
        print(f"{'':18}" + "".join(f"{what:>9}" for what in caches["radix"]))
        for name, figures in caches.items():
            print(f"{name:18}" + "".join(f"{each:9.1f}" for each in figures.values()))
        for ours, theirs in PAIRS.items():
            ratios = [caches[ours][what] / caches[theirs][what] for what in caches[ours]]
            print(f"{ours + ' / ' + theirs:33}" + " ".join(f"{each:.2f}" for each in ratios))


if __name__ == "__main__":
    main()
