// SPDX-License-Identifier: Apache-2.0
//
// copy: copies many small pieces in one launch.
//
// Either side may be pinned host memory, which the device reads and writes in place.

#include "pieces.hpp"

namespace quire::gpu {

// REQUIRES: both addresses and the size are multiples of the unit's size.
template <typename Unit>
QUIRE_DEVICE inline void copy_units(const BytePiece &piece) {
    for (uint64_t at = thread_index() * sizeof(Unit); at < piece.size_bytes;
         at += kPieceThreads * sizeof(Unit)) {
        store<Unit>(piece.dst + at, load<Unit>(piece.src + at));
    }
}

QUIRE_KERNEL(quire_copy, 128, PieceCall, call) {
    QUIRE_SHARED(PieceShared, shared);
    if (is_idle(call.head, shared.idle)) return;
    BytePiece piece = piece_of(call, group_index());
    uint64_t misfit = piece.dst | piece.src | piece.size_bytes;
    if (misfit % sizeof(FourWords) == 0) {
        copy_units<FourWords>(piece);
    } else if (misfit % sizeof(uint32_t) == 0) {
        copy_units<uint32_t>(piece);
    } else {
        copy_units<uint8_t>(piece);
    }
}

}  // namespace quire::gpu
