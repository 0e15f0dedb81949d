// SPDX-License-Identifier: Apache-2.0

#include "piece_ring.hpp"

namespace quire::gpu {

BytePiece *PieceRing::take(const Driver &driver, uint64_t count, uint64_t reached,
                           uint64_t place_behind, uint64_t *address) {
    free_passed(reached);
    if (!make(driver)) return nullptr;
    uint64_t at = end_ % kMostTaken;
    uint64_t skipped = at + count > kMostTaken ? kMostTaken - at : 0;
    if (end_ + skipped + count - begin_ > kMostTaken) return nullptr;
    if (!note(end_ + skipped + count, place_behind)) return nullptr;
    at = (at + skipped) % kMostTaken;
    end_ += skipped + count;
    *address = address_ + at * sizeof(BytePiece);
    return static_cast<BytePiece *>(memory_) + at;
}

bool PieceRing::note(uint64_t end, uint64_t place) {
    uint64_t behind = first_range_ + range_count_;
    bool is_same = range_count_ > 0 && ranges_[(behind - 1) % kMostRanges].place == place;
    if (!is_same && range_count_ == kMostRanges) return false;
    if (is_same) --behind;
    if (!is_same) ++range_count_;
    ranges_[behind % kMostRanges] = {end, place};
    return true;
}

bool PieceRing::make(const Driver &driver) {
    if (memory_ != nullptr) return true;
    if (driver.host_alloc(&memory_, &address_, kMostTaken * sizeof(BytePiece)) == 0) return true;
    memory_ = nullptr;
    return false;
}

void PieceRing::free_passed(uint64_t reached) {
    while (range_count_ > 0 && ranges_[first_range_ % kMostRanges].place <= reached) {
        begin_ = ranges_[first_range_ % kMostRanges].end;
        ++first_range_;
        --range_count_;
    }
    // Frees the skipped pieces at the end as well.
    if (range_count_ == 0) begin_ = end_ = 0;
}

void PieceRing::close(const Driver &driver) {
    if (memory_ != nullptr) driver.host_free(memory_);
    memory_ = nullptr;
}

}  // namespace quire::gpu
