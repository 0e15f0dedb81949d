// SPDX-License-Identifier: Apache-2.0

#include "core/steps/preemption.hpp"

#include <algorithm>

namespace quire {

namespace {

constexpr Room kSwapOutRoom =  // of one block
    Journal::kTakeHost + Journal::kCopy + Journal::kSetEntry + Journal::kDropRef;
constexpr Room kDropBlockRoom = Journal::kDropRef;

}  // namespace

void Preemption::create(const quire_cache_desc &desc) {
    victim_order_ = desc.victim;
    swap_cost_ = SwapCost{static_cast<double>(desc.swap_bytes_per_second),
                          static_cast<double>(desc.prefill_tokens_per_second)};
}

Candidate Preemption::candidate(const Sequence &s) const {
    uint64_t resumed = s.state.resumed_step;
    return Candidate{s.state.admitted, s.priority,
                     resumed != 0 && resumed + 1 == books_.timeline.next()};
}

bool Preemption::may_be_victim(const Sequence &s) const {
    return !s.is_lease && !books_.is_unfinished_elsewhere(s) && s.change == kNone &&
           s.blocks_held != 0 && s.state.drafts == 0 &&
           (s.state.flags & (Sequence::kSwapped | Sequence::kLent)) == 0;
}

// Fills victims_, as a heap with the first victim on top. A sequence that came back in the last
// step is left alone while there is another.
bool Preemption::gather_victims(uint32_t sequence, VictimScope scope) {
    bool by_priority = victim_order_ == QUIRE_VICTIM_PRIORITY;
    Candidate self = candidate(books_.sequences[sequence]);
    uint32_t own = books_.sequences[sequence].name_space;
    victims_.shrink(0);
    if (!victims_.reserve(books_.handles.live())) return false;
    for (uint32_t i = 0; i < books_.sequences.size(); ++i) {
        if (!books_.handles.is_live(i) || i == sequence) continue;
        const Sequence &s = books_.sequences[i];
        if (!may_be_victim(s) || (scope == kOfNamespace && s.name_space != own)) continue;
        Candidate c = candidate(s);
        if (gives_way_before(c, self, by_priority)) victims_.push(Victim{c, i});
    }
    std::make_heap(victims_.begin(), victims_.end(), VictimOrder{by_priority});
    return true;
}

// Takes the next of victims_, or kNone.
uint32_t Preemption::next_victim() {
    if (victims_.empty()) return kNone;
    VictimOrder order{victim_order_ == QUIRE_VICTIM_PRIORITY};
    std::pop_heap(victims_.begin(), victims_.end(), order);
    uint32_t sequence = victims_[victims_.size() - 1].sequence;
    victims_.shrink(victims_.size() - 1);
    return sequence;
}

bool Preemption::host_has_room(uint32_t sequence) const {
    uint64_t needed[kMaxGroups] = {};
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        const BlockTable &t = books_.journal.table(sequence, g);
        needed[books_.geometry.pool_of(g)] +=
            books_.geometry.groups[g].held_entries(t.length, t.null_front);
    }
    for (uint32_t p = 0; p < books_.journal.pool_count(); ++p) {
        const BlockPool *host = books_.journal.host_pool(p);
        uint32_t available = host != nullptr ? host->available(books_.records.open().barrier) : 0;
        if (needed[p] > available) return false;
    }
    return true;
}

uint64_t Preemption::held_bytes(uint32_t sequence) const {
    uint64_t bytes = 0;
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        const BlockTable &t = books_.journal.table(sequence, g);
        const GroupGeometry &group = books_.geometry.groups[g];
        bytes +=
            static_cast<uint64_t>(group.block_stride) * group.held_entries(t.length, t.null_front);
    }
    return bytes;
}

// Replaces the table's entries by blocks of the host tier and gives back those on the device. The
// tail goes first, so that what stays cached is evicted from its end.
void Preemption::swap_out(uint32_t sequence, uint32_t group) {
    Sequence &s = books_.sequences[sequence];
    BlockTable &t = books_.journal.table(sequence, group);
    for (uint32_t i = t.length; i-- > 0;) {
        uint32_t block = t.ids.data[i];
        if (block == kNullBlock) continue;
        uint32_t host_block = books_.journal.take_host(group, books_.records.open().barrier);
        books_.journal.copy(QUIRE_COPY_SWAP_OUT, group, block, host_block);
        books_.journal.set_entry(&s, sequence, group, i, host_block);
        books_.journal.let_go(group, block, sequence, {s.last_step, true, false, true});
    }
}

void Preemption::drop_blocks(uint32_t sequence, uint32_t group) {
    Sequence &s = books_.sequences[sequence];
    BlockTable &t = books_.journal.table(sequence, group);
    bool runs_elsewhere = !books_.timeline.has_run(s.last_step) &&
                          books_.timeline.queue_of(s.last_step) != books_.records.open().queue;
    bool waits_here = !runs_elsewhere && !books_.timeline.done(s.last_step);
    for (uint32_t i = t.length; i-- > 0;) {
        if (t.ids.data[i] == kNullBlock) continue;
        books_.journal.let_go(group, t.ids.data[i], sequence,
                              {s.last_step, false, runs_elsewhere, waits_here});
        --s.blocks_held;
    }
    t.length = t.null_front = 0;
    t.writable = kNone;
    ++t.epoch;
}

