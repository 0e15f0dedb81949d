// SPDX-License-Identifier: Apache-2.0

#include "core/steps/leases.hpp"

namespace quire {

namespace {

constexpr const char *kNotHeld =
    "ids[{}] is {}: the lease does not hold that block, or not so often";
constexpr const char *kNotPublished =
    "ids[{}] is {}: the lease does not hold that block, and its namespace has not published it";

}  // namespace

Status Leases::create(const quire_lease_desc &desc, const quire_key *keys, uint64_t *out) {
    uint32_t ns = desc.ns == 0 ? Namespaces::kDefault : books_.namespaces.find(desc.ns);
    if (ns == kNone) return fail(QUIRE_E_STALE, "no such namespace");
    for (uint32_t i = 0; i < desc.key_count; ++i) {
        if (!is_span(keys[i])) continue;
        return fail(QUIRE_E_ARG, "keys[{}] is a span: a lease has keys of whole sequences only", i);
    }
    if (!books_.journal.open_leases()) return no_host_memory();
    Sequence fresh{};
    fresh.name_space = ns;
    fresh.is_lease = true;
    QUIRE_TRY(sequences_.enter(fresh, keys, desc.key_count, out));
    ++books_.namespaces[ns].leases;
    ++books_.leases;
    return Status{};
}

// The caller's work in any committed step may use the lease's blocks.
Status Leases::end(uint64_t handle) {
    uint32_t lease = 0;
    QUIRE_TRY(books_.find_lease(handle, &lease));
    Sequence &s = books_.sequences[lease];
    if (s.change != kNone) {
        return fail(QUIRE_E_BUSY, "the open step has changed the lease: commit or abort it first");
    }
    s.last_step = books_.timeline.next() - 1;
    --books_.namespaces[s.name_space].leases;
    --books_.leases;
    books_.journal.close_lease(lease, s.blocks_held);
    sequences_.leave(lease);
    return Status{};
}

Status Leases::info(uint64_t handle, quire_lease_info *out) const {
    uint32_t lease = 0;
    QUIRE_TRY(books_.find_lease(handle, &lease));
    const Sequence &s = books_.sequences[lease];
    if (s.name_space != Namespaces::kDefault) out->ns = books_.namespaces.handle(s.name_space);
    out->blocks_held = s.blocks_held;
    out->blocks_lost = s.blocks_lost;
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        const LeaseIndex &index = books_.journal.lease_index(lease, g);
        for (uint32_t i = 0; i < books_.journal.table(lease, g).length; ++i)
            out->holds += index.holds(i);
    }
    return Status{};
}

Status Leases::blocks(uint64_t handle, uint32_t group, uint32_t first, uint8_t *out,
                      uint32_t capacity, uint32_t stride, uint32_t *count) const {
    uint32_t lease = 0;
    QUIRE_TRY(books_.find_lease(handle, &lease));
    QUIRE_TRY(check_group(group));
    const BlockTable &t = books_.journal.table(lease, group);
    if (first > t.length)
        return fail(QUIRE_E_ARG, "first is {}: the lease holds {} blocks", first, t.length);
    *count = t.length;
    for (uint32_t i = 0; i < t.length - first && i < capacity; ++i) {
        uint32_t entry = first + i, block = t.ids.data[entry];
        const Block &b = books_.journal.pool(group)[block];
        uint32_t flags = b.node != kNone ? uint32_t{QUIRE_LEASE_PUBLISHED} : 0;
        if (b.owner == lease) flags |= QUIRE_LEASE_OWNED;
        const quire_lease_block full{static_cast<int32_t>(block),
                                     books_.journal.lease_index(lease, group).holds(entry), flags,
                                     0};
        std::memcpy(out + uint64_t{i} * stride, &full, sizeof full);
    }
    bool fits = t.length - first <= capacity;
    return Status{fits ? quire_status{QUIRE_OK} : quire_status{QUIRE_S_INCOMPLETE}, nullptr, 0, 0};
}

