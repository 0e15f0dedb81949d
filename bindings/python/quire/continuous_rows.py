# SPDX-License-Identifier: Apache-2.0
"""continuous_rows: the requests of transformers' continuous batching as sequences in the blocks.

transformers' scheduler asks for one request after the other whether its next tokens can be stored.
Each question is an item of one open step: an item that runs is the answer yes, one that waits
leaves no trace. The forward of the batch commits the step, and its last layer finishes it.

A request's tokens are added with their ids, so the library finds them for later requests. Other
weights and adapters are other keys. A request whose weights change while it runs (the manager's
pause()) goes on without ids from there.

Invariants: (1) `planned` has the rows of the step, in its order; (2) between forwards a row's
`length` is what its sequence has computed.

Threads: the manager's generation thread, or any other while none runs.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

import numpy as np

from . import elements
from .batch import Batch
from .errors import ArgumentError, LimitError, UnsupportedError
from .layer_store import LayerStore
from .sequence import Key, KeyType, Sequence
from .step import RUN, Item, Step


_PENDING = 0  # of transformers' RequestStatus: the request waits


class Row:
    """A request's sequence.

    state   transformers' own record of the request. None: a fork that was not scheduled yet
    found   tokens that a lookup found; they are taken with the first item
    length  tokens computed
    adding  tokens of the item in the step
    """

    __slots__ = ("sequence", "state", "key", "found", "length", "adding")

    def __init__(self, sequence: Sequence, state: Any, key: Optional[bytes], length: int = 0):
        self.sequence, self.state, self.key = sequence, state, key
        self.found, self.length, self.adding = 0, length, 0


class ContinuousRows:
    """The requests of one manager at a time. REQUIRES: the store has no other user."""

    def __init__(self, store: LayerStore):
        self.store = store
        self.rows: Dict[str, Row] = {}
        self.planned: List[Row] = []
        self._step: Optional[Step] = None
        self._committed = False
        self._scheduled = 0  # rows of `planned` that transformers has listed
        self._lost_hit = False
        self._key: Optional[bytes] = None  # of the step: what its blocks are published under

    # Lookups.

    @property
    def shares(self) -> bool:
        """True if prompts can be found again."""
        return self._read_key() is not None

    def _read_key(self) -> Optional[bytes]:
        prompts = self.store.prompts
        return None if prompts is None else prompts.key()

    def find(self, request: str, ids: List[int]) -> int:
        """How many tokens of a new request's prompt the blocks hold, at least one less than it has.
        If there are any, the request has a row from now on."""
        self._open()
        if self._key is None or len(ids) < 2:
            return 0
        sequence = self._sequence()
        found = sequence.probe(_words(ids[:-1]))
        if found == 0:
            sequence.end()
            return 0
        self._add(request, Row(sequence, None, self._key)).found = found
        return found

    def _sequence(self) -> Sequence:
        keys = [] if self._key is None else [Key(KeyType.ADAPTER, self._key)]
        return self.store.blocks.sequence(keys=keys)

    def _add(self, request: str, row: Row) -> Row:
        if request in self.rows:
            row.sequence.end()
            raise UnsupportedError(f"the request {request!r} was added while another of this name "
                                   "runs")
        self.rows[request] = row
        return row

    # The step.

    def _open(self) -> Step:
        self.settle()
        if self._step is None:
            self._key = self._read_key()
            self._step = self.store.blocks.begin([], queue=self.store.queue)
        return self._step

    def reserve(self, state: Any, count: int) -> bool:
        """Plans the next `count` tokens of a request. False: blocks are missing."""
        step = self._open()
        row = self.rows.get(state.request_id)
        if row is None:
            row = self._add(state.request_id, Row(self._sequence(), state, self._key))
        elif row.state is None:
            row.state = state
        elif row.state is not state:
            raise UnsupportedError(f"the request {state.request_id!r} was added while another of "
                                   "this name runs")
        if row.adding or state.current_len() != (row.length or row.found):
            raise ArgumentError(f"the request {state.request_id!r} is at token "
                                f"{state.current_len()}, its blocks hold {row.length}")
        if count == 0:
            return True
        result = step.add([self._item(row, count)])[0]
        if result["outcome"] != RUN:
            if int(state.status) == _PENDING:
                self.free(state.request_id)  # it holds nothing, and may be dropped unheard
            return False
        if row.length == 0 and int(result["first_position"]) != row.found:
            step.drop(row.sequence)
            self._forget_hit(row)
            return False
        row.adding = count
        self.planned.append(row)
        return True

    def _item(self, row: Row, count: int) -> Item:
        first, state = row.length, row.state
        end = (row.length or row.found) + count
        prompt, sampled = state.initial_tokens, state.generated_tokens
        ids = prompt[first:end]
        if end > len(prompt):
            ids = ids + sampled[max(0, first - len(prompt)):end - len(prompt)]
        if len(ids) != end - first:
            raise UnsupportedError(f"tokens {first} to {end} of {state.request_id!r} are not "
                                   "known yet: asynchronous batching is not supported")
        words = _words(ids)
        if row.key != self._key:
            row.key = None  # the weights are others now
        if row.key is None:
            words = np.full(len(words), elements.UNKNOWN, np.uint32)
        return Item(row.sequence, tokens=words, max_hit_tokens=row.found or elements.NO_HITS)

    def _forget_hit(self, row: Row) -> None:
        """What a lookup found was evicted before it was taken: the prompt is computed anew."""
        row.found = 0
        row.state.position_offset = 0
        row.state.remaining_prefill_tokens = list(row.state.initial_tokens)
        self._lost_hit = True

    def lost_hit(self) -> bool:
        """True if a request was refused since the last call that fits when it is asked again."""
        lost, self._lost_hit = self._lost_hit, False
        return lost

    def storable(self, wanted: List[Tuple[str, int]]) -> int:
        """How many of these (request, tokens) have room, one after the other. Plans nothing."""
        planned = len(self.planned)
        count = 0
        for request, tokens in wanted:
            row = self.rows.get(request)
            if row is None or not self.reserve(row.state, tokens):
                break
            count += 1
        for row in reversed(self.planned[planned:]):
            assert self._step is not None
            self._step.drop(row.sequence)
            row.adding = 0
        del self.planned[planned:]
        return count

    def check_scheduled(self, request: str, first: int, count: int) -> None:
        """transformers lists the requests of a batch in turn. Errors: UnsupportedError, they are
        not what was planned."""
        if count == 0:
            return
        row = self.rows.get(request)
        if self._scheduled >= len(self.planned) or self.planned[self._scheduled] is not row or (
                row.adding != count or (row.length or row.found) != first):
            raise UnsupportedError(f"transformers' scheduler runs tokens {first} to "
                                   f"{first + count} of {request!r}, which it did not ask for")
        self._scheduled += 1

    def commit(self, attention: Any) -> Batch:
        """The batch of what was planned."""
        if (self._step is None or self._committed or not self.planned
                or self._scheduled != len(self.planned)):
            raise ArgumentError("a forward began that no batch was planned for")
        total = sum(row.adding for row in self.planned)
        batch = self.store.batch(attention, len(self.planned), total)
        self._step.commit(batch)
        self._committed = True
        return batch

    def finish(self) -> None:
        """All layers of the forward are done."""
        assert self._step is not None
        self._step.finish()
        for row in self.planned:
            row.length = (row.length or row.found) + row.adding
            row.found = 0
        self._ended()

    def _ended(self) -> None:
        for row in self.planned:
            row.adding = 0
        self.planned = []
        self._scheduled = 0
        self._step, self._committed = None, False

    def settle(self) -> None:
        """Takes back what an interrupted forward has begun."""
        if self._committed:
            assert self._step is not None
            self._step.finish(failed=True)
            for row in self.planned:
                row.sequence.truncate(row.length)
            self._ended()

    def _abort(self) -> None:
        self.settle()
        if self._step is not None:
            self._step.abort()
            self._ended()

    # Ends and forks.

    def fork(self, request: str, others: List[str]) -> List[str]:
        """Forks that share the blocks of a request; returns their names, which are all."""
        self.settle()
        row = self.rows[request]
        for name in others:
            self._add(name, Row(row.sequence.fork(), None, row.key, row.length))
        return list(others)

    def free(self, request: str) -> None:
        """Ends a request, if there is one of this name."""
        row = self.rows.pop(request, None)
        if row is not None:
            self.settle()
            if row.adding:
                self._abort()
            row.sequence.end()

    def free_all(self) -> None:
        self._abort()
        for request in list(self.rows):
            self.free(request)

    def free_part(self) -> float:
        """The part of the blocks that requests could still have, 0 to 1."""
        stats = self.store.blocks.stats
        return (stats.blocks_free + stats.blocks_cached) / max(1, stats.blocks_total)


def _words(ids: List[int]) -> "np.ndarray[Any, Any]":
    words = np.asarray(ids, np.int64)
    if len(words) and (int(words.min()) < 0 or int(words.max()) >= elements.UNKNOWN):
        raise LimitError(f"token ids are from 0 to {elements.UNKNOWN - 1}")
    return words.astype(np.uint32)
