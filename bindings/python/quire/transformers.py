# SPDX-License-Identifier: Apache-2.0
"""transformers: keeps K and V of Hugging Face models in a Quire cache, and attends over them.

    model = LlamaForCausalLM.from_pretrained(..., attn_implementation="quire")
    cache = quire.transformers.QuireCache(model, device, blocks=1024)
    model.generate(ids, past_key_values=cache)

    other = cache.sibling()         # another conversation over the same blocks
    other.prefix(more_ids)          # finds what they hold of this prompt
    model.generate(more_ids, past_key_values=other)

Importing this module registers the attention "quire". A forward of the model is one Quire step for
all sequences of its batch, and padding takes no place in the blocks. Beams are forks, so they share
blocks; so does copy.deepcopy(cache).

A block is found again by its token ids and those before it, compared one by one, if they alone
decide its K and V: layer_prompts says when. Other weights and adapters are other keys.

A layer's attention runs over the blocks if it is causal attention, with or without a window,
chunks, a soft cap or sink logits, and if the mask that transformers made says exactly that. Any
other attention (biases, masks of the model's own, an encoder's, cross attention) is computed by the
model's own eager function over K and V read back from the blocks; QuireCache.whole_layers names
those layers. What neither of them can serve is refused by an exception in words.

Requirements: tensors on the host, no gradients. An encoder-decoder model takes
EncoderDecoderCache(QuireCache(...), DynamicCache()). Threads: one forward at a time of a cache and
its copies.
"""

from __future__ import annotations

import copy
import functools
import inspect
import sys
import weakref
from contextvars import ContextVar
from typing import Any, Dict, FrozenSet, List, Optional, Tuple

import torch  # type: ignore[import-not-found, unused-ignore]
from transformers import (  # type: ignore[import-not-found, unused-ignore]
    AttentionInterface, AttentionMaskInterface, Cache, CacheLayerMixin, DynamicCache)
from transformers.cache_utils import (  # type: ignore[import-not-found, unused-ignore]
    LinearAttentionAndFullAttentionLayer, LinearAttentionLayer)
from transformers.utils import (  # type: ignore[import-not-found, unused-ignore]
    output_capturing)
from transformers.masking_utils import (  # type: ignore[import-not-found, unused-ignore]
    eager_mask)

from .continuous_forward import known_packed, packed_call
from .device import Device
from .dtypes import DTypeLike
from .errors import ArgumentError, UnsupportedError
from .layer_forward import LayerForward, forward_among
from .layer_latent import latent_call
from .layer_masks import is_changed_stand_in, made, made_of, stand_in
from .layer_prompts import prompts_of
from .layer_repeat import remember, repeat
from .layer_shapes import layer_kinds, shape_of, state_layer
from .layer_store import LayerStore
from .layer_thread import asked_for_mask, eagerly, mask_wanted, waiting_layer


class _Returned:
    """What K and V that update() returned carry with them, so that attention() knows them."""

    def __init__(self, forward: LayerForward, layer: int, new: bool):
        self.forward = weakref.ref(forward)
        self.layer = layer
        self.new = new  # without the old ones, if there are any


def _returned(tensor: Any) -> Optional[_Returned]:
    found: Any = getattr(tensor, "_quire", None)
    return found  # type: ignore[no-any-return, unused-ignore]


