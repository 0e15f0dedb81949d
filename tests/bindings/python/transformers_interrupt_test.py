# SPDX-License-Identifier: Apache-2.0
"""quire.transformers under interrupts: after a Ctrl-C at any moment of a forward the cache goes on
from a whole number of tokens with the right logits, and everything can be closed."""

import copy
import gc
import importlib.util
import os
import random
import signal
import unittest
import weakref

import quire

HAS_TORCH = (importlib.util.find_spec("torch") is not None
             and importlib.util.find_spec("transformers") is not None)

if HAS_TORCH:
    import torch
    import transformers
    import quire.transformers

CALLS = ("step_begin", "step_commit", "kv_write", "attend", "queue_signal", "fence_wait",
         "step_finish", "seq_set_tokens", "fence_read")


class Destroyed(unittest.TestCase):
    def test_object_is_not_destroyed_twice(self):
        with quire.Instance() as instance, quire.Device(instance, "cpu", threads=1) as device:
            queue = quire.Queue(device)
            api = queue._library.api
            destroy = api.queue_destroy

            def interrupted(*arguments):
                destroy(*arguments)
                raise KeyboardInterrupt

            api.queue_destroy = interrupted
            try:
                with self.assertRaises(KeyboardInterrupt):
                    queue.close()
            finally:
                api.queue_destroy = destroy
            self.assertTrue(queue.closed)
            queue.close()

    def test_step_that_was_just_opened_is_undone(self):
        with quire.Instance() as instance:
            cache = quire.Cache(instance, [quire.Group(kv_heads=1, head_dim=16, layers=1)],
                                blocks=8, block_tokens=4)
            api = cache._library.api
            begin = api.step_begin

            def interrupted(*arguments):
                begin(*arguments)
                raise KeyboardInterrupt

            api.step_begin = interrupted
            try:
                with self.assertRaises(KeyboardInterrupt):
                    cache.begin(tag=1)
            finally:
                api.step_begin = begin
            cache.begin(tag=1).abort()
            cache.close()


@unittest.skipUnless(HAS_TORCH, "no torch")
class Interrupted(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        self.instance = quire.Instance()
        config = transformers.LlamaConfig(
            vocab_size=97, hidden_size=64, intermediate_size=96, num_hidden_layers=3,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
            bos_token_id=1, eos_token_id=None, pad_token_id=0)
        made = transformers.AutoModelForCausalLM
        own, self.ours = (
            made.from_config(copy.deepcopy(config), attn_implementation=name).eval()
            for name in ("eager", "quire"))
        self.ours.load_state_dict(own.state_dict())
        self.ids = torch.randint(2, 97, (1, 60))
        with torch.no_grad():
            self.wanted = own(self.ids).logits

    def tearDown(self):
        gc.collect()
        self.instance.close()

    def open(self, inline):
        self.device = quire.Device(self.instance, "cpu", threads=1, inline=inline)
        self.cache = quire.transformers.QuireCache(self.ours, self.device, blocks=64,
                                                   block_tokens=4)
        for end in (9, 12, 13, 14):
            self.forward(end)

    def close(self):
        self.cache.close()
        self.device.close()

    def forward(self, end):
        """The logits up to the column `end`, which must be the model's own."""
        first = self.cache.get_seq_length()
        with torch.no_grad():
            got = self.ours(self.ids[:, first:end], past_key_values=self.cache).logits
        torch.testing.assert_close(got, self.wanted[:, first:end], rtol=1e-4, atol=1e-5)

    def test_when_a_call_of_the_library_returns(self):
        api = self.instance._library.api
        for inline in (False, True):
            for name in CALLS:
                for number in (1, 2, 3):
                    with self.subTest(inline=inline, call=name, number=number):
                        self.open(inline)
                        call, count = getattr(api, name), 0

                        def interrupted(*arguments, call=call, number=number):
                            nonlocal count
                            status = call(*arguments)
                            count += 1
                            if count == number:
                                raise KeyboardInterrupt
                            return status

                        setattr(api, name, interrupted)
                        try:
                            self.forward(15)
                        except KeyboardInterrupt:
                            pass
                        finally:
                            setattr(api, name, call)
                        length = self.cache.get_seq_length()
                        self.assertIn(length, (14, 15))
                        self.forward(length + 1)
                        self.forward(length + 4)
                        self.assertEqual(self.cache.whole_layers, [])
                        self.close()

    def test_at_random_moments(self):
        draw = random.Random(int(os.environ.get("QUIRE_TEST_SEED", "1")))
        armed = False

        def interrupt(*_):
            nonlocal armed
            if armed:
                armed = False
                raise KeyboardInterrupt

        before = signal.signal(signal.SIGALRM, interrupt)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        for inline in (False, True):
            self.open(inline)
            for _ in range(400):
                length = self.cache.get_seq_length()
                if length > 50:
                    self.cache.crop(14 - length)
                    length = 14
                try:
                    armed = True
                    signal.setitimer(signal.ITIMER_REAL, draw.uniform(1e-5, 3e-3))
                    self.forward(length + 1)
                    armed = False
                except KeyboardInterrupt:
                    pass
                armed = False
                signal.setitimer(signal.ITIMER_REAL, 0)
                self.forward(self.cache.get_seq_length() + 1)
            self.assertEqual(self.cache.whole_layers, [])
            self.close()

    def test_operands_live_until_the_queue_has_used_them(self):
        self.open(False)
        queue = self.cache.forward.store.queue
        gate = quire.Fence(self.device)
        queue.after(gate, 1)
        api = self.instance._library.api
        attend, kept = api.attend, []

        def interrupted(*arguments):
            attend(*arguments)
            kept.extend(weakref.ref(thing) for thing in queue._place.fresh)
            raise KeyboardInterrupt

        api.attend = interrupted
        try:
            with self.assertRaises(KeyboardInterrupt), torch.no_grad():
                self.ours(self.ids[:, 14:15], past_key_values=self.cache)
        finally:
            api.attend = attend
        gc.collect()
        self.assertGreaterEqual(len(kept), 4)
        self.assertTrue(all(thing() is not None for thing in kept))
        gate.signal(1)
        self.forward(self.cache.get_seq_length() + 1)
        gate.close()
        self.close()


if __name__ == "__main__":
    unittest.main()
