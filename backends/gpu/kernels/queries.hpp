// SPDX-License-Identifier: Apache-2.0
//
// queries: the queries of a decode kernel's unit as left matrices, and what their scores are to be
// multiplied by.
//
// Beside 16-bit K queries are loaded as they are. Beside codes they are in the order of codes.hpp,
// and of bf16 each query is multiplied by a power of two that makes its largest element one of
// [2^14, 2^15): almost always its elements are then numbers of f16, exactly, and codes need not
// become bf16, which takes more instructions. Otherwise the careful way multiplies bf16 by bf16.
//
// A negative scale's sign goes to the queries, which costs no bit.
//
// Threads: all lanes of a warp, together.
#pragma once

#include "codes.hpp"
#include "pages.hpp"

namespace quire::gpu {

constexpr float kLog2OfE = 1.44269504088896341f;

// A lane's share: queries lane / 4 of each eight, as columns of right matrices.
template <typename Shape>
struct Queries {
    uint32_t v[Shape::kSixteens][Shape::kGroups][2];
    uint32_t
        exponents[Shape::kGroups];  // of each row's largest element, biased; beside 16-bit K unused
};

// The calibrated scale of a head's K or V; 1 without one.
QUIRE_DEVICE inline float static_scale_of(const AttendCall &call, const Unit &unit, bool is_v) {
    if (!has(call, is_v ? kStaticVScale : kStaticKScale)) return 1.0f;
    return load_float(call.scales, (is_v ? call.kv_heads : 0) + unit.kv_head);
}

// The factor of a product of a query and a key, apart from powers of two and own scales.
template <typename Shape>
QUIRE_DEVICE inline float scale_of_products(const AttendCall &call, const Unit &unit) {
    if constexpr (Shape::kHasCodes) return call.scale * static_scale_of(call, unit, false);
    return call.scale;
}

// Pairs of a row as they lie: elements 2 t and the next of each eight beside 16-bit K, and 4 t to
// 4 t + 3 of each sixteen beside codes.
template <typename Shape>
QUIRE_DEVICE inline void load_pairs(uint64_t from, bool is_aligned,
                                    uint32_t (&pairs)[2 * Shape::kSixteens]) {
    constexpr uint32_t kStep = Shape::kHasCodes ? 4 : 16;
    QUIRE_UNROLL
    for (uint32_t i = 0; i < 2 * Shape::kSixteens; ++i) {
        uint64_t at = from + i / 2 * 32 + i % 2 * kStep;
        if (is_aligned) {
            pairs[i] = load<uint32_t>(at);
        } else {
            pairs[i] = load<uint16_t>(at) | uint32_t{load<uint16_t>(at + 2)} << 16;
        }
    }
}

// All loads of a row are on their way together, so lanes without a query load the first one.
template <typename Shape>
QUIRE_DEVICE inline void load_queries(const AttendCall &call, const Unit &unit,
                                      Queries<Shape> &queries) {
    constexpr uint32_t kBytesOfLane = Shape::kHasCodes ? 8 : 4;
    uint32_t signs = scale_of_products<Shape>(call, unit) < 0.0f ? 0x80008000u : 0u;
    bool is_aligned = ((call.q | static_cast<uint64_t>(call.q_stride) * 2) & 3) == 0;
    QUIRE_UNROLL
    for (uint32_t row = 0; row < Shape::kGroups; ++row) {
        uint32_t m = lane_index() / 4 + 8 * row;
        bool is_query = m < unit.count;
        if (!is_query) m = 0;
        int64_t first = int64_t{token_of_query(call, unit, m)} * call.q_stride +
                        int64_t{head_of_query(call, unit, m)} * Shape::kDim;
        uint64_t from = call.q + static_cast<uint64_t>(first) * 2 + lane_index() % 4 * kBytesOfLane;
        uint32_t pairs[2 * Shape::kSixteens] = {};
        if (8 * row < unit.count) {
            if (is_aligned) {
                load_pairs<Shape>(from, true, pairs);
            } else {
                load_pairs<Shape>(from, false, pairs);
            }
        }
        QUIRE_UNROLL
        for (uint32_t i = 0; i < 2 * Shape::kSixteens; ++i) {
            queries.v[i / 2][row][i % 2] = is_query ? pairs[i] ^ signs : 0u;
        }
    }
}

// The largest biased exponent of a row of bf16, from 15 on, so that its inverse is a normal number.
template <typename Shape>
QUIRE_DEVICE inline uint32_t largest_exponent(const Queries<Shape> &queries, uint32_t row) {
    uint32_t found = 15;
    QUIRE_UNROLL
    for (uint32_t i = 0; i < 2 * Shape::kSixteens; ++i) {
        uint32_t pair = queries.v[i / 2][row][i % 2];
        uint32_t low = pair >> 7 & 0xFFu, high = pair >> 23 & 0xFFu;
        found = found < low ? low : found;
        found = found < high ? high : found;
    }
    for (uint32_t step = 1; step < 4; step *= 2) {
        uint32_t other = shuffle_xor(found, step);
        found = found < other ? other : found;
    }
    return found;
}

// Scales a pair of bf16, and makes it a pair of f16 or of bf16 again. Returns if it is exact.
QUIRE_DEVICE inline bool scale_pair(uint32_t &pair, float factor, bool as_bf16) {
    float low = float_of(pair << 16) * factor;
    float high = float_of(pair & 0xFFFF0000u) * factor;
    if (as_bf16) {
        pair = pack_bf16(low, high);
        return true;
    }
    pair = pack_f16(low, high);
    return f16_of_pair(pair, 0) == low && f16_of_pair(pair, 1) == high;
}

// Loads queries that meet codes; returns if the numbers are exact. as_bf16: for bf16 alone.
template <typename Shape>
QUIRE_DEVICE inline bool load_queries_for_codes(const AttendCall &call, const Unit &unit,
                                                bool as_bf16, Queries<Shape> &queries) {
    load_queries(call, unit, queries);
    bool is_exact = true;
    QUIRE_UNROLL
    for (uint32_t row = 0; row < Shape::kGroups; ++row) {
        bool is_scaled = call.q_format == kBf16;
        queries.exponents[row] = is_scaled ? largest_exponent(queries, row) : 141;
        float factor = float_of((268 - queries.exponents[row]) << 23);
        QUIRE_UNROLL
        for (uint32_t n = 0; n < Shape::kSixteens; ++n) {
            uint32_t &first = queries.v[n][row][0], &second = queries.v[n][row][1];
            if (is_scaled) {
                is_exact = scale_pair(first, factor, as_bf16) && is_exact;
                is_exact = scale_pair(second, factor, as_bf16) && is_exact;
            }
            if constexpr (keys_are_neighbours<Shape::kFormat>()) continue;
            uint32_t even = (first & 0xFFFFu) | second << 16;
            second = first >> 16 | (second & 0xFFFF0000u);
            first = even;
        }
    }
    return ballot(!is_exact) == 0;
}

// The query whose score the lane has at this index.
QUIRE_DEVICE inline uint32_t query_of_lane(uint32_t index) {
    return index / 2 * 8 + lane_index() % 4 * 2 + index % 2;
}

// The power of two that query_of_lane(index) was divided by. All lanes of the warp, together.
template <typename Shape>
QUIRE_DEVICE inline float size_of_query(const Queries<Shape> &queries, uint32_t index) {
    uint32_t lane = query_of_lane(index) % 8 * 4;
    auto exponent = static_cast<uint32_t>(shuffle_from(queries.exponents[index / 2], lane));
    return float_of((exponent - 14) << 23);
}

// The factor of a query's products, apart from its size.
template <typename Shape, Way way>
QUIRE_DEVICE inline float scale_of_queries(float scale) {
    if constexpr (!Shape::kHasCodes) return fabsf(scale);
    constexpr uint32_t kLog2 = way == Way::quick ? log2_of_codes<Shape::kFormat>() : 0;
    return fabsf(scale) * static_cast<float>(1u << kLog2);
}

}  // namespace quire::gpu
