// SPDX-License-Identifier: Apache-2.0

#include "core/blocks/journal.hpp"

#include <new>

namespace quire {

namespace {

constexpr uint32_t kSettleAhead = 16;  // edits between a prefetch of a node and its use

}  // namespace

Journal::~Journal() {
    for (BlockTable &table : tables_) buffers_.give_back(&table.ids);
    auto destroy = [&](BlockPool *pool) {
        if (pool == nullptr) return;
        pool->~BlockPool();
        host_->release(host_->user, pool, sizeof(BlockPool), kCacheLine);
    };
    for (BlockPool *pool : pools_) destroy(pool);
    for (BlockPool *pool : host_pools_) destroy(pool);
}

BlockPool *Journal::make_pool(uint32_t block_count, bool scrubs) const {
    void *memory = host_->allocate(host_->user, sizeof(BlockPool), kCacheLine);
    if (memory == nullptr) return nullptr;
    auto *pool = new (memory) BlockPool(host_, timeline_);
    if (pool->create(block_count, scrubs)) return pool;
    pool->~BlockPool();
    host_->release(host_->user, memory, sizeof(BlockPool), kCacheLine);
    return nullptr;
}

Status Journal::create(const Geometry &geometry, const Options &options) {
    scrubs_ = options.scrubs;
    group_count_ = geometry.group_count;
    block_tokens_ = static_cast<uint16_t>(geometry.block_tokens);
    any_full_ = geometry.any_full;
    for (uint32_t g = 0; g < group_count_; ++g) {
        const GroupGeometry &group = geometry.groups[g];
        full_[g] = group.full;
        cross_[g] = group.cross;
        pools_[g] = make_pool(group.blocks, scrubs_);
        if (pools_[g] == nullptr) return no_host_memory();
        if (group.host_blocks == 0) continue;
        host_pools_[g] = make_pool(group.host_blocks, false);
        if (host_pools_[g] == nullptr) return no_host_memory();
    }
    uint32_t nodes = options.has_tree ? node_capacity(geometry) : 1;
    QUIRE_TRY(tree_.create(geometry, nodes, options.seed));
    if (!tables_.create(uint64_t{options.max_sequences} * group_count_)) return no_host_memory();
    for (BlockTable &table : tables_) table = BlockTable{};
    return Status{};
}

Edit *Journal::log(EditKind kind, uint32_t group) {
    if (record_ == nullptr) return &unlogged_;
    record_->edits.push(Edit{});
    Edit *edit = record_->edits.end() - 1;
    edit->kind = kind;
    edit->group = static_cast<uint8_t>(group);
    return edit;
}

// Eviction walks the list of cached blocks, and each record, node and bucket that it touches is a
// cache miss. So a cursor runs ahead along the list's links and prefetches them: the record, which
// names its node, then the node, which names its bucket. If the list has changed under the cursor,
// some prefetches were in vain, and the cursor starts again.
void Journal::look_ahead(uint32_t group, uint32_t block) {
    constexpr uint32_t node_distance = kLookAhead * 5 / 8, bucket_distance = kLookAhead / 4;
    BlockPool &pool = *pools_[group];
    LookAhead &ring = ahead_[group];
    auto next_of = [&](uint32_t b) { return b != kNone ? pool.next_in_list(b) : kNone; };
    auto node_of = [&](uint32_t b) { return b != kNone ? pool[b].node : kNone; };
    if (ring.ahead(0) != block) {
        ring.at = 0;
        ring.ahead(0) = block;
        for (uint32_t i = 1; i < kLookAhead; ++i) {
            ring.ahead(i) = next_of(ring.ahead(i - 1));
            if (ring.ahead(i) != kNone) pool.prefetch(ring.ahead(i));
        }
    }
    uint32_t newest = next_of(ring.ahead(kLookAhead - 1));
    ring.ahead(0) = newest;
    ++ring.at;
    if (newest != kNone) pool.prefetch(newest);
    uint32_t node = node_of(ring.ahead(node_distance));
    if (node != kNone) tree_.prefetch_node(node);
    node = node_of(ring.ahead(bucket_distance));
    if (node != kNone) tree_.prefetch_bucket_of(node);
}

void Journal::note_owner(Edit *edit, const Block &b) const {
    edit->owner = b.owner;
    edit->frozen_slots = b.frozen_slots;
}

// Notes everything that naming a block changes in it.
void Journal::note_named(Edit *edit, const Block &b) const {
    note_owner(edit, b);
    edit->ready = b.ready;
    edit->depends = b.depends;
    edit->claimed = b.is_covered;
}

void Journal::undo_named(const Edit &edit, Block *b) {
    b->node = kNone;
    b->frozen_slots = edit.frozen_slots;
    b->ready = edit.ready;
    b->depends = edit.depends;
    b->is_covered = edit.claimed;
}

// Makes the taker the block's writer, and zeroes the block if it would show another's content.
void Journal::hand_over(Edit *edit, const Taker &taker) {
    Block &b = (*pools_[edit->group])[edit->block];
    note_owner(edit, b);
    edit->tenant = b.tenant;
    b.owner = taker.sequence;
    b.frozen_slots = 0;
    if (b.tenant == taker.tenant && !scrubs_) [[likely]]
        return;
    if (only_tenant_ == kFreshTenant) only_tenant_ = taker.tenant;
    if (only_tenant_ != taker.tenant) mixed_ = has_tenants_ = true;
    bool shows = b.tenant != kFreshTenant && !taker.overwrites;
    b.tenant = taker.tenant;
    if (!shows) return;
    auto block = static_cast<int32_t>(edit->block);
    record_->copies.push(quire_block_copy{QUIRE_COPY_ZERO, edit->group, block, block, 0, 0});
}

void Journal::take_back(const Edit &edit) {
    restore_owner(edit);
    (*pools_[edit.group])[edit.block].tenant = edit.tenant;
}

uint32_t Journal::take(uint32_t group, uint64_t barrier, const Taker &taker) {
    BlockPool &pool = *pools_[group];
    QUIRE_ASSERT(record_ != nullptr);  // settle() frees the nodes of what is evicted
    bool is_read = pool.has_read();
    uint32_t block = pool.take_free(barrier);
    if (block != kNone) [[likely]] {
        Edit *edit = log(EditKind::take_free, group);
        edit->block = block;
        edit->claimed = is_read;
        hand_over(edit, taker);
        return block;
    }
    block = pool.oldest_cached(barrier);
    QUIRE_ASSERT(block != kNone);
    Block &b = pool[block];
    Edit *edit = log(EditKind::evict, group);
    edit->block = block;
    edit->node = b.node;
    edit->generation = tree_.generation(b.node);
    edit->hint = pool.next_in_list(block);
    look_ahead(group, block);
    edit->unlinked = full_[group] && tree_.linked(b.node);
    if (edit->unlinked) tree_.unlink(b.node);
    tree_.blocks(b.node)[group] = kNullBlock;
    edit->ready = b.ready;
    edit->depends = b.depends;
    b.node = kNone;
    hand_over(edit, taker);
    pool.claim(block);
    ++evictions_;
    return block;
}

uint64_t Journal::left_count() const {
    uint64_t count = 0;
    for (uint32_t g = 0; g < group_count_; ++g) count += pools_[g]->left_count();
    return count;
}

void Journal::scrub(StepRecord *record) {
    for (uint32_t g = 0; g < group_count_; ++g) {
        pools_[g]->scrub(record->barrier, record->number, [&](uint32_t block) {
            auto id = static_cast<int32_t>(block);
            record->copies.push(quire_block_copy{QUIRE_COPY_ZERO, g, id, id, 0, 0});
        });
    }
}

void Journal::add_ref(uint32_t group, uint32_t block) {
    BlockPool &pool = *pools_[group];
    Edit *edit = log(EditKind::add_ref, group);
    edit->block = block;
    edit->claimed = pool[block].state == BlockState::cached;
    if (edit->claimed) edit->hint = pool.next_in_list(block);
    pool.add_ref(block);
}

void Journal::drop_ref(uint32_t group, uint32_t block, uint64_t touch) {
    QUIRE_ASSERT(record_ == nullptr);
    pools_[group]->drop_ref(block, touch);
}

void Journal::drop_from(BlockPool *pool, Edit *edit, const Letting &how) {
    QUIRE_ASSERT(record_ != nullptr);
    const Block &b = (*pool)[edit->block];
    edit->stamp = b.stamp;
    edit->old_touch = b.touch;
    edit->touch = how.is_read ? record_->number : how.last_step;
    bool waits_here = how.waits_here && edit->touch > b.touch;
    pool->drop_ref(edit->block, how.runs_elsewhere ? how.last_step : 0,
                   waits_here ? record_->barrier : 0);
    edit->new_stamp = b.stamp;
}

// If others let go of the block since, their stamp and touch stay, even when an earlier edit of the
// same block is undone after this one.
void Journal::undo_drop(BlockPool *pool, const Edit &edit) {
    uint64_t stamp = (*pool)[edit.block].stamp;
    bool is_last = stamp == edit.new_stamp;
    pool->undo_drop_ref(edit.block, is_last ? edit.stamp : stamp);
    if (is_last) pool->undo_raise_touch(edit.block, edit.old_touch);
}

void Journal::let_go(uint32_t group, uint32_t block, uint32_t sequence, const Letting &how) {
    Edit *edit = log(EditKind::drop_ref, group);
    edit->block = block;
    // Disowned at once: the same item may take the block again, and then owns it.
    edit->owner = (*pools_[group])[block].owner == sequence ? sequence : kNone;
    disown(group, block, sequence);
    drop_from(pools_[group], edit, how);
}

void Journal::let_go_host(uint32_t group, uint32_t block) {
    Edit *edit = log(EditKind::host_drop, group);
    edit->block = block;
    drop_from(host_pools_[group], edit, Letting{0, true, false, true});
}

void Journal::own(uint32_t group, uint32_t block, uint32_t sequence, uint32_t frozen_slots) {
    Block &b = (*pools_[group])[block];
    Edit *edit = log(EditKind::owner, group);
    edit->block = block;
    note_owner(edit, b);
    b.owner = sequence;
    b.frozen_slots = static_cast<uint16_t>(frozen_slots);
}

void Journal::set_entry(Sequence *s, uint32_t sequence, uint32_t group, uint32_t index,
                        uint32_t block) {
    BlockTable &t = table(sequence, group);
    Edit *edit = log(EditKind::table_entry, group);
    edit->sequence = sequence;
    edit->index = index;
    edit->block = t.ids.data[index];
    t.ids.data[index] = block;
    ++t.epoch;
    s->blocks_held += (block != kNullBlock ? 1u : 0u);
    s->blocks_held -= (edit->block != kNullBlock ? 1u : 0u);
}

void Journal::note_shape(const Sequence &s, uint32_t sequence, uint32_t group) {
    BlockTable &t = table(sequence, group);
    Edit *edit = log(EditKind::table_shape, group);
    edit->sequence = sequence;
    edit->index = t.length;
    edit->block = t.null_front;
    edit->hint = s.blocks_held;
}

void Journal::append_entry(Sequence *s, uint32_t sequence, uint32_t group, uint32_t block) {
    BlockTable &t = table(sequence, group);
    QUIRE_ASSERT(t.length < t.ids.capacity);
    t.ids.data[t.length++] = block;
    if (block != kNullBlock) {
        ++s->blocks_held;
    } else {
        t.null_front = t.length;
    }
}

uint32_t Journal::take_host(uint32_t group, uint64_t barrier) {
    bool is_read = host_pools_[group]->has_read();
    uint32_t block = host_pools_[group]->take_free(barrier);
    QUIRE_ASSERT(block != kNone);
    Edit *edit = log(EditKind::host_take, group);
    edit->block = block;
    edit->claimed = is_read;
    return block;
}

void Journal::drop_host(uint32_t group, uint32_t block, uint64_t touch) {
    QUIRE_ASSERT(record_ == nullptr);
    host_pools_[group]->drop_ref(block, touch);
}

void Journal::copy(uint32_t kind, uint32_t group, uint32_t src, uint32_t dst) {
    QUIRE_ASSERT(record_ != nullptr);
    record_->copies.push(
        quire_block_copy{kind, group, static_cast<int32_t>(src), static_cast<int32_t>(dst), 0, 0});
    // Unwritten slots are copied too.
    BlockPool &sources = kind == QUIRE_COPY_SWAP_IN ? *host_pools_[group] : *pools_[group];
    BlockPool &targets = kind == QUIRE_COPY_SWAP_OUT ? *host_pools_[group] : *pools_[group];
    if (sources[src].tenant == kMixedTenant) {
        targets[dst].tenant = kMixedTenant;
        targets[dst].is_covered = sources[src].is_covered;
        targets[dst].ready = sources[src].ready;
        targets[dst].depends = sources[src].depends;
    } else if (kind == QUIRE_COPY_SWAP_OUT) {
        targets[dst].tenant = kFreshTenant;
    }
}

void Journal::move_token(uint32_t sequence, uint32_t group, uint32_t src, uint32_t dst) {
    const uint32_t *ids = table(sequence, group).ids.data;
    uint32_t from = ids[src / block_tokens_], to = ids[dst / block_tokens_];
    QUIRE_ASSERT(record_ != nullptr && (*pools_[group])[to].owner == sequence);
    record_->copies.push(quire_block_copy{QUIRE_COPY_TOKEN, group, static_cast<int32_t>(from),
                                          static_cast<int32_t>(to), src % block_tokens_,
                                          dst % block_tokens_});
}

uint32_t Journal::publish(uint32_t root, const TreeCursor &at, uint64_t hash,
                          const uint32_t *tokens, const Extra &extra) {
    uint32_t node = tree_.insert(root, at, hash, tokens, extra);
    if (node != kNone) log(EditKind::publish, 0)->node = node;
    return node;
}

void Journal::attach(uint32_t sequence, uint32_t index, uint32_t node, Content content) {
    for (uint32_t g = 0; g < group_count_; ++g) {
        if (cross_[g]) continue;
        const BlockTable &t = table(sequence, g);
        uint32_t block = index < t.length ? t.ids.data[index] : kNullBlock;
        uint32_t *named = &tree_.blocks(node)[g];
        if (block == kNullBlock || *named == block) continue;
        BlockPool &pool = *pools_[g];
        if (pool[block].node != kNone) continue;  // a node that is out of reach names it
        if (*named == kNullBlock) {
            Edit *edit = log(EditKind::adopt, g);
            edit->node = node;
            edit->block = block;
            note_named(edit, pool[block]);
        } else if (pool[*named].state == BlockState::cached) {
            // The older one is unreferenced: keep the one that is in use, and have one copy less.
            Edit *edit = log(EditKind::replace, g);
            edit->node = node;
            edit->block = *named;
            edit->index = block;
            edit->hint = pool.next_in_list(*named);
            note_named(edit, pool[block]);
            uint32_t older = *named;
            pool.park(older);
            if (record_ == nullptr) pool.free_unpublished(older);
        } else {
            continue;
        }
        *named = block;
        Block &b = pool[block];
        b.node = node;
        b.ready = content.ready;
        b.depends = content.depends;
        b.is_covered = true;
        // From now on any sequence may read all of it, even if it leaves the tree again.
        b.frozen_slots = block_tokens_;
    }
}

// Takes a node's blocks from it; unreferenced ones become free.
void Journal::detach(uint32_t node) {
    for (uint32_t g = 0; g < group_count_; ++g) {
        uint32_t block = tree_.blocks(node)[g];
        if (block == kNullBlock) continue;
        tree_.blocks(node)[g] = kNullBlock;
        BlockPool &pool = *pools_[g];
        if (pool[block].state == BlockState::cached) {
            pool.free_unpublished(block);
        } else {
            pool[block].node = kNone;
        }
    }
}

uint32_t Journal::forget(uint32_t node) {
    detach(node);
    if (tree_.linked(node)) tree_.unlink(node);
    uint32_t parent = tree_.parent(node);
    tree_.free_node(node);
    return any_full_ ? kNone : tree_.free_if_bare(parent);
}

void Journal::restore_owner(const Edit &edit) {
    Block &b = (*pools_[edit.group])[edit.block];
    b.owner = edit.owner;
    b.frozen_slots = edit.frozen_slots;
}

// Caches the block again if its node still lacks it. Meanwhile the node may have been forgotten,
// may have got another block in this group, or may have lost a block in another group to an item
// that stays. Then the block becomes free, unless the whole step is undone (undo_displaced).
void Journal::undo_evict(Edit *edit) {
    BlockPool &pool = *pools_[edit->group];
    uint32_t *named = &tree_.blocks(edit->node)[edit->group];
    take_back(*edit);
    --evictions_;
    bool is_there = tree_.generation(edit->node) == edit->generation;
    bool wanted = is_there && *named == kNullBlock;
    if (wanted) {
        *named = edit->block;
        wanted = !edit->unlinked || tree_.whole(edit->node);
        if (!wanted) *named = kNullBlock;
    }
    edit->displaced = is_there && !wanted;
    if (!wanted) return pool.undo_take_free(edit->block, false);
    name_again(*edit);
    if (edit->unlinked) tree_.relink(edit->node);
    pool.undo_claim(edit->block, edit->hint);
}

void Journal::name_again(const Edit &edit) {
    Block &b = (*pools_[edit.group])[edit.block];
    b.node = edit.node;
    b.ready = edit.ready;
    b.depends = edit.depends;
    b.is_covered = true;
}

// A node that several items took blocks from is whole again once the last of them is undone.
void Journal::undo_displaced(StepRecord *record, uint64_t edit_count) {
    Edit *edits = record->edits.data();
    auto each_displaced = [&](auto body) {
        for (uint64_t i = edit_count; i-- > 0;) {
            if (edits[i].displaced) body(&edits[i], &tree_.blocks(edits[i].node)[edits[i].group]);
        }
    };
    each_displaced([&](Edit *edit, uint32_t *named) {
        // If the node was forgotten or names another block, this one stays free.
        edit->displaced = tree_.generation(edit->node) == edit->generation && *named == kNullBlock;
        if (edit->displaced) *named = edit->block;
    });
    each_displaced([&](Edit *edit, uint32_t *named) {
        if (tree_.whole(edit->node)) return;
        *named = kNullBlock;
        edit->displaced = false;
    });
    each_displaced([&](Edit *edit, uint32_t *) {
        name_again(*edit);
        if (!tree_.linked(edit->node)) tree_.relink(edit->node);
        BlockPool &pool = *pools_[edit->group];
        // A victim of the step may hold it again.
        if (pool[edit->block].state != BlockState::held) pool.cache_unused(edit->block);
    });
}

void Journal::undo_tree_edit(const Edit &edit) {
    BlockPool &pool = *pools_[edit.group];
    uint32_t *named = &tree_.blocks(edit.node)[edit.group];
    switch (edit.kind) {
        case EditKind::publish:
            detach(edit.node);
            tree_.unlink(edit.node);
            tree_.free_node(edit.node);
            break;
        case EditKind::adopt:
            if (*named != edit.block) break;  // another sequence's took its place
            *named = kNullBlock;
            undo_named(edit, &pool[edit.block]);
            break;
        default:  // replace
            pool.unpark_cached(edit.block, edit.hint);
            if (*named == edit.index) {
                undo_named(edit, &pool[edit.index]);
                *named = edit.block;
            } else {
                pool[edit.block].node = edit.node;
                pool.free_unpublished(edit.block);
            }
    }
}

void Journal::undo_edit(Edit *logged, Sequence *s) {
    const Edit &edit = *logged;
    switch (edit.kind) {
        case EditKind::take_free:
            pools_[edit.group]->undo_take_free(edit.block, edit.claimed);
            take_back(edit);
            break;
        case EditKind::add_ref:
            pools_[edit.group]->undo_add_ref(edit.block, edit.claimed ? edit.hint : kNone);
            break;
        case EditKind::drop_ref:
            undo_drop(pools_[edit.group], edit);
            if (edit.owner != kNone) (*pools_[edit.group])[edit.block].owner = edit.owner;
            break;
        case EditKind::table_entry: {
            BlockTable &t = table(edit.sequence, edit.group);
            t.ids.data[edit.index] = edit.block;
            ++t.epoch;
            break;
        }
        case EditKind::table_shape: {
            BlockTable &t = table(edit.sequence, edit.group);
            t.length = edit.index;
            t.null_front = edit.block;
            t.writable = kNone;
            ++t.epoch;
            s->blocks_held = edit.hint;
            break;
        }
        case EditKind::evict:
            undo_evict(logged);
            break;
        case EditKind::owner:
            restore_owner(edit);
            break;
        case EditKind::host_take:
            host_pools_[edit.group]->undo_take_free(edit.block, edit.claimed);
            break;
        case EditKind::host_drop:
            undo_drop(host_pools_[edit.group], edit);
            break;
        default:
            undo_tree_edit(edit);
    }
}

void Journal::undo(StepRecord *record, Change *change, Sequence *s) {
    pause();
    for (uint32_t i = change->edit_end; i > change->first_edit; --i) {
        undo_edit(&record->edits[i - 1], s);
    }
    for (uint32_t i = change->first_copy; i < change->copy_end; ++i) {
        record->copies[i].kind = kVoidCopy;
    }
    s->state = change->before;
    s->change = kNone;
    change->kind = ChangeKind::dropped;
    change->edit_end = change->first_edit;
}

void Journal::settle(StepRecord *record) {
    pause();
    for (const Change &change : record->changes) {
        if (change.kind == ChangeKind::dropped) continue;
        for (uint32_t i = change.first_edit; i < change.edit_end; ++i) {
            const Edit &edit = record->edits[i];
            if (i + kSettleAhead < change.edit_end) {
                const Edit &later = record->edits[i + kSettleAhead];
                if (later.kind == EditKind::evict) {
                    tree_.prefetch_node(later.node);
                    tree_.prefetch_links(later.node);
                }
            }
            if (i + kSettleAhead / 2 < change.edit_end) {
                const Edit &later = record->edits[i + kSettleAhead / 2];
                if (later.kind == EditKind::evict) tree_.prefetch_neighbours(later.node);
            }
            if (edit.kind == EditKind::drop_ref) {
                pools_[edit.group]->raise_touch(edit.block, edit.touch);
            } else if (edit.kind == EditKind::host_drop) {
                host_pools_[edit.group]->raise_touch(edit.block, edit.touch);
            } else if (edit.kind == EditKind::replace) {
                pools_[edit.group]->free_unpublished(edit.block);
            } else if (edit.kind == EditKind::evict) {
                if (tree_.generation(edit.node) != edit.generation)
                    continue;  // forgotten, or freed just now
                if (!tree_.linked(edit.node)) {
                    detach(edit.node);
                    tree_.free_node(edit.node);
                } else if (!any_full_) {
                    tree_.free_if_bare(edit.node);
                }
            }
        }
    }
    record->edits.shrink(0);
}

void Journal::retire(uint64_t old_oldest) {
    for (uint32_t g = 0; g < group_count_; ++g) {
        pools_[g]->retire(old_oldest);
        if (host_pools_[g] != nullptr) host_pools_[g]->retire(old_oldest);
    }
}

Status Journal::check() const {
    for (uint32_t g = 0; g < group_count_; ++g) {
        QUIRE_TRY(pools_[g]->check());
        if (host_pools_[g] != nullptr) QUIRE_TRY(host_pools_[g]->check());
    }
    return tree_.check(pools_);
}

}  // namespace quire
