# SPDX-License-Identifier: Apache-2.0
"""transformers_own_plugin: a pytest plugin that puts Quire's caches where transformers makes its
own, if QUIRE_TRANSFORMERS_CACHE says so, and tiny models with random weights where its tests name
those of a hub. transformers_own.py says how it is used."""

import contextlib
import functools
import importlib.util
import os
import pathlib
import sys
import types

import pytest
import tokenizers
import torch
import transformers
from transformers.generation.continuous_batching import cache, cache_allocators
from transformers.integrations import tensor_parallel

OURS = {"quire": True, "transformers": False}[os.environ["QUIRE_TRANSFORMERS_CACHE"]]

torch.set_num_threads(1)


# Names that the tests import, and the release has elsewhere.

def module_from(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


transformers.utils.is_jmespath_available = lambda: False
tensor_parallel._get_parameter_tp_plan = None
testing = transformers.testing_utils = module_from(
    pathlib.Path(os.environ["QUIRE_TRANSFORMERS"]) / "src" / "transformers" / "testing_utils.py",
    "transformers.testing_utils")
sys.modules[f"{cache.__package__}.cache_manager"] = cache_allocators
pipelines = sys.modules["tests.test_pipeline_mixin"] = types.ModuleType("pipelines")
pipelines.PipelineTesterMixin = type("PipelineTesterMixin", (), {})  # they need data of a hub
cache.SlidingAttentionCacheAllocator = cache_allocators.SlidingAttentionCacheAllocator
# Tests of continuous batching ask for an accelerator for its speed.
testing.require_torch_accelerator = testing.require_deterministic_for_xpu = lambda test: test


# Models and tokenizers without a hub.

TINY = {"vocab_size": 128, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
        "max_position_embeddings": 4096, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
        "initializer_range": 0.3}
WINDOWS = {"sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"]}
CONFIGS = {
    "gemma-2": lambda: transformers.Gemma2Config(**TINY, **WINDOWS, query_pre_attn_scalar=16),
    "gemma-3": lambda: transformers.Gemma3TextConfig(**TINY, **WINDOWS, query_pre_attn_scalar=16),
    "Qwen2.5": lambda: transformers.Qwen2Config(**TINY),
    "lama": lambda: transformers.LlamaConfig(**TINY),
}
TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


def config_of(name, *_, **options):
    for part, make in CONFIGS.items():
        if part in name:
            config = make()
            if "attn_implementation" in options:
                config._attn_implementation = options["attn_implementation"]
            return config
    raise OSError(f"no model {name} without a hub")


def tokenizer_of(name, *_, padding_side="left", **__):
    """One that gives every byte an id."""
    config_of(name)
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    words = {word: i for i, word in enumerate(["<pad>", "<s>", "</s>", "<unk>"])}
    words.update((letter, 4 + i % 124) for i, letter in enumerate(letters))
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex("."), "isolated")
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", bos_token="<s>", eos_token="</s>",
        unk_token="<unk>", padding_side=padding_side, chat_template=TEMPLATE)


@functools.lru_cache(maxsize=None)
def weights_of(name):
    torch.manual_seed(3)
    return transformers.AutoModelForCausalLM.from_config(config_of(name)).state_dict()


def model_of(name, *_, attn_implementation="sdpa", **__):
    model = transformers.AutoModelForCausalLM.from_config(
        config_of(name), attn_implementation=attn_implementation)
    model.load_state_dict(weights_of(name))
    if OURS:
        global served
        served += 1
        opened.enter_context(quire.continuous.serve(model, device, blocks=1024))
    return model.eval()


transformers.AutoConfig.from_pretrained = config_of
transformers.AutoTokenizer.from_pretrained = tokenizer_of
transformers.AutoModelForCausalLM.from_pretrained = model_of

opened = contextlib.ExitStack()  # what a test leaves open
served = 0


@pytest.fixture(autouse=True)
def close_afterwards():
    transformers.set_seed(5)  # models and prompts are random
    yield
    opened.close()


def pytest_sessionfinish():
    pathlib.Path("served").write_text(str(served))


# The caches that generate() makes.

def cache_for(model):
    """A QuireCache for a model, which gets Quire's attention until the test ends."""
    global served
    served += 1
    before = model.config._attn_implementation
    with contextlib.suppress(ValueError):
        model.set_attn_implementation("quire")
        opened.callback(model.set_attn_implementation, before)
    # Otherwise the model computes attention itself.
    read_back = model.config._attn_implementation != "quire"
    return opened.enter_context(contextlib.closing(quire.transformers.QuireCache(
        model, device, blocks=1024, block_tokens=4, read_back=read_back)))


def generate(self, *arguments, **options):
    if options.get("cache_implementation") == "dynamic_full":  # a name of the tests' release
        options["cache_implementation"] = "dynamic"
    return own_generate(self, *arguments, **options)


own_generate = transformers.GenerationMixin.generate
transformers.GenerationMixin.generate = functools.wraps(own_generate)(generate)


def prepare(self, generation_config, model_kwargs, *arguments, **options):
    given = model_kwargs.get("cache")
    own_prepare(self, generation_config, model_kwargs, *arguments, **options)
    made = model_kwargs.get("cache")
    if made is None or made is given:
        return
    if type(made) is transformers.DynamicCache:
        model_kwargs["cache"] = cache_for(self)
    elif type(made) is transformers.EncoderDecoderCache:
        if type(made.self_attention_cache) is transformers.DynamicCache:
            model_kwargs["cache"] = transformers.EncoderDecoderCache(
                cache_for(self), made.cross_attention_cache)


if OURS:
    import quire
    import quire.continuous
    import quire.transformers

    device = quire.Device(quire.Instance(), "cpu", threads=1)
    own_prepare = transformers.GenerationMixin._prepare_cache_for_generation
    transformers.GenerationMixin._prepare_cache_for_generation = prepare
