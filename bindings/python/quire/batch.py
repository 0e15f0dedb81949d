# SPDX-License-Identifier: Apache-2.0
"""batch: a step's tables in the forms that kernels read, and attention over them.

Operands of kv_write, attend and merge are numpy arrays, objects with __dlpack__, a quire.Memory, or
a device address as an int, which is not validated. Arrays need a device whose memory the host can
reach (DeviceInfo.host_visible). They are read when the queue reaches the call, and kept alive until
then.
"""

from __future__ import annotations

import enum
import math
from typing import Any, Dict, List, NamedTuple, Optional, Sequence as Listed, Tuple, Union

import numpy as np

from . import errors
from .attention import Attention
from .cache_base import CacheBase
from .dtypes import DType, dtype_of, holds, name_of
from .groups import GroupKind
from .libquire import ffi, new
from .memory import Memory, window
from .objects import Object
from .queue import Queue


class View(enum.IntFlag):
    """Which tables a batch keeps: QUIRE_VIEW_* of quire/batch.h."""

    BLOCK_TABLE = 1
    CSR = 2
    SLOTS = 4
    CONTEXT_SLOTS = 8
    LENGTHS = 16
    POSITIONS = 32
    CU_Q = 64
    MASK = 128
    SHARED_PREFIX = 256


_TABLES = ("block_table", "csr_indptr", "csr_indices", "csr_last_page_len", "slots",
           "context_slots", "lengths", "positions", "cu_q", "mask", "mask_rows", "mask_first",
           "shared_prefix")


class Views:
    """A batch's tables for one group and shard, as of the last commit.

    row_count, query_tokens, max_length, write_tokens  of the last commit

    Tables are arrays without a copy; the rows after the first row_count hold padding. A table that
    the batch does not keep raises AttributeError. The tables change with each commit. For a kernel
    on a device, address() gives a table's address.

    In a cache with devices, tables are written when the step's queue reaches that point: sync the
    queue before the host reads one. In a cache that keeps books only, they are written when commit
    returns.
    """

    def __init__(self, batch: "Batch", group: int, shard: int):
        self._batch = batch
        self._info = info = _read_views(batch, group, shard)
        self.row_count = int(info.row_count)
        self.query_tokens = int(info.query_tokens)
        self.max_length = int(info.max_length)
        self.write_tokens = int(info.write_tokens)
        self._reachable = batch._cache._host_visible(shard)

    def address(self, table: str) -> int:
        """A table's address, for kernels; 0 if the batch does not keep the table."""
        if table not in _TABLES:
            raise errors.ArgumentError(
                f"{table!r} is not a table; the tables are {', '.join(_TABLES)}")
        return int(getattr(self._info, table))

    def _array(self, table: str, dtype: Any, *shape: int) -> "np.ndarray[Any, Any]":
        address = self.address(table)
        self._batch._pointer
        if address == 0:
            raise AttributeError(f"the batch does not keep {table}: request it with views")
        if not self._reachable:
            raise errors.UnsupportedError(f"the host cannot reach {table}: it is on the device")
        return window(self._batch, address, dtype, shape)

    @property
    def block_table(self) -> "np.ndarray[Any, Any]":
        """int32 [max_rows][stride], the layout of vLLM and FlashAttention."""
        return self._array("block_table", np.int32, self._batch.max_rows,
                           int(self._info.block_table_stride))

    @property
    def csr_indptr(self) -> "np.ndarray[Any, Any]":
        """int32 [max_rows + 1], the layout of FlashInfer."""
        return self._array("csr_indptr", np.int32, self._batch.max_rows + 1)

    @property
    def csr_indices(self) -> "np.ndarray[Any, Any]":
        """int32, one per block of the rows: csr_indptr[row_count] entries."""
        count = int(self.csr_indptr[self.row_count])
        return self._array("csr_indices", np.int32, count)

    @property
    def csr_last_page_len(self) -> "np.ndarray[Any, Any]":
        """int32 [max_rows], the layout of FlashInfer: tokens in each row's last block."""
        return self._array("csr_last_page_len", np.int32, self._batch.max_rows)

    @property
    def slots(self) -> "np.ndarray[Any, Any]":
        """int64, one per new token: block * block_tokens + offset."""
        return self._array("slots", np.int64, self.write_tokens)

    @property
    def context_slots(self) -> "np.ndarray[Any, Any]":
        """int32, one per context token, row after row."""
        count = int(self.lengths[:self.row_count].sum())
        return self._array("context_slots", np.int32, count)

    @property
    def lengths(self) -> "np.ndarray[Any, Any]":
        """int32 [max_rows]: context tokens, including the new ones."""
        return self._array("lengths", np.int32, self._batch.max_rows)

    @property
    def positions(self) -> "np.ndarray[Any, Any]":
        """int32, one per new token."""
        return self._array("positions", np.int32, self.query_tokens)

    @property
    def cu_q(self) -> "np.ndarray[Any, Any]":
        """int32 [max_rows + 1]: where each row's new tokens begin."""
        return self._array("cu_q", np.int32, self._batch.max_rows + 1)

    @property
    def shared_prefix(self) -> "np.ndarray[Any, Any]":
        """int32 [max_rows]: how many leading entries equal the previous row's."""
        return self._array("shared_prefix", np.int32, self._batch.max_rows)


