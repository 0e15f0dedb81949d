// SPDX-License-Identifier: Apache-2.0
//
// announcer: tells a reader which blocks the prefix tree can find, as changes since the last read.
//
// Why a copy of what was told, and no queue of events: a queue is as long as a reader is slow, and
// what it loses cannot be told again. The difference between what was told and what is there is
// never longer than the tree, whenever it is read.
//
// A node is told after the node above it and taken back before it. So a node that was told hangs in
// a list below the one that was told above it; the tree itself has no lists of children.
//
// Invariants: (1) a node that was told has the generation that it was told with, or is in the
// tree's touched nodes; (2) so has, or is, every node above it.
//
// Ownership: refers to the books; owns the copy.
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
        : books_(*books), told_(&books->host), path_(&books->host) {}

    // REQUIRES: called before anything is published.
    Status create();
    // Everything that was told is void: the cache was reset.
    void clear() { is_cleared_ = true; }
    // *has_more: call again. Nothing changes if it fails.
    Status read(bool restarts, EventSink *sink, bool *has_more);

 private:
    static constexpr uint32_t kNone = UINT32_MAX;
    // Nodes that one read looks at without writing an event.
    static constexpr uint32_t kIdleNodes = 4096;

    // What was told of a node.
    struct Told {
        uint64_t block = 0;  // its number; below first_block_: nothing was told
        uint64_t generation = 0;
        quire_namespace ns = 0;
        uint32_t groups = 0;       // as bits
        uint32_t host_groups = 0;  // those of them whose block is in the host tier
        uint32_t position = 0;
        uint32_t flags = 0;
        uint32_t parent = kNone;  // nodes that were told
        uint32_t first_child = kNone;
        uint32_t next = kNone;
        uint32_t prev = kNone;
    };

    Status check_sink(const EventSink &sink) const;
    bool reserve();
    bool was_told(uint32_t node) const { return told_[node].block >= first_block_; }
    bool is_told(uint32_t node) const;
    bool is_found(uint32_t node) const { return tree_.in_use(node) && tree_.linked(node); }
    uint32_t groups_of(uint32_t node) const;
    uint32_t host_groups_of(uint32_t node) const;
    quire_namespace namespace_of(uint32_t root) const;
    bool gives_tokens(quire_namespace ns) const;
    bool tell_cleared(EventSink *sink);
    bool tell_rest(EventSink *sink);
    bool tell_removed(EventSink *sink);
    bool tell_changed(EventSink *sink);
    // These return false if the sink is full; then the node has to be told again.
    bool tell(uint32_t node, EventSink *sink);
    bool tell_with_ancestors(uint32_t node, EventSink *sink);
    bool tell_stored(uint32_t node, EventSink *sink);
    bool tell_groups(uint32_t node, EventSink *sink);
    bool take_back(uint32_t node, EventSink *sink);
    void push_stored(uint32_t node, uint32_t groups, EventSink *sink);
    void push_removed(uint32_t node, uint32_t groups, uint32_t host_groups, EventSink *sink);
    void hang_below(uint32_t node, uint32_t parent);
    void unhang(uint32_t node);

    CacheBooks &books_;
    PrefixTree &tree_ = books_.journal.tree();
    Array<Told> told_;      // by node
    Array<uint32_t> path_;  // scratch: nodes that are not told yet, the lowest first
    uint64_t next_block_ = 1;
    uint64_t first_block_ = 1;  // numbers below this were cleared
    uint32_t rest_ = 0;         // after a restart: nodes from here on have not been looked at
    uint32_t looked_at_ = 0;    // nodes in this read
    bool is_restarting_ = false;
    bool waits_ = false;      // the node just looked at lies below one that is held back
    bool is_cleared_ = true;  // the first read begins with it
    bool is_active_ = false;
};

}  // namespace quire
