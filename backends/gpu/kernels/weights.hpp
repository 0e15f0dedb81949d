// SPDX-License-Identifier: Apache-2.0
//
// weights: how scores become weights, and weights right matrices.
//
// A weight is multiplied as two 16-bit numbers, the rounded weight and the rounded rest, as in
// attend_units: 16 bits in bf16. In f16 weights are scaled by 2^14, so that a weight keeps 22 bits,
// or 2^-38 of the largest so far.
//
// Scales: a head's scale of K goes to the scores with the call's, that of V to the sums at the end.
// A row's own scale of K is multiplied into its scores, that of V into its weights, which could
// then leave f16: so a query's weights are also divided by a power of two, their values' exponent,
// that grows as their largest does.
//
// Threads: all lanes of a warp, together.
#pragma once

#include "scores.hpp"
#include "softmax.hpp"

namespace quire::gpu {

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

}  // namespace quire::gpu
