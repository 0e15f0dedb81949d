// SPDX-License-Identifier: Apache-2.0
//
// fill: sets many pieces to a byte in one launch. A single range uses the driver.

#include "pieces.hpp"

namespace quire::gpu {

// REQUIRES: the address and the size are multiples of the unit's size.
template <typename Unit>
QUIRE_DEVICE inline void fill_units(const BytePiece &piece, Unit value) {
    for (uint64_t at = thread_index() * sizeof(Unit); at < piece.size_bytes;
         at += kPieceThreads * sizeof(Unit)) {
        store<Unit>(piece.dst + at, value);
    }
}

QUIRE_KERNEL(quire_fill, 128, PieceCall, call) {
    QUIRE_SHARED(PieceShared, shared);
    if (is_idle(call.head, shared.idle)) return;
    BytePiece piece = piece_of(call, group_index());
    uint32_t word = static_cast<uint32_t>(piece.src) * 0x01010101u;
    uint64_t misfit = piece.dst | piece.size_bytes;
    if (misfit % sizeof(FourWords) == 0) {
        fill_units<FourWords>(piece, {{word, word, word, word}});
    } else if (misfit % sizeof(uint32_t) == 0) {
        fill_units<uint32_t>(piece, word);
    } else {
        fill_units<uint8_t>(piece, static_cast<uint8_t>(word));
    }
}

}  // namespace quire::gpu
