// SPDX-License-Identifier: Apache-2.0
//
// The vulkan backend's errors, and what remains, when its driver is missing, unusable,
// out of memory, or loses the device. The driver is lavapipe, whose functions fail when a
// test says so (faulty.c).

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "quire/plugin/backend.h"
#include "tests/device/fill_range.hpp"
#include "tests/device/plugin_table.hpp"
#include "tests/place.hpp"

namespace {

using quire::test::Error;
using quire::test::plugin_table;
using quire::tests::place;

const quire_backend_api &api() {
    static const quire_backend_api *table = plugin_table(place(QUIRE_VULKAN_BACKEND));
    return *table;
}

void set_fault(const char *fault, int succeeding_calls = 0) {
    using Set = void (*)(const char *, int);
    static auto set = reinterpret_cast<Set>(
        dlsym(dlopen(place(QUIRE_FAULTY_VULKAN).c_str(), RTLD_NOW | RTLD_LOCAL), "faulty_set"));
    set(fault, succeeding_calls);
}

int count_of(const char *what) {
    using Count = int (*)();
    return reinterpret_cast<Count>(
        dlsym(dlopen(place(QUIRE_FAULTY_VULKAN).c_str(), RTLD_NOW | RTLD_LOCAL), what))();
}
int semaphores() { return count_of("faulty_semaphores"); }

uint64_t live_objects() {
    uint64_t live = 0;
    Error error;
    EXPECT_EQ(api().shutdown(&live, &error), QUIRE_OK);
    return live;
}

quire_be_device_desc device_desc(uint32_t index = 0) {
    quire_be_device_desc desc{};
    desc.struct_size = sizeof desc;
    desc.index = index;
    return desc;
}

quire_status open_device(quire_be_device **device, Error *error) {
    quire_be_device_desc desc = device_desc();
    return api().device_open(&desc, device, error);
}

uint32_t device_count() {
    uint32_t count = 77;
    Error error;
    EXPECT_EQ(api().probe(&count, &error), QUIRE_OK) << error.message;
    return count;
}

bool has(const quire_error &error, const char *words) {
    return std::strstr(error.message, words) != nullptr;
}

class VulkanDriver : public testing::Test {
 protected:
    void SetUp() override {
        setenv("QUIRE_VULKAN_LIBRARY", place(QUIRE_FAULTY_VULKAN).c_str(), 1);
        set_fault("");
        if (device_count() == 0) GTEST_SKIP() << "no Vulkan device here: mesa-vulkan-drivers";
    }
    void TearDown() override {
        set_fault("");
        EXPECT_EQ(live_objects(), 0u);
    }
};

struct Rig {
    quire_be_device *device = nullptr;
    quire_be_queue *queue = nullptr;
    quire_be_fence *fence = nullptr;
    uint64_t address = 0;

    // Each step may fail; releases what was made, and returns the first failure.
    quire_status run(Error *error) {
        quire_status status = steps(error);
        Error ignored;
        if (address != 0) {
            EXPECT_EQ(api().quiesce(device, UINT64_MAX, &ignored), QUIRE_OK);
            api().mem_free(device, address, kBytes, QUIRE_BE_MEMORY_DEVICE);
        }
        api().fence_destroy(fence);
        api().queue_release(queue);
        api().device_close(device);
        return status;
    }

 private:
    static constexpr uint64_t kBytes = 10'000;

