// SPDX-License-Identifier: Apache-2.0
//
// Other pools under the same tables and tree: how a change of memory changes the books.

#include "core/blocks/journal.hpp"

namespace quire {

// A node has a block in every full-attention group, and the open step keeps the nodes that it
// evicts until its commit. Without such a group nodes outlive their blocks while they have
// children, so there is room for chains four times as long as the pool holds, and for everything
// published between two commits (node_reserve).
uint32_t Journal::node_capacity(const Geometry &geometry) {
    uint64_t fewest_full = UINT64_MAX, all_blocks = 0;
    for (uint32_t g = 0; g < geometry.group_count; ++g) {
        const GroupGeometry &group = geometry.groups[g];
        all_blocks += group.blocks;
        if (group.full && group.blocks < fewest_full) fewest_full = group.blocks;
    }
    uint64_t nodes = geometry.any_full ? 2 * fewest_full : 5 * all_blocks;
    return static_cast<uint32_t>(nodes < kNone ? nodes : kNone - 1);
}

// Drops a cached block; in a full-attention group also its node's cached blocks in all groups.
void Journal::plan_drop(uint32_t group, uint32_t block, uint32_t *left, Relocation *plan) const {
    auto leave = [&](uint32_t g, uint32_t b) {
        if (plan->ids[g][b] == kNone || (*pools_[g])[b].state != BlockState::cached) return;
        plan->ids[g][b] = kNone;
        --left[g];
        ++plan->blocks_dropped;
    };
    plan->drops.push(BlockDrop{group, block});
    if (!full_[group]) return leave(group, block);
    const uint32_t *named = tree_.blocks((*pools_[group])[block].node);
    for (uint32_t g = 0; g < group_count_; ++g) {
        if (named[g] != kNullBlock) leave(g, named[g]);
    }
}

// Gives blocks whose numbers the new pool does not have the lowest free ones. REQUIRES: they fit.
void Journal::renumber(uint32_t block_count, Array<uint32_t> *ids) {
    uint32_t free = 1;
    for (uint64_t block = block_count; block < ids->size(); ++block) {
        if ((*ids)[block] == kNone) continue;
        while ((*ids)[free] != kNone) ++free;
        QUIRE_ASSERT(free < block_count);
        (*ids)[block] = free++;
    }
}

// Gives a pool's held and cached blocks the numbers that they have. False: no memory.
bool Journal::number_as_they_are(const BlockPool &pool, Array<uint32_t> *ids) {
    if (!ids->create(pool.block_count())) return false;
    for (uint32_t b = 0; b < pool.block_count(); ++b) {
        bool stays = pool[b].state == BlockState::held || pool[b].state == BlockState::cached;
        (*ids)[b] = stays ? b : kNone;
    }
    return true;
}

Status Journal::plan(const Geometry &target, Relocation *plan) const {
    plan->blocks_short = 0;
    auto lacks = [&](uint32_t held, uint32_t blocks) {
        uint32_t usable = blocks != 0 ? blocks - 1 : 0;
        if (held > usable && held - usable > plan->blocks_short) plan->blocks_short = held - usable;
    };
    uint64_t cached = 0;
    for (uint32_t g = 0; g < group_count_; ++g) {
        lacks(pools_[g]->held_count(), target.groups[g].blocks);
        if (host_pools_[g] != nullptr)
            lacks(host_pools_[g]->held_count(), target.groups[g].host_blocks);
        cached += pools_[g]->cached_count();
    }
    if (plan->blocks_short != 0) return Status{};
    if (!plan->drops.create(cached)) return no_host_memory();
    plan->drops.shrink(0);
    uint32_t left[kMaxGroups] = {};
    for (uint32_t g = 0; g < group_count_; ++g) {
        left[g] = pools_[g]->held_count() + pools_[g]->cached_count();
        if (!number_as_they_are(*pools_[g], &plan->ids[g])) return no_host_memory();
        if (host_pools_[g] == nullptr) continue;
        if (!number_as_they_are(*host_pools_[g], &plan->host_ids[g])) return no_host_memory();
        renumber(target.groups[g].host_blocks, &plan->host_ids[g]);
    }
    for (uint32_t g = 0; g < group_count_; ++g) {
        const BlockPool &pool = *pools_[g];
        uint32_t block = pool.oldest_cached(kNoBarrier);
        for (; left[g] > target.groups[g].blocks - 1; block = pool.next_in_list(block)) {
            if (plan->ids[g][block] != kNone) plan_drop(g, block, left, plan);
        }
    }
    for (uint32_t g = 0; g < group_count_; ++g) renumber(target.groups[g].blocks, &plan->ids[g]);
    return make_pools(target, plan);
}

Status Journal::make_pools(const Geometry &target, Relocation *plan) const {
    for (uint32_t g = 0; g < group_count_; ++g) {
        plan->pools[g] = make_pool(target.groups[g].blocks, scrubs_);
        if (plan->pools[g] == nullptr) return no_host_memory();
        if (target.groups[g].host_blocks == 0) continue;
        plan->host_pools[g] = make_pool(target.groups[g].host_blocks, false);
        if (plan->host_pools[g] == nullptr) return no_host_memory();
    }
    return Status{};
}

// Removes a cached block as if it had been evicted.
void Journal::drop_cached(const BlockDrop &drop) {
    BlockPool &pool = *pools_[drop.group];
    uint32_t node = pool[drop.block].node;
    if (full_[drop.group]) {
        forget(node);
        return;
    }
    tree_.blocks(node)[drop.group] = kNullBlock;
    pool.free_unpublished(drop.block);
    if (!any_full_) tree_.free_if_bare(node);
}

void Journal::relocate(Relocation *plan) {
    QUIRE_ASSERT(record_ == nullptr && timeline_->idle());
    for (const BlockDrop &drop : plan->drops) drop_cached(drop);
    for (uint32_t g = 0; g < group_count_; ++g) {
        BlockPool &old = *pools_[g];
        for (uint32_t b = 1; b < old.block_count(); ++b) {
            if (old[b].node != kNone) tree_.blocks(old[b].node)[g] = plan->ids[g][b];
        }
        plan->pools[g]->adopt(old, plan->ids[g].data());
        std::swap(pools_[g], plan->pools[g]);
        ahead_[g] = LookAhead{};
        if (host_pools_[g] != nullptr && plan->host_pools[g] != nullptr) {
            plan->host_pools[g]->adopt(*host_pools_[g], plan->host_ids[g].data());
        }
        std::swap(host_pools_[g], plan->host_pools[g]);
    }
}

void Journal::renumber_tables(uint32_t sequence, bool swapped, const Relocation &plan) {
    for (uint32_t g = 0; g < group_count_; ++g) {
        BlockTable &t = table(sequence, g);
        const Array<uint32_t> &numbers = swapped ? plan.host_ids[g] : plan.ids[g];
        for (uint32_t i = 0; i < t.length; ++i) {
            if (t.ids.data[i] != kNullBlock) t.ids.data[i] = numbers[t.ids.data[i]];
        }
        t.writable = kNone;
        ++t.epoch;
    }
}

}  // namespace quire
