# SPDX-License-Identifier: Apache-2.0
"""session: a sequence as bytes or a file, and back: quire/session.h.

Bytes stream through a file-like object. Its exceptions come out of the call that used it.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Callable, Optional, Protocol, Tuple, Union

from . import errors
from .cache_base import CacheBase
from .libquire import NO_BLOCKS, TIMED_OUT, ffi, new
from .queue import nanoseconds

Path = Union[str, "os.PathLike[str]"]

_CALLBACK_FAILED = errors.SystemCallError.status


class Writer(Protocol):
    """Takes bytes: a file opened for writing, a socket's file, io.BytesIO."""

    def write(self, data: bytes, /) -> Any:
        """Takes these bytes, and returns how many it took; None: all."""


class Reader(Protocol):
    """Gives bytes: a file opened for reading, a socket's file, io.BytesIO."""

    def read(self, size: int, /) -> Optional[bytes]:
        """The next bytes, at most `size`; empty at the end."""


@dataclasses.dataclass(frozen=True)
class SessionInfo:
    """What a session holds: quire_session_info of quire/session.h."""

    known_tokens: int
    computed_tokens: int
    blocks: int
    size_bytes: int


def _digest(name: str, content: bytes) -> bytes:
    if len(content) > 32:
        raise errors.ArgumentError(f"{name} has {len(content)} bytes: at most 32")
    return content.ljust(32, b"\0")


class _Callback:
    """A function that the library calls, and the exception that it ended with."""

    def __init__(self, kind: str, run: Callable[[Any, int], None]):
        self.error: Optional[BaseException] = None

        def call(_user: Any, pointer: Any, size: int) -> int:
            try:
                run(pointer, size)
            except BaseException as why:  # it must not unwind through the library
                self.error = why
                return _CALLBACK_FAILED
            return 0

        self.function = ffi.callback(kind, call, error=_CALLBACK_FAILED)

    def raise_error(self) -> None:
        """Raises what the callback ended with, if it did."""
        error, self.error = self.error, None
        if error is not None:
            raise error


def _writing(file: Writer) -> _Callback:
    def run(pointer: Any, size: int) -> None:
        rest = bytes(ffi.buffer(pointer, size))
        while rest:
            taken = file.write(rest)
            if taken is None:
                return
            if not 0 < taken <= len(rest):
                raise OSError(f"write() took {taken} of {len(rest)} bytes")
            rest = rest[taken:]

    return _Callback("quire_session_write", run)


def _reading(file: Reader) -> _Callback:
    def run(pointer: Any, size: int) -> None:
        target = ffi.buffer(pointer, size)
        filled = 0
        while filled < size:
            content = file.read(size - filled)
            if not content:
                raise EOFError(f"the session ends {size - filled} bytes too early")
            if len(content) > size - filled:
                raise OSError(f"read({size - filled}) returned {len(content)} bytes")
            target[filled:filled + len(content)] = content
            filled += len(content)

    return _Callback("quire_session_read", run)


def _run(callback: Optional[_Callback], call: Callable[[], int]) -> int:
    try:
        return call()
    except errors.QuireError:
        if callback is not None:
            callback.raise_error()
        raise


def write(cache: CacheBase, handle: int, target: Union[Writer, Path], fingerprint: bytes,
          name_space: bytes, timeout: Optional[float]) -> SessionInfo:
    """Exports a sequence into an object with write(), or saves it in a file of this path."""
    desc = new("quire_export_desc", fingerprint=_digest("fingerprint", fingerprint),
               name_space=_digest("name_space", name_space))
    info = new("quire_session_info")
    callback: Optional[_Callback] = None
    limit = nanoseconds(timeout)
    if isinstance(target, (str, os.PathLike)):
        path = ffi.new("char[]", os.fsencode(target))
        status = cache._call("seq_save_wait", handle, desc, path, info, limit)
    else:
        callback = _writing(target)
        desc.write = callback.function
        status = _run(callback, lambda: cache._call("seq_export_wait", handle, desc, info, limit))
    if status == TIMED_OUT:
        raise errors.TimeoutError("the sequence's last step still runs; nothing was written")
    return SessionInfo(info.known_tokens, info.computed_tokens, info.blocks, info.size_bytes)


def read(cache: CacheBase, source: Union[Reader, Path], sequence: Tuple[Any, Any],
         fingerprint: bytes, name_space: bytes) -> Optional[int]:
    """Imports from an object with read(), or restores a file; returns the new sequence's handle.

    sequence  the quire_seq_desc, and what keeps its arrays
    Returns   None  the host tier is short of blocks
    """
    desc = new("quire_import_desc", fingerprint=_digest("fingerprint", fingerprint),
               name_space=_digest("name_space", name_space), seq=sequence[0])
    out = ffi.new("quire_seq *")
    if isinstance(source, (str, os.PathLike)):
        path = ffi.new("char[]", os.fsencode(source))
        status = cache._call("seq_restore", desc, path, out, ffi.NULL)
    else:
        callback = _reading(source)
        desc.read = callback.function
        status = _run(callback, lambda: cache._call("seq_import", desc, out, ffi.NULL))
    return None if status == NO_BLOCKS else int(out[0])
