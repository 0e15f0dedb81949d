# SPDX-License-Identifier: Apache-2.0
"""layer_repeat: calls of attention that are like calls that were computed over the blocks before.

After a layer's attention was proven, a call leaves a Repeat (layer_calls). One that is just like it
writes K and V and attends in the library's calls alone. Anything that differs goes the long way.
"""

from __future__ import annotations

from typing import Any, Dict, Optional

import torch  # type: ignore[import-not-found, unused-ignore]

from .groups import GroupKind
from .layer_calls import Repeat
from .layer_forward import LayerForward
from .layer_masks import made_of
from .layer_store import scaled


def remember(forward: LayerForward, layer: int, query: Any, scaling: Optional[float],
             options: Dict[str, Any]) -> None:
    """This call, with keywords that only the soft cap matters of, has done what repeat() does."""
    store, attention = forward.store, forward.attention
    shape = store.shapes[layer]
    if shape is None or attention is None or shape.kind == GroupKind.LATENT or store.shared:
        return
    group = store.group_of(layer)
    has = attention[group]
    forward.known.wanted.setdefault(group, has)  # a guess that was right
    if not has.sink_logits:
        forward.known.repeats[layer] = Repeat(
            group, has, scaled(has, scaling, shape.query_dim),
            (query.shape[1], query.shape[3], query.dtype), scaling, options.get("softcap"),
            tuple(options), (shape.kv_heads, shape.k_dim, shape.v_dim), shape.out_dim,
            shape.seen_as)


def repeat(forward: LayerForward, layer: int, query: Any, mask: Any, scaling: Optional[float],
           options: Dict[str, Any]) -> Any:
    """Attention over the blocks, if the call is one that was remembered. None: it is not; nothing
    has changed but that the forward may have begun."""
    known, pending = forward.known.repeats.get(layer), forward.pending
    if (known is None or pending is None or pending[0] != layer
            or layer in forward.known.whole or scaling != known.scaling
            or tuple(options) != known.names or options.get("softcap") != known.soft_cap):
        return None
    mask_made = made_of(mask)
    stands = None if mask_made is None else mask_made.stands_for
    _, keys, values = pending
    if forward.new is None and stands is not None:
        forward.begin(keys.shape[0], keys.shape[2], None, forward.attentions(layer, known.has))
    if (not forward.full or forward.batch is None or forward.attention is None
            or forward.attention[known.group] is not known.has
            or forward.store.active() is not forward):
        return None
    rows, columns = forward.new.shape
    heads, dim, dtype = known.query
    kv_heads, k_dim, v_dim = known.states
    if (query.shape != (rows, heads, columns, dim) or query.dtype is not dtype
            or keys.shape != (rows, kv_heads, columns, k_dim)
            or values.shape != (rows, kv_heads, columns, v_dim)):
        return None
    if stands is not None:
        if stands != known.seen_as:
            return None
    elif mask is not None and mask_made is None or not forward.matches(layer, mask):
        return None
    if known.factor is not None:
        query = query * known.factor
    out = torch.empty(rows, columns, heads, known.out_dim, dtype=dtype)
    store = forward.store
    store.calls.run(forward.batch, store.index_of(layer), _dense(forward, keys),
                    _dense(forward, values), _dense(forward, query), out)
    forward.count_written(layer)
    forward.plain.add(layer)
    if forward.written == forward.layers:
        forward.finish()
    return out


def _dense(forward: LayerForward, states: Any) -> Any:
    """[row][head][column][dim] with the memory of [row][column][head][dim]."""
    if states.shape[2] == 1 and states.is_contiguous() and not states.is_neg():
        return states
    return forward.rows(states)
