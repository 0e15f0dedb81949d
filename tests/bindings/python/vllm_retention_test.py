# SPDX-License-Identifier: Apache-2.0
"""quire.vllm's manager with prefix_cache_retention_interval, against a set of the prefixes whose
last block is kept by the rule that vLLM documents."""

import random
import unittest

from quire import vllm
from vllm_hash_test import Hashed

SIZE, BLOCKS = 4, 400


class Kept:
    """The prefixes, whole blocks, whose last block some request has kept."""

    def __init__(self, window, interval):
        self.need = -(-(window - 1) // SIZE)  # blocks that the next token sees
        self.interval = interval
        self.prefixes = set()

    def is_kept(self, block, prompt):
        """A block is kept if a request sees it that goes on from the end of an interval, or from
        the last block's end before the prompt's last token."""
        ends = {(prompt - 1) // SIZE}
        if self.interval:
            per = self.interval // SIZE
            ends.add((block // per + 1) * per)
        return any(end - self.need <= block < end for end in ends)

    def take(self, tokens, first):
        for block in range(first // SIZE, len(tokens) // SIZE):
            if self.is_kept(block, len(tokens)):
                self.prefixes.add(tuple(tokens[:(block + 1) * SIZE]))

    def has(self, tokens, block):
        return tuple(tokens[:(block + 1) * SIZE]) in self.prefixes

    def found(self, tokens):
        for end in range((len(tokens) - 1) // SIZE, 0, -1):
            if all(self.has(tokens, block) for block in range(max(0, end - self.need), end)):
                return end * SIZE
        return 0


class Retention(unittest.TestCase):
    def manager(self, window, interval, **options):
        made = vllm.config(BLOCKS, SIZE, sliding_window=window)
        made.prefix_cache_retention_interval = interval
        return vllm.KVCacheManager(made, 512, SIZE, SIZE, **options)

    def play(self, seed):
        rng = random.Random(seed)
        window, interval = rng.choice((2, 3, 5, 6, 9)), rng.choice((0, 8, 16, 32))
        manager, kept = self.manager(window, interval), Kept(window, interval)
        told = 0
        beginning = [rng.randrange(9) for _ in range(60)]
        for number in range(20):
            tokens = beginning[:rng.randrange(1, 60)] + [
                rng.randrange(9) for _ in range(rng.randrange(1, 9))]
            request = Hashed(f"r{number}", tokens)
            request.num_prompt_tokens = len(tokens)
            blocks, found, _ = manager.get_computed_blocks(request)
            self.assertEqual(found, kept.found(tokens))
            told += found
            manager.allocate_slots(request, len(tokens) - found, found, blocks)
            kept.take(tokens, found)
            for block, hash_ in enumerate(request.block_hashes):
                self.assertEqual(
                    manager.block_pool.get_cached_block(hash_, [0]) is not None,
                    kept.has(tokens, block))
            manager.free(request)
        return told

    def test_lookups_and_hashes_are_those_of_what_is_kept(self):
        self.assertGreater(sum(self.play(seed) for seed in range(60)), 1000)

    def test_intervals_that_are_no_whole_blocks_are_refused(self):
        for interval in (-4, 6):
            with self.subTest(interval), self.assertRaisesRegex(ValueError, "multiple"):
                self.manager(8, interval)


if __name__ == "__main__":
    unittest.main()