    quire_status steps(Error *error) {
        void *host = nullptr;
        if (auto status = open_device(&device, error)) return status;
        if (auto status = api().queue_bind(device, nullptr, &queue, error)) return status;
        if (auto status = api().fence_create(device, 0, &fence, error)) return status;
        if (auto status =
                api().mem_alloc(device, kBytes, QUIRE_BE_MEMORY_DEVICE, &address, &host, error)) {
            return status;
        }
        if (auto status = quire::test::fill_range(api(), queue, address, kBytes, 1, error))
            return status;
        if (auto status = merge(error)) return status;
        if (auto status = api().fence_signal(queue, fence, 1, error)) return status;
        return api().fence_wait_host(fence, 1, UINT64_MAX, error);
    }
    // A kernel that has arguments of its own.
    quire_status merge(Error *error) {
        quire_be_merge args{};
        args.struct_size = sizeof args;
        args.part_count = args.token_count = args.heads = args.head_dim = 1;
        args.dtype = QUIRE_DTYPE_F32;
        args.parts = args.out = address;
        args.lses = address + 64;
        return api().merge(queue, &args, error);
    }
};

// The library is opened once per process, so this test runs in its own.
TEST(VulkanDriverDeathTest, library_that_is_not_there_is_no_device) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(
        {
            setenv("QUIRE_VULKAN_LIBRARY", "/nowhere/libvulkan.so.1", 1);
            Error error;
            quire_be_device *device = nullptr;
            bool is_refused = device_count() == 0 && open_device(&device, &error) == QUIRE_E_ARG &&
                              has(error, "device 0: /nowhere/libvulkan.so.1");
            std::exit(is_refused ? 0 : 1);
        },
        testing::ExitedWithCode(0), "");
}

TEST(VulkanDriverDeathTest, library_that_is_another_is_no_device_whenever_one_looks) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(
        {
            setenv("QUIRE_VULKAN_LIBRARY", "libm.so.6", 1);
            Error error;
            quire_be_device *device = nullptr;
            bool is_refused = device_count() == 0 && device_count() == 0 &&
                              open_device(&device, &error) == QUIRE_E_ARG &&
                              has(error, "device 0: libm.so.6 is not a Vulkan loader");
            std::exit(is_refused ? 0 : 1);
        },
        testing::ExitedWithCode(0), "");
}

TEST_F(VulkanDriver, that_is_missing_is_no_device) {
    set_fault("no driver");
    uint32_t count = 77;
    Error error;
    EXPECT_EQ(api().probe(&count, &error), QUIRE_OK);
    EXPECT_EQ(count, 0u);
    EXPECT_TRUE(has(error, "found no driver")) << error.message;
}

TEST_F(VulkanDriver, that_cannot_begin_is_an_error_that_says_so) {
    set_fault("broken driver");
    uint32_t count = 77;
    Error error;
    EXPECT_EQ(api().probe(&count, &error), QUIRE_E_BACKEND);
    EXPECT_TRUE(has(error, "instance")) << error.message;
    EXPECT_EQ(count, 77u);
}

TEST_F(VulkanDriver, device_that_cannot_be_used_says_what_it_lacks) {
    struct {
        const char *fault;
        quire_status status;
        const char *words;
    } const cases[] = {{"no compute", QUIRE_E_UNSUPPORTED, "a compute queue family"},
                       {"old version", QUIRE_E_UNSUPPORTED, "Vulkan 1.3"},
                       {"no memory type", QUIRE_E_UNSUPPORTED, "lets storage buffers have no"},
                       {"no device", QUIRE_E_BACKEND, "to create a device"}};
    for (const auto &one : cases) {
        set_fault(one.fault);
        quire_be_device *device = nullptr;
        Error error;
        EXPECT_EQ(open_device(&device, &error), one.status) << one.fault;
        EXPECT_TRUE(has(error, one.words)) << error.message;
        EXPECT_EQ(device, nullptr);
        EXPECT_EQ(live_objects(), 0u);
    }
}

TEST_F(VulkanDriver, memory_that_runs_out_anywhere_is_an_error_and_no_leak) {
    int failures = 0;
    for (;; ++failures) {
        ASSERT_LT(failures, 100);
        set_fault("no memory", failures);
        Error error;
        quire_status status = Rig().run(&error);
        EXPECT_EQ(live_objects(), 0u) << failures;
        if (status == QUIRE_OK) break;
        EXPECT_EQ(status, QUIRE_E_DEVICE_MEMORY) << failures << error.message;
    }
    EXPECT_GT(failures, 5) << "a device, two queues, memory and arguments have memory each";
}

