// SPDX-License-Identifier: Apache-2.0
//
// Devices opened INLINE: the work has run when its call returns, unless something must be waited
// for, and it has the bits of any other device's.

#include <cfenv>
#include <cmath>
#include <cstring>
#include <thread>

#include "cpu_cache.hpp"

namespace quire::test {

namespace {

constexpr uint32_t kTokens = 150, kWidth = 64;
constexpr float kUntouched = -77;

// A committed step of one prompt, whose K and V are written and attended to.
class Prompt {
 public:
    explicit Prompt(uint32_t device_flags, uint32_t threads)
        : cpu_({.blocks = 16, .threads = threads, .device_flags = device_flags}) {
        auto attention = described<quire_attention_desc>();
        attention.q_heads = 1;
        auto desc = described<quire_batch_desc>();
        desc.max_rows = 1;
        desc.max_blocks_per_row = 16;
        desc.max_query_tokens = kTokens;
        desc.attention = &attention;
        desc.attention_count = 1;
        desc.attention_stride = sizeof attention;
        cpu_.must(cpu_.api.batch_create(cpu_.cache, &desc, &batch_, &cpu_.error));
        cpu_.must(cpu_.api.queue_create(cpu_.device, nullptr, &queue_, &cpu_.error));
        cpu_.must(cpu_.api.fence_create(cpu_.device, 0, &fence_, &cpu_.error));
        for (uint32_t i = 0; i < kTokens * kWidth; ++i) {
            values_.push_back(std::sin(static_cast<float>(i)) * 100);
        }
        out_.assign(kTokens * kWidth, kUntouched);
        std::vector<uint32_t> tokens(kTokens, 5);
        quire_step_result result{};
        step_ = cpu_.begin(queue_, cpu_.create(), tokens, &result);
        cpu_.must(cpu_.api.step_commit(cpu_.cache, step_, batch_, &cpu_.error));
    }
    Prompt(const Prompt &) = delete;
    Prompt &operator=(const Prompt &) = delete;
    ~Prompt() {
        cpu_.must(cpu_.api.step_finish(cpu_.cache, step_, nullptr, QUIRE_STEP_OK, &cpu_.error));
        EXPECT_GE(cpu_.api.queue_sync(queue_, nullptr), 0);
        EXPECT_GE(cpu_.api.fence_destroy(fence_, nullptr), 0);
        EXPECT_GE(cpu_.api.batch_destroy(batch_, nullptr), 0);
        EXPECT_GE(cpu_.api.queue_destroy(queue_, nullptr), 0);
    }

    // Enqueues all of it, and then a signal of 1.
    void enqueue() {
        auto kv = described<quire_kv_args>();
        kv.k = kv.v = reinterpret_cast<uint64_t>(values_.data());
        cpu_.must(cpu_.api.kv_write(batch_, &kv, queue_, &cpu_.error));
        auto args = described<quire_attend_args>();
        args.q = reinterpret_cast<uint64_t>(values_.data());
        args.out = reinterpret_cast<uint64_t>(out_.data());
        cpu_.must(cpu_.api.attend(batch_, &args, queue_, &cpu_.error));
        signal(1);
    }

    void signal(uint64_t value) {
        cpu_.must(cpu_.api.queue_signal(queue_, fence_, value, &cpu_.error));
    }
    uint64_t reached() {
        uint64_t value = 0;
        cpu_.must(cpu_.api.fence_read(fence_, &value, &cpu_.error));
        return value;
    }
    void sync() { cpu_.must(cpu_.api.queue_sync(queue_, &cpu_.error)); }

    CpuCache &cpu() { return cpu_; }
    quire_queue *queue() { return queue_; }
    const std::vector<float> &out() const { return out_; }

