# SPDX-License-Identifier: Apache-2.0
"""read_store: lists and checks the directory of a disk store by docs/store-format.md alone.

    read_store.py FOLDER

It shares nothing with the store: fields and offsets are written down here once more. For each value
it prints the key, the bytes of the value and its first sequence, or that it is damaged.
"""

import pathlib
import re
import struct
import sys

from xxh3 import xxh3

UNIT = 4096
ORDER = 0x01020304
VALUE, REMOVAL = 1, 2
FIELDS = ("kind", "checksum", "value_checksum", "sequence", "first_sequence", "segment", "offset",
          "total", "size")


def without(data, at):
    return data[:at] + bytes(8) + data[at + 8:]


def head(data, magic, name):
    """True if the header is right. Ends the program if it is of another version."""
    found, version, order, first, whole = struct.unpack_from("<8s2I2Q", data)
    if found != magic or first != xxh3(data[:16]):
        return False
    if (version, order) != (1, ORDER):
        sys.exit(f"{name}: version {version}, byte order {order:#x}")
    return whole == xxh3(without(data, 24))


def record(data, at, number, store):
    """The right record at this offset, or None."""
    header = data[at:at + 256]
    if len(header) < 256 or header[:8] != b"QUIREREC":
        return None
    if struct.unpack_from("<I", header, 8)[0] != 1:
        return None
    fields = dict(zip(FIELDS, struct.unpack_from("<I8Q", header, 12)))
    if fields["checksum"] != xxh3(without(header, 16)):
        return None
    total = (256 + fields["size"] + UNIT - 1) // UNIT * UNIT
    is_mine = (header[80:96] == store and fields["segment"] == number and fields["offset"] == at
               and fields["total"] == total and at + total <= len(data)
               and fields["kind"] in (VALUE, REMOVAL)
               and (fields["size"] == 0) == (fields["kind"] == REMOVAL))
    if not is_mine:
        return None
    fields["key"] = header[96:128]
    value = data[at + 256:at + 256 + fields["size"]]
    fields["is_damaged"] = (fields["kind"] == VALUE
                            and xxh3(value, xxh3(header[72:192])) != fields["value_checksum"])
    return fields


def records(data, number, store):
    at = UNIT
    while at < len(data):
        found = record(data, at, number, store)
        if found:
            yield found
        at += found["total"] if found else UNIT


def is_part(header, number, store, name):
    """False: the file is not part of the store."""
    if not head(header, b"QUIRESEG", name):
        return True                       # damaged, or never written: the records count
    return (struct.unpack_from("<Q", header, 32)[0], header[48:64]) == (number, store)


def read(folder):
    identity = (folder / "quire-store").read_bytes()[:256]
    if not head(identity, b"QUIRESTO", "quire-store"):
        sys.exit("quire-store: damaged")
    store = identity[32:48]
    newest = {}
    for path in sorted(folder.iterdir()):
        if not re.fullmatch("[0-9a-f]{16}", path.name):
            continue
        number, data = int(path.name, 16), path.read_bytes()
        if not is_part(data[:UNIT].ljust(UNIT, b"\0"), number, store, path.name):
            continue
        for found in records(data, number, store):
            old = newest.get(found["key"])
            if old and old["sequence"] > found["sequence"]:
                continue
            if found["is_damaged"] and old and old["kind"] == VALUE:
                continue
            newest[found["key"]] = found
    return newest


def main():
    for key, found in read(pathlib.Path(sys.argv[1])).items():
        if found["kind"] == VALUE:
            state = " damaged" if found["is_damaged"] else ""
            print(f"{key.hex()} {found['size']} {found['first_sequence']}{state}")


main()
