// SPDX-License-Identifier: Apache-2.0
//
// How the vulkan backend itself reads a chained struct of another version, from a
// library of another version.

#include <gtest/gtest.h>

#include <cstring>

#include "quire/vulkan.h"
#include "shared/checks.hpp"

namespace {

// A chained struct in its first version, a later one, and a still later one.
struct First {
    quire_chain head;
    uint64_t a;
};
struct Later {
    quire_chain head;
    uint64_t a, b;
};
struct Last {
    quire_chain head;
    uint64_t a, b, c;
};

class ChainedStruct : public testing::Test {
 protected:
    void SetUp() override {
        error.struct_size = sizeof error;
        std::memset(&out, 0xAA, sizeof out);
    }
    // Reads as a backend that knows Later.
    quire_status read(const quire_chain *given) {
        return quire::read_chained(given, sizeof(First), sizeof(Later), "Later", &out, &error);
    }
    quire_error error{};
    Later out;
};

TEST_F(ChainedStruct, of_an_earlier_version_is_filled_up_with_zeros) {
    First given = {{7, sizeof given, nullptr}, 5};
    ASSERT_EQ(read(&given.head), QUIRE_OK) << error.message;
    EXPECT_EQ(out.head.struct_type, 7u);
    EXPECT_EQ(out.a, 5u);
    EXPECT_EQ(out.b, 0u);
}

TEST_F(ChainedStruct, of_a_later_version_is_taken_where_what_is_unknown_is_zero) {
    Last given = {{7, sizeof given, nullptr}, 5, 6, 0};
    ASSERT_EQ(read(&given.head), QUIRE_OK) << error.message;
    EXPECT_EQ(out.b, 6u);
    given.c = 1;
    EXPECT_EQ(read(&given.head), QUIRE_E_STRUCT);
    EXPECT_NE(std::strstr(error.message, "at byte 32"), nullptr) << error.message;
}

TEST_F(ChainedStruct, of_a_size_that_no_version_has_is_refused) {
    Last given = {{7, 0, nullptr}, 5, 6, 0};
    for (uint32_t size : {0u, 16u, 23u, 4097u, 0xFFFFFFFFu}) {
        given.head.struct_size = size;
        EXPECT_EQ(read(&given.head), QUIRE_E_STRUCT) << size;
        EXPECT_NE(std::strstr(error.message, "struct_size"), nullptr) << error.message;
    }
}

}  // namespace
