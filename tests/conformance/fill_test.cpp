// SPDX-License-Identifier: Apache-2.0
//
// Fills: a byte over a range, and not a byte beside.

#include <algorithm>

#include "subject.hpp"

namespace quire::conformance {

class FillTest : public SubjectTest {};

TEST_F(FillTest, sets_its_bytes_and_no_others) {
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

TEST_F(FillTest, large_fill_sets_every_byte) {
    Rig rig;
    constexpr uint64_t kSize = (17 << 20) + 3;
    Memory memory(rig, kSize + 1);
    rig.fill(rig.queue(), memory.address(), kSize, 0x5A);
    auto bytes = rig.read(memory.address(), kSize + 1);
    EXPECT_EQ(std::count(bytes.begin(), bytes.end(), 0x5A), static_cast<int64_t>(kSize));
    EXPECT_EQ(bytes.back(), 0);
}

TEST_F(FillTest, nothing_to_fill_is_done) {
    Rig rig;
    Error error;
    EXPECT_EQ(api().fill(rig.queue(), 0, 0, 1, &error), QUIRE_OK);
    rig.sync();
}

TEST_F(FillTest, bad_arguments_are_refused) {
    Rig rig;
    Memory memory(rig, 64);
    Error error;
    expect_refused(api().fill(nullptr, memory.address(), 8, 0, &error), error, QUIRE_E_ARG);
    expect_refused(api().fill(rig.queue(), memory.address(), 8, 256, &error), error, QUIRE_E_ARG);
    expect_refused(api().fill(rig.queue(), 0, 8, 0, &error), error, QUIRE_E_ARG);
    expect_refused(api().fill(rig.queue(), 64, UINT64_MAX, 0, &error), error, QUIRE_E_ARG);
}

}  // namespace quire::conformance
