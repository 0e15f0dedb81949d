// SPDX-License-Identifier: Apache-2.0

#include "attention_case.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <sstream>

#include "quire/attention.h"

namespace quire::conformance {

namespace {

constexpr uint32_t kLayers = 3;
constexpr uint32_t kLayer = 1;  // others lie before and behind it

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

uint32_t blocks_of(int64_t tokens, uint32_t block_tokens) {
    return static_cast<uint32_t>((tokens + block_tokens - 1) / block_tokens);
}

class Plan {
 public:
    Plan(Rig &rig, const AttentionSpec &spec, const OracleInput &input) {
        quire_be_plan_desc desc{};
        desc.struct_size = sizeof desc;
        desc.shape = spec.shape;
        desc.scale = spec.scale;
        desc.max_rows = static_cast<uint32_t>(input.lengths.size());
        desc.max_query_tokens = static_cast<uint32_t>(input.cu_q.back());
        desc.max_blocks_per_row = input.block_table_stride;
        Error error;
        must(api().plan_create(rig.device(), &desc, &handle_, &error), error);
    }
    Plan(const Plan &) = delete;
    Plan &operator=(const Plan &) = delete;
    ~Plan() { api().plan_destroy(handle_); }
    quire_be_plan *get() const { return handle_; }

 private:
    quire_be_plan *handle_ = nullptr;
};

template <typename T>
class Upload {
 public:
    Upload(Rig &rig, const std::vector<T> &values) : memory_(rig, values.size() * sizeof(T) + 1) {
        rig.write(memory_.address(), values.data(), values.size() * sizeof(T));
    }
    uint64_t address() const { return memory_.address(); }

