// SPDX-License-Identifier: Apache-2.0
//
// unit: a thread block's share of an attention call: up to `queries` queries that read the same
// keys (heads of a KV head and, if those are fewer, of several tokens) and one chunk of places.
//
// Written in what C++ and GLSL have in common, as softmax.h. The including file has sight.h, and
// says what a call leaves open: heads_per_kv_of(), block_tokens_of() and slope_of().

struct Unit {
    Row row;
    int32_t first_token;
    uint32_t kv_head;
    uint32_t first_head;  // within the KV head's query heads
    uint32_t heads;       // per token
    uint32_t count;       // of queries; results of later ones are discarded
    uint32_t chunk;
    int32_t chunk_begin;
    int32_t chunk_end;
};

QUIRE_FUNCTION int32_t token_of(QUIRE_IN(Unit) unit, uint32_t m) {
    return unit.first_token + int32_t(m / unit.heads);
}

QUIRE_FUNCTION uint32_t q_head_of(QUIRE_IN(AttendCall) call, QUIRE_IN(Unit) unit, uint32_t m) {
    return unit.kv_head * heads_per_kv_of(call) + unit.first_head + m % unit.heads;
}

// The tokens of a unit, each with all heads of its slice of the KV head's query heads.
QUIRE_FUNCTION int32_t tokens_of_unit(QUIRE_IN(AttendCall) call, uint32_t queries) {
    return int32_t(queries / smaller(heads_per_kv_of(call), queries));
}

// Sets the unit's heads and chunk from the thread block's index; returns the rest of that index, a
// place among the round's tokens.
QUIRE_FUNCTION int32_t find_heads(QUIRE_IN(AttendCall) call, uint32_t queries, uint64_t index,
                                  QUIRE_INOUT(Unit) unit) {
    uint32_t of_kv = heads_per_kv_of(call);
    uint32_t heads = smaller(of_kv, queries);
    uint32_t slices = (of_kv + heads - 1) / heads;
    uint64_t left = index;
    unit.chunk = uint32_t(left % call.chunk_count);
    left /= call.chunk_count;
    uint32_t slice = uint32_t(left % slices);
    left /= slices;
    unit.kv_head = uint32_t(left % call.kv_heads);
    unit.first_head = slice * heads;
    unit.heads = smaller(heads, of_kv - unit.first_head);
    return int32_t(left / call.kv_heads);
}

QUIRE_FUNCTION void set_row(QUIRE_INOUT(Unit) unit, QUIRE_IN(Row) row) {
    unit.row = row;
    unit.chunk_begin = int32_t(unit.chunk) * kChunkPlaces;
    unit.chunk_end = smaller(unit.chunk_begin + kChunkPlaces, row.key_count);
}

// False if the thread block has nothing to do.
QUIRE_FUNCTION bool find_unit(QUIRE_IN(AttendCall) call, uint32_t queries, uint64_t index,
                              QUIRE_INOUT(Unit) unit) {
    int32_t first_of_round = int32_t(call.first_token);
    unit.first_token = first_of_round + find_heads(call, queries, index, unit);
    int32_t row = load_int(call.token_rows, int64_t(unit.first_token));
    if (row < 0) return false;
    set_row(unit, row_at(call, uint32_t(row)));
    // A unit begins at each multiple of its token count, counted from the row's first token, and at
    // the start of a round.
    int32_t tokens = tokens_of_unit(call, queries);
    int32_t in_row = unit.first_token - unit.row.first_token;
    if (in_row % tokens != 0 && unit.first_token != first_of_round) return false;
    int32_t end = unit.row.first_token + (in_row / tokens + 1) * tokens;
    end = smaller(smaller(end, unit.row.end_token), int32_t(call.end_token));
    unit.count = uint32_t(end - unit.first_token) * unit.heads;
    return true;
}

QUIRE_FUNCTION bool may_see_any(QUIRE_IN(AttendCall) call, QUIRE_IN(Unit) unit) {
    for (uint32_t m = 0; m < unit.count; m += unit.heads) {
        Sight sight = sight_of(call, unit.row, token_of(unit, m));
        if (may_see(sight, unit.chunk_begin, unit.chunk_end)) return true;
    }
    return false;
}

// The queries that see the key at this place, one bit each.
QUIRE_FUNCTION uint32_t seen_by(QUIRE_IN(AttendCall) call, QUIRE_IN(Unit) unit, int32_t place) {
    if (place >= unit.chunk_end) return 0;
    uint32_t seen = 0;
    uint32_t of_token = (1u << unit.heads) - 1;  // all heads of a token see the same keys
    for (uint32_t m = 0; m < unit.count; m += unit.heads) {
        Sight sight = sight_of(call, unit.row, token_of(unit, m));
        if (is_visible(call, unit.row, sight, place)) seen |= of_token << m;
    }
    return seen;
}

// The address of a place's block at the layer. REQUIRES: a query of the unit sees the place.
QUIRE_FUNCTION uint64_t block_of(QUIRE_IN(AttendCall) call, QUIRE_IN(Unit) unit, int32_t place) {
    int64_t entry =
        int64_t(unit.row.index) * call.block_table_stride + uint32_t(place) / block_tokens_of(call);
    return call.pool + uint64_t(load_int(call.block_table, entry) * call.block_stride);
}

QUIRE_FUNCTION uint64_t k_row_of(QUIRE_IN(AttendCall) call, QUIRE_IN(Unit) unit, uint64_t block,
                                 uint32_t slot) {
    return block + uint64_t(unit.kv_head * call.k_head_stride + slot * call.k_token_stride);
}

QUIRE_FUNCTION uint64_t v_row_of(QUIRE_IN(AttendCall) call, QUIRE_IN(Unit) unit, uint64_t block,
                                 uint32_t slot) {
    return block +
           uint64_t(call.v_offset + unit.kv_head * call.v_head_stride + slot * call.v_token_stride);
}

// position, key: of the query's token and of the key's; used by ALiBi alone.
QUIRE_FUNCTION float score_of(QUIRE_IN(AttendCall) call, QUIRE_IN(Unit) unit, uint32_t m,
                              float product, int32_t position, int32_t key) {
    float score = product * call.scale;
    if (has(call, kSoftCap)) score = call.soft_cap * tanh_of(score / call.soft_cap);
    if (!has(call, kAlibi)) return score;
    float distance = float(position < key ? key - position : position - key);
    return score - slope_of(call, q_head_of(call, unit, m)) * distance;
}
