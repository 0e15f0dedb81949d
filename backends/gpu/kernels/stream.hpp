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
// whole pages, and pools whose rows are not aligned to 16 bytes.
//
// Threads: all lanes of a warp, together.
#pragma once

#include "ring.hpp"
#include "softmax.hpp"

namespace quire::gpu {

constexpr float kLog2OfE = 1.44269504088896341f;

// A lane's share: rows lane / 4 (index 0) and lane / 4 + 8 (index 1) of the queries.
template <typename Shape>
struct Stream {
    uint32_t queries[Shape::kSixteens][4];
    float values[Shape::kSixteens][8];  // weighted sums, scattered as a Tile
    float shifts[2];
    float sums[2];  // over the lane's columns
};

enum class Way { quick, careful };

template <typename Shape>
QUIRE_DEVICE constexpr float log2_of_weight() {
    return Shape::kIsBf16 ? 0.0f : 14.0f;
}

QUIRE_DEVICE inline uint32_t load_pair(uint64_t from, bool is_aligned) {
    if (is_aligned) return load<uint32_t>(from);
    return load<uint16_t>(from) | uint32_t{load<uint16_t>(from + 2)} << 16;
}

template <typename Shape>
QUIRE_DEVICE inline void load_queries(const AttendCall &call, const Unit &unit,
                                      Stream<Shape> &stream) {
    uint32_t signs = call.scale < 0.0f ? 0x80008000u : 0u;
    bool is_aligned = ((call.q | static_cast<uint64_t>(call.q_stride) * 2) & 3) == 0;
    QUIRE_UNROLL
    for (uint32_t row = 0; row < 2; ++row) {
        uint32_t m = lane_index() / 4 + 8 * row;
        int64_t first = int64_t{token_of(unit, m)} * call.q_stride +
                        int64_t{q_head_of(call, unit, m)} * Shape::kDim + lane_index() % 4 * 2;
        uint64_t from = call.q + static_cast<uint64_t>(first) * 2;
        QUIRE_UNROLL
        for (uint32_t i = 0; i < 2 * Shape::kSixteens; ++i) {
            uint32_t pair = m < unit.count ? load_pair(from + i * 16, is_aligned) ^ signs : 0u;
            stream.queries[i / 2][row + i % 2 * 2] = pair;
        }
    }
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
    }
}

// The factor of scores.
template <Way way>
QUIRE_DEVICE inline float log2_of_unit(const AttendCall &call) {
    if (way == Way::careful && has(call, kSoftCap)) return kLog2OfE;
    return fabsf(call.scale) * kLog2OfE;
}

