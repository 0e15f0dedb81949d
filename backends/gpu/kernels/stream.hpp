// SPDX-License-Identifier: Apache-2.0
//
// stream: the softmax over a warp's pages of a chunk, for up to sixteen queries. Rows of K and of V
// are left matrices and queries are columns, eight at a time: so up to eight queries, which most
// models have for a KV head, take half of the products that sixteen do. Queries, sums and the
// softmax's state stay in registers from the first page to the last, and the loop has no barrier of
// the block.
//
// A score s stands for 2^(c s) with c = scale log2(e); a negative scale's sign goes to the queries,
// which costs no bit. A weight is 2^(c s - shift), where the shift is the largest c s so far,
// rounded up: an integer, so changing it multiplies sums by a power of two. A page that does not
// change it multiplies by nothing, and would by 1: queries do not notice each other.
//
// A weight is multiplied as two 16-bit numbers, the rounded weight and the rounded rest, as in
// attend_units: 16 bits in bf16. In f16 weights are scaled by 2^14, so that a weight keeps 22 bits,
// or 2^-38 of the largest so far.
//
// Keys that a query does not see have weight 0, and rows of V that no query sees are zeros. That is
// exact unless V holds an infinity or a NaN that some query does not see, or whose weight's rest is
// 0 or has the other sign: then a sum is NaN. So a warp that finds a NaN among its sums starts
// again, carefully: a token's sums leave out the rows of V that it does not see, and rests are
// multiplied by finite elements only. What the quick way got without a NaN, the careful one gets
// bit for bit. The careful way also serves what is rare: soft caps, blocks that are not made of
// whole pages, pools whose rows are not aligned to 16 bytes, and, beside codes, queries that f16
// cannot hold and codes that are NaN; and scores of 2^22 and more.
//
// Scales: a head's scale of K goes to the scores with the call's, that of V to the sums at the end.
// A row's own scale of K is multiplied into its scores, that of V into its weights, which could
// then leave f16: so a query's weights are also divided by a power of two, their values' exponent,
// that grows as their largest does.
//
// Threads: all lanes of a warp, together.
#pragma once

#include "queries.hpp"
#include "ring.hpp"
#include "softmax.hpp"

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
QUIRE_DEVICE inline void hide_unseen(const Reach (&of_queries)[Shape::kOfLane], int32_t place,
                                     Scores<Shape> &scores) {
    QUIRE_UNROLL
    for (uint32_t q = 0; q < Shape::kOfLane; ++q) {
        uint32_t seen = places_of(of_queries[q], place);
        QUIRE_UNROLL
        for (uint32_t which = 0; which < 2; ++which) {
            float &score = scores[q / 2][q % 2 + 2 * which];
            score = (seen >> key_of_lane(which) & 1u) != 0 ? score : minus_infinity();
        }
    }
}

template <typename Shape>
QUIRE_DEVICE inline void multiply_query(uint32_t q, float factor, Stream<Shape> &stream) {
    QUIRE_UNROLL
    for (uint32_t n = 0; n < Shape::kSixteens; ++n) {
        stream.values[n][q / 2][q % 2] *= factor;
        stream.values[n][q / 2][q % 2 + 2] *= factor;
    }
}

// The largest that the lanes of a query have.
QUIRE_DEVICE inline float largest_of_query(float top) {
    top = fmaxf(top, shuffle_xor(top, 4));
    top = fmaxf(top, shuffle_xor(top, 8));
    return fmaxf(top, shuffle_xor(top, 16));
}

