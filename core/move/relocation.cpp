// SPDX-License-Identifier: Apache-2.0

#include "core/move/relocation.hpp"

namespace quire {

namespace {

// Gives blocks whose numbers the new pool does not have the lowest free ones. REQUIRES: they fit.
void renumber(uint32_t block_count, Array<uint32_t> *ids) {
    uint32_t free = 1;
    for (uint64_t block = block_count; block < ids->size(); ++block) {
        if ((*ids)[block] == kNone) continue;
        while ((*ids)[free] != kNone) ++free;
        QUIRE_ASSERT(free < block_count);
        (*ids)[block] = free++;
    }
}

// Gives a pool's held and cached blocks the numbers that they have. False: no memory.
bool number_as_they_are(const BlockPool &pool, Array<uint32_t> *ids) {
    if (!ids->create(pool.block_count())) return false;
    for (uint32_t b = 0; b < pool.block_count(); ++b) {
        bool stays = pool[b].state == BlockState::held || pool[b].state == BlockState::cached;
        (*ids)[b] = stays ? b : kNone;
    }
    return true;
}

}  // namespace

// Drops a cached block; in a full-attention group also its node's cached blocks in all groups.
void Relocation::plan_drop(const Journal &journal, uint32_t group, uint32_t named, Left *left) {
    auto leave = [&](uint32_t g, uint32_t block) {
        if (id_of(g, block) == kNone || journal.named(g, block).state != BlockState::cached) return;
        id_of(g, block) = kNone;
        --(is_on_host(block) ? left->host : left->device)[pool_of(g)];
        ++blocks_dropped;
    };
    drops.push(BlockDrop{group, named});
    if (!full_[group] || journal.leases_only()) return leave(group, named);
    const PrefixTree &tree = journal.tree();
    const uint32_t *blocks = tree.blocks(journal.named(group, named).node);
    for (uint32_t g = 0; g < group_count_; ++g) {
        for (uint32_t e = tree.first_entry(g); e < tree.first_entry(g + 1); ++e) {
            if (blocks[e] != kNullBlock) leave(g, blocks[e]);
        }
    }
}

// Drops what was released longest ago, until the rest fits. The null block takes room too.
void Relocation::plan_drops(const Journal &journal, const Geometry &target, Left *left) {
    for (uint32_t p = 0; p < pool_count_; ++p) {
        const BlockPool &pool = journal.pool(p);
        uint32_t block = pool.oldest_cached(kNoBarrier);
        for (; left->device[p] > target.groups[p].blocks - 1; block = pool.next_in_list(block)) {
            if (ids[p][block] != kNone) plan_drop(journal, pool[block].group, block, left);
        }
        const BlockPool *host = journal.host_pool(p);
        if (host == nullptr) continue;
        uint32_t usable = target.groups[p].host_blocks != 0 ? target.groups[p].host_blocks - 1 : 0;
        block = host->oldest_cached(kNoBarrier);
        for (; left->host[p] > usable; block = host->next_in_list(block)) {
            if (host_ids[p][block] != kNone)
                plan_drop(journal, (*host)[block].group, block | kOnHost, left);
        }
    }
}

Status Relocation::assign(const Journal &journal, const Geometry &target) {
    group_count_ = target.group_count;
    pool_count_ = target.pool_count();
    for (uint32_t g = 0; g < group_count_; ++g) full_[g] = target.groups[g].full;
    blocks_short = 0;
    auto lacks = [&](uint32_t held, uint32_t blocks) {
        uint32_t usable = blocks != 0 ? blocks - 1 : 0;
        if (held > usable && held - usable > blocks_short) blocks_short = held - usable;
    };
    uint64_t cached = 0;
    for (uint32_t p = 0; p < pool_count_; ++p) {
        lacks(journal.pool(p).held_count(), target.groups[p].blocks);
        if (journal.host_pool(p) != nullptr)
            lacks(journal.host_pool(p)->held_count(), target.groups[p].host_blocks);
        cached += journal.pool(p).cached_count();
        if (journal.host_pool(p) != nullptr) cached += journal.host_pool(p)->cached_count();
    }
    if (blocks_short != 0) return Status{};
    if (!drops.create(cached)) return no_host_memory();
    drops.shrink(0);
    Left left;
    for (uint32_t p = 0; p < pool_count_; ++p) {
        const BlockPool &pool = journal.pool(p), *host = journal.host_pool(p);
        left.device[p] = pool.held_count() + pool.cached_count();
        if (!number_as_they_are(pool, &ids[p])) return no_host_memory();
        if (host == nullptr) continue;
        left.host[p] = host->held_count() + host->cached_count();
        if (!number_as_they_are(*host, &host_ids[p])) return no_host_memory();
    }
    plan_drops(journal, target, &left);
    for (uint32_t p = 0; p < pool_count_; ++p) {
        renumber(target.groups[p].blocks, &ids[p]);
        renumber(target.groups[p].host_blocks, &host_ids[p]);
    }
    return Status{};
}

Status Relocation::make_pools(Journal *journal, const Geometry &target) {
    for (uint32_t p = 0; p < pool_count_; ++p) {
        pools[p] = journal->make_pool(target.groups[p].blocks);
        if (pools[p] == nullptr) return no_host_memory();
        if (target.groups[p].host_blocks == 0) continue;
        host_pools[p] = journal->make_host_pool(target.groups[p].host_blocks);
        if (host_pools[p] == nullptr) return no_host_memory();
    }
    if (journal->leases_only())
        QUIRE_TRY(journal->make_block_tree(&block_tree, target.groups[0].blocks));
    return Status{};
}

void Relocation::apply(Journal *journal) {
    for (const BlockDrop &drop : drops) {
        journal->leases_only() ? journal->forget_block(drop.block)
                               : journal->drop_cached(drop.group, drop.block);
    }
    for (uint32_t p = 0; p < pool_count_; ++p) {
        journal->replace_pool(p, &pools[p], ids[p].data());
        journal->replace_host_pool(p, &host_pools[p], host_ids[p].data());
    }
    if (journal->leases_only()) journal->replace_block_tree(&block_tree, ids[0].data());
}

void Relocation::renumber_tables(Journal *journal, uint32_t sequence, bool swapped) const {
    for (uint32_t g = 0; g < group_count_; ++g) {
        journal->renumber_table(sequence, g, (swapped ? host_ids : ids)[pool_of(g)].data());
    }
}

}  // namespace quire