class _Layer(CacheLayerMixin):  # type: ignore[misc, unused-ignore]
    """One layer of a model, with the interface that transformers expects."""

    is_compileable = False
    is_croppable = True
    supports_early_init = False

    def __init__(self, forward: LayerForward, index: int, first: bool, states: int):
        CacheLayerMixin.__init__(self)
        self._forward = forward
        self._index = index
        self._first = first     # operations on all layers at once are done when it is called
        shape = forward.store.shapes[index]
        assert shape is not None
        self.is_sliding = shape.sliding
        self._shape = shape

    @property  # type: ignore[override, unused-ignore]
    def keys(self) -> Any:
        """K of all tokens, read back. Changes of it do not reach the blocks."""
        return self._forward.whole_layer(self._index)[0]

    @keys.setter
    def keys(self, tensor: Any) -> None:
        self._refuse_tensor(tensor)

    @property  # type: ignore[override, unused-ignore]
    def values(self) -> Any:
        """V of all tokens, read back."""
        return self._forward.whole_layer(self._index)[1]

    @values.setter
    def values(self, tensor: Any) -> None:
        self._refuse_tensor(tensor)

    def _refuse_tensor(self, tensor: Any) -> None:
        """transformers sets None at first."""
        if tensor is not None:
            raise UnsupportedError("a model that writes K or V into the cache's layers is not "
                                   "supported: they are in blocks")

    def lazy_initialization(self, key_states: Any, value_states: Any) -> None:
        self.is_initialized = True

    @eagerly
    def update(self, key_states: Any, value_states: Any, *arguments: Any,
               **options: Any) -> Tuple[Any, Any]:
        """Takes the new K and V; returns them alone if attention finds the old ones in the blocks.
        """
        return self.take(key_states, value_states, options)

    def take(self, key_states: Any, value_states: Any, options: Dict[str, Any]) -> Tuple[Any, Any]:
        """update(), outside of torch.compile."""
        if options:
            _refuse_unknown("QuireCache.update", options, _UPDATE_OPTIONS)
        keys, values = self._forward.update(self._index, key_states, value_states)
        self.is_initialized = True
        keys._quire = values._quire = _Returned(self._forward, self._index, keys is key_states)
        return keys, values

    @eagerly
    def get_mask_sizes(self, query_length: int) -> Tuple[int, int]:
        length = self.get_seq_length()
        asked_for_mask(self._forward, self._index)
        first = self._shape.first_column(length)
        return length - first + query_length, first

    @eagerly
    def get_seq_length(self) -> int:
        self._forward.flush_last()
        return self._forward.length

    def get_max_length(self) -> int:
        return self._shape.window if self.is_sliding else -1

    get_max_cache_shape = get_max_length  # its name before transformers 5

    def reset(self) -> None:
        if self._first:
            self._forward.reset()

    def crop(self, tokens_to_remove: int) -> None:
        """Removes -tokens_to_remove tokens, as transformers' DynamicLayer does."""
        if tokens_to_remove > 0:
            raise ValueError(f"crop({tokens_to_remove}): a positive number is not supported; pass "
                             "how many tokens to remove as a negative number")
        if self._first and tokens_to_remove < 0:
            self._forward.flush_last()
            self._forward.crop(max(0, self._forward.length + tokens_to_remove))

    def reorder_cache(self, beam_idx: Any) -> None:
        if self._first:
            self._forward.pick(beam_idx.tolist())

    def batch_repeat_interleave(self, repeats: int) -> None:
        if self._first:
            rows = range(len(self._forward.sequences))
            self._forward.pick([row for row in rows for _ in range(repeats)])

    def batch_select_indices(self, indices: Any) -> None:
        if self._first:
            rows = torch.arange(len(self._forward.sequences))
            self._forward.pick(rows[indices].reshape(-1).tolist())


class _HybridLayer(_Layer, LinearAttentionAndFullAttentionLayer):  # type: ignore[misc]
    """A layer that keeps K and V and linear states as well; the states are transformers' own."""

    def __init__(self, forward: LayerForward, index: int, first: bool, states: int):
        LinearAttentionLayer.__init__(self, number_of_states=states or 1)
        _Layer.__init__(self, forward, index, first, states)

    def lazy_initialization(self, *arguments: Any, **options: Any) -> None:
        if options:
            LinearAttentionLayer.lazy_initialization(self, **options)

    @property  # type: ignore[override, unused-ignore]
    def is_croppable(self) -> bool:  # type: ignore[override, unused-ignore]
        return bool(LinearAttentionLayer.is_croppable.fget(self))

    def reset(self) -> None:
        LinearAttentionLayer.reset(self)
        _Layer.reset(self)

    def reorder_cache(self, beam_idx: Any) -> None:
        LinearAttentionLayer.reorder_cache(self, beam_idx)
        _Layer.reorder_cache(self, beam_idx)

    def crop(self, tokens_to_remove: int) -> None:
        LinearAttentionLayer.crop(self, tokens_to_remove)
        _Layer.crop(self, tokens_to_remove)


