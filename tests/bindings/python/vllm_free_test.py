# SPDX-License-Identifier: Apache-2.0
"""vllm_free_test: the free list that vLLM's block pool has from Quire, beside a list of Python."""

import random
import unittest

from quire.vllm_free import LeasedBlocks


class Block:
    def __init__(self, number):
        self.block_id = number

    def __repr__(self):
        return str(self.block_id)


class Free(unittest.TestCase):
    def setUp(self):
        self.blocks = [Block(i) for i in range(40)]
        self.queue = LeasedBlocks(self.blocks)
        self.addCleanup(self.queue.cache.close)
        self.model = self.blocks[1:]  # the next one to be taken first
        self.held = []

    def take(self, count):
        taken, self.model = self.model[:count], self.model[count:]
        self.assertEqual(self.queue.popleft_n(count), taken)
        self.held += taken

    def some(self, draw):
        chosen = draw.sample(self.held, draw.randint(0, len(self.held)))
        self.held = [block for block in self.held if block not in chosen]
        return chosen

    def same(self):
        self.assertEqual(self.queue.num_free_blocks, len(self.model))
        self.assertEqual(self.queue.get_all_free_blocks(), self.model)
        stats = self.queue.cache.stats
        self.assertEqual(stats.blocks_free + stats.blocks_cached, len(self.model))
        self.queue.cache.check()

    def test_random_uses_keep_the_order_of_a_list(self):
        for seed in range(30):
            with self.subTest(seed=seed):
                draw = random.Random(seed)
                self.setUp()
                for _ in range(40):
                    self.step(draw)
                    self.same()

    def step(self, draw):
        what = draw.choice(("take", "append", "prepend", "remove", "one"))
        if what == "take":
            self.take(draw.randint(0, len(self.model)))
        elif what == "append":
            chosen = self.some(draw)
            self.queue.append_n(chosen)
            self.model += chosen
        elif what == "prepend":
            chosen = self.some(draw)
            self.queue.prepend_n(chosen)
            self.model = chosen + self.model
        elif what == "remove" and self.model:
            block = draw.choice(self.model)
            self.queue.remove(block)
            self.model.remove(block)
            self.held.append(block)
        elif self.model:
            self.assertIs(self.queue.popleft(), self.model[0])
            self.queue.append(self.model[0])
            self.model.append(self.model.pop(0))

    def test_more_than_there_are_is_refused_and_changes_nothing(self):
        self.take(30)
        with self.assertRaisesRegex(ValueError, "1 blocks are missing of 10"):
            self.queue.popleft_n(10)
        self.same()

    def test_ends_are_those_of_a_linked_list(self):
        self.assertIs(self.queue.fake_free_list_head.next_free_block, self.blocks[1])
        self.assertIs(self.queue.fake_free_list_tail.prev_free_block, self.blocks[39])
        self.take(39)
        head, tail = self.queue.fake_free_list_head, self.queue.fake_free_list_tail
        self.assertIs(head.next_free_block, tail)
        self.assertIs(tail.prev_free_block, head)


if __name__ == "__main__":
    unittest.main()
