// SPDX-License-Identifier: Apache-2.0
//
// step: the record of one engine iteration, as typed edits that can be walked back.
//
// While a step is open, every change of blocks, tables and tree that it makes is an Edit; a Change
// groups the edits of one item or one victim with the sequence's state before. Undoing a change
// walks its edits backwards. Commit makes them final; the record lives on until the step is done,
// for its copies, preemptions and, if it fails, its rollback.
//
// Threads: none; Cache holds its lock.
#pragma once

#include "core/base/geometry.hpp"
#include "core/blocks/edit.hpp"
#include "core/blocks/sequence.hpp"
#include "core/device/mask.hpp"

namespace quire {

class Batch;
struct Load;
struct Queue;

enum class ChangeKind : uint8_t { item, victim, lease, dropped };

// An item that runs, a victim, or one call on a lease.
struct Change : EditRange {
    ChangeKind kind;
    bool doomed;       // to be dropped, see Steps::drop
    bool has_pending;  // then pending_position counts
    uint32_t sequence;
    uint64_t handle;          // the sequence's: once it has ended, another may have its index
    uint32_t first_position;  // of the tokens to compute
    uint32_t compute_count;
    uint32_t valid_tokens;  // computed tokens that are right if the step fails
    uint32_t hit_tokens;
    uint32_t found_tokens;  // of a sequence that is swapped in: in found blocks at its front
    uint32_t query_tokens;  // looked up
    uint32_t cross_tokens;  // to be written into cross groups
    uint32_t returned;      // how many blocks fewer its sequence holds than before
    uint32_t held_before;   // blocks that its lease held before
    uint32_t previous;      // the change that the lease had before in the step; kNone: none
    uint64_t mask_at;       // in the record's mask_words; the item's mask begins there
    uint32_t mask_rows;     // 0: it has none
    uint32_t mask_first;
    uint32_t mask_stride;
    Load *load;  // that it took; nullptr: none
    // For each unfinished step, by its ring index: tokens that stay right if it fails, UINT32_MAX =
    // all.
    uint32_t pending_position[kMaxUnfinished];
    SequenceState before;

    void begin(ChangeKind what, uint32_t index, uint64_t of, const SequenceState &state) {
        kind = what;
        handle = of;
        doomed = has_pending = false;
        sequence = index;
        first_position = valid_tokens = UINT32_MAX;  // a victim or lease computes nothing
        previous = kNone;
        hit_tokens = query_tokens = compute_count = cross_tokens = found_tokens = returned = 0;
        mask_rows = mask_first = mask_stride = 0;
        load = nullptr;
        before = state;
    }
    void note_pending(uint64_t step, uint32_t position) {
        if (!has_pending) {
            for (uint32_t &tokens : pending_position) tokens = UINT32_MAX;
        }
        has_pending = true;
        uint32_t &tokens = pending_position[Timeline::ring_index(step)];
        if (position < tokens) tokens = position;
    }
};

// stopped: it was open when the cache was stopped, and is kept only for inspection.
enum class StepPhase : uint8_t { unused, open, committed, finished, stopped };

struct StepRecord : StepEdits {
    StepPhase phase = StepPhase::unused;
    uint64_t queue = 0;
    uint64_t handle = 0;  // while it is open or committed, and not finished
    uint32_t flags = 0;
    uint32_t preempt = 0;
    uint32_t rows = 0;
    bool dropped = false;  // true if an item was dropped
    bool failed = false;   // true if it failed and was rolled back
    // Bit ring index: its queues wait for that step, which runs on other queues; or should have.
    uint32_t waited = 0;
    uint32_t shard_count = 0;
    Batch *batch = nullptr;  // until the step is finished or the batch takes a later one
    Queue *queues[kMaxShards] = {};
    uint64_t fence_values[kMaxShards] = {};  // on each queue, once finished
    uint64_t copied = 0;  // the mark of the copy lanes that its end waits for; 0: none
    Array<Change> changes;
    Array<quire_preemption> preemptions;
    Array<uint8_t> log;  // how a leader describes it to its followers
    Array<uint32_t> mask_words;

    MaskView mask(const Change &change) const {
        return MaskView{mask_words.data() + change.mask_at, change.mask_rows, change.mask_first,
                        change.mask_stride};
    }
    void bind(const HostAllocator *host) {
        changes.bind(host);
        edits.bind(host);
        copies.bind(host);
        preemptions.bind(host);
        log.bind(host);
        mask_words.bind(host);
    }
    bool has_room(uint64_t change_count, uint64_t edit_count, uint64_t copy_count,
                  uint64_t preemption_count) const {
        return changes.capacity() >= change_count && edits.capacity() >= edit_count &&
               copies.capacity() >= copy_count && preemptions.capacity() >= preemption_count;
    }
    void clear() {
        changes.shrink(0);
        edits.shrink(0);
        copies.shrink(0);
        preemptions.shrink(0);
        log.shrink(0);
        mask_words.shrink(0);
        rows = 0;
        dropped = false;
        failed = false;
        waited = 0;
        copied = 0;
        shard_count = 0;
        batch = nullptr;
        handle = 0;
        phase = StepPhase::unused;
    }
};

}  // namespace quire