// Raises the shifts to what the page's scores need. Lanes compare their own scores first, since
// seldom does any need more.
template <typename Shape>
QUIRE_DEVICE inline void raise_shifts(const Scores<Shape> &scores, const Factors<Shape> &factors,
                                      Stream<Shape> &stream) {
    float tops[Shape::kOfLane];
    bool is_larger = false;
    QUIRE_UNROLL
    for (uint32_t q = 0; q < Shape::kOfLane; ++q) {
        tops[q] = fmaxf(scores[q / 2][q % 2], scores[q / 2][q % 2 + 2]) * factors.of_scores[q];
        is_larger = is_larger || tops[q] > stream.shifts[q];
    }
    if (ballot(is_larger) == 0) return;
    QUIRE_UNROLL
    for (uint32_t q = 0; q < Shape::kOfLane; ++q) {
        float before = stream.shifts[q];
        float shift = fmaxf(before, -floor_of(-largest_of_query(tops[q])));
        float factor = before == shift ? 1.0f : exp2_of(before - shift);
        stream.shifts[q] = shift;
        stream.sums[q] *= factor;
        if constexpr (Shape::kHasCodes) {
            // The values' unit falls first, as far as it has grown.
            auto spare = static_cast<float>(stream.exponents[q] - kLeastExponent);
            float steps = before == shift ? 0.0f : fminf(shift - before, spare);
            stream.exponents[q] -= static_cast<uint32_t>(steps);
            factor = before == shift ? 1.0f : exp2_of(before - shift + steps);
        }
        multiply_query(q, factor, stream);
    }
}

// Turns scores into weights. Scores were rounded when the shift was found; from 2^22 on the exact
// one may be larger by so much that a weight leaves f16. So the careful way rounds those here too,
// and the quick way reports them.
template <typename Shape, Way way>
QUIRE_DEVICE inline void weigh(Scores<Shape> &scores, const Factors<Shape> &factors,
                               Stream<Shape> &stream) {
    QUIRE_UNROLL
    for (uint32_t q = 0; q < Shape::kOfLane; ++q) {
        // If all scores are -inf, the weights are 0; -inf - -inf would be NaN.
        float shift = stream.shifts[q] == minus_infinity() ? 0.0f : stream.shifts[q];
        bool is_large = fabsf(shift) >= 0x1p22f;
        if (way == Way::quick && is_large) stream.needs_care = 1;
        float unit = factors.of_scores[q];
        QUIRE_UNROLL
        for (uint32_t which = 0; which < 2; ++which) {
            float &score = scores[q / 2][q % 2 + 2 * which];
            float power = multiply_add(score, unit, log2_of_weight<Shape>() - shift);
            if (way == Way::careful && is_large) {
                power = score * unit - shift + log2_of_weight<Shape>();
            }
            score = exp2_of(power);
            stream.sums[q] += score;
        }
    }
}

// The exponent of a number's magnitude, biased.
QUIRE_DEVICE inline uint32_t exponent_of(float magnitude) {
    return smaller(bits_of(magnitude) >> 23, 254u);
}

// Multiplies weights by their rows' own scales, in the values' unit, which grows if it must. Keys
// that a query does not see have no scale.
template <typename Shape>
QUIRE_DEVICE inline void scale_weights(RingOf<Shape> &ring, uint32_t first,
                                       const uint32_t (&seen)[Shape::kOfLane],
                                       Scores<Shape> &weights, Stream<Shape> &stream) {
    float scales[2];
    read_scales<Shape>(ring, first, scales);
    float tops[Shape::kOfLane];
    bool is_large = false;
    QUIRE_UNROLL
    for (uint32_t q = 0; q < Shape::kOfLane; ++q) {
        tops[q] = 0.0f;
        QUIRE_UNROLL
        for (uint32_t which = 0; which < 2; ++which) {
            float &weight = weights[q / 2][q % 2 + 2 * which];
            weight = (seen[q] >> key_of_lane(which) & 1u) != 0 ? weight * scales[which] : 0.0f;
            tops[q] = fmaxf(tops[q], fabsf(weight));
        }
        is_large = is_large || exponent_of(tops[q]) > stream.exponents[q];
    }
    if (ballot(is_large) != 0) {
        QUIRE_UNROLL
        for (uint32_t q = 0; q < Shape::kOfLane; ++q) {
            uint32_t needed = exponent_of(largest_of_query(tops[q]));
            if (needed <= stream.exponents[q]) continue;
            auto steps = static_cast<int32_t>(stream.exponents[q] - needed);
            multiply_query(q, exp2_of(static_cast<float>(steps)), stream);
            stream.exponents[q] = needed;
        }
    }
    QUIRE_UNROLL
    for (uint32_t q = 0; q < Shape::kOfLane; ++q) {
        float factor = float_of((268 - stream.exponents[q]) << 23);
        weights[q / 2][q % 2] *= factor;
        weights[q / 2][q % 2 + 2] *= factor;
    }
}

