# SPDX-License-Identifier: Apache-2.0
"""groups, shards: the shape of a cache: its groups of like layers, and what each device holds."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, Optional

from .device import Device
from .dtypes import DTypeLike, dtype_of
from .libquire import new


class GroupKind(enum.IntEnum):
    """Which earlier tokens a token of the group sees: QUIRE_GROUP_* of quire/cache.h."""

    FULL = 0     # every token sees all before it
    WINDOW = 1   # the `window` newest tokens, and the first `sink_tokens`
    CHUNKED = 2  # the earlier tokens of its own chunk of `window`
    LATENT = 3   # full, over one latent row per token (MLA)
    CROSS = 4    # another input, written once
    RECURRENT = 5  # one state per block (Mamba, linear attention); only without memory


class Scale(enum.IntEnum):
    """Where the scales of a pool's codes come from."""

    NONE = 0
    TENSOR = 1      # from a calibration, one per layer
    HEAD = 2        # from a calibration, one per KV head
    TOKEN_HEAD = 3  # made at each write, one per token and KV head


@dataclasses.dataclass(frozen=True)
class Group:
    """Layers that share attention kind and geometry: quire_group_desc of quire/cache.h.

    v_head_dim, v_dtype, v_scale  None: the same as K's
    dtype                         of K, and of V unless v_dtype is given; None: f16
    blocks                        of its pool; 0: as the cache says
    block_tokens                  of its blocks; 0: as the cache's
    state_interval, draft_states  only for GroupKind.RECURRENT: where its snapshots are, and how
                                  many blocks a sequence has beside its state's
    opaque_bytes                  0, or bytes of a token in a layer, in a format that the library
                                  does not know; then there are no heads, dims and dtypes, and the
                                  cache has no memory

    Errors  ArgumentError, no element type has that name.
    """

    layers: int
    kv_heads: int = 0
    head_dim: int = 0
    kind: GroupKind = GroupKind.FULL
    v_head_dim: Optional[int] = None
    dtype: DTypeLike = None
    v_dtype: DTypeLike = None
    window: int = 0
    sink_tokens: int = 0
    scale: Scale = Scale.NONE
    v_scale: Optional[Scale] = None
    blocks: int = 0
    block_tokens: int = 0
    state_interval: int = 0
    draft_states: int = 0
    opaque_bytes: int = 0

    def __post_init__(self) -> None:
        dtype_of(self.dtype)
        dtype_of(self.v_dtype)

    def _desc(self) -> Any:
        v_head_dim = self.head_dim if self.v_head_dim is None else self.v_head_dim
        return new("quire_group_desc", kind=self.kind, window=self.window,
                   layer_count=self.layers, kv_heads=self.kv_heads, k_head_dim=self.head_dim,
                   v_head_dim=v_head_dim, k_dtype=dtype_of(self.dtype),
                   v_dtype=dtype_of(self.v_dtype), blocks=self.blocks,
                   sink_tokens=self.sink_tokens, k_scale=self.scale,
                   v_scale=0 if self.v_scale is None else self.v_scale,
                   block_tokens=self.block_tokens, state_interval=self.state_interval,
                   draft_states=self.draft_states, opaque_bytes=self.opaque_bytes)


@dataclasses.dataclass(frozen=True)
class Shard:
    """One device's part of a cache; a count of 0 means all that remain."""

    device: Device
    layer_begin: int = 0
    layer_count: int = 0
    head_begin: int = 0
    head_count: int = 0

    def _desc(self) -> Any:
        return new("quire_shard_desc", device=self.device._pointer, layer_begin=self.layer_begin,
                   layer_count=self.layer_count, head_begin=self.head_begin,
                   head_count=self.head_count)
