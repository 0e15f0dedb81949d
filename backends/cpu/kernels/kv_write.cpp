// SPDX-License-Identifier: Apache-2.0

#include "kernels/kv_write.hpp"

#include <algorithm>
#include <cstring>

#include "kernels/paged.hpp"

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

}  // namespace

void write_kv(const quire_be_kv_write &args, const quire_be_pool &pool, const Element &given,
              const Element &k, const Element &v) {
    const auto *slots = reinterpret_cast<const int64_t *>(args.slots);
    const auto *k_given = reinterpret_cast<const std::byte *>(args.k);
    const auto *v_given = reinterpret_cast<const std::byte *>(args.v);
    for (int64_t t = 0; t < args.token_count; ++t) {
        if (slots[t] < 0) continue;
        TokenPlace token = {slots[t] / pool.block_tokens, slots[t] % pool.block_tokens};
        for (uint32_t head = 0; head < pool.kv_heads; ++head) {
            int64_t k_at = t * args.k_token_stride + int64_t{head} * pool.k_head_dim;
            int64_t v_at = t * args.v_token_stride + int64_t{head} * pool.v_head_dim;
            convert_row(k_given + k_at * given.size_bytes, given,
                        k_row(pool, args.layer, head, token), k, pool.k_head_dim);
            convert_row(v_given + v_at * given.size_bytes, given,
                        v_row(pool, args.layer, head, token), v, pool.v_head_dim);
        }
    }
}

}  // namespace quire::cpu