TEST_F(VulkanDriver, device_that_is_lost_fails_its_fences_and_refuses_calls) {
    for (const char *fault : {"lost", "lost while running"}) {
        quire_be_device *device = nullptr;
        quire_be_queue *queue = nullptr;
        quire_be_fence *fence = nullptr;
        uint64_t address = 0;
        void *host = nullptr;
        Error error;
        ASSERT_EQ(open_device(&device, &error), QUIRE_OK) << error.message;
        ASSERT_EQ(api().queue_bind(device, nullptr, &queue, &error), QUIRE_OK);
        ASSERT_EQ(api().fence_create(device, 0, &fence, &error), QUIRE_OK);
        ASSERT_EQ(api().mem_alloc(device, 1 << 20, QUIRE_BE_MEMORY_DEVICE, &address, &host, &error),
                  QUIRE_OK);
        ASSERT_EQ(api().fence_wait(queue, fence, 1, &error), QUIRE_OK);
        ASSERT_EQ(quire::test::fill_range(api(), queue, address, 1 << 20, 1, &error), QUIRE_OK);
        ASSERT_EQ(api().fence_signal(queue, fence, 2, &error), QUIRE_OK);
        set_fault(fault);
        ASSERT_EQ(api().fence_signal_host(fence, 1, &error), QUIRE_OK);
        EXPECT_EQ(api().fence_wait_host(fence, 2, UINT64_MAX, &error), QUIRE_E_DEVICE_LOST);
        uint64_t value = 0;
        EXPECT_EQ(api().fence_read(fence, &value, &error), QUIRE_OK);
        EXPECT_EQ(value, UINT64_MAX);
        EXPECT_EQ(quire::test::fill_range(api(), queue, address, 1, 1, &error),
                  QUIRE_E_DEVICE_LOST);
        EXPECT_TRUE(has(error, "lost")) << error.message;
        quire_be_queue *another = nullptr;
        EXPECT_EQ(api().queue_bind(device, nullptr, &another, &error), QUIRE_E_DEVICE_LOST);
        set_fault("");
        api().mem_free(device, address, 1 << 20, QUIRE_BE_MEMORY_DEVICE);
        api().fence_destroy(fence);
        api().queue_release(queue);
        api().device_close(device);
        EXPECT_EQ(live_objects(), 0u);
        EXPECT_EQ(Rig().run(&error), QUIRE_OK) << "one opened anew works: " << error.message;
    }
}

TEST_F(VulkanDriver, submission_that_is_refused_stops_its_queue_alone) {
    quire_be_device *device = nullptr;
    quire_be_queue *queues[2] = {};
    Error error;
    ASSERT_EQ(open_device(&device, &error), QUIRE_OK) << error.message;
    uint64_t address = 0;
    void *host = nullptr;
    ASSERT_EQ(api().mem_alloc(device, 64, QUIRE_BE_MEMORY_DEVICE, &address, &host, &error),
              QUIRE_OK);
    for (auto &queue : queues) {
        ASSERT_EQ(api().queue_bind(device, nullptr, &queue, &error), QUIRE_OK);
    }
    set_fault("refused submission");
    ASSERT_EQ(quire::test::fill_range(api(), queues[0], address, 64, 1, &error), QUIRE_OK);
    set_fault("");
    EXPECT_EQ(quire::test::fill_range(api(), queues[0], address, 64, 1, &error),
              QUIRE_E_DEVICE_LOST);
    EXPECT_TRUE(has(error, "refused a submission")) << error.message;
    EXPECT_EQ(quire::test::fill_range(api(), queues[1], address, 64, 1, &error), QUIRE_OK)
        << error.message;
    EXPECT_EQ(api().quiesce(device, UINT64_MAX, &error), QUIRE_OK);
    api().mem_free(device, address, 64, QUIRE_BE_MEMORY_DEVICE);
    for (auto *queue : queues) api().queue_release(queue);
    api().device_close(device);
}

