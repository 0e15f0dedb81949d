// SPDX-License-Identifier: Apache-2.0
//
// piece_ring: where a queue keeps the pieces of copies or fills that are more than a launch's
// arguments hold, so that one launch makes them all: pinned memory that kernels read, handed out
// round and round.
//
// A range is free again when the queue has passed the place behind its launch (queue.hpp). Who
// finds no room launches with arguments, as often as it takes.
//
// Invariants
//   (1) ranges are handed out in order, and so are their places
//   (2) a range does not go round the end
//
// Threads: none; the device's mutex. The device's context is current.
#pragma once

#include <cstdint>

#include "driver.hpp"
#include "kernels/calls.hpp"

namespace quire::gpu {

class PieceRing {
 public:
    // Room for so many pieces, and its address as kernels know it; NULL: there is none now, or the
    // driver has no memory for a ring. `reached` and `place_behind` are the queue's.
    // REQUIRES: 0 < count <= kMostTaken.
    BytePiece *take(const Driver &driver, uint64_t count, uint64_t reached, uint64_t place_behind,
                    uint64_t *address);
    // REQUIRES: nothing that runs reads it.
    void close(const Driver &driver);

    // 768 KiB: copies of half a GiB in whole pieces.
    static constexpr uint64_t kMostTaken = 32'768;

 private:
    struct Range {
        uint64_t end;  // in pieces since the beginning, as are begin_ and end_
        uint64_t place;
    };
    static constexpr uint32_t kMostRanges = 64;  // of different places

    bool make(const Driver &driver);
    bool note(uint64_t end, uint64_t place);
    void free_passed(uint64_t reached);

    void *memory_ = nullptr;
    uint64_t address_ = 0;
    uint64_t begin_ = 0, end_ = 0;  // what is handed out
    Range ranges_[kMostRanges] = {};
    uint64_t first_range_ = 0, range_count_ = 0;
};

}  // namespace quire::gpu