Status Leases::find(uint64_t step, uint64_t handle, StepRecord **record, uint32_t *lease) const {
    QUIRE_TRY(books_.records.find(step, true, record));
    QUIRE_TRY(books_.find_lease(handle, lease));
    if (!books_.is_unfinished_elsewhere(books_.sequences[*lease])) return Status{};
    return fail(QUIRE_E_BUSY, "the lease's last step, on another queue, is not finished");
}

Status Leases::find_at_rest(uint64_t handle, uint32_t *lease) const {
    QUIRE_TRY(books_.find_lease(handle, lease));
    if (!books_.records.is_open()) return Status{};
    return fail(QUIRE_E_BUSY, "a step is open: name it, or commit or abort it first");
}

Status Leases::check_group(uint32_t group) const {
    if (group < books_.geometry.group_count) return Status{};
    return fail(QUIRE_E_ARG, "group is {}: the cache has {}", group, books_.geometry.group_count);
}

bool Leases::may_hold(uint32_t lease, uint32_t group, uint32_t block) const {
    const Journal &journal = books_.journal;
    if (block == kNullBlock || block >= journal.pool(group).block_count()) return false;
    const BlockTable &t = journal.table(lease, group);
    if (journal.lease_index(lease, group).find(t, block) != kNone) return true;
    const uint32_t node = journal.pool(group)[block].node;
    if (node == kNone) return false;
    const Scopes &scopes = journal.tree().scopes();
    const uint32_t ns = books_.sequences[lease].name_space;
    if (journal.leases_only()) return scopes.account(journal.block_tree().root(block)) == ns;
    if (journal.tree().entry_of(node, group, block) == kNone) return false;
    return scopes.account(scopes.root_of(journal.tree().scope(node))) == ns;
}

void Leases::hold(uint32_t lease, uint32_t group, uint32_t block) {
    if (books_.journal.hold(&books_.sequences[lease], lease, group, block))
        books_.journal.add_ref(group, block);
}

Status Leases::reserve(uint32_t lease, uint64_t blocks, Room room) {
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        if (!books_.journal.reserve_holds(lease, g, blocks)) return no_host_memory();
    }
    return books_.records.reserve(1, room.edits, room.copies, 0) ? Status{} : no_host_memory();
}

Status Leases::reserve_places(uint32_t lease, uint64_t nodes, Room room) {
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        const uint64_t blocks = nodes * books_.geometry.groups[g].per_span;
        if (!books_.journal.reserve_holds(lease, g, blocks)) return no_host_memory();
    }
    return reserve(lease, 0, room);
}

Change *Leases::open_change(StepRecord *record, uint32_t lease) {
    Sequence &s = books_.sequences[lease];
    Change *change = record->changes.push_uninitialized();
    change->begin(ChangeKind::lease, lease, books_.handles.handle(lease), s.state);
    change->first_edit = static_cast<uint32_t>(record->edits.size());
    change->first_copy = static_cast<uint32_t>(record->copies.size());
    change->mask_at = record->mask_words.size();
    change->held_before = s.blocks_held;
    change->previous = s.change;
    s.change = static_cast<uint32_t>(record->changes.size() - 1);
    books_.journal.resume(record);
    return change;
}

void Leases::close_change(StepRecord *record, uint32_t lease) {
    books_.journal.pause();
    Change &change = record->changes[books_.sequences[lease].change];
    change.edit_end = static_cast<uint32_t>(record->edits.size());
    change.copy_end = static_cast<uint32_t>(record->copies.size());
    tenants_.charge_change(&change, change.held_before);
}

bool Leases::fits_quota(uint32_t lease, uint64_t more, quire_lease_result *result) const {
    const Namespace &ns = books_.namespaces[books_.sequences[lease].name_space];
    uint64_t over = ns.over_quota(ns.blocks_held + more);
    if (over == 0) return true;
    result->blocks_short = static_cast<uint32_t>(over);
    result->reason = QUIRE_WAIT_QUOTA;
    return false;
}

