# SPDX-License-Identifier: Apache-2.0
"""events: what quire_cache_events tells, as arrays."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

import numpy as np

from . import elements

EVENT = elements.EVENT  # the fields of quire_cache_event


class EventKind(enum.IntEnum):
    """QUIRE_EVENT_* of quire/events.h."""

    STORED = 1
    REMOVED = 2
    CLEARED = 3


class EventFlags(enum.IntFlag):
    """The flags of a stored block."""

    HAS_TOKENS = 1
    KEYED = 2


class Events(NamedTuple):
    """Changes since the last read.

    events    array of EVENT
    tokens    those of stored blocks whose namespace gives them away; an event's begin at its
              token_offset
    has_more  call again
    """

    events: "np.ndarray[Any, Any]"
    tokens: "np.ndarray[Any, Any]"
    has_more: bool

    def tokens_of(self, event: Any) -> "np.ndarray[Any, Any]":
        """The tokens of one event; empty if it has none."""
        count = int(event["token_count"]) if event["flags"] & EventFlags.HAS_TOKENS else 0
        first = int(event["token_offset"])
        return self.tokens[first:first + count]
