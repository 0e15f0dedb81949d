// SPDX-License-Identifier: Apache-2.0
//
// stream: the softmax over a warp's pages of a chunk, for up to sixteen queries that are the rows
// of the matrices. Queries, sums and the softmax's state stay in registers from the first page to
// the last, and the loop has no barrier of the block.
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

// A lane's share: rows lane / 4 (index 0) and lane / 4 + 8 (index 1) of the queries.
template <typename Shape>
struct Stream {
    Queries<Shape> queries;
    float values[Shape::kSixteens][8];  // weighted sums, scattered as a Tile
    float shifts[2];
    float sums[2];          // over the lane's columns
    uint32_t exponents[2];  // of values, biased: 2^(exponent - 141) is their unit
    uint32_t needs_care;    // not 0: the quick way met a code that is NaN, or a large score
};

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
        for (uint32_t i = 0; i < 8; ++i) stream.values[n][i] = 0.0f;
    }
    for (uint32_t row = 0; row < 2; ++row) {
        stream.shifts[row] = minus_infinity();
        stream.sums[row] = 0.0f;
        stream.exponents[row] = kLeastExponent;
    }
    stream.needs_care = 0;
}

// The factors of each row's products and of its scores. A factor of 0 would make a score of -inf,
// which stands for an unseen key, NaN.
struct Factors {
    float of_products[2];
    float of_scores[2];  // log2(e) if products are capped
};

template <Way way>
QUIRE_DEVICE inline bool is_capped(const AttendCall &call) {
    return way == Way::careful && has(call, kSoftCap);
}

template <typename Shape, Way way>
QUIRE_DEVICE inline Factors factors_of(const AttendCall &call, const Unit &unit,
                                       const Queries<Shape> &queries) {
    Factors factors;
    float scale = scale_of_products<Shape>(call, unit);
    QUIRE_UNROLL
    for (uint32_t row = 0; row < 2; ++row) {
        float of_row = scale_of_row<Shape, way>(call, queries, row, scale);
        factors.of_products[row] = of_row;
        of_row = is_capped<way>(call) ? kLog2OfE : of_row * kLog2OfE;
        factors.of_scores[row] = of_row == 0.0f ? 0x1p-126f : of_row;
    }
    return factors;
}

// The lane's columns of a page: the scales of their rows.
template <typename Shape>
QUIRE_DEVICE inline void read_scales(RingOf<Shape> &ring, uint32_t first, float (&scales)[4]) {
    QUIRE_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
        FourWords four = ring[first + 2 * half + lane_index() % 4 / 2];
        bool is_second = lane_index() % 2 != 0;
        scales[2 * half] = float_of(is_second ? four.v[2] : four.v[0]);
        scales[2 * half + 1] = float_of(is_second ? four.v[3] : four.v[1]);
    }
}

// A page's stage: its first unit, where the lane reads matrices, and its scales.
struct Stage {
    uint32_t columns;
    uint32_t scales;
};

template <typename Shape, Way way>
QUIRE_DEVICE inline void multiply_sixteens(const AttendCall &call, RingOf<Shape> &ring,
                                           uint32_t columns, Stream<Shape> &stream,
                                           float (&scores)[8]) {
    bool is_bf16 =
        Shape::kHasCodes ? way == Way::careful && call.q_format == kBf16 : Shape::kIsBf16;
    QUIRE_UNROLL
    for (uint32_t n = 0; n < Shape::kSixteens; n += Shape::kSixteensOfLoad) {
        uint32_t words[4];
        load_matrices(ring, unit_of_columns<Shape>(columns, n / Shape::kSixteensOfLoad), words);
        QUIRE_UNROLL
        for (uint32_t which = 0; which < Shape::kSixteensOfLoad; ++which) {
            uint32_t keys[4];
            keys_of<Shape, way>(words, which, is_bf16 ? kBf16 : kF16, keys, stream.needs_care);
            if (is_bf16) {
                multiply_matrices<true>(stream.queries.v[n + which], keys, scores);
            } else {
                multiply_matrices<false>(stream.queries.v[n + which], keys, scores);
            }
        }
    }
}

