# SPDX-License-Identifier: Apache-2.0
"""sequence, namespace: a token stream in a cache, and the tenant that it belongs to."""

from __future__ import annotations

import dataclasses
import enum
import io
from typing import Any, List, Optional, Sequence as Listed, Tuple, Union

import numpy as np

from . import elements, errors, session
from .cache_base import CacheBase
from .libquire import ffi, new
from .objects import expect
from .open_step import OpenStep
from .session import Path, Reader, SessionInfo, Writer


class SequenceFlags(enum.IntFlag):
    """The state of a sequence: QUIRE_SEQ_* of quire/sequence.h."""

    SWAPPED = 1
    LOST = 2
    IN_STEP = 4
    PREEMPTED = 8
    UNPUBLISHED = 16


@dataclasses.dataclass(frozen=True)
class SequenceInfo:
    """A sequence's state: quire_seq_info of quire/sequence.h."""

    flags: SequenceFlags
    known_tokens: int
    computed_tokens: int
    draft_tokens: int
    lookahead_tokens: int
    blocks_held: int
    preemptions: int
    priority: int


class KeyType(enum.IntEnum):
    """What a key stands for: QUIRE_KEY_* of quire/sequence.h."""

    ADAPTER = 1
    SALT = 2
    MEDIA = 3
    OTHER = 4


@dataclasses.dataclass(frozen=True)
class Key:
    """Something besides the tokens that determines K and V, for tokens [begin, end) or for all."""

    type: KeyType
    content: bytes
    begin: int = 0
    end: int = 0


@dataclasses.dataclass(frozen=True)
class NamespaceInfo:
    """A tenant's counts: quire_namespace_info of quire/cache.h."""

    sequences: int
    blocks_held: int
    quota_blocks: int
    prefix_cache_queries: int
    prefix_cache_hits: int
    leases: int = 0


class Namespace:
    """A tenant: its sequences share blocks only with one another. Lives until it is closed."""

    def __init__(self, cache: CacheBase, key: bytes = b"", quota_blocks: int = 0,
                 event_tokens: bool = False):
        self._cache = cache
        content = ffi.new("uint8_t[]", key)
        desc = new("quire_namespace_desc", flags=int(event_tokens), key=content,
                   key_size_bytes=len(key), quota_blocks=quota_blocks)
        out = ffi.new("quire_namespace *")
        cache._call("namespace_create", desc, out)
        self.handle = int(out[0])

    def close(self) -> None:
        """Ends the tenant. Errors: BusyError while it has sequences; StaleError if it is closed."""
        self._cache._call("namespace_destroy", self.handle)

    @property
    def info(self) -> NamespaceInfo:
        """The tenant's counts."""
        info = new("quire_namespace_info")
        self._cache._call("namespace_get_info", self.handle, info)
        return NamespaceInfo(info.sequences, info.blocks_held, info.quota_blocks,
                             info.prefix_cache_queries, info.prefix_cache_hits, info.leases)


