// SPDX-License-Identifier: Apache-2.0
//
// loads: prefixes that are on their way from a tier to host blocks, or lie there for an item to
// use.
//
// A load belongs to one sequence, which has nothing computed. It holds its host blocks until an
// item takes them, or it is dropped. An item that takes a load lets go of the host blocks within
// the step's journal, so undoing the item gives them back; the load itself is freed at the commit.
// Loads are no part of a step: they outlive one that is aborted.
//
// A LoadSource fills them; without one there are no loads. It may shorten one that is running, when
// a block is not to be had: what is cut off has no host blocks any more.
//
// In a cache that leads others (log.h) a log tells the followers which blocks a load needs, and a
// load waits for what they report. They must know before a host block is used for anything else, so
// what such a load gives back is noted until the next log.
//
// A store that does not know by itself what it has is asked first. While a load asks, `length` is
// what it would be if the store had everything that is not known yet, and there are no host blocks.
//
// Invariants: (1) a load's host blocks have one reference, which is the load's, unless it is taken;
// (2) a sequence has at most one load; (3) a load that is running is not taken; (4) a load that
// does not ask any more has a host block of each group for each block of [first, length), and no
// others, unless a group has a window; (5) a load that does not ask any more is ready once it
// awaits nothing; (6) an item takes a load only after the log that tells of it.
//
// Threads: none; Cache holds its lock.
#pragma once

#include "core/base/sha256.hpp"
#include "core/blocks/journal.hpp"
#include "quire/cache_tier.h"

namespace quire {

struct Load {
    uint64_t handle = 0;  // the sequence's; 0: unused
    uint64_t serial = 0;  // another one for each load
    uint64_t deadline_ns = 0;
    uint64_t expiry_ns = 0;
    uint64_t call = 0;  // the begin or add call in which it began
    uint32_t sequence = 0;
    uint32_t first = 0;   // blocks before it were on the device when the load began
    uint32_t found = 0;   // blocks that an item could have used then without the load
    uint32_t length = 0;  // blocks of the hit
    uint32_t used = 0;  // of these, blocks of the hit of the item that takes it; 0: it has no need
    uint32_t stride = 0;   // their number when the load began
    uint32_t next = 0;     // the entry of `blocks` to ask for next; of `found_in_store`, block by
                           // block, while it asks
    uint32_t awaited = 0;  // entries that have not arrived, and reports; answers, while it asks
    uint32_t unreported = 0;  // followers that have not reported what they have
    uint64_t reporters = 0;   // bits: followers that have
    bool is_told = false;     // a log has told followers of it
    bool is_asking = false;
    bool is_ready = false;    // all entries have arrived
    bool is_taken = false;    // by an item of the open step
    bool has_failed = false;  // the store failed to say or to read one of its blocks
    Digest tenant{};
    Array<quire_token> tokens;
    Array<Digest> names;            // [length] of each block with all before it
    Array<uint32_t> blocks;         // [group][stride] in the host tier; kNullBlock: not loaded
    Array<uint8_t> found_in_store;  // [group][stride] QUIRE_STORE_*, until it is known

    uint32_t block(uint32_t group, uint32_t index) const {
        return blocks[uint64_t{group} * stride + index];
    }
    // QUIRE_STORE_*. While the load asks, or begins.
    uint8_t known(uint32_t group, uint32_t index) const {
        return found_in_store[uint64_t{group} * stride + index];
    }
    uint32_t group_of(uint64_t entry) const { return static_cast<uint32_t>(entry / stride); }
    uint32_t index_of(uint64_t entry) const { return static_cast<uint32_t>(entry % stride); }
};

// An item that may load, and what the device has of it.
struct LoadRequest {
    const Sequence *s;
    uint32_t sequence;
    uint64_t handle;
    uint32_t blocks;  // of its tokens that may be found
    uint32_t hit;     // of them, the device has so many that an item could use
    const uint32_t *nodes;
    uint32_t matched;  // [matched] nodes of its front
    bool from_front;   // load blocks too that the device has
};

class LoadSource {
 public:
    // Begins a load if that brings enough. False: the item is computed.
    virtual bool begin_load(const LoadRequest &request, Load *load) = 0;
    virtual uint64_t now_ns() = 0;
    // The load's sequence has its blocks.
    virtual void note_used(const Load &load) = 0;

