# SPDX-License-Identifier: Apache-2.0
"""vllm_request: what a request of vLLM says about the content of its blocks: tokens and keys.

Quire's tokens are numbers from 0 to 2^32-2. A prompt may have others: placeholders of media, or of
embeddings. Such a token is looked up as 0, and a key over its place holds its number, so that it is
compared like any other. Only prompts can have them: keys are fixed when a request starts.

With hash lookahead a block's content includes the first tokens of the next block. So the library is
given the tokens from there on: the token at each place is the one `lookahead` places after it, and
a key holds the first ones. A full block of the library then is one with its lookahead tokens.
"""

from __future__ import annotations

import array
import hashlib
import importlib
from typing import Any, Iterator, List, Optional, Tuple

import numpy as np

from . import elements
from .errors import ArgumentError
from .sequence import Key, KeyType

_NARROW = np.dtype(elements.TOKEN)
_largest = np.maximum.reduce  # max without the wrapper
_MOST_KEYS = 60   # of the library's 64: the others are for the salt and the adapter
_MOST_BYTES = 64  # a longer content of a key is replaced by its SHA-256


def ids(request: Any) -> Any:
    """The list of all token ids."""
    tokens = request.all_token_ids
    return getattr(tokens, "_x", tokens)  # vLLM's read-only list is slow to walk


def skips_cache(request: Any) -> bool:
    """True if the request must not be given cached blocks."""
    return bool(getattr(request, "skip_reading_prefix_cache", False))


def _wide(tokens: Any) -> "np.ndarray[Any, Any]":
    """The tokens as int64. Errors: ArgumentError if they are no such numbers."""
    try:
        numbers = np.asarray(tokens)
        if numbers.dtype.kind in "iu":
            return numbers.astype(np.int64)
    except (OverflowError, TypeError, ValueError):
        pass
    raise ArgumentError("all_token_ids is not a list of numbers of 64 bits")


def tokens(values: Any) -> Tuple["np.ndarray[Any, Any]", Optional["np.ndarray[Any, Any]"]]:
    """The token ids as the library takes them, and, if some of them are replaced by 0, all of them
    as int64."""
    if type(values) is np.ndarray and values.dtype == elements.TOKEN:
        numbers = values
    else:
        try:
            numbers = np.frombuffer(array.array("I", values), _NARROW)
        except (OverflowError, TypeError, ValueError):
            numbers = None
    if numbers is not None and (len(numbers) == 0 or _largest(numbers) != elements.UNKNOWN):
        return numbers, None
    wide = _wide(values)
    strange = (wide < 0) | (wide >= elements.UNKNOWN)
    narrow = np.where(strange, 0, wide).astype(elements.TOKEN)
    return narrow, (wide if strange.any() else None)


def _content(content: bytes) -> bytes:
    return content if len(content) <= _MOST_BYTES else hashlib.sha256(content).digest()


def _strange(wide: "np.ndarray[Any, Any]") -> Iterator[Key]:
    """A key per run of tokens that the library has no numbers for."""
    strange = (wide < 0) | (wide >= elements.UNKNOWN)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], strange, [False]])))
    for begin, end in edges.reshape(-1, 2).tolist():
        yield Key(KeyType.OTHER, b"ids" + _content(wide[begin:end].tobytes()), begin, end)


def _embeds(embeds: Any, size: int) -> Iterator[Key]:
    """Keys over a prompt's embeddings, per block or, in a long prompt, per several."""
    count = embeds.shape[0]
    span = -(-count // (_MOST_KEYS * size)) * size
    values = embeds.detach().cpu().contiguous() if hasattr(embeds, "detach") else embeds
    for begin in range(0, count, span):
        part = values[begin:begin + span]
        if hasattr(part, "numpy"):
            part = part.view(importlib.import_module("torch").uint8).numpy()
        yield Key(KeyType.OTHER, b"embeds" + hashlib.sha256(part.tobytes()).digest(), begin,
                  min(begin + span, count))


def _spans(request: Any, wide: Optional["np.ndarray[Any, Any]"], size: int) -> Iterator[Key]:
    for media in getattr(request, "mm_features", None) or ():
        place = media.mm_position
        yield Key(KeyType.MEDIA, str(media.identifier).encode(), place.offset,
                  place.offset + place.length)
    embeds = getattr(request, "prompt_embeds", None)
    if embeds is not None:
        yield from _embeds(embeds, size)
    if wide is not None:
        yield from _strange(wide)


def _merged(spans: List[Key]) -> List[Key]:
    """At most _MOST_KEYS keys: the last ones become one, over all of their places."""
    if len(spans) <= _MOST_KEYS:
        return spans
    spans.sort(key=lambda key: key.begin)
    kept, rest = spans[:_MOST_KEYS - 1], spans[_MOST_KEYS - 1:]
    content = repr([(key.type, key.content, key.begin, key.end) for key in rest]).encode()
    return kept + [Key(KeyType.OTHER, _content(content), rest[0].begin,
                       max(key.end for key in rest))]


def keys(request: Any, wide: Optional["np.ndarray[Any, Any]"], size: int) -> List[Key]:
    """What determines K and V besides the tokens. `wide` are the ids if some are replaced by 0;
    `size` is the block's, in tokens."""
    found: List[Key] = []
    if wide is not None or getattr(request, "mm_features", None) or \
            getattr(request, "prompt_embeds", None) is not None:
        found = _merged(list(_spans(request, wide, size)))
    salt = getattr(request, "cache_salt", None)
    if salt:
        found.append(Key(KeyType.SALT, str(salt).encode()))
    adapter = getattr(request, "lora_request", None)
    if adapter is not None:
        # With the path: a name may be given to another adapter.
        names = (str(adapter.lora_name), str(getattr(adapter, "lora_path", "")))
        found.append(Key(KeyType.ADAPTER, "\0".join(names).encode()))
    return found


class Content:
    """Tokens and keys of the request asked for last: a prompt is looked up, perhaps repeatedly, and
    then cached, so it is converted only once."""

    def __init__(self, block_size: int, lookahead: int = 0):
        self._size, self._lookahead = block_size, lookahead
        self._request: Any = None
        self._tokens: Any = ()
        self._last: Any = None
        self._count = 0
        self._keys: List[Key] = []

    def _is_of(self, request: Any, values: Any) -> bool:
        return (self._request is request and self._count == len(values)
                and self._last == values[-1])

    def of(self, request: Any) -> Tuple["np.ndarray[Any, Any]", List[Key]]:
        """All tokens of a request as the library takes them, and its keys."""
        values = ids(request)
        if len(values) == 0 or not self._is_of(request, values):
            self._tokens, wide = tokens(values)
            self._keys = keys(request, wide, self._size)
            if self._lookahead:
                self._shift(values)
            self._request, self._last = request, (values[-1] if len(values) else None)
            self._count = len(values)
        return self._tokens, self._keys

    def _shift(self, values: Any) -> None:
        count = self._lookahead
        head = _wide(values[:count]).tobytes()
        self._tokens = self._tokens[count:]
        self._keys = [key if key.end == 0 else
                      Key(key.type, key.content, max(0, key.begin - count), key.end)
                      for key in self._keys] + [Key(KeyType.OTHER, b"head" + _content(head))]

    def forget(self) -> None:
        """Keeps no reference to the request."""
        self._request = None