// A page's weights as right matrices: the rounded weights and what they leave.
template <typename Shape>
struct Weights {
    uint32_t high[Shape::kGroups][2];
    uint32_t low[Shape::kGroups][2];
};

template <typename Shape>
QUIRE_DEVICE inline void split_pair(float first, float second, uint32_t *high, uint32_t *low) {
    if constexpr (Shape::kIsBf16) {
        *high = pack_bf16(first, second);
        *low = pack_bf16(first - float_of(*high << 16), second - float_of(*high & 0xFFFF0000u));
    } else {
        *high = pack_f16(first, second);
        *low = pack_f16(first - f16_of_pair(*high, 0), second - f16_of_pair(*high, 1));
    }
}

// A lane has the weights of two queries and one key in each pair, and needs those of one query and
// two keys.
template <typename Shape>
QUIRE_DEVICE inline Weights<Shape> split(const Scores<Shape> &of) {
    Weights<Shape> weights;
    QUIRE_UNROLL
    for (uint32_t i = 0; i < 2 * Shape::kGroups; ++i) {
        const float *pair = of[i / 2] + i % 2 * 2;
        uint32_t high, low;
        split_pair<Shape>(pair[0], pair[1], &high, &low);
        weights.high[i / 2][i % 2] = turn_matrix(high);
        weights.low[i / 2][i % 2] = turn_matrix(low);
    }
    return weights;
}

// The halves of a pair that are finite; zeros for others.
template <typename Shape>
QUIRE_DEVICE inline uint32_t finite_of(uint32_t pair) {
    constexpr uint32_t kExponent = Shape::kIsBf16 ? 0x7F80u : 0x7C00u;
    uint32_t low = (pair & kExponent) == kExponent ? 0u : pair & 0xFFFFu;
    uint32_t high = (pair >> 16 & kExponent) == kExponent ? 0u : pair & 0xFFFF0000u;
    return low | high;
}

// The elements of V that belong to these places of the page; zeros for others.
QUIRE_DEVICE inline void keep_places(uint32_t places, uint32_t (&values)[4]) {
    for (uint32_t i = 0; i < 4; ++i) {
        uint32_t pair = places >> (lane_index() % 4 * 2 + i / 2 * 8);
        values[i] &= ((pair & 1u) != 0 ? 0xFFFFu : 0u) | ((pair & 2u) != 0 ? 0xFFFF0000u : 0u);
    }
}

// Sixteens that are multiplied together: no product waits for the one before it.
template <typename Shape>
QUIRE_DEVICE constexpr uint32_t sixteens_at_once() {
    return Shape::kSixteens % 4 == 0 ? 4 : 2;
}

template <typename Shape>
QUIRE_DEVICE inline void multiply_values(RingOf<Shape> &ring, uint32_t columns,
                                         const Weights<Shape> &weights, Stream<Shape> &stream) {
    constexpr uint32_t kAtOnce = sixteens_at_once<Shape>();
    QUIRE_UNROLL
    for (uint32_t first = 0; first < Shape::kSixteens; first += kAtOnce) {
        uint32_t values[kAtOnce][4];
        QUIRE_UNROLL
        for (uint32_t n = 0; n < kAtOnce; n += Shape::kSixteensOfLoad) {
            uint32_t words[4];
            uint32_t pair = (first + n) / Shape::kSixteensOfLoad;
            load_matrices_turned(ring, unit_of_columns<Shape>(columns, pair), words);
            QUIRE_UNROLL
            for (uint32_t which = 0; which < Shape::kSixteensOfLoad; ++which) {
                values_of<Shape, Way::quick>(words, which, values[n + which], stream.needs_care);
            }
        }
        QUIRE_UNROLL
        for (uint32_t i = 0; i < 2 * Shape::kGroups * kAtOnce; ++i) {
            uint32_t n = i % kAtOnce, group = i / kAtOnce % Shape::kGroups;
            bool is_low = i >= Shape::kGroups * kAtOnce;
#if defined(QUIRE_HIGH_ONLY)
            if (is_low) continue;
#endif
            const uint32_t (&of)[2] = is_low ? weights.low[group] : weights.high[group];
            multiply_eight<Shape::kIsBf16>(values[n], of, stream.values[first + n][group]);
        }
    }
}

