// SPDX-License-Identifier: Apache-2.0
//
// A cache on an engine's own VkDevice and VkQueue: ordered with the engine's submissions, with its
// semaphores in both directions, and the engine goes on when the library is gone.

#include <chrono>
#include <cstring>
#include <thread>

#include "engine_fixture.hpp"
#include "tests/device/cpu_cache.hpp"

namespace {

using namespace quire::test;

constexpr uint32_t kDim = 64;
constexpr auto kMoment = std::chrono::milliseconds(30);  // enough for work to run, unless held

// A cache of one layer and head, a batch, and the engine's buffers, for at most kTokens tokens.
struct Scene {
    static constexpr uint32_t kTokens = 32;

    Scene(Engine *of, bool is_bound)
        : engine(of),
          vulkan(of->describe()),
          c({.blocks = 24, .head_dim = kDim, .backend = "vulkan", .next = chain_of(vulkan)}) {
        quire_native native = engine->queue_object();
        c.must(c.api.queue_create(c.device, is_bound ? &native : nullptr, &queue, &c.error));
        auto attention = described<quire_attention_desc>();
        attention.q_heads = 1;
        auto desc = described<quire_batch_desc>();
        desc.max_rows = 2;
        desc.max_blocks_per_row = 8;
        desc.max_query_tokens = kTokens;
        desc.attention = &attention;
        desc.attention_count = 1;
        desc.attention_stride = sizeof attention;
        c.must(c.api.batch_create(c.cache, &desc, &batch, &c.error));
        seq = c.create();
        for (EngineBuffer *one : {&given, &kv, &q, &out, &result}) {
            *one = engine->make_buffer(kTokens * kDim);
        }
    }
    ~Scene() {
        engine->finish();
        c.must(c.api.queue_sync(queue, &c.error));
        c.must(c.api.batch_destroy(batch, &c.error));
        c.must(c.api.queue_destroy(queue, &c.error));
        for (const EngineBuffer &one : {given, kv, q, out, result}) engine->destroy(one);
    }

    // Commits a step of this many tokens; the engine's kernel makes K and V from `given`.
    quire_step begin(uint32_t token_count) {
        quire_step_result outcome{};
        quire_step step = c.begin(queue, seq, std::vector<uint32_t>(token_count, 7), &outcome);
        EXPECT_EQ(outcome.outcome, uint32_t{QUIRE_ITEM_RUN});
        c.must(c.api.step_commit(c.cache, step, batch, &c.error));
        return step;
    }
    void write_and_attend() {
        auto write = described<quire_kv_args>();
        write.k = write.v = kv.address;
        c.must(c.api.kv_write(batch, &write, queue, &c.error));
        auto attend = described<quire_attend_args>();
        attend.q = q.address;
        attend.out = out.address;
        c.must(c.api.attend(batch, &attend, queue, &c.error));
    }
    void finish(quire_step step, const quire_native *native = nullptr) {
        c.must(c.api.step_finish(c.cache, step, native, QUIRE_STEP_OK, &c.error));
    }

