// SPDX-License-Identifier: Apache-2.0

#include "core/replica/announcer.hpp"

#include <algorithm>
#include <bit>

namespace quire {

void EventSink::push(const quire_cache_event &event) {
    std::memcpy(events + uint64_t{event_count++} * stride, &event,
                std::min<size_t>(stride, sizeof event));
}

Status Announcer::create() {
    is_active_ = true;
    if (!told_.create() || !reserve()) return no_host_memory();
    return Status{};
}

// The tree grows when the cache migrates to more blocks, and there are more records with a store.
bool Announcer::reserve() {
    return told_.reserve() && nodes_.reserve(tree_.capacity()) &&
           orphans_.reserve(told_.capacity());
}

Status Announcer::check_sink(const EventSink &sink) const {
    // A node that changes its level is stored in one and removed from the other.
    uint32_t most = books_.geometry.group_count * (books_.journal.keeps_on_host() ? 2 : 1);
    if (sink.capacity < most) {
        return fail(QUIRE_E_ARG, "capacity is {}: at least one event per group and level, here {}",
                    sink.capacity, most);
    }
    if (books_.namespaces.gives_tokens() && sink.token_capacity < books_.geometry.span.tokens()) {
        return fail(QUIRE_E_ARG, "token_capacity is {}: at least the tokens of a block, here {}",
                    sink.token_capacity, books_.geometry.span.tokens());
    }
    return Status{};
}

Status Announcer::read(bool restarts, EventSink *sink, bool *has_more) {
    if (!is_active_) {
        return fail(QUIRE_E_UNSUPPORTED,
                    "the cache notes no events: create it with QUIRE_CACHE_EVENTS");
    }
    QUIRE_TRY(check_sink(*sink));
    if (!reserve()) return no_host_memory();
    nodes_.resize_within(nodes_.capacity());
    orphans_.resize_within(orphans_.capacity());
    looked_at_ = 0;
    if (restarts) is_cleared_ = is_restarting_ = true;
    *has_more =
        !tell_cleared(sink) || !tell_removed(sink) || !tell_rest(sink) || !tell_changed(sink);
    return Status{};
}

bool Announcer::tell_cleared(EventSink *sink) {
    if (!is_cleared_) [[likely]]
        return true;
    if (!sink->has_room(1, 0)) return false;
    quire_cache_event event{};
    event.kind = QUIRE_EVENT_CLEARED;
    sink->push(event);
    first_block_ = next_block_;
    is_cleared_ = false;
    if (is_restarting_) rest_ = rest_records_ = 0;
    return true;
}

// Tells what a restart has not come to yet. Nodes that are held back are told when they are not.
bool Announcer::tell_rest(EventSink *sink) {
    if (!is_restarting_) [[likely]]
        return true;
    for (; rest_ < tree_.used(); ++rest_) {
        if (++looked_at_ > kIdleNodes + sink->capacity) return false;
        if (tree_.is_held(rest_)) continue;
        if (!tell_node(rest_, sink)) return false;
        if (waits_) tree_.changed().touch(rest_);
        waits_ = false;
    }
    for (; rest_records_ < told_.used(); ++rest_records_) {
        if (++looked_at_ > kIdleNodes + sink->capacity) return false;
        if (told_.stored(rest_records_) == 0) continue;
        if (!tell_record(rest_records_, sink)) return false;
        if (waits_) told_.changed().touch(rest_records_);
        waits_ = false;
    }
    is_restarting_ = false;
    return true;
}

bool Announcer::tell_removed_nodes(EventSink *sink) {
    TouchedNodes &removed = tree_.removed();
    for (; removed.size() != 0; removed.pop()) {
        if (++looked_at_ > kIdleNodes + sink->capacity) return false;
        const uint32_t node = removed.front(), record = told_.at_node(node);
        if (record == kNone) continue;
        // What the open step took out of reach may come back; what was freed never does.
        bool is_gone =
            told_.is_current(record) ? !tree_.linked(node) && !tree_.is_held(node) : true;
        if (is_gone && !take_back(record, sink)) return false;
    }
    return true;
}

// Before anything is stored: equal content may have a new node by now.
bool Announcer::tell_removed(EventSink *sink) {
    if (!tell_removed_nodes(sink)) return false;
    TouchedNodes &removed = told_.removed();
    for (; removed.size() != 0; removed.pop()) {
        if (++looked_at_ > kIdleNodes + sink->capacity) return false;
        const uint32_t record = removed.front();
        if (!told_[record].in_use) continue;
        const bool is_orphan = told_[record].node == kNone;
        if (is_orphan ? told_.stored(record) == 0 : !told_.is_current(record)) {
            if (!take_back(record, sink)) return false;
        } else if (is_to_move(record)) {
            told_.changed().touch(record);
        } else if (!take_from_store(record, told_.stored(record), sink)) {
            return false;
        }
    }
    return true;
}

bool Announcer::tell_changed_nodes(EventSink *sink) {
    TouchedNodes &changed = tree_.changed();
    for (uint32_t left = changed.size(); left != 0; --left) {
        if (++looked_at_ > kIdleNodes + sink->capacity) return false;
        uint32_t node = changed.front();
        if (!tree_.is_held(node) && !tell_node(node, sink)) return false;
        changed.pop();
        // What lies below a node that is held back waits for it.
        if (waits_) changed.touch(node);
        waits_ = false;
    }
    return true;
}

bool Announcer::tell_changed(EventSink *sink) {
    if (!tell_changed_nodes(sink)) return false;
    TouchedNodes &changed = told_.changed();
    for (uint32_t left = changed.size(); left != 0; --left) {
        if (++looked_at_ > kIdleNodes + sink->capacity) return false;
        uint32_t record = changed.front();
        if (!tell_record(record, sink)) return false;
        changed.pop();
        if (waits_) changed.touch(record);
        waits_ = false;
    }
    return true;
}

// True if the reader knows the block in the store alone, which has lost it, while a node has it. So
// the node's block is told first, as blocks after it may be known.
bool Announcer::is_to_move(uint32_t record) const {
    return was_told(record) && told_.stored(record) == 0 && told_[record].groups == 0;
}

// The groups that have all blocks of the node.
uint32_t Announcer::groups_of(uint32_t node) const {
    uint32_t groups = 0;
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        const bool has_all = tree_.entry_of(node, g, kNullBlock) == kNone;
        groups |= has_all ? uint32_t{1} << g : 0;
    }
    return groups;
}

