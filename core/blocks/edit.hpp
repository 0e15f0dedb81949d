// SPDX-License-Identifier: Apache-2.0
//
// edit: one change that the open step made to blocks, tables or tree, with what undoing it needs.
//
// Why one struct per kind: a field means one thing, and an undo cannot read what its kind never
// wrote. Fields named *before* the change unless their comment says otherwise.
//
// Invariant: an Edit fits in one cache line and one word, because a step writes thousands.
//
// Threads: none; Cache holds its lock.
#pragma once

#include <variant>

#include "core/blocks/block_pool.hpp"
#include "quire/step.h"

namespace quire {

// The block left the free list.
struct TakeFree {
    uint64_t tenant;
    uint32_t owner;
    uint32_t block;
    uint16_t frozen_slots;
    uint8_t group;
    uint8_t old_group;  // Block::group
    bool is_read;       // the open step's copies read it
};

// The block left the tree, for good or to the host tier (Demote).
struct Evict {
    uint64_t ready;
    uint64_t depends;
    uint64_t tenant;
    uint64_t generation;  // of the node
    uint32_t owner;
    uint32_t block;
    uint32_t node;   // that named it
    uint32_t hint;   // its neighbour on the list
    uint32_t entry;  // of the node, which named it
    uint16_t frozen_slots;
    uint8_t group;     // whose content it held: of a shared pool another one may have taken it
    bool unlinked;     // the node is out of reach since
    bool displaced;    // undone, but items that stay have changed what the node names
    bool is_host;      // it is a block of the host tier
    bool is_lost;      // no Demote follows
    bool is_loss;      // nor is it kept elsewhere (LossWatch)
    bool was_demoted;  // Block::is_demoted

    uint32_t named() const { return is_host ? block | kOnHost : block; }
};

// The host tier's block holds now what the block of the eviction before it held.
struct Demote {
    uint64_t ready;  // these three: of the host tier's block
    uint64_t depends;
    uint64_t stamp;
    uint64_t generation;  // of the node
    uint32_t node;
    uint32_t block;
    uint8_t group;
    bool was_demoted;  // Block::is_demoted
};

// One more table names the block.
struct AddRef {
    uint32_t block;
    uint32_t hint;  // its neighbour on the list, if it was cached
    uint8_t group;
    bool was_cached;
};

// One table fewer names the block.
struct DropRef {
    uint64_t stamp;
    uint64_t new_stamp;  // after the drop
    uint64_t old_touch;
    uint64_t touch;  // the block's from the commit on
    uint32_t block;
    uint32_t owner;  // the sequence that let go, if it was the owner; else kNone
    uint8_t group;
};

// A table has another block at `index`.
struct TableEntry {
    uint32_t sequence;
    uint32_t index;
    uint32_t block;
    uint8_t group;
};

// A table may grow, shrink or get a longer gap.
struct TableShape {
    uint32_t sequence;
    uint32_t length;
    uint32_t null_front;
    uint32_t blocks_held;  // of the sequence
    uint8_t group;
};

// The node is new in the tree. Once that is undone in a tree without full attention, its parent may
// be bare: free_bare() frees it when nothing else of the step can be undone.
struct PublishNode {
    uint32_t node;
    uint32_t parent = kNone;  // set by the undo
    uint64_t parent_generation = 0;
};

// What naming a block changes in it.
struct NamedBlock {
    uint64_t ready;
    uint64_t depends;
    uint32_t owner;
    uint16_t frozen_slots;
    bool is_covered;
};

// The node got the block in an entry where it had none.
struct Adopt {
    NamedBlock before;
    uint32_t node;
    uint32_t entry;
    uint32_t block;
    uint8_t group;
};

// The node got another block instead of `older`, which is parked.
struct Replace {
    NamedBlock before;  // of the new one
    uint32_t node;
    uint32_t entry;
    uint32_t older;  // may be in the host tier: number_of()
    uint32_t block;  // the new one
    uint32_t hint;   // neighbour of the older one on the list
    uint8_t group;
};

// The node got a block on the device instead of `older`, a block of the host tier, which a copy of
// the open step reads.
struct Promote {
    NamedBlock before;    // of the new one
    uint64_t generation;  // of the node
    uint32_t node;
    uint32_t older;
    uint32_t block;  // the new one
    uint32_t hint;   // neighbour of the older one on the list
    uint8_t group;
    bool was_demoted;  // Block::is_demoted, of the older one
};

// The block got another owner.
struct ChangeOwner {
    uint32_t block;
    uint32_t owner;
    uint16_t frozen_slots;
    uint8_t group;
};

// The host tier's block left its free list.
struct TakeHost {
    uint32_t block;
    uint8_t group;
    bool is_read;  // the open step's copies read it
};

// The host tier's block was given up; fields as in DropRef.
struct DropHost {
    uint64_t stamp;
    uint64_t new_stamp;
    uint64_t old_touch;
    uint64_t touch;
    uint32_t block;
    uint8_t group;
};

// A lease holds the block more or fewer times.
struct Hold {
    uint32_t lease;
    uint32_t block;
    uint32_t entry;  // of the table: the one that named it, or the new one
    uint32_t holds;  // 0: it did not hold the block
    uint8_t group;
};

using Edit = std::variant<TakeFree, Evict, AddRef, DropRef, TableEntry, TableShape, PublishNode,
                          Adopt, Replace, ChangeOwner, TakeHost, DropHost, Demote, Promote, Hold>;
static_assert(sizeof(Edit) <= kCacheLine + sizeof(uint64_t));

// Functions for some kinds of edits, as one; the last one given may take `const auto &`.
template <typename... Functions>
struct EditVisitor : Functions... {
    using Functions::operator()...;
};
template <typename... Functions>
EditVisitor(Functions...) -> EditVisitor<Functions...>;

// The most that something writes into a step's record. Each function that writes has its Room
// declared beside it, the sum of those of the functions that it calls; only such sums are reserved.
struct Room {
    uint64_t edits = 0;
    uint64_t copies = 0;
};
constexpr Room operator+(Room a, Room b) { return Room{a.edits + b.edits, a.copies + b.copies}; }
constexpr Room operator*(uint64_t count, Room a) { return Room{count * a.edits, count * a.copies}; }

constexpr uint32_t kVoidCopy = 0xFFFFFFFF;  // the kind of a copy that was undone

// Edits and copies of one item or victim, within its step's.
struct EditRange {
    uint32_t first_edit;
    uint32_t edit_end;
    uint32_t first_copy;
    uint32_t copy_end;
};

// All edits and copies of a step, in their order. The edits end with its commit.
struct StepEdits {
    uint64_t number = 0;  // of the step on the timeline
    uint64_t barrier = kNoBarrier;
    Array<Edit> edits;
    Array<quire_block_copy> copies;

    Room used() const { return Room{edits.size(), copies.size()}; }
    template <typename Body>
    void each_edit(const EditRange &range, Body body) const {
        for (uint32_t i = range.first_edit; i < range.edit_end; ++i) body(edits[i]);
    }
};

}  // namespace quire
