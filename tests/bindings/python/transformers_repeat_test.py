# SPDX-License-Identifier: Apache-2.0
"""quire.transformers: calls of a layer that were made before take a shorter way, and any call that
differs from them is noticed."""

import copy
import importlib.util
import sys
import unittest

import quire

HAS_TORCH = (importlib.util.find_spec("torch") is not None
             and importlib.util.find_spec("transformers") is not None)

if HAS_TORCH:
    import torch
    import transformers
    import transformers.models.llama.modeling_llama
    import quire.transformers
    from quire.layer_calls import LayerCalls


@unittest.skipUnless(HAS_TORCH, "no torch")
class Repeated(unittest.TestCase):
    """Each test decodes until all layers go the shorter way, and then calls otherwise."""

    def setUp(self):
        torch.manual_seed(1)
        self.instance = quire.Instance()
        self.device = quire.Device(self.instance, "cpu", threads=1)
        self.runs = []
        self.run_calls = LayerCalls.run

    def tearDown(self):
        LayerCalls.run = self.run_calls
        self.cache.close()
        self.device.close()
        self.instance.close()

    def begin(self, kind="Llama", rows=1, **options):
        config = getattr(transformers, kind + "Config")(
            vocab_size=97, hidden_size=64, intermediate_size=96, num_hidden_layers=3,
            num_attention_heads=4, num_key_value_heads=2, head_dim=16,
            max_position_embeddings=256, bos_token_id=1, eos_token_id=None, pad_token_id=0,
            **options)
        made = transformers.AutoModelForCausalLM
        self.own, self.ours = (
            made.from_config(copy.deepcopy(config), attn_implementation=name).eval()
            for name in ("eager", "quire"))
        self.ours.load_state_dict(self.own.state_dict())
        self.cache = quire.transformers.QuireCache(self.ours, self.device, blocks=64,
                                                   block_tokens=4)
        self.ids = torch.randint(2, 97, (rows, 40))

        def run(calls, *arguments):
            self.runs.append(arguments[1])
            return self.run_calls(calls, *arguments)

        LayerCalls.run = run
        self.place = 0
        for count in (9, 3, 1, 1, 1):
            self.forward(count)
        self.assertEqual(self.runs[-3:], [0, 1, 2])
        self.runs.clear()

    def forward(self, count, own_options=None, **options):
        """A forward of the next tokens, whose logits must be the model's own."""
        new = self.ids[:, self.place:self.place + count]
        self.place += count
        with torch.no_grad():
            got = self.ours(new, past_key_values=self.cache, **options)
            wanted = self.own(self.ids[:, :self.place], **(own_options or {}))
        torch.testing.assert_close(got.logits, wanted.logits[:, -count:], rtol=1e-4, atol=1e-5)
        return got, wanted

    def test_chunks_and_rows_are_repeated(self):
        self.begin(rows=3)
        for count in (1, 5, 1, 2):
            self.forward(count)
        self.assertEqual(self.runs, [0, 1, 2] * 4)

    def test_windows_and_soft_caps_are_repeated(self):
        self.begin("Gemma2", sliding_window=8, query_pre_attn_scalar=16,
                   attn_logit_softcapping=2.0)
        for _ in range(12):
            self.forward(1)
        self.assertEqual(self.runs, [0, 1, 2] * 12)

    def test_other_scale_is_noticed(self):
        self.begin()
        for model in (self.own, self.ours):
            model.model.layers[1].self_attn.scaling *= 1.5
        self.cache.reset()  # what layer 2 keeps depends on layer 1
        self.place = 0
        self.forward(9)
        self.forward(1)
        self.assertEqual(self.runs, [0, 2, 0, 1, 2])

    def test_mask_of_the_models_own_is_noticed(self):
        self.begin()
        hidden = torch.zeros(1, 1, 1, self.place + 1)
        hidden[..., :4] = torch.finfo(torch.float32).min
        whole = torch.zeros(1, 1, self.place + 1, self.place + 1)
        whole += torch.full_like(whole, torch.finfo(torch.float32).min).triu(1)
        whole[..., -1:, :] = hidden
        self.forward(1, {"attention_mask": whole}, attention_mask=hidden)
        self.assertEqual(self.runs, [])

    def test_weights_of_attention_are_returned(self):
        self.begin()
        got, wanted = self.forward(1, {"output_attentions": True}, output_attentions=True)
        self.assertEqual(len(got.attentions), 3)
        for mine, yours in zip(got.attentions, wanted.attentions):
            torch.testing.assert_close(mine, yours[:, :, -1:], rtol=1e-4, atol=1e-5)
        self.assertEqual(self.runs, [])

    def test_keyword_that_is_not_known_is_refused(self):
        self.begin()
        with self.assertRaisesRegex(quire.UnsupportedError, "'unheard_of'"):
            self.forward(1, unheard_of=3)

    def test_copies_go_on_apart(self):
        self.begin()
        other = self.cache.fork()
        kept, self.cache = self.cache, other
        try:
            self.forward(1)
        finally:
            self.cache = kept
            other.close()
        self.place -= 1
        self.ids[:, self.place:] = torch.randint(2, 97, (1, 40 - self.place))
        self.forward(1)
        self.assertEqual(self.runs, [0, 1, 2] * 2)

    def test_error_of_the_device_leaves_nothing(self):
        self.begin()
        call = self.run_calls

        def fails(calls, batch, layer, *tensors):
            if layer == 1:
                raise quire.DeviceLostError("planted")
            return call(calls, batch, layer, *tensors)

        LayerCalls.run = fails
        with self.assertRaises(quire.DeviceLostError), torch.no_grad():
            self.ours(self.ids[:, self.place:self.place + 1], past_key_values=self.cache)
        LayerCalls.run = call
        self.forward(1)

    def test_inference_mode_is_served(self):
        self.begin()
        with torch.inference_mode():
            self.forward(1)
            self.forward(2)
        self.assertEqual(self.runs, [0, 1, 2] * 2)

    def test_view_that_negates_is_read_as_what_it_shows(self):
        self.begin()
        module = transformers.models.llama.modeling_llama
        rotate = module.apply_rotary_pos_emb
        self.addCleanup(setattr, module, "apply_rotary_pos_emb", rotate)

        def negated(query, key, *arguments, **options):
            query, key = rotate(query, key, *arguments, **options)
            return torch._neg_view(-query), torch._neg_view(-key)

        module.apply_rotary_pos_emb = negated
        self.forward(1)
        self.forward(2)
        self.assertEqual(self.runs, [0, 1, 2] * 2)

    def hide(self, column):
        """From layer 1 on the mask hides a column."""
        def change(module, arguments, options):
            options["attention_mask"][..., column] = torch.finfo(torch.float32).min

        for model in (self.own, self.ours):
            model.model.layers[1].register_forward_pre_hook(change, with_kwargs=True)

    def test_mask_that_is_changed_in_place_is_noticed(self):
        self.begin(rows=2)
        padding = torch.ones(2, self.place + 1, dtype=torch.long)
        padding[0, :3] = 0
        self.cache.reset()
        self.hide(5)
        own = transformers.DynamicCache(config=self.own.config)
        for first, end in ((0, 9), (9, 10), (10, 11)):
            given = {"attention_mask": padding[:, :end]}
            with torch.no_grad():
                got = self.ours(self.ids[:, first:end], past_key_values=self.cache, **given)
                wanted = self.own(self.ids[:, first:end], past_key_values=own, **given)
            torch.testing.assert_close(got.logits[:, -1], wanted.logits[:, -1], rtol=1e-4,
                                       atol=1e-5)
        self.assertIn(1, self.cache.whole_layers)

    def test_change_of_what_stands_for_a_mask_is_refused(self):
        self.begin()
        self.hide(5)
        new = self.ids[:, self.place:self.place + 1]
        with self.assertRaisesRegex(quire.UnsupportedError, "changed in place"), torch.no_grad():
            self.ours(new, past_key_values=self.cache)
        self.assertEqual(self.cache.get_seq_length(), self.place)
        self.assertFalse(self.cache.forward.known.direct)

    def test_change_of_what_stands_for_a_mask_is_refused_in_inference_mode(self):
        self.begin()
        self.hide(5)
        with (self.assertRaisesRegex(quire.UnsupportedError, "changed in place"),
              torch.inference_mode()):
            self.ours(self.ids[:, self.place:self.place + 1], past_key_values=self.cache)

    def test_interrupt_after_the_last_layer_leaves_a_whole_token(self):
        self.begin()

        def interrupts(frame, event, argument):
            if (event == "c_return" and frame.f_code.co_name == "count_written"
                    and len(self.cache.forward.written) == 3):
                sys.setprofile(None)
                raise KeyboardInterrupt

        sys.setprofile(interrupts)
        try:
            with self.assertRaises(KeyboardInterrupt), torch.no_grad():
                self.ours(self.ids[:, self.place:self.place + 1], past_key_values=self.cache)
        finally:
            sys.setprofile(None)
        self.place = self.cache.get_seq_length()
        self.forward(1)
        self.forward(1)

    def test_no_gradient_is_lost(self):
        self.begin()
        with self.assertRaisesRegex(quire.UnsupportedError, "gradient"):
            self.ours(self.ids[:, self.place:self.place + 1], past_key_values=self.cache)


if __name__ == "__main__":
    unittest.main()
