// SPDX-License-Identifier: Apache-2.0
//
// move: moves tokens from slot to slot, as if one after another. A workgroup handles one head of
// one layer.
//
// A lane handles the same bytes of every row, so its moves need no barrier between them: whatever a
// move reads, the same lane has written.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "call.glsl"
#include "fault.glsl"

// pool_write.cpp, MoveArguments.
layout(buffer_reference, scalar, buffer_reference_align = 16) readonly buffer Arguments {
    uint64_t pool, moves;
    int64_t block_stride, layer_stride, v_offset;
    int64_t k_head_stride, k_token_stride, v_head_stride, v_token_stride;
    int64_t k_scale_offset, v_scale_offset, scale_head_stride;
    uint block_tokens, kv_heads, move_count;
    uint k_bytes, v_bytes, k_scale_bytes, v_scale_bytes;
};

// A plane of rows: where the row of slot 0 begins, and the stride to others.
struct Plane {
    uint64_t first;
    int64_t token_stride;
    uint row_bytes;
};

void move_plane(Arguments call, Plane plane) {
    for (uint i = lane(); i < plane.row_bytes; i += kLanes) {
        for (uint m = 0; m < call.move_count; ++m) {
            uint64_t ends[2];
            [[unroll]] for (uint e = 0; e < 2; ++e) {
                int64_t slot = int64_t(load_wide(call.moves + m * 16ul + e * 8));
                ends[e] = plane.first + uint64_t(slot / call.block_tokens * call.block_stride +
                                                 slot % call.block_tokens * plane.token_stride);
            }
            store_byte(ends[1] + i, load_byte(ends[0] + i));
        }
    }
}

void main() {
    if (is_idle()) return;
    Arguments call = Arguments(push.arguments);
    int64_t head = int64_t(workgroup() % call.kv_heads);
    int64_t layer = int64_t(workgroup() / call.kv_heads);
    uint64_t at = call.pool + uint64_t(layer * call.layer_stride);
    int64_t scale = head * call.scale_head_stride;
    for (uint i = 0; i < 4; ++i) {
        Plane plane;
        if (i == 0) {
            plane = Plane(at + uint64_t(head * call.k_head_stride), call.k_token_stride,
                          call.k_bytes);
        } else if (i == 1) {
            plane = Plane(at + uint64_t(call.v_offset + head * call.v_head_stride),
                          call.v_token_stride, call.v_bytes);
        } else {
            int64_t offset = i == 2 ? call.k_scale_offset : call.v_scale_offset;
            plane = Plane(at + uint64_t(offset + scale), 4,
                          i == 2 ? call.k_scale_bytes : call.v_scale_bytes);
        }
        move_plane(call, plane);
    }
}