class _SlidingHybridLayer(_HybridLayer):
    """The same with a window. transformers tells the two apart by their classes."""


_LAYERS: Dict[str, Any] = {"hybrid": _HybridLayer, "hybrid_sliding": _SlidingHybridLayer}
_UPDATE_OPTIONS = {"cache_kwargs", "cache_position", "kwargs", "sin", "cos",
                   "partial_rotation_size", "sliding_window"}


class QuireCache(DynamicCache):  # type: ignore[misc, unused-ignore]
    """A model's past_key_values.

    model             made with attn_implementation="quire"; or its config, and then prompts are
                      not found again, and a forward after an interrupted one is refused once
    blocks            of each pool, the null block included
    pool_bytes        of all pools, instead of blocks
    dtype             of K and V in the pool; None: f16. A type with fewer bits than the model's
                      makes the result approximate, by choice: "int8", "fp8_e4m3" and "fp8_e5m2"
                      have a scale per token and head. The first result of a layer is then compared
                      with the model's own attention over K and V as they were rounded, and these
                      with what rounding allows.
    max_query_tokens  new tokens of a forward, over all rows
    read_back         the model keeps its own attention, whatever it is: K and V are read back from
                      the blocks for all layers
    """

    def __init__(self, model: Any, device: Device, blocks: int = 0, *, block_tokens: int = 16,
                 dtype: DTypeLike = "f32", max_query_tokens: int = 8192,
                 read_back: bool = False, pool_bytes: int = 0):
        config = model.config if isinstance(model, torch.nn.Module) else model
        text = config.get_text_config(decoder=True)
        own = text._attn_implementation  # None: the config of no model
        if own not in ("quire", None) and not read_back:
            raise UnsupportedError(
                f"the model's attention is {own!r}: a QuireCache needs a model made with "
                'attn_implementation="quire", or read_back=True')
        kinds = layer_kinds(text)
        self._kinds = [(name, states) for name, _, states in kinds]
        plain = [state_layer(name, states) is not None for name, states in self._kinds]
        shapes = [None if state else shape_of(text, name, window)
                  for state, (name, window, _) in zip(plain, kinds)]
        if not any(shapes):
            raise UnsupportedError("the model has no layer that keeps K and V")
        self.forward = LayerForward(
            LayerStore(device, shapes, blocks, block_tokens, dtype, max_query_tokens,
                       shared=bool(getattr(text, "num_kv_shared_layers", 0))
                       or any(name == "dummy" for name, _ in self._kinds),
                       linear_states=any(
                           states or state and name != "dummy"
                           for (name, states), state in zip(self._kinds, plain)),
                       pool_bytes=pool_bytes))
        if config is not model and not config.is_encoder_decoder:
            self.forward.store.prompts = prompts_of(model, _layer_counts(text), forward_among)
        if read_back:
            self.forward.known.whole |= self.forward.layers
        Cache.__init__(self, layers=self._make_layers())

    def prefix(self, input_ids: Any, attention_mask: Any = None) -> int:
        """Takes over what earlier forwards left in the blocks of the beginning of these prompts;
        returns how many columns of input_ids that are. generate() with this cache and the same
        input_ids computes the others.

        input_ids       [row][column], all rows that generate() works on: for beams, each prompt as
                        often as there are beams
        attention_mask  [row][column], 0 in padding
        Errors          ArgumentError, the cache holds tokens already, or was made from a config.
        """
        ids = torch.as_tensor(input_ids)
        if ids.dim() != 2 or ids.dtype not in (torch.int64, torch.int32):
            raise ArgumentError("input_ids is not a tensor of integers, [row][column]")
        seen = torch.ones_like(ids) if attention_mask is None else torch.as_tensor(attention_mask)
        if seen.shape != ids.shape:
            raise ArgumentError(f"attention_mask has the shape {tuple(seen.shape)}, input_ids "
                                f"{tuple(ids.shape)}")
        return self.forward.find(ids, seen.bool())

    def sibling(self) -> "QuireCache":
        """An empty cache over the same blocks, for another conversation. Close it too."""
        return self._over(self.forward.sibling())

    def forget(self) -> None:
        """Forgets what could be found of earlier prompts: call it after a change of the weights
        through `.data`."""
        self.forward.rest()
        self.forward.store.blocks.reset()

    def _over(self, forward: LayerForward) -> "QuireCache":
        made = QuireCache.__new__(QuireCache)
        made._kinds, made.forward = self._kinds, forward
        Cache.__init__(made, layers=made._make_layers())
        return made

    def _make_layers(self) -> List[Any]:
        first = min(self.forward.layers)
        return [state_layer(name, states)
                or _LAYERS.get(name, _Layer)(self.forward, i, i == first, states)
                for i, (name, states) in enumerate(self._kinds)]

    @eagerly
    def update(self, key_states: Any, value_states: Any, layer_idx: int, *arguments: Any,
               **options: Any) -> Tuple[Any, Any]:
        if not 0 <= layer_idx < len(self.layers):
            raise UnsupportedError(f"layer {layer_idx} is not in the config, which has "
                                   f"{len(self.layers)} layers with a cache")
        layer = self.layers[layer_idx]
        if not isinstance(layer, _Layer):
            raise UnsupportedError(f"layer {layer_idx} keeps no K and V according to its config, "
                                   "but gives some")
        return layer.take(key_states, value_states, options)

    def update_indexer(self, indexer_key_states: Any, layer_idx: int) -> Any:
        raise UnsupportedError("sparse attention with an indexer is not supported")

    def __iter__(self) -> Any:
        raise UnsupportedError("K and V are in blocks: they cannot be listed as tensors")

    @property
    def whole_layers(self) -> List[int]:
        """The layers whose attention the model computes itself, over K and V read back."""
        return sorted(self.forward.known.whole)

    @property
    def stats(self) -> Any:
        """The quire.CacheStats of the blocks."""
        return self.forward.store.blocks.stats

    def __deepcopy__(self, memo: Dict[int, Any]) -> "QuireCache":
        """A copy that shares the blocks of what is cached so far. Close it too."""
        self.forward.flush_last()
        copied = self._over(self.forward.fork())
        for mine, theirs in zip(self.layers, copied.layers):
            if isinstance(mine, LinearAttentionLayer):
                states = {name: value for name, value in vars(mine).items()
                          if not name.startswith("_")}
                vars(theirs).update(copy.deepcopy(states, memo))
        return copied

    def fork(self) -> "QuireCache":
        """The same as copy.deepcopy."""
        return self.__deepcopy__({})

    def close(self) -> None:
        """Ends all sequences; the last of the copies destroys batches, blocks and queue."""
        self.forward.close()


