// SPDX-License-Identifier: Apache-2.0
//
// The block tree: leases publish in it, and evictions, steps that fail and callers take blocks out.

#include "core/blocks/journal.hpp"

namespace quire {

namespace {

constexpr uint32_t kLineEntries = kCacheLine / sizeof(uint32_t);

}  // namespace

Status Journal::make_block_tree(BlockTree *tree, uint32_t block_count) {
    Scopes &scopes = tree_.scopes();
    return tree->create(block_count, sizes_[0].tokens(), scopes.seed(), &scopes);
}

// Nothing is unfinished, so the content depends on no step. What the lease holds more often than
// once, it still holds.
uint32_t Journal::insert_run(Sequence *s, uint32_t lease, const BlockRun &run) {
    QUIRE_ASSERT(step_ == nullptr && timeline_->idle());
    BlockPool &pool = *pools_[0];
    const LeaseIndex &index = lease_index(lease, 0);
    for (uint32_t i = 0; i < run.count; i += kLineEntries) {  // read and written further down
        __builtin_prefetch(block_tree_.tokens(run.blocks[i]), 1);
        index.prefetch(run.blocks[i]);
    }
    const uint32_t published = pool.publish_run(run.blocks, run.count, lease, sizes_[0].tokens());
    if (published != run.count || run.count == 0) return published;
    block_tree_.insert(run.root, run.before, run.tokens, run.blocks, run.count);
    const bool covers = mixed_ && can_cover_;
    const bool is_last = remove_run(s, lease, 0, run.blocks, run.count);
    for (uint32_t i = 0; i < run.count && (covers || !is_last); ++i) {
        const uint32_t block = run.blocks[i];
        Block &b = pool[block];
        if (covers && pool.origin(block).tenant == kMixedTenant && !b.is_covered)
            pool.cover(block, Cover{});
        if (is_last || lease_index(lease, 0).find(table(lease, 0), block) == kNone) continue;
        pool.claim(block);
        b.owner = lease;
    }
    return published;
}

void Journal::forget_block(uint32_t block) {
    BlockPool &pool = *pools_[0];
    block_tree_.remove(block);
    if (pool[block].state == BlockState::cached) {
        pool.free_unpublished(block);
    } else {
        pool[block].node = kNone;
    }
}

uint32_t Journal::evict_block(uint64_t barrier) {
    const uint32_t block = pools_[0]->oldest_cached(barrier);
    if (block == kNone) return kNone;
    const uint32_t next = pools_[0]->next_in_list(block);
    if (next != kNone) pools_[0]->prefetch(next);
    ++evictions_;
    forget_block(block);
    return block;
}

void Journal::make_unused(uint64_t barrier) {
    if (pools_[0]->unused(barrier) != 0) return;
    const uint32_t block = evict_block(barrier);
    QUIRE_ASSERT(block != kNone);
}

void Journal::replace_block_tree(BlockTree *tree, const uint32_t *ids) {
    QUIRE_ASSERT(step_ == nullptr && timeline_->idle());
    BlockPool &pool = *pools_[0];
    tree->take_over(&block_tree_, ids);
    block_tree_.swap(tree);
    for (uint32_t b = 1; b < pool.block_count(); ++b) {
        if (block_tree_.names(b)) pool[b].node = b;
    }
}

}  // namespace quire
