// SPDX-License-Identifier: Apache-2.0
//
// driver_rig: the backends of CUDA and HIP on the emulator, whose drivers tests control through the
// exports of machine.hpp; and a device with everything that a small step needs.
//
// Environment
//   QUIRE_PLUGIN_PATH   folders, one of which holds the plugins
//   QUIRE_TEST_DRIVER   "real": use the driver that the backend finds instead of the emulator, for
//                       tests that control no driver (./dev gpu)
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "quire/plugin/backend.h"
#include "tests/bench/scene/opened_library.hpp"
#include "tests/device/fill_range.hpp"
#include "tests/device/plugin_table.hpp"
#include "tests/place.hpp"

namespace quire::gpu_tests {

using test::Error;

// One vendor's names, and the library that poses as its driver.
struct Vendor {
    const char *name;  // of the backend
    const char *variable;
    std::string driver;
    const char *driver_stem;  // the beginning of the file's name in any version
    const char *count_devices;
    const char *launch;
    const char *fill;
    const char *copy;
    const char *copy_many;
    const char *host_alloc;
    const char *record;
    std::vector<const char *> of_a_step;  // what a step may call
};

inline const Vendor kVendors[] = {
    {"cuda",
     "QUIRE_CUDA_LIBRARY",
     quire::tests::place(QUIRE_FAKE_CUDA),
     "libcuda.so",
     "cuDeviceGetCount",
     "cuLaunchKernel",
     "cuMemsetD8Async",
     "cuMemcpyAsync",
     "cuMemcpyBatchAsync",
     "cuMemHostAlloc",
     "cuEventRecord",
     {"cuLaunchKernel", "cuMemsetD8Async", "cuMemcpyAsync", "cuMemcpyBatchAsync", "cuEventRecord",
      "cuStreamWaitEvent", "cuCtxPushCurrent", "cuCtxPopCurrent"}},
    {"hip",
     "QUIRE_HIP_LIBRARY",
     quire::tests::place(QUIRE_FAKE_HIP),
     "libamdhip64.so",
     "hipGetDeviceCount",
     "hipModuleLaunchKernel",
     "hipMemsetD8Async",
     "hipMemcpyAsync",
     "hipMemcpyBatchAsync",
     "hipHostMalloc",
     "hipEventRecord",
     {"hipModuleLaunchKernel", "hipMemsetD8Async", "hipMemcpyAsync", "hipMemcpyBatchAsync",
      "hipEventRecord", "hipStreamWaitEvent"}},
};

// Memory of one layer and one KV head, in consecutive blocks, with its pool and plan.
struct Paged {
    uint64_t address;
    uint64_t size_bytes;
    uint32_t block_count;
    uint32_t block_tokens;
    uint32_t dim;  // of a head
    uint32_t dtype;
    uint32_t element_bytes;

