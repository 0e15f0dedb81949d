# SPDX-License-Identifier: Apache-2.0
"""vllm_store_worker: a worker's half of QuireStoreConnector.

A block's value is a digest of how its worker lays out blocks, then each layer's bytes in vLLM's
logical order [H, N, C], whatever the order in memory. So NHD and HND share blocks, and a worker
with other kernels or layers finds another digest, which is a miss.

Saving copies the blocks to host memory before the step ends, so the blocks are free at once; the
store is written in a thread. Loading is in a thread too: nothing else touches the blocks meanwhile,
because their request waits. Where the store falls behind by more than `most_bytes`, blocks are not
saved.

Threads: one for loads and one for saves.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import logging
import threading
from typing import Any, ContextManager, Dict, List, Mapping, Sequence, Set, Tuple

import torch  # type: ignore[import-not-found, unused-ignore]

from . import errors
from .page_store import PageStore, page_label
from .vllm_store_scheduler import Blocks

AT_ONCE = 64  # blocks of one call to the store, which has a deadline
_DIGEST = 32
_logger = logging.getLogger("quire.vllm_store")


class Layers:
    """The KV tensors of a worker, as bytes of blocks."""

    def __init__(self, tensors: Mapping[str, torch.Tensor], num_blocks: int):
        seen: Set[int] = set()
        self.views: List[torch.Tensor] = []
        about: List[Any] = []
        for name, tensor in sorted(tensors.items()):
            if tensor.data_ptr() in seen:  # shared with another layer
                continue
            seen.add(tensor.data_ptr())
            if tensor.dim() == 0 or tensor.shape[0] % num_blocks != 0:
                raise errors.UnsupportedError(f"layer {name} has the shape {list(tensor.shape)}: "
                                              f"its first dimension is not {num_blocks} blocks")
            about.append((name, tuple(tensor.shape[1:]), tensor.shape[0] // num_blocks,
                          str(tensor.dtype)))
            view = tensor.view(torch.uint8)
            if view.shape[0] != num_blocks:  # kernels divide blocks
                view = view.unflatten(0, (num_blocks, -1))
            self.views.append(view)
        self.sizes = [view[0].numel() for view in self.views]
        self.block_bytes = _DIGEST + sum(self.sizes)
        self.digest = hashlib.sha256(repr(about).encode()).digest()
        self.device = self.views[0].device

    def read(self, blocks: Sequence[int]) -> torch.Tensor:
        """A copy of blocks, one per row, in host memory."""
        rows = self._room(len(blocks))
        rows[:, :_DIGEST] = torch.frombuffer(bytearray(self.digest), dtype=torch.uint8)
        chosen, start = torch.tensor(blocks, device=self.device), _DIGEST
        for view, size in zip(self.views, self.sizes):
            part = view.index_select(0, chosen).reshape(len(blocks), size)
            rows[:, start:start + size].copy_(part)
            start += size
        return rows

    def room(self, count: int) -> torch.Tensor:
        """Rows for as many blocks."""
        return self._room(count)

    def write(self, blocks: Sequence[int], rows: torch.Tensor) -> None:
        """Makes the rows the content of the blocks."""
        chosen, start = torch.tensor(blocks, device=self.device), _DIGEST
        for view, size in zip(self.views, self.sizes):
            part = rows[:, start:start + size].to(self.device)
            view.index_copy_(0, chosen, part.reshape(len(blocks), *view.shape[1:]))
            start += size

    def is_alike(self, row: torch.Tensor) -> bool:
        """True if the row was written by a worker that lays out blocks in the same way."""
        return bool(row[:_DIGEST].numpy().tobytes() == self.digest)

    def _room(self, count: int) -> torch.Tensor:
        return torch.empty(count, self.block_bytes, dtype=torch.uint8,
                           pin_memory=self.device.type == "cuda")


class StoreWorker:
    """Moves blocks between a worker's tensors and the store.

    kind        fingerprint of this worker's shard
    saves       False: another worker writes the same blocks
    most_bytes  of blocks that wait to be written
    """

    def __init__(self, store: PageStore, kind: bytes, layers: Layers, *, saves: bool,
                 most_bytes: int):
        store.check_page_bytes(layers.block_bytes)
        self._store, self._kind, self._layers, self._saves = store, kind, layers, saves
        self._most_bytes = most_bytes
        self._waiting_bytes = 0
        self.dropped_blocks = 0
        self._lock = threading.Lock()
        self._finished: Dict[str, Set[int]] = {}
        self._loader = concurrent.futures.ThreadPoolExecutor(1, "quire loads")
        self._saver = concurrent.futures.ThreadPoolExecutor(1, "quire saves")
        self._stream = (torch.cuda.Stream(layers.device) if layers.device.type == "cuda" else None)

    def close(self) -> None:
        """Ends what is under way."""
        self._loader.shutdown(cancel_futures=True)
        self._saver.shutdown()

    def load(self, request_id: str, blocks: Blocks) -> None:
        """Begins to fill blocks; `taken` tells of the end."""
        before = None
        if self._stream is not None:  # the blocks' last readers
            before = torch.cuda.current_stream(self._layers.device).record_event()
        self._loader.submit(self._load, request_id, blocks, before)

    def save(self, blocks: Blocks) -> None:
        """Copies blocks, and has them written."""
        for first in range(0, len(blocks) if self._saves else 0, AT_ONCE):
            part = blocks[first:first + AT_ONCE]
            size = len(part) * self._layers.block_bytes
            with self._lock:
                if self._waiting_bytes + size > self._most_bytes:
                    self.dropped_blocks += len(part)
                    continue
                self._waiting_bytes += size
            rows = self._layers.read([block for _, block in part])
            self._saver.submit(self._save, [name for name, _ in part], rows)

    def flush(self) -> None:
        """Returns when what was to be saved is written, or given up."""
        self._saver.submit(lambda: None).result()

    def taken(self) -> Tuple[Set[str], Set[int]]:
        """The requests whose loads have ended since the last call, and the blocks that failed."""
        with self._lock:
            finished, self._finished = self._finished, {}
        return set(finished), set().union(*finished.values())

    def _load(self, request_id: str, blocks: Blocks, before: Any) -> None:
        failed = {block for _, block in blocks}
        try:
            for first in range(0, len(blocks), AT_ONCE):
                part = blocks[first:first + AT_ONCE]
                count = self._load_part(part, before)
                failed -= {block for _, block in part[:count]}
                if count < len(part):
                    break
        except Exception:  # the engine must hear of the end in any case
            _logger.exception("a load failed, and its blocks are computed")
        finally:
            with self._lock:
                self._finished[request_id] = failed

    def _load_part(self, part: Blocks, before: Any) -> int:
        """How many of these blocks, from the first on, were filled."""
        rows = self._layers.room(len(part))
        labels = [page_label(self._kind, name) for name, _ in part]
        done = self._store.get(labels, [[_place(row)] for row in rows])
        good = [found and self._layers.is_alike(row) for found, row in zip(done, rows)]
        count = (good + [False]).index(False)
        if count:
            with self._after(before):
                self._layers.write([block for _, block in part[:count]], rows[:count])
        return count

    def _save(self, names: List[bytes], rows: torch.Tensor) -> None:
        labels = [page_label(self._kind, name) for name in names]
        try:
            self._store.put(labels, [[_place(row)] for row in rows])
        finally:
            with self._lock:
                self._waiting_bytes -= rows.numel()

    def _after(self, before: Any) -> ContextManager[Any]:
        """Work within runs after this event, and has run when the context ends."""
        if self._stream is None:
            return contextlib.nullcontext()
        self._stream.wait_event(before)
        stack = contextlib.ExitStack()
        stack.callback(self._stream.synchronize)
        stack.enter_context(torch.cuda.stream(self._stream))
        return stack


def _place(row: torch.Tensor) -> Tuple[int, int]:
    return row.data_ptr(), row.numel()
