# SPDX-License-Identifier: Apache-2.0
"""transformers_registry: every architecture of transformers, with a QuireCache and with its own.

    transformers_registry.py                 twelve architectures
    transformers_registry.py --all           all of transformers' registry
    transformers_registry.py --all --write   and writes docs/transformers.md
    transformers_registry.py llama mistral   these

A tiny model with random weights generates in each mode with eager attention and transformers' own
cache, then with Quire's. A cell of the table is one of

    none     the same as equal, in the mode prefix: but nothing of the first prompt was found
    equal    the same token ids (or two logits closer than 1e-4 where they part)
    refused  one of Quire's exceptions, before a token was returned
    -        transformers itself cannot do this with the model
    WRONG, CRASH  failures of this test
"""

import argparse
import collections
import concurrent.futures
import copy
import gc
import multiprocessing
import pathlib
import signal
import sys
import time
import warnings

import quire

try:
    import torch
    import transformers
    from transformers.models.auto import modeling_auto as auto
    import quire.transformers
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(0)

TWELVE = ["llama", "mistral", "gemma2", "gemma3_text", "gpt2", "gpt_oss", "phi3", "deepseek_v3",
          "doge", "bloom", "bart", "t5"]
SECONDS_PER_CELL = 40  # of processor time
FAILURES = ("WRONG", "CRASH")
DOCUMENT = pathlib.Path(__file__).resolve().parents[3] / "docs" / "transformers.md"

# Sizes by the name that a config gives them. Only names that the default config has are set.
SIZES = {
    97: "vocab_size decoder_vocab_size n_vocab",
    64: """hidden_size d_model n_embd dim hidden_dim model_dim embedding_size encoder_hidden_size
        word_embed_proj_dim emb_dim""",
    96: """intermediate_size ffn_dim d_ff n_inner decoder_ffn_dim encoder_ffn_dim ffn_hidden_size
        shared_expert_intermediate_size shared_intermediate_size mlp_hidden_size dff
        intermediate_size_mlp""",
    32: "moe_intermediate_size expert_ffn_hidden_size moe_latent_size",
    3: """num_hidden_layers n_layer n_layers num_layers decoder_layers encoder_layers
        num_decoder_layers num_encoder_layers""",
    4: """num_attention_heads n_head n_heads num_heads decoder_attention_heads
        encoder_attention_heads num_encoder_attention_heads num_decoder_attention_heads
        num_local_experts num_experts n_routed_experts moe_num_experts
        linear_num_value_heads""",
    2: """num_key_value_heads num_kv_heads num_experts_per_tok moe_k moe_top_k moe_topk
        top_k_experts n_group topk_group linear_num_key_heads""",
    16: """head_dim v_head_dim qk_nope_head_dim kv_lora_rank d_kv attention_head_dim d_head
        kv_channels mamba_d_head mamba_d_state linear_key_head_dim linear_value_head_dim""",
    8: "qk_rope_head_dim sliding_window mamba_n_heads",
    128: "mamba_d_ssm",
    24: "q_lora_rank",
    512: """max_position_embeddings n_positions n_ctx max_target_positions max_source_positions
        max_sequence_length max_seq_len""",
    1: """n_shared_experts first_k_dense_replace num_dense_layers bos_token_id
        decoder_start_token_id
        sep_token_id""",
    0: "pad_token_id num_nextn_predict_layers num_kv_shared_layers",
}
SIZE = {name: size for size, names in SIZES.items() for name in names.split()}
NONE = {"eos_token_id", "layer_types", "quantization_config", "forced_bos_token_id",
        "forced_eos_token_id", "suppress_tokens", "begin_suppress_tokens"}
SPREAD = {"initializer_range", "init_std", "initializer_factor"}

