// SPDX-License-Identifier: Apache-2.0
//
// Every rule about what a cache, its attention and its rope may be, broken through the C ABI one at
// a time: the right status, words that name the field, and nothing made.

#include <cmath>
#include <functional>
#include <limits>

#include "objects.hpp"
#include "tests/unit/manager.hpp"

namespace {

using namespace quire::test;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct CacheCase {
    const char *words;  // of the message
    quire_status status;
    std::function<void(quire_group_desc *, quire_cache_desc *)> spoil;
};

struct RopeCase {
    const char *words;  // empty: is served
    quire_status status;
    std::function<void(quire_rope_desc *)> spoil;
};

class RefusedCache : public testing::Test {
 protected:
    RefusedCache() : w(library()) {
        quire_instance_desc host = described<quire_instance_desc>();
        EXPECT_TRUE(w.make(host)) << w.problem();
    }
    ~RefusedCache() override {
        w.destroy();
        EXPECT_STREQ(w.problem(), "");
    }

    quire_status create(const CacheCase &one, bool has_memory) {
        auto groups = std::vector<quire_group_desc>(2, described<quire_group_desc>());
        for (quire_group_desc &group : groups) {
            group.layer_count = group.kv_heads = 1;
            group.k_head_dim = group.v_head_dim = 64;
        }
        auto shard = described<quire_shard_desc>();
        shard.device = w.device;
        auto desc = described<quire_cache_desc>();
        desc.groups = groups.data();
        desc.group_count = 1;
        desc.group_stride = sizeof groups[0];
        desc.blocks = 8;
        if (has_memory) {
            desc.shards = &shard;
            desc.shard_count = 1;
            desc.shard_stride = sizeof shard;
        }
        one.spoil(groups.data(), &desc);
        quire_cache *out = nullptr;
        quire_status status = w.api.cache_create(w.instance, &desc, &out, &w.error);
        if (status == QUIRE_OK) w.api.cache_destroy(out, nullptr);
        return status;
    }
    void refuse(const std::vector<CacheCase> &cases, bool has_memory) {
        for (const CacheCase &one : cases) {
            EXPECT_EQ(create(one, has_memory), one.status) << one.words << ": " << w.error.message;
            EXPECT_NE(std::string(w.error.message).find(one.words), std::string::npos)
                << one.words << ": " << w.error.message;
        }
        EXPECT_EQ(create({"", QUIRE_OK, [](auto *, auto *) {}}, has_memory), QUIRE_OK)
            << w.error.message;
    }

    quire_status create_batch(const quire_attention_desc &attention) {
        auto desc = described<quire_batch_desc>();
        desc.max_rows = desc.max_blocks_per_row = desc.max_query_tokens = 4;
        desc.attention = &attention;
        desc.attention_count = 1;
        desc.attention_stride = sizeof attention;
        quire_batch *out = nullptr;
        quire_status status = w.api.batch_create(w.cache, &desc, &out, &w.error);
        if (status == QUIRE_OK) w.api.batch_destroy(out, nullptr);
        return status;
    }
    void try_ropes(const std::vector<RopeCase> &cases) {
        for (const RopeCase &one : cases) {
            auto rope = described<quire_rope_desc>();
            auto attention = described<quire_attention_desc>();
            attention.q_heads = 1;
            attention.rope = &rope;
            one.spoil(&rope);
            EXPECT_EQ(create_batch(attention), one.status) << one.words << ": " << w.error.message;
            EXPECT_NE(std::string(w.error.message).find(one.words), std::string::npos)
                << one.words << ": " << w.error.message;
        }
    }

