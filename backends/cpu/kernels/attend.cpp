// SPDX-License-Identifier: Apache-2.0

#include "kernels/attend.hpp"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <limits>

#include "kernels/paged.hpp"
#include "kernels/units.hpp"
#include "quire/attention.h"
#include "quire/cache.h"

namespace quire::cpu {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// More queries than this are worth a copy of the tile in f32: converting each row again for every
// four of them takes longer.
constexpr uint32_t kDirectQueries = 8;

bool is_one_run(uint64_t bits) {
    return bits != 0 && std::countl_zero(bits) + std::countr_zero(bits) + std::popcount(bits) == 64;
}

struct TileRows {
    Rows rows;
    Format format;
};

class Kernel {
 public:
    Kernel(const AttendCall &call, const AttendWork &work, AttendScratch *scratch);

    void run();

 private:
    void begin_queries();
    void pack_queries();
    void begin_totals();
    void begin_chunk();
    void end_chunk(uint32_t chunk);
    void score_rows(const Unit &unit, const TileRows &k, uint32_t keys);
    void score_columns(const Unit &unit, uint32_t keys);
    void score_matrix(const Unit &unit, uint32_t keys);
    void compute(const Unit &unit, const Unit *next);
    WeighTile weighing_of(const Unit &unit) const;
    void weigh(const Unit &unit);
    void absorb(const Unit &unit, const TileRows &v, const Unit *next);
    void absorb_run(const Unit &unit, uint32_t first_token, uint32_t end_token, uint32_t begin,
                    uint32_t end, const TileRows &v, const Ahead &ahead);
    void absorb_matrix(const Unit &unit, Rows v, const Unit *next);
    void absorb_tokens(const Unit &unit, uint32_t first, uint32_t end, Rows v, const Ahead &ahead);
    void absorb_one_by_one(const Unit &unit, Rows v);
    Ahead keys_ahead(const Unit *next) const;
    TileRows stage(const TileRows &rows, uint32_t keys, uint32_t dim, float *copies,
                   const std::byte **copied) const;
    void keep_chunk(uint32_t chunk);
    void fold_chunk();
    void end_queries();

    uint32_t queries_of(const Unit &unit) const {
        return (unit.end - unit.first) * work_.query_count;
    }
    Ahead values_ahead(const Unit &unit, uint32_t keys) const {
        return {unit.v, is_latent_ ? 0 : keys, bytes_of(v_format_, call_.pool.v_head_dim)};
    }
    std::byte *q_terms_of(uint32_t row) const {
        return s_.q_terms +
               size_t{row} * plan_.q_terms * term_bytes(k_format_, call_.pool.k_head_dim);
    }
    uint32_t row_count() const { return head_count_ * token_count_ * work_.query_count; }
    uint32_t row_of(uint32_t head, uint32_t token) const {
        return (head * token_count_ + token) * work_.query_count;
    }
    // The query head, among all, of a row of this work.
    uint32_t query_head(uint32_t head, uint32_t i) const {
        return (work_.first_kv_head + head) * group_ + work_.first_query + i;
    }

