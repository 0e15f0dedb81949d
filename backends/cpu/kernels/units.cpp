// SPDX-License-Identifier: Apache-2.0

#include "kernels/units.hpp"

#include <algorithm>
#include <bit>

#include "quire/cache.h"

namespace quire::cpu {

namespace {

alignas(64) constexpr std::byte kZeros[kMaxLatentKDim * sizeof(float)] = {};

}  // namespace

const std::byte *zero_row() { return kZeros; }

Units::Units(const AttendCall &call, const AttendWork &work)
    : call_(call),
      work_(work),
      token_count_(work.end_token - work.first_token),
      head_count_(work.end_kv_head - work.first_kv_head),
      k_scale_kind_(call.pool.k_scale_kind),
      v_scale_kind_(call.pool.group_kind == QUIRE_GROUP_LATENT ? uint32_t{QUIRE_SCALE_NONE}
                                                               : call.pool.v_scale_kind) {
    const int32_t *ends = array_at<const int32_t>(call_.args.cu_q) + 1;
    const auto *shared = array_at<const int32_t>(call_.args.shared_prefix);
    const int32_t *rows_end = ends + call_.args.row_count;
    // The first row that ends after a token holds it.
    const int32_t *at = std::upper_bound(ends, rows_end, static_cast<int32_t>(work_.first_token));
    int64_t token = work_.first_token;
    int64_t places = INT64_MAX;
    for (; token < work_.end_token; ++at) {
        Row row = row_at(call_, static_cast<uint32_t>(at - ends));
        int64_t own = shared != nullptr ? int64_t{shared[row.index]} * call_.pool.block_tokens : 0;
        // A row without tokens has no segment; the prefix shared across it is the shorter of the
        // two.
        places = std::min(places, own);
        if (row.end_token <= token) continue;
        auto index = static_cast<uint32_t>(token - work_.first_token);
        auto count =
            static_cast<uint32_t>(std::min<int64_t>(row.end_token, work_.end_token) - token);
        for (uint32_t t = 0; t < count; ++t) {
            segment_of_[index + t] = segment_count_;
            sight_[index + t] = cpu::sight_of(call_, row, token + t);
        }
        segments_[segment_count_++] = {row, token, count, index, places};
        places = INT64_MAX;
        token += count;
    }
}

// The first tile at or after `tile` within the bounds of any token; -1 if there is none.
int64_t Units::next_tile(int64_t tile) const {
    int64_t next = -1;
    for (uint32_t i = 0; i < token_count_; ++i) {
        const Sight &sight = sight_[i];
        if (tile < sight.sink_end) return tile;
        int64_t begin = std::max(tile, sight.begin / kTileTokens * kTileTokens);
        if (begin < sight.end && (next < 0 || begin < next)) next = begin;
    }
    return next;
}

void Units::look(int64_t tile, uint64_t *visible) const {
    for (uint32_t i = 0; i < segment_count_; ++i) {
        const Segment &segment = segments_[i];
        for (uint32_t t = segment.first_index; t < segment.first_index + segment.token_count; ++t) {
            visible[t] = visible_in_tile(call_, segment.row, sight_[t], tile);
        }
    }
}

// The first segment after `segment` that does not share the tile with it.
uint32_t Units::segments_behind(uint32_t segment, int64_t tile) const {
    uint32_t behind = segment + 1;
    while (behind < segment_count_ && segments_[behind].shared_places >= tile + kTileTokens) {
        ++behind;
    }
    return behind;
}

// REQUIRES: the unit's tile and visible bits are set. False if no token sees its keys.
bool Units::set_unit(uint32_t segment, uint32_t head, Unit *unit) {
    uint32_t last = segments_behind(segment, unit->tile) - 1;
    unit->segment = segment;
    unit->first = segments_[segment].first_index;
    unit->end = segments_[last].first_index + segments_[last].token_count;
    unit->head = head;
    unit->needed = 0;
    for (uint32_t t = unit->first; t < unit->end; ++t) unit->needed |= unit->visible[t];
    if (unit->needed != 0) place_unit(unit);
    return unit->needed != 0;
}

// Finds the first unit from this tile on; the unit keeps its visible bits in `visible`.
bool Units::first_from(int64_t tile, uint64_t *visible, Unit *unit) {
    int64_t end = int64_t{work_.end_chunk} * kChunkTokens;
    for (tile = next_tile(tile); tile >= 0 && tile < end; tile = next_tile(tile + kTileTokens)) {
        look(tile, visible);
        unit->tile = tile;
        unit->visible = visible;
        for (uint32_t i = 0; i < segment_count_; i = segments_behind(i, tile)) {
            if (set_unit(i, 0, unit)) return true;
        }
    }
    return false;
}

// Units go through a tile head by head, in memory order.
bool Units::next(const Unit &unit, Unit *next) {
    next->tile = unit.tile;
    next->visible = unit.visible;
    uint32_t segment = segments_behind(unit.segment, unit.tile);
    for (uint32_t head = unit.head; head < head_count_; ++head, segment = 0) {
        for (; segment < segment_count_; segment = segments_behind(segment, unit.tile)) {
            if (set_unit(segment, head, next)) return true;
        }
    }
    uint64_t *other = unit.visible == visible_[0] ? visible_[1] : visible_[0];
    return first_from(unit.tile + kTileTokens, other, next);
}

// Finds where a segment's keys of the tile lie, for the work's first head.
void Units::place_tile(const Unit &unit) {
    const quire_be_pool &pool = call_.pool;
    const int32_t *blocks = segments_[unit.segment].row.blocks;
    placed_tile_ = unit.tile;
    placed_segment_ = unit.segment;
    pieces_turn_ = 1 - pieces_turn_;
    Pieces &pieces = pieces_[pieces_turn_];
    pieces.count = 0;
    for_each_run(unit.needed, [&](uint32_t begin, uint32_t end) {
        for (uint32_t j = begin; j < end;) {
            int64_t key = unit.tile + j;
            TokenPlace at = {blocks[key / pool.block_tokens], key % pool.block_tokens};
            int64_t left = std::min<int64_t>(pool.block_tokens - at.place, end - j);
            pieces.of[pieces.count++] = {j, j + static_cast<uint32_t>(left), at};
            j += static_cast<uint32_t>(left);
        }
    });
    for (uint32_t i = 0; i < pieces.count; ++i) {
        const Piece &piece = pieces.of[i];
        auto k = reinterpret_cast<uint64_t>(
            k_row(pool, call_.args.layer, work_.first_kv_head, piece.at));
        auto v = reinterpret_cast<uint64_t>(
            v_row(pool, call_.args.layer, work_.first_kv_head, piece.at));
        for (uint32_t j = piece.begin; j < piece.end; ++j) {
            uint64_t behind = j - piece.begin;
            placed_k_[j] = k + behind * static_cast<uint64_t>(pool.k_token_stride);
            placed_v_[j] = v + behind * static_cast<uint64_t>(pool.v_token_stride);
        }
    }
}

void Units::place_unit(Unit *unit) {
    if (placed_tile_ != unit->tile || placed_segment_ != unit->segment) place_tile(*unit);
    uint64_t k_offset = unit->head * static_cast<uint64_t>(call_.pool.k_head_stride);
    uint64_t v_offset = unit->head * static_cast<uint64_t>(call_.pool.v_head_stride);
    for (uint32_t j = 0; j < kTileTokens; ++j) {
        unit->k[j] = reinterpret_cast<const std::byte *>(placed_k_[j] + k_offset);
        unit->v[j] = reinterpret_cast<const std::byte *>(placed_v_[j] + v_offset);
    }
    for_each_run(~unit->needed, [&](uint32_t begin, uint32_t end) {
        std::fill(unit->k + begin, unit->k + end, kZeros);
        std::fill(unit->v + begin, unit->v + end, kZeros);
    });
    unit->pieces = &pieces_[pieces_turn_];
    if (k_scale_kind_ == QUIRE_SCALE_TOKEN_HEAD) fetch_scales(*unit, call_.pool.k_scale_offset);
    if (v_scale_kind_ == QUIRE_SCALE_TOKEN_HEAD) fetch_scales(*unit, call_.pool.v_scale_offset);
}

// The scales of a piece are adjacent, mostly on one cache line.
void Units::fetch_scales(const Unit &unit, int64_t offset) const {
    for (uint32_t i = 0; i < unit.pieces->count; ++i) {
        const Piece &piece = unit.pieces->of[i];
        const float *first = row_scale_at(call_.pool, offset, call_.args.layer,
                                          work_.first_kv_head + unit.head, piece.at);
        for (uint32_t j = 0; j < piece.end - piece.begin; j += 16) __builtin_prefetch(first + j);
        __builtin_prefetch(first + (piece.end - piece.begin - 1));
    }
}

void Units::load_scales(Unit *unit) const {
    if (k_scale_kind_ == QUIRE_SCALE_TOKEN_HEAD) {
        copy_scales(*unit, call_.pool.k_scale_offset, unit->k_scales);
    }
    if (v_scale_kind_ == QUIRE_SCALE_TOKEN_HEAD) {
        copy_scales(*unit, call_.pool.v_scale_offset, unit->v_scales);
    }
}

// Scales of keys that no token sees are not read: they might be NaN, and are multiplied.
void Units::copy_scales(const Unit &unit, int64_t offset, float *scales) const {
    std::fill_n(scales, kTileTokens, 0.0f);
    for (uint32_t i = 0; i < unit.pieces->count; ++i) {
        const Piece &piece = unit.pieces->of[i];
        const float *from = row_scale_at(call_.pool, offset, call_.args.layer,
                                         work_.first_kv_head + unit.head, piece.at);
        std::copy_n(from, piece.end - piece.begin, scales + piece.begin);
    }
}

bool Units::first(Unit *unit) {
    return first_from(int64_t{work_.first_chunk} * kChunkTokens, visible_[0], unit);
}

}  // namespace quire::cpu
