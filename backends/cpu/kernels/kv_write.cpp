// SPDX-License-Identifier: Apache-2.0

#include "kernels/kv_write.hpp"

#include <algorithm>
#include <cstring>

#include "kernels/amax.hpp"
#include "kernels/paged.hpp"
#include "kernels/scale.hpp"
#include "quire/cache.h"

namespace quire::cpu {

namespace {

void convert_row(const std::byte *from, const Element &given, std::byte *to, const Element &kept,
                 uint32_t count) {
    if (given.dtype == kept.dtype) {  // bit for bit, a signalling NaN too
        std::memcpy(to, from, count * given.size_bytes);
        return;
    }
    constexpr uint32_t kPiece = 256;
    float values[kPiece];
    for (uint32_t first = 0; first < count; first += kPiece) {
        uint32_t piece = std::min(kPiece, count - first);
        given.load(from + first * given.size_bytes, values, piece);
        kept.store(values, to + first * kept.size_bytes, piece);
    }
}

// Rotates a row's first or last rotated_dim elements and converts the rest.
void turn_row(const std::byte *from, const Element &given, std::byte *to, const Element &kept,
              uint32_t count, const Rope &rope, const Turn &turn, bool is_at_end) {
    uint32_t rest = count - rope.rotated_dim;
    uint32_t turned_at = is_at_end ? rest : 0;
    uint32_t rest_at = is_at_end ? 0 : rope.rotated_dim;
    float values[kMaxLatentKDim];
    given.load(from + turned_at * given.size_bytes, values, rope.rotated_dim);
    apply_turn(rope, turn, values);
    kept.store(values, to + turned_at * kept.size_bytes, rope.rotated_dim);
    // q is rotated in place, so its other elements stay as they are.
    if (from == to) return;
    convert_row(from + rest_at * given.size_bytes, given, to + rest_at * kept.size_bytes, kept,
                rest);
}

void turn_queries(const KvWriteCall &call, int64_t token, const Turn &turn) {
    auto *q = array_at<std::byte>(call.args.q);
    uint32_t dim = call.pool.k_head_dim;
    bool is_at_end = call.pool.group_kind == QUIRE_GROUP_LATENT;
    for (int64_t head = 0; head < static_cast<int64_t>(call.q_heads); ++head) {
        std::byte *row = q + (token * call.args.q_token_stride + head * dim) * call.q->size_bytes;
        turn_row(row, *call.q, row, *call.q, dim, *call.rope, turn, is_at_end);
    }
}

// Part of an input row, and how it is rotated when it is loaded as f32.
struct Part {
    const std::byte *given;
    uint32_t count;
    const Turn *turn;  // NULL: not rotated
    bool is_at_end;    // the rotated elements
};

// K or V of a pool: where the scales of its rows come from, and where a row lies.
struct Side {
    const Element &kept;
    uint32_t scale_kind;
    int64_t scale_offset;
    uint32_t index;  // 0 for K, 1 for V
    std::byte *row;
};

Side k_side(const KvWriteCall &call, uint32_t head, TokenPlace token) {
    return {*call.k, call.pool.k_scale_kind, call.pool.k_scale_offset, 0,
            k_row(call.pool, call.args.layer, head, token)};
}

Side v_side(const KvWriteCall &call, uint32_t head, TokenPlace token) {
    return {*call.v, call.pool.v_scale_kind, call.pool.v_scale_offset, 1,
            v_row(call.pool, call.args.layer, head, token)};
}

void load_part(const KvWriteCall &call, const Part &part, float *values) {
    call.given->load(part.given, values, part.count);
    if (part.turn == nullptr) return;
    uint32_t rest = part.count - call.rope->rotated_dim;
    apply_turn(*call.rope, *part.turn, values + (part.is_at_end ? rest : 0));
}

// Stores a row, given in one or two consecutive parts, as codes.
void write_codes(const KvWriteCall &call, const Side &side, uint32_t head, TokenPlace token,
                 const Part &first, const Part &second) {
    float values[kMaxLatentKDim];
    uint32_t count = first.count + second.count;
    load_part(call, first, values);
    if (second.count != 0) load_part(call, second, values + first.count);
    if (side.scale_kind != QUIRE_SCALE_TOKEN_HEAD) {
        float scale = static_scale(call.pool, side.index, call.args.layer, head);
        store_codes(side.kept, values, count, scale, side.row);
        return;
    }
    float scale = scale_of_row(side.kept, values, count);
    store_scaled_row(side.kept, values, count, scale, side.row);
    *row_scale_at(call.pool, side.scale_offset, call.args.layer, head, token) = scale;
}

// Raises the largest magnitude of a head's K or V by a row that is given in one or two parts.
void note_magnitude(const KvWriteCall &call, uint32_t side, uint32_t head, const Part &first,
                    const Part &second) {
    float values[kMaxLatentKDim];
    load_part(call, first, values);
    if (second.count != 0) load_part(call, second, values + first.count);
    raise_amax(amax_at(call.pool, side, call.args.layer, head), values, first.count + second.count);
}

void write_part(const KvWriteCall &call, const Part &part, const Element &kept, std::byte *to) {
    if (part.turn != nullptr) {
        turn_row(part.given, *call.given, to, kept, part.count, *call.rope, *part.turn,
                 part.is_at_end);
    } else {
        convert_row(part.given, *call.given, to, kept, part.count);
    }
}

bool is_measured(const KvWriteCall &call, TokenPlace token) {
    return call.pool.amax != 0 && token.block != 0;
}

void write_heads(const KvWriteCall &call, int64_t t, TokenPlace token, const Turn *turn) {
    const quire_be_kv_write &args = call.args;
    const quire_be_pool &pool = call.pool;
    const auto *k_given = array_at<const std::byte>(args.k);
    const auto *v_given = array_at<const std::byte>(args.v);
    int64_t size_bytes = call.given->size_bytes;
    for (uint32_t head = 0; head < pool.kv_heads; ++head) {
        int64_t k_at = (t * args.k_token_stride + int64_t{head} * pool.k_head_dim) * size_bytes;
        int64_t v_at = (t * args.v_token_stride + int64_t{head} * pool.v_head_dim) * size_bytes;
        Part k = {k_given + k_at, pool.k_head_dim, turn, false};
        Part v = {v_given + v_at, pool.v_head_dim, nullptr, false};
        for (bool is_v : {false, true}) {
            const Part &given = is_v ? v : k;
            if (is_measured(call, token)) note_magnitude(call, is_v ? 1 : 0, head, given, Part{});
            Side side = is_v ? v_side(call, head, token) : k_side(call, head, token);
            if (side.kept.holds_codes()) {
                write_codes(call, side, head, token, given, Part{});
            } else {
                write_part(call, given, side.kept, side.row);
            }
        }
    }
}

// Writes the latent, followed by the rotated part of the key.
void write_latent(const KvWriteCall &call, int64_t t, TokenPlace token, const Turn *turn) {
    const quire_be_kv_write &args = call.args;
    int64_t size_bytes = call.given->size_bytes;
    uint32_t latent_dim = call.pool.v_head_dim;
    Part latent = {array_at<const std::byte>(args.k) + t * args.k_token_stride * size_bytes,
                   latent_dim, nullptr, false};
    Part rotated{};
    if (call.pool.k_head_dim > latent_dim) {
        rotated = {array_at<const std::byte>(args.v) + t * args.v_token_stride * size_bytes,
                   call.pool.k_head_dim - latent_dim, turn, true};
    }
    if (is_measured(call, token)) note_magnitude(call, 0, 0, latent, rotated);
    Side side = k_side(call, 0, token);
    if (side.kept.holds_codes()) {
        write_codes(call, side, 0, token, latent, rotated);
        return;
    }
    write_part(call, latent, side.kept, side.row);
    if (rotated.count == 0) return;
    write_part(call, rotated, side.kept, side.row + side.kept.row_bytes(latent_dim));
}

}  // namespace

void write_kv(const KvWriteCall &call) {
    const auto *slots = array_at<const int64_t>(call.args.slots);
    const auto *positions = array_at<const int32_t>(call.args.positions);
    bool is_latent = call.pool.group_kind == QUIRE_GROUP_LATENT;
    for (int64_t t = 0; t < call.args.token_count; ++t) {
        Turn made;
        Turn *turn = call.rope != nullptr ? &made : nullptr;
        if (turn != nullptr) make_turn(*call.rope, positions[t], turn);
        if (turn != nullptr && call.args.q != 0) turn_queries(call, t, *turn);
        if (slots[t] < 0) continue;
        TokenPlace token = {slots[t] / call.pool.block_tokens, slots[t] % call.pool.block_tokens};
        if (is_latent) {
            write_latent(call, t, token, turn);
        } else {
            write_heads(call, t, token, turn);
        }
    }
}

}  // namespace quire::cpu
