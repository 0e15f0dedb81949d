// SPDX-License-Identifier: Apache-2.0
//
// stream: the softmax over a warp's pages of a chunk, for a unit of queries. Rows of K and of V are
// left matrices and queries are columns, eight at a time: so a narrow unit takes half of a wide
// one's products. Queries, sums and the softmax's state stay in registers from the first page to
// the last, and the loop has no barrier of the block.
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
// Threads: all lanes of a warp, together.
#pragma once

#include "weights.hpp"

namespace quire::gpu {

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
    uint64_t from = scales_of_page(call, course.addresses, index, side);
    if (lane_index() >= Shape::kScaleUnits) return;
    uint32_t to = course.ring + scales_of_stage<Shape>(stage) + lane_index();
    if (way == Way::quick) {
        copy_unit_async(ring, to, from + lane_index() * 16, true);
        return;
    }
    int32_t place = place_of_page(course.pages, index);
    ring[to] = load_scales(call, unit, place, side, places_of(course.of_any, place));
}

// Starts to copy one side of the first of these pages, if any, and ends a group of copies either
// way.
template <typename Shape, Way way>
QUIRE_DEVICE inline void copy_side(const AttendCall &call, const Unit &unit,
                                   const Course<Shape> &course, RingOf<Shape> &ring, uint32_t pages,
                                   uint32_t side, uint32_t &stage) {
    if (pages != 0) {
        uint32_t index = lowest_bit(pages);
        uint64_t page = rows_of_page(call, unit, course.addresses, index, side);
        uint32_t to = course.ring + stage;
        if (way == Way::quick && (course.pages.full >> index & 1u) != 0) {
            copy_page(ring, to, page, course.copies, kEveryPlace);
        } else {
            int32_t place = place_of_page(course.pages, index);
            uint32_t places = places_of(course.of_any, place);
            if (way == Way::careful && !has_whole_pages(call)) {
                copy_rows(call, unit, ring, to, place, course.copies, side, places);
            } else {
                copy_page(ring, to, page, course.copies, places);
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
QUIRE_DEVICE inline void find_seen(const AttendCall &call, const Unit &unit, int32_t place,
                                   bool is_full, uint32_t (&seen)[Shape::kOfLane]) {
    for (uint32_t q = 0; q < Shape::kOfLane; ++q) {
        seen[q] = is_full ? kEveryPlace : places_of(reach_of(call, unit, query_of_lane(q)), place);
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
    // The pages that are still to be read, and to be copied: of five stages four are on their way.
    uint32_t left = course.pages.seen, ahead = left;
    QUIRE_UNROLL
    for (uint32_t i = 0; i < Shape::kStages - 1; ++i) {
        copy_side<Shape, way>(call, unit, course, ring, ahead, i % 2, writing);
        if (i % 2 == 1) ahead = without_first(ahead);
    }
    while (left != 0) {
        uint32_t index = lowest_bit(left);
        bool is_full = (course.pages.full >> index & 1u) != 0;
        int32_t place = place_of_page(course.pages, index);
        wait_stage<Shape>();
        copy_side<Shape, way>(call, unit, course, ring, ahead, 0, writing);
        Scores<Shape> scores;
        Stage stage = {keys + reading, course.ring + scales_of_stage<Shape>(reading)};
        multiply_keys<Shape, way>(call, ring, stage, factors, stream, scores);
        reading = next_stage<Shape>(reading);
        if (!is_full) hide_unseen<Shape>(call, unit, place, scores);
        raise_shifts<Shape>(scores, factors, stream);
        weigh<Shape, way>(scores, factors, stream);
        wait_stage<Shape>();
        copy_side<Shape, way>(call, unit, course, ring, ahead, 1, writing);
        if (Shape::kHasCodes && has(call, kOwnVScale)) {
            uint32_t seen[Shape::kOfLane];
            find_seen<Shape>(call, unit, place, is_full, seen);
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
        left = without_first(left);
        ahead = without_first(ahead);
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
