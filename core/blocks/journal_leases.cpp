// SPDX-License-Identifier: Apache-2.0
//
// The blocks that leases hold. A lease's tables have no gap and no order: a block that leaves one
// is replaced by the table's last block.

#include "core/blocks/journal.hpp"

namespace quire {

namespace {

constexpr uint32_t kEntryAhead = 12;  // how many blocks ahead a run's entries are prefetched

}  // namespace

// Every entry after the gap that lies between its home and its place would no longer be reached, so
// the nearest of them moves into the gap, and leaves another.
void LeaseIndex::leave(const BlockTable &t, uint32_t block) {
    uint32_t gap = place_of(t, block);
    if (is_direct_) {
        places_.data[gap] = 0;
        return;
    }
    for (uint32_t at = (gap + 1) & mask(); places_.data[at] != 0; at = (at + 1) & mask()) {
        uint32_t distance = (at - home(t.ids.data[places_.data[at] - 1])) & mask();
        if (distance < ((at - gap) & mask())) continue;
        places_.data[gap] = places_.data[at];
        gap = at;
    }
    places_.data[gap] = 0;
}

bool LeaseIndex::holds_once(const BlockTable &t, const uint32_t *blocks, uint32_t count) const {
    const uint32_t *holds = holds_.data, *places = places_.data;
    uint32_t more = 0;
    for (uint32_t i = 0; is_direct_ && i < count; ++i) more |= holds[places[blocks[i]] - 1] ^ 1;
    for (uint32_t i = 0; !is_direct_ && i < count; ++i) {
        if (i + kEntryAhead < count) prefetch(blocks[i + kEntryAhead]);
        more |= holds[places[place_of(t, blocks[i])] - 1] ^ 1;
    }
    return more == 0;
}

uint32_t LeaseIndex::remove_run(BlockTable *t, const uint32_t *blocks, uint32_t count) {
    uint32_t *ids = t->ids.data, *holds = holds_.data, *places = places_.data;
    uint32_t last = t->length;
    for (uint32_t i = count; is_direct_ && i-- > 0;) {
        const uint32_t block = blocks[i], entry = places[block] - 1;
        if (holds[entry] != 1) [[unlikely]] {
            --holds[entry];
            continue;
        }
        const uint32_t moved = ids[--last];
        places[moved] = entry + 1;
        places[block] = 0;  // which may be the one that moved
        ids[entry] = moved;
        holds[entry] = holds[last];
    }
    for (uint32_t i = count; !is_direct_ && i-- > 0;) {
        const uint32_t block = blocks[i], entry = places[place_of(*t, block)] - 1;
        if (--holds[entry] != 0) continue;
        const uint32_t moved = ids[--last];
        leave(*t, block);
        if (moved != block) move(*t, moved, entry);
        ids[entry] = moved;
        holds[entry] = holds[last];
    }
    const uint32_t removed = t->length - last;
    t->length = last;
    return removed;
}

void LeaseIndex::enter_all(const BlockTable &t, uint32_t pool_blocks) {
    if (places_.capacity == 0) return;
    is_direct_ = pool_blocks <= places_.capacity;
    std::memset(places_.data, 0, uint64_t{places_.capacity} * sizeof(uint32_t));
    for (uint32_t i = 0; i < t.length; ++i) enter(t, i);
}

bool Journal::open_leases() {
    return lease_indexes_.size() != 0 || lease_indexes_.create(tables_.size());
}

void Journal::close_lease(uint32_t lease, uint32_t held) {
    leased_ -= held;
    for (uint32_t g = 0; g < group_count_; ++g) lease_index(lease, g).give_back(&buffers_);
}

bool Journal::reserve_holds(uint32_t lease, uint32_t group, uint64_t count) {
    BlockTable &t = table(lease, group);
    uint64_t entries = t.length + count;
    if (entries > UINT32_MAX / 4) return false;
    return buffers_.grow(&t.ids, static_cast<uint32_t>(entries), t.length) &&
           lease_index(lease, group)
               .reserve(&buffers_, t, static_cast<uint32_t>(entries), pools_[group]->block_count());
}

void Journal::add_entry(Sequence *s, uint32_t lease, uint32_t group, uint32_t block) {
    BlockTable &t = table(lease, group);
    QUIRE_ASSERT(t.length < t.ids.capacity);
    t.ids.data[t.length] = block;
    lease_index(lease, group).holds(t.length) = 1;
    lease_index(lease, group).enter(t, t.length++);
    ++s->blocks_held;
    ++leased_;
}

void Journal::remove_entry(Sequence *s, uint32_t lease, uint32_t group, uint32_t entry) {
    BlockTable &t = table(lease, group);
    LeaseIndex &index = lease_index(lease, group);
    index.leave(t, t.ids.data[entry]);
    uint32_t last = t.length - 1;
    if (entry != last) {
        index.move(t, t.ids.data[last], entry);
        t.ids.data[entry] = t.ids.data[last];
        index.holds(entry) = index.holds(last);
    }
    t.length = last;
    ++t.epoch;
    --s->blocks_held;
    --leased_;
}

bool Journal::remove_run(Sequence *s, uint32_t lease, uint32_t group, const uint32_t *blocks,
                         uint32_t count) {
    BlockTable &t = table(lease, group);
    const uint32_t removed = lease_index(lease, group).remove_run(&t, blocks, count);
    ++t.epoch;
    s->blocks_held -= removed;
    leased_ -= removed;
    return removed == count;
}

// Brings a removed block back to the entry that it had.
void Journal::restore_entry(Sequence *s, const Hold &edit) {
    BlockTable &t = table(edit.lease, edit.group);
    LeaseIndex &index = lease_index(edit.lease, edit.group);
    uint32_t last = t.length++;
    if (edit.entry != last) {
        uint32_t moved = t.ids.data[edit.entry];
        t.ids.data[last] = moved;
        index.holds(last) = index.holds(edit.entry);
        index.move(t, moved, last);
    }
    t.ids.data[edit.entry] = edit.block;
    index.enter(t, edit.entry);
    ++t.epoch;
    ++s->blocks_held;
    ++leased_;
}

bool Journal::hold(Sequence *s, uint32_t lease, uint32_t group, uint32_t block) {
    LeaseIndex &index = lease_index(lease, group);
    uint32_t entry = index.find(table(lease, group), block);
    bool is_new = entry == kNone;
    if (is_new) entry = table(lease, group).length;
    note(Hold{lease, block, entry, is_new ? 0 : index.holds(entry), static_cast<uint8_t>(group)});
    is_new ? add_entry(s, lease, group, block) : void(++index.holds(entry));
    return is_new;
}

bool Journal::let_hold_go(Sequence *s, uint32_t lease, uint32_t group, uint32_t block,
                          const Letting &how) {
    LeaseIndex &index = lease_index(lease, group);
    uint32_t entry = index.find(table(lease, group), block);
    if (entry == kNone) return false;
    note(Hold{lease, block, entry, index.holds(entry), static_cast<uint8_t>(group)});
    if (--index.holds(entry) != 0) return true;
    remove_entry(s, lease, group, entry);
    let_go(group, block, lease, how);
    return true;
}

void Journal::undo_hold(const Hold &edit, Sequence *s) {
    LeaseIndex &index = lease_index(edit.lease, edit.group);
    uint32_t entry = index.find(table(edit.lease, edit.group), edit.block);
    if (edit.holds == 0) {
        remove_entry(s, edit.lease, edit.group, entry);
        return;
    }
    if (entry == kNone) restore_entry(s, edit);
    index.holds(edit.entry) = edit.holds;
}

void Journal::let_run_go(Sequence *s, uint32_t lease, uint32_t group, const uint32_t *blocks,
                         uint32_t count) {
    BlockTable &t = table(lease, group);
    LeaseIndex &index = lease_index(lease, group);
    const uint64_t last_step = timeline_->next() - 1;
    if (index.holds_once(t, blocks, count)) [[likely]] {
        remove_run(s, lease, group, blocks, count);
        pools_[group]->cache_run(blocks, count, last_step);
        return;
    }
    for (uint32_t i = count; i-- > 0;) {
        const uint32_t entry = index.find(t, blocks[i]);
        if (--index.holds(entry) == 0) lose_entry(s, lease, group, entry, last_step);
    }
}

void Journal::lose_entry(Sequence *s, uint32_t lease, uint32_t group, uint32_t entry,
                         uint64_t touch) {
    uint32_t block = table(lease, group).ids.data[entry];
    remove_entry(s, lease, group, entry);
    drop_ref(group, block, touch);
    disown(group, block, lease);
}

}  // namespace quire