// Commands whose recording ran out of memory report it only when they are ended.
TEST_F(VulkanDriver, commands_that_cannot_be_ended_stop_their_queue_and_fail_its_fence) {
    Rig rig;
    Error error;
    ASSERT_EQ(open_device(&rig.device, &error), QUIRE_OK) << error.message;
    void *host = nullptr;
    uint64_t address = 0;
    ASSERT_EQ(api().mem_alloc(rig.device, 64, QUIRE_BE_MEMORY_DEVICE, &address, &host, &error),
              QUIRE_OK);
    ASSERT_EQ(api().queue_bind(rig.device, nullptr, &rig.queue, &error), QUIRE_OK);
    ASSERT_EQ(api().fence_create(rig.device, 0, &rig.fence, &error), QUIRE_OK);
    set_fault("unended commands");
    ASSERT_EQ(quire::test::fill_range(api(), rig.queue, address, 64, 1, &error), QUIRE_OK);
    set_fault("");
    EXPECT_EQ(quire::test::fill_range(api(), rig.queue, address, 64, 1, &error),
              QUIRE_E_DEVICE_LOST);
    EXPECT_TRUE(has(error, "refused the recorded commands")) << error.message;
    EXPECT_EQ(api().fence_signal(rig.queue, rig.fence, 1, &error), QUIRE_OK);
    uint64_t value = 0;
    EXPECT_EQ(api().fence_read(rig.fence, &value, &error), QUIRE_OK);
    EXPECT_EQ(value, UINT64_MAX);
    // Another queue works normally.
    api().queue_release(rig.queue);
    ASSERT_EQ(api().queue_bind(rig.device, nullptr, &rig.queue, &error), QUIRE_OK);
    EXPECT_EQ(quire::test::fill_range(api(), rig.queue, address, 64, 1, &error), QUIRE_OK)
        << error.message;
    EXPECT_EQ(api().quiesce(rig.device, UINT64_MAX, &error), QUIRE_OK) << error.message;
    api().mem_free(rig.device, address, 64, QUIRE_BE_MEMORY_DEVICE);
    api().queue_release(rig.queue);
    api().fence_destroy(rig.fence);
    api().device_close(rig.device);
}

// A queue of the device's own zeroes fresh memory.
TEST_F(VulkanDriver, refused_submission_fails_the_memory_that_met_it_and_no_other) {
    quire_be_device *device = nullptr;
    Error error;
    ASSERT_EQ(open_device(&device, &error), QUIRE_OK) << error.message;
    uint64_t address = 0;
    void *host = nullptr;
    auto allocate = [&] {
        return api().mem_alloc(device, 64, QUIRE_BE_MEMORY_DEVICE, &address, &host, &error);
    };
    for (int i = 0; i < 3; ++i) {
        set_fault("refused submission");
        EXPECT_EQ(allocate(), QUIRE_E_HOST_MEMORY);
        EXPECT_TRUE(has(error, "to zero memory")) << error.message;
        EXPECT_EQ(address, 0u);
        EXPECT_EQ(live_objects(), 1u);
        set_fault("");
        ASSERT_EQ(allocate(), QUIRE_OK) << error.message;
        api().mem_free(device, address, 64, QUIRE_BE_MEMORY_DEVICE);
        address = 0;
    }
    api().device_close(device);
}

// Writes a token at a slot outside the pool.
quire_status write_outside(quire_be_queue *queue, uint64_t address, Error *error) {
    quire_be_pool pool{};
    pool.struct_size = sizeof pool;
    pool.address = address;
    pool.block_count = pool.block_tokens = pool.layer_count = pool.kv_heads = 1;
    pool.k_head_dim = pool.v_head_dim = 4;
    pool.k_dtype = pool.v_dtype = QUIRE_DTYPE_F32;
    pool.k_token_stride = pool.v_token_stride = pool.v_offset = 16;
    pool.k_head_stride = pool.v_head_stride = 16;
    pool.block_stride = pool.layer_stride = 32;
    pool.size_bytes = 32;
    quire_be_kv_write args{};
    args.struct_size = sizeof args;
    args.token_count = 1;
    args.dtype = QUIRE_DTYPE_F32;
    args.pool = &pool;
    args.k = args.v = address;
    args.slots = address + 64;
    args.k_token_stride = args.v_token_stride = 4;
    return api().kv_write(queue, &args, error);
}

