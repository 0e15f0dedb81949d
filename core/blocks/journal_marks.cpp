// SPDX-License-Identifier: Apache-2.0
//
// Marks on all blocks: which are suspect since a step failed, and which run of copies they were in.

#include "core/blocks/journal.hpp"

namespace quire {

bool Journal::reserve_covers() {
    for (uint32_t p = 0; p < pool_count_; ++p) {
        for (BlockPool *pool : {pools_[p], host_pools_[p]}) {
            if (pool != nullptr && !pool->reserve_covers()) return false;
        }
    }
    return true;
}

void Journal::mark_suspects_mixed() {
    can_cover_ = reserve_covers();
    for (uint32_t p = 0; p < pool_count_; ++p) {
        for (BlockPool *pool : {pools_[p], host_pools_[p]}) {
            for (uint32_t b = 1; pool != nullptr && b < pool->block_count(); ++b) {
                if (!(*pool)[b].is_suspect) continue;
                mixed_ = true;
                pool->mark_mixed(b, can_cover_);
            }
        }
    }
}

bool Journal::uncover(uint64_t step) {
    if (!mixed_) return false;
    bool any = false;
    for (uint32_t p = 0; p < pool_count_; ++p) {
        for (BlockPool *pool : {pools_[p], host_pools_[p]}) {
            for (uint32_t i = 1; pool != nullptr && i < pool->block_count(); ++i) {
                Block &b = (*pool)[i];
                if (!b.is_covered || pool->origin(i).tenant != kMixedTenant) continue;
                if (!depends_on(pool->cover_of(i), step)) continue;
                b.is_covered = false;
                b.is_suspect = any = true;
            }
        }
    }
    return any;
}

void Journal::clear_suspects() {
    for (uint32_t p = 0; p < pool_count_; ++p) {
        for (BlockPool *pool : {pools_[p], host_pools_[p]}) {
            for (uint32_t b = 1; pool != nullptr && b < pool->block_count(); ++b)
                (*pool)[b].is_suspect = false;
        }
    }
}

void Journal::forget_runs() {
    for (uint32_t p = 0; p < pool_count_; ++p) {
        for (BlockPool *pool : {pools_[p], host_pools_[p]}) {
            if (pool == nullptr) continue;
            for (uint32_t b = 0; b < pool->block_count(); ++b) {
                pool->origin(b).copied_to = pool->origin(b).copied_from = 0;
            }
        }
    }
}

}  // namespace quire