// The products of the queries with a page's keys; capped, they are the scores.
template <typename Shape, Way way>
QUIRE_DEVICE inline void multiply_keys(const AttendCall &call, RingOf<Shape> &ring,
                                       const Stage &stage, const Factors &factors,
                                       Stream<Shape> &stream, float (&scores)[8]) {
    for (uint32_t i = 0; i < 8; ++i) scores[i] = 0.0f;
    multiply_sixteens<Shape, way>(call, ring, stage.columns, stream, scores);
    if (Shape::kHasCodes && has(call, kOwnKScale)) {
        float scales[4];
        read_scales<Shape>(ring, stage.scales, scales);
        QUIRE_UNROLL
        for (uint32_t i = 0; i < 8; ++i) {
            scores[i] *= scales[i % 2 + i / 4 * 2] * size_of_row(stream.queries, i / 2 % 2);
        }
    }
    if (!is_capped<way>(call)) return;
    for (uint32_t i = 0; i < 8; ++i) {
        float score = scores[i] * factors.of_products[i / 2 % 2];
        scores[i] = call.soft_cap * tanh_of(score / call.soft_cap);
    }
}

QUIRE_DEVICE inline void hide_unseen(const Reach (&of_rows)[2], int32_t place, float (&scores)[8]) {
    QUIRE_UNROLL
    for (uint32_t row = 0; row < 2; ++row) {
        uint32_t seen = places_of(of_rows[row], place);
        QUIRE_UNROLL
        for (uint32_t i = 0; i < 4; ++i) {
            uint32_t of_tile = 2 * row + i % 2 + i / 2 * 4;
            bool is_seen = (seen >> column_of_sum(of_tile) & 1u) != 0;
            scores[of_tile] = is_seen ? scores[of_tile] : minus_infinity();
        }
    }
}

template <typename Shape>
QUIRE_DEVICE inline void multiply_row(uint32_t row, float factor, Stream<Shape> &stream) {
    QUIRE_UNROLL
    for (uint32_t n = 0; n < Shape::kSixteens; ++n) {
        QUIRE_UNROLL
        for (uint32_t i = 0; i < 4; ++i) stream.values[n][2 * row + i % 2 + i / 2 * 4] *= factor;
    }
}

// Raises the shifts to what the page's scores need.
template <typename Shape>
QUIRE_DEVICE inline void raise_shifts(const float (&scores)[8], const Factors &factors,
                                      Stream<Shape> &stream) {
    float tops[2];
    QUIRE_UNROLL
    for (uint32_t row = 0; row < 2; ++row) {
        float top = fmaxf(fmaxf(scores[2 * row], scores[2 * row + 1]),
                          fmaxf(scores[4 + 2 * row], scores[5 + 2 * row]));
        top = fmaxf(top, shuffle_xor(top, 1));
        tops[row] = fmaxf(top, shuffle_xor(top, 2)) * factors.of_scores[row];
    }
    if (ballot(tops[0] > stream.shifts[0] || tops[1] > stream.shifts[1]) == 0) return;
    QUIRE_UNROLL
    for (uint32_t row = 0; row < 2; ++row) {
        float before = stream.shifts[row];
        float shift = fmaxf(before, -floor_of(-tops[row]));
        float factor = before == shift ? 1.0f : exp2_of(before - shift);
        stream.shifts[row] = shift;
        stream.sums[row] *= factor;
        if constexpr (Shape::kHasCodes) {
            // The values' unit falls first, as far as it has grown.
            auto spare = static_cast<float>(stream.exponents[row] - kLeastExponent);
            float steps = before == shift ? 0.0f : fminf(shift - before, spare);
            stream.exponents[row] -= static_cast<uint32_t>(steps);
            factor = before == shift ? 1.0f : exp2_of(before - shift + steps);
        }
        multiply_row(row, factor, stream);
    }
}

// Turns scores into weights. Scores were rounded when the shift was found; from 2^22 on the exact
// one may be larger by so much that a weight leaves f16. So the careful way rounds those here too,
// and the quick way reports them.
template <typename Shape, Way way>
QUIRE_DEVICE inline void weigh(float (&scores)[8], const Factors &factors, Stream<Shape> &stream) {
    QUIRE_UNROLL
    for (uint32_t row = 0; row < 2; ++row) {
        // If all scores are -inf, the weights are 0; -inf - -inf would be NaN.
        float shift = stream.shifts[row] == minus_infinity() ? 0.0f : stream.shifts[row];
        bool is_large = fabsf(shift) >= 0x1p22f;
        if (way == Way::quick && is_large) stream.needs_care = 1;
        float unit = factors.of_scores[row];
        QUIRE_UNROLL
        for (uint32_t i = 0; i < 4; ++i) {
            float &score = scores[2 * row + i % 2 + i / 2 * 4];
            float power = multiply_add(score, unit, log2_of_weight<Shape>() - shift);
            if (way == Way::careful && is_large) {
                power = score * unit - shift + log2_of_weight<Shape>();
            }
            score = exp2_of(power);
            stream.sums[row] += score;
        }
    }
}

