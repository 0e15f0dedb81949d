// SPDX-License-Identifier: Apache-2.0
//
// kv_write: puts the K and V of new tokens into their slots, rotated by their positions and
// converted to the pool's formats, and rotates their queries.
//
// A block serves one token and some heads of one side: q, K or V. So every element has one block,
// and q is rotated once. Up to 32 lanes of a warp share a row, whose largest magnitude they find by
// themselves; threads of a block meet only after they computed a rope's sines together.
//
// Where all rows are aligned, a lane takes sixteen elements at a time, as two vectors of eight:
// quire_kv_write. Where not, it takes single elements: quire_kv_write_any.
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

struct alignas(8) Turn {
    float cosine, sine;
};

// Where pair i's turn lies: lanes read turns 4 or 8 apart, and gaps spread those over banks.
QUIRE_DEVICE constexpr uint32_t place_of_turn(uint32_t i) { return i + i / 8; }

struct WriteShared {
    SharedArray<uint32_t, 1> idle;
    SharedArray<Turn, kMostPairs + kMostPairs / 8> turns;
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
QUIRE_DEVICE inline void make_turns(const KvWriteCall &call, WriteShared &shared,
                                    int32_t position) {
    QUIRE_ROLLED
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
        shared.turns[place_of_turn(i)] = Turn{unit.a * call.magnitude, unit.b * call.magnitude};
    }
}

// A pair of elements, as f32 bits.
QUIRE_DEVICE inline void turn(const Turn &by, uint32_t &a, uint32_t &b) {
    Two of = {float_of(a), float_of(b)};
    a = bits_of(of.a * by.cosine - of.b * by.sine);
    b = bits_of(of.b * by.cosine + of.a * by.sine);
}

// A row of a head: where its elements come from, and where they go.
struct WriteRow {
    uint64_t first;   // elements [0, split) come from here
    uint64_t second;  // and the rest from here
    uint32_t split;
    uint32_t count;
    uint32_t turned_begin, turned_end;
    uint32_t given_format, format;
    uint64_t to;
    uint32_t lanes;  // that share it

    QUIRE_DEVICE uint32_t lane() const { return thread_index() & (lanes - 1); }
    QUIRE_DEVICE uint64_t source(uint32_t d) const { return d < split ? first : second; }
    QUIRE_DEVICE uint32_t place(uint32_t d) const { return d < split ? d : d - split; }
    QUIRE_DEVICE bool is_turned(uint32_t d) const { return d >= turned_begin && d < turned_end; }
    // Its elements are copied bit for bit, which keeps signalling NaNs, unless they are turned.
    QUIRE_DEVICE bool is_copied() const { return format == given_format && format != kF32; }
};

struct Scale {
    float value;
    bool is_zero;  // all codes are 0, because the row's own scale is 0 or NaN
};

QUIRE_DEVICE inline uint32_t scaled_code(const WriteRow &row, const Scale &scale, uint32_t bits) {
    return scale.is_zero ? 0u : code_of(row.format, bits_of(float_of(bits) / scale.value));
}

// Single elements, of any row.

// The elements that pair i of the rope turns into each other.
struct PairOfElements {
    uint32_t a, b;
};
QUIRE_DEVICE inline PairOfElements pair_elements(const KvWriteCall &call, const WriteRow &row,
                                                 uint32_t i) {
    uint32_t begin = row.turned_begin;
    if (call.is_in_pairs != 0) return {begin + 2 * i, begin + 2 * i + 1};
    return {begin + i, begin + i + call.rotated_dim / 2};
}

QUIRE_DEVICE inline uint32_t given_element(const WriteRow &row, uint32_t d) {
    return load_value_bits(row.given_format, row.source(d), row.place(d));
}

QUIRE_DEVICE inline uint32_t element(const KvWriteCall &call, WriteShared &shared,
                                     const WriteRow &row, uint32_t d) {
    if (!row.is_turned(d)) return given_element(row, d);
    uint32_t in_turn = d - row.turned_begin;
    uint32_t half = call.rotated_dim / 2;
    uint32_t in_half = in_turn < half ? in_turn : in_turn - half;
    uint32_t pair = call.is_in_pairs != 0 ? in_turn / 2 : in_half;
    PairOfElements at = pair_elements(call, row, pair);
    uint32_t a = given_element(row, at.a);
    uint32_t b = given_element(row, at.b);
    turn(shared.turns[place_of_turn(pair)], a, b);
    return d == at.a ? a : b;
}