# What a single architecture needs besides.
OWN = {
    "lfm2_moe": {"layer_types": ["conv", "full_attention", "conv"]},
    "cohere_compass_text": {"layer_types": ["sliding_attention", "full_attention",
                                            "sliding_attention"]},
    "bamba": {"attn_layer_indices": [1]},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2},
    "granitemoehybrid": {"layer_types": ["linear_attention", "full_attention",
                                         "linear_attention"]},
    "llama": {"num_key_value_heads": 2},
    "llama4_text": {"attention_chunk_size": 16, "no_rope_layers": [1, 1, 0], "moe_layers": [0]},
    "mistral": {"sliding_window": 8},
    "opt": {"word_embed_proj_dim": 64},
    "codegen": {"rotary_dim": 8},
    "gptj": {"rotary_dim": 8},
    "gpt_neo": {"attention_types": [[["global", "local"], 1], [["global"], 1]], "num_layers": 3,
                "window_size": 8},
    "jetmoe": {"num_key_value_heads": 2, "num_attention_heads": 4, "kv_channels": 16},
    "qwen2": {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
    "diffllama": {"num_key_value_heads": 2},
    "gemma2": {"query_pre_attn_scalar": 16, "attn_logit_softcapping": 2.0},
    "gpt_bigcode": {"multi_query": True},
}


def kind_of(name):
    """(config class, model class) of an architecture."""
    config = transformers.models.auto.configuration_auto.CONFIG_MAPPING[name]
    for table in (auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
                  auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING, auto.MODEL_FOR_CAUSAL_LM_MAPPING):
        if config in table:
            model = table[config]
            return config, model[0] if isinstance(model, tuple) else model
    raise LookupError(f"{name} is not in the registry")


def shrink(given, own):
    """The tiny sizes for a config's fields, its sub-configs included."""
    fields = {}
    for key, value in given.items():
        if isinstance(value, dict) and key.endswith("config"):
            sub = {k: v for k, v in value.items() if k not in ("model_type",)}
            small = shrink(sub, own)
            if "model_type" in value:
                small["model_type"] = value["model_type"]
            fields[key] = small
        elif key in ("layer_types", "layers_block_type") and isinstance(value, list):
            kinds = sorted(set(value), key=value.index)
            fields[key] = (kinds + kinds[:1] * 3)[:3]
        elif key in NONE:
            fields[key] = None
        elif key == "head_dim" and "qk_rope_head_dim" in given:
            fields[key] = SIZE["qk_rope_head_dim"]
        elif key == "num_key_value_heads" and value in (
                None, given.get("num_attention_heads")):
            fields[key] = SIZE["num_attention_heads"]
        elif key in SIZE and (value is None or isinstance(value, (int, list))):
            if value is not None or key not in ("sliding_window", "pad_token_id"):
                fields[key] = SIZE[key]
        elif key in SPREAD:
            fields[key] = 1.0 if key == "initializer_factor" else 0.15
    fields.update({key: value for key, value in own.items() if key in given or key in OWN})
    return fields


def tiny(name):
    """A small config of the architecture."""
    config_class, _ = kind_of(name)
    config = config_class()
    fields = shrink(config.to_dict(), {})
    fields.update(OWN.get(name, {}))
    return config_class(**fields)


class Pair:
    """The same model twice: with its own attention, and with Quire's."""

    def __init__(self, name):
        config = tiny(name)
        _, model_class = kind_of(name)
        if getattr(config, "is_decoder", None) is False and not config.is_encoder_decoder:
            config.is_decoder = True
        if not isinstance(config, model_class.config_class):
            config = config.get_text_config(decoder=True)
        torch.manual_seed(5)
        self.own = self._make(model_class, config, "eager")
        self.assistant = self._make(model_class, config, "eager")
        self.read_back = False
        try:
            self.ours = self._make(model_class, config, "quire")
        except (KeyError, ValueError):  # transformers has only its own attentions for this model
            self.ours, self.read_back = self._make(model_class, config, "eager"), True
        self.ours.load_state_dict(self.own.state_dict())
        with torch.no_grad():  # an assistant that often, but not always, guesses right
            self.assistant.load_state_dict(self.own.state_dict())
            for weights in list(self.assistant.parameters())[-2:]:
                weights.add_(0.02 * torch.randn_like(weights))
        self.config = self.own.config
        self.encodes = self.config.is_encoder_decoder

    @staticmethod
    def _make(model_class, config, attention):
        model = model_class._from_config(copy.deepcopy(config), attn_implementation=attention)
        model.generation_config = transformers.GenerationConfig(
            pad_token_id=0, bos_token_id=1, decoder_start_token_id=1)
        return model.eval()


