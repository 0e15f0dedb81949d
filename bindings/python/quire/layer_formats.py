# SPDX-License-Identifier: Apache-2.0
"""layer_formats: K and V as a pool holds them, read back, and how far they may be rounded.

Codes of 8 bits have a scale per token and head: value = code * scale (quire/cache.h).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found, unused-ignore]

from .cache import Pool
from .dtypes import DType

_STORED = {DType.F32: np.float32, DType.F16: np.float16, DType.BF16: np.uint16, DType.I8: np.int8,
           DType.F8_E4M3FN: np.uint8, DType.F8_E5M2: np.uint8}
_TORCH = {DType.F32: torch.float32, DType.F16: torch.float16, DType.BF16: torch.bfloat16,
          DType.F8_E4M3FN: torch.float8_e4m3fn, DType.F8_E5M2: torch.float8_e5m2}

# (largest code, half of a step relative to the value, half of the smallest step) of rounding to
# nearest. The last in units of the scale where there is one.
_STEPS = {DType.F32: (0, 2.0 ** -24, 2.0 ** -150), DType.F16: (0, 2.0 ** -11, 2.0 ** -25),
          DType.BF16: (0, 2.0 ** -8, 2.0 ** -134), DType.I8: (127, 0.0, 0.5),
          DType.F8_E4M3FN: (448, 2.0 ** -4, 2.0 ** -10),
          DType.F8_E5M2: (57344, 2.0 ** -3, 2.0 ** -17)}


def rounds(kind: DType, dtype: Any) -> bool:
    """True if a pool of this kind cannot hold every element of the torch type."""
    return kind != DType.F32 and _TORCH.get(kind) != dtype


def is_rounded(kind: DType, given: Any, stored: Any) -> bool:
    """True if each element [..., dim] is stored as near as rounding to the kind brings it; the
    scale of a row is its largest magnitude over the largest code."""
    most, relative, absolute = _STEPS[kind]
    given, stored = given.float(), stored.float()
    scale = given.abs().amax(-1, keepdim=True) / most if most else torch.ones(())
    bound = torch.maximum(given.abs() * relative, scale * absolute) * (1 + 1e-4)
    # The scale and the product with it are rounded to f32 too.
    return bool(((given - stored).abs() <= bound + given.abs() * 2.0 ** -22).all())


class PoolRows:
    """Tokens of one layer in a pool."""

    def __init__(self, memory: Any, pool: Pool, kind: DType, layer_bytes: int, heads: int,
                 blocks: Any, slots: Any):
        self._memory, self._pool, self._kind = memory, pool, kind
        self._layer, self._heads = layer_bytes, heads
        self._blocks, self._slots = blocks, slots

    def _view(self, dtype: Any, start: int, dim: int, head: int, token: int) -> Any:
        pool = self._pool
        view: Any = np.ndarray(
            (pool.blocks, pool.block_tokens, self._heads, dim), dtype, self._memory,
            self._layer + start, (pool.block_stride, token, head, np.dtype(dtype).itemsize))
        found = view[self._blocks, self._slots]
        found[self._blocks == 0] = 0  # given back: a window has passed, and no token sees it
        return torch.from_numpy(found)

    def take(self, start: int, dim: int, head: int, token: int, scales: int) -> Any:
        """[token][head][dim] of values; all offsets in bytes."""
        found = self._view(_STORED[self._kind], start, dim, head, token)
        if self._kind in _TORCH:
            found = found.view(_TORCH[self._kind])
        if self._kind.bits > 8:
            return found
        return found.float() * self._view(np.float32, scales, 1, self._pool.scale_head_stride, 4)