// The queries [begin, end), which see these places of the page.
struct Seers {
    uint32_t begin, end;
    uint32_t places;
};

template <typename Shape>
QUIRE_DEVICE inline void multiply_sixteen_seen(const Weights<Shape> &weights, const Seers &seers,
                                               uint32_t (&values)[4], Scores<Shape> &of) {
    uint32_t finite[4];
    keep_places(seers.places, values);
    for (uint32_t i = 0; i < 4; ++i) finite[i] = finite_of<Shape>(values[i]);
    QUIRE_UNROLL
    for (uint32_t group = 0; group < Shape::kGroups; ++group) {
        float sums[4];
        for (uint32_t i = 0; i < 4; ++i) sums[i] = of[group][i];
        multiply_eight<Shape::kIsBf16>(values, weights.high[group], sums);
        multiply_eight<Shape::kIsBf16>(finite, weights.low[group], sums);
        QUIRE_UNROLL
        for (uint32_t i = 0; i < 4; ++i) {
            uint32_t query = query_of_lane(2 * group + i % 2);
            if (query >= seers.begin && query < seers.end) of[group][i] = sums[i];
        }
    }
}

// Like multiply_values(), for some queries alone.
template <typename Shape>
QUIRE_DEVICE inline void multiply_seen(RingOf<Shape> &ring, uint32_t columns,
                                       const Weights<Shape> &weights, const Seers &seers,
                                       Stream<Shape> &stream) {
    QUIRE_UNROLL
    for (uint32_t n = 0; n < Shape::kSixteens; n += Shape::kSixteensOfLoad) {
        uint32_t words[4];
        load_matrices_turned(ring, unit_of_columns<Shape>(columns, n / Shape::kSixteensOfLoad),
                             words);
        QUIRE_UNROLL
        for (uint32_t which = 0; which < Shape::kSixteensOfLoad; ++which) {
            uint32_t values[4];
            values_of<Shape, Way::careful>(words, which, values, stream.needs_care);
            multiply_sixteen_seen<Shape>(weights, seers, values, stream.values[n + which]);
        }
    }
}

// A page that not all queries see whole is multiplied once per token.
template <typename Shape>
QUIRE_DEVICE inline void multiply_carefully(const AttendCall &call, const Unit &unit, int32_t place,
                                            bool is_full, RingOf<Shape> &ring, uint32_t columns,
                                            const Weights<Shape> &weights, Stream<Shape> &stream) {
    uint32_t step = is_full ? kFragmentQueries : unit.heads;
    for (uint32_t m = 0; m < unit.count; m += step) {
        uint32_t places = is_full ? kEveryPlace : places_of(reach_of(call, unit, m), place);
        multiply_seen(ring, columns, weights, {m, m + step, places}, stream);
    }
}

// A warp's pages and its ring.
template <typename Shape>
struct Course {
    Pages pages;
    Reach of_any;
    Reach of_queries[Shape::kOfLane];  // what the lane's queries see
    Addresses<Shape> addresses;
    uint32_t ring;  // the first unit of the warp's ring
    LaneCopies<Shape> copies;
};

template <typename Shape>
QUIRE_DEVICE inline uint32_t next_stage(uint32_t stage) {
    return stage + Shape::kStageUnits == Shape::kFirstScale ? 0 : stage + Shape::kStageUnits;
}
// Where the scales of a stage begin, from the ring's first unit.
template <typename Shape>
QUIRE_DEVICE inline uint32_t scales_of_stage(uint32_t stage) {
    if constexpr (!Shape::kHasCodes) return 0;
    return Shape::kFirstScale + stage / (Shape::kStageUnits / (kPagePlaces / 4));
}

