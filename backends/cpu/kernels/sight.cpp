// SPDX-License-Identifier: Apache-2.0

#include "kernels/sight.hpp"

#include <algorithm>

#include "quire/attention.h"
#include "quire/cache.h"

namespace quire::cpu {

namespace {

// Places [begin, end) as bits of the tile.
uint64_t bits_of(int64_t begin, int64_t end, int64_t tile) {
    int64_t from = std::max<int64_t>(begin - tile, 0);
    int64_t to = std::min<int64_t>(end - tile, kTileTokens);
    if (from >= to) return 0;
    return ~uint64_t{0} >> (kTileTokens - (to - from)) << from;
}

// The oldest position that a token at `position` sees, sinks aside.
int64_t oldest_position(const AttendPlan &plan, int64_t position) {
    int64_t window = plan.window;
    if (plan.group_kind == QUIRE_GROUP_WINDOW) return std::max<int64_t>(0, position - window + 1);
    if (plan.group_kind == QUIRE_GROUP_CHUNKED && position > 0) return position - position % window;
    return 0;
}

// True if a token at `position` would see a key at position `key`, were there no mask.
bool is_in_sight(const AttendPlan &plan, int64_t position, int64_t key) {
    if (plan.window == 0) return true;  // the mask alone decides
    return key <= position && (key < plan.sink_tokens || key >= oldest_position(plan, position));
}

bool has_bit(const uint32_t *words, int64_t index) {
    return (words[index / 32] >> (index % 32) & 1u) != 0;
}

uint64_t masked_bits(const AttendCall &call, const Row &row, const Sight &sight, int64_t tile) {
    uint64_t visible = 0;
    int64_t end = std::min(sight.end, tile + kTileTokens);
    for (int64_t place = tile; place < end; ++place) {
        if (place >= sight.mask_first && !has_bit(sight.mask, place - sight.mask_first)) continue;
        if (!is_in_sight(*call.plan, sight.position, key_position(call, row, place))) continue;
        visible |= uint64_t{1} << (place - tile);
    }
    return visible;
}

}  // namespace

Row row_at(const AttendCall &call, uint32_t index) {
    const auto *cu_q = array_at<const int32_t>(call.args.cu_q);
    const auto *table = array_at<const int32_t>(call.args.block_table);
    return {index, cu_q[index], cu_q[index + 1], array_at<const int32_t>(call.args.lengths)[index],
            table + int64_t{index} * call.args.block_table_stride};
}

bool is_masked(const AttendCall &call, int64_t token) {
    return call.args.mask != 0 && array_at<const int32_t>(call.args.mask_rows)[token] >= 0;
}

int64_t position_of(const AttendCall &call, const Row &row, int64_t token) {
    if (is_masked(call, token)) return array_at<const int32_t>(call.args.positions)[token];
    return row.length - row.end_token + token;
}

int64_t key_position(const AttendCall &call, const Row &row, int64_t place) {
    int64_t since_new = place - row.first_new_place();
    return since_new < 0 ? place : position_of(call, row, row.first_token + since_new);
}

Sight sight_of(const AttendCall &call, const Row &row, int64_t token) {
    const AttendPlan &plan = *call.plan;
    Sight sight{};
    sight.position = position_of(call, row, token);
    sight.begin = oldest_position(plan, sight.position);
    if (is_masked(call, token)) {
        int32_t first_word = array_at<const int32_t>(call.args.mask_rows)[token];
        sight.mask = array_at<const uint32_t>(call.args.mask) + first_word;
        sight.mask_first = array_at<const int32_t>(call.args.mask_first)[row.index];
        // A new key may have any position.
        sight.begin =
            std::clamp<int64_t>(sight.begin, 0, std::max<int64_t>(0, row.first_new_place()));
        sight.end = row.length;
    } else if ((plan.flags & QUIRE_ATTENTION_NOT_CAUSAL) != 0) {
        sight.end = row.length;
    } else {
        sight.end = std::clamp<int64_t>(sight.position + 1, 0, row.length);
    }
    sight.sink_end = std::min<int64_t>(plan.sink_tokens, sight.end);
    return sight;
}

uint64_t places_before(int64_t end, int64_t tile) { return bits_of(0, end, tile); }

uint64_t visible_in_tile(const AttendCall &call, const Row &row, const Sight &sight, int64_t tile) {
    if (sight.mask != nullptr) return masked_bits(call, row, sight, tile);
    return bits_of(0, sight.sink_end, tile) | bits_of(sight.begin, sight.end, tile);
}

}  // namespace quire::cpu