class _Counts(NamedTuple):
    """What a batch keeps of its views; Views would keep it alive."""

    write_tokens: int
    query_tokens: int


def _read_views(batch: "Batch", group: int, shard: int) -> Any:
    info = new("quire_batch_views")
    batch._library.call(batch._library.api.batch_get_views, batch, group, shard, info)
    return info


Operand = Any  # a numpy array, something with __dlpack__, a Memory, or an address


class Batch(Object):
    """Memory that the tables of steps are written to. Made by Cache.batch."""

    _name = "batch"
    _destroy = "batch_destroy"

    def __init__(self, cache: CacheBase, *, max_rows: int, max_blocks_per_row: int,
                 max_query_tokens: int, max_context_tokens: int, views: View,
                 attention: Union[Attention, Listed[Attention], None], max_mask_words: int,
                 max_cross_tokens: int, pad_null_slot: bool, shared_prefix: bool):
        self._cache = cache
        self.max_rows = max_rows
        self._queues: Listed[Queue] = ()
        if attention is None:
            self._attention: List[Attention] = []
        else:
            self._attention = [attention] if isinstance(attention, Attention) else list(attention)
        kept: List[Any] = []
        described = [a._desc(kept) for a in self._attention]
        array = ffi.new("quire_attention_desc[]", len(described))
        for i, struct in enumerate(described):
            array[i] = struct[0]
        desc = new("quire_batch_desc", flags=int(pad_null_slot) | int(shared_prefix) << 1,
                   max_rows=max_rows, max_blocks_per_row=max_blocks_per_row,
                   max_query_tokens=max_query_tokens, max_context_tokens=max_context_tokens,
                   views=int(views), attention_count=len(described),
                   attention_stride=ffi.sizeof("quire_attention_desc"),
                   max_mask_words=max_mask_words, max_cross_tokens=max_cross_tokens)
        if described:
            desc.attention = array
        out = ffi.new("quire_batch **")
        library = cache._library
        library.call(library.api.batch_create, cache, desc, out)
        super().__init__(library, out[0])

    def views(self, group: int = 0, shard: int = 0) -> Views:
        """The tables of a group on a shard. Errors: StaleError after a migration."""
        return Views(self, group, shard)

    def _bind(self, queues: Listed[Queue]) -> None:
        self._queues = queues
        self._counts: Dict[Tuple[int, int], _Counts] = {}

    def _place(self, layer: int, queue: Optional[Queue]) -> Tuple[int, int, Queue]:
        """(group, shard, queue) of a call. Errors: ArgumentError."""
        cache = self._cache
        if not 0 <= layer < len(cache.layer_groups):
            raise errors.ArgumentError(
                f"layer {layer}: the cache has {len(cache.layer_groups)}")
        if queue is None:
            if len(self._queues) != 1:
                raise errors.ArgumentError(
                    "no step has been committed into the batch" if not self._queues
                    else "the cache has several shards: name the queue")
            queue = self._queues[0]
        for shard, held in enumerate(cache.shards):
            if held.device is queue._device:
                return cache.layer_groups[layer], shard, queue
        raise errors.ArgumentError("the queue's device holds no shard of this cache")

    def _counts_of(self, group: int, shard: int) -> _Counts:
        """The token counts of the last commit, for the checks of operands."""
        if not self._queues:
            raise errors.ArgumentError("no step has been committed into the batch")
        known = self._counts.get((group, shard))
        if known is None:
            info = _read_views(self, group, shard)
            known = _Counts(int(info.write_tokens), int(info.query_tokens))
            self._counts[group, shard] = known
        return known

    def token_counts(self, group: int = 0, shard: int = 0) -> Tuple[int, int]:
        """(tokens whose K and V are written, tokens that attend) of the last commit."""
        counts = self._counts_of(group, shard)
        return counts.write_tokens, counts.query_tokens

    def _attention_of(self, group: int, shard: int) -> Attention:
        count = len(self._attention)
        if count == 0:
            raise errors.ArgumentError("the batch has no attention")
        groups = len(self._cache.groups)
        index = 0 if count == 1 else group if count == groups else shard * groups + group
        return self._attention[index]

    def kv_write(self, layer: int, k: Operand, v: Operand, *, q: Operand = None,
                 dtype: Any = None, queue: Optional[Queue] = None) -> None:
        """Enqueues a write of the new tokens' K and V of a layer into their slots.

        k, v   [tokens][kv_heads][head_dim]; in a latent group, the latent part and the rotated part
        q      the queries for attend, to be rotated in place; only if the batch has a rope
        dtype  of k and v if they are not arrays; None: f32
        """
        group, shard, queue = self._place(layer, queue)
        shape = self._cache.groups[group]
        heads = self._cache._heads(group, shard)
        v_dim = shape.head_dim if shape.v_head_dim is None else shape.v_head_dim
        k_dim = shape.head_dim
        if shape.kind == GroupKind.LATENT:
            k_dim, v_dim = v_dim, shape.head_dim - v_dim
        counts = self._counts_of(group, shard)
        element = dtype_of(dtype) or _element_of(k)
        checks = _Checks(queue, counts.write_tokens)
        args = new("quire_kv_args", layer=layer, dtype=element)
        args.k, args.k_token_stride = checks.address("k", k, heads * k_dim, element)
        args.v, args.v_token_stride = checks.address("v", v, heads * v_dim, element)
        if q is not None:
            attention = self._attention_of(group, shard)
            turned = _Checks(queue, counts.query_tokens)
            args.q, args.q_token_stride = turned.address(
                "q", q, attention.q_heads * shape.head_dim,
                dtype_of(attention.dtype) or DType.F32, writes=True)
            checks.used += turned.used
        queue._enqueue(checks.used, self._library.api.kv_write, self, args, queue)

    def attend(self, layer: int, q: Operand, out: Operand, *, lse: Operand = None,
               sinks: Operand = None, queue: Optional[Queue] = None) -> None:
        """Enqueues attention of the new tokens over their sequences.

        q      [tokens][q_heads][k_head_dim]
        out    [tokens][q_heads][v_head_dim], written
        lse    [tokens][q_heads] f32, written if given
        sinks  [q_heads] f32 for this layer, if the batch has sink logits
        """
        group, shard, queue = self._place(layer, queue)
        shape = self._cache.groups[group]
        attention = self._attention_of(group, shard)
        v_dim = shape.head_dim if shape.v_head_dim is None else shape.v_head_dim
        element = dtype_of(attention.dtype) or DType.F32
        heads = attention.q_heads
        checks = _Checks(queue, self._counts_of(group, shard).query_tokens)
        args = new("quire_attend_args", layer=layer)
        args.q, args.q_token_stride = checks.address("q", q, heads * shape.head_dim, element)
        args.out, args.out_token_stride = checks.address("out", out, heads * v_dim, element,
                                                         writes=True)
        if lse is not None:
            args.lse = checks.dense("lse", lse, checks.tokens * heads, writes=True)
        if sinks is not None:
            args.sinks = checks.dense("sinks", sinks, heads)
        queue._enqueue(checks.used, self._library.api.attend, self, args, queue)