// Copies the scales of a page's rows, if they have their own; four lanes do.
template <typename Shape, Way way>
QUIRE_DEVICE inline void copy_scales(const AttendCall &call, const Unit &unit,
                                     const Course<Shape> &course, RingOf<Shape> &ring,
                                     uint32_t index, uint32_t side, uint32_t stage) {
    if (!has(call, side == 0 ? kOwnKScale : kOwnVScale)) return;
    uint64_t from = page_address(course.addresses, 2 + side, index);
    if (lane_index() >= Shape::kScaleUnits) return;
    uint32_t to = course.ring + scales_of_stage<Shape>(stage) + lane_index();
    if (way == Way::quick) {
        copy_unit_async(ring, to, from + lane_index() * 16, true);
        return;
    }
    int32_t place = place_of_page(course.pages, index);
    ring[to] = load_scales(call, unit, place, side, places_of(course.of_any, place));
}

// Starts to copy one side of a page, if there is one, and ends a group of copies either way.
template <typename Shape, Way way>
QUIRE_DEVICE inline void copy_side(const AttendCall &call, const Unit &unit,
                                   const Course<Shape> &course, RingOf<Shape> &ring, uint32_t index,
                                   uint32_t side, uint32_t &stage) {
    if (index < kPagesOfWarp) {
        uint64_t page = page_address(course.addresses, side, index);
        uint32_t to = course.ring + stage;
        if (way == Way::quick && (course.pages.full >> index & 1u) != 0) {
            copy_page(ring, to, page, course.copies, side, kEveryPlace);
        } else {
            int32_t place = place_of_page(course.pages, index);
            uint32_t places = places_of(course.of_any, place);
            if (way == Way::careful && !has_whole_pages(call)) {
                copy_rows(call, unit, ring, to, place, course.copies, side, places);
            } else {
                copy_page(ring, to, page, course.copies, side, places);
            }
        }
        if constexpr (Shape::kHasCodes) {
            copy_scales<Shape, way>(call, unit, course, ring, index, side, stage);
        }
    }
    end_copies();
    stage = next_stage<Shape>(stage);
}

// The next stage to be read has arrived, for all lanes, and the one read before it is free.
template <typename Shape>
QUIRE_DEVICE inline void wait_stage() {
    wait_copies_but<Shape::kStages - 2>();
    warp_barrier();
}

// The places of a page that each of the lane's queries sees.
template <typename Shape>
QUIRE_DEVICE inline void find_seen(const Course<Shape> &course, int32_t place, bool is_full,
                                   uint32_t (&seen)[Shape::kOfLane]) {
    for (uint32_t q = 0; q < Shape::kOfLane; ++q) {
        seen[q] = is_full ? kEveryPlace : places_of(course.of_queries[q], place);
    }
}

