# SPDX-License-Identifier: Apache-2.0
"""sglang_slots: SGLang's slots as pages, and pages as slots.

Slot s is token s % page_size of page s // page_size: nothing is looked up. Only a tree that SGLang
makes without a pool, to simulate one, names values that are no slots; those are kept beside the
pages.

Threads: one, SGLang's scheduler.
"""

from __future__ import annotations

from typing import Any, Tuple

import numpy as np
import torch  # type: ignore[import-not-found, unused-ignore]

from .lease import ID
from .libquire import ffi

_POINTER = ffi.typeof("int64_t *")
_INT64 = torch.int64


def host_array(value: Any) -> Any:
    """A tensor of SGLang's as an array of int64. One on a device is copied, which waits for it."""
    array = value.numpy() if value.device.type == "cpu" else value.cpu().numpy()
    return array if array.dtype == np.int64 else array.astype(np.int64)


def slots_of(value: Any, count: int) -> Tuple[Any, Any]:
    """A tensor on the host, and where its first `count` slots lie in it.

    Errors: ValueError, there are fewer.
    """
    if value.dtype is not _INT64 or not value.is_cpu or not value.is_contiguous():
        value = value.to("cpu", torch.int64).contiguous()
    if value.numel() < count:
        raise ValueError(f"there are {value.numel()} slots for {count} tokens")
    return value, ffi.cast(_POINTER, value.data_ptr())


class Slots:
    """The slots of a pool's pages.

    device  where SGLang keeps its indices
    pages   that SGLang hands out, from 1 on
    """

    def __init__(self, page_size: int, device: Any, pages: int):
        self.page_size = page_size
        self._shift = page_size.bit_length() - 1
        # Row p: the slots of page p. To copy rows is faster than to add and multiply.
        self._rows = np.arange((pages + 1) * page_size, dtype=np.int64).reshape(-1, page_size)
        self._on_cpu = torch.device(device).type == "cpu"
        self._device = device

    def pages(self, value: Any) -> Any:
        """The pages of whole pages' slots.

        Errors: ValueError, the slots are not those of whole pages in order.
        """
        slots = host_array(value)
        if self.page_size == 1:
            pages = slots.astype(ID)
            if np.bitwise_or.reduce(slots) >> 31 == 0:
                return pages
        else:
            pages = (slots[::self.page_size] >> self._shift).astype(ID)
            if self._rows.take(pages, 0, mode="clip").tobytes() == slots.tobytes():
                return pages
        raise ValueError(f"the slots are not whole pages of {self.page_size} in order")

    def slots(self, pages: Any) -> Any:
        """The slots of pages, as a tensor of int64 on SGLang's device."""
        numbers = pages.astype(np.int64) if self.page_size == 1 else (
            self._rows.take(pages, 0).reshape(-1))
        tensor = torch.from_numpy(numbers)
        return tensor if self._on_cpu else tensor.to(self._device, non_blocking=True)


class Values(Slots):
    """Any numbers in place of slots, for a tree without a pool."""

    def __init__(self, page_size: int, device: Any, pages: int):
        super().__init__(page_size, device, pages)
        self._values = np.zeros((pages + 1, page_size), np.int64)
        self._is_used = np.zeros(pages + 1, bool)

    def keep(self, pages: Any, value: Any) -> None:
        """These pages have these values from now on."""
        self._values[pages] = host_array(value).reshape(-1, self.page_size)
        self._is_used[pages] = True

    def drop(self, pages: Any) -> None:
        """These pages have no values any more."""
        self._is_used[pages] = False

    def places(self, pages: Any) -> Any:
        """Where the pages would have their slots if they had any."""
        return self._rows.take(pages, 0).reshape(-1)

    def pages_in_use(self) -> Any:
        """The pages that have values, in ascending order."""
        return np.flatnonzero(self._is_used).astype(ID)

    def slots(self, pages: Any) -> Any:
        return torch.from_numpy(self._values[pages].reshape(-1)).to(self._device)
