// SPDX-License-Identifier: Apache-2.0

#include "kernels/kv_write.hpp"

#include <algorithm>
#include <cstring>

#include "kernels/paged.hpp"
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

// A row's first or last rotated_dim elements are turned, the rest converted.
void turn_row(const std::byte *from, const Element &given, std::byte *to, const Element &kept,
              uint32_t count, const Rope &rope, const Turn &turn, bool is_at_end) {
    uint32_t rest = count - rope.rotated_dim;
    uint32_t turned_at = is_at_end ? rest : 0;
    uint32_t rest_at = is_at_end ? 0 : rope.rotated_dim;
    float values[kMaxLatentKDim];
    given.load(from + turned_at * given.size_bytes, values, rope.rotated_dim);
    apply_turn(rope, turn, values);
    kept.store(values, to + turned_at * kept.size_bytes, rope.rotated_dim);
    // Of q, which is turned in place, the rest stays where it is.
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

void write_heads(const KvWriteCall &call, int64_t t, TokenPlace token, const Turn *turn) {
    const quire_be_kv_write &args = call.args;
    const quire_be_pool &pool = call.pool;
    const auto *k_given = array_at<const std::byte>(args.k);
    const auto *v_given = array_at<const std::byte>(args.v);
    int64_t size_bytes = call.given->size_bytes;
    for (uint32_t head = 0; head < pool.kv_heads; ++head) {
        int64_t k_at = (t * args.k_token_stride + int64_t{head} * pool.k_head_dim) * size_bytes;
        int64_t v_at = (t * args.v_token_stride + int64_t{head} * pool.v_head_dim) * size_bytes;
        std::byte *k = k_row(pool, args.layer, head, token);
        if (turn != nullptr) {
            turn_row(k_given + k_at, *call.given, k, *call.k, pool.k_head_dim, *call.rope, *turn,
                     false);
        } else {
            convert_row(k_given + k_at, *call.given, k, *call.k, pool.k_head_dim);
        }
        convert_row(v_given + v_at, *call.given, v_row(pool, args.layer, head, token), *call.v,
                    pool.v_head_dim);
    }
}

// The latent, and behind it the rotated part of the key.
void write_latent(const KvWriteCall &call, int64_t t, TokenPlace token, const Turn *turn) {
    const quire_be_kv_write &args = call.args;
    int64_t size_bytes = call.given->size_bytes;
    uint32_t latent_dim = call.pool.v_head_dim;
    uint32_t rotated_part = call.pool.k_head_dim - latent_dim;
    std::byte *row = k_row(call.pool, args.layer, 0, token);
    std::byte *behind = row + latent_dim * call.k->size_bytes;
    convert_row(array_at<const std::byte>(args.k) + t * args.k_token_stride * size_bytes,
                *call.given, row, *call.k, latent_dim);
    if (rotated_part == 0) return;
    const auto *v = array_at<const std::byte>(args.v) + t * args.v_token_stride * size_bytes;
    if (turn != nullptr) {
        turn_row(v, *call.given, behind, *call.k, rotated_part, *call.rope, *turn, true);
    } else {
        convert_row(v, *call.given, behind, *call.k, rotated_part);
    }
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
