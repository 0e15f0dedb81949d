// SPDX-License-Identifier: Apache-2.0
//
// write_back: finds the cached blocks that are next to be lost, before a step takes them.
//
// A step that evicts a block cannot wait for a store, so blocks are written ahead: the oldest of
// each group on the last level that it has, which is the host tier if evicted blocks go there. They
// are looked at again after a quarter of them may be gone, so a block is looked at a few times
// before it is evicted, and a call that has nothing to do costs nothing. What is evicted faster
// than that is lost, and counted as it is evicted, whether or not it was queued.

#include "core/tiers/cache_tier.hpp"

namespace quire {

namespace {

// How many of a pool's oldest blocks are written ahead.
uint32_t window_of(const BlockPool &pool) {
    constexpr uint32_t kLeast = 64, kMost = 4096;
    const uint32_t part = pool.block_count() / 8;
    return part < kLeast ? kLeast : part > kMost ? kMost : part;
}

}  // namespace

const BlockPool &CacheTier::last_level(uint32_t group) const {
    return books_.journal.demotes() ? *books_.journal.host_pool(group) : books_.journal.pool(group);
}

bool CacheTier::is_due(uint32_t group, uint32_t window) const {
    const BlockPool &pool = last_level(group);
    const Sweep &last = sweeps_[group];
    if (pool.free_count() >= window) return false;
    if (!last.is_made || books_.journal.evictions() - last.evictions >= window / 4) return true;
    return last.found < window && pool.cached_count() > last.found;
}

// While blocks wait to be written, none are added: a slow store is not given more.
void CacheTier::sweep() {
    if (desc_.write != QUIRE_TIER_WRITE_BACK || is_detaching_ || is_asleep_ || fault_.is_broken())
        return;
    if (books_.unsaved.count() != 0) return;
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        const BlockPool &pool = last_level(g);
        const uint32_t window = window_of(pool);
        if (!is_due(g, window)) continue;
        note_oldest(pool, g, window);
        const uint32_t cached = pool.cached_count();
        sweeps_[g] = Sweep{cached < window ? cached : window, books_.journal.evictions(), true};
    }
}

void CacheTier::note_oldest(const BlockPool &pool, uint32_t group, uint32_t most) {
    const PrefixTree &tree = books_.journal.tree();
    uint32_t block = pool.first_cached();
    for (uint32_t i = 0; i < most && block != kNone; ++i, block = pool.next_in_list(block)) {
        const uint32_t node = pool[block].node;
        if (!keys_.is_kept(node, group)) books_.unsaved.note(node, tree.generation(node));
    }
}

// A block that is on its way to the tier counts as kept: if it is lost, that shows when it arrives.
bool CacheTier::would_lose(uint32_t node, uint32_t group) const {
    if (is_asleep_ || fault_.is_broken() || keys_.is_kept(node, group)) return false;
    return keys_.tenant(keys_.root_of(node)) != nullptr;
}

void CacheTier::note_all_cached() {
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        if (books_.journal.demotes()) note_oldest(*books_.journal.host_pool(g), g, UINT32_MAX);
        note_oldest(books_.journal.pool(g), g, UINT32_MAX);
    }
}

}  // namespace quire
