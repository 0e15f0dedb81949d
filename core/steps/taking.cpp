// SPDX-License-Identifier: Apache-2.0

#include "core/steps/taking.hpp"

#include "core/base/state_move.hpp"

namespace quire {

namespace {

// Each of one block, besides taking one.
constexpr Room kTakeHitRoom = Journal::kAddRef;
constexpr Room kSwapInRoom = Journal::kCopy + Journal::kSetEntry + Journal::kDropHost;
constexpr Room kGiveBackRoom = Journal::kSetEntry + Journal::kDropRef;  // if it is passed
constexpr Room kCopyTailRoom = Journal::kCopy + Journal::kSetEntry + Journal::kDropRef;
constexpr Room kAdoptTailRoom = Journal::kNoteShape + Journal::kOwn;
static_assert(kTakeHitRoom.edits <= 1, "a swapped block may be found instead of taken");
static_assert(kGiveBackRoom.edits == (Journal::kSetEntry + Journal::kDropHost).edits,
              "a passed block may be in the host tier");

}  // namespace

void Taking::note_tokens(const quire_step_item &item, const quire_token *tokens, Sequence *s) {
    CacheBooks &books = books_;
    SequenceState &state = s->state;
    uint32_t count = item.token_count;
    prefixes_.forget_waiting(item.seq);
    books.token_pages.write(&s->tokens, state.known, tokens, count);
    if (state.first_unknown == kNone) {
        uint32_t unknown = find_unknown(tokens, count);
        if (unknown != count) state.first_unknown = state.known + unknown;
    }
    state.known += count;
}

Room Taking::take_room(const Plan &plan) const {
    const Sequence &s = books_.sequences[plan.sequence];
    const Room take = books_.journal.take_room();
    Room room;
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        bool cross = books_.geometry.groups[g].cross;
        if (!cross) room = room + s.state.move_count * Journal::kMoveToken + kAdoptTailRoom;
        if (!plan.takes) continue;
        uint64_t length = books_.journal.table(plan.sequence, g).length, kept = length;
        // Includes a copy on write that a later step may need, so that records grow now, not then.
        room = room + Journal::kNoteShape + Journal::kCopy + plan.passed[g] * kGiveBackRoom;
        if (plan.swapped) {
            room = room + length * (take + kSwapInRoom);
        } else if (plan.admission) {
            kept = cross ? 0 : plan.hit_blocks * books_.geometry.groups[g].per_span;
            room = room + kept * kTakeHitRoom + plan.promoted[g] * books_.journal.promote_room();
            if (plan.loaded_blocks != 0) kept = plan.loaded_blocks;
            if (plan.load != nullptr) room = room + plan.load->length * (take + kSwapInRoom);
        }
        if (plan.copy_tail[g]) room = room + take + kCopyTailRoom;
        uint64_t fresh = plan.length[g] > kept ? plan.length[g] - kept : 0;
        // Entries that become null, or change places, and the state's.
        if (books_.geometry.groups[g].state_interval != 0) [[unlikely]]
            room = room + (length + 1) * Journal::kSetEntry + Journal::kDropRef + Journal::kCopy;
        room = room + fresh * take +
               books_.journal.zeroes(fresh, tenants_.taker(plan.sequence, false));
    }
    return room;
}

// Gives back the blocks that the item's window has passed, so that the item can take them. For an
// item that is not short, the commit does this (Steps::pass_windows). The step's copies may still
// read these blocks, to move accepted tokens.
void Taking::give_back_passed(const Plan &plan, uint32_t group) {
    Sequence &s = books_.sequences[plan.sequence];
    BlockTable &t = books_.journal.table(plan.sequence, group);
    uint32_t end = plan.null_front[group];
    for (uint32_t i = end - plan.passed[group]; i < end; ++i) {
        uint32_t block = t.ids.data[i];
        books_.journal.set_entry(&s, plan.sequence, group, i, kNullBlock);
        if (plan.swapped) {
            books_.journal.let_go_host(group, block);
        } else {
            books_.journal.let_go(group, block, plan.sequence, {s.last_step, true, false, true});
        }
    }
    t.null_front = end;
}