    Objects w;
};

using Group = quire_group_desc;
using Desc = quire_cache_desc;

TEST_F(RefusedCache, for_what_its_group_is) {
    const quire_status arg = QUIRE_E_ARG, unsupported = QUIRE_E_UNSUPPORTED;
    const std::vector<CacheCase> cases = {
        {"groups[0].kind", unsupported, [](Group *g, Desc *) { g->kind = 99; }},
        {"groups[0].window is 0", arg, [](Group *g, Desc *) { g->kind = QUIRE_GROUP_WINDOW; }},
        {"groups[0].window is 0", arg, [](Group *g, Desc *) { g->kind = QUIRE_GROUP_CHUNKED; }},
        {"groups[0].window is 7", arg, [](Group *g, Desc *) { g->window = 7; }},
        {"groups[0].sink_tokens", arg, [](Group *g, Desc *) { g->sink_tokens = 4; }},
        {"groups[0].sink_tokens", arg,
         [](Group *g, Desc *) {
             g->kind = QUIRE_GROUP_WINDOW, g->window = 4, g->sink_tokens = 0x80000000u;
         }},
        {"groups[0].layer_count", arg, [](Group *g, Desc *) { g->layer_count = 0; }},
        {"groups[0].layer_count", arg, [](Group *g, Desc *) { g->layer_count = 4097; }},
        {"groups[0].kv_heads", arg, [](Group *g, Desc *) { g->kv_heads = 0; }},
        {"groups[0].k_head_dim", arg, [](Group *g, Desc *) { g->k_head_dim = 0; }},
        {"groups[0].v_head_dim", arg, [](Group *g, Desc *) { g->v_head_dim = 0; }},
        {"all heads share a latent row", arg,
         [](Group *g, Desc *) { g->kind = QUIRE_GROUP_LATENT, g->kv_heads = 2; }},
        {"is above k_head_dim", arg,
         [](Group *g, Desc *) { g->kind = QUIRE_GROUP_LATENT, g->v_head_dim = 65; }},
        {"they are one row", arg,
         [](Group *g, Desc *) {
             g->kind = QUIRE_GROUP_LATENT, g->k_dtype = QUIRE_DTYPE_F16,
             g->v_dtype = QUIRE_DTYPE_F32;
         }},
        {"they are one row", arg,
         [](Group *g, Desc *) {
             g->kind = QUIRE_GROUP_LATENT, g->k_dtype = QUIRE_DTYPE_I8;
             g->k_scale = QUIRE_SCALE_TOKEN_HEAD, g->v_scale = QUIRE_SCALE_HEAD;
         }},
        {"not known", unsupported,
         [](Group *g, Desc *) { g->k_dtype = QUIRE_DTYPE_I8, g->k_scale = 99; }},
        {"have no scales", arg, [](Group *g, Desc *) { g->k_scale = QUIRE_SCALE_TOKEN_HEAD; }},
        {"codes need a scale", arg, [](Group *g, Desc *) { g->k_dtype = QUIRE_DTYPE_I8; }},
        {"so it must be even", arg,
         [](Group *g, Desc *) {
             g->k_dtype = QUIRE_DTYPE_I4, g->k_scale = QUIRE_SCALE_TOKEN_HEAD, g->k_head_dim = 63;
         }},
    };
    refuse(cases, false);
    refuse(cases, true);
}

TEST_F(RefusedCache, for_its_sizes) {
    const quire_status arg = QUIRE_E_ARG, limit = QUIRE_E_LIMIT;
    refuse({{"group_count is 0", arg, [](Group *, Desc *d) { d->group_count = 0; }},
            {"group_count is 65", arg, [](Group *, Desc *d) { d->group_count = 65; }},
            {"max_sequence_tokens", arg,
             [](Group *, Desc *d) { d->max_sequence_tokens = 0x80000000u; }},
            {"more than 4096 layers", limit,
             [](Group *g, Desc *d) {
                 d->group_count = 2, g[0].layer_count = 4096, g[1].layer_count = 1;
             }},
            {"layer_groups[0] is 5: no such group", arg,
             [](Group *, Desc *d) {
                 static const uint32_t groups[] = {5};
                 d->layer_groups = groups;
             }},
            {"layer_groups does not give group 0 its 1 layers", arg,
             [](Group *, Desc *d) {
                 static const uint32_t groups[] = {1, 1};
                 d->group_count = 2, d->layer_groups = groups;
             }},
            {"larger than 2^62 bytes", limit,
             [](Group *g, Desc *d) {
                 g->layer_count = 4096, g->kv_heads = 0xffffffffu, g->k_head_dim = 0xffffffffu,
                 d->block_tokens = 256;
             }},
            {"calibration_margin", arg, [](Group *, Desc *d) { d->calibration_margin = -1; }},
            {"calibration_margin", arg, [](Group *, Desc *d) { d->calibration_margin = kNan; }},
            {"shard_count is 65", limit, [](Group *, Desc *d) { d->shard_count = 65; }}},
           false);
}

TEST_F(RefusedCache, for_what_its_pool_takes_of_a_device) {
    const quire_status arg = QUIRE_E_ARG;
    const auto of_bytes = [](Desc *d, uint64_t bytes) { d->blocks = 0, d->pool_bytes = bytes; };
    const auto of_fraction = [](Desc *d, float fraction) {
        d->blocks = 0, d->pool_fraction = fraction;
    };
    refuse(
        {{"pool_fraction is not in (0, 1]", arg, [&](Group *, Desc *d) { of_fraction(d, 1.5f); }},
         {"pool_fraction is not in (0, 1]", arg, [&](Group *, Desc *d) { of_fraction(d, -0.5f); }},
         {"pool_fraction is not in (0, 1]", arg, [&](Group *, Desc *d) { of_fraction(d, kNan); }},
         {"is not above reserve_bytes", arg,
          [&](Group *, Desc *d) {
              of_fraction(d, 0.5f);
              d->reserve_bytes = UINT64_MAX;
          }},
         {"hold no block besides", arg, [&](Group *, Desc *d) { of_bytes(d, 100); }},
         {"shards[0].device is NULL", arg,
          [](Group *, Desc *d) {
              static const auto none = described<quire_shard_desc>();
              d->shards = &none;
          }},
         {"give host_bytes or host_blocks", arg,
          [](Group *, Desc *d) { d->host_bytes = 1 << 20, d->host_blocks = 4; }}},
        true);
}

TEST_F(RefusedCache, of_bytes_or_a_fraction_gets_as_many_blocks_as_they_pay_for) {
    for (bool has_window : {false, true}) {
        auto groups = std::vector<quire_group_desc>(2, described<quire_group_desc>());
        for (quire_group_desc &group : groups) {
            group.layer_count = group.kv_heads = 1;
            group.k_head_dim = group.v_head_dim = 64;
        }
        groups[1].kind = QUIRE_GROUP_WINDOW;
        groups[1].window = 32;
        auto shard = described<quire_shard_desc>();
        shard.device = w.device;
        auto desc = described<quire_cache_desc>();
        desc.groups = groups.data();
        desc.group_count = has_window ? 2 : 1;
        desc.group_stride = sizeof groups[0];
        desc.shards = &shard;
        desc.shard_count = 1;
        desc.shard_stride = sizeof shard;
        // A block of f16: 16 tokens of K and V, 64 elements of 2 bytes.
        const uint64_t block_bytes = uint64_t{16} * 2 * 64 * 2 * desc.group_count;
        desc.pool_bytes = 7 * block_bytes + block_bytes - 1;
        quire_cache *cache = nullptr;
        ASSERT_EQ(w.api.cache_create(w.instance, &desc, &cache, &w.error), QUIRE_OK)
            << w.error.message;
        auto pool = described<quire_pool_info>();
        ASSERT_EQ(w.api.cache_get_pool(cache, 0, 0, &pool, &w.error), QUIRE_OK);
        EXPECT_EQ(pool.blocks, 7u);
        w.api.cache_destroy(cache, nullptr);

        auto device = described<quire_device_info>();
        ASSERT_EQ(w.api.device_get_info(w.device, &device, &w.error), QUIRE_OK);
        if (device.memory_free_bytes < 16 * block_bytes) continue;
        desc.pool_bytes = 0;
        desc.pool_fraction = 1;
        desc.reserve_bytes = device.memory_free_bytes - 9 * block_bytes;
        quire_status status = w.api.cache_create(w.instance, &desc, &cache, &w.error);
        // What is free changes meanwhile; but never to as much as twice the machine.
        if (status != QUIRE_OK) continue;
        ASSERT_EQ(w.api.cache_get_pool(cache, 0, 0, &pool, &w.error), QUIRE_OK);
        EXPECT_LT(pool.blocks, device.memory_free_bytes / block_bytes);
        w.api.cache_destroy(cache, nullptr);
    }
}

TEST_F(RefusedCache, for_what_its_attention_is) {
    struct Case {
        const char *words;
        std::function<void(quire_attention_desc *)> spoil;
    };
    static const float slopes[] = {kNan};
    const Case cases[] = {
        {"q_heads is 0", [](auto *a) { a->q_heads = 0; }},
        {"soft_cap", [](auto *a) { a->soft_cap = -1; }},
        {"soft_cap", [](auto *a) { a->soft_cap = kNan; }},
        {"alibi_slopes[0] is not finite", [](auto *a) { a->alibi_slopes = slopes; }},
    };
    for (const Case &one : cases) {
        auto attention = described<quire_attention_desc>();
        attention.q_heads = 1;
        one.spoil(&attention);
        EXPECT_EQ(create_batch(attention), QUIRE_E_ARG) << one.words;
        EXPECT_NE(std::string(w.error.message).find(one.words), std::string::npos)
            << w.error.message;
    }
}

TEST_F(RefusedCache, for_what_its_rope_is) {
    const quire_status arg = QUIRE_E_ARG, unsupported = QUIRE_E_UNSUPPORTED;
    using Rope = quire_rope_desc;
    const auto of = [](Rope *r, uint32_t scaling) {
        r->scaling = scaling, r->factor = 8;
        if (scaling >= QUIRE_ROPE_LLAMA3) r->original_context = 8192;
    };
    static const float endless[32] = {HUGE_VALF};
    try_ropes({
        {"rope.pairing", unsupported, [](Rope *r) { r->pairing = 9; }},
        {"rope.scaling", unsupported, [](Rope *r) { r->scaling = 9, r->factor = 2; }},
        {"rope.rotated_dim", arg, [](Rope *r) { r->rotated_dim = 63; }},
        {"rope.rotated_dim", arg, [](Rope *r) { r->rotated_dim = 66; }},
        {"rope.base is not", arg, [](Rope *r) { r->base = 1; }},
        {"rope.base is not", arg, [](Rope *r) { r->base = kNan; }},
        {"rope.magnitude", arg, [](Rope *r) { r->magnitude = -1; }},
        {"rope.factor is not", arg, [&](Rope *r) { of(r, QUIRE_ROPE_LINEAR), r->factor = 0.5f; }},
        {"rope.factor is not", arg, [&](Rope *r) { of(r, QUIRE_ROPE_YARN), r->factor = kNan; }},
        {"rope.original_context is 0", arg,
         [&](Rope *r) { of(r, QUIRE_ROPE_YARN), r->original_context = 0; }},
        {"rope.high_freq_factor is not", arg,
         [&](Rope *r) { of(r, QUIRE_ROPE_LLAMA3), r->low_freq_factor = 5; }},
        {"rope.beta_fast is not", arg, [&](Rope *r) { of(r, QUIRE_ROPE_YARN), r->beta_slow = 40; }},
        {"rope.frequencies[0] is not finite", arg, [](Rope *r) { r->frequencies = endless; }},
        {"rope.base is set, but frequencies", arg,
         [](Rope *r) { r->frequencies = endless, r->base = 10000; }},
        {"rope.scaling is set, but frequencies", arg,
         [&](Rope *r) { of(r, QUIRE_ROPE_LINEAR), r->frequencies = endless; }},
        {"rope.factor is set, but", arg, [](Rope *r) { r->factor = 2; }},
        {"rope.original_context is set, but", arg, [](Rope *r) { r->original_context = 2; }},
        {"rope.low_freq_factor is set, but", arg, [](Rope *r) { r->low_freq_factor = 2; }},
        {"rope.high_freq_factor is set, but", arg, [](Rope *r) { r->high_freq_factor = 2; }},
        {"rope.beta_fast is set, but", arg, [](Rope *r) { r->beta_fast = 2; }},
        {"rope.beta_slow is set, but", arg, [](Rope *r) { r->beta_slow = 2; }},
    });
}

constexpr uint32_t kDim = 64, kTokens = 3;

// The frequency of pair i by the formulas that attention.h names, in double precision.
double frequency_of(const quire_rope_desc &rope, uint32_t dim, uint32_t i) {
    const double turn = 2 * M_PI;
    double plain = std::pow(10000.0, -2.0 * i / dim);
    if (rope.scaling == QUIRE_ROPE_LINEAR) return plain / static_cast<double>(rope.factor);
    if (rope.scaling == QUIRE_ROPE_LLAMA3) {
        double wavelength = turn / plain, context = rope.original_context;
        if (wavelength < context / 4) return plain;
        if (wavelength > context / 1) return plain / static_cast<double>(rope.factor);
        double smooth = (context / wavelength - 1) / (4 - 1);
        return (1 - smooth) * plain / static_cast<double>(rope.factor) + smooth * plain;
    }
    if (rope.scaling == QUIRE_ROPE_YARN) {
        const auto dim_of = [&](double rotations) {
            return dim * std::log(rope.original_context / (rotations * turn)) /
                   (2 * std::log(10000.0));
        };
        double low = std::max(std::floor(dim_of(32)), 0.0);
        double high = std::min(std::ceil(dim_of(1)), dim - 1.0);
        double ramp = std::min(std::max((i - low) / std::max(high - low, 0.001), 0.0), 1.0);
        return plain / static_cast<double>(rope.factor) * ramp + plain * (1 - ramp);
    }
    return plain;
}

// K that is written through a rope, and read back from the pool.
class RotatedK : public testing::TestWithParam<uint32_t> {
 protected:
    RotatedK() : w(library()) {
        EXPECT_TRUE(w.make(described<quire_instance_desc>())) << w.problem();
        rope.scaling = GetParam();
        if (rope.scaling != QUIRE_ROPE_PLAIN) rope.factor = 8;
        if (rope.scaling >= QUIRE_ROPE_LLAMA3) rope.original_context = 64;
        make_cache();
        make_batch();
    }
    ~RotatedK() override {
        w.must("batch_destroy", w.api.batch_destroy(batch, &w.error));
        w.must("cache_destroy", w.api.cache_destroy(cache, &w.error));
        w.destroy();
        EXPECT_STREQ(w.problem(), "");
    }

