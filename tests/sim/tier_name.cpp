// SPDX-License-Identifier: Apache-2.0
//
// tier_name: SHA-256, FIPS 180-4.
#include "tier_name.hpp"

#include <bit>
#include <cmath>

namespace sim {
namespace {

// The first 32 bits of the fractional part of a root of each of the first primes.
struct Roots {
    uint32_t cube[64];
    uint32_t square[8];
    Roots() {
        int found = 0;
        for (uint32_t n = 2; found < 64; ++n) {
            bool prime = true;
            for (uint32_t d = 2; d * d <= n; ++d) prime &= n % d != 0;
            if (!prime) continue;
            const auto fraction = [](long double root) {
                return static_cast<uint32_t>((root - std::floor(root)) * 4294967296.0L);
            };
            if (found < 8) square[found] = fraction(std::sqrt(static_cast<long double>(n)));
            cube[found++] = fraction(std::cbrt(static_cast<long double>(n)));
        }
    }
};

void add_chunk(uint32_t (&state)[8], const uint8_t *chunk, const Roots &roots) {
    uint32_t w[64];
    for (int i = 0; i < 16; ++i)
        w[i] = static_cast<uint32_t>(chunk[4 * i]) << 24 |
               static_cast<uint32_t>(chunk[4 * i + 1]) << 16 |
               static_cast<uint32_t>(chunk[4 * i + 2]) << 8 | chunk[4 * i + 3];
    for (int i = 16; i < 64; ++i) {
        const uint32_t a = w[i - 15];
        const uint32_t b = w[i - 2];
        w[i] = w[i - 16] + w[i - 7] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) +
               (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10);
    }
    auto [a, b, c, d, e, f, g, h] = state;
    for (int i = 0; i < 64; ++i) {
        const uint32_t one = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                             ((e & f) ^ (~e & g)) + roots.cube[i] + w[i];
        const uint32_t two =
            (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
        h = g;
        g = f;
        f = e;
        e = d + one;
        d = c;
        c = b;
        b = a;
        a = one + two;
    }
    const uint32_t sums[8] = {a, b, c, d, e, f, g, h};
    for (int i = 0; i < 8; ++i) state[i] += sums[i];
}

}  // namespace

Digest sha256(const std::vector<uint8_t> &bytes) {
    static const Roots roots;
    std::vector<uint8_t> padded = bytes;
    padded.push_back(0x80);
    while (padded.size() % 64 != 56) padded.push_back(0);
    for (int i = 7; i >= 0; --i)
        padded.push_back(static_cast<uint8_t>(static_cast<uint64_t>(bytes.size()) * 8 >> 8 * i));
    uint32_t state[8];
    for (int i = 0; i < 8; ++i) state[i] = roots.square[i];
    for (size_t at = 0; at < padded.size(); at += 64) add_chunk(state, &padded[at], roots);
    Digest digest;
    for (size_t i = 0; i < 32; ++i)
        digest[i] = static_cast<uint8_t>(state[i / 4] >> (24 - 8 * (i % 4)));
    return digest;
}

}  // namespace sim
