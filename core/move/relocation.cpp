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
        --(is_on_host(block) ? left->host : left->device)[g];
        ++blocks_dropped;
    };
    drops.push(BlockDrop{group, named});
    if (!full_[group]) return leave(group, named);
    const uint32_t *blocks = journal.tree().blocks(journal.named(group, named).node);
    for (uint32_t g = 0; g < group_count_; ++g) {
        if (blocks[g] != kNullBlock) leave(g, blocks[g]);
    }
}

// Drops what was released longest ago, until the rest fits. The null block takes room too.
void Relocation::plan_drops(const Journal &journal, const Geometry &target, Left *left) {
    for (uint32_t g = 0; g < group_count_; ++g) {
        const BlockPool &pool = journal.pool(g);
        uint32_t block = pool.oldest_cached(kNoBarrier);
        for (; left->device[g] > target.groups[g].blocks - 1; block = pool.next_in_list(block)) {
            if (ids[g][block] != kNone) plan_drop(journal, g, block, left);
        }
        const BlockPool *host = journal.host_pool(g);
        if (host == nullptr) continue;
        uint32_t usable = target.groups[g].host_blocks != 0 ? target.groups[g].host_blocks - 1 : 0;
        block = host->oldest_cached(kNoBarrier);
        for (; left->host[g] > usable; block = host->next_in_list(block)) {
            if (host_ids[g][block] != kNone) plan_drop(journal, g, block | kOnHost, left);
        }
    }
}

Status Relocation::assign(const Journal &journal, const Geometry &target) {
    group_count_ = target.group_count;
    for (uint32_t g = 0; g < group_count_; ++g) full_[g] = target.groups[g].full;
    blocks_short = 0;
    auto lacks = [&](uint32_t held, uint32_t blocks) {
        uint32_t usable = blocks != 0 ? blocks - 1 : 0;
        if (held > usable && held - usable > blocks_short) blocks_short = held - usable;
    };
    uint64_t cached = 0;
    for (uint32_t g = 0; g < group_count_; ++g) {
        lacks(journal.pool(g).held_count(), target.groups[g].blocks);
        if (journal.host_pool(g) != nullptr)
            lacks(journal.host_pool(g)->held_count(), target.groups[g].host_blocks);
        cached += journal.pool(g).cached_count();
        if (journal.host_pool(g) != nullptr) cached += journal.host_pool(g)->cached_count();
    }
    if (blocks_short != 0) return Status{};
    if (!drops.create(cached)) return no_host_memory();
    drops.shrink(0);
    Left left;
    for (uint32_t g = 0; g < group_count_; ++g) {
        const BlockPool &pool = journal.pool(g), *host = journal.host_pool(g);
        left.device[g] = pool.held_count() + pool.cached_count();
        if (!number_as_they_are(pool, &ids[g])) return no_host_memory();
        if (host == nullptr) continue;
        left.host[g] = host->held_count() + host->cached_count();
        if (!number_as_they_are(*host, &host_ids[g])) return no_host_memory();
    }
    plan_drops(journal, target, &left);
    for (uint32_t g = 0; g < group_count_; ++g) {
        renumber(target.groups[g].blocks, &ids[g]);
        renumber(target.groups[g].host_blocks, &host_ids[g]);
    }
    return Status{};
}

Status Relocation::make_pools(const Journal &journal, const Geometry &target) {
    for (uint32_t g = 0; g < group_count_; ++g) {
        pools[g] = journal.make_pool(target.groups[g].blocks);
        if (pools[g] == nullptr) return no_host_memory();
        if (target.groups[g].host_blocks == 0) continue;
        host_pools[g] = journal.make_host_pool(target.groups[g].host_blocks);
        if (host_pools[g] == nullptr) return no_host_memory();
    }
    return Status{};
}

void Relocation::apply(Journal *journal) {
    for (const BlockDrop &drop : drops) journal->drop_cached(drop.group, drop.block);
    for (uint32_t g = 0; g < group_count_; ++g) {
        journal->replace_pool(g, &pools[g], ids[g].data());
        journal->replace_host_pool(g, &host_pools[g], host_ids[g].data());
    }
}

void Relocation::renumber_tables(Journal *journal, uint32_t sequence, bool swapped) const {
    for (uint32_t g = 0; g < group_count_; ++g) {
        journal->renumber_table(sequence, g, (swapped ? host_ids : ids)[g].data());
    }
}

}  // namespace quire
