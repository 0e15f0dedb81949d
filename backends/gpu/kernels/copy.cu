// SPDX-License-Identifier: Apache-2.0
//
// copy: many small pieces by one launch, which its arguments name or a list in pinned memory. A
// group copies one piece, of at most kPieceBytes.
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

QUIRE_DEVICE inline CopyPiece piece_of(const CopyCall &call, uint64_t index) {
    if (call.list == 0) return call.pieces[index];
    uint64_t at = call.list + index * sizeof(CopyPiece);
    return {load<uint64_t>(at), load<uint64_t>(at + 8), load<uint64_t>(at + 16)};
}

QUIRE_KERNEL(quire_copy, 128, CopyCall, call) {
    QUIRE_SHARED(CopyShared, shared);
    if (is_idle(call.head, shared.idle)) return;
    CopyPiece piece = piece_of(call, group_index());
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
