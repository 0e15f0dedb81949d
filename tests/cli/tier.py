# SPDX-License-Identifier: Apache-2.0
"""tier: `quire tier` shows what a disk store keeps, finds what is damaged, and gives back room.

    tier.py QUIRE

The records are put by a client of its own, over ctypes.
"""

import ctypes
import json
import os
import pathlib
import sys
import tempfile

from program import expect, refuses, run

PUT, REMOVE, FLUSH = 1, 4, 5


class Option(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("value", ctypes.c_char_p)]


class TierDesc(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint32), ("flags", ctypes.c_uint32),
                ("next", ctypes.c_void_p), ("store", ctypes.c_char_p),
                ("options", ctypes.POINTER(Option)), ("option_count", ctypes.c_uint32),
                ("option_stride", ctypes.c_uint32)]


class Piece(ctypes.Structure):
    _fields_ = [("address", ctypes.c_void_p), ("size_bytes", ctypes.c_uint64)]


class Request(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_uint32), ("flags", ctypes.c_uint32),
                ("cookie", ctypes.c_uint64), ("key", ctypes.c_uint8 * 32),
                ("fingerprint", ctypes.c_uint8 * 32), ("name_space", ctypes.c_uint8 * 32),
                ("pieces", ctypes.POINTER(Piece)), ("piece_count", ctypes.c_uint32),
                ("reserved0", ctypes.c_uint32)]


class Answer(ctypes.Structure):
    _fields_ = [("outcome", ctypes.c_uint32), ("kind", ctypes.c_uint32),
                ("cookie", ctypes.c_uint64), ("label", ctypes.c_uint8 * 96),
                ("size_bytes", ctypes.c_uint64), ("native_code", ctypes.c_int64)]


class InstanceDesc(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint32), ("rest", ctypes.c_uint8 * 124)]


class Tier:
    """A disk store, opened through the library."""

    def __init__(self, folder):
        self.library = ctypes.CDLL(os.environ["QUIRE_LIBRARY"])
        instance = ctypes.c_void_p()
        desc = InstanceDesc(struct_size=128)
        expect(self.library.quire_instance_create(ctypes.byref(desc), ctypes.byref(instance),
                                                  None) == 0, "no instance")
        options = (Option * 2)(Option(b"directory", str(folder).encode()),
                               Option(b"capacity", b"64MiB"))
        tier = TierDesc(struct_size=40, store=b"disk", options=options, option_count=2,
                        option_stride=ctypes.sizeof(Option))
        self.instance, self.tier = instance, ctypes.c_void_p()
        expect(self.library.quire_tier_open(instance, ctypes.byref(tier),
                                            ctypes.byref(self.tier), None) == 0, "no tier")

    def ask(self, kind, key=0, fingerprint=0, value=b""):
        request = Request(kind=kind)
        request.key[:] = bytes([key] * 32)
        request.fingerprint[:] = bytes([fingerprint] * 32)
        buffer = ctypes.create_string_buffer(value, len(value))
        piece = Piece(ctypes.addressof(buffer), len(value))
        if value:
            request.pieces, request.piece_count = ctypes.pointer(piece), 1
        answer = Answer()
        status = self.library.quire_tier_request_wait(
            self.tier, ctypes.byref(request), ctypes.byref(answer),
            ctypes.c_uint64(2**64 - 1), None)
        expect(status == 0 and answer.outcome == 0, f"{kind}: {status}, {answer.outcome}")

    def close(self):
        self.library.quire_tier_close_wait(self.tier, ctypes.c_uint64(2**64 - 1), None)
        self.library.quire_instance_destroy(self.instance, None)


def fill(folder):
    """Twelve records of two models, four of them removed."""
    tier = Tier(folder)
    for key in range(1, 13):
        tier.ask(PUT, key, 1 + key % 2, bytes([key]) * 10_000)
    for key in range(1, 5):
        tier.ask(REMOVE, key, 1 + key % 2)
    tier.ask(FLUSH)
    tier.close()


def shown(*arguments, code=0):
    got, out, err = run("tier", *arguments, "--json")
    expect(got == code and (err == "") == (code == 0), f"{arguments}: {got}, {err}")
    return json.loads(out)


def listed(folder):
    result = shown("ls", folder, "--records")
    expect(result["records"] == 8 and result["value_bytes"] == 80_000, result)
    expect(sorted(share["records"] for share in result["shares"]) == [4, 4], result["shares"])
    expect(sorted(record["key"][:2] for record in result["list"]) ==
           [f"{key:02x}" for key in range(5, 13)], result["list"])
    expect(str(folder) in result["place"], result["place"])
    code, out, err = run("tier", "ls", folder, "--records")
    expect(code == 0 and err == "" and "8 records, 80.0 kB" in out and "05" * 32 in out, out + err)


def checked_and_tidied(folder):
    expect(shown("check", folder)["unreadable"] == [], "all is well")
    # A byte of one value changes.
    for segment in sorted(folder.iterdir()):
        content = segment.read_bytes()
        at = content.find(bytes([7]) * 10_000)
        if at >= 0:
            segment.write_bytes(content[:at + 50] + b"\xff" + content[at + 51:])
    damaged = shown("check", folder, code=1)
    expect([record["key"][:2] for record in damaged["unreadable"]] == ["07"], damaged)
    before = shown("ls", folder)
    tidied = shown("gc", folder)
    expect(tidied["dropped"] == 1 and tidied["freed_bytes"] > 0, tidied)
    expect(tidied["records"] == 7 and tidied["used_bytes"] < before["used_bytes"], tidied)
    expect(shown("check", folder)["records"] == 7, "and what is left is whole")
    code, out, _ = run("tier", "gc", folder)
    expect(code == 0 and "0 damaged records dropped" in out, out)


def main():
    with tempfile.TemporaryDirectory() as name:
        place = pathlib.Path(name) / "store"
        place.mkdir()
        fill(place)
        listed(place)
        checked_and_tidied(place)
        owner = Tier(place)
        refuses([
            (("tier", "gc", place), str(os.getpid())),
            (("tier", "ls", place), str(os.getpid())),
            (("tier", "ls", pathlib.Path(name) / "none"), "none"),
            (("tier", "ls", place, "--option", "colour"), "NAME=VALUE"),
            (("tier", "ls", place, "--option", "colour=blue"), "colour"),
            (("tier", "ls", place, "--store", "abacus"), "abacus"),
            (("tier",), "subcommand"),
            (("tier", "burn", place), "burn"),
        ])
        owner.close()


if __name__ == "__main__":
    main()
