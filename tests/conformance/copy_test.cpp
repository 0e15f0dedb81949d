// SPDX-License-Identifier: Apache-2.0
//
// Copies: every kind, every alignment, zero and very many bytes, and no byte outside the ranges.

#include <algorithm>

#include "number.hpp"
#include "subject.hpp"

namespace quire::conformance {

class CopyTest : public SubjectTest {};

namespace {

constexpr uint64_t kGib = uint64_t{1} << 30;

std::vector<unsigned char> noise(uint64_t size_bytes, uint64_t seed) {
    std::vector<unsigned char> bytes(size_bytes);
    for (uint64_t i = 0; i < size_bytes; ++i) bytes[i] = static_cast<unsigned char>(mix(i, seed));
    return bytes;
}

// Memory that is reserved and hardly touched. Never throws: if the memory cannot be had, reason()
// is not empty and a test skips.
class Sparse {
 public:
    Sparse(Rig &rig, uint64_t size_bytes) : rig_(rig), size_bytes_(size_bytes) {
        void *host = nullptr;
        Error error;
        quire_status status = api().mem_alloc(rig.device(), size_bytes, QUIRE_BE_MEMORY_DEVICE,
                                              &address_, &host, &error);
        if (status != QUIRE_OK) {
            address_ = 0;
            reason_ =
                std::to_string(size_bytes) + " bytes cannot be allocated here: " + error.message;
        }
    }
    Sparse(const Sparse &) = delete;
    Sparse &operator=(const Sparse &) = delete;
    ~Sparse() {
        if (address_ == 0) return;
        api().mem_free(rig_.device(), address_, size_bytes_, QUIRE_BE_MEMORY_DEVICE);
    }
    uint64_t address() const { return address_; }
    const std::string &reason() const { return reason_; }  // empty: allocated