def merge(queue: Queue, parts: Operand, lses: Operand, out: Operand, *,
          lse: Operand = None, shape: Optional[Tuple[int, int, int, int]] = None,
          dtype: Any = None) -> None:
    """Enqueues a merge of attention states over parts of a context into one state.

    parts  [part][token][head][head_dim];  lses  [part][token][head] f32
    out    [token][head][head_dim];        lse   [token][head] f32
    shape  of parts, if it is not an array; the same for dtype
    """
    if shape is None:
        if not isinstance(parts, np.ndarray) or parts.ndim != 4:
            raise errors.ArgumentError(
                "parts must have four dimensions: part, token, head, head_dim")
        shape = (parts.shape[0], parts.shape[1], parts.shape[2], parts.shape[3])
    part_count, token_count, heads, head_dim = shape
    element = dtype_of(dtype) or _element_of(parts)
    states = part_count * token_count * heads
    checks = _Checks(queue, token_count)
    args = new("quire_merge_args", part_count=part_count, token_count=token_count, heads=heads,
               head_dim=head_dim, dtype=element)
    args.parts = checks.dense("parts", parts, states * head_dim, element)
    args.lses = checks.dense("lses", lses, states)
    args.out = checks.dense("out", out, token_count * heads * head_dim, element, writes=True)
    if lse is not None:
        args.lse = checks.dense("lse", lse, token_count * heads, writes=True)
    queue._enqueue(checks.used, queue._library.api.attention_merge, queue, args)


