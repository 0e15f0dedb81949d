# SPDX-License-Identifier: Apache-2.0
"""elements: the library's array elements as numpy's structured types, and arrays passed to it.

An array is used as it is, without a copy, if it has the right type and no gaps; an array of another
type is refused, not silently converted. Lists are converted, and arrays of token ids of any integer
type, because numpy and torch make int64 by default; a number that is no token id is refused.
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
        worst = numbers.min() if numbers.min() < 0 else numbers.max()
        raise errors.ArgumentError(f"{name} has the number {worst}, which does not fit into "
                                   f"{dtype}")
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


def taken_tokens(tokens: Tokens, name: str = "tokens") -> Any:
    """Token ids, or other numbers of 32 bits, as an array of TOKEN, with as few copies as `taken`
    makes if they have that type."""
    numbers: Any = tokens
    if type(numbers) is not np.ndarray:
        numbers = _converted(numbers, TOKEN, name)
    if numbers.dtype == TOKEN or numbers.dtype.kind not in "iu" or numbers.ndim != 1:
        return taken(numbers, TOKEN, name)
    strange = (numbers < 0) | (numbers > UNKNOWN)
    if strange.any():
        at = int(strange.argmax())
        raise errors.ArgumentError(f"{name}[{at}] is {numbers[at]}: it must be 0 to {UNKNOWN}")
    return numbers.astype(TOKEN)


def read_tokens(tokens: Tokens, name: str = "tokens") -> Tuple[Any, int]:
    return read(taken_tokens(tokens, name), TOKEN, "quire_token[]", name)
