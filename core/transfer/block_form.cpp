// SPDX-License-Identifier: Apache-2.0

#include "core/transfer/block_form.hpp"

namespace quire {

namespace {

// Calls visit(offset of the f32 in the block, the scale) for each layer and head of a side with
// static scales.
template <typename Visit>
void each_scale(const StaticScales &of, const CanonicalBlock &form, Visit visit) {
    const CanonicalHeader &h = form.header();
    const PlaneKind planes[] = {kPlaneKScale, kPlaneVScale};
    const uint32_t kinds[] = {h.k_scale, h.v_scale};
    for (uint32_t side = 0; side < 2; ++side) {
        const PlaneLayout &plane = form.part().planes[planes[side]];
        if (!is_static(kinds[side]) || plane.head_bytes == 0) continue;
        for (uint32_t layer = 0; layer < h.layer_count; ++layer) {
            const float *scales =
                of.of(h.group, h.first_layer + layer) + side * h.group_heads + h.first_head;
            for (uint32_t head = 0; head < h.head_count; ++head) {
                visit(plane.offset + layer * plane.layer_stride + head * plane.head_bytes,
                      scales[head]);
            }
        }
    }
}

}  // namespace

CanonicalHeader whole_header(const Geometry &geometry, uint32_t group, uint32_t index,
                             uint32_t token_count) {
    const GroupGeometry &of = geometry.groups[group];
    CanonicalHeader h{};
    h.group = group;
    h.group_kind = of.kind;
    h.window = of.window;
    h.sink_tokens = of.sink_tokens;
    h.block_tokens = geometry.block_tokens;
    h.token_count = token_count;
    h.first_position = uint64_t{index} * geometry.block_tokens;
    h.group_layers = h.layer_count = of.layer_count;
    h.group_heads = h.head_count = of.kv_heads;
    h.k_head_dim = of.k_head_dim;
    h.v_head_dim = of.v_head_dim;
    h.k_dtype = of.k_dtype;
    h.v_dtype = of.v_dtype;
    h.k_scale = of.k_scale;
    h.v_scale = of.v_scale;
    h.id_count = of.cross ? 0 : token_count;
    return h;
}

void write_scales(const StaticScales &scales, const CanonicalBlock &form, uint8_t *bytes) {
    each_scale(scales, form,
               [&](uint64_t at, float scale) { std::memcpy(bytes + at, &scale, sizeof scale); });
}

bool has_scales(const StaticScales &scales, const CanonicalBlock &form, const uint8_t *bytes) {
    bool same = true;
    each_scale(scales, form, [&](uint64_t at, float scale) {
        same = same && std::memcmp(bytes + at, &scale, sizeof scale) == 0;
    });
    return same;
}

void gather(const Binding &binding, const CanonicalBlock &form, const uint8_t *from,
            uint8_t *bytes) {
    each_piece(binding.part(form.header().group), form.part(), [&](const PartPiece &piece) {
        std::memcpy(bytes + piece.to, from + piece.from, piece.size_bytes);
    });
}

void clear_host_block(const Shards &shards, uint32_t group, uint32_t block) {
    for (uint32_t i = 0; i < shards.count(); ++i) {
        const Binding &binding = shards[i];
        if (!binding.holds(group)) continue;
        std::memset(binding.host_block(group, block), 0,
                    static_cast<uint64_t>(binding.pool(group).block_stride));
    }
}

void scatter(const CanonicalBlock &form, const uint8_t *bytes, const Shards &shards,
             uint32_t block) {
    const uint32_t group = form.header().group;
    for (uint32_t i = 0; i < shards.count(); ++i) {
        const Binding &binding = shards[i];
        if (!binding.holds(group)) continue;
        uint8_t *to = binding.host_block(group, block);
        each_piece(form.part(), binding.part(group), [&](const PartPiece &piece) {
            std::memcpy(to + piece.to, bytes + piece.from, piece.size_bytes);
        });
    }
}

}  // namespace quire
