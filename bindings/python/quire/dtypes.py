# SPDX-License-Identifier: Apache-2.0
"""dtypes: element types, and their names in numpy.

numpy has no bf16 and no 8-bit floats: they are passed as unsigned integers of the same size, or as
arrays of the package ml_dtypes, whose types have these names.
"""

from __future__ import annotations

import enum
import functools
from typing import Any, Dict, Union

import numpy as np

from . import errors


class DType(enum.IntEnum):
    """Element types. The values are DLPack's: code << 16 | bits << 8 | lanes."""

    I4 = 0 << 16 | 4 << 8 | 1
    I8 = 0 << 16 | 8 << 8 | 1
    F16 = 2 << 16 | 16 << 8 | 1
    F32 = 2 << 16 | 32 << 8 | 1
    BF16 = 4 << 16 | 16 << 8 | 1
    F8_E4M3FN = 10 << 16 | 8 << 8 | 1
    F8_E5M2 = 12 << 16 | 8 << 8 | 1

    @property
    def bits(self) -> int:
        """The size of an element, in bits."""
        return self >> 8 & 0xFF


_NAMES: Dict[str, DType] = {
    "int4": DType.I4, "i4": DType.I4,
    "int8": DType.I8, "i8": DType.I8,
    "float16": DType.F16, "f16": DType.F16,
    "float32": DType.F32, "f32": DType.F32,
    "bfloat16": DType.BF16, "bf16": DType.BF16,
    "float8_e4m3fn": DType.F8_E4M3FN, "fp8_e4m3": DType.F8_E4M3FN,
    "float8_e5m2": DType.F8_E5M2, "fp8_e5m2": DType.F8_E5M2,
}

_SAID = {DType.I4: "int4", DType.I8: "int8", DType.F16: "f16", DType.F32: "f32",
         DType.BF16: "bf16", DType.F8_E4M3FN: "fp8_e4m3", DType.F8_E5M2: "fp8_e5m2"}

_NUMBERS = frozenset(int(kind) for kind in DType)

_STORED_AS = {DType.F16: "float16", DType.F32: "float32", DType.BF16: "uint16"}

DTypeLike = Union[DType, int, str, "np.dtype[Any]", type, None]


def dtype_of(name: DTypeLike) -> int:
    """The library's number for a type: a DType, "f16", np.float16, torch.float16 ...

    None is 0, the default.
    """
    if name is None:
        return 0
    if isinstance(name, int):
        if name not in _NUMBERS:
            raise errors.ArgumentError(f"{name} is not the number of an element type: use one of "
                                       "quire.DType, or a name")
        return int(name)
    try:
        spelled = name if isinstance(name, str) else np.dtype(name).name
    except TypeError:
        spelled = repr(name).removeprefix("torch.")
    if spelled not in _NAMES:
        raise errors.ArgumentError(
            f"{spelled} is not an element type of a cache; known types: "
            f"{', '.join(sorted(_NAMES))}")
    return int(_NAMES[spelled])


def name_of(number: int) -> str:
    """The name of a type, for messages: that of the library's messages."""
    return _SAID[DType(number)]


def holds(array: "np.ndarray[Any, Any]", dtype: int) -> bool:
    """True if the array's elements are of that type."""
    return _holds(array.dtype, dtype)


@functools.lru_cache(maxsize=256)
def _holds(elements: "np.dtype[Any]", dtype: int) -> bool:
    kind = DType(dtype)
    stored = elements.name  # numpy spells it out each time
    if not elements.isnative:
        return False
    return stored == _STORED_AS.get(kind) or _NAMES.get(stored) == kind


def numpy_dtype(dtype: DTypeLike) -> "np.dtype[Any]":
    """The numpy type of such elements, for q, out and the operands of kv_write."""
    kind = DType(dtype_of(dtype) or DType.F32)
    if kind not in _STORED_AS:
        raise errors.ArgumentError(f"{name_of(kind)} can only be a type of K and V in a pool")
    return np.dtype(_STORED_AS[kind])
