# SPDX-License-Identifier: Apache-2.0
"""errors: the exceptions that failed calls of the library raise.

A call that raises changed nothing. A shortage of blocks is a result and raises nothing.
"""

from __future__ import annotations

import builtins
from typing import Dict, Type


class QuireError(Exception):
    """Any failure that the library reports.

    status       the library's number, QUIRE_E_* of quire/base.h
    backend      the name of the backend involved, else ""
    native_code  errno, or the backend's own number; 0 if there is none
    """

    status = 0

    def __init__(self, message: str, status: int = 0, backend: str = "", native_code: int = 0):
        super().__init__(message)
        self.status = status or type(self).status
        self.backend = backend
        self.native_code = native_code


class ArgumentError(QuireError, ValueError):
    """An argument is invalid; the message says which one, and why."""

    status = -1


class StaleError(QuireError):
    """A handle is closed, ended or of another cache, or a batch is from before a migration."""

    status = -2


class BusyError(QuireError):
    """The object is in use; the message says by what."""

    status = -3


class UnsupportedError(QuireError):
    """Not offered by this library, backend or cache."""

    status = -4


class StructError(QuireError):
    """The binding and the library disagree on a struct."""

    status = -5


class HostMemoryError(QuireError, MemoryError):
    """The host is out of memory."""

    status = -6


class DeviceMemoryError(QuireError, MemoryError):
    """The device is out of memory."""

    status = -7


class DeviceLostError(QuireError):
    """A device failed. Its caches keep their bookkeeping."""

    status = -8


class BackendError(QuireError):
    """A backend is missing, damaged or broke its contract."""

    status = -9


class IncompatibleError(QuireError):
    """The version of the library, or of a file, does not fit."""

    status = -10


class ReentrantError(QuireError):
    """A callback called back into the object that called it."""

    status = -11


class ForkedError(QuireError):
    """The process forked after a device was opened."""

    status = -12


class LimitError(QuireError):
    """A stated limit would be exceeded."""

    status = -13


class SystemCallError(QuireError):
    """An operating system call failed; native_code is errno."""

    status = -14


class InternalError(QuireError):
    """A defect of the library."""

    status = -15


class TimeoutError(QuireError, builtins.TimeoutError):
    """Time ran out; nothing changed."""

    status = 3


class LibraryNotFoundError(QuireError, ImportError):
    """No libquire was found; the message says where it was searched for."""

    status = -14


BY_STATUS: Dict[int, Type[QuireError]] = {
    kind.status: kind
    for kind in (ArgumentError, StaleError, BusyError, UnsupportedError, StructError,
                 HostMemoryError, DeviceMemoryError, DeviceLostError, BackendError,
                 IncompatibleError, ReentrantError, ForkedError, LimitError, SystemCallError,
                 InternalError)
}
