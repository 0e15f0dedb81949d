// SPDX-License-Identifier: Apache-2.0
//
// items: writes the work list of a decode call (work.hpp). A group writes the items of one row,
// after those of all earlier rows, whose work quire_rows has summed.

#include "calls.hpp"
#include "dialect.hpp"
#include "fault.hpp"
#include "work.hpp"

namespace quire::gpu {

struct ItemsShared {
    SharedArray<uint32_t, 1> idle;
    SharedArray<uint32_t, kWorkThreads> item_parts;
    SharedArray<uint64_t, kWorkThreads> state_parts;
    // The first item of each unit at hand, and what it says.
    SharedArray<uint32_t, kWorkThreads> first_items;
    SharedArray<uint32_t, kWorkThreads> first_states;
    SharedArray<uint32_t, kWorkThreads> tokens;
    SharedArray<int32_t, kWorkThreads> first_tokens;
    SharedArray<int32_t, kWorkThreads> sink_ends, begins, ends;
};

// Sums over the threads before this one, and over all.
struct Sums {
    uint32_t items, all_items;
    uint64_t states, all_states;
};

QUIRE_DEVICE inline Sums sum_before(ItemsShared &shared, uint32_t items, uint64_t states) {
    shared.item_parts[thread_index()] = items;
    shared.state_parts[thread_index()] = states;
    barrier();
    Sums sums = {0, 0, 0, 0};
    for (uint32_t i = 0; i < kWorkThreads; ++i) {
        if (i == thread_index()) sums.items = sums.all_items;
        if (i == thread_index()) sums.states = sums.all_states;
        sums.all_items += shared.item_parts[i];
        sums.all_states += shared.state_parts[i];
    }
    barrier();
    return sums;
}

QUIRE_DEVICE inline void begin_rounds(const AttendCall &call, uint64_t after, uint64_t upto,
                                      uint32_t item) {
    for (uint64_t r = after; r < call.round_count && r * call.round_states <= upto; ++r) {
        store<uint32_t>(call.round_begins + r * 4, item);
    }
}

// Writes the items of 64 units, of which each thread has described its own.
QUIRE_DEVICE inline void write_items(const AttendCall &call, ItemsShared &shared, const Row &row,
                                     uint32_t item, uint32_t count) {
    for (uint32_t k = thread_index(); k < count; k += kWorkThreads) {
        uint32_t unit = 0;
        for (uint32_t step = kWorkThreads / 2; step != 0; step /= 2) {
            if (shared.first_items[unit + step] <= k) unit += step;
        }
        Chunks chunks = {shared.sink_ends[unit], shared.begins[unit], shared.ends[unit]};
        uint32_t n = k - shared.first_items[unit], tokens = shared.tokens[unit];
        uint32_t chunk = count_of(chunks) == 0
                             ? 0
                             : static_cast<uint32_t>(chunk_at(chunks, static_cast<int32_t>(n)));
        uint32_t state = shared.first_states[unit] + n * tokens * call.heads_per_kv;
        uint64_t at = call.items + uint64_t{item + k} * kWorkItemBytes;
        store<FourWords>(at, {{static_cast<uint32_t>(shared.first_tokens[unit]), row.index,
                               chunk | tokens << kTokensShift, state}});
        store<FourWords>(
            at + 16, {{static_cast<uint32_t>(row.key_count), static_cast<uint32_t>(row.first_token),
                       static_cast<uint32_t>(row.end_token), 0}});
    }
}

QUIRE_KERNEL(quire_items, 64, AttendCall, call) {
    QUIRE_SHARED(ItemsShared, shared);
    if (is_idle(call.head, shared.idle)) return;
    Row row = row_at(call, static_cast<uint32_t>(group_index()));
    uint32_t items = 0;
    uint64_t states = 0;
    for (uint32_t i = thread_index(); i < row.index; i += kWorkThreads) {
        RowWork work = load_row_work(call, i);
        items += work.items;
        states += work.states;
    }
    Sums before = sum_before(shared, items, states);
    items = before.all_items;
    states = before.all_states;
    RowUnits units = units_of(call, row);
    for (uint32_t first = 0; first < units.count; first += kWorkThreads) {
        UnitWork work = {};
        bool is_unit = first + thread_index() < units.count;
        if (is_unit) work = work_of(call, row, units, first + thread_index());
        Sums sums = sum_before(shared, work.items, work.states);
        uint64_t start = states + sums.states;
        shared.first_items[thread_index()] = is_unit ? sums.items : UINT32_MAX;
        shared.first_states[thread_index()] = static_cast<uint32_t>(start % call.round_states);
        shared.tokens[thread_index()] = work.tokens;
        shared.first_tokens[thread_index()] = work.first_token;
        shared.sink_ends[thread_index()] = work.chunks.sink_end;
        shared.begins[thread_index()] = work.chunks.begin;
        shared.ends[thread_index()] = work.chunks.end;
        begin_rounds(call, start / call.round_states + 1, start + work.states,
                     items + sums.items + work.items);
        barrier();
        write_items(call, shared, row, items, sums.all_items);
        barrier();
        items += sums.all_items;
        states += sums.all_states;
    }
    // The last row knows where the list ends.
    if (row.index + 1 != call.row_count || thread_index() != 0) return;
    store<uint32_t>(call.round_begins, 0);
    begin_rounds(call, states / call.round_states + 1, UINT64_MAX, items);
    store<uint32_t>(call.round_begins + uint64_t{call.round_count} * 4, items);
}

}  // namespace quire::gpu