class Sequence:
    """One token stream. Lives until it is ended, or its cache is closed.

    handle  the number that items name it by
    """

    __slots__ = ("_cache", "handle")

    def __init__(self, cache: CacheBase, handle: int):
        self._cache = cache
        self.handle = handle

    def end(self, drop_prefix: bool = False) -> None:
        """Ends the sequence and returns its blocks; what it published stays cached, unless dropped.

        Errors: StaleError if it was ended before; BusyError if it is in the open step.
        """
        self._cache._call("seq_end", self.handle, int(drop_prefix))

    def fork(self, token_count: Optional[int] = None) -> "Sequence":
        """Creates a sequence of the first known tokens (None: all), which shares their blocks."""
        if token_count is None:
            token_count = self.info.known_tokens
        out = ffi.new("quire_seq *")
        self._cache._call("seq_fork", self.handle, token_count, out)
        return Sequence(self._cache, int(out[0]))

    def truncate(self, token_count: int) -> None:
        """Shortens the sequence to its first known tokens, and returns the blocks after them."""
        self._cache._call("seq_truncate", self.handle, token_count)

    def accept(self, count: int) -> None:
        """Keeps the first `count` drafts of the last item, and discards the others."""
        self._cache._call("seq_accept", self.handle, count)

    def accept_path(self, path: elements.Tokens) -> None:
        """Keeps the drafts along one path through the tree, given by their indices."""
        pointer, count = elements.read(elements.taken_tokens(path, "path"), elements.TOKEN,
                                       "uint32_t[]", "path")
        self._cache._call("seq_accept_path", self.handle, pointer, count)

    def set_tokens(self, position: int, tokens: elements.Tokens) -> None:
        """Names tokens that were added as UNKNOWN, starting at `position`."""
        pointer, count = elements.read_tokens(tokens)
        span = ffi.new("quire_token_span *", {"seq": self.handle, "position": position,
                                              "token_count": count})
        self._cache._call("seq_set_tokens", span, 1, ffi.sizeof("quire_token_span"), pointer,
                          count)

    def probe(self, tokens: elements.Tokens = ()) -> int:
        """How many tokens of the sequence, followed by these, would be found in the cache now."""
        pointer, count = elements.read_tokens(tokens)
        out = ffi.new("uint32_t *")
        self._cache._call("prefix_probe", self.handle, pointer, count, out)
        return int(out[0])

    def blocks(self, group: int = 0, step: Optional[OpenStep] = None, first: int = 0) -> Any:
        """The sequence's block table in a group from entry `first` on, int32; 0 is the null block.
        With the open step: the table as the step plans it."""
        handle = 0 if step is None else step.handle
        ids = np.empty(64, np.int32)
        count = ffi.new("uint32_t *")
        while True:
            self._cache._call("step_blocks", handle, self.handle, group, first,
                              ffi.from_buffer("int32_t[]", ids), len(ids), count)
            wanted = max(0, count[0] - first)
            if wanted <= len(ids):
                return ids[:wanted]
            ids = np.empty(wanted, np.int32)

    @property
    def info(self) -> SequenceInfo:
        """The sequence's state and token counts."""
        info = new("quire_seq_info")
        self._cache._call("seq_get_info", self.handle, info)
        return SequenceInfo(SequenceFlags(info.flags), info.known_tokens, info.computed_tokens,
                            info.draft_tokens, info.lookahead_tokens, info.blocks_held,
                            info.preemptions, info.priority)

    def export(self, *, fingerprint: bytes = b"", name_space: bytes = b"",
               timeout: Optional[float] = None) -> bytes:
        """The sequence as bytes, with its tokens, K and V. See export_to."""
        content = io.BytesIO()
        self.export_to(content, fingerprint=fingerprint, name_space=name_space, timeout=timeout)
        return content.getvalue()

    def export_to(self, file: Writer, *, fingerprint: bytes = b"", name_space: bytes = b"",
                  timeout: Optional[float] = None) -> SessionInfo:
        """Writes the sequence's session to a file-like object, a few MiB at a time.

        fingerprint  names the weights, and all else that determines K and V; up to 32 bytes
        name_space   names the tenant; up to 32 bytes
        Errors       BusyError, it is in the open step, or has drafts; TimeoutError, its last step
                     still runs after `timeout` seconds; what file.write() raised.
        """
        return session.write(self._cache, self.handle, file, fingerprint, name_space, timeout)

    def save(self, path: Path, *, fingerprint: bytes = b"", name_space: bytes = b"",
             timeout: Optional[float] = None) -> SessionInfo:
        """Writes the sequence's session into a file, which is whole or as before. See export_to.
        Errors: SystemCallError, the file cannot be written."""
        return session.write(self._cache, self.handle, path, fingerprint, name_space, timeout)

    def __repr__(self) -> str:
        return f"<quire.Sequence {self.handle:#x}>"


def _keys(cache: CacheBase, namespace: Optional[Namespace],
          keys: Listed[Key]) -> Tuple[int, Any, Any]:
    """The namespace's handle, the array of keys, and what keeps their bytes."""
    if namespace is not None and namespace._cache is not cache:
        raise errors.StaleError("the namespace belongs to another cache")
    for key in keys:
        expect(key, Key, "a key")
    kept: List[Any] = [ffi.new("uint8_t[]", key.content) for key in keys]
    array = ffi.new("quire_key[]", [
        {"type": key.type, "size_bytes": len(key.content), "bytes": content, "begin": key.begin,
         "end": key.end} for key, content in zip(keys, kept)])
    return 0 if namespace is None else namespace.handle, array, kept


def _describe(cache: CacheBase, namespace: Optional[Namespace], keys: Listed[Key], priority: int,
              cross_tokens: int) -> Tuple[Any, Any]:
    """The quire_seq_desc, and what keeps its arrays."""
    number, array, kept = _keys(cache, namespace, keys)
    desc = new("quire_seq_desc", ns=number,
               keys=array if len(keys) != 0 else ffi.NULL, key_count=len(keys),
               key_stride=ffi.sizeof("quire_key"), priority=priority, cross_tokens=cross_tokens)
    return desc, (array, kept)


def create(cache: CacheBase, namespace: Optional[Namespace], keys: Listed[Key], priority: int,
           cross_tokens: int) -> Sequence:
    """Creates a sequence. Errors: StaleError for a namespace of another cache."""
    desc, _kept = _describe(cache, namespace, keys, priority, cross_tokens)
    out = ffi.new("quire_seq *")
    cache._call("seq_create", desc, out)
    return Sequence(cache, int(out[0]))


def from_session(cache: CacheBase, source: Union[bytes, Reader, Path], fingerprint: bytes,
                 name_space: bytes, namespace: Optional[Namespace], keys: Listed[Key],
                 priority: int, cross_tokens: int) -> Optional[Sequence]:
    """Creates a sequence from a session. None: the host tier is short of blocks."""
    described = _describe(cache, namespace, keys, priority, cross_tokens)
    if isinstance(source, (bytes, bytearray, memoryview)):
        source = io.BytesIO(source)
    handle = session.read(cache, source, described, fingerprint, name_space)
    return None if handle is None else Sequence(cache, handle)