Status Leases::close_within_quota(StepRecord *record, uint32_t lease, uint32_t blocks,
                                  quire_lease_result *result) {
    close_change(record, lease);
    if (!fits_quota(lease, 0, result)) {
        undo_newest(record);
        return Status{QUIRE_S_NO_BLOCKS, nullptr, 0, 0};
    }
    result->blocks = blocks;
    return Status{};
}

// Takes all of it, or nothing.
Status Leases::take(uint64_t step, uint64_t handle, uint32_t group, uint32_t count, int32_t *ids,
                    quire_lease_result *result) {
    StepRecord *record = nullptr;
    uint32_t lease = 0;
    QUIRE_TRY(find(step, handle, &record, &lease));
    QUIRE_TRY(check_group(group));
    uint32_t available = books_.journal.pool(group).available(record->barrier);
    if (count > available) {
        result->blocks_short = count - available;
        result->reason = QUIRE_WAIT_POOL;
        return Status{QUIRE_S_NO_BLOCKS, nullptr, 0, 0};
    }
    if (!fits_quota(lease, count, result)) return Status{QUIRE_S_NO_BLOCKS, nullptr, 0, 0};
    Sequence &s = books_.sequences[lease];
    const Taker taker = tenants_.taker(lease, false);
    QUIRE_TRY(reserve(lease, count,
                      count * (books_.journal.take_room() + Journal::kHold) +
                          books_.journal.zeroes(count, taker)));
    const bool leases_only = books_.journal.leases_only();
    open_change(record, lease);
    for (uint32_t i = 0; i < count; ++i) {
        if (leases_only) books_.journal.make_unused(record->barrier);
        uint32_t block = books_.journal.take(group, record->barrier, taker);
        books_.journal.hold(&s, lease, group, block);
        ids[i] = static_cast<int32_t>(block);
    }
    close_change(record, lease);
    result->blocks = count;
    return Status{};
}

// Takes back what a call did before it found an id that it refuses.
Status Leases::refuse(StepRecord *record, uint32_t lease, uint32_t at, int32_t id,
                      const char *why) {
    close_change(record, lease);
    undo_newest(record);
    return fail(QUIRE_E_ARG, why, at, static_cast<uint32_t>(id));
}

Status Leases::give(uint64_t step, uint64_t handle, uint32_t group, const int32_t *ids,
                    uint32_t count) {
    if (step == 0) return give_at_once(handle, group, ids, count);
    StepRecord *record = nullptr;
    uint32_t lease = 0;
    QUIRE_TRY(find(step, handle, &record, &lease));
    QUIRE_TRY(check_group(group));
    QUIRE_TRY(reserve(lease, 0, count * (Journal::kHold + Journal::kDropRef)));
    Sequence &s = books_.sequences[lease];
    // The step waits for the lease's last one, and the caller's own work comes before the step's.
    const Journal::Letting how{s.last_step, true, false, true};
    open_change(record, lease);
    for (uint32_t i = 0; i < count; ++i) {
        if (books_.journal.let_hold_go(&s, lease, group, static_cast<uint32_t>(ids[i]), how))
            continue;
        return refuse(record, lease, i, ids[i], kNotHeld);
    }
    close_change(record, lease);
    return Status{};
}

Status Leases::pin(uint64_t step, uint64_t handle, uint32_t group, const int32_t *ids,
                   uint32_t count, quire_lease_result *result) {
    if (step == 0) return pin_at_once(handle, group, ids, count, result);
    StepRecord *record = nullptr;
    uint32_t lease = 0;
    QUIRE_TRY(find(step, handle, &record, &lease));
    QUIRE_TRY(check_group(group));
    QUIRE_TRY(reserve(lease, count, count * kHoldRoom));
    open_change(record, lease);
    for (uint32_t i = 0; i < count; ++i) {
        auto block = static_cast<uint32_t>(ids[i]);
        if (!may_hold(lease, group, block)) {
            return refuse(record, lease, i, ids[i], kNotPublished);
        }
        hold(lease, group, block);
    }
    return close_within_quota(record, lease, count, result);
}

