// SPDX-License-Identifier: Apache-2.0
//
// tier_name: how a block is named in a store (docs/tiers.md, "Names"), computed from that page
// alone, so that what the library writes and asks for can be judged.
//
// Threads: none; values.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

namespace sim {

using Digest = std::array<uint8_t, 32>;

Digest sha256(const std::vector<uint8_t> &bytes);

// Bytes that are put one after another.
struct Hashed {
    std::vector<uint8_t> bytes;
    void word(uint32_t value) {
        for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<uint8_t>(value >> 8 * i));
    }
    void digest(const Digest &value) { bytes.insert(bytes.end(), value.begin(), value.end()); }
    // The words of one key of the simulator, whose bytes are its number four times.
    void key(uint32_t type, uint32_t number) {
        word(type);
        word(16);
        for (int i = 0; i < 4; ++i) word(number);
    }
    Digest end() const { return sha256(bytes); }
};

}  // namespace sim
