# SPDX-License-Identifier: Apache-2.0
"""continuous_probe: whether a model's continuous batching can be served from blocks.

Two runs over a few tokens decide it, before any request is taken:

    alone   two prompts, one after the other, with a QuireCache, which compares each layer's
            attention over the blocks with the model's own; no layer may differ
    packed  both in one batch, as continuous batching runs them; the logits must be those of the
            first run. A model that takes positions from the place in the batch, or mixes
            neighbouring tokens outside of attention, shows here.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Dict, List, Tuple

import torch  # type: ignore[import-not-found, unused-ignore]

from .attention import Attention
from .continuous_cache import ContinuousCache
from .continuous_forward import ContinuousForward
from .continuous_rows import ContinuousRows
from .device import Device
from .errors import QuireError, UnsupportedError
from .groups import GroupKind
from .layer_prompts import LENGTH_ROPES, ropes_of
from .transformers import QuireCache

_PROMPTS = (9, 5)  # tokens, of which the last ones come in forwards of their own
_SINGLE = 2
_CLOSE = {torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 1e-1}  # of the largest logit

Probed = Tuple[QuireCache, ContinuousRows, ContinuousForward]


def refused(what: str) -> UnsupportedError:
    return UnsupportedError(f"continuous batching over the blocks: {what} is not supported")


def check_model(model: Any) -> None:
    """Errors: UnsupportedError, a look at the model is enough to refuse it."""
    if not hasattr(model, "init_continuous_batching"):
        raise refused(f"{type(model).__name__}, which does not generate,")
    config = model.config
    if config.is_encoder_decoder:
        raise refused("a model with an encoder")
    if model.device.type != "cpu":
        raise refused(f"a model on {model.device}")
    if getattr(model, "_device_mesh", None) is not None:
        raise refused("tensor parallelism")
    lengths = LENGTH_ROPES.intersection(ropes_of(config.get_text_config(decoder=True)))
    if lengths:
        raise refused(f"a rotary embedding of the kind {min(lengths)!r}, which depends on the "
                      "longest request of a batch,")


def probed(model: Any, device: Device, blocks: int, block_tokens: int, pool_bytes: int,
           max_batch_tokens: int) -> Probed:
    """A cache of the model, empty, with the rows and the forward of its continuous batching."""
    before = model.config._attn_implementation
    model.set_attn_implementation("quire")
    try:
        if model.config._attn_implementation != "quire":
            raise refused(f"{type(model).__name__}, whose attention cannot be exchanged,")
        cache = QuireCache(model, device, blocks, block_tokens=block_tokens,
                           dtype=str(model.dtype).rpartition(".")[2],
                           max_query_tokens=max_batch_tokens, pool_bytes=pool_bytes)
        try:
            with torch.no_grad():
                return _run(model, cache)
        except BaseException:
            cache.close()
            raise
    finally:
        model.set_attn_implementation(before)


def _run(model: Any, cache: QuireCache) -> Probed:
    _check_shapes(cache)
    vocabulary = model.config.get_text_config(decoder=True).vocab_size
    ids = torch.arange(vocabulary // 2, vocabulary // 2 + sum(_PROMPTS)) % vocabulary
    prompts = list(ids.split(_PROMPTS))
    alone = []
    for prompt in prompts:
        alone.append(_alone(model, cache, prompt))
        attention = _checked_attention(cache)
        cache.reset()
    rows = ContinuousRows(cache.forward.store)
    forward = ContinuousForward(rows, attention)
    try:
        packed = _packed(model, rows, forward, prompts)
    except QuireError:
        raise
    except Exception as why:  # whatever the model's code does with a cache that it does not know
        raise refused(f"{type(model).__name__}, which cannot run requests in one row "
                      f"({type(why).__name__}: {why}),") from why
    finally:
        forward.drop()
        rows.free_all()
    for mine, theirs in zip(alone, packed):
        bound = _CLOSE[model.dtype] * float(mine.abs().max())
        if not bool(((mine - theirs).abs() <= bound).all()):
            raise refused(f"{type(model).__name__}, which computes something else where requests "
                          "are in one row,")
    return cache, rows, forward


def _alone(model: Any, cache: QuireCache, prompt: Any) -> Any:
    """The logits of a prompt's last tokens."""
    name = "cache" if "cache" in unwrapped(type(model).forward).__code__.co_varnames else (
        "past_key_values")
    first = len(prompt) - _SINGLE
    found = []
    for ids in [prompt[:first - 2], prompt[first - 2:first], *prompt[first:].split(1)]:
        out = model(input_ids=ids[None], use_cache=True, **{name: cache})
        found.append(out.logits[0, -1].float())
    return torch.stack(found[-_SINGLE - 1:])