    void make_cache() {
        auto group = described<quire_group_desc>();
        group.layer_count = group.kv_heads = 1;
        group.k_head_dim = group.v_head_dim = kDim;
        group.k_dtype = QUIRE_DTYPE_F32;
        auto shard = described<quire_shard_desc>();
        shard.device = w.device;
        auto desc = described<quire_cache_desc>();
        desc.groups = &group;
        desc.group_count = desc.shard_count = 1;
        desc.group_stride = sizeof group;
        desc.shards = &shard;
        desc.shard_stride = sizeof shard;
        desc.blocks = 4;
        w.must("cache_create", w.api.cache_create(w.instance, &desc, &cache, &w.error));
    }
    void make_batch() {
        auto attention = described<quire_attention_desc>();
        attention.q_heads = 1;
        attention.rope = &rope;
        auto desc = described<quire_batch_desc>();
        desc.max_rows = desc.max_blocks_per_row = 1;
        desc.max_query_tokens = kTokens;
        desc.attention = &attention;
        desc.attention_count = 1;
        desc.attention_stride = sizeof attention;
        w.must("batch_create", w.api.batch_create(cache, &desc, &batch, &w.error));
    }
    // Writes K for the first tokens of a sequence; returns its block.
    int32_t write(std::vector<float> k) {
        auto seq_desc = described<quire_seq_desc>();
        w.must("seq_create", w.api.seq_create(cache, &seq_desc, &seq, &w.error));
        auto desc = described<quire_step_desc>();
        desc.queues = &w.queue;
        desc.queue_count = 1;
        quire_step_item item{};
        item.seq = seq;
        item.token_count = kTokens;
        const quire_token tokens[kTokens] = {1, 2, 3};
        quire_step_result result{};
        quire_step step = 0;
        w.must("step_begin", w.api.step_begin(cache, &desc, &item, 1, sizeof item, tokens, kTokens,
                                              &result, sizeof result, &step, &w.error));
        w.must("step_commit", w.api.step_commit(cache, step, batch, &w.error));
        // The cpu backend's addresses are the host's.
        auto args = described<quire_kv_args>();
        args.k = args.v = reinterpret_cast<uintptr_t>(k.data());
        w.must("kv_write", w.api.kv_write(batch, &args, w.queue, &w.error));
        w.must("step_finish", w.api.step_finish(cache, step, nullptr, QUIRE_STEP_OK, &w.error));
        w.must("queue_sync", w.api.queue_sync(w.queue, &w.error));
        int32_t block = 0;
        uint32_t count = 0;
        w.must("step_blocks", w.api.step_blocks(cache, 0, seq, 0, 0, &block, 1, &count, &w.error));
        return block;
    }

