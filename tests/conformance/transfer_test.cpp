// SPDX-License-Identifier: Apache-2.0
//
// Copies and fills: every kind, every alignment, not a byte beside.

#include <algorithm>

#include "number.hpp"
#include "subject.hpp"

namespace quire::conformance {

class TransferTest : public SubjectTest {};

TEST_F(TransferTest, every_kind_of_copy_moves_its_bytes_and_no_others) {
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

TEST_F(TransferTest, one_call_takes_many_copies_of_any_size) {
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

TEST_F(TransferTest, fill_sets_its_bytes_and_no_others) {
    Rig rig;
    Guarded memory(rig, 9000);
    rig.fill(rig.queue(), memory.address() + 1, 1, 0xEE);
    rig.fill(rig.queue(), memory.address() + 3, 8000, 0);
    rig.fill(rig.queue(), memory.address() + 8999, 1, 255);
    rig.sync();
    auto bytes = memory.read();
    for (uint64_t i = 0; i < bytes.size(); ++i) {
        unsigned char expected = Guarded::unwritten(i);
        if (i == 1) expected = 0xEE;
        if (i >= 3 && i < 8003) expected = 0;
        if (i == 8999) expected = 255;
        ASSERT_EQ(bytes[i], expected) << i;
    }
}

TEST_F(TransferTest, nothing_to_do_is_done) {
    Rig rig;
    Error error;
    EXPECT_EQ(api().copy(rig.queue(), nullptr, 0, &error), QUIRE_OK);
    EXPECT_EQ(api().fill(rig.queue(), 0, 0, 1, &error), QUIRE_OK);
    quire_be_copy empty{};
    EXPECT_EQ(api().copy(rig.queue(), &empty, 1, &error), QUIRE_OK);
    rig.sync();
}

TEST_F(TransferTest, one_bad_descriptor_refuses_the_whole_call) {
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

TEST_F(TransferTest, bad_arguments_are_refused) {
    Rig rig;
    Memory memory(rig, 64);
    Error error;
    quire_be_copy one = {memory.address(), memory.address() + 32, 8, QUIRE_BE_COPY_D2D, 0};
    expect_refused(api().copy(nullptr, &one, 1, &error), error, QUIRE_E_ARG);
    expect_refused(api().copy(rig.queue(), nullptr, 1, &error), error, QUIRE_E_ARG);
    expect_refused(api().fill(nullptr, memory.address(), 8, 0, &error), error, QUIRE_E_ARG);
    expect_refused(api().fill(rig.queue(), memory.address(), 8, 256, &error), error, QUIRE_E_ARG);
    expect_refused(api().fill(rig.queue(), 0, 8, 0, &error), error, QUIRE_E_ARG);
    expect_refused(api().fill(rig.queue(), 64, UINT64_MAX, 0, &error), error, QUIRE_E_ARG);
}

}  // namespace quire::conformance