// If a step that a found block depends on fails, what is built on the block is wrong.
void Taking::note_hit(Change *change, uint32_t group, uint32_t block, uint32_t index) {
    const BlockOrigin &origin = books_.journal.pool(group).origin(block);
    uint32_t position = books_.geometry.groups[group].size.first_token(index);
    if (depends_on(origin, books_.records.open().number)) {
        if (position < change->valid_tokens) change->valid_tokens = position;
    }
    for (uint64_t step = books_.timeline.oldest();
         step <= origin.ready && step < books_.timeline.next(); ++step) {
        if (depends_on(origin, step)) change->note_pending(step, position);
    }
}

void Taking::take_hit(Change *change, uint32_t group, uint32_t block, uint32_t index) {
    note_hit(change, group, block, index);
    books_.journal.add_ref(group, block);
}

// The node's block on the device, after it was brought back if it lies in the host tier. The
// sequence may not write it: it did not compute it.
uint32_t Taking::take_found(const Plan &plan, Change *change, uint32_t group, uint32_t index) {
    uint32_t named = found_block(plan, group, index);
    if (!is_on_host(named)) return named;
    Taker taker = tenants_.taker(plan.sequence, true);
    taker.sequence = kNone;
    uint32_t block = books_.journal.promote(group, plan.found.nodes[index], taker);
    note_hit(change, group, block, index);
    return block;
}

// What the nodes that were found name for the table's entry.
uint32_t Taking::found_block(const Plan &plan, uint32_t group, uint32_t index) const {
    const PrefixTree &tree = books_.journal.tree();
    const uint32_t per_span = books_.geometry.groups[group].per_span;
    if (per_span == 1) [[likely]]
        return tree.blocks(plan.found.nodes[index])[tree.first_entry(group)];
    return tree.blocks(
        plan.found.nodes[index / per_span])[tree.first_entry(group) + index % per_span];
}

// Holds what was found on the device. It comes first, in all groups: room for the rest may be made
// by evicting.
void Taking::hold_found(const Plan &plan, Change *change, uint32_t group) {
    const GroupGeometry &geometry = books_.geometry.groups[group];
    uint32_t first =
        plan.swapped ? plan.null_front[group] : geometry.first_visible_block(plan.position);
    if (geometry.cross) return;  // a prefix says nothing about another input
    for (uint32_t i = 0; i < plan.hit_blocks * geometry.per_span; ++i) {
        if (geometry.is_null(i, first)) continue;
        uint32_t named = found_block(plan, group, i);
        if (named != kNullBlock && !is_on_host(named)) take_hit(change, group, named, i);
    }
}

void Taking::take_hits(const Plan &plan, Change *change, uint32_t group) {
    Sequence &s = books_.sequences[plan.sequence];
    const GroupGeometry &geometry = books_.geometry.groups[group];
    uint32_t first = geometry.first_visible_block(plan.position);
    if (geometry.cross) return;
    for (uint32_t i = 0; i < plan.hit_blocks * geometry.per_span; ++i) {
        uint32_t block =
            geometry.is_null(i, first) ? kNullBlock : take_found(plan, change, group, i);
        books_.journal.append_entry(&s, plan.sequence, group, block);
    }
}

// Copies a block of the host tier to a new one on the device. If the copy fails, tokens from here
// on are lost.
uint32_t Taking::bring_in(uint32_t sequence, Change *change, uint32_t group, uint32_t index,
                          uint32_t host_block) {
    uint32_t block =
        books_.journal.take(group, books_.records.open().barrier, tenants_.taker(sequence, true));
    books_.journal.copy(QUIRE_COPY_SWAP_IN, group, host_block, block);
    const GroupGeometry &geometry = books_.geometry.groups[group];
    uint32_t position = geometry.cross ? 0 : geometry.size.first_token(index);
    if (position < change->valid_tokens) change->valid_tokens = position;
    return block;
}

// Takes what only the tree has of a prefix of which a load has the rest: room for the others may be
// made by evicting.
void Taking::take_beside_load(const Plan &plan, Change *change, uint32_t group) {
    const GroupGeometry &geometry = books_.geometry.groups[group];
    uint32_t first = geometry.first_visible_block(plan.position);
    for (uint32_t i = 0; i < plan.hit_blocks; ++i) {
        uint32_t named = found_block(plan, group, i);
        bool has_own = plan.load->block(group, i) != kNullBlock;
        if (is_on_host(named) && !has_own && !geometry.is_null(i, first))
            take_found(plan, change, group, i);
    }
}

