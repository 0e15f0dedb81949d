// SPDX-License-Identifier: Apache-2.0
//
// rows: checks that all indices of an attention call's rows are in range, and finds the row of each
// query token. A workgroup checks one row.
//
// Everything that later kernels read through tables, lengths and masks is checked here.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "call.glsl"
#include "fault.glsl"
#include "number.glsl"
#include "dialect.glsl"
#include "attend_call.glsl"
#include "../../shared/kernels/sight.h"

shared int oldest;  // place that any token of the row sees, ignoring sinks

bool check_counts(AttendCall call, Row row) {
    if (row.first_token >= 0 && row.end_token >= row.first_token &&
        row.end_token <= int(call.query_tokens) && row.key_count >= 0) {
        return true;
    }
    raise_fault(kFaultCounts, row.index,
                ivec4(row.first_token, row.end_token, call.query_tokens, row.key_count));
    return false;
}

void check_shared_prefix(AttendCall call, Row row) {
    int count = load_int(call.shared_prefix, row.index);
    int most = row.index == 0 ? 0 : int(call.block_table_stride);
    bool is_so = count >= 0 && count <= most;
    int64_t at = int64_t(row.index) * call.block_table_stride;
    for (int i = int(lane()); is_so && i < count; i += int(kLanes)) {
        is_so = load_int(call.block_table, at + i) ==
                load_int(call.block_table, at - call.block_table_stride + i);
    }
    if (!is_so) raise_fault(kFaultSharedPrefix, row.index, ivec4(count, 0, 0, 0));
}

// Returns false if a token's mask is invalid.
bool check_mask(AttendCall call, Row row, int token) {
    int word = load_int(call.mask_rows, token);
    if (word < -1) raise_fault(kFaultMaskWord, uint(token), ivec4(word, 0, 0, 0));
    if (word < 0) return word == -1;
    int position = load_int(call.positions, token);
    if (position < 0) raise_fault(kFaultMaskPosition, uint(token), ivec4(position, 0, 0, 0));
    int first = load_int(call.mask_first, row.index);
    bool is_inside = first >= 0 && first <= row.key_count;
    if (!is_inside) raise_fault(kFaultMaskFirst, row.index, ivec4(first, row.key_count, 0, 0));
    return position >= 0 && is_inside;
}

void check_blocks(AttendCall call, Row row, int begin, int end) {
    if (begin >= end) return;
    int block_tokens = int(call.block_tokens);
    int last = (end - 1) / block_tokens;
    for (int i = begin / block_tokens + int(lane()); i <= last; i += int(kLanes)) {
        int block = load_int(call.block_table, int64_t(row.index) * call.block_table_stride + i);
        if (block >= 0 && uint(block) < call.block_count) continue;
        raise_fault(kFaultBlock, row.index, ivec4(block, i, call.block_count, 0));
        return;
    }
}

void main() {
    if (is_idle()) return;
    AttendCall call = AttendCall(push.arguments);
    Row row = row_at(call, uint(workgroup()));
    if (!check_counts(call, row)) return;
    if (call.shared_prefix != 0) check_shared_prefix(call, row);
    if (row.first_token == row.end_token) return;
    uint blocks = row.key_count == 0 ? 0 : uint(row.key_count - 1) / call.block_tokens + 1;
    uint chunks = row.key_count == 0 ? 0 : uint(row.key_count - 1) / kChunkPlaces + 1;
    if (blocks > call.block_table_stride || chunks > call.chunk_count) {
        raise_fault(kFaultTableTooShort, row.index,
                    ivec4(row.key_count, call.block_table_stride, 0, 0));
        return;
    }
    oldest = row.key_count;
    barrier();
    for (int token = row.first_token + int(lane()); token < row.end_token; token += int(kLanes)) {
        store_word(call.token_rows + uint64_t(token) * 4, row.index);
        if (has(call, kMask) && !check_mask(call, row, token)) continue;
        atomicMin(oldest, sight_of(call, row, token).begin);
    }
    barrier();
    check_blocks(call, row, 0, min(call.sink_tokens, row.key_count));
    check_blocks(call, row, max(oldest, 0), row.key_count);
}
