// SPDX-License-Identifier: Apache-2.0

#include "oracle.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "number.hpp"
#include "quire/attention.h"
#include "quire/cache.h"

namespace quire::conformance {

namespace {

struct Query {
    uint32_t row;
    int64_t token;
    uint32_t head;
};

bool has_mask(const OracleInput &in, int64_t token) {
    return !in.mask_rows.empty() && in.mask_rows[static_cast<size_t>(token)] >= 0;
}

int64_t first_new(const OracleInput &in, uint32_t row) {
    return in.lengths[row] - (in.cu_q[row + 1] - in.cu_q[row]);
}

int64_t key_position(const OracleInput &in, uint32_t row, int64_t place) {
    int64_t since_new = place - first_new(in, row);
    if (since_new < 0) return place;
    return oracle_position(in, row, in.cu_q[row] + since_new);
}

// The scale of a row of K or V. `layer` is where the block's layer begins.
double scale_of(const OracleInput &in, bool is_v, uint32_t kv_head, const unsigned char *layer,
                int64_t place) {
    const quire_be_pool &pool = in.pool;
    uint32_t kind = is_v ? pool.v_scale_kind : pool.k_scale_kind;
    if (kind == QUIRE_SCALE_NONE) return 1.0;
    if (kind == QUIRE_SCALE_TOKEN_HEAD) {
        int64_t plane = is_v ? pool.v_scale_offset : pool.k_scale_offset;
        return load(layer + plane + kv_head * pool.scale_head_stride + place * 4, QUIRE_DTYPE_F32);
    }
    uint32_t side = is_v && pool.group_kind != QUIRE_GROUP_LATENT ? 1 : 0;
    return double{in.scales[(size_t{in.layer} * 2 + side) * pool.kv_heads + kv_head]};
}

// One row's keys and values of one KV head, as numbers: [length][dim]. Skips keys that none of the
// row's tokens see: their bytes and blocks may be anything.
struct Context {
    std::vector<double> k;
    std::vector<double> v;
};

Context read_context(const OracleInput &in, uint32_t row, uint32_t kv_head,
                     const std::vector<bool> &seen) {
    const quire_be_pool &pool = in.pool;
    Context context;
    context.k.resize(seen.size() * pool.k_head_dim);
    context.v.resize(seen.size() * pool.v_head_dim);
    for (size_t key = 0; key < seen.size(); ++key) {
        if (!seen[key]) continue;
        int64_t block = in.block_table[row * in.block_table_stride + key / pool.block_tokens];
        auto place = static_cast<int64_t>(key % pool.block_tokens);
        const unsigned char *layer =
            in.bytes + block * pool.block_stride + in.layer * pool.layer_stride;
        const unsigned char *k = layer + kv_head * pool.k_head_stride + place * pool.k_token_stride;
        const unsigned char *v =
            layer + pool.v_offset + kv_head * pool.v_head_stride + place * pool.v_token_stride;
        double k_scale = scale_of(in, false, kv_head, layer, place);
        double v_scale = scale_of(in, true, kv_head, layer, place);
        for (uint32_t d = 0; d < pool.k_head_dim; ++d) {
            context.k[key * pool.k_head_dim + d] = k_scale * load_in_row(k, pool.k_dtype, d);
        }
        for (uint32_t d = 0; d < pool.v_head_dim; ++d) {
            context.v[key * pool.v_head_dim + d] = v_scale * load_in_row(v, pool.v_dtype, d);
        }
    }
    return context;
}

std::vector<double> read_q(const OracleInput &in, const Query &query) {
    int64_t at = query.token * in.q_token_stride + int64_t{query.head} * in.shape.k_head_dim;
    std::vector<double> q;
    for (uint32_t d = 0; d < in.shape.k_head_dim; ++d) {
        q.push_back(load(in.q + (at + d) * size_of(in.shape.q_dtype), in.shape.q_dtype));
    }
    return q;
}

struct Score {
    double value;
    double range;  // the magnitudes that were summed for it
};

Score score_of(const OracleInput &in, const Query &query, const std::vector<double> &q,
               const double *k, int64_t place) {
    Score score = {0.0, 0.0};
    for (uint32_t d = 0; d < in.shape.k_head_dim; ++d) {
        score.value += q[d] * k[d];
        score.range += std::fabs(q[d] * k[d]);
    }
    score.value *= in.scale;
    score.range *= std::fabs(in.scale);
    if (in.soft_cap != 0.0) score.value = in.soft_cap * std::tanh(score.value / in.soft_cap);
    if (!in.alibi_slopes.empty()) {
        auto distance = static_cast<double>(oracle_position(in, query.row, query.token) -
                                            key_position(in, query.row, place));
        double less = double{in.alibi_slopes[query.head]} * std::fabs(distance);
        score.value -= less;
        score.range += std::fabs(less);
    }
    return score;
}

void attend(const OracleInput &in, const Context &context, const Query &query,
            OracleOutput *output) {
    size_t index = static_cast<size_t>(query.token) * in.shape.q_heads + query.head;
    uint32_t v_dim = in.shape.v_head_dim;
    std::vector<double> q = read_q(in, query);
    std::vector<double> scores;
    std::vector<const double *> values;
    double range = 0.0;
    for (int64_t key = 0; key < in.lengths[query.row]; ++key) {
        if (!oracle_sees(in, query.row, query.token, key)) continue;
        auto at = static_cast<size_t>(key);
        Score score = score_of(in, query, q, &context.k[at * in.shape.k_head_dim], key);
        scores.push_back(score.value);
        values.push_back(&context.v[at * v_dim]);
        range = std::max(range, score.range);
    }
    double top = -std::numeric_limits<double>::infinity();
    for (double score : scores) top = std::max(top, score);
    double sink =
        in.sinks.empty() ? -std::numeric_limits<double>::infinity() : double{in.sinks[query.head]};
    top = std::max(top, sink);
    if (std::isinf(top)) return;
    double sum = std::exp(sink - top);
    for (double score : scores) sum += std::exp(score - top);
    output->lse[index] = top + std::log(sum);
    output->score_range[index] = std::isinf(sink) ? range : std::max(range, std::fabs(sink));
    double *out = &output->out[index * v_dim];
    double largest = 0.0;
    for (size_t j = 0; j < scores.size(); ++j) {
        double weight = std::exp(scores[j] - top) / sum;
        for (uint32_t d = 0; d < v_dim; ++d) {
            out[d] += weight * values[j][d];
            largest = std::max(largest, std::fabs(values[j][d]));
        }
    }
    output->largest_v[index] = largest;
}

}  // namespace

int64_t oracle_position(const OracleInput &in, uint32_t row, int64_t token) {
    if (has_mask(in, token)) return in.positions[static_cast<size_t>(token)];
    return first_new(in, row) + token - in.cu_q[row];
}

bool oracle_sees(const OracleInput &in, uint32_t row, int64_t token, int64_t place) {
    if (place >= in.lengths[row]) return false;
    if ((in.shape.flags & QUIRE_ATTENTION_NOT_CAUSAL) != 0) return true;
    bool is_masked = has_mask(in, token);
    int64_t position = oracle_position(in, row, token);
    int64_t key = key_position(in, row, place);
    if (!is_masked && place > position) return false;
    if (is_masked && place >= in.mask_first[row]) {
        auto bit = static_cast<size_t>(place - in.mask_first[row]);
        auto words = static_cast<size_t>(in.mask_rows[static_cast<size_t>(token)]);
        if ((in.mask[words + bit / 32] >> (bit % 32) & 1u) == 0) return false;
    }
    if (in.shape.window == 0) return true;
    if (key > position) return false;
    if (in.shape.group_kind == QUIRE_GROUP_CHUNKED) {
        return key / in.shape.window == position / in.shape.window;
    }
    return key + in.shape.window > position || key < in.shape.sink_tokens;
}

OracleOutput oracle_attention(const OracleInput &in) {
    size_t queries = static_cast<size_t>(in.cu_q.back()) * in.shape.q_heads;
    OracleOutput output;
    output.out.assign(queries * in.shape.v_head_dim, 0.0);
    output.lse.assign(queries, -std::numeric_limits<double>::infinity());
    output.largest_v.assign(queries, 0.0);
    output.score_range.assign(queries, 0.0);
    uint32_t group = in.shape.q_heads / in.shape.kv_heads;
    for (uint32_t row = 0; row + 1 < in.cu_q.size(); ++row) {
        if (in.cu_q[row] == in.cu_q[row + 1]) continue;
        std::vector<bool> seen(static_cast<size_t>(in.lengths[row]));
        for (int64_t token = in.cu_q[row]; token < in.cu_q[row + 1]; ++token) {
            for (size_t key = 0; key < seen.size(); ++key) {
                seen[key] = seen[key] || oracle_sees(in, row, token, static_cast<int64_t>(key));
            }
        }
        for (uint32_t kv_head = 0; kv_head < in.shape.kv_heads; ++kv_head) {
            Context context = read_context(in, row, kv_head, seen);
            for (uint32_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
                for (int64_t token = in.cu_q[row]; token < in.cu_q[row + 1]; ++token) {
                    attend(in, context, {row, token, head}, &output);
                }
            }
        }
    }
    return output;
}

}  // namespace quire::conformance