 private:
    Rig &rig_;
    uint64_t size_bytes_;
    uint64_t address_ = 0;
    std::string reason_;
};

}  // namespace

TEST_F(CopyTest, every_kind_of_copy_moves_its_bytes_and_no_others) {
    Rig rig;
    constexpr uint64_t kSize = 10'000;
    struct {
        uint32_t copy, from, to;
    } kinds[] = {
        {QUIRE_BE_COPY_D2D, QUIRE_BE_MEMORY_DEVICE, QUIRE_BE_MEMORY_DEVICE},
        {QUIRE_BE_COPY_D2H, QUIRE_BE_MEMORY_DEVICE, QUIRE_BE_MEMORY_HOST},
        {QUIRE_BE_COPY_H2D, QUIRE_BE_MEMORY_HOST, QUIRE_BE_MEMORY_DEVICE},
        {QUIRE_BE_COPY_H2H, QUIRE_BE_MEMORY_HOST, QUIRE_BE_MEMORY_HOST},
    };
    std::vector<unsigned char> source(kSize);
    for (uint64_t i = 0; i < kSize; ++i) source[i] = static_cast<unsigned char>(mix(i));
    for (auto kind : kinds) {
        Memory from(rig, kSize, kind.from);
        Memory to(rig, kSize, kind.to);
        if (kind.from == QUIRE_BE_MEMORY_HOST)
            std::copy(source.begin(), source.end(), from.host());
        else
            rig.write(from.address(), source.data(), kSize);
        rig.copy(rig.queue(), to.address() + 333, from.address() + 17, 5001, kind.copy);
        rig.sync();
        std::vector<unsigned char> expected(kSize, 0);
        std::copy_n(source.begin() + 17, 5001, expected.begin() + 333);
        if (kind.to == QUIRE_BE_MEMORY_HOST) {
            EXPECT_TRUE(std::equal(expected.begin(), expected.end(), to.host())) << kind.copy;
        } else {
            EXPECT_EQ(rig.read(to.address(), kSize), expected) << kind.copy;
        }
    }
}

// As a cache does when it moves to another device: down from one, up to the other. If device
// addresses are host addresses, either device's host memory serves both.
TEST_F(CopyTest, bytes_go_from_one_device_to_another_through_memory_of_the_host) {
    constexpr uint64_t kSize = 70'000;
    Rig first, second;
    std::vector<unsigned char> source = noise(kSize, 5);
    Memory from(first, kSize), to(second, kSize);
    Memory down(first, kSize, QUIRE_BE_MEMORY_HOST), up(second, kSize, QUIRE_BE_MEMORY_HOST);
    first.write(from.address(), source.data(), kSize);
    first.copy(first.queue(), down.address() + 64, from.address() + 64, kSize - 64,
               QUIRE_BE_COPY_D2H);
    first.sync();
    std::copy_n(down.host() + 64, kSize - 64, up.host() + 64);
    second.copy(second.queue(), to.address() + 64, up.address() + 64, kSize - 64,
                QUIRE_BE_COPY_H2D);
    second.sync();
    std::vector<unsigned char> expected = source;
    std::fill_n(expected.begin(), 64, static_cast<unsigned char>(0));
    EXPECT_EQ(second.read(to.address(), kSize), expected);

    quire_be_device_props props{};
    props.struct_size = sizeof props;
    Error error;
    must(api().device_props(first.device(), &props, &error), error);
    if (props.host_visible == 0) return;
    std::copy_n(source.begin(), kSize, down.host());
    second.copy(second.queue(), to.address(), down.address(), kSize, QUIRE_BE_COPY_H2D);
    second.sync();
    EXPECT_EQ(second.read(to.address(), kSize), source);
}

TEST_F(CopyTest, one_call_takes_many_copies_of_any_size) {
    Rig rig;
    constexpr uint64_t kSize = 1 << 20;
    Memory from(rig, kSize);
    Guarded to(rig, kSize);
    std::vector<unsigned char> source(kSize);
    for (uint64_t i = 0; i < kSize; ++i) source[i] = static_cast<unsigned char>(mix(i, 2));
    rig.write(from.address(), source.data(), kSize);
    std::vector<unsigned char> expected(kSize);
    for (uint64_t i = 0; i < kSize; ++i) expected[i] = Guarded::unwritten(i);
    std::vector<quire_be_copy> copies;
    Dice dice(3);
    for (uint64_t at = 0; at < kSize - 5000;) {
        uint32_t bytes = dice.pick({0u, 1u, 2u, 63u, 64u, 4096u, 4999u});
        uint64_t source_at = dice.roll(0, kSize - 5000);
        copies.push_back(
            {to.address() + at, from.address() + source_at, bytes, QUIRE_BE_COPY_D2D, 0});
        std::copy_n(source.begin() + static_cast<int64_t>(source_at), bytes,
                    expected.begin() + static_cast<int64_t>(at));
        at += bytes + dice.roll(0, 3);
    }
    Error error;
    auto count = static_cast<uint32_t>(copies.size());
    must(api().copy(rig.queue(), copies.data(), count, &error), error);
    rig.sync();
    EXPECT_TRUE(to.read() == expected);
}

// A backend that splits a list among threads may cut it anywhere, across
// small copies and within large ones.
TEST_F(CopyTest, one_call_takes_blocks_beside_single_bytes) {
    constexpr uint64_t kSize = 36 << 20;
    std::vector<unsigned char> source = noise(kSize, 12);
    for (uint32_t threads : {1u, 2u, 5u}) {
        Rig rig(threads);
        Memory from(rig, kSize);
        Guarded to(rig, kSize);
        rig.write(from.address(), source.data(), kSize);
        std::vector<unsigned char> expected(kSize);
        for (uint64_t i = 0; i < kSize; ++i) expected[i] = Guarded::unwritten(i);
        std::vector<quire_be_copy> copies;
        Dice dice(13 + threads);
        for (uint64_t at = 0;;) {
            uint32_t bytes = dice.pick({0u, 1u, 16u << 10, (256u << 10) - 1, 256u << 10, 3u << 20});
            if (at + bytes > kSize) break;
            copies.push_back({to.address() + at, from.address() + at, bytes, QUIRE_BE_COPY_D2D, 0});
            std::copy_n(source.begin() + static_cast<int64_t>(at), bytes,
                        expected.begin() + static_cast<int64_t>(at));
            at += bytes + dice.roll(0, 2);
        }
        copies.push_back({0, 0, 0, QUIRE_BE_COPY_D2D, 0});
        Error error;
        must(api().copy(rig.queue(), copies.data(), static_cast<uint32_t>(copies.size()), &error),
             error);
        rig.sync();
        EXPECT_TRUE(to.read() == expected) << threads << " threads";
    }
}

// Backends that make no use of the host's threads pass by not asking for them.
TEST_F(CopyTest, one_call_is_copied_whole_by_the_hosts_threads) {
    constexpr uint64_t kSize = (9 << 20) + 5;
    std::vector<unsigned char> source = noise(kSize, 14);
    quire_be_device_desc desc = device_desc(0, 3);
    desc.flags &= ~uint32_t{QUIRE_BE_DEVICE_INLINE};
    desc.run_tasks = [](void *user, uint32_t task_count, quire_task task, void *context) {
        EXPECT_EQ(*static_cast<int *>(user), 15) << "not the user that was given";
        EXPECT_LE(task_count, 3u) << "more tasks than threads were allowed";
        while (task_count != 0) task(context, --task_count);
    };
    int user = 15;
    desc.run_tasks_user = &user;
    Rig rig(desc);
    Memory from(rig, kSize);
    Guarded to(rig, kSize);
    rig.write(from.address(), source.data(), kSize);
    rig.copy(rig.queue(), to.address(), from.address(), kSize);
    rig.sync();
    EXPECT_TRUE(to.read() == source);
}

TEST_F(CopyTest, every_alignment_of_both_ends_is_served) {
    Rig rig;
    constexpr uint64_t kSize = 300;
    std::vector<unsigned char> source = noise(kSize, 5);
    Memory from(rig, kSize);
    rig.write(from.address(), source.data(), kSize);
    for (uint64_t shift = 0; shift < 17; ++shift) {
        for (uint64_t bytes : {1ull, 3ull, 15ull, 16ull, 17ull, 255ull}) {
            Guarded to(rig, kSize);
            rig.copy(rig.queue(), to.address() + (shift * 7) % 17, from.address() + shift, bytes);
            rig.sync();
            std::vector<unsigned char> expected(kSize);
            for (uint64_t i = 0; i < kSize; ++i) expected[i] = Guarded::unwritten(i);
            std::copy_n(source.begin() + static_cast<int64_t>(shift), bytes,
                        expected.begin() + static_cast<int64_t>(shift * 7 % 17));
            ASSERT_TRUE(to.read() == expected) << bytes << " bytes from offset " << shift;
        }
    }
}

TEST_F(CopyTest, large_copy_moves_every_byte) {
    Rig rig;
    constexpr uint64_t kSize = (33 << 20) + 1;  // past a staging buffer of any usual size, and odd
    std::vector<unsigned char> source = noise(kSize, 6);
    Memory from(rig, kSize, QUIRE_BE_MEMORY_HOST);
    Memory device(rig, kSize);
    Memory other(rig, kSize);
    Memory back(rig, kSize, QUIRE_BE_MEMORY_HOST);
    std::copy(source.begin(), source.end(), from.host());
    rig.copy(rig.queue(), device.address(), from.address(), kSize, QUIRE_BE_COPY_H2D);
    rig.copy(rig.queue(), other.address(), device.address(), kSize, QUIRE_BE_COPY_D2D);
    rig.copy(rig.queue(), back.address(), other.address(), kSize, QUIRE_BE_COPY_D2H);
    rig.sync();
    auto wrong = std::mismatch(source.begin(), source.end(), back.host());
    EXPECT_EQ(wrong.first - source.begin(), static_cast<int64_t>(kSize)) << "the first wrong byte";
}

TEST_F(CopyTest, offsets_past_4_gib_are_reached) {
    Rig rig;
    Sparse far(rig, 6 * kGib);
    if (!far.reason().empty()) GTEST_SKIP() << far.reason();
    std::vector<unsigned char> source = noise(100'000, 7);
    rig.write(far.address() + 5 * kGib + 12'345, source.data(), source.size());
    uint64_t near = far.address() + kGib + 12'345;  // the same low 32 bits
    rig.fill(rig.queue(), near, source.size(), 0x11);
    rig.copy(rig.queue(), far.address() + 777, far.address() + 5 * kGib + 12'345, source.size());
    EXPECT_TRUE(rig.read(far.address() + 777, source.size()) == source);
    EXPECT_TRUE(rig.read(far.address() + 5 * kGib + 12'345, source.size()) == source);
    EXPECT_EQ(rig.read(near, source.size()), std::vector<unsigned char>(source.size(), 0x11));
}

TEST_F(CopyTest, copy_of_more_than_4_gib_moves_its_last_byte) {
    constexpr uint64_t kSize = 4 * kGib + 4096;
    if (!options().is_huge) GTEST_SKIP() << "writes " << kSize << " bytes; --huge runs it";
    Rig rig;
    quire_be_device_props props{};
    props.struct_size = sizeof props;
    Error error;
    must(api().device_props(rig.device(), &props, &error), error);
    // The destination is written in full; the other half may be needed by others.
    if (props.memory_free_bytes < 2 * kSize) {
        GTEST_SKIP() << "needs " << 2 * kSize << " bytes free, there are "
                     << props.memory_free_bytes;
    }
    Sparse from(rig, kSize);
    Sparse to(rig, kSize);
    if (!from.reason().empty()) GTEST_SKIP() << from.reason();
    if (!to.reason().empty()) GTEST_SKIP() << to.reason();
    const uint64_t marks[] = {0, 4095, 4 * kGib - 1, 4 * kGib, kSize - 1};
    for (uint64_t at : marks) rig.fill(rig.queue(), from.address() + at, 1, 0xC3);
    rig.copy(rig.queue(), to.address(), from.address(), kSize);
    for (uint64_t at : marks) EXPECT_EQ(rig.read(to.address() + at, 1)[0], 0xC3) << at;
    rig.fill(rig.queue(), to.address(), kSize, 0x3C);
    for (uint64_t at : marks) EXPECT_EQ(rig.read(to.address() + at, 1)[0], 0x3C) << at;
}

TEST_F(CopyTest, nothing_to_copy_is_done) {
    Rig rig;
    Error error;
    EXPECT_EQ(api().copy(rig.queue(), nullptr, 0, &error), QUIRE_OK);
    quire_be_copy empty{};
    EXPECT_EQ(api().copy(rig.queue(), &empty, 1, &error), QUIRE_OK);
    rig.sync();
}

TEST_F(CopyTest, destination_that_overlaps_its_own_source_is_refused) {
    Rig rig;
    Memory memory(rig, 4096);
    std::vector<unsigned char> source = noise(4096, 8);
    rig.write(memory.address(), source.data(), source.size());
    struct {
        uint64_t dst, src, size_bytes;
    } overlaps[] = {{0, 0, 64}, {1, 0, 64}, {0, 1, 64}, {63, 0, 64}, {1000, 1063, 64}};
    for (auto one : overlaps) {
        quire_be_copy copies[] = {
            {memory.address() + 2048, memory.address() + 3072, 64, QUIRE_BE_COPY_D2D, 0},
            {memory.address() + one.dst, memory.address() + one.src, one.size_bytes,
             QUIRE_BE_COPY_D2D, 0},
        };
        Error error;
        expect_refused(api().copy(rig.queue(), copies, 2, &error), error, QUIRE_E_ARG);
    }
    EXPECT_TRUE(rig.read(memory.address(), 4096) == source) << "a refused call wrote";
    // Ranges that only touch do not overlap.
    rig.copy(rig.queue(), memory.address() + 64, memory.address(), 64);
    rig.copy(rig.queue(), memory.address() + 256, memory.address() + 320, 64);
    rig.sync();
}

TEST_F(CopyTest, sources_may_overlap_each_other) {
    Rig rig;
    Memory from(rig, 4096);
    std::vector<unsigned char> source = noise(4096, 9);
    rig.write(from.address(), source.data(), source.size());
    Memory to(rig, 4096);
    quire_be_copy copies[] = {
        {to.address(), from.address(), 2000, QUIRE_BE_COPY_D2D, 0},
        {to.address() + 2000, from.address() + 500, 2000, QUIRE_BE_COPY_D2D, 0},
    };
    Error error;
    must(api().copy(rig.queue(), copies, 2, &error), error);
    auto bytes = rig.read(to.address(), 4000);
    EXPECT_TRUE(std::equal(source.begin(), source.begin() + 2000, bytes.begin()));
    EXPECT_TRUE(std::equal(source.begin() + 500, source.begin() + 2500, bytes.begin() + 2000));
}

TEST_F(CopyTest, one_bad_descriptor_refuses_the_whole_call) {
    Rig rig;
    Memory memory(rig, 4096);
    uint64_t good = memory.address();
    quire_be_copy bad[] = {
        {good, good + 64, 8, 4, 0},
        {0, good, 8, QUIRE_BE_COPY_D2D, 0},
        {good, 0, 8, QUIRE_BE_COPY_D2D, 0},
        {good, UINT64_MAX - 3, 8, QUIRE_BE_COPY_D2D, 0},
    };
    rig.fill(rig.queue(), good, 64, 1);
    for (const quire_be_copy &one : bad) {
        quire_be_copy copies[] = {{good + 1024, good, 64, QUIRE_BE_COPY_D2D, 0}, one};
        Error error;
        expect_refused(api().copy(rig.queue(), copies, 2, &error), error, QUIRE_E_ARG);
    }
    auto bytes = rig.read(good + 1024, 64);
    EXPECT_EQ(std::count(bytes.begin(), bytes.end(), 0), 64) << "the good one ran all the same";
}

TEST_F(CopyTest, null_pointers_are_refused) {
    Rig rig;
    Memory memory(rig, 64);
    Error error;
    quire_be_copy one = {memory.address(), memory.address() + 32, 8, QUIRE_BE_COPY_D2D, 0};
    expect_refused(api().copy(nullptr, &one, 1, &error), error, QUIRE_E_ARG);
    expect_refused(api().copy(rig.queue(), nullptr, 1, &error), error, QUIRE_E_ARG);
}

}  // namespace quire::conformance