// Final at once. ---------------------------------------------------------------------------------

// Nothing can be undone here, so each id first takes a hold away, and all of them are put back if
// one is wrong. Other queues use what is free then when all steps that are committed by now are
// done, as after end().
Status Leases::give_at_once(uint64_t handle, uint32_t group, const int32_t *ids, uint32_t count) {
    uint32_t lease = 0;
    QUIRE_TRY(find_at_rest(handle, &lease));
    QUIRE_TRY(check_group(group));
    if (!leaves_.reserve(count)) return no_host_memory();
    leaves_.resize_within(count);
    Journal &journal = books_.journal;
    const BlockTable &t = journal.table(lease, group);
    LeaseIndex &index = journal.lease_index(lease, group);
    for (uint32_t i = 0; i < count; ++i) {
        uint32_t entry = index.find(t, static_cast<uint32_t>(ids[i]));
        if (entry != kNone && index.holds(entry) != 0) [[likely]] {
            leaves_[i] = --index.holds(entry) == 0;
            continue;
        }
        const uint32_t wrong = i;
        while (i-- > 0) ++index.holds(index.find(t, static_cast<uint32_t>(ids[i])));
        return fail(QUIRE_E_ARG, kNotHeld, wrong, static_cast<uint32_t>(ids[wrong]));
    }
    Sequence &s = books_.sequences[lease];
    const uint32_t held_before = s.charged();
    for (uint32_t i = 0; i < count; ++i) {
        if (leaves_[i] == 0) continue;
        journal.lose_entry(&s, lease, group, index.find(t, static_cast<uint32_t>(ids[i])),
                           books_.timeline.next() - 1);
    }
    tenants_.charge(s, held_before);
    books_.touched.touch(lease);
    return Status{};
}

// Blocks that the lease does not hold yet are marked until all ids are known to be right, so that
// each counts once against the quota.
Status Leases::pin_at_once(uint64_t handle, uint32_t group, const int32_t *ids, uint32_t count,
                           quire_lease_result *result) {
    uint32_t lease = 0;
    QUIRE_TRY(find_at_rest(handle, &lease));
    QUIRE_TRY(check_group(group));
    if (!books_.journal.reserve_holds(lease, group, count)) return no_host_memory();
    BlockPool &pool = books_.journal.pool(group);
    const BlockTable &t = books_.journal.table(lease, group);
    LeaseIndex &index = books_.journal.lease_index(lease, group);
    uint32_t fresh = 0, checked = 0;
    for (; checked < count; ++checked) {
        const auto block = static_cast<uint32_t>(ids[checked]);
        if (!may_hold(lease, group, block)) break;
        if (index.find(t, block) != kNone || pool[block].is_offered) continue;
        pool[block].is_offered = true;
        ++fresh;
    }
    for (uint32_t i = 0; i < checked; ++i) pool[static_cast<uint32_t>(ids[i])].is_offered = false;
    if (checked != count) {
        return fail(QUIRE_E_ARG, kNotPublished, checked, static_cast<uint32_t>(ids[checked]));
    }
    if (!fits_quota(lease, fresh, result)) return Status{QUIRE_S_NO_BLOCKS, nullptr, 0, 0};
    const uint32_t held_before = books_.sequences[lease].charged();
    for (uint32_t i = 0; i < count; ++i) hold(lease, group, static_cast<uint32_t>(ids[i]));
    tenants_.charge(books_.sequences[lease], held_before);
    books_.touched.touch(lease);
    result->blocks = count;
    return Status{};
}

}  // namespace quire
