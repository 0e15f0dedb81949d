// SPDX-License-Identifier: Apache-2.0
//
// log: a step as a leader tells it to its followers: the format of docs/follower-log.md, and the
// digest that both sides keep.
//
// A log says how sequences differ from what the log before left: of a table what is new behind what
// stays. The digest is a sum over sequences and table entries, so that a change costs what changed.
//
// Threads: any; everything here is constant or local.
#pragma once

#include <bit>

#include "sequence.hpp"
#include "timeline.hpp"

namespace quire {

static_assert(std::endian::native == std::endian::little, "logs are written as they lie in memory");

constexpr uint32_t kLogMagic = 0x474F4C51;  // "QLOG"
constexpr uint32_t kLogVersion = 1;
constexpr uint32_t kLogOrderBits = kMaxUnfinished;

struct LogHeader {
    uint32_t magic;
    uint32_t version;
    uint64_t size_bytes;  // of all
    uint64_t leader;      // its random number
    uint64_t number;      // from 1, one a log
    uint64_t geometry;
    uint64_t digest;    // of the state behind this log
    uint64_t checksum;  // see seal()
    uint32_t order;     // bit i: the step of log number - 1 - i comes before this one
    uint32_t ended_count;
    uint32_t copy_count;
    uint32_t row_count;
    uint32_t sequence_count;
    uint32_t mask_words;  // behind the rows, of all of them
};
static_assert(sizeof(LogHeader) == 80);

struct LogRow {
    uint32_t slot;
    uint32_t first_position;
    uint32_t compute_count;
    uint32_t cross_tokens;  // written in this step
    uint32_t mask_rows;     // 0: no mask; else the mask's words are next among the log's
    uint32_t mask_first;
    uint32_t mask_stride;
    uint32_t reserved0;

    uint64_t mask_words() const { return mask_rows * (1 + uint64_t{mask_stride}); }
};
static_assert(sizeof(LogRow) == 32);

// A sequence without its tables. Its slot is the handle's low half; handle 0: there is none.
struct LogSequence {
    uint64_t handle;
    uint32_t known;
    uint32_t computed;
    uint32_t drafts;
    uint32_t lookahead;
    uint32_t flags;
    uint32_t preemptions;
    int32_t priority;
    uint32_t cross_tokens;

    bool swapped() const { return (flags & Sequence::kSwapped) != 0; }
    uint32_t slot() const { return static_cast<uint32_t>(handle); }
};
static_assert(sizeof(LogSequence) == 40);

struct LogTable {
    uint32_t length;
    uint32_t null_front;
    uint32_t first;  // entries from here on follow; those before it stay, or have become null
};

// How one table changes. ids: [length - first], of any alignment.
struct TableChange {
    LogTable shape;
    const void *ids;
    uint32_t kept;  // blocks of the group that no window passes

    bool is_null(uint32_t index) const { return index >= kept && index < shape.null_front; }
    uint32_t id(uint32_t index) const {
        uint32_t value = 0;
        std::memcpy(&value, static_cast<const char *>(ids) + uint64_t{index - shape.first} * 4, 4);
        return value;
    }
};

// A change of one sequence: from what was, to what is.
struct SequenceChange {
    LogSequence before;
    LogSequence after;
    const BlockTable *old_tables;  // [group]
    TableChange tables[kMaxGroups];

    // May entries stay? Not those of another sequence, nor of the other tier.
    bool continues() const {
        return before.handle == after.handle && before.swapped() == after.swapped();
    }
};

// Calls removed(group, index, id) and added(group, index, id) for all entries that are not null.
template <typename Removed, typename Added>
void walk_entries(const SequenceChange &change, uint32_t group_count, Removed removed,
                  Added added) {
    for (uint32_t g = 0; g < group_count; ++g) {
        const BlockTable &old = change.old_tables[g];
        const TableChange &table = change.tables[g];
        uint32_t first = change.continues() ? table.shape.first : 0;
        // What a window passed, of what stays otherwise; most of it was null before.
        uint32_t passed = old.null_front > table.kept ? old.null_front : table.kept;
        for (uint32_t i = passed; i < first && i < table.shape.null_front; ++i) {
            removed(g, i, old.ids.data[i]);
        }
        for (uint32_t i = first; i < old.length; ++i) {
            if (old.ids.data[i] != kNullBlock) removed(g, i, old.ids.data[i]);
        }
        for (uint32_t i = table.shape.first; i < table.shape.length; ++i) {
            uint32_t id = table.id(i);
            if (id != kNullBlock) added(g, i, id);
        }
    }
}

// What the change adds to the sum.
uint64_t digest_change(const SequenceChange &change, uint32_t group_count);

// The digest of a state: its sum, and how many blocks tables hold, on the device and in the host
// tier, of each group.
uint64_t digest_state(uint64_t sum, const uint32_t *held, const uint32_t *host_held,
                      uint32_t group_count);

uint64_t digest_geometry(const Geometry &geometry, const LayerPlace *places,
                         uint32_t max_sequences);

// Writes the checksum into the header at the front of a log.
void seal(uint8_t *bytes, uint64_t size_bytes);

// What header and checksum say by themselves. REQUIRES: nothing of the bytes.
Status check_sealed(const uint8_t *bytes, uint64_t size_bytes, LogHeader *header);

}  // namespace quire