def _layer_counts(config: Any) -> List[int]:
    found = [getattr(config, name, None)
             for name in ("num_hidden_layers", "n_layer", "n_layers", "num_layers")]
    return [count for count in found if isinstance(count, int) and count > 0]


# Keywords that say nothing about what a token sees, or that the mask says as well.
_IGNORED = {"position_ids", "cache_position", "use_cache", "output_hidden_states", "return_dict",
            "is_causal", "sliding_window", "num_items_in_batch", "logits_to_keep",
            "output_router_logits", "position_embeddings", "token_type_ids", "input_ids",
            "past_key_values", "past_key_value", "labels", "inputs_embeds", "training"}
_SERVED = {"softcap", "s_aux", "output_attentions"}
# Returns {name: list} of the outputs that hooks of transformers 5 collect in a forward, or None.
_COLLECTED = getattr(output_capturing, "_active_collector", ContextVar("none", default=None)).get
_REPEATED = _IGNORED | {"softcap"}


def _refuse_unknown(where: str, options: Dict[str, Any], known: Any) -> None:
    for name, value in options.items():
        if name not in known and value is not None and value is not False:
            raise UnsupportedError(f"{where}: the keyword {name!r} is not supported")


def _own_eager(module: Any) -> Any:
    """The eager attention of the model that the module belongs to."""
    for kind in type(module).__mro__:
        own = getattr(sys.modules.get(kind.__module__), "eager_attention_forward", None)
        if own is not None:
            return own
    raise UnsupportedError(f"{type(module).__name__} needs attention that the blocks do not have, "
                           "and its model has no eager attention to compute it")


