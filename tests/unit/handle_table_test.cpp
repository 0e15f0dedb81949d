// SPDX-License-Identifier: Apache-2.0
//
// handle_table: no handle ever means a second record.

#include "core/handle_table.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

#include "host.hpp"

namespace {

using namespace quire;

struct Table : HandleTable {
    explicit Table(uint32_t capacity, uint32_t salt = 0, HandleType type = HandleType::sequence)
        : HandleTable(test::host(), type, salt) {
        EXPECT_TRUE(create(capacity));
    }
};

TEST(HandleTable, zero_is_never_a_live_handle) {
    Table table(4);
    table.take();
    EXPECT_EQ(table.find(0), HandleTable::kNone);
    EXPECT_NE(table.handle(0), 0u);
}

TEST(HandleTable, an_ended_handle_is_not_found_after_its_slot_lives_again) {
    Table table(1);
    uint64_t first = table.handle(table.take());
    table.end(0);
    EXPECT_EQ(table.find(first), HandleTable::kNone);
    uint64_t second = table.handle(table.take());
    EXPECT_NE(first, second);
    EXPECT_EQ(table.find(first), HandleTable::kNone);
    EXPECT_EQ(table.find(second), 0u);
}

TEST(HandleTable, a_slot_whose_generation_would_wrap_is_retired) {
    Table table(2);
    EXPECT_EQ(table.take(), 0u);
    uint32_t lives = 0;
    for (uint64_t first = table.handle(0);; ++lives) {
        table.end(0);
        uint32_t index = table.take();
        if (index != 0) {
            EXPECT_EQ(index, 1u);
            break;
        }
        ASSERT_NE(table.handle(0), first) << "after " << lives;
    }
    EXPECT_EQ(lives, (1u << (HandleTable::kGenerationBits - 1)) - 1);
    EXPECT_EQ(table.take(), HandleTable::kNone);
    EXPECT_EQ(table.live(), 1u);
}

TEST(HandleTable, the_type_and_the_salt_tell_tables_apart) {
    Table sequences(4, 0), steps(4, 0, HandleType::step), others(4, 0x123456);
    uint64_t handle = sequences.handle(sequences.take());
    steps.take();
    others.take();
    EXPECT_EQ(steps.find(handle), HandleTable::kNone);
    EXPECT_EQ(others.find(handle), HandleTable::kNone);
    EXPECT_EQ(sequences.find(handle), 0u);
}

TEST(HandleTable, the_lowest_index_is_taken_first_and_the_last_one_ended_next) {
    Table table(3);
    EXPECT_EQ(table.take(), 0u);
    EXPECT_EQ(table.take(), 1u);
    EXPECT_EQ(table.take(), 2u);
    EXPECT_EQ(table.take(), HandleTable::kNone);
    table.end(1);
    EXPECT_EQ(table.take(), 1u);
}

}  // namespace