// Multiplies weights by their rows' own scales, in the values' unit, which grows if it must. Keys
// that a query does not see have no scale.
template <typename Shape>
QUIRE_DEVICE inline void scale_weights(RingOf<Shape> &ring, uint32_t first,
                                       const uint32_t (&seen)[2], float (&weights)[8],
                                       Stream<Shape> &stream) {
    float scales[4];
    read_scales<Shape>(ring, first, scales);
    uint32_t needed[2];
    QUIRE_UNROLL
    for (uint32_t row = 0; row < 2; ++row) {
        float top = 0.0f;
        QUIRE_UNROLL
        for (uint32_t i = 0; i < 4; ++i) {
            float &weight = weights[2 * row + i % 2 + i / 2 * 4];
            uint32_t column = lane_index() % 4 * 2 + i % 2 + i / 2 * 8;
            weight = (seen[row] >> column & 1u) != 0 ? weight * scales[i] : 0.0f;
            top = fmaxf(top, fabsf(weight));
        }
        top = fmaxf(top, shuffle_xor(top, 1));
        top = fmaxf(top, shuffle_xor(top, 2));
        needed[row] = smaller(bits_of(top) >> 23, 254u);
    }
    bool is_large = needed[0] > stream.exponents[0] || needed[1] > stream.exponents[1];
    bool any_large = ballot(is_large) != 0;
    QUIRE_UNROLL
    for (uint32_t row = 0; row < 2; ++row) {
        if (any_large && needed[row] > stream.exponents[row]) {
            auto steps = static_cast<int32_t>(stream.exponents[row] - needed[row]);
            multiply_row(row, exp2_of(static_cast<float>(steps)), stream);
            stream.exponents[row] = needed[row];
        }
        float factor = float_of((268 - stream.exponents[row]) << 23);
        QUIRE_UNROLL
        for (uint32_t i = 0; i < 4; ++i) weights[2 * row + i % 2 + i / 2 * 4] *= factor;
    }
}

// A page's weights as the left matrix of a product: the rounded weights and what they leave.
struct Weights {
    uint32_t high[4];
    uint32_t low[4];
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

template <typename Shape>
QUIRE_DEVICE inline Weights split(const float (&of)[8]) {
    Weights weights;
    QUIRE_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
        split_pair<Shape>(of[2 * i], of[2 * i + 1], &weights.high[i], &weights.low[i]);
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
        uint32_t pair = places >> (lane_index() % 4 * 2 + i % 2 * 8);
        values[i] &= ((pair & 1u) != 0 ? 0xFFFFu : 0u) | ((pair & 2u) != 0 ? 0xFFFF0000u : 0u);
    }
}

template <typename Shape>
QUIRE_DEVICE inline void multiply_values(RingOf<Shape> &ring, uint32_t columns,
                                         const Weights &weights, Stream<Shape> &stream) {
    QUIRE_UNROLL
    for (uint32_t n = 0; n < Shape::kSixteens; n += Shape::kSixteensOfLoad) {
        uint32_t words[4];
        load_matrices_turned(ring, unit_of_columns<Shape>(columns, n / Shape::kSixteensOfLoad),
                             words);
        QUIRE_UNROLL
        for (uint32_t which = 0; which < Shape::kSixteensOfLoad; ++which) {
            uint32_t values[4];
            values_of<Shape, Way::quick>(words, which, values, stream.needs_care);
            multiply_matrices<Shape::kIsBf16>(weights.high, values, stream.values[n + which]);
            multiply_matrices<Shape::kIsBf16>(weights.low, values, stream.values[n + which]);
        }
    }
}

// The queries [begin, end), which see these places of the page.
struct Seers {
    uint32_t begin, end;
    uint32_t places;
};

template <typename Shape>
QUIRE_DEVICE inline void multiply_sixteen_seen(const Weights &weights, const Seers &seers,
                                               uint32_t (&values)[4], float (&of)[8]) {
    uint32_t finite[4];
    keep_places(seers.places, values);
    for (uint32_t i = 0; i < 4; ++i) finite[i] = finite_of<Shape>(values[i]);
    float sums[8];
    for (uint32_t i = 0; i < 8; ++i) sums[i] = of[i];
    multiply_matrices<Shape::kIsBf16>(weights.high, values, sums);
    multiply_matrices<Shape::kIsBf16>(weights.low, finite, sums);
    QUIRE_UNROLL
    for (uint32_t i = 0; i < 8; ++i) {
        uint32_t row = row_of_sum(i);
        if (row >= seers.begin && row < seers.end) of[i] = sums[i];
    }
}

