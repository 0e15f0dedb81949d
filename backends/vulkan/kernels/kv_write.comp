// SPDX-License-Identifier: Apache-2.0
//
// kv_write: puts the K and V of new tokens into their slots, rotated by their positions and
// converted to the pool's formats. A workgroup writes one token.
//
// Elements that are not rotated and already have the pool's format are copied bit for bit. A row of
// codes is rotated, then scaled. Magnitudes are those of the rotated values before scaling; the
// null block does not count, since engines write arbitrary padding there.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "call.glsl"
#include "fault.glsl"
#include "number.glsl"

const uint kScaleTokenHead = 3;
const uint kMostElements = 576;
const uint kMostPairs = 288;

// pool_write.cpp, KvWriteArguments.
layout(buffer_reference, scalar, buffer_reference_align = 16) readonly buffer Arguments {
    uint64_t k, v, slots, positions, q, turns;
    uint64_t pool, scales, amax;  // all three at the layer
    int64_t slot_count;
    int64_t block_stride, v_offset;
    int64_t k_head_stride, k_token_stride, v_head_stride, v_token_stride;
    int64_t k_scale_offset, v_scale_offset, scale_head_stride;
    int64_t k_given_stride, v_given_stride, q_stride;  // elements
    uint block_tokens, kv_heads, k_dim, v_dim;
    uint k_format, v_format, k_scale, v_scale;
    uint given_format, q_format, q_heads, rotated_dim;
    uint is_in_pairs, is_latent;
    float magnitude;
};

shared uint row[kMostElements];  // one row of a head, as f32 bits
shared uint largest[kLanes];
shared float cosines[kMostPairs];
shared float sines[kMostPairs];

// sin and cos on [-pi/4, pi/4], minimax polynomials (Cephes, sinf and cosf).
vec2 turned_unit(float x) {
    float z = x * x;
    float s = ((-1.9515295891e-4 * z + 8.3321608736e-3) * z - 1.6666654611e-1) * z * x + x;
    float c = ((2.443315711809948e-5 * z - 1.388731625493765e-3) * z + 4.166664568298827e-2) * z *
                  z - 0.5 * z + 1.0;
    return vec2(c, s);
}

// The angle is in units of 2^-64 turns, so it wraps as turns do (plan.cpp).
void make_turn(Arguments call, int position) {
    for (uint i = lane(); i < call.rotated_dim / 2; i += kLanes) {
        uint64_t angle = uint64_t(int64_t(position)) * load_wide(call.turns + i * 8);
        uint64_t shifted = angle + (1ul << 61);
        uint quadrant = uint(shifted >> 62);
        int rest = int(uint(shifted >> 30) - 0x80000000u);  // of the quadrant, in units of 2^-32
        vec2 unit = turned_unit(float(rest) * 3.6572952e-10);  // pi / 2 / 2^32
        if (quadrant == 1) unit = vec2(-unit.y, unit.x);
        if (quadrant == 2) unit = -unit;
        if (quadrant == 3) unit = vec2(unit.y, -unit.x);
        cosines[i] = unit.x * call.magnitude;
        sines[i] = unit.y * call.magnitude;
    }
}

// The elements of pair i, counted from where the rope begins.
uvec2 pair_elements(Arguments call, uint i) {
    return call.is_in_pairs != 0 ? uvec2(2 * i, 2 * i + 1) : uvec2(i, i + call.rotated_dim / 2);
}

vec2 turn(vec2 ab, uint pair) {
    precise float x = ab.x * cosines[pair] - ab.y * sines[pair];
    precise float y = ab.y * cosines[pair] + ab.x * sines[pair];
    return vec2(x, y);
}

uint rope_begin(Arguments call) { return call.is_latent != 0 ? call.k_dim - call.rotated_dim : 0; }

void turn_queries(Arguments call, uint token) {
    uint pairs = call.rotated_dim / 2;
    for (uint i = lane(); i < pairs * call.q_heads; i += kLanes) {
        uint pair = i % pairs;
        int64_t first = int64_t(token) * call.q_stride + int64_t(i / pairs) * call.k_dim;
        uint64_t head = call.q + uint64_t(first) * bytes_of(call.q_format, 1);
        uvec2 at = pair_elements(call, pair) + rope_begin(call);
        vec2 ab;
        [[unroll]] for (uint e = 0; e < 2; ++e) ab[e] = load_number(call.q_format, head, at[e]);
        vec2 turned = turn(ab, pair);
        [[unroll]] for (uint e = 0; e < 2; ++e) {
            store_value(call.q_format, head, at[e], floatBitsToUint(turned[e]));
        }
    }
}

// One side of a head: where its elements come from, and where they go.
struct Side {
    uint64_t first;   // elements [0, split) come from here
    uint64_t second;  // and the rest from here
    uint split;
    uint count;
    uint turned_begin, turned_end;
    uint format;
    uint64_t to;
    uint index;  // 0: K, 1: V
    bool is_measured;
};

void load_row(Arguments call, Side side) {
    for (uint d = lane(); d < side.count; d += kLanes) {
        bool is_first = d < side.split;
        row[d] = load_bits(call.given_format, is_first ? side.first : side.second,
                           is_first ? d : d - side.split);
    }
    barrier();
    uint pairs = (side.turned_end - side.turned_begin) / 2;
    for (uint i = lane(); i < pairs; i += kLanes) {
        uvec2 at = pair_elements(call, i) + side.turned_begin;
        vec2 turned = turn(uintBitsToFloat(uvec2(row[at.x], row[at.y])), i);
        row[at.x] = floatBitsToUint(turned.x);
        row[at.y] = floatBitsToUint(turned.y);
    }
    barrier();
}

