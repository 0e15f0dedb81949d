# SPDX-License-Identifier: Apache-2.0
"""calibration: the largest magnitudes of K and V in a model, which scales are made from."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from . import libquire as _library
from .libquire import INCOMPLETE, ffi, new


@dataclasses.dataclass(frozen=True)
class Calibration:
    """The contents of what Cache.save_calibration returned. Errors: ArgumentError if it is damaged,
    IncompatibleError if it is of another version.

    unwritten  how many numbers are 0: no scale can be made from them
    """

    content: bytes
    layer_count: int
    max_kv_heads: int
    unwritten: int

    @classmethod
    def of(cls, content: bytes) -> "Calibration":
        """Reads what Cache.save_calibration returned."""
        library = _library.load()
        info = new("quire_calibration_info")
        library.call(library.api.calibration_get_info, ffi.from_buffer(content), len(content), info)
        return cls(content, info.layer_count, info.max_kv_heads, info.unwritten)

    def amax(self, layer: int) -> "np.ndarray[Any, Any]":
        """A layer's magnitudes, f32 [2][kv_heads]: K's, then V's."""
        library = _library.load()
        info = new("quire_calibration_layer")
        numbers = np.zeros((2, max(1, self.max_kv_heads)), np.float32)
        status = library.call(library.api.calibration_get_layer, ffi.from_buffer(self.content),
                              len(self.content), layer, info,
                              ffi.from_buffer("float[]", numbers, True), numbers.size)
        assert status != INCOMPLETE
        return numbers.reshape(-1)[:2 * info.kv_heads].reshape(2, info.kv_heads)

    def merged(self, other: "Calibration") -> "Calibration":
        """The larger number of both in each place: of several runs, or of the ranks of one run."""
        library = _library.load()
        size = ffi.new("uint64_t *")
        buffer = ffi.new("uint8_t[]", len(self.content))
        library.call(library.api.calibration_merge, ffi.from_buffer(self.content),
                     len(self.content), ffi.from_buffer(other.content), len(other.content), buffer,
                     len(self.content), size)
        return Calibration.of(bytes(ffi.buffer(buffer, size[0])))
