// SPDX-License-Identifier: Apache-2.0
//
// What the backends of CUDA and HIP ask of their drivers, and what they leave behind where a driver
// refuses a call or loses the device. Drivers are the emulator's, steered by machine.hpp.

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "quire/plugin/backend.h"

namespace {

struct Error : quire_error {
    Error() : quire_error{} { struct_size = sizeof(quire_error); }
};

// One vendor's plugin, and the library that poses as its driver.
struct Vendor {
    const char *name;
    const char *plugin;
    const char *variable;
    const char *driver;
    const char *launch;
    std::vector<const char *> of_a_step;  // what a step may call
};

const Vendor kVendors[] = {
    {"cuda",
     QUIRE_CUDA_BACKEND,
     "QUIRE_CUDA_LIBRARY",
     QUIRE_FAKE_CUDA,
     "cuLaunchKernel",
     {"cuLaunchKernel", "cuMemsetD8Async", "cuMemcpyAsync", "cuStreamWaitValue64",
      "cuCtxPushCurrent", "cuCtxPopCurrent"}},
    {"hip",
     QUIRE_HIP_BACKEND,
     "QUIRE_HIP_LIBRARY",
     QUIRE_FAKE_HIP,
     "hipModuleLaunchKernel",
     {"hipModuleLaunchKernel", "hipMemsetD8Async", "hipMemcpyAsync", "hipStreamWaitValue64"}},
};

constexpr uint64_t kPatience = 20'000'000'000;
constexpr int kOutOfMemory = 2;
constexpr int kIllegalAddress = 700;

bool has(const quire_error &error, const char *words) {
    return std::strstr(error.message, words) != nullptr;
}

class Driver : public testing::TestWithParam<size_t> {
 protected:
    void SetUp() override {
        setenv(vendor().variable, vendor().driver, 1);
        library_ = dlopen(vendor().driver, RTLD_NOW | RTLD_LOCAL);
        ASSERT_NE(library_, nullptr) << dlerror();
        void *module = dlopen(vendor().plugin, RTLD_NOW | RTLD_LOCAL);
        ASSERT_NE(module, nullptr) << dlerror();
        auto entry = reinterpret_cast<quire_backend_query_fn>(dlsym(module, QUIRE_BACKEND_ENTRY));
        quire_host_info host{};
        host.struct_size = sizeof host;
        host.abi_minor = QUIRE_BACKEND_ABI_MINOR;
        Error error;
        ASSERT_EQ(entry(&host, &api_, &error), QUIRE_OK) << error.message;
    }
    void TearDown() override {
        fail(nullptr, 0, 0);
        EXPECT_EQ(live_objects(), 0u);
    }

    static const Vendor &vendor() { return kVendors[GetParam()]; }
    const quire_backend_api &api() const { return *api_; }

    template <typename Function>
    Function symbol(const char *name) const {
        return reinterpret_cast<Function>(dlsym(library_, name));
    }
    void fail(const char *name, uint64_t nth, int result) const {
        symbol<void (*)(const char *, uint64_t, int)>("fakegpu_fail")(name, nth, result);
    }
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
};

// A device, and all that a small step of one layer needs: two tokens of a sequence of two.
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
        if (auto status = api.fill(queue, address + kGiven, 512, 0x3E, &error)) return status;
        if (auto status = write()) return status;
        if (auto status = attend(address + kGiven)) return status;
        if (auto status = api.fence_wait(queue, fence, value, &error)) return status;
        return api.fence_signal(queue, fence, ++value, &error);
    }

    quire_status sync() { return api.fence_wait_host(fence, value, kPatience, &error); }

    quire_be_pool pool() const {
        quire_be_pool pool{};
        pool.struct_size = sizeof pool;
        pool.block_count = 2;
        pool.address = address;
        pool.size_bytes = kGiven;
        pool.v_offset = 16 * kDim * 4;
        pool.layer_stride = pool.block_stride = 2 * pool.v_offset;
        pool.k_head_stride = pool.v_head_stride = pool.v_offset;
        pool.k_token_stride = pool.v_token_stride = kDim * 4;
        pool.block_tokens = 16;
        pool.layer_count = pool.kv_heads = 1;
        pool.k_head_dim = pool.v_head_dim = kDim;
        pool.k_dtype = pool.v_dtype = QUIRE_DTYPE_F32;
        return pool;
    }

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
        quire_be_plan_desc desc{};
        desc.struct_size = sizeof desc;
        desc.shape.struct_size = sizeof desc.shape;
        desc.shape.q_heads = desc.shape.kv_heads = 1;
        desc.shape.k_head_dim = desc.shape.v_head_dim = kDim;
        desc.shape.q_dtype = desc.shape.k_dtype = desc.shape.v_dtype = QUIRE_DTYPE_F32;
        desc.shape.block_tokens = 16;
        desc.max_rows = 1;
        desc.max_query_tokens = 2;
        desc.max_blocks_per_row = 2;
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

