// SPDX-License-Identifier: Apache-2.0
//
// Calibration end to end on the cpu backend: what a cache of f32 measures, what a cache of codes
// computes from it, and that neither depends on how the cache is split into shards and ranks.

#include <algorithm>
#include <memory>
#include <string>

#include "traffic.hpp"

namespace {

using namespace quire::test;

using Bytes = std::vector<unsigned char>;

const std::vector<Range> kWhole = {{}};
const std::vector<std::vector<Range>> kSplits = {
    {{0, 0, 0, 2}, {0, 0, 2, 2}},                // heads, with groups of fewer heads replicated
    {{0, 0, 0, 1}, {0, 0, 1, 2}, {0, 0, 3, 1}},  // uneven splits of heads
    {{0, 2, 0, 0}, {2, 4, 0, 0}},                // layers
    {{0, 3, 0, 2}, {0, 3, 2, 2}, {3, 3, 0, 0}},  // both
};
const uint32_t kCodes[] = {QUIRE_DTYPE_I8, QUIRE_DTYPE_I4, QUIRE_DTYPE_F8_E4M3FN,
                           QUIRE_DTYPE_F8_E5M2};

float largest_code_of(uint32_t dtype) {
    return dtype == QUIRE_DTYPE_I8          ? 127.0f
           : dtype == QUIRE_DTYPE_I4        ? 7.0f
           : dtype == QUIRE_DTYPE_F8_E4M3FN ? 448.0f
                                            : 57344.0f;
}

const std::vector<uint32_t> kTokens = {3, 1, 4, 1, 5, 9, 2, 6, 5, 35, 8};

// Commits a step of one new sequence with these tokens.
quire_step begin(ShardedCache *c, const std::vector<uint32_t> &tokens, quire_seq *seq) {
    auto seq_desc = described<quire_seq_desc>();
    c->must(c->api.seq_create(c->cache, &seq_desc, seq, &c->error));
    quire_step_desc desc = c->step_desc();
    quire_step_item item{};
    item.seq = *seq;
    item.token_count = static_cast<uint32_t>(tokens.size());
    quire_step_result result{};
    quire_step step = 0;
    c->must(c->api.step_begin(c->cache, &desc, &item, 1, sizeof item, tokens.data(),
                              item.token_count, &result, sizeof result, &step, &c->error));
    c->must(c->api.step_commit(c->cache, step, c->batch, &c->error));
    return step;
}

void finish(ShardedCache *c, quire_step step) {
    c->must(c->api.step_finish(c->cache, step, nullptr, QUIRE_STEP_OK, &c->error));
}

// Runs one step with its kernels. Returns the outputs of all layers.
std::vector<float> compute(ShardedCache *c, const std::vector<uint32_t> &tokens,
                           quire_seq *seq = nullptr) {
    quire_seq own = 0;
    quire_step step = begin(c, tokens, seq != nullptr ? seq : &own);
    std::vector<float> out = c->launch({{tokens, 0}});
    finish(c, step);
    return out;
}

quire_status save(ShardedCache *c, Bytes *out, uint64_t timeout_ns = UINT64_MAX) {
    uint64_t size = 0;
    quire_status status =
        c->api.cache_save_calibration_wait(c->cache, nullptr, 0, &size, timeout_ns, &c->error);
    if (status != QUIRE_S_INCOMPLETE) return status;
    out->assign(size, 0xEE);
    return c->api.cache_save_calibration_wait(c->cache, out->data(), size, &size, timeout_ns,
                                              &c->error);
}

// The calibration of `tokens`, measured in f32.
Bytes calibration_of(const std::vector<Range> &ranges, const std::vector<uint32_t> &tokens,
                     uint32_t flags = QUIRE_CACHE_CALIBRATE) {
    ShardedCache c(ranges, 24, nullptr, described<quire_instance_desc>(), flags);
    compute(&c, tokens);
    Bytes bytes;
    EXPECT_EQ(save(&c, &bytes), QUIRE_OK) << c.error.message;
    return bytes;
}

// The largest magnitude of one side (K or V) of a head over the tokens.
float expected_amax(const std::vector<uint32_t> &tokens, uint32_t side, uint32_t layer,
                    uint32_t head) {
    float largest = 0.0f;
    for (uint32_t t = 0; t < tokens.size(); ++t) {
        for (uint32_t i = head * kDim; i < (head + 1) * kDim; ++i) {
            largest = std::fmax(largest, std::fabs(draw(side, tokens[t], t, layer, i)));
        }
    }
    return largest;
}

std::vector<float> layer_of(const Bytes &bytes, uint32_t layer) {
    auto info = described<quire_calibration_layer>();
    std::vector<float> amax(8);
    EXPECT_EQ(library().calibration_get_layer(bytes.data(), bytes.size(), layer, &info, amax.data(),
                                              8, nullptr),
              QUIRE_OK);
    amax.resize(size_t{info.kv_heads} * 2);
    return amax;
}

// The first layer in the model of each group.
uint32_t first_layer_of(uint32_t group) {
    uint32_t layer = 0;
    for (uint32_t g = 0; g < group; ++g) layer += kGroups[g].layers;
    return layer;
}

TEST(Calibrated, numbers_are_the_largest_of_what_was_written) {
    Bytes bytes = calibration_of(kWhole, kTokens);
    auto info = described<quire_calibration_info>();
    ASSERT_EQ(library().calibration_get_info(bytes.data(), bytes.size(), &info, nullptr), QUIRE_OK);
    EXPECT_EQ(info.layer_count, 6u);
    EXPECT_EQ(info.max_kv_heads, 4u);
    EXPECT_EQ(info.unwritten, 0u);
    for (uint32_t g = 0; g < kGroups.size(); ++g) {
        for (uint32_t l = 0; l < kGroups[g].layers; ++l) {
            uint32_t layer = first_layer_of(g) + l, heads = kGroups[g].kv_heads;
            std::vector<float> amax = layer_of(bytes, layer);
            ASSERT_EQ(amax.size(), 2 * heads);
            for (uint32_t i = 0; i < 2 * heads; ++i) {
                EXPECT_EQ(amax[i], expected_amax(kTokens, i / heads, layer, i % heads)) << layer;
            }
        }
    }
}

TEST(Calibrated, numbers_do_not_depend_on_shards) {
    Bytes whole = calibration_of(kWhole, kTokens);
    for (const std::vector<Range> &ranges : kSplits) {
        EXPECT_TRUE(calibration_of(ranges, kTokens) == whole);
    }
}

// Ranks that hold a part each: merged, their calibrations are the calibration of one run.
TEST(Calibrated, merged_parts_and_runs_are_one_run) {
    const quire_api &api = library();
    Bytes merged;
    for (const std::vector<Range> &ranges :
         {std::vector<Range>{{0, 3, 0, 2}}, std::vector<Range>{{0, 3, 2, 2}},
          std::vector<Range>{{3, 3, 0, 0}}}) {
        Bytes part = calibration_of(ranges, kTokens, QUIRE_CACHE_CALIBRATE | QUIRE_CACHE_LOG);
        auto info = described<quire_calibration_info>();
        ASSERT_EQ(api.calibration_get_info(part.data(), part.size(), &info, nullptr), QUIRE_OK);
        EXPECT_GT(info.unwritten, 0u);
        if (merged.empty()) merged = part;
        uint64_t size = 0;
        EXPECT_EQ(api.calibration_merge(merged.data(), merged.size(), part.data(), part.size(),
                                        nullptr, 0, &size, nullptr),
                  QUIRE_S_INCOMPLETE);
        EXPECT_EQ(size, merged.size());
        EXPECT_EQ(api.calibration_merge(merged.data(), merged.size(), part.data(), part.size(),
                                        merged.data(), merged.size(), &size, nullptr),
                  QUIRE_OK);
    }
    EXPECT_TRUE(merged == calibration_of(kWhole, kTokens));
}

class Codes : public testing::TestWithParam<std::pair<uint32_t, uint32_t>> {
 protected:
    KvFormat format(const Bytes &calibration, float margin = 0.0f) const {
        return {GetParam().first, GetParam().second, calibration, margin};
    }
    // The scale of one side of a head, computed by the formula.
    float expected_scale(const Bytes &calibration, uint32_t layer, uint32_t side, uint32_t heads,
                         uint32_t head, float margin) const {
        std::vector<float> amax = layer_of(calibration, layer);
        float one = amax[side * heads + head];
        if (GetParam().second == QUIRE_SCALE_TENSOR) {
            one = *std::max_element(&amax[side * heads], &amax[side * heads] + heads);
        }
        return one * margin / largest_code_of(GetParam().first);
    }
    static ShardedCache *make(std::unique_ptr<ShardedCache> *to, const std::vector<Range> &ranges,
                              const KvFormat &format) {
        *to = std::make_unique<ShardedCache>(ranges, 24, nullptr, described<quire_instance_desc>(),
                                             0, format);
        return to->get();
    }
};

TEST_P(Codes, scales_are_of_the_calibration_whatever_the_shards) {
    Bytes calibration = calibration_of(kWhole, kTokens);
    std::vector<std::vector<Range>> splits = kSplits;
    splits.push_back(kWhole);
    for (const std::vector<Range> &ranges : splits) {
        for (float margin : {1.0f, 1.5f}) {
            std::unique_ptr<ShardedCache> owned;
            ShardedCache *c = make(&owned, ranges, format(calibration, margin));
            for (uint32_t s = 0; s < ranges.size(); ++s) {
                for (uint32_t g = 0; g < kGroups.size(); ++g) {
                    quire_pool_info pool = c->pool(g, s);
                    const auto *scales = reinterpret_cast<const float *>(pool.scales);
                    for (uint32_t i = 0; i < pool.layer_count * 2 * pool.head_count; ++i) {
                        uint32_t row = i / pool.head_count;
                        uint32_t layer = first_layer_of(g) + pool.layer_begin + row / 2;
                        ASSERT_EQ(scales[i],
                                  expected_scale(calibration, layer, row % 2, kGroups[g].kv_heads,
                                                 pool.head_begin + i % pool.head_count, margin));
                    }
                }
            }
        }
    }
}

TEST_P(Codes, split_caches_give_the_bits_of_one_device) {
    Bytes calibration = calibration_of(kWhole, kTokens);
    std::unique_ptr<ShardedCache> whole, split;
    std::vector<float> expected = compute(make(&whole, kWhole, format(calibration)), kTokens);
    for (const std::vector<Range> &ranges : kSplits) {
        std::vector<float> got = compute(make(&split, ranges, format(calibration)), kTokens);
        EXPECT_TRUE(got == expected);
    }
}

// The traffic includes forks, copies on write, swaps and preemptions.
TEST(Calibrated, traffic_over_split_codes_gives_the_bits_of_one_device) {
    KvFormat format = {QUIRE_DTYPE_I8, QUIRE_SCALE_HEAD, calibration_of(kWhole, kTokens), 0.0f};
    ShardedCache whole(kWhole, 24, nullptr, described<quire_instance_desc>(), 0, format);
    ShardedCache split(kSplits.back(), 24, nullptr, described<quire_instance_desc>(), 0, format);
    Traffic expected(&whole, 5), got(&split, 5);
    expected.run(120);
    got.run(120);
    EXPECT_TRUE(expected.decisions == got.decisions);
    EXPECT_TRUE(expected.outputs == got.outputs);
}

// Rows of int8 only; the conformance suite compares the codes of every type.
class Int8Codes : public Codes {};

// A row of the pool has the codes that a reference computes from the calibration's number.
TEST_P(Int8Codes, are_values_over_scales) {
    Bytes calibration = calibration_of(kWhole, kTokens);
    std::unique_ptr<ShardedCache> owned;
    ShardedCache *c = make(&owned, kWhole, format(calibration, 0.5f));
    // With half the margin, values that are too large saturate.
    std::vector<uint32_t> tokens = {7, 77, 777};
    quire_seq seq = 0;
    compute(c, tokens, &seq);
    uint32_t saturated = 0;
    for (uint32_t g : {0u, 2u}) {
        quire_pool_info pool = c->pool(g, 0);
        int32_t block = 0;
        uint32_t count = 0;
        c->must(c->api.step_blocks(c->cache, 0, seq, g, 0, &block, 1, &count, &c->error));
        uint32_t heads = pool.head_count, layer = first_layer_of(g);
        for (uint32_t i = 0; i < 2 * heads * tokens.size() * kDim; ++i) {
            uint32_t d = i % kDim, t = i / kDim % 3, h = i / kDim / 3 % heads;
            uint32_t side = i / kDim / 3 / heads;
            int64_t at =
                block * pool.block_stride +
                (side == 0 ? h * pool.k_head_stride + t * pool.k_token_stride
                           : pool.v_offset + h * pool.v_head_stride + t * pool.v_token_stride) +
                d;
            float scale = expected_scale(calibration, layer, side, heads, h, 0.5f);
            float exact = draw(side, tokens[t], t, layer, h * kDim + d) / scale;
            float code = std::clamp(std::nearbyint(exact), -127.0f, 127.0f);
            saturated += std::fabs(exact) > 127.5f;
            auto stored = reinterpret_cast<const int8_t *>(pool.address)[at];
            ASSERT_EQ(static_cast<float>(stored), code) << "side " << side << ", head " << h;
        }
    }
    EXPECT_GT(saturated, 0u);
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, Int8Codes,
    testing::Values(std::pair{uint32_t{QUIRE_DTYPE_I8}, uint32_t{QUIRE_SCALE_TENSOR}},
                    std::pair{uint32_t{QUIRE_DTYPE_I8}, uint32_t{QUIRE_SCALE_HEAD}}));

// |x| is at most 1 here. A code is off by e, half a step: of the scale for integers, of the value
// for floats. A score of 8 products with |q| <= 1 is off by 8 e / sqrt(8), a weight by the factor
// exp(2 of that), V by e itself.
TEST_P(Codes, attention_over_them_is_off_by_no_more_than_a_code_allows) {
    std::unique_ptr<ShardedCache> values, codes;
    Bytes calibration = calibration_of(kWhole, kTokens);
    std::vector<float> expected = compute(make(&values, kWhole, {}), kTokens);
    std::vector<float> got = compute(make(&codes, kWhole, format(calibration)), kTokens);
    double step = GetParam().first == QUIRE_DTYPE_I8          ? 1.0 / 127
                  : GetParam().first == QUIRE_DTYPE_I4        ? 1.0 / 7
                  : GetParam().first == QUIRE_DTYPE_F8_E4M3FN ? 1.0 / 8
                                                              : 1.0 / 4;
    double error = step / 2, bound = error + std::expm1(2 * error * std::sqrt(8.0));
    double largest = 0.0;
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_TRUE(std::isfinite(got[i]));
        largest = std::max(largest, std::fabs(double{got[i]} - double{expected[i]}));
    }
    EXPECT_LE(largest, bound);
    EXPECT_GT(largest, 0.0) << "codes were not used";
}