 protected:
    ~LoadSource() = default;
};

enum class LoadAdvice { compute, wait, use };

// A load of which followers were told gives up its blocks from `length` on; 0: it is over.
struct LoadEnd {
    uint64_t serial;
    uint32_t length;
};

class Loads {
 public:
    static constexpr uint32_t kMost = 64;

    Loads(const HostAllocator *host, Journal *journal, const TokenPages *tokens)
        : host_(host), journal_(*journal), token_pages_(*tokens), of_(host) {}

    [[nodiscard]] bool open(LoadSource *source, const Geometry *geometry, uint32_t max_sequences,
                            uint64_t expiry_ns);
    // Drops all loads. Not while a step is open.
    void close();
    bool is_open() const { return source_ != nullptr; }
    // Begins no more; items are computed.
    void stop() { stopped_ = true; }

    // What becomes of an item that may load; *out is the load, if it has one to use.
    LoadAdvice consult(const LoadRequest &request, uint64_t call, Load **out);
    // The sequence's load, or nullptr.
    Load *find(uint32_t sequence, uint64_t handle);
    // Drops it and says that an item of the sequence must be computed.
    void fail(Load *load);
    void drop(Load *load);
    // Drops what a call began that has failed since.
    void drop_begun(uint64_t call);
    void drop_all();
    // The sequence is gone: so is its load. Not while the sequence is in the open step.
    void forget(uint32_t sequence, uint64_t handle);
    // An item that takes the load is final.
    void settle(Load *load);
    // Takes an idle host block for an entry of a load that begins. Gives back that of an entry.
    uint32_t take_block(uint32_t group) {
        ++held_[group];
        return journal_.take_idle_host(group);
    }
    void drop_block(Load *load, uint64_t entry);
    // The load goes on with `length` blocks; its caller has dropped the others.
    void note_cut(const Load &load, uint32_t length) {
        if (load.is_told) note_end(load.serial, length);
    }
    // Host blocks of the group that loads hold which no item has taken.
    uint32_t held(uint32_t group) const { return held_[group]; }
    // For a log: the next load after `serial`, in their order, of which followers are to be told;
    // nullptr: there is no more.
    Load *next_untold(uint64_t serial);
    Load *find_serial(uint64_t serial);
    uint32_t end_count() const { return end_count_; }
    const LoadEnd &end(uint32_t i) const { return ends_[i]; }
    void clear_ends() { end_count_ = 0; }

    // The sequence is computed: it may load again when nothing of it is computed any more.
    void note_computed(uint32_t sequence, uint64_t handle) {
        if (source_ != nullptr && of_[sequence].handle == handle) forget(sequence, handle);
    }

    uint32_t count() const { return count_; }
    Load &operator[](uint32_t slot) { return slots_[slot]; }
    const Load &operator[](uint32_t slot) const { return slots_[slot]; }
    uint32_t slot_of(const Load &load) const { return static_cast<uint32_t>(&load - slots_); }

    quire_cache_tier_stats counts{};
    uint64_t ended = 0;

 private:
    // A sequence's load; kNone: the store had nothing for it, or the load failed.
    struct Place {
        uint64_t handle;
        uint32_t slot;
    };

    static void give_up(Load *load);
    void note_end(uint64_t serial, uint32_t length);
    void clear(Load *load);
    bool is_of(const Load &load, const LoadRequest &request) const;

    const HostAllocator *host_;
    Journal &journal_;
    const TokenPages &token_pages_;
    const Geometry *geometry_ = nullptr;
    LoadSource *source_ = nullptr;
    Array<Place> of_;  // by sequence
    Load slots_[kMost];
    LoadEnd ends_[kMost] = {};  // each of a load that the last log knew
    uint32_t end_count_ = 0;
    uint32_t held_[kMaxGroups] = {};
    uint32_t count_ = 0;
    uint64_t serials_ = 0;
    uint64_t expiry_ns_ = 0;
    bool stopped_ = false;
};

}  // namespace quire