// Returns the row's largest magnitude to every lane.
uint find_largest(uint count) {
    uint found = 0;
    for (uint d = lane(); d < count; d += kLanes) found = max(found, row[d] & 0x7FFFFFFFu);
    largest[lane()] = found;
    barrier();
    for (uint i = 0; i < kLanes; ++i) found = max(found, largest[i]);
    barrier();
    return found;
}

// Converts a row's values to codes. If the row's own scale is 0 or NaN, all are 0.
void store_codes(Side side, uint scale, bool is_zero) {
    for (uint d = lane(); d < side.count; d += kLanes) {
        row[d] = is_zero ? 0 : code_of(side.format, divide(row[d], scale));
    }
    barrier();
    bool is_packed = side.format == kI4;
    for (uint i = lane(); i < bytes_of(side.format, side.count); i += kLanes) {
        store_byte(side.to + i, is_packed ? row[2 * i] | row[2 * i + 1] << 4 : row[i]);
    }
}

void store_values(Arguments call, Side side) {
    bool is_same = side.format == call.given_format;
    for (uint d = lane(); d < side.count; d += kLanes) {
        bool is_turned = d >= side.turned_begin && d < side.turned_end;
        if (is_same && !is_turned && side.format != kF32) {  // keeps signalling NaNs
            bool is_first = d < side.split;
            uint64_t from = is_first ? side.first : side.second - side.split * 2ul;
            store_half(side.to + d * 2, load_half(from + d * 2));
        } else {
            store_value(side.format, side.to, d, row[d]);
        }
    }
}

void write_side(Arguments call, Side side, uint head, uint64_t block, uint in_block) {
    load_row(call, side);
    uint scale_kind = side.index == 0 ? call.k_scale : call.v_scale;
    bool has_own_scale = scale_kind == kScaleTokenHead;
    uint found = side.is_measured || has_own_scale ? find_largest(side.count) : 0;
    if (side.is_measured && lane() == 0) {
        uint64_t at = call.amax + (side.index * call.kv_heads + head) * 4;
        atomicMax(Word(real(at)).v, found);
    }
    if (!holds_codes(side.format)) {
        store_values(call, side);
    } else if (has_own_scale) {
        uint scale = found >= kInfinityBits ? kNanBits
                                            : divide(found, largest_code_bits(side.format));
        store_codes(side, scale, scale == 0 || scale > kInfinityBits);
        int64_t offset = side.index == 0 ? call.k_scale_offset : call.v_scale_offset;
        uint64_t at = block + uint64_t(offset + int64_t(head) * call.scale_head_stride);
        if (lane() == 0) store_word(at + in_block * 4, scale);
    } else {
        uint scale = load_word(call.scales + (side.index * call.kv_heads + head) * 4);
        store_codes(side, scale, false);
    }
    barrier();  // before the next row is loaded
}

void write_token(Arguments call, uint token, int64_t slot) {
    uint64_t block = call.pool + uint64_t(slot / call.block_tokens * call.block_stride);
    uint in_block = uint(slot % call.block_tokens);
    uint size = bytes_of(call.given_format, 1);
    uint64_t k = call.k + uint64_t(int64_t(token) * call.k_given_stride) * size;
    uint64_t v = call.v + uint64_t(int64_t(token) * call.v_given_stride) * size;
    uint64_t k_to = block + uint64_t(in_block * call.k_token_stride);
    uint64_t v_to = block + uint64_t(call.v_offset + in_block * call.v_token_stride);
    bool is_latent = call.is_latent != 0;
    bool is_measured = call.amax != 0 && slot >= call.block_tokens;
    // A latent row has one side: the latent, followed by the rotated part.
    for (uint i = 0; i < (is_latent ? 1 : 2 * call.kv_heads); ++i) {
        uint head = i / 2;
        bool is_v = i % 2 == 1;
        uint dim = is_v ? call.v_dim : call.k_dim;
        Side side;
        side.first = is_v ? v + head * dim * size : k + head * dim * size;
        side.second = v;
        side.split = is_latent ? call.v_dim : dim;
        side.count = dim;
        side.turned_begin = is_v ? 0 : rope_begin(call);
        side.turned_end = side.turned_begin + (is_v ? 0 : call.rotated_dim);
        side.format = is_v ? call.v_format : call.k_format;
        side.to = is_v ? v_to + uint64_t(head * call.v_head_stride)
                       : k_to + uint64_t(head * call.k_head_stride);
        side.index = is_v ? 1 : 0;
        side.is_measured = is_measured;
        write_side(call, side, head, block, in_block);
    }
}

void main() {
    if (is_idle()) return;
    Arguments call = Arguments(push.arguments);
    uint token = uint(workgroup());
    if (call.rotated_dim != 0) {
        make_turn(call, load_int(call.positions, token));
        barrier();
        if (call.q != 0) turn_queries(call, token);
    }
    int64_t slot = int64_t(load_wide(call.slots + token * 8ul));
    if (slot < 0) return;
    if (slot >= call.slot_count) {
        uvec4 values = uvec4(uint(slot), uint(slot >> 32), uint(call.slot_count),
                             uint(call.slot_count >> 32));
        if (lane() == 0) raise_fault(kFaultSlot, token, ivec4(values));
        return;
    }
    write_token(call, token, slot);
}