// The front of a table from a load: shares the blocks that the device has, and copies the others
// in.
void Taking::take_loaded(const Plan &plan, Change *change, uint32_t group) {
    Sequence &s = books_.sequences[plan.sequence];
    const GroupGeometry &geometry = books_.geometry.groups[group];
    uint32_t first = geometry.first_visible_block(plan.position);
    take_beside_load(plan, change, group);
    for (uint32_t i = 0; i < plan.loaded_blocks; ++i) {
        uint32_t block = kNullBlock;
        if (!geometry.is_null(i, first)) {
            if (i < plan.hit_blocks) block = found_block(plan, group, i);
            if (block == kNullBlock || is_on_host(block))
                block = bring_in(plan.sequence, change, group, i, plan.load->block(group, i));
        }
        books_.journal.append_entry(&s, plan.sequence, group, block);
    }
}

// The open step's copies have read what they need of the load.
void Taking::let_load_go(const Plan &plan, Change *change, uint32_t group) {
    change->load = plan.load;
    plan.load->is_taken = true;
    plan.load->used = plan.loaded_blocks;
    for (uint32_t i = 0; i < plan.load->length; ++i) {
        uint32_t block = plan.load->block(group, i);
        if (block != kNullBlock) books_.journal.let_go_host(group, block);
    }
}

// Brings a swapped table back: shares the blocks that were found, and copies the others in.
void Taking::swap_in(const Plan &plan, Change *change, uint32_t group) {
    Sequence &s = books_.sequences[plan.sequence];
    const GroupGeometry &geometry = books_.geometry.groups[group];
    BlockTable &t = books_.journal.table(plan.sequence, group);
    for (uint32_t i = 0; i < t.length; ++i) {
        uint32_t host_block = t.ids.data[i];
        if (host_block == kNullBlock) continue;
        uint32_t block =
            i < plan.hit_blocks * geometry.per_span ? found_block(plan, group, i) : kNullBlock;
        if (block == kNullBlock || is_on_host(block)) {
            block = bring_in(plan.sequence, change, group, i, host_block);
            // They also depend on the steps that the host blocks depend on.
            uint32_t position = geometry.cross ? 0 : geometry.size.first_token(i);
            if (position < change->found_tokens) change->found_tokens = position;
        }
        books_.journal.set_entry(&s, plan.sequence, group, i, block);
        books_.journal.let_go_host(group, host_block);
    }
}

void Taking::copy_tail(const Plan &plan, uint32_t group) {
    Sequence &s = books_.sequences[plan.sequence];
    uint32_t index = books_.geometry.groups[group].size.block_of(plan.position);
    uint32_t shared = books_.journal.table(plan.sequence, group).ids.data[index];
    uint32_t block = books_.journal.take(group, books_.records.open().barrier,
                                         tenants_.taker(plan.sequence, true));
    books_.journal.copy(QUIRE_COPY_ON_WRITE, group, shared, block);
    books_.journal.set_entry(&s, plan.sequence, group, index, block);
    books_.journal.let_go(group, shared, plan.sequence, {s.last_step, true, false, true});
}

// The blocks that the table lacks at its end.
void Taking::take_rest(const Plan &plan, uint32_t group) {
    Sequence &s = books_.sequences[plan.sequence];
    BlockTable &t = books_.journal.table(plan.sequence, group);
    const uint64_t barrier = books_.records.open().barrier;
    const Taker taker = tenants_.taker(plan.sequence, false);
    while (t.length < plan.length[group]) {
        const uint32_t block = books_.journal.take(group, barrier, taker);
        books_.journal.append_entry(&s, plan.sequence, group, block);
    }
}

// Gives the state another block, if the item ends in one, and takes what the table lacks: see
// state_move.hpp.
void Taking::take_state(const Plan &plan, uint32_t group) {
    Sequence &s = books_.sequences[plan.sequence];
    BlockTable &t = books_.journal.table(plan.sequence, group);
    const StateMove move(books_.geometry.groups[group], plan.position, plan.compute,
                         plan.room_tokens, t.length);
    if (!move.crosses) return take_rest(plan, group);
    while (t.length < move.to) books_.journal.append_entry(&s, plan.sequence, group, kNullBlock);
    for (uint32_t i = move.first(); i < move.first() + move.passed; ++i) {
        const uint32_t block = t.ids.data[i];
        books_.journal.set_entry(&s, plan.sequence, group, i, kNullBlock);
        books_.journal.append_entry(&s, plan.sequence, group, block);
    }
    take_rest(plan, group);
    t.null_front = move.to;
    if (!move.has_state) return;
    const uint32_t older = t.ids.data[move.from];
    books_.journal.copy(QUIRE_COPY_ON_WRITE, group, older, t.ids.data[move.to]);
    books_.journal.set_entry(&s, plan.sequence, group, move.from, kNullBlock);
    books_.journal.let_go(group, older, plan.sequence, {s.last_step, true, false, true});
}

