# SPDX-License-Identifier: Apache-2.0
"""xxh3: the 64-bit XXH3 of bytes, after its specification, because Python brings none.

    https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md
"""

import struct

SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e")
MASK = (1 << 64) - 1
PRIME32 = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
PRIME64 = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63,
           0x27D4EB2F165667C5)
MIX_1, MIX_2 = 0x165667919E3779F9, 0x9FB21C651E98DF25


def word(data, at):
    return struct.unpack_from("<Q", data, at)[0]


def half(data, at):
    return struct.unpack_from("<I", data, at)[0]


def rotated(value, bits):
    return (value << bits | value >> 64 - bits) & MASK


def fold(a, b):
    product = a * b
    return (product & MASK) ^ product >> 64


def avalanche(value):
    value ^= value >> 37
    value = value * MIX_1 & MASK
    return value ^ value >> 32


def old_avalanche(value):
    """XXH64's."""
    value ^= value >> 33
    value = value * PRIME64[1] & MASK
    value ^= value >> 29
    value = value * PRIME64[2] & MASK
    return value ^ value >> 32


def up_to_16(data, seed):
    size = len(data)
    if size > 8:
        low = word(data, 0) ^ ((word(SECRET, 24) ^ word(SECRET, 32)) + seed & MASK)
        high = word(data, size - 8) ^ ((word(SECRET, 40) ^ word(SECRET, 48)) - seed & MASK)
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return avalanche(size + swapped + high + fold(low, high) & MASK)
    if size >= 4:
        low_seed = (seed & 0xFFFFFFFF).to_bytes(4, "little")
        seed ^= int.from_bytes(low_seed, "big") << 32
        value = half(data, size - 4) + (half(data, 0) << 32)
        value ^= (word(SECRET, 8) ^ word(SECRET, 16)) - seed & MASK
        value ^= rotated(value, 49) ^ rotated(value, 24)
        value = value * MIX_2 & MASK
        value ^= (value >> 35) + size
        value = value * MIX_2 & MASK
        return value ^ value >> 28
    if size:
        value = data[0] << 16 | data[size >> 1] << 24 | data[-1] | size << 8
        return old_avalanche(value ^ ((half(SECRET, 0) ^ half(SECRET, 4)) + seed & MASK))
    return old_avalanche(seed ^ word(SECRET, 56) ^ word(SECRET, 64))


def mix16(data, at, secret_at, seed):
    return fold(word(data, at) ^ (word(SECRET, secret_at) + seed & MASK),
                word(data, at + 8) ^ (word(SECRET, secret_at + 8) - seed & MASK))


def up_to_240(data, seed):
    size = len(data)
    total = size * PRIME64[0]
    if size <= 128:
        for i in range((size - 1) // 32 + 1):
            total += mix16(data, 16 * i, 32 * i, seed)
            total += mix16(data, size - 16 * (i + 1), 32 * i + 16, seed)
        return avalanche(total & MASK)
    for i in range(8):
        total += mix16(data, 16 * i, 16 * i, seed)
    total = avalanche(total & MASK)
    for i in range(8, size // 16):
        total += mix16(data, 16 * i, 16 * (i - 8) + 3, seed)
    return avalanche(total + mix16(data, size - 16, 136 - 17, seed) & MASK)


def accumulate(lanes, data, at, secret, secret_at):
    values = struct.unpack_from("<8Q", data, at)
    keys = struct.unpack_from("<8Q", secret, secret_at)
    for i, value in enumerate(values):
        key = value ^ keys[i]
        lanes[i ^ 1] = lanes[i ^ 1] + value & MASK
        lanes[i] = lanes[i] + (key & 0xFFFFFFFF) * (key >> 32) & MASK


def long(data, seed):
    secret = b"".join(struct.pack("<2Q", word(SECRET, i) + seed & MASK,
                                  word(SECRET, i + 8) - seed & MASK)
                      for i in range(0, len(SECRET), 16))
    lanes = [PRIME32[2], *PRIME64[:4], PRIME32[1], PRIME64[4], PRIME32[0]]
    stripes = (len(data) - 1) // 64
    for stripe in range(stripes):
        accumulate(lanes, data, 64 * stripe, secret, 8 * (stripe % 16))
        if stripe % 16 == 15:
            for i, key in enumerate(struct.unpack_from("<8Q", secret, len(secret) - 64)):
                lanes[i] = (lanes[i] ^ lanes[i] >> 47 ^ key) * PRIME32[0] & MASK
    accumulate(lanes, data, len(data) - 64, secret, len(secret) - 64 - 7)
    total = len(data) * PRIME64[0]
    for i in range(0, 8, 2):
        total += fold(lanes[i] ^ word(secret, 11 + 8 * i), lanes[i + 1] ^ word(secret, 19 + 8 * i))
    return avalanche(total & MASK)


def xxh3(data, seed=0):
    if len(data) <= 16:
        return up_to_16(data, seed)
    return up_to_240(data, seed) if len(data) <= 240 else long(data, seed)
