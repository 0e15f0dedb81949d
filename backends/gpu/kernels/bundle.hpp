// SPDX-License-Identifier: Apache-2.0
//
// bundle: consecutive units of one row, processed by one block of threads so that each tile of K
// and V is read once for all of them. Each unit has its own team of threads and is what it would be
// alone, so bits do not depend on the number of teams.
//
// A bundle begins at each multiple of its token count, counted from the row's first token, and at
// the start of a round. A team whose unit has no token there still reaches every barrier.
//
// Seats: groups of a launch are numbered without knowing any row. Row i has the seats from cu_q[i]
// / (tokens of a bundle) + i on, as many as it has bundles, or one more. A group finds its row by
// binary search, and the host counts seats from the batch's size alone (rounds.hpp).
//
// Threads: all of a block, together; stateless.
#pragma once

#include "calls.hpp"
#include "dialect.hpp"
#include "sight.hpp"
#include "unit.hpp"

namespace quire::gpu {

constexpr uint32_t kTeamThreads = kFragmentQueries * kThreadsPerQuery;

template <uint32_t kTeams>
QUIRE_DEVICE inline uint32_t team_index() {
    return kTeams == 1 ? 0 : thread_index() / kTeamThreads;
}
// The thread's index in its team.
template <uint32_t kTeams>
QUIRE_DEVICE inline uint32_t member_index() {
    return kTeams == 1 ? thread_index() : thread_index() % kTeamThreads;
}
QUIRE_DEVICE inline uint32_t warps_of_team() { return kTeamThreads / warp_width(); }
template <uint32_t kTeams>
QUIRE_DEVICE inline uint32_t warp_of_team() {
    return member_index<kTeams>() / warp_width();
}

struct Bundle {
    Unit unit;            // heads and chunk of all units; with one team, the unit itself
    int32_t tokens;       // per unit
    int32_t first_token;  // of the first team's unit if that were whole
    int32_t begin, end;   // tokens of the bundle
};

// A team's unit; its count is 0 if it has no tokens.
template <uint32_t kTeams>
QUIRE_DEVICE inline Unit unit_of(const Bundle &bundle, uint32_t team) {
    Unit unit = bundle.unit;
    if constexpr (kTeams > 1) {
        int32_t first = bundle.first_token + static_cast<int32_t>(team) * bundle.tokens;
        unit.first_token = larger(first, bundle.begin);
        int32_t end = smaller(first + bundle.tokens, bundle.end);
        unit.count = static_cast<uint32_t>(larger(end - unit.first_token, 0)) * unit.heads;
    }
    return unit;
}

QUIRE_DEVICE inline uint32_t first_seat_of(const AttendCall &call, uint32_t row, uint32_t tokens) {
    return static_cast<uint32_t>(load_int(call.cu_q, row)) / tokens + row;
}

// Returns false if the block has nothing to do.
template <uint32_t kTeams>
QUIRE_DEVICE inline bool find_bundle(const AttendCall &call, Bundle *bundle) {
    bundle->tokens = tokens_of_unit(call, kFragmentQueries);
    uint32_t tokens = static_cast<uint32_t>(bundle->tokens) * kTeams;
    auto place =
        static_cast<uint32_t>(find_heads(call, kFragmentQueries, group_index(), bundle->unit));
    auto first_of_round = static_cast<int32_t>(call.first_token);
    // A token of no row lies before all rows, or after them, where no seat has tokens.
    auto row = static_cast<uint32_t>(larger(load_int(call.token_rows, first_of_round), 0));
    int32_t in_row = larger(first_of_round - load_int(call.cu_q, row), 0);
    uint32_t seat =
        first_seat_of(call, row, tokens) + static_cast<uint32_t>(in_row) / tokens + place;
    for (uint32_t end = call.row_count; end - row > 1;) {
        uint32_t middle = row + (end - row) / 2;
        bool is_behind = first_seat_of(call, middle, tokens) > seat;
        end = is_behind ? middle : end;
        row = is_behind ? row : middle;
    }
    set_row(bundle->unit, row_at(call, row));
    const Row &found = bundle->unit.row;
    uint32_t behind_row = (seat - first_seat_of(call, row, tokens)) * tokens;
    bundle->first_token = found.first_token + static_cast<int32_t>(behind_row);
    bundle->begin = larger(bundle->first_token, first_of_round);
    bundle->end =
        smaller(smaller(bundle->first_token + static_cast<int32_t>(tokens), found.end_token),
                static_cast<int32_t>(call.end_token));
    return bundle->begin < bundle->end;
}

// Each lane checks one token at a time.
QUIRE_DEVICE inline bool may_see_any(const AttendCall &call, const Bundle &bundle) {
    bool may = false;
    auto lanes = static_cast<int32_t>(warp_width());
    for (int32_t i = bundle.begin; i < bundle.end; i += lanes) {
        int32_t token = i + static_cast<int32_t>(lane_index());
        if (token >= bundle.end) continue;
        Sight sight = sight_of(call, bundle.unit.row, token);
        may = may || may_see(sight, bundle.unit.chunk_begin, bundle.unit.chunk_end);
    }
    return ballot(may) != 0;
}

}  // namespace quire::gpu
