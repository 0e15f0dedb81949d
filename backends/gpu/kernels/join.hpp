// SPDX-License-Identifier: Apache-2.0
//
// join: from the shares of a block's warps to a result.
//
// First the shares of the four warps are added, in order. If the unit's queries see one chunk, that
// is the result. Otherwise it is stored as the chunk's state, and the block takes a ticket of its
// unit: the one that takes the last adds the states of all chunks, in order, and writes the result.
// So the order of additions is fixed, whichever block comes last.
//
// Tickets begin at kFirstTicket, which is -1: quire_rows sets them, and the last block of a unit
// does so again for the next layer.
//
// States are those of AttendCall, but their tops are logarithms to base 2: integers, or -inf.
//
// Threads: all of a block, together.
#pragma once

#include "fault.hpp"
#include "stream.hpp"
#include "work.hpp"

namespace quire::gpu {

constexpr float kLogOf2 = 0.693147180559945309f;

template <typename Shape>
struct DecodeShared {
    SharedArray<uint32_t, 1> flag;  // idle; later: this block is the last of its unit
    SharedArray<uint32_t, 1> next;  // the item that the block takes next
    RingOf<Shape> ring;
    SharedArray<float, kWarpsOfBlock * kFragmentQueries> shifts;
    SharedArray<float, kWarpsOfBlock * kFragmentQueries> sums;
};

// Four numbers of a query are neighbours: rows g and g + 8 of a turned sixteen, and those of the
// next, g = lane / 4 of the lane that summed them. Fours of one g, by pair of sixteens: their unit
// in the warp's ring, in an order in which neither stores nor loads meet in a bank.
QUIRE_DEVICE inline uint32_t unit_of_four(uint32_t pair, uint32_t m, uint32_t g) {
    return (pair * kFragmentQueries + m) * 8 + (g ^ (m & 6));
}

// The warp's share goes where its ring was.
template <typename Shape>
QUIRE_DEVICE inline void store_share(DecodeShared<Shape> &shared, uint32_t warp,
                                     const Stream<Shape> &stream) {
    warp_barrier();  // no lane reads its ring any more
    QUIRE_UNROLL
    for (uint32_t q = 0; q < Shape::kOfLane; ++q) {
        float sum = stream.sums[q];
        sum += shuffle_xor(sum, 4);
        sum += shuffle_xor(sum, 8);
        sum += shuffle_xor(sum, 16);
        uint32_t m = query_of_lane(q);
        if (lane_index() < 4) {
            shared.shifts[warp * kFragmentQueries + m] = stream.shifts[q];
            shared.sums[warp * kFragmentQueries + m] = sum;
        }
        QUIRE_UNROLL
        for (uint32_t n = 0; n < Shape::kSixteens; n += 2) {
            const float (&first)[4] = stream.values[n][q / 2];
            const float (&second)[4] = stream.values[n + 1][q / 2];
            FourWords four = {{bits_of(first[q % 2]), bits_of(first[q % 2 + 2]),
                               bits_of(second[q % 2]), bits_of(second[q % 2 + 2])}};
            uint32_t unit = unit_of_four(n / 2, m, lane_index() / 4);
            shared.ring[warp * Shape::kRingUnits + unit] = four;
        }
    }
}

// The softmax over what was added so far: `sum` and the values are in units of 2^shift.
struct State {
    float shift;
    float sum;
};

// The factor that turns numbers in units of 2^from into units of 2^to. REQUIRES: from <= to.
QUIRE_DEVICE inline float factor_of(float from, float to) {
    return from == to ? 1.0f : exp2_of(from - to);
}

// The four warps' states of query m, and the factor of each warp's values.
template <typename Shape>
QUIRE_DEVICE inline State add_states(DecodeShared<Shape> &shared, uint32_t m,
                                     float (&factors)[kWarpsOfBlock]) {
    State state = {minus_infinity(), 0.0f};
    for (uint32_t warp = 0; warp < kWarpsOfBlock; ++warp) {
        float shift = shared.shifts[warp * kFragmentQueries + m];
        state.shift = fmaxf(state.shift, shift);
    }
    for (uint32_t warp = 0; warp < kWarpsOfBlock; ++warp) {
        uint32_t index = warp * kFragmentQueries + m;
        factors[warp] =
            factor_of(shared.shifts[index], state.shift) * exp2_of(-log2_of_weight<Shape>());
        state.sum = multiply_add(shared.sums[index], factors[warp], state.sum);
    }
    return state;
}

template <typename Shape>
QUIRE_DEVICE inline FourNumbers add_shares(DecodeShared<Shape> &shared, uint32_t unit,
                                           const float (&factors)[kWarpsOfBlock]) {
    FourNumbers values = {{0.0f, 0.0f, 0.0f, 0.0f}};
    for (uint32_t warp = 0; warp < kWarpsOfBlock; ++warp) {
        FourWords four = shared.ring[warp * Shape::kRingUnits + unit];
        for (uint32_t i = 0; i < 4; ++i) {
            values.v[i] = multiply_add(float_of(four.v[i]), factors[warp], values.v[i]);
        }
    }
    return values;
}

// Adds the sink logit to a query's state; returns what its values are to be multiplied by.
QUIRE_DEVICE inline float finish_state(const AttendCall &call, uint32_t q_head, State &state) {
    float factor = 1.0f;
    if (has(call, kSinkLogits)) {
        float sink = load_float(call.sinks, q_head) * kLog2OfE;
        float shift = fmaxf(state.shift, -floor_of(-sink));
        factor = factor_of(state.shift, shift);
        // Both may be infinite, and inf - inf would be NaN.
        float of_sink = sink == shift ? 1.0f : exp2_of(sink - shift);
        if (sink == minus_infinity()) of_sink = 0.0f;
        state = {shift, multiply_add(state.sum, factor, of_sink)};
    }
    return state.sum == 0.0f ? 0.0f : factor / state.sum;
}

QUIRE_DEVICE inline void store_lse(const AttendCall &call, int32_t token, uint32_t q_head,
                                   const State &state) {
    if (call.lse == 0) return;
    float lse = minus_infinity();
    if (state.sum != 0.0f) lse = multiply_add(state.shift, kLogOf2, log_of(state.sum));
    uint64_t at = static_cast<uint64_t>(token) * call.q_heads + q_head;
    store<float>(call.lse + at * 4, lse);
}

// Two neighbouring elements of a result.
template <typename Shape>
QUIRE_DEVICE inline void store_two(const AttendCall &call, uint64_t to, float first, float second) {
    bool is_bf16 = Shape::kHasCodes ? call.q_format == kBf16 : Shape::kIsBf16;
    uint32_t pair = is_bf16 ? pack_bf16(first, second) : pack_f16(first, second);
    if (((call.out | static_cast<uint64_t>(call.out_stride) * 2) & 3) == 0) {
        store<uint32_t>(to, pair);
    } else {
        store<uint16_t>(to, static_cast<uint16_t>(pair));
        store<uint16_t>(to + 2, static_cast<uint16_t>(pair >> 16));
    }
}

template <typename Shape>
QUIRE_DEVICE inline uint64_t result_of(const AttendCall &call, int32_t token, uint32_t q_head) {
    int64_t first = int64_t{token} * call.out_stride + int64_t{q_head} * Shape::kDim;
    return call.out + static_cast<uint64_t>(first) * 2;
}

// Stores the fours that eight neighbouring lanes have of a query's pair of sixteens; `to` is where
// the pair's result begins. Rows of 16-bit V lie as they are: there neighbouring lanes exchange
// numbers, so that each has neighbours. All lanes of the warp, together.
template <typename Shape>
QUIRE_DEVICE inline void store_four(const AttendCall &call, uint64_t to, bool is_query,
                                    const float (&four)[4]) {
    uint32_t g = lane_index() % 8, column = 2 * g;
    float pairs[2][2] = {{four[0], four[1]}, {four[2], four[3]}};
    if constexpr (!Shape::kHasCodes) {
        bool is_odd = g % 2 != 0;
        column = is_odd ? g + 7 : g;
        QUIRE_UNROLL
        for (uint32_t i = 0; i < 2; ++i) {
            float other = shuffle_xor(is_odd ? four[2 * i] : four[2 * i + 1], 1);
            pairs[i][0] = is_odd ? other : four[2 * i];
            pairs[i][1] = is_odd ? four[2 * i + 1] : other;
        }
    }
    if (!is_query) return;
    store_two<Shape>(call, to + column * 2, pairs[0][0], pairs[0][1]);
    store_two<Shape>(call, to + (column + 16) * 2, pairs[1][0], pairs[1][1]);
}

// Adds the warps' shares, and writes the unit's result if `is_whole`, else the chunk's states.
// Their values are fours too: those of a pair of sixteens by g.
template <typename Shape>
QUIRE_DEVICE inline void store_chunk(const AttendCall &call, DecodeShared<Shape> &shared,
                                     const Unit &unit, uint32_t first_state, bool is_whole) {
    constexpr uint32_t kQueriesOfWarp = 4;
    uint32_t warp = thread_index() / 32, g = lane_index() % 8;
    if (warp * kQueriesOfWarp >= unit.count) return;
    uint32_t m = warp * kQueriesOfWarp + lane_index() / 8;
    bool is_query = m < unit.count;
    if (!is_query) m = 0;
    int32_t token = token_of_query(call, unit, m);
    uint32_t q_head = head_of_query(call, unit, m);
    float factors[kWarpsOfBlock];
    State state = add_states<Shape>(shared, m, factors);
    uint64_t index = state_of(call, first_state, m, unit.kv_head);
    bool is_first = is_query && g == 0;
    float of_result = 1.0f;
    if (is_whole) {
        of_result = finish_state(call, q_head, state);
        if (is_first) store_lse(call, token, q_head, state);
    } else if (is_first) {
        store<float>(call.states + index * 8, state.shift);
        store<float>(call.states + index * 8 + 4, state.sum);
    }
    for (uint32_t pair = 0; pair < Shape::kSixteens / 2; ++pair) {
        FourNumbers sums = add_shares<Shape>(shared, unit_of_four(pair, m, g), factors);
        if (is_whole) {
            float four[4];
            for (uint32_t i = 0; i < 4; ++i) four[i] = sums.v[i] * of_result;
            uint64_t to = result_of<Shape>(call, token, q_head) + pair * 64;
            store_four<Shape>(call, to, is_query, four);
        } else if (is_query) {
            uint64_t to = call.values + (index * Shape::kDim + pair * 32 + g * 4) * 4;
            store<FourWords>(to, {{bits_of(sums.v[0]), bits_of(sums.v[1]), bits_of(sums.v[2]),
                                   bits_of(sums.v[3])}});
        }
    }
}

// True, for all threads, if all other blocks of the unit have stored their states. One thread's
// fences serve all: a fence covers what its thread knows by a barrier, and takes long.
template <typename Shape>
QUIRE_DEVICE inline bool is_last_of_unit(const AttendCall &call, DecodeShared<Shape> &shared,
                                         const Unit &unit, int32_t chunk_count) {
    barrier();
    if (thread_index() == 0) {
        uint64_t ticket = ticket_of(call, unit.first_token, unit.kv_head);
        device_fence();
        bool is_last = take_ticket(ticket) + 2 == static_cast<uint32_t>(chunk_count);
        if (is_last) {
            device_fence();
            store<uint32_t>(ticket, kFirstTicket);
        }
        shared.flag[0] = is_last ? 1u : 0u;
    }
    barrier();
    return shared.flag[0] != 0;
}

// Adds the states of the unit's chunks, which begin at `first_state`, and writes the results. A
// warp takes every fourth query, a lane four of its elements.
template <typename Shape>
QUIRE_DEVICE inline void join_chunks(const AttendCall &call, const Unit &unit, uint64_t first_state,
                                     int32_t chunk_count) {
    constexpr int32_t kAtOnce = 4;  // loads that are on their way together
    bool has_four = lane_index() * 4 < Shape::kDim;
    uint32_t column = has_four ? lane_index() * 4 : 0;
    for (uint32_t m = thread_index() / 32; m < unit.count; m += kWarpsOfBlock) {
        int32_t token = token_of_query(call, unit, m);
        uint32_t q_head = head_of_query(call, unit, m);
        State total = {minus_infinity(), 0.0f};
        float values[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        for (int32_t n = 0; n < chunk_count; n += kAtOnce) {
            State states[kAtOnce];
            FourWords fours[kAtOnce];
            QUIRE_UNROLL
            for (int32_t i = 0; i < kAtOnce; ++i) {
                states[i] = {minus_infinity(), 0.0f};
                fours[i] = {{0, 0, 0, 0}};
                if (n + i >= chunk_count) continue;
                uint64_t first = first_state + static_cast<uint32_t>(n + i) * unit.count;
                uint64_t index = state_of(call, first, m, unit.kv_head);
                states[i] = {load_float(call.states, index * 2),
                             load_float(call.states, index * 2 + 1)};
                fours[i] = load<FourWords>(call.values + (index * Shape::kDim + column) * 4);
            }
            QUIRE_UNROLL
            for (int32_t i = 0; i < kAtOnce; ++i) {
                float shift = fmaxf(total.shift, states[i].shift);
                float of_total = factor_of(total.shift, shift);
                float of_state = factor_of(states[i].shift, shift);
                total = {shift, multiply_add(states[i].sum, of_state, total.sum * of_total)};
                for (uint32_t e = 0; e < 4; ++e) {
                    values[e] =
                        multiply_add(float_of(fours[i].v[e]), of_state, values[e] * of_total);
                }
            }
        }
        float of_result = finish_state(call, q_head, total);
        if (lane_index() == 0) store_lse(call, token, q_head, total);
        for (uint32_t e = 0; e < 4; ++e) values[e] *= of_result;
        uint64_t to = result_of<Shape>(call, token, q_head) + lane_index() / 8 * 64;
        store_four<Shape>(call, to, has_four, values);
    }
}

}  // namespace quire::gpu
