# SPDX-License-Identifier: Apache-2.0
"""canonical_golden: reads the golden files by docs/canonical-form.md alone.

    canonical_golden.py FOLDER

It shares nothing with the library: fields and offsets are written down here once more. The
checksum is left to the library's own reader; Python has no XXH3.
"""

import pathlib
import struct
import sys

FIELDS = ("group kind window sinks block_tokens token_count first_position group_layers "
          "first_layer layer_count group_heads first_head head_count k_dim v_dim k_dtype v_dtype "
          "k_scale v_scale rope id_count rope_digest").split()
FORMAT = "<6IQ15IQ"
LATENT = 3
NONE, TENSOR, HEAD, TOKEN_HEAD = range(4)
LAYERS, TOKENS, IDS = 3, 3, (7, 0, 0xFFFFFFFE)


def expect(condition, message):
    if not condition:
        sys.exit(f"FAILED: {message}")


def padded(count):
    return (count + 63) // 64 * 64


def bits(dtype):
    return dtype >> 8 & 0xFF


def pattern(layer, plane, head, byte):
    return 1 + 61 * layer + 29 * plane + 13 * head + byte & 0xFF


def read(name, data):
    magic, version, order, size = struct.unpack_from("<8s2IQ", data)
    expect((magic, version, order) == (b"QUIREBLK", 1, 0x01020304), f"{name}: its header")
    expect(size == len(data), f"{name}: its size")
    block = dict(zip(FIELDS, struct.unpack_from(FORMAT, data, 32)))
    expect(data[128:160] == bytes(range(32)), f"{name}: the namespace's digest")
    expect(data[160:192] == bytes(range(128, 160)), f"{name}: the content's digest")
    expect(data[192:256] == bytes(64), f"{name}: reserved bytes")
    expect(struct.unpack_from("<3I", data, 256) == IDS, f"{name}: token ids")
    return block


def check_plane(name, data, at, plane, layer, block, row_bytes):
    """[head][token] rows: a pattern up to the last token, zeros after it."""
    for head in range(block["head_count"]):
        for byte in range(row_bytes * block["block_tokens"]):
            wanted = pattern(layer, plane, head, byte) if byte < row_bytes * TOKENS else 0
            expect(data[at] == wanted, f"{name}: byte {at} is {data[at]}, not {wanted}")
            at += 1
    return padded(at)


def check_static(name, data, at, plane, layer, block, kind):
    for head in range(block["head_count"]):
        wanted = 0.5 + layer + plane + (head / 4 if kind == HEAD else 0)
        expect(struct.unpack_from("<f", data, at) == (wanted,), f"{name}: a scale at byte {at}")
        at += 4
    return padded(at)


def check(name, data):
    block = read(name, data)
    expect((block["first_position"], block["layer_count"]) == (8, LAYERS), f"{name}: {block}")
    sides = [("k", 0)] if block["kind"] == LATENT else [("k", 0), ("v", 1)]
    at = padded(256 + 4 * block["id_count"])
    for layer in range(LAYERS):
        for side, plane in sides:
            row_bytes = block[side + "_dim"] * bits(block[side + "_dtype"]) // 8
            at = check_plane(name, data, at, plane, layer, block, row_bytes)
    for layer in range(LAYERS):
        for side, plane in sides:
            kind = block[side + "_scale"]
            if kind == TOKEN_HEAD:
                at = check_plane(name, data, at, plane + 2, layer, block, 4)
            elif kind != NONE:
                at = check_static(name, data, at, plane + 2, layer, block, kind)
    expect(at == len(data), f"{name}: {len(data) - at} bytes after the last plane")


files = sorted(pathlib.Path(sys.argv[1]).glob("*.block"))
expect(len(files) == 8, f"{len(files)} golden files")
for path in files:
    check(path.name, path.read_bytes())
print(f"{len(files)} files read")
