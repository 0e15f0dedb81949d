// SPDX-License-Identifier: Apache-2.0
//
// Kernels on the engine's threads: the same bits as on the library's threads, whichever threads run
// them, and an error message for every promise that the engine's threads break.

#include <atomic>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <thread>

#include "cpu_cache.hpp"

namespace quire::test {

namespace {

constexpr uint32_t kTokens = 150, kWidth = 64;

// Runs tasks as `way` says, and counts them.
struct HostPool {
    using Way = std::function<void(uint32_t task_count, quire_task task, void *context)>;

    explicit HostPool(Way way) : way(std::move(way)) {}
    static void run(void *user, uint32_t task_count, quire_task task, void *context) {
        auto *pool = static_cast<HostPool *>(user);
        ++pool->calls;
        if (task_count > pool->most_tasks) pool->most_tasks = task_count;
        pool->way(task_count, task, context);
    }

    Way way;
    std::atomic<uint32_t> calls{0};
    std::atomic<uint32_t> most_tasks{0};
};

void run_in_order(uint32_t task_count, quire_task task, void *context) {
    for (uint32_t i = 0; i < task_count; ++i) task(context, i);
}

void run_at_once(uint32_t task_count, quire_task task, void *context) {
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < task_count; ++i) {
        threads.emplace_back([=] {
            std::fesetround(FE_UPWARD);
            task(context, i);
            EXPECT_EQ(std::fegetround(), FE_UPWARD) << "a task did not restore the rounding mode";
        });
    }
    for (std::thread &thread : threads) thread.join();
}

// Writes one prompt and attends to it.
class Prompt {
 public:
    explicit Prompt(const CacheShape &shape) : cpu_(shape) {
        cpu_.must(cpu_.api.queue_create(cpu_.device, nullptr, &queue_, &cpu_.error));
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
        for (uint32_t i = 0; i < kTokens * kWidth; ++i) {
            auto angle = static_cast<float>(i);
            q_.push_back(std::sin(angle)), k_.push_back(std::cos(3 * angle));
            v_.push_back(std::sin(7 * angle) * 100);
        }
        out_.assign(kTokens * kWidth, -1);
    }
    Prompt(const Prompt &) = delete;
    Prompt &operator=(const Prompt &) = delete;
    ~Prompt() {
        EXPECT_GE(cpu_.api.batch_destroy(batch_, nullptr), 0);
        EXPECT_GE(cpu_.api.queue_destroy(queue_, nullptr), 0);
    }

    // The queue's status after all of it has run.
    quire_status run() {
        // The gate holds the queue, so that the step is finished before the queue can stop.
        quire_fence *gate = nullptr;
        cpu_.must(cpu_.api.fence_create(cpu_.device, 0, &gate, &cpu_.error));
        cpu_.must(cpu_.api.queue_after(queue_, gate, 1, &cpu_.error));
        std::vector<uint32_t> tokens(kTokens, 5);
        quire_step_result result{};
        quire_step step = cpu_.begin(queue_, cpu_.create(), tokens, &result);
        cpu_.must(cpu_.api.step_commit(cpu_.cache, step, batch_, &cpu_.error));
        auto kv = described<quire_kv_args>();
        kv.k = reinterpret_cast<uint64_t>(k_.data());
        kv.v = reinterpret_cast<uint64_t>(v_.data());
        cpu_.must(cpu_.api.kv_write(batch_, &kv, queue_, &cpu_.error));
        auto args = described<quire_attend_args>();
        args.q = reinterpret_cast<uint64_t>(q_.data());
        args.out = reinterpret_cast<uint64_t>(out_.data());
        cpu_.must(cpu_.api.attend(batch_, &args, queue_, &cpu_.error));
        cpu_.must(cpu_.api.step_finish(cpu_.cache, step, nullptr, QUIRE_STEP_OK, &cpu_.error));
        cpu_.must(cpu_.api.fence_signal(gate, 1, &cpu_.error));
        quire_status synced = cpu_.api.queue_sync(queue_, &cpu_.error);
        cpu_.must(cpu_.api.fence_destroy(gate, nullptr));
        // Whether or not this call met the failure in time, the next one does, and says why.
        quire_status answer = cpu_.api.queue_sync(queue_, &cpu_.error);
        EXPECT_EQ(synced, answer) << cpu_.error.message;
        return answer;
    }

