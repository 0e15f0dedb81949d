// SPDX-License-Identifier: Apache-2.0

#include "attention_case.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "quire/attention.h"
#include "quire/cache.h"

namespace quire::conformance {

namespace {

constexpr uint32_t kLayers = 3;
constexpr uint32_t kLayer = 1;  // others lie before and after it

uint32_t blocks_of(int64_t tokens, uint32_t block_tokens) {
    return static_cast<uint32_t>((tokens + block_tokens - 1) / block_tokens);
}

class Plan {
 public:
    Plan(Rig &rig, const AttentionSpec &spec, const OracleInput &input) {
        PlanOptions options(spec);
        quire_be_plan_desc desc{};
        desc.struct_size = sizeof desc;
        desc.shape = spec.shape;
        desc.scale = spec.scale;
        desc.max_rows = static_cast<uint32_t>(input.lengths.size());
        desc.max_query_tokens = static_cast<uint32_t>(input.cu_q.back());
        desc.max_blocks_per_row = input.block_table_stride;
        options.put_into(&desc);
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

// A random scale that leaves values of magnitude 0.25 to 1; different for each `where`.
float any_scale(uint32_t dtype, uint64_t where) {
    double size = 0.625 + 0.375 * chance(where, 17);
    return static_cast<float>(size / largest_code_of(dtype));
}

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

// The arrays of a call that options need; an absent array has address 0.
class OptionArrays {
 public:
    OptionArrays(Rig &rig, const OracleInput &input, const std::vector<int32_t> &shared_prefix)
        : sinks_(rig, input.sinks),
          positions_(rig, input.positions),
          mask_(rig, input.mask),
          mask_rows_(rig, input.mask_rows),
          mask_first_(rig, input.mask_first),
          shared_prefix_(rig, shared_prefix),
          has_sinks_(!input.sinks.empty()),
          has_masks_(!input.mask.empty()),
          has_shared_prefix_(!shared_prefix.empty()) {}

    void put_into(quire_be_attention *args) const {
        if (has_sinks_) args->sinks = sinks_.address();
        if (has_shared_prefix_) args->shared_prefix = shared_prefix_.address();
        if (!has_masks_) return;
        args->positions = positions_.address();
        args->mask = mask_.address();
        args->mask_rows = mask_rows_.address();
        args->mask_first = mask_first_.address();
    }

 private:
    Upload<float> sinks_;
    Upload<int32_t> positions_;
    Upload<uint32_t> mask_;
    Upload<int32_t> mask_rows_;
    Upload<int32_t> mask_first_;
    Upload<int32_t> shared_prefix_;
    bool has_sinks_;
    bool has_masks_;
    bool has_shared_prefix_;
};

}  // namespace

AttentionCase::AttentionCase(const AttentionSpec &spec) : spec_(spec) {
    PlanOptions options(spec);
    input_.shape = spec.shape;
    input_.layer = kLayer;
    input_.scale = spec.scale != 0.0f ? double{spec.scale} : 1.0 / std::sqrt(spec.shape.k_head_dim);
    input_.soft_cap = options.soft_cap;
    input_.alibi_slopes = options.slopes;
    input_.sinks = sinks_of(spec);
    input_.cu_q.push_back(0);
    uint32_t own_blocks = 0;
    for (const RowSpec &row : spec.rows) {
        input_.lengths.push_back(row.length);
        input_.cu_q.push_back(input_.cu_q.back() + row.new_tokens);
        uint32_t blocks = blocks_of(row.length, spec.shape.block_tokens);
        input_.block_table_stride = std::max(input_.block_table_stride, blocks + 2);
        own_blocks += blocks;
    }
    uint32_t block_count = own_blocks + 5;  // the null block, and some unused ones
    input_.pool = make_pool(spec.shape, spec.layout, kLayers, block_count, spec.padding * 8);
    bytes_.assign(input_.pool.size_bytes, spec.poison);
    if (spec.has(QUIRE_ATTENTION_MASK)) make_masks();
    make_static_scales();
    assign_blocks();
    store_contents();
    hide_keys();
    drop_blocks();
    if (spec.tells_shared) find_shared_prefixes();
    store_queries();
    input_.bytes = bytes_.data();
    input_.q = q_.data();
}

// The mask words of the tokens, one token after another; bits past the row's end are set.
void AttentionCase::make_masks() {
    for (uint32_t r = 0; r < spec_.rows.size(); ++r) {
        const RowSpec &row = spec_.rows[r];
        input_.mask_first.push_back(row.mask_first);
        for (int32_t t = 0; t < row.new_tokens; ++t) {
            int64_t place = row.length - row.new_tokens + t;
            MaskedToken token = {row.content, row.length - row.masked_tokens, place};
            bool is_masked = place >= token.first_masked;
            input_.positions.push_back(static_cast<int32_t>(
                is_masked ? mask_position(spec_, token, row.length - 1) : place));
            input_.mask_rows.push_back(is_masked ? static_cast<int32_t>(input_.mask.size()) : -1);
            for (int64_t key = row.mask_first; is_masked && key < row.length; key += 32) {
                uint32_t word = 0;
                for (int64_t i = 0; i < 32; ++i) {
                    bool is_set = key + i >= row.length || mask_bit(spec_, token, key + i);
                    if (is_set) word |= 1u << i;
                }
                input_.mask.push_back(word);
            }
        }
    }
    input_.mask.push_back(0);  // an empty mask needs an address too
}

// The oldest place that a window or a chunk lets any of the row's new tokens see.
int64_t AttentionCase::oldest_visible(uint32_t row) const {
    const quire_be_attention_query &shape = spec_.shape;
    if (shape.window == 0) return 0;
    int64_t oldest = spec_.rows[row].length - spec_.rows[row].new_tokens;
    for (int64_t token = input_.cu_q[row]; token < input_.cu_q[row + 1]; ++token) {
        int64_t position = oracle_position(input_, row, token);
        bool is_chunked = shape.group_kind == QUIRE_GROUP_CHUNKED;
        int64_t first =
            is_chunked ? position - position % shape.window : position + 1 - int64_t{shape.window};
        oldest = std::min(oldest, first);
    }
    return std::max<int64_t>(0, oldest);
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

// Blocks that have left a row's window and hold none of its sinks need not be in its table.
void AttentionCase::drop_blocks() {
    int64_t block = input_.pool.block_tokens;
    int32_t nothing = spec_.poison == 0xFF ? 0 : INT32_MAX;
    for (uint32_t r = 0; r < spec_.rows.size(); ++r) {
        int64_t sinks = (int64_t{spec_.shape.sink_tokens} + block - 1) / block;
        int64_t gone = oldest_visible(r) / block;
        int32_t *table = &input_.block_table[size_t{r} * input_.block_table_stride];
        for (int64_t i = sinks; i < gone; ++i) table[i] = nothing;
    }
}

// The first byte of layer kLayer of the block, where the layer's K begins.
unsigned char *AttentionCase::slot_at(uint32_t row, int64_t place) {
    const quire_be_pool &pool = input_.pool;
    size_t entry =
        size_t{row} * input_.block_table_stride + static_cast<size_t>(place / pool.block_tokens);
    return &bytes_[static_cast<size_t>(input_.block_table[entry] * pool.block_stride +
                                       kLayer * pool.layer_stride)];
}

// Scales of all layers; those that no call may read are poison.
void AttentionCase::make_static_scales() {
    const quire_be_pool &pool = input_.pool;
    float poison = 0.0f;
    std::memset(&poison, spec_.poison, sizeof poison);
    input_.scales.assign(size_t{kLayers} * 2 * pool.kv_heads, poison);
    for (uint32_t side = 0; side < 2; ++side) {
        uint32_t kind = side == 1 ? pool.v_scale_kind : pool.k_scale_kind;
        uint32_t dtype = side == 1 ? pool.v_dtype : pool.k_dtype;
        if (kind != QUIRE_SCALE_TENSOR && kind != QUIRE_SCALE_HEAD) continue;
        for (uint32_t h = 0; h < pool.kv_heads; ++h) {
            uint32_t one = kind == QUIRE_SCALE_HEAD ? h : 0;
            input_.scales[(size_t{kLayer} * 2 + side) * pool.kv_heads + h] =
                any_scale(dtype, mix(spec_.seed, side, one));
        }
    }
}

// Stores the scale of a token's row if the row has its own. Returns the magnitude of what is stored
// in the row: the largest code, or 1 if the row holds values.
double AttentionCase::store_scale(bool is_v, uint32_t head, uint64_t where, unsigned char *layer,
                                  int64_t in_block) {
    const quire_be_pool &pool = input_.pool;
    uint32_t dtype = is_v ? pool.v_dtype : pool.k_dtype;
    if ((is_v ? pool.v_scale_kind : pool.k_scale_kind) == QUIRE_SCALE_TOKEN_HEAD) {
        int64_t plane = is_v ? pool.v_scale_offset : pool.k_scale_offset;
        float scale = any_scale(dtype, mix(where, is_v));
        std::memcpy(layer + plane + head * pool.scale_head_stride + in_block * 4, &scale, 4);
    }
    return holds_codes(dtype) ? largest_code_of(dtype) : 1.0;
}

void AttentionCase::store_token(uint32_t row, int64_t place) {
    const quire_be_pool &pool = input_.pool;
    int64_t in_block = place % pool.block_tokens;
    uint64_t content = content_at(row, place);
    auto key = static_cast<uint64_t>(spec_.rows[row].first_key + place);
    unsigned char *layer = slot_at(row, place);
    for (uint32_t h = 0; h < pool.kv_heads; ++h) {
        unsigned char *k = layer + h * pool.k_head_stride + in_block * pool.k_token_stride;
        unsigned char *v =
            layer + pool.v_offset + h * pool.v_head_stride + in_block * pool.v_token_stride;
        uint64_t where = mix(spec_.seed, content, key, h);
        double k_size = store_scale(false, h, where, layer, in_block);
        for (uint32_t d = 0; d < pool.k_head_dim; ++d) {
            double value = chance(where, d, 1);
            store_in_row(k_size * (spec_.one_sign ? std::fabs(value) : value), pool.k_dtype, k, d);
        }
        if (pool.group_kind == QUIRE_GROUP_LATENT) continue;  // V is the beginning of K
        double v_size = store_scale(true, h, where, layer, in_block);
        for (uint32_t d = 0; d < pool.v_head_dim; ++d) {
            store_in_row(v_size * chance(where, d, 2), pool.v_dtype, v, d);
        }
    }
}

void AttentionCase::store_contents() {
    for (uint32_t r = 0; r < spec_.rows.size(); ++r) {
        for (int64_t place = 0; place < spec_.rows[r].length; ++place) store_token(r, place);
    }
}

// Puts poison into every slot that no query token of any row sees.
void AttentionCase::hide_keys() {
    const quire_be_pool &pool = input_.pool;
    std::vector<bool> seen(size_t{pool.block_count} * pool.block_tokens, false);
    auto slot_of = [&](uint32_t r, int64_t place) {
        size_t entry =
            size_t{r} * input_.block_table_stride + static_cast<size_t>(place / pool.block_tokens);
        return static_cast<size_t>(input_.block_table[entry]) * pool.block_tokens +
               static_cast<size_t>(place % pool.block_tokens);
    };
    for (uint32_t r = 0; r < spec_.rows.size(); ++r) {
        for (int64_t token = input_.cu_q[r]; token < input_.cu_q[r + 1]; ++token) {
            for (int64_t place = 0; place < spec_.rows[r].length; ++place) {
                if (oracle_sees(input_, r, token, place)) seen[slot_of(r, place)] = true;
            }
        }
    }
    for (size_t slot = 0; slot < seen.size(); ++slot) {
        if (seen[slot]) continue;
        auto block = static_cast<int64_t>(slot / pool.block_tokens);
        auto place = static_cast<int64_t>(slot % pool.block_tokens);
        unsigned char *layer =
            &bytes_[static_cast<size_t>(block * pool.block_stride + kLayer * pool.layer_stride)];
        for (uint32_t h = 0; h < pool.kv_heads; ++h) {
            unsigned char *k = layer + h * pool.k_head_stride + place * pool.k_token_stride;
            unsigned char *v =
                layer + pool.v_offset + h * pool.v_head_stride + place * pool.v_token_stride;
            std::memset(k, spec_.poison,
                        static_cast<size_t>(row_bytes(pool.k_head_dim, pool.k_dtype)));
            std::memset(v, spec_.poison,
                        static_cast<size_t>(row_bytes(pool.v_head_dim, pool.v_dtype)));
            unsigned char *scale = layer + h * pool.scale_head_stride + place * 4;
            if (pool.k_scale_kind == QUIRE_SCALE_TOKEN_HEAD) {
                std::memset(scale + pool.k_scale_offset, spec_.poison, 4);
            }
            if (pool.v_scale_kind == QUIRE_SCALE_TOKEN_HEAD) {
                std::memset(scale + pool.v_scale_offset, spec_.poison, 4);
            }
        }
    }
}

// Counts the entries that are the same, or fewer: a count may understate what is shared.
void AttentionCase::find_shared_prefixes() {
    uint32_t stride = input_.block_table_stride;
    for (uint32_t r = 0; r < spec_.rows.size(); ++r) {
        uint32_t count = 0;
        const int32_t *table = &input_.block_table[size_t{r} * stride];
        while (r != 0 && count < stride && table[count] == (table - stride)[count]) ++count;
        if (mix(spec_.pages_seed, r, 15) % 4 == 0) count /= 2;
        shared_prefix_.push_back(static_cast<int32_t>(count));
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
                store(spec_.one_sign ? std::fabs(value) : value, shape.q_dtype,
                      &q_[(static_cast<uint64_t>(at) + i) * size_of(shape.q_dtype)]);
            }
        }
    }
}

void AttentionCase::take_pool(const AttentionCase &other) {
    bytes_ = other.bytes_;
    input_.pool = other.input_.pool;
    input_.scales = other.input_.scales;
    input_.block_table = other.input_.block_table;
}

AttentionResult AttentionCase::run(Rig &rig) const {
    const quire_be_attention_query &shape = spec_.shape;
    auto tokens = static_cast<uint64_t>(input_.cu_q.back());
    uint64_t out_stride = uint64_t{shape.q_heads} * shape.v_head_dim + spec_.padding;
    Upload pool_bytes(rig, bytes_);
    Upload scales(rig, input_.scales);
    Upload q(rig, q_);
    Upload table(rig, input_.block_table);
    Upload lengths(rig, input_.lengths);
    Upload cu_q(rig, input_.cu_q);
    OptionArrays options(rig, input_, shared_prefix_);
    Guarded out(rig, tokens * out_stride * size_of(shape.q_dtype));
    Guarded lse(rig, tokens * shape.q_heads * sizeof(float));
    quire_be_pool pool = input_.pool;
    pool.address = pool_bytes.address();
    pool.scales = scales.address();
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
    options.put_into(&args);
    // A plan may be destroyed before its call runs.
    Fence go(rig);
    rig.wait(rig.queue(), go, 1);
    {
        Plan plan(rig, spec_, input_);
        Error error;
        must(api().attention(rig.queue(), plan.get(), &args, &error), error);
    }
    go.signal_host(1);
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
            EXPECT_EQ(lse[i], Guarded::unwritten(i))
                << "an LSE was written without being requested";
        }
        return result;
    }
    result.lse.resize(lse.size() / sizeof(float));
    if (!lse.empty()) std::memcpy(result.lse.data(), lse.data(), lse.size());
    return result;
}

