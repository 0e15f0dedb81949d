# SPDX-License-Identifier: Apache-2.0
"""quire.transformers: what changes a cache between forwards, and what ends a forward early."""

import copy
import gc
import importlib.util
import itertools
import subprocess
import sys
import threading
import unittest

import quire

HAS_TORCH = (importlib.util.find_spec("torch") is not None
             and importlib.util.find_spec("transformers") is not None)

if HAS_TORCH:
    import torch
    import transformers
    import quire.transformers

# Ends with a cache, a device and an instance that nothing closed.
LEFT_OPEN = """
import quire, quire.transformers, torch, transformers
config = transformers.LlamaConfig(
    vocab_size=97, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2)
model = transformers.LlamaForCausalLM._from_config(config, attn_implementation="quire")
device = quire.Device(quire.Instance(), "cpu", threads=1)
cache = quire.transformers.QuireCache(model, device, blocks=16, dtype=torch.float32)
with torch.no_grad():
    model(torch.ones(1, 8, dtype=torch.long), past_key_values=cache)
"""


@unittest.skipUnless(HAS_TORCH, "no torch")
class State(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        self.instance = quire.Instance()
        self.device = quire.Device(self.instance, "cpu", threads=1)
        config = transformers.LlamaConfig(
            vocab_size=97, hidden_size=64, intermediate_size=96, num_hidden_layers=3,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
            initializer_range=0.1, eos_token_id=None, pad_token_id=0)
        kind = transformers.AutoModelForCausalLM
        self.own, self.ours = (kind.from_config(copy.deepcopy(config), attn_implementation=name)
                               .eval() for name in ("eager", "quire"))
        self.ours.load_state_dict(self.own.state_dict())
        self.ids = torch.randint(2, 97, (3, 24))
        self.caches = []

    def tearDown(self):
        for cache in self.caches:
            cache.close()
        gc.collect()
        self.device.close()
        self.instance.close()

    def cache(self, model=None):
        self.caches.append(quire.transformers.QuireCache(
            self.ours.config if model is None else model, self.device, blocks=128,
            block_tokens=4))
        return self.caches[-1]

    def both(self):
        """A cache of each kind, after the same first forward."""
        pair = transformers.DynamicCache(config=self.own.config), self.cache()
        self.logits(pair, self.ids[:, :14])
        return pair

    def logits(self, pair, ids):
        """A forward with each cache: the logits must be close."""
        with torch.no_grad():
            wanted = self.own(ids, past_key_values=pair[0]).logits
            got = self.ours(ids, past_key_values=pair[1]).logits
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)
        self.assertEqual(pair[0].get_seq_length(), pair[1].get_seq_length())

    def test_crop_is_that_of_a_dynamic_cache(self):
        for removed in (0, -3, -13, -14, -20):
            with self.subTest(removed=removed):
                pair = self.both()
                for cache in pair:
                    cache.crop(removed)
                self.assertEqual(pair[0].get_seq_length(), pair[1].get_seq_length())
                self.logits(pair, self.ids[:, 14:19])

    def test_crop_refuses_positive_numbers(self):
        for cache in self.both():
            with self.assertRaises(ValueError):
                cache.crop(5)
            self.assertEqual(cache.get_seq_length(), 14)

    def test_rows_are_selected_by_number_and_by_flag(self):
        for chosen in (torch.tensor([2, 0]), torch.tensor([True, False, True]),
                       torch.tensor([1, 1, 1, 0])):
            with self.subTest(chosen=chosen.tolist()):
                pair = self.both()
                for cache in pair:
                    cache.batch_select_indices(chosen)
                self.logits(pair, self.ids[chosen, 14:16])

    def test_rows_are_reordered_and_repeated(self):
        pair = self.both()
        for cache in pair:
            cache.reorder_cache(torch.tensor([1, 1, 0]))
        self.logits(pair, self.ids[:, 14:16])
        for cache in pair:
            cache.batch_repeat_interleave(2)
        self.logits(pair, self.ids[:, 16:18].repeat_interleave(2, 0))

    def test_copies_share_blocks_and_go_on_apart(self):
        pair = self.both()
        copied = copy.deepcopy(pair[0]), copy.deepcopy(pair[1])
        self.caches.append(copied[1])
        self.assertGreater(pair[1].stats.forks, 0)
        self.logits(copied, self.ids[:, 14:20])
        self.logits(pair, self.ids[:, 5:11])
        self.logits(copied, self.ids[:, 20:22])
        self.caches.pop(0).close()
        self.logits(copied, self.ids[:, :2])

    def test_interrupted_forward_leaves_nothing(self):
        """An exception at each place of a forward: after it the cache goes on from before."""
        attention = [layer.self_attn for layer in self.ours.model.layers]
        places = [module for layer in self.ours.model.layers
                  for module in (layer.self_attn.q_proj, layer.self_attn.o_proj, layer.mlp)]
        for module in places:
            for first in (True, False):
                with self.subTest(module=places.index(module), first=first):
                    pair = (transformers.DynamicCache(config=self.own.config), self.cache())
                    if not first:
                        self.logits(pair, self.ids[:, :14])
                    self.interrupt(module, pair[1])
                    length = 0 if first else 14
                    reached = module is places[-1] or module is attention[-1].o_proj
                    if reached:  # K and V of all layers were computed
                        self.assertEqual(pair[1].get_seq_length(), length + 5)
                        pair[1].crop(-5)
                    self.assertEqual(pair[1].get_seq_length(), length)
                    if not reached and module is not places[0]:
                        with self.assertRaisesRegex(quire.ArgumentError, "did not reach"):
                            self.logits(pair, self.ids[:, 14:19])
                        pair = self.own_of(length), pair[1]
                    self.logits(pair, self.ids[:, 14:19])

    def test_forward_after_an_interrupted_one_simply_works(self):
        """With a cache that was made from the model; with and without a cache."""
        places = [module for layer in self.ours.model.layers
                  for module in (layer.self_attn.q_proj, layer.self_attn.o_proj, layer.mlp)]
        for module in places[:-2]:
            for first in (True, False):
                with self.subTest(module=places.index(module), first=first):
                    pair = transformers.DynamicCache(config=self.own.config), self.cache(
                        self.ours)
                    if not first:
                        self.logits(pair, self.ids[:, :14])
                    self.interrupt(module, pair[1])
                    with torch.no_grad():
                        torch.testing.assert_close(self.ours(self.ids).logits,
                                                   self.own(self.ids).logits, rtol=1e-4,
                                                   atol=1e-4)
                    self.interrupt(module, pair[1])
                    self.logits(pair, self.ids[:, 14:19])
                    self.logits(pair, self.ids[:, 19:])

    def test_process_may_end_with_an_open_cache(self):
        ended = subprocess.run([sys.executable, "-W", "ignore", "-c", LEFT_OPEN],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               timeout=300, check=False)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))

    def test_model_that_skips_layers_is_refused(self):
        cache = self.cache(self.ours)
        layers = self.ours.model.layers
        self.ours.model.layers = layers[:2]
        try:
            with torch.no_grad():
                self.ours(self.ids, past_key_values=cache)
                with self.assertRaisesRegex(quire.ArgumentError, "did not reach all layers"):
                    self.ours(self.ids[:, :1], past_key_values=cache)
        finally:
            self.ours.model.layers = layers

    def own_of(self, length):
        cache = transformers.DynamicCache(config=self.own.config)
        with torch.no_grad():
            self.own(self.ids[:, :length], past_key_values=cache) if length else None
        return cache

    def interrupt(self, module, cache):
        def stop(*_):
            raise KeyboardInterrupt
        hook = module.register_forward_pre_hook(stop)
        try:
            with torch.no_grad(), self.assertRaises(KeyboardInterrupt):
                self.ours(self.ids[:, 14:19], past_key_values=cache)
        finally:
            hook.remove()

    def test_caches_take_turns(self):
        pairs = [self.both() for _ in range(3)]
        for start in range(14, 20, 2):
            for pair in pairs:
                self.logits(pair, self.ids[:, start:start + 2])

    def test_each_thread_has_a_cache(self):
        wanted = self.own.generate(self.ids[:1], max_new_tokens=12, do_sample=False)
        caches = [self.cache() for _ in range(4)]
        got = {}

        def run(number):
            got[number] = self.ours.generate(self.ids[:1], past_key_values=caches[number],
                                             max_new_tokens=12, do_sample=False)

        threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([got[number].tolist() for number in range(4)], [wanted.tolist()] * 4)

    def test_a_cache_is_freed_whatever_is_dropped_first(self):
        for order in itertools.permutations(range(3)):
            device = quire.Device(self.instance, "cpu", threads=1)
            cache = quire.transformers.QuireCache(self.ours.config, device, blocks=64,
                                                  block_tokens=4)
            with torch.no_grad():
                out = self.ours(self.ids[:1, :9], past_key_values=cache)
            things = [cache, copy.deepcopy(cache), out]
            del cache, out
            for number in order:
                things[number] = None
            gc.collect()
            device.close()


if __name__ == "__main__":
    unittest.main()
