// SPDX-License-Identifier: Apache-2.0
//
// Devices and memory: counted, described, aligned, zeroed, and refused with a reason if exhausted.

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "subject.hpp"

namespace quire::conformance {

class DeviceTest : public SubjectTest {
 protected:
    DeviceTest() : SubjectTest(Needs::devices) {}
};

class MemoryTest : public SubjectTest {
 protected:
    MemoryTest() : SubjectTest(Needs::memory) {}
};

// The engine's own memory, which copies reach in place.
class ImportTest : public SubjectTest {
 protected:
    void SetUp() override {
        SubjectTest::SetUp();
        if (!IsSkipped() && api().mem_import == nullptr) GTEST_SKIP() << "mem_import is NULL";
    }
};

// The contents of device memory can be checked only once copies work.
class ScrubTest : public SubjectTest {};

TEST_F(DeviceTest, properties_are_plausible) {
    Rig rig;
    quire_be_device_props props{};
    Error error;
    expect_refused(api().device_props(rig.device(), &props, &error), error, QUIRE_E_STRUCT);
    props.struct_size = sizeof props;
    must(api().device_props(rig.device(), &props, &error), error);
    EXPECT_GT(props.memory_total_bytes, 0u);
    EXPECT_LE(props.memory_free_bytes, props.memory_total_bytes);
    EXPECT_LE(props.host_visible, 1u);
    EXPECT_GT(props.copy_alignment, 0u);
    EXPECT_EQ(props.copy_alignment & (props.copy_alignment - 1), 0u);
    EXPECT_GT(std::strlen(props.name), 0u);
}

TEST_F(DeviceTest, device_that_does_not_exist_is_refused) {
    Error error;
    uint32_t device_count = 0;
    must(api().probe(&device_count, &error), error);
    quire_be_device *device = nullptr;
    quire_be_device_desc desc = device_desc(device_count, 0);
    expect_refused(api().device_open(&desc, &device, &error), error, QUIRE_E_ARG);
    EXPECT_EQ(device, nullptr);
    desc.index = 0;
    expect_refused(api().device_open(&desc, nullptr, &error), error, QUIRE_E_ARG);
    expect_refused(api().probe(nullptr, &error), error, QUIRE_E_ARG);
}

TEST_F(DeviceTest, bad_descriptions_are_refused) {
    Error error;
    quire_be_device *device = nullptr;
    auto refused = [&](const quire_be_device_desc *desc, quire_status expected) {
        expect_refused(api().device_open(desc, &device, &error), error, expected);
        EXPECT_EQ(device, nullptr);
    };
    refused(nullptr, QUIRE_E_ARG);
    quire_be_device_desc desc = device_desc(0, 1);
    desc.struct_size = sizeof desc - 1;
    refused(&desc, QUIRE_E_STRUCT);
    struct Longer {
        quire_be_device_desc desc;
        uint64_t more;
    } longer = {device_desc(0, 1), 1};
    longer.desc.struct_size = sizeof longer;
    refused(&longer.desc, QUIRE_E_STRUCT);
    desc = device_desc(0, 1);
    desc.flags = 1u << 31;
    refused(&desc, QUIRE_E_ARG);
    desc.run_tasks = [](void *, uint32_t, quire_task, void *) {};
    for (uint32_t flag : {QUIRE_BE_DEVICE_PIN_THREADS, QUIRE_BE_DEVICE_INLINE}) {
        desc.flags = flag;
        refused(&desc, QUIRE_E_ARG);
    }
}

TEST_F(DeviceTest, flag_that_is_a_permission_is_taken_and_its_effect_said) {
    for (uint32_t flags :
         {0u, uint32_t{QUIRE_BE_DEVICE_FAST_16BIT}, uint32_t{QUIRE_BE_DEVICE_INLINE}}) {
        quire_be_device_desc desc = device_desc(0, 1);
        desc.flags = flags;
        Rig rig(desc);
        Error error;
        quire_be_device_props props{};
        props.struct_size = sizeof props;
        must(api().device_props(rig.device(), &props, &error), error);
        EXPECT_EQ(props.flags & ~flags, 0u) << "in effect without being requested";
    }
}

TEST_F(DeviceTest, opens_again_after_it_was_closed) {
    for (uint32_t threads : {0u, 1u, 3u}) {
        Error error;
        quire_be_device *first = nullptr;
        quire_be_device *second = nullptr;
        quire_be_device_desc desc = device_desc(0, threads);
        must(api().device_open(&desc, &first, &error), error);
        must(api().device_open(&desc, &second, &error), error);
        EXPECT_NE(first, second) << "two openings share one device";
        api().device_close(first);
        api().device_close(second);
    }
}

TEST_F(MemoryTest, host_memory_is_aligned_and_zeroed) {
    Rig rig;
    for (uint64_t size_bytes : {1ull, 4095ull, 4096ull, 4097ull, 3'000'001ull}) {
        Memory memory(rig, size_bytes, QUIRE_BE_MEMORY_HOST);
        EXPECT_EQ(memory.address() % 4096, 0u);
        ASSERT_NE(memory.host(), nullptr);
        EXPECT_EQ(std::count(memory.host(), memory.host() + size_bytes, 0),
                  static_cast<int64_t>(size_bytes));
    }
}

TEST_F(MemoryTest, allocations_do_not_overlap) {
    Rig rig;
    std::vector<std::unique_ptr<Memory>> all;
    for (uint64_t i = 0; i < 64; ++i) {
        uint32_t kind = i % 2 == 0 ? QUIRE_BE_MEMORY_DEVICE : QUIRE_BE_MEMORY_HOST;
        all.push_back(std::make_unique<Memory>(rig, 1 + i * 777, kind));
    }
    for (uint64_t i = 0; i < 64; ++i) {
        for (uint64_t j = 0; j < 64; j += 2) {
            if (i == j || i % 2 != j % 2) continue;
            uint64_t end = all[j]->address() + all[j]->size_bytes();
            EXPECT_TRUE(all[i]->address() >= end || all[i]->address() < all[j]->address());
        }
    }
}

TEST_F(MemoryTest, host_pointer_is_the_address_where_the_device_is_host_visible) {
    Rig rig;
    quire_be_device_props props{};
    props.struct_size = sizeof props;
    Error error;
    must(api().device_props(rig.device(), &props, &error), error);
    Memory memory(rig, 4096);
    if (props.host_visible == 0) {
        GTEST_SKIP() << "the device is not host visible";
    }
    EXPECT_EQ(reinterpret_cast<uint64_t>(memory.host()), memory.address());
}

TEST_F(MemoryTest, what_cannot_be_had_is_refused_with_its_size) {
    Rig rig;
    uint64_t address = 77;
    int untouched = 0;
    void *host = &untouched;
    for (uint64_t size_bytes : {uint64_t{1} << 60, UINT64_MAX - 5}) {
        for (uint32_t kind : {QUIRE_BE_MEMORY_DEVICE, QUIRE_BE_MEMORY_HOST}) {
            Error error;
            expect_refused(api().mem_alloc(rig.device(), size_bytes, kind, &address, &host, &error),
                           error, QUIRE_E_DEVICE_MEMORY);
            EXPECT_NE(std::strstr(error.message, std::to_string(size_bytes).c_str()), nullptr)
                << error.message;
            EXPECT_EQ(address, 77u);
            EXPECT_EQ(host, &untouched);
        }
    }
}

TEST_F(MemoryTest, bad_arguments_are_refused) {
    Rig rig;
    uint64_t address = 0;
    void *host = nullptr;
    Error error;
    auto alloc = [&](quire_be_device *device, uint64_t size_bytes, uint32_t kind, uint64_t *where,
                     void **pointer) {
        return api().mem_alloc(device, size_bytes, kind, where, pointer, &error);
    };
    expect_refused(alloc(rig.device(), 0, 0, &address, &host), error, QUIRE_E_ARG);
    expect_refused(alloc(rig.device(), 1, 2, &address, &host), error, QUIRE_E_ARG);
    expect_refused(alloc(nullptr, 1, 0, &address, &host), error, QUIRE_E_ARG);
    expect_refused(alloc(rig.device(), 1, 0, nullptr, &host), error, QUIRE_E_ARG);
    expect_refused(alloc(rig.device(), 1, 0, &address, nullptr), error, QUIRE_E_ARG);
}

TEST_F(ScrubTest, device_memory_is_aligned_and_zeroed) {
    Rig rig;
    for (uint64_t size_bytes : {1ull, 4095ull, 4096ull, 4097ull, 3'000'001ull}) {
        Memory memory(rig, size_bytes);
        EXPECT_EQ(memory.address() % 4096, 0u);
        auto bytes = rig.read(memory.address(), size_bytes);
        EXPECT_EQ(std::count(bytes.begin(), bytes.end(), 0), std::ssize(bytes));
    }
}

TEST_F(ScrubTest, freed_memory_comes_back_zeroed) {
    Rig rig;
    constexpr uint64_t kSize = 1 << 20;
    for (int i = 0; i < 8; ++i) {
        Memory memory(rig, kSize);
        auto bytes = rig.read(memory.address(), kSize);
        ASSERT_EQ(std::count(bytes.begin(), bytes.end(), 0), std::ssize(bytes));
        rig.fill(rig.queue(), memory.address(), kSize, 0xFF);
        rig.sync();
    }
}

TEST_F(ImportTest, imported_memory_is_copied_where_it_lies_and_stays) {
    constexpr uint64_t kBytes = uint64_t{1} << 20;
    constexpr size_t kMostAlignment = 1 << 16;
    std::unique_ptr<unsigned char, decltype(&std::free)> pages(
        static_cast<unsigned char *>(std::aligned_alloc(kMostAlignment, kBytes)), std::free);
    unsigned char *bytes = pages.get();
    for (uint64_t i = 0; i < kBytes; ++i)
        bytes[i] = static_cast<unsigned char>(i * 2654435761u >> 13);
    std::vector<unsigned char> given(bytes, bytes + kBytes);
    Rig rig;
    Error error;
    uint64_t address = 0;
    quire_status status = api().mem_import(rig.device(), bytes, kBytes, &address, &error);
    if (status == QUIRE_E_UNSUPPORTED) GTEST_SKIP() << error.message;
    must(status, error);
    EXPECT_TRUE(std::equal(given.begin(), given.end(), bytes)) << "it keeps what it holds";
    Memory memory(rig, kBytes);
    quire_be_copy in = {memory.address(), address, kBytes, QUIRE_BE_COPY_H2D, 0};
    must(api().copy(rig.queue(), &in, 1, &error), error);
    EXPECT_TRUE(rig.read(memory.address(), kBytes) == given);
    rig.fill(rig.queue(), memory.address(), kBytes, 7);
    quire_be_copy out = {address + 100, memory.address(), 1000, QUIRE_BE_COPY_D2H, 0};
    must(api().copy(rig.queue(), &out, 1, &error), error);
    rig.sync();
    std::fill_n(given.begin() + 100, 1000, static_cast<unsigned char>(7));
    EXPECT_TRUE(std::equal(given.begin(), given.end(), bytes));
    api().mem_free(rig.device(), address, kBytes, QUIRE_BE_MEMORY_IMPORTED);
    EXPECT_TRUE(std::equal(given.begin(), given.end(), bytes)) << "it is the engine's";
    // And again, because nothing of the import was kept.
    must(api().mem_import(rig.device(), bytes, kBytes, &address, &error), error);
    api().mem_free(rig.device(), address, kBytes, QUIRE_BE_MEMORY_IMPORTED);
}

TEST_F(ImportTest, what_cannot_be_imported_is_refused) {
    Rig rig;
    Error error;
    uint64_t address = 0;
    alignas(64) static unsigned char bytes[64];
    expect_refused(api().mem_import(nullptr, bytes, 64, &address, &error), error, QUIRE_E_ARG);
    expect_refused(api().mem_import(rig.device(), nullptr, 64, &address, &error), error,
                   QUIRE_E_ARG);
    expect_refused(api().mem_import(rig.device(), bytes, 0, &address, &error), error, QUIRE_E_ARG);
    expect_refused(api().mem_import(rig.device(), bytes, 64, nullptr, &error), error, QUIRE_E_ARG);
    EXPECT_EQ(address, 0u);
}

}  // namespace quire::conformance
