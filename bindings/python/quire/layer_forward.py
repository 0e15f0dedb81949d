# SPDX-License-Identifier: Apache-2.0
"""layer_forward: the forward of a model that extends the rows of a QuireCache.

A layer is *paged* if its attention runs over the blocks: then update() returns only the new K and
V. It is *whole* if the model needs K and V as tensors, because it computes attention itself or
needs something that the blocks' attention lacks: then update() reads the old ones back. The first
forward, where new and all are the same, shows which of the two a layer is.

Invariants: (1) `length` counts a forward's columns once all layers have written theirs; (2) K and
V that were returned without the old ones are attended to over the blocks, or the forward ends in an
error; (3) a forward's ids are named only if all layers attended as the blocks' attention does.

Threads: one forward at a time of a cache and its copies.
"""

from __future__ import annotations

import dataclasses
import sys
import weakref
from typing import Any, Dict, List, Optional, Set, Tuple

import torch  # type: ignore[import-not-found, unused-ignore]

from .attention import Attention
from .batch import Batch
from .errors import ArgumentError, QuireError, StaleError, UnsupportedError
from .groups import Group, GroupKind
from .layer_calls import DTYPES
from .layer_masks import kind_of, new_tokens, shown, stands_for, version_of, visible_in
from .layer_prompts import Given, Prompts
from .layer_rows import LayerRows
from .layer_shapes import LayerShape
from .layer_store import LayerStore, scaled
from .layer_thread import begin_waiting, waiting_forward
from .step import Step

# Two orders of summation differ by less than this, two kinds of attention by more.
_CLOSE = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}


def _no_forward() -> None:
    """The forward of pools in which none runs."""


def forward_among(prompts: Prompts, arguments: List[Any]) -> Optional["LayerForward"]:
    """The forward of the cache that a model is called with, if its store has these hooks."""
    for argument in arguments:
        forward = getattr(argument, "forward", None)
        if isinstance(forward, LayerForward) and forward.store.prompts is prompts:
            return forward
    waiting = waiting_forward()
    if waiting is not None and waiting.store.prompts is prompts:
        waiting.drop_interrupted()  # the model has begun another forward since
    return None