// The products of the queries with a page's keys; capped, they are the scores.
template <typename Shape, Way way>
QUIRE_DEVICE inline void multiply_keys(const AttendCall &call, RingOf<Shape> &ring, uint32_t first,
                                       const Stream<Shape> &stream, float (&scores)[8]) {
    for (uint32_t i = 0; i < 8; ++i) scores[i] = 0.0f;
    QUIRE_UNROLL
    for (uint32_t n = 0; n < Shape::kSixteens; ++n) {
        uint32_t keys[4];
        load_matrices(ring, unit_of_columns<Shape>(first, n), keys);
        multiply_matrices<Shape::kIsBf16>(stream.queries[n], keys, scores);
    }
    if constexpr (way == Way::quick) return;
    if (!has(call, kSoftCap)) return;
    float scale = fabsf(call.scale);
    for (uint32_t i = 0; i < 8; ++i) {
        scores[i] = call.soft_cap * tanh_of(scores[i] * scale / call.soft_cap);
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

// Raises the shifts to what the page's scores need.
template <typename Shape>
QUIRE_DEVICE inline void raise_shifts(const float (&scores)[8], float unit, Stream<Shape> &stream) {
    float tops[2];
    QUIRE_UNROLL
    for (uint32_t row = 0; row < 2; ++row) {
        float top = fmaxf(fmaxf(scores[2 * row], scores[2 * row + 1]),
                          fmaxf(scores[4 + 2 * row], scores[5 + 2 * row]));
        top = fmaxf(top, shuffle_xor(top, 1));
        tops[row] = fmaxf(top, shuffle_xor(top, 2)) * unit;
    }
    if (ballot(tops[0] > stream.shifts[0] || tops[1] > stream.shifts[1]) == 0) return;
    QUIRE_UNROLL
    for (uint32_t row = 0; row < 2; ++row) {
        float before = stream.shifts[row];
        float shift = fmaxf(before, -floor_of(-tops[row]));
        float factor = before == shift ? 1.0f : exp2_of(before - shift);
        stream.shifts[row] = shift;
        stream.sums[row] *= factor;
        QUIRE_UNROLL
        for (uint32_t n = 0; n < Shape::kSixteens; ++n) {
            QUIRE_UNROLL
            for (uint32_t i = 0; i < 4; ++i)
                stream.values[n][2 * row + i % 2 + i / 2 * 4] *= factor;
        }
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
QUIRE_DEVICE inline Weights weigh(float (&scores)[8], float unit, Stream<Shape> &stream) {
    QUIRE_UNROLL
    for (uint32_t row = 0; row < 2; ++row) {
        // If all scores are -inf, the weights are 0; -inf - -inf would be NaN.
        float shift = stream.shifts[row];
        shift = (shift == minus_infinity() ? 0.0f : shift) - log2_of_weight<Shape>();
        QUIRE_UNROLL
        for (uint32_t i = 0; i < 4; ++i) {
            float &score = scores[2 * row + i % 2 + i / 2 * 4];
            score = exp2_of(multiply_add(score, unit, -shift));
            stream.sums[row] += score;
        }
    }
    Weights weights;
    QUIRE_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
        split_pair<Shape>(scores[2 * i], scores[2 * i + 1], &weights.high[i], &weights.low[i]);
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
QUIRE_DEVICE inline void multiply_values(RingOf<Shape> &ring, uint32_t first,
                                         const Weights &weights, Stream<Shape> &stream) {
    QUIRE_UNROLL
    for (uint32_t n = 0; n < Shape::kSixteens; ++n) {
        uint32_t values[4];
        load_matrices_turned(ring, unit_of_columns<Shape>(first, n), values);
        multiply_matrices<Shape::kIsBf16>(weights.high, values, stream.values[n]);
        multiply_matrices<Shape::kIsBf16>(weights.low, values, stream.values[n]);
    }
}

// Like multiply_values(), for queries [begin, end) alone, which see these places of the page.
template <typename Shape>
QUIRE_DEVICE inline void multiply_seen(RingOf<Shape> &ring, uint32_t first, const Weights &weights,
                                       uint32_t begin, uint32_t end, uint32_t places,
                                       Stream<Shape> &stream) {
    QUIRE_UNROLL
    for (uint32_t n = 0; n < Shape::kSixteens; ++n) {
        uint32_t values[4], finite[4];
        load_matrices_turned(ring, unit_of_columns<Shape>(first, n), values);
        keep_places(places, values);
        for (uint32_t i = 0; i < 4; ++i) finite[i] = finite_of<Shape>(values[i]);
        float sums[8];
        for (uint32_t i = 0; i < 8; ++i) sums[i] = stream.values[n][i];
        multiply_matrices<Shape::kIsBf16>(weights.high, values, sums);
        multiply_matrices<Shape::kIsBf16>(weights.low, finite, sums);
        QUIRE_UNROLL
        for (uint32_t i = 0; i < 8; ++i) {
            uint32_t row = row_of_sum(i);
            if (row >= begin && row < end) stream.values[n][i] = sums[i];
        }
    }
}

// A page that not all queries see whole is multiplied once per token.
template <typename Shape>
QUIRE_DEVICE inline void multiply_carefully(const AttendCall &call, const Unit &unit, int32_t place,
                                            bool is_full, RingOf<Shape> &ring, uint32_t first,
                                            const Weights &weights, Stream<Shape> &stream) {
    uint32_t step = is_full ? kFragmentQueries : unit.heads;
    for (uint32_t m = 0; m < unit.count; m += step) {
        uint32_t places = is_full ? kEveryPlace : places_of(reach_of(call, unit, m), place);
        multiply_seen(ring, first, weights, m, m + step, places, stream);
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
    return stage + Shape::kStageUnits == Shape::kRingUnits ? 0 : stage + Shape::kStageUnits;
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
    }
    end_copies();
    stage = next_stage<Shape>(stage);
}

// The next stage to be read has arrived, for all lanes, and the one read before it is free.
QUIRE_DEVICE inline void wait_stage() {
    wait_copies_but<kStages - 2>();
    warp_barrier();
}

// Streams the warp's pages. At each stage read, the one that comes four later begins to be copied.
template <typename Shape, Way way>
QUIRE_DEVICE inline void stream_pages(const AttendCall &call, const Unit &unit,
                                      const Course<Shape> &course, RingOf<Shape> &ring,
                                      Stream<Shape> &stream) {
    clear(stream);
    warp_barrier();  // nothing is read any more
    float scale = log2_of_unit<way>(call);
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
        multiply_keys<Shape, way>(call, ring, keys + reading, stream, scores);
        reading = next_stage<Shape>(reading);
        if (!is_full) hide_unseen(course.of_rows, place, scores);
        raise_shifts(scores, scale, stream);
        Weights weights = weigh(scores, scale, stream);
        wait_stage();
        copy_side<Shape, way>(call, unit, course, ring, ahead, 1, writing);
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

template <typename Shape>
QUIRE_DEVICE inline bool has_nan(const Stream<Shape> &stream) {
    bool found = false;
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
    load_queries(call, unit, stream);
    bool is_common = has_whole_pages(call) && !has(call, kSoftCap);
    if (is_common) stream_pages<Shape, Way::quick>(call, unit, course, ring, stream);
    if (is_common && !has_nan(stream)) return;
    stream_pages<Shape, Way::careful>(call, unit, course, ring, stream);
}

}  // namespace quire::gpu
