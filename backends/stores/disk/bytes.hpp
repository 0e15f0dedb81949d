// SPDX-License-Identifier: Apache-2.0
//
// bytes: little-endian numbers in a buffer, and rounding to the disk's unit.
//
// Threads: any.
#pragma once

#include <cstdint>

namespace quire::disk {

// Records and their transfers begin and end at multiples of this: the largest logical block of a
// disk, so that O_DIRECT accepts every transfer.
constexpr uint64_t kUnitBytes = 4096;

constexpr uint64_t round_up(uint64_t size_bytes) {
    return (size_bytes + kUnitBytes - 1) / kUnitBytes * kUnitBytes;
}

template <typename Number>
void write_number(uint8_t *out, Number value) {
    for (unsigned i = 0; i < sizeof value; ++i) out[i] = static_cast<uint8_t>(value >> (8 * i));
}

template <typename Number>
Number read_number(const uint8_t *in) {
    Number value = 0;
    for (unsigned i = 0; i < sizeof value; ++i) value |= static_cast<Number>(in[i]) << (8 * i);
    return value;
}

}  // namespace quire::disk
