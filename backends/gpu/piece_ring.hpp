// SPDX-License-Identifier: Apache-2.0
//
// piece_ring: a ring of pinned memory that holds a queue's lists of copy or fill pieces when they
// exceed a launch's arguments, so that one launch does them all. Kernels read the lists.
//
// A range is free again once the queue has passed the place after its launch (queue.hpp). A caller
// that finds no room launches with arguments instead, as many times as needed.
//
// Invariants
//   (1) ranges are handed out in order, and so are their places
//   (2) a range does not wrap around the end
//
// Threads: none; the device's mutex. The device's context is current.
#pragma once

#include <cstdint>

#include "driver.hpp"
#include "kernels/calls.hpp"

namespace quire::gpu {

class PieceRing {
 public:
    // Room for this many pieces, and its address as kernels see it. NULL: no room now, or the
    // driver has no memory for a ring. `reached` and `place_behind` are the queue's.
    // REQUIRES: 0 < count <= kMostTaken.
    BytePiece *take(const Driver &driver, uint64_t count, uint64_t reached, uint64_t place_behind,
                    uint64_t *address);
    // REQUIRES: no running work reads it.
    void close(const Driver &driver);

    // 768 KiB: copies of half a GiB in whole pieces.
    static constexpr uint64_t kMostTaken = 32'768;

 private:
    struct Range {
        uint64_t end;  // in pieces since the beginning, like begin_ and end_
        uint64_t place;
    };
    static constexpr uint32_t kMostRanges = 64;  // of different places

    bool make(const Driver &driver);
    bool note(uint64_t end, uint64_t place);
    void free_passed(uint64_t reached);

    void *memory_ = nullptr;
    uint64_t address_ = 0;
    uint64_t begin_ = 0, end_ = 0;  // the part handed out
    Range ranges_[kMostRanges] = {};
    uint64_t first_range_ = 0, range_count_ = 0;
};

}  // namespace quire::gpu