TEST_P(Driver, step_only_enqueues_and_allocates_nothing) {
    Rig rig(api());
    ASSERT_EQ(rig.open(), QUIRE_OK) << rig.error.message;
    ASSERT_EQ(rig.step(), QUIRE_OK) << rig.error.message;  // makes the queue's scratch memory
    uint64_t before = calls(nullptr), of_a_step = 0;
    for (const char *name : vendor().of_a_step) of_a_step -= calls(name);
    for (int i = 0; i < 10; ++i) ASSERT_EQ(rig.step(), QUIRE_OK) << rig.error.message;
    for (const char *name : vendor().of_a_step) of_a_step += calls(name);
    uint64_t all = calls(nullptr) - before;
    EXPECT_GT(of_a_step, 70u);
    EXPECT_EQ(all, of_a_step) << "something else was called";
    EXPECT_EQ(rig.sync(), QUIRE_OK) << rig.error.message << last_fault();
}

TEST_P(Driver, refusal_of_any_call_is_an_error_that_leaves_nothing) {
    {
        Rig(api()).open();
    }  // the context of HIP's device stays
    uint64_t in_driver = live_in_driver();
    bool is_reached = true;
    uint64_t nth = 0;
    while (is_reached && ++nth < 500) {
        {
            Rig rig(api());
            uint64_t before = calls(nullptr);
            fail(nullptr, nth, kOutOfMemory);
            quire_status status = rig.open();
            if (status == QUIRE_OK) status = rig.step();
            if (status == QUIRE_OK) status = rig.sync();
            fail(nullptr, 0, 0);
            is_reached = calls(nullptr) - before >= nth;
            if (status != QUIRE_OK) {
                EXPECT_LT(status, 0) << nth;
                EXPECT_NE(rig.error.message[0], 0) << nth;
            }
        }
        EXPECT_EQ(live_in_driver(), in_driver) << "after failure of call " << nth;
        EXPECT_EQ(live_objects(), 0u) << nth;
    }
    EXPECT_GT(nth, 25u) << "few calls were failed";
    EXPECT_FALSE(is_reached);
}

TEST_P(Driver, sticky_error_is_a_lost_device_and_no_crash) {
    {
        Rig rig(api());
        ASSERT_EQ(rig.open(), QUIRE_OK) << rig.error.message;
        ASSERT_EQ(rig.step(), QUIRE_OK) << rig.error.message;
        ASSERT_EQ(rig.sync(), QUIRE_OK) << rig.error.message;
        fail(vendor().launch, 1, kIllegalAddress);
        EXPECT_EQ(rig.step(), QUIRE_E_DEVICE_LOST);
        EXPECT_TRUE(has(rig.error, "illegal")) << rig.error.message;
        EXPECT_EQ(rig.step(), QUIRE_E_DEVICE_LOST);
        EXPECT_TRUE(has(rig.error, "lost")) << rig.error.message;
        uint64_t address = 0;
        void *host = nullptr;
        EXPECT_EQ(
            api().mem_alloc(rig.device, 64, QUIRE_BE_MEMORY_DEVICE, &address, &host, &rig.error),
            QUIRE_E_DEVICE_LOST);
        EXPECT_EQ(api().quiesce(rig.device, kPatience, &rig.error), QUIRE_E_DEVICE_LOST);
        // Who waits for the end of what was enqueued learns that it failed.
        EXPECT_EQ(api().fence_signal(rig.queue, rig.fence, 100, &rig.error), QUIRE_OK);
        EXPECT_EQ(api().fence_wait_host(rig.fence, 100, kPatience, &rig.error),
                  QUIRE_E_DEVICE_LOST);
    }
    Rig again(api());
    ASSERT_EQ(again.open(), QUIRE_OK) << again.error.message;
    EXPECT_EQ(again.step(), QUIRE_OK) << again.error.message;
    EXPECT_EQ(again.sync(), QUIRE_OK) << again.error.message;
}

