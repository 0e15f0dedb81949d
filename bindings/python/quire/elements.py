# SPDX-License-Identifier: Apache-2.0
"""elements: the library's array elements as numpy's structured types, and arrays passed to it.

An array is used as it is, without a copy, if it has the right type and no gaps; an array of another
type is refused, not silently converted. Lists are converted.
"""

from __future__ import annotations

from typing import Any, Sequence, Tuple, Union

import numpy as np

from . import errors
from .libquire import ffi

UNKNOWN = 0xFFFFFFFF  # a token that is still being sampled
NO_HITS = 0xFFFFFFFF  # as an item's max_hit_tokens: all of its tokens are computed

Array = "np.ndarray[Any, Any]"
Tokens = Union["np.ndarray[Any, Any]", Sequence[int]]


def _fields(kind: str) -> "np.dtype[Any]":
    """The numpy type of a C struct of numbers."""
    names, formats, offsets = [], [], []
    for name, field in ffi.typeof(kind).fields:
        sign = "i" if field.type.cname.startswith("int") else "u"
        names.append(name)
        formats.append(f"{sign}{ffi.sizeof(field.type)}")
        offsets.append(field.offset)
    return np.dtype({"names": names, "formats": formats, "offsets": offsets,
                     "itemsize": ffi.sizeof(kind)})


ITEM = _fields("quire_step_item")
RESULT = _fields("quire_step_result")
PREEMPTION = _fields("quire_preemption")
COPY = _fields("quire_block_copy")
SPAN = _fields("quire_token_span")
MOVE = _fields("quire_block_move")
EVENT = _fields("quire_cache_event")

TOKEN = np.dtype(np.uint32)


def taken(array: Any, dtype: "np.dtype[Any]", name: str) -> Any:
    """The array as a numpy array. Errors: ArgumentError if it has another type, or gaps."""
    if type(array) is not np.ndarray:
        array = _converted(array, dtype, name)
    if array.dtype != dtype:
        raise errors.ArgumentError(f"{name} has elements of {array.dtype}, not {dtype}")
    if array.ndim != 1 or not array.flags.c_contiguous:
        raise errors.ArgumentError(f"{name} is not a contiguous one-dimensional array: its shape "
                                   f"is {array.shape}, its strides {array.strides} bytes")
    return array


def _converted(array: Any, dtype: "np.dtype[Any]", name: str) -> Any:
    if isinstance(array, np.ndarray):
        return np.asarray(array)
    if hasattr(array, "__dlpack__"):
        return np.from_dlpack(array)
    try:
        numbers = np.asarray(array)
    except (OverflowError, TypeError, ValueError) as why:
        raise errors.ArgumentError(f"{name} is not a list: {why}") from None
    if numbers.size == 0:
        return np.empty(0, dtype)
    if dtype.kind != "u" or numbers.dtype.kind not in "iu":
        raise errors.ArgumentError(f"{name} is not a list of {dtype}")
    if numbers.min() < 0 or numbers.max() > np.iinfo(dtype).max:
        raise errors.ArgumentError(f"{name} has a number that does not fit into {dtype}")
    return numbers.astype(dtype)


def read(array: Any, dtype: "np.dtype[Any]", ctype: str, name: str) -> Tuple[Any, int]:
    """A pointer to the elements, which keeps them alive, and their number."""
    array = taken(array, dtype, name)
    count = array.shape[0]
    return (ffi.from_buffer(ctype, array) if count != 0 else ffi.NULL), count


def written(array: Any, dtype: "np.dtype[Any]", ctype: str, name: str) -> Tuple[Any, int]:
    """Like read, for an array that the library writes."""
    if not isinstance(array, np.ndarray):
        raise errors.ArgumentError(f"{name} is not a numpy array: {type(array).__name__}")
    array = taken(array, dtype, name)
    if not array.flags.writeable:
        raise errors.ArgumentError(f"{name} is read-only")
    count = array.shape[0]
    return (ffi.from_buffer(ctype, array, True) if count != 0 else ffi.NULL), count


def read_tokens(tokens: Tokens, name: str = "tokens") -> Tuple[Any, int]:
    return read(tokens, TOKEN, "quire_token[]", name)