// The largest magnitude in the lane's share of a row.
QUIRE_DEVICE inline uint32_t largest_element(const KvWriteCall &call, WriteShared &shared,
                                             const WriteRow &row) {
    uint32_t found = 0;
    for (uint32_t d = row.lane(); d < row.count; d += row.lanes) {
        found = larger(found, element(call, shared, row, d) & kMagnitude);
    }
    return found;
}

QUIRE_DEVICE inline void write_elements(const KvWriteCall &call, WriteShared &shared,
                                        const WriteRow &row, const Scale &scale) {
    uint32_t step = row.format == kI4 ? 2 : 1;  // elements of a byte of codes
    for (uint32_t first = row.lane() * step; first < row.count; first += row.lanes * step) {
        uint32_t code = 0;
        QUIRE_ROLLED
        for (uint32_t d = first; d < first + step; ++d) {
            if (row.is_copied() && !row.is_turned(d)) {
                store<uint16_t>(row.to + d * 2, load<uint16_t>(row.source(d) + row.place(d) * 2));
                continue;
            }
            uint32_t bits = element(call, shared, row, d);
            if (holds_codes(row.format)) {
                code |= scaled_code(row, scale, bits) << (d - first) * 4;
            } else {
                store_value(row.format, row.to, d, bits);
            }
        }
        if (holds_codes(row.format)) {
            store<uint8_t>(row.to + first / step, static_cast<uint8_t>(code));
        }
    }
}

// Both elements of a pair have one thread, because they are replaced.
QUIRE_DEVICE inline void turn_elements(const KvWriteCall &call, WriteShared &shared,
                                       const WriteRow &row) {
    for (uint32_t i = row.lane(); i < call.rotated_dim / 2; i += row.lanes) {
        PairOfElements at = pair_elements(call, row, i);
        uint32_t a = given_element(row, at.a);
        uint32_t b = given_element(row, at.b);
        turn(shared.turns[place_of_turn(i)], a, b);
        store_value(row.format, row.to, at.a, a);
        store_value(row.format, row.to, at.b, b);
    }
}

// Units of sixteen elements, of aligned rows.

// Two vectors of eight, which begin at elements a and b. Units of the rope's part come first, then
// those of the rest, which may be before it or after it. The first vectors of a part's units lie
// side by side, and so do the second ones: lanes share sectors, and a rope in halves turns a unit's
// vectors into each other.
struct WriteUnit {
    uint32_t a, b;
    bool is_turned;
    bool has_b;
};

QUIRE_DEVICE inline uint32_t turned_units(const WriteRow &row) {
    return (row.turned_end - row.turned_begin) / 16;
}

QUIRE_DEVICE inline uint32_t other_units(const WriteRow &row) {
    return (row.count - (row.turned_end - row.turned_begin) + 15) / 16;
}

QUIRE_DEVICE inline WriteUnit unit_at(const WriteRow &row, uint32_t index) {
    uint32_t turned = turned_units(row);
    if (index < turned) {
        uint32_t a = row.turned_begin + 8 * index;
        return {a, a + 8 * turned, true, true};
    }
    bool is_after = row.turned_begin == 0;
    uint32_t a = (is_after ? row.turned_end : 0) + 8 * (index - turned);
    uint32_t b = a + 8 * other_units(row);
    return {a, b, false, b < (is_after ? row.count : row.turned_begin)};
}

struct Sixteen {
    Eight a, b;
};

