# SPDX-License-Identifier: Apache-2.0
"""handover: a sequence on its way to another cache while it is computed: quire/handover.h."""

from __future__ import annotations

from typing import Any, Optional, Sequence as Listed

from .libquire import NO_BLOCKS, ffi, new
from .session import _digest


class Sender:
    """The end that computes. Its bytes go to a Receiver, in whatever pieces."""

    def __init__(self, cache: Any, sequence: Any, fingerprint: bytes,
                 tokens: Optional[Listed[int]] = None, name_space: bytes = b"",
                 staging_bytes: int = 0):
        given = ffi.new("quire_token[]", list(tokens or []))
        desc = new("quire_handover_send_desc", fingerprint=_digest("fingerprint", fingerprint),
                   name_space=_digest("name_space", name_space), staging_bytes=staging_bytes,
                   token_count=len(given), tokens=given if len(given) else ffi.NULL)
        out = ffi.new("quire_handover *")
        cache._call("handover_send", ffi.cast("quire_seq", sequence.handle), desc, out)
        self._cache, self._handle, self.is_whole = cache, out[0], False

    def layers(self, step: Any, first: int, count: int = 1) -> None:
        """Says that these layers of a committed step, by its handle, are enqueued."""
        self._cache._call("handover_layers", self._handle, step, first, count)

    def read(self, size: int = 65536) -> bytes:
        """The next bytes that are there now, at most `size`."""
        buffer, count = ffi.new("char[]", size), ffi.new("uint64_t *")
        progress = new("quire_handover_progress")
        self._cache._call("handover_read", self._handle, buffer, size, count, progress)
        self.is_whole = progress.is_whole != 0
        return bytes(ffi.buffer(buffer, count[0]))

    def end(self) -> None:
        """Ends it, in whatever state it is."""
        self._cache._call("handover_end", self._handle)


class Receiver:
    """The end that goes on: `sequence_handle` is not 0 once all has come."""

    def __init__(self, cache: Any, fingerprint: bytes, name_space: bytes = b""):
        desc = new("quire_handover_receive_desc", fingerprint=_digest("fingerprint", fingerprint),
                   name_space=_digest("name_space", name_space))
        out = ffi.new("quire_handover *")
        cache._call("handover_receive", desc, out)
        self._cache, self._handle, self.sequence_handle = cache, out[0], 0

    def write(self, data: bytes) -> int:
        """Takes the next bytes and returns how many: fewer if the host tier is short of blocks now,
        or after the end."""
        used, progress = ffi.new("uint64_t *"), new("quire_handover_progress")
        status = self._cache._call("handover_write", self._handle, ffi.from_buffer(data),
                                   len(data), used, progress)
        if status != NO_BLOCKS:
            self.sequence_handle = int(progress.seq)
        return int(used[0])

    def end(self) -> None:
        """Ends it; a sequence that has come stays."""
        self._cache._call("handover_end", self._handle)