class LayerForward(LayerRows):
    """The rows of a cache, and their forward."""

    def __init__(self, store: LayerStore):
        LayerRows.__init__(self, store)
        self.closed = False
        self.known = store.known  # what the forwards so far have shown of the layers
        self.dtype = torch.float32  # of the model's K and V
        self.broken = False  # linear states have advanced in a forward that was interrupted
        self.before = 0      # columns that the running forward has found
        self.layers = {i for i, shape in enumerate(store.shapes) if shape is not None}
        self._clear()

    @property
    def length(self) -> int:
        """The columns whose tokens all layers have. What decides it changes in one step, so that an
        interrupt cannot come between."""
        if self.new is None:
            return self.seen.shape[1]  # type: ignore[no-any-return]
        added: int = self.new.shape[1] if self.written == self.layers else 0
        return self.before + added

    def _clear(self) -> None:
        self.step: Optional[Step] = None
        self.batch: Optional[Batch] = None
        self.attention: Optional[Tuple[Attention, ...]] = None  # one per group
        self.new: Any = None                       # [row][new column], which have a token
        self.counts: List[int] = []
        self.full = False                          # all new columns have one
        self.pending: Optional[Tuple[int, Any, Any]] = None
        self.alone = False                         # pending was returned without the old K and V
        self.written: Set[int] = set()
        self.replay: Dict[int, Tuple[Any, Any]] = {}
        self.checked: Dict[Any, Tuple[Any, bool]] = {}
        self.given: Optional[Given] = None         # what the model was called with
        self.ids: Any = None                       # [row][new column], if they decide K and V
        self.plain: Set[int] = set()               # layers whose mask is the blocks'
        self.odd = False                           # a layer had another mask
        self.weighs: Optional[bool] = None         # attention weights are to be returned
        self.stood_in = False                      # masks were replaced by stand-ins
        if self.store.active() is self:
            self.store.active = _no_forward

    # The course of a forward.

    def announce(self, given: Given) -> None:
        """The model is called with this cache."""
        self.rest()
        self.given = given

    def check_result(self, out: Any) -> None:
        """Errors: UnsupportedError, the model has used a stand-in for a mask elsewhere."""
        if self.stood_in and isinstance(out[0], torch.Tensor) and out[0].dim() == 3 and bool(
                out[0][:, -1].isnan().any()):
            self.known.direct = False
            raise UnsupportedError("the model's result is NaN. It may have used a mask outside of "
                                   "its attention: reset the cache and call it again, then all "
                                   "masks are made")

    def rest(self) -> None:
        """Ends the last forward, from outside of one."""
        self.drop_interrupted()
        self.settle()

    def drop_interrupted(self) -> None:
        """Ends a forward that an exception has ended early; nothing of it is kept."""
        begun = self.new is not None or self.pending is not None
        written = self.written
        if self.pending is not None and not self.alone:
            written = written | {self.pending[0]}
        if begun and written != self.layers and self.given is not None and not self.given.done:
            self._undo()
            self.broken = self.store.linear_states

    def settle(self) -> None:
        """Ends the last forward. Errors: ArgumentError, it did not reach all layers; nothing of it
        is kept."""
        if self.pending is not None and not self.alone:
            self._flush()
        begun = self.new is not None or self.pending is not None
        reached = self.written == self.layers and self.pending is None
        self._undo()
        if begun and not reached:
            self.broken = self.store.linear_states
            raise ArgumentError("the last forward did not reach all layers: it was interrupted, or "
                                "the model's layers are not those of its config; nothing of it is "
                                "kept, and the cache can go on from before")

    def _undo(self) -> None:
        """Ends the last forward; one that did not reach all layers leaves nothing."""
        self.finish()
        if self.new is not None and self.written == self.layers:
            decided = self.plain >= self.layers and not self.odd
            ids, new, named = self.ids, self.new, self.named and decided
            self.named = False  # if an interrupt comes now, they have no ids
            self._clear()
            if named and ids is not None:
                self._name(ids, new)
                self.named = True
        elif self.new is not None:
            self._take_back()
        self._clear()

    def _take_back(self) -> None:
        """Leaves what there was before the forward; a failed step leaves tokens to be computed."""
        kept = [int(count) for count in self.seen[:, :self.before].sum(1)]
        for sequence, count, added in zip(self.sequences, kept, self.counts):
            if added:
                sequence.truncate(count)
        self.seen = self.seen[:, :self.before]
        if self.before == 0:
            self._end_all()

    def update(self, layer: int, keys: Any, values: Any) -> Tuple[Any, Any]:
        """Takes a layer's new K and V; returns what attention is to be called with."""
        self._check(layer, keys, values)
        if self.broken:
            raise ArgumentError("an interrupted forward has changed the linear states of this "
                                "model, which cannot be taken back: reset the cache")
        if self.pending is not None and self.pending[0] != layer:
            if self.alone:
                self._refuse(f"layer {self.pending[0]} computes attention in another way than in "
                             "the first forward")
            self._flush()
        if layer in self.written or self.written == self.layers or self.pending is not None:
            self.settle()
        if not self.written and layer != min(self.layers):
            raise ArgumentError(f"layer {layer} was called first: a forward begins with layer "
                                f"{min(self.layers)}")
        self.dtype = keys.dtype
        old, whole = self.length > 0, layer in self.known.whole
        self.pending, self.alone = (layer, keys, values), old and not whole
        begin_waiting(self)
        return self.joined(layer, keys, values) if old and whole else (keys, values)

    def finish(self) -> None:
        """Says that all of the forward's work is enqueued."""
        if self.step is not None:
            try:
                if not self.step.ended:
                    self.step.finish()
            except StaleError:
                pass  # it was finished, and then an interrupt came
            self.step = None

    def _refuse(self, why: str) -> None:
        self._undo()
        raise UnsupportedError(why)

    def _check(self, layer: int, keys: Any, values: Any) -> None:
        if layer not in self.layers:
            raise UnsupportedError(f"layer {layer} keeps no K and V according to the config")
        if keys.requires_grad or values.requires_grad:
            raise UnsupportedError("K and V need a gradient, which is not computed here: use "
                                   "torch.no_grad()")
        if self.full and keys.dtype is values.dtype is self.dtype and keys.is_cpu and (
                len(keys.shape) == 4 and keys.shape[:3] == values.shape[:3]
                and keys.shape[0] == len(self.sequences)):
            return  # as in the layer before
        if keys.dim() != 4 or values.dim() != 4 or keys.shape[:3] != values.shape[:3]:
            raise UnsupportedError(f"K of the shape {tuple(keys.shape)} and V of "
                                   f"{tuple(values.shape)} in layer {layer} are not supported")
        if keys.dtype != values.dtype or keys.dtype not in DTYPES:
            raise UnsupportedError(f"K of {keys.dtype} and V of {values.dtype} are not supported")
        if keys.device.type != "cpu":
            raise UnsupportedError(f"K on {keys.device}: only host tensors are supported")
        if self.sequences and len(self.sequences) != keys.shape[0]:
            raise ArgumentError(f"{keys.shape[0]} rows, but the cache holds "
                                f"{len(self.sequences)}")

    def begin(self, rows: int, columns: int, new: Any,
              attention: Optional[Tuple[Attention, ...]]) -> None:
        """Begins the forward's step, as attention() or _flush() find what it is like."""
        other = self.store.active()
        if other is not None and other is not self:
            other.rest()
        if new is None:
            new = torch.ones(rows, columns, dtype=torch.bool)
        self._check_expected(self.given, new)
        if not self.sequences:
            self._create(rows, None if self.given is None else self.given.key or None)
        self.before = self.length
        self.new, self.counts = new, new.sum(1).tolist()
        self.full = min(self.counts, default=0) == new.shape[1]
        if any(self.counts):
            attention = self._available(attention)
            self.store.active = weakref.ref(self)
            try:
                self.step, self.batch = self.store.begin(self.sequences, self.counts, attention)
            except BaseException:
                if self.step is not None:
                    self.step.undo()
                self._take_back()
                self._clear()
                raise
        self.attention = attention
        self.seen = torch.cat([self.seen[:, :self.before], new], 1)
        self.ids = self._ids_of(self.given, new, self.seen)

    def _available(self, attention: Optional[Tuple[Attention, ...]]) -> Any:
        """The attention, or None if the backend has no such attention."""
        try:
            self.store.batch(attention, len(self.counts), sum(self.counts))
        except (UnsupportedError, ArgumentError):
            return None
        return attention

    def attentions(self, layer: int, wanted: Attention) -> Tuple[Attention, ...]:
        """The attention of each group, if this layer wants that."""
        known = self.known.wanted
        mine = self.store.group_of(layer)
        if mine not in known:
            known[mine] = wanted
        return tuple(known.get(number) or _guess(group, wanted)
                     for number, group in enumerate(self.store.blocks.groups))

    def flush_last(self) -> None:
        """Writes K and V of the last layer, if its model does not call attention()."""
        if self.pending is not None and not self.alone:
            if self.written | {self.pending[0]} == self.layers:
                self._flush()

    def _flush(self, new: Any = None, attention: Optional[Attention] = None) -> None:
        """Writes the pending K and V."""
        if self.pending is None:
            return
        layer, keys, values = self.pending
        if self.new is None:
            self.begin(keys.shape[0], keys.shape[2], new,
                       None if attention is None else self.attentions(layer, attention))
        self._fit(layer, keys, values, attention)
        if not self.known.learned:
            self.replay[layer] = keys, values
        if self.batch is not None:
            self.store.write(self.batch, layer, self.rows(keys), self.rows(values))
        whole = attention is None
        if whole:
            self.known.whole.add(layer)
        self.count_written(layer)
        if whole and self.written == self.layers:
            self.finish()

    def count_written(self, layer: int) -> None:
        """The pending K and V are in the blocks."""
        self.pending, self.alone = None, False
        self.written.add(layer)
        if self.written == self.layers:
            self.known.learned = True
            self.replay = {}

    def _fit(self, layer: int, keys: Any, values: Any, attention: Optional[Attention]) -> None:
        """Corrects the pools in the first forward, if the layer is not as its config says."""
        shape = self.store.shapes[layer]
        assert shape is not None
        found = LayerShape(shape.kind, shape.window, keys.shape[1], keys.shape[3], values.shape[3])
        if found == shape:
            return
        if shape.kind == GroupKind.LATENT:
            found = dataclasses.replace(found, kind=GroupKind.FULL)
        if self.known.learned or self.length or self.store.users > 1:
            self._refuse(f"layer {layer} gives {found.kv_heads} heads of {found.k_dim} and "
                         f"{found.v_dim}; until now they were {shape.kv_heads} of {shape.k_dim} "
                         f"and {shape.v_dim}")
        shapes = list(self.store.shapes)
        for other in self.layers:
            if shapes[other] == shape and other not in self.written:
                shapes[other] = found
        if self.step is not None:
            self.step.finish()
            self.step = None
        for sequence in self.sequences:
            sequence.end()
        self.store.reshape(shapes)
        seen = self.seen
        self._create(len(self.counts), self.key if self.named else None)
        self.seen = seen
        if any(self.counts):
            wanted = None if attention is None else self.attentions(layer, attention)
            self.attention = self._available(wanted)
            self.step, self.batch = self.store.begin(self.sequences, self.counts, self.attention)
        for old, (k, v) in self.replay.items():
            if self.batch is not None:
                self.store.write(self.batch, old, self.rows(k), self.rows(v))

    def rows(self, states: Any) -> Any:
        """[row][head][column][dim] as [token][head][dim], of the columns that have a token."""
        states = states.detach().resolve_neg().transpose(1, 2)
        if self.full:
            return states.flatten(0, 1).contiguous()
        return states[self.new].contiguous()

    # Attention.

    def called_by(self, module: Any) -> None:
        """A module calls attention. Errors: UnsupportedError, it is not the model's whose K and V
        find() has found."""
        prompts = self.store.prompts
        if prompts is not None and not prompts.holds(module):
            self.odd = True
            if self.found:
                raise UnsupportedError("the attention is not that of the model that the "
                                       "QuireCache was made from")

    def attend(self, layer: int, query: Any, mask: Any, scaling: Optional[float],
               soft_cap: Optional[float], sinks: Any, whole: bool) -> Any:
        """Attention over the blocks. None: the blocks' attention does not compute this.

        whole  the layer needs more than the blocks' attention has
        """
        wanted = Attention(q_heads=query.shape[1], dtype=str(query.dtype).rpartition(".")[2],
                           scale=scaling, soft_cap=soft_cap, sink_logits=sinks is not None)
        columns = query.shape[2]
        if self.pending is not None and self.pending[0] == layer:
            visible = visible_in(mask) if self.new is None else None
            new = None
            if visible is not None:
                new = new_tokens(visible, query.shape[0], columns)
            self._flush(new, wanted)
        shape = self.store.shapes[layer]
        assert shape is not None
        if layer not in self.written or self.new.shape[1] != columns:
            self.known.whole.add(layer)
            self.odd = True
            return None
        same = self.matches(layer, mask)
        self.odd |= not same
        if same:
            self.plain.add(layer)
        group = self.store.group_of(layer)
        if (whole or not same or self.attention is None or layer in self.known.whole
                or query.shape[3] != shape.query_dim):
            self.known.whole.add(layer)
            return None
        if not _alike(self.attention[group], wanted):
            if self.known.learned and self.known.wanted.get(group) is not None:
                self.known.whole.add(layer)
            else:
                self.known.wanted[group] = wanted  # from the next forward on
            return None
        return self._over_blocks(layer, query, scaling, sinks)

    def expects(self, layer: int, mask: Any) -> bool:
        """True if the layer can take the mask, or what stands for it, as it is."""
        shape = self.store.shapes[layer]
        return stands_for(mask) in (None, shape and shape.seen_as)

    def needs_no_mask(self, layer: int, options: Dict[str, Any]) -> Any:
        """(kind, window) if the mask that transformers is about to make for such layers is the
        blocks' own, and no layer will need it. None: it is to be made."""
        known, shape = self.known, self.store.shapes[layer]
        if (self.given is None or shape is None or not known.learned or not known.direct
                or known.whole or not known.proven >= self.layers or self.store.shared
                or self.store.linear_states or torch.compiler.is_compiling()):
            return None
        kind = kind_of(options.get("mask_function"))
        first, columns = shape.first_column(self.length), options["q_length"]
        padding = options.get("attention_mask")
        if (kind is None or kind != shape.seen_as or options.get("q_offset") != self.length
                or options.get("kv_offset") != first
                or options.get("kv_length") != self.length - first + columns
                or not bool(self.seen[:, :self.length].all())
                or padding is not None and not bool(padding.all())):
            return None
        self.stood_in = True
        return kind

    def prove(self, layer: int, out: Any, own: Any) -> bool:
        """True if the last tokens' attention is what the model's own attention gives. If not, the
        layer is whole from now on."""
        rows = self.new[:, -1]
        if not bool(rows.any()):
            return True  # nothing to compare yet
        close = bool(torch.allclose(out[rows, -1].float(), own[rows, -1].float(),
                                    rtol=_CLOSE[out.dtype], atol=_CLOSE[out.dtype]))
        (self.known.proven if close else self.known.whole).add(layer)
        return close

    def _over_blocks(self, layer: int, query: Any, scaling: Optional[float], sinks: Any) -> Any:
        shape = self.store.shapes[layer]
        assert shape is not None and self.attention is not None
        rows, heads, columns, _ = query.shape
        if self.batch is not None and self.store.active() is not self:
            raise ArgumentError("a copy of this cache has begun a forward during this one")
        has = self.attention[self.store.group_of(layer)]
        factor = scaled(has, scaling, shape.query_dim)
        flat = self.rows(query if factor is None else query * factor)
        out = torch.empty(len(flat), heads, shape.out_dim, dtype=query.dtype)
        if self.batch is not None:
            if sinks is None and has.sink_logits:
                sinks = torch.full((heads,), -torch.inf)  # the layer has none
            self.store.attend(self.batch, layer, flat, out,
                              None if sinks is None else sinks.detach().float().contiguous())
            if self.written == self.layers and not self.store.shared:
                self.finish()
        if self.full:
            return out.view(rows, columns, heads, shape.out_dim)
        padded = torch.zeros(rows, columns, heads, shape.out_dim, dtype=query.dtype)
        padded[self.new] = out
        return padded

    def _span(self, layer: int) -> Tuple[int, int]:
        """(first column, number of columns) that a mask of the running forward describes."""
        shape = self.store.shapes[layer]
        assert shape is not None
        old = self.before
        first = shape.first_column(old)
        return first, self.seen.shape[1] - first

    def matches(self, layer: int, mask: Any) -> bool:
        """True if the mask shows what the blocks' attention shows to each token."""
        shape = self.store.shapes[layer]
        assert shape is not None
        version = 0 if mask is None else version_of(mask)
        key = id(mask), version, shape.kind, shape.window
        if key in self.checked and version is not None:
            return self.checked[key][1]
        first, count = self._span(layer)
        if stands_for(mask) is not None:
            return stands_for(mask) == shape.seen_as
        visible = visible_in(mask)
        expected = shown(shape, self.seen, self.new.shape[1])[:, :, first:]
        if mask is None:
            visible = torch.ones(1, 1, count, dtype=torch.bool)
        same = visible is not None and visible.shape[-1] >= count and bool(
            ((visible[..., :count] == expected) | ~self.new[:, :, None]).all())
        self.checked[key] = mask, same  # the mask lives as long as its id is a key
        return same

    # Whole tensors.

    def joined(self, layer: int, keys: Any, values: Any) -> Tuple[Any, Any]:
        """The old K and V of a layer, followed by these."""
        shape = self.store.shapes[layer]
        assert shape is not None
        old = self.length if self.new is None else self.before
        past = self.stored(layer, shape.first_column(old), old, keys.dtype)
        return torch.cat([past[0], keys], 2), torch.cat([past[1], values], 2)

    def whole_layer(self, layer: int) -> Any:
        """K and V of a layer's columns that the next token may see, outside of a forward.
        (None, None): there are none."""
        self.rest()
        if not self.sequences:
            return None, None
        shape = self.store.shapes[layer]
        assert shape is not None
        return self.stored(layer, shape.first_column(self.length), self.length, self.dtype)

    def stored(self, layer: int, first: int, end: int, dtype: Any) -> Tuple[Any, Any]:
        """K and V of a layer's columns [first, end), read back; zeros in padding."""
        shape = self.store.shapes[layer]
        assert shape is not None
        rows = len(self.sequences)
        keys = torch.zeros(rows, end - first, shape.kv_heads, shape.k_dim, dtype=dtype)
        values = torch.zeros(rows, end - first, shape.kv_heads, shape.v_dim, dtype=dtype)
        self.store.queue.sync()
        for row, sequence in enumerate(self.sequences):
            held = self.seen[row, :end]
            begin, count = int(held[:first].sum()), int(held.sum())
            if begin < count:
                k, v = self.store.read(layer, sequence, begin, count)
                keys[row, held[first:]] = k.to(dtype)
                values[row, held[first:]] = v.to(dtype)
        return keys.transpose(1, 2), values.transpose(1, 2)

    def rounded(self, layer: int, given: Any) -> Tuple[Any, Any]:
        """K and V of a layer as the blocks hold them, of the columns that a mask describes.

        given  the new (K, V), of which they may differ by the rounding of the pool's type
        """
        first, _ = self._span(layer)
        stored = self.stored(layer, first, self.seen.shape[1], given[0].dtype)
        columns = self.new.shape[1]
        has = self.new[:, None, :, None]
        self.store.check_rounding(layer, [part * has for part in given],
                                  [part[:, :, -columns:] for part in stored])
        return stored

    def hidden(self, layer: int, mask: Any) -> bool:
        """True if no new token is to see an old column that has no token in the blocks."""
        first, count = self._span(layer)
        old = count - self.new.shape[1]
        gaps = ~self.seen[:, None, first:first + old]
        if not bool(gaps.any()):
            return True
        visible = visible_in(mask, biased=True)
        return visible is not None and not bool((visible[..., :old] & gaps).any())

    # Ends.

    def reset(self) -> None:
        self._undo()
        self._end_all()
        self.broken = False

    def fork(self) -> "LayerForward":
        """A copy whose rows share their blocks with these."""
        self.rest()
        copied = self.sibling()
        copied.sequences = [sequence.fork() for sequence in self.sequences]
        copied.seen = self.seen.clone()
        copied.named, copied.key = self.named, self.key
        copied.found, copied.expected = self.found, self.expected
        return copied

    def sibling(self) -> "LayerForward":
        """An empty one over the same blocks."""
        self.store.users += 1
        return LayerForward(self.store)

    def __del__(self) -> None:
        """Closes what was not closed, unless the process ends: PyTorch may abort it then."""
        if sys is None or sys.is_finalizing():  # a module's names may be gone by then
            return
        try:
            self.close()
        except QuireError:
            pass  # the device or the pools are gone

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            try:
                self.reset()
            finally:
                self.store.leave()


def _alike(has: Attention, wanted: Attention) -> bool:
    """True if they differ at most in the scale, which the query can be multiplied by, and in sink
    logits, which can be -inf."""
    return (has.q_heads, has.dtype, has.soft_cap) == (
        wanted.q_heads, wanted.dtype, wanted.soft_cap) and (
        has.sink_logits or not wanted.sink_logits)


def _guess(group: Group, wanted: Attention) -> Attention:
    """The attention of a group that no layer has called for yet."""
    heads = wanted.q_heads if wanted.q_heads % group.kv_heads == 0 else group.kv_heads
    scale = (wanted.scale or 1.0) if group.kind == GroupKind.LATENT else wanted.scale
    return dataclasses.replace(wanted, q_heads=heads, scale=scale)
