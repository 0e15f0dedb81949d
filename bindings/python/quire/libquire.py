# SPDX-License-Identifier: Apache-2.0
"""libquire: opens the library at run time, and calls it.

Search order: the path given to `load`; the environment's QUIRE_LIBRARY; the copy that this package
carries; libquire.so.0 where the dynamic linker looks. The library is never closed, because its
threads outlive any point at which it could be.

Threads: any. Other Python threads run during a call.
"""

from __future__ import annotations

import itertools
import os
import pathlib
import threading
import types
from typing import Any, Callable, List, Optional, Sequence

from . import errors
from ._ffi import ffi as ffi  # made from the headers when the package is built
from .pointers import Pointer

MAJOR = 0
MINOR = 1
INCOMPLETE = 1
NO_BLOCKS = 2
TIMED_OUT = 3


def text(array: Any) -> str:
    """The text in a struct's char array."""
    content: bytes = ffi.string(array)
    return content.decode("utf-8", "replace")


def _check_fits(kind: Any, name: str, value: Any) -> None:
    try:
        ffi.new(f"{kind.cname} *", value)
    except OverflowError as why:
        raise errors.ArgumentError(f"{name} is {value}: {why}") from None


def new(kind: str, /, **fields: Any) -> Any:
    """A zeroed struct with struct_size and these fields set."""
    try:
        struct = ffi.new(f"{kind} *", fields)
    except OverflowError:
        members = dict(ffi.typeof(kind).fields)
        for name, value in fields.items():
            _check_fits(members[name].type, name, value)
        raise
    struct.struct_size = ffi.sizeof(kind)
    return struct


class _Errors(threading.local):
    """The error struct that the calls of a thread write to."""

    def __init__(self) -> None:
        self.error = new("quire_error")


class Library:
    """The table of functions of a library."""

    def __init__(self, path: str):
        self.path = path
        self._errors = _Errors()
        try:
            self._handle = ffi.dlopen(path, ffi.RTLD_NOW | ffi.RTLD_LOCAL)
        except OSError as why:
            raise errors.LibraryNotFoundError(
                f"cannot open {path}: {why}; set QUIRE_LIBRARY to the file's path") from None
        try:
            get_api = self._handle.quire_get_api
        except (AttributeError, ffi.error):
            raise errors.IncompatibleError(
                f"{path} has no quire_get_api: it is not libquire") from None
        table = ffi.new("const quire_api **")
        self.call(get_api, MAJOR, MINOR, table)
        if table[0].struct_size < ffi.sizeof("quire_api"):
            raise errors.IncompatibleError(
                f"{path} is older than this binding: its table has {table[0].struct_size} bytes, "
                f"not {ffi.sizeof('quire_api')}")
        # Function pointers are looked up once: each access to a C struct makes a new object.
        self.api = types.SimpleNamespace(**{
            name: getattr(table[0], name) for name, _ in ffi.typeof("quire_api").fields})

    def call(self, function: Callable[..., int], *arguments: Any,
             beside: Sequence[Pointer] = ()) -> int:
        """Calls the function. Raises if the status is negative; returns it otherwise.

        Objects among the arguments, and those in `beside`, which structs name, are in use
        meanwhile.
        """
        error = self._errors.error
        pointers = [argument for argument in arguments if isinstance(argument, Pointer)]
        used = [pointer._uses for pointer in (*pointers, *beside)]
        begin, end = map(list.append, used, itertools.repeat(None)), map(list.pop, used)
        try:
            list(begin)  # one call, as the last one, so that no interrupt divides them
            for pointer in beside:
                pointer._pointer
            plain = [argument._pointer if isinstance(argument, Pointer) else argument
                     for argument in arguments]
            status = function(*plain, error)
        except OverflowError as why:
            raise errors.ArgumentError(f"a number does not fit: {why}") from None
        finally:
            list(end)
        if status < 0:
            self.fail(status, error)
        return status

    def error(self) -> Any:
        """The struct that a direct call of this thread writes its error to."""
        return self._errors.error

    def fail(self, status: int, error: Any) -> None:
        kind = errors.BY_STATUS.get(status, errors.QuireError)
        raise kind(text(error.message), status, text(error.backend), error.native_code)


_loaded: Optional[Library] = None
_lock = threading.Lock()


def _carried() -> pathlib.Path:
    return pathlib.Path(__file__).resolve().parent / "lib" / "libquire.so.0"


def _candidates() -> List[str]:
    named = os.environ.get("QUIRE_LIBRARY")
    if named:
        return [named]
    return [str(_carried())] if _carried().exists() else ["libquire.so.0"]


def load(path: Optional[str] = None) -> Library:
    """Opens libquire, once per process; only the first call can choose the path.

    Errors: LibraryNotFoundError, IncompatibleError; ArgumentError if another file is already open.
    """
    global _loaded
    with _lock:
        if _loaded is None:
            _loaded = Library(path if path is not None else _candidates()[0])
        elif path is not None and path != _loaded.path:
            raise errors.ArgumentError(
                f"{_loaded.path} is already open; a process can open only one libquire")
        return _loaded
