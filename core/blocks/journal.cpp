// SPDX-License-Identifier: Apache-2.0

#include "core/blocks/journal.hpp"

namespace quire {

Journal::~Journal() {
    for (BlockTable &table : tables_) buffers_.give_back(&table.ids);
    for (LeaseIndex &index : lease_indexes_) index.give_back(&buffers_);
    for (uint32_t p = 0; p < pool_count_; ++p) {
        BlockPool::destroy(host_, &pools_[p]);
        BlockPool::destroy(host_, &host_pools_[p]);
    }
}

Status Journal::create(const Geometry &geometry, const Options &options) {
    scrubs_ = options.scrubs;
    keeps_on_host_ = options.keeps_on_host;
    group_count_ = geometry.group_count;
    pool_count_ = geometry.pool_count();
    any_full_ = geometry.any_full;
    for (uint32_t g = 0; g < group_count_; ++g) {
        const GroupGeometry &group = geometry.groups[g];
        full_[g] = group.full;
        cross_[g] = group.cross;
        sizes_[g] = group.size;
        if (g >= pool_count_) continue;
        pools_[g] = make_pool(group.blocks);
        if (pools_[g] == nullptr) return no_host_memory();
        if (group.host_blocks == 0) continue;
        host_pools_[g] = make_host_pool(group.host_blocks);
        if (host_pools_[g] == nullptr) return no_host_memory();
    }
    share_pool();
    const bool has_nodes = options.has_tree && !options.leases_only;
    uint32_t nodes = has_nodes ? node_capacity(geometry) : 1;
    QUIRE_TRY(tree_.create(geometry, nodes, options.seed));
    if (options.leases_only) QUIRE_TRY(make_block_tree(&block_tree_, pools_[0]->block_count()));
    if (!tables_.create(uint64_t{options.max_sequences} * group_count_)) return no_host_memory();
    for (BlockTable &table : tables_) table = BlockTable{};
    return Status{};
}

// Eviction walks the list of cached blocks, and each record, node and bucket that it touches is a
// cache miss. So a cursor runs ahead along the list's links and prefetches them: the record, which
// names its node, then the node, which names its bucket. If the list has changed under the cursor,
// some prefetches were in vain, and the cursor starts again.
void Journal::look_ahead(uint32_t pool_number, uint32_t block) {
    constexpr uint32_t node_distance = kLookAhead * 5 / 8, bucket_distance = kLookAhead / 4;
    BlockPool &pool = *pools_[pool_number];
    LookAhead &ring = ahead_[pool_number];
    auto next_of = [&](uint32_t b) { return b != kNone ? pool.next_in_list(b) : kNone; };
    auto node_of = [&](uint32_t b) { return b != kNone ? pool[b].node : kNone; };
    if (ring.ahead(0) != block) {
        ring.at = 0;
        ring.ahead(0) = block;
        for (uint32_t i = 1; i < kLookAhead; ++i) {
            ring.ahead(i) = next_of(ring.ahead(i - 1));
            if (ring.ahead(i) != kNone) pool.prefetch_to_take(ring.ahead(i));
        }
    }
    uint32_t newest = next_of(ring.ahead(kLookAhead - 1));
    ring.ahead(0) = newest;
    ++ring.at;
    if (newest != kNone) pool.prefetch_to_take(newest);
    uint32_t node = node_of(ring.ahead(node_distance));
    if (node != kNone) tree_.prefetch_node(node);
    node = node_of(ring.ahead(bucket_distance));
    if (node != kNone) tree_.prefetch_bucket_of(node);
}

// Makes the taker the block's writer, and zeroes the block if it would show another's content.
template <typename Taking>
void Journal::hand_over(Taking *edit, BlockPool *pool, uint32_t group, const Taker &taker) {
    Block &b = (*pool)[edit->block];
    uint64_t &tenant = pool->origin(edit->block).tenant;
    edit->owner = b.owner;
    edit->frozen_slots = b.frozen_slots;
    edit->tenant = tenant;
    b.owner = taker.sequence;
    b.frozen_slots = 0;
    b.group = static_cast<uint8_t>(group) & 0xF;
    if (tenant == taker.tenant && !scrubs_) [[likely]]
        return;
    if (only_tenant_ == kFreshTenant) only_tenant_ = taker.tenant;
    if (only_tenant_ != taker.tenant) mixed_ = has_tenants_ = true;
    bool shows = tenant != kFreshTenant && !taker.overwrites;
    tenant = taker.tenant;
    if (!shows) return;
    auto id = static_cast<int32_t>(edit->block);
    step_->copies.push(quire_block_copy{QUIRE_COPY_ZERO, group, id, id, 0, 0});
}

// promotes: what is taken gets content of the host tier.
uint32_t Journal::take(uint32_t group, uint64_t barrier, const Taker &taker, bool promotes) {
    BlockPool &pool = *pools_[group];
    QUIRE_ASSERT(step_ != nullptr);  // settle() frees the nodes of what is evicted
    if (pool.free_count() == 0) return evict(group, barrier, taker, promotes);
    const bool is_read = pool.has_read();
    const uint32_t block = pool.take_free(barrier);
    if (block == kNone) return evict(group, barrier, taker, promotes);
    auto &edit = new_edit<TakeFree>();
    edit.group = static_cast<uint8_t>(group);
    edit.block = block;
    edit.is_read = is_read;
    edit.old_group = pool[block].group;
    hand_over(&edit, &pool, group, taker);
    return block;
}

uint32_t Journal::evict(uint32_t group, uint64_t barrier, const Taker &taker, bool promotes) {
    BlockPool &pool = *pools_[group];
    const uint32_t block = pool.oldest_cached(barrier);
    QUIRE_ASSERT(block != kNone);
    Block &b = pool[block];
    const uint32_t of = b.group;  // the group that loses it
    const uint32_t node = b.node;
    look_ahead(number_of_pool(group), block);
    const uint32_t host = keeps_on_host_ ? host_room(group, barrier, promotes) : kNone;
    auto &edit = new_edit<Evict>();
    edit.ready = pool.origin(block).ready;
    edit.depends = pool.origin(block).depends;
    edit.generation = tree_.generation(node);
    edit.block = block;
    edit.node = node;
    edit.hint = pool.next_in_list(block);
    edit.entry = tree_.entry_of(node, of, block);
    edit.group = static_cast<uint8_t>(of);
    if (host != kNone) {
        note(demote(group, block, host));  // before anything else may fill the block
    } else {
        edit.unlinked = full_[of] && tree_.linked(node);
        if (edit.unlinked) tree_.unlink(node);
        tree_.change_blocks(node)[edit.entry] = kNullBlock;
        edit.is_lost = true;
        edit.is_loss = would_lose(node, of);
        ++evictions_;
    }
    b.node = kNone;
    hand_over(&edit, &pool, group, taker);
    pool.claim(block);
    return block;
}

uint64_t Journal::unscrubbed_count() const {
    uint64_t count = 0;
    for (uint32_t p = 0; p < pool_count_; ++p) count += pools_[p]->unscrubbed_count();
    return count;
}

void Journal::scrub(StepEdits *step) {
    for (uint32_t p = 0; p < pool_count_; ++p) {
        pools_[p]->scrub(step->barrier, step->number, [&](uint32_t block) {
            auto id = static_cast<int32_t>(block);
            const uint32_t group = (*pools_[p])[block].group;
            step->copies.push(quire_block_copy{QUIRE_COPY_ZERO, group, id, id, 0, 0});
        });
    }
}

void Journal::add_ref(uint32_t group, uint32_t block) {
    BlockPool &pool = *pools_[group];
    bool was_cached = pool[block].state == BlockState::cached;
    uint32_t hint = was_cached ? pool.next_in_list(block) : 0;
    note(AddRef{block, hint, static_cast<uint8_t>(group), was_cached});
    pool.add_ref(block);
}

void Journal::drop_ref(uint32_t group, uint32_t block, uint64_t touch) {
    QUIRE_ASSERT(step_ == nullptr);
    pools_[group]->drop_ref(block, touch);
}

template <typename Drop>
void Journal::drop_from(BlockPool *pool, Drop *edit, const Letting &how) {
    QUIRE_ASSERT(step_ != nullptr);
    const Block &b = (*pool)[edit->block];
    edit->stamp = b.stamp;
    edit->old_touch = b.touch;
    edit->touch = how.is_read ? step_->number : how.last_step;
    bool waits_here = how.waits_here && edit->touch > b.touch;
    pool->drop_ref(edit->block, how.runs_elsewhere ? how.last_step : 0,
                   waits_here ? step_->barrier : 0);
    edit->new_stamp = b.stamp;
}

void Journal::let_go(uint32_t group, uint32_t block, uint32_t sequence, const Letting &how) {
    DropRef edit{};
    edit.group = static_cast<uint8_t>(group);
    edit.block = block;
    // Disowned at once: the same item may take the block again, and then owns it.
    edit.owner = (*pools_[group])[block].owner == sequence ? sequence : kNone;
    disown(group, block, sequence);
    drop_from(pools_[group], &edit, how);
    note(edit);
}

void Journal::let_go_host(uint32_t group, uint32_t block) {
    DropHost edit{};
    edit.group = static_cast<uint8_t>(group);
    edit.block = block;
    drop_from(host_pools_[group], &edit, Letting{0, true, false, true});
    note(edit);
}

void Journal::own(uint32_t group, uint32_t block, uint32_t sequence, uint32_t frozen_slots) {
    Block &b = (*pools_[group])[block];
    note(ChangeOwner{block, b.owner, b.frozen_slots, static_cast<uint8_t>(group)});
    b.owner = sequence;
    b.frozen_slots = static_cast<uint16_t>(frozen_slots);
}

void Journal::set_entry(Sequence *s, uint32_t sequence, uint32_t group, uint32_t index,
                        uint32_t block) {
    BlockTable &t = table(sequence, group);
    uint32_t before = t.ids.data[index];
    note(TableEntry{sequence, index, before, static_cast<uint8_t>(group)});
    t.ids.data[index] = block;
    ++t.epoch;
    s->blocks_held += (block != kNullBlock ? 1u : 0u);
    s->blocks_held -= (before != kNullBlock ? 1u : 0u);
}

void Journal::note_shape(const Sequence &s, uint32_t sequence, uint32_t group) {
    const BlockTable &t = table(sequence, group);
    note(TableShape{sequence, t.length, t.null_front, s.blocks_held, static_cast<uint8_t>(group)});
}

void Journal::copy(uint32_t kind, uint32_t group, uint32_t src, uint32_t dst) {
    QUIRE_ASSERT(step_ != nullptr);
    step_->copies.push(
        quire_block_copy{kind, group, static_cast<int32_t>(src), static_cast<int32_t>(dst), 0, 0});
    // Unwritten slots are copied too.
    BlockPool &sources = kind == QUIRE_COPY_SWAP_IN ? *host_pools_[group] : *pools_[group];
    BlockPool &targets = kind == QUIRE_COPY_SWAP_OUT ? *host_pools_[group] : *pools_[group];
    if (sources.origin(src).tenant == kMixedTenant) {
        targets.origin(dst).tenant = kMixedTenant;
        targets[dst].is_covered = sources[src].is_covered;
        if (can_cover_ && sources[src].is_covered) targets.cover(dst, sources.cover_of(src));
    } else if (kind == QUIRE_COPY_SWAP_OUT) {
        targets.origin(dst).tenant = kFreshTenant;
    }
}

void Journal::move_token(uint32_t sequence, uint32_t group, uint32_t src, uint32_t dst) {
    const uint32_t *ids = table(sequence, group).ids.data;
    const BlockSize size = sizes_[group];
    uint32_t from = ids[size.block_of(src)], to = ids[size.block_of(dst)];
    QUIRE_ASSERT(step_ != nullptr && (*pools_[group])[to].owner == sequence);
    step_->copies.push(quire_block_copy{QUIRE_COPY_TOKEN, group, static_cast<int32_t>(from),
                                        static_cast<int32_t>(to), size.slot_of(src),
                                        size.slot_of(dst)});
}

uint32_t Journal::publish(uint32_t root, const TreeCursor &at, uint64_t hash,
                          const uint32_t *tokens, const Extra &extra) {
    uint32_t node = tree_.insert(root, at, hash, tokens, extra);
    if (node != kNone) note(PublishNode{node});
    return node;
}

// Parks the block that the entry names if no table does: one that is in use takes its place. False:
// a table names it.
bool Journal::replace(uint32_t group, uint32_t block, uint32_t node, uint32_t entry) {
    const uint32_t older = tree_.blocks(node)[entry];
    BlockPool &olders = pool_of(group, older);
    if (olders[number_of(older)].state != BlockState::cached) return false;
    note(Replace{named_block(*pools_[group], block), node, entry, older, block,
                 olders.next_in_list(number_of(older)), static_cast<uint8_t>(group)});
    olders.park(number_of(older));
    if (step_ == nullptr) release_named(group, older);
    return true;
}

// The node is about to be forgotten, or in one group, with its blocks of groups [begin, end).
void Journal::note_losses(uint32_t node, uint32_t begin, uint32_t end) {
    if (watch_ == nullptr) [[likely]]
        return;
    for (uint32_t g = begin; g < end; ++g) {
        if (tree_.blocks(node)[tree_.first_entry(g)] != kNullBlock && watch_->would_lose(node, g))
            watch_->note_loss();
    }
}

// Takes a node's blocks from it; unreferenced ones become free.
void Journal::detach(uint32_t node) {
    for (uint32_t g = 0; g < group_count_; ++g) {
        for (uint32_t e = tree_.first_entry(g); e < tree_.first_entry(g + 1); ++e) {
            uint32_t block = tree_.blocks(node)[e];
            if (block == kNullBlock) continue;
            tree_.change_blocks(node)[e] = kNullBlock;
            BlockPool &pool = pool_of(g, block);
            if (pool[number_of(block)].state == BlockState::cached) {
                release_named(g, block);
            } else {
                pool[number_of(block)].node = kNone;
            }
        }
    }
}

void Journal::withdraw(uint32_t group, uint32_t block) {
    BlockPool &pool = *pools_[group];
    const uint32_t node = pool[block].node;
    tree_.change_blocks(node)[tree_.entry_of(node, group, block)] = kNullBlock;
    if (pool[block].state == BlockState::cached) {
        release_named(group, block);
    } else {
        pool[block].node = kNone;
    }
    if (!any_full_) tree_.free_if_bare(node);
}

// Frees a cached or parked block. One that the open step demoted stays held until the step's edit
// of it is undone or settled.
void Journal::release_named(uint32_t group, uint32_t named) {
    BlockPool &pool = pool_of(group, named);
    uint32_t block = number_of(named);
    pool[block].is_demoted ? pool.hold_unpublished(block) : pool.free_unpublished(block);
}

uint32_t Journal::forget(uint32_t node) {
    detach(node);
    if (tree_.linked(node)) tree_.unlink(node);
    uint32_t parent = tree_.parent(node);
    tree_.free_node(node);
    return any_full_ ? kNone : tree_.free_if_bare(parent);
}

void Journal::retire(uint64_t old_oldest) {
    for (uint32_t p = 0; p < pool_count_; ++p) {
        pools_[p]->retire(old_oldest);
        if (host_pools_[p] != nullptr) host_pools_[p]->retire(old_oldest);
    }
}

Status Journal::check() const {
    for (uint32_t p = 0; p < pool_count_; ++p) {
        QUIRE_TRY(pools_[p]->check());
        if (host_pools_[p] != nullptr) QUIRE_TRY(host_pools_[p]->check());
    }
    if (leases_only()) QUIRE_TRY(block_tree_.check(*pools_[0]));
    return tree_.check(pools_, host_pools_, leases_only() ? 0 : pool_count_);
}

}  // namespace quire