// The unit's elements, turned; those that it does not have are 0.
QUIRE_DEVICE inline Sixteen elements_of(const KvWriteCall &call, WriteShared &shared,
                                        const WriteRow &row, uint32_t index) {
    WriteUnit unit = unit_at(row, index);
    Sixteen of = {};
    of.a = load_eight(row.given_format, row.source(unit.a), row.place(unit.a));
    if (unit.has_b) of.b = load_eight(row.given_format, row.source(unit.b), row.place(unit.b));
    if (!unit.is_turned) return of;
    if (call.is_in_pairs != 0) {
        uint32_t a = place_of_turn(4 * index);
        uint32_t b = place_of_turn(4 * (index + turned_units(row)));
        QUIRE_UNROLL
        for (uint32_t i = 0; i < 4; ++i) {
            turn(shared.turns[a + i], of.a.bits[2 * i], of.a.bits[2 * i + 1]);
            turn(shared.turns[b + i], of.b.bits[2 * i], of.b.bits[2 * i + 1]);
        }
    } else {
        uint32_t first = place_of_turn(8 * index);
        QUIRE_UNROLL
        for (uint32_t i = 0; i < 8; ++i) {
            turn(shared.turns[first + i], of.a.bits[i], of.b.bits[i]);
        }
    }
    return of;
}

QUIRE_DEVICE inline void write_eight(const WriteRow &row, const Scale &scale, uint32_t d,
                                     const Eight &eight) {
    if (!holds_codes(row.format)) return store_eight_values(row.format, row.to, d, eight);
    uint32_t bits = row.format == kI4 ? 4 : 8;
    uint64_t codes = 0;
    Eight left = eight;
    // A division takes much code, so there is one and not eight.
    QUIRE_ROLLED
    for (uint32_t i = 0; i < 8; ++i) {
        codes |= uint64_t{scaled_code(row, scale, left.bits[0])} << (bits * i);
        QUIRE_UNROLL
        for (uint32_t j = 0; j < 7; ++j) left.bits[j] = left.bits[j + 1];
    }
    if (bits == 4) {
        store<uint32_t>(row.to + d / 2, static_cast<uint32_t>(codes));
    } else {
        store<uint64_t>(row.to + d, codes);
    }
}

QUIRE_DEVICE inline void copy_unit(const WriteRow &row, const WriteUnit &unit) {
    auto a = load<FourWords>(row.source(unit.a) + row.place(unit.a) * 2);
    FourWords b = {};
    if (unit.has_b) b = load<FourWords>(row.source(unit.b) + row.place(unit.b) * 2);
    store<FourWords>(row.to + unit.a * 2, a);
    if (unit.has_b) store<FourWords>(row.to + unit.b * 2, b);
}

// The largest magnitude in the lane's share of a row.
QUIRE_DEVICE inline uint32_t largest_of_units(const KvWriteCall &call, WriteShared &shared,
                                              const WriteRow &row) {
    uint32_t found = 0;
    uint32_t end = turned_units(row) + other_units(row);
    for (uint32_t index = row.lane(); index < end; index += row.lanes) {
        Sixteen of = elements_of(call, shared, row, index);
        QUIRE_UNROLL
        for (uint32_t i = 0; i < 8; ++i) {
            found = larger(found, of.a.bits[i] & kMagnitude);
            found = larger(found, of.b.bits[i] & kMagnitude);
        }
    }
    return found;
}

// Only the row's first `end` units.
QUIRE_DEVICE inline void write_units(const KvWriteCall &call, WriteShared &shared,
                                     const WriteRow &row, const Scale &scale, uint32_t end) {
    for (uint32_t index = row.lane(); index < end; index += row.lanes) {
        WriteUnit unit = unit_at(row, index);
        if (row.is_copied() && !unit.is_turned) {
            copy_unit(row, unit);
            continue;
        }
        Sixteen of = elements_of(call, shared, row, index);
        // One after the other, because this is most of the kernel's code.
        QUIRE_ROLLED
        for (uint32_t side = 0; side < (unit.has_b ? 2 : 1); ++side) {
            Eight eight;
            QUIRE_UNROLL
            for (uint32_t i = 0; i < 8; ++i) {
                eight.bits[i] = side == 0 ? of.a.bits[i] : of.b.bits[i];
            }
            write_eight(row, scale, side == 0 ? unit.a : unit.b, eight);
        }
    }
}

// A block's share: one side of one token, and which of the side's blocks this is.
struct Share {
    uint32_t token, side, part;
};

