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

    def __init__(self, window, interval, drops=False):
        self.drops = int(drops)  # blocks after a place that its lookup finds and drops
        self.need = -(-(window - 1) // SIZE) + self.drops  # blocks that it finds, at most
        self.interval = interval
        self.prefixes = set()

    def is_kept(self, block, prompt):
        """A block is kept if a lookup finds it that goes on from the end of an interval, or from
        the last block's end before the prompt's last token; with EAGLE, where the next block is
        found too, also of a longer prompt."""
        ends = {max(0, (prompt - self.drops * SIZE - 1) // SIZE)}
        if self.drops:
            ends.add(max(0, prompt // SIZE - 1))
        if self.interval:
            ends.update(range(self.interval // SIZE, 512 // SIZE, self.interval // SIZE))
            if self.drops and self.need >= self.interval // SIZE:
                return True
        return any(end + self.drops - self.need <= block < end + self.drops for end in ends)

    def take(self, tokens, first):
        for block in range(first // SIZE, len(tokens) // SIZE):
            if self.is_kept(block, len(tokens)):
                self.prefixes.add(tuple(tokens[:(block + 1) * SIZE]))

    def has(self, tokens, block):
        return tuple(tokens[:(block + 1) * SIZE]) in self.prefixes

    def found(self, tokens):
        for end in range((len(tokens) - 1) // SIZE - self.drops, 0, -1):
            past = end + self.drops
            if all(self.has(tokens, block) for block in range(max(0, past - self.need), past)):
                return end * SIZE
        return 0


class Retention(unittest.TestCase):
    def manager(self, window, interval, **options):
        made = vllm.config(BLOCKS, SIZE, sliding_window=window)
        made.prefix_cache_retention_interval = interval
        return vllm.KVCacheManager(made, 512, SIZE, SIZE, **options)

    def play(self, seed, use_eagle=False):
        rng = random.Random(seed)
        window, interval = rng.choice((2, 3, 5, 6, 9)), rng.choice((0, 8, 16, 32))
        manager = self.manager(window, interval, use_eagle=use_eagle)
        kept = Kept(window, interval, use_eagle)
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
            for block, is_new in enumerate(manager.get_blocks(request.request_id).blocks[0]):
                if not is_new.is_null and found // SIZE <= block < len(tokens) // SIZE:
                    self.assertEqual(is_new.block_hash is not None,
                                     kept.is_kept(block, len(tokens)))
            manager.free(request)
        return told

    def test_lookups_and_hashes_are_those_of_what_is_kept(self):
        self.assertGreater(sum(self.play(seed) for seed in range(60)), 1000)

    def test_lookups_with_eagle_are_those_of_what_is_kept(self):
        self.assertGreater(sum(self.play(seed, True) for seed in range(60)), 500)

    def test_intervals_that_are_no_whole_blocks_are_refused(self):
        for interval in (-4, 6):
            with self.subTest(interval), self.assertRaisesRegex(ValueError, "multiple"):
                self.manager(8, interval)


if __name__ == "__main__":
    unittest.main()
