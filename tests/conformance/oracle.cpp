// SPDX-License-Identifier: Apache-2.0

#include "oracle.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "number.hpp"
#include "quire/attention.h"

namespace quire::conformance {

namespace {

struct Query {
    int64_t token;
    int64_t position;
    uint32_t head;
};

// One row's keys and values of one KV head, as numbers: [length][dim].
struct Context {
    int64_t length;
    std::vector<double> k;
    std::vector<double> v;
};

Context read_context(const OracleInput &in, uint32_t row, uint32_t kv_head) {
    Context context{in.lengths[row], {}, {}};
    for (int64_t key = 0; key < context.length; ++key) {
        int64_t block = in.block_table[row * in.block_table_stride + key / in.pool.block_tokens];
        int64_t place = key % in.pool.block_tokens;
        const unsigned char *layer =
            in.bytes + block * in.pool.block_stride + in.layer * in.pool.layer_stride;
        const unsigned char *k =
            layer + kv_head * in.pool.k_head_stride + place * in.pool.k_token_stride;
        const unsigned char *v = layer + in.pool.v_offset + kv_head * in.pool.v_head_stride +
                                 place * in.pool.v_token_stride;
        for (uint32_t d = 0; d < in.pool.k_head_dim; ++d) {
            context.k.push_back(load(k + d * size_of(in.pool.k_dtype), in.pool.k_dtype));
        }
        for (uint32_t d = 0; d < in.pool.v_head_dim; ++d) {
            context.v.push_back(load(v + d * size_of(in.pool.v_dtype), in.pool.v_dtype));
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

bool is_visible(const OracleInput &in, const Query &query, int64_t key) {
    if ((in.shape.flags & QUIRE_ATTENTION_NOT_CAUSAL) != 0) return true;
    if (key > query.position) return false;
    return in.shape.window == 0 || key > query.position - int64_t{in.shape.window};
}

void attend(const OracleInput &in, const Context &context, const Query &query,
            OracleOutput *output) {
    size_t index = static_cast<size_t>(query.token) * in.shape.q_heads + query.head;
    uint32_t k_dim = in.shape.k_head_dim;
    uint32_t v_dim = in.shape.v_head_dim;
    std::vector<double> q = read_q(in, query);
    std::vector<double> scores;
    std::vector<const double *> values;
    for (int64_t key = 0; key < context.length; ++key) {
        if (!is_visible(in, query, key)) continue;
        const double *k = &context.k[static_cast<size_t>(key) * k_dim];
        double score = 0.0;
        double range = 0.0;
        for (uint32_t d = 0; d < k_dim; ++d) {
            score += q[d] * k[d];
            range += std::fabs(q[d] * k[d]);
        }
        scores.push_back(score * in.scale);
        values.push_back(&context.v[static_cast<size_t>(key) * v_dim]);
        output->score_range[index] = std::max(output->score_range[index], range * in.scale);
    }
    if (scores.empty()) return;
    double top = *std::max_element(scores.begin(), scores.end());
    double sum = 0.0;
    for (double score : scores) sum += std::exp(score - top);
    output->lse[index] = top + std::log(sum);
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
        for (uint32_t head = 0; head < in.shape.q_heads; ++head) {
            Context context = read_context(in, row, head / group);
            for (int64_t token = in.cu_q[row]; token < in.cu_q[row + 1]; ++token) {
                int64_t position = in.lengths[row] - in.cu_q[row + 1] + token;
                attend(in, context, {token, position, head}, &output);
            }
        }
    }
    return output;
}

}  // namespace quire::conformance
