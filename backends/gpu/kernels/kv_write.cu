// SPDX-License-Identifier: Apache-2.0
//
// kv_write: puts the K and V of new tokens into their slots, rotated by their positions and
// converted to the pool's formats. A group writes one token.
//
// Elements that are not rotated and already have the pool's format are copied bit for bit. A row of
// codes is rotated, then scaled. Magnitudes are those of the rotated values before scaling; the
// null block does not count, since engines write arbitrary padding there.

#include "calls.hpp"
#include "dialect.hpp"
#include "fault.hpp"
#include "number.hpp"
#include "sight.hpp"

namespace quire::gpu {

constexpr uint32_t kWriteThreads = 64;
constexpr uint32_t kFewestLanes = 32;  // of a warp

struct WriteShared {
    SharedArray<uint32_t, 1> idle;
    SharedArray<uint32_t, kMostElements> row;                     // one row of a head, as f32 bits
    SharedArray<uint32_t, kWriteThreads / kFewestLanes> largest;  // of each warp
    SharedArray<float, kMostPairs> cosines;
    SharedArray<float, kMostPairs> sines;
};

struct Two {
    float a, b;
};

// cos and sin on [-pi/4, pi/4], minimax polynomials (Cephes, sinf and cosf).
QUIRE_DEVICE inline Two turned_unit(float x) {
    float z = x * x;
    float s = ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * x + x;
    float c =
        ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) * z * z -
        0.5f * z + 1.0f;
    return {c, s};
}

// The angle is in units of 2^-64 turns, so it wraps as turns do.
QUIRE_DEVICE inline void make_turn(const KvWriteCall &call, WriteShared &shared, int32_t position) {
    for (uint32_t i = thread_index(); i < call.rotated_dim / 2; i += kWriteThreads) {
        uint64_t angle = static_cast<uint64_t>(int64_t{position}) * call.turns[i];
        uint64_t shifted = angle + (uint64_t{1} << 61);
        auto quadrant = static_cast<uint32_t>(shifted >> 62);
        // The angle within the quadrant, in units of 2^-32.
        auto rest = static_cast<int32_t>(static_cast<uint32_t>(shifted >> 30) - 0x80000000u);
        Two unit = turned_unit(static_cast<float>(rest) * 3.6572952e-10f);  // pi / 2 / 2^32
        if (quadrant == 1) unit = {-unit.b, unit.a};
        if (quadrant == 2) unit = {-unit.a, -unit.b};
        if (quadrant == 3) unit = {unit.b, -unit.a};
        shared.cosines[i] = unit.a * call.magnitude;
        shared.sines[i] = unit.b * call.magnitude;
    }
}

struct PairOfElements {
    uint32_t a, b;
};

QUIRE_DEVICE inline uint32_t rope_begin(const KvWriteCall &call) {
    return call.is_latent != 0 ? call.k_dim - call.rotated_dim : 0;
}

// The elements of pair i.
QUIRE_DEVICE inline PairOfElements pair_elements(const KvWriteCall &call, uint32_t i) {
    uint32_t begin = rope_begin(call);
    if (call.is_in_pairs != 0) return {begin + 2 * i, begin + 2 * i + 1};
    return {begin + i, begin + i + call.rotated_dim / 2};
}

QUIRE_DEVICE inline Two turn(WriteShared &shared, Two of, uint32_t pair) {
    float cosine = shared.cosines[pair];
    float sine = shared.sines[pair];
    return {of.a * cosine - of.b * sine, of.b * cosine + of.a * sine};
}

QUIRE_DEVICE inline void turn_queries(const KvWriteCall &call, WriteShared &shared,
                                      uint32_t token) {
    uint32_t pairs = call.rotated_dim / 2;
    for (uint32_t i = thread_index(); i < pairs * call.q_heads; i += kWriteThreads) {
        uint32_t pair = i % pairs;
        int64_t first = int64_t{token} * call.q_stride + int64_t{i / pairs} * call.k_dim;
        uint64_t head = call.q + static_cast<uint64_t>(first) * bytes_of(call.q_format, 1);
        PairOfElements at = pair_elements(call, pair);
        Two given = {load_number(call.q_format, head, at.a),
                     load_number(call.q_format, head, at.b)};
        Two turned = turn(shared, given, pair);
        store_value(call.q_format, head, at.a, bits_of(turned.a));
        store_value(call.q_format, head, at.b, bits_of(turned.b));
    }
}

