// SPDX-License-Identifier: Apache-2.0
//
// rows: checks that all indices of an attention call's rows are in range, and finds the row of each
// query token; for decode.cu, it sums the row's work instead (work.hpp) and sets the tickets of its
// tokens to their beginning. A group checks one row.
//
// Everything that later kernels read through tables, lengths and masks is checked here.

#include "calls.hpp"
#include "dialect.hpp"
#include "fault.hpp"
#include "sight.hpp"
#include "work.hpp"

namespace quire::gpu {

constexpr uint32_t kRowThreads = 64;
constexpr uint32_t kNoRow = UINT32_MAX;

struct RowShared {
    SharedArray<uint32_t, 1> idle;
    SharedArray<int32_t, 1> oldest;  // place that any token of the row sees, ignoring sinks
    SharedArray<uint32_t, kWorkThreads> items;
    SharedArray<uint64_t, kWorkThreads> states;
};

QUIRE_DEVICE inline bool check_counts(const AttendCall &call, const Row &row) {
    auto query_tokens = static_cast<int32_t>(call.query_tokens);
    if (row.first_token >= 0 && row.end_token >= row.first_token && row.end_token <= query_tokens &&
        row.key_count >= 0 && row.key_count <= kMostKeys) {
        return true;
    }
    raise_fault(call.head, kFaultCounts, row.index,
                {{row.first_token, row.end_token, query_tokens, row.key_count}});
    return false;
}

QUIRE_DEVICE inline void check_shared_prefix(const AttendCall &call, const Row &row) {
    int32_t count = load_int(call.shared_prefix, row.index);
    int32_t most = row.index == 0 ? 0 : static_cast<int32_t>(call.block_table_stride);
    bool is_so = count >= 0 && count <= most;
    int64_t at = int64_t{row.index} * call.block_table_stride;
    for (auto i = static_cast<int32_t>(thread_index()); is_so && i < count;
         i += static_cast<int32_t>(kRowThreads)) {
        is_so = load_int(call.block_table, at + i) ==
                load_int(call.block_table, at - call.block_table_stride + i);
    }
    if (!is_so) raise_fault(call.head, kFaultSharedPrefix, row.index, {{count, 0, 0, 0}});
}

// Returns false if a token's mask is invalid.
QUIRE_DEVICE inline bool check_mask(const AttendCall &call, const Row &row, int32_t token) {
    auto named = static_cast<uint32_t>(token);
    int32_t word = load_int(call.mask_rows, token);
    if (word < -1) raise_fault(call.head, kFaultMaskWord, named, {{word, 0, 0, 0}});
    if (word < 0) return word == -1;
    int32_t position = load_int(call.positions, token);
    if (position < 0) raise_fault(call.head, kFaultMaskPosition, named, {{position, 0, 0, 0}});
    int32_t first = load_int(call.mask_first, row.index);
    bool is_inside = first >= 0 && first <= row.key_count;
    if (!is_inside) {
        raise_fault(call.head, kFaultMaskFirst, row.index, {{first, row.key_count, 0, 0}});
    }
    return position >= 0 && is_inside;
}

QUIRE_DEVICE inline void check_blocks(const AttendCall &call, const Row &row, int32_t begin,
                                      int32_t end) {
    if (begin >= end) return;
    auto block_tokens = static_cast<int32_t>(call.block_tokens);
    int32_t last = (end - 1) / block_tokens;
    for (int32_t i = begin / block_tokens + static_cast<int32_t>(thread_index()); i <= last;
         i += static_cast<int32_t>(kRowThreads)) {
        int32_t block =
            load_int(call.block_table, int64_t{row.index} * call.block_table_stride + i);
        if (block >= 0 && static_cast<uint32_t>(block) < call.block_count) continue;
        raise_fault(call.head, kFaultBlock, row.index,
                    {{block, i, static_cast<int32_t>(call.block_count), 0}});
        return;
    }
}

// A graph may be launched for a step that it was not captured for: tokens without room would be
// left out yet count as computed. Returns false in that case.
QUIRE_DEVICE inline bool check_graph(const AttendCall &call) {
    auto query_tokens = static_cast<int32_t>(call.query_tokens);
    int32_t of_step = load_int(call.cu_q, call.most_rows);
    if (of_step <= query_tokens) return true;
    raise_fault(call.head, kFaultGraph, 0, {{of_step, query_tokens, 0, 0}});
    return false;
}

// Tokens that no row has lie before the first row and after the last.
QUIRE_DEVICE inline void mark_tokens(const AttendCall &call, const Row &row) {
    int32_t begin = row.index == 0 ? 0 : row.first_token;
    bool is_last = row.index + 1 == call.row_count;
    int32_t end = is_last ? static_cast<int32_t>(call.query_tokens) : row.end_token;
    for (int32_t token = begin + static_cast<int32_t>(thread_index()); token < end;
         token += static_cast<int32_t>(kRowThreads)) {
        bool is_of_row = token >= row.first_token && token < row.end_token;
        store<uint32_t>(call.token_rows + static_cast<uint64_t>(token) * 4,
                        is_of_row ? row.index : kNoRow);
    }
}

QUIRE_DEVICE inline void sum_work(const AttendCall &call, RowShared &shared, const Row &row) {
    RowUnits units = units_of(call, row);
    uint32_t items = 0;
    uint64_t states = 0;
    for (uint32_t i = thread_index(); i < units.count; i += kRowThreads) {
        UnitWork work = work_of(call, row, units, i);
        items += work.items;
        states += work.states;
        for (uint32_t head = 0; head < call.kv_heads; ++head) {
            store<uint32_t>(ticket_of(call, work.first_token, head), kFirstTicket);
        }
    }
    items = sum_over_block(shared.items, items);
    states = sum_over_block(shared.states, states);
    if (thread_index() != 0) return;
    store<uint32_t>(row_work_at(call, row.index), items);
    store<uint64_t>(row_work_at(call, row.index) + 8, states);
}

QUIRE_KERNEL(quire_rows, 64, AttendCall, call) {
    QUIRE_SHARED(RowShared, shared);
    if (is_idle(call.head, shared.idle)) return;
    Row row = row_at(call, static_cast<uint32_t>(group_index()));
    if (!check_counts(call, row) || !check_graph(call)) return;
    if (has(call, kDecodes)) {
        sum_work(call, shared, row);
    } else {
        mark_tokens(call, row);
    }
    if (call.shared_prefix != 0) check_shared_prefix(call, row);
    if (row.first_token == row.end_token) return;
    auto keys = static_cast<uint32_t>(row.key_count);
    uint32_t blocks = keys == 0 ? 0 : (keys - 1) / call.block_tokens + 1;
    uint32_t chunks = keys == 0 ? 0 : (keys - 1) / kChunkPlaces + 1;
    if (has(call, kDecodes)) chunks = most_chunks(row.key_count);
    if (blocks > call.block_table_stride || chunks > call.chunk_count) {
        raise_fault(call.head, kFaultTableTooShort, row.index,
                    {{row.key_count, static_cast<int32_t>(call.block_table_stride), 0, 0}});
        return;
    }
    if (thread_index() == 0) shared.oldest[0] = row.key_count;
    barrier();
    for (int32_t token = row.first_token + static_cast<int32_t>(thread_index());
         token < row.end_token; token += static_cast<int32_t>(kRowThreads)) {
        if (has(call, kMask) && !check_mask(call, row, token)) continue;
        atomic_min(shared.oldest, 0, sight_of(call, row, token).begin);
    }
    barrier();
    int32_t oldest = shared.oldest[0];
    check_blocks(call, row, 0, smaller(call.sink_tokens, row.key_count));
    check_blocks(call, row, larger(oldest, 0), row.key_count);
}

}  // namespace quire::gpu
