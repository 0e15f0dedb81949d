// SPDX-License-Identifier: Apache-2.0

#include "core/blocks/block_pool.hpp"

#include <new>

namespace quire {

namespace {

// How many records ahead touching and publishing a run prefetch.
constexpr uint32_t kTouchAhead = 12;
constexpr uint32_t kPublishAhead = 64;

}  // namespace

BlockPool *BlockPool::make(const HostAllocator *host, const Timeline *timeline,
                           uint32_t block_count, bool scrubs) {
    void *memory = host->allocate(host->user, sizeof(BlockPool), kCacheLine);
    if (memory == nullptr) return nullptr;
    auto *pool = new (memory) BlockPool(host, timeline);
    if (!pool->create(block_count, scrubs)) destroy(host, &pool);
    return pool;
}

void BlockPool::destroy(const HostAllocator *host, BlockPool **pool) {
    if (*pool == nullptr) return;
    (*pool)->~BlockPool();
    host->release(host->user, *pool, sizeof(BlockPool), kCacheLine);
    *pool = nullptr;
}

bool BlockPool::create(uint32_t block_count, bool scrubs) {
    QUIRE_ASSERT(block_count >= 2);
    if (!blocks_.create(block_count) || !links_.create(block_count)) return false;
    if (!origins_.create(block_count)) return false;
    if (scrubs && !unscrubbed_.reserve(block_count)) return false;
    for (uint32_t i = 0; i < block_count; ++i) {
        blocks_[i].node = kNone;
        blocks_[i].owner = kNone;
        origins_[i].tenant = kFreshTenant;
        links_[i] = BlockLink{kNone, kNone};
        blocks_[i].state = BlockState::free;
    }
    blocks_[kNullBlock].state = BlockState::null;
    for (uint32_t i = 1; i < block_count; ++i) push_back(kFree, i);  // lowest id first
    return true;
}

uint32_t BlockPool::available(uint64_t barrier) const {
    uint32_t count = lists_[kFree].count + draining_ + lists_[kCached].count;
    if (barrier == kNoBarrier) [[likely]]
        return count;
    for (uint64_t step = barrier; step < timeline_->next(); ++step) {
        count -= lists_[draining_list(step)].count + cached_pending_[Timeline::ring_index(step)];
    }
    return count;
}

uint32_t BlockPool::unused(uint64_t barrier) const {
    uint32_t count = lists_[kFree].count + draining_;
    for (uint64_t step = barrier; step < timeline_->next(); ++step)
        count -= lists_[draining_list(step)].count;
    return count;
}

uint32_t BlockPool::take_free(uint64_t barrier) {
    uint32_t block = draining_ != 0 ? lists_[draining_list(timeline_->next())].head : kNone;
    if (block == kNone) block = lists_[kFree].head;
    if (block == kNone && draining_ != 0) {
        uint64_t end = barrier == kNoBarrier ? timeline_->next() : barrier;
        for (uint64_t step = timeline_->oldest(); step < end && block == kNone; ++step) {
            block = lists_[draining_list(step)].head;
        }
    }
    if (block == kNone) return kNone;
    leave_list(block);
    become_held(block);
    return block;
}

uint32_t BlockPool::take_idle() {
    uint32_t block = lists_[kFree].head;
    QUIRE_ASSERT(block != kNone);
    leave_list(block);
    become_held(block);
    return block;
}

uint32_t BlockPool::oldest_cached(uint64_t barrier) const {
    uint32_t block = lists_[kCached].head;
    // Blocks that running work touches were released lately, so they stand at the far end.
    while (block != kNone && blocks_[block].touch >= barrier) block = links_[block].next;
    return block;
}

void BlockPool::drop_ref(uint32_t block, uint64_t touch, uint64_t barrier) {
    Block &b = blocks_[block];
    QUIRE_ASSERT(b.state == BlockState::held && b.refs > 0);
    if (touch > b.touch) b.touch = touch;
    b.stamp = ++clock_;
    if (--b.refs != 0) return;
    --held_;
    if (b.node != kNone) {
        b.state = BlockState::cached;
        push_back(kCached, block);
    } else if (b.touch < barrier) {
        push_read(block);
    } else {
        push_unused(block);
    }
}

// Puts the block on the open step's draining list, which holds only such blocks.
void BlockPool::push_read(uint32_t block) {
    Block &b = blocks_[block];
    b.state = BlockState::draining;
    b.is_read = true;
    push_front(draining_list(timeline_->next()), block);
    if (unscrubbed_.capacity() != 0) note_unscrubbed(block);
}

void BlockPool::raise_touch(uint32_t block, uint64_t step) {
    Block &b = blocks_[block];
    if (step <= b.touch) return;
    switch (b.state) {
        case BlockState::free:
        case BlockState::draining:
            leave_list(block);
            b.touch = step;
            push_unused(block);
            break;
        case BlockState::cached:
            if (!timeline_->done(b.touch)) --cached_pending_[Timeline::ring_index(b.touch)];
            b.touch = step;
            if (!timeline_->done(step)) ++cached_pending_[Timeline::ring_index(step)];
            break;
        default:
            b.touch = step;
    }
}

// The block given back last is the warmest in the processor's caches, so it is handed out first.
void BlockPool::push_unused(uint32_t block) {
    Block &b = blocks_[block];
    bool drained = timeline_->done(b.touch);
    b.state = drained ? BlockState::free : BlockState::draining;
    push_front(drained ? uint32_t{kFree} : draining_list(b.touch), block);
    if (unscrubbed_.capacity() != 0) note_unscrubbed(block);
}

void BlockPool::mark_mixed(uint32_t block, bool can_cover) {
    Block &b = blocks_[block];
    BlockOrigin &origin = origins_[block];
    origin.tenant = kMixedTenant;
    b.is_covered = false;
    // Whatever is published was written since.
    if (b.node != kNone && can_cover) cover(block, Cover{origin.ready, origin.depends});
    bool is_unused = b.state == BlockState::free || b.state == BlockState::draining;
    if (is_unused && unscrubbed_.capacity() != 0) note_unscrubbed(block);
}

void BlockPool::note_unscrubbed(uint32_t block) {
    Block &b = blocks_[block];
    if (origins_[block].tenant == kFreshTenant || b.is_unscrubbed) return;
    b.is_unscrubbed = true;
    unscrubbed_.push(block);
}

void BlockPool::undo_take_free(uint32_t block, bool is_read) {
    Block &b = blocks_[block];
    QUIRE_ASSERT(b.state == BlockState::held && b.refs == 1 && b.node == kNone);
    b.refs = 0;
    --held_;
    is_read ? push_read(block) : push_unused(block);
}

// Another holder may have dropped the block meanwhile: it is then cached as of that time.
void BlockPool::undo_add_ref(uint32_t block, uint32_t next_hint) {
    Block &b = blocks_[block];
    QUIRE_ASSERT(b.state == BlockState::held && b.refs > 0);
    if (b.refs != 1) {
        --b.refs;
    } else if (b.node != kNone) {
        undo_claim(block, next_hint);
    } else {
        undo_take_free(block, false);
    }
}

void BlockPool::undo_claim(uint32_t block, uint32_t next_hint) {
    Block &b = blocks_[block];
    QUIRE_ASSERT(b.state == BlockState::held && b.refs == 1);
    b.refs = 0;
    --held_;
    b.state = BlockState::cached;
    insert_by_stamp(block, next_hint);
}

void BlockPool::cache_unused(uint32_t block) {
    leave_list(block);
    blocks_[block].state = BlockState::cached;
    insert_by_stamp(block, kNone);
}

void BlockPool::undo_drop_ref(uint32_t block, uint64_t stamp) {
    Block &b = blocks_[block];
    if (b.state == BlockState::held) {
        ++b.refs;
    } else {
        leave_list(block);
        become_held(block);
    }
    b.stamp = stamp;
}

void BlockPool::cache_held(uint32_t block, uint64_t stamp) {
    Block &b = blocks_[block];
    QUIRE_ASSERT(b.state == BlockState::held && b.refs == 1);
    b.refs = 0;
    --held_;
    b.stamp = stamp;
    b.state = BlockState::cached;
    // Only what was touched since is newer.
    uint32_t prev = lists_[kCached].tail, next = kNone;
    while (prev != kNone && blocks_[prev].stamp > stamp) next = prev, prev = links_[prev].prev;
    insert_before(kCached, block, next);
}

void BlockPool::release_read(uint32_t block, uint64_t barrier) {
    leave_list(block);
    blocks_[block].touch < barrier ? push_read(block) : push_unused(block);
}

void BlockPool::park(uint32_t block) {
    leave_list(block);
    blocks_[block].state = BlockState::parked;
    ++parked_;
}

void BlockPool::unpark_cached(uint32_t block, uint32_t next_hint) {
    QUIRE_ASSERT(blocks_[block].state == BlockState::parked);
    --parked_;
    blocks_[block].state = BlockState::cached;
    insert_by_stamp(block, next_hint);
}

void BlockPool::free_unpublished(uint32_t block) {
    Block &b = blocks_[block];
    if (b.state == BlockState::cached) {
        leave_list(block);
    } else {
        QUIRE_ASSERT(b.state == BlockState::parked);
        --parked_;
    }
    b.node = kNone;
    b.owner = kNone;
    push_unused(block);
}

void BlockPool::hold_unpublished(uint32_t block) {
    free_unpublished(block);
    hold_unused(block);
}

void BlockPool::retire(uint64_t old_oldest) {
    for (uint64_t step = old_oldest; step < timeline_->oldest(); ++step) {
        cached_pending_[Timeline::ring_index(step)] = 0;
        List &list = lists_[draining_list(step)];
        draining_ -= list.count;
        uint32_t block = list.head;
        list = List{};
        while (block != kNone) {
            uint32_t next = links_[block].next;
            push_unused(block);
            block = next;
        }
    }
}

void BlockPool::take_over(const BlockPool &old, const uint32_t *ids) {
    QUIRE_ASSERT(old.draining_ == 0 && old.parked_ == 0);
    lists_[kFree] = List{};
    for (uint32_t i = 1; i < old.block_count(); ++i) {
        if (old[i].state == BlockState::free) continue;
        Block &b = blocks_[ids[i]];
        b = old[i];
        BlockOrigin &origin = origins_[ids[i]];
        origin = old.origin(i);
        origin.copied_to = origin.copied_from = 0;  // these belong to a run that is over
        b.is_unscrubbed = false;
    }
    for (uint32_t i = old.lists_[kCached].head; i != kNone; i = old.links_[i].next) {
        push_back(kCached, ids[i]);
    }
    // In the order in which they would have been handed out.
    for (uint32_t i = old.lists_[kFree].head; i != kNone; i = old.links_[i].next) {
        if (i < block_count() && blocks_[i].state == BlockState::free) push_back(kFree, i);
    }
    for (uint32_t i = old.block_count(); i < block_count(); ++i) push_back(kFree, i);
    held_ = old.held_;
    clock_ = old.clock_;
}

uint32_t BlockPool::list_of(uint32_t block) const {
    switch (blocks_[block].state) {
        case BlockState::free:
            return kFree;
        case BlockState::draining:
            return draining_list(blocks_[block].is_read ? timeline_->next() : blocks_[block].touch);
        case BlockState::cached:
            return kCached;
        default:
            assertion_failed("the block is on a list", __FILE__, __LINE__);
    }
}

void BlockPool::insert_before(uint32_t name, uint32_t block, uint32_t next) {
    List &list = lists_[name];
    const Block &b = blocks_[block];
    uint32_t prev = next != kNone ? links_[next].prev : list.tail;
    links_[block] = BlockLink{prev, next};
    (prev != kNone ? links_[prev].next : list.head) = block;
    (next != kNone ? links_[next].prev : list.tail) = block;
    ++list.count;
    if (name >= kDraining) ++draining_;
    if (name == kCached && !timeline_->done(b.touch))
        ++cached_pending_[Timeline::ring_index(b.touch)];
}

inline void BlockPool::leave(uint32_t name, uint32_t block) {
    List &list = lists_[name];
    Block &b = blocks_[block];
    const BlockLink link = links_[block];
    (link.prev != kNone ? links_[link.prev].next : list.head) = link.next;
    (link.next != kNone ? links_[link.next].prev : list.tail) = link.prev;
    --list.count;
    if (name >= kDraining) --draining_, b.is_read = false;
    if (name == kCached && !timeline_->done(b.touch))
        --cached_pending_[Timeline::ring_index(b.touch)];
}

void BlockPool::leave_list(uint32_t block) { leave(list_of(block), block); }

void BlockPool::claim(uint32_t block) {
    QUIRE_ASSERT(blocks_[block].state == BlockState::cached);
    leave(kCached, block);
    become_held(block);
}

// Moves the cached blocks from `first` to `last`, which are neighbours on the list in this order.
void BlockPool::move_to_back(uint32_t first, uint32_t last) {
    List &list = lists_[kCached];
    const uint32_t prev = links_[first].prev, next = links_[last].next;
    if (next == kNone) return;
    (prev != kNone ? links_[prev].next : list.head) = next;
    links_[next].prev = prev;
    links_[first].prev = list.tail;
    links_[list.tail].next = first;
    links_[last].next = kNone;
    list.tail = last;
}

// What was cached together mostly lies on the list as one run, which then is moved as a whole.
void BlockPool::touch_run(const uint32_t *blocks, uint32_t count) {
    uint32_t first = kNone, last = kNone;
    uint64_t stamp = clock_;
    for (uint32_t i = count; i-- > 0;) {
        if (i >= kTouchAhead) prefetch(blocks[i - kTouchAhead]);
        Block &b = blocks_[blocks[i]];
        if (b.state != BlockState::cached) continue;
        b.stamp = ++stamp;
        if (last == kNone || links_[last].next != blocks[i]) {
            if (last != kNone) move_to_back(first, last);
            first = blocks[i];
        }
        last = blocks[i];
    }
    if (last != kNone) move_to_back(first, last);
    clock_ = stamp;
}

void BlockPool::cache_run(const uint32_t *blocks, uint32_t count, uint64_t touch) {
    QUIRE_ASSERT(touch < timeline_->oldest());
    List &list = lists_[kCached];
    uint32_t before = list.tail;
    for (uint32_t i = count; i-- > 0;) {
        const uint32_t block = blocks[i];
        Block &b = blocks_[block];
        QUIRE_ASSERT(b.state == BlockState::held && b.refs == 1 && b.node != kNone);
        if (touch > b.touch) b.touch = touch;
        b.stamp = ++clock_;
        b.refs = 0;
        b.owner = kNone;
        b.state = BlockState::cached;
        (before != kNone ? links_[before].next : list.head) = block;
        links_[block] = BlockLink{before, kNone};
        before = block;
    }
    list.tail = before;
    list.count += count;
    held_ -= count;
}

// One pass, because the records of many small blocks are not in the processor's caches: each is
// checked and changed at once, and those that were changed are put back if one is refused.
uint32_t BlockPool::publish_run(const uint32_t *blocks, uint32_t count, uint32_t owner,
                                uint32_t block_tokens) {
    List &list = lists_[kCached];
    BlockLink *links = links_.data();
    uint64_t stamp = clock_;
    uint32_t before = list.tail;
    for (uint32_t i = count; i-- > 0;) {
        const uint32_t block = blocks[i];
        if (i >= kPublishAhead) {
            prefetch(blocks[i - kPublishAhead]);
            __builtin_prefetch(&links[blocks[i - kPublishAhead]], 1);
        }
        Block &b = blocks_[block];
        if (b.state != BlockState::held || b.owner != owner || b.refs != 1 || b.node != kNone) {
            take_back_run(blocks + i + 1, count - i - 1, owner);
            return i;
        }
        b.refs = 0;
        b.node = block;
        b.owner = kNone;
        b.frozen_slots = static_cast<uint16_t>(block_tokens);
        b.state = BlockState::cached;
        b.stamp = ++stamp;
        (before != kNone ? links[before].next : list.head) = block;
        links[block] = BlockLink{before, kNone};
        before = block;
    }
    clock_ = stamp;
    list.tail = before;
    list.count += count;
    held_ -= count;
    return count;
}

// Stamps say nothing of blocks that are held, so these stay.
void BlockPool::take_back_run(const uint32_t *blocks, uint32_t count, uint32_t owner) {
    List &list = lists_[kCached];
    (list.tail != kNone ? links_[list.tail].next : list.head) = kNone;
    for (uint32_t i = 0; i < count; ++i) {
        Block &b = blocks_[blocks[i]];
        b.refs = 1;
        b.node = kNone;
        b.owner = owner;
        b.frozen_slots = 0;
        b.state = BlockState::held;
    }
}

// O(1) if the hint is still the right neighbour, as it is when a step is undone in reverse order;
// else the place is searched from the oldest end.
void BlockPool::insert_by_stamp(uint32_t block, uint32_t next_hint) {
    uint64_t stamp = blocks_[block].stamp;
    auto fits_before = [&](uint32_t next) {
        if (next != kNone &&
            (blocks_[next].state != BlockState::cached || blocks_[next].stamp < stamp)) {
            return false;
        }
        uint32_t prev = next != kNone ? links_[next].prev : lists_[kCached].tail;
        return prev == kNone || blocks_[prev].stamp < stamp;
    };
    uint32_t next = next_hint;
    if (!fits_before(next)) {
        next = lists_[kCached].head;
        while (next != kNone && blocks_[next].stamp < stamp) next = links_[next].next;
    }
    insert_before(kCached, block, next);
}

Status BlockPool::check_list(uint32_t name) const {
    const List &list = lists_[name];
    uint32_t count = 0;
    uint32_t prev = kNone;
    uint64_t stamp = 0;
    uint32_t pending[kMaxUnfinished] = {};
    for (uint32_t i = list.head; i != kNone; prev = i, i = links_[i].next) {
        if (i >= block_count() || links_[i].prev != prev || ++count > list.count) {
            return fail(QUIRE_E_INTERNAL, "block_pool: list {} is broken at block {}", name, i);
        }
        const Block &b = blocks_[i];
        bool is_listed = b.state == BlockState::free || b.state == BlockState::draining ||
                         b.state == BlockState::cached;
        if (!is_listed || list_of(i) != name || b.refs != 0) {
            return fail(QUIRE_E_INTERNAL,
                        "block_pool: block {} is on list {}, where it does not belong", i, name);
        }
        if (name != kCached) continue;
        if (b.node == kNone || b.stamp <= stamp) {
            return fail(QUIRE_E_INTERNAL,
                        "block_pool: cached block {} has no node or is out of order", i);
        }
        stamp = b.stamp;
        if (!timeline_->done(b.touch)) ++pending[Timeline::ring_index(b.touch)];
    }
    bool same = count == list.count && list.tail == prev;
    if (name == kCached) same = same && std::memcmp(pending, cached_pending_, sizeof pending) == 0;
    if (!same) return fail(QUIRE_E_INTERNAL, "block_pool: the counts of list {} are wrong", name);
    return Status{};
}

// An unused block is free once all work that may touch it is done, and drains until then.
Status BlockPool::check_unused(uint32_t block) const {
    const Block &b = blocks_[block];
    if (unscrubbed_.capacity() != 0 && origins_[block].tenant != kFreshTenant && !b.is_unscrubbed) {
        return fail(QUIRE_E_INTERNAL,
                    "block_pool: unused block {} holds content, but is not listed for scrubbing",
                    block);
    }
    if (b.state == BlockState::free && !timeline_->done(b.touch)) {
        return fail(QUIRE_E_INTERNAL,
                    "block_pool: block {} is free, but step {} may still touch it", block, b.touch);
    }
    bool drains = b.is_read || (!timeline_->done(b.touch) && b.touch <= timeline_->next());
    if (b.state == BlockState::draining && !drains) {
        return fail(QUIRE_E_INTERNAL,
                    "block_pool: block {} drains for step {}, which is not running", block,
                    b.touch);
    }
    return Status{};
}

// Each block is in one state, and each count matches the number of blocks in that state.
Status BlockPool::check_counts(const uint32_t *counts) const {
    auto count = [&](BlockState state) { return counts[static_cast<uint32_t>(state)]; };
    auto same = [](uint32_t in_state, uint32_t counted, const char *text) -> Status {
        if (in_state == counted) return Status{};
        return fail(QUIRE_E_INTERNAL, text, in_state, counted);
    };
    QUIRE_TRY(same(count(BlockState::free), lists_[kFree].count,
                   "block_pool: {} blocks are free, but {} are on the list"));
    QUIRE_TRY(same(count(BlockState::draining), draining_,
                   "block_pool: {} blocks drain, but {} are counted"));
    QUIRE_TRY(same(count(BlockState::cached), lists_[kCached].count,
                   "block_pool: {} blocks are cached, but {} are on the list"));
    QUIRE_TRY(
        same(count(BlockState::held), held_, "block_pool: {} blocks are held, but {} are counted"));
    QUIRE_TRY(same(count(BlockState::parked), parked_,
                   "block_pool: {} blocks are parked, but {} are counted"));
    return same(count(BlockState::null), 1, "block_pool: {} blocks are null, expected {}");
}

Status BlockPool::check() const {
    constexpr uint32_t states = static_cast<uint32_t>(BlockState::null) + 1;
    for (uint32_t name = 0; name < kLists; ++name) QUIRE_TRY(check_list(name));
    uint32_t counts[states] = {};
    uint32_t left = 0;
    for (uint32_t i = 0; i < block_count(); ++i) {
        const Block &b = blocks_[i];
        auto state = static_cast<uint32_t>(b.state);
        if (state >= states || (b.state == BlockState::null) != (i == kNullBlock)) {
            return fail(QUIRE_E_INTERNAL, "block_pool: block {} is in invalid state {}", i, state);
        }
        ++counts[state];
        left += b.is_unscrubbed;
        bool is_unused = b.state == BlockState::free || b.state == BlockState::draining;
        if (is_unused) QUIRE_TRY(check_unused(i));
        if ((b.refs != 0) != (b.state == BlockState::held)) {
            return fail(QUIRE_E_INTERNAL,
                        "block_pool: block {} has {} references, which its state forbids", i,
                        b.refs);
        }
    }
    if (left != unscrubbed_.size()) {
        return fail(QUIRE_E_INTERNAL,
                    "block_pool: {} blocks wait to be scrubbed, but {} are listed", left,
                    unscrubbed_.size());
    }
    return check_counts(counts);
}

}  // namespace quire