    const AttendCall &call_;
    const AttendPlan &plan_;
    const TileKernels &tile_kernels_;
    const AttendWork &work_;
    AttendScratch &s_;
    uint32_t group_;  // query heads of a KV head
    uint32_t token_count_;
    uint32_t head_count_;
    uint32_t k_stride_;    // elements of a row of q
    uint32_t out_stride_;  // of out
    Format k_format_;
    Format v_format_;
    bool is_latent_;
    const MatrixKernels *k_matrix_;  // NULL: use the tile kernels
    const MatrixKernels *v_matrix_;
    bool has_packs_;  // of queries, in addition to their rows
    uint32_t k_scale_kind_;
    uint32_t v_scale_kind_;  // NONE if latent: K's scales then serve V
    Units units_;
};

Kernel::Kernel(const AttendCall &call, const AttendWork &work, AttendScratch *scratch)
    : call_(call),
      plan_(*call.plan),
      tile_kernels_(*call.plan->tile),
      work_(work),
      s_(*scratch),
      group_(call.plan->q_heads / call.pool.kv_heads),
      token_count_(work.end_token - work.first_token),
      head_count_(work.end_kv_head - work.first_kv_head),
      k_stride_(padded(call.pool.k_head_dim)),
      out_stride_(padded(call.pool.v_head_dim)),
      k_format_(format_of(call.pool.k_dtype)),
      v_format_(format_of(call.pool.v_dtype)),
      is_latent_(call.plan->group_kind == QUIRE_GROUP_LATENT),
      k_matrix_(plan_.k_matrix),
      v_matrix_(plan_.v_matrix),
      has_packs_(k_matrix_ == nullptr && head_count_ == 1 &&
                 token_count_ * work.query_count > kDirectQueries),
      k_scale_kind_(call.pool.k_scale_kind),
      v_scale_kind_(is_latent_ ? uint32_t{QUIRE_SCALE_NONE} : call.pool.v_scale_kind),
      units_(call, work) {}

void Kernel::begin_queries() {
    const auto *q = array_at<const std::byte>(call_.args.q);
    uint32_t dim = call_.pool.k_head_dim;
    for (uint32_t head = 0; head < head_count_; ++head) {
        for (uint32_t token = 0; token < token_count_; ++token) {
            for (uint32_t i = 0; i < work_.query_count; ++i) {
                int64_t at = (int64_t{work_.first_token} + token) * call_.args.q_token_stride +
                             int64_t{query_head(head, i)} * dim;
                float *row = s_.q + size_t{row_of(head, token) + i} * k_stride_;
                plan_.q->load(q + at * plan_.q->size_bytes, row, dim);
                std::fill(row + dim, row + k_stride_, 0.0f);
            }
        }
    }
    if (has_packs_) pack_queries();
    for (uint32_t row = 0; k_matrix_ != nullptr && row < row_count(); ++row) {
        k_matrix_->split(k_format_, s_.q + size_t{row} * k_stride_, dim, plan_.q_terms,
                         q_terms_of(row), &s_.q_factors[row]);
    }
}

// The rows of a pack after the last query are zeros.
void Kernel::pack_queries() {
    for (uint32_t row = 0; row < (row_count() + kPack - 1) / kPack * kPack; ++row) {
        float *pack = s_.packed_q + size_t{row / kPack} * kPack * k_stride_ + row % kPack;
        const float *q = s_.q + size_t{row} * k_stride_;
        for (uint32_t d = 0; d < k_stride_; ++d)
            pack[size_t{d} * kPack] = row < row_count() ? q[d] : 0.0f;
    }
}

void Kernel::begin_totals() {
    for (uint32_t head = 0; head < head_count_; ++head) {
        for (uint32_t token = 0; token < token_count_; ++token) {
            for (uint32_t i = 0; i < work_.query_count; ++i) {
                s_.total[row_of(head, token) + i] = before_all_keys(call_, query_head(head, i));
            }
        }
    }
    std::fill_n(s_.out, size_t{row_count()} * out_stride_, 0.0f);
}

// Copies the rows to f32.
TileRows Kernel::stage(const TileRows &rows, uint32_t keys, uint32_t dim, float *copies,
                       const std::byte **copied) const {
    tile_kernels_.stage(rows.format, rows.rows, keys, dim, copies);
    for (uint32_t j = 0; j < keys; ++j) {
        copied[j] = reinterpret_cast<const std::byte *>(copies + size_t{j} * padded(dim));
    }
    return {copied, Format::f32};
}

// Scores of few queries, over rows as they are stored or copies of them.
void Kernel::score_rows(const Unit &unit, const TileRows &k, uint32_t keys) {
    ScoreTile score = {};
    score.format = k.format;
    score.vectors = k_stride_ / 16;
    score.q = s_.q + size_t{row_of(unit.head, unit.first)} * k_stride_;
    score.q_stride = k_stride_;
    score.queries = queries_of(unit);
    score.keys = keys;
    score.k = k.rows;
    score.scores = s_.scores;
    score.ahead = values_ahead(unit, keys);
    tile_kernels_.score(score);
}

// Scores of many queries, which were packed.
void Kernel::score_columns(const Unit &unit, uint32_t keys) {
    tile_kernels_.stage_columns(k_format_, unit.k, keys, call_.pool.k_head_dim, s_.columns);
    ScoreColumns score = {};
    score.vectors = k_stride_ / 16;
    score.packs = (queries_of(unit) + kPack - 1) / kPack;
    score.keys = keys;
    score.q = s_.packed_q + size_t{row_of(unit.head, unit.first)} * k_stride_;
    score.k = s_.columns;
    score.scores = s_.scores;
    score.ahead = values_ahead(unit, keys);
    tile_kernels_.score_columns(score);
}

// Scores of any number, by a matrix unit.
void Kernel::score_matrix(const Unit &unit, uint32_t keys) {
    uint32_t row = row_of(unit.head, unit.first);
    MatrixScore score = {};
    score.format = k_format_;
    score.dim = call_.pool.k_head_dim;
    score.terms = plan_.q_terms;
    score.q = q_terms_of(row);
    score.factors = s_.q_factors + row;
    score.queries = queries_of(unit);
    score.keys = keys;
    score.k = unit.k;
    score.scores = s_.scores;
    score.scratch = &s_.matrix;
    score.ahead = values_ahead(unit, keys);
    k_matrix_->score(score);
}

// V of this tile is prefetched while its scores are computed, and K of the next tile while this
// tile's values are: data in flight and data in use then fit in the first-level cache together.
void Kernel::compute(const Unit &unit, const Unit *next) {
    uint32_t k_dim = call_.pool.k_head_dim;
    uint32_t v_dim = call_.pool.v_head_dim;
    uint32_t keys =
        (kTileTokens - static_cast<uint32_t>(std::countl_zero(unit.needed)) + 15) / 16 * 16;
    bool is_many = queries_of(unit) > kDirectQueries;
    bool is_packed = is_many && has_packs_ && row_of(unit.head, unit.first) % kPack == 0;
    bool is_staged = is_many || k_dim % 16 != 0 || v_dim % 16 != 0;
    const std::byte *copied[kTileTokens];
    // If V is the beginning of K, K is staged for V's sake too.
    bool is_k_staged =
        is_staged && (is_latent_ ? v_matrix_ == nullptr : k_matrix_ == nullptr && !is_packed);
    TileRows k = {unit.k, k_format_};
    if (is_k_staged) k = stage(k, keys, k_dim, s_.k, copied);
    if (k_matrix_ != nullptr) {
        score_matrix(unit, keys);
    } else if (is_packed) {
        score_columns(unit, keys);
    } else {
        score_rows(unit, k, keys);
    }
    weigh(unit);
    TileRows v = {unit.v, v_format_};
    if (is_latent_) v = k;  // V is the beginning of K
    if (v_matrix_ != nullptr) {
        absorb_matrix(unit, v.rows, next);
        return;
    }
    if (is_staged && !is_latent_) v = stage(v, keys, v_dim, s_.v, copied);
    absorb(unit, v, next);
}

// The parameters that are the same for all queries of the unit. Scales belong to keys and values,
// so they are multiplied into scores and weights, never into elements of K or V.
WeighTile Kernel::weighing_of(const Unit &unit) const {
    uint32_t layer = call_.args.layer;
    uint32_t head = work_.first_kv_head + unit.head;
    WeighTile weighed = {};
    weighed.scale = plan_.scale;
    if (k_matrix_ == nullptr) weighed.scale *= tile_kernels_.factor(k_format_);
    weighed.soft_cap = plan_.soft_cap;
    weighed.v_scale = v_matrix_ == nullptr ? tile_kernels_.factor(v_format_) : 1.0f;
    float k_scale = 1.0f;
    if (k_scale_kind_ == QUIRE_SCALE_TOKEN_HEAD) {
        weighed.k_scales = unit.k_scales;
    } else if (k_scale_kind_ != QUIRE_SCALE_NONE) {
        k_scale = static_scale(call_.pool, 0, layer, head);
    }
    weighed.scale *= k_scale;
    if (is_latent_) {  // V is the beginning of K
        weighed.v_scales = weighed.k_scales;
        weighed.v_scale *= k_scale;
    } else if (v_scale_kind_ == QUIRE_SCALE_TOKEN_HEAD) {
        weighed.v_scales = unit.v_scales;
    } else if (v_scale_kind_ != QUIRE_SCALE_NONE) {
        weighed.v_scale *= static_scale(call_.pool, 1, layer, head);
    }
    return weighed;
}

// Turns the scores of each query into weights.
void Kernel::weigh(const Unit &unit) {
    float distances[kTileTokens];
    WeighTile weighed = weighing_of(unit);
    for (uint32_t token = unit.first; token < unit.end; ++token) {
        uint32_t row = row_of(unit.head, token);
        uint32_t in_unit = (token - unit.first) * work_.query_count;
        weighed.visible = unit.visible[token];
        if (weighed.visible == 0) {  // absorbing for all tokens then leaves it unchanged
            std::fill_n(s_.kept + in_unit, work_.query_count, -1.0f);
            std::fill_n(s_.scores + size_t{in_unit} * kTileTokens,
                        size_t{work_.query_count} * kTileTokens, 0.0f);
            continue;
        }
        if (plan_.alibi_slopes != nullptr) {
            weighed.distances = distances;
            for (uint32_t j = 0; j < kTileTokens; ++j) {
                distances[j] = 0.0f;
                if ((weighed.visible >> j & 1) == 0) continue;  // it may not even be in the row
                int64_t key = key_position(call_, units_.row_of(token), unit.tile + j);
                distances[j] = static_cast<float>(std::abs(units_.sight_of(token).position - key));
            }
        }
        for (uint32_t i = 0; i < work_.query_count; ++i) {
            if (weighed.distances != nullptr) {
                weighed.slope = plan_.alibi_slopes[query_head(unit.head, i)];
            }
            s_.kept[in_unit + i] = tile_kernels_.weigh(
                weighed, s_.scores + size_t{in_unit + i} * kTileTokens, &s_.chunk[row + i]);
        }
    }
}

// Absorbs keys [begin, end) for tokens [first_token, end_token), which all see them.
void Kernel::absorb_run(const Unit &unit, uint32_t first_token, uint32_t end_token, uint32_t begin,
                        uint32_t end, const TileRows &v, const Ahead &ahead) {
    uint32_t in_unit = (first_token - unit.first) * work_.query_count;
    uint32_t queries = (end_token - first_token) * work_.query_count;
    AbsorbTile absorbed = {};
    absorbed.format = v.format;
    absorbed.vectors = out_stride_ / 16;
    absorbed.weights = s_.scores + size_t{in_unit} * kTileTokens;
    absorbed.kept = s_.kept + in_unit;
    absorbed.queries = queries;
    absorbed.begin = begin;
    absorbed.end = end;
    absorbed.v = v.rows;
    absorbed.out = s_.chunk_out + size_t{row_of(unit.head, first_token)} * out_stride_;
    absorbed.out_stride = out_stride_;
    absorbed.ahead = ahead;
    tile_kernels_.absorb(absorbed);
    std::fill_n(s_.kept + in_unit, queries, 1.0f);
}

Ahead Kernel::keys_ahead(const Unit *next) const {
    if (next == nullptr) return {};
    uint32_t keys = 64 - static_cast<uint32_t>(std::countl_zero(next->needed));
    return {next->k, keys, bytes_of(k_format_, call_.pool.k_head_dim)};
}

// If every token sees a single run of keys and all runs begin at the same key, the tokens share
// what is common to all. Each token absorbs by itself whatever is not shared in this way.
void Kernel::absorb(const Unit &unit, const TileRows &v, const Unit *next) {
    Ahead ahead = keys_ahead(next);
    uint64_t common = unit.visible[unit.first];
    bool has_common = is_one_run(common);
    for (uint32_t t = unit.first; t < unit.end && has_common; ++t) {
        uint64_t visible = unit.visible[t];
        has_common = is_one_run(visible) && std::countr_zero(visible) == std::countr_zero(common);
        common &= visible;
    }
    if (!has_common) common = 0;
    for_each_run(common, [&](uint32_t begin, uint32_t end) {
        absorb_run(unit, unit.first, unit.end, begin, end, v, ahead);
    });
    for (uint32_t t = unit.first; t < unit.end; ++t) {
        for_each_run(unit.visible[t] & ~common, [&](uint32_t begin, uint32_t end) {
            absorb_run(unit, t, t + 1, begin, end, v, Ahead{});
        });
    }
}

// Absorbs with a matrix unit for tokens [first, end); a key that a token does not see has weight 0.
void Kernel::absorb_tokens(const Unit &unit, uint32_t first, uint32_t end, Rows v,
                           const Ahead &ahead) {
    uint32_t in_unit = (first - unit.first) * work_.query_count;
    MatrixAbsorb absorbed = {};
    absorbed.format = v_format_;
    absorbed.dim = call_.pool.v_head_dim;
    absorbed.weights = s_.scores + size_t{in_unit} * kTileTokens;
    absorbed.kept = s_.kept + in_unit;
    absorbed.queries = (end - first) * work_.query_count;
    absorbed.v = v;
    absorbed.out = s_.chunk_out + size_t{row_of(unit.head, first)} * out_stride_;
    absorbed.out_stride = out_stride_;
    absorbed.scratch = &s_.matrix;
    absorbed.ahead = ahead;
    v_matrix_->absorb(absorbed);
}

// A value that only some tokens see may be NaN or infinite, and 0 times that is not 0. Then each
// token is computed by itself, with zeros where it sees nothing: the same numbers, more slowly.
void Kernel::absorb_matrix(const Unit &unit, Rows v, const Unit *next) {
    uint64_t not_common = 0;
    for (uint32_t t = unit.first; t < unit.end; ++t) not_common |= unit.needed & ~unit.visible[t];
    if (v_matrix_->are_finite(v_format_, v, not_common, call_.pool.v_head_dim)) {
        absorb_tokens(unit, unit.first, unit.end, v, keys_ahead(next));
    } else {
        absorb_one_by_one(unit, v);
    }
}

void Kernel::absorb_one_by_one(const Unit &unit, Rows v) {
    for (uint32_t t = unit.first; t < unit.end; ++t) {
        const std::byte *seen[kTileTokens];
        for (uint32_t j = 0; j < kTileTokens; ++j) {
            seen[j] = (unit.visible[t] >> j & 1) != 0 ? v[j] : zero_row();
        }
        absorb_tokens(unit, t, t + 1, seen, Ahead{});
    }
}

void Kernel::begin_chunk() {
    uint32_t rows = row_count();
    std::fill_n(s_.chunk, rows, Softmax{-kInfinity, 0.0f});
    std::fill_n(s_.chunk_out, size_t{rows} * out_stride_, 0.0f);
}

void Kernel::end_chunk(uint32_t chunk) {
    if (work_.states) {
        keep_chunk(chunk);
    } else {
        fold_chunk();
    }
}

void Kernel::keep_chunk(uint32_t chunk) {
    for (uint32_t head = 0; head < head_count_; ++head) {
        for (uint32_t token = 0; token < token_count_; ++token) {
            for (uint32_t i = 0; i < work_.query_count; ++i) {
                uint32_t row = row_of(head, token) + i;
                ChunkState state =
                    work_.states.at(call_, token_count_, chunk, token, query_head(head, i));
                *state.softmax = s_.chunk[row];
                std::copy_n(s_.chunk_out + size_t{row} * out_stride_, out_stride_, state.out);
            }
        }
    }
}

void Kernel::fold_chunk() {
    for (uint32_t row = 0; row < row_count(); ++row) {
        size_t at = size_t{row} * out_stride_;
        tile_kernels_.fold(&s_.total[row], s_.out + at, s_.chunk[row], s_.chunk_out + at,
                           out_stride_ / 16);
    }
}

void Kernel::end_queries() {
    for (uint32_t head = 0; head < head_count_; ++head) {
        for (uint32_t token = 0; token < token_count_; ++token) {
            for (uint32_t i = 0; i < work_.query_count; ++i) {
                uint32_t row = row_of(head, token) + i;
                write_result(call_, work_.first_token + token, query_head(head, i), s_.total[row],
                             s_.out + size_t{row} * out_stride_);
            }
        }
    }
}

// A unit is placed before the previous one is computed, because computing that one prefetches its
// keys.
void Kernel::run() {
    begin_queries();
    if (!work_.states) begin_totals();
    uint32_t chunk = work_.first_chunk;
    begin_chunk();
    Unit units[2];
    uint32_t now = 0;
    bool has_unit = units_.first(&units[now]);
    while (has_unit) {
        Unit &unit = units[now];
        auto next_chunk = static_cast<uint32_t>(unit.tile / kChunkTokens);
        if (chunk != next_chunk) {
            end_chunk(chunk);
            begin_chunk();
            // A chunk with no visible key needs no fold but has a state.
            while (++chunk < next_chunk && work_.states) end_chunk(chunk);
            chunk = next_chunk;
        }
        has_unit = units_.next(unit, &units[1 - now]);
        units_.load_scales(&unit);
        compute(unit, has_unit ? &units[1 - now] : nullptr);
        now = 1 - now;
    }
    end_chunk(chunk);
    for (begin_chunk(); work_.states && ++chunk < work_.end_chunk;) keep_chunk(chunk);
    if (!work_.states) end_queries();
}

}  // namespace

uint32_t kv_heads_in_scratch(const AttendCall &call, uint32_t token_count, uint32_t query_count) {
    uint64_t rows = uint64_t{token_count} * query_count;
    uint64_t stride = std::max(padded(call.pool.k_head_dim), padded(call.pool.v_head_dim));
    if (rows > kQueries) return 0;
    uint64_t terms = kTerms * term_bytes(format_of(call.pool.k_dtype), call.pool.k_head_dim);
    return static_cast<uint32_t>(
        std::min({kMaxRows / rows, kRowFloats / (rows * stride), kTermBytes / (rows * terms)}));
}

void attend(const AttendCall &call, const AttendWork &work, AttendScratch *scratch) {
    const AttendPlan &plan = *call.plan;
    const MatrixKernels *matrix = plan.k_matrix != nullptr ? plan.k_matrix : plan.v_matrix;
    if (matrix != nullptr) {
        matrix->begin((work.end_token - work.first_token) * work.query_count);
    }
    Kernel(call, work, scratch).run();
    if (matrix != nullptr) matrix->end();
}

}  // namespace quire::cpu