@functools.lru_cache(maxsize=None)
def _names(function: Any) -> FrozenSet[str]:
    return frozenset(inspect.signature(function).parameters)


def _eager_names(module: Any) -> FrozenSet[str]:
    try:
        return _names(_own_eager(module))
    except UnsupportedError:
        return frozenset()


def _outputs_attentions(module: Any) -> bool:
    """True if the model is to return its attention weights, which only its own attention has."""
    collected = _COLLECTED()
    return (collected is not None and any("attentions" in name for name in collected)
            or bool(getattr(getattr(module, "config", None), "output_attentions", False)))


def _needs_eager(module: Any, options: Dict[str, Any]) -> bool:
    """True if a keyword asks for more than the blocks' attention has."""
    known = (_IGNORED | _SERVED) - {"output_attentions"}
    return (_outputs_attentions(module)
            or any(name not in known and option is not None and option is not False
                   for name, option in options.items()))


def _eager(module: Any, query: Any, key: Any, value: Any, mask: Any, scaling: Optional[float],
           dropout: float, options: Dict[str, Any]) -> Tuple[Any, Any]:
    own = _own_eager(module)
    _refuse_unknown("attention", options, _IGNORED | _SERVED | _names(own))
    given = dict(options)
    if scaling is not None:
        given["scaling"] = scaling
    return own(  # type: ignore[no-any-return]
        module, query, key, value, mask, dropout=dropout, **given)


