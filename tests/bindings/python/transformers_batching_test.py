# SPDX-License-Identifier: Apache-2.0
"""quire.continuous: transformers' continuous batching gives with Quire's blocks the texts that it
gives with its own cache, and nothing is left in the blocks afterwards.

Expectations come from transformers' own continuous batching with sdpa, or from generate() of each
prompt alone for models that it does not take.
"""

import _thread
import contextlib
import copy
import gc
import importlib.util
import logging
import unittest

import quire

HAS_TORCH = (importlib.util.find_spec("torch") is not None
             and importlib.util.find_spec("transformers") is not None)

if HAS_TORCH:
    import torch
    import transformers
    import quire.continuous

KINDS = {"Llama": {}, "Mixtral": {"num_local_experts": 2, "num_experts_per_tok": 1},
         "Mistral": {"sliding_window": 6}, "Qwen2": {"use_sliding_window": True,
                                                     "sliding_window": 8, "max_window_layers": 1},
         "Gemma3Text": {"head_dim": 16, "sliding_window": 7}}
# transformers' own continuous batching takes none of these with sdpa.
ALONE = {"Gemma2": {"head_dim": 16, "attn_logit_softcapping": 0.5, "sliding_window": 6},
         "GptOss": {"head_dim": 16, "num_local_experts": 4, "sliding_window": 6}, "GPTNeoX": {}}


