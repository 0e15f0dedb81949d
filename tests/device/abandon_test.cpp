// SPDX-License-Identifier: Apache-2.0
//
// Giving up a device that no longer responds: it takes effect at once, whatever hangs; nothing that
// the device may touch is given back, every handle is reported as stale, and the process goes on.

#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "cpu_cache.hpp"
#include "hanging.hpp"
#include "tests/place.hpp"

namespace {

using namespace quire::test;

// A cache on a device of the hanging backend, with the other objects that an engine has.
class Abandon : public testing::Test {
 protected:
    Abandon() {
        std::string path = quire::tests::place(QUIRE_HANGING);
        void *module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
        find(module, "quire_hanging_plant", &plant_);
        find(module, "quire_hanging_inside", &inside_);
        find(module, "quire_hanging_release", &release_);
        find(module, "quire_hanging_given_back", &given_back_);
        plant_(0);
        error_.struct_size = sizeof error_;
        auto instance = described<quire_instance_desc>();
        must(api_.instance_create(&instance, &instance_, &error_));
        uint32_t index = 0;
        must(api_.backend_load(instance_, path.c_str(), &index, &error_));
        device_ = open();
        must(api_.queue_create(device_, nullptr, &queue_, &error_));
        must(api_.fence_create(device_, 0, &fence_, &error_));
        auto memory = described<quire_memory_desc>();
        memory.size_bytes = kMemoryBytes;
        must(api_.memory_create(device_, &memory, &memory_, &error_));
        create_cache();
    }

    template <typename Function>
    static void find(void *module, const char *name, Function *out) {
        *out = reinterpret_cast<Function>(dlsym(module, name));
        ASSERT_NE(*out, nullptr) << name;
    }
    void must(quire_status status) { ASSERT_GE(status, 0) << error_.message; }

    quire_device *open() {
        auto desc = described<quire_device_desc>();
        desc.backend = "hanging";
        desc.threads = 1;
        quire_device *device = nullptr;
        must(api_.device_open(instance_, &desc, &device, &error_));
        return device;
    }
    void create_cache() {
        auto group = described<quire_group_desc>();
        group.layer_count = group.kv_heads = 1;
        group.k_head_dim = group.v_head_dim = 64;
        group.k_dtype = QUIRE_DTYPE_F32;
        auto shard = described<quire_shard_desc>();
        shard.device = device_;
        auto desc = described<quire_cache_desc>();
        desc.groups = &group;
        desc.group_count = 1;
        desc.group_stride = sizeof group;
        desc.shards = &shard;
        desc.shard_count = 1;
        desc.shard_stride = sizeof shard;
        desc.blocks = 9;
        desc.host_blocks = 3;
        must(api_.cache_create(instance_, &desc, &cache_, &error_));
        auto attention = described<quire_attention_desc>();
        attention.q_heads = 1;
        auto batch = described<quire_batch_desc>();
        batch.max_rows = batch.max_blocks_per_row = 4;
        batch.max_query_tokens = 64;
        batch.attention = &attention;
        batch.attention_count = 1;
        batch.attention_stride = sizeof attention;
        must(api_.batch_create(cache_, &batch, &batch_, &error_));
        auto seq = described<quire_seq_desc>();
        must(api_.seq_create(cache_, &seq, &seq_, &error_));
    }
    quire_status begin(quire_step *step, uint32_t tokens = 20) {
        auto desc = described<quire_step_desc>();
        desc.queues = &queue_;
        desc.queue_count = 1;
        std::vector<quire_token> given(tokens, 7);
        quire_step_item item{};
        item.seq = seq_;
        item.token_count = tokens;
        quire_step_result result{};
        return api_.step_begin(cache_, &desc, &item, tokens != 0, sizeof item, given.data(), tokens,
                               &result, sizeof result, step, &error_);
    }
    // A step whose work never ends.
    quire_step run() {
        quire_step step = 0;
        must(begin(&step));
        must(api_.step_commit(cache_, step, batch_, &error_));
        must(api_.step_finish(cache_, step, nullptr, QUIRE_STEP_OK, &error_));
        return step;
    }
    uint64_t cache_bytes() {
        auto info = described<quire_cache_info>();
        must(api_.cache_get_info(cache_, &info, &error_));
        return info.pool_bytes;
    }
    quire_status abandon_cache(quire_abandon_info *info = nullptr) {
        auto unread = described<quire_abandon_info>();
        return api_.cache_abandon(cache_, info != nullptr ? info : &unread, &error_);
    }
    quire_status abandon_device(quire_abandon_info *info = nullptr) {
        return abandon_device(device_, info);
    }
    quire_status abandon_device(quire_device *device, quire_abandon_info *info = nullptr) {
        auto unread = described<quire_abandon_info>();
        return api_.device_abandon(device, info != nullptr ? info : &unread, &error_);
    }
    void await_inside(uint32_t calls) {
        while (inside_() != calls) std::this_thread::yield();
    }

