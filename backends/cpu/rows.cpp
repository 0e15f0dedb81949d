// SPDX-License-Identifier: Apache-2.0

#include "rows.hpp"

#include <algorithm>
#include <cinttypes>

#include "kernels/sight.hpp"

namespace quire::cpu {

namespace {

bool check_counts(const AttendCall &call, const Row &row, Fault *fault) {
    if (row.first_token >= 0 && row.end_token >= row.first_token &&
        row.end_token <= call.args.query_tokens && row.length >= 0) {
        return true;
    }
    fault->set("row %u is invalid: query tokens %" PRId64 " to %" PRId64 " of %u, length %" PRId64,
               row.index, row.first_token, row.end_token, call.args.query_tokens, row.length);
    return false;
}

bool check_mask(const AttendCall &call, const Row &row, Fault *fault) {
    const auto *mask_rows = array_at<const int32_t>(call.args.mask_rows);
    const auto *positions = array_at<const int32_t>(call.args.positions);
    bool has_mask = false;
    for (int64_t token = row.first_token; token < row.end_token; ++token) {
        if (mask_rows[token] < -1) {
            fault->set("query token %" PRId64 " has the invalid mask word index %d", token,
                       mask_rows[token]);
            return false;
        }
        if (mask_rows[token] < 0) continue;
        has_mask = true;
        if (positions[token] >= 0) continue;
        fault->set("query token %" PRId64 " has a mask and the invalid position %d", token,
                   positions[token]);
        return false;
    }
    int32_t first = has_mask ? array_at<const int32_t>(call.args.mask_first)[row.index] : 0;
    if (first >= 0 && first <= row.length) return true;
    fault->set("the mask of row %u begins at key %d, outside its %" PRId64 " keys", row.index,
               first, row.length);
    return false;
}

bool check_blocks(const AttendCall &call, const Row &row, int64_t begin, int64_t end,
                  Fault *fault) {
    if (begin >= end) return true;
    int64_t block_tokens = call.pool.block_tokens;
    for (int64_t i = begin / block_tokens; i <= (end - 1) / block_tokens; ++i) {
        int32_t block = row.blocks[i];
        if (block >= 0 && static_cast<uint32_t>(block) < call.pool.block_count) continue;
        fault->set("entry %" PRId64 " of row %u's block table is block %d; the pool has %u blocks",
                   i, row.index, block, call.pool.block_count);
        return false;
    }
    return true;
}

// Checks every block that the row's tokens see: without masks, the first token sees the oldest key.
bool check_table(const AttendCall &call, const Row &row, Fault *fault) {
    int64_t block_end = (row.length + call.pool.block_tokens - 1) / call.pool.block_tokens;
    if (block_end > call.args.block_table_stride) {
        fault->set("row %u has %" PRId64 " tokens, more than its %u block-table entries can hold",
                   row.index, row.length, call.args.block_table_stride);
        return false;
    }
    int64_t begin = row.length;
    int64_t token_end = call.args.mask != 0 ? row.end_token : row.first_token + 1;
    for (int64_t token = row.first_token; token < token_end; ++token) {
        begin = std::min(begin, sight_of(call, row, token).begin);
    }
    int64_t sink_end = std::min<int64_t>(call.plan->sink_tokens, row.length);
    return check_blocks(call, row, 0, sink_end, fault) &&
           check_blocks(call, row, begin, row.length, fault);
}

bool check_shared_prefix(const AttendCall &call, uint32_t index, Fault *fault) {
    if (call.args.shared_prefix == 0) return true;
    int32_t count = array_at<const int32_t>(call.args.shared_prefix)[index];
    int64_t most = index == 0 ? 0 : call.args.block_table_stride;
    if (count >= 0 && count <= most) {
        const int32_t *blocks = row_at(call, index).blocks;
        const int32_t *before = blocks - (index == 0 ? 0 : call.args.block_table_stride);
        if (std::equal(blocks, blocks + count, before)) return true;
    }
    fault->set(
        "shared_prefix says that row %u shares %d blocks with the row before it, but it does not",
        index, count);
    return false;
}

}  // namespace

bool check_rows(const AttendCall &call, Fault *fault) {
    for (uint32_t index = 0; index < call.args.row_count; ++index) {
        Row row = row_at(call, index);
        if (!check_counts(call, row, fault)) return false;
        if (!check_shared_prefix(call, index, fault)) return false;
        if (row.first_token == row.end_token) continue;
        if (call.args.mask != 0 && !check_mask(call, row, fault)) return false;
        if (!check_table(call, row, fault)) return false;
    }
    return true;
}

}  // namespace quire::cpu
