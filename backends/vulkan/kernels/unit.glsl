// SPDX-License-Identifier: Apache-2.0
//
// unit: the queries that one workgroup of an attention kernel computes over one chunk of places,
// the state of their softmax, and how scores become weights.
//
// A unit is up to kQueries queries that read the same keys: heads of a group and, if those are
// fewer, of several tokens. Keys come in tiles of 64. A query's numbers depend only on what it
// sees.
//
// REQUIRES: the including file has defined kQueries, and value_scale(): the factor of a weight
// before it is used, such as its value's scale.

const uint kLanesOfQuery = kLanes / kQueries;

shared float weights[kQueries * kLanes];  // of query m and key j at m * kLanes + j; scores at first
shared uint visible[kLanes];              // per key: the queries that see it
shared float parts[kLanes];
shared float tops[kQueries];
shared float sums[kQueries];
shared float factors[kQueries];
shared uint any_visible;

// A unit's queries and chunk.
struct Unit {
    Row row;
    int first_token;
    uint kv_head;
    uint first_head;     // within the KV head's group
    uint heads;          // per token
    uint count;          // number of queries
    int chunk_begin, chunk_end;
};

int token_of(Unit unit, uint m) { return unit.first_token + int(m / unit.heads); }
uint q_head_of(AttendCall call, Unit unit, uint m) {
    return unit.kv_head * heads_per_kv_of(call) + unit.first_head + m % unit.heads;
}

// Returns false if the group has nothing to do.
bool find_unit(AttendCall call, out Unit unit, out uint chunk) {
    uint heads = min(heads_per_kv_of(call), kQueries);
    uint slices = (heads_per_kv_of(call) + heads - 1) / heads;
    uint64_t left = workgroup();
    chunk = uint(left % call.chunk_count);
    left /= call.chunk_count;
    uint slice = uint(left % slices);
    left /= slices;
    unit.kv_head = uint(left % call.kv_heads);
    unit.first_token = int(call.first_token) + int(left / call.kv_heads);
    int row = load_int(call.token_rows, unit.first_token);
    if (row < 0) return false;
    unit.row = row_at(call, uint(row));
    // A unit begins at each multiple of its token count, counted from the row's first token, and at
    // the start of a round.
    int tokens = int(kQueries / heads);
    int in_row = unit.first_token - unit.row.first_token;
    if (in_row % tokens != 0 && unit.first_token != int(call.first_token)) return false;
    int end = unit.row.first_token + (in_row / tokens + 1) * tokens;
    end = min(min(end, unit.row.end_token), int(call.end_token));
    unit.first_head = slice * heads;
    unit.heads = min(heads, heads_per_kv_of(call) - unit.first_head);
    unit.count = uint(end - unit.first_token) * unit.heads;
    unit.chunk_begin = int(chunk) * kChunkPlaces;
    unit.chunk_end = min(unit.chunk_begin + kChunkPlaces, unit.row.key_count);
    return true;
}

bool may_see_any(AttendCall call, Unit unit) {
    uint tokens = unit.count / unit.heads;
    for (uint i = 0; i < tokens; ++i) {
        Sight sight = sight_of(call, unit.row, unit.first_token + int(i));
        if (may_see(sight, unit.chunk_begin, unit.chunk_end)) return true;
    }
    return false;
}

void begin_state() {
    if (lane() >= kQueries) return;
    factors[lane()] = 1.0;
    tops[lane()] = kMinusInfinity;
    sums[lane()] = 0.0;
}

// The queries that see the place, one bit each.
uint seen_by(AttendCall call, Unit unit, int place) {
    if (place >= unit.chunk_end) return 0;
    uint seen = 0;
    uint of_token = (1u << unit.heads) - 1;
    for (uint m = 0; m < unit.count; m += unit.heads) {
        Sight sight = sight_of(call, unit.row, token_of(unit, m));
        if (is_visible(call, unit.row, sight, place)) seen |= of_token << m;
    }
    return seen;
}

// REQUIRES: a query of the unit sees the place.
uint64_t block_at(AttendCall call, Unit unit, int place) {
    int64_t entry = int64_t(unit.row.index) * call.block_table_stride +
                    place / int(block_tokens_of(call));
    return call.pool + uint64_t(load_int(call.block_table, entry) * call.block_stride);
}
uint64_t k_row(AttendCall call, Unit unit, uint64_t block, uint in_block) {
    return block + uint64_t(unit.kv_head * call.k_head_stride + in_block * call.k_token_stride);
}
uint64_t v_row(AttendCall call, Unit unit, uint64_t block, uint in_block) {
    return block + uint64_t(call.v_offset + unit.kv_head * call.v_head_stride +
                            in_block * call.v_token_stride);
}

float score_of(AttendCall call, Unit unit, uint m, float product, int place) {
    float score = product * call.scale;
    if (has(call, kSoftCap)) score = call.soft_cap * tanh_of(score / call.soft_cap);
    if (!has(call, kAlibi)) return score;
    int position = position_of(call, unit.row, token_of(unit, m));
    int key = key_position(call, unit.row, place);
    float slope = load_float(call.slopes, q_head_of(call, unit, m));
    return score - slope * float(abs(position - key));
}

// Several lanes per query turn its scores into weights and update its state.
void compute_weights() {
    uint m = lane() / kLanesOfQuery;
    uint first = lane() % kLanesOfQuery;
    float top = kMinusInfinity;
    for (uint j = first; j < kLanes; j += kLanesOfQuery) {
        if ((visible[j] >> m & 1u) != 0) top = max(top, weights[m * kLanes + j]);
    }
    parts[lane()] = top;
    barrier();
    float before = tops[m];
    top = before;
    for (uint i = 0; i < kLanesOfQuery; ++i) top = max(top, parts[m * kLanesOfQuery + i]);
    barrier();
    // If all scores are -inf, the weights are 0; -inf - -inf would be NaN.
    float shift = top == kMinusInfinity ? 0.0 : top;
    float sum = 0.0;
    for (uint j = first; j < kLanes; j += kLanesOfQuery) {
        if ((visible[j] >> m & 1u) == 0) continue;
        float weight = exp_of(weights[m * kLanes + j] - shift);
        sum += weight;
        weights[m * kLanes + j] = weight * value_scale(j);
    }
    parts[lane()] = sum;
    barrier();
    if (first != 0) return;
    float factor = before == kMinusInfinity ? 0.0 : exp_of(before - top);
    factors[m] = top == kMinusInfinity ? 1.0 : factor;
    sum = sums[m] * factors[m];
    for (uint i = 0; i < kLanesOfQuery; ++i) sum += parts[m * kLanesOfQuery + i];
    sums[m] = sum;
    tops[m] = top;
}

// The query's first lane stores its state; returns the state's index.
uint64_t store_softmax(AttendCall call, Unit unit, uint chunk, uint m) {
    uint64_t state = state_index(call, token_of(unit, m), chunk, q_head_of(call, unit, m));
    if (lane() == 0) {
        store_word(call.states + state * 8, floatBitsToUint(tops[m]));
        store_word(call.states + state * 8 + 4, floatBitsToUint(sums[m]));
    }
    return state;
}
