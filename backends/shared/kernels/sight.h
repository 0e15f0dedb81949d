// SPDX-License-Identifier: Apache-2.0
//
// sight: which keys of its row a token sees.
//
// A key's place is its index in its row, 0 first; its position is its token's position in the text.
// They differ only for new tokens under a mask: two drafts for one position lie at two places.
//
// Written in what C++ and GLSL have in common, as softmax.h. cpu/kernels/sight has the same rules
// for 64 keys at once; tests/fakegpu/sight_test.cpp holds the two to each other.

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

QUIRE_FUNCTION Row row_at(QUIRE_IN(AttendCall) call, uint32_t index) {
    Row row;
    row.index = index;
    row.first_token = load_int(call.cu_q, int64_t(index));
    row.end_token = load_int(call.cu_q, int64_t(index) + 1);
    row.key_count = load_int(call.lengths, int64_t(index));
    return row;
}

QUIRE_FUNCTION int32_t first_new_place(QUIRE_IN(Row) row) {
    return row.key_count - (row.end_token - row.first_token);
}

QUIRE_FUNCTION int32_t mask_word_of(QUIRE_IN(AttendCall) call, int32_t token) {
    return has(call, kMask) ? load_int(call.mask_rows, int64_t(token)) : -1;
}

QUIRE_FUNCTION int32_t position_of(QUIRE_IN(AttendCall) call, QUIRE_IN(Row) row, int32_t token) {
    if (mask_word_of(call, token) >= 0) return load_int(call.positions, int64_t(token));
    return row.key_count - row.end_token + token;
}

QUIRE_FUNCTION int32_t key_position(QUIRE_IN(AttendCall) call, QUIRE_IN(Row) row, int32_t place) {
    int32_t since_new = place - first_new_place(row);
    if (since_new < 0 || !has(call, kMask)) return place;
    return position_of(call, row, row.first_token + since_new);
}

// The oldest position that a token at this position sees, sinks aside.
QUIRE_FUNCTION int32_t oldest_position(QUIRE_IN(AttendCall) call, int32_t position) {
    if (has(call, kWindow)) return position < call.window ? 0 : position - call.window + 1;
    if (has(call, kChunked) && position > 0) return position - position % call.window;
    return 0;
}

QUIRE_FUNCTION Sight sight_of(QUIRE_IN(AttendCall) call, QUIRE_IN(Row) row, int32_t token) {
    Sight sight;
    sight.mask_word = mask_word_of(call, token);
    sight.mask_first = 0;
    sight.position = position_of(call, row, token);
    sight.begin = oldest_position(call, sight.position);
    if (sight.mask_word >= 0) {
        sight.mask_first = load_int(call.mask_first, int64_t(row.index));
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
QUIRE_FUNCTION bool is_visible(QUIRE_IN(AttendCall) call, QUIRE_IN(Row) row, QUIRE_IN(Sight) sight,
                               int32_t place) {
    if (place >= sight.end) return false;
    if (sight.mask_word < 0) return place < sight.sink_end || place >= sight.begin;
    if (place >= sight.mask_first) {
        int32_t bit = place - sight.mask_first;
        uint32_t word = uint32_t(load_int(call.mask, int64_t(sight.mask_word) + bit / 32));
        if ((word >> (bit % 32) & 1u) == 0u) return false;
    }
    if (!has(call, kWindow) && !has(call, kChunked)) return true;  // the mask alone decides
    int32_t key = key_position(call, row, place);
    if (key > sight.position) return false;
    return key < call.sink_tokens || key >= oldest_position(call, sight.position);
}

// True if [begin, end) may contain a key that the token sees.
QUIRE_FUNCTION bool may_see(QUIRE_IN(Sight) sight, int32_t begin, int32_t end) {
    return begin < sight.sink_end || (begin < sight.end && end > sight.begin);
}

// The index, within the round, of the state of a query's chunk.
QUIRE_FUNCTION uint64_t state_index(QUIRE_IN(AttendCall) call, int32_t token, uint32_t chunk,
                                    uint32_t q_head) {
    uint64_t in_round = uint64_t(token - int32_t(call.first_token));
    return (in_round * call.chunk_count + chunk) * call.q_heads + q_head;
}
