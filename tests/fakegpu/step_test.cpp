// SPDX-License-Identifier: Apache-2.0
//
// Steps of a cache on the emulated devices, through the C ABI: what an engine may do while it
// captures its stream, and rows that are longer than the sequence's own tokens.

#include <cmath>

#include "engine_rig.hpp"
#include "tests/device/cpu_cache.hpp"

namespace quire::gpu_tests {

namespace {

using test::described;
using test::library;

constexpr uint32_t kWidth = 16;
constexpr uint32_t kCrossTokens = 1500;
constexpr uint64_t kFloats = uint64_t{kCrossTokens} * kWidth;  // each for K, V, q and out

// One sequence of a cache with two layers, the second of which attends to another input, on a
// device of the backend.
class Text {
 public:
    Text(const char *backend, const quire_native *stream) {
        auto instance_desc = described<quire_instance_desc>();
        must(api.instance_create(&instance_desc, &instance, &error));
        auto device_desc = described<quire_device_desc>();
        device_desc.backend = backend;
        must(api.device_open(instance, &device_desc, &device, &error));
        must(api.queue_create(device, stream, &queue, &error));
        make_cache();
        make_batch();
        auto desc = described<quire_memory_desc>();
        desc.size_bytes = 4 * kFloats * sizeof(float);
        desc.kind = QUIRE_MEMORY_HOST;
        must(api.memory_create(device, &desc, &memory, &error));
        auto info = described<quire_memory_info>();
        must(api.memory_get_info(memory, &info, &error));
        address = info.address;
        host = static_cast<float *>(info.host_pointer);
        for (uint64_t i = 0; i < 3 * kFloats; ++i) host[i] = std::sin(static_cast<float>(i));
        auto text = described<quire_seq_desc>();
        text.cross_tokens = kCrossTokens;
        must(api.seq_create(cache, &text, &seq, &error));
    }
    ~Text() {
        must(api.queue_sync(queue, &error));
        must(api.batch_destroy(batch, &error));
        must(api.cache_destroy(cache, &error));
        must(api.memory_destroy(memory, &error));
        must(api.queue_destroy(queue, &error));
        must(api.device_close(device, &error));
        must(api.instance_destroy(instance, &error));
    }
    Text(const Text &) = delete;
    Text &operator=(const Text &) = delete;

    void must(quire_status status) { ASSERT_GE(status, 0) << error.message; }

    quire_step begin(uint32_t count) {
        auto desc = described<quire_step_desc>();
        desc.queues = &queue;
        desc.queue_count = 1;
        quire_step_item item{};
        item.seq = seq;
        item.token_count = count;
        std::vector<uint32_t> tokens(count, 7);
        quire_step_result result{};
        quire_step step = 0;
        must(api.step_begin(cache, &desc, &item, 1, sizeof item, tokens.data(), count, &result,
                            sizeof result, &step, &error));
        return step;
    }
    // Runs all layers of the committed step and returns the results of the last one.
    std::vector<float> run(uint32_t count) {
        auto kv = described<quire_kv_args>();
        kv.k = address;
        kv.v = address + kFloats * sizeof(float);
        auto attend = described<quire_attend_args>();
        attend.q = address + 2 * kFloats * sizeof(float);
        attend.out = address + 3 * kFloats * sizeof(float);
        for (kv.layer = attend.layer = 0; kv.layer < 2; attend.layer = ++kv.layer) {
            must(api.kv_write(batch, &kv, queue, &error));
            must(api.attend(batch, &attend, queue, &error));
        }
        must(api.queue_sync(queue, &error));
        const float *out = host + 3 * kFloats;
        return {out, out + uint64_t{count} * kWidth};
    }
    std::vector<float> step(uint32_t count) {
        quire_step step = begin(count);
        must(api.step_commit(cache, step, batch, &error));
        std::vector<float> out = run(count);
        must(api.step_finish(cache, step, nullptr, QUIRE_STEP_OK, &error));
        return out;
    }
    quire_seq_info info() {
        auto info = described<quire_seq_info>();
        must(api.seq_get_info(cache, seq, &info, &error));
        return info;
    }

    const quire_api &api = library();
    quire_error error = described<quire_error>();
    quire_queue *queue = nullptr;
    quire_cache *cache = nullptr;
    quire_batch *batch = nullptr;
    quire_seq seq = 0;