@unittest.skipUnless(HAS_TORCH, "no torch")
class Batching(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        gc.collect()
        gc.freeze()   # managers collect garbage when they stop; torch's modules are not theirs

    @classmethod
    def tearDownClass(cls):
        gc.unfreeze()

    def setUp(self):
        logging.getLogger("ContinuousBatchingLogger").setLevel(logging.CRITICAL)
        torch.manual_seed(1)
        self.instance = quire.Instance()
        self.device = quire.Device(self.instance, "cpu", threads=1)

    def tearDown(self):
        gc.collect()
        self.device.close()   # a BusyError if a cache is left over
        self.instance.close()

    def model(self, kind="Llama", attention="sdpa", dtype=None, **options):
        torch.manual_seed(1)
        config = getattr(transformers, kind + "Config")(**{
            "vocab_size": 97, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
            "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
            "bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0, **options})
        return transformers.AutoModelForCausalLM.from_config(
            config, attn_implementation=attention).to(dtype or torch.float32).eval()

    def prompts(self, *lengths):
        return [torch.randint(2, 97, (length,)).tolist() for length in lengths]

    @contextlib.contextmanager
    def served(self, model, blocks=64, **options):
        """What `with` must leave behind is checked before it closes the blocks."""
        with quire.continuous.serve(model, self.device, blocks, **options) as served:
            yield served
            self.nothing_held(served)

    def nothing_held(self, served):
        self.assertEqual((served.stats.sequences, served.stats.blocks_held), (0, 0))
        served.rows.store.blocks.check()

    def options(self, **options):
        """A generation config and one of continuous batching."""
        children = options.pop("children", None)
        generation = transformers.GenerationConfig(
            max_new_tokens=options.pop("new", 12), do_sample=False, pad_token_id=0,
            eos_token_id=options.pop("eos", -1))
        generation.num_return_sequences = children
        return {"generation_config": generation,
                "continuous_batching_config": transformers.ContinuousBatchingConfig(
                    **{"num_blocks": 64, "page_size": 16, "max_batch_tokens": 32, **options})}

    def texts(self, model, prompts, **options):
        done = model.generate_batch(prompts, **self.options(**options))
        for result in done.values():
            self.assertIsNone(result.error)
        return {name: result.generated_tokens for name, result in done.items()}

    def test_texts_are_those_of_its_own_cache(self):
        for kind, options in KINDS.items():
            with self.subTest(kind):
                model = self.model(kind, **options)
                prompts = self.prompts(13, 40, 5, 1)
                wanted = self.texts(model, prompts)
                self.assertEqual([len(text) for text in wanted.values()], [12] * 4)
                with self.served(model):
                    self.assertEqual(self.texts(model, prompts), wanted)
                self.assertEqual(model.config._attn_implementation, "sdpa")

    def test_texts_are_those_of_each_prompt_alone(self):
        for kind, options in ALONE.items():
            with self.subTest(kind):
                model = self.model(kind, "eager", **options)
                prompts = self.prompts(13, 40, 5)
                wanted = [model.generate(torch.tensor([ids]), max_new_tokens=12, do_sample=False)
                          [0, len(ids):].tolist() for ids in prompts]
                with self.served(model):
                    self.assertEqual(list(self.texts(model, prompts).values()), wanted)

    def test_types_of_fewer_bits_are_the_models(self):
        for dtype in (torch.bfloat16, torch.float16):
            with self.subTest(str(dtype)):
                model = self.model(dtype=dtype)
                with self.served(model) as served:
                    self.texts(model, self.prompts(13, 20))
                    kind = served.rows.store.blocks.groups[0].dtype
                    self.assertIn(kind.name.lower(), {"bf16", "f16"})

    def test_paged_implementation_of_generate_is_served(self):
        model = self.model()
        ids = torch.tensor(self.prompts(13))
        wanted = model.generate(ids, max_new_tokens=9, do_sample=False)
        with self.served(model) as served:
            got = model.generate(ids, max_new_tokens=9, do_sample=False,
                                 cache_implementation="paged", eos_token_id=-1)
            self.assertGreater(served.stats.blocks_cached, 0)
        self.assertEqual(got[0].tolist(), wanted.tolist())

    def test_prompts_are_found_by_their_tokens(self):
        model = self.model()
        beginning, other = self.prompts(48, 48)
        prompts = [beginning + ids for ids in self.prompts(9, 20)]
        wanted = self.texts(model, prompts)
        with self.served(model) as served:
            self.texts(model, [beginning])
            before = served.stats.prefix_cache_hits
            self.assertEqual(self.texts(model, prompts), wanted)
            self.assertEqual(served.stats.prefix_cache_hits - before, 2 * 48)
            self.texts(model, [other[:1] + beginning[1:]])   # one token differs: nothing is found
            self.texts(model, prompts, allow_block_sharing=False)
            self.assertEqual(served.stats.prefix_cache_hits - before, 2 * 48)

    def test_other_weights_find_nothing(self):
        model = self.model()
        prompts = self.prompts(48)
        with self.served(model) as served:
            self.texts(model, prompts)
            with torch.no_grad():
                model.model.layers[0].mlp.up_proj.weight.mul_(-1)
            before = served.stats.prefix_cache_hits
            got = self.texts(model, prompts)
            self.assertEqual(served.stats.prefix_cache_hits, before)
        self.assertEqual(got, self.texts(model, prompts))

    def test_weights_that_change_in_a_pause_are_not_mixed_with_others(self):
        model = self.model()
        ids, = self.prompts(20)
        weight = model.model.layers[0].mlp.up_proj.weight
        with self.served(model) as served:
            options = self.options(new=400)
            with model.continuous_batching_context_manager(**options) as manager:
                manager.add_request(ids, streaming=True)
                manager.get_result(timeout=60)
                with manager.pause(), torch.no_grad():
                    weight.mul_(-1)
                for result in manager:
                    if result.is_finished():
                        break
                with manager.pause(), torch.no_grad():
                    weight.mul_(-1)
            mixed = result.generated_tokens
            prompt = ids + mixed[:200]
            got = self.texts(model, [prompt])
            self.nothing_held(served)
        self.assertEqual(got, self.texts(model, [prompt]))

    def test_requests_give_way_when_blocks_are_short(self):
        model = self.model()
        prompts = self.prompts(30, 31, 32, 33)
        wanted = self.texts(model, prompts, new=40)
        with self.served(model, blocks=9) as served:   # 8 blocks of 16 tokens; one takes 5
            self.assertEqual(self.texts(model, prompts, new=40), wanted)
            self.assertGreater(served.stats.evictions + served.stats.prefix_cache_hits, 0)

    def test_request_that_never_fits_fails_alone_in_words(self):
        model = self.model()
        with self.served(model, blocks=4):
            result, = model.generate_batch(self.prompts(60), **self.options()).values()
            self.assertIn("No requests can be scheduled", result.error)
            self.assertEqual(len(self.texts(model, self.prompts(20))["req_0"]), 12)

    def test_several_texts_of_a_prompt_are_forks(self):
        model = self.model()
        prompts = self.prompts(37, 1)
        wanted = self.texts(model, prompts[:1], children=3)
        self.assertEqual(len(wanted), 3)
        with self.served(model) as served:
            self.assertEqual(self.texts(model, prompts[:1], children=3), wanted)
            self.assertEqual(served.stats.forks, 2)
            self.assertGreater(served.stats.copies_on_write, 0)

    def test_stop_tokens_and_lengths_of_requests_are_kept(self):
        model = self.model()
        ids, = self.prompts(13)
        text = self.texts(model, [ids], new=30)["req_0"]
        stop = text[7]
        wanted = text[:text.index(stop) + 1]
        with self.served(model) as served:
            self.assertEqual(self.texts(model, [ids], eos=stop, new=30)["req_0"], wanted)
            with model.continuous_batching_context_manager(**self.options(new=30)) as manager:
                manager.add_request(ids, request_id="short", max_new_tokens=3)
                manager.add_request(ids, request_id="stopped", eos_token_id=[stop])
                done = {}
                for result in manager:
                    done[result.request_id] = result.generated_tokens
                    if len(done) == 2:
                        break
                self.nothing_held(served)
            self.assertEqual(done, {"short": text[:3], "stopped": wanted})

    def test_streams_grow_token_by_token(self):
        model = self.model()
        ids, = self.prompts(13)
        text = self.texts(model, [ids])["req_0"]
        with self.served(model):
            with model.continuous_batching_context_manager(**self.options()) as manager:
                name = manager.add_request(ids, streaming=True)
                parts = [part.generated_tokens for part in manager.request_id_iter(name)]
        self.assertEqual(parts, [text[:count] for count in range(1, 13)])

    def test_cancelled_request_gives_its_blocks_back(self):
        model = self.model()
        ids, other = self.prompts(40, 7)
        wanted = self.texts(model, [other])["req_0"]
        with self.served(model) as served:
            options = self.options(new=400)
            with model.continuous_batching_context_manager(**options) as manager:
                long = manager.add_request(ids, streaming=True)
                manager.get_result(timeout=60)
                manager.cancel_request(long)
                short = manager.add_request(other, max_new_tokens=12)
                for result in manager:
                    if result.request_id == short:
                        break
                self.assertEqual(result.generated_tokens, wanted)
                self.nothing_held(served)

    def test_kept_manager_serves_again(self):
        model = self.model()
        prompts = self.prompts(13, 20)
        wanted = self.texts(model, prompts)
        with self.served(model) as served:
            for _ in range(2):
                done = model.generate_batch(prompts, persistent_manager=True, **self.options())
                self.assertEqual([result.generated_tokens for result in done.values()],
                                 list(wanted.values()))
                self.nothing_held(served)

    def test_exception_in_the_model_leaves_nothing(self):
        model = self.model()
        prompts = self.prompts(13, 20)
        wanted = self.texts(model, prompts)
        for layer in (0, 2):
            with self.subTest(layer), self.served(model) as served:
                calls = []

                def fails(*arguments):
                    calls.append(1)
                    if len(calls) == 4:
                        raise RuntimeError("the layer broke")

                hook = model.model.layers[layer].self_attn.o_proj.register_forward_hook(fails)
                done = model.generate_batch(prompts, **self.options())
                hook.remove()
                self.assertEqual({result.error for result in done.values()}, {"the layer broke"})
                self.nothing_held(served)
                self.assertEqual(self.texts(model, prompts), wanted)

    def interrupted(self, model, prompts, times):
        """Ctrl-C in some forwards of a generate_batch of many tokens."""
        calls = []

        def interrupts(*arguments):
            calls.append(1)
            if len(calls) in times:
                _thread.interrupt_main()

        hook = model.model.layers[1].register_forward_hook(interrupts)
        try:
            with self.assertRaises(KeyboardInterrupt):
                model.generate_batch(prompts, **self.options(new=450))
        finally:
            hook.remove()

    def test_interrupt_leaves_nothing(self):
        model = self.model()
        prompts = self.prompts(13, 20)
        wanted = self.texts(model, prompts)
        with self.served(model) as served:
            self.interrupted(model, prompts, [4])
            self.assertFalse(served.manager.is_running())
            self.nothing_held(served)
            self.assertEqual(self.texts(model, prompts), wanted)

    def test_second_interrupt_leaves_a_thread_that_close_waits_for(self):
        model = self.model()
        prompts = self.prompts(13, 20)
        with quire.continuous.serve(model, self.device, 64) as served:
            self.interrupted(model, prompts, [4, 60])
            running = served.manager.background_thread_status
        self.assertEqual(running.local_status, running.STOPPED)

    def test_second_manager_waits_for_the_first(self):
        model = self.model()
        with self.served(model):
            with model.continuous_batching_context_manager(**self.options()):
                other = model.init_continuous_batching(**self.options())
                with self.assertRaisesRegex(quire.BusyError, "another manager"):
                    other.start()
                with self.assertRaisesRegex(quire.ArgumentError, "served already"):
                    quire.continuous.serve(model, self.device, 64)

    def test_two_requests_of_one_name_are_refused(self):
        model = self.model()
        with self.served(model):
            with model.continuous_batching_context_manager(**self.options(new=400)) as manager:
                manager.add_request(self.prompts(40)[0], request_id="twin", streaming=True)
                manager.get_result(timeout=60)
                manager.add_request(self.prompts(20)[0], request_id="twin")
                errors = [result.error for result in manager if result.error]
        self.assertIn("another of this name", errors[0])

    def test_options_that_are_not_served_are_refused(self):
        compiled = transformers.CompileConfig()
        model = self.model("Llama", "eager")
        with self.served(model):
            for name, value in (("use_cuda_graph", True), ("varlen_compile_config", compiled),
                                ("decode_compile_config", compiled), ("cpu_offload_space", 1.0),
                                ("default_compile_level", 1), ("use_async_batching", True)):
                with self.subTest(name), self.assertRaisesRegex(quire.UnsupportedError, name):
                    model.generate_batch(self.prompts(9), **self.options(**{name: value}))
            with self.assertRaisesRegex(quire.ArgumentError, "max_batch_tokens"):
                model.generate_batch(self.prompts(9), **self.options(max_batch_tokens=10000))
        self.assertEqual(model.config._attn_implementation, "eager")
        self.assertNotIn("init_continuous_batching", vars(model))

    def test_models_that_are_not_served_are_refused(self):
        rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}
        for kind, why, options in (
                ("Bloom", "cannot be exchanged", {}), ("OPT", "in one row", {"ffn_dim": 96}),
                ("Mamba", "no layer that keeps K and V", {}),
                ("Llama", "'dynamic'", {"rope_parameters": rope}),
                ("Llama4Text", "chunked", {"num_local_experts": 2, "attention_chunk_size": 8})):
            with self.subTest(kind):
                model = self.model(kind, "eager", **options)
                with self.assertRaisesRegex(quire.UnsupportedError, why):
                    quire.continuous.serve(model, self.device, 64)
                self.assertEqual(model.config._attn_implementation, "eager")

    def test_model_that_mixes_neighbours_is_refused(self):
        model = self.model()
        model.model.layers[1].mlp.register_forward_hook(
            lambda module, given, out: out + 0.5 * torch.roll(out, 1, 1))
        with self.assertRaisesRegex(quire.UnsupportedError, "in one row"):
            quire.continuous.serve(model, self.device, 64)


if __name__ == "__main__":
    unittest.main()
