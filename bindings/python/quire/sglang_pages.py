# SPDX-License-Identifier: Apache-2.0
"""sglang_pages: where a page of one of SGLang's host pools lies in memory.

A page's value is what SGLang's file backend writes: get_data_page(index, flat=True). Where that is
a view of the pool, its contiguous runs are the pieces, and nothing is copied here. Where the pool
gathers it, as Mamba's does, it is copied; where the pool has no flat page, as MHA's with two head
sizes, the pieces are those of its get_page_buffer_meta.
"""

from __future__ import annotations

import itertools
from typing import Any, Callable, Dict, List, Sequence, Tuple

import torch  # type: ignore[import-not-found, unused-ignore]

from .tier import Piece

# A pool raises these where it has no flat page, or does not know its layout.
_NO_FLAT_PAGE = (NotImplementedError, ValueError, RuntimeError)


def tensor_piece(tensor: torch.Tensor) -> Piece:
    """Of a contiguous tensor in host memory."""
    return tensor.data_ptr(), tensor.numel() * tensor.element_size()


def contiguous_runs(view: torch.Tensor) -> Tuple[List[int], int]:
    """The offsets in bytes of a strided view's runs, in its own order, and their size."""
    run = 1
    outer: List[range] = []
    for size, stride in zip(reversed(view.shape), reversed(view.stride())):
        if not outer and (stride == run or size == 1):
            run *= size
        else:
            outer.insert(0, range(0, size * stride, stride))
    item = view.element_size()
    return [sum(offsets) * item for offsets in itertools.product(*outer)], run * item


class HostPages:
    """The pages of a host pool. A page is named by its first host index."""

    def __init__(self, pool: Any):
        self.pool = pool
        self._view_at: Callable[[int], torch.Tensor] = lambda index: pool.get_data_page(
            index, flat=False)
        self.kind = "flat"
        self.is_copied = False
        try:
            view = self._view_at(0)
        except _NO_FLAT_PAGE:
            self.kind = "pieces"
            self.page_bytes = sum(size for _, size in self._meta(0))
            return
        self.is_copied = not _owns(pool, view)
        self._offsets, self._run_bytes = contiguous_runs(view)
        self.page_bytes = len(self._offsets) * self._run_bytes

    def identity(self) -> Dict[str, Any]:
        """All about the pool that decides what a page's bytes mean."""
        pool = self.pool
        return {"form": self.kind, "class": type(pool).__name__, "page bytes": self.page_bytes,
                "dtype": str(getattr(pool, "dtype", None)),
                "layout": getattr(pool, "layout", None),
                "tag": getattr(pool, "storage_format_tag", None),
                "page tokens": getattr(pool, "page_size", None),
                "layers": (getattr(pool, "layer_num", None), getattr(pool, "start_layer", None)),
                "heads": (getattr(pool, "head_num", None), getattr(pool, "head_dim", None),
                          getattr(pool, "v_head_dim", None), getattr(pool, "kv_cache_dim", None))}

    def pieces(self, index: int) -> List[Piece]:
        """Where the page lies. REQUIRES: not is_copied."""
        if self.kind == "pieces":
            return self._meta(index)
        start = self._view_at(index).data_ptr()
        return [(start + offset, self._run_bytes) for offset in self._offsets]

    def read(self, index: int) -> torch.Tensor:
        """A copy of the page."""
        page: torch.Tensor = self.pool.get_data_page(index, flat=True)
        return page.contiguous()

    def empty(self) -> torch.Tensor:
        """Room for a page that `write` takes."""
        page: torch.Tensor = self.pool.get_dummy_flat_data_page()
        return page

    def write(self, index: int, page: torch.Tensor) -> None:
        """Makes this the page."""
        self.pool.set_from_flat_data_page(index, page)

    def _meta(self, index: int) -> List[Piece]:
        indices = torch.arange(index, index + self.pool.page_size)
        addresses, sizes = self.pool.get_page_buffer_meta(indices)
        return list(zip(addresses, sizes))


def _owns(pool: Any, view: torch.Tensor) -> bool:
    """True if the view's memory is one of the pool's own tensors."""
    tensors: List[torch.Tensor] = []
    for value in vars(pool).values():
        several: Sequence[Any] = value if isinstance(value, (list, tuple)) else [value]
        tensors += [one for one in several if isinstance(one, torch.Tensor)]
    start = view.untyped_storage().data_ptr()
    return any(tensor.untyped_storage().data_ptr() == start for tensor in tensors)