    void expect_stale_cache() {
        auto seq = described<quire_seq_desc>();
        auto info = described<quire_seq_info>();
        auto views = described<quire_batch_views>();
        auto stats = described<quire_cache_stats>();
        auto kv = described<quire_kv_args>();
        auto attend = described<quire_attend_args>();
        quire_seq out = 0;
        quire_step step = 0;
        uint64_t size = 0;
        EXPECT_EQ(api_.seq_create(cache_, &seq, &out, &error_), QUIRE_E_STALE);
        EXPECT_NE(std::string(error_.message).find("the cache was abandoned"), std::string::npos);
        EXPECT_EQ(api_.seq_get_info(cache_, seq_, &info, &error_), QUIRE_E_STALE);
        EXPECT_EQ(begin(&step), QUIRE_E_STALE);
        EXPECT_EQ(api_.cache_check(cache_, &error_), QUIRE_E_STALE);
        EXPECT_EQ(api_.cache_dump(cache_, 0, nullptr, 0, &size, &error_), QUIRE_E_STALE);
        EXPECT_EQ(api_.cache_get_stats(cache_, &stats, &error_), QUIRE_E_STALE);
        EXPECT_EQ(api_.batch_get_views(batch_, 0, 0, &views, &error_), QUIRE_E_STALE);
        EXPECT_EQ(api_.kv_write(batch_, &kv, queue_, &error_), QUIRE_E_STALE);
        EXPECT_EQ(api_.attend(batch_, &attend, queue_, &error_), QUIRE_E_STALE);
        EXPECT_EQ(api_.batch_destroy(batch_, &error_), QUIRE_E_STALE);
        EXPECT_EQ(api_.cache_destroy(cache_, &error_), QUIRE_E_STALE);
        EXPECT_EQ(abandon_cache(), QUIRE_E_STALE);
    }
    void expect_stale_device() {
        auto info = described<quire_device_info>();
        auto memory = described<quire_memory_info>();
        auto desc = described<quire_memory_desc>();
        desc.size_bytes = 64;
        quire_queue *queue = nullptr;
        quire_fence *fence = nullptr;
        quire_memory *made = nullptr;
        uint64_t value = 0;
        EXPECT_EQ(api_.device_get_info(device_, &info, &error_), QUIRE_E_STALE);
        EXPECT_NE(std::string(error_.message).find("the device was abandoned"), std::string::npos);
        EXPECT_EQ(api_.queue_create(device_, nullptr, &queue, &error_), QUIRE_E_STALE);
        EXPECT_EQ(api_.fence_create(device_, 0, &fence, &error_), QUIRE_E_STALE);
        EXPECT_EQ(api_.memory_create(device_, &desc, &made, &error_), QUIRE_E_STALE);
        EXPECT_EQ(api_.queue_sync(queue_, &error_), QUIRE_E_STALE);
        EXPECT_EQ(api_.queue_signal(queue_, fence_, 1, &error_), QUIRE_E_STALE);
        EXPECT_EQ(api_.queue_after(queue_, fence_, 1, &error_), QUIRE_E_STALE);
        EXPECT_EQ(api_.fence_read(fence_, &value, &error_), QUIRE_E_STALE);
        EXPECT_EQ(api_.fence_signal(fence_, 1, &error_), QUIRE_E_STALE);
        EXPECT_EQ(api_.fence_wait(fence_, 1, 0, &error_), QUIRE_E_STALE);
        EXPECT_EQ(api_.memory_get_info(memory_, &memory, &error_), QUIRE_E_STALE);
        EXPECT_EQ(api_.memory_copy(queue_, memory_, 0, memory_, 8, 8, &error_), QUIRE_E_STALE);
        EXPECT_EQ(api_.memory_destroy(memory_, &error_), QUIRE_E_STALE);
        EXPECT_EQ(api_.fence_destroy(fence_, &error_), QUIRE_E_STALE);
        EXPECT_EQ(api_.queue_destroy(queue_, &error_), QUIRE_E_STALE);
        EXPECT_EQ(api_.queue_abandon(queue_, &error_), QUIRE_E_STALE);
        EXPECT_EQ(api_.device_close(device_, &error_), QUIRE_E_STALE);
        EXPECT_EQ(abandon_device(), QUIRE_E_STALE);
    }
    // The other objects work, and nothing was given back.
    void expect_life_goes_on(uint32_t given_back) {
        EXPECT_EQ(given_back_(), given_back);
        EXPECT_EQ(api_.instance_destroy(instance_, &error_), QUIRE_OK) << error_.message;
        expect_stale_cache();
        expect_stale_device();
        EXPECT_EQ(given_back_(), given_back);
        CpuCache other({.blocks = 9});
        EXPECT_NE(other.create(), 0u);
    }

