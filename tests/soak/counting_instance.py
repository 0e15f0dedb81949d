# SPDX-License-Identifier: Apache-2.0
"""counting_instance: an instance whose caches take their host memory from a counting allocator.

libquire has an allocator of its own for the rest, which only resident memory shows.

Threads: any; the library calls from its own threads too.
"""

import ctypes
import threading

import quire
from quire import libquire
from quire.libquire import ffi

_libc = ctypes.CDLL(None)
_libc.aligned_alloc.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
_libc.aligned_alloc.restype = ctypes.c_void_p
_libc.free.argtypes = [ctypes.c_void_p]


class CountingInstance(quire.Instance):
    """live_bytes, live_blocks, calls   of its caches' allocations"""

    def __init__(self):
        self.live_bytes = self.live_blocks = self.calls = 0
        self._lock = threading.Lock()
        self._kept = (ffi.callback("void *(void *, uint64_t, uint64_t)", self._allocate),
                      ffi.callback("void(void *, void *, uint64_t, uint64_t)", self._release))
        desc = libquire.new("quire_instance_desc", allocate=self._kept[0], release=self._kept[1])
        out = ffi.new("quire_instance **")
        library = libquire.load(None)
        library.call(library.api.instance_create, desc, out)
        super(quire.Instance, self).__init__(library, out[0])

    def _allocate(self, _user, size_bytes, alignment):
        with self._lock:
            self.live_bytes += size_bytes
            self.live_blocks += 1
            self.calls += 1
        rounded = -(-size_bytes // alignment) * alignment
        return ffi.cast("void *", _libc.aligned_alloc(alignment, rounded) or 0)

    def _release(self, _user, pointer, size_bytes, _alignment):
        with self._lock:
            self.live_bytes -= size_bytes
            self.live_blocks -= 1
        _libc.free(int(ffi.cast("uintptr_t", pointer)))

    def _closed(self):
        self._kept = None  # a cycle through the bound methods
        super()._closed()
