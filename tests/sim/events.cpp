// SPDX-License-Identifier: Apache-2.0
//
// events: what quire_cache_events tells of the prefix cache, kept as a reader would keep it, and
// compared with what can be found.
#include <algorithm>

#include "cache_tier.hpp"
#include "world.hpp"

namespace sim {
namespace {

constexpr uint32_t kMostEvents = 7;  // of one call: many blocks take several

}  // namespace

bool World::has_events() const { return (config.flags & QUIRE_CACHE_EVENTS) != 0; }

void World::take_stored(const quire_cache_event &event) {
    const auto number = static_cast<unsigned long long>(event.block);
    const auto parent = told_.find(event.parent);
    if (event.block == 0 || event.group >= blocks_.size() || event.level > QUIRE_LEVEL_STORE ||
        event.token_count != config.span())
        fail("event", "block %llu is stored in group %u, level %u, with %u tokens", number,
             event.group, event.level, event.token_count);
    if (event.parent != 0 && parent == told_.end())
        fail("event-parent", "block %llu is stored, and its parent, %llu, is not", number,
             static_cast<unsigned long long>(event.parent));
    const uint32_t position = event.parent == 0 ? 0 : parent->second.position + config.span();
    Told &block = told_[event.block];
    if (event.position != position || (!block.places.empty() && block.parent != event.parent))
        fail("event-parent", "block %llu is stored at %u; its parent, %llu, ends at %u", number,
             event.position, static_cast<unsigned long long>(event.parent), position);
    block.position = position;
    block.parent = event.parent;
    if (!block.places.insert({event.group, event.level}).second)
        fail("event-twice", "block %llu is stored twice in group %u, level %u", number, event.group,
             event.level);
}

void World::take_removed(const quire_cache_event &event) {
    const auto number = static_cast<unsigned long long>(event.block);
    const auto block = told_.find(event.block);
    if (block == told_.end() || block->second.places.erase({event.group, event.level}) == 0)
        fail("event-removed", "block %llu is removed from group %u, level %u, and was not stored",
             number, event.group, event.level);
    if (!block->second.places.empty()) return;
    told_.erase(block);
    for (const auto &[other, told] : told_)
        if (told.parent == event.block)
            fail("event-removed", "block %llu is removed before %llu, which follows it", number,
                 static_cast<unsigned long long>(other));
}

// No more blocks are told to be in the store than it has, once all answers and notices are read;
// and none where the tier loads nothing.
void World::check_told_store(const std::map<std::pair<uint32_t, uint32_t>, int64_t> &counts) {
    const bool loads = has_tier() && !tier_is_dead();
    if (loads && tier_->store->waiting() != 0) return;
    std::map<uint32_t, int64_t> stored;  // of each group
    if (loads)
        for (const auto &[key, record] : tier_->store->records)
            if (const auto at = tier_->names.find(key); at != tier_->names.end())
                ++stored[at->second.group];
    for (const auto &[place, told] : counts) {
        if (place.second != QUIRE_LEVEL_STORE) continue;
        tally_->told_in_store += static_cast<uint64_t>(told);
        if (told > stored[place.first])
            fail("event-store", "%lld blocks of group %u are in the store by events, and %lld are",
                 static_cast<long long>(told), place.first,
                 static_cast<long long>(stored[place.first]));
    }
}

// Reads all that there is to be told, and compares it with the nodes that are linked.
void World::check_events(const std::vector<Node> &nodes) {
    if (!has_events() || mix(ops_, config.seed) % 3 == 0) return;
    quire_cache_event events[kMostEvents] = {};
    quire_events_info got{};
    uint32_t flags = mix(ops_, config.seed) % 40 == 1 ? QUIRE_EVENTS_RESTART : 0;
    do {
        got.struct_size = sizeof got;
        expect(q_->cache_events(cache_, flags, events, kMostEvents, sizeof events[0], nullptr, 0,
                                &got, &error_),
               {QUIRE_OK}, "quire_cache_events");
        flags = 0;
        tally_->events_read += got.event_count;
        for (uint32_t i = 0; i < got.event_count; ++i) {
            if (events[i].kind == QUIRE_EVENT_STORED) take_stored(events[i]);
            if (events[i].kind == QUIRE_EVENT_REMOVED) take_removed(events[i]);
            if (events[i].kind == QUIRE_EVENT_CLEARED) told_.clear();
        }
    } while (got.has_more != 0);
    std::map<std::pair<uint32_t, uint32_t>, int64_t> counts;  // of each group and level
    for (const auto &[number, told] : told_)
        for (const auto &[group, level] : told.places) {
            ++counts[{group, level}];
            if (level == QUIRE_LEVEL_HOST && told.places.count({group, QUIRE_LEVEL_DEVICE}) != 0)
                fail("event-levels", "block %llu of group %u is on both levels by its events",
                     static_cast<unsigned long long>(number), group);
        }
    for (const Node &node : nodes) {
        auto at = node.blocks.begin();
        for (uint32_t g = 0; g < blocks_.size(); ++g) {
            // A group of another input has one entry, and no block.
            const uint32_t size = config.block_size(g), whole = config.span() / size;
            const uint32_t entries = config.span() % size == 0 ? whole : 1;
            const auto end = at + entries;
            if (std::find(at, end, 0) == end) --counts[{g, (*at & kHostBit) != 0}];
            at = end;
        }
    }
    check_told_store(counts);
    for (const auto &[place, left] : counts)
        if (left != 0 && place.second != QUIRE_LEVEL_STORE)
            fail("event-count", "%lld more blocks of group %u, level %u, by events than by nodes",
                 static_cast<long long>(left), place.first, place.second);
}

}  // namespace sim