    Objects w;
    quire_rope_desc rope = described<quire_rope_desc>();
    quire_cache *cache = nullptr;
    quire_batch *batch = nullptr;
    quire_seq seq = 0;
};

TEST_P(RotatedK, is_that_of_the_formula) {
    int32_t block = write(std::vector<float>(kTokens * kDim, 1.0f));
    auto pool = described<quire_pool_info>();
    w.must("cache_get_pool", w.api.cache_get_pool(cache, 0, 0, &pool, &w.error));
    ASSERT_STREQ(w.problem(), "");
    double magnitude = rope.scaling == QUIRE_ROPE_YARN ? 0.1 * std::log(8.0) + 1 : 1;
    const auto *bytes = reinterpret_cast<const char *>(static_cast<uintptr_t>(pool.address));
    for (uint32_t place = 0; place < kTokens; ++place) {
        const auto *row = reinterpret_cast<const float *>(bytes + block * pool.block_stride +
                                                          place * pool.k_token_stride);
        for (uint32_t i = 0; i < kDim / 2; ++i) {
            double angle = place * frequency_of(rope, kDim, i);
            double first = (std::cos(angle) - std::sin(angle)) * magnitude;
            double second = (std::cos(angle) + std::sin(angle)) * magnitude;
            EXPECT_NEAR(static_cast<double>(row[i]), first, 1e-5) << place << " " << i;
            EXPECT_NEAR(static_cast<double>(row[i + kDim / 2]), second, 1e-5) << place << " " << i;
        }
    }
    w.must("seq_end", w.api.seq_end(cache, seq, 0, &w.error));
}

INSTANTIATE_TEST_SUITE_P(Scalings, RotatedK,
                         testing::Values(QUIRE_ROPE_PLAIN, QUIRE_ROPE_LINEAR, QUIRE_ROPE_LLAMA3,
                                         QUIRE_ROPE_YARN));

}  // namespace
