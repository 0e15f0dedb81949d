// SPDX-License-Identifier: Apache-2.0
//
// sight: which keys of its row a token sees.
//
// A key's place is its index in its row, 0 first; its position is its token's position in the text.
// They differ only for new tokens under a mask: two drafts for one position lie at two places.
//
// Threads: any; stateless.
#pragma once

#include "calls.hpp"
#include "dialect.hpp"

namespace quire::gpu {

QUIRE_DEVICE inline int32_t load_int(uint64_t array, int64_t index) {
    return load<int32_t>(array + static_cast<uint64_t>(index) * 4);
}
QUIRE_DEVICE inline float load_float(uint64_t array, uint64_t index) {
    return load<float>(array + index * 4);
}
QUIRE_DEVICE inline int32_t smaller(int32_t a, int32_t b) { return a < b ? a : b; }
QUIRE_DEVICE inline int32_t larger(int32_t a, int32_t b) { return a < b ? b : a; }
QUIRE_DEVICE inline uint32_t smaller(uint32_t a, uint32_t b) { return a < b ? a : b; }

QUIRE_DEVICE inline bool has(const AttendCall &call, uint32_t option) {
    return (call.options & option) != 0;
}

struct Row {
    uint32_t index;
    int32_t first_token;  // of the call's query tokens
    int32_t end_token;
    int32_t key_count;
};

// Keys in [0, sink_end) and [begin, end); with a mask, those that the mask and the group leave.
struct Sight {
    int32_t sink_end;
    int32_t begin;
    int32_t end;
    int32_t position;
    int32_t mask_word;   // index of the token's first mask word; -1: no mask
    int32_t mask_first;  // the place of bit 0
};

QUIRE_DEVICE inline Row row_at(const AttendCall &call, uint32_t index) {
    return {index, load_int(call.cu_q, index), load_int(call.cu_q, int64_t{index} + 1),
            load_int(call.lengths, index)};
}

QUIRE_DEVICE inline int32_t first_new_place(const Row &row) {
    return row.key_count - (row.end_token - row.first_token);
}

QUIRE_DEVICE inline int32_t mask_word_of(const AttendCall &call, int32_t token) {
    return has(call, kMask) ? load_int(call.mask_rows, token) : -1;
}

QUIRE_DEVICE inline int32_t position_of(const AttendCall &call, const Row &row, int32_t token) {
    if (mask_word_of(call, token) >= 0) return load_int(call.positions, token);
    return row.key_count - row.end_token + token;
}

QUIRE_DEVICE inline int32_t key_position(const AttendCall &call, const Row &row, int32_t place) {
    int32_t since_new = place - first_new_place(row);
    if (since_new < 0 || !has(call, kMask)) return place;
    return position_of(call, row, row.first_token + since_new);
}

QUIRE_DEVICE inline int32_t oldest_position(const AttendCall &call, int32_t position) {
    if (has(call, kWindow)) return position < call.window ? 0 : position - call.window + 1;
    if (has(call, kChunked) && position > 0) return position - position % call.window;
    return 0;
}

QUIRE_DEVICE inline Sight sight_of(const AttendCall &call, const Row &row, int32_t token) {
    Sight sight;
    sight.mask_word = mask_word_of(call, token);
    sight.mask_first = 0;
    sight.position = position_of(call, row, token);
    sight.begin = oldest_position(call, sight.position);
    if (sight.mask_word >= 0) {
        sight.mask_first = load_int(call.mask_first, row.index);
        // A new key may have any position.
        sight.begin = smaller(larger(sight.begin, 0), larger(0, first_new_place(row)));
        sight.end = row.key_count;
    } else if (has(call, kNotCausal)) {
        sight.end = row.key_count;
    } else {
        sight.end = smaller(larger(sight.position, -1), row.key_count - 1) + 1;
    }
    sight.sink_end = smaller(call.sink_tokens, sight.end);
    return sight;
}

// REQUIRES: place is at least 0.
QUIRE_DEVICE inline bool is_visible(const AttendCall &call, const Row &row, const Sight &sight,
                                    int32_t place) {
    if (place >= sight.end) return false;
    if (sight.mask_word < 0) return place < sight.sink_end || place >= sight.begin;
    if (place >= sight.mask_first) {
        int32_t bit = place - sight.mask_first;
        auto word = static_cast<uint32_t>(load_int(call.mask, int64_t{sight.mask_word} + bit / 32));
        if ((word >> (bit % 32) & 1u) == 0) return false;
    }
    if (!has(call, kWindow) && !has(call, kChunked)) return true;  // the mask alone decides
    int32_t key = key_position(call, row, place);
    if (key > sight.position) return false;
    return key < call.sink_tokens || key >= oldest_position(call, sight.position);
}

// True if [begin, end) may contain a key that the token sees.
QUIRE_DEVICE inline bool may_see(const Sight &sight, int32_t begin, int32_t end) {
    return begin < sight.sink_end || (begin < sight.end && end > sight.begin);
}

// The index, within the round, of the state of a query's chunk.
QUIRE_DEVICE inline uint64_t state_index(const AttendCall &call, int32_t token, uint32_t chunk,
                                         uint32_t q_head) {
    auto in_round = static_cast<uint64_t>(token - static_cast<int32_t>(call.first_token));
    return (in_round * call.chunk_count + chunk) * call.q_heads + q_head;
}

}  // namespace quire::gpu