    static constexpr uint64_t kMemoryBytes = 12'345;
    const quire_api &api_ = library();
    quire_error error_{};
    quire_instance *instance_ = nullptr;
    quire_device *device_ = nullptr;
    quire_queue *queue_ = nullptr;
    quire_fence *fence_ = nullptr;
    quire_memory *memory_ = nullptr;
    quire_cache *cache_ = nullptr;
    quire_batch *batch_ = nullptr;
    quire_seq seq_ = 0;
    decltype(&quire_hanging_plant) plant_ = nullptr;
    decltype(&quire_hanging_inside) inside_ = nullptr;
    decltype(&quire_hanging_release) release_ = nullptr;
    decltype(&quire_hanging_given_back) given_back_ = nullptr;
};

TEST_F(Abandon, ends_a_cache_whose_fences_never_come) {
    plant_(kFencesNeverSignal);
    run();
    uint32_t given_back = given_back_();
    EXPECT_EQ(api_.batch_destroy(batch_, &error_), QUIRE_E_BUSY);
    EXPECT_EQ(api_.cache_destroy(cache_, &error_), QUIRE_E_BUSY);
    EXPECT_EQ(abandon_device(), QUIRE_E_BUSY);
    EXPECT_NE(std::string(error_.message).find("1 of them"), std::string::npos) << error_.message;
    EXPECT_EQ(abandon_cache(), QUIRE_OK) << error_.message;
    EXPECT_EQ(api_.queue_destroy(queue_, &error_), QUIRE_E_BUSY) << "its steps are not done";
    EXPECT_EQ(api_.device_close(device_, &error_), QUIRE_E_BUSY);
    EXPECT_EQ(api_.instance_destroy(instance_, &error_), QUIRE_E_BUSY);
    EXPECT_EQ(abandon_device(), QUIRE_OK) << error_.message;
    expect_life_goes_on(given_back);
}

TEST_F(Abandon, ends_a_cache_whose_reads_fail_for_good) {
    run();
    must(api_.queue_sync(queue_, &error_));
    plant_(kReadsFail);
    uint32_t given_back = given_back_();
    quire_step step = 0;
    EXPECT_EQ(begin(&step), QUIRE_E_DEVICE_LOST);
    EXPECT_EQ(api_.cache_destroy(cache_, &error_), QUIRE_E_BUSY);
    EXPECT_EQ(abandon_cache(), QUIRE_OK) << error_.message;
    EXPECT_EQ(abandon_device(), QUIRE_OK) << error_.message;
    expect_life_goes_on(given_back);
}

TEST_F(Abandon, says_what_is_left) {
    alignas(4096) static char own[8192];
    auto desc = described<quire_memory_desc>();
    desc.kind = QUIRE_MEMORY_HOST;
    desc.size_bytes = sizeof own;
    desc.host_pointer = own;
    quire_memory *imported = nullptr;
    must(api_.memory_create(device_, &desc, &imported, &error_));
    uint64_t pool_bytes = cache_bytes();
    auto of_cache = described<quire_abandon_info>();
    auto of_device = described<quire_abandon_info>();
    EXPECT_EQ(abandon_cache(&of_cache), QUIRE_OK);
    EXPECT_EQ(abandon_device(&of_device), QUIRE_OK);
    EXPECT_GT(of_cache.device_bytes, pool_bytes) << "the batch too";
    EXPECT_GT(of_cache.host_bytes, pool_bytes / 9 * 3) << "the host tier, and the batch";
    EXPECT_EQ(of_cache.engine_bytes, 0u);
    EXPECT_EQ(of_device.device_bytes, of_cache.device_bytes + kMemoryBytes);
    EXPECT_EQ(of_device.host_bytes, of_cache.host_bytes);
    EXPECT_EQ(of_device.engine_bytes, sizeof own);
    EXPECT_EQ(api_.memory_destroy(imported, &error_), QUIRE_E_STALE);
    EXPECT_EQ(api_.instance_destroy(instance_, &error_), QUIRE_OK);
}

TEST_F(Abandon, of_what_was_destroyed_leaves_nothing) {
    auto info = described<quire_abandon_info>();
    must(api_.batch_destroy(batch_, &error_));
    must(api_.cache_destroy(cache_, &error_));
    must(api_.memory_destroy(memory_, &error_));
    EXPECT_EQ(abandon_device(&info), QUIRE_OK) << error_.message;
    EXPECT_EQ(info.device_bytes, 0u);
    EXPECT_EQ(info.host_bytes, 0u);
    EXPECT_EQ(api_.instance_destroy(instance_, &error_), QUIRE_OK);
}

TEST_F(Abandon, waits_for_no_call_that_hangs_inside_the_driver) {
    plant_(kCopiesHang);
    uint32_t given_back = given_back_();
    quire_step step = 0;
    must(begin(&step));
    std::atomic<quire_status> committed{1}, created{1}, copied{1};
    std::thread inside([&] { committed = api_.step_commit(cache_, step, batch_, nullptr); });
    await_inside(1);  // inside the call, holding the locks of the cache and the queue
    std::thread behind_cache([&] {
        auto desc = described<quire_seq_desc>();
        quire_seq out = 0;
        created = api_.seq_create(cache_, &desc, &out, nullptr);
    });
    std::thread behind_queue(
        [&] { copied = api_.memory_copy(queue_, memory_, 0, memory_, 64, 8, nullptr); });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(created, 1);
    EXPECT_EQ(abandon_cache(), QUIRE_OK) << error_.message;
    behind_cache.join();
    EXPECT_EQ(created, QUIRE_E_STALE);
    EXPECT_EQ(copied, 1);
    EXPECT_EQ(abandon_device(), QUIRE_OK) << error_.message;
    behind_queue.join();
    EXPECT_EQ(copied, QUIRE_E_STALE);
    EXPECT_EQ(inside_(), 1u);
    EXPECT_EQ(committed, 1);
    expect_life_goes_on(given_back);
    release_();
    inside.join();
    EXPECT_LT(committed, 0) << "the call returned from the driver after its instance was destroyed";
    EXPECT_EQ(given_back_(), given_back);
}

TEST_F(Abandon, leaves_waits_that_hang_where_they_are) {
    plant_(kWaitsHang);
    std::atomic<quire_status> waited{1}, synced{1};
    std::thread waits([&] { waited = api_.fence_wait(fence_, 1, UINT64_MAX, nullptr); });
    std::thread syncs([&] { synced = api_.queue_sync(queue_, nullptr); });
    await_inside(2);
    EXPECT_EQ(abandon_cache(), QUIRE_OK) << error_.message;
    EXPECT_EQ(abandon_device(), QUIRE_OK) << error_.message;
    EXPECT_EQ(api_.instance_destroy(instance_, &error_), QUIRE_OK);
    release_();
    waits.join();
    syncs.join();
    EXPECT_EQ(waited, QUIRE_E_DEVICE_LOST);
    EXPECT_EQ(synced, QUIRE_E_DEVICE_LOST);
}

TEST_F(Abandon, of_a_queue_frees_who_waits_for_it_and_keeps_what_its_steps_touch) {
    run();
    must(api_.queue_sync(queue_, &error_));
    plant_(kSignalsHang);
    std::atomic<quire_status> synced{1}, copied{1};
    std::thread syncs([&] { synced = api_.queue_sync(queue_, nullptr); });
    await_inside(1);
    std::thread behind(
        [&] { copied = api_.memory_copy(queue_, memory_, 0, memory_, 64, 8, nullptr); });
    quire_step open = 0;
    must(begin(&open, 1));
    EXPECT_EQ(api_.queue_abandon(queue_, &error_), QUIRE_OK) << error_.message;
    behind.join();
    EXPECT_EQ(copied, QUIRE_E_STALE);
    EXPECT_EQ(api_.queue_abandon(queue_, &error_), QUIRE_E_STALE);
    EXPECT_EQ(api_.queue_destroy(queue_, &error_), QUIRE_E_STALE);
    EXPECT_LT(api_.step_commit(cache_, open, nullptr, &error_), 0);
    quire_step never = 0;
    EXPECT_EQ(begin(&never, 1), QUIRE_E_STALE) << "a step on it";
    EXPECT_EQ(api_.cache_check(cache_, &error_), QUIRE_OK) << error_.message;
    EXPECT_EQ(api_.device_close(device_, &error_), QUIRE_E_BUSY);
    EXPECT_EQ(abandon_cache(), QUIRE_OK);
    EXPECT_EQ(abandon_device(), QUIRE_OK);
    EXPECT_EQ(api_.instance_destroy(instance_, &error_), QUIRE_OK);
    release_();
    syncs.join();
}

TEST_F(Abandon, steps_on_an_abandoned_queue_are_never_done) {
    plant_(kFencesNeverSignal);
    quire_step step = 0;
    must(begin(&step));
    must(api_.step_commit(cache_, step, batch_, &error_));
    EXPECT_EQ(api_.queue_abandon(queue_, &error_), QUIRE_OK);
    EXPECT_EQ(api_.step_finish(cache_, step, nullptr, QUIRE_STEP_OK, &error_), QUIRE_E_STALE);
    EXPECT_EQ(api_.step_finish(cache_, step, nullptr, QUIRE_STEP_FAILED, &error_), QUIRE_OK)
        << error_.message;
    EXPECT_EQ(api_.cache_check(cache_, &error_), QUIRE_OK) << error_.message;
    // Its blocks drain forever: no other queue gets them.
    must(api_.seq_end(cache_, seq_, 0, &error_));
    plant_(0);
    quire_queue *other = nullptr;
    must(api_.queue_create(device_, nullptr, &other, &error_));
    std::swap(queue_, other);
    auto seq = described<quire_seq_desc>();
    must(api_.seq_create(cache_, &seq, &seq_, &error_));
    must(begin(&step, 16 * 6));
    std::vector<int32_t> ids(8);
    uint32_t count = 0;
    must(api_.step_blocks(cache_, step, seq_, 0, 0, ids.data(), 8, &count, &error_));
    for (uint32_t i = 0; i < count; ++i) EXPECT_GT(ids[i], 2) << "the step used blocks 1 and 2";
    EXPECT_EQ(count, 6u);
    must(api_.step_abort(cache_, step, &error_));
    EXPECT_EQ(api_.cache_destroy(cache_, &error_), QUIRE_E_BUSY);
    EXPECT_EQ(abandon_cache(), QUIRE_OK);
    EXPECT_EQ(abandon_device(), QUIRE_OK);
    EXPECT_EQ(api_.instance_destroy(instance_, &error_), QUIRE_OK);
}

TEST_F(Abandon, of_a_cache_that_moves_leaves_both_places) {
    quire_device *target = open();
    auto shard = described<quire_shard_desc>();
    shard.device = target;
    auto desc = described<quire_migrate_desc>();
    desc.shards = &shard;
    desc.shard_count = 1;
    desc.shard_stride = sizeof shard;
    run();
    must(api_.queue_sync(queue_, &error_));
    plant_(kCopiesHang);
    std::atomic<quire_status> moved{1};
    std::thread moves([&] {
        auto info = described<quire_migrate_info>();
        moved = api_.cache_migrate_wait(cache_, &desc, &info, UINT64_MAX, nullptr);
    });
    await_inside(1);
    uint64_t pool_bytes = cache_bytes();
    EXPECT_EQ(abandon_device(target), QUIRE_E_BUSY);
    auto info = described<quire_abandon_info>();
    EXPECT_EQ(abandon_cache(&info), QUIRE_OK) << error_.message;
    EXPECT_GT(info.device_bytes, 2 * pool_bytes);
    release_();
    moves.join();
    EXPECT_LT(moved, 0);
    EXPECT_EQ(abandon_device(), QUIRE_OK) << error_.message;
    EXPECT_EQ(abandon_device(target), QUIRE_OK) << error_.message;
    EXPECT_EQ(api_.instance_destroy(instance_, &error_), QUIRE_OK);
}

// The cache is abandoned while a thread migrates it to another device.
class AbandonMove : public Abandon {
 protected:
    AbandonMove() {
        run();
        must(api_.queue_sync(queue_, &error_));
        target_ = open();
    }
    void move() {
        auto shard = described<quire_shard_desc>();
        shard.device = target_;
        auto desc = described<quire_migrate_desc>();
        desc.shards = &shard;
        desc.shard_count = 1;
        desc.shard_stride = sizeof shard;
        auto info = described<quire_migrate_info>();
        moved_ = api_.cache_migrate_wait(cache_, &desc, &info, UINT64_MAX, nullptr);
    }
    // Calls the cache until its calls are stale.
    void call() {
        auto desc = described<quire_seq_desc>();
        auto stats = described<quire_cache_stats>();
        for (quire_status status = QUIRE_OK; status != QUIRE_E_STALE;) {
            quire_seq seq = 0;
            status = api_.seq_create(cache_, &desc, &seq, nullptr);
            if (status == QUIRE_OK) status = api_.seq_end(cache_, seq, 0, nullptr);
            if (status == QUIRE_OK) status = api_.cache_get_stats(cache_, &stats, nullptr);
            if (status != QUIRE_OK && status != QUIRE_E_BUSY && status != QUIRE_E_STALE) ++wrong_;
        }
    }
    // While a call hangs in the driver, everything is abandoned and the process goes on; the call
    // returns only after that.
    void expect_no_waiting(uint64_t least_bytes) {
        std::thread moves([&] { move(); }), calls([&] { call(); });
        await_inside(1);
        uint64_t pool_bytes = cache_bytes();
        uint32_t given_back = given_back_();
        auto of_cache = described<quire_abandon_info>();
        auto of_source = described<quire_abandon_info>();
        auto of_target = described<quire_abandon_info>();
        EXPECT_EQ(abandon_device(target_), QUIRE_E_BUSY);
        EXPECT_EQ(abandon_cache(&of_cache), QUIRE_OK) << error_.message;
        calls.join();
        EXPECT_EQ(abandon_device(target_, &of_target), QUIRE_OK) << error_.message;
        EXPECT_EQ(abandon_device(&of_source), QUIRE_OK) << error_.message;
        EXPECT_GT(of_cache.device_bytes, least_bytes * pool_bytes);
        EXPECT_GE(of_source.device_bytes + of_target.device_bytes,
                  of_cache.device_bytes + kMemoryBytes);
        EXPECT_GE(of_source.host_bytes + of_target.host_bytes, of_cache.host_bytes);
        EXPECT_EQ(moved_, 1) << "it hangs";
        expect_life_goes_on(given_back);
        release_();
        moves.join();
        EXPECT_LT(moved_, 0);
        EXPECT_EQ(wrong_, 0u);
        EXPECT_EQ(given_back_(), given_back) << "an abandoned object was given back";
    }