// One side of a head: where its elements come from, and where they go.
struct Side {
    uint64_t first;   // elements [0, split) come from here
    uint64_t second;  // and the rest from here
    uint32_t split;
    uint32_t count;
    uint32_t turned_begin, turned_end;
    uint32_t format;
    uint64_t to;
    uint32_t index;  // 0: K, 1: V
    bool is_measured;
};

QUIRE_DEVICE inline void load_row(const KvWriteCall &call, WriteShared &shared, const Side &side) {
    for (uint32_t d = thread_index(); d < side.count; d += kWriteThreads) {
        bool is_first = d < side.split;
        shared.row[d] = load_bits(call.given_format, is_first ? side.first : side.second,
                                  is_first ? d : d - side.split);
    }
    barrier();
    uint32_t pairs = (side.turned_end - side.turned_begin) / 2;
    for (uint32_t i = thread_index(); i < pairs; i += kWriteThreads) {
        PairOfElements at = pair_elements(call, i);
        Two turned = turn(shared, {float_of(shared.row[at.a]), float_of(shared.row[at.b])}, i);
        shared.row[at.a] = bits_of(turned.a);
        shared.row[at.b] = bits_of(turned.b);
    }
    barrier();
}

// Returns the row's largest magnitude, as bits, to every thread.
QUIRE_DEVICE inline uint32_t find_largest(WriteShared &shared, uint32_t count) {
    uint32_t found = 0;
    for (uint32_t d = thread_index(); d < count; d += kWriteThreads) {
        uint32_t magnitude = shared.row[d] & kMagnitude;
        found = magnitude > found ? magnitude : found;
    }
    found = warp_max(found);
    uint32_t warps = kWriteThreads / warp_width();
    if (thread_index() % warp_width() == 0) {
        shared.largest[thread_index() / warp_width()] = found;
    }
    barrier();
    for (uint32_t i = 0; i < warps; ++i) {
        uint32_t of_warp = shared.largest[i];
        found = of_warp > found ? of_warp : found;
    }
    return found;
}

// Converts a row's values to codes. If the row's own scale is 0 or NaN, all are 0.
QUIRE_DEVICE inline void store_codes(WriteShared &shared, const Side &side, float scale,
                                     bool is_zero) {
    for (uint32_t d = thread_index(); d < side.count; d += kWriteThreads) {
        float value = float_of(shared.row[d]);
        shared.row[d] = is_zero ? 0u : code_of(side.format, bits_of(value / scale));
    }
    barrier();
    bool is_packed = side.format == kI4;
    for (uint32_t i = thread_index(); i < bytes_of(side.format, side.count); i += kWriteThreads) {
        uint32_t code = is_packed ? shared.row[2 * i] | shared.row[2 * i + 1] << 4
                                  : static_cast<uint32_t>(shared.row[i]);
        store<uint8_t>(side.to + i, static_cast<uint8_t>(code));
    }
}

QUIRE_DEVICE inline void store_values(const KvWriteCall &call, WriteShared &shared,
                                      const Side &side) {
    bool is_same = side.format == call.given_format && side.format != kF32;
    for (uint32_t d = thread_index(); d < side.count; d += kWriteThreads) {
        bool is_turned = d >= side.turned_begin && d < side.turned_end;
        if (is_same && !is_turned) {  // keeps signalling NaNs
            uint64_t from =
                d < side.split ? side.first + d * 2 : side.second + (d - side.split) * 2;
            store<uint16_t>(side.to + d * 2, load<uint16_t>(from));
        } else {
            store_value(side.format, side.to, d, shared.row[d]);
        }
    }
}

