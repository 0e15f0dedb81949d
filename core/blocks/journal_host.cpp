// SPDX-License-Identifier: Apache-2.0
//
// The host tier: blocks of swapped sequences, and content that was evicted from the device.
//
// A node names a block on the device or in the host tier, never both, so the two together hold as
// much as one pool of both sizes. Both lists are ordered by the time of the last release, and what
// is evicted from the device is older than what stays there: together they are one list, and what
// is lost is its oldest end.
//
// A cache with a host tier for prefixes has one entry of a node per group (CacheParts::create).

#include "core/blocks/journal.hpp"

namespace quire {

// A block of the host tier for content that leaves the device, or kNone: that content is lost. One
// block stays free for promotions, which need room for what they displace before they give up the
// block that they read. They evict nothing: the oldest content may be what the same item has found.
uint32_t Journal::host_room(uint32_t group, uint64_t barrier, bool promotes) {
    BlockPool &host = *host_pools_[group];
    if (promotes || host.free_count() > 1) {
        bool is_read = host.has_read();
        uint32_t block = host.take_free(barrier);
        if (block != kNone) {
            note(TakeHost{block, static_cast<uint8_t>(group), is_read});
            return block;
        }
    }
    return promotes ? kNone : evict_host(group, barrier);
}

// Takes the block whose content was released longest ago; kNone if nothing is cached that the step
// may overwrite.
uint32_t Journal::evict_host(uint32_t group, uint64_t barrier) {
    BlockPool &host = *host_pools_[group];
    uint32_t block = host.oldest_cached(barrier);
    if (block == kNone) return kNone;
    Block &b = host[block];
    Evict edit{};
    edit.ready = host.origin(block).ready;
    edit.depends = host.origin(block).depends;
    edit.tenant = host.origin(block).tenant;
    edit.generation = tree_.generation(b.node);
    edit.owner = b.owner;
    edit.block = block;
    edit.node = b.node;
    edit.hint = host.next_in_list(block);
    edit.frozen_slots = b.frozen_slots;
    edit.group = static_cast<uint8_t>(group);
    edit.unlinked = full_[group] && tree_.linked(b.node);
    edit.is_host = edit.is_lost = true;
    edit.is_loss = would_lose(b.node, group);
    edit.was_demoted = b.is_demoted;
    if (edit.unlinked) tree_.unlink(b.node);
    edit.entry = tree_.first_entry(group);
    tree_.change_blocks(b.node)[edit.entry] = kNullBlock;
    b.node = kNone;
    b.is_demoted = false;
    note(edit);
    host.claim(block);
    ++evictions_;
    return block;
}

// The steps that a copy of the open step depends on, as BlockOrigin::depends with `ready` = the
// step.
uint64_t Journal::depends_of_copy(const BlockOrigin &source) const {
    uint64_t depends = depends_bit(step_->number);
    for (uint64_t step = timeline_->oldest(); step < step_->number; ++step) {
        if (depends_on(source, step)) depends |= depends_bit(step);
    }
    return depends;
}

// Moves a cached block's content to `to`, a block of the host tier that was just taken. The caller
// notes the edit.
Demote Journal::demote(uint32_t group, uint32_t block, uint32_t to) {
    const Block &b = (*pools_[group])[block];
    BlockPool &host = *host_pools_[group];
    Block &h = host[to];
    BlockOrigin &origin = host.origin(to);
    copy(QUIRE_COPY_SWAP_OUT, group, block, to);
    Demote edit{origin.ready,
                origin.depends,
                h.stamp,
                tree_.generation(b.node),
                b.node,
                to,
                static_cast<uint8_t>(group),
                h.is_demoted != 0};
    h.node = b.node;
    h.group = static_cast<uint8_t>(group) & 0xF;
    origin.depends = depends_of_copy(pools_[group]->origin(block));
    origin.ready = step_->number;
    h.owner = kNone;
    h.frozen_slots = static_cast<uint16_t>(sizes_[group].tokens());
    h.is_demoted = true;
    tree_.change_blocks(b.node)[tree_.first_entry(group)] = to | kOnHost;
    host.cache_held(to, b.stamp);
    ++demotions_;
    return edit;
}

uint32_t Journal::promote(uint32_t group, uint32_t node, const Taker &taker) {
    uint32_t older = number_of(tree_.blocks(node)[tree_.first_entry(group)]);
    uint32_t block = take(group, step_->barrier, taker, true);
    BlockPool &host = *host_pools_[group];
    BlockPool &pool = *pools_[group];
    Block &h = host[older], &b = pool[block];
    BlockOrigin &origin = pool.origin(block);
    QUIRE_ASSERT(tree_.blocks(node)[tree_.first_entry(group)] == (older | kOnHost));
    copy(QUIRE_COPY_SWAP_IN, group, older, block);
    note(Promote{named_block(pool, block), tree_.generation(node), node, older, block,
                 host.next_in_list(older), static_cast<uint8_t>(group), h.is_demoted != 0});
    b.node = node;
    origin.ready = step_->number;
    origin.depends = depends_of_copy(host.origin(older));
    b.frozen_slots = static_cast<uint16_t>(sizes_[group].tokens());
    if (origin.tenant == kMixedTenant && !b.is_covered && can_cover_)
        pool.cover(block, Cover{origin.ready, origin.depends});
    tree_.change_blocks(node)[tree_.first_entry(group)] = block;
    h.node = kNone;
    h.is_demoted = false;
    host.release_read(older, step_->barrier);
    ++promotions_;
    return block;
}

// If the node was forgotten meanwhile, its block is held already.
void Journal::undo_demote(const Demote &edit) {
    BlockPool &host = *host_pools_[edit.group];
    Block &h = host[edit.block];
    uint32_t *named = &tree_.change_blocks(edit.node)[tree_.first_entry(edit.group)];
    if (tree_.generation(edit.node) == edit.generation && *named == (edit.block | kOnHost)) {
        *named = kNullBlock;
        h.node = kNone;
        host.claim(edit.block);
    }
    QUIRE_ASSERT(h.state == BlockState::held && h.node == kNone);
    host.origin(edit.block).ready = edit.ready;
    host.origin(edit.block).depends = edit.depends;
    h.stamp = edit.stamp;
    h.is_demoted = edit.was_demoted;
    --demotions_;
}

// If the node was forgotten meanwhile, so is the content in the host tier.
void Journal::undo_promote(const Promote &edit) {
    BlockPool &host = *host_pools_[edit.group];
    Block &b = (*pools_[edit.group])[edit.block], &h = host[edit.older];
    uint32_t *named = &tree_.change_blocks(edit.node)[tree_.first_entry(edit.group)];
    --promotions_;
    pools_[edit.group]->origin(edit.block).ready = edit.before.ready;
    pools_[edit.group]->origin(edit.block).depends = edit.before.depends;
    b.frozen_slots = edit.before.frozen_slots;
    b.is_covered = edit.before.is_covered;
    bool is_there = tree_.generation(edit.node) == edit.generation && *named == edit.block;
    h.is_demoted = edit.was_demoted;
    if (!is_there) {
        // The undo of a demotion counts on the block.
        edit.was_demoted ? host.hold_unused(edit.older) : host.undo_release_read(edit.older);
        return;
    }
    b.node = kNone;
    h.node = edit.node;
    *named = edit.older | kOnHost;
    host.cache_unused(edit.older);
}

void Journal::settle_demote(const Demote &edit, uint64_t step) {
    BlockPool &host = *host_pools_[edit.group];
    Block &h = host[edit.block];
    host.raise_touch(edit.block, step);
    if (!h.is_demoted) return;  // evicted or promoted since
    h.is_demoted = false;
    // Its node was forgotten while the step was open.
    if (h.state == BlockState::held) host.drop_ref(edit.block, step);
}

uint32_t Journal::take_host(uint32_t group, uint64_t barrier) {
    BlockPool &host = *host_pools_[group];
    bool is_read = host.has_read();
    uint32_t block = host.take_free(barrier);
    if (block == kNone) {
        block = evict_host(group, barrier);
        QUIRE_ASSERT(block != kNone);
    } else {
        note(TakeHost{block, static_cast<uint8_t>(group), is_read});
    }
    return block;
}

void Journal::make_idle_host(uint32_t group, uint32_t count) {
    QUIRE_ASSERT(step_ == nullptr);
    BlockPool &host = *host_pools_[group];
    while (host.idle_count() < count) {
        uint32_t block = host.oldest_cached(timeline_->oldest());
        if (block == kNone) return;
        ++evictions_;
        const bool is_whole = full_[group];
        note_losses(host[block].node, is_whole ? 0 : group, is_whole ? group_count_ : group + 1);
        drop_cached(group, block | kOnHost);
    }
}

uint32_t Journal::take_idle_host(uint32_t group) {
    QUIRE_ASSERT(step_ == nullptr);
    uint32_t block = host_pools_[group]->take_idle();
    host_pools_[group]->origin(block).tenant = kFreshTenant;
    return block;
}

void Journal::drop_host(uint32_t group, uint32_t block, uint64_t touch) {
    QUIRE_ASSERT(step_ == nullptr);
    host_pools_[group]->drop_ref(block, touch);
}

}  // namespace quire
