// SPDX-License-Identifier: Apache-2.0
//
// scores: what a warp knows of its queries while it streams pages, and the products of queries with
// a page's keys.
//
// A score s stands for 2^(c s) with c = scale log2(e); a negative scale's sign goes to the queries,
// which costs no bit. A weight is 2^(c s - shift), where the shift is the largest c s so far,
// rounded up: an integer, so changing it multiplies sums by a power of two. A page that does not
// change it multiplies by nothing, and would by 1: queries do not notice each other.
//
// Threads: all lanes of a warp, together.
#pragma once

#include "queries.hpp"
#include "ring.hpp"

namespace quire::gpu {

// Index i of a lane's queries is query_of_lane(i). Element i of four numbers belongs to query i % 2
// of a group, and to key, or row of V turned, lane / 4 + i / 2 * 8.
template <typename Shape>
struct Stream {
    Queries<Shape> queries;
    float values[Shape::kSixteens][Shape::kGroups][4];  // weighted sums
    float shifts[Shape::kOfLane];
    float sums[Shape::kOfLane];          // over the lane's keys
    uint32_t exponents[Shape::kOfLane];  // of values, biased: 2^(exponent - 141) is their unit
    uint32_t needs_care;  // not 0: the quick way met a code that is NaN, or a large score
};

template <typename Shape>
using Scores = float[Shape::kGroups][4];

constexpr uint32_t kLeastExponent = 15;  // so that the unit is a normal number

template <typename Shape>
QUIRE_DEVICE constexpr float log2_of_weight() {
    return Shape::kIsBf16 ? 0.0f : 14.0f;
}

template <typename Shape>
QUIRE_DEVICE inline void clear(Stream<Shape> &stream) {
    QUIRE_UNROLL
    for (uint32_t n = 0; n < Shape::kSixteens; ++n) {
        QUIRE_UNROLL
        for (uint32_t i = 0; i < 4 * Shape::kGroups; ++i) stream.values[n][i / 4][i % 4] = 0.0f;
    }
    QUIRE_UNROLL
    for (uint32_t q = 0; q < Shape::kOfLane; ++q) {
        stream.shifts[q] = minus_infinity();
        stream.sums[q] = 0.0f;
        stream.exponents[q] = kLeastExponent;
    }
    stream.needs_care = 0;
}

// The factors of each query's products and of its scores. A factor of 0 would make a score of -inf,
// which stands for an unseen key, NaN. Where keys have own scales, products are multiplied by the
// query's size first, for either may be all that keeps a score within f32.
template <typename Shape>
struct Factors {
    float of_products[Shape::kOfLane];
    float of_scores[Shape::kOfLane];  // log2(e) if products are capped
    float sizes[Shape::kOfLane];
};

template <Way way>
QUIRE_DEVICE inline bool is_capped(const AttendCall &call) {
    return way == Way::careful && has(call, kSoftCap);
}

template <typename Shape, Way way>
QUIRE_DEVICE inline Factors<Shape> factors_of(const AttendCall &call, const Unit &unit,
                                              const Queries<Shape> &queries) {
    Factors<Shape> factors;
    float scale = scale_of_queries<Shape, way>(scale_of_products<Shape>(call, unit));
    QUIRE_UNROLL
    for (uint32_t q = 0; q < Shape::kOfLane; ++q) {
        float of_query = scale;
        if constexpr (Shape::kHasCodes) {
            factors.sizes[q] = size_of_query(queries, q);
            if (!has(call, kOwnKScale)) of_query *= factors.sizes[q];
        }
        factors.of_products[q] = of_query;
        of_query = is_capped<way>(call) ? kLog2OfE : of_query * kLog2OfE;
        factors.of_scores[q] = of_query == 0.0f ? 0x1p-126f : of_query;
    }
    return factors;
}

// The scales of the lane's keys of a page, of K or of V.
template <typename Shape>
QUIRE_DEVICE inline void read_scales(RingOf<Shape> &ring, uint32_t first, float (&scales)[2]) {
    QUIRE_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
        FourWords four = ring[first + 2 * half + lane_index() / 16];
        bool is_odd = (lane_index() & 4) != 0, is_second = (lane_index() & 8) != 0;
        uint32_t even = is_second ? four.v[2] : four.v[0];
        uint32_t odd = is_second ? four.v[3] : four.v[1];
        scales[half] = float_of(is_odd ? odd : even);
    }
}

