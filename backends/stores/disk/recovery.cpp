// SPDX-License-Identifier: Apache-2.0

#include "disk/recovery.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

namespace quire::disk {

namespace {

// How much is read at once where records are looked for unit by unit.
constexpr uint64_t kSearchBytes = uint64_t{1} << 20;

bool are_zeros(const uint8_t *bytes, uint64_t size_bytes) {
    return bytes[0] == 0 && std::memcmp(bytes, bytes + 1, size_bytes - 1) == 0;
}

class Scanner {
 public:
    Scanner(File &file, uint64_t number, const StoreId &store)
        : file_(file), number_(number), store_(store) {
        bytes_ = static_cast<uint8_t *>(std::aligned_alloc(kUnitBytes, kSearchBytes));
        if (bytes_ == nullptr) throw std::bad_alloc();
    }
    Scanner(const Scanner &) = delete;
    Scanner &operator=(const Scanner &) = delete;
    ~Scanner() { std::free(bytes_); }

    Scan run() {
        FileSize size;
        scan_.error = file_.measure(&size);
        if (scan_.error != 0) return std::move(scan_);
        scan_.size_bytes = size.size_bytes;
        scan_.allocated_bytes = size.allocated_bytes;
        read_header();
        if (scan_.unknown_version != 0 || scan_.is_foreign) return std::move(scan_);
        for (uint64_t at = kSegmentHeaderBytes; at < scan_.size_bytes;) at = step(at);
        if (is_partly_unreadable_) scan_.used_bytes = scan_.size_bytes;
        // A file that does not begin as a segment is one if a record in it says so.
        if (!is_segment_ && scan_.records.empty()) scan_.is_foreign = true;
        return std::move(scan_);
    }

 private:
    void read_header() {
        const uint8_t *header = unit_at(0, kUnitBytes);
        if (header == nullptr) return;
        is_segment_ = true;
        SegmentHeader found;
        uint32_t version = 0;
        Reading reading = read_segment_header(header, &found, &version);
        if (reading == Reading::unreadable) {
            scan_.unknown_version = version;
        } else if (reading == Reading::right) {
            scan_.is_foreign = found.store != store_ || found.number != number_;
            scan_.used_bytes = kUnitBytes;
        } else {
            // Zeros: not written before a crash. Damaged: perhaps torn in one.
            is_segment_ = reading == Reading::damaged || are_zeros(header, kUnitBytes);
            skip(0, header);
        }
    }

    // Looks at one unit; returns where the next one is.
    uint64_t step(uint64_t at) {
        const uint8_t *unit = unit_at(at, is_searching_ ? kSearchBytes : kUnitBytes);
        if (unit == nullptr) {
            // Perhaps it can be read the next time: no byte of the file is known to be unused.
            is_partly_unreadable_ = true;
            scan_.skipped_bytes += std::min(kUnitBytes, scan_.size_bytes - at);
            return at + kUnitBytes;
        }
        Record record;
        Reading reading = read_record(unit, &record);
        bool is_mine = reading == Reading::right && record.store == store_ &&
                       record.segment == number_ && record.offset == at &&
                       record.total_bytes() <= scan_.size_bytes - at;
        if (is_mine) {
            scan_.records.push_back(record);
            scan_.used_bytes = at + record.total_bytes();
            is_searching_ = false;
            return scan_.used_bytes;
        }
        if (reading == Reading::damaged) ++scan_.damaged;
        skip(at, unit);
        is_searching_ = true;
        return at + kUnitBytes;
    }

    void skip(uint64_t at, const uint8_t *unit) {
        if (are_zeros(unit, kUnitBytes)) return;
        uint64_t end = std::min(at + kUnitBytes, scan_.size_bytes);
        scan_.skipped_bytes += end - at;
        scan_.used_bytes = end;
    }

    // The unit at `at`, followed by zeros if the file ends in it; NULL if it cannot be read.
    const uint8_t *unit_at(uint64_t at, uint64_t read_bytes) {
        if (at >= first_ && at - first_ < held_) return bytes_ + (at - first_);
        first_ = at;
        held_ = 0;
        int64_t moved = file_.read(bytes_, read_bytes, at);
        if (moved <= 0 && read_bytes > kUnitBytes) moved = file_.read(bytes_, kUnitBytes, at);
        if (moved <= 0) return nullptr;
        scan_.read_bytes += static_cast<uint64_t>(moved);
        held_ = round_up(static_cast<uint64_t>(moved));
        std::memset(bytes_ + moved, 0, held_ - static_cast<uint64_t>(moved));
        return bytes_;
    }

    File &file_;
    const uint64_t number_;
    const StoreId &store_;
    Scan scan_;
    bool is_segment_ = false;
    bool is_partly_unreadable_ = false;
    bool is_searching_ = false;
    uint8_t *bytes_ = nullptr;  // of the file, from first_ on
    uint64_t first_ = 0;
    uint64_t held_ = 0;
};

}  // namespace

Scan scan_segment(File &file, uint64_t number, const StoreId &store) {
    return Scanner(file, number, store).run();
}

bool read_store_of(File &file, StoreId *out) {
    alignas(kUnitBytes) uint8_t header[kUnitBytes];
    if (file.read(header, sizeof header, 0) != static_cast<int64_t>(sizeof header)) return false;
    SegmentHeader found;
    uint32_t version = 0;
    if (read_segment_header(header, &found, &version) != Reading::right) return false;
    *out = found.store;
    return true;
}

}  // namespace quire::disk
