# SPDX-License-Identifier: Apache-2.0
"""continuous_forward: a forward of transformers' continuous batching, whose rows are packed.

A batch is one row of tokens for transformers, those of all requests one after the other. Its cache
is given K and V of a layer, and then attention is called with the same tensors. They remember the
forward, so attention() finds it, and attends to the blocks: a token sees its own request's tokens.

A layer is known from the probe (quire.continuous): its shape, and that the blocks' attention is the
model's. What differs from that is refused here, before the forward returns anything.

Threads: the manager's generation thread.
"""

from __future__ import annotations

from typing import Any, Dict, Optional, Set, Tuple

import torch  # type: ignore[import-not-found, unused-ignore]

from .attention import Attention
from .batch import Batch
from .continuous_rows import ContinuousRows
from .errors import UnsupportedError
from .groups import GroupKind
from .layer_shapes import LayerShape
from .layer_store import LayerStore, scaled

# What a batch says about its requests: the blocks' books say it too.
_PACKED = {"cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k", "read_index",
           "write_index", "block_table", "logits_indices", "logits_processor_args", "is_causal"}


class ContinuousForward:
    """The layers of a batch. One forward at a time."""

    def __init__(self, rows: ContinuousRows, attention: Tuple[Attention, ...]):
        self.rows = rows
        self._attention = attention
        self._layers = {i for i, shape in enumerate(rows.store.shapes) if shape is not None}
        self.drop()

    @property
    def _store(self) -> LayerStore:
        return self.rows.store

    def drop(self) -> None:
        """Forgets a forward that was interrupted."""
        self._batch: Optional[Batch] = None
        self._written: Set[int] = set()
        self._waiting: Optional[int] = None  # its attention was not called yet

    def update(self, keys: Any, values: Any, layer: int) -> Tuple[Any, Any]:
        """Writes a layer's new K and V, [1][head][token][dim]; returns what attention() knows."""
        if self._waiting is not None:
            raise UnsupportedError(f"layer {self._waiting} computes attention otherwise than "
                                   "through the attention \"quire\"")
        if not self._written:
            self._batch = self.rows.commit(self._attention)
        shape = self._shape(layer)
        if layer in self._written:
            raise UnsupportedError(f"layer {layer} gives K and V twice in a forward")
        found = (keys.shape[0], keys.shape[1], keys.shape[3], values.shape[3], keys.requires_grad)
        if found != (1, shape.kv_heads, shape.k_dim, shape.v_dim, False):
            raise UnsupportedError(f"layer {layer} gives K of {tuple(keys.shape)} and V of "
                                   f"{tuple(values.shape)}, otherwise than before")
        assert self._batch is not None
        self._store.write(self._batch, layer, _packed(keys), _packed(values))
        self._written.add(layer)
        self._waiting = layer
        keys._quire_packed = values._quire_packed = self, layer
        return keys, values

    def _shape(self, layer: int) -> LayerShape:
        shape = self._store.shapes[layer] if layer in self._layers else None
        if shape is None:
            raise UnsupportedError(f"layer {layer} keeps no K and V according to the config, but "
                                   "gives some")
        return shape

    def attend(self, layer: int, query: Any, scaling: Optional[float],
               options: Dict[str, Any]) -> Any:
        """[1][token][head][dim], attention of a layer's new tokens over the blocks."""
        shape = self._shape(layer)
        if layer != self._waiting or self._batch is None:
            raise UnsupportedError(f"attention of layer {layer} is computed over K and V of "
                                   "another")
        window = options.get("sliding_window")
        if window is not None and (shape.kind, shape.window) != (GroupKind.WINDOW, window):
            raise UnsupportedError(f"layer {layer} wants a window of {window} tokens; the blocks' "
                                   f"attention has {shape.kind.name} {shape.window}")
        has = self._attention[self._store.group_of(layer)]
        sinks = options.get("s_aux")
        wanted = (query.shape[1], str(query.dtype).rpartition(".")[2], options.get("softcap"))
        if (has.q_heads, has.dtype, has.soft_cap) != wanted or query.shape[3] != shape.query_dim \
                or sinks is not None and not has.sink_logits:
            raise UnsupportedError(f"layer {layer} attends otherwise than it did at first")
        if sinks is None and has.sink_logits:
            sinks = torch.full((query.shape[1],), -torch.inf)
        factor = scaled(has, scaling, shape.query_dim)
        flat = _packed(query if factor is None else query * factor)
        out = torch.empty(len(flat), query.shape[1], shape.out_dim, dtype=query.dtype)
        self._store.attend(self._batch, layer, flat, out,
                           None if sinks is None else sinks.detach().float().contiguous())
        self._waiting = None
        if self._written == self._layers:
            self.rows.finish()
            self.drop()
        return out[None]


def _packed(states: Any) -> Any:
    """[1][head][token][dim] as [token][head][dim]."""
    return states.detach()[0].transpose(0, 1).contiguous()


def packed_call(key: Any, value: Any) -> Optional[Tuple[ContinuousForward, int]]:
    """The forward and layer that K and V of a call of attention were given to. None: to none."""
    mine: Any = getattr(key, "_quire_packed", None)
    if mine is None or getattr(value, "_quire_packed", None) is not mine:
        return None
    return mine  # type: ignore[no-any-return, unused-ignore]


def known_packed(options: Dict[str, Any]) -> Dict[str, Any]:
    """The keywords of a call of attention without those that describe the batch."""
    return {name: value for name, value in options.items() if name not in _PACKED}
