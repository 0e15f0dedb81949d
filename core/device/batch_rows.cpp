// SPDX-License-Identifier: Apache-2.0
//
// Writes a step's rows into the current image, and the padding after them.

#include <algorithm>

#include "core/device/batch.hpp"

namespace quire {

void Batch::begin_write() {
    row_count_ = query_tokens_ = cross_tokens_ = mask_words_ = 0;
    max_length_ = max_cross_length_ = 0;
    for (uint32_t g = 0; g < group_count_; ++g) {
        csr_blocks_[g] = context_tokens_[g] = 0;
        if (groups_[g].csr_indptr != 0) at<int32_t>(groups_[g].csr_indptr)[0] = 0;
    }
    if (cu_q_ != 0) at<int32_t>(cu_q_)[0] = 0;
}

void Batch::write_table(uint32_t group, uint32_t row, uint64_t handle, const BlockTable &table) {
    RowState &state = row_state(group, row);
    uint32_t *ids = at<uint32_t>(groups_[group].table) + uint64_t{row} * max_blocks_;
    bool same = state.handle == handle && state.epoch == table.epoch;
    uint32_t from = 0;
    if (same && state.length <= table.length) {
        from = state.length;
        uint32_t passed =
            state.null_front > kept_blocks_[group] ? state.null_front : kept_blocks_[group];
        for (uint32_t i = passed; i < table.null_front && i < from; ++i) ids[i] = kNullBlock;
    }
    if (from < table.length) {
        std::memcpy(ids + from, table.ids.data + from, uint64_t{table.length - from} * 4);
    }
    if (state.length > table.length) {
        std::memset(ids + table.length, 0, uint64_t{state.length - table.length} * 4);
    }
    state = RowState{handle, table.epoch, table.length, table.null_front};
}

void Batch::write_csr(uint32_t group, uint32_t row, uint32_t length, const BlockTable &table) {
    const GroupOffsets &o = groups_[group];
    uint32_t blocks = sizes_[group].blocks_of(length);
    uint64_t begin = csr_blocks_[group];
    if (blocks != 0) {  // an empty table has no memory
        std::memcpy(at<uint32_t>(o.csr_indices) + begin, table.ids.data, uint64_t{blocks} * 4);
    }
    csr_blocks_[group] = begin + blocks;
    at<int32_t>(o.csr_indptr)[row + 1] = static_cast<int32_t>(begin + blocks);
    uint32_t last = length == 0 ? 0 : sizes_[group].slot_of(length - 1) + 1;
    at<int32_t>(o.csr_last)[row] = static_cast<int32_t>(last);
}

void Batch::write_slots(uint32_t group, uint32_t at_slot, uint32_t first, uint32_t count,
                        const BlockTable &table) {
    int64_t *out = at<int64_t>(groups_[group].slots) + at_slot;
    const BlockSize size = sizes_[group];
    for (uint32_t i = 0; i < count; ++i) {
        uint32_t index = size.block_of(first + i);
        uint64_t block = table.ids.data[index];
        out[i] =
            static_cast<int64_t>(block * size.tokens() + (first + i - size.first_token(index)));
    }
}

void Batch::write_context(uint32_t group, uint32_t length, const BlockTable &table) {
    int32_t *out = at<int32_t>(groups_[group].context_slots) + context_tokens_[group];
    const uint32_t tokens = sizes_[group].tokens(), blocks = sizes_[group].blocks_of(length);
    for (uint32_t i = 0, position = 0; i < blocks; ++i) {
        const uint32_t begin = table.ids.data[i] * tokens;
        for (uint32_t slot = 0; slot < tokens && position < length; ++slot)
            out[position++] = static_cast<int32_t>(begin + slot);
    }
}

// Counts how many of the row's first blocks are the same as the previous row's.
void Batch::write_shared(uint32_t group, uint32_t row, uint32_t length) {
    int32_t *shared = at<int32_t>(groups_[group].shared);
    shared[row] = 0;
    if (row == 0) return;
    const int32_t *lengths = at<int32_t>(groups_[group].lengths);
    uint32_t before = static_cast<uint32_t>(lengths[row - 1]);
    uint32_t tokens = length < before ? length : before;
    uint32_t most = sizes_[group].blocks_of(tokens);
    const uint32_t *ids = at<uint32_t>(groups_[group].table) + uint64_t{row} * max_blocks_;
    uint32_t count = 0;
    while (count < most && ids[count] == ids[int64_t{count} - max_blocks_]) ++count;
    shared[row] = static_cast<int32_t>(count);
}

void Batch::write_positions(const BatchRow &row) {
    int32_t *positions = at<int32_t>(positions_) + query_tokens_;
    uint32_t masked = row.compute_count - row.mask.rows;  // the first token that the mask describes
    for (uint32_t i = 0; i < row.compute_count; ++i) {
        uint32_t position = i < masked ? row.first_position + i : row.mask.words[i - masked];
        positions[i] = static_cast<int32_t>(position);
    }
}

void Batch::write_mask(uint32_t row, const BatchRow &item) {
    int32_t *rows = at<int32_t>(mask_rows_) + query_tokens_;
    uint32_t masked = item.compute_count - item.mask.rows;
    for (uint32_t i = 0; i < masked; ++i) rows[i] = -1;
    uint32_t words = item.mask.rows * item.mask.stride;
    for (uint32_t i = 0; i < item.mask.rows; ++i) {
        rows[masked + i] = static_cast<int32_t>(mask_words_ + i * item.mask.stride);
    }
    if (words != 0) {
        std::memcpy(at<uint32_t>(mask_) + mask_words_, item.mask.bits(0), uint64_t{words} * 4);
    }
    mask_words_ += words;
    at<int32_t>(mask_first_)[row] = static_cast<int32_t>(item.mask.first);
}

void Batch::add_row(const BatchRow &item, const BlockTable *tables) {
    uint32_t row = row_count_;
    uint32_t length = item.first_position + item.compute_count;
    if (lengths_ != 0) at<int32_t>(lengths_)[row] = static_cast<int32_t>(length);
    for (uint32_t g = 0; g < group_count_; ++g) {
        const GroupOffsets &o = groups_[g];
        bool cross = cross_[g];
        uint32_t keys = cross ? item.cross_length : length;
        if (cross && o.lengths != 0) at<int32_t>(o.lengths)[row] = static_cast<int32_t>(keys);
        if (o.table != 0 && !shows(row_state(g, row), item.handle, tables[g])) [[unlikely]]
            write_table(g, row, item.handle, tables[g]);
        if (o.csr_indptr != 0) write_csr(g, row, keys, tables[g]);
        if (o.slots != 0 && !cross) {
            write_slots(g, query_tokens_, item.first_position, item.compute_count, tables[g]);
        } else if (o.slots != 0) {
            write_slots(g, cross_tokens_, 0, item.cross_written, tables[g]);
        }
        if (o.context_slots != 0) write_context(g, keys, tables[g]);
        if (o.shared != 0) write_shared(g, row, keys);
        context_tokens_[g] += keys;
    }
    if (positions_ != 0) write_positions(item);
    if (mask_rows_ != 0) write_mask(row, item);
    cross_tokens_ += item.cross_written;
    query_tokens_ += item.compute_count;
    max_length_ = std::max(max_length_, length);
    max_cross_length_ = std::max(max_cross_length_, item.cross_length);
    if (cu_q_ != 0) at<int32_t>(cu_q_)[row + 1] = static_cast<int32_t>(query_tokens_);
    row_count_ = row + 1;
}

// Pads from the end of what this step wrote up to what is already padded.
void Batch::pad() {
    Image &image = images_[current_];
    for (uint32_t row = row_count_; row < image.rows; ++row) {
        for (uint32_t g = 0; g < group_count_; ++g) {
            if (groups_[g].table != 0) write_table(g, row, 0, BlockTable{});
            if (groups_[g].csr_last != 0) at<int32_t>(groups_[g].csr_last)[row] = 0;
            if (groups_[g].shared != 0) at<int32_t>(groups_[g].shared)[row] = 0;
            if (groups_[g].lengths != 0) at<int32_t>(groups_[g].lengths)[row] = 0;
        }
        if (mask_first_ != 0) at<int32_t>(mask_first_)[row] = 0;
    }
    // These entries repeat the last value, which changes with every step.
    for (uint32_t row = row_count_; row < max_rows_; ++row) {
        if (cu_q_ != 0) at<int32_t>(cu_q_)[row + 1] = static_cast<int32_t>(query_tokens_);
        for (uint32_t g = 0; g < group_count_; ++g) {
            if (groups_[g].csr_indptr == 0) continue;
            at<int32_t>(groups_[g].csr_indptr)[row + 1] = static_cast<int32_t>(csr_blocks_[g]);
        }
    }
    for (uint32_t i = query_tokens_; i < image.query_tokens; ++i) {
        if (positions_ != 0) at<int32_t>(positions_)[i] = 0;
        if (mask_rows_ != 0) at<int32_t>(mask_rows_)[i] = -1;
        for (uint32_t g = 0; g < group_count_; ++g) {
            if (groups_[g].slots == 0 || cross_[g]) continue;
            at<int64_t>(groups_[g].slots)[i] = pad_slot_;
        }
    }
    for (uint32_t g = 0; g < group_count_; ++g) {
        if (groups_[g].slots == 0 || !cross_[g]) continue;
        int64_t *slots = at<int64_t>(groups_[g].slots);
        for (uint32_t i = cross_tokens_; i < image.cross_tokens; ++i) slots[i] = pad_slot_;
    }
}

void Batch::end_write(uint64_t step) {
    pad();
    Image &image = images_[current_];
    image.rows = row_count_;
    image.query_tokens = query_tokens_;
    image.cross_tokens = cross_tokens_;
    image.step = step;
    last_step_ = step;
    is_open_ = true;
}

}  // namespace quire
