# SPDX-License-Identifier: Apache-2.0
"""quire.transformers: a model under torch.compile."""

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


@unittest.skipUnless(HAS_TORCH, "no torch")
class Compiled(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        torch._dynamo.reset()
        self.instance = quire.Instance()
        self.device = quire.Device(self.instance, "cpu", threads=1)
        config = transformers.LlamaConfig(
            vocab_size=97, hidden_size=32, intermediate_size=32, num_hidden_layers=1,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
            initializer_range=0.1, eos_token_id=None, pad_token_id=0)
        kind = transformers.AutoModelForCausalLM
        self.own, self.ours = (kind.from_config(copy.deepcopy(config), attn_implementation=name)
                               .eval() for name in ("eager", "quire"))
        self.ours.load_state_dict(self.own.state_dict())
        self.ids = torch.randint(2, 97, (2, 18))
        self.cache = quire.transformers.QuireCache(self.ours, self.device, blocks=64)

    def tearDown(self):
        self.cache.close()
        torch._dynamo.reset()
        self.device.close()
        self.instance.close()

    def test_logits_are_the_same(self):
        compiled = torch.compile(self.ours, backend="eager")
        with torch.no_grad():
            wanted = self.own(self.ids).logits
            for first, end in ((0, 14), (14, 15), (15, 18)):
                got = compiled(self.ids[:, first:end], past_key_values=self.cache).logits
                torch.testing.assert_close(got, wanted[:, first:end], rtol=1e-4, atol=1e-5)
        self.assertEqual(self.cache.whole_layers, [])

    def test_whole_graphs_are_refused_in_words(self):
        compiled = torch.compile(self.ours, backend="eager", fullgraph=True)
        with torch.no_grad(), self.assertRaisesRegex(Exception, "in Quire's blocks"):
            compiled(self.ids, past_key_values=self.cache)


if __name__ == "__main__":
    unittest.main()
