# SPDX-License-Identifier: Apache-2.0
"""session_golden: reads sessions by docs/session-format.md and docs/canonical-form.md alone.

    session_golden.py [--golden] FILE ...

Prints a session's fields; exits with 1, and says why, if a file is no session. --golden: the file
is the golden one, whose content is checked too. It shares nothing with the library: fields and
offsets are written down here once more. Checksums are left to the library's own reader; Python has
no XXH3.
"""

import argparse
import pathlib
import struct
import sys

FULL, WINDOW, CHUNKED, LATENT, CROSS = range(5)
KINDS = ("full", "window", "chunked", "latent", "cross")
NONE, TENSOR, HEAD, TOKEN_HEAD = range(4)
BLOCK_FIELDS = ("group kind window sinks block_tokens token_count first_position group_layers "
                "first_layer layer_count group_heads first_head head_count k_dim v_dim k_dtype "
                "v_dtype k_scale v_scale rope id_count rope_digest").split()


def expect(condition, message):
    if not condition:
        raise ValueError(message)


def padded(count):
    return (count + 63) // 64 * 64


def blocks_of(tokens, block_tokens):
    return -(-tokens // block_tokens)


class Session:
    """The head of a session; blocks are read in their order."""

    def __init__(self, data):
        self.data = data
        expect(len(data) >= 256, "it is shorter than a header")
        magic, version, order = struct.unpack_from("<8s2I", data)
        expect(magic == b"QUIRESEQ", "it is not a session")
        expect(version == 1, f"its version is {version}")
        expect(order == 0x01020304, "its byte order")
        self.head_bytes, self.total_bytes, self.checksum = struct.unpack_from("<3Q", data, 16)
        (self.known, self.computed, self.block_tokens, self.group_count, self.cross_tokens, zero,
         self.block_count) = struct.unpack_from("<6IQ", data, 40)
        self.fingerprint, self.name_space = data[72:104], data[104:136]
        self.keys_digest = data[136:152]
        expect(zero == 0 and data[152:256] == bytes(104), "reserved bytes are not 0")
        expect(self.computed <= self.known, "more tokens are computed than known")
        expect(self.total_bytes == len(data), f"it has {len(data)} bytes, not {self.total_bytes}")
        at = 256 + 8 * self.group_count
        end = at + 4 * self.known
        expect(self.head_bytes == padded(end), f"its head has {self.head_bytes} bytes")
        self.tables = [struct.unpack_from("<2I", data, 256 + 8 * g)
                       for g in range(self.group_count)]
        self.tokens = struct.unpack_from(f"<{self.known}I", data, at)
        expect(0xFFFFFFFF not in self.tokens, "a token has no id")
        expect(not any(data[end:self.head_bytes]), "the head's padding is not 0")

    def blocks(self):
        """Yields (entry, block, its bytes) for each block, after it was checked."""
        at, count = self.head_bytes, 0
        for group, (length, null_front) in enumerate(self.tables):
            index = 0
            while index < length:
                block, data = read_block(self.data, at)
                kept = blocks_of(block["sinks"], self.block_tokens)
                if kept <= index < null_front:
                    index += 1
                    continue
                self.check(group, index, length, null_front, block, data)
                yield index, block, data
                at += len(data)
                count += 1
                index += 1
        expect(at == len(self.data), f"{len(self.data) - at} bytes follow the last block")
        expect(count == self.block_count, f"{count} blocks, not {self.block_count}")

    def check(self, group, index, length, null_front, block, data):
        tokens = self.cross_tokens if block["kind"] == CROSS else self.computed
        expect(length == blocks_of(tokens, self.block_tokens), f"the table of group {group}")
        first = index * self.block_tokens
        count = min(self.block_tokens, tokens - first)
        for name, wanted in {
                "group": group, "block_tokens": self.block_tokens, "first_position": first,
                "token_count": count, "id_count": 0 if block["kind"] == CROSS else count,
                "layer_count": block["group_layers"], "head_count": block["group_heads"],
                "first_layer": 0, "first_head": 0, "rope": 0, "rope_digest": 0}.items():
            expect(block[name] == wanted,
                   f"block {index} of group {group}: its {name} is {block[name]}, not {wanted}")
        expect(data[128:160] == self.name_space and data[160:256] == bytes(96),
               f"block {index} of group {group}: its digests")
        ids = struct.unpack_from(f"<{block['id_count']}I", data, 256)
        expect(ids == self.tokens[first:first + len(ids)], f"block {index}: its tokens")
        expect(null_front <= first_visible(block, self.computed) // self.block_tokens,
               f"group {group}: a block is missing")

    def lines(self):
        yield f"{self.known} tokens, {self.computed} computed, {self.cross_tokens} cross"
        yield f"fingerprint {self.fingerprint.hex()}"
        yield f"name space  {self.name_space.hex()}"
        yield f"keys        {self.keys_digest.hex()}"
        for index, block, data in self.blocks():
            yield (f"group {block['group']} ({KINDS[block['kind']]}) block {index}: "
                   f"{block['token_count']} tokens, {len(data)} bytes")


def first_visible(block, position):
    """The first token that one at this position sees, besides the sinks."""
    if block["kind"] == WINDOW:
        return max(0, position - block["window"] + 1)
    if block["kind"] == CHUNKED:
        return position - position % block["window"]
    return 0


def read_block(data, at):
    """A block's fields and bytes."""
    expect(at + 256 <= len(data), "a block is cut")
    magic, version, order, size = struct.unpack_from("<8s2IQ", data, at)
    expect((magic, version, order) == (b"QUIREBLK", 1, 0x01020304), f"no block at byte {at}")
    expect(size % 64 == 0 and at + size <= len(data), f"the block at byte {at} is cut")
    block = dict(zip(BLOCK_FIELDS, struct.unpack_from("<6IQ15IQ", data, at + 32)))
    expect(block["kind"] < len(KINDS), f"the block at byte {at} is of no kind")
    return block, data[at:at + size]


def planes(block):
    """(bytes per row, rows in all, rows with content) of each plane, in their order."""
    sides = ["k"] if block["kind"] == LATENT else ["k", "v"]
    heads, slots, used = block["head_count"], block["block_tokens"], block["token_count"]
    found = []
    for _layer in range(block["layer_count"]):
        found += [((block[side + "_dtype"] >> 8 & 0xFF) * block[side + "_dim"] // 8, heads, slots,
                   used) for side in sides]
    for _layer in range(block["layer_count"]):
        for side in sides:
            if block[side + "_scale"] == TOKEN_HEAD:
                found.append((4, heads, slots, used))
            elif block[side + "_scale"] != NONE:
                found.append((4, heads, 1, 1))
    return found


def check_golden(session):
    """All bytes of K, V and scales in a block are one number."""
    expect((session.known, session.computed, session.cross_tokens) == (18, 18, 5), "its counts")
    expect(session.fingerprint == bytes(range(32)), "its fingerprint")
    expect(session.name_space == bytes(range(128, 160)), "its name space")
    expect([length for length, _ in session.tables] == [5, 5, 5, 5, 2], "its tables")
    kinds = []
    for index, block, data in session.blocks():
        kinds.append(block["kind"])
        at = padded(256 + 4 * block["id_count"])
        for row_bytes, heads, slots, used in planes(block):
            for _head in range(heads):
                wanted = bytes([1 + 16 * block["group"] + index]) * (row_bytes * used)
                wanted += bytes(row_bytes * (slots - used))
                expect(data[at:at + len(wanted)] == wanted,
                       f"block {index} of group {block['group']}: its content at byte {at}")
                at += len(wanted)
            at = padded(at)
        expect(at == len(data), f"{len(data) - at} bytes after the last plane")
    expect(kinds == [FULL] * 5 + [WINDOW] * 4 + [CHUNKED] * 3 + [LATENT] * 5 + [CROSS] * 2,
           f"its blocks: {kinds}")


def refuses(data):
    try:
        list(Session(data).lines())
    except ValueError:
        return True
    return False


def check_refusals(data):
    """This reader notices what it should, so that it shows something."""
    for size in range(0, len(data), 97):
        expect(refuses(data[:size]), f"it takes a file cut to {size} bytes")
    for at in (0, 8, 12, 16, 24, 40, 44, 48, 52, 60, 64, 152, 256, 300):
        damaged = bytearray(data)
        damaged[at] ^= 0x10
        expect(refuses(bytes(damaged)), f"it takes a change of byte {at}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0],
                                     epilog="example: session_golden.py chat.session")
    parser.add_argument("--golden", action="store_true", help="it is the golden file")
    parser.add_argument("files", nargs="+", type=pathlib.Path, metavar="FILE")
    options = parser.parse_args()
    for path in options.files:
        try:
            session = Session(path.read_bytes())
            print(f"{path}:", *session.lines(), sep="\n  ")
            if options.golden:
                check_golden(session)
                check_refusals(session.data)
        except ValueError as why:
            sys.exit(f"{path}: {why}")


if __name__ == "__main__":
    main()
