# SPDX-License-Identifier: Apache-2.0
"""quire.transformers: what an earlier prompt left in the blocks is found, and nothing else is."""

import copy
import importlib.util
import unittest

import quire

HAS_TORCH = (importlib.util.find_spec("torch") is not None
             and importlib.util.find_spec("transformers") is not None)
HAS_PEFT = importlib.util.find_spec("peft") is not None

if HAS_TORCH:
    import torch
    import transformers
    import quire.transformers
    from quire import layer_prompts

BLOCK = 4


@unittest.skipUnless(HAS_TORCH, "no torch")
class Prefix(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        self.instance = quire.Instance()
        self.device = quire.Device(self.instance, "cpu", threads=1)
        self.own, self.ours = self.models("Llama")
        self.ids = torch.randint(2, 97, (1, 24))
        self.caches = []

    def tearDown(self):
        for cache in self.caches:
            cache.close()
        self.device.close()
        self.instance.close()

    def models(self, kind, **options):
        """The same model twice: with its own attention, and with Quire's."""
        config = getattr(transformers, kind + "Config")(
            vocab_size=97, hidden_size=64, intermediate_size=96, num_hidden_layers=3,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
            initializer_range=0.1, bos_token_id=1, eos_token_id=None, pad_token_id=0, **options)
        own, ours = (transformers.AutoModelForCausalLM.from_config(
            copy.deepcopy(config), attn_implementation=name).eval() for name in ("eager", "quire"))
        ours.load_state_dict(own.state_dict())
        return own, ours

    def cache(self, model=None):
        self.caches.append(quire.transformers.QuireCache(
            self.ours if model is None else model, self.device, blocks=128, block_tokens=BLOCK))
        return self.caches[-1]

    def sibling(self, cache):
        self.caches.append(cache.sibling())
        return self.caches[-1]

    def forward(self, ids, cache, model=None, **options):
        with torch.no_grad():
            return (self.ours if model is None else model)(
                input_ids=ids, past_key_values=cache, **options).logits

    def after(self, ids, **options):
        """A cache whose blocks hold what a forward with these arguments left."""
        cache = self.cache()
        self.forward(ids, cache, **options)
        cache.reset()
        return cache

    def test_second_chat_finds_the_system_prompt(self):
        cache = self.cache()
        self.ours.generate(self.ids, past_key_values=cache, max_new_tokens=7, do_sample=False)
        other = torch.cat([self.ids[:, :21], torch.randint(2, 97, (1, 6))], 1)
        second = self.sibling(cache)
        hits = cache.stats.prefix_cache_hits
        self.assertEqual(second.prefix(other), 20)
        self.assertEqual(cache.stats.prefix_cache_hits - hits, 20)
        self.assertEqual(second.get_seq_length(), 20)
        with torch.no_grad():
            wanted = self.own(other).logits
        torch.testing.assert_close(self.forward(other[:, 20:], second), wanted[:, 20:],
                                   rtol=1e-4, atol=1e-5)
        third = self.sibling(cache)
        self.assertEqual(third.prefix(other), 24)
        self.assertEqual(
            self.ours.generate(other, past_key_values=third, max_new_tokens=9,
                               do_sample=False).tolist(),
            self.own.generate(other, max_new_tokens=9, do_sample=False).tolist())

    def test_answers_are_found_too(self):
        cache = self.cache()
        text = self.ours.generate(self.ids, past_key_values=cache, max_new_tokens=20,
                                  do_sample=False)
        cache.reset()
        self.assertEqual(cache.prefix(text), 40)   # 43 of 44 tokens were computed
        self.assertEqual(cache.stats.blocks_held, 10)

    def test_changed_token_is_never_found(self):
        cache = self.after(self.ids)
        for place in range(23):
            other = self.ids.clone()
            other[0, place] = (int(other[0, place]) + 1) % 95 + 2
            self.assertEqual(cache.prefix(other), place // BLOCK * BLOCK)
            cache.reset()

    def test_rows_find_what_all_of_them_have(self):
        rows = torch.randint(2, 97, (3, 24))
        seen = torch.ones_like(rows)
        seen[0, :9] = seen[1, :2] = 0
        places = (seen.cumsum(1) - 1).clamp(min=0)
        cache = self.after(rows, attention_mask=seen, position_ids=places)
        self.assertEqual(cache.prefix(rows, seen), 20)   # 11, 18 and 20 tokens
        got = self.ours.generate(rows, attention_mask=seen, past_key_values=cache,
                                 max_new_tokens=9, do_sample=False)
        wanted = self.own.generate(rows, attention_mask=seen, max_new_tokens=9, do_sample=False)
        self.assertEqual(wanted.tolist(), got.tolist())

    def test_beams_and_chunks_go_on_from_what_was_found(self):
        for options in ({"num_beams": 3}, {"prefill_chunk_size": 3}):
            with self.subTest(**options):
                cache = self.after(self.ids)
                rows = self.ids.repeat(options.get("num_beams", 1), 1)
                self.assertEqual(cache.prefix(rows), 20)
                options = {"max_new_tokens": 9, "do_sample": False, **options}
                got = self.ours.generate(self.ids, past_key_values=cache, **options)
                self.assertEqual(self.own.generate(self.ids, **options).tolist(), got.tolist())

    def test_windows_find_what_they_have_not_passed(self):
        own, ours = self.models("Mistral", sliding_window=6)
        cache = self.cache(ours)
        self.forward(self.ids, cache, ours)
        second = self.sibling(cache)
        found = second.prefix(self.ids)
        self.assertGreater(found, 0)
        with torch.no_grad():
            wanted = own(self.ids).logits
        torch.testing.assert_close(self.forward(self.ids[:, found:], second, ours),
                                   wanted[:, found:], rtol=1e-4, atol=1e-5)

    # What is not found.

    def not_found(self, cache):
        self.assertEqual(cache.prefix(self.ids), 0)
        self.assertEqual(cache.get_seq_length(), 0)

    def test_embeddings_have_no_ids(self):
        with torch.no_grad():
            embeds = self.ours.get_input_embeddings()(self.ids)
        cache = self.cache()
        with torch.no_grad():
            self.ours(inputs_embeds=embeds + 0, past_key_values=cache)
        cache.reset()
        self.not_found(cache)
        with torch.no_grad():   # changed in place since the embedding returned them
            embeds = self.ours.get_input_embeddings()(self.ids)
            embeds[0, 3] += 1
            self.ours(inputs_embeds=embeds, past_key_values=cache)
        cache.reset()
        self.not_found(cache)

    def test_other_positions_are_not_published(self):
        self.not_found(self.after(self.ids, position_ids=torch.arange(24)[None] + 1))
        seen = torch.ones_like(self.ids)
        seen[0, :2] = 0   # and no positions: the model counts the padding
        cache = self.after(self.ids, attention_mask=seen)
        self.assertEqual(cache.prefix(self.ids, seen), 0)

    def test_other_masks_are_not_published(self):
        """K and V of later layers depend on what a token saw."""
        mask = torch.zeros(1, 1, 24, 24)
        mask[..., :, 3] = torch.finfo(torch.float32).min
        mask[..., 3, 3] = 0
        mask += torch.full((24, 24), torch.finfo(torch.float32).min).triu(1)
        self.not_found(self.after(self.ids, attention_mask=mask.clamp(
            min=torch.finfo(torch.float32).min)))

    def test_image_is_not_found_by_its_placeholders(self):
        text = self.ours.config.to_dict()
        vision = {"model_type": "clip_vision_model", "hidden_size": 32, "intermediate_size": 32,
                  "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 8,
                  "patch_size": 4, "projection_dim": 32}
        config = transformers.LlavaConfig(
            text_config=text, vision_config=vision, image_token_index=90,
            vision_feature_layer=-1, vision_feature_select_strategy="default")
        model = transformers.LlavaForConditionalGeneration._from_config(
            copy.deepcopy(config), attn_implementation={"text_config": "quire",
                                                        "vision_config": "eager"}).eval()
        own = transformers.LlavaForConditionalGeneration._from_config(
            config, attn_implementation="eager").eval()
        own.load_state_dict(model.state_dict())
        ids = torch.randint(2, 90, (1, 24))
        cache = self.cache(model)
        self.forward(ids, cache, model)    # text alone is found
        cache.reset()
        self.assertEqual(cache.prefix(ids), 20)
        cache.reset()
        ids[0, 2:6] = 90
        options = {"max_new_tokens": 5, "do_sample": False}
        for _ in range(2):
            pixels = torch.randn(1, 3, 8, 8)
            self.assertEqual(cache.prefix(ids), 0)
            got = model.generate(ids, pixel_values=pixels, past_key_values=cache, **options)
            wanted = own.generate(ids, pixel_values=pixels, **options)
            self.assertEqual(wanted.tolist(), got.tolist())
            cache.reset()

    def test_changed_weights_are_another_key(self):
        changes = (lambda weight: weight.mul_(2), lambda weight: weight.data.mul_(2))
        for change in changes:
            cache = self.after(self.ids)
            with torch.no_grad():
                change(self.ours.model.layers[0].self_attn.v_proj.weight)
            self.not_found(cache)

    def test_last_element_of_a_large_tensor_is_in_the_key(self):
        numbers = torch.zeros(2**24 + 3, dtype=torch.uint8)   # a float has no such place
        sample = layer_prompts._sample(numbers)
        numbers[-1] = 1
        self.assertNotEqual(layer_prompts._sample(numbers), sample)

    def test_weights_that_change_during_a_chat_end_its_publishing(self):
        cache = self.cache()
        self.forward(self.ids[:, :8], cache)
        with torch.no_grad():
            self.ours.model.layers[0].self_attn.v_proj.weight.mul_(2)
        self.forward(self.ids[:, 8:], cache)
        cache.reset()
        self.not_found(cache)

    def test_wrapped_module_is_another_key(self):
        cache = self.after(self.ids)
        layer = self.ours.model.layers[1].self_attn
        plain = layer.v_proj

        class Adapted(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.plain, self.low = plain, torch.nn.Linear(64, 32, bias=False)

            def forward(self, states):
                return self.plain(states) + self.low(states)

        layer.v_proj = Adapted().eval()
        self.not_found(cache)
        self.forward(self.ids, cache)
        cache.reset()
        self.assertEqual(cache.prefix(self.ids), 20)
        cache.reset()
        layer.v_proj = plain
        self.assertEqual(cache.prefix(self.ids), 20)   # as before the adapter

    @unittest.skipUnless(HAS_PEFT, "no peft")
    def test_adapters_of_peft_are_other_keys(self):
        import peft
        model = peft.get_peft_model(self.ours, peft.LoraConfig(
            r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)).eval()
        cache = self.cache(model)
        self.forward(self.ids, cache, model)
        cache.reset()
        with model.disable_adapter():
            self.not_found(cache)
            self.forward(self.ids, cache, model)
            cache.reset()
        for _ in range(2):
            self.assertEqual(cache.prefix(self.ids), 20)
            wanted = self.forward(self.ids, None, model)[:, 20:]
            torch.testing.assert_close(self.forward(self.ids[:, 20:], cache, model), wanted,
                                       rtol=1e-4, atol=1e-5)
            cache.reset()
            model.merge_adapter()
            self.assertEqual(cache.prefix(self.ids), 0)
            model.unmerge_adapter()
            self.forward(self.ids, cache, model)
            cache.reset()

    def test_hooks_and_training_end_the_publishing(self):
        hook = self.ours.model.layers[0].register_forward_hook(lambda *_: None)
        self.not_found(self.after(self.ids))
        hook.remove()
        self.ours.train()
        self.not_found(self.after(self.ids))

    def test_rope_that_depends_on_the_length_is_not_found(self):
        _, ours = self.models("Llama", rope_parameters={
            "rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0})
        cache = self.cache(ours)
        self.forward(self.ids, cache, ours)
        cache.reset()
        self.not_found(cache)

    # What is refused.

    def test_another_prompt_than_prefix_had_is_refused(self):
        cache = self.after(self.ids)
        self.assertEqual(cache.prefix(self.ids), 20)
        other = self.ids.clone()
        other[0, 22] = 1
        with self.assertRaisesRegex(quire.ArgumentError, "other tokens than those"):
            self.ours.generate(other, past_key_values=cache, max_new_tokens=2)
        cache.reset()
        self.assertEqual(cache.prefix(self.ids), 20)

    def test_another_model_is_refused(self):
        cache = self.after(self.ids)
        self.assertEqual(cache.prefix(self.ids), 20)
        with self.assertRaisesRegex(quire.UnsupportedError, "not (one|that) of the model"):
            self.forward(self.ids[:, 20:], cache, self.models("Llama")[1])

    def test_weights_that_change_after_prefix_are_refused(self):
        cache = self.after(self.ids)
        self.assertEqual(cache.prefix(self.ids), 20)
        with torch.no_grad():
            self.ours.model.layers[0].self_attn.v_proj.weight.mul_(2)
        with self.assertRaisesRegex(quire.ArgumentError, "have changed since prefix"):
            self.forward(self.ids[:, 20:], cache)

    def test_prefix_needs_an_empty_cache_of_a_model(self):
        cache = self.cache()
        self.forward(self.ids, cache)
        with self.assertRaisesRegex(quire.ArgumentError, "already holds tokens"):
            cache.prefix(self.ids)
        with self.assertRaisesRegex(quire.ArgumentError, "made from a config"):
            self.cache(self.ours.config).prefix(self.ids)

    def test_forget_forgets(self):
        cache = self.after(self.ids)
        cache.forget()
        self.not_found(cache)


if __name__ == "__main__":
    unittest.main()
