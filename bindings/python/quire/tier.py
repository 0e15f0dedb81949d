# SPDX-License-Identifier: Apache-2.0
"""tier: a store of values below the device, on disk or on other machines: quire/tier.h."""

from __future__ import annotations

import dataclasses
import enum
import os
from typing import Any, Iterator, Mapping, Optional, Sequence, Tuple, Union

from . import errors
from .instance import Instance
from .libquire import TIMED_OUT, ffi, new, text
from .objects import Object, expect
from .queue import FOREVER, nanoseconds

_ZEROS = bytes(32)
_LISTED = 64  # records that one call of the library lists


class StoreFlags(enum.IntFlag):
    """What a store can do."""

    INDEXED = 1  # it always knows what it has
    PERSISTENT = 2  # what was flushed is there after the next open
    REMOTE = 4  # other processes put and remove too
    COMPACTS = 8  # knows compact


class _Open(enum.IntFlag):
    OPEN_EXISTING = 1
    OPEN_READ_ONLY = 2


class _Kind(enum.IntEnum):
    PUT = 1
    GET = 2
    FIND = 3
    REMOVE = 4
    FLUSH = 5
    COMPACT = 6


class _Outcome(enum.IntEnum):
    DONE = 0
    MISS = 1
    FOREIGN = 2
    DAMAGED = 3
    SIZE = 4
    FULL = 5
    FAILED = 6
    CANCELLED = 7


_NOT_THERE = (_Outcome.MISS, _Outcome.FOREIGN, _Outcome.DAMAGED)

# Address and size in bytes of a part of a value, in memory that the caller keeps.
Piece = Tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Label:
    """Names a value: 32 bytes each. Errors: ArgumentError if they are not as many.

    key          digest of all that decides the content
    fingerprint  of the model, and of the types and layout of its blocks
    name_space   digest of the tenant; zeros: the default one
    """

    key: bytes
    fingerprint: bytes = _ZEROS
    name_space: bytes = _ZEROS

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            size = len(getattr(self, field.name))
            if size != 32:
                raise errors.ArgumentError(f"{field.name} has {size} bytes: it must have 32")

    def _desc(self) -> Any:
        return {"key": self.key, "fingerprint": self.fingerprint, "name_space": self.name_space}


_NO_LABEL = Label(_ZEROS)


@dataclasses.dataclass(frozen=True)
class Record:
    """A value that a store has. sequence grows from put to put; 0: not known."""

    label: Label
    value_bytes: int
    sequence: int


@dataclasses.dataclass(frozen=True)
class TierInfo:
    """What a store is: quire_store_info of quire/tier.h. place is for people."""

    flags: StoreFlags
    max_value_bytes: int
    capacity_bytes: int  # 0: not known
    max_requests: int
    place: str


@dataclasses.dataclass(frozen=True)
class TierStats:
    """Counts since open, but for records, value_bytes and used_bytes: quire_store_stats of
    quire/tier.h."""

    records: int
    value_bytes: int
    used_bytes: int
    puts: int
    puts_known: int
    puts_refused: int
    hits: int
    misses: int
    foreign: int
    damaged: int
    failed_reads: int
    removed: int
    evicted: int
    written_bytes: int
    read_bytes: int
    recovered: int
    skipped_bytes: int


