# SPDX-License-Identifier: Apache-2.0
"""layer_shapes: which K and V each layer of a Hugging Face model keeps.

The kinds of layers come from transformers' own function, the one that its DynamicCache uses. Sizes
come from the config; they are a forecast, which the first forward corrects.
"""

from __future__ import annotations

import dataclasses
from typing import Any, List, Optional, Tuple

from transformers import cache_utils  # type: ignore[import-not-found, unused-ignore]

from .dtypes import DType
from .errors import UnsupportedError
from .groups import Group, GroupKind, Scale

_KINDS = {"full_attention": GroupKind.FULL, "sliding_attention": GroupKind.WINDOW,
          "chunked_attention": GroupKind.CHUNKED, "hybrid": GroupKind.FULL,
          "hybrid_sliding": GroupKind.WINDOW}

_LATENT_MOST = 512  # elements of a latent that every backend has


@dataclasses.dataclass(frozen=True)
class LayerShape:
    """One layer: layers of equal shape are a group, with a pool of their own.

    k_dim, v_dim  of what the model gives the cache; in a latent layer the latent and the rotated
                  part of the key
    """

    kind: GroupKind
    window: int
    kv_heads: int
    k_dim: int
    v_dim: int

    @property
    def sliding(self) -> bool:
        """True if old tokens leave the layer, as in transformers' DynamicSlidingWindowLayer."""
        return self.kind in (GroupKind.WINDOW, GroupKind.CHUNKED)

    @property
    def seen_as(self) -> Tuple[GroupKind, int]:
        """Kind and window of what a token sees."""
        return (GroupKind.FULL if self.kind == GroupKind.LATENT else self.kind), self.window

    @property
    def query_dim(self) -> int:
        """The size of a query's head in the blocks' attention."""
        return self.k_dim + self.v_dim if self.kind == GroupKind.LATENT else self.k_dim

    @property
    def out_dim(self) -> int:
        """The size of a head of its result."""
        return self.k_dim if self.kind == GroupKind.LATENT else self.v_dim

    def first_column(self, length: int) -> int:
        """The oldest column that the next token may see."""
        return max(0, length - self.window + 1) if self.sliding else 0

    def group(self, layers: int, dtype: DType) -> Group:
        return Group(layers=layers, kv_heads=self.kv_heads, head_dim=self.query_dim,
                     v_head_dim=self.out_dim, dtype=dtype, window=self.window, kind=self.kind,
                     scale=Scale.TOKEN_HEAD if dtype.bits == 8 else Scale.NONE)


def layer_kinds(config: Any) -> List[Tuple[str, int, int]]:
    """(transformers' name, window, number of linear states) of each layer that a cache has."""
    names, options = cache_utils.get_layer_types_and_kwargs(config)
    return [(name, option.get("sliding_window") or 0, option.get("number_of_states", 0))
            for name, option in zip(names, options)]


def state_layer(name: str, states: int) -> Optional[Any]:
    """transformers' own layer for states that are not K and V, or for none at all. None: the layer
    has K and V."""
    kind = cache_utils.DYNAMIC_LAYER_TYPE_MAPPING.get(name)
    if name == "dummy" and kind is not None:
        return kind()
    if kind is not cache_utils.LinearAttentionLayer:
        return None
    return kind(number_of_states=states or 1)


def _number(config: Any, *names: str) -> Optional[int]:
    for name in names:
        found = getattr(config, name, None)
        if isinstance(found, int) and not isinstance(found, bool) and found > 0:
            return found
    return None


def shape_of(config: Any, name: str, window: int) -> LayerShape:
    """The shape of a layer of this kind. Errors: UnsupportedError for kinds not known here."""
    if name not in _KINDS:
        raise UnsupportedError(f"layers of the kind {name!r} are not supported: only "
                               f"{', '.join(sorted(_KINDS))} and linear states are")
    latent, rotated = _number(config, "kv_lora_rank"), _number(config, "qk_rope_head_dim")
    if latent and rotated and name == "full_attention" and latent <= _LATENT_MOST:
        return LayerShape(GroupKind.LATENT, 0, 1, latent, rotated)
    heads = _number(config, "num_attention_heads", "n_head", "num_heads") or 1
    width = _number(config, "hidden_size", "n_embd", "d_model") or heads
    dim = _number(config, "head_dim") or max(1, width // heads)
    return LayerShape(kind=_KINDS[name] if window else GroupKind.FULL, window=window,
                      kv_heads=_number(config, "num_key_value_heads") or heads, k_dim=dim,
                      v_dim=dim)
