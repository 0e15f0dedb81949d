// SPDX-License-Identifier: Apache-2.0

#include "core/steps/told_blocks.hpp"

namespace quire {

ToldBlocks::ToldBlocks(const HostAllocator *host, Journal *journal, const Geometry *geometry,
                       const Namespaces *namespaces)
    : host_(host),
      tree_(journal->tree()),
      geometry_(*geometry),
      namespaces_(*namespaces),
      records_(host),
      record_of_(host),
      path_(host),
      removed_(host),
      changed_(host),
      slots_(host),
      keys_(host),
      tokens_(host),
      named_(host),
      keyed_(host) {}

bool ToldBlocks::create() {
    is_active_ = true;
    return tree_.watch() && reserve();
}

// Each node may have a record. With a store, so may one that was there before it, which the reader
// does not know to be gone, and each block of the store.
bool ToldBlocks::reserve() {
    const uint64_t nodes = tree_.capacity();
    const uint64_t wanted = is_open() ? 2 * nodes + most_stored_ : nodes;
    if (record_of_.size() >= nodes && records_.size() >= wanted) return true;
    Array<ToldBlock> records(host_);
    Array<uint32_t> record_of(host_), path(host_);
    if (!records.create(wanted) || !record_of.create(nodes) || !path.create(nodes)) return false;
    if (is_open() && (!removed_.watch(static_cast<uint32_t>(wanted)) ||
                      !changed_.watch(static_cast<uint32_t>(wanted)))) {
        return false;
    }
    for (uint32_t i = 0; i < used_; ++i) records[i] = records_[i];
    for (uint64_t i = 0; i < nodes; ++i)
        record_of[i] = i < record_of_.size() ? record_of_[i] : kNone;
    records_.swap(records);
    record_of_.swap(record_of);
    path_.swap(path);
    return true;
}

bool ToldBlocks::open(BlockNames *names, uint32_t most, uint32_t level) {
    if (!is_active_) return true;
    const uint64_t buckets = next_power_of_two(uint64_t{most} * 2);
    names_ = names;
    most_stored_ = most;
    const bool ok = slots_.create(most) && keys_.create(uint64_t{most} * group_count()) &&
                    tokens_.reserve(uint64_t{most} * geometry_.span.tokens()) &&
                    named_.create(buckets) && keyed_.create(buckets) && reserve();
    if (!ok) {
        close();
        return false;
    }
    tokens_.resize_within(uint64_t{most} * geometry_.span.tokens());
    for (uint32_t &head : named_) head = kNone;
    for (uint32_t &head : keyed_) head = kNone;
    for (uint32_t i = 0; i < most; ++i) slots_[i].newer = i + 1 < most ? i + 1 : kNone;
    free_slot_ = 0;
    slots_used_ = 0;
    oldest_ = newest_ = kNone;
    level_ = level;
    return true;
}

void ToldBlocks::close() {
    if (!is_open()) return;
    remove_all();
    names_ = nullptr;
    slots_.clear();
    keys_.clear();
    tokens_.clear();
    named_.clear();
    keyed_.clear();
}

uint32_t ToldBlocks::find_name(const Id &name) const {
    uint32_t slot = named_[bucket_of(name)];
    while (slot != kNone && !(slots_[slot].name == name)) slot = slots_[slot].next_named;
    return slot;
}

uint32_t ToldBlocks::find_key(const Id &key) const {
    uint32_t entry = keyed_[bucket_of(key)];
    while (entry != kNone && !(keys_[entry].id == key)) entry = keys_[entry].next;
    return entry;
}

// The record of the node's content, if the store has that; else kNone.
uint32_t ToldBlocks::find_named(uint32_t node) const {
    Digest name;
    if (slots_used_ == 0 || !names_->name_of(node, &name)) return kNone;
    const uint32_t slot = find_name(id_of(name.bytes));
    return slot != kNone ? slots_[slot].record : kNone;
}

const uint32_t *ToldBlocks::tokens(uint32_t record) const {
    const ToldBlock &r = records_[record];
    if (is_current(record)) return tree_.tokens(r.node);
    return tokens_.data() + uint64_t{r.slot} * geometry_.span.tokens();
}

// A root's words begin with its namespace's number and its count of keys: see encode_root().
quire_namespace ToldBlocks::namespace_of(uint32_t root) const {
    const uint32_t *words = tree_.scopes().words(root);
    uint64_t number = uint64_t{words[1]} << 32 | words[0];
    return number != 0 ? make_handle(HandleType::name_space, number) : 0;
}

bool ToldBlocks::gives_tokens(quire_namespace ns) const {
    uint32_t index = ns != 0 ? namespaces_.find(ns) : Namespaces::kDefault;
    return index != Namespaces::kNone && namespaces_[index].gives_tokens;
}

void ToldBlocks::hang(uint32_t record, List list) {
    ToldBlock &r = records_[record];
    r.prev = r.next = kNone;
    if (r.parent == kNone) return;
    uint32_t &head = records_[r.parent].children[list];
    r.next = head;
    if (head != kNone) records_[head].prev = record;
    head = record;
}

void ToldBlocks::unhang(uint32_t record, List list) {
    const ToldBlock &r = records_[record];
    if (r.next != kNone) records_[r.next].prev = r.prev;
    if (r.prev != kNone) {
        records_[r.prev].next = r.next;
    } else if (r.parent != kNone) {
        records_[r.parent].children[list] = r.next;
    }
}

uint32_t ToldBlocks::make(uint32_t node, uint32_t above) {
    const uint32_t record = free_ != kNone ? free_ : used_;
    if (record == records_.size()) return kNone;
    if (free_ != kNone) {
        free_ = records_[record].next;
    } else {
        ++used_;
    }
    ++in_use_;
    ToldBlock r;
    r.in_use = true;
    r.node = node;
    r.generation = tree_.generation(node);
    r.parent = above;
    const uint32_t scope = tree_.scope(node), root = tree_.scopes().root_of(scope);
    r.ns = namespace_of(root);
    if (above != kNone) {
        r.position = records_[above].position + geometry_.span.tokens();
        r.flags = records_[above].flags & QUIRE_EVENT_KEYED;
    }
    if (scope != root || tree_.scopes().words(root)[2] != 0) r.flags |= QUIRE_EVENT_KEYED;
    if (gives_tokens(r.ns)) r.flags |= QUIRE_EVENT_HAS_TOKENS;
    records_[record] = r;
    record_of_[node] = record;
    hang(record, kWithNode);
    return record;
}

uint32_t ToldBlocks::enter(uint32_t node, uint32_t above) {
    if (const uint32_t older = record_of_[node]; older != kNone) {
        removed_.touch(older);
        free_unused(older);
    }
    const uint32_t known = is_open() ? find_named(node) : kNone;
    if (known == kNone || records_[known].node != kNone || records_[known].parent != above)
        return make(node, above);
    unhang(known, kOrphans);
    records_[known].node = node;
    records_[known].generation = tree_.generation(node);
    record_of_[node] = known;
    hang(known, kWithNode);
    return known;
}

void ToldBlocks::leave_node(uint32_t record) {
    ToldBlock &r = records_[record];
    QUIRE_ASSERT(r.children[kWithNode] == kNone);
    if (r.node != kNone) {
        // Out of reach, perhaps only for this record.
        if (is_current(record)) tree_.changed().touch(r.node);
        if (record_of_[r.node] == record) record_of_[r.node] = kNone;
        unhang(record, kWithNode);
        r.node = kNone;
        hang(record, kOrphans);
        changed_.touch(record);
    }
    if (r.slot == kNone) free(record);
}

void ToldBlocks::free(uint32_t record) {
    ToldBlock &r = records_[record];
    QUIRE_ASSERT(r.node == kNone && r.slot == kNone && r.children[kOrphans] == kNone);
    unhang(record, kOrphans);
    r = ToldBlock{};
    r.next = free_;
    free_ = record;
    --in_use_;
}

// Frees the record, and then those above it, while they are nowhere and no reader knows them.
void ToldBlocks::free_unused(uint32_t record) {
    while (record != kNone) {
        const ToldBlock &r = records_[record];
        if (r.number != 0 || r.slot != kNone || is_current(record)) return;
        if (r.children[kWithNode] != kNone || r.children[kOrphans] != kNone) return;
        const uint32_t above = r.parent;
        leave_node(record);
        record = above;
    }
}

// The record that stands for the node's content. It is made if there is none, with those above it.
uint32_t ToldBlocks::record_for(uint32_t node) {
    uint32_t above = kNone, depth = 0;
    for (uint32_t at = node; above == kNone; at = tree_.parent(at)) {
        if (at == kNone) return kNone;
        const uint32_t own = record_of_[at];
        above = own != kNone && is_current(own) ? own : find_named(at);
        if (above != kNone && records_[above].node != kNone) break;
        above = kNone;
        path_[depth++] = at;
        if (tree_.is_first(at)) break;
    }
    while (depth != 0) {
        above = enter(path_[--depth], above);
        if (above == kNone) return kNone;
    }
    return above;
}

// A slot for the record, noted just before that of the block above it.
void ToldBlocks::insert_slot(uint32_t slot, uint32_t above) {
    const uint32_t newer = above != kNone ? records_[above].slot : kNone;
    const uint32_t older = newer != kNone ? slots_[newer].older : newest_;
    slots_[slot].older = older;
    slots_[slot].newer = newer;
    (older != kNone ? slots_[older].newer : oldest_) = slot;
    (newer != kNone ? slots_[newer].older : newest_) = slot;
}

uint32_t ToldBlocks::take_slot(uint32_t record, uint32_t node, const Id &name) {
    if (free_slot_ == kNone) {
        const uint32_t first = slots_[oldest_].record;
        forget_stored(first);
        if (first != record) free_unused(first);
    }
    const uint32_t slot = free_slot_;
    free_slot_ = slots_[slot].newer;
    ++slots_used_;
    slots_[slot] = Slot{name, record, 0, named_[bucket_of(name)], kNone, kNone};
    named_[bucket_of(name)] = slot;
    insert_slot(slot, records_[record].parent);
    records_[record].slot = slot;
    std::memcpy(tokens_.data() + uint64_t{slot} * geometry_.span.tokens(), tree_.tokens(node),
                uint64_t{geometry_.span.tokens()} * sizeof(uint32_t));
    return slot;
}

void ToldBlocks::free_slot(uint32_t slot) {
    Slot &s = slots_[slot];
    uint32_t *link = &named_[bucket_of(s.name)];
    while (*link != slot) link = &slots_[*link].next_named;
    *link = s.next_named;
    (s.older != kNone ? slots_[s.older].newer : oldest_) = s.newer;
    (s.newer != kNone ? slots_[s.newer].older : newest_) = s.older;
    records_[s.record].slot = kNone;
    s.newer = free_slot_;
    free_slot_ = slot;
    --slots_used_;
}

void ToldBlocks::remove_key(uint32_t entry) {
    uint32_t *link = &keyed_[bucket_of(keys_[entry].id)];
    while (*link != entry) link = &keys_[*link].next;
    *link = keys_[entry].next;
    const uint32_t slot = entry / group_count(), record = slots_[slot].record;
    slots_[slot].groups &= ~(1u << entry % group_count());
    removed_.touch(record);
    if (slots_[slot].groups == 0) free_slot(slot);
}

void ToldBlocks::add(uint32_t node, const Digest &name, uint32_t group, const uint8_t key[32]) {
    const Id own = id_of(key);
    if (!is_open() || find_key(own) != kNone || !reserve()) return;
    uint32_t slot = find_name(id_of(name.bytes));
    if (slot == kNone) {
        const uint32_t record = record_for(node);
        if (record == kNone) return;
        slot = records_[record].slot;
        if (slot == kNone) slot = take_slot(record, node, id_of(name.bytes));
    }
    const uint32_t entry = slot * group_count() + group;
    keys_[entry] = Key{own, keyed_[bucket_of(own)]};
    keyed_[bucket_of(own)] = entry;
    slots_[slot].groups |= 1u << group;
    changed_.touch(slots_[slot].record);
}

void ToldBlocks::remove(const uint8_t key[32]) {
    if (slots_used_ == 0) return;
    const uint32_t entry = find_key(id_of(key));
    if (entry == kNone) return;
    const uint32_t record = slots_[entry / group_count()].record;
    remove_key(entry);
    free_unused(record);
}

void ToldBlocks::forget_stored(uint32_t record) {
    const uint32_t slot = records_[record].slot;
    for (uint32_t g = 0; g < group_count() && records_[record].slot != kNone; ++g) {
        if ((slots_[slot].groups >> g & 1) != 0) remove_key(slot * group_count() + g);
    }
}

void ToldBlocks::remove_all() {
    while (oldest_ != kNone) {
        const uint32_t record = slots_[oldest_].record;
        forget_stored(record);
        free_unused(record);
    }
}

void ToldBlocks::forget_namespace(quire_namespace ns) {
    if (slots_used_ == 0) return;
    for (uint32_t slot = oldest_, newer = kNone; slot != kNone; slot = newer) {
        newer = slots_[slot].newer;
        if (records_[slots_[slot].record].ns == ns) forget_stored(slots_[slot].record);
    }
}

Status ToldBlocks::check_record(uint32_t record) const {
    const ToldBlock &r = records_[record];
    const List list = r.node != kNone ? kWithNode : kOrphans;
    const uint32_t before = r.prev != kNone     ? records_[r.prev].next
                            : r.parent != kNone ? records_[r.parent].children[list]
                                                : record;
    if (before != record || (r.parent != kNone && !records_[r.parent].in_use))
        return fail(QUIRE_E_INTERNAL, "told_blocks: record {} is not on the list of {}", record,
                    r.parent);
    if (r.node == kNone && r.children[kWithNode] != kNone)
        return fail(QUIRE_E_INTERNAL, "told_blocks: below the orphan {} is one with a node, {}",
                    record, r.children[kWithNode]);
    if (is_current(record) && record_of_[r.node] != record)
        return fail(QUIRE_E_INTERNAL, "told_blocks: record {} names node {}, which has another",
                    record, r.node);
    if (r.slot == kNone || (r.slot < slots_.size() && slots_[r.slot].record == record))
        return Status{};
    return fail(QUIRE_E_INTERNAL, "told_blocks: record {} and its slot {} disagree", record,
                r.slot);
}

Status ToldBlocks::check_slots() const {
    uint32_t count = 0, older = kNone;
    for (uint32_t slot = oldest_; slot != kNone; older = slot, slot = slots_[slot].newer) {
        const Slot &s = slots_[slot];
        if (++count > slots_used_ || s.older != older || s.groups == 0 ||
            records_[s.record].slot != slot || find_name(s.name) != slot) {
            return fail(QUIRE_E_INTERNAL, "told_blocks: slot {} of record {} is broken", slot,
                        s.record);
        }
        for (uint32_t g = 0; g < group_count(); ++g) {
            const uint32_t entry = slot * group_count() + g;
            if ((s.groups >> g & 1) != 0 && find_key(keys_[entry].id) != entry)
                return fail(QUIRE_E_INTERNAL, "told_blocks: slot {} is not found by group {}", slot,
                            g);
        }
    }
    if (count == slots_used_ && newest_ == older) return Status{};
    return fail(QUIRE_E_INTERNAL, "told_blocks: {} slots are in use, and {} listed", slots_used_,
                count);
}

Status ToldBlocks::check() const {
    uint32_t count = 0;
    for (uint32_t i = 0; i < used_; ++i) {
        if (!records_[i].in_use) continue;
        ++count;
        QUIRE_TRY(check_record(i));
    }
    if (count != in_use_)
        return fail(QUIRE_E_INTERNAL, "told_blocks: {} records are in use, and {} counted", count,
                    in_use_);
    return is_open() ? check_slots() : Status{};
}

}  // namespace quire