QUIRE_DEVICE inline void write_side(const KvWriteCall &call, WriteShared &shared, const Side &side,
                                    uint32_t head, uint64_t block, uint32_t in_block) {
    load_row(call, shared, side);
    uint32_t scale_kind = side.index == 0 ? call.k_scale : call.v_scale;
    uint32_t number = side.index * call.kv_heads + head;
    bool has_own_scale = scale_kind == kScaleTokenHead;
    uint32_t found = side.is_measured || has_own_scale ? find_largest(shared, side.count) : 0;
    if (side.is_measured && thread_index() == 0) atomic_max(call.amax + number * 4, found);
    if (!holds_codes(side.format)) {
        store_values(call, shared, side);
    } else if (has_own_scale) {
        bool is_finite = found < kInfinityBits;
        float scale = is_finite ? float_of(found) / largest_code(side.format) : float_of(kNanBits);
        store_codes(shared, side, scale, !is_finite || scale == 0.0f);
        int64_t offset = side.index == 0 ? call.k_scale_offset : call.v_scale_offset;
        uint64_t at = block + static_cast<uint64_t>(offset + head * call.scale_head_stride);
        if (thread_index() == 0) store<float>(at + in_block * 4, scale);
    } else {
        store_codes(shared, side, load_float(call.scales, number), false);
    }
    barrier();  // before the next row is loaded
}

QUIRE_DEVICE inline void write_token(const KvWriteCall &call, WriteShared &shared, uint32_t token,
                                     int64_t slot) {
    uint64_t block =
        call.pool + static_cast<uint64_t>(slot / call.block_tokens * call.block_stride);
    auto in_block = static_cast<uint32_t>(slot % call.block_tokens);
    uint32_t size = bytes_of(call.given_format, 1);
    uint64_t k = call.k + static_cast<uint64_t>(int64_t{token} * call.k_given_stride) * size;
    uint64_t v = call.v + static_cast<uint64_t>(int64_t{token} * call.v_given_stride) * size;
    uint64_t k_to = block + static_cast<uint64_t>(in_block * call.k_token_stride);
    uint64_t v_to = block + static_cast<uint64_t>(call.v_offset + in_block * call.v_token_stride);
    bool is_latent = call.is_latent != 0;
    bool is_measured = call.amax != 0 && slot >= call.block_tokens;
    // A latent row has one side: the latent, followed by the rotated part.
    for (uint32_t i = 0; i < (is_latent ? 1 : 2 * call.kv_heads); ++i) {
        uint32_t head = i / 2;
        bool is_v = i % 2 == 1;
        uint32_t dim = is_v ? call.v_dim : call.k_dim;
        Side side;
        side.first = (is_v ? v : k) + uint64_t{head} * dim * size;
        side.second = v;
        side.split = is_latent ? call.v_dim : dim;
        side.count = dim;
        side.turned_begin = is_v ? 0 : rope_begin(call);
        side.turned_end = side.turned_begin + (is_v ? 0 : call.rotated_dim);
        side.format = is_v ? call.v_format : call.k_format;
        side.to = is_v ? v_to + static_cast<uint64_t>(head * call.v_head_stride)
                       : k_to + static_cast<uint64_t>(head * call.k_head_stride);
        side.index = is_v ? 1 : 0;
        side.is_measured = is_measured;
        write_side(call, shared, side, head, block, in_block);
    }
}

QUIRE_DEVICE inline Values halves_of(int64_t a, int64_t b) {
    return {{static_cast<int32_t>(a), static_cast<int32_t>(a >> 32), static_cast<int32_t>(b),
             static_cast<int32_t>(b >> 32)}};
}

QUIRE_KERNEL(quire_kv_write, 64, KvWriteCall, call) {
    QUIRE_SHARED(WriteShared, shared);
    if (is_idle(call.head, shared.idle)) return;
    auto token = static_cast<uint32_t>(group_index());
    if (call.rotated_dim != 0) {
        make_turn(call, shared, load_int(call.positions, token));
        barrier();
        if (call.q != 0) turn_queries(call, shared, token);
    }
    auto slot = load<int64_t>(call.slots + uint64_t{token} * 8);
    if (slot < 0) return;
    if (slot >= call.slot_count) {
        if (thread_index() == 0) {
            raise_fault(call.head, kFaultSlot, token, halves_of(slot, call.slot_count));
        }
        return;
    }
    write_token(call, shared, token, slot);
}

}  // namespace quire::gpu