// Makes the sequence the owner of the block that it goes on writing, if it is not.
void Taking::own_tail(const Plan &plan, uint32_t group) {
    const BlockTable &t = books_.journal.table(plan.sequence, group);
    const BlockSize size = books_.geometry.groups[group].size;
    uint32_t block = t.ids.data[size.block_of(plan.position)];
    uint32_t slot = size.slot_of(plan.position);
    const Block &b = books_.journal.pool(group)[block];
    // That it has a state alone may be because an earlier item of the step let it go, so this is
    // noted even if it owns the block already (Journal::rests_on_doomed).
    bool is_state = books_.geometry.groups[group].recurrent;
    if (!is_state && b.owner == plan.sequence && slot >= b.frozen_slots) return;
    // Undoing this forgets that the tail is writable.
    books_.journal.note_shape(books_.sequences[plan.sequence], plan.sequence, group);
    books_.journal.own(group, block, plan.sequence, 0);
}

void Taking::take_all(Plan *plan, Change *change) {
    uint32_t sequence = plan->sequence;
    Sequence &s = books_.sequences[sequence];
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        // A state may change places in a table that does not grow.
        bool grows = plan->length[g] != books_.journal.table(sequence, g).length ||
                     (plan->takes && books_.geometry.groups[g].state_interval != 0);
        bool passes = plan->passed[g] != 0;
        if (grows || passes || plan->copy_tail[g] || plan->admission)
            books_.journal.note_shape(s, sequence, g);
        if (passes) give_back_passed(*plan, g);
        if (plan->admission) hold_found(*plan, change, g);
    }
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        BlockTable &t = books_.journal.table(sequence, g);
        const BlockSize size = books_.geometry.groups[g].size;
        uint32_t index = size.block_of(plan->position);
        const uint32_t end = size.block_of(plan->position + plan->compute - 1);
        const bool one_state = books_.geometry.groups[g].state_interval != 0;
        bool inside_block = size.first_token(index) != plan->position &&
                            !books_.geometry.groups[g].cross && !(one_state && end != index);
        if (plan->swapped) {
            swap_in(*plan, change, g);
        } else if (plan->loaded_blocks != 0) {
            take_loaded(*plan, change, g);
        } else if (plan->admission) {
            take_hits(*plan, change, g);
        } else if (inside_block && t.writable != index && !plan->copy_tail[g]) {
            own_tail(*plan, g);
        }
        if (plan->copy_tail[g]) {
            copy_tail(*plan, g);
            uint32_t kept = size.first_token(index);
            if (kept < change->valid_tokens) change->valid_tokens = kept;
        }
        if (plan->load != nullptr) [[unlikely]]
            let_load_go(*plan, change, g);
        one_state ? take_state(*plan, g) : take_rest(*plan, g);
        t.writable = end;
    }
}

void Taking::run_item(const quire_step_item &item, const uint32_t *words, Plan *plan,
                      Change *change, quire_step_result *result) {
    StepRecord &record = books_.records.open();
    Sequence &s = books_.sequences[plan->sequence];
    open_change(change, plan->position, plan->compute);
    uint32_t hit_blocks = plan->loaded_blocks != 0 ? plan->loaded_blocks : plan->hit_blocks;
    const uint32_t whole = hit_blocks - (plan->part_tokens != 0 ? 1 : 0);
    change->hit_tokens =
        plan->swapped ? 0 : books_.geometry.span.first_token(whole) + plan->part_tokens;
    change->query_tokens = plan->query_tokens;
    if (plan->swapped) change->found_tokens = plan->position;
    if (plan->admission && !plan->swapped) change->cross_tokens = s.cross_tokens;
    if (item.mask_kind != QUIRE_MASK_NONE) note_mask(item, words, change);
    uint32_t charged_before = s.charged();
    books_.journal.resume(&record);
    move_tokens(plan->sequence, change);
    take_all(plan, change);
    SequenceState &state = s.state;
    if (plan->swapped || plan->loaded_blocks != 0) {
        state.published = 0;
        state.cursor = books_.journal.tree().root_cursor(s.root);
    } else if (whole != 0) {
        state.published = whole;
        state.cursor = books_.journal.tree().cursor(plan->found.nodes[whole - 1]);
    }
    note_item(item, *change, result);
    note_drafts(item, *change, &s);
    tenants_.charge_change(change, charged_before);
    prefixes_.publish(plan->sequence, record.number, plan->found);
    books_.journal.pause();
    QUIRE_ASSERT(record.edits.size() <= plan->reserved.edits &&
                 record.copies.size() <= plan->reserved.copies);
    change->edit_end = static_cast<uint32_t>(record.edits.size());
    change->copy_end = static_cast<uint32_t>(record.copies.size());
}

