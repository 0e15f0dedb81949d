// SPDX-License-Identifier: Apache-2.0
//
// announcer: tells a reader which blocks the prefix tree can find, as changes since the last read.
//
// Why a copy of what was told, and no queue of events: a queue is as long as a reader is slow, and
// what it loses cannot be told again. The difference between what was told and what is there is
// never longer than the tree, whenever it is read.
//
// A block is told after the block above it and taken back before it. So blocks that were told are
// records of a tree (told_blocks), which the prefix tree itself cannot be: it has no lists of
// children, and what only the store has is not in it.
//
// A block may be on the device or in the host tier, and in the store as well. It is told once for
// each; one that moves is stored in the new place before it is removed from the old one.
//
// Invariants: (1) a node that was told has the generation that it was told with, or is in the
// tree's touched nodes; (2) so has, or is, every node above it; (3) a record of which the reader
// does not know what the store has of it is among the touched records.
//
// Ownership: refers to the books, the records among them.
// Threads: none; Cache holds its lock.
#pragma once

#include "core/steps/cache_books.hpp"
#include "quire/events.h"

namespace quire {

// Where a read writes: the caller's arrays.
struct EventSink {
    uint8_t *events;
    uint32_t capacity;
    uint32_t stride;
    quire_token *tokens;
    uint32_t token_capacity;
    uint32_t event_count = 0;
    uint32_t token_count = 0;

    bool has_room(uint32_t events_wanted, uint32_t tokens_wanted) const {
        return capacity - event_count >= events_wanted &&
               token_capacity - token_count >= tokens_wanted;
    }
    void push(const quire_cache_event &event);
};

class Announcer {
 public:
    explicit Announcer(CacheBooks *books)
        : books_(*books), nodes_(&books->host), orphans_(&books->host) {}

    // REQUIRES: called before anything is published.
    Status create();
    // Everything that was told is void: the cache was reset.
    void clear() { is_cleared_ = true; }
    // *has_more: call again. Nothing changes if it fails.
    Status read(bool restarts, EventSink *sink, bool *has_more);
    // Checks that the reader knows the block before each block that it knows.
    Status check() const;

 private:
    static constexpr uint32_t kNone = UINT32_MAX;
    // Nodes that one read looks at without writing an event.
    static constexpr uint32_t kIdleNodes = 4096;

    Status check_sink(const EventSink &sink) const;
    bool reserve();
    bool was_told(uint32_t record) const { return told_[record].number >= first_block_; }
    bool is_there(uint32_t node) const { return tree_.in_use(node) && tree_.linked(node); }
    bool is_found(uint32_t record) const {
        return told_.is_current(record) && tree_.linked(told_[record].node);
    }
    bool is_to_move(uint32_t record) const;
    bool is_told_near(uint32_t record) const;
    uint32_t groups_of(uint32_t node) const;
    uint32_t host_groups_of(uint32_t node) const;
    uint32_t token_count(const ToldBlock &told) const;
    bool tell_cleared(EventSink *sink);
    bool tell_removed(EventSink *sink);
    bool tell_removed_nodes(EventSink *sink);
    bool tell_rest(EventSink *sink);
    bool tell_changed(EventSink *sink);
    bool tell_changed_nodes(EventSink *sink);
    // These return false if the sink is full; then the block has to be told again.
    bool tell_node(uint32_t node, EventSink *sink);
    bool tell_with_ancestors(uint32_t node, EventSink *sink);
    bool tell_record(uint32_t record, EventSink *sink);
    bool tell_orphan(uint32_t record, EventSink *sink);
    bool tell_new(uint32_t record, EventSink *sink);
    bool tell_places(uint32_t record, EventSink *sink);
    bool tell_groups(uint32_t record, EventSink *sink);
    bool tell_store(uint32_t record, EventSink *sink);
    bool take_from_store(uint32_t record, uint32_t left, EventSink *sink);
    bool take_back(uint32_t record, EventSink *sink);
    bool take_back_orphans(uint32_t record, EventSink *sink);
    void push_stored(uint32_t record, uint32_t groups, uint32_t lower, uint32_t level,
                     EventSink *sink);
    void push_removed(const ToldBlock &told, uint32_t groups, uint32_t lower, uint32_t level,
                      EventSink *sink);

    CacheBooks &books_;
    PrefixTree &tree_ = books_.journal.tree();
    ToldBlocks &told_ = books_.told;
    Array<uint32_t> nodes_;    // scratch: nodes that are not told yet, the lowest first
    Array<uint32_t> orphans_;  // scratch: so are these records
    uint64_t next_block_ = 1;
    uint64_t first_block_ = 1;   // numbers below this were cleared
    uint32_t rest_ = 0;          // after a restart: nodes from here on have not been looked at
    uint32_t rest_records_ = 0;  // so have records
    uint32_t looked_at_ = 0;     // nodes in this read
    bool is_restarting_ = false;
    bool waits_ = false;      // the node just looked at lies below one that is held back
    bool is_cleared_ = true;  // the first read begins with it
    bool is_active_ = false;
};

}  // namespace quire
