# SPDX-License-Identifier: Apache-2.0
"""memory: an engine's own buffers on a device, and arrays in them."""

from __future__ import annotations

import math
from typing import Any, Tuple, Union

import numpy as np

from . import errors
from .device import Device
from .libquire import ffi, new
from .objects import Object, expect
from .queue import Queue

Shape = Union[int, Tuple[int, ...]]


class Window:
    """Memory in the form that numpy takes, which keeps its owner alive."""

    def __init__(self, owner: Object, address: int, dtype: "np.dtype[Any]",
                 shape: Tuple[int, ...]):
        self._owner = owner
        self.__array_interface__ = {"version": 3, "data": (address, False),
                                    "typestr": dtype.str, "shape": shape}


def window(owner: Object, address: int, dtype: Any, shape: Shape) -> "np.ndarray[Any, Any]":
    """An array of the owner's memory, without a copy. While it exists, the owner cannot close."""
    sides = (shape,) if isinstance(shape, int) else tuple(shape)
    base = Window(owner, address, np.dtype(dtype), sides)
    owner._arrays.add(base)
    return np.asarray(base)


class Memory(Object):
    """Zeroed memory for activations.

    host     memory of the host that the device can reach; otherwise the device's own memory
    over     an array of the engine's, used in place and kept alive; nothing is allocated or zeroed
    address  for the arguments of kernels
    """

    _name = "memory"
    _destroy = "memory_destroy"

    def __init__(self, device: Device, size_bytes: int = 0, *, host: bool = False,
                 over: Any = None):
        self._device = expect(device, Device, "device")
        library = device._library
        self._over = over
        if over is not None:
            try:
                content = ffi.from_buffer(over, require_writable=True)
            except (BufferError, TypeError, ValueError) as why:
                raise errors.ArgumentError(f"over is not a writable buffer: {why}") from None
            desc = new("quire_memory_desc", size_bytes=len(content), kind=1, host_pointer=content)
        else:
            desc = new("quire_memory_desc", size_bytes=size_bytes, kind=int(host))
        out = ffi.new("quire_memory **")
        library.call(library.api.memory_create, device, desc, out)
        super().__init__(library, out[0])
        info = new("quire_memory_info")
        library.call(library.api.memory_get_info, self, info)
        self.address = int(info.address)
        self.size_bytes = int(info.size_bytes)
        self._host = int(ffi.cast("uintptr_t", info.host_pointer))

    def array(self, dtype: Any = np.float32, shape: Shape = -1, *,
              offset: int = 0) -> "np.ndarray[Any, Any]":
        """The memory as an array, without a copy; -1 means all of it. It also speaks DLPack.

        offset  in bytes
        Errors: UnsupportedError if the host cannot reach the memory; ArgumentError past its end.
        """
        self._pointer
        if self._host == 0:
            raise errors.UnsupportedError(
                "the host cannot reach this memory: copy it to memory made with host=True")
        kind = np.dtype(dtype)
        if kind.hasobject or kind.itemsize == 0:
            raise errors.ArgumentError(f"{kind} is not a numeric type: memory holds bytes")
        if shape == -1:
            shape = (self.size_bytes - offset) // kind.itemsize
        sides = (shape,) if isinstance(shape, int) else tuple(shape)
        wanted = math.prod(sides) * kind.itemsize
        if offset < 0 or min(sides, default=1) < 0 or offset + wanted > self.size_bytes:
            raise errors.ArgumentError(
                f"{wanted} bytes at {offset} are past the end of {self.size_bytes}")
        if (self._host + offset) % kind.alignment != 0:
            raise errors.ArgumentError(f"offset {offset} is not aligned for {kind}")
        return window(self, self._host + offset, kind, sides)

    def copy_to(self, target: "Memory", queue: Queue, size_bytes: int, *, offset: int = 0,
                target_offset: int = 0) -> None:
        """Enqueues a copy, in bytes; the ranges must not overlap. Both memories stay open until it
        has run."""
        queue._enqueue((self, target), self._library.api.memory_copy, queue, target,
                       target_offset, self, offset, size_bytes)
