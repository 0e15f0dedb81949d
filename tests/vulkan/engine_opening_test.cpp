// SPDX-License-Identifier: Apache-2.0
//
// Opening an engine's own VkDevice: what is accepted and what is refused, and what
// its driver refuses later.

#include <cstring>

#include "engine_fixture.hpp"
#include "tests/device/cpu_cache.hpp"

namespace {

using namespace quire::test;

struct VulkanEngineOpening : VulkanEngine {
    void SetUp() override {
        VulkanEngine::SetUp();
        error.struct_size = sizeof error;
        auto desc = described<quire_instance_desc>();
        ASSERT_EQ(api.instance_create(&desc, &instance, &error), QUIRE_OK) << error.message;
    }
    void TearDown() override {
        if (instance != nullptr) {
            EXPECT_EQ(api.instance_destroy(instance, &error), QUIRE_OK) << error.message;
        }
    }
    quire_status open(const quire_chain *next, const char *backend = "vulkan", uint32_t index = 0) {
        auto desc = described<quire_device_desc>();
        desc.backend = backend;
        desc.index = index;
        desc.next = next;
        device = nullptr;
        return api.device_open(instance, &desc, &device, &error);
    }
    void expect_refused(quire_status got, quire_status wanted, const char *words) {
        EXPECT_EQ(got, wanted) << words;
        EXPECT_NE(std::strstr(error.message, words), nullptr) << error.message;
    }