// The last of a vendor's cases: HIP's driver stays broken in this process, as a real one does.
TEST_P(Driver, wild_address_loses_the_device_and_is_named) {
    Rig rig(api());
    ASSERT_EQ(rig.open(), QUIRE_OK) << rig.error.message;
    ASSERT_EQ(rig.step(), QUIRE_OK) << rig.error.message;
    ASSERT_EQ(rig.sync(), QUIRE_OK) << rig.error.message;
    ASSERT_EQ(rig.attend(rig.address + Rig::kBytes), QUIRE_OK) << rig.error.message;
    ASSERT_EQ(api().fence_signal(rig.queue, rig.fence, 100, &rig.error), QUIRE_OK);
    EXPECT_EQ(api().fence_wait_host(rig.fence, 100, kPatience, &rig.error), QUIRE_E_DEVICE_LOST);
    EXPECT_NE(last_fault().find("outside device memory"), std::string::npos) << last_fault();
    EXPECT_NE(last_fault().find("kernel quire_attend"), std::string::npos) << last_fault();
    EXPECT_EQ(rig.step(), QUIRE_E_DEVICE_LOST);
}

std::string name_of(const testing::TestParamInfo<size_t> &info) {
    return kVendors[info.param].name;
}
INSTANTIATE_TEST_SUITE_P(Vendors, Driver, testing::Values(0, 1), name_of);

// CUDA alone has contexts.
class CudaContext : public testing::Test {};

TEST_F(CudaContext, of_the_caller_is_never_changed) {
    setenv("QUIRE_CUDA_LIBRARY", QUIRE_FAKE_CUDA, 1);
    void *library = dlopen(QUIRE_FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);
    using GetProcAddress = int (*)(const char *, void **, int, uint64_t, int *);
    auto get = reinterpret_cast<GetProcAddress>(dlsym(library, "cuGetProcAddress_v2"));
    void *function = nullptr;
    ASSERT_EQ(get("cuCtxGetCurrent", &function, 12000, 0, nullptr), 0);
    auto get_current = reinterpret_cast<int (*)(void **)>(function);
    ASSERT_EQ(get("cuCtxSetCurrent", &function, 12000, 0, nullptr), 0);
    auto set_current = reinterpret_cast<int (*)(void *)>(function);
    auto module = dlopen(QUIRE_CUDA_BACKEND, RTLD_NOW | RTLD_LOCAL);
    auto entry = reinterpret_cast<quire_backend_query_fn>(dlsym(module, QUIRE_BACKEND_ENTRY));
    quire_host_info host{};
    host.struct_size = sizeof host;
    host.abi_minor = QUIRE_BACKEND_ABI_MINOR;
    const quire_backend_api *api = nullptr;
    Error error;
    ASSERT_EQ(entry(&host, &api, &error), QUIRE_OK);
    int mine = 0;
    for (void *context : {static_cast<void *>(nullptr), static_cast<void *>(&mine)}) {
        auto is_kept = [&] {
            void *found = nullptr;
            return get_current(&found) == 0 && found == context;
        };
        set_current(context);
        {
            Rig rig(*api);
            ASSERT_EQ(rig.open(), QUIRE_OK) << rig.error.message;
            EXPECT_TRUE(is_kept());
            ASSERT_EQ(rig.step(), QUIRE_OK) << rig.error.message;
            EXPECT_TRUE(is_kept());
            EXPECT_EQ(rig.sync(), QUIRE_OK) << rig.error.message;
            EXPECT_EQ(api->quiesce(rig.device, kPatience, &rig.error), QUIRE_OK);
            EXPECT_TRUE(is_kept());
            quire_be_device_props props{};
            props.struct_size = sizeof props;
            EXPECT_EQ(api->device_props(rig.device, &props, &rig.error), QUIRE_OK);
            EXPECT_TRUE(is_kept());
        }
        EXPECT_TRUE(is_kept());
    }
    set_current(nullptr);
}

}  // namespace
