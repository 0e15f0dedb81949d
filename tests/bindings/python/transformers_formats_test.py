# SPDX-License-Identifier: Apache-2.0
"""quire.transformers: K and V of fewer bits, beside a DynamicCache that rounds them likewise."""

import copy
import importlib.util
import unittest

import quire

HAS_TORCH = (importlib.util.find_spec("torch") is not None
             and importlib.util.find_spec("transformers") is not None)

if HAS_TORCH:
    import torch
    import transformers
    import quire.transformers

    class Rounded(transformers.DynamicCache):
        """transformers' own cache, of rounded K and V.

        late  a forward sees its own K and V before they are rounded
        """

        def __init__(self, kind, latent=False, late=False):
            super().__init__()
            self.kind, self.latent, self.late = kind, latent, late

        def round(self, states):
            if self.kind in ("f16", "bf16"):
                return states.to({"f16": torch.float16, "bf16": torch.bfloat16}[self.kind]).float()
            most = {"int8": 127, "fp8_e4m3": 448, "fp8_e5m2": 57344}[self.kind]
            scale = states.abs().amax(-1, keepdim=True) / most
            codes = states / scale
            if self.kind == "int8":
                return codes.round() * scale
            type_of = {"fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}[self.kind]
            return codes.to(type_of).float() * scale

        def update(self, keys, values, *arguments, **options):
            if self.latent:   # one row, with one scale
                row = self.round(torch.cat([keys, values], 3))
                keys, values = row.split([keys.shape[3], values.shape[3]], 3)
                return super().update(keys, values, *arguments, **options)
            found = super().update(self.round(keys), self.round(values), *arguments, **options)
            if not self.late:
                return found
            new = keys.shape[2]
            return tuple(torch.cat([rounded[:, :, :-new], exact], 2)
                         for rounded, exact in zip(found, (keys, values)))


@unittest.skipUnless(HAS_TORCH, "no torch")
class Formats(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(3)
        self.instance = quire.Instance()
        self.device = quire.Device(self.instance, "cpu", threads=1)

    def tearDown(self):
        self.device.close()
        self.instance.close()

    def models(self, kind="Llama", **options):
        options = {"num_key_value_heads": 2, **options}
        config = getattr(transformers, kind + "Config")(
            vocab_size=97, hidden_size=64, intermediate_size=96, num_hidden_layers=3,
            num_attention_heads=4, max_position_embeddings=256, initializer_range=0.1,
            eos_token_id=None, pad_token_id=0, **options)
        own, ours = (transformers.AutoModelForCausalLM.from_config(
            copy.deepcopy(config), attn_implementation=name).eval() for name in ("eager", "quire"))
        ours.load_state_dict(own.state_dict())
        return own, ours

    def compare(self, own, ours, kind, latent=False, read_back=False):
        ids = torch.randint(2, 97, (2, 30))
        cache = quire.transformers.QuireCache(ours, self.device, blocks=64, block_tokens=4,
                                              dtype=kind, read_back=read_back)
        rounded = Rounded(kind, latent, late=read_back)
        with torch.no_grad():
            exact = own(ids).logits
            for first, end in ((0, 17), (17, 18), (18, 30)):
                wanted = own(ids[:, first:end], past_key_values=rounded).logits
                got = ours(ids[:, first:end], past_key_values=cache).logits
                torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-3)
        whole = cache.whole_layers
        cache.close()
        self.assertGreater(float((got - exact[:, 18:]).abs().max()), 0)
        return whole

    def test_logits_are_those_of_rounded_k_and_v(self):
        own, ours = self.models()
        for kind in ("f16", "bf16", "int8", "fp8_e4m3", "fp8_e5m2"):
            with self.subTest(kind):
                self.assertEqual(self.compare(own, ours, kind), [])

    def test_latents_are_rounded_too(self):
        own, ours = self.models(
            "DeepseekV3", num_key_value_heads=4, q_lora_rank=24, kv_lora_rank=16,
            qk_rope_head_dim=8, qk_nope_head_dim=16, v_head_dim=16, first_k_dense_replace=3)
        for kind in ("f16", "int8", "fp8_e4m3"):
            with self.subTest(kind):
                self.assertEqual(self.compare(own, ours, kind, latent=True), [])

    def test_rounded_k_and_v_are_read_back(self):
        own, ours = self.models()
        self.assertEqual(self.compare(own, ours, "int8", read_back=True), [0, 1, 2])

    def test_blocks_that_hold_something_else_are_refused(self):
        """The first K and V of a layer are compared with what was given."""
        _, ours = self.models()
        cache = quire.transformers.QuireCache(ours, self.device, blocks=64, dtype="int8")
        store = cache.forward.store
        real = store.write
        store.write = lambda batch, layer, keys, values: real(batch, layer, keys * 1.01, values)
        with torch.no_grad(), self.assertRaisesRegex(quire.UnsupportedError, "layer 0"):
            ours(torch.randint(2, 97, (1, 9)), past_key_values=cache)
        cache.close()

    def test_int4_is_refused(self):
        _, ours = self.models()
        with self.assertRaisesRegex(quire.UnsupportedError, "int4"):
            quire.transformers.QuireCache(ours, self.device, blocks=64, dtype="int4")


if __name__ == "__main__":
    unittest.main()