def prompt(pair, rows=1, length=13, repeats=False):
    """ids of a prompt, as generate()'s input."""
    torch.manual_seed(7)
    ids = torch.randint(3, 90, (rows, length))
    if repeats:
        ids = torch.cat([ids[:, :6], ids[:, :6], ids[:, :3]], 1)
    name = pair.own.main_input_name
    if name in ("input_features", "input_values"):
        bins = getattr(pair.config, "num_mel_bins", None) or getattr(
            pair.config, "input_feat_per_channel", 80)
        frames = 2 * getattr(pair.config, "max_source_positions", 512)
        if name == "input_values":
            return {name: torch.randn(rows, 4000)}
        sides = (bins, frames) if "whisper" in pair.config.model_type else (frames, bins)
        shape = (rows, *sides)
        return {name: torch.randn(shape)}
    return {"input_ids": ids}


def padded(pair, **options):
    inputs = prompt(pair, 3)
    if "input_ids" not in inputs:
        raise NotImplementedError("no token ids to be padded")
    seen = torch.ones_like(inputs["input_ids"])
    for row, count in ((1, 4), (2, 8)):
        seen[row, :count] = 0
        inputs["input_ids"][row, :count] = 0
    return {**inputs, "attention_mask": seen, **options}


MODES = {
    "greedy": lambda pair: prompt(pair),
    "batch": lambda pair: prompt(pair, 3),
    "padded": padded,
    "beams": lambda pair: {**prompt(pair, 2), "num_beams": 3},
    "sampled": lambda pair: {**prompt(pair, 2), "do_sample": True, "top_k": 20},
    "lookup": lambda pair: {**prompt(pair, repeats=True), "prompt_lookup_num_tokens": 3},
    "assisted": lambda pair: {**prompt(pair), "assistant_model": pair.assistant},
    "chunked": lambda pair: {**prompt(pair, 2), "prefill_chunk_size": 5},
    "continued": lambda pair: prompt(pair),
    "prefix": lambda pair: prompt(pair),
}


def generate(model, inputs, cache, mode, new_tokens):
    """The ids that a model generates in a mode."""
    given = dict(inputs)
    if "assistant_model" in given:
        given["assistant_model"] = copy.deepcopy(given["assistant_model"])
    if cache is not None:
        given["past_key_values"] = cache
    torch.manual_seed(11)
    given = {"max_new_tokens": new_tokens, "do_sample": False, **given}
    if mode == "prefix":
        return second_chat(model, given, cache)
    out = model.generate(**given, return_dict_in_generate=True)
    if mode != "continued":
        return out.sequences
    if model.config.is_encoder_decoder:
        raise NotImplementedError("a conversation with an encoder")
    torch.manual_seed(13)
    given["input_ids"] = torch.cat([out.sequences, torch.randint(3, 90, (1, 4))], 1)
    given["past_key_values"] = out.past_key_values
    return model.generate(**given)


def second_chat(model, given, cache):
    """The ids of a second prompt, which begins as the first one."""
    if "input_ids" not in given or model.config.is_encoder_decoder:
        raise NotImplementedError("a prompt that is not token ids alone")
    other = torch.cat([given["input_ids"], torch.randint(3, 90, (1, 5))], 1)
    if cache is not None:
        model.generate(**given)
        given["past_key_values"] = cache.sibling()
        cache.found = given["past_key_values"].prefix(other)
    given["input_ids"] = other
    try:
        return model.generate(**given)
    finally:
        if cache is not None:
            given["past_key_values"].close()


