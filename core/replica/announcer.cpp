// SPDX-License-Identifier: Apache-2.0

#include "core/replica/announcer.hpp"

#include <algorithm>
#include <bit>

namespace quire {

namespace {

uint32_t level_in(uint32_t host_groups, uint32_t group) {
    return (host_groups >> group & 1) != 0 ? QUIRE_LEVEL_HOST : QUIRE_LEVEL_DEVICE;
}

}  // namespace

void EventSink::push(const quire_cache_event &event) {
    std::memcpy(events + uint64_t{event_count++} * stride, &event,
                std::min<size_t>(stride, sizeof event));
}

Status Announcer::create() {
    is_active_ = true;
    if (!tree_.watch() || !reserve()) return no_host_memory();
    return Status{};
}

// The tree grows when the cache migrates to more blocks.
bool Announcer::reserve() {
    uint32_t capacity = tree_.capacity();
    if (told_.size() >= capacity) return true;
    Array<Told> told(&books_.host);
    Array<uint32_t> path(&books_.host);
    if (!told.create(capacity) || !path.create(capacity)) return false;
    for (uint32_t i = 0; i < capacity; ++i) told[i] = i < told_.size() ? told_[i] : Told{};
    told_.swap(told);
    path_.swap(path);
    return true;
}

Status Announcer::check_sink(const EventSink &sink) const {
    // A node that changes its level is stored in one and removed from the other.
    uint32_t most = books_.geometry.group_count * (books_.journal.keeps_on_host() ? 2 : 1);
    if (sink.capacity < most) {
        return fail(QUIRE_E_ARG, "capacity is {}: at least one event per group and level, here {}",
                    sink.capacity, most);
    }
    if (books_.namespaces.gives_tokens() && sink.token_capacity < books_.geometry.block_tokens) {
        return fail(QUIRE_E_ARG, "token_capacity is {}: at least block_tokens, here {}",
                    sink.token_capacity, books_.geometry.block_tokens);
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
    rest_ = is_restarting_ ? 0 : rest_;
    return true;
}

// Tells what a restart has not come to yet. Nodes that are held back are told when they are not.
bool Announcer::tell_rest(EventSink *sink) {
    for (; is_restarting_ && rest_ < tree_.used(); ++rest_) {
        if (++looked_at_ > kIdleNodes + sink->capacity) return false;
        if (tree_.is_held(rest_)) continue;
        if (!tell(rest_, sink)) return false;
        if (waits_) tree_.changed().touch(rest_);
        waits_ = false;
    }
    is_restarting_ = false;
    return true;
}

// Before anything is stored: equal content may have a new node by now.
bool Announcer::tell_removed(EventSink *sink) {
    TouchedNodes &removed = tree_.removed();
    for (; removed.size() != 0; removed.pop()) {
        if (++looked_at_ > kIdleNodes + sink->capacity) return false;
        uint32_t node = removed.front();
        if (!was_told(node)) continue;
        // What the open step took out of reach may come back; what was freed never does.
        bool is_gone = is_told(node) ? !is_found(node) && !tree_.is_held(node) : true;
        if (is_gone && !take_back(node, sink)) return false;
    }
    return true;
}

bool Announcer::tell_changed(EventSink *sink) {
    TouchedNodes &changed = tree_.changed();
    for (uint32_t left = changed.size(); left != 0; --left) {
        if (++looked_at_ > kIdleNodes + sink->capacity) return false;
        uint32_t node = changed.front();
        if (!tree_.is_held(node) && !tell(node, sink)) return false;
        changed.pop();
        // What lies below a node that is held back waits for it.
        if (waits_) changed.touch(node);
        waits_ = false;
    }
    return true;
}

bool Announcer::is_told(uint32_t node) const {
    return was_told(node) && told_[node].generation == tree_.generation(node);
}

uint32_t Announcer::groups_of(uint32_t node) const {
    uint32_t groups = 0;
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        groups |= tree_.blocks(node)[g] != kNullBlock ? uint32_t{1} << g : 0;
    }
    return groups;
}

uint32_t Announcer::host_groups_of(uint32_t node) const {
    uint32_t groups = 0;
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        groups |= is_on_host(tree_.blocks(node)[g]) ? uint32_t{1} << g : 0;
    }
    return groups;
}

// A root's words begin with its namespace's number and its count of keys: see encode_root().
quire_namespace Announcer::namespace_of(uint32_t root) const {
    const uint32_t *words = tree_.scopes().words(root);
    uint64_t number = uint64_t{words[1]} << 32 | words[0];
    return number != 0 ? make_handle(HandleType::name_space, number) : 0;
}

bool Announcer::gives_tokens(quire_namespace ns) const {
    uint32_t index = ns != 0 ? books_.namespaces.find(ns) : Namespaces::kDefault;
    return index != Namespaces::kNone && books_.namespaces[index].gives_tokens;
}

bool Announcer::tell(uint32_t node, EventSink *sink) {
    bool is_there = is_found(node);
    if (was_told(node) && !(is_there && is_told(node)) && !take_back(node, sink)) return false;
    if (!is_there) return true;
    return is_told(node) ? tell_groups(node, sink) : tell_with_ancestors(node, sink);
}

