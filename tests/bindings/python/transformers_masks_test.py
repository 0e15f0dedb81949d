# SPDX-License-Identifier: Apache-2.0
"""quire.transformers: masks that no layer needs are not made, and are made where one does."""

import copy
import importlib.util
import unittest
from unittest import mock

import quire

HAS_TORCH = (importlib.util.find_spec("torch") is not None
             and importlib.util.find_spec("transformers") is not None)

if HAS_TORCH:
    import torch
    import transformers
    import quire.transformers


@unittest.skipUnless(HAS_TORCH, "no torch")
class Masks(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        self.instance = quire.Instance()
        self.device = quire.Device(self.instance, "cpu", threads=1)
        self.ids = torch.randint(2, 97, (2, 30))
        self.made = mock.patch.object(quire.transformers, "eager_mask",
                                      side_effect=quire.transformers.eager_mask)

    def tearDown(self):
        self.device.close()
        self.instance.close()

    def models(self, kind, **options):
        config = getattr(transformers, kind + "Config")(
            vocab_size=97, hidden_size=64, intermediate_size=96, num_hidden_layers=3,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
            initializer_range=0.1, eos_token_id=None, pad_token_id=0, **options)
        own, ours = (transformers.AutoModelForCausalLM.from_config(
            copy.deepcopy(config), attn_implementation=name).eval() for name in ("eager", "quire"))
        ours.load_state_dict(own.state_dict())
        return own, ours

    def learned(self, ours):
        """A cache that knows the model's layers."""
        cache = quire.transformers.QuireCache(ours, self.device, blocks=64, block_tokens=4)
        with torch.no_grad():
            ours(self.ids[:, :5], past_key_values=cache)
        cache.reset()
        return cache

    def compare(self, own, ours, cache, first=0, end=30, **options):
        """A forward over [first, end) of the ids, whose logits must be close."""
        with torch.no_grad():
            got = ours(self.ids[:, first:end], past_key_values=cache, **options).logits
            wanted = own(self.ids[:, :end], **options).logits[:, first:]
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)

    def test_masks_of_known_layers_are_not_made(self):
        for kind, options in (("Llama", {}), ("Mistral", {"sliding_window": 6}),
                              ("Gemma2", {"sliding_window": 6, "head_dim": 16})):
            with self.subTest(kind):
                own, ours = self.models(kind, **options)
                cache = self.learned(ours)
                with self.made as made:
                    self.compare(own, ours, cache, 0, 20)
                    self.compare(own, ours, cache, 20, 21)
                    self.compare(own, ours, cache, 21, 30)
                self.assertEqual((made.call_count, cache.whole_layers), (0, []))
                cache.close()

    def test_mask_with_padding_is_made(self):
        own, ours = self.models("Llama")
        cache = self.learned(ours)
        seen = torch.ones_like(self.ids)
        seen[0, :7] = 0
        options = {"attention_mask": seen, "max_new_tokens": 5, "do_sample": False}
        with self.made as made:
            got = ours.generate(self.ids, past_key_values=cache, **options)
        self.assertEqual(own.generate(self.ids, **options).tolist(), got.tolist())
        self.assertGreater(made.call_count, 0)
        cache.close()

    def test_mask_is_made_where_the_models_attention_needs_it(self):
        """Weights of attention come from the model's own attention."""
        own, ours = self.models("Llama")
        cache = self.learned(ours)
        with self.made as made, torch.no_grad():
            got = ours(self.ids, past_key_values=cache, output_attentions=True)
            wanted = own(self.ids, output_attentions=True)
        torch.testing.assert_close(got.logits, wanted.logits, rtol=1e-4, atol=1e-5)
        for mine, theirs in zip(got.attentions, wanted.attentions):
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
        self.assertGreater(made.call_count, 0)
        cache.close()

    def test_layer_that_changes_its_mask_gets_one(self):
        own, ours = self.models("Llama")
        real = quire.transformers.attention

        def narrowed(module, query, key, value, mask, **options):
            return real(module, query, key, value, mask[..., :], **options)

        transformers.AttentionInterface.register("quire", narrowed)
        try:
            cache = self.learned(ours)
            with self.made as made:
                self.compare(own, ours, cache)
            self.assertGreater(made.call_count, 0)
            cache.close()
        finally:
            transformers.AttentionInterface.register("quire", real)

    def test_use_of_a_mask_outside_of_attention_is_noticed(self):
        """A layer begins to use its mask once the cache has seen that it does not."""
        own, ours = self.models("Llama")
        cache = self.learned(ours)

        def add(module, arguments, options):
            shown = (options["attention_mask"][0, 0, -1, 0] == 0).to(torch.float32)
            return (arguments[0] + 1 - shown + options["attention_mask"][0, 0, -1, 0],
                    *arguments[1:]), options

        hook = ours.model.layers[1].register_forward_pre_hook(add, with_kwargs=True)
        with torch.no_grad():
            with self.assertRaisesRegex(quire.UnsupportedError, "NaN"):
                ours(self.ids, past_key_values=cache)
        cache.reset()
        self.compare(own, ours, cache)
        hook.remove()
        cache.close()


if __name__ == "__main__":
    unittest.main()