INSTANTIATE_TEST_SUITE_P(Types, Codes, testing::ValuesIn([] {
                             std::vector<std::pair<uint32_t, uint32_t>> all;
                             for (uint32_t dtype : kCodes) {
                                 all.emplace_back(dtype, uint32_t{QUIRE_SCALE_TENSOR});
                                 all.emplace_back(dtype, uint32_t{QUIRE_SCALE_HEAD});
                             }
                             return all;
                         }()));

// A cache whose batch and cache are destroyed, so that others can be created on its devices.
class Recreated : public ShardedCache {
 public:
    Recreated() : ShardedCache(kWhole) {
        must(api.batch_destroy(batch, &error));
        must(api.cache_destroy(cache, &error));
        batch = nullptr;
        cache = nullptr;
    }
    // The message of a refusal; empty if the cache was created (it is destroyed again).
    std::string refusal(quire_status expected, const KvFormat &as, uint32_t with_flags = 0) {
        format = as;
        flags = with_flags;
        quire_status status = ShardedCache::create(kWhole, 24);
        EXPECT_EQ(status, expected) << error.message;
        if (status >= 0) {
            EXPECT_EQ(api.cache_destroy(cache, &error), QUIRE_OK);
            cache = nullptr;
            return "";
        }
        EXPECT_EQ(cache, nullptr);
        return error.message;
    }
};