def tied(pair, inputs, wanted, got):
    """True if the two texts part where two logits are closer than 1e-4."""
    for row, (mine, yours) in enumerate(zip(wanted, got)):
        parts = [i for i in range(min(len(mine), len(yours))) if mine[i] != yours[i]]
        if not parts:
            continue
        given = {name: value[row:row + 1] for name, value in inputs.items()
                 if isinstance(value, torch.Tensor) and name != "attention_mask"}
        ids = wanted[row:row + 1, :parts[0]]
        given["decoder_input_ids" if pair.encodes else "input_ids"] = ids
        with torch.no_grad():
            best = pair.own(**given).logits[0, -1].topk(2).values
        if best[0] - best[1] > 1e-4:
            return False
    return True


def quire_cache(pair, device, dtype="f32"):
    cache = quire.transformers.QuireCache(pair.ours, device, blocks=512, block_tokens=4,
                                          dtype=dtype, read_back=pair.read_back)
    if pair.encodes:
        return cache, transformers.EncoderDecoderCache(cache, transformers.DynamicCache())
    return cache, cache


def cell(pair, mode, device, new_tokens):
    """(what a cell of the table says, why)."""
    try:
        inputs = MODES[mode](pair)
        wanted = generate(pair.own, inputs, None, mode, new_tokens)
    except Exception as why:  # transformers itself fails
        return "-", repr(why)
    cache = None
    try:
        cache, given = quire_cache(pair, device)
        got = generate(pair.ours, MODES[mode](pair), given, mode, new_tokens)
    except quire.QuireError as why:
        return "refused", str(why)
    except Exception as why:
        if isinstance(why, ValueError) and any(
                words in str(why) for words in ("`cache`", "['cache", "past_key_values")):
            return "refused", f"by transformers: {why}"  # it takes no such cache
        return "CRASH", repr(why)
    else:
        if wanted.tolist() == got.tolist() and mode == "prefix":
            return ("equal", f"found {cache.found}") if cache.found else ("none", "")
        if wanted.tolist() == got.tolist():
            return "equal", f"whole: {cache.whole_layers}" if cache.whole_layers else ""
        if mode in ("greedy", "batch", "lookup") and tied(pair, inputs, wanted, got):
            return "equal", "tied"
        return "WRONG", f"{wanted.tolist()}\n      {got.tolist()}"
    finally:
        if cache is not None:
            cache.close()


class Timeout(BaseException):
    pass


def _expire(*_):
    raise Timeout


def architecture(name, modes, new_tokens):
    """{mode: (cell, why)}, or a string that says why the model cannot be made."""
    signal.signal(signal.SIGPROF, _expire)
    signal.setitimer(signal.ITIMER_PROF, SECONDS_PER_CELL)
    try:
        pair = Pair(name)
    except (Exception, Timeout) as why:
        return f"{type(why).__name__}: {why}".splitlines()[0]
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    row = {}
    with quire.Instance() as instance, quire.Device(instance, "cpu", threads=1) as device:
        for mode in modes:
            signal.setitimer(signal.ITIMER_PROF, SECONDS_PER_CELL)
            try:
                row[mode] = cell(pair, mode, device, new_tokens)
            except Timeout:
                row[mode] = "-", f"longer than {SECONDS_PER_CELL} s"
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
        gc.collect()
    return row


def _timed(task):
    name, modes, new_tokens = task
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    start = time.monotonic()
    row = architecture(name, modes, new_tokens)
    return name, row, time.monotonic() - start