    quire_device *target_ = nullptr;
    std::atomic<quire_status> moved_{1};
    std::atomic<uint32_t> wrong_{0};
};

TEST_F(AbandonMove, waits_for_no_copy_that_hangs) {
    plant_(kCopiesHang);
    expect_no_waiting(2);
}

TEST_F(AbandonMove, waits_for_no_copy_whose_fence_never_comes) {
    plant_(kFencesNeverSignal | kWaitsHang);
    expect_no_waiting(2);
}

TEST_F(AbandonMove, waits_for_no_step_that_the_move_waits_for) {
    plant_(kFencesNeverSignal | kWaitsHang);
    run();
    expect_no_waiting(1);  // nothing was created at the target yet
}

TEST_F(AbandonMove, comes_at_any_time) {
    for (uint32_t i = 0; i < 30; ++i) {
        if (i != 0) {
            device_ = open();
            target_ = open();
            must(api_.queue_create(device_, nullptr, &queue_, &error_));
            create_cache();
            run();
        }
        moved_ = 1;
        std::thread moves([&] { move(); }), calls([&] { call(); });
        auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(4 * i * i);
        while (std::chrono::steady_clock::now() < end) std::this_thread::yield();
        EXPECT_EQ(abandon_cache(), QUIRE_OK) << error_.message;
        if (i % 2 == 0) moves.join();
        EXPECT_EQ(abandon_device(), QUIRE_OK) << error_.message;
        EXPECT_EQ(abandon_device(target_), QUIRE_OK) << error_.message;
        if (i % 2 != 0) moves.join();
        calls.join();
        EXPECT_TRUE(moved_ == QUIRE_OK || moved_ == QUIRE_E_STALE) << moved_;
    }
    EXPECT_EQ(wrong_, 0u);
    EXPECT_EQ(api_.instance_destroy(instance_, &error_), QUIRE_OK) << error_.message;
    expect_stale_cache();
}

TEST_F(Abandon, meets_eight_threads_that_call_all_the_time) {
    std::atomic<uint32_t> wrong{0}, ready{0};
    auto call = [&](uint32_t number) {
        auto seq_desc = described<quire_seq_desc>();
        auto stats = described<quire_cache_stats>();
        for (bool stale = false, first = true; !stale; first = false) {
            quire_status status = QUIRE_OK;
            quire_seq seq = 0;
            quire_step step = 0;
            auto step_desc = described<quire_step_desc>();
            step_desc.queues = &queue_;
            step_desc.queue_count = 1;
            switch (number % 4) {
                case 0:
                    status = api_.seq_create(cache_, &seq_desc, &seq, nullptr);
                    if (status == QUIRE_OK) status = api_.seq_end(cache_, seq, 0, nullptr);
                    break;
                case 1:
                    status = api_.cache_get_stats(cache_, &stats, nullptr);
                    if (status == QUIRE_OK) status = api_.cache_check(cache_, nullptr);
                    break;
                case 2:
                    status = api_.step_begin(cache_, &step_desc, nullptr, 0, 0, nullptr, 0, nullptr,
                                             sizeof(quire_step_result), &step, nullptr);
                    if (status == QUIRE_OK)
                        status = api_.step_commit(cache_, step, nullptr, nullptr);
                    if (status == QUIRE_OK)
                        status = api_.step_finish(cache_, step, nullptr, QUIRE_STEP_OK, nullptr);
                    if (status == QUIRE_E_BUSY) status = QUIRE_OK;  // steps of other threads
                    break;
                default:
                    status = api_.memory_copy(queue_, memory_, 0, memory_, 64, 8, nullptr);
                    if (status == QUIRE_OK) status = api_.queue_sync(queue_, nullptr);
            }
            stale = status == QUIRE_E_STALE;
            if (status != QUIRE_OK && !stale) ++wrong;
            if (first) ++ready;
        }
    };
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < 8; ++i) threads.emplace_back(call, i);
    while (ready != 8) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(abandon_cache(), QUIRE_OK) << error_.message;
    EXPECT_EQ(abandon_device(), QUIRE_OK) << error_.message;
    EXPECT_EQ(api_.instance_destroy(instance_, &error_), QUIRE_OK);
    for (std::thread &thread : threads) thread.join();
    EXPECT_EQ(wrong, 0u);
    expect_stale_cache();
    expect_stale_device();
}

TEST_F(Abandon, of_a_cache_of_books_only_leaves_nothing_on_a_device) {
    must(api_.batch_destroy(batch_, &error_));
    must(api_.cache_destroy(cache_, &error_));
    auto group = described<quire_group_desc>();
    group.layer_count = group.kv_heads = group.k_head_dim = group.v_head_dim = 1;
    auto desc = described<quire_cache_desc>();
    desc.groups = &group;
    desc.group_count = 1;
    desc.group_stride = sizeof group;
    desc.blocks = 8;
    must(api_.cache_create(instance_, &desc, &cache_, &error_));
    auto info = described<quire_abandon_info>();
    EXPECT_EQ(abandon_cache(&info), QUIRE_OK);
    EXPECT_EQ(info.device_bytes + info.host_bytes + info.engine_bytes, 0u);
    EXPECT_EQ(abandon_cache(), QUIRE_E_STALE);
    must(api_.memory_destroy(memory_, &error_));
    must(api_.fence_destroy(fence_, &error_));
    must(api_.queue_destroy(queue_, &error_));
    must(api_.device_close(device_, &error_));
    EXPECT_EQ(api_.instance_destroy(instance_, &error_), QUIRE_OK);
}

}  // namespace
