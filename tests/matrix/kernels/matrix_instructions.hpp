// SPDX-License-Identifier: Apache-2.0
//
// matrix_instructions: the instructions of the header of this name in backends/cpu, in plain C++.
//
// Test builds find this one first, so that the very kernels for AMX and AVX512-BF16 run on a
// processor that has neither. The arithmetic follows the sections "Operation" of TDPBF16PS,
// TDPBSSD, TILELOADD, TILESTORED, TILEZERO, LDTILECFG and VDPBF16PS in Intel's Software Developer's
// Manual, volume 2:
//     TDPBF16PS   the even and the odd elements of all pairs are summed separately, from 0 and in
//                 rising order, by multiply-adds that round once; then both sums are added, and
//                 their total is added to the previous value
//     VDPBF16PS   the odd element's product is added first, then the even one's, each rounding once
//     both        to nearest even whatever MXCSR says; denormals count as zeros, read or written
// Where the processor raises an exception (shapes that do not fit, a tile without a configuration),
// this version prints a message and ends the process; a register named twice does not compile.
//
// Tininess is detected after rounding to a denormal here, and may be detected before it by the
// processor: a result within half a unit below 2^-126 may become 2^-126 here and 0 there.
//
// Threads: any; each thread has its own tiles.
#pragma once