uint32_t Announcer::host_groups_of(uint32_t node) const {
    uint32_t groups = 0;
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        const uint32_t first = tree_.blocks(node)[tree_.first_entry(g)];
        groups |= is_on_host(first) ? uint32_t{1} << g : 0;
    }
    return groups;
}

uint32_t Announcer::token_count(const ToldBlock &told) const {
    return (told.flags & QUIRE_EVENT_HAS_TOKENS) != 0 ? books_.geometry.span.tokens() : 0;
}

// True if the reader knows the node's block on the device or in the host tier, where a block has to
// come after its parent as well: Dynamo has a tree of its own for the device.
bool Announcer::is_told_near(uint32_t record) const {
    if (!told_.is_current(record) || !was_told(record)) return false;
    return told_[record].groups != 0 || groups_of(told_[record].node) == 0;
}

bool Announcer::tell_node(uint32_t node, EventSink *sink) {
    uint32_t record = told_.at_node(node);
    if (record != kNone && !is_found(record) && !take_back(record, sink)) return false;
    if (!is_there(node)) return true;
    record = told_.at_node(node);
    if (record != kNone && is_told_near(record)) return tell_places(record, sink);
    return tell_with_ancestors(node, sink);
}

bool Announcer::tell_with_ancestors(uint32_t node, EventSink *sink) {
    uint32_t depth = 0, above = kNone;
    for (uint32_t at = node;; at = tree_.parent(at)) {
        const uint32_t record = told_.at_node(at);
        if (record != kNone && is_told_near(record)) {
            above = record;
            break;
        }
        nodes_[depth++] = at;
        if (tree_.is_first(at)) break;
        uint32_t before = tree_.parent(at);
        if (before == kNone) return true;  // out of reach for good
        waits_ = tree_.is_held(before);
        if (waits_) return true;
        if (!is_there(before)) return true;
    }
    while (depth != 0) {
        uint32_t next = nodes_[--depth];
        uint32_t record = told_.at_node(next);
        if (record != kNone && !told_.is_current(record)) {
            // Another node was told under its index, and is not there any more.
            if (!take_back(record, sink)) return false;
            record = kNone;
        }
        if (record == kNone) record = told_.enter(next, above);
        if (record == kNone) return true;
        if (!(was_told(record) ? tell_places(record, sink) : tell_new(record, sink))) return false;
        above = record;
    }
    return true;
}

