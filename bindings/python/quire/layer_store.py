# SPDX-License-Identifier: Apache-2.0
"""layer_store: the pools, batches and queue that a QuireCache and its copies share."""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, Optional, Sequence as Listed, Set, Tuple

import numpy as np
import torch  # type: ignore[import-not-found, unused-ignore]

from . import elements, layer_formats
from .attention import Attention
from .batch import Batch, View
from .cache import Cache as Blocks
from .device import Device
from .dtypes import DType, DTypeLike, dtype_of
from .errors import ArgumentError, LimitError, UnsupportedError
from .groups import GroupKind
from .layer_calls import LayerCalls, Repeat
from .layer_prompts import Prompts
from .layer_shapes import LayerShape
from .memory import window
from .queue import Queue
from .sequence import Sequence
from .step import RUN, Step

_MAX_SEQUENCES = 4096  # rows and, for a moment, forks of them; 100 bytes of books each


def as_array(tensor: Any) -> "np.ndarray[Any, Any]":
    """A host tensor as a numpy array, without a copy."""
    if tensor.device.type != "cpu":
        raise UnsupportedError(f"a tensor on {tensor.device}: only host tensors are supported")
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.view(torch.uint16)
    return tensor.detach().numpy()  # type: ignore[no-any-return]


def _power(count: int) -> int:
    return 1 << max(0, count - 1).bit_length()


@dataclasses.dataclass
class Known:
    """What the forwards so far have shown of the model's layers."""

    whole: Set[int] = dataclasses.field(default_factory=set)   # the model needs K and V as tensors
    proven: Set[int] = dataclasses.field(default_factory=set)  # compared with the model's own
    learned: bool = False  # a forward has reached all layers
    direct: bool = True  # attention() was always called with the masks that our function made
    wanted: Dict[int, Attention] = dataclasses.field(default_factory=dict)  # by group
    repeats: Dict[int, Repeat] = dataclasses.field(default_factory=dict)    # by layer


