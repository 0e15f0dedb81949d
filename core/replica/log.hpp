// SPDX-License-Identifier: Apache-2.0
//
// log: a step as a leader describes it to its followers: the format of docs/follower-log.md, and
// the digest that both sides keep.
//
// A log says how sequences differ from the state after the log before: for each table, the new
// entries after those that stay. The digest is a sum over sequences and table entries, so that
// updating it costs only what changed.
//
// Threads: any; everything here is constant or local.
#pragma once

#include <bit>

#include "core/blocks/sequence.hpp"
#include "core/blocks/timeline.hpp"
#include "core/steps/tier_orders.hpp"

namespace quire {

static_assert(std::endian::native == std::endian::little, "logs are written as they lie in memory");

constexpr uint32_t kLogMagic = 0x474F4C51;  // "QLOG"
constexpr uint32_t kLogVersion = 3;
constexpr uint32_t kLogOrderBits = kMaxUnfinished;

struct LogHeader {
    uint32_t magic;
    uint32_t version;
    uint64_t size_bytes;  // of the whole log
    uint64_t leader;      // its random number
    uint64_t number;      // from 1, one per log
    uint64_t geometry;
    uint64_t digest;    // of the state after this log
    uint64_t checksum;  // see seal()
    uint32_t order;     // bit i: the step of log number - 1 - i comes before this one
    uint32_t ended_count;
    uint32_t copy_count;
    uint32_t row_count;
    uint32_t sequence_count;
    uint32_t mask_word_count;
    uint32_t order_count;
    uint32_t reserved0;
};
static_assert(sizeof(LogHeader) == 88);

struct LogRow {
    uint32_t index;
    uint32_t first_position;
    uint32_t compute_count;
    uint32_t cross_tokens;  // to be written into cross groups
    uint32_t mask_at;       // in the log's mask words
    uint32_t mask_rows;
    uint32_t mask_first;
    uint32_t mask_stride;

    uint64_t mask_words() const { return uint64_t{mask_rows} * (uint64_t{mask_stride} + 1); }
};

// A sequence without its tables, and the index that the leader keeps it in. handle 0: none.
struct LogSequence {
    uint64_t handle;
    uint32_t index;
    uint32_t reserved0;
    uint32_t known;
    uint32_t computed;
    uint32_t drafts;
    uint32_t lookahead;
    uint32_t flags;
    uint32_t preemptions;
    int32_t priority;
    uint32_t cross_tokens;

    bool swapped() const { return (flags & Sequence::kSwapped) != 0; }
};
static_assert(sizeof(LogSequence) == 48);

LogSequence describe_sequence(const Sequence &s, uint64_t handle, uint32_t index);

struct LogTable {
    uint32_t length;
    uint32_t null_front;
    uint32_t first;  // entries before it stay, except those that are null now
};

// Entries [from, to) of a table that are not null: all but those between `kept` and null_front.
template <typename Visit>
void each_entry(uint32_t from, uint32_t to, uint32_t kept, uint32_t null_front, Visit visit) {
    for (uint32_t i = from; i < to && i < kept; ++i) visit(i);
    uint32_t behind = null_front > kept ? null_front : kept;
    for (uint32_t i = from > behind ? from : behind; i < to; ++i) visit(i);
}

// How one table changes.
struct TableChange {
    LogTable shape;
    uint32_t kept;    // the group's kept_blocks
    bool packed;      // ids holds the entries that are not null; else all of them
    const void *ids;  // from shape.first on, of any alignment

    // Null entries of [from, to).
    uint32_t nulls(uint32_t from, uint32_t to) const {
        uint32_t begin = from > kept ? from : kept;
        uint32_t end = to < shape.null_front ? to : shape.null_front;
        return end > begin ? end - begin : 0;
    }
    uint32_t logged() const {
        return shape.length - shape.first - nulls(shape.first, shape.length);
    }
    // REQUIRES: index >= first, and the entry is not null.
    uint32_t id(uint32_t index) const {
        uint64_t at = index - shape.first - (packed ? nulls(shape.first, index) : 0);
        uint32_t value = 0;
        std::memcpy(&value, static_cast<const char *>(ids) + at * 4, 4);
        return value;
    }
    template <typename Visit>
    void each_told(Visit visit) const {
        each_entry(shape.first, shape.length, kept, shape.null_front, visit);
    }
};

// How one sequence changes.
struct SequenceChange {
    LogSequence before;
    LogSequence after;
    const BlockTable *old_tables;  // [group]
    TableChange tables[kMaxGroups];

    // True if entries may stay: it is the same sequence, in the same tier.
    bool continues() const {
        return before.handle == after.handle && before.swapped() == after.swapped();
    }
};

// Calls removed(group, index, id) and added(group, index, id) for all entries that are not null.
// REQUIRES: shape.first is 0 where nothing stays.
template <typename Removed, typename Added>
void walk_entries(const SequenceChange &change, uint32_t group_count, Removed removed,
                  Added added) {
    for (uint32_t g = 0; g < group_count; ++g) {
        const BlockTable &old = change.old_tables[g];
        const TableChange &table = change.tables[g];
        const LogTable &shape = table.shape;
        auto gone = [&](uint32_t i) { removed(g, i, old.ids.data[i]); };
        uint32_t stay = shape.first < old.length ? shape.first : old.length;
        // First those that stay but are null now; then all the others.
        uint32_t nulled = stay < shape.null_front ? stay : shape.null_front;
        if (nulled > table.kept) each_entry(table.kept, nulled, table.kept, old.null_front, gone);
        each_entry(stay, old.length, table.kept, old.null_front, gone);
        table.each_told([&](uint32_t i) { added(g, i, table.id(i)); });
    }
}

// The value that the change adds to the sum.
uint64_t digest_change(const SequenceChange &change, uint32_t group_count);

// The digest of a state: its sum, and how many blocks tables hold in each group, on the device and
// in the host tier.
uint64_t digest_state(uint64_t sum, const uint32_t *held, const uint32_t *host_held,
                      uint32_t group_count);

// scales: those of all static sides, over all ranks.
uint64_t digest_geometry(const Geometry &geometry, const LayerInGroup *places,
                         uint32_t max_sequences, const Array<float> &scales);

// Writes the checksum into the header at the front of a log.
void seal(uint8_t *bytes, uint64_t size_bytes);

// Validates header and checksum by themselves. The bytes may be anything.
Status check_sealed(const uint8_t *bytes, uint64_t size_bytes, LogHeader *header);

// REQUIRES: the log has room.
inline void append(Array<uint8_t> *log, const void *bytes, uint64_t size_bytes) {
    uint64_t at = log->size();
    log->resize_within(at + size_bytes);
    if (size_bytes != 0) std::memcpy(log->data() + at, bytes, size_bytes);
}

}  // namespace quire
