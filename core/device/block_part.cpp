// SPDX-License-Identifier: Apache-2.0

#include "core/device/block_part.hpp"

namespace quire {

BlockPart part_of(const quire_be_pool &pool, uint32_t first_layer, uint32_t first_head) {
    BlockPart part;
    part.first_layer = first_layer;
    part.layer_count = pool.layer_count;
    part.first_head = first_head;
    part.head_count = pool.kv_heads;
    auto place = [&](PlaneKind kind, int64_t offset, int64_t head_bytes) {
        part.planes[kind] =
            PlaneLayout{static_cast<uint64_t>(offset), static_cast<uint64_t>(pool.layer_stride),
                        static_cast<uint64_t>(head_bytes)};
    };
    bool latent = pool.group_kind == QUIRE_GROUP_LATENT;
    place(kPlaneK, 0, pool.k_head_stride);
    if (!latent) place(kPlaneV, pool.v_offset, pool.v_head_stride);
    if (pool.k_scale_kind == QUIRE_SCALE_TOKEN_HEAD) {
        place(kPlaneKScale, pool.k_scale_offset, pool.scale_head_stride);
    }
    if (pool.v_scale_kind == QUIRE_SCALE_TOKEN_HEAD && !latent) {
        place(kPlaneVScale, pool.v_scale_offset, pool.scale_head_stride);
    }
    return part;
}

bool same_part(const BlockPart &a, const BlockPart &b) {
    bool same = a.first_layer == b.first_layer && a.layer_count == b.layer_count &&
                a.first_head == b.first_head && a.head_count == b.head_count;
    for (uint32_t i = 0; i < kPlanes; ++i) {
        const PlaneLayout &p = a.planes[i], &q = b.planes[i];
        same = same && p.offset == q.offset && p.layer_stride == q.layer_stride &&
               p.head_bytes == q.head_bytes;
    }
    return same;
}

}  // namespace quire
