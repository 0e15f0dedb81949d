// SPDX-License-Identifier: Apache-2.0
//
// told_blocks: the blocks of which a reader of events is told: those that the prefix tree finds,
// and those that a store below the cache has.
//
// A block has a record from when it is first told, or first given to the store, until it is nowhere
// and a reader knows that. While a node of the tree stands for the block, the record belongs to the
// node. A block that only the store has left is an *orphan*: its record keeps the tokens and the
// number, so that a load that brings the content back finds it under the same number.
//
// Why a record keeps its parent: nothing below a block can be used without it, wherever both lie.
// So records form a tree, in which a block is told after its parent, and taken back before it.
//
// A block that the store has takes a *slot*. There is a fixed number of them. When all are used,
// the block that was noted first is forgotten; one that follows another counts as noted just before
// that, so that prefixes are forgotten from their ends.
//
// Invariants (check()): (1) a record in use is on its parent's list of records with a node, or of
// orphans; (2) below an orphan are only orphans; (3) a record has a slot exactly if the store has a
// group of it, and every slot is found by its block's name and by the key of each such group.
//
// Ownership: refers to the tree and the namespaces; owns the records. The announcer decides what is
// told; the tier says what the store has.
// Threads: none; Cache holds its lock.
#pragma once

#include "core/base/sha256.hpp"
#include "core/blocks/journal.hpp"
#include "core/steps/name_space.hpp"
#include "quire/events.h"

namespace quire {

struct ToldBlock {
    static constexpr uint32_t kNobody = UINT32_MAX;

    uint64_t number = 0;      // of the block; 0: the reader has never heard of it
    uint64_t generation = 0;  // of the node
    quire_namespace ns = 0;
    uint32_t node = kNobody;  // kNone: none stands for it
    // As the reader knows them, as bits:
    uint32_t groups = 0;        // on the device or in the host tier
    uint32_t host_groups = 0;   // those of them in the host tier
    uint32_t store_groups = 0;  // in the store
    uint16_t store_level = 0;   // of store_groups: QUIRE_LEVEL_*
    uint16_t flags = 0;         // QUIRE_EVENT_*
    uint32_t position = 0;
    uint32_t parent = kNobody;
    uint32_t children[2] = {kNobody, kNobody};  // those with a node; orphans
    uint32_t next = kNobody;                    // on the parent's list, or free
    uint32_t prev = kNobody;
    uint32_t slot = kNobody;
    bool in_use = false;
};

// Names blocks as the tier does.
class BlockNames {
 public:
    // False: the node's block has no name, or there is no memory.
    virtual bool name_of(uint32_t node, Digest *name) = 0;

 protected:
    ~BlockNames() = default;
};

class ToldBlocks {
 public:
    static constexpr uint32_t kNone = UINT32_MAX;
    enum List : uint32_t { kWithNode = 0, kOrphans = 1 };

    ToldBlocks(const HostAllocator *host, Journal *journal, const Geometry *geometry,
               const Namespaces *namespaces);

    // The cache has events. False: no memory.
    [[nodiscard]] bool create();
    // Makes room for the tree, which grows with a migration. False: no memory; nothing changed.
    [[nodiscard]] bool reserve();
    bool is_active() const { return is_active_; }

    // A store is below the cache, of which up to `most` blocks are told. level: QUIRE_LEVEL_*.
    [[nodiscard]] bool open(BlockNames *names, uint32_t most, uint32_t level);
    // It is not any more.
    void close();
    bool is_open() const { return names_ != nullptr; }
    uint32_t level() const { return level_; }
    // The store has, or gets, the group's value of the block that the node stands for.
    void add(uint32_t node, const Digest &name, uint32_t group, const uint8_t key[32]);
    // The store does not have the value.
    void remove(const uint8_t key[32]);
    void remove_all();
    // Nothing of the namespace can be found any more.
    void forget_namespace(quire_namespace ns);

