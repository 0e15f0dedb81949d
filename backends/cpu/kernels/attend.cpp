// SPDX-License-Identifier: Apache-2.0

#include "kernels/attend.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/paged.hpp"
#include "quire/attention.h"

namespace quire::cpu {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

uint32_t round_to_lanes(uint32_t dim) { return (dim + kLanes - 1) / kLanes * kLanes; }

// Loads a row and zeros behind it, so that dot() needs no tail.
void load_padded(const Element &element, const std::byte *from, float *to, uint32_t dim) {
    element.load(from, to, dim);
    std::fill(to + dim, to + round_to_lanes(dim), 0.0f);
}

// Lanes are summed pairwise in a fixed tree.
float dot(const float *a, const float *b, uint32_t padded_dim) {
    float lanes[kLanes] = {};
    for (uint32_t d = 0; d < padded_dim; d += kLanes) {
        for (uint32_t i = 0; i < kLanes; ++i) lanes[i] += a[d + i] * b[d + i];
    }
    for (uint32_t half = kLanes / 2; half != 0; half /= 2) {
        for (uint32_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
    }
    return lanes[0];
}

// Query rows of one KV head: row i is token first_token + i / heads, query head
// first_head + i % heads.
struct QueryGroup {
    uint32_t first_token;
    uint32_t first_head;
    uint32_t heads;
    uint32_t count;
    int64_t first_position;
    int64_t length;
    const int32_t *blocks;  // of the row

    int64_t token(uint32_t i) const { return int64_t{first_token} + i / heads; }
    int64_t head(uint32_t i) const { return first_head + i % heads; }
};

void begin_queries(const AttendCall &call, const QueryGroup &group, AttendScratch *s) {
    const auto *q = reinterpret_cast<const std::byte *>(call.args.q);
    uint32_t dim = call.pool.k_head_dim;
    for (uint32_t i = 0; i < group.count; ++i) {
        int64_t at = group.token(i) * call.args.q_token_stride + group.head(i) * dim;
        load_padded(*call.q, q + at * call.q->size_bytes, s->q[i], dim);
        s->top[i] = -kInfinity;
        s->sum[i] = 0.0f;
        std::fill(s->out[i], s->out[i] + call.pool.v_head_dim, 0.0f);
        visible_keys(call, group.first_position + i / group.heads, group.length, &s->begin[i],
                     &s->end[i]);
    }
}

void load_tile(const AttendCall &call, const QueryGroup &group, uint32_t kv_head, int64_t begin,
               int64_t end, AttendScratch *s) {
    uint32_t layer = call.args.layer;
    for (int64_t key = begin; key < end; ++key) {
        TokenPlace token = {group.blocks[key / call.pool.block_tokens],
                            key % call.pool.block_tokens};
        int64_t in_tile = key % kTileTokens;
        load_padded(*call.k, k_row(call.pool, layer, kv_head, token), s->k[in_tile],
                    call.pool.k_head_dim);
        call.v->load(v_row(call.pool, layer, kv_head, token), s->v[in_tile], call.pool.v_head_dim);
    }
}

// Takes keys [begin, end) of the loaded tile into the state of query i.
void absorb_tile(const AttendCall &call, uint32_t i, uint32_t begin, uint32_t end,
                 AttendScratch *s) {
    uint32_t padded_dim = round_to_lanes(call.pool.k_head_dim);
    uint32_t v_dim = call.pool.v_head_dim;
    float top = s->top[i];
    for (uint32_t j = begin; j < end; ++j) {
        s->weights[j] = call.scale * dot(s->q[i], s->k[j], padded_dim);
        top = s->weights[j] > top ? s->weights[j] : top;
    }
    // Scores that are all -inf weigh nothing; -inf - -inf would be NaN.
    float shift = top == -kInfinity ? 0.0f : top;
    float kept = std::exp(s->top[i] - shift);
    float sum = 0.0f;
    for (uint32_t j = begin; j < end; ++j) {
        s->weights[j] = std::exp(s->weights[j] - shift);
        sum += s->weights[j];
    }
    s->top[i] = top;
    s->sum[i] = s->sum[i] * kept + sum;
    float *out = s->out[i];
    for (uint32_t d = 0; d < v_dim; ++d) out[d] *= kept;
    for (uint32_t j = begin; j < end; ++j) {
        const float *v = s->v[j];
        float weight = s->weights[j];
        for (uint32_t d = 0; d < v_dim; ++d) out[d] += weight * v[d];
    }
}

void end_queries(const AttendCall &call, const QueryGroup &group, AttendScratch *s) {
    auto *out = reinterpret_cast<std::byte *>(call.args.out);
    auto *lse = reinterpret_cast<float *>(call.args.lse);
    uint32_t dim = call.pool.v_head_dim;
    for (uint32_t i = 0; i < group.count; ++i) {
        bool is_empty = s->sum[i] == 0.0f;
        for (uint32_t d = 0; d < dim; ++d)
            s->out[i][d] = is_empty ? 0.0f : s->out[i][d] / s->sum[i];
        int64_t at = group.token(i) * call.args.out_token_stride + group.head(i) * dim;
        call.q->store(s->out[i], out + at * call.q->size_bytes, dim);
        if (lse == nullptr) continue;
        lse[group.token(i) * call.q_heads + group.head(i)] =
            is_empty ? -kInfinity : s->top[i] + std::log(s->sum[i]);
    }
}

void attend_group(const AttendCall &call, const QueryGroup &group, uint32_t kv_head,
                  AttendScratch *s) {
    begin_queries(call, group, s);
    int64_t begin = *std::min_element(s->begin, s->begin + group.count);
    int64_t end = *std::max_element(s->end, s->end + group.count);
    for (int64_t first = begin; first < end;) {
        int64_t tile = first - first % kTileTokens;
        int64_t last = std::min(end, tile + kTileTokens);
        load_tile(call, group, kv_head, first, last, s);
        for (uint32_t i = 0; i < group.count; ++i) {
            int64_t from = std::max(first, s->begin[i]) - tile;
            int64_t to = std::min(last, s->end[i]) - tile;
            if (from >= to) continue;
            absorb_tile(call, i, static_cast<uint32_t>(from), static_cast<uint32_t>(to), s);
        }
        first = last;
    }
    end_queries(call, group, s);
}

// Tokens [begin, end) of one row, in groups that fit the scratch.
void attend_row(const AttendCall &call, uint32_t row, uint32_t kv_head, uint32_t begin,
                uint32_t end, AttendScratch *scratch) {
    const auto *cu_q = reinterpret_cast<const int32_t *>(call.args.cu_q);
    const auto *lengths = reinterpret_cast<const int32_t *>(call.args.lengths);
    const auto *table = reinterpret_cast<const int32_t *>(call.args.block_table);
    uint32_t heads = call.q_heads / call.pool.kv_heads;
    uint32_t heads_at_once = std::min(heads, kQueries);
    uint32_t tokens_at_once = kQueries / heads_at_once;
    QueryGroup group{};
    group.length = lengths[row];
    group.blocks = table + int64_t{row} * call.args.block_table_stride;
    for (uint32_t token = begin; token < end; token += tokens_at_once) {
        uint32_t tokens = std::min(tokens_at_once, end - token);
        group.first_token = token;
        group.first_position = group.length - cu_q[row + 1] + token;
        for (uint32_t head = 0; head < heads; head += heads_at_once) {
            group.first_head = kv_head * heads + head;
            group.heads = std::min(heads_at_once, heads - head);
            group.count = tokens * group.heads;
            attend_group(call, group, kv_head, scratch);
        }
    }
}

}  // namespace

void visible_keys(const AttendCall &call, int64_t position, int64_t length, int64_t *begin,
                  int64_t *end) {
    bool causal = (call.flags & QUIRE_ATTENTION_NOT_CAUSAL) == 0;
    *end = causal ? std::clamp<int64_t>(position + 1, 0, length) : length;
    *begin = call.window == 0 ? 0 : std::max<int64_t>(0, *end - call.window);
}

void attend(const AttendCall &call, uint32_t kv_head, uint32_t token_begin, uint32_t token_end,
            AttendScratch *scratch) {
    const auto *cu_q = reinterpret_cast<const int32_t *>(call.args.cu_q);
    const int32_t *ends = cu_q + 1;
    const int32_t *rows_end = ends + call.args.row_count;
    // The first row that ends behind token_begin holds it.
    const int32_t *at = std::upper_bound(ends, rows_end, static_cast<int32_t>(token_begin));
    for (; at != rows_end && *(at - 1) < static_cast<int32_t>(token_end); ++at) {
        uint32_t begin = std::max(token_begin, static_cast<uint32_t>(*(at - 1)));
        uint32_t end = std::min(token_end, static_cast<uint32_t>(*at));
        if (begin >= end) continue;
        attend_row(call, static_cast<uint32_t>(at - ends), kv_head, begin, end, scratch);
    }
}

}  // namespace quire::cpu