 private:
    Memory memory_;
};

}  // namespace

quire_be_pool make_pool(const quire_be_attention_query &shape, Layout layout, uint32_t layer_count,
                        uint32_t block_count, uint32_t padding_bytes) {
    quire_be_pool pool{};
    pool.struct_size = sizeof pool;
    pool.block_count = block_count;
    pool.block_tokens = shape.block_tokens;
    pool.layer_count = layer_count;
    pool.kv_heads = shape.kv_heads;
    pool.k_head_dim = shape.k_head_dim;
    pool.v_head_dim = shape.v_head_dim;
    pool.k_dtype = shape.k_dtype;
    pool.v_dtype = shape.v_dtype;
    int64_t k_row = int64_t{shape.k_head_dim} * size_of(shape.k_dtype) + padding_bytes;
    int64_t v_row = int64_t{shape.v_head_dim} * size_of(shape.v_dtype) + padding_bytes;
    bool heads_first = layout == Layout::head_major;
    pool.k_token_stride = heads_first ? k_row : k_row * shape.kv_heads;
    pool.v_token_stride = heads_first ? v_row : v_row * shape.kv_heads;
    pool.k_head_stride = heads_first ? k_row * shape.block_tokens : k_row;
    pool.v_head_stride = heads_first ? v_row * shape.block_tokens : v_row;
    int64_t rows = int64_t{shape.kv_heads} * shape.block_tokens;
    pool.v_offset = round_up(k_row * rows, 16);
    pool.layer_stride = round_up(pool.v_offset + v_row * rows, 16) + padding_bytes;
    pool.block_stride = pool.layer_stride * layer_count + padding_bytes;
    pool.size_bytes = static_cast<uint64_t>(pool.block_stride) * block_count;
    return pool;
}

std::string AttentionSpec::text() const {
    std::ostringstream text;
    text << "seed " << seed << ": q " << name_of(shape.q_dtype) << " K " << name_of(shape.k_dtype)
         << " V " << name_of(shape.v_dtype) << ", heads " << shape.q_heads << "/" << shape.kv_heads
         << ", dims " << shape.k_head_dim << "/" << shape.v_head_dim << ", block "
         << shape.block_tokens << ", window " << shape.window << ", flags " << shape.flags
         << ", rows (length+new)";
    for (const RowSpec &row : rows) text << " " << row.length << "+" << row.new_tokens;
    return text.str();
}

AttentionSpec random_spec(uint64_t seed, const quire_be_attention_query *fit) {
    Dice dice(seed);
    constexpr uint32_t kTypes[] = {QUIRE_DTYPE_F32, QUIRE_DTYPE_F16, QUIRE_DTYPE_BF16};
    AttentionSpec spec;
    spec.seed = seed;
    spec.pages_seed = mix(seed);
    quire_be_attention_query &shape = spec.shape;
    shape.struct_size = sizeof shape;
    shape.q_dtype = dice.pick(kTypes);
    shape.k_dtype = dice.pick(kTypes);
    shape.v_dtype = dice.roll(0, 2) == 0 ? dice.pick(kTypes) : shape.k_dtype;
    shape.kv_heads = dice.pick({1u, 1u, 2u, 3u, 8u});
    shape.q_heads = shape.kv_heads * dice.pick({1u, 1u, 2u, 4u, 7u});
    shape.k_head_dim = dice.pick({8u, 16u, 40u, 64u, 80u, 128u, 256u, dice.roll(1, 256)});
    shape.v_head_dim = dice.roll(0, 3) == 0 ? dice.roll(1, 256) : shape.k_head_dim;
    shape.block_tokens = dice.pick({1u, 4u, 8u, 16u, 16u, 32u, 64u, dice.roll(1, 64)});
    if (fit != nullptr) {
        shape.q_dtype = fit->q_dtype;
        shape.k_dtype = fit->k_dtype;
        shape.v_dtype = fit->v_dtype;
        shape.k_head_dim = fit->k_head_dim;
        shape.v_head_dim = fit->v_head_dim;
        shape.block_tokens = fit->block_tokens;
    }
    if (dice.roll(0, 3) == 0)
        shape.flags = QUIRE_ATTENTION_NOT_CAUSAL;
    else if (dice.roll(0, 2) == 0)
        shape.window = dice.pick({1u, 7u, 64u, dice.roll(1, 200)});
    spec.layout = dice.roll(0, 1) == 0 ? Layout::head_major : Layout::token_major;
    spec.padding = dice.pick({0u, 0u, 1u, 5u});
    spec.q_size = dice.pick({0.5, 1.0, 4.0});
    if (dice.roll(0, 1) == 0) spec.scale = 0.1f;
    spec.wants_lse = dice.roll(0, 3) != 0;
    for (uint32_t i = dice.roll(1, 6); i > 0; --i) {
        RowSpec row;
        row.content = static_cast<uint32_t>(spec.rows.size());
        row.length = static_cast<int32_t>(dice.pick({0u, 1u, dice.roll(1, 40), dice.roll(1, 300)}));
        auto length = static_cast<uint32_t>(row.length);
        row.new_tokens = static_cast<int32_t>(
            dice.pick({0u, 1u, 1u, length, dice.roll(0, std::min(length, 20u))}));
        row.new_tokens = std::min(row.new_tokens, std::max(row.length, 1));
        if (!spec.rows.empty() && dice.roll(0, 2) == 0) {
            int32_t most = std::min(row.length, spec.rows.back().length);
            auto block = static_cast<int32_t>(shape.block_tokens);
            row.shared_tokens = most / block * block;
        }
        spec.rows.push_back(row);
    }
    return spec;
}

AttentionCase::AttentionCase(const AttentionSpec &spec) : spec_(spec) {
    input_.shape = spec.shape;
    input_.layer = kLayer;
    input_.scale = spec.scale != 0.0f ? double{spec.scale} : 1.0 / std::sqrt(spec.shape.k_head_dim);
    input_.cu_q.push_back(0);
    uint32_t own_blocks = 0;
    for (const RowSpec &row : spec.rows) {
        input_.lengths.push_back(row.length);
        input_.cu_q.push_back(input_.cu_q.back() + row.new_tokens);
        uint32_t blocks = blocks_of(row.length, spec.shape.block_tokens);
        input_.block_table_stride = std::max(input_.block_table_stride, blocks + 2);
        own_blocks += blocks;
    }
    uint32_t block_count = own_blocks + 5;  // the null block, and some that nobody uses
    input_.pool = make_pool(spec.shape, spec.layout, kLayers, block_count, spec.padding * 8);
    bytes_.assign(input_.pool.size_bytes, spec.poison);
    assign_blocks();
    store_contents();
    store_queries();
    input_.bytes = bytes_.data();
    input_.q = q_.data();
}

int64_t AttentionCase::oldest_visible(const RowSpec &row) const {
    if (spec_.shape.window == 0) return 0;
    return std::max<int64_t>(0, row.length - row.new_tokens - int64_t{spec_.shape.window} + 1);
}

uint32_t AttentionCase::content_at(uint32_t row, int64_t position) const {
    while (position < spec_.rows[row].shared_tokens) --row;
    return spec_.rows[row].content;
}

void AttentionCase::assign_blocks() {
    uint32_t stride = input_.block_table_stride;
    std::vector<int32_t> free(input_.pool.block_count - 1);
    std::iota(free.begin(), free.end(), 1);  // 0 is the null block
    for (size_t i = free.size() - 1; i > 0; --i) {
        std::swap(free[i], free[mix(spec_.pages_seed, i) % (i + 1)]);
    }
    input_.block_table.assign(size_t{stride} * spec_.rows.size(), 0);
    for (uint32_t r = 0; r < spec_.rows.size(); ++r) {
        const RowSpec &row = spec_.rows[r];
        uint32_t blocks = blocks_of(row.length, spec_.shape.block_tokens);
        uint32_t shared = static_cast<uint32_t>(row.shared_tokens) / spec_.shape.block_tokens;
        if (!spec_.shares_pages) shared = 0;
        int32_t *table = &input_.block_table[size_t{r} * stride];
        for (uint32_t i = 0; i < blocks; ++i) {
            if (i < shared) {
                table[i] = (table - stride)[i];
            } else {
                table[i] = free.back();
                free.pop_back();
            }
        }
    }
}

void AttentionCase::store_contents() {
    const quire_be_pool &pool = input_.pool;
    uint32_t stride = input_.block_table_stride;
    for (uint32_t r = 0; r < spec_.rows.size(); ++r) {
        const int32_t *table = &input_.block_table[size_t{r} * stride];
        auto first_key = static_cast<uint64_t>(spec_.rows[r].first_key);
        for (int64_t p = 0; p < spec_.rows[r].length; ++p) {
            uint64_t content = content_at(r, p);
            int64_t token =
                table[p / pool.block_tokens] * pool.block_stride + kLayer * pool.layer_stride;
            int64_t place = p % pool.block_tokens;
            for (uint32_t h = 0; h < pool.kv_heads; ++h) {
                unsigned char *k = &bytes_[static_cast<size_t>(token + h * pool.k_head_stride +
                                                               place * pool.k_token_stride)];
                unsigned char *v = &bytes_[static_cast<size_t>(
                    token + pool.v_offset + h * pool.v_head_stride + place * pool.v_token_stride)];
                uint64_t where = mix(spec_.seed, content, first_key + static_cast<uint64_t>(p), h);
                for (uint32_t d = 0; d < pool.k_head_dim; ++d) {
                    store(chance(where, d, 1), pool.k_dtype, k + d * size_of(pool.k_dtype));
                }
                for (uint32_t d = 0; d < pool.v_head_dim; ++d) {
                    store(chance(where, d, 2), pool.v_dtype, v + d * size_of(pool.v_dtype));
                }
            }
        }
    }
    // What has left the window of a row is not in its table; if no other row shares it, it is gone.
    std::vector<bool> used(pool.block_count, false);
    for (uint32_t r = 0; r < spec_.rows.size(); ++r) {
        auto gone = static_cast<uint32_t>(oldest_visible(spec_.rows[r]) / pool.block_tokens);
        int32_t *table = &input_.block_table[size_t{r} * stride];
        std::fill(table, table + std::min(gone, stride), 0);
        for (uint32_t i = 0; i < stride; ++i) used[static_cast<size_t>(table[i])] = true;
    }
    for (uint32_t b = 0; b < pool.block_count; ++b) {
        auto begin = bytes_.begin() + b * pool.block_stride;
        if (b == 0 || !used[b]) std::fill(begin, begin + pool.block_stride, spec_.poison);
    }
}

void AttentionCase::store_queries() {
    const quire_be_attention_query &shape = spec_.shape;
    input_.q_token_stride = int64_t{shape.q_heads} * shape.k_head_dim + spec_.padding;
    q_.assign(
        static_cast<size_t>(input_.cu_q.back() * input_.q_token_stride) * size_of(shape.q_dtype),
        spec_.poison);
    for (uint32_t r = 0; r < spec_.rows.size(); ++r) {
        for (int32_t t = 0; t < spec_.rows[r].new_tokens; ++t) {
            const RowSpec &row = spec_.rows[r];
            int64_t first = row.first_query >= 0 ? row.first_query : row.length - row.new_tokens;
            int64_t at = (input_.cu_q[r] + t) * input_.q_token_stride;
            auto p = static_cast<uint64_t>(first + t);
            for (uint64_t i = 0; i < uint64_t{shape.q_heads} * shape.k_head_dim; ++i) {
                double value = spec_.q_size * chance(spec_.seed, spec_.rows[r].content, p, i, 3);
                store(value, shape.q_dtype,
                      &q_[(static_cast<uint64_t>(at) + i) * size_of(shape.q_dtype)]);
            }
        }
    }
}

AttentionResult AttentionCase::run(Rig &rig) const {
    const quire_be_attention_query &shape = spec_.shape;
    auto tokens = static_cast<uint64_t>(input_.cu_q.back());
    uint64_t out_stride = uint64_t{shape.q_heads} * shape.v_head_dim + spec_.padding;
    Upload pool_bytes(rig, bytes_);
    Upload q(rig, q_);
    Upload table(rig, input_.block_table);
    Upload lengths(rig, input_.lengths);
    Upload cu_q(rig, input_.cu_q);
    Guarded out(rig, tokens * out_stride * size_of(shape.q_dtype));
    Guarded lse(rig, tokens * shape.q_heads * sizeof(float));
    Plan plan(rig, spec_, input_);
    quire_be_pool pool = input_.pool;
    pool.address = pool_bytes.address();
    quire_be_attention args{};
    args.struct_size = sizeof args;
    args.layer = kLayer;
    args.pool = &pool;
    args.q = q.address();
    args.out = out.address();
    args.lse = spec_.wants_lse ? lse.address() : 0;
    args.block_table = table.address();
    args.lengths = lengths.address();
    args.cu_q = cu_q.address();
    args.q_token_stride = input_.q_token_stride;
    args.out_token_stride = static_cast<int64_t>(out_stride);
    args.block_table_stride = input_.block_table_stride;
    args.row_count = static_cast<uint32_t>(spec_.rows.size());
    args.query_tokens = static_cast<uint32_t>(tokens);
    auto longest = std::max_element(input_.lengths.begin(), input_.lengths.end());
    args.max_length = static_cast<uint32_t>(*longest);
    Error error;
    must(api().attention(rig.queue(), plan.get(), &args, &error), error);
    rig.sync();
    EXPECT_TRUE(rig.read(pool_bytes.address(), bytes_.size()) == bytes_) << "the pool was written";
    return collect(out.read(), lse.read());
}

AttentionResult AttentionCase::collect(std::vector<unsigned char> out,
                                       const std::vector<unsigned char> &lse) const {
    const quire_be_attention_query &shape = spec_.shape;
    uint64_t row_bytes = uint64_t{shape.q_heads} * shape.v_head_dim * size_of(shape.q_dtype);
    uint64_t stride_bytes = row_bytes + uint64_t{spec_.padding} * size_of(shape.q_dtype);
    AttentionResult result;
    for (uint64_t i = 0; i < out.size(); ++i) {
        if (i % stride_bytes < row_bytes) {
            result.out.push_back(out[i]);
        } else if (out[i] != Guarded::unwritten(i)) {
            ADD_FAILURE() << "the gap between two tokens of out was written";
            break;
        }
    }
    if (!spec_.wants_lse) {
        for (uint64_t i = 0; i < lse.size(); ++i) {
            EXPECT_EQ(lse[i], Guarded::unwritten(i)) << "an LSE that nobody wanted";
        }
        return result;
    }
    result.lse.resize(lse.size() / sizeof(float));
    if (!lse.empty()) std::memcpy(result.lse.data(), lse.data(), lse.size());
    return result;
}

// The bound. Stored values are exact in f32, so all error is of f32 arithmetic, unit 2^-24 = 6e-8:
//   a score is a sum of at most 256 products in at least 8 partial sums, some 4 units of the sum of
//   their sizes (S, the oracle's score_range); its error is the relative error of a weight;
//   a weight, its exponential and its sum with others add some 10 units.
// These errors have random signs, so much less is reached. The bound is 8 units:
//   |out - exact| <= 5e-7 (1 + S) max |v|, and then the rounding of the result to out's type
//   |lse - exact| <= 5e-7 (1 + S + |lse|)
// The cpu backend reaches 0.2 of it. One key too many among 300 is off by 1e-3.
double AttentionCase::compare(const AttentionResult &result) const {
    constexpr double kUnit = 5e-7;
    const quire_be_attention_query &shape = spec_.shape;
    OracleOutput exact = this->exact();
    double worst = 0.0;
    for (size_t i = 0; i < exact.out.size(); ++i) {
        size_t query = i / shape.v_head_dim;
        double value = load(&result.out[i * size_of(shape.q_dtype)], shape.q_dtype);
        double bound = kUnit * (1.0 + exact.score_range[query]) * exact.largest_v[query];
        double stored =
            rounding_of(shape.q_dtype) * std::fabs(exact.out[i]) + smallest_of(shape.q_dtype);
        double error = std::fabs(value - exact.out[i]);
        if (std::isnan(error) || (bound == 0.0 && value != 0.0)) return HUGE_VAL;
        if (error > stored) worst = std::max(worst, (error - stored) / bound);
    }
    for (size_t i = 0; i < result.lse.size(); ++i) {
        double value = result.lse[i];
        if (value == exact.lse[i]) continue;  // both -inf
        double bound = kUnit * (1.0 + exact.score_range[i] + std::fabs(exact.lse[i]));
        double error = std::fabs(value - exact.lse[i]) / bound;
        if (!std::isfinite(error)) return HUGE_VAL;
        worst = std::max(worst, error);
    }
    return worst;
}

AttentionResult slice(const AttentionResult &result, const AttentionSpec &spec,
                      uint32_t first_token, uint32_t token_count) {
    int64_t out_bytes =
        int64_t{spec.shape.q_heads} * spec.shape.v_head_dim * size_of(spec.shape.q_dtype);
    int64_t heads = spec.shape.q_heads;
    int64_t end = int64_t{first_token} + token_count;
    AttentionResult part;
    part.out.assign(result.out.begin() + first_token * out_bytes,
                    result.out.begin() + end * out_bytes);
    if (result.lse.empty()) return part;
    part.lse.assign(result.lse.begin() + first_token * heads, result.lse.begin() + end * heads);
    return part;
}

AttentionResult join(AttentionResult first, const AttentionResult &second) {
    first.out.insert(first.out.end(), second.out.begin(), second.out.end());
    first.lse.insert(first.lse.end(), second.lse.begin(), second.lse.end());
    return first;
}

}  // namespace quire::conformance