    ToldBlock &operator[](uint32_t record) { return records_[record]; }
    const ToldBlock &operator[](uint32_t record) const { return records_[record]; }
    uint32_t used() const { return used_; }  // higher records were never used
    uint32_t capacity() const { return static_cast<uint32_t>(records_.size()); }
    // The record that belongs to the node, or belonged to an earlier one of that index; or kNone.
    uint32_t at_node(uint32_t node) const { return record_of_[node]; }
    // True if the record's node still stands for its block.
    bool is_current(uint32_t record) const {
        const ToldBlock &r = records_[record];
        return r.node != kNone && tree_.in_use(r.node) && tree_.generation(r.node) == r.generation;
    }
    // The groups that the store has, as bits.
    uint32_t stored(uint32_t record) const {
        const uint32_t slot = records_[record].slot;
        return slot != kNone ? slots_[slot].groups : 0;
    }
    const uint32_t *tokens(uint32_t record) const;
    // The node's record: the orphan of the same content, or a new one. above: that of the node
    // before it, or kNone. kNone: there is no room. REQUIRES: the node has none that is current.
    uint32_t enter(uint32_t node, uint32_t above);
    // No node stands for the block any more: the record becomes an orphan, or is freed.
    // REQUIRES: no record below it has a node, and if it is not stored, none is below it.
    void leave_node(uint32_t record);
    // The reader need not know any more what the store has of it.
    void forget_stored(uint32_t record);
    // REQUIRES: an orphan with none below it, which is not stored.
    void free(uint32_t record);
    // Records that are nowhere any more, or lost a group in the store; and those that got one.
    TouchedNodes &removed() { return removed_; }
    TouchedNodes &changed() { return changed_; }

    Status check() const;

 private:
    friend class CacheDump;
    friend struct Inside;

    // 128 bits of a SHA-256.
    struct Id {
        uint64_t words[2];
        friend bool operator==(const Id &, const Id &) = default;
    };
    struct Slot {
        Id name;
        uint32_t record;
        uint32_t groups;  // that the store has, as bits
        uint32_t next_named;
        uint32_t older, newer;  // newer: also of free slots
    };
    struct Key {
        Id id;
        uint32_t next;
    };

    static Id id_of(const uint8_t bytes[32]) {
        Id id;
        std::memcpy(&id, bytes, sizeof id);
        return id;
    }
    uint64_t bucket_of(const Id &id) const { return id.words[0] & (named_.size() - 1); }
    uint32_t group_count() const { return geometry_.group_count; }
    uint32_t find_name(const Id &name) const;
    uint32_t find_key(const Id &key) const;
    uint32_t find_named(uint32_t node) const;
    uint32_t record_for(uint32_t node);
    uint32_t make(uint32_t node, uint32_t above);
    quire_namespace namespace_of(uint32_t root) const;
    bool gives_tokens(quire_namespace ns) const;
    void hang(uint32_t record, List list);
    void unhang(uint32_t record, List list);
    void free_unused(uint32_t record);
    uint32_t take_slot(uint32_t record, uint32_t node, const Id &name);
    void insert_slot(uint32_t slot, uint32_t above);
    void free_slot(uint32_t slot);
    void remove_key(uint32_t entry);
    Status check_record(uint32_t record) const;
    Status check_slots() const;

    const HostAllocator *host_;
    PrefixTree &tree_;
    const Geometry &geometry_;
    const Namespaces &namespaces_;
    BlockNames *names_ = nullptr;
    Array<ToldBlock> records_;
    Array<uint32_t> record_of_;  // by node
    Array<uint32_t> path_;       // scratch: nodes that get records
    TouchedNodes removed_, changed_;
    Array<Slot> slots_;
    Array<Key> keys_;         // [slot][group]
    Array<uint32_t> tokens_;  // [slot][tokens of a node]
    Array<uint32_t> named_;   // buckets: slots by name
    Array<uint32_t> keyed_;   // buckets: entries of keys_
    uint32_t used_ = 0;
    uint32_t free_ = kNone;
    uint32_t in_use_ = 0;
    uint32_t most_stored_ = 0;
    uint32_t free_slot_ = kNone;
    uint32_t slots_used_ = 0;
    uint32_t oldest_ = kNone, newest_ = kNone;
    uint32_t level_ = QUIRE_LEVEL_STORE;
    bool is_active_ = false;
};

}  // namespace quire