def results(names, modes, new_tokens, jobs):
    """(name, what architecture() returns, seconds) of each."""
    tasks = [(name, modes, new_tokens) for name in names]
    if jobs == 1:
        yield from map(_timed, tasks)
    else:
        # A process that the system kills for its memory ends the run in an error.
        with concurrent.futures.ProcessPoolExecutor(
                jobs, multiprocessing.get_context("spawn"), max_tasks_per_child=8) as pool:
            yield from pool.map(_timed, tasks)


def names_of_registry():
    names = set()
    for table in (auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
                  auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
                  auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES):
        names |= set(table)
    return sorted(names)


def totals(rows, modes):
    """Lines that count the cells per mode."""
    lines = []
    for mode in modes:
        counts = collections.Counter(row[mode][0] for row in rows.values())
        lines.append(f"{mode:10}" + "".join(f"  {what} {counts[what]:3}" for what in
                                            ("equal", "none", "refused", "-", *FAILURES)))
    return lines


def document(rows, unmade, modes):
    """The text of docs/transformers.md."""
    lines = [
        "# transformers, architecture by architecture", "",
        "Written by `tests/bindings/python/transformers_registry.py --all --write`, with "
        f"transformers {transformers.__version__} and torch {torch.__version__.split('+')[0]}: "
        "tiny models with random weights, f32, on the CPU. Each generates with eager attention "
        "and its own cache, and with a `QuireCache`. In the mode *prefix* the prompt begins as an "
        "earlier one, whose blocks must be found. [Continuous batching](continuous.md) has a page "
        "of its own.", "",
        "- **equal**: the same token ids.",
        "- **read back**: equal too, but in some layers the model computes attention itself, over "
        "K and V read back from the blocks (`QuireCache.whole_layers`).",
        "- **none**: the same token ids, but nothing of the earlier prompt was found.",
        "- **refused**: an exception in words, before a token is returned.",
        "- **-**: transformers itself cannot do this with the model.", "",
        "| architecture | " + " | ".join(modes) + " |", "|---" * (len(modes) + 1) + "|"]
    for name, row in rows.items():
        cells = ["read back" if row[mode][1].startswith("whole") else row[mode][0]
                 for mode in modes]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += ["", "## What is refused", ""]
    reasons = collections.defaultdict(set)
    for name, row in rows.items():
        for mode in modes:
            if row[mode][0] == "refused":
                reasons[row[mode][1].splitlines()[0]].add(name)
    lines += [f"- {why}: {', '.join(sorted(names))}" for why, names in sorted(reasons.items())]
    lines += ["", "## Not tried", "",
              "No tiny model of these was made, because their config alone does not do or making "
              "it took too long: "
              + ", ".join(sorted(unmade)) + ".", ""]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--tokens", type=int, default=14)
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    modes = given.modes.split(",")
    rows, unmade, failed = {}, {}, 0
    names = given.names or (names_of_registry() if given.all else TWELVE)
    for name, row, seconds in results(names, modes, given.tokens, given.jobs):
        if isinstance(row, str):
            unmade[name] = row
            print(f"{name:24} not made: {row}", flush=True)
            continue
        rows[name] = row
        print(f"{name:24} " + " ".join(f"{row[mode][0]:7}" for mode in modes)
              + f" {seconds:5.1f} s", flush=True)
        for mode in modes:
            if row[mode][0] != "equal" or row[mode][1]:
                print(f"    {mode}: {row[mode][0]} {row[mode][1]}"[:600], flush=True)
            failed += row[mode][0] in FAILURES
    print("\n".join(totals(rows, modes)))
    served = [all(row[m][0] not in FAILURES for m in modes) for row in rows.values()]
    print(f"{len(rows)} architectures; {sum(served)} without a failure; "
          f"{sum(row[modes[0]][0] == 'equal' for row in rows.values())} equal in {modes[0]}; "
          f"{sum(all(row[m][0] in ('equal', '-') for m in modes) for row in rows.values())} "
          f"equal in all; {len(unmade)} not made")
    if given.write:
        DOCUMENT.write_text(document(rows, unmade, modes), encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
