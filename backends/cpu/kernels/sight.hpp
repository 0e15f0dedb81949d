// SPDX-License-Identifier: Apache-2.0
//
// sight: which keys of its row a token sees.
//
// Place and position are the same without masks. A key's place is its index in its row, from 0; its
// position is where its token stands in the text. They differ for new tokens under a mask: two
// drafts for one position lie at two places.
//
// Invariants
//   (1) what a token sees depends on its row and on nothing else in the call
//   (2) every bit of visible_in_tile() lies in [0, sink_end) or [begin, end) of the token's sight
//
// Units: places and positions are tokens.
//
// Threads: any; nothing is kept.
#pragma once

#include <cstdint>

#include "kernels/attend_call.hpp"

namespace quire::cpu {

struct Row {
    uint32_t index;
    int64_t first_token;  // of the call's query tokens
    int64_t end_token;
    int64_t length;
    const int32_t *blocks;

    int64_t first_new_place() const { return length - (end_token - first_token); }
};

// Bounds of what a token sees: [0, sink_end) and [begin, end). With a mask, the mask and its group
// may hide some of these.
struct Sight {
    int64_t sink_end;
    int64_t begin;
    int64_t end;
    int64_t position;
    const uint32_t *mask;  // the token's bits; NULL if it has no mask
    int64_t mask_first;    // the place of bit 0
};

Row row_at(const AttendCall &call, uint32_t index);

// True if the token has a mask. REQUIRES: `token` is one of the call's.
bool is_masked(const AttendCall &call, int64_t token);
// The position of the row's token.
int64_t position_of(const AttendCall &call, const Row &row, int64_t token);
// The position of the key at this place of the row.
int64_t key_position(const AttendCall &call, const Row &row, int64_t place);

// Bounds of what the token sees.
Sight sight_of(const AttendCall &call, const Row &row, int64_t token);

// Places [0, end) as bits of the tile.
uint64_t places_before(int64_t end, int64_t tile);

// The keys at places [tile, tile + 64) that the token sees: bit i is place tile + i.
uint64_t visible_in_tile(const AttendCall &call, const Row &row, const Sight &sight, int64_t tile);

}  // namespace quire::cpu
