// SPDX-License-Identifier: Apache-2.0
//
// cache_books: the state that several parts of a cache read and write. It decides nothing.
//
// Why one struct: blocks, tables, tree, sequences and steps refer to each other by index, so a part
// that had only some of them could not follow a reference. Each part owns its own scratch.
//
// Ownership: a cache has one, made before its parts and destroyed after them.
// Threads: none; Cache holds its lock.
#pragma once

#include "core/blocks/journal.hpp"
#include "core/device/batch_list.hpp"
#include "core/device/copy_lanes.hpp"
#include "core/steps/loads.hpp"
#include "core/steps/name_space.hpp"
#include "core/steps/step_records.hpp"
#include "core/steps/told_blocks.hpp"
#include "core/steps/touched_sequences.hpp"
#include "core/steps/unsaved.hpp"
#include "core/steps/write_orders.hpp"

namespace quire {

struct CacheBooks {
    explicit CacheBooks(const HostAllocator &allocator);
    ~CacheBooks();
    CacheBooks(const CacheBooks &) = delete;
    CacheBooks &operator=(const CacheBooks &) = delete;

    // What devices hold for the cache, batches included.
    DeviceMemory memory() const;
    Status find_sequence(uint64_t handle, uint32_t *index) const;
    // Like find_sequence(), for a sequence that is not in the open step.
    Status find_idle_sequence(uint64_t handle, uint32_t *index) const;
    Status find_lease(uint64_t handle, uint32_t *index) const;
    // True if the last step is committed on another queue than the open step's, and not finished:
    // there is no fence to wait for.
    bool is_unfinished_elsewhere(const Sequence &s) const {
        const StepRecord &last = records[Timeline::ring_index(s.last_step)];
        return !timeline.done(s.last_step) && last.phase == StepPhase::committed &&
               last.queue != records.open().queue;
    }

    HostAllocator host;
    Geometry geometry;
    Timeline timeline;
    Journal journal;
    TokenPages token_pages;
    Shards shards;
    CopyLanes copy_lanes;
    HandleTable handles;  // of sequences and leases
    StaticScales scales;
    Array<LayerInGroup> places;
    Array<Sequence> sequences;
    Namespaces namespaces;
    TouchedSequences touched;
    StepRecords records;
    BatchList batches;
    Loads loads;
    Unsaved unsaved;
    WriteOrders write_orders;
    ToldBlocks told;
    quire_cache_stats counts{};
    uint64_t call = 0;        // counts begin and add calls and failures, to mark their sequences
    uint64_t admissions = 0;  // first admissions so far
    uint32_t lent_sequences = 0;
    uint32_t leases = 0;  // live
    bool has_memory = false;
    bool can_move = true;  // every device can move tokens
    bool prefix_off = false;
    bool calibrates = false;
    bool audits = false;
    bool is_stopped = false;  // an invariant broke; blocks are given to no one any more
};

}  // namespace quire