// Like multiply_values(), for some queries alone.
template <typename Shape>
QUIRE_DEVICE inline void multiply_seen(RingOf<Shape> &ring, uint32_t columns,
                                       const Weights &weights, const Seers &seers,
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
                                            const Weights &weights, Stream<Shape> &stream) {
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
    Reach of_rows[2];    // what the lane's two queries see
    uint64_t addresses;  // addresses_of_pages()
    uint32_t ring;       // the first unit of the warp's ring
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
    uint64_t from = shuffle_from(course.addresses, (2 + side) * kPagesOfWarp + index);
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
        uint64_t page = shuffle_from(course.addresses, side * kPagesOfWarp + index);
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
QUIRE_DEVICE inline void wait_stage() {
    wait_copies_but<kStages - 2>();
    warp_barrier();
}

// The places of a page that each of the lane's queries sees.
template <typename Shape>
QUIRE_DEVICE inline void find_seen(const Course<Shape> &course, int32_t place, bool is_full,
                                   uint32_t (&seen)[2]) {
    for (uint32_t row = 0; row < 2; ++row) {
        seen[row] = is_full ? kEveryPlace : places_of(course.of_rows[row], place);
    }
}

// Streams the warp's pages. At each stage read, the one that comes four later begins to be copied.
template <typename Shape, Way way>
QUIRE_DEVICE inline void stream_pages(const AttendCall &call, const Unit &unit,
                                      const Course<Shape> &course, RingOf<Shape> &ring,
                                      Stream<Shape> &stream) {
    clear(stream);
    warp_barrier();  // nothing is read any more
    Factors factors = factors_of<Shape, way>(call, unit, stream.queries);
    uint32_t keys = course.ring + first_unit_of_k<Shape>();
    uint32_t values = course.ring + first_unit_of_v<Shape>();
    uint32_t reading = 0, writing = 0;
    uint32_t index = next_page(course.pages, 0);
    uint32_t ahead = index;
    for (uint32_t i = 0; i < 2; ++i) {
        copy_side<Shape, way>(call, unit, course, ring, ahead, 0, writing);
        copy_side<Shape, way>(call, unit, course, ring, ahead, 1, writing);
        ahead = next_page(course.pages, ahead + 1);
    }
    while (index < kPagesOfWarp) {
        bool is_full = (course.pages.full >> index & 1u) != 0;
        int32_t place = place_of_page(course.pages, index);
        wait_stage();
        copy_side<Shape, way>(call, unit, course, ring, ahead, 0, writing);
        float scores[8];
        Stage stage = {keys + reading, course.ring + scales_of_stage<Shape>(reading)};
        multiply_keys<Shape, way>(call, ring, stage, factors, stream, scores);
        reading = next_stage<Shape>(reading);
        if (!is_full) hide_unseen(course.of_rows, place, scores);
        raise_shifts(scores, factors, stream);
        weigh<Shape, way>(scores, factors, stream);
        wait_stage();
        copy_side<Shape, way>(call, unit, course, ring, ahead, 1, writing);
        if (Shape::kHasCodes && has(call, kOwnVScale)) {
            uint32_t seen[2];
            find_seen(course, place, is_full, seen);
            scale_weights<Shape>(ring, course.ring + scales_of_stage<Shape>(reading), seen, scores,
                                 stream);
        }
        Weights weights = split<Shape>(scores);
        if constexpr (way == Way::quick) {
            multiply_values(ring, values + reading, weights, stream);
        } else {
            multiply_carefully(call, unit, place, is_full, ring, values + reading, weights, stream);
        }
        reading = next_stage<Shape>(reading);
        index = next_page(course.pages, index + 1);
        ahead = next_page(course.pages, ahead + 1);
    }
}

// Turns weighted sums of codes into those of values.
template <typename Shape, Way way>
QUIRE_DEVICE inline void scale_values(const AttendCall &call, const Unit &unit,
                                      Stream<Shape> &stream) {
    constexpr uint32_t kLog2 = way == Way::quick ? log2_of_codes<Shape::kFormat>() : 0;
    float scale = static_scale_of(call, unit, true) * static_cast<float>(1u << kLog2);
    for (uint32_t row = 0; row < 2; ++row) {
        if (has(call, kOwnVScale))
            scale = float_of((stream.exponents[row] - 14) << 23) * static_cast<float>(1u << kLog2);
        multiply_row(row, scale, stream);
    }
}

template <typename Shape>
QUIRE_DEVICE inline bool needs_care(const Stream<Shape> &stream) {
    bool found = stream.needs_care != 0;
    QUIRE_UNROLL
    for (uint32_t n = 0; n < Shape::kSixteens; ++n) {
        QUIRE_UNROLL
        for (uint32_t i = 0; i < 8; ++i)
            found = found || stream.values[n][i] != stream.values[n][i];
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