void Taking::run_in_place(const quire_step_item &item, const quire_token *tokens, uint32_t sequence,
                          quire_step_result *result) {
    CacheBooks &books = books_;
    Sequence &s = books.sequences[sequence];
    Change *change = books.records.open().changes.push_uninitialized();
    change->begin(ChangeKind::item, sequence, books.handles.handle(sequence), s.state);
    note_tokens(item, tokens, &s);
    open_change(change, s.state.computed, s.state.known - s.state.computed);
    note_item(item, *change, result);
    s.state.drafts_are_tree = false;
}

// Begins the change here, without edits so far.
void Taking::open_change(Change *change, uint32_t position, uint32_t count) {
    const StepRecord &record = books_.records.open();
    change->first_edit = change->edit_end = static_cast<uint32_t>(record.edits.size());
    change->first_copy = change->copy_end = static_cast<uint32_t>(record.copies.size());
    change->mask_at = record.mask_words.size();
    change->first_position = position;
    change->compute_count = count;
    change->valid_tokens = position;
}

// Remembers which drafts each draft sees. REQUIRES: room in s->tree.
void Taking::note_drafts(const quire_step_item &item, const Change &change, Sequence *s) {
    s->state.drafts_are_tree = item.mask_kind != QUIRE_MASK_NONE;
    if (!s->state.drafts_are_tree) return;
    find_parents(item, books_.records.open().mask(change), s->state.known, s->tree.data);
}

// Moves accepted tokens to their places before anything in the step reads or writes there.
void Taking::move_tokens(uint32_t sequence, Change *change) {
    Sequence &s = books_.sequences[sequence];
    SequenceState &state = s.state;
    if (state.move_count == 0) return;
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        if (books_.geometry.groups[g].cross) continue;
        for (uint32_t i = 0; i < state.move_count; ++i) {
            books_.journal.move_token(sequence, g, s.moves.data[i], state.move_begin + i);
        }
    }
    if (state.move_begin < change->valid_tokens) change->valid_tokens = state.move_begin;
    state.move_count = 0;
}

// Unfolds the item's mask into the record. REQUIRES: books_.records.reserve_mask().
void Taking::note_mask(const quire_step_item &item, const uint32_t *words, Change *change) {
    Array<uint32_t> &kept = books_.records.open().mask_words;
    uint32_t known = books_.sequences[change->sequence].state.known;
    kept.resize_within(change->mask_at + unfolded_words(item, words, known));
    MaskView mask = unfold_mask(item, words, known, kept.data() + change->mask_at);
    change->mask_rows = mask.rows;
    change->mask_first = mask.first;
    change->mask_stride = mask.stride;
}

// Updates the sequence's state as running the item does, and fills in the caller's result.
void Taking::note_item(const quire_step_item &item, const Change &change,
                       quire_step_result *result) {
    CacheBooks &books = books_;
    StepRecord &record = books.records.open();
    Sequence &s = books.sequences[change.sequence];
    SequenceState &state = s.state;
    state.computed = change.first_position + change.compute_count;
    state.drafts = item.draft_count;
    state.lookahead = state.computed == state.known ? item.lookahead : 0;
    if ((state.flags & Sequence::kPreempted) != 0) state.resumed_step = record.number;
    state.flags &= ~(Sequence::kSwapped | Sequence::kPreempted | Sequence::kLost);
    if (state.admitted == 0) state.admitted = ++books.admissions;
    s.change = static_cast<uint32_t>(record.changes.size() - 1);
    result->outcome = QUIRE_ITEM_RUN;
    result->hit_tokens = change.hit_tokens;
    result->first_position = change.first_position;
    result->compute_count = change.compute_count;
    result->cross_tokens = change.cross_tokens;
    result->row = record.rows++;
}

}  // namespace quire