 private:
    void make_cache() {
        quire_group_desc groups[2];
        for (quire_group_desc &group : groups) {
            group = described<quire_group_desc>();
            group.layer_count = group.kv_heads = 1;
            group.k_head_dim = group.v_head_dim = kWidth;
            group.k_dtype = QUIRE_DTYPE_F32;
        }
        groups[1].kind = QUIRE_GROUP_CROSS;
        auto shard = described<quire_shard_desc>();
        shard.device = device;
        auto desc = described<quire_cache_desc>();
        desc.groups = groups;
        desc.group_count = 2;
        desc.group_stride = sizeof groups[0];
        desc.shards = &shard;
        desc.shard_count = 1;
        desc.shard_stride = sizeof shard;
        desc.blocks = 256;
        desc.block_tokens = 16;
        must(api.cache_create(instance, &desc, &cache, &error));
    }
    void make_batch() {
        auto attention = described<quire_attention_desc>();
        attention.q_heads = 1;
        auto desc = described<quire_batch_desc>();
        desc.max_rows = 1;
        desc.max_blocks_per_row = 128;
        desc.max_query_tokens = 32;
        desc.max_cross_tokens = kCrossTokens;
        desc.attention = &attention;
        desc.attention_count = 1;
        desc.attention_stride = sizeof attention;
        must(api.batch_create(cache, &desc, &batch, &error));
    }

    quire_instance *instance = nullptr;
    quire_device *device = nullptr;
    quire_memory *memory = nullptr;
    uint64_t address = 0;
    float *host = nullptr;
};

}  // namespace

class Steps : public Engine {};

TEST_P(Steps, attend_to_another_input_longer_than_their_own) {
    Text on_gpu(vendor().name, nullptr);
    Text on_cpu("cpu", nullptr);
    for (uint32_t count : {5u, 1u}) {
        std::vector<float> found = on_gpu.step(count), wanted = on_cpu.step(count);
        for (size_t i = 0; i < wanted.size(); ++i) {
            ASSERT_NEAR(found[i], wanted[i], 1e-5F) << count << " tokens, element " << i;
        }
    }
    auto views = described<quire_batch_views>();
    on_gpu.must(on_gpu.api.batch_get_views(on_gpu.batch, 0, 0, &views, &on_gpu.error));
    EXPECT_EQ(views.max_length, 6u);
    on_gpu.must(on_gpu.api.batch_get_views(on_gpu.batch, 1, 0, &views, &on_gpu.error));
    EXPECT_EQ(views.max_length, kCrossTokens);
}

TEST_P(Steps, stay_open_where_they_are_committed_in_a_capture) {
    quire_native stream = as_stream(stream_);
    std::optional<Text> text(std::in_place, vendor().name, &stream);
    text->step(20);
    quire_step step = text->begin(1);
    begin_capture();
    EXPECT_EQ(text->api.step_commit(text->cache, step, text->batch, &text->error), QUIRE_E_BUSY);
    EXPECT_TRUE(has(text->error, "is capturing")) << text->error.message;
    EXPECT_EQ(end_capture(), 0) << "the call broke the capture";
    EXPECT_EQ(text->api.step_commit(text->cache, step, text->batch, &text->error), QUIRE_OK)
        << text->error.message;
    text->run(1);
    EXPECT_EQ(text->api.step_finish(text->cache, step, nullptr, QUIRE_STEP_OK, &text->error),
              QUIRE_OK);
    EXPECT_EQ(text->info().computed_tokens, 21u);
    EXPECT_EQ(text->info().flags & QUIRE_SEQ_LOST, 0u);
    text.reset();
}

TEST_P(Steps, are_not_failed_in_a_capture) {
    quire_native stream = as_stream(stream_);
    std::optional<Text> text(std::in_place, vendor().name, &stream);
    text->step(20);
    quire_step step = text->begin(1);
    text->must(text->api.step_commit(text->cache, step, text->batch, &text->error));
    for (uint32_t outcome : {QUIRE_STEP_FAILED, QUIRE_STEP_OK}) {
        begin_capture();
        EXPECT_EQ(text->api.step_finish(text->cache, step, nullptr, outcome, &text->error),
                  QUIRE_E_BUSY);
        EXPECT_EQ(end_capture(), 0) << "the call broke the capture";
        EXPECT_EQ(text->info().flags & QUIRE_SEQ_LOST, 0u);
        EXPECT_EQ(text->api.queue_destroy(text->queue, &text->error), QUIRE_E_BUSY);
    }
    EXPECT_EQ(text->api.step_finish(text->cache, step, nullptr, QUIRE_STEP_FAILED, &text->error),
              QUIRE_OK);
    EXPECT_NE(text->info().flags & QUIRE_SEQ_LOST, 0u);
    text.reset();
}

INSTANTIATE_TEST_SUITE_P(Vendors, Steps, testing::Values(0, 1), name_of);

}  // namespace quire::gpu_tests
