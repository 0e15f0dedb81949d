# SPDX-License-Identifier: Apache-2.0
"""quire.transformers: transformers' continuous batching makes a cache of its own and takes no
other, so outside of quire.continuous.serve a model with Quire's attention must be refused by name,
before a token."""

import copy
import gc
import importlib.util
import unittest

import quire

HAS_TORCH = (importlib.util.find_spec("torch") is not None
             and importlib.util.find_spec("transformers") is not None)

if HAS_TORCH:
    import torch
    import transformers
    import quire.transformers

REFUSED = "Implementation quire is not supported for continuous batching"


@unittest.skipUnless(HAS_TORCH, "no torch")
class ContinuousBatching(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        self.instance = quire.Instance()
        self.device = quire.Device(self.instance, "cpu", threads=1)
        self.config = transformers.LlamaConfig(
            vocab_size=97, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
            bos_token_id=1, eos_token_id=None, pad_token_id=0)
        self.own = self.model("eager")
        self.ours = self.model("quire")
        self.cache = quire.transformers.QuireCache(self.ours, self.device, blocks=64)
        self.ids = torch.randint(2, 97, (1, 13))

    def tearDown(self):
        self.cache.close()
        gc.collect()
        self.device.close()
        self.instance.close()

    def model(self, attention):
        torch.manual_seed(1)
        return transformers.AutoModelForCausalLM.from_config(
            copy.deepcopy(self.config), attn_implementation=attention).eval()

    def still_serves(self):
        """The refusal has changed neither the model nor the cache."""
        options = {"max_new_tokens": 9, "do_sample": False}
        wanted = self.own.generate(self.ids, **options)
        got = self.ours.generate(self.ids, past_key_values=self.cache, **options)
        self.assertEqual(wanted.tolist(), got.tolist())
        self.assertEqual((self.ours.config._attn_implementation, self.cache.whole_layers),
                         ("quire", []))

    def batch(self, model, **options):
        wanted = transformers.GenerationConfig(max_new_tokens=5, do_sample=False, pad_token_id=0,
                                               eos_token_id=-1)
        small = transformers.ContinuousBatchingConfig(num_blocks=16, max_batch_tokens=32)
        return model.generate_batch([self.ids[0].tolist()], generation_config=wanted,
                                    continuous_batching_config=small, **options)

    def test_generate_batch_is_refused(self):
        for options in ({}, {"past_key_values": self.cache}, {"cache": self.cache}):
            with self.subTest(list(options)), self.assertRaisesRegex(ValueError, REFUSED):
                self.batch(self.ours, **options)
        self.still_serves()

    def test_paged_implementation_of_generate_is_refused(self):
        with self.assertRaisesRegex(ValueError, REFUSED):
            self.ours.generate(self.ids, past_key_values=self.cache, max_new_tokens=5,
                               do_sample=False, cache_implementation="paged")
        self.still_serves()

    def test_attention_refuses_a_paged_cache(self):
        """Should the attention be called with such a cache after all."""
        module = self.ours.model.layers[0].self_attn
        query, keys = torch.randn(1, 4, 3, 16), torch.randn(1, 2, 3, 16)
        for name in ("cache", "read_index", "block_table"):
            with self.subTest(name), self.assertRaisesRegex(quire.UnsupportedError, name):
                quire.transformers.attention(module, query, keys, keys, None, **{name: [1]})


if __name__ == "__main__":
    unittest.main()
