# SPDX-License-Identifier: Apache-2.0
"""layer_rows: the rows of a QuireCache between forwards, and the token ids that they have.

A row's tokens lie in columns, as in transformers: [row][column]. A padded column has no token, so
it is in no block. `seen` says which columns have one.

Tokens enter the blocks without ids. A forward's ids are named once it has ended and it is certain
that they decide K and V (layer_prompts); from then on other caches of the store find them.

Invariants: (1) a sequence has as many tokens as its row of `seen`, between forwards; (2) if
`named`, all of these tokens have ids, and `key` is what their K and V were computed with.
"""

from __future__ import annotations

from typing import Any, List, Optional, Set

import numpy as np
import torch  # type: ignore[import-not-found, unused-ignore]

from . import elements
from .errors import ArgumentError, UnsupportedError
from .layer_prompts import Given
from .layer_store import LayerStore
from .sequence import Key, KeyType, Sequence
from .step import RUN, Item

class LayerRows:
    """The rows of a cache."""

    def __init__(self, store: LayerStore):
        self.store = store
        self.sequences: List[Sequence] = []
        self.seen = torch.zeros(0, 0, dtype=torch.bool)
        self.named = False
        self.key = b""
        self.found = 0            # columns that find() found
        self.expected: Any = None  # the ids that find() was given

    @property
    def length(self) -> int:
        """The columns whose tokens all layers have."""
        return self.seen.shape[1]  # type: ignore[no-any-return]

    def rest(self) -> None:
        """Ends the last forward; implemented with the forward."""
        raise NotImplementedError

    def _create(self, rows: int, key: Optional[bytes]) -> None:
        """Makes `rows` empty sequences, whose tokens are found by ids if there is a key."""
        self.named, self.key = key is not None, key or b""
        keys = [Key(KeyType.ADAPTER, self.key)] if self.key else []
        self.sequences = [self.store.blocks.sequence(keys=keys) for _ in range(rows)]
        self.seen = torch.zeros(rows, 0, dtype=torch.bool)

    # Token ids.

    def find(self, ids: Any, seen: Any) -> int:
        """Takes over what the blocks hold of these prompts; returns the columns found.

        ids, seen  [row][column]; seen: which columns have a token
        """
        other = self.store.active()
        if other is not None:
            other.rest()  # names what it has computed
        self.rest()
        if self.sequences:
            raise ArgumentError("the cache already holds tokens: look a prompt up in an empty one")
        prompts = self.store.prompts
        if prompts is None:
            raise ArgumentError("prompts cannot be looked up: the QuireCache was made from a "
                                "config and not from the model, or the model has an encoder, or "
                                "its embedding and layers were not found")
        key = prompts.fresh_key()
        if key is None or self.store.linear_states or ids.shape[1] < 2:
            return 0
        self._create(len(ids), key)
        try:
            found = self._take(ids, seen)
        except BaseException:
            self._end_all()
            raise
        if found == 0:
            self._end_all()
        else:
            self.found, self.expected = found, ids.clone()
        return found

    def _take(self, ids: Any, seen: Any) -> int:
        """The columns for which every row has found its tokens, which it then holds."""
        tokens = [_tokens_of(row, flags) for row, flags in zip(ids, seen)]
        columns: int = ids.shape[1] - 1  # the last one is always computed
        hits = []
        for sequence, words, flags in zip(self.sequences, tokens, seen):
            hits.append(sequence.probe(words) if len(words) else 0)
            places = flags.nonzero().reshape(-1)
            if hits[-1] < len(places):
                columns = min(columns, int(places[hits[-1]]))
        counts = [int(count) for count in seen[:, :columns].sum(1)]
        # The unknown token ends the lookup; it is taken back.
        items = [Item(sequence, tokens=np.append(words[:hit], np.uint32(elements.UNKNOWN)))
                 for sequence, words, hit, count in zip(self.sequences, tokens, hits, counts)
                 if count]
        if not items:
            return 0
        step = self.store.blocks.begin(items, queue=self.store.queue)
        try:
            if any(result["outcome"] != RUN for result in step.results):
                step.abort()
                return 0
            step.commit()
        except BaseException:
            step.undo()
            raise
        step.finish()
        for sequence, count in zip(self.sequences, counts):
            if count:
                sequence.truncate(count)
                if sequence.info.computed_tokens != count:
                    return 0  # a window has passed, or blocks were evicted meanwhile
        self.seen = seen[:, :columns].clone()
        return columns

    def _check_expected(self, given: Optional[Given], new: Any) -> None:
        """Errors: ArgumentError if a forward does not continue what find() was given."""
        if not self.found:
            return
        if given is None:
            raise UnsupportedError("this forward is not one of the model that the QuireCache was "
                                   "made from, whose K and V prefix() has found")
        if given.key != self.key:
            raise ArgumentError("the model's weights or adapters have changed since prefix()")
        first = self.length
        end = 0 if self.expected is None else min(first + new.shape[1], self.expected.shape[1])
        if given.ids is None or first >= end or given.ids.shape != new.shape:
            return
        mine = given.ids[:, :end - first] == self.expected[:, first:end]
        if not bool((mine | ~new[:, :end - first]).all()):
            raise ArgumentError("the model was given other tokens than those that prefix() was: "
                                "give prefix() the whole prompt that generate() gets")

    def _ids_of(self, given: Optional[Given], new: Any, seen: Any) -> Any:
        """[row][new column] ids that decide K and V. None: no ids do."""
        if given is None or given.ids is None or not self.named or given.key != self.key:
            return None
        looked_up = given.seen()
        if looked_up is None or given.ids.shape != new.shape or (
                looked_up is not given.ids and not torch.equal(looked_up, given.ids)):
            return None
        places = seen.long().cumsum(1)[:, -new.shape[1]:] - 1
        if given.positions is None:
            if not bool(seen.all()):
                return None
            if given.pads is not None and bool((given.ids == given.pads).any()):
                return None  # some models count the tokens that are not padding
        elif not _are_places(given.positions, places, new):
            return None
        return given.ids

    def _name(self, ids: Any, new: Any) -> None:
        """Names the tokens of the forward that has ended."""
        before = self.seen[:, :self.length - new.shape[1]].sum(1).tolist()
        words: List[int] = []
        rows = []
        # A step has few tokens, for which loops are faster than calls of torch and numpy.
        for sequence, row, flags, count in zip(self.sequences, ids.tolist(), new.tolist(), before):
            mine = [word for word, has in zip(row, flags) if has]
            if mine:
                rows.append((sequence.handle, count, len(words), len(mine)))
                words += mine
        if rows:
            _check_range(min(words), max(words))
            spans = np.zeros(len(rows), elements.SPAN)
            (spans["seq"], spans["position"], spans["token_offset"],
             spans["token_count"]) = zip(*rows)
            self.store.blocks.set_tokens(spans, np.array(words, np.uint32))

    # Changes of the rows.

    def crop(self, length: int) -> None:
        """Keeps the first columns. Errors: UnsupportedError if a window has passed them."""
        self.rest()
        if not self.sequences or length >= self.length:
            return
        counts = [int(count) for count in self.seen[:, :length].sum(1)]
        short = [s.fork(count) for s, count in zip(self.sequences, counts)]
        if any(s.info.computed_tokens != count for s, count in zip(short, counts)):
            for sequence in short:
                sequence.end()
            raise UnsupportedError(f"the cache cannot go back to {length} tokens: a window has "
                                   "passed what the next one sees")
        self._replace(short)
        self.seen = self.seen[:, :length]
        if length == 0:
            self._end_all()

    def pick(self, indices: List[int]) -> None:
        """Row i continues what row indices[i] was; one that continues several times is forked."""
        self.rest()
        if not self.sequences:
            return
        used: Set[int] = set()
        picked = []
        for index in indices:
            sequence = self.sequences[index]
            picked.append(sequence.fork() if index in used else sequence)
            used.add(index)
        self._replace(picked)
        self.seen = self.seen[torch.tensor(indices, dtype=torch.long)]
        self.expected = None

    def _replace(self, sequences: List[Sequence]) -> None:
        for sequence in self.sequences:
            if sequence not in sequences:
                sequence.end()
        self.sequences = sequences

    def _end_all(self) -> None:
        self._replace([])
        self.seen = torch.zeros(0, 0, dtype=torch.bool)
        self.named, self.key, self.found, self.expected = False, b"", 0, None


def _tokens_of(ids: Any, flags: Any) -> "np.ndarray[Any, Any]":
    """The ids that the flags choose, as the library's tokens."""
    chosen = ids[flags]
    if chosen.numel():
        _check_range(int(chosen.min()), int(chosen.max()))
    return chosen.numpy().astype(np.uint32)  # type: ignore[no-any-return]


def _check_range(least: int, most: int) -> None:
    if least < 0 or most >= elements.UNKNOWN:
        raise ArgumentError(f"token ids are from 0 to {elements.UNKNOWN - 1}")


def _are_places(positions: Any, places: Any, new: Any) -> bool:
    """True if the new tokens' positions, of every kind, are their places."""
    if not isinstance(positions, torch.Tensor) or positions.dim() not in (1, 2, 3):
        return False
    if positions.shape[-1] != places.shape[1]:
        return False
    try:
        return bool(((positions == places) | ~new).all())
    except RuntimeError:  # of another shape
        return False