    quire_be_pool pool() const {
        quire_be_pool pool{};
        pool.struct_size = sizeof pool;
        pool.block_count = block_count;
        pool.address = address;
        pool.size_bytes = size_bytes;
        pool.k_token_stride = pool.v_token_stride = int64_t{dim} * element_bytes;
        pool.v_offset = block_tokens * pool.k_token_stride;
        pool.k_head_stride = pool.v_head_stride = pool.v_offset;
        pool.layer_stride = pool.block_stride = 2 * pool.v_offset;
        pool.block_tokens = block_tokens;
        pool.layer_count = pool.kv_heads = 1;
        pool.k_head_dim = pool.v_head_dim = dim;
        pool.k_dtype = pool.v_dtype = dtype;
        return pool;
    }
    // For queries of the same type.
    quire_be_plan_desc plan(uint32_t q_heads, uint32_t rows, uint32_t query_tokens,
                            uint32_t blocks_per_row) const {
        quire_be_plan_desc desc{};
        desc.struct_size = sizeof desc;
        desc.shape.struct_size = sizeof desc.shape;
        desc.shape.q_heads = q_heads;
        desc.shape.kv_heads = 1;
        desc.shape.k_head_dim = desc.shape.v_head_dim = dim;
        desc.shape.q_dtype = desc.shape.k_dtype = desc.shape.v_dtype = dtype;
        desc.shape.block_tokens = block_tokens;
        desc.max_rows = rows;
        desc.max_query_tokens = query_tokens;
        desc.max_blocks_per_row = blocks_per_row;
        return desc;
    }
};

constexpr uint64_t kPatience = 20'000'000'000;
constexpr int kOutOfMemory = 2;
constexpr int kIllegalAddress = 700;

inline bool has(const quire_error &error, const char *words) {
    return std::strstr(error.message, words) != nullptr;
}

// The path of the plugin in this build or another; "" if no folder in the environment has it.
inline std::string plugin_of(const Vendor &vendor) {
    const char *folders = std::getenv("QUIRE_PLUGIN_PATH");
    std::istringstream list(folders != nullptr ? folders : "");
    std::string file = std::string("quire_backend_") + vendor.name + ".so";
    for (std::string folder; std::getline(list, folder, ':');) {
        if (std::filesystem::exists(folder + '/' + file)) return folder + '/' + file;
    }
    return "";
}

// The path of the mapped driver; "" if none is mapped.
inline std::string path_of_driver(const Vendor &vendor) {
    return bench::path_of_opened(vendor.driver_stem);
}

class Driver : public testing::TestWithParam<size_t> {
 protected:
    void SetUp() override {
        const char *driver = std::getenv("QUIRE_TEST_DRIVER");
        is_steered_ = driver == nullptr;
        if (is_steered_) {
            setenv(vendor().variable, vendor().driver.c_str(), 1);
            library_ = dlopen(vendor().driver.c_str(), RTLD_NOW | RTLD_LOCAL);
            ASSERT_NE(library_, nullptr) << dlerror();
        } else {
            ASSERT_STREQ(driver, "real");
        }
        std::string plugin = plugin_of(vendor());
        ASSERT_NE(plugin, "") << "QUIRE_PLUGIN_PATH names no folder with the plugin";
        api_ = test::plugin_table(plugin);
        if (is_steered_) return;
        Error error;
        uint32_t devices = 0;
        ASSERT_EQ(api().probe(&devices, &error), QUIRE_OK) << error.message;
        library_ = bench::find_opened(vendor().driver_stem);
        ASSERT_NE(library_, nullptr) << "the backend opened no driver";
    }
    void TearDown() override {
        if (is_steered_) {
            fail(nullptr, 0, 0);
            break_device(0);  // otherwise HIP's driver stays broken, as a real one does
        }
        EXPECT_EQ(live_objects(), 0u);
    }

    static const Vendor &vendor() { return kVendors[GetParam()]; }
    const quire_backend_api &api() const { return *api_; }

    template <typename Function>
    Function symbol(const char *name) const {
        return reinterpret_cast<Function>(dlsym(library_, name));
    }
    // A function that the engine itself calls.
    template <typename Function>
    Function of_engine(const char *name) const {
        void *function = nullptr;
        auto get =
            symbol<int (*)(const char *, void **, int, uint64_t, int *)>("cuGetProcAddress_v2");
        if (get == nullptr) return symbol<Function>(name);
        EXPECT_EQ(get(name, &function, 12000, 0, nullptr), 0) << name;
        return reinterpret_cast<Function>(function);
    }
    void fail(const char *name, uint64_t nth, int result) const {
        symbol<void (*)(const char *, uint64_t, int)>("fakegpu_fail")(name, nth, result);
    }
    // From now on calls of this function wait; NULL: no more.
    void hold(const char *name) const { symbol<void (*)(const char *)>("fakegpu_hold")(name); }
    uint64_t held_calls() const { return symbol<uint64_t (*)()>("fakegpu_held")(); }
    bool is_steered() const { return is_steered_; }
    void break_device(int result) const { symbol<void (*)(int)>("fakegpu_break")(result); }
    uint64_t calls(const char *name) const {
        return symbol<uint64_t (*)(const char *)>("fakegpu_calls")(name);
    }
    uint64_t live_in_driver() const { return symbol<uint64_t (*)()>("fakegpu_live")(); }
    std::string last_fault() const { return symbol<const char *(*)()>("fakegpu_last_fault")(); }
    uint64_t live_objects() const {
        uint64_t live = 0;
        Error error;
        EXPECT_EQ(api().shutdown(&live, &error), QUIRE_OK);
        return live;
    }

 private:
    const quire_backend_api *api_ = nullptr;
    void *library_ = nullptr;
    bool is_steered_ = true;  // the driver is the emulator's
};

// A device, and everything that a small step of one layer needs: two tokens of a sequence of two.
struct Rig {
    static constexpr uint32_t kDim = 64;
    static constexpr uint64_t kBytes = 1 << 16;
    static constexpr uint64_t kGiven = 1 << 15;  // f32 [2][64]; q, K and V alike
    static constexpr uint64_t kOut = kGiven + 4096;
    static constexpr uint64_t kNumbers = kGiven + 8192;  // slots, table, lengths, cu_q