def _as_array(name: str, operand: Operand) -> "np.ndarray[Any, Any]":
    """The operand as a numpy array, without a copy. Errors: ArgumentError."""
    if isinstance(operand, np.ndarray):
        return operand
    try:
        return np.from_dlpack(operand)
    except (AttributeError, TypeError, BufferError, RuntimeError, ValueError) as why:
        raise errors.ArgumentError(f"{name} is not an array: {why}") from None


def _element_of(operand: Operand) -> int:
    """The element type of an array; f32 for an address or a Memory."""
    if isinstance(operand, (int, Memory)):
        return int(DType.F32)
    array = _as_array("k, v or parts", operand)
    for kind in (DType.F32, DType.F16, DType.BF16):
        if holds(array, kind):
            return int(kind)
    raise errors.ArgumentError(f"elements are {array.dtype}; f32, f16 or bf16 is needed")


class _Checks:
    """Checks the size and type of the operands of one call, and finds their addresses. Errors are
    raised before anything is enqueued."""

    def __init__(self, queue: Queue, tokens: int):
        self.queue = queue
        self.tokens = tokens
        self.used: List[Any] = []

    def address(self, name: str, operand: Operand, row: int, element: int,
                writes: bool = False) -> Tuple[int, int]:
        """(address, elements from token to token) of [tokens][row]."""
        if isinstance(operand, (int, np.integer)):
            return int(operand), 0
        if isinstance(operand, Memory):
            return self._memory(name, operand, self.tokens * row, element), 0
        array = self._array(name, operand, element, writes)
        if array.ndim < 2 or array.shape[0] != self.tokens or math.prod(array.shape[1:]) != row:
            raise errors.ArgumentError(
                f"{name} has the shape {array.shape}, not ({self.tokens} tokens, {row} elements)")
        if self.tokens == 0:
            return array.ctypes.data, 0
        stride = array.strides[0]
        if not array[0].flags.c_contiguous or stride % array.itemsize != 0:
            raise errors.ArgumentError(
                f"{name} has gaps within a token: its strides are {array.strides} bytes")
        if self.tokens == 1:
            return array.ctypes.data, 0
        if stride < row * array.itemsize:
            raise errors.ArgumentError(
                f"{name}'s tokens overlap: its strides are {array.strides} bytes")
        return array.ctypes.data, stride // array.itemsize

    def dense(self, name: str, operand: Operand, count: int, element: int = DType.F32,
              writes: bool = False) -> int:
        """The address of `count` elements without gaps."""
        if isinstance(operand, (int, np.integer)):
            return int(operand)
        if isinstance(operand, Memory):
            return self._memory(name, operand, count, element)
        array = self._array(name, operand, element, writes)
        if array.size != count or not array.flags.c_contiguous:
            raise errors.ArgumentError(
                f"{name} has the shape {array.shape} and strides {array.strides}, not {count} "
                "contiguous elements")
        return int(array.ctypes.data)

    def _memory(self, name: str, memory: Memory, count: int, element: int) -> int:
        memory._pointer
        if memory._device is not self.queue._device:
            raise errors.ArgumentError(f"{name} is memory of another device")
        wanted = count * DType(element).bits // 8
        if memory.size_bytes < wanted:
            raise errors.ArgumentError(
                f"{name} has {memory.size_bytes} bytes; {wanted} are needed")
        self.used.append(memory)
        return memory.address

    def _array(self, name: str, operand: Operand, element: int,
               writes: bool) -> "np.ndarray[Any, Any]":
        if not self.queue._device._host_visible:
            raise errors.UnsupportedError(
                f"{name}: the host cannot reach this device's memory; give a quire.Memory")
        array = _as_array(name, operand)
        if not holds(array, element):
            raise errors.ArgumentError(
                f"{name} has elements of {array.dtype}, not {name_of(element)}")
        if writes and not array.flags.writeable:
            raise errors.ArgumentError(f"{name} is read-only")
        if array.ctypes.data % array.itemsize != 0:
            raise errors.ArgumentError(f"{name} is not aligned")
        self.used.append(array)
        return array
