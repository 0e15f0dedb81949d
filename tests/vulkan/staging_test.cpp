// SPDX-License-Identifier: Apache-2.0
//
// Copies with host memory of the engine's that the device cannot access, through the ring: on
// lavapipe, told not to use the extension that would allow access.

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "quire/plugin/backend.h"
#include "tests/device/fill_range.hpp"
#include "tests/device/plugin_table.hpp"
#include "tests/place.hpp"

namespace {

using quire::test::Error;
using quire::test::plugin_table;
using quire::tests::place;

using Bytes = std::vector<unsigned char>;

const quire_backend_api &api() {
    static const quire_backend_api *table = plugin_table(place(QUIRE_VULKAN_BACKEND));
    return *table;
}

// Differs between any two places that are a power of two apart.
unsigned char byte_at(uint64_t place) {
    return static_cast<unsigned char>(place * 0x9E3779B97F4A7C15u >> 56);
}

class Staging : public testing::Test {
 protected:
    static constexpr uint64_t kBytes = 1'000'003;  // of each memory; none is aligned

    void SetUp() override {
        setenv("QUIRE_VULKAN_IMPORT", "0", 1);
        uint32_t count = 0;
        ASSERT_EQ(api().probe(&count, &error), QUIRE_OK) << error.message;
        if (count == 0) GTEST_SKIP() << "no Vulkan device here: mesa-vulkan-drivers";
        quire_be_device_desc desc{};
        desc.struct_size = sizeof desc;
        must(api().device_open(&desc, &device, &error));
        for (auto &queue : queues) must(api().queue_bind(device, nullptr, &queue, &error));
        for (auto &fence : fences) must(api().fence_create(device, 0, &fence, &error));
        void *none = nullptr;
        must(api().mem_alloc(device, kBytes, QUIRE_BE_MEMORY_DEVICE, &on_device, &none, &error));
        for (size_t i = 0; i < std::size(hosts); ++i) {
            hosts[i].resize(kBytes + 1);
            for (uint64_t j = 0; j <= kBytes; ++j) {
                hosts[i][j] = byte_at(j + i);
            }
            must(api().mem_import(device, hosts[i].data() + 1, kBytes, &imported[i], &error));
        }
    }
    void TearDown() override {
        unsetenv("QUIRE_VULKAN_IMPORT");
        if (device == nullptr) return;
        must(api().quiesce(device, UINT64_MAX, &error));
        for (uint64_t one : imported) {
            api().mem_free(device, one, kBytes, QUIRE_BE_MEMORY_IMPORTED);
        }
        api().mem_free(device, on_device, kBytes, QUIRE_BE_MEMORY_DEVICE);
        close();
        uint64_t live = 7;
        must(api().shutdown(&live, &error));
        EXPECT_EQ(live, 0u);
    }

    void close() {
        for (auto *fence : fences) api().fence_destroy(fence);
        for (auto *queue : queues) api().queue_release(queue);
        api().device_close(device);
        device = nullptr;
    }
    void must(quire_status status) { ASSERT_EQ(status, QUIRE_OK) << error.message; }
    void copy(int queue, uint64_t dst, uint64_t src, uint64_t size_bytes) {
        bool from_host = src != on_device_of(src), to_host = dst != on_device_of(dst);
        uint32_t kind = from_host ? (to_host ? QUIRE_BE_COPY_H2H : QUIRE_BE_COPY_H2D)
                                  : (to_host ? QUIRE_BE_COPY_D2H : QUIRE_BE_COPY_D2D);
        quire_be_copy one = {dst, src, size_bytes, kind, 0};
        must(api().copy(queues[queue], &one, 1, &error));
    }
    // The address if it is in device memory, otherwise 0.
    uint64_t on_device_of(uint64_t address) const {
        return address >= on_device && address - on_device < kBytes ? address : 0;
    }
    void sync(int queue) {
        must(api().fence_signal(queues[queue], fences[queue], ++values[queue], &error));
        must(api().fence_wait_host(fences[queue], values[queue], UINT64_MAX, &error));
    }
    unsigned char *host(size_t i) { return hosts[i].data() + 1; }