QUIRE_DEVICE inline Share share_of(const KvWriteCall &call) {
    auto group = static_cast<uint32_t>(group_index());  // below 65535^2, by kernels.cpp
    uint32_t per_token = call.blocks[kWriteQ] + call.blocks[kWriteK] + call.blocks[kWriteV];
    Share share = {group / per_token, kWriteQ, group % per_token};
    while (share.part >= call.blocks[share.side]) share.part -= call.blocks[share.side++];
    return share;
}

// Where a token's slot is: the address of its block's layer, and its place in the block.
struct Slot {
    uint64_t block;
    uint32_t place;
    bool is_null;  // in the null block
};

QUIRE_DEVICE inline Slot slot_at(const KvWriteCall &call, uint64_t number) {
    bool is_small = call.slot_count <= UINT32_MAX;  // else the division takes much longer
    uint64_t block =
        is_small ? static_cast<uint32_t>(number) / call.block_tokens : number / call.block_tokens;
    return {call.pool + block * static_cast<uint64_t>(call.block_stride),
            static_cast<uint32_t>(number - block * call.block_tokens), block == 0};
}

QUIRE_DEVICE inline uint64_t given_row(uint64_t side, uint32_t format, int64_t element) {
    return side + static_cast<uint64_t>(element) * bytes_of(format, 1);
}

// The row of a head, which queries have in place of a slot. A latent row is the latent, followed by
// the rotated part, and has no V.
QUIRE_DEVICE inline WriteRow row_of(const KvWriteCall &call, const Share &share, uint32_t head,
                                    const Slot &slot) {
    int64_t token = share.token;
    WriteRow row;
    row.given_format = call.given_format;
    row.split = row.count = share.side == kWriteV ? call.v_dim : call.k_dim;
    row.turned_begin = call.is_latent != 0 ? call.k_dim - call.rotated_dim : 0;
    row.turned_end = row.turned_begin + call.rotated_dim;
    if (share.side == kWriteQ) {
        int64_t first = token * call.q_stride + int64_t{head} * call.k_dim;
        row.first = row.second = row.to = given_row(call.q, call.q_format, first);
        row.given_format = row.format = call.q_format;
    } else if (share.side == kWriteK) {
        int64_t first = token * call.k_given_stride + int64_t{head} * call.k_dim;
        row.first = given_row(call.k, call.given_format, first);
        row.second = given_row(call.v, call.given_format, token * call.v_given_stride);
        if (call.is_latent != 0) row.split = call.v_dim;
        row.format = call.k_format;
        row.to = slot.block + static_cast<uint64_t>(head * call.k_head_stride +
                                                    slot.place * call.k_token_stride);
    } else {
        int64_t first = token * call.v_given_stride + int64_t{head} * call.v_dim;
        row.first = row.second = given_row(call.v, call.given_format, first);
        row.format = call.v_format;
        row.to = slot.block + static_cast<uint64_t>(call.v_offset + head * call.v_head_stride +
                                                    slot.place * call.v_token_stride);
        row.turned_begin = row.turned_end = 0;
    }
    row.lanes = 1u << call.lane_bits[share.side];
    return row;
}

// The two ways of a lane through its share of a row, each in a kernel of its own.
struct Units {
    static QUIRE_DEVICE uint32_t largest(const KvWriteCall &call, WriteShared &shared,
                                         const WriteRow &row) {
        return largest_of_units(call, shared, row);
    }
    static QUIRE_DEVICE void write(const KvWriteCall &call, WriteShared &shared,
                                   const WriteRow &row, const Scale &scale, bool is_q) {
        write_units(call, shared, row, scale, turned_units(row) + (is_q ? 0 : other_units(row)));
    }
};
struct Elements {
    static QUIRE_DEVICE uint32_t largest(const KvWriteCall &call, WriteShared &shared,
                                         const WriteRow &row) {
        return largest_element(call, shared, row);
    }
    static QUIRE_DEVICE void write(const KvWriteCall &call, WriteShared &shared,
                                   const WriteRow &row, const Scale &scale, bool is_q) {
        if (is_q) return turn_elements(call, shared, row);
        write_elements(call, shared, row, scale);
    }
};

