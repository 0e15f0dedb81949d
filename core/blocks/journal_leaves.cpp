// SPDX-License-Identifier: Apache-2.0
//
// Which nodes give way in caches without full-attention groups, where a chain of nodes lives as
// long as its last node names a block.

#include "core/blocks/journal.hpp"

namespace quire {

uint64_t Journal::node_reserve() const {
    uint64_t blocks = 0;
    for (uint32_t p = 0; p < pool_count_; ++p) blocks += pools_[p]->block_count();
    return blocks;
}

bool Journal::node_depends(uint32_t node, uint64_t step) const {
    if (leases_only()) return depends_on(pools_[0]->origin(node), step);
    for (uint32_t g = 0; g < group_count_; ++g) {
        for (uint32_t e = tree_.first_entry(g); e < tree_.first_entry(g + 1); ++e) {
            uint32_t block = tree_.blocks(node)[e];
            if (block != kNullBlock && depends_on(origin(g, block), step)) return true;
        }
    }
    return false;
}

bool Journal::is_unused_leaf(uint32_t node) const {
    return !tree_.has_children(node) && is_unused(node);
}

bool Journal::is_unused(uint32_t node) const {
    for (uint32_t g = 0; g < group_count_; ++g) {
        for (uint32_t e = tree_.first_entry(g); e < tree_.first_entry(g + 1); ++e) {
            uint32_t block = tree_.blocks(node)[e];
            if (block != kNullBlock && named(g, block).state != BlockState::cached) return false;
        }
    }
    return true;
}

// Walks the lists from their oldest blocks. A passing window gives up a chain's first blocks first,
// so they precede the leaf's block on the list: from a leaf the walk continues upwards, to nodes
// whose blocks it has already passed. So one walk of each list almost always finds all of them.
// Without full attention all groups have blocks of one size (compute_span), so a node has one entry
// per group.
void Journal::forget_leaves(uint64_t wanted) {
    QUIRE_ASSERT(step_ == nullptr && !any_full_);
    for (bool found = true; found;) {
        found = false;
        for (uint32_t p = 0; p < pool_count_; ++p) {
            const BlockPool &pool = *pools_[p];
            uint32_t block = pool.oldest_cached(kNoBarrier);
            while (block != kNone && tree_.free_count() < wanted) {
                uint32_t next = pool.next_in_list(block), node = pool[block].node;
                uint32_t group = pool[block].group;
                uint64_t stamp = pool[block].stamp;
                while (node != kNone && is_unused_leaf(node)) {
                    uint32_t named = tree_.blocks(node)[tree_.first_entry(group)];
                    if (named == kNullBlock || pool[named].stamp > stamp) break;
                    note_losses(node, 0, group_count_);
                    node = forget(node);
                    found = true;
                }
                block = next;
            }
        }
        found = found && tree_.free_count() < wanted;
    }
}

}  // namespace quire