    const quire_api &api = library();
    quire_error error{};
    quire_instance *instance = nullptr;
    quire_device *device = nullptr;
};

TEST_F(VulkanEngineOpening, handles_that_cannot_be_are_refused) {
    struct {
        const char *words;
        void (*spoil)(quire_vulkan_device *);
        quire_status status;
    } const cases[] = {
        {"quire_vulkan_device.instance is NULL", [](auto *d) { d->instance = nullptr; },
         QUIRE_E_ARG},
        {"quire_vulkan_device.physical_device is NULL",
         [](auto *d) { d->physical_device = nullptr; }, QUIRE_E_ARG},
        {"quire_vulkan_device.device is NULL", [](auto *d) { d->device = nullptr; }, QUIRE_E_ARG},
        {"get_instance_proc_addr", [](auto *d) { d->get_instance_proc_addr = nullptr; },
         QUIRE_E_ARG},
        {"quire_vulkan_device.queue is NULL", [](auto *d) { d->queue = nullptr; }, QUIRE_E_ARG},
        {"lock and unlock", [](auto *d) { d->lock = nullptr; }, QUIRE_E_ARG},
        {"lock and unlock", [](auto *d) { d->unlock = nullptr; }, QUIRE_E_ARG},
        {"physical_device does not belong to the instance",
         [](auto *d) { d->physical_device = d->queue; }, QUIRE_E_ARG},
        {"queue: family 77 does not exist", [](auto *d) { d->queue_family = 77; }, QUIRE_E_ARG},
        {"queue 77 of family", [](auto *d) { d->queue_index = 77; }, QUIRE_E_ARG},
        {"transfer_queue: family 77 does not exist",
         [](auto *d) { d->transfer_queue = d->queue, d->transfer_family = 77; }, QUIRE_E_ARG},
        {"transfer_queue is not", [](auto *d) { d->transfer_queue = d->device; }, QUIRE_E_ARG},
        {"is not queue 0", [](auto *d) { d->queue = d->device; }, QUIRE_E_ARG},
        {"features contain unknown bits 0x", [](auto *d) { d->features |= 1u << 31; }, QUIRE_E_ARG},
    };
    for (const auto &one : cases) {
        quire_vulkan_device given = engine.describe();
        one.spoil(&given);
        expect_refused(open(chain_of(given)), one.status, one.words);
        EXPECT_EQ(device, nullptr);
    }
}

TEST_F(VulkanEngineOpening, each_feature_that_is_missing_is_named) {
    const char *names[] = {"shaderInt64",       "shaderInt16",       "storageBuffer16",
                           "storageBuffer8",    "shaderInt8",        "bufferDeviceAddress",
                           "timelineSemaphore", "scalarBlockLayout", "synchronization2",
                           "maintenance4"};
    for (uint32_t i = 0; i < 10; ++i) {
        quire_vulkan_device given = engine.describe();
        given.features &= ~(uint64_t{1} << i);
        expect_refused(open(chain_of(given)), QUIRE_E_UNSUPPORTED, names[i]);
    }
}

TEST_F(VulkanEngineOpening, chains_that_break_the_rules_are_refused) {
    quire_vulkan_device given = engine.describe();
    for (uint32_t size : {0u, 16u, uint32_t{sizeof given} - 8, 0xFFFFFFF8u}) {
        given.struct_size = size;
        expect_refused(open(chain_of(given)), QUIRE_E_STRUCT, "quire_vulkan_device");
    }
    struct {
        quire_vulkan_device known;
        uint64_t unknown;
    } longer = {engine.describe(), 0};
    longer.known.struct_size = sizeof longer;
    EXPECT_EQ(open(chain_of(longer.known)), QUIRE_OK) << error.message;
    EXPECT_EQ(api.device_close(device, &error), QUIRE_OK);
    longer.unknown = 1;
    expect_refused(open(chain_of(longer.known)), QUIRE_E_STRUCT, "does not know");
    given = engine.describe();
    quire_vulkan_device again = engine.describe();
    given.next = chain_of(again);
    expect_refused(open(chain_of(given)), QUIRE_E_STRUCT, "twice");
    given.next = chain_of(given);
    expect_refused(open(chain_of(given)), QUIRE_E_STRUCT, "twice");
    quire_chain unknown = {0x7777, sizeof unknown, nullptr};
    expect_refused(open(&unknown), QUIRE_E_STRUCT, "30583");
    given.next = &unknown;
    expect_refused(open(chain_of(given)), QUIRE_E_STRUCT, "30583");
    given.next = nullptr;
    expect_refused(open(chain_of(given), "cpu"), QUIRE_E_UNSUPPORTED, "does not know");
}

TEST_F(VulkanEngineOpening, native_objects_that_cannot_be_are_refused) {
    quire_vulkan_device given = engine.describe();
    ASSERT_EQ(open(chain_of(given)), QUIRE_OK) << error.message;
    quire_queue *queue = nullptr;
    auto bind = [&](auto spoil) {
        quire_native native = engine.queue_object();
        spoil(&native);
        return api.queue_create(device, &native, &queue, &error);
    };
    expect_refused(bind([](quire_native *n) { n->value = 0; }), QUIRE_E_ARG, "NULL");
    expect_refused(bind([](quire_native *n) { n->aux0 = 1; }), QUIRE_E_ARG, "belongs to family 1");
    expect_refused(bind([](quire_native *n) { n->aux1 = 9; }), QUIRE_E_ARG, "queue 9");
    expect_refused(bind([](quire_native *n) { n->value += 8; }), QUIRE_E_ARG, "is not queue 0");
    expect_refused(bind([](quire_native *n) { n->kind = QUIRE_NATIVE_VULKAN_SEMAPHORE; }),
                   QUIRE_E_UNSUPPORTED, "is not a queue that this backend supports");
    expect_refused(bind([](quire_native *n) { n->reserved0 = 1; }), QUIRE_E_STRUCT, "reserved0");
    EXPECT_EQ(queue, nullptr);
    ASSERT_EQ(bind([](quire_native *) {}), QUIRE_OK) << error.message;
    VkSemaphore semaphore = engine.make_semaphore();
    for (auto call : {api.queue_signal_native, api.queue_after_native}) {
        quire_native native = Engine::object_of(VK_NULL_HANDLE, 1);
        expect_refused(call(queue, &native, &error), QUIRE_E_ARG, "NULL");
        native = engine.queue_object();
        expect_refused(call(queue, &native, &error), QUIRE_E_UNSUPPORTED,
                       "is not a semaphore that this backend supports");
        native = Engine::object_of(semaphore, 1);
        native.aux1 = 1;
        expect_refused(call(queue, &native, &error), QUIRE_E_STRUCT, "aux1");
        native.aux1 = 0;
        native.reserved0 = 7;
        expect_refused(call(queue, &native, &error), QUIRE_E_STRUCT, "reserved0");
        expect_refused(call(queue, nullptr, &error), QUIRE_E_ARG, "native is NULL");
        expect_refused(call(nullptr, &native, &error), QUIRE_E_ARG, "queue is NULL");
    }
    vkDestroySemaphore(engine.device, semaphore, nullptr);
    EXPECT_EQ(api.queue_destroy(queue, &error), QUIRE_OK);
    EXPECT_EQ(api.device_close(device, &error), QUIRE_OK);
}

TEST_F(VulkanEngineOpening, large_copies_go_by_its_transfer_queue_in_order) {
    quire_vulkan_device given = engine.describe();
    given.transfer_queue = engine.queue;  // the only one there is
    ASSERT_EQ(open(chain_of(given)), QUIRE_OK) << error.message;
    constexpr uint64_t kBytes = uint64_t{2} << 20;
    quire_queue *queue = nullptr;
    quire_memory *memories[3] = {};
    unsigned char *host[3] = {};
    ASSERT_EQ(api.queue_create(device, nullptr, &queue, &error), QUIRE_OK);
    for (int i = 0; i < 3; ++i) {  // from the host to the device and back
        auto desc = described<quire_memory_desc>();
        desc.size_bytes = kBytes;
        desc.kind = i == 1 ? QUIRE_MEMORY_DEVICE : QUIRE_MEMORY_HOST;
        ASSERT_EQ(api.memory_create(device, &desc, &memories[i], &error), QUIRE_OK);
        auto info = described<quire_memory_info>();
        ASSERT_EQ(api.memory_get_info(memories[i], &info, &error), QUIRE_OK);
        host[i] = static_cast<unsigned char *>(info.host_pointer);
    }
    std::memset(host[0], 5, kBytes);
    std::memset(host[0], 1, 64);
    for (int i = 0; i < 2; ++i) {
        // After each large copy comes a small one on the other queue, over the first bytes.
        ASSERT_EQ(api.memory_copy(queue, memories[i + 1], 0, memories[i], 0, kBytes, &error),
                  QUIRE_OK)
            << error.message;
        ASSERT_EQ(api.memory_copy(queue, memories[1], 0, memories[1], 64, 64, &error), QUIRE_OK);
    }
    ASSERT_EQ(api.queue_sync(queue, &error), QUIRE_OK) << error.message;
    for (uint64_t i = 0; i < kBytes; ++i) ASSERT_EQ(host[2][i], 5) << i;
    for (quire_memory *one : memories) EXPECT_EQ(api.memory_destroy(one, &error), QUIRE_OK);
    EXPECT_EQ(api.queue_destroy(queue, &error), QUIRE_OK);
    EXPECT_EQ(api.device_close(device, &error), QUIRE_OK);
}

TEST_F(VulkanEngineOpening, its_host_memory_is_imported_where_it_says_it_can_be) {
    quire_vulkan_device given = engine.describe();
    ASSERT_EQ(open(chain_of(given)), QUIRE_OK) << error.message;
    alignas(4096) static unsigned char pages[4096];
    auto desc = described<quire_memory_desc>();
    desc.size_bytes = sizeof pages;
    desc.host_pointer = pages;
    quire_memory *memory = nullptr;
    expect_refused(api.memory_create(device, &desc, &memory, &error), QUIRE_E_ARG,
                   "QUIRE_MEMORY_HOST");
    desc.kind = QUIRE_MEMORY_HOST;
    // The description does not say so: copies go through the library's own memory.
    ASSERT_EQ(api.memory_create(device, &desc, &memory, &error), QUIRE_OK) << error.message;
    EXPECT_EQ(api.memory_destroy(memory, &error), QUIRE_OK);
    EXPECT_EQ(api.device_close(device, &error), QUIRE_OK);
}

// The library copies staged bytes to host memory only at its next call; the
// engine would read earlier.
TEST_F(VulkanEngineOpening, its_semaphore_is_not_signalled_before_staged_bytes_are_there) {
    quire_vulkan_device given = engine.describe();
    ASSERT_EQ(open(chain_of(given)), QUIRE_OK) << error.message;
    static unsigned char bytes[100];
    quire_memory *memories[2] = {};
    for (int i = 0; i < 2; ++i) {
        auto desc = described<quire_memory_desc>();
        desc.size_bytes = sizeof bytes;
        desc.kind = i == 0 ? QUIRE_MEMORY_DEVICE : QUIRE_MEMORY_HOST;
        desc.host_pointer = i == 0 ? nullptr : bytes;
        ASSERT_EQ(api.memory_create(device, &desc, &memories[i], &error), QUIRE_OK);
    }
    quire_queue *queue = nullptr;
    ASSERT_EQ(api.queue_create(device, nullptr, &queue, &error), QUIRE_OK);
    VkSemaphore go = engine.make_semaphore(), done = engine.make_semaphore();
    quire_native awaited = Engine::object_of(go, 1), signalled = Engine::object_of(done, 1);
    ASSERT_EQ(api.queue_after_native(queue, &awaited, &error), QUIRE_OK) << error.message;
    std::memset(bytes, 7, sizeof bytes);
    ASSERT_EQ(api.memory_copy(queue, memories[1], 0, memories[0], 0, sizeof bytes, &error),
              QUIRE_OK)
        << error.message;
    expect_refused(api.queue_signal_native(queue, &signalled, &error), QUIRE_E_BUSY,
                   "wait for a fence");
    EXPECT_EQ(bytes[99], 7);
    engine.signal(go, 1);
    ASSERT_EQ(api.queue_sync(queue, &error), QUIRE_OK) << error.message;
    EXPECT_EQ(bytes[99], 0);
    ASSERT_EQ(api.queue_signal_native(queue, &signalled, &error), QUIRE_OK) << error.message;
    engine.wait(done, 1);
    ASSERT_EQ(api.queue_sync(queue, &error), QUIRE_OK) << error.message;
    for (quire_memory *one : memories) EXPECT_EQ(api.memory_destroy(one, &error), QUIRE_OK);
    EXPECT_EQ(api.queue_destroy(queue, &error), QUIRE_OK);
    vkDestroySemaphore(engine.device, go, nullptr);
    vkDestroySemaphore(engine.device, done, nullptr);
    EXPECT_EQ(api.device_close(device, &error), QUIRE_OK);
}

TEST_F(VulkanEngineOpening, import_of_more_than_one_allocation_is_refused) {
    ASSERT_EQ(open(nullptr), QUIRE_OK) << error.message;
    alignas(4096) static unsigned char pages[4096];
    auto desc = described<quire_memory_desc>();
    desc.size_bytes = uint64_t{1} << 45;  // never accessed: refused before
    desc.kind = QUIRE_MEMORY_HOST;
    desc.host_pointer = pages;
    quire_memory *memory = nullptr;
    expect_refused(api.memory_create(device, &desc, &memory, &error), QUIRE_E_UNSUPPORTED,
                   "cannot import");
    EXPECT_EQ(memory, nullptr);
    EXPECT_EQ(api.device_close(device, &error), QUIRE_OK);
}

TEST_F(VulkanEngineOpening, its_device_is_opened_where_the_library_finds_none) {
    setenv("QUIRE_VULKAN_DEVICE", "00000000-0000-0000-0000-000000000001", 1);
    quire_vulkan_device given = engine.describe();
    expect_refused(open(nullptr), QUIRE_E_ARG, "but no device has that UUID");
    quire_status engines = open(chain_of(given));
    unsetenv("QUIRE_VULKAN_DEVICE");
    ASSERT_EQ(engines, QUIRE_OK) << error.message;
    EXPECT_EQ(api.device_close(device, &error), QUIRE_OK);
    expect_refused(open(chain_of(given), "vulkan", 1), QUIRE_E_ARG, "leave index 0");
}

// The engine's kernels could not follow the addresses of divided memory.
TEST_F(VulkanEngineOpening, memory_that_would_be_divided_is_refused) {
    setenv("QUIRE_VULKAN_MAX_ALLOCATION", "1048576", 1);
    quire_vulkan_device given = engine.describe();
    quire_status opened = open(chain_of(given));
    unsetenv("QUIRE_VULKAN_MAX_ALLOCATION");
    ASSERT_EQ(opened, QUIRE_OK) << error.message;
    auto desc = described<quire_memory_desc>();
    desc.size_bytes = 4 << 20;
    quire_memory *memory = nullptr;
    expect_refused(api.memory_create(device, &desc, &memory, &error), QUIRE_E_UNSUPPORTED,
                   "allocates at most 1044480 at once");
    EXPECT_EQ(memory, nullptr);
    auto group = described<quire_group_desc>();
    group.layer_count = group.kv_heads = 1;
    group.k_head_dim = group.v_head_dim = 64;
    group.k_dtype = QUIRE_DTYPE_F32;
    auto shard = described<quire_shard_desc>();
    shard.device = device;
    auto wanted = described<quire_cache_desc>();
    wanted.groups = &group;
    wanted.group_count = wanted.shard_count = 1;
    wanted.group_stride = sizeof group;
    wanted.shards = &shard;
    wanted.shard_stride = sizeof shard;
    wanted.blocks = 4096;
    quire_cache *cache = nullptr;
    expect_refused(api.cache_create(instance, &wanted, &cache, &error), QUIRE_E_UNSUPPORTED,
                   "at most");
    EXPECT_EQ(cache, nullptr);
    desc.size_bytes = 1044480;
    ASSERT_EQ(api.memory_create(device, &desc, &memory, &error), QUIRE_OK) << error.message;
    auto info = described<quire_memory_info>();
    EXPECT_EQ(api.memory_get_info(memory, &info, &error), QUIRE_OK);
    EXPECT_LT(info.address, uint64_t{1} << 60) << "an address of the VkDevice's";
    EXPECT_EQ(api.memory_destroy(memory, &error), QUIRE_OK);
    EXPECT_EQ(api.device_close(device, &error), QUIRE_OK);
}

// Refused here and not at the first import, where it would be too late.
TEST_F(VulkanEngineOpening, extension_that_it_says_and_has_not_is_refused) {
    quire_vulkan_device given = engine.describe();
    given.features |= QUIRE_VULKAN_EXTERNAL_MEMORY_HOST;
    expect_refused(open(chain_of(given)), QUIRE_E_UNSUPPORTED, "VK_EXT_external_memory_host");
    EXPECT_EQ(device, nullptr);
}

// An engine's driver that refuses submissions when a test says so.
struct Refusing {
    static inline bool is_on = false;
    static inline PFN_vkQueueSubmit2 real_submit = nullptr;

