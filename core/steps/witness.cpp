// SPDX-License-Identifier: Apache-2.0

#include "core/steps/witness.hpp"

#include <algorithm>

namespace quire {

bool Witness::reserve(const StepRecord &record, uint64_t unscrubbed_count) {
    uint64_t count = 2 * (record.copies.size() + unscrubbed_count);
    for (const Change &change : record.changes) {
        if (change.kind != ChangeKind::item) continue;
        for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
            count += books_.journal.table(change.sequence, g).length;
        }
    }
    Array<Seen> &seen = seen_[Timeline::ring_index(record.number)];
    seen.shrink(0);
    return seen.reserve(count);
}

void Witness::note_table(const StepRecord &record, const Change &change, uint32_t group) {
    const Sequence &s = books_.sequences[change.sequence];
    const BlockTable &t = books_.journal.table(change.sequence, group);
    bool cross = books_.geometry.groups[group].cross;
    const BlockSize size = books_.geometry.groups[group].size;
    uint32_t written = cross ? 0 : change.first_position;
    uint32_t end = cross ? change.cross_tokens
                         : change.first_position + change.compute_count + s.state.lookahead;
    uint32_t known = cross ? s.cross_tokens : end;
    auto within = [&](uint32_t position, uint32_t first) {
        return std::min(position > first ? position - first : 0u, size.tokens());
    };
    for (uint32_t k = 0; k < t.length; ++k) {
        uint32_t first = size.first_token(k);
        if (t.ids.data[k] == kNullBlock) continue;
        note(Seen{record.number, group, t.ids.data[k], change.sequence, within(known, first),
                  within(written, first), within(end, first), false});
    }
}

// Counts the slots of a copy's source that are wanted. A block is copied whole, and the owner may
// still write the slots after those that the copy's sequence has computed.
uint32_t Witness::wanted_slots(const Change &change, const quire_block_copy &copy) const {
    const BlockSize size = books_.geometry.groups[copy.group].size;
    uint32_t all = size.tokens();
    if (books_.geometry.groups[copy.group].recurrent) return all;  // a state is not of single slots
    if (copy.kind == QUIRE_COPY_ON_WRITE) return size.slot_of(change.first_position);
    if (copy.kind != QUIRE_COPY_SWAP_OUT || books_.geometry.groups[copy.group].cross) return all;
    const BlockTable &t = books_.journal.table(change.sequence, copy.group);
    uint32_t k = 0;
    while (k < t.length && t.ids.data[k] != static_cast<uint32_t>(copy.dst)) ++k;
    uint32_t first = size.first_token(k), computed = change.before.computed;
    return std::min(computed > first ? computed - first : 0u, all);
}

void Witness::note_copy(const StepRecord &record, const quire_block_copy &copy, uint32_t wanted) {
    uint32_t all = books_.geometry.groups[copy.group].size.tokens();
    bool one = copy.kind == QUIRE_COPY_TOKEN;
    if (copy.kind == kVoidCopy) return;
    if (copy.kind != QUIRE_COPY_ZERO) {
        note(Seen{record.number, copy.group, static_cast<uint32_t>(copy.src), kNone,
                  one ? copy.src_place + 1 : wanted, 0, 0, copy.kind == QUIRE_COPY_SWAP_IN});
    }
    note(Seen{record.number, copy.group, static_cast<uint32_t>(copy.dst), kNone, 0,
              one ? copy.dst_place : 0, one ? copy.dst_place + 1 : all,
              copy.kind == QUIRE_COPY_SWAP_OUT});
}

void Witness::note_step(const StepRecord &record) {
    uint64_t at = 0;  // the next copy; those of no item or victim are zeroes
    auto copies_until = [&](uint64_t end, const Change *change) {
        for (; at < end; ++at) {
            const quire_block_copy &copy = record.copies[at];
            uint32_t wanted = change != nullptr ? wanted_slots(*change, copy) : 0;
            note_copy(record, copy, wanted);
        }
    };
    for (const Change &change : record.changes) {
        if (change.kind == ChangeKind::dropped) continue;
        copies_until(change.first_copy, nullptr);
        copies_until(change.copy_end, &change);
        if (change.kind != ChangeKind::item) continue;
        for (uint32_t g = 0; g < books_.geometry.group_count; ++g) note_table(record, change, g);
    }
    copies_until(record.copies.size(), nullptr);
}

}  // namespace quire
