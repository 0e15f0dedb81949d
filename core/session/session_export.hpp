// SPDX-License-Identifier: Apache-2.0
//
// session_export: a sequence's session, piece by piece, while the cache goes on.
//
// From begin() to end() the sequence is lent: nothing takes, changes or preempts it, and the cache
// is not migrated, so its blocks stay what and where they are. Each piece is copied from the
// devices by queues of the export's own.
//
// Threads: none; Cache holds its lock around each call. What next() gave is valid until the next
// call, without the lock too.
#pragma once

#include "core/device/counted_queue.hpp"
#include "core/session/session_blocks.hpp"
#include "core/steps/retreat.hpp"

namespace quire {

// Who may take a session, as the caller names it.
struct SessionIdentity {
    uint8_t fingerprint[32];
    uint8_t name_space[32];
};

class SessionExport {
 public:
    // The bytes of blocks that one piece holds at most, except that it holds at least one block.
    static constexpr uint64_t kPieceBytes = uint64_t{4} << 20;

    explicit SessionExport(const HostAllocator *host) : head_(host), ids_(host), piece_(host) {}
    ~SessionExport();
    SessionExport(const SessionExport &) = delete;
    SessionExport &operator=(const SessionExport &) = delete;

    // Lends the sequence. REQUIRES: its last step has run, and it has no drafts.
    Status begin(CacheBooks *books, Retreat *retreat, uint32_t sequence, const SessionIdentity &as,
                 quire_error *error);
    // The next bytes of the session; size 0: that was all.
    Status next(const uint8_t **bytes, uint64_t *size_bytes, quire_error *error);
    // Gives the sequence back. REQUIRES: begin() succeeded, and end() was not called.
    void end();
    const SessionHeader &header() const { return head_.header(); }

 private:
    // Where one shard's part of a piece's blocks arrives.
    struct Landing {
        const Device *device = nullptr;
        uint64_t address = 0;
        uint8_t *bytes = nullptr;
        CountedQueue queue;
    };

    Status write_head(uint32_t computed, const SessionIdentity &as);
    Status create_landings(quire_error *error);
    uint32_t first_id(uint32_t group) const;
    Status land(uint32_t group, uint32_t index, uint32_t count, quire_error *error);
    Status fill_piece(quire_error *error);

    CacheBooks *books_ = nullptr;
    uint32_t sequence_ = 0;
    bool is_swapped_ = false;
    bool has_head_ = false;  // was given
    SessionHead head_;
    Array<uint32_t> ids_;  // the tables, one group after another
    Array<uint8_t> piece_;
    uint64_t landing_bytes_ = 0;
    uint32_t shard_count_ = 0;
    Landing landings_[kMaxShards];
    SessionBlocks at_{nullptr, &head_};
};

}  // namespace quire