#include <immintrin.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace quire::cpu::QUIRE_CPU_TARGET {
namespace {

constexpr int kTiles = 8;
constexpr size_t kMostRows = 16;
constexpr size_t kMostRowBytes = 64;

// The layout of TILECFG in memory.
struct alignas(64) StandInConfig {
    uint8_t palette;
    uint8_t start_row;
    uint8_t reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};
static_assert(sizeof(StandInConfig) == 64);

struct StandInTile {
    alignas(64) std::byte bytes[kMostRows][kMostRowBytes];
};

struct StandInUnit {
    StandInConfig config;  // palette 0: none was loaded
    StandInTile tiles[kTiles];
};

inline thread_local StandInUnit the_unit = {};

inline void order_memory() { __asm__ volatile("" ::: "memory"); }

inline void demand(bool is_fine, const char *what) {
    if (is_fine) return;
    std::fprintf(stderr, "AMX stand-in: %s\n", what);
    std::abort();
}

// The conditions under which LDTILECFG raises a general protection exception.
inline void check_config(const StandInConfig &config) {
    demand(config.palette <= 1, "invalid palette");
    for (uint8_t byte : config.reserved) demand(byte == 0, "a reserved byte is not 0");
    for (int i = 0; i < 16; ++i) {
        size_t rows = config.rows[i], row_bytes = config.row_bytes[i];
        demand(i < kTiles || (rows == 0 && row_bytes == 0), "invalid tile");
        demand(rows <= kMostRows && row_bytes <= kMostRowBytes,
               "a tile is larger than the palette allows");
        demand((rows == 0) == (row_bytes == 0), "a tile has rows without bytes");
    }
}

inline void load_tile_config(const void *config) {
    StandInUnit unit = {};
    std::memcpy(&unit.config, config, sizeof unit.config);
    check_config(unit.config);
    if (unit.config.palette == 0) unit = {};
    the_unit = unit;
}
inline void release_tiles() { the_unit = {}; }

struct Shape {
    size_t rows;
    size_t row_bytes;
};

inline Shape shape_of(int tile) {
    demand(the_unit.config.palette == 1, "a tile is used without a configuration");
    Shape shape = {the_unit.config.rows[tile], the_unit.config.row_bytes[tile]};
    demand(shape.rows != 0, "a tile without rows is used");
    return shape;
}

template <int kTile>
inline void clear_tile() {
    shape_of(kTile);
    the_unit.tiles[kTile] = {};
}

template <int kTile>
inline void load_tile(const void *rows, size_t stride) {
    Shape shape = shape_of(kTile);
    StandInTile tile = {};
    for (size_t i = 0; i < shape.rows; ++i) {
        std::memcpy(tile.bytes[i], static_cast<const std::byte *>(rows) + i * stride,
                    shape.row_bytes);
    }
    the_unit.tiles[kTile] = tile;
}

template <int kTile>
inline void store_tile(void *rows, size_t stride) {
    Shape shape = shape_of(kTile);
    for (size_t i = 0; i < shape.rows; ++i) {
        std::memcpy(static_cast<std::byte *>(rows) + i * stride, the_unit.tiles[kTile].bytes[i],
                    shape.row_bytes);
    }
}

// The shape of a product, whose elements are four bytes each. Row k of the right tile holds, for
// each column, what element k of a left row is multiplied by.
struct ProductShape {
    size_t rows;
    size_t columns;
    size_t contracted;
};

template <int kSums, int kLeft, int kRight>
inline ProductShape product_shape() {
    static_assert(kSums != kLeft && kSums != kRight && kLeft != kRight, "a tile is named twice");
    Shape sums = shape_of(kSums), left = shape_of(kLeft), right = shape_of(kRight);
    demand(sums.row_bytes % 4 == 0 && left.row_bytes % 4 == 0 && right.row_bytes % 4 == 0,
           "a row ends within an element");
    demand(sums.rows == left.rows, "sums and their left side differ in rows");
    demand(sums.row_bytes == right.row_bytes, "sums and their right side differ in columns");
    demand(left.row_bytes / 4 == right.rows, "the contracted dimensions differ in length");
    return {sums.rows, sums.row_bytes / 4, right.rows};
}

template <int kSums, int kLeft, int kRight>
inline void multiply_bytes() {
    ProductShape shape = product_shape<kSums, kLeft, kRight>();
    auto &left = the_unit.tiles[kLeft].bytes;
    auto &right = the_unit.tiles[kRight].bytes;
    int32_t fours[kMostRows][4][16];
    for (size_t k = 0; k < shape.contracted; ++k) {
        for (size_t n = 0; n < 16; ++n) {
            for (size_t i = 0; i < 4; ++i) {
                fours[k][i][n] = static_cast<int8_t>(right[k][4 * n + i]);
            }
        }
    }
    for (size_t m = 0; m < shape.rows; ++m) {
        uint32_t sums[16];  // wraps around
        std::memcpy(sums, the_unit.tiles[kSums].bytes[m], sizeof sums);
        for (size_t k = 0; k < shape.contracted; ++k) {
            for (size_t i = 0; i < 4; ++i) {
                int32_t one = static_cast<int8_t>(left[m][4 * k + i]);
                for (size_t n = 0; n < 16; ++n) {
                    sums[n] += static_cast<uint32_t>(one * fours[k][i][n]);
                }
            }
        }
        std::memcpy(the_unit.tiles[kSums].bytes[m], sums, 4 * shape.columns);
    }
}

// Turns a denormal into a zero of its sign.
inline float flushed(float a) {
    uint32_t bits = std::bit_cast<uint32_t>(a);
    uint32_t sign = bits & 0x80000000u;
    return std::bit_cast<float>((bits & 0x7F800000u) == 0 ? sign : bits);
}

// sums[n] += one * right[n], where each factor is a bf16 in the upper half of an f32.
inline void add_products(float (&sums)[16], float one, const float (&right)[16]) {
    for (size_t n = 0; n < 16; ++n) sums[n] = flushed(__builtin_fmaf(one, right[n], sums[n]));
}

inline float lower_half(uint32_t pair) { return flushed(std::bit_cast<float>(pair << 16)); }
inline float upper_half_of(uint32_t pair) {
    return flushed(std::bit_cast<float>(pair & 0xFFFF0000u));
}

struct Halves {
    float even[16];
    float odd[16];
};

inline Halves halves_of(const void *row) {
    uint32_t pairs[16];
    std::memcpy(pairs, row, sizeof pairs);
    Halves halves;
    for (size_t n = 0; n < 16; ++n) {
        halves.even[n] = lower_half(pairs[n]);
        halves.odd[n] = upper_half_of(pairs[n]);
    }
    return halves;
}

template <int kSums, int kLeft, int kRight>
inline void multiply_halves() {
    ProductShape shape = product_shape<kSums, kLeft, kRight>();
    Halves right[kMostRows];
    for (size_t k = 0; k < shape.contracted; ++k) {
        right[k] = halves_of(the_unit.tiles[kRight].bytes[k]);
    }
    for (size_t m = 0; m < shape.rows; ++m) {
        Halves left = halves_of(the_unit.tiles[kLeft].bytes[m]);
        float even[16] = {}, odd[16] = {}, sums[16];
        for (size_t k = 0; k < shape.contracted; ++k) {
            add_products(even, left.even[k], right[k].even);
            add_products(odd, left.odd[k], right[k].odd);
        }
        std::memcpy(sums, the_unit.tiles[kSums].bytes[m], sizeof sums);
        for (size_t n = 0; n < 16; ++n) {
            sums[n] = flushed(flushed(sums[n]) + flushed(even[n] + odd[n]));
        }
        std::memcpy(the_unit.tiles[kSums].bytes[m], sums, 4 * shape.columns);
    }
}

#if defined(__AVX512F__)

inline __m512i bytes_at(__m512i first, __m512i places, __m512i second) {
    alignas(64) uint8_t from[128], at[64], to[64];
    _mm512_store_si512(from, first);
    _mm512_store_si512(from + 64, second);
    _mm512_store_si512(at, places);
    for (size_t i = 0; i < 64; ++i) to[i] = from[at[i] & 127];
    return _mm512_load_si512(to);
}

inline __m512 add_pairs_of_halves(__m512 sums, __m512i a, __m512i b) {
    alignas(64) uint32_t a_pairs[16], b_pairs[16];
    alignas(64) float lanes[16];
    _mm512_store_si512(a_pairs, a);
    _mm512_store_si512(b_pairs, b);
    _mm512_store_ps(lanes, sums);
    Halves left = halves_of(a_pairs), right = halves_of(b_pairs);
    for (size_t n = 0; n < 16; ++n) {
        float odd = flushed(__builtin_fmaf(left.odd[n], right.odd[n], flushed(lanes[n])));
        lanes[n] = flushed(__builtin_fmaf(left.even[n], right.even[n], odd));
    }
    return _mm512_load_ps(lanes);
}

#endif

}  // namespace
}  // namespace quire::cpu::QUIRE_CPU_TARGET