TEST_F(VulkanDriver, queues_that_fail_and_are_released_leave_nothing_and_no_failure_behind) {
    quire_be_device *device = nullptr;
    Error error;
    ASSERT_EQ(open_device(&device, &error), QUIRE_OK) << error.message;
    uint64_t address = 0;
    void *host = nullptr;
    ASSERT_EQ(api().mem_alloc(device, 128, QUIRE_BE_MEMORY_DEVICE, &address, &host, &error),
              QUIRE_OK);
    int most = 0;
    for (int i = 0; i < 40; ++i) {
        quire_be_queue *queue = nullptr;
        ASSERT_EQ(api().queue_bind(device, nullptr, &queue, &error), QUIRE_OK);
        // The queue works normally, whatever happened to the previous owner of its timeline.
        ASSERT_EQ(quire::test::fill_range(api(), queue, address, 128, 1, &error), QUIRE_OK)
            << error.message;
        ASSERT_EQ(api().quiesce(device, UINT64_MAX, &error), QUIRE_OK);
        bool is_refused = i % 2 == 0;
        if (is_refused) set_fault("refused submission");
        ASSERT_EQ(is_refused ? quire::test::fill_range(api(), queue, address, 64, 2, &error)
                             : write_outside(queue, address, &error),
                  QUIRE_OK)
            << error.message;
        set_fault("");
        ASSERT_EQ(api().quiesce(device, UINT64_MAX, &error), QUIRE_OK);
        EXPECT_EQ(quire::test::fill_range(api(), queue, address, 64, 2, &error),
                  QUIRE_E_DEVICE_LOST);
        EXPECT_TRUE(has(error, is_refused ? "refused" : "slot")) << error.message;
        api().queue_release(queue);
        if (i < 2) most = semaphores();
        EXPECT_LE(semaphores(), most) << i;
    }
    api().mem_free(device, address, 128, QUIRE_BE_MEMORY_DEVICE);
    api().device_close(device);
    EXPECT_EQ(semaphores(), 0);
}

TEST_F(VulkanDriver, queue_that_failed_behind_a_wait_refuses_calls) {
    quire_be_device *device = nullptr;
    quire_be_queue *queue = nullptr;
    quire_be_fence *fences[2] = {};
    Error error;
    ASSERT_EQ(open_device(&device, &error), QUIRE_OK) << error.message;
    ASSERT_EQ(api().queue_bind(device, nullptr, &queue, &error), QUIRE_OK);
    for (auto &fence : fences) ASSERT_EQ(api().fence_create(device, 0, &fence, &error), QUIRE_OK);
    uint64_t address = 0;
    void *host = nullptr;
    ASSERT_EQ(api().mem_alloc(device, 64, QUIRE_BE_MEMORY_DEVICE, &address, &host, &error),
              QUIRE_OK);
    ASSERT_EQ(api().fence_wait(queue, fences[0], 1, &error), QUIRE_OK);
    ASSERT_EQ(quire::test::fill_range(api(), queue, address, 64, 1, &error), QUIRE_OK);
    ASSERT_EQ(api().fence_wait(queue, fences[1], 1, &error), QUIRE_OK);
    set_fault("refused submission");
    ASSERT_EQ(api().fence_signal_host(fences[0], 1, &error), QUIRE_OK);
    set_fault("");
    EXPECT_EQ(quire::test::fill_range(api(), queue, address, 64, 1, &error), QUIRE_E_DEVICE_LOST);
    EXPECT_TRUE(has(error, "refused a submission")) << error.message;
    api().queue_release(queue);
    EXPECT_EQ(api().quiesce(device, UINT64_MAX, &error), QUIRE_OK);
    api().mem_free(device, address, 64, QUIRE_BE_MEMORY_DEVICE);
    for (auto *fence : fences) api().fence_destroy(fence);
    api().device_close(device);
}