    Engine *engine;
    quire_vulkan_device vulkan;
    CpuCache c;
    quire_queue *queue = nullptr;
    quire_batch *batch = nullptr;
    quire_seq seq = 0;
    EngineBuffer given, kv, q, out, result;
};

// The host waits for nothing between the engine's kernels and the library's.
TEST_F(VulkanEngine, its_submissions_and_the_librarys_run_in_the_order_of_calls) {
    Scene scene(&engine, true);
    double sum = 0.0;
    uint32_t known = 0;
    for (uint32_t count : {20u, 1u, 1u, 5u, 1u}) {
        engine.finish();  // before `given` is written again
        for (uint32_t i = 0; i < count * kDim; ++i) {
            scene.given.numbers[i] = static_cast<float>(known + i / kDim);
        }
        quire_step step = scene.begin(count);
        engine.submit(scene.given.address, scene.kv.address, count * kDim, nullptr, nullptr);
        scene.write_and_attend();
        engine.submit(scene.out.address, scene.result.address, count * kDim, nullptr, nullptr);
        scene.finish(step);
        engine.finish();
        // Queries are zeros: a token's output is the mean of the values up to it, doubled twice.
        for (uint32_t token = 0; token < count; ++token) {
            sum += 2.0 * known++;
            for (uint32_t d = 0; d < kDim; ++d) {
                ASSERT_NEAR(scene.result.numbers[token * kDim + d], 2.0 * sum / known, 1e-4)
                    << "token " << known - 1;
            }
        }
    }
    EXPECT_GT(engine.locked, 10);
}

TEST_F(VulkanEngine, its_kernels_read_blocks_where_they_lie) {
    Scene scene(&engine, true);
    for (uint32_t i = 0; i < 3 * kDim; ++i) scene.given.numbers[i] = static_cast<float>(i);
    quire_step step = scene.begin(3);
    engine.submit(scene.given.address, scene.kv.address, 3 * kDim, nullptr, nullptr);
    scene.write_and_attend();
    int32_t block = 0;
    uint32_t block_count = 0;
    auto pool = described<quire_pool_info>();
    CpuCache &c = scene.c;
    c.must(c.api.step_blocks(c.cache, step, scene.seq, 0, 0, &block, 1, &block_count, &c.error));
    c.must(c.api.cache_get_pool(c.cache, 0, 0, &pool, &c.error));
    engine.submit(pool.address + static_cast<uint64_t>(block * pool.block_stride),
                  scene.result.address, 3 * kDim, nullptr, nullptr);
    scene.finish(step);
    engine.finish();
    for (uint32_t i = 0; i < 3 * kDim; ++i) {
        ASSERT_EQ(scene.result.numbers[i], 4.0f * static_cast<float>(i)) << i;
    }
}

TEST_F(VulkanEngine, its_semaphore_is_signalled_behind_a_queues_work) {
    for (bool is_bound : {false, true}) {
        Scene scene(&engine, is_bound);
        VkSemaphore done = engine.make_semaphore();
        for (uint32_t i = 0; i < 4 * kDim; ++i) scene.kv.numbers[i] = 3.0f;
        quire_step step = scene.begin(4);
        scene.write_and_attend();
        quire_native native = Engine::object_of(done, 5);
        CpuCache &c = scene.c;
        c.must(c.api.queue_signal_native(scene.queue, &native, &c.error));
        engine.wait(done, 5);
        EXPECT_EQ(scene.out.numbers[3 * kDim], 3.0f);
        scene.finish(step);
        c.must(c.api.queue_sync(scene.queue, &c.error));
        vkDestroySemaphore(engine.device, done, nullptr);
    }
}

TEST_F(VulkanEngine, queue_waits_for_its_semaphore) {
    for (bool is_bound : {false, true}) {
        Scene scene(&engine, is_bound);
        CpuCache &c = scene.c;
        VkSemaphore go = engine.make_semaphore();
        VkSemaphore done = engine.make_semaphore();
        quire_native awaited = Engine::object_of(go, 7), signalled = Engine::object_of(done, 1);
        c.must(c.api.queue_after_native(scene.queue, &awaited, &c.error));
        quire_step step = scene.begin(2);
        scene.write_and_attend();
        c.must(c.api.queue_signal_native(scene.queue, &signalled, &c.error));
        std::this_thread::sleep_for(kMoment);
        EXPECT_EQ(engine.read(done), 0u);
        for (uint32_t i = 0; i < 2 * kDim; ++i) scene.kv.numbers[i] = 9.0f;
        engine.signal(go, 7);
        engine.wait(done, 1);
        EXPECT_EQ(scene.out.numbers[kDim], 9.0f) << "read before it was there";
        scene.finish(step);
        c.must(c.api.queue_sync(scene.queue, &c.error));
        vkDestroySemaphore(engine.device, go, nullptr);
        vkDestroySemaphore(engine.device, done, nullptr);
    }
}

TEST_F(VulkanEngine, step_ends_when_its_semaphore_says_so) {
    Scene scene(&engine, false);
    CpuCache &c = scene.c;
    VkSemaphore end = engine.make_semaphore();
    quire_step step = scene.begin(2);
    scene.write_and_attend();
    quire_native native = Engine::object_of(end, 3);
    scene.finish(step, &native);
    quire_fence *fence = nullptr;
    uint64_t value = 0;
    c.must(c.api.fence_create(c.device, 0, &fence, &c.error));
    c.must(c.api.queue_signal(scene.queue, fence, 1, &c.error));
    std::this_thread::sleep_for(kMoment);
    c.must(c.api.fence_read(fence, &value, &c.error));
    EXPECT_EQ(value, 0u) << "the step's queue has not waited";
    EXPECT_EQ(c.api.queue_destroy(scene.queue, &c.error), QUIRE_E_BUSY) << "it is not done";
    engine.signal(end, 3);
    c.must(c.api.fence_wait(fence, 1, UINT64_MAX, &c.error));
    c.must(c.api.fence_destroy(fence, &c.error));
    c.must(c.api.queue_sync(scene.queue, &c.error));
    vkDestroySemaphore(engine.device, end, nullptr);
}

// Otherwise the engine's wait, submitted next, would precede the signal on the only VkQueue.
TEST_F(VulkanEngine, its_semaphore_is_not_taken_by_a_queue_that_is_held) {
    Scene scene(&engine, false);
    CpuCache &c = scene.c;
    quire_fence *fence = nullptr;
    c.must(c.api.fence_create(c.device, 0, &fence, &c.error));
    c.must(c.api.queue_after(scene.queue, fence, 1, &c.error));
    VkSemaphore done = engine.make_semaphore();
    quire_native native = Engine::object_of(done, 1);
    EXPECT_EQ(c.api.queue_signal_native(scene.queue, &native, &c.error), QUIRE_E_BUSY);
    EXPECT_NE(std::strstr(c.error.message, "signal the fence first"), nullptr) << c.error.message;
    c.must(c.api.fence_signal(fence, 1, &c.error));
    EXPECT_EQ(engine.read(done), 0u);
    c.must(c.api.queue_signal_native(scene.queue, &native, &c.error));
    engine.wait(done, 1);
    c.must(c.api.queue_sync(scene.queue, &c.error));
    c.must(c.api.fence_destroy(fence, &c.error));
    vkDestroySemaphore(engine.device, done, nullptr);
}

// A held batch passes its wait to the device later, long after the semaphore was signalled.
TEST_F(VulkanEngine, semaphore_may_go_when_the_work_behind_it_has_run) {
    Scene scene(&engine, false);
    CpuCache &c = scene.c;
    quire_fence *fence = nullptr;
    c.must(c.api.fence_create(c.device, 0, &fence, &c.error));
    c.must(c.api.queue_after(scene.queue, fence, 1, &c.error));
    VkSemaphore go = engine.make_semaphore();
    quire_native native = Engine::object_of(go, 1);
    c.must(c.api.queue_after_native(scene.queue, &native, &c.error));
    engine.signal(go, 1);
    c.must(c.api.queue_signal(scene.queue, fence, 2, &c.error));
    EXPECT_EQ(c.api.fence_wait(fence, 2, 0, &c.error), QUIRE_S_TIMEOUT)
        << "the queue must still be waiting";
    c.must(c.api.fence_signal(fence, 1, &c.error));
    c.must(c.api.fence_wait(fence, 2, UINT64_MAX, &c.error));
    vkDestroySemaphore(engine.device, go, nullptr);
    c.must(c.api.queue_sync(scene.queue, &c.error));
    c.must(c.api.fence_destroy(fence, &c.error));
}

TEST_F(VulkanEngine, step_ends_with_no_semaphore_where_the_object_is_none) {
    Scene scene(&engine, true);
    CpuCache &c = scene.c;
    quire_step step = scene.begin(2);
    quire_native native{};
    native.reserved0 = 1;
    EXPECT_EQ(c.api.step_finish(c.cache, step, &native, QUIRE_STEP_OK, &c.error), QUIRE_E_STRUCT);
    EXPECT_NE(std::strstr(c.error.message, "reserved0"), nullptr) << c.error.message;
    native.reserved0 = 0;
    scene.finish(step, &native);
    c.must(c.api.queue_sync(scene.queue, &c.error));
}

TEST_F(VulkanEngine, fence_of_a_bound_queue_is_behind_the_engines_own_work) {
    Scene scene(&engine, true);
    CpuCache &c = scene.c;
    VkSemaphore go = engine.make_semaphore();
    VkSemaphoreSubmitInfo awaited{};
    awaited.sType = VK_STRUCTURE_TYPE_SEMAPHORE_SUBMIT_INFO;
    awaited.semaphore = go;
    awaited.value = 1;
    awaited.stageMask = VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT;
    quire_fence *fence = nullptr;
    c.must(c.api.fence_create(c.device, 0, &fence, &c.error));
    engine.submit(scene.given.address, scene.kv.address, kDim, &awaited, nullptr);
    c.must(c.api.queue_signal(scene.queue, fence, 1, &c.error));
    EXPECT_EQ(c.api.fence_wait(fence, 1, 30'000'000, &c.error), QUIRE_S_TIMEOUT);
    engine.signal(go, 1);
    EXPECT_EQ(c.api.fence_wait(fence, 1, UINT64_MAX, &c.error), QUIRE_OK);
    c.must(c.api.fence_destroy(fence, &c.error));
    vkDestroySemaphore(engine.device, go, nullptr);
}

TEST_F(VulkanEngine, bound_queue_waits_for_what_is_on_its_way_alone) {
    Scene scene(&engine, true);
    CpuCache &c = scene.c;
    quire_fence *fence = nullptr;
    quire_queue *other = nullptr;
    c.must(c.api.fence_create(c.device, 0, &fence, &c.error));
    c.must(c.api.queue_create(c.device, nullptr, &other, &c.error));
    EXPECT_EQ(c.api.queue_after(scene.queue, fence, 1, &c.error), QUIRE_E_BUSY);
    EXPECT_NE(std::strstr(c.error.message, "signal the fence first"), nullptr) << c.error.message;
    // A signal that its own queue holds back is not in flight either.
    c.must(c.api.queue_after(other, fence, 1, &c.error));
    c.must(c.api.queue_signal(other, fence, 3, &c.error));
    EXPECT_EQ(c.api.queue_after(scene.queue, fence, 2, &c.error), QUIRE_E_BUSY);
    c.must(c.api.fence_signal(fence, 1, &c.error));
    EXPECT_EQ(c.api.queue_after(scene.queue, fence, 3, &c.error), QUIRE_OK) << c.error.message;
    c.must(c.api.queue_sync(scene.queue, &c.error));
    c.must(c.api.queue_destroy(other, &c.error));
    c.must(c.api.fence_destroy(fence, &c.error));
}

// The validation layer ends the process if two threads use one VkQueue at once.
TEST_F(VulkanEngine, its_lock_keeps_its_threads_and_the_library_apart) {
    Scene scene(&engine, true);
    EngineBuffer from = engine.make_buffer(64), to = engine.make_buffer(64);
    std::thread submits([&] {
        for (int i = 0; i < 200; ++i) engine.submit(from.address, to.address, 64, nullptr, nullptr);
    });
    for (int i = 0; i < 20; ++i) {
        quire_step step = scene.begin(1);
        scene.write_and_attend();
        scene.finish(step);
        scene.c.must(scene.c.api.queue_sync(scene.queue, &scene.c.error));
    }
    submits.join();
    engine.finish();
    engine.destroy(from);
    engine.destroy(to);
}

TEST_F(VulkanEngine, its_device_goes_on_when_the_librarys_is_closed) {
    EngineBuffer from = engine.make_buffer(64), to = engine.make_buffer(64);
    for (int i = 0; i < 3; ++i) {
        {
            Scene scene(&engine, i != 1);
            quire_step step = scene.begin(1);
            scene.write_and_attend();
            scene.finish(step);
        }
        from.numbers[0] = static_cast<float>(i);
        engine.submit(from.address, to.address, 64, nullptr, nullptr);
        engine.finish();
        EXPECT_EQ(to.numbers[0], 2.0f * static_cast<float>(i));
    }
    engine.destroy(from);
    engine.destroy(to);
}

}  // namespace