    Error error;
    quire_be_device *device = nullptr;
    quire_be_queue *queues[2] = {};
    quire_be_fence *fences[2] = {};
    uint64_t values[2] = {};
    uint64_t on_device = 0;
    uint64_t imported[2] = {};
    Bytes hosts[2];
};

TEST_F(Staging, bytes_go_to_the_device_and_come_back) {
    Bytes given(host(0), host(0) + kBytes);
    copy(0, on_device, imported[0], kBytes);
    copy(0, imported[1], on_device, kBytes);
    sync(0);
    EXPECT_TRUE(std::equal(given.begin(), given.end(), host(1)));
    EXPECT_TRUE(std::equal(given.begin(), given.end(), host(0)));
}

TEST_F(Staging, what_is_still_to_come_is_read_behind_it) {
    must(quire::test::fill_range(api(), queues[0], on_device, kBytes, 1, &error));
    Bytes expected(host(0), host(0) + kBytes);
    copy(0, imported[0] + 100, on_device, 5000);
    must(quire::test::fill_range(api(), queues[0], on_device, kBytes, 2, &error));
    copy(0, imported[0] + 2000, on_device, 1000);
    // The host has waited for none of it.
    copy(0, on_device, imported[0], 10'000);
    must(quire::test::fill_range(api(), queues[0], imported[0], 10'000, 9, &error));
    copy(0, imported[1], on_device, 10'000);
    sync(0);
    std::fill_n(expected.begin() + 100, 5000, static_cast<unsigned char>(1));
    std::fill_n(expected.begin() + 2000, 1000, static_cast<unsigned char>(2));
    EXPECT_EQ(std::memcmp(host(1), expected.data(), 10'000), 0);
    std::fill_n(expected.begin(), 10'000, static_cast<unsigned char>(9));
    EXPECT_EQ(std::memcmp(host(0), expected.data(), kBytes), 0);
}

TEST_F(Staging, bytes_are_there_when_a_fence_of_another_queue_says_so) {
    for (unsigned char round = 1; round < 20; ++round) {
        must(quire::test::fill_range(api(), queues[0], on_device, kBytes, round, &error));
        copy(0, imported[0], on_device, kBytes);
        must(api().fence_signal(queues[0], fences[0], ++values[0], &error));
        must(api().fence_wait(queues[1], fences[0], values[0], &error));
        must(api().fence_signal(queues[1], fences[1], ++values[1], &error));
        // The host does not query the first queue.
        uint64_t seen = 0;
        while (seen < values[1]) must(api().fence_read(fences[1], &seen, &error));
        EXPECT_EQ(host(0)[0], round);
        EXPECT_EQ(host(0)[kBytes - 1], round);
    }
}

// A model does at once what the queue does in order. Some copies are larger than the ring.
TEST_F(Staging, random_copies_and_fills_give_what_one_after_another_would) {
    std::mt19937 dice(5);
    auto roll = [&](uint64_t below) { return dice() % below; };
    uint64_t addresses[] = {on_device, imported[0], imported[1]};
    must(quire::test::fill_range(api(), queues[0], on_device, kBytes, 0, &error));
    Bytes model[] = {Bytes(kBytes, 0), Bytes(host(0), host(0) + kBytes),
                     Bytes(host(1), host(1) + kBytes)};
    for (int i = 0; i < 600; ++i) {
        uint64_t size_bytes = 1 + roll(roll(4) == 0 ? kBytes / 2 : 3000);
        size_t to = roll(3), from = roll(3);
        uint64_t end = roll(8) == 0 ? kBytes : 8000;
        size_bytes = std::min(size_bytes, end / 2);
        uint64_t at = roll(end - size_bytes), origin = roll(end - size_bytes);
        if (roll(6) == 0) {
            auto value = static_cast<unsigned char>(i);
            must(quire::test::fill_range(api(), queues[0], addresses[to] + at, size_bytes, value,
                                         &error));
            std::fill_n(model[to].begin() + static_cast<int64_t>(at), size_bytes, value);
        } else {
            bool overlaps = to == from && at < origin + size_bytes && origin < at + size_bytes;
            if (overlaps) continue;
            copy(0, addresses[to] + at, addresses[from] + origin, size_bytes);
            std::memmove(&model[to][at], &model[from][origin], size_bytes);
        }
        if (roll(40) != 0) continue;
        sync(0);
        for (size_t h : {0u, 1u}) {
            ASSERT_EQ(std::memcmp(host(h), model[h + 1].data(), kBytes), 0) << "step " << i;
        }
    }
    copy(0, imported[0], on_device, kBytes);
    sync(0);
    EXPECT_EQ(std::memcmp(host(0), model[0].data(), kBytes), 0);
}

TEST_F(Staging, more_than_the_ring_holds_goes_through) {
    constexpr uint64_t kLarge = (uint64_t{24} << 20) + 5;
    Bytes from(kLarge), to(kLarge);
    for (uint64_t i = 0; i < kLarge; ++i) from[i] = byte_at(i);
    uint64_t addresses[2] = {};
    must(api().mem_import(device, from.data(), kLarge, &addresses[0], &error));
    must(api().mem_import(device, to.data(), kLarge, &addresses[1], &error));
    quire_be_copy one = {addresses[1], addresses[0], kLarge, QUIRE_BE_COPY_H2H, 0};
    must(api().copy(queues[0], &one, 1, &error));
    sync(0);
    EXPECT_TRUE(from == to);
    for (uint64_t address : addresses) {
        api().mem_free(device, address, kLarge, QUIRE_BE_MEMORY_IMPORTED);
    }
}

// The ring has 16 MiB: 6 are used and freed again, 8 stay in use; of the rest, 5 go to the
// beginning, and 3 find no room.
TEST_F(Staging, what_waits_in_the_ring_stays_as_it_is_when_the_ring_goes_round) {
    constexpr uint64_t kMiB = uint64_t{1} << 20, kLarge = 22 * kMiB;
    Bytes bytes(kLarge);
    for (uint64_t i = 0; i < kLarge; ++i) bytes[i] = byte_at(i);
    Bytes given = bytes;
    uint64_t host = 0, there = 0;
    void *none = nullptr;
    quire_be_fence *gate = nullptr;
    must(api().fence_create(device, 0, &gate, &error));
    must(api().mem_alloc(device, kLarge, QUIRE_BE_MEMORY_DEVICE, &there, &none, &error));
    must(api().mem_import(device, bytes.data(), kLarge, &host, &error));
    auto bring = [&](int queue, uint64_t begin, uint64_t end) {
        quire_be_copy one = {there + begin, host + begin, end - begin, QUIRE_BE_COPY_H2D, 0};
        must(api().copy(queues[queue], &one, 1, &error));
    };
    must(api().fence_wait(queues[1], gate, 1, &error));
    bring(1, 0, 6 * kMiB);
    must(api().fence_wait(queues[0], gate, 2, &error));
    bring(0, 6 * kMiB, 14 * kMiB);
    must(api().fence_signal_host(gate, 1, &error));
    sync(1);
    bring(0, 14 * kMiB, 19 * kMiB);
    bring(0, 19 * kMiB, kLarge);
    must(api().fence_signal_host(gate, 2, &error));
    sync(0);
    std::fill(bytes.begin(), bytes.end(), static_cast<unsigned char>(0));
    quire_be_copy back = {host, there, kLarge, QUIRE_BE_COPY_D2H, 0};
    must(api().copy(queues[0], &back, 1, &error));
    sync(0);
    EXPECT_TRUE(bytes == given);
    api().mem_free(device, host, kLarge, QUIRE_BE_MEMORY_IMPORTED);
    api().mem_free(device, there, kLarge, QUIRE_BE_MEMORY_DEVICE);
    api().fence_destroy(gate);
}

TEST_F(Staging, what_never_ran_writes_nothing) {
    Bytes before(host(0), host(0) + kBytes);
    must(api().fence_wait(queues[0], fences[1], 1, &error));
    copy(0, imported[0], on_device, kBytes);
    for (uint64_t one : imported) api().mem_free(device, one, kBytes, QUIRE_BE_MEMORY_IMPORTED);
    api().mem_free(device, on_device, kBytes, QUIRE_BE_MEMORY_DEVICE);
    close();
    EXPECT_EQ(std::memcmp(host(0), before.data(), kBytes), 0);
}

TEST_F(Staging, what_it_cannot_do_is_refused_in_words) {
    quire_be_merge args{};
    args.struct_size = sizeof args;
    args.part_count = args.token_count = args.heads = args.head_dim = 1;
    args.dtype = QUIRE_DTYPE_F32;
    args.parts = args.out = on_device;
    args.lses = imported[0];
    EXPECT_EQ(api().merge(queues[0], &args, &error), QUIRE_E_UNSUPPORTED);
    EXPECT_NE(std::strstr(error.message, "kernels cannot access"), nullptr) << error.message;
    uint64_t again = 0;
    EXPECT_EQ(api().mem_import(device, host(0) + 500, 10, &again, &error), QUIRE_E_ARG);
    EXPECT_NE(std::strstr(error.message, "overlap memory"), nullptr) << error.message;
    quire_be_copy beyond = {on_device, imported[0] + 1, kBytes, QUIRE_BE_COPY_H2D, 0};
    EXPECT_EQ(api().copy(queues[0], &beyond, 1, &error), QUIRE_E_ARG);
    EXPECT_NE(std::strstr(error.message, "copy 0 of"), nullptr) << error.message;
}

}  // namespace