// The scale of a row with this largest magnitude.
QUIRE_DEVICE inline Scale own_scale(uint32_t format, uint32_t largest) {
    if (largest >= kInfinityBits) return {float_of(kNanBits), true};
    float scale = float_of(largest) / largest_code(format);
    return {scale, scale == 0.0f};
}

// Writes the rows that the calling thread's warp shares, all of whose threads call this.
template <typename Way>
QUIRE_DEVICE inline void write_rows(const KvWriteCall &call, WriteShared &shared,
                                    const Share &share, uint32_t head, const Slot &slot) {
    WriteRow row = row_of(call, share, head, slot);
    bool is_q = share.side == kWriteQ;
    bool is_v = share.side == kWriteV;
    bool is_row = head < (is_q ? call.q_heads : call.kv_heads);
    bool is_measured = call.amax != 0 && !is_q && !slot.is_null;
    bool has_own_scale = !is_q && (is_v ? call.v_scale : call.k_scale) == kScaleTokenHead;
    uint32_t number = (is_v ? call.kv_heads : 0) + head;
    Scale scale = {1.0f, false};
    if (is_measured || has_own_scale) {
        uint32_t found = is_row ? Way::largest(call, shared, row) : 0;
        for (uint32_t step = row.lanes / 2; step != 0; step /= 2) {
            found = larger(found, shuffle_xor(found, step));
        }
        if (!is_row) return;
        if (is_measured && row.lane() == 0) atomic_max(call.amax + number * 4, found);
        if (has_own_scale) {
            scale = own_scale(row.format, found);
            int64_t offset = is_v ? call.v_scale_offset : call.k_scale_offset;
            offset += head * call.scale_head_stride + slot.place * 4;
            uint64_t at = slot.block + static_cast<uint64_t>(offset);
            if (row.lane() == 0) store<float>(at, scale.value);
        }
    }
    if (!is_row) return;
    if (!has_own_scale && holds_codes(row.format)) scale.value = load_float(call.scales, number);
    Way::write(call, shared, row, scale, is_q);
}

QUIRE_DEVICE inline Values halves_of(int64_t a, int64_t b) {
    return {{static_cast<int32_t>(a), static_cast<int32_t>(a >> 32), static_cast<int32_t>(b),
             static_cast<int32_t>(b >> 32)}};
}

template <typename Way>
QUIRE_DEVICE inline void serve_block(const KvWriteCall &call, WriteShared &shared) {
    if (group_index() >= call.head.group_count) return;
    Share share = share_of(call);
    // Threads that meet later must agree on this, and another block may raise a fault meanwhile.
    bool is_idle = has_fault(call.head);
    if (call.rotated_dim != 0 && share.side != kWriteV) {
        if (thread_index() == 0) shared.idle[0] = is_idle ? 1 : 0;
        make_turns(call, shared, load_int(call.positions, share.token));
        barrier();
        is_idle = shared.idle[0] != 0;
    } else {
        is_idle = ballot(is_idle) != 0;
    }
    if (is_idle) return;
    uint32_t first = share.part * kWriteThreads + thread_index();
    uint32_t head = first >> call.lane_bits[share.side];
    Slot slot = {};
    if (share.side != kWriteQ) {
        auto number = load<int64_t>(call.slots + uint64_t{share.token} * 8);
        if (number < 0) return;
        if (number >= call.slot_count) {
            if (thread_index() == 0) {
                raise_fault(call.head, kFaultSlot, share.token, halves_of(number, call.slot_count));
            }
            return;
        }
        slot = slot_at(call, static_cast<uint64_t>(number));
    }
    write_rows<Way>(call, shared, share, head, slot);
}

QUIRE_KERNEL(quire_kv_write, 64, KvWriteCall, call) {
    QUIRE_SHARED(WriteShared, shared);
    serve_block<Units>(call, shared);
}

QUIRE_KERNEL(quire_kv_write_any, 64, KvWriteCall, call) {
    QUIRE_SHARED(WriteShared, shared);
    serve_block<Elements>(call, shared);
}

}  // namespace quire::gpu
