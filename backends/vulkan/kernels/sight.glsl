// SPDX-License-Identifier: Apache-2.0
//
// sight: which keys of its row a token sees.
//
// A key's place is its index in its row, 0 first; its position is its token's position in the text.
// They differ only for new tokens under a mask: two drafts for one position lie at two places.

struct Row {
    uint index;
    int first_token;  // of the call's query tokens
    int end_token;
    int key_count;
};

// Keys in [0, sink_end) and [begin, end); with a mask, those that the mask and the group leave.
struct Sight {
    int sink_end;
    int begin;
    int end;
    int position;
    int mask_word;  // index of the token's first mask word; -1: no mask
    int mask_first;  // the place of bit 0
};

Row row_at(Arguments call, uint index) {
    return Row(index, load_int(call.cu_q, index), load_int(call.cu_q, index + 1),
               load_int(call.lengths, index));
}

int first_new_place(Row row) { return row.key_count - (row.end_token - row.first_token); }

int mask_word_of(Arguments call, int token) {
    return has(call, kMask) ? load_int(call.mask_rows, token) : -1;
}

int position_of(Arguments call, Row row, int token) {
    if (mask_word_of(call, token) >= 0) return load_int(call.positions, token);
    return row.key_count - row.end_token + token;
}

int key_position(Arguments call, Row row, int place) {
    int since_new = place - first_new_place(row);
    if (since_new < 0 || !has(call, kMask)) return place;
    return position_of(call, row, row.first_token + since_new);
}

int oldest_position(Arguments call, int position) {
    if (has(call, kWindow)) return position < call.window ? 0 : position - call.window + 1;
    if (has(call, kChunked) && position > 0) return position - position % call.window;
    return 0;
}

Sight sight_of(Arguments call, Row row, int token) {
    Sight sight;
    sight.mask_word = mask_word_of(call, token);
    sight.mask_first = 0;
    sight.position = position_of(call, row, token);
    sight.begin = oldest_position(call, sight.position);
    if (sight.mask_word >= 0) {
        sight.mask_first = load_int(call.mask_first, row.index);
        // A new key may have any position.
        sight.begin = clamp(sight.begin, 0, max(0, first_new_place(row)));
        sight.end = row.key_count;
    } else if (has(call, kNotCausal)) {
        sight.end = row.key_count;
    } else {
        sight.end = clamp(sight.position, -1, row.key_count - 1) + 1;
    }
    sight.sink_end = min(call.sink_tokens, sight.end);
    return sight;
}

// REQUIRES: place is at least 0.
bool is_visible(Arguments call, Row row, Sight sight, int place) {
    if (place >= sight.end) return false;
    if (sight.mask_word < 0) return place < sight.sink_end || place >= sight.begin;
    if (place >= sight.mask_first) {
        int bit = place - sight.mask_first;
        uint word = load_word(call.mask + uint64_t(int64_t(sight.mask_word) + bit / 32) * 4);
        if ((word >> (bit % 32) & 1u) == 0) return false;
    }
    if (!has(call, kWindow) && !has(call, kChunked)) return true;  // the mask alone decides
    int key = key_position(call, row, place);
    if (key > sight.position) return false;
    return key < call.sink_tokens || key >= oldest_position(call, sight.position);
}

// True if [begin, end) may contain a key that the token sees.
bool may_see(Sight sight, int begin, int end) {
    return begin < sight.sink_end || (begin < sight.end && end > sight.begin);
}
