// SPDX-License-Identifier: Apache-2.0
//
// content: the bytes of K and V that belong at each place of a sequence.
//
// They are a function of the namespace, the tokens up to there, the position, the layer, the head
// and the side (K or V), and of nothing else: so a dense run of a sequence would hold exactly these
// bytes, whoever computed them and wherever they were copied since. Values are normal numbers that
// the pool's type represents, so that writing them rounds nothing.
//
// The two lowest bits of every element are its tenant's number, 1 or 2, so that another tenant's
// content is recognised in places where nothing is promised.
//
// Threads: none; values.
#pragma once

#include <quire/base.h>

#include <cstdint>
#include <cstring>

namespace gpupaths {

// splitmix64's finaliser: https://prng.di.unimi.it/splitmix64.c
inline uint64_t scramble(uint64_t x) {
    x += 0x9E3779B97F4A7C15ull;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}
inline uint64_t mix(uint64_t a, uint64_t b) { return scramble(a * 0x9E3779B97F4A7C15ull ^ b); }

class Rng {
 public:
    explicit Rng(uint64_t seed) : state_(scramble(seed)) {}
    uint64_t next() { return scramble(state_++); }
    // A number of [0, bound); 0 if bound is 0.
    uint32_t below(uint32_t bound) {
        return static_cast<uint32_t>((next() >> 32) * uint64_t{bound} >> 32);
    }
    uint32_t range(uint32_t low, uint32_t high) { return low + below(high - low + 1); }
    bool percent(uint32_t chance) { return below(100) < chance; }

 private:
    uint64_t state_;
};

// What decides K and V of one token.
struct Cell {
    uint64_t history = 0;  // of its tenant and all tokens up to itself
    uint32_t position = 0;
    uint32_t tenant = 0;

    static Cell before_all(uint32_t tenant) { return {mix(0x51, tenant), UINT32_MAX, tenant}; }
    // The cell of a token that follows this one.
    Cell followed_by(quire_token token) const {
        return {mix(history, token), position + 1, tenant};
    }
    // What a kernel writes in a step that will be said to have failed.
    Cell spoilt() const { return {mix(history, 0xBAD), position, tenant}; }
};

// Which of the vectors of a token.
struct Place {
    uint32_t group = 0, layer = 0, head = 0, side = 0;
};

inline uint32_t bytes_of(uint32_t dtype) { return dtype == QUIRE_DTYPE_F32 ? 4 : 2; }

// Writes `dim` elements of this type.
inline void write_content(const Cell &cell, const Place &place, uint32_t dim, uint32_t dtype,
                          unsigned char *out) {
    uint64_t where = mix(cell.position, uint64_t{place.group} << 48 | uint64_t{place.layer} << 32 |
                                            uint64_t{place.head} << 16 | place.side);
    uint64_t base = mix(cell.history, where);
    for (uint32_t i = 0; i < dim; ++i) {
        uint64_t drawn = mix(base, i);
        uint32_t sign = drawn & 1, tenant = cell.tenant;
        auto rest = static_cast<uint32_t>(drawn >> 8);
        if (dtype == QUIRE_DTYPE_F32) {
            uint32_t exponent = 64 + (drawn >> 1 & 127);
            uint32_t bits = sign << 31 | exponent << 23 | (rest & 0x7FFFFC) | tenant;
            std::memcpy(out + size_t{4} * i, &bits, 4);
            continue;
        }
        uint32_t exponent =
            dtype == QUIRE_DTYPE_F16 ? 1 + (drawn >> 1) % 30 : 64 + (drawn >> 1 & 127);
        uint32_t fraction = dtype == QUIRE_DTYPE_F16 ? 10 : 7;
        uint32_t kept = ((1u << fraction) - 1) & ~3u;
        auto bits =
            static_cast<uint16_t>(sign << 15 | exponent << fraction | (rest & kept) | tenant);
        std::memcpy(out + size_t{2} * i, &bits, 2);
    }
}

// The tenant's number in an element that is not zero; 0 if it is zero.
inline uint32_t tenant_of(const unsigned char *element, uint32_t dtype) {
    uint32_t bits = 0;
    std::memcpy(&bits, element, bytes_of(dtype));
    return bits == 0 ? 0 : bits & 3;
}

}  // namespace gpupaths