// The bound. Stored values are exact in f32, and a code times its scale is within a unit, so all
// error comes from f32 arithmetic, unit 2^-24 = 6e-8:
//   a score is a sum of at most 576 products in at least 8 partial sums, some 4 units of the sum of
//   their magnitudes (S, the oracle's score_range, which includes ALiBi's penalty and sink logits);
//   its error is the relative error of a weight;
//   a weight, its exponential and its sum with others add some 10 units.
// These errors have random signs, so the actual error is much smaller. The bound is 8 units:
//   |out - exact| <= 5e-7 (1 + S) max |v|, plus the rounding of the result to out's type
//   |lse - exact| <= 5e-7 (1 + S + |lse|)
// The cpu backend reaches 0.2 of it. One key too many among 300 is off by 1e-3.
//
// Matrix units cut off instead (arXiv 2512.07004, 2511.10909), so where a score's products have one
// sign, so have its errors. The softmax is not changed by an error that all scores share; the LSE
// is. A100's unit adds 8 products to the score so far. It aligns these nine to the largest exponent
// among them and cuts each off below 2^-24 of that power of two, which is at most P, the sum of the
// magnitudes added by then: 9 units of P. It cuts off the result to f32, whose last place is at
// most 2 units of P. So each of ceil(k_dim / 8) blocks loses at most 11 units of P, and P <= S:
//   |lse - exact| <= 5e-7 (1 + S + |lse|) + 11 * 2^-24 ceil(k_dim / 8) S, for q of 16 bits
// H100's unit adds 16 and cuts off at 2^-25, which loses less; MI300's rounds to nearest.
namespace {

double truncation_of(const quire_be_attention_query &shape, double score_range) {
    if (size_of(shape.q_dtype) != 2) return 0.0;
    uint32_t blocks = (shape.k_head_dim + 7) / 8;
    return 11 * 0x1p-24 * blocks * score_range;
}

}  // namespace

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
        double bound = kUnit * (1.0 + exact.score_range[i] + std::fabs(exact.lse[i])) +
                       truncation_of(shape, exact.score_range[i]);
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
