# SPDX-License-Identifier: Apache-2.0
"""transformers: keeps K and V of Hugging Face models in a Quire cache, and attends over them.

    model = LlamaForCausalLM.from_pretrained(..., attn_implementation="quire")
    cache = quire.transformers.QuireCache(model.config, device, blocks=1024)
    model.generate(ids, past_key_values=cache)

Importing this module registers the attention "quire". A forward of the model is one Quire step for
all sequences of its batch; layers with full attention and layers with sliding attention each have a
pool of their own. Beams are forks, so they share blocks. Requirements: causal attention without a
soft cap or sinks; prompts of one length, because padding would be attended to; tensors on the host.

Threads: one forward of a cache at a time.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any, Dict, List, Optional, Tuple

import numpy as np
import torch  # type: ignore[import-not-found, unused-ignore]
from transformers import (  # type: ignore[import-not-found, unused-ignore]
    AttentionInterface, AttentionMaskInterface, Cache, CacheLayerMixin)

from . import elements
from .attention import Attention
from .batch import Batch
from .cache import Cache as Blocks
from .device import Device
from .dtypes import DTypeLike
from .errors import ArgumentError, LimitError, UnsupportedError
from .groups import Group, GroupKind
from .queue import Queue
from .sequence import Sequence
from .step import RUN, Item, Step

_forward = threading.local()  # .serving: refers weakly to the cache whose layer was updated last


def _array(tensor: Any) -> "np.ndarray[Any, Any]":
    """A host tensor as a numpy array, without a copy."""
    if tensor.device.type != "cpu":
        raise UnsupportedError(f"a tensor on {tensor.device}: only host tensors are supported")
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.view(torch.uint16)
    return tensor.detach().numpy()  # type: ignore[no-any-return]


def _rows(states: Any) -> "np.ndarray[Any, Any]":
    """Turns [batch][heads][tokens][dim] into one row per token, [batch * tokens][heads][dim]."""
    batch, heads, tokens, dim = states.shape
    return _array(states.transpose(1, 2).reshape(batch * tokens, heads, dim))


class _Serving:
    """The steps of a cache: a forward begins one in its first layer and finishes it in its last."""

    def __init__(self, config: Any, device: Device, blocks: int, block_tokens: int,
                 dtype: DTypeLike, max_query_tokens: int):
        text = config.get_text_config(decoder=True)
        heads = text.num_attention_heads
        self.head_dim = getattr(text, "head_dim", None) or text.hidden_size // heads
        self.layer_count = text.num_hidden_layers
        kinds = getattr(text, "layer_types", None) or ["full_attention"] * self.layer_count
        known = {"full_attention": 0, "sliding_attention": text.sliding_window
                 if hasattr(text, "sliding_window") else 0}
        for kind in kinds:
            if kind not in known:
                raise UnsupportedError(f"layers of {kind} are not supported")
        names = sorted(set(kinds))
        self.heads = heads
        groups = [Group(layers=kinds.count(name), kv_heads=text.num_key_value_heads,
                        head_dim=self.head_dim, dtype=dtype, window=known[name] or 0,
                        kind=GroupKind.WINDOW if known[name] else GroupKind.FULL)
                  for name in names]
        self.device = device
        self.queue = Queue(device)
        self.blocks = Blocks(device._instance, groups, [device], blocks=blocks,
                             block_tokens=block_tokens,
                             layer_groups=[names.index(kind) for kind in kinds])
        self.max_query_tokens = max_query_tokens
        self.batches: Dict[Any, Batch] = {}
        self.sequences: List[Sequence] = []
        self.length = 0
        self.step: Optional[Step] = None
        self.batch: Optional[Batch] = None

    def _batch(self, dtype: Any) -> Batch:
        """The batch for queries of this type; made once."""
        if dtype not in self.batches:
            self.batches[dtype] = self.blocks.batch(
                max_rows=256, max_query_tokens=self.max_query_tokens,
                max_blocks_per_row=self.blocks.pool().blocks,
                attention=Attention(self.heads, dtype=str(dtype).rpartition(".")[2]))
        return self.batches[dtype]

    def begin(self, rows: int, tokens: int, dtype: Any) -> None:
        if self.step is not None:  # a forward that did not reach its end
            self.step.finish(failed=True)
            self.step = None
            raise ArgumentError("the last forward ended in an error: reset the cache")
        if not self.sequences:
            self.sequences = [self.blocks.sequence() for _ in range(rows)]
        if len(self.sequences) != rows:
            raise ArgumentError(f"{rows} rows, but the cache holds {len(self.sequences)} sequences")
        # The token ids do not matter here: K and V are given, not looked up.
        unknown = np.full(tokens, elements.UNKNOWN, np.uint32)
        step = self.blocks.begin([Item(sequence, tokens=unknown) for sequence in self.sequences],
                                 queue=self.queue)
        short = [result for result in step.results if result["outcome"] != RUN]
        if short:
            step.abort()
            raise LimitError("the pool is too small for this batch: "
                             f"{short[0]['blocks_short']} more blocks are needed")
        try:
            self.batch = self._batch(dtype)
            step.commit(self.batch)
        except BaseException:
            step.abort()
            raise
        self.step, self.length = step, self.length + tokens

    def write(self, layer: int, keys: Any, values: Any) -> None:
        if layer == 0:
            self.begin(keys.shape[0], keys.shape[2], keys.dtype)
        if self.step is None or self.batch is None:
            raise ArgumentError(
                f"layer {layer} was called first: a forward must begin with layer 0")
        self.batch.kv_write(layer, _rows(keys), _rows(values))

    def attend(self, layer: int, query: Any, scaling: Optional[float]) -> Any:
        if self.step is None or self.batch is None:
            raise ArgumentError("no forward of this cache has begun")
        rows, heads, tokens, dim = query.shape
        if scaling is not None:  # the batch divides by sqrt(dim)
            factor = scaling * dim ** 0.5
            query = query if abs(factor - 1) < 1e-12 else query * factor
        out = torch.empty(rows, tokens, heads, dim, dtype=query.dtype)
        self.batch.attend(layer, _rows(query), _array(out.view(rows * tokens, heads, dim)))
        if layer == self.layer_count - 1:
            self.step.finish()
            self.step = None
        self.queue.sync()
        return out

    def replace(self, sequences: List[Sequence], length: int) -> None:
        """Keeps these sequences and ends all others."""
        for sequence in self.sequences:
            if sequence not in sequences:
                sequence.end()
        self.sequences, self.length = sequences, length

    def reset(self) -> None:
        if self.step is not None:
            self.step.finish(failed=True)
            self.step = None
        self.replace([], 0)

    def crop(self, length: int) -> None:
        for sequence in self.sequences:
            sequence.truncate(length)
        self.length = length

    def pick(self, indices: List[int]) -> None:
        """Row i continues what row indices[i] was; one that continues several times is forked."""
        used = set()
        picked = []
        for index in indices:
            sequence = self.sequences[index]
            picked.append(sequence.fork() if index in used else sequence)
            used.add(index)
        self.replace(picked, self.length)

    def close(self) -> None:
        self.reset()
        self.queue.sync()
        for batch in self.batches.values():
            batch.close()
        self.blocks.close()
        self.queue.close()


class _Layer(CacheLayerMixin):  # type: ignore[misc, unused-ignore]
    """One layer of a model, with the interface that transformers expects."""

    is_sliding = False
    is_compileable = False

    def __init__(self, serving: _Serving, index: int):
        super().__init__()
        self._serving = serving
        self._index = index

    def lazy_initialization(self, key_states: Any, value_states: Any) -> None:
        self.is_initialized = True

    def update(self, key_states: Any, value_states: Any, *arguments: Any,
               **options: Any) -> Tuple[Any, Any]:
        """Writes the new tokens, and returns only theirs, because attention finds the others in the
        blocks."""
        self._serving.write(self._index, key_states, value_states)
        _forward.serving = weakref.ref(self._serving)
        return key_states, value_states

    def get_mask_sizes(self, query_length: int) -> Tuple[int, int]:
        return self.get_seq_length() + query_length, 0

    def get_seq_length(self) -> int:
        return self._serving.length

    def get_max_length(self) -> int:
        return -1

    get_max_cache_shape = get_max_length  # its name before transformers 5

    # Operations on all layers at once are done when the first layer is called.

    def reset(self) -> None:
        if self._index == 0:
            self._serving.reset()

    def crop(self, tokens_to_remove: int) -> None:
        """transformers 5 passes how many tokens go; before, a positive number is how many stay."""
        if self._index == 0:
            length = self._serving.length
            stays = length - abs(tokens_to_remove) if _CROP_REMOVES or tokens_to_remove < 0 \
                else tokens_to_remove
            if 0 <= stays < length:
                self._serving.crop(stays)

    def reorder_cache(self, beam_idx: Any) -> None:
        if self._index == 0:
            self._serving.pick(beam_idx.tolist())

    def batch_repeat_interleave(self, repeats: int) -> None:
        if self._index == 0:
            rows = range(len(self._serving.sequences))
            self._serving.pick([row for row in rows for _ in range(repeats)])

    def batch_select_indices(self, indices: Any) -> None:
        if self._index == 0:
            self._serving.pick(indices.tolist())


_CROP_REMOVES = hasattr(CacheLayerMixin, "get_max_length")


class QuireCache(Cache):  # type: ignore[misc, unused-ignore]
    """A model's past_key_values.

    blocks            of each pool, the null block included
    dtype             of K and V in the pool; None: f16
    max_query_tokens  new tokens of a forward, over all rows
    """

    def __init__(self, config: Any, device: Device, blocks: int, *, block_tokens: int = 16,
                 dtype: DTypeLike = "f32", max_query_tokens: int = 8192):
        self.serving = _Serving(config, device, blocks, block_tokens, dtype, max_query_tokens)
        super().__init__(layers=[_Layer(self.serving, i)
                                 for i in range(self.serving.layer_count)])

    @property
    def stats(self) -> Any:
        """The quire.CacheStats of the blocks."""
        return self.serving.blocks.stats

    def close(self) -> None:
        """Ends all sequences and destroys the cache's batches, blocks and queue."""
        self.serving.close()


def attention(module: Any, query: Any, key: Any, value: Any, attention_mask: Any,
              scaling: Optional[float] = None, dropout: float = 0.0,
              **options: Any) -> Tuple[Any, None]:
    """Attention of [batch][heads][tokens][dim] over what a QuireCache holds for the layer."""
    serving = getattr(_forward, "serving", lambda: None)()
    if serving is None:
        raise UnsupportedError('the attention "quire" needs a QuireCache as past_key_values')
    for name in ("softcap", "s_aux"):
        if options.get(name) is not None:
            raise UnsupportedError(f"{name} is not supported by this attention")
    if dropout:
        raise UnsupportedError("dropout is not supported: this attention is for inference")
    return serving.attend(module.layer_idx, query, scaling), None


def mask(*arguments: Any, attention_mask: Any = None, **options: Any) -> None:
    """Returns None: the attention applies causality and windows itself. Errors: padding."""
    if attention_mask is not None and not bool(attention_mask.all()):
        raise UnsupportedError("padding is not supported: give prompts of equal length, or one "
                               "at a time")


AttentionInterface.register("quire", attention)
AttentionMaskInterface.register("quire", mask)
