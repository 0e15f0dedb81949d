# SPDX-License-Identifier: Apache-2.0
"""attention: the attention options of a batch."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, List, Optional, Sequence

from .dtypes import DTypeLike, dtype_of
from .libquire import ffi, new


class RopePairing(enum.IntEnum):
    """Which elements of a head a rope rotates together."""

    HALVES = 0  # element i with i + n (NeoX, Llama as Hugging Face stores it)
    PAIRS = 1   # 2 i with 2 i + 1 (GPT-J, Llama as published)


class RopeScaling(enum.IntEnum):
    """How a rope's frequencies are scaled for a longer context; see quire_rope_desc."""

    PLAIN = 0
    LINEAR = 1
    LLAMA3 = 2
    YARN = 3


@dataclasses.dataclass(frozen=True)
class Rope:
    """Rotary embedding (quire_rope_desc of quire/attention.h); 0 selects a field's default."""

    pairing: RopePairing = RopePairing.HALVES
    rotated_dim: int = 0
    scaling: RopeScaling = RopeScaling.PLAIN
    original_context: int = 0
    base: float = 0
    factor: float = 0
    low_freq_factor: float = 0
    high_freq_factor: float = 0
    beta_fast: float = 0
    beta_slow: float = 0
    magnitude: float = 0
    frequencies: Optional[Sequence[float]] = None

    def _desc(self, kept: List[Any]) -> Any:
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        frequencies = fields.pop("frequencies")
        desc = new("quire_rope_desc", **fields)
        if frequencies is not None:
            desc.frequencies = floats = ffi.new("float[]", list(frequencies))
            kept.append(floats)
        kept.append(desc)
        return desc


@dataclasses.dataclass(frozen=True)
class Attention:
    """Attention options: quire_attention_desc of quire/attention.h.

    q_heads       query heads of a call on one shard; a multiple of its KV heads
    dtype         of q and out; None: f32
    scale         None: 1 / sqrt(k_head_dim)
    soft_cap      None: no cap
    alibi_slopes  [q_heads]
    """

    q_heads: int
    dtype: DTypeLike = None
    scale: Optional[float] = None
    soft_cap: Optional[float] = None
    alibi_slopes: Optional[Sequence[float]] = None
    rope: Optional[Rope] = None
    causal: bool = True
    batch_invariant: bool = False
    masks: bool = False
    sink_logits: bool = False

    def __post_init__(self) -> None:
        dtype_of(self.dtype)  # refuses a name that no type has

    def _desc(self, kept: List[Any]) -> Any:
        flags = (int(not self.causal) | int(self.batch_invariant) << 1 | int(self.masks) << 2
                 | int(self.sink_logits) << 3)
        desc = new("quire_attention_desc", flags=flags, q_heads=self.q_heads,
                   q_dtype=dtype_of(self.dtype), scale=self.scale or 0,
                   soft_cap=self.soft_cap or 0)
        if self.alibi_slopes is not None:
            slopes = list(self.alibi_slopes)
            if len(slopes) != self.q_heads:
                raise ValueError(f"{len(slopes)} slopes for {self.q_heads} heads")
            desc.alibi_slopes = numbers = ffi.new("float[]", slopes)
            kept.append(numbers)
        if self.rope is not None:
            desc.rope = self.rope._desc(kept)
        kept.append(desc)
        return desc
