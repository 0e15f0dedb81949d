// SPDX-License-Identifier: Apache-2.0
//
// work: the work list of a decode call, in scratch memory: the chunks that its units see, and
// nothing else, so that a launch needs no block for what a table only has room for.
//
// A unit is up to eight or up to sixteen queries of neighbouring tokens of a row: all heads of a KV
// head, of as many tokens as fit and have chunks of one length. All KV heads share the list.
// quire_rows sums the work of each row, and quire_items writes the items, in the order of their
// tokens.
//
// Rounds: states of chunks have room for round_states queries of each KV head, and a unit more. A
// unit whose states begin in round r, if all lay one after another, belongs to round r; its own
// begin at the rest. The host launches as many rounds as the call's sizes can need, and a round
// without items costs a launch. Units that see one chunk have no states.
//
// Threads: any; stateless.
#pragma once

#include "calls.hpp"
#include "dialect.hpp"
#include "pages.hpp"
#include "unit.hpp"

namespace quire::gpu {

// An item has eight words. Four say what to do: the unit's first token and row, its chunk and
// tokens, the chunk's first state. The others are the row's keys, first token and end token, so
// that no block looks them up.
constexpr uint32_t kTokensShift = 24;  // chunks are below 2^22

// The work of a row, as quire_rows sums it: items, and states of each KV head.
struct RowWork {
    uint32_t items;
    uint64_t states;
};

// The row's units within the call's tokens [first_token, end_token). Those before the first two
// ends have short and middle chunks; no unit lies on both sides of an end.
struct RowUnits {
    int32_t begin;  // tokens
    int32_t ends[3];
    int32_t step;  // tokens of a unit
    uint32_t count;
};

QUIRE_DEVICE inline uint32_t units_between(int32_t begin, int32_t end, int32_t step) {
    return static_cast<uint32_t>((end - begin + step - 1) / step);
}

QUIRE_DEVICE inline RowUnits units_of(const AttendCall &call, const Row &row) {
    RowUnits units;
    units.begin = larger(row.first_token, static_cast<int32_t>(call.first_token));
    int32_t end = larger(smaller(row.end_token, static_cast<int32_t>(call.end_token)), units.begin);
    // The token that has n keys, itself included, is the row's end + n - keys - 1.
    int32_t without_keys = row.end_token - row.key_count;
    units.ends[0] = smaller(larger(without_keys + kMostKeysOfShort, units.begin), end);
    units.ends[1] = smaller(larger(without_keys + kMostKeysOfMiddle, units.begin), end);
    units.ends[2] = end;
    units.step = static_cast<int32_t>(call.unit_queries * call.heads_inverse >> 16);
    units.count = units_between(units.begin, units.ends[0], units.step) +
                  units_between(units.ends[0], units.ends[1], units.step) +
                  units_between(units.ends[1], end, units.step);
    return units;
}

struct UnitTokens {
    int32_t begin, end;
};

QUIRE_DEVICE inline UnitTokens tokens_of(const RowUnits &units, uint32_t index) {
    int32_t begin = units.begin, end = units.ends[0];
    QUIRE_UNROLL
    for (uint32_t i = 1; i < 3; ++i) {
        uint32_t count = units_between(begin, end, units.step);
        if (index < count) break;
        index -= count;
        begin = end;
        end = units.ends[i];
    }
    begin += static_cast<int32_t>(index) * units.step;
    return {begin, smaller(begin + units.step, end)};
}

// The chunks that a unit sees, and its queries.
struct UnitWork {
    Chunks chunks;
    int32_t first_token;
    uint32_t tokens;
    uint32_t items;  // at least one, which writes the result
    uint64_t states;
};

QUIRE_DEVICE inline UnitWork work_of(const AttendCall &call, const Row &row, const RowUnits &units,
                                     uint32_t index) {
    UnitTokens tokens = tokens_of(units, index);
    UnitWork work;
    work.first_token = tokens.begin;
    work.tokens = static_cast<uint32_t>(tokens.end - tokens.begin);
    Sight first = sight_of(call, row, tokens.begin);
    Sight last = sight_of(call, row, tokens.end - 1);
    work.chunks = chunks_of({last.sink_end, first.begin, last.end});
    auto count = static_cast<uint32_t>(count_of(work.chunks));
    work.items = count == 0 ? 1 : count;
    work.states = count > 1 ? uint64_t{count} * work.tokens * call.heads_per_kv : 0;
    return work;
}

// The sum of what each of 64 threads gives, for all of them.
constexpr uint32_t kWorkThreads = 64;
template <typename T>
QUIRE_DEVICE inline T sum_over_block(SharedArray<T, kWorkThreads> &parts, T part) {
    parts[thread_index()] = part;
    barrier();
    T sum = 0;
    for (uint32_t i = 0; i < kWorkThreads; ++i) sum += parts[i];
    barrier();
    return sum;
}

QUIRE_DEVICE inline uint64_t row_work_at(const AttendCall &call, uint32_t row) {
    return call.row_works + uint64_t{row} * kRowWorkBytes;
}
QUIRE_DEVICE inline RowWork load_row_work(const AttendCall &call, uint32_t row) {
    uint64_t at = row_work_at(call, row);
    return {load<uint32_t>(at), load<uint64_t>(at + 8)};
}

// The ticket of a unit (join.hpp), by its first token.
QUIRE_DEVICE inline uint64_t ticket_of(const AttendCall &call, int32_t first_token,
                                       uint32_t kv_head) {
    return call.tickets + (static_cast<uint64_t>(first_token) * call.kv_heads + kv_head) * 4;
}

// The unit of an item, for a KV head; `state` is the first of its chunk's.
QUIRE_DEVICE inline void load_item(const AttendCall &call, uint32_t index, uint32_t kv_head,
                                   Unit &unit, uint32_t &state) {
    uint64_t at = call.items + uint64_t{index} * kWorkItemBytes;
    FourWords task = load<FourWords>(at);
    FourWords of_row = load<FourWords>(at + 16);
    unit.first_token = static_cast<int32_t>(task.v[0]);
    unit.chunk = task.v[2] & ((1u << kTokensShift) - 1);
    unit.kv_head = kv_head;
    unit.first_head = 0;
    unit.heads = call.heads_per_kv;
    unit.count = (task.v[2] >> kTokensShift) * unit.heads;
    unit.row = {task.v[1], static_cast<int32_t>(of_row.v[1]), static_cast<int32_t>(of_row.v[2]),
                static_cast<int32_t>(of_row.v[0])};
    uint32_t log2 = chunk_log2_of(reach_of_token(call, unit.row, unit.first_token).end);
    unit.chunk_begin = static_cast<int32_t>(unit.chunk << log2);
    unit.chunk_end = unit.chunk_begin + (1 << log2);
    state = task.v[3];
}

// Where the states of a query of a unit's chunk are; `first` is the first of the chunk's.
QUIRE_DEVICE inline uint64_t state_of(const AttendCall &call, uint64_t first, uint32_t m,
                                      uint32_t kv_head) {
    return (first + m) * call.kv_heads + kv_head;
}

}  // namespace quire::gpu