// A page's stage: its first unit, where the lane reads matrices, and its scales.
struct Stage {
    uint32_t columns;
    uint32_t scales;
};

// Sums of even and of odd sixteens are kept apart until the end: two products at a time then wait
// for no other.
template <typename Shape, Way way>
QUIRE_DEVICE inline void multiply_sixteens(const AttendCall &call, RingOf<Shape> &ring,
                                           uint32_t columns, Stream<Shape> &stream,
                                           Scores<Shape> &scores) {
    bool is_bf16 =
        Shape::kHasCodes ? way == Way::careful && call.q_format == kBf16 : Shape::kIsBf16;
    Scores<Shape> parts[2] = {};
    QUIRE_UNROLL
    for (uint32_t n = 0; n < Shape::kSixteens; n += Shape::kSixteensOfLoad) {
        uint32_t words[4];
        load_matrices(ring, unit_of_columns<Shape>(columns, n / Shape::kSixteensOfLoad), words);
        QUIRE_UNROLL
        for (uint32_t which = 0; which < Shape::kSixteensOfLoad; ++which) {
            uint32_t keys[4], part = (n + which) % 2;
            keys_of<Shape, way>(words, which, is_bf16 ? kBf16 : kF16, keys, stream.needs_care);
            QUIRE_UNROLL
            for (uint32_t group = 0; group < Shape::kGroups; ++group) {
                const uint32_t (&of_queries)[2] = stream.queries.v[n + which][group];
                if (is_bf16) {
                    multiply_eight<true>(keys, of_queries, parts[part][group]);
                } else {
                    multiply_eight<false>(keys, of_queries, parts[part][group]);
                }
            }
        }
    }
    QUIRE_UNROLL
    for (uint32_t i = 0; i < 4 * Shape::kGroups; ++i) {
        scores[i / 4][i % 4] = parts[0][i / 4][i % 4] + parts[1][i / 4][i % 4];
    }
}

// The products of the queries with a page's keys; capped, they are the scores.
template <typename Shape, Way way>
QUIRE_DEVICE inline void multiply_keys(const AttendCall &call, RingOf<Shape> &ring,
                                       const Stage &stage, const Factors<Shape> &factors,
                                       Stream<Shape> &stream, Scores<Shape> &scores) {
    multiply_sixteens<Shape, way>(call, ring, stage.columns, stream, scores);
    if constexpr (Shape::kHasCodes) {
        if (has(call, kOwnKScale)) {
            float scales[2];
            read_scales<Shape>(ring, stage.scales, scales);
            QUIRE_UNROLL
            for (uint32_t i = 0; i < 4 * Shape::kGroups; ++i) {
                scores[i / 4][i % 4] *= scales[i / 2 % 2] * factors.sizes[i / 4 * 2 + i % 2];
            }
        }
    }
    if (!is_capped<way>(call)) return;
    for (uint32_t i = 0; i < 4 * Shape::kGroups; ++i) {
        float score = scores[i / 4][i % 4] * factors.of_products[i / 4 * 2 + i % 2];
        scores[i / 4][i % 4] = call.soft_cap * tanh_of(score / call.soft_cap);
    }
}

// The lane's key of a page, first or second.
QUIRE_DEVICE inline uint32_t key_of_lane(uint32_t which) { return lane_index() / 4 + 8 * which; }

template <typename Shape>
QUIRE_DEVICE inline void hide_unseen(const AttendCall &call, const Unit &unit, int32_t place,
                                     Scores<Shape> &scores) {
    QUIRE_UNROLL
    for (uint32_t q = 0; q < Shape::kOfLane; ++q) {
        uint32_t seen = places_of(reach_of(call, unit, query_of_lane(q)), place);
        QUIRE_UNROLL
        for (uint32_t which = 0; which < 2; ++which) {
            float &score = scores[q / 2][q % 2 + 2 * which];
            score = (seen >> key_of_lane(which) & 1u) != 0 ? score : minus_infinity();
        }
    }
}

}  // namespace quire::gpu