    explicit Rig(const quire_backend_api &table) : api(table) {}
    ~Rig() {
        if (device != nullptr && address != 0) {
            api.mem_free(device, address, kBytes, QUIRE_BE_MEMORY_DEVICE);
            api.mem_free(device, host_address, kBytes, QUIRE_BE_MEMORY_HOST);
        }
        api.plan_destroy(plan);
        api.fence_destroy(fence);
        api.queue_release(queue);
        api.device_close(device);
    }

    // Returns the first failure.
    quire_status open() {
        quire_be_device_desc desc{};
        desc.struct_size = sizeof desc;
        if (auto status = api.device_open(&desc, &device, &error)) return status;
        if (auto status = api.queue_bind(device, nullptr, &queue, &error)) return status;
        if (auto status = api.fence_create(device, 0, &fence, &error)) return status;
        void *pointer = nullptr;
        uint64_t made = 0;
        if (auto status = api.mem_alloc(device, kBytes, QUIRE_BE_MEMORY_HOST, &host_address,
                                        &pointer, &error)) {
            return status;
        }
        host = static_cast<unsigned char *>(pointer);
        if (auto status =
                api.mem_alloc(device, kBytes, QUIRE_BE_MEMORY_DEVICE, &made, &pointer, &error)) {
            api.mem_free(device, host_address, kBytes, QUIRE_BE_MEMORY_HOST);
            return status;
        }
        address = made;
        return make_plan();
    }

    quire_status step() {
        const int64_t slots[] = {16, 17};
        const int32_t rest[] = {1, 2, 0, 2};  // the table's block, the length, cu_q
        std::memcpy(host, slots, sizeof slots);
        std::memcpy(host + sizeof slots, rest, sizeof rest);
        quire_be_copy copy = {address + kNumbers, host_address, 64, QUIRE_BE_COPY_H2D, 0};
        if (auto status = api.copy(queue, &copy, 1, &error)) return status;
        if (auto status = test::fill_range(api, queue, address + kGiven, 512, 0x3E, &error))
            return status;
        if (auto status = write()) return status;
        if (auto status = attend(address + kGiven)) return status;
        if (auto status = api.fence_wait(queue, fence, value, &error)) return status;
        return api.fence_signal(queue, fence, ++value, &error);
    }

    quire_status sync() { return api.fence_wait_host(fence, value, kPatience, &error); }

    Paged paged() const { return {address, kGiven, 2, 16, kDim, QUIRE_DTYPE_F32, 4}; }
    quire_be_pool pool() const { return paged().pool(); }

    quire_status attend(uint64_t q) {
        quire_be_pool described = pool();
        quire_be_attention args{};
        args.struct_size = sizeof args;
        args.pool = &described;
        args.q = q;
        args.out = address + kOut;
        args.block_table = address + kNumbers + 16;
        args.lengths = address + kNumbers + 20;
        args.cu_q = address + kNumbers + 24;
        args.q_token_stride = args.out_token_stride = kDim;
        args.block_table_stride = args.row_count = 1;
        args.query_tokens = args.max_length = 2;
        return api.attention(queue, plan, &args, &error);
    }

    const quire_backend_api &api;
    Error error;
    quire_be_device *device = nullptr;
    quire_be_queue *queue = nullptr;
    quire_be_fence *fence = nullptr;
    quire_be_plan *plan = nullptr;
    uint64_t address = 0;
    uint64_t host_address = 0;
    unsigned char *host = nullptr;
    uint64_t value = 0;

 private:
    quire_status make_plan() {
        quire_be_plan_desc desc = paged().plan(1, 1, 2, 2);
        return api.plan_create(device, &desc, &plan, &error);
    }
    quire_status write() {
        quire_be_pool described = pool();
        quire_be_kv_write args{};
        args.struct_size = sizeof args;
        args.token_count = 2;
        args.dtype = QUIRE_DTYPE_F32;
        args.pool = &described;
        args.k = args.v = address + kGiven;
        args.slots = address + kNumbers;
        args.k_token_stride = args.v_token_stride = kDim;
        return api.kv_write(queue, &args, &error);
    }
};

inline std::string name_of(const testing::TestParamInfo<size_t> &info) {
    return kVendors[info.param].name;
}

}  // namespace quire::gpu_tests