    static VKAPI_ATTR VkResult VKAPI_CALL submit(VkQueue queue, uint32_t count,
                                                 const VkSubmitInfo2 *infos, VkFence fence) {
        if (is_on) return VK_ERROR_OUT_OF_HOST_MEMORY;
        return real_submit(queue, count, infos, fence);
    }
    static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL of_device(VkDevice device, const char *name) {
        PFN_vkVoidFunction real = vkGetDeviceProcAddr(device, name);
        if (std::strcmp(name, "vkQueueSubmit2") != 0) return real;
        real_submit = reinterpret_cast<PFN_vkQueueSubmit2>(real);
        return reinterpret_cast<PFN_vkVoidFunction>(submit);
    }
    static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL of_instance(VkInstance instance,
                                                                const char *name) {
        if (std::strcmp(name, "vkGetDeviceProcAddr") != 0) {
            return vkGetInstanceProcAddr(instance, name);
        }
        return reinterpret_cast<PFN_vkVoidFunction>(of_device);
    }
};

TEST_F(VulkanEngineOpening, submission_that_its_driver_refuses_fails_the_call_that_made_it) {
    quire_vulkan_device given = engine.describe();
    given.get_instance_proc_addr = reinterpret_cast<quire_vulkan_function>(Refusing::of_instance);
    ASSERT_EQ(open(chain_of(given)), QUIRE_OK) << error.message;
    auto desc = described<quire_memory_desc>();
    desc.size_bytes = 4096;
    quire_memory *memory = nullptr;
    ASSERT_EQ(api.memory_create(device, &desc, &memory, &error), QUIRE_OK) << error.message;
    VkSemaphore semaphore = engine.make_semaphore();
    // A copy, a wait and a signal, each on its own bound queue; then a signal on an unbound one.
    for (int call = 0; call < 4; ++call) {
        quire_queue *queue = nullptr;
        quire_native native = engine.queue_object(), step = Engine::object_of(semaphore, 1);
        ASSERT_EQ(api.queue_create(device, call < 3 ? &native : nullptr, &queue, &error), QUIRE_OK);
        Refusing::is_on = true;
        quire_status got = call == 0   ? api.memory_copy(queue, memory, 0, memory, 64, 64, &error)
                           : call == 1 ? api.queue_after_native(queue, &step, &error)
                                       : api.queue_signal_native(queue, &step, &error);
        Refusing::is_on = false;
        expect_refused(got, QUIRE_E_DEVICE_LOST, "refused a submission");
        EXPECT_EQ(engine.read(semaphore), 0u);
        EXPECT_EQ(api.queue_destroy(queue, &error), QUIRE_OK);
    }
    EXPECT_EQ(api.memory_destroy(memory, &error), QUIRE_OK);
    EXPECT_EQ(api.device_close(device, &error), QUIRE_OK);
    vkDestroySemaphore(engine.device, semaphore, nullptr);
}

TEST_F(VulkanEngineOpening, devices_of_the_librarys_own_take_no_object_of_an_engine) {
    VkSemaphore semaphore = engine.make_semaphore();
    for (const char *backend : {"vulkan", "cpu"}) {
        ASSERT_EQ(open(nullptr, backend), QUIRE_OK) << error.message;
        quire_queue *queue = nullptr;
        quire_native native = engine.queue_object();
        EXPECT_EQ(api.queue_create(device, &native, &queue, &error), QUIRE_E_UNSUPPORTED);
        ASSERT_EQ(api.queue_create(device, nullptr, &queue, &error), QUIRE_OK);
        native = Engine::object_of(semaphore, 1);
        EXPECT_EQ(api.queue_signal_native(queue, &native, &error), QUIRE_E_UNSUPPORTED);
        EXPECT_EQ(api.queue_after_native(queue, &native, &error), QUIRE_E_UNSUPPORTED);
        EXPECT_EQ(api.queue_destroy(queue, &error), QUIRE_OK);
        EXPECT_EQ(api.device_close(device, &error), QUIRE_OK);
    }
    vkDestroySemaphore(engine.device, semaphore, nullptr);
}

}  // namespace