@eagerly
def attention(module: Any, query: Any, key: Any, value: Any, attention_mask: Any,
              scaling: Optional[float] = None, dropout: float = 0.0,
              **options: Any) -> Tuple[Any, Any]:
    """Attention of [batch][heads][tokens][dim] over what a QuireCache holds for the layer.

    K and V that no QuireCache returned (an encoder's, cross attention's) are attended to by the
    model's own eager function.
    """
    if dropout:
        raise UnsupportedError("dropout is not supported: this attention is for inference")
    mine = _returned(key)
    forward = mine.forward() if mine is not None and mine is _returned(value) else None
    if mine is not None and forward is not None:
        out = _repeated(forward, mine.layer, module, query, attention_mask, scaling, options)
        if out is not None:
            return out, None
    packed = packed_call(key, value)
    if packed is not None:
        return _attend_packed(packed, query, attention_mask, scaling, options), None
    latent = latent_call(module, query, key) if forward is None else None
    if latent is not None:
        mine, forward = _Returned(latent.forward, latent.layer, latent.alone), latent.forward
    if mine is None or forward is None:
        waits = waiting_layer()
        if waits is not None:
            raise UnsupportedError(f"{waits} changes K or V after the cache returned them, "
                                   "otherwise than in the first forward")
        return _eager(module, query, key, value, _real(attention_mask), scaling, dropout, options)
    if query.requires_grad:
        raise UnsupportedError("the query needs a gradient, which is not computed here: use "
                               "torch.no_grad()")
    _refuse_unknown("attention", options, _IGNORED | _SERVED | _eager_names(module))
    forward.called_by(module)
    if made_of(attention_mask) is None and attention_mask is not None:
        forward.known.direct = False
    if not forward.expects(mine.layer, attention_mask):
        attention_mask = _real(attention_mask)
    out = forward.attend(
        mine.layer, query if latent is None else latent.query, attention_mask,
        scaling if latent is None else scaling or latent.scale, options.get("softcap"),
        options.get("s_aux"), whole=_needs_eager(module, options))
    if out is not None and latent is not None:
        out = latent.result(out)
    proven = mine.layer in forward.known.proven
    if out is not None and proven and latent is None and _REPEATED.issuperset(options):
        remember(forward, mine.layer, query, scaling, options)
    if out is not None and (proven or forward.before + query.shape[2] == 1):
        return out, None
    attention_mask = _real(attention_mask)
    if out is not None and forward.store.rounds(key.dtype):
        given = (key, value) if latent is None else (latent.latents, latent.rotated)
        key, value = forward.rounded(mine.layer, given)
        if latent is not None:
            key, value = latent.expand(key, value)
    elif mine.new and forward.before:
        if latent is None:
            key, value = forward.joined(mine.layer, key, value)
        else:
            key, value = latent.expand(*forward.joined(mine.layer, latent.latents,
                                                       latent.rotated))
    if not forward.hidden(mine.layer, attention_mask):
        raise UnsupportedError("the mask shows a token that was padding before: padding has no K "
                               "and V in the blocks")
    if out is not None:
        last = None if attention_mask is None else attention_mask[..., -1:, :]
        own, _ = _eager(module, query[:, :, -1:], key, value, last, scaling, dropout, options)
        if forward.prove(mine.layer, out, own):
            return out, None
    return _eager(module, query, key, value, attention_mask, scaling, dropout, options)


def _repeated(forward: LayerForward, layer: int, module: Any, query: Any, mask: Any,
              scaling: Optional[float], options: Dict[str, Any]) -> Any:
    """Attention the short way. None: this is no call for it."""
    if is_changed_stand_in(mask):
        forward.known.direct = False
        raise UnsupportedError("a mask that is not needed was changed in place: reset the cache "
                               "and call the model again, then all masks are made")
    if query.requires_grad:
        return None
    forward.called_by(module)
    if forward.weighs is None:
        forward.weighs = _outputs_attentions(module)
    return None if forward.weighs else repeat(forward, layer, query, mask, scaling, options)


def _attend_packed(call: Any, query: Any, mask: Any, scaling: Optional[float],
                   options: Dict[str, Any]) -> Any:
    """Attention in a forward of continuous batching, where transformers makes no mask."""
    forward, layer = call
    if mask is not None:
        raise UnsupportedError(f"layer {layer} has a mask of the model's own, which continuous "
                               "batching over the blocks does not take")
    _refuse_unknown("attention", known_packed(options), _IGNORED | _SERVED)
    return forward.attend(layer, query, scaling, options)


def _real(mask: Any) -> Any:
    """The mask that a stand-in stands for; any other mask as it is."""
    remembers = made_of(mask)
    return mask if remembers is None or remembers.stands_for is None else remembers.make()


@eagerly
def mask(*arguments: Any, **options: Any) -> Any:
    """The mask that the model's eager attention would be given; attention() compares it with what
    the blocks' attention shows to each token. Where no layer needs it, a stand-in is returned."""
    forward, layer = mask_wanted()

    def make() -> Any:
        return eager_mask(*arguments, **options)

    if forward is not None and not arguments:
        kind = forward.needs_no_mask(layer, options)
        if kind is not None:
            return stand_in(kind, make, options.get("dtype", torch.float32),
                            options["batch_size"], 1, options["q_length"], options["kv_length"])
    return made(make(), make)


AttentionInterface.register("quire", attention)
AttentionMaskInterface.register("quire", mask)