    // A step whose queue stops while it is committed: the statuses of finishing it as succeeded and
    // as failed.
    std::pair<quire_status, quire_status> finish_stopped() {
        std::vector<uint32_t> tokens(kTokens, 5);
        quire_step_result result{};
        quire_step step = cpu_.begin(queue_, cpu_.create(), tokens, &result);
        cpu_.must(cpu_.api.step_commit(cpu_.cache, step, batch_, &cpu_.error));
        auto args = described<quire_attend_args>();
        args.q = reinterpret_cast<uint64_t>(q_.data());
        args.out = reinterpret_cast<uint64_t>(out_.data());
        cpu_.must(cpu_.api.attend(batch_, &args, queue_, &cpu_.error));
        EXPECT_EQ(cpu_.api.queue_sync(queue_, &cpu_.error), QUIRE_E_DEVICE_LOST);
        quire_status good =
            cpu_.api.step_finish(cpu_.cache, step, nullptr, QUIRE_STEP_OK, &cpu_.error);
        quire_status failed =
            cpu_.api.step_finish(cpu_.cache, step, nullptr, QUIRE_STEP_FAILED, &cpu_.error);
        EXPECT_EQ(cpu_.api.cache_check(cpu_.cache, &cpu_.error), QUIRE_OK) << message();
        return {good, failed};
    }

    std::string message() const { return cpu_.error.message; }
    const std::vector<float> &out() const { return out_; }

 private:
    CpuCache cpu_;
    quire_queue *queue_ = nullptr;
    quire_batch *batch_ = nullptr;
    std::vector<float> q_, k_, v_, out_;
};

bool same_bits(const std::vector<float> &a, const std::vector<float> &b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0;
}

CacheShape on_library(uint32_t threads) { return {.blocks = 16, .threads = threads}; }

CacheShape on_host(HostPool *pool, uint32_t threads) {
    return {.blocks = 16, .threads = threads, .run_tasks = &HostPool::run, .run_tasks_user = pool};
}

// Runs a prompt on a pool of 4 tasks and returns the stopped queue's message.
std::string misuse(const HostPool::Way &way) {
    HostPool pool(way);
    Prompt prompt(on_host(&pool, 4));
    EXPECT_EQ(prompt.run(), QUIRE_E_DEVICE_LOST);
    return prompt.message();
}

}  // namespace

TEST(HostThreads, give_the_bits_of_the_librarys_own) {
    Prompt alone(on_library(1));
    ASSERT_EQ(alone.run(), QUIRE_OK) << alone.message();
    for (uint32_t threads : {2u, 3u, 7u}) {
        Prompt own(on_library(threads));
        ASSERT_EQ(own.run(), QUIRE_OK) << own.message();
        EXPECT_TRUE(same_bits(own.out(), alone.out())) << threads;
        for (const HostPool::Way &way : {HostPool::Way(run_in_order), HostPool::Way(run_at_once)}) {
            HostPool pool(way);
            Prompt host(on_host(&pool, threads));
            ASSERT_EQ(host.run(), QUIRE_OK) << host.message();
            EXPECT_TRUE(same_bits(host.out(), alone.out())) << threads;
            EXPECT_GT(pool.calls, 0u);
            EXPECT_GT(pool.most_tasks, 1u);
            EXPECT_LE(pool.most_tasks, threads);
        }
    }
}

TEST(HostThreads, need_not_be_there_for_one_thread) {
    HostPool pool([](uint32_t, quire_task, void *) { ADD_FAILURE() << "nothing is shared"; });
    Prompt prompt(on_host(&pool, 1));
    EXPECT_EQ(prompt.run(), QUIRE_OK) << prompt.message();
}