def _packed(model: Any, rows: ContinuousRows, forward: ContinuousForward,
            prompts: List[Any]) -> List[Any]:
    """The same of all prompts, of forwards over all of them."""
    batching = SimpleNamespace(max_batch_tokens=None, allow_block_sharing=False)
    cache = ContinuousCache(rows, forward, model.config, batching, model.dtype)
    states = [SimpleNamespace(request_id=f"probe {i}", initial_tokens=prompt.tolist(), status=1,
                              generated_tokens=[], num_children=0, current_len=None,
                              remaining_prefill_tokens=prompt.tolist())
              for i, prompt in enumerate(prompts)]
    found: List[List[Any]] = [[] for _ in prompts]
    places = [0] * len(prompts)
    for step in range(_SINGLE + 1):
        counts = [1 if step else len(prompt) - _SINGLE for prompt in prompts]
        for state, place, count in zip(states, places, counts):
            state.current_len = lambda place=place: place
            if not cache.can_store_request_tokens(state, count):
                raise refused("a cache of so few blocks")
            cache.extend_read_and_write_indices(state.request_id, place, count, None, [[]])
        logits = model(**_batch(cache, prompts, places, counts)).logits[0].float()
        ends = torch.tensor(counts).cumsum(0) - 1
        for mine, end in zip(found, ends):
            mine.append(logits[end])
        places = [place + count for place, count in zip(places, counts)]
    return [torch.stack(mine) for mine in found]


def _batch(cache: ContinuousCache, prompts: List[Any], places: List[int],
           counts: List[int]) -> Dict[str, Any]:
    """What transformers calls the model with."""
    spans = [(prompt, place, place + count)
             for prompt, place, count in zip(prompts, places, counts)]
    starts = torch.tensor([0] + counts, dtype=torch.int32).cumsum(0, dtype=torch.int32)
    ends = torch.tensor([0] + [end for _, _, end in spans]).cumsum(0, dtype=torch.int32)
    return {
        "input_ids": torch.cat([prompt[place:end] for prompt, place, end in spans])[None].int(),
        "position_ids": torch.cat([torch.arange(place, end) for _, place, end in spans])[None],
        "attention_mask": None, "cache": cache, "use_cache": False, "is_causal": True,
        "cu_seq_lens_q": starts, "cu_seq_lens_k": {"full_attention": ends},
        "max_length_q": max(counts),
        "max_length_k": {"full_attention": max(end for _, _, end in spans)},
        "read_index": [torch.empty(0, dtype=torch.int64)],
        "write_index": [torch.empty(0, dtype=torch.int64)], "block_table": None,
        "logits_indices": starts[1:] - 1,
        "logits_processor_args": torch.empty(0, len(counts), dtype=torch.int32)}


def _check_shapes(cache: QuireCache) -> None:
    store = cache.forward.store
    if store.linear_states:
        raise refused("a model with linear states")
    if store.shared:
        raise refused("a model whose layers share K and V")
    for kind, name in ((GroupKind.LATENT, "latent"), (GroupKind.CHUNKED, "chunked")):
        if any(shape is not None and shape.kind == kind for shape in store.shapes):
            raise refused(f"{name} attention")


def _checked_attention(cache: QuireCache) -> Tuple[Attention, ...]:
    """The attention of the last forward, in which all layers attended over the blocks."""
    known, attention = cache.forward.known, cache.forward.attention
    if cache.whole_layers:
        raise refused(f"attention that the blocks do not have, as in layers {cache.whole_layers},")
    missing = cache.forward.layers - known.proven
    if missing or not known.direct:
        raise refused(f"attention that could not be compared, as in layers {sorted(missing)},")
    if attention is None:
        raise refused("attention that the backend does not have")
    return attention


def unwrapped(function: Any) -> Any:
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function
