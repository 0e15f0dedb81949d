// SPDX-License-Identifier: Apache-2.0
//
// Pools: how they are made, and how others take their place under the same tables and tree.

#include "core/blocks/journal.hpp"

namespace quire {

// A node has a block in every full-attention group, and the open step keeps the nodes that it
// evicts until its commit. Without such a group nodes outlive their blocks while they have
// children, so there is room for chains four times as long as the pool holds, and for everything
// published between two commits (node_reserve).
uint32_t Journal::node_capacity(const Geometry &geometry) const {
    uint64_t fewest_full = UINT64_MAX, all_blocks = 0;
    for (uint32_t g = 0; g < geometry.group_count; ++g) {
        const GroupGeometry &group = geometry.groups[g];
        uint64_t blocks = uint64_t{group.blocks} + (keeps_on_host_ ? group.host_blocks : 0);
        if (g < geometry.pool_count()) all_blocks += blocks;
        const uint64_t nodes = ceil_div(blocks, group.per_span);
        if (group.full && nodes < fewest_full) fewest_full = nodes;
    }
    uint64_t nodes = geometry.any_full ? 2 * fewest_full : 5 * all_blocks;
    return static_cast<uint32_t>(nodes < kNone ? nodes : kNone - 1);
}

void Journal::drop_cached(uint32_t group, uint32_t named) {
    uint32_t node = this->named(group, named).node;
    ++drops_;
    if (full_[group]) {
        forget(node);
        return;
    }
    tree_.change_blocks(node)[tree_.entry_of(node, group, named)] = kNullBlock;
    release_named(group, named);
    if (!any_full_) tree_.free_if_bare(node);
}

uint32_t Journal::evict_oldest(uint32_t group, int32_t *ids, uint32_t room) {
    QUIRE_ASSERT(step_ == nullptr);
    const BlockPool &pool = *pools_[group];
    const uint32_t block = pool.oldest_cached(timeline_->oldest());
    if (block == kNone || room == 0) return 0;
    const uint32_t of = pool[block].group, node = pool[block].node;  // the group that loses it
    const bool is_whole = full_[of];
    // A node that goes whole takes the other blocks of the group along.
    auto each_other = [&](auto body) {
        for (uint32_t e = tree_.first_entry(of); is_whole && e < tree_.first_entry(of + 1); ++e) {
            const uint32_t other = tree_.blocks(node)[e];
            const bool leaves = other != kNullBlock && other != block && !is_on_host(other) &&
                                pool[other].state == BlockState::cached;
            if (leaves) body(other);
        }
    };
    uint32_t count = 1;
    each_other([&](uint32_t) { ++count; });
    if (count > room) return 0;
    *ids = static_cast<int32_t>(block);
    each_other([&](uint32_t other) { *++ids = static_cast<int32_t>(other); });
    ++evictions_;
    look_ahead(number_of_pool(group), block);
    note_losses(node, is_whole ? 0 : of, is_whole ? group_count_ : of + 1);
    drop_cached(of, block);
    return count;
}

// Groups that share a pool name it under their own numbers.
void Journal::share_pool() {
    for (uint32_t g = pool_count_; g < group_count_; ++g) {
        pools_[g] = pools_[0];
        host_pools_[g] = host_pools_[0];
    }
}

// Makes nodes name the blocks of a pool by their new numbers. level: kOnHost or 0.
void Journal::renumber_nodes(uint32_t number, uint32_t level, const uint32_t *ids) {
    for (uint32_t node = 0; node < tree_.used(); ++node) {
        if (!tree_.in_use(node)) continue;
        for (uint32_t g = 0; g < group_count_; ++g) {
            if (number_of_pool(g) != number) continue;
            for (uint32_t e = tree_.first_entry(g); e < tree_.first_entry(g + 1); ++e) {
                const uint32_t named = tree_.blocks(node)[e];
                if (named == kNullBlock || (named & kOnHost) != level) continue;
                tree_.change_blocks(node)[e] = ids[number_of(named)] | level;
            }
        }
    }
}

void Journal::replace_pool(uint32_t number, BlockPool **pool, const uint32_t *ids) {
    QUIRE_ASSERT(step_ == nullptr && timeline_->idle());
    BlockPool &old = *pools_[number];
    renumber_nodes(number, 0, ids);
    can_cover_ = false;  // no step is unfinished, so that no cover in the new pool can be lost
    (*pool)->take_over(old, ids);
    std::swap(pools_[number], *pool);
    ahead_[number] = LookAhead{};
    share_pool();
}

void Journal::replace_host_pool(uint32_t number, BlockPool **pool, const uint32_t *ids) {
    if (host_pools_[number] != nullptr && *pool != nullptr) {
        renumber_nodes(number, kOnHost, ids);
        (*pool)->take_over(*host_pools_[number], ids);
    }
    std::swap(host_pools_[number], *pool);
    share_pool();
}

void Journal::renumber_table(uint32_t sequence, uint32_t group, const uint32_t *ids) {
    BlockTable &t = table(sequence, group);
    for (uint32_t i = 0; i < t.length; ++i) {
        if (t.ids.data[i] != kNullBlock) t.ids.data[i] = ids[t.ids.data[i]];
    }
    t.writable = kNone;
    ++t.epoch;
    if (lease_indexes_.size() != 0)
        lease_index(sequence, group).enter_all(t, pools_[group]->block_count());
}

}  // namespace quire
