# SPDX-License-Identifier: Apache-2.0
"""handover: a sequence on its way to another cache while it is computed: quire/handover.h."""

from __future__ import annotations

from typing import Any, Optional, Sequence as Listed, Tuple

from . import elements, errors
from .libquire import NO_BLOCKS, ffi, new
from .sequence import Key, Namespace, Sequence, _describe
from .session import _digest


def _tokens(tokens: Optional[elements.Tokens]) -> Tuple[Any, int]:
    """The pointer and count of tokens; None: NULL."""
    if tokens is None:
        return ffi.NULL, 0
    pointer, count = elements.read_tokens(tokens)
    return (pointer, count) if count else (ffi.NULL, 0)


class Sender:
    """The end that computes. Its bytes go to a Receiver, in whatever pieces.

    tokens  to be handed over; None: those that the sequence knows
    """

    def __init__(self, cache: Any, sequence: Any, fingerprint: bytes,
                 tokens: Optional[elements.Tokens] = None, name_space: bytes = b"",
                 staging_bytes: int = 0):
        pointer, count = _tokens(tokens)
        desc = new("quire_handover_send_desc", fingerprint=_digest("fingerprint", fingerprint),
                   name_space=_digest("name_space", name_space), staging_bytes=staging_bytes,
                   token_count=count, tokens=pointer)
        out = ffi.new("quire_handover *")
        cache._call("handover_send", ffi.cast("quire_seq", sequence.handle), desc, out)
        self._cache, self._handle, self.is_whole = cache, out[0], False

    def layers(self, step: Any, first: int, count: int = 1) -> None:
        """Says that these layers of a committed step, by its handle, are enqueued."""
        self._cache._call("handover_layers", self._handle, step, first, count)

    def read(self, size: int = 65536) -> bytes:
        """The next bytes that are there now, at most `size`."""
        if size < 0:
            raise errors.ArgumentError(f"size is {size}")
        buffer, count = ffi.new("char[]", size), ffi.new("uint64_t *")
        progress = new("quire_handover_progress")
        self._cache._call("handover_read", self._handle, buffer, size, count, progress)
        self.is_whole = progress.is_whole != 0
        return bytes(ffi.buffer(buffer, count[0]))

    def end(self) -> None:
        """Ends it, in whatever state it is."""
        self._cache._call("handover_end", self._handle)


class Receiver:
    """The end that goes on: `sequence_handle` is not 0 once all has come.

    tokens      that must be handed over: the prompt; None: any
    namespace, keys, priority, cross_tokens  of the new sequence, as for Cache.sequence. Keys and
                cross_tokens must be those of the sent one
    fingerprint, name_space  as the sender gave them
    """

    def __init__(self, cache: Any, fingerprint: bytes, name_space: bytes = b"", *,
                 tokens: Optional[elements.Tokens] = None, namespace: Optional[Namespace] = None,
                 keys: Listed[Key] = (), priority: int = 0, cross_tokens: int = 0):
        seq, _kept = _describe(cache, namespace, keys, priority, cross_tokens)
        pointer, count = _tokens(tokens)
        desc = new("quire_handover_receive_desc", fingerprint=_digest("fingerprint", fingerprint),
                   name_space=_digest("name_space", name_space), seq=seq, tokens=pointer,
                   token_count=count)
        out = ffi.new("quire_handover *")
        cache._call("handover_receive", desc, out)
        self._cache, self._handle, self.sequence_handle = cache, out[0], 0

    def write(self, data: Any) -> int:
        """Takes the next bytes and returns how many: fewer if the host tier is short of blocks now,
        or after the end."""
        raw = memoryview(data).cast("B") if not isinstance(data, bytes) else data
        used, progress = ffi.new("uint64_t *"), new("quire_handover_progress")
        status = self._cache._call("handover_write", self._handle, ffi.from_buffer(raw), len(raw),
                                   used, progress)
        if status != NO_BLOCKS:
            self.sequence_handle = int(progress.seq)
        return int(used[0])

    @property
    def sequence(self) -> Sequence:
        """The sequence that has come. Errors: ArgumentError, it has not."""
        if self.sequence_handle == 0:
            raise errors.ArgumentError("the hand-over is not whole yet")
        return Sequence(self._cache, self.sequence_handle)

    def end(self) -> None:
        """Ends it; a sequence that has come stays."""
        self._cache._call("handover_end", self._handle)