class Tier(Object):
    """An open store. Calls on it are serialised, also those that wait.

    store      the plugin's name, such as "disk"
    options    its settings, such as {"directory": "/var/cache/quire"}; its help names them
    existing   do not make a new store. Errors: ArgumentError if there is none.
    read_only  change nothing that outlives the process; put, remove and compact are refused

    A request raises TimeoutError after `timeout` seconds, None: never; it may still have its effect
    then. It raises SystemCallError if the disk or network failed.
    """

    _name = "tier"
    _destroy = "tier_close_wait"
    _destroy_arguments = (FOREVER,)

    def __init__(self, instance: Instance, store: str,
                 options: Optional[Mapping[str, Union[str, "os.PathLike[str]"]]] = None, *,
                 existing: bool = False, read_only: bool = False):
        self._instance = expect(instance, Instance, "instance")
        name = ffi.new("char[]", store.encode())
        texts = [(ffi.new("char[]", key.encode()), ffi.new("char[]", os.fsencode(value)))
                 for key, value in (options or {}).items()]
        array = ffi.new("quire_store_option[]", texts)
        flags = _Open.OPEN_EXISTING * existing | _Open.OPEN_READ_ONLY * read_only
        desc = new("quire_tier_desc", flags=flags, store=name, options=array,
                   option_count=len(texts), option_stride=ffi.sizeof("quire_store_option"))
        out = ffi.new("quire_tier **")
        library = instance._library
        library.call(library.api.tier_open, instance, desc, out)
        super().__init__(library, out[0])

    def close(self, timeout: Optional[float] = None) -> None:
        """Ends the tier once its requests have ended. Closing it again does nothing.

        Errors: TimeoutError after `timeout` seconds; the tier then stays open, but takes no more
        requests. BusyError while another thread is in a call on it.
        """
        self._destroy_arguments = (nanoseconds(timeout),)
        super().close()

    @property
    def info(self) -> TierInfo:
        """The store's properties."""
        info = new("quire_store_info")
        self._library.call(self._library.api.tier_get_info, self, info)
        return TierInfo(StoreFlags(info.flags), info.max_value_bytes, info.capacity_bytes,
                        info.max_requests, text(info.place))

    @property
    def stats(self) -> TierStats:
        """The store's counts."""
        stats = new("quire_store_stats")
        self._library.call(self._library.api.tier_get_stats, self, stats)
        return TierStats(*(getattr(stats, field.name) for field in dataclasses.fields(TierStats)))

    def records(self) -> Iterator[Record]:
        """What the store has. Errors: UnsupportedError if it cannot tell."""
        cursor, count = ffi.new("uint64_t *"), ffi.new("uint32_t *")
        array = ffi.new("quire_store_record[]", _LISTED)
        while True:
            self._library.call(self._library.api.tier_list, self, cursor, array, _LISTED,
                               ffi.sizeof("quire_store_record"), count)
            if count[0] == 0:
                return
            for record in array[0:count[0]]:
                label = Label(bytes(record.label.key), bytes(record.label.fingerprint),
                              bytes(record.label.name_space))
                yield Record(label, record.value_bytes, record.sequence)

    def put(self, label: Label, value: Any, timeout: Optional[float] = None) -> bool:
        """Stores the value, an object with its bytes in a row. A value that is there is kept.
        Returns False if there was no room."""
        content = ffi.from_buffer(value)
        return self.put_pieces(label, [_piece(content)], timeout)

    def put_pieces(self, label: Label, pieces: Sequence[Piece], timeout: Optional[float] = None
                   ) -> bool:
        """As put; the value is what lies at these places, one after another."""
        return self._run(_Kind.PUT, label, timeout, pieces,
                         others=(_Outcome.FULL,))[0] == _Outcome.DONE

    def get(self, label: Label, size_bytes: int, timeout: Optional[float] = None
            ) -> Optional[bytes]:
        """The value; None: it is not there, or failed its check. Errors: ArgumentError if it has
        another size; the message says which."""
        content = bytearray(size_bytes)
        view = ffi.from_buffer(content)
        outcome, size = self._run(_Kind.GET, label, timeout, [_piece(view)],
                                  others=(*_NOT_THERE, _Outcome.SIZE))
        if outcome == _Outcome.SIZE:
            raise errors.ArgumentError(f"the value has {size} bytes, not {size_bytes}")
        return bytes(content) if outcome == _Outcome.DONE else None

    def get_pieces(self, label: Label, pieces: Sequence[Piece], timeout: Optional[float] = None
                   ) -> bool:
        """Fills these places with the value, one after another. Returns False if it is not there,
        failed its check, or is not exactly as long; the places may then hold anything."""
        return self._run(_Kind.GET, label, timeout, pieces,
                         others=(*_NOT_THERE, _Outcome.SIZE))[0] == _Outcome.DONE

    def find(self, label: Label, timeout: Optional[float] = None) -> bool:
        """Is there a value?"""
        return self._run(_Kind.FIND, label, timeout, others=_NOT_THERE)[0] == _Outcome.DONE

    def remove(self, label: Label, timeout: Optional[float] = None) -> None:
        """Removes the value, if there is one."""
        self._run(_Kind.REMOVE, label, timeout)

    def flush(self, timeout: Optional[float] = None) -> None:
        """What was done before then survives a crash of the machine, if the store is persistent."""
        self._run(_Kind.FLUSH, _NO_LABEL, timeout)

    def compact(self, timeout: Optional[float] = None) -> int:
        """Gives back the room of removed values; returns how many bytes."""
        return self._run(_Kind.COMPACT, _NO_LABEL, timeout)[1]

    def _run(self, kind: _Kind, label: Label, timeout: Optional[float],
             pieces: Sequence[Piece] = (), others: Tuple[_Outcome, ...] = ()
             ) -> Tuple[_Outcome, int]:
        """Runs a request; returns its outcome, DONE or one of these others, and size_bytes."""
        request = ffi.new("quire_store_request *",
                          {"kind": kind, "label": expect(label, Label, "label")._desc()})
        array = ffi.new("quire_store_piece[]", len(pieces))
        for piece, (address, size) in zip(array, pieces):
            piece.address, piece.size_bytes = ffi.cast("void *", address), size
        if pieces:
            request.pieces, request.piece_count = array, len(pieces)
        answer = ffi.new("quire_store_answer *")
        status = self._library.call(self._library.api.tier_request_wait, self, request, answer,
                                    nanoseconds(timeout))
        if status == TIMED_OUT:
            raise errors.TimeoutError(f"the store did not answer {kind.name} in time")
        outcome = _Outcome(answer.outcome)
        if outcome == _Outcome.FAILED:
            raise errors.SystemCallError(f"{kind.name} failed: {os.strerror(answer.native_code)}",
                                         native_code=answer.native_code)
        if outcome != _Outcome.DONE and outcome not in others:
            raise errors.BackendError(f"the store answered {kind.name} with {outcome.name}")
        return outcome, int(answer.size_bytes)


def _piece(content: Any) -> Piece:
    return int(ffi.cast("uintptr_t", content)), len(content)