TEST_F(VulkanDriver, memory_above_the_limit_is_divided_and_addressed_as_one) {
    setenv("QUIRE_VULKAN_MAX_ALLOCATION", "100000", 1);
    quire_be_device *device = nullptr;
    Error error;
    ASSERT_EQ(open_device(&device, &error), QUIRE_OK) << error.message;
    unsetenv("QUIRE_VULKAN_MAX_ALLOCATION");
    uint64_t addresses[2] = {};
    void *host = nullptr;
    for (uint64_t &address : addresses) {
        ASSERT_EQ(
            api().mem_alloc(device, 1'000'000, QUIRE_BE_MEMORY_DEVICE, &address, &host, &error),
            QUIRE_OK);
        EXPECT_GE(address, uint64_t{1} << 60) << "of no device";
        EXPECT_EQ(address % 4096, 0u);
    }
    EXPECT_GE(addresses[1], addresses[0] + 1'000'000);
    uint64_t small = 0;
    ASSERT_EQ(api().mem_alloc(device, 90'000, QUIRE_BE_MEMORY_DEVICE, &small, &host, &error),
              QUIRE_OK);
    EXPECT_LT(small, uint64_t{1} << 60);
    api().mem_free(device, addresses[0], 1'000'000, QUIRE_BE_MEMORY_DEVICE);
    api().mem_free(device, addresses[1], 1'000'000, QUIRE_BE_MEMORY_DEVICE);
    api().mem_free(device, small, 90'000, QUIRE_BE_MEMORY_DEVICE);
    api().device_close(device);
}

TEST_F(VulkanDriver, memory_that_cannot_be_imported_is_refused_in_words) {
    quire_be_device *device = nullptr;
    Error error;
    ASSERT_EQ(open_device(&device, &error), QUIRE_OK) << error.message;
    alignas(4096) static unsigned char pages[3 * 4096];
    uint64_t address = 0, another = 0;
    EXPECT_EQ(api().mem_import(device, pages + 64, 4096, &address, &error), QUIRE_E_ARG);
    EXPECT_TRUE(has(error, "multiples of 4096")) << error.message;
    EXPECT_EQ(api().mem_import(device, pages, 4095, &address, &error), QUIRE_E_ARG);
    ASSERT_EQ(api().mem_import(device, pages, 2 * 4096, &address, &error), QUIRE_OK)
        << error.message;
    EXPECT_EQ(live_objects(), 2u);
    EXPECT_EQ(api().mem_import(device, pages + 4096, 2 * 4096, &another, &error), QUIRE_E_ARG);
    EXPECT_TRUE(has(error, "bytes overlap memory that is already allocated or imported"))
        << error.message;
    EXPECT_EQ(another, 0u);
    EXPECT_EQ(live_objects(), 2u);
    api().mem_free(device, address, 2 * 4096, QUIRE_BE_MEMORY_IMPORTED);
    set_fault("no memory");
    EXPECT_EQ(api().mem_import(device, pages, 4096, &another, &error), QUIRE_E_DEVICE_MEMORY);
    set_fault("");
    api().device_close(device);
}

// The number of other threads, and how many of them do not block signals.
struct Others {
    int count = 0;
    int open_to_signals = 0;
};

Others other_threads() {
    Others others;
    for (const auto &task : std::filesystem::directory_iterator("/proc/self/task")) {
        if (task.path().filename() == std::to_string(getpid())) continue;
        std::ifstream status(task.path() / "status");
        uint64_t blocked = 0;
        for (std::string word; status >> word;) {
            if (word == "SigBlk:") status >> std::hex >> blocked;
        }
        ++others.count;
        for (int signal : {SIGINT, SIGTERM, SIGUSR1, SIGALRM, SIGCHLD}) {
            if ((blocked >> (signal - 1) & 1) != 0) continue;
            ++others.open_to_signals;
            break;
        }
    }
    return others;
}

TEST_F(VulkanDriver, threads_that_it_starts_take_no_signals_and_end_with_the_device) {
    EXPECT_EQ(other_threads().count, 0);
    quire_be_device *device = nullptr;
    quire_be_queue *queue = nullptr;
    uint64_t address = 0;
    void *host = nullptr;
    Error error;
    ASSERT_EQ(open_device(&device, &error), QUIRE_OK) << error.message;
    ASSERT_EQ(api().queue_bind(device, nullptr, &queue, &error), QUIRE_OK);
    ASSERT_EQ(api().mem_alloc(device, 4096, QUIRE_BE_MEMORY_DEVICE, &address, &host, &error),
              QUIRE_OK);
    ASSERT_EQ(quire::test::fill_range(api(), queue, address, 4096, 1, &error), QUIRE_OK);
    ASSERT_EQ(api().quiesce(device, UINT64_MAX, &error), QUIRE_OK);
    Others others = other_threads();
    EXPECT_GT(others.count, 0) << "lavapipe has threads of its own";
    EXPECT_EQ(others.open_to_signals, 0);
    api().mem_free(device, address, 4096, QUIRE_BE_MEMORY_DEVICE);
    api().queue_release(queue);
    api().device_close(device);
    EXPECT_EQ(other_threads().count, 0);
}

// How often a queue waited for another VkQueue while it filled, copied to the host and filled.
int waits_of_a_swap(uint64_t size_bytes) {
    quire_be_device *device = nullptr;
    quire_be_queue *queue = nullptr;
    uint64_t address = 0, host_address = 0;
    void *none = nullptr, *host = nullptr;
    Error error;
    EXPECT_EQ(open_device(&device, &error), QUIRE_OK) << error.message;
    EXPECT_EQ(api().queue_bind(device, nullptr, &queue, &error), QUIRE_OK);
    EXPECT_EQ(api().mem_alloc(device, size_bytes, QUIRE_BE_MEMORY_DEVICE, &address, &none, &error),
              QUIRE_OK);
    EXPECT_EQ(
        api().mem_alloc(device, size_bytes, QUIRE_BE_MEMORY_HOST, &host_address, &host, &error),
        QUIRE_OK);
    int before = count_of("faulty_waits");
    for (uint32_t byte = 1; byte < 9; ++byte) {
        EXPECT_EQ(quire::test::fill_range(api(), queue, address, size_bytes, byte, &error),
                  QUIRE_OK);
        quire_be_copy copy = {host_address, address, size_bytes, QUIRE_BE_COPY_D2H, 0};
        EXPECT_EQ(api().copy(queue, &copy, 1, &error), QUIRE_OK) << error.message;
        EXPECT_EQ(quire::test::fill_range(api(), queue, address, size_bytes, 0xFF, &error),
                  QUIRE_OK);
        EXPECT_EQ(api().quiesce(device, UINT64_MAX, &error), QUIRE_OK);
        const auto *bytes = static_cast<const unsigned char *>(host);
        EXPECT_EQ(bytes[0], byte) << "not in the order of the calls";
        EXPECT_EQ(bytes[size_bytes - 1], byte);
    }
    int waits = count_of("faulty_waits") - before;
    api().mem_free(device, address, size_bytes, QUIRE_BE_MEMORY_DEVICE);
    api().mem_free(device, host_address, size_bytes, QUIRE_BE_MEMORY_HOST);
    api().queue_release(queue);
    api().device_close(device);
    return waits;
}

TEST_F(VulkanDriver, swap_goes_to_the_queue_for_copies_and_stays_in_order) {
    EXPECT_EQ(waits_of_a_swap(100'000), 0);
    setenv("QUIRE_VULKAN_TRANSFER", "0", 1);
    EXPECT_EQ(waits_of_a_swap(100'000), 0);
    setenv("QUIRE_VULKAN_TRANSFER", "same", 1);
    EXPECT_EQ(waits_of_a_swap(100'000), 16) << "there and back, eight times";
    unsetenv("QUIRE_VULKAN_TRANSFER");
    // As on a GPU: copies worth the detour go to the family that only copies.
    set_fault("transfer family");
    EXPECT_EQ(waits_of_a_swap(100'000), 0);
    EXPECT_EQ(waits_of_a_swap(3 << 20), 16);
    set_fault("");
}

// One fault counts allocations of a type that buffers may not have, the other refuses a device
// whose first queue belongs to the family that draws.
TEST_F(VulkanDriver, memory_is_what_buffers_may_have_and_queues_do_not_draw) {
    int before = count_of("faulty_failures");
    for (const char *fault : {"forbidden memory", "compute family"}) {
        set_fault(fault);
        EXPECT_EQ(waits_of_a_swap(100'000), 0) << fault;
        EXPECT_EQ(count_of("faulty_failures"), before);
    }
    set_fault("");
}

TEST_F(VulkanDriver, device_is_chosen_by_its_uuid) {
    setenv("QUIRE_VULKAN_DEVICE", "00000000-0000-0000-0000-000000000001", 1);
    uint32_t count = 77;
    Error error;
    EXPECT_EQ(api().probe(&count, &error), QUIRE_OK);
    EXPECT_EQ(count, 0u);
    EXPECT_TRUE(has(error, "000001, but no device has that UUID")) << error.message;
    unsetenv("QUIRE_VULKAN_DEVICE");
    EXPECT_GT(device_count(), 0u);
}

}  // namespace
