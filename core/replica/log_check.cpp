// SPDX-License-Identifier: Apache-2.0

#include "core/replica/log_check.hpp"

namespace quire {

namespace {

Status wrong_sequence(uint32_t index) {
    return fail(QUIRE_E_ARG, "damaged log: sequence {} is named twice or does not exist", index);
}

}  // namespace

// The present state of the sequence at the index, without its tables.
LogSequence LogCheck::followed(uint32_t index) const {
    return books_.handles.is_live(index)
               ? describe_sequence(books_.sequences[index], books_.handles.handle(index), index)
               : LogSequence{};
}

void LogCheck::read_change(const LogSequence &after, const TableChange *tables,
                           SequenceChange *change) const {
    change->before = followed(after.index);
    change->after = after;
    change->old_tables = &books_.journal.table(after.index, 0);
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) change->tables[g] = tables[g];
}

SequenceChange LogCheck::read_end(uint32_t index) const {
    SequenceChange change{};
    change.before = followed(index);
    change.old_tables = &books_.journal.table(index, 0);
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        change.tables[g].kept = books_.geometry.groups[g].kept_blocks;
    }
    return change;
}

Status LogCheck::check_table(const SequenceChange &change, uint32_t group) const {
    const BlockTable &old = change.old_tables[group];
    const TableChange &table = change.tables[group];
    const LogTable &shape = table.shape;
    // Entries that stay were there before, and were null only if they are null now.
    uint32_t gap_end = shape.null_front > table.kept ? shape.null_front : table.kept;
    bool stays = change.continues() && shape.first <= old.length &&
                 (old.null_front <= gap_end || shape.first <= gap_end);
    if (shape.first != 0 && !stays) {
        return fail(QUIRE_E_ARG, "damaged log: sequence {} keeps entries that it does not have",
                    change.after.index);
    }
    const LogSequence &s = change.after;
    uint32_t least =
        s.computed != 0 ? books_.geometry.table_length(group, s.computed, s.cross_tokens) : 0;
    const GroupGeometry &g = books_.geometry.groups[group];
    const bool is_lease = HandleTable::is_of(s.handle, HandleType::lease);
    uint32_t most = is_lease ? g.blocks - 1 : g.size.blocks_of(books_.geometry.max_sequence_tokens);
    // The blocks of passed drafts move to the end of a table (core/base/state_move.hpp).
    if (g.state_interval != 0 && !is_lease) most += g.blocks - 1;
    if (shape.length < least || shape.length > most || (is_lease && shape.null_front != 0)) {
        return fail(QUIRE_E_ARG, "damaged log: sequence {} has a table of {} blocks", s.index,
                    shape.length);
    }
    uint32_t blocks = s.swapped() ? g.host_blocks : g.blocks, wrong = 0;
    table.each_told([&](uint32_t i) {
        if (table.id(i) == kNullBlock || table.id(i) >= blocks) ++wrong;
    });
    if (wrong == 0) return Status{};
    return fail(QUIRE_E_ARG, "damaged log: sequence {} names {} blocks that do not exist", s.index,
                wrong);
}

Status LogCheck::check_sequence(const SequenceChange &change) {
    const LogSequence &s = change.after;
    uint32_t longest = 0;
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        QUIRE_TRY(check_table(change, g));
        const LogTable &shape = change.tables[g].shape;
        if (shape.length > longest) longest = shape.length;
    }
    const bool is_lease = HandleTable::is_of(s.handle, HandleType::lease);
    if (s.computed > s.known || s.drafts > s.known ||
        (is_lease && (s.known != 0 || s.flags != 0)) ||
        s.known > books_.geometry.max_sequence_tokens ||
        s.cross_tokens > (books_.geometry.any_cross ? books_.geometry.max_sequence_tokens : 0)) {
        return fail(QUIRE_E_ARG, "damaged log: sequence {} has {} known tokens", s.index, s.known);
    }
    follower_.see(s.index,
                  FollowedSequence{0, s.swapped() ? 0 : s.computed, longest, s.cross_tokens});
    return Status{};
}

Status LogCheck::check_copy(const quire_block_copy &copy) const {
    if (copy.group >= books_.geometry.group_count || copy.kind > QUIRE_COPY_ZERO) {
        return fail(QUIRE_E_ARG, "damaged log: a copy of kind {} in group {}", copy.kind,
                    copy.group);
    }
    if (copy.kind == QUIRE_COPY_TOKEN && !books_.can_move) {
        return fail(QUIRE_E_UNSUPPORTED,
                    "the log moves tokens, but a device of this follower cannot");
    }
    const GroupGeometry &g = books_.geometry.groups[copy.group];
    uint32_t sources = copy.kind == QUIRE_COPY_SWAP_IN ? g.host_blocks : g.blocks;
    uint32_t targets = copy.kind == QUIRE_COPY_SWAP_OUT ? g.host_blocks : g.blocks;
    bool inside = copy.src > 0 && static_cast<uint32_t>(copy.src) < sources && copy.dst > 0 &&
                  static_cast<uint32_t>(copy.dst) < targets && copy.src_place < g.size.tokens() &&
                  copy.dst_place < g.size.tokens();
    if (inside) return Status{};
    return fail(QUIRE_E_ARG, "damaged log: a copy from block {} to {}",
                static_cast<uint32_t>(copy.src), static_cast<uint32_t>(copy.dst));
}