// Tells what the store has of a block.
bool Announcer::tell_record(uint32_t record, EventSink *sink) {
    const ToldBlock &told = told_[record];
    if (!told.in_use) return true;
    if (told.node == kNone)
        return was_told(record) ? tell_store(record, sink) : tell_orphan(record, sink);
    if (!told_.is_current(record)) return true;  // it is taken back first
    if (!tree_.is_held(told.node)) {
        if (!tell_node(told.node, sink)) return false;
        // The store has lost it, and its node is out of reach for good: a block before it is gone.
        const bool is_nowhere = !waits_ && told_.is_current(record) && is_to_move(record);
        return is_nowhere ? take_back(record, sink) : true;
    }
    waits_ = !was_told(record) || is_to_move(record);
    return waits_ || tell_store(record, sink);
}

bool Announcer::tell_orphan(uint32_t record, EventSink *sink) {
    uint32_t depth = 0;
    for (uint32_t at = record; at != kNone && !was_told(at); at = told_[at].parent)
        orphans_[depth++] = at;
    while (depth != 0) {
        const uint32_t next = orphans_[--depth];
        if (told_[next].node == kNone) {
            if (told_.stored(next) == 0) return true;  // it is taken back first
            if (!tell_new(next, sink)) return false;
            continue;
        }
        waits_ = told_.is_current(next) && tree_.is_held(told_[next].node);
        if (waits_ || !told_.is_current(next)) return true;
        if (!tell_node(told_[next].node, sink)) return false;
        if (!was_told(next)) return true;
    }
    return true;
}

// Gives the block a number.
bool Announcer::tell_new(uint32_t record, EventSink *sink) {
    ToldBlock &told = told_[record];
    const uint32_t groups = is_found(record) ? groups_of(told.node) : told_.stored(record);
    if (!sink->has_room(static_cast<uint32_t>(std::popcount(groups)), token_count(told)))
        return false;
    told.number = next_block_++;
    told.groups = told.host_groups = told.store_groups = 0;
    return tell_places(record, sink);
}

bool Announcer::tell_places(uint32_t record, EventSink *sink) {
    if (is_found(record) && !tell_groups(record, sink)) return false;
    return tell_store(record, sink);
}

// A window may have passed the node in some groups, or come back to it, and blocks may have moved
// between the device and the host tier. What moved is stored before it is removed, so that a reader
// always knows one place of it.
bool Announcer::tell_groups(uint32_t record, EventSink *sink) {
    ToldBlock &told = told_[record];
    const uint32_t groups = groups_of(told.node), host = host_groups_of(told.node);
    const uint32_t old_host = told.host_groups, moved = groups & told.groups & (host ^ old_host);
    const uint32_t stored = (groups & ~told.groups) | moved;
    const uint32_t removed = (told.groups & ~groups) | moved;
    if ((stored | removed) == 0) return true;
    auto count = static_cast<uint32_t>(std::popcount(stored) + std::popcount(removed));
    if (!sink->has_room(count, token_count(told))) return false;
    push_removed(told, removed & ~moved, old_host, QUIRE_LEVEL_HOST, sink);
    told.groups = groups;
    told.host_groups = host;
    if (stored != 0) push_stored(record, stored, host, QUIRE_LEVEL_HOST, sink);
    push_removed(told, moved, old_host, QUIRE_LEVEL_HOST, sink);
    return true;
}

// Another store may be below the cache since the reader was told.
bool Announcer::tell_store(uint32_t record, EventSink *sink) {
    ToldBlock &told = told_[record];
    const uint32_t stored = told_.stored(record);
    if (!take_from_store(record, told.store_level == told_.level() ? stored : 0, sink))
        return false;
    const uint32_t fresh = stored & ~told.store_groups;
    if (fresh == 0) return true;
    if (!sink->has_room(static_cast<uint32_t>(std::popcount(fresh)), token_count(told)))
        return false;
    told.store_groups |= fresh;
    told.store_level = static_cast<uint16_t>(told_.level());
    push_stored(record, fresh, fresh, told.store_level, sink);
    return true;
}

