// SPDX-License-Identifier: Apache-2.0
//
// move: moves tokens from slot to slot, as if one after another. A group handles one head of one
// layer.
//
// A thread handles the same bytes of every row, so its moves need no barrier between them: whatever
// a move reads, the same thread has written.

#include "calls.hpp"
#include "dialect.hpp"
#include "fault.hpp"

namespace quire::gpu {

constexpr uint32_t kMoveThreads = 64;

struct MoveShared {
    SharedArray<uint32_t, 1> idle;
};

// A plane of rows: where the row of slot 0 begins, and the stride to others.
struct Plane {
    uint64_t first;
    int64_t token_stride;
    uint32_t row_bytes;
};

QUIRE_DEVICE inline uint64_t row_of(const MoveCall &call, const Plane &plane, int64_t slot) {
    auto number = static_cast<uint64_t>(slot);
    uint64_t block = number / call.block_tokens;
    uint64_t place = number - block * call.block_tokens;
    return plane.first + block * static_cast<uint64_t>(call.block_stride) +
           place * static_cast<uint64_t>(plane.token_stride);
}

QUIRE_DEVICE inline void move_plane(const MoveCall &call, const Plane &plane) {
    for (uint32_t m = 0; m < call.move_count; ++m) {
        uint64_t from = row_of(call, plane, call.moves[m].src);
        uint64_t to = row_of(call, plane, call.moves[m].dst);
        // A byte is moved by the same thread each time, so moves are in order.
        for (uint32_t i = thread_index(); i < plane.row_bytes; i += kMoveThreads) {
            store<uint8_t>(to + i, load<uint8_t>(from + i));
        }
    }
}

QUIRE_KERNEL(quire_move, 64, MoveCall, call) {
    QUIRE_SHARED(MoveShared, shared);
    if (is_idle(call.head, shared.idle)) return;
    auto head = static_cast<int64_t>(group_index() % call.kv_heads);
    auto layer = static_cast<int64_t>(group_index() / call.kv_heads);
    uint64_t at = call.pool + static_cast<uint64_t>(layer * call.layer_stride);
    int64_t scale = head * call.scale_head_stride;
    move_plane(call, {at + static_cast<uint64_t>(head * call.k_head_stride), call.k_token_stride,
                      call.k_bytes});
    move_plane(call, {at + static_cast<uint64_t>(call.v_offset + head * call.v_head_stride),
                      call.v_token_stride, call.v_bytes});
    move_plane(call,
               {at + static_cast<uint64_t>(call.k_scale_offset + scale), 4, call.k_scale_bytes});
    move_plane(call,
               {at + static_cast<uint64_t>(call.v_scale_offset + scale), 4, call.v_scale_bytes});
}

}  // namespace quire::gpu