class LayerStore:
    """K and V of a model's layers, in blocks.

    shapes  of the layers that keep K and V; None: another kind of layer
    shared  later layers of the model attend to K and V of these
    linear_states  the model has layers with states that are not K and V
    prompts        the hooks on the model, if prompts can be found again
    """

    def __init__(self, device: Device, shapes: Listed[Optional[LayerShape]], blocks: int,
                 block_tokens: int, dtype: DTypeLike, max_query_tokens: int,
                 shared: bool = False, linear_states: bool = False, pool_bytes: int = 0):
        self.device = device
        self.shapes = list(shapes)
        self.users = 1
        self.prompts: Optional[Prompts] = None
        self.known = Known()
        self.shared = shared
        self.linear_states = linear_states
        self._blocks_wanted, self._block_tokens = blocks, block_tokens
        self._pool_bytes = pool_bytes
        self._kind = DType(dtype_of(dtype) or DType.F16)
        if self._kind == DType.I4:
            raise UnsupportedError("K and V of int4 change what a model says too much; int8 and "
                                   "the fp8 types are served")
        self.max_query_tokens = max_query_tokens
        self._unknown = np.zeros(0, np.uint32)
        self.active: Any = lambda: None  # the forward that has a step in these pools, weakly
        self.queue = Queue(device)
        self.calls = LayerCalls(self.queue)
        self._open()

    def _open(self) -> None:
        held = [shape for shape in self.shapes if shape is not None]
        names = sorted(set(held), key=held.index)
        self._index = {layer: sum(s is not None for s in self.shapes[:layer])
                       for layer, shape in enumerate(self.shapes) if shape is not None}
        self._group = [names.index(shape) for shape in held]
        self.blocks = Blocks(
            self.device._instance,
            [shape.group(held.count(shape), self._kind) for shape in names], [self.device],
            blocks=self._blocks_wanted, pool_bytes=self._pool_bytes,
            block_tokens=self._block_tokens, layer_groups=self._group,
            max_sequences=_MAX_SEQUENCES)
        self._batches: Dict[Any, Batch] = {}

    def index_of(self, layer: int) -> int:
        """The number of a layer among those of the pools."""
        return self._index[layer]

    def group_of(self, layer: int) -> int:
        """The number of a layer's group."""
        return self._group[self._index[layer]]

    def reshape(self, shapes: Listed[Optional[LayerShape]]) -> None:
        """Replaces the pools by pools of these shapes. REQUIRES: no sequence holds anything."""
        self._close_pools()
        self.shapes = list(shapes)
        self.known.wanted, self.known.repeats = {}, {}
        self._open()

    # Steps.

    def batch(self, attention: Optional[Tuple[Attention, ...]], rows: int, tokens: int) -> Batch:
        """A batch with room for these, made once for each size and kinds of attention."""
        rows, tokens = _power(max(rows, 16)), _power(max(tokens, 64))
        key = (attention, rows, tokens)
        if key not in self._batches:
            blocks = max(self.blocks.pool(g).blocks for g in range(len(self.blocks.groups)))
            self._batches[key] = self.blocks.batch(max_rows=rows, max_query_tokens=tokens,
                                                   max_blocks_per_row=blocks,
                                                   attention=attention and list(attention),
                                                   views=View.SLOTS)
        return self._batches[key]

    def begin(self, sequences: Listed[Sequence], counts: Listed[int],
              attention: Optional[Tuple[Attention, ...]]) -> Tuple[Step, Batch]:
        """Commits a step with this many new tokens per sequence. An error changes nothing."""
        total = sum(counts)
        if total > self.max_query_tokens:
            raise LimitError(f"{total} new tokens in a forward; max_query_tokens is "
                             f"{self.max_query_tokens}")
        running = [(sequence.handle, count) for sequence, count in zip(sequences, counts) if count]
        items = np.zeros(len(running), elements.ITEM)
        items["seq"], items["token_count"] = zip(*running)
        # K and V are given, not looked up, so the token ids do not matter: all items have these.
        if len(self._unknown) < max(counts):
            self._unknown = np.full(max(counts), elements.UNKNOWN, np.uint32)
        step = self.blocks.begin(items, self._unknown, queue=self.queue)
        try:
            short = step.results[step.results["outcome"] != RUN]
            if len(short):
                raise LimitError("the pool is too small for this batch: "
                                 f"{short[0]['blocks_short']} more blocks are needed")
            batch = self.batch(attention, len(items), total)
            step.commit(batch)
            for group in range(len(self.blocks.groups)):
                if batch.token_counts(group) != (total, total):
                    raise ArgumentError("the sequences held tokens that were not computed; nothing "
                                        "of this forward is kept")
        except BaseException:
            step.undo()
            raise
        return step, batch

    def write(self, batch: Batch, layer: int, keys: Any, values: Any) -> None:
        """Writes [token][head][dim] of the step's rows."""
        batch.kv_write(self._index[layer], as_array(keys), as_array(values))

    def attend(self, batch: Batch, layer: int, query: Any, out: Any, sinks: Any) -> None:
        batch.attend(self._index[layer], as_array(query), as_array(out),
                     sinks=None if sinks is None else as_array(sinks))
        self.queue.sync()

    # Reading back.

    def rounds(self, dtype: Any) -> bool:
        """True if the pools cannot hold every element of this torch type."""
        return layer_formats.rounds(self._kind, dtype)

    def read(self, layer: int, sequence: Sequence, first: int, end: int) -> Tuple[Any, Any]:
        """K and V of a sequence's tokens [first, end), each [token][head][dim]. The queue is idle.
        """
        shape = self.shapes[layer]
        assert shape is not None
        index = self._index[layer]
        group = self._group[index]
        pool = self.blocks.pool(group)
        tokens = np.arange(first, end)
        block = np.asarray(sequence.blocks(group))[tokens // pool.block_tokens]
        rows = layer_formats.PoolRows(
            window(self.blocks, pool.address, np.uint8, (pool.size_bytes,)), pool, self._kind,
            self._group[:index].count(group) * pool.layer_stride, shape.kv_heads, block,
            tokens % pool.block_tokens)
        k = rows.take(0, shape.k_dim, pool.k_head_stride, pool.k_token_stride, pool.k_scale_offset)
        if shape.kind == GroupKind.LATENT:  # one row: the latent, then the rotated part
            start = shape.k_dim * self._kind.bits // 8
            return k, rows.take(start, shape.v_dim, pool.k_head_stride, pool.k_token_stride,
                                pool.k_scale_offset)
        return k, rows.take(pool.v_offset, shape.v_dim, pool.v_head_stride, pool.v_token_stride,
                            pool.v_scale_offset)

    def check_rounding(self, layer: int, given: Any, stored: Any) -> None:
        """Errors: UnsupportedError, K or V in the blocks differ from what was given by more than
        the rounding of their type.

        given, stored  (K, V), each [row][head][column][dim] of columns that have a token
        """
        shape = self.shapes[layer]
        assert shape is not None
        if shape.kind == GroupKind.LATENT:
            given, stored = (torch.cat(given, 3),), (torch.cat(stored, 3),)
        for mine, theirs in zip(given, stored):
            if not layer_formats.is_rounded(self._kind, mine, theirs):
                raise UnsupportedError(f"K or V of layer {layer} are not in the blocks as "
                                       f"{self._kind.name} can hold them")

    # Ends.

    def _close_pools(self) -> None:
        self.queue.sync()
        for batch in self._batches.values():
            batch.close()
        self._batches = {}
        self.blocks.close()

    def leave(self) -> None:
        """One user less; the last one closes everything."""
        self.users -= 1
        if self.users == 0:
            if self.prompts is not None:
                self.prompts.close()
            self._close_pools()
            self.queue.close()


def scaled(attention: Attention, scaling: Optional[float], dim: int) -> Optional[float]:
    """The factor that a query still needs if the batch applies its own scale. None: no factor."""
    own = dim ** -0.5 if attention.scale is None else attention.scale
    wanted = dim ** -0.5 if scaling is None else scaling
    return None if abs(wanted / own - 1) < 1e-12 else wanted / own