// left: the groups that the reader goes on to know.
bool Announcer::take_from_store(uint32_t record, uint32_t left, EventSink *sink) {
    ToldBlock &told = told_[record];
    const uint32_t removed = was_told(record) ? told.store_groups & ~left : 0;
    if (removed == 0) return true;
    if (!sink->has_room(static_cast<uint32_t>(std::popcount(removed)), 0)) return false;
    push_removed(told, removed, removed, told.store_level, sink);
    told.store_groups &= left;
    return true;
}

// Takes back the record's block and all that have nodes below it, the lowest first. What the store
// has of these stays, unless a block before it is nowhere.
bool Announcer::take_back(uint32_t record, EventSink *sink) {
    for (uint32_t at = record;;) {
        while (told_[at].children[ToldBlocks::kWithNode] != kNone)
            at = told_[at].children[ToldBlocks::kWithNode];
        ToldBlock &told = told_[at];
        const bool stays = told_.stored(at) != 0;
        if (!stays && !take_back_orphans(at, sink)) return false;
        if (was_told(at)) {
            if (!(stays ? tell_store(at, sink) : take_from_store(at, 0, sink))) return false;
            if (!sink->has_room(static_cast<uint32_t>(std::popcount(told.groups)), 0)) return false;
            push_removed(told, told.groups, told.host_groups, QUIRE_LEVEL_HOST, sink);
            told.groups = told.host_groups = 0;
        }
        const uint32_t above = told.parent;
        told_.leave_node(at);
        if (at == record) return true;
        at = above;
    }
}

// Takes back all orphans below the record, the lowest first.
bool Announcer::take_back_orphans(uint32_t record, EventSink *sink) {
    while (told_[record].children[ToldBlocks::kOrphans] != kNone) {
        uint32_t low = told_[record].children[ToldBlocks::kOrphans];
        while (told_[low].children[ToldBlocks::kOrphans] != kNone)
            low = told_[low].children[ToldBlocks::kOrphans];
        told_.forget_stored(low);
        if (!take_from_store(low, 0, sink)) return false;
        told_.free(low);
    }
    return true;
}

// lower: those of the groups that lie at `level`; the others are on the device.
void Announcer::push_stored(uint32_t record, uint32_t groups, uint32_t lower, uint32_t level,
                            EventSink *sink) {
    const ToldBlock &told = told_[record];
    quire_cache_event event{};
    event.kind = QUIRE_EVENT_STORED;
    event.flags = told.flags;
    event.block = told.number;
    event.parent = told.parent != kNone ? told_[told.parent].number : 0;
    event.ns = told.ns;
    event.position = told.position;
    event.token_count = books_.geometry.span.tokens();
    event.token_offset = sink->token_count;
    if (const uint32_t count = token_count(told); count != 0 && groups != 0) {
        std::memcpy(sink->tokens + sink->token_count, told_.tokens(record),
                    uint64_t{count} * sizeof(quire_token));
        sink->token_count += count;
    }
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        event.group = g;
        event.level = (lower >> g & 1) != 0 ? level : uint32_t{QUIRE_LEVEL_DEVICE};
        if ((groups >> g & 1) != 0) sink->push(event);
    }
}

void Announcer::push_removed(const ToldBlock &told, uint32_t groups, uint32_t lower, uint32_t level,
                             EventSink *sink) {
    quire_cache_event event{};
    event.kind = QUIRE_EVENT_REMOVED;
    event.block = told.number;
    event.ns = told.ns;
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        event.group = g;
        event.level = (lower >> g & 1) != 0 ? level : uint32_t{QUIRE_LEVEL_DEVICE};
        if ((groups >> g & 1) != 0) sink->push(event);
    }
}

Status Announcer::check() const {
    for (uint32_t i = 0; i < told_.used(); ++i) {
        const ToldBlock &told = told_[i];
        if (!told.in_use || !was_told(i) || told.parent == kNone || was_told(told.parent)) continue;
        return fail(QUIRE_E_INTERNAL, "announcer: block {} was told, and the one before it was not",
                    told.number);
    }
    return Status{};
}

}  // namespace quire
