// SPDX-License-Identifier: Apache-2.0
//
// block_part: where the planes of a block lie, of the layers and heads that somebody holds, and
// which bytes two such parts have in common.
//
// Why planes: shards cut a group by layers and heads, so what two cuts of it share is a rectangle
// of (layer, head), and of each plane of a layer one contiguous piece. The canonical form of a
// block is a part like any other, one that holds what its header says.
//
// Threads: any; everything here is constant or local.
#pragma once

#include "geometry.hpp"
#include "quire/plugin/backend.h"

namespace quire {

// One plane of each layer: a piece of head_bytes for each head, one behind another.
struct PlanePlace {
    uint64_t offset = 0;  // of the first layer's, from where the block begins
    uint64_t layer_stride = 0;
    uint64_t head_bytes = 0;  // 0: there is no such plane
};

enum PlaneKind : uint32_t { kPlaneK, kPlaneV, kPlaneKScale, kPlaneVScale, kPlanes };

struct BlockPart {
    uint32_t first_layer = 0;  // of the group's
    uint32_t layer_count = 0;
    uint32_t first_head = 0;
    uint32_t head_count = 0;
    PlanePlace planes[kPlanes];
};

// What a pool's blocks hold. In a latent group V lies within K, and so do its scales.
BlockPart part_of(const quire_be_pool &pool, uint32_t first_layer, uint32_t first_head);

// Does a block of both have the same bytes in the same places?
bool same_part(const BlockPart &a, const BlockPart &b);

struct PartPiece {
    uint64_t from;  // bytes from where the block begins, in each of the two
    uint64_t to;
    uint64_t size_bytes;
};

// Calls visit(piece) for all that both have, in the order of `to`'s layers.
template <typename Visit>
void each_piece(const BlockPart &from, const BlockPart &to, Visit visit) {
    auto later = [](uint32_t a, uint32_t b) { return a > b ? a : b; };
    auto earlier = [](uint32_t a, uint32_t b) { return a < b ? a : b; };
    uint32_t layer = later(from.first_layer, to.first_layer);
    uint32_t layer_end =
        earlier(from.first_layer + from.layer_count, to.first_layer + to.layer_count);
    uint32_t head = later(from.first_head, to.first_head);
    uint32_t head_end = earlier(from.first_head + from.head_count, to.first_head + to.head_count);
    if (head >= head_end) return;
    for (; layer < layer_end; ++layer) {
        for (uint32_t i = 0; i < kPlanes; ++i) {
            const PlanePlace &a = from.planes[i], &b = to.planes[i];
            if (a.head_bytes == 0 || b.head_bytes == 0) continue;
            QUIRE_ASSERT(a.head_bytes == b.head_bytes);
            visit(PartPiece{a.offset + (layer - from.first_layer) * a.layer_stride +
                                (head - from.first_head) * a.head_bytes,
                            b.offset + (layer - to.first_layer) * b.layer_stride +
                                (head - to.first_head) * b.head_bytes,
                            (head_end - head) * a.head_bytes});
        }
    }
}

}  // namespace quire