 private:
    CpuCache cpu_;
    quire_queue *queue_ = nullptr;
    quire_fence *fence_ = nullptr;
    quire_batch *batch_ = nullptr;
    quire_step step_ = 0;
    std::vector<float> values_, out_;
};

}  // namespace

TEST(Inline, work_has_run_when_its_call_returns_with_the_bits_of_another_device) {
    Prompt other(0, 1);
    other.enqueue();
    other.sync();
    for (uint32_t threads : {1u, 3u}) {
        Prompt prompt(QUIRE_DEVICE_INLINE, threads);
        std::fesetround(FE_UPWARD);
        prompt.enqueue();
        EXPECT_EQ(std::fegetround(), FE_UPWARD) << "the caller's rounding mode was changed";
        std::fesetround(FE_TONEAREST);
        EXPECT_EQ(prompt.reached(), 1u);
        EXPECT_EQ(std::memcmp(prompt.out().data(), other.out().data(),
                              other.out().size() * sizeof(float)),
                  0)
            << threads << " threads";
    }
}

TEST(Inline, call_does_not_wait_for_a_fence) {
    Prompt prompt(QUIRE_DEVICE_INLINE, 1);
    CpuCache &cpu = prompt.cpu();
    quire_fence *gate = nullptr;
    cpu.must(cpu.api.fence_create(cpu.device, 0, &gate, &cpu.error));
    cpu.must(cpu.api.queue_after(prompt.queue(), gate, 1, &cpu.error));
    prompt.enqueue();
    EXPECT_EQ(prompt.reached(), 0u);
    EXPECT_EQ(prompt.out()[0], kUntouched);
    cpu.must(cpu.api.fence_signal(gate, 1, &cpu.error));
    prompt.sync();
    EXPECT_EQ(prompt.reached(), 1u);
    EXPECT_NE(prompt.out()[0], kUntouched);
    // The thread that waited leaves the next call to its caller again.
    for (uint64_t value = 2; value < 2000 && prompt.reached() + 1 == value; ++value) {
        prompt.signal(value);
    }
    prompt.sync();
    cpu.must(cpu.api.fence_destroy(gate, &cpu.error));
}

TEST(Inline, calls_of_many_threads_keep_their_order) {
    constexpr uint32_t kThreads = 4, kCalls = 2000;
    Prompt prompt(QUIRE_DEVICE_INLINE, 1);
    CpuCache &cpu = prompt.cpu();
    std::vector<quire_fence *> fences(kThreads);
    std::vector<std::thread> threads;
    for (quire_fence *&fence : fences) {
        cpu.must(cpu.api.fence_create(cpu.device, 0, &fence, &cpu.error));
        threads.emplace_back([&prompt, &cpu, &fence] {
            quire_error error{};
            error.struct_size = sizeof error;
            for (uint64_t value = 1; value <= kCalls; ++value) {
                ASSERT_GE(cpu.api.queue_signal(prompt.queue(), fence, value, &error), 0);
                if (value % 64 != 0) continue;
                ASSERT_EQ(cpu.api.fence_wait(fence, value, 30'000'000'000, &error), QUIRE_OK);
            }
        });
    }
    for (std::thread &thread : threads) thread.join();
    prompt.sync();
    for (quire_fence *fence : fences) {
        uint64_t value = 0;
        cpu.must(cpu.api.fence_read(fence, &value, &cpu.error));
        EXPECT_EQ(value, kCalls);
        cpu.must(cpu.api.fence_destroy(fence, &cpu.error));
    }
}

TEST(Inline, is_refused_together_with_threads_of_the_engine) {
    const quire_api &api = library();
    quire_error error{};
    error.struct_size = sizeof error;
    auto instance_desc = described<quire_instance_desc>();
    quire_instance *instance = nullptr;
    ASSERT_GE(api.instance_create(&instance_desc, &instance, &error), 0);
    auto desc = described<quire_device_desc>();
    desc.backend = "cpu";
    desc.flags = QUIRE_DEVICE_INLINE;
    desc.run_tasks = [](void *, uint32_t, quire_task, void *) {};
    quire_device *device = nullptr;
    EXPECT_EQ(api.device_open(instance, &desc, &device, &error), QUIRE_E_ARG);
    EXPECT_NE(std::strstr(error.message, "INLINE"), nullptr) << error.message;
    EXPECT_GE(api.instance_destroy(instance, &error), 0);
}

}  // namespace quire::test