TEST(HostThreads, task_that_is_left_out_stops_the_queue) {
    std::string said = misuse([](uint32_t task_count, quire_task task, void *context) {
        run_in_order(task_count - 1, task, context);
    });
    EXPECT_NE(said.find("run_tasks skipped 1 tasks, ran 0 twice"), std::string::npos) << said;
}

TEST(HostThreads, kernel_that_is_not_run_at_all_stops_the_queue) {
    std::string said = misuse([](uint32_t, quire_task, void *) {});
    EXPECT_NE(said.find("tasks, ran 0 twice, and ran 0 after"), std::string::npos) << said;
}

TEST(HostThreads, step_of_a_queue_that_stopped_can_be_failed) {
    HostPool pool([](uint32_t, quire_task, void *) {});
    Prompt prompt(on_host(&pool, 4));
    auto [good, failed] = prompt.finish_stopped();
    EXPECT_EQ(good, QUIRE_E_DEVICE_LOST);
    EXPECT_EQ(failed, QUIRE_OK) << prompt.message();
}

TEST(HostThreads, task_that_runs_twice_stops_the_queue) {
    std::string said = misuse([](uint32_t task_count, quire_task task, void *context) {
        run_at_once(task_count, task, context);
        task(context, 1);
    });
    EXPECT_NE(said.find("skipped 0 tasks, ran 1 twice"), std::string::npos) << said;
}

TEST(HostThreads, task_that_never_was_stops_the_queue) {
    std::string said = misuse([](uint32_t task_count, quire_task task, void *context) {
        run_in_order(task_count, task, context);
        task(context, UINT32_MAX);
    });
    EXPECT_NE(said.find("skipped 0 tasks, ran 1 twice"), std::string::npos) << said;
}

TEST(HostThreads, task_that_comes_late_runs_nothing_and_is_counted) {
    quire_task kept_task = nullptr;
    void *kept_context = nullptr;
    HostPool pool([&](uint32_t task_count, quire_task task, void *context) {
        run_in_order(task_count, task, context);
        kept_task = task;
        kept_context = context;
    });
    Prompt prompt(on_host(&pool, 4));
    ASSERT_EQ(prompt.run(), QUIRE_OK) << prompt.message();
    std::vector<float> before = prompt.out();
    kept_task(kept_context, 0);  // run_tasks has returned
    EXPECT_TRUE(same_bits(prompt.out(), before));
    EXPECT_EQ(prompt.run(), QUIRE_E_DEVICE_LOST);
    EXPECT_NE(prompt.message().find("and ran 1 after it had returned"), std::string::npos)
        << prompt.message();
}

TEST(HostThreads, kernel_waits_for_tasks_that_its_callback_left_running) {
    std::vector<std::thread> running;
    std::atomic<uint32_t> begun{0};
    HostPool pool([&](uint32_t task_count, quire_task task, void *context) {
        for (uint32_t i = 0; i < task_count; ++i) {
            running.emplace_back([&begun, task, context, i] {
                ++begun;
                task(context, i);
            });
        }
        while (begun < task_count) std::this_thread::yield();
        begun = 0;
    });
    {
        Prompt prompt(on_host(&pool, 4));
        prompt.run();  // either all entered in time, or the queue is stopped
        for (std::thread &thread : running) thread.join();
    }
    EXPECT_GE(running.size(), 2u);
}

TEST(HostThreads, pinning_them_is_refused) {
    CpuCache cpu({.blocks = 2});
    auto desc = described<quire_device_desc>();
    desc.flags = QUIRE_DEVICE_PIN_THREADS;
    desc.run_tasks = &HostPool::run;
    quire_device *device = nullptr;
    EXPECT_EQ(cpu.api.device_open(cpu.instance, &desc, &device, &cpu.error), QUIRE_E_ARG);
    EXPECT_EQ(device, nullptr);
    EXPECT_NE(std::string(cpu.error.message).find("run_tasks"), std::string::npos);
}

}  // namespace quire::test
