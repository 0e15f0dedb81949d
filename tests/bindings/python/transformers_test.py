# SPDX-License-Identifier: Apache-2.0
"""quire.transformers: a model generates the same with it as with its own cache."""

import copy
import gc
import importlib.util
import sys
import unittest

import quire

HAS_TORCH = (importlib.util.find_spec("torch") is not None
             and importlib.util.find_spec("transformers") is not None)

if HAS_TORCH:
    import torch
    import transformers
    import quire.transformers


@unittest.skipUnless(HAS_TORCH, "no torch")
class Generates(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        self.instance = quire.Instance()
        self.device = quire.Device(self.instance, "cpu", threads=1)

    def tearDown(self):
        self.device.close()
        self.instance.close()

    def config(self, kind="Llama", **options):
        return getattr(transformers, kind + "Config")(
            vocab_size=97, hidden_size=64, intermediate_size=96, num_hidden_layers=3,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
            bos_token_id=1, eos_token_id=None, pad_token_id=0, **options)

    def models(self, config):
        """The same model twice: with its own attention, and with Quire's."""
        kind = transformers.AutoModelForCausalLM
        own, ours = (kind.from_config(copy.deepcopy(config), attn_implementation=name).eval()
                     for name in ("eager", "quire"))
        ours.load_state_dict(own.state_dict())
        return own, ours

    def cache(self, config, **options):
        return quire.transformers.QuireCache(config, self.device, blocks=64, block_tokens=4,
                                             **options)

    def compare(self, config, rows=1, **options):
        own, ours = self.models(config)
        ids = torch.randint(2, 97, (rows, 13))
        options = {"max_new_tokens": 40, "do_sample": False, **options}
        wanted = own.generate(ids, **options)
        cache = self.cache(config)
        got = ours.generate(ids, past_key_values=cache, **options)
        stats = cache.stats
        cache.close()
        self.assertEqual(wanted.tolist(), got.tolist())
        return stats

    def test_greedy_texts_are_the_models_own(self):
        stats = self.compare(self.config())
        self.assertEqual(stats.blocks_held, 13)   # 52 tokens, the last of which is not computed

    def test_batches_are_served(self):
        self.compare(self.config(), rows=3, max_new_tokens=20)

    def test_beams_are_forks(self):
        stats = self.compare(self.config(), num_beams=3, max_new_tokens=20)
        self.assertGreater(stats.forks, 0)

    def test_windows_have_a_pool_of_their_own(self):
        config = self.config("Qwen2", use_sliding_window=True, sliding_window=8,
                             max_window_layers=1)
        self.assertIn("sliding_attention", config.layer_types)
        self.compare(config)

    def test_logits_are_close(self):
        config = self.config()
        own, ours = self.models(config)
        ids = torch.randint(2, 97, (2, 30))
        cache = self.cache(config)
        with torch.no_grad():
            first = ours(ids[:, :17], past_key_values=cache).logits
            rest = ours(ids[:, 17:], past_key_values=cache).logits
            wanted = own(ids).logits
        torch.testing.assert_close(torch.cat([first, rest], 1), wanted, rtol=1e-4, atol=1e-5)
        self.assertEqual(cache.get_seq_length(), 30)
        cache.reset()
        self.assertEqual((cache.get_seq_length(), cache.stats.blocks_held), (0, 0))
        cache.close()

    def test_assistant_drafts_are_taken_back(self):
        config = self.config()
        own, ours = self.models(config)
        assistant, _ = self.models(self.config())
        ids = torch.randint(2, 97, (1, 9))
        cache = self.cache(config)
        wanted = own.generate(ids, max_new_tokens=20, do_sample=False)
        got = ours.generate(ids, past_key_values=cache, assistant_model=assistant,
                            max_new_tokens=20, do_sample=False)
        cache.close()
        self.assertEqual(wanted.tolist(), got.tolist())

    def test_cache_that_is_not_closed_is_freed(self):
        config = self.config()
        _, ours = self.models(config)
        cache = self.cache(config)
        with torch.no_grad():
            ours(torch.randint(2, 97, (1, 9)), past_key_values=cache)
        with self.assertRaises(quire.BusyError):
            self.device.close()
        del cache
        gc.collect()
        self.device.close()

    def test_left_padding_takes_no_place_in_the_blocks(self):
        config = self.config()
        own, ours = self.models(config)
        ids = torch.randint(2, 97, (3, 13))
        seen = torch.ones_like(ids)
        seen[0, :9] = seen[1, :4] = 0
        cache = self.cache(config)
        options = {"attention_mask": seen, "max_new_tokens": 9, "do_sample": False}
        wanted = own.generate(ids, **options)
        got = ours.generate(ids, past_key_values=cache, **options)
        self.assertEqual(wanted.tolist(), got.tolist())
        self.assertEqual(cache.stats.blocks_held, 3 + 5 + 6)   # 4 + 8, 9 + 8 and 13 + 8 tokens
        self.assertEqual(cache.whole_layers, [])
        cache.close()

    def test_kinds_of_attention_run_over_the_blocks(self):
        for kind, options in (("Mistral", {"sliding_window": 6}),
                              ("Gemma2", {"attn_logit_softcapping": 0.5, "sliding_window": 6}),
                              ("GptOss", {"num_local_experts": 4, "sliding_window": 6})):
            with self.subTest(kind):
                config = self.config(kind, head_dim=16, **options)
                own, ours = self.models(config)
                ids = torch.randint(2, 97, (1, 13))
                cache = self.cache(config)
                wanted = own.generate(ids, max_new_tokens=12, do_sample=False)
                got = ours.generate(ids, past_key_values=cache, max_new_tokens=12,
                                    do_sample=False)
                self.assertEqual((wanted.tolist(), cache.whole_layers), (got.tolist(), []))
                cache.close()

    def test_attention_that_is_not_the_models_own_is_noticed(self):
        """The first result of a layer is compared with the model's eager attention."""
        config = self.config()
        own, ours = self.models(config)
        module = sys.modules[type(ours).__module__]
        real = module.eager_attention_forward

        def doubled(*arguments, **options):
            out, weights = real(*arguments, **options)
            return 2 * out, weights

        ids = torch.randint(2, 97, (1, 13))
        cache = self.cache(config)
        module.eager_attention_forward = doubled
        try:
            wanted = own.generate(ids, max_new_tokens=12, do_sample=False)
            got = ours.generate(ids, past_key_values=cache, max_new_tokens=12, do_sample=False)
        finally:
            module.eager_attention_forward = real
        self.assertEqual((wanted.tolist(), cache.whole_layers), (got.tolist(), [0, 1, 2]))
        cache.close()

    def test_unknown_keyword_of_the_attention_interface_is_refused(self):
        config = self.config()
        _, ours = self.models(config)
        cache = self.cache(config)
        real = quire.transformers.attention

        def extended(*arguments, **options):
            return real(*arguments, colour="blue", **options)

        transformers.AttentionInterface.register("quire", extended)
        try:
            with torch.no_grad(), self.assertRaisesRegex(quire.UnsupportedError, "'colour'"):
                ours(torch.randint(2, 97, (1, 9)), past_key_values=cache)
        finally:
            transformers.AttentionInterface.register("quire", real)
            cache.close()

    def test_mask_that_uncovers_padding_is_refused(self):
        config = self.config()
        _, ours = self.models(config)
        ids = torch.randint(2, 97, (1, 10))
        seen = torch.ones_like(ids)
        seen[0, :3] = 0
        cache = self.cache(config)
        with torch.no_grad():
            ours(ids[:, :9], past_key_values=cache, attention_mask=seen[:, :9])
            with self.assertRaisesRegex(quire.UnsupportedError, "padding"):
                ours(ids[:, 9:], past_key_values=cache, attention_mask=torch.ones_like(ids))
        cache.close()

    def test_other_attention_needs_read_back(self):
        config = self.config()
        own, _ = self.models(config)
        ids = torch.randint(2, 97, (1, 9))
        with self.assertRaisesRegex(quire.UnsupportedError, "attention is 'eager'"):
            self.cache(own.config)
        cache = self.cache(own.config, read_back=True)
        wanted = own.generate(ids, max_new_tokens=9, do_sample=False)
        got = own.generate(ids, past_key_values=cache, max_new_tokens=9, do_sample=False)
        self.assertEqual(wanted.tolist(), got.tolist())
        cache.close()

    def test_many_rows_are_served(self):
        config = self.config()
        own, ours = self.models(config)
        ids = torch.randint(2, 97, (300, 5))
        cache = quire.transformers.QuireCache(config, self.device, blocks=1000, block_tokens=4)
        with torch.no_grad():
            got = ours(ids, past_key_values=cache).logits
            torch.testing.assert_close(got, own(ids).logits, rtol=1e-4, atol=1e-5)
        cache.close()

    def test_what_cannot_be_served_is_refused(self):
        config = self.config()
        _, ours = self.models(config)
        ids = torch.randint(2, 97, (2, 9))
        cache = self.cache(config)
        with self.assertRaisesRegex(quire.UnsupportedError, "gradient"):
            ours(ids, past_key_values=cache)
        with torch.no_grad():
            with self.assertRaisesRegex(quire.LimitError, "more blocks are needed"):
                ours(torch.randint(2, 97, (1, 256)), past_key_values=cache)
        cache.close()


if __name__ == "__main__":
    unittest.main()
