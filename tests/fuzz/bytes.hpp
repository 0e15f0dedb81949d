// SPDX-License-Identifier: Apache-2.0
//
// bytes: an input of the fuzzer as a source of numbers; after its end all draws are 0.
//
// Small draws take one byte, so that a change of one byte changes one decision.
//
// Threads: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace quire::fuzz {

class Bytes {
 public:
    Bytes(const uint8_t *data, size_t size_bytes) : at_(data), end_(data + size_bytes) {}

    size_t left() const { return static_cast<size_t>(end_ - at_); }
    bool ended() const { return at_ == end_; }

    uint8_t byte() { return ended() ? uint8_t{0} : *at_++; }
    // A number of [0, bound). REQUIRES: 0 < bound <= 256.
    uint32_t below(uint32_t bound) { return byte() % bound; }
    bool one_in(uint32_t n) { return byte() % n == n - 1; }

    // A number of `size_bytes` bytes, little-endian.
    uint64_t raw(size_t size_bytes) {
        uint64_t value = 0;
        for (size_t i = 0; i < size_bytes; ++i) value |= uint64_t{byte()} << (8 * i);
        return value;
    }

    // Mostly small; also what lies around a power of two, and any bits.
    uint64_t number() {
        uint8_t kind = byte();
        if (kind < 160) return kind & 31;
        if (kind < 192) return (uint64_t{1} << (byte() & 63)) - 1;
        if (kind < 208) return uint64_t{1} << (byte() & 63);
        if (kind < 224) return ~uint64_t{0} - byte();
        return raw(kind < 240 ? 4 : 8);
    }
    uint32_t number32() { return static_cast<uint32_t>(number()); }

    // All that is left. Its address is exact, so that a read past its end is noticed.
    std::vector<uint8_t> rest() {
        std::vector<uint8_t> bytes(at_, end_);
        at_ = end_;
        return bytes;
    }

 private:
    const uint8_t *at_;
    const uint8_t *end_;
};

}  // namespace quire::fuzz
