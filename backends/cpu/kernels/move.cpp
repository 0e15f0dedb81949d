// SPDX-License-Identifier: Apache-2.0

#include "kernels/move.hpp"

#include <cstring>

#include "kernels/element.hpp"
#include "kernels/paged.hpp"
#include "quire/cache.h"

namespace quire::cpu {

void move_token(const quire_be_pool &pool, const quire_be_move &move) {
    TokenPlace from = {move.src / pool.block_tokens, move.src % pool.block_tokens};
    TokenPlace to = {move.dst / pool.block_tokens, move.dst % pool.block_tokens};
    uint64_t k_bytes = find_element(pool.k_dtype)->row_bytes(pool.k_head_dim);
    uint64_t v_bytes = find_element(pool.v_dtype)->row_bytes(pool.v_head_dim);
    bool has_v = pool.group_kind != QUIRE_GROUP_LATENT;
    bool has_k_scale = pool.k_scale_kind == QUIRE_SCALE_TOKEN_HEAD;
    bool has_v_scale = has_v && pool.v_scale_kind == QUIRE_SCALE_TOKEN_HEAD;
    auto move_scale = [&](int64_t offset, uint32_t layer, uint32_t head) {
        // As bytes, so that a signalling NaN is kept.
        std::memmove(row_scale_at(pool, offset, layer, head, to),
                     row_scale_at(pool, offset, layer, head, from), sizeof(float));
    };
    for (uint32_t layer = 0; layer < pool.layer_count; ++layer) {
        for (uint32_t head = 0; head < pool.kv_heads; ++head) {
            // Source and destination may be the same slot.
            std::memmove(k_row(pool, layer, head, to), k_row(pool, layer, head, from), k_bytes);
            if (has_k_scale) move_scale(pool.k_scale_offset, layer, head);
            if (has_v_scale) move_scale(pool.v_scale_offset, layer, head);
            if (!has_v) continue;
            std::memmove(v_row(pool, layer, head, to), v_row(pool, layer, head, from), v_bytes);
        }
    }
}

}  // namespace quire::cpu