void expect_words(const std::string &text, const std::string &part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(Calibrated, codes_without_a_calibration_are_refused_with_the_way_to_one) {
    Recreated c;
    for (uint32_t scale : {QUIRE_SCALE_TENSOR, QUIRE_SCALE_HEAD}) {
        std::string words = c.refusal(QUIRE_E_ARG, {QUIRE_DTYPE_I8, scale, {}, 0.0f});
        expect_words(words, "groups[0]");
        expect_words(words, "QUIRE_CACHE_CALIBRATE");
        expect_words(words, "quire_cache_save_calibration_wait");
        expect_words(words, "needs none");
    }
}

TEST(Calibrated, damaged_and_foreign_calibrations_are_refused) {
    Recreated c;
    Bytes good = calibration_of(kWhole, kTokens);
    KvFormat format = {QUIRE_DTYPE_I8, QUIRE_SCALE_HEAD, good, 0.0f};
    EXPECT_EQ(c.refusal(QUIRE_OK, format), "");
    format.calibration[40] ^= 1;
    expect_words(c.refusal(QUIRE_E_ARG, format), "checksum");
    format.calibration = Bytes(good.begin(), good.end() - 4);
    expect_words(c.refusal(QUIRE_E_ARG, format), "damaged calibration");
    format.calibration = good;
    format.calibration[8] = 2;
    expect_words(c.refusal(QUIRE_E_INCOMPATIBLE, format), "version is 2");
    KvFormat unused = {QUIRE_DTYPE_F32, QUIRE_SCALE_NONE, good, 0.0f};
    EXPECT_EQ(c.refusal(QUIRE_OK, unused), "") << "no group needs it";
    unused.calibration[40] ^= 1;
    expect_words(c.refusal(QUIRE_E_ARG, unused), "checksum");
}

TEST(Calibrated, part_of_the_heads_is_no_calibration) {
    Recreated c;
    Bytes part = calibration_of({{0, 0, 0, 2}}, kTokens, QUIRE_CACHE_CALIBRATE | QUIRE_CACHE_LOG);
    std::string words = c.refusal(QUIRE_E_ARG, {QUIRE_DTYPE_I8, QUIRE_SCALE_HEAD, part, 0.0f});
    expect_words(words, "no magnitude for K of layer 0, KV head 2");
}

TEST(Calibrated, measuring_is_of_values_on_a_device) {
    Recreated c;
    KvFormat codes = {QUIRE_DTYPE_I8, QUIRE_SCALE_TOKEN_HEAD, {}, 0.0f};
    expect_words(c.refusal(QUIRE_E_ARG, codes, QUIRE_CACHE_CALIBRATE), "holds codes");
    c.format = {};
    c.flags = QUIRE_CACHE_CALIBRATE;
    EXPECT_EQ(c.create(std::vector<quire_shard_desc>{}, 24), QUIRE_E_ARG);
    ShardedCache plain(kWhole);
    Bytes bytes;
    EXPECT_EQ(save(&plain, &bytes), QUIRE_E_UNSUPPORTED);
    expect_words(plain.error.message, "QUIRE_CACHE_CALIBRATE");
}

ShardedCache *measuring(std::unique_ptr<ShardedCache> *to) {
    *to = std::make_unique<ShardedCache>(kWhole, 24, nullptr, described<quire_instance_desc>(),
                                         QUIRE_CACHE_CALIBRATE);
    return to->get();
}

TEST(Calibrated, saving_waits_for_finished_steps_and_no_longer_than_it_is_told) {
    std::unique_ptr<ShardedCache> owned;
    ShardedCache *c = measuring(&owned);
    Bytes bytes;
    quire_seq seq = 0;
    quire_fence *gate = nullptr;
    quire_step step = begin(c, kTokens, &seq);
    EXPECT_EQ(save(c, &bytes), QUIRE_E_BUSY) << "the step is not finished";
    c->launch({{kTokens, 0}});
    c->must(c->api.fence_create(c->devices[0], 0, &gate, &c->error));
    c->must(c->api.queue_after(c->queues[0], gate, 1, &c->error));
    finish(c, step);
    EXPECT_EQ(save(c, &bytes, 0), QUIRE_S_TIMEOUT);
    EXPECT_EQ(save(c, &bytes, 2'000'000), QUIRE_S_TIMEOUT);
    EXPECT_TRUE(bytes == Bytes(bytes.size(), 0xEE)) << "nothing was written";
    c->must(c->api.fence_signal(gate, 1, &c->error));
    EXPECT_EQ(save(c, &bytes), QUIRE_OK) << c->error.message;
    EXPECT_TRUE(bytes == calibration_of(kWhole, kTokens));
    c->must(c->api.fence_destroy(gate, &c->error));
}

// A wrong value neither becomes a scale nor gets lost among correct ones.
TEST(Calibrated, run_with_a_nan_or_an_infinity_has_no_calibration) {
    for (float wrong : {NAN, INFINITY, -INFINITY}) {
        for (bool is_v : {false, true}) {
            std::unique_ptr<ShardedCache> owned;
            ShardedCache *c = measuring(&owned);
            quire_seq seq = 0;
            quire_step step = begin(c, {1, 2}, &seq);
            std::vector<float> k(2 * kDim, 0.5f), v(2 * kDim, 0.5f);  // layer 5 has one KV head
            (is_v ? v : k)[3] = wrong;
            auto kv = described<quire_kv_args>();
            kv.k = reinterpret_cast<uint64_t>(k.data());
            kv.v = reinterpret_cast<uint64_t>(v.data());
            kv.layer = 5;
            c->must(c->api.kv_write(c->batch, &kv, c->queues[0], &c->error));
            c->sync();
            finish(c, step);
            compute(c, kTokens);  // correct values do not hide it
            Bytes bytes;
            EXPECT_EQ(save(c, &bytes), QUIRE_E_ARG);
            expect_words(c->error.message, is_v ? "V of layer 5, KV head 0" : "K of layer 5");
            EXPECT_TRUE(bytes == Bytes(bytes.size(), 0xEE)) << "nothing was written";
        }
    }
}

// A follower with other scales would silently give other results.
TEST(Calibrated, ranks_with_other_scales_do_not_follow) {
    Bytes ours = calibration_of(kWhole, kTokens), others = calibration_of(kWhole, {1, 2, 3});
    for (bool is_same : {true, false}) {
        KvFormat format = {QUIRE_DTYPE_I8, QUIRE_SCALE_HEAD, ours, 0.0f};
        ShardedCache leader({{0, 0, 0, 2}}, 24, nullptr, described<quire_instance_desc>(),
                            QUIRE_CACHE_LOG, format);
        if (!is_same) format.calibration = others;
        ShardedCache follower({{0, 0, 2, 2}}, 24, nullptr, described<quire_instance_desc>(),
                              QUIRE_CACHE_FOLLOWER, format);
        quire_seq seq = 0;
        quire_step step = begin(&leader, {1, 2, 3}, &seq), applied = 0;
        std::vector<uint8_t> log(1 << 12);
        uint64_t size = 0;
        leader.must(
            leader.api.step_log(leader.cache, step, log.data(), log.size(), &size, &leader.error));
        finish(&leader, step);
        quire_step_desc desc = follower.step_desc();
        quire_status status = follower.api.log_apply(follower.cache, log.data(), size, &desc,
                                                     follower.batch, &applied, &follower.error);
        EXPECT_EQ(status, is_same ? QUIRE_OK : QUIRE_E_ARG);
        if (is_same) finish(&follower, applied);
        if (!is_same) expect_words(follower.error.message, "scales");
    }
}

}  // namespace
