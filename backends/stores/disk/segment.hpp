// SPDX-License-Identifier: Apache-2.0
//
// segment: one append-only file of records, and its bookkeeping.
//
// Invariants of all segments together
//   (1) a record's sequence grows with (segment number, offset), so the last record of a key in
//       that order is its newest
//   (2) a segment is appended to only while it is the head: the newest, created since open
//   (3) a record is in the index only after it was written whole and, with durability=record,
//       synced
//
// Threads: the store's mutex guards all fields, except that `file` may be used without it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "disk/index.hpp"
#include "disk/io.hpp"
#include "disk/request.hpp"

namespace quire::disk {

struct Segment {
    uint64_t number = 0;
    std::unique_ptr<File> file;
    uint64_t end_bytes = kSegmentHeaderBytes;  // where the next record goes
    uint64_t charged_bytes = 0;                // of the capacity: what the file takes on the disk
    uint64_t live_bytes = 0;                   // of the records in the index
    uint32_t first_entry = kNoEntry;           // of the index; in the order of the log
    uint32_t last_entry = kNoEntry;
    uint64_t last_removal = 0;  // the sequence of the newest removal; 0: no removal

    uint32_t reader_count = 0;       // reads in flight
    std::vector<uint64_t> writing;   // sequences of the records in flight, growing
    bool is_proved = false;          // a record was published from here since open
    bool is_broken = false;          // a sync failed: appended to no more
    bool has_lost_removals = false;  // removals that were answered may not survive a crash
    bool is_settled = false;         // it was the head, and its unused room was given back
    bool is_dying = false;           // its records are dropped; its file could not be removed yet

    // Syncs: one at a time. Records below synced_before are durable.
    bool is_dirty = false;  // records were written since the last sync began
    bool is_syncing = false;
    bool sync_again = false;
    uint64_t synced_before = 0;
    uint64_t sync_target = 0;  // of the sync in flight
    Transfer sync;
    RequestQueue sync_waiting;  // durability=record: written, and answered after the next sync
    RequestQueue sync_running;  // and after the one in flight

    uint64_t dead_bytes() const { return end_bytes - kSegmentHeaderBytes - live_bytes; }
    bool is_empty() const { return first_entry == kNoEntry && last_removal == 0; }
    // True if no write is in flight and no request waits for a sync.
    bool is_written() const {
        return writing.empty() && sync_waiting.is_empty() && sync_running.is_empty();
    }
    bool is_idle() const { return is_written() && reader_count == 0 && !is_syncing; }
};

}  // namespace quire::disk