Status Preemption::give_up_next(uint64_t for_seq, bool *given) {
    uint32_t victim = next_victim();
    *given = victim != kNone;
    if (!*given) return Status{};
    bool room = host_has_room(victim);
    uint32_t how = choose_preemption(books_.records.open().preempt, room, held_bytes(victim),
                                     books_.sequences[victim].state.computed, swap_cost_);
    if (how == QUIRE_PREEMPT_SWAP && !room) how = QUIRE_PREEMPT_RECOMPUTE;
    return give_up(victim, how, for_seq);
}

// The sequence's state once its blocks are given up.
void Preemption::note_given_up(uint32_t sequence, uint32_t how) {
    const Sequence &s = books_.sequences[sequence];
    SequenceState &state = books_.sequences[sequence].state;
    state.flags |= Sequence::kPreempted;
    ++state.preemptions;
    state.lookahead = 0;
    if (how == QUIRE_PREEMPT_SWAP) {
        state.flags |= Sequence::kSwapped;
        if (state.move_count != 0) state.computed = state.move_begin;
    } else {
        state.computed = 0;
        state.flags &= ~Sequence::kUnpublished;  // all of it will be computed again
    }
    state.move_count = 0;
    Sequence &own = books_.sequences[sequence];
    own.fewest_computed = std::min(own.fewest_computed, state.computed);
    state.published = 0;
    state.cursor = books_.journal.tree().root_cursor(s.root);
}

// how: SWAP, which requires room in the host tier, or RECOMPUTE.
Status Preemption::give_up(uint32_t sequence, uint32_t how, uint64_t for_seq) {
    StepRecord &record = books_.records.open();
    Sequence &s = books_.sequences[sequence];
    // All of its tokens are still to be moved as accepted drafts, so a swap would keep nothing.
    if (s.state.move_count != 0 && s.state.move_begin == 0) how = QUIRE_PREEMPT_RECOMPUTE;
    Room room;
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        uint64_t length = books_.journal.table(sequence, g).length;
        Room each = how == QUIRE_PREEMPT_SWAP ? kSwapOutRoom : kDropBlockRoom;
        room = room + Journal::kNoteShape + length * each;
    }
    if (!books_.records.reserve(1, room.edits, room.copies, 1)) return no_host_memory();
    Change change;
    change.begin(ChangeKind::victim, sequence, books_.handles.handle(sequence), s.state);
    change.first_edit = static_cast<uint32_t>(record.edits.size());
    change.first_copy = static_cast<uint32_t>(record.copies.size());
    change.mask_at = record.mask_words.size();
    record.preemptions.push(quire_preemption{books_.handles.handle(sequence), how,
                                             for_seq != 0 ? 1u : 0u, s.state.computed,
                                             s.blocks_held, for_seq});
    uint32_t charged_before = s.charged();
    books_.journal.resume(&record);
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        books_.journal.note_shape(s, sequence, g);
        how == QUIRE_PREEMPT_SWAP ? swap_out(sequence, g) : drop_blocks(sequence, g);
    }
    books_.journal.pause();
    note_given_up(sequence, how);
    tenants_.charge_change(&change, charged_before);
    change.edit_end = static_cast<uint32_t>(record.edits.size());
    change.copy_end = static_cast<uint32_t>(record.copies.size());
    s.change = static_cast<uint32_t>(record.changes.size());
    record.changes.push(change);
    return Status{};
}

uint32_t Preemption::usable_blocks() const {
    uint32_t count = 0;
    for (uint32_t p = 0; p < books_.journal.pool_count(); ++p) {
        count += books_.journal.pool(p).available(books_.records.open().barrier);
    }
    return count;
}

Status Preemption::preempt(uint64_t step, uint64_t seq, uint32_t how, uint32_t *freed) {
    StepRecord *record = nullptr;
    QUIRE_TRY(books_.records.find(step, true, &record));
    uint32_t index = 0;
    QUIRE_TRY(books_.find_idle_sequence(seq, &index));
    const Sequence &s = books_.sequences[index];
    if (how > QUIRE_PREEMPT_RECOMPUTE) return fail(QUIRE_E_ARG, "how {} is not known", how);
    if (s.state.drafts != 0)
        return fail(QUIRE_E_BUSY, "the sequence has drafts: accept them first");
    *freed = 0;
    if ((s.state.flags & Sequence::kSwapped) != 0 || s.blocks_held == 0) return Status{};
    bool room = host_has_room(index);
    if (books_.is_unfinished_elsewhere(s)) {
        if (how == QUIRE_PREEMPT_SWAP) {
            return fail(QUIRE_E_BUSY, "the sequence's step on another queue is not finished");
        }
        how = QUIRE_PREEMPT_RECOMPUTE;
    }
    if (how == QUIRE_PREEMPT_SWAP && !room) return Status{QUIRE_S_NO_BLOCKS, nullptr, 0, 0};
    how = choose_preemption(how, room, held_bytes(index), s.state.computed, swap_cost_);
    uint32_t before = usable_blocks();
    QUIRE_TRY(give_up(index, how, 0));
    *freed = usable_blocks() - before;
    return Status{};
}

Status Preemption::preempted(uint64_t step, uint8_t *out, uint32_t capacity, uint32_t stride,
                             uint32_t *count) {
    StepRecord *record = nullptr;
    QUIRE_TRY(books_.records.find(step, false, &record));
    *count = static_cast<uint32_t>(record->preemptions.size());
    for (uint32_t i = 0; i < *count && i < capacity; ++i) {
        std::memcpy(out + uint64_t{i} * stride, &record->preemptions[i], sizeof(quire_preemption));
    }
    bool fits = *count <= capacity;
    return Status{fits ? quire_status{QUIRE_OK} : quire_status{QUIRE_S_INCOMPLETE}, nullptr, 0, 0};
}

}  // namespace quire