// Streams the warp's pages. At each stage read, the one that comes four later begins to be copied.
template <typename Shape, Way way>
QUIRE_DEVICE inline void stream_pages(const AttendCall &call, const Unit &unit,
                                      const Course<Shape> &course, RingOf<Shape> &ring,
                                      Stream<Shape> &stream) {
    clear(stream);
    warp_barrier();  // nothing is read any more
    Factors<Shape> factors = factors_of<Shape, way>(call, unit, stream.queries);
    uint32_t keys = course.ring + first_unit_of_k<Shape>();
    uint32_t values = course.ring + first_unit_of_v<Shape>();
    uint32_t reading = 0, writing = 0;
    uint32_t index = next_page(course.pages, 0);
    uint32_t ahead = index;
    // Of five stages four are on their way: those of two pages. Of four, three are: with each K that
    // is read begins the V of the page after it, and with each V the K of the one after that.
    constexpr uint32_t kFirstSide = Shape::kStages % 2 == 0 ? 1 : 0;
    QUIRE_UNROLL
    for (uint32_t i = 0; i < Shape::kStages - 1; ++i) {
        copy_side<Shape, way>(call, unit, course, ring, ahead, i % 2, writing);
        if (i % 2 == 1) ahead = next_page(course.pages, ahead + 1);
    }
    while (index < kPagesOfWarp) {
        bool is_full = (course.pages.full >> index & 1u) != 0;
        int32_t place = place_of_page(course.pages, index);
        wait_stage<Shape>();
        copy_side<Shape, way>(call, unit, course, ring, ahead, kFirstSide, writing);
        if (kFirstSide == 1) ahead = next_page(course.pages, ahead + 1);
        Scores<Shape> scores;
        Stage stage = {keys + reading, course.ring + scales_of_stage<Shape>(reading)};
        multiply_keys<Shape, way>(call, ring, stage, factors, stream, scores);
        reading = next_stage<Shape>(reading);
        if (!is_full) hide_unseen<Shape>(course.of_queries, place, scores);
        raise_shifts<Shape>(scores, factors, stream);
        weigh<Shape, way>(scores, factors, stream);
        wait_stage<Shape>();
        copy_side<Shape, way>(call, unit, course, ring, ahead, 1 - kFirstSide, writing);
        if (Shape::kHasCodes && has(call, kOwnVScale)) {
            uint32_t seen[Shape::kOfLane];
            find_seen(course, place, is_full, seen);
            scale_weights<Shape>(ring, course.ring + scales_of_stage<Shape>(reading), seen, scores,
                                 stream);
        }
        Weights<Shape> weights = split<Shape>(scores);
        if constexpr (way == Way::quick) {
            multiply_values(ring, values + reading, weights, stream);
        } else {
            multiply_carefully(call, unit, place, is_full, ring, values + reading, weights, stream);
        }
        reading = next_stage<Shape>(reading);
        index = next_page(course.pages, index + 1);
        if (kFirstSide == 0) ahead = next_page(course.pages, ahead + 1);
    }
}

// Turns weighted sums of codes into those of values.
template <typename Shape, Way way>
QUIRE_DEVICE inline void scale_values(const AttendCall &call, const Unit &unit,
                                      Stream<Shape> &stream) {
    constexpr uint32_t kLog2 = way == Way::quick ? log2_of_codes<Shape::kFormat>() : 0;
    float scale = static_scale_of(call, unit, true) * static_cast<float>(1u << kLog2);
    QUIRE_UNROLL
    for (uint32_t q = 0; q < Shape::kOfLane; ++q) {
        if (has(call, kOwnVScale))
            scale = float_of((stream.exponents[q] - 14) << 23) * static_cast<float>(1u << kLog2);
        multiply_query(q, scale, stream);
    }
}

template <typename Shape>
QUIRE_DEVICE inline bool needs_care(const Stream<Shape> &stream) {
    bool found = stream.needs_care != 0;
    QUIRE_UNROLL
    for (uint32_t n = 0; n < Shape::kSixteens; ++n) {
        QUIRE_UNROLL
        for (uint32_t i = 0; i < 4 * Shape::kGroups; ++i) {
            float value = stream.values[n][i / 4][i % 4];
            found = found || value != value;
        }
    }
    return ballot(found) != 0;
}

// Fills the stream with the warp's share of the unit's chunk.
template <typename Shape>
QUIRE_DEVICE inline void attend_pages(const AttendCall &call, const Unit &unit,
                                      const Course<Shape> &course, RingOf<Shape> &ring,
                                      Stream<Shape> &stream) {
    bool is_quick = has_whole_pages(call) && !has(call, kSoftCap);
    if constexpr (Shape::kHasCodes) {
        is_quick = load_queries_for_codes(call, unit, false, stream.queries) && is_quick;
    } else {
        load_queries(call, unit, stream.queries);
    }
    if (is_quick) {
        stream_pages<Shape, Way::quick>(call, unit, course, ring, stream);
        if constexpr (Shape::kHasCodes) scale_values<Shape, Way::quick>(call, unit, stream);
        if (!needs_care(stream)) return;
    }
    if constexpr (Shape::kHasCodes) {
        if (call.q_format == kBf16) load_queries_for_codes(call, unit, true, stream.queries);
    }
    stream_pages<Shape, Way::careful>(call, unit, course, ring, stream);
    if constexpr (Shape::kHasCodes) scale_values<Shape, Way::careful>(call, unit, stream);
}

}  // namespace quire::gpu
