# SPDX-License-Identifier: Apache-2.0
"""layer_calls: a layer's K, V and attention in direct calls of the library.

A decode step of a small model spends most of its time between the calls of the library: on checks
of operands whose kind, size and place never change. So the first forwards go through all of them
(layer_forward); a layer whose attention was proven then leaves a Repeat, and a call that is just
like it writes K and V and attends with the calls of the library alone.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Optional, Tuple

import torch  # type: ignore[import-not-found, unused-ignore]

from .attention import Attention
from .batch import Batch
from .dtypes import DType
from .libquire import new
from .queue import SLICE_NS, Queue

DTYPES = {torch.float32: DType.F32, torch.float16: DType.F16, torch.bfloat16: DType.BF16}


@dataclasses.dataclass(frozen=True)
class Repeat:
    """A call of a layer's attention that was computed over the blocks and proven.

    has       the attention of the batch for the layer's group; factor: of the query, if its scale
              is another one
    query     heads, dim, type
    scaling, soft_cap, names  of the call; names: of all its keywords
    states    heads of K and V, dim of K, dim of V
    seen_as   kind and window of its mask
    """

    group: int
    has: Attention
    factor: Optional[float]
    query: Tuple[int, int, Any]
    scaling: Optional[float]
    soft_cap: Any
    names: Tuple[str, ...]
    states: Tuple[int, int, int]
    out_dim: int
    seen_as: Any


class LayerCalls:
    """Direct calls on a queue that nothing else uses meanwhile. Threads: the forward's."""

    def __init__(self, queue: Queue):
        self._queue = queue
        self._library = queue._library
        self._kv = new("quire_kv_args")
        self._attend = new("quire_attend_args")

    def run(self, batch: Batch, layer: int, keys: Any, values: Any, query: Any, out: Any) -> None:
        """Writes K and V of the batch's tokens, attends, and waits for both.

        REQUIRES: host tensors that are [token][head][dim] in memory, without gaps, of the batch's
        sizes; K and V are of one type, query and out of the batch's.
        """
        kv, attend, api = self._kv, self._attend, self._library.api
        kv.layer = attend.layer = layer
        kv.dtype = DTYPES[keys.dtype]
        kv.k, kv.v = keys.data_ptr(), values.data_ptr()
        attend.q, attend.out = query.data_ptr(), out.data_ptr()
        queue = self._queue
        place = queue._place
        # An interrupt may come between any two lines: the queue holds what its work uses.
        place.fresh += (keys, values, query, out)
        batch_uses, queue_uses = batch._uses, queue._uses
        try:
            batch_uses.append(None)
            try:
                queue_uses.append(None)
                written, enqueued, reached = batch._pointer, queue._pointer, place._pointer
                error = self._library.error()
                status = api.kv_write(written, kv, enqueued, error)
                if status >= 0:
                    status = api.attend(written, attend, enqueued, error)
                if status >= 0:
                    place.marks += 1
                    status = api.queue_signal(enqueued, reached, place.marks, error)
                if status < 0:
                    self._library.fail(status, error)
                status = api.fence_wait(reached, place.marks, SLICE_NS, error)
            finally:
                queue_uses.pop()
        finally:
            batch_uses.pop()
        if status == 0:
            del place.fresh[-4:]
        else:
            queue.sync()  # it takes longer, or the queue has failed