bool Announcer::tell_with_ancestors(uint32_t node, EventSink *sink) {
    uint32_t depth = 0;
    for (uint32_t at = node; !is_told(at); at = tree_.parent(at)) {
        path_[depth++] = at;
        if (tree_.is_first(at)) break;
        uint32_t above = tree_.parent(at);
        if (above == kNone) return true;  // out of reach for good
        waits_ = tree_.is_held(above);
        if (waits_) return true;
        if (!is_found(above)) return true;
    }
    while (depth != 0) {
        uint32_t next = path_[--depth];
        // Another node was told under its number, and is not there any more.
        if (was_told(next) && !take_back(next, sink)) return false;
        if (!tell_stored(next, sink)) return false;
    }
    return true;
}

bool Announcer::tell_stored(uint32_t node, EventSink *sink) {
    uint32_t above = tree_.parent(node), scope = tree_.scope(node);
    uint32_t root = tree_.scopes().root_of(scope);
    Told fresh;
    fresh.block = next_block_;
    fresh.generation = tree_.generation(node);
    fresh.ns = namespace_of(root);
    if (above != kNone) {
        fresh.position = told_[above].position + books_.geometry.block_tokens;
        fresh.flags = told_[above].flags & QUIRE_EVENT_KEYED;
    }
    if (scope != root || tree_.scopes().words(root)[2] != 0) fresh.flags |= QUIRE_EVENT_KEYED;
    if (gives_tokens(fresh.ns)) fresh.flags |= QUIRE_EVENT_HAS_TOKENS;
    fresh.groups = groups_of(node);
    fresh.host_groups = host_groups_of(node);
    uint32_t tokens =
        (fresh.flags & QUIRE_EVENT_HAS_TOKENS) != 0 ? books_.geometry.block_tokens : 0;
    if (!sink->has_room(static_cast<uint32_t>(std::popcount(fresh.groups)), tokens)) return false;
    ++next_block_;
    told_[node] = fresh;
    if (above != kNone) hang_below(node, above);
    push_stored(node, fresh.groups, sink);
    return true;
}

// A window may have passed the node in some groups, or come back to it, and blocks may have moved
// between the device and the host tier. What moved is stored before it is removed, so that a reader
// always knows one place of it.
bool Announcer::tell_groups(uint32_t node, EventSink *sink) {
    Told &told = told_[node];
    const uint32_t groups = groups_of(node), host = host_groups_of(node);
    const uint32_t old_host = told.host_groups, moved = groups & told.groups & (host ^ old_host);
    const uint32_t stored = (groups & ~told.groups) | moved;
    const uint32_t removed = (told.groups & ~groups) | moved;
    if ((stored | removed) == 0) return true;
    uint32_t tokens = (told.flags & QUIRE_EVENT_HAS_TOKENS) != 0 ? books_.geometry.block_tokens : 0;
    auto count = static_cast<uint32_t>(std::popcount(stored) + std::popcount(removed));
    if (!sink->has_room(count, tokens)) return false;
    push_removed(node, removed & ~moved, old_host, sink);
    told.groups = groups;
    told.host_groups = host;
    if (stored != 0) push_stored(node, stored, sink);
    push_removed(node, moved, old_host, sink);
    return true;
}

// Takes back the node and all that were told below it, the lowest first.
bool Announcer::take_back(uint32_t node, EventSink *sink) {
    for (uint32_t at = node;;) {
        while (told_[at].first_child != kNone) at = told_[at].first_child;
        uint32_t groups = told_[at].groups;
        if (!sink->has_room(static_cast<uint32_t>(std::popcount(groups)), 0)) return false;
        push_removed(at, groups, told_[at].host_groups, sink);
        uint32_t above = told_[at].parent;
        if (above != kNone) unhang(at);
        told_[at] = Told{};
        if (at == node) return true;
        at = above;
    }
}

void Announcer::push_stored(uint32_t node, uint32_t groups, EventSink *sink) {
    const Told &told = told_[node];
    quire_cache_event event{};
    event.kind = QUIRE_EVENT_STORED;
    event.flags = told.flags;
    event.block = told.block;
    event.parent = told.parent != kNone ? told_[told.parent].block : 0;
    event.ns = told.ns;
    event.position = told.position;
    event.token_count = books_.geometry.block_tokens;
    event.token_offset = sink->token_count;
    if ((told.flags & QUIRE_EVENT_HAS_TOKENS) != 0 && groups != 0) {
        std::memcpy(sink->tokens + sink->token_count, tree_.tokens(node),
                    uint64_t{books_.geometry.block_tokens} * sizeof(quire_token));
        sink->token_count += books_.geometry.block_tokens;
    }
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        event.group = g;
        event.level = level_in(told.host_groups, g);
        if ((groups >> g & 1) != 0) sink->push(event);
    }
}

// host_groups: those whose block was told as in the host tier.
void Announcer::push_removed(uint32_t node, uint32_t groups, uint32_t host_groups,
                             EventSink *sink) {
    quire_cache_event event{};
    event.kind = QUIRE_EVENT_REMOVED;
    event.block = told_[node].block;
    event.ns = told_[node].ns;
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        event.group = g;
        event.level = level_in(host_groups, g);
        if ((groups >> g & 1) != 0) sink->push(event);
    }
}

void Announcer::hang_below(uint32_t node, uint32_t parent) {
    uint32_t next = told_[parent].first_child;
    told_[node].parent = parent;
    told_[node].next = next;
    if (next != kNone) told_[next].prev = node;
    told_[parent].first_child = node;
}

void Announcer::unhang(uint32_t node) {
    const Told &told = told_[node];
    if (told.next != kNone) told_[told.next].prev = told.prev;
    if (told.prev != kNone) {
        told_[told.prev].next = told.next;
    } else {
        told_[told.parent].first_child = told.next;
    }
}

}  // namespace quire
