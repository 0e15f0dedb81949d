// SPDX-License-Identifier: Apache-2.0
//
// copy: many small pieces by one launch. A group copies one piece, of at most kPieceBytes.
//
// Either side may be pinned memory of the host, which the device reads and writes in place.

#include "calls.hpp"
#include "dialect.hpp"
#include "fault.hpp"

namespace quire::gpu {

constexpr uint32_t kCopyThreads = 128;

struct CopyShared {
    SharedArray<uint32_t, 1> idle;
};

// The unit that both addresses and the size are multiples of.
template <typename Unit>
QUIRE_DEVICE inline void copy_units(const CopyPiece &piece) {
    for (uint64_t at = thread_index() * sizeof(Unit); at < piece.size_bytes;
         at += kCopyThreads * sizeof(Unit)) {
        store<Unit>(piece.dst + at, load<Unit>(piece.src + at));
    }
}

QUIRE_KERNEL(quire_copy, 128, CopyCall, call) {
    QUIRE_SHARED(CopyShared, shared);
    if (is_idle(call.head, shared.idle)) return;
    const CopyPiece &piece = call.pieces[group_index()];
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
