// SPDX-License-Identifier: Apache-2.0
//
// quire_size_estimate compared with numbers computed by hand.

#include <cmath>
#include <cstring>

#include "manager.hpp"

namespace {

using namespace quire::test;

constexpr uint64_t kGib = uint64_t{1} << 30;

struct Size : testing::Test {
    quire_size_desc desc = described<quire_size_desc>();
    quire_size_info info = described<quire_size_info>();
    quire_error error = [] {
        quire_error e{};
        e.struct_size = sizeof e;
        return e;
    }();

    Size() {  // 80 layers of 8 KV heads of 128: Llama-3-70B
        desc.layer_count = 80;
        desc.kv_heads = 8;
        desc.k_head_dim = 128;
    }
    void llama_70b_on(uint32_t devices) {
        desc.parameters = 70'600'000'000;
        desc.context_tokens = 8192;
        desc.device_count = devices;
        on_80_gb();
    }
    void on_80_gb() {  // H100 SXM as its vendor specifies it
        desc.memory_bytes = 80'000'000'000;
        desc.bytes_per_second = 3.35e12;
        desc.operations_per_second = 989e12;
        desc.utilization = 0.9;
        desc.reserve_bytes = 2'000'000'000;
    }
    void qwen_8b() {
        desc.layer_count = 36;
        desc.parameters = 8'190'000'000;
        desc.context_tokens = 8192;
        on_80_gb();
    }
    quire_status estimate() { return library().size_estimate(&desc, &info, &error); }
    void expect_refused(quire_status status, const char *words) {
        quire_size_info before = info;
        EXPECT_EQ(estimate(), status) << error.message;
        EXPECT_NE(std::string(error.message).find(words), std::string::npos) << error.message;
        EXPECT_EQ(std::memcmp(&before, &info, sizeof info), 0);
    }
};

// DeepSeek-V3: 61 layers, a latent of 512 and 64 rotated elements.
TEST_F(Size, a_latent_token_takes_one_row_a_layer_on_every_device) {
    desc.flags = QUIRE_SIZE_LATENT;
    desc.layer_count = 61;
    desc.kv_heads = 1;
    desc.k_head_dim = 576;
    desc.v_head_dim = 512;
    ASSERT_EQ(estimate(), QUIRE_OK) << error.message;
    EXPECT_EQ(info.kv_bytes_per_token, 61u * 576 * 2);
    desc.device_count = 8;
    ASSERT_EQ(estimate(), QUIRE_OK) << error.message;
    EXPECT_EQ(info.kv_bytes_per_token, 8u * 61 * 576 * 2);
    desc.kv_heads = 128;
    expect_refused(QUIRE_E_ARG, "kv_heads is 128");
    desc.kv_heads = 1;
    desc.v_head_dim = 577;
    expect_refused(QUIRE_E_ARG, "v_head_dim 577");
}

TEST_F(Size, a_token_takes_k_and_v_of_every_layer_and_kv_head) {
    ASSERT_EQ(estimate(), QUIRE_OK) << error.message;
    EXPECT_EQ(info.kv_bytes_per_token, 327'680u);
    desc.kv_bits = 8;
    ASSERT_EQ(estimate(), QUIRE_OK);
    EXPECT_EQ(info.kv_bytes_per_token, 163'840u);
    desc.scale_bytes = 4;  // K and V of 80 layers and 8 heads
    ASSERT_EQ(estimate(), QUIRE_OK);
    EXPECT_EQ(info.kv_bytes_per_token, 163'840u + 80 * 8 * 2 * 4);
    desc.scale_bytes = 0;
    desc.kv_bits = 16;
    desc.kv_heads = 64;
    ASSERT_EQ(estimate(), QUIRE_OK);
    EXPECT_EQ(info.kv_bytes_per_token, 2'621'440u);
    desc.v_head_dim = 64;
    ASSERT_EQ(estimate(), QUIRE_OK);
    EXPECT_EQ(info.kv_bytes_per_token, 2'621'440u / 4 * 3);
}

TEST_F(Size, the_last_block_of_a_sequence_counts_whole) {
    desc.kv_bits = 8;
    desc.memory_bytes = 40 * kGib;
    desc.context_tokens = 8192;
    ASSERT_EQ(estimate(), QUIRE_OK) << error.message;
    EXPECT_EQ(info.pool_bytes, 40 * kGib);
    EXPECT_EQ(info.blocks, 16'384u);
    EXPECT_EQ(info.tokens, 262'144u);
    EXPECT_EQ(info.max_sequences, 32u);
    desc.context_tokens = 8193;
    ASSERT_EQ(estimate(), QUIRE_OK);
    EXPECT_EQ(info.max_sequences, 31u);
}

TEST_F(Size, a_block_that_is_not_whole_is_left_out) {
    desc.memory_bytes = 45 * kGib;
    desc.utilization = 0.95;
    ASSERT_EQ(estimate(), QUIRE_OK) << error.message;
    EXPECT_EQ(info.blocks, 8'755u);
}

TEST_F(Size, a_decode_step_reads_weights_and_contexts_once) {
    qwen_8b();
    ASSERT_EQ(estimate(), QUIRE_OK) << error.message;
    EXPECT_EQ(info.pool_bytes, 53'620'000'000u);
    EXPECT_EQ(info.max_sequences, 44u);
    EXPECT_EQ(info.batch, 1u);
    EXPECT_EQ(info.bound, uint32_t{QUIRE_BOUND_BANDWIDTH});
    double bytes = 8.19e9 * 2 + 8192 * 147'456.0;
    EXPECT_NEAR(info.step_seconds, bytes / 3.35e12, 1e-12);
    EXPECT_NEAR(info.tokens_per_second, 190.5, 0.1);
    desc.batch = 44;
    ASSERT_EQ(estimate(), QUIRE_OK);
    EXPECT_EQ(info.bound, uint32_t{QUIRE_BOUND_BANDWIDTH});
    EXPECT_NEAR(info.tokens_per_second, 2120, 1);
    desc.batch = 45;
    expect_refused(QUIRE_E_LIMIT, "batch 45 is too large: 44 sequences fit");
    desc.kv_bits = 8;
    ASSERT_EQ(estimate(), QUIRE_OK);
    EXPECT_EQ(info.max_sequences, 88u);
}

TEST_F(Size, arithmetic_is_the_bound_where_it_takes_longer) {
    qwen_8b();
    desc.context_tokens = 16;
    desc.batch = 2000;
    ASSERT_EQ(estimate(), QUIRE_OK) << error.message;
    EXPECT_EQ(info.bound, uint32_t{QUIRE_BOUND_COMPUTE});
    EXPECT_NEAR(info.step_seconds, 2 * 8.19e9 * 2000 / 989e12, 1e-9);
    double without = info.step_seconds;
    desc.q_heads = 32;  // 2·(128 + 128) operations per head, layer and visible token
    ASSERT_EQ(estimate(), QUIRE_OK);
    EXPECT_NEAR(info.step_seconds - without, 2.0 * 256 * 32 * 36 * 2000 * 16 / 989e12, 1e-9);
}

TEST_F(Size, devices_split_the_weights_and_the_kv_heads) {
    llama_70b_on(1);
    expect_refused(QUIRE_E_LIMIT, "141200000000 bytes of each device");
    llama_70b_on(2);
    expect_refused(QUIRE_E_LIMIT, "the model does not fit");
    llama_70b_on(4);
    ASSERT_EQ(estimate(), QUIRE_OK) << error.message;
    EXPECT_EQ(info.max_sequences, 51u);
    EXPECT_EQ(info.kv_bytes_per_token, 327'680u);
}

TEST_F(Size, a_kv_head_that_devices_cannot_split_is_held_by_each) {
    llama_70b_on(16);
    ASSERT_EQ(estimate(), QUIRE_OK) << error.message;
    EXPECT_EQ(info.kv_bytes_per_token, 2 * 327'680u);
}

TEST_F(Size, what_is_unknown_is_not_concluded_from) {
    ASSERT_EQ(estimate(), QUIRE_OK) << error.message;
    EXPECT_EQ(info.blocks, 0u);
    EXPECT_EQ(info.max_sequences, 0u);
    EXPECT_EQ(info.bound, uint32_t{QUIRE_BOUND_UNKNOWN});
    EXPECT_EQ(info.step_seconds, 0.0);
    EXPECT_EQ(info.tokens_per_second, 0.0);
}

TEST_F(Size, time_of_a_step_is_not_concluded_from_an_unknown_context) {
    qwen_8b();
    desc.context_tokens = 0;
    ASSERT_EQ(estimate(), QUIRE_OK) << error.message;
    EXPECT_EQ(info.bound, uint32_t{QUIRE_BOUND_UNKNOWN});
    EXPECT_EQ(info.step_seconds, 0.0);
    desc.batch = static_cast<uint32_t>(info.blocks) + 1;
    expect_refused(QUIRE_E_LIMIT, "each sequence needs a block, and the pool has 22727");
}

TEST_F(Size, extreme_rates_give_a_finite_time_or_a_refusal) {
    qwen_8b();
    desc.bytes_per_second = 5e-324;
    expect_refused(QUIRE_E_LIMIT, "not finite at these rates");
    desc.bytes_per_second = 1e308;
    desc.device_count = 1u << 20;
    ASSERT_EQ(estimate(), QUIRE_OK) << error.message;
    EXPECT_GT(info.step_seconds, 0.0);
}

TEST_F(Size, numbers_that_cannot_be_meant_are_refused) {
    const quire_size_desc good = desc;
    auto refused = [&](auto change, const char *words) {
        desc = good;
        change();
        expect_refused(QUIRE_E_ARG, words);
    };
    refused([&] { desc.layer_count = 0; }, "layer_count");
    refused([&] { desc.kv_heads = 0; }, "kv_heads");
    refused([&] { desc.k_head_dim = 0; }, "k_head_dim");
    refused([&] { desc.kv_bits = 12; }, "kv_bits is 12");
    refused([&] { desc.weight_bits = 1; }, "weight_bits is 1");
    refused([&] { desc.scale_bytes = 5; }, "scale_bytes is 5");
    refused([&] { desc.block_tokens = 24; }, "block_tokens is 24");
    refused([&] { desc.utilization = 1.01; }, "utilization");
    refused([&] { desc.utilization = -1; }, "utilization");
    refused([&] { desc.utilization = std::nan(""); }, "utilization");
    refused([&] { desc.bytes_per_second = -1; }, "bytes_per_second");
    refused([&] { desc.operations_per_second = INFINITY; }, "operations_per_second");
}

TEST_F(Size, what_does_not_fit_says_by_how_much) {
    desc.memory_bytes = 327'680 * 16 - 1;
    expect_refused(QUIRE_E_LIMIT,
                   "it takes 5242880 bytes of each device, but only 5242879 are left");
    desc.memory_bytes += 1;
    desc.context_tokens = 17;
    expect_refused(QUIRE_E_LIMIT, "not one sequence of 17 tokens fits: the pool holds 16");
    desc.context_tokens = UINT64_MAX;
    expect_refused(QUIRE_E_LIMIT, "not one sequence");
    desc.reserve_bytes = UINT64_MAX;
    expect_refused(QUIRE_E_LIMIT, "not one block");
}

TEST_F(Size, products_past_64_bits_are_refused) {
    desc.layer_count = desc.kv_heads = desc.k_head_dim = UINT32_MAX;
    expect_refused(QUIRE_E_LIMIT, "2^64");
    desc.layer_count = desc.kv_heads = desc.k_head_dim = 1;
    desc.parameters = UINT64_MAX;
    expect_refused(QUIRE_E_LIMIT, "2^64");
    desc.parameters = 0;
    desc.memory_bytes = UINT64_MAX;
    desc.device_count = UINT32_MAX;
    expect_refused(QUIRE_E_LIMIT, "2^64");
}

}  // namespace
