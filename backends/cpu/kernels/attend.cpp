// SPDX-License-Identifier: Apache-2.0

#include "kernels/attend.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/paged.hpp"
#include "quire/attention.h"
#include "quire/cache.h"

namespace quire::cpu {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

uint32_t round_to_lanes(uint32_t dim) { return (dim + kLanes - 1) / kLanes * kLanes; }

// Loads a row and zeros behind it, so that dot() needs no tail.
void load_padded(const Element &element, const std::byte *from, float *to, uint32_t dim) {
    element.load(from, to, dim);
    std::fill(to + dim, to + round_to_lanes(dim), 0.0f);
}

// Codes become values.
void multiply(float *values, uint32_t count, float scale) {
    for (uint32_t i = 0; i < count; ++i) values[i] *= scale;
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

// Calls body(begin, end) for each run of ones, in rising order. A causal query has one.
template <typename Body>
void for_each_run(uint64_t bits, Body body) {
    while (bits != 0) {
        auto begin = static_cast<uint32_t>(std::countr_zero(bits));
        uint32_t end = begin + static_cast<uint32_t>(std::countr_one(bits >> begin));
        body(begin, end);
        bits = end == kTileTokens ? 0 : bits >> end << end;
    }
}

// Some tokens of one row.
struct Segment {
    Row row;
    int64_t first_token;
    uint32_t token_count;
    uint32_t first_index;   // of its tokens in the group
    int64_t shared_places;  // that lie where those of the segment before do
};

// Query heads [first_head, first_head + heads) of the tokens of some rows: query i is token
// i / heads of the group, head first_head + i % heads.
struct QueryGroup {
    uint32_t kv_head;
    uint32_t first_head;
    uint32_t heads;
    uint32_t segment_count;
    uint32_t token_count;
    Segment segments[kQueries];
};

class Kernel {
 public:
    Kernel(const AttendCall &call, const QueryGroup &group, AttendScratch *scratch)
        : call_(call),
          plan_(*call.plan),
          group_(group),
          s_(*scratch),
          k_stride_(round_to_lanes(call.pool.k_head_dim)),
          out_stride_(round_to_lanes(call.pool.v_head_dim)),
          is_latent_(plan_.group_kind == QUIRE_GROUP_LATENT) {}

    void run();

 private:
    void begin_queries(const Segment &segment);
    int64_t next_tile(int64_t tile) const;
    void look(const Segment &segment, int64_t tile);
    void load(const Segment &segment, int64_t tile, uint64_t places);
    void absorb(const Segment &segment, int64_t tile);
    void absorb_query(const Segment &segment, uint32_t token, uint32_t query, int64_t tile);
    void change_scores(const Segment &segment, uint32_t token, uint32_t query, int64_t tile);
    void end_queries(const Segment &segment);

    uint32_t head_of(uint32_t query) const { return group_.first_head + query % group_.heads; }

    const AttendCall &call_;
    const AttendPlan &plan_;
    const QueryGroup &group_;
    AttendScratch &s_;
    uint32_t k_stride_;    // elements of a row of q and K
    uint32_t out_stride_;  // of V and out
    bool is_latent_;
};

void Kernel::begin_queries(const Segment &segment) {
    const auto *q = array_at<const std::byte>(call_.args.q);
    const auto *sinks = array_at<const float>(call_.args.sinks);
    uint32_t dim = call_.pool.k_head_dim;
    bool has_sinks = (plan_.flags & QUIRE_ATTENTION_SINK_LOGITS) != 0;
    for (uint32_t i = 0; i < segment.token_count; ++i) {
        uint32_t token = segment.first_index + i;
        s_.sight[token] = sight_of(call_, segment.row, segment.first_token + i);
        for (uint32_t query = token * group_.heads; query < (token + 1) * group_.heads; ++query) {
            int64_t at = (segment.first_token + i) * call_.args.q_token_stride +
                         int64_t{head_of(query)} * dim;
            load_padded(*plan_.q, q + at * plan_.q->size_bytes, s_.q + query * k_stride_, dim);
            float sink = has_sinks ? sinks[head_of(query)] : -kInfinity;
            s_.top[query] = sink;
            s_.sum[query] = sink == -kInfinity ? 0.0f : 1.0f;
            std::fill_n(s_.out + query * out_stride_, call_.pool.v_head_dim, 0.0f);
        }
    }
}

// The first tile from `tile` on that bounds of the group's tokens touch; -1 when there is none.
int64_t Kernel::next_tile(int64_t tile) const {
    int64_t next = -1;
    for (uint32_t i = 0; i < group_.token_count; ++i) {
        const Sight &sight = s_.sight[i];
        if (tile < sight.sink_end) return tile;
        int64_t begin = std::max(tile, sight.begin / kTileTokens * kTileTokens);
        if (begin < sight.end && (next < 0 || begin < next)) next = begin;
    }
    return next;
}

void Kernel::look(const Segment &segment, int64_t tile) {
    for (uint32_t i = segment.first_index; i < segment.first_index + segment.token_count; ++i) {
        s_.visible[i] = visible_in_tile(call_, segment.row, s_.sight[i], tile);
    }
}

// Converts the keys of these places of the tile.
void Kernel::load(const Segment &segment, int64_t tile, uint64_t places) {
    const quire_be_pool &pool = call_.pool;
    uint32_t layer = call_.args.layer;
    for_each_run(places, [&](uint32_t begin, uint32_t end) {
        for (uint32_t j = begin; j < end; ++j) {
            int64_t key = tile + j;
            TokenPlace at = {segment.row.blocks[key / pool.block_tokens], key % pool.block_tokens};
            float *k = s_.k + j * k_stride_;
            load_padded(*plan_.k, k_row(pool, layer, group_.kv_head, at), k, pool.k_head_dim);
            if (plan_.k->holds_codes()) {
                multiply(k, pool.k_head_dim, k_scale(pool, layer, group_.kv_head, at));
            }
            if (is_latent_) continue;
            float *v = s_.v + j * out_stride_;
            plan_.v->load(v_row(pool, layer, group_.kv_head, at), v, pool.v_head_dim);
            if (plan_.v->holds_codes()) {
                multiply(v, pool.v_head_dim, v_scale(pool, layer, group_.kv_head, at));
            }
        }
    });
}

// Soft cap and ALiBi.
void Kernel::change_scores(const Segment &segment, uint32_t token, uint32_t query, int64_t tile) {
    float cap = plan_.soft_cap;
    int64_t position = s_.sight[token].position;
    for_each_run(s_.visible[token], [&](uint32_t begin, uint32_t end) {
        for (uint32_t j = begin; j < end && cap != 0.0f; ++j) {
            s_.weights[j] = cap * std::tanh(s_.weights[j] / cap);
        }
        for (uint32_t j = begin; j < end && plan_.alibi_slopes != nullptr; ++j) {
            int64_t distance = position - key_position(call_, segment.row, tile + j);
            auto size = static_cast<float>(distance < 0 ? -distance : distance);
            s_.weights[j] -= plan_.alibi_slopes[head_of(query)] * size;
        }
    });
}

// Takes the keys of the loaded tile that the token sees into the state of one of its queries.
void Kernel::absorb_query(const Segment &segment, uint32_t token, uint32_t query, int64_t tile) {
    uint64_t visible = s_.visible[token];
    uint32_t k_stride = k_stride_;
    uint32_t v_dim = call_.pool.v_head_dim;
    float scale = plan_.scale;
    float *weights = s_.weights;
    const float *q = s_.q + query * k_stride;
    const float *k = s_.k;
    for_each_run(visible, [=](uint32_t begin, uint32_t end) {
        for (uint32_t j = begin; j < end; ++j) {
            weights[j] = scale * dot(q, k + j * k_stride, k_stride);
        }
    });
    if (plan_.soft_cap != 0.0f || plan_.alibi_slopes != nullptr) {
        change_scores(segment, token, query, tile);
    }
    float top = s_.top[query];
    for_each_run(visible, [&](uint32_t begin, uint32_t end) {
        for (uint32_t j = begin; j < end; ++j) top = weights[j] > top ? weights[j] : top;
    });
    // Scores that are all -inf weigh nothing; -inf - -inf would be NaN.
    float shift = top == -kInfinity ? 0.0f : top;
    float kept = std::exp(s_.top[query] - shift);
    float sum = 0.0f;
    for_each_run(visible, [&](uint32_t begin, uint32_t end) {
        for (uint32_t j = begin; j < end; ++j) {
            weights[j] = std::exp(weights[j] - shift);
            sum += weights[j];
        }
    });
    s_.top[query] = top;
    s_.sum[query] = s_.sum[query] * kept + sum;
    float *out = s_.out + query * out_stride_;
    const float *v = is_latent_ ? s_.k : s_.v;  // V is the beginning of a latent row
    uint32_t v_stride = is_latent_ ? k_stride_ : out_stride_;
    for (uint32_t d = 0; d < v_dim; ++d) out[d] *= kept;
    for_each_run(visible, [=](uint32_t begin, uint32_t end) {
        for (uint32_t j = begin; j < end; ++j) {
            const float *row = v + j * v_stride;
            float weight = weights[j];
            for (uint32_t d = 0; d < v_dim; ++d) out[d] += weight * row[d];
        }
    });
}

void Kernel::absorb(const Segment &segment, int64_t tile) {
    for (uint32_t i = segment.first_index; i < segment.first_index + segment.token_count; ++i) {
        if (s_.visible[i] == 0) continue;
        for (uint32_t h = 0; h < group_.heads; ++h) {
            absorb_query(segment, i, i * group_.heads + h, tile);
        }
    }
}

void Kernel::end_queries(const Segment &segment) {
    auto *out = array_at<std::byte>(call_.args.out);
    auto *lse = array_at<float>(call_.args.lse);
    uint32_t dim = call_.pool.v_head_dim;
    uint32_t first = segment.first_index * group_.heads;
    for (uint32_t i = first; i < first + segment.token_count * group_.heads; ++i) {
        int64_t token = segment.first_token + i / group_.heads - segment.first_index;
        float *values = s_.out + i * out_stride_;
        bool is_empty = s_.sum[i] == 0.0f;
        for (uint32_t d = 0; d < dim; ++d) values[d] = is_empty ? 0.0f : values[d] / s_.sum[i];
        int64_t at = token * call_.args.out_token_stride + int64_t{head_of(i)} * dim;
        plan_.q->store(values, out + at * plan_.q->size_bytes, dim);
        if (lse == nullptr) continue;
        lse[token * plan_.q_heads + head_of(i)] =
            is_empty ? -kInfinity : s_.top[i] + std::log(s_.sum[i]);
    }
}

// A segment takes over what the one before has loaded of their common places, so a prefix that many
// rows share is read once for all of them.
void Kernel::run() {
    for (uint32_t i = 0; i < group_.segment_count; ++i) begin_queries(group_.segments[i]);
    for (int64_t tile = next_tile(0); tile >= 0; tile = next_tile(tile + kTileTokens)) {
        uint64_t loaded = 0;
        for (uint32_t i = 0; i < group_.segment_count; ++i) {
            const Segment &segment = group_.segments[i];
            look(segment, tile);
            uint64_t needed = 0;
            for (uint32_t t = 0; t < segment.token_count; ++t) {
                needed |= s_.visible[segment.first_index + t];
            }
            loaded &= places_before(segment.shared_places, tile);
            load(segment, tile, needed & ~loaded);
            loaded |= needed;
            absorb(segment, tile);
        }
    }
    for (uint32_t i = 0; i < group_.segment_count; ++i) end_queries(group_.segments[i]);
}

// Gathers tokens until the scratch is full: those of one row, and of the rows behind it that share
// a prefix with the one before them. Returns the token behind.
int64_t fill_group(const AttendCall &call, uint32_t *row_index, int64_t token, int64_t token_end,
                   uint32_t tokens_at_once, QueryGroup *group) {
    const auto *shared = array_at<const int32_t>(call.args.shared_prefix);
    group->segment_count = 0;
    group->token_count = 0;
    while (token < token_end && group->token_count < tokens_at_once) {
        Row row = row_at(call, *row_index);
        int64_t shared_places = 0;
        if (group->segment_count != 0) {
            bool is_next = row.index == group->segments[group->segment_count - 1].row.index + 1;
            if (shared != nullptr && is_next) {
                shared_places = int64_t{shared[row.index]} * call.pool.block_tokens;
            }
            if (shared_places == 0) break;
        }
        int64_t room = tokens_at_once - group->token_count;
        int64_t end = std::min({row.end_token, token_end, token + room});
        auto count = static_cast<uint32_t>(end - token);
        group->segments[group->segment_count++] = {row, token, count, group->token_count,
                                                   shared_places};
        group->token_count += count;
        token = end;
        while (token < token_end && token == row_at(call, *row_index).end_token) ++*row_index;
    }
    return token;
}

}  // namespace

void attend(const AttendCall &call, uint32_t kv_head, uint32_t token_begin, uint32_t token_end,
            AttendScratch *scratch) {
    const int32_t *ends = array_at<const int32_t>(call.args.cu_q) + 1;
    const int32_t *rows_end = ends + call.args.row_count;
    // The first row that ends behind token_begin holds it.
    const int32_t *at = std::upper_bound(ends, rows_end, static_cast<int32_t>(token_begin));
    if (at == rows_end) return;
    int64_t token_limit = std::min<int64_t>(token_end, *(rows_end - 1));
    int64_t token = std::max<int64_t>(token_begin, *array_at<const int32_t>(call.args.cu_q));
    auto row = static_cast<uint32_t>(at - ends);
    uint32_t heads = call.plan->q_heads / call.pool.kv_heads;
    uint32_t heads_at_once = std::min(heads, kQueries);
    QueryGroup group{};
    group.kv_head = kv_head;
    while (token < token_limit) {
        token = fill_group(call, &row, token, token_limit, kQueries / heads_at_once, &group);
        for (uint32_t head = 0; head < heads; head += heads_at_once) {
            group.first_head = kv_head * heads + head;
            group.heads = std::min(heads_at_once, heads - head);
            Kernel(call, group, scratch).run();
        }
    }
}

}  // namespace quire::cpu
