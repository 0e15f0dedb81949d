// SPDX-License-Identifier: Apache-2.0
//
// pieces: a group of a copy or a fill handles one piece, from the launch's arguments or from a list
// in pinned memory.
#pragma once

#include "calls.hpp"
#include "dialect.hpp"
#include "fault.hpp"

namespace quire::gpu {

constexpr uint32_t kPieceThreads = 128;

struct PieceShared {
    SharedArray<uint32_t, 1> idle;
};

QUIRE_DEVICE inline BytePiece piece_of(const PieceCall &call, uint64_t index) {
    if (call.list == 0) return call.pieces[index];
    uint64_t at = call.list + index * sizeof(BytePiece);
    return {load<uint64_t>(at), load<uint64_t>(at + 8), load<uint64_t>(at + 16)};
}

}  // namespace quire::gpu