Status LogCheck::check_row(const LogRow &row, uint32_t mask_word_count) {
    bool known = row.index < books_.sequences.size();
    if (known && !follower_.seen(row.index)) {
        const Sequence &s = books_.sequences[row.index];
        bool swapped = (s.state.flags & Sequence::kSwapped) != 0;
        uint32_t longest = 0;
        for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
            uint32_t length = books_.journal.table(row.index, g).length;
            if (length > longest) longest = length;
        }
        follower_.see(row.index,
                      FollowedSequence{0, swapped ? 0 : s.state.computed, longest, s.cross_tokens});
    }
    uint64_t end = uint64_t{row.first_position} + row.compute_count;
    bool inside = known && row.compute_count != 0 && end <= follower_.at(row.index).computed &&
                  row.cross_tokens <= follower_.at(row.index).cross_tokens;
    bool masked = row.mask_rows <= row.compute_count && row.mask_at <= mask_word_count &&
                  row.mask_words() <= mask_word_count - row.mask_at;
    if (inside) follower_.note_row(row.index, row.first_position);
    if (inside && masked) return Status{};
    return fail(QUIRE_E_ARG, "damaged log: a row of sequence {} computes up to {}", row.index, end);
}

// Checks that the rows' masks are ones that a leader unfolds: bits for keys up to the row's end,
// and positions among the places of the masked tokens.
Status LogCheck::check_masks(const LogReader &log) const {
    for (uint32_t i = 0; i < log.header().row_count; ++i) {
        LogRow row = log.row(i);
        if (row.mask_rows == 0) continue;
        uint32_t end = row.first_position + row.compute_count, first_masked = end - row.mask_rows;
        bool fits =
            row.mask_first <= first_masked && row.mask_stride == ceil_div(end - row.mask_first, 32);
        for (uint32_t k = 0; fits && k < row.mask_rows; ++k) {
            uint32_t position = log.mask_word(row.mask_at + k);
            fits = position >= first_masked && position < end;
        }
        if (!fits) return fail(QUIRE_E_ARG, "damaged log: the mask of row {}", i);
    }
    return Status{};
}

Status LogCheck::check_orders(const LogReader &log) {
    if (log.header().reserved0 != 0)
        return fail(QUIRE_E_ARG, "damaged log: a reserved field is not 0");
    if (log.header().order_count == 0) [[likely]]
        return Status{};
    orders_.begin_check();
    QUIRE_TRY(log.each_order([this](const TierOrder &order, const uint8_t *tokens) {
        return orders_.check(order, tokens);
    }));
    return orders_.end_check();
}

Status LogCheck::check(const LogReader &log) {
    const LogHeader &header = log.header();
    follower_.begin_check();
    for (uint32_t i = 0; i < header.ended_count; ++i) {
        uint32_t index = log.ended(i);
        if (!books_.handles.is_live(index) || follower_.seen(index)) return wrong_sequence(index);
        follower_.see(index, FollowedSequence{});
    }
    for (uint32_t i = 0; i < header.copy_count; ++i) QUIRE_TRY(check_copy(log.copy(i)));
    QUIRE_TRY(log.each_sequence([&](const LogSequence &after, const TableChange *tables) -> Status {
        uint32_t index = after.index;
        if (index >= books_.sequences.size() || follower_.seen(index)) return wrong_sequence(index);
        uint32_t holder = books_.handles.find_any(after.handle);
        bool is_others = holder != HandleTable::kNone && holder != index;
        if (!books_.handles.could_be(after.handle, HandleType::lease) || is_others ||
            after.reserved0 != 0) {
            return fail(QUIRE_E_ARG, "damaged log: sequence {} has no handle of its own", index);
        }
        SequenceChange change;
        read_change(after, tables, &change);
        return check_sequence(change);
    }));
    for (uint32_t i = 0; i < header.row_count; ++i)
        QUIRE_TRY(check_row(log.row(i), header.mask_word_count));
    QUIRE_TRY(check_masks(log));
    return check_orders(log);
}

Status LogCheck::check_batch(const LogReader &log, const Batch *batch) const {
    if (batch == nullptr) return Status{};
    QUIRE_TRY(batch->check_fresh());
    BatchNeed need;
    need.rows = log.header().row_count;
    for (uint32_t i = 0; i < need.rows; ++i) {
        LogRow row = log.row(i);
        const FollowedSequence &sequence = follower_.at(row.index);
        need.query_tokens += row.compute_count;
        need.context_tokens += uint64_t{row.first_position} + row.compute_count;
        need.cross_context_tokens += sequence.cross_tokens;
        need.cross_tokens += row.cross_tokens;
        need.mask_words += uint64_t{row.mask_rows} * row.mask_stride;
        if (sequence.longest > need.longest_table) need.longest_table = sequence.longest;
    }
    return batch->fits(need);
}

}  // namespace quire
