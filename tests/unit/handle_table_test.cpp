// SPDX-License-Identifier: Apache-2.0
//
// handle_table: no handle ever refers to a second record, and slots do not wear out.

#include "core/base/handle_table.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <set>

#include "core/steps/name_space.hpp"
#include "host.hpp"

namespace {

using namespace quire;

HandleNumbers g_numbers{1};

struct Table : HandleTable {
    explicit Table(uint32_t capacity, HandleNumbers *numbers = &g_numbers,
                   HandleType type = HandleType::sequence)
        : HandleTable(test::host(), type, numbers) {
        EXPECT_TRUE(create(capacity));
    }
};

TEST(HandleTable, zero_is_never_a_live_handle) {
    Table table(4);
    EXPECT_EQ(table.find(0), HandleTable::kNone);
    table.take();
    EXPECT_EQ(table.find(0), HandleTable::kNone);
    EXPECT_NE(table.handle(0), 0u);
}

TEST(HandleTable, an_ended_handle_is_not_found_after_its_record_lives_again) {
    Table table(1);
    uint64_t first = table.handle(table.take());
    table.end(0);
    EXPECT_EQ(table.find(first), HandleTable::kNone);
    uint64_t second = table.handle(table.take());
    EXPECT_NE(first, second);
    EXPECT_EQ(table.find(first), HandleTable::kNone);
    EXPECT_EQ(table.find(second), 0u);
}

// A slot used to last for only 2^23 lives.
TEST(HandleTable, a_record_lives_as_often_as_it_is_taken) {
    Table table(2);
    uint64_t last = 0;
    for (uint32_t lives = 0; lives < (1u << 23) + 10; ++lives) {
        ASSERT_EQ(table.take(), 0u) << "life " << lives;
        ASSERT_GT(table.handle(0), last);
        last = table.handle(0);
        table.end(0);
    }
    EXPECT_EQ(table.live(), 0u);
}

TEST(HandleTable, a_slot_comes_round_after_half_of_all_slots_at_the_soonest) {
    Table table(40000);
    std::mt19937 random(3);
    std::vector<uint32_t> live;
    std::deque<uint64_t> recent;  // low bits of the handles ended last
    const uint64_t mask = 131072 - 1;
    std::multiset<uint64_t> seen;
    for (uint32_t i = 0; i < 600000; ++i) {
        if (live.size() == 40000 || (!live.empty() && random() % 2 == 0)) {
            std::swap(live[random() % live.size()], live.back());
            recent.push_back(table.handle(live.back()) & mask);
            seen.insert(recent.back());
            if (recent.size() > 60000) {
                seen.erase(seen.find(recent.front()));
                recent.pop_front();
            }
            table.end(live.back());
            live.pop_back();
            continue;
        }
        live.push_back(table.take());
        ASSERT_EQ(seen.count(table.handle(live.back()) & mask), 0u);
    }
}

TEST(HandleTable, two_tables_never_give_the_same_handle_however_they_alternate) {
    Table a(3), b(70000), c(3, &g_numbers, HandleType::step);
    std::set<uint64_t> given;
    std::mt19937 random(5);
    for (uint32_t i = 0; i < 300000; ++i) {
        HandleTable &table = random() % 3 == 0 ? b : a;
        HandleTable &other = &table == &a ? static_cast<HandleTable &>(b) : a;
        uint32_t index = table.take();
        uint64_t handle = table.handle(index);
        ASSERT_TRUE(given.insert(handle).second);
        ASSERT_EQ(other.find(handle), HandleTable::kNone);
        ASSERT_EQ(c.find(handle), HandleTable::kNone);
        table.end(index);
    }
}

TEST(HandleTable, when_no_number_is_left_none_is_given) {
    HandleNumbers numbers{HandleNumbers::kEnd - 2 * HandleTable::kLeastEntries};
    Table table(1, &numbers);
    for (uint32_t i = 0; i < 2 * HandleTable::kLeastEntries; ++i) {
        ASSERT_EQ(table.take(), 0u);
        ASSERT_EQ(table.find(table.handle(0)), 0u);
        table.end(0);
    }
    EXPECT_FALSE(table.worn_out());
    EXPECT_EQ(table.take(), HandleTable::kNone);
    EXPECT_TRUE(table.worn_out());
    EXPECT_EQ(numbers.take(1), 0u);
}

TEST(HandleTable, the_lowest_index_is_taken_first_and_the_last_one_ended_next) {
    Table table(3);
    EXPECT_EQ(table.take(), 0u);
    EXPECT_EQ(table.take(), 1u);
    EXPECT_EQ(table.take(), 2u);
    EXPECT_EQ(table.take(), HandleTable::kNone);
    EXPECT_FALSE(table.worn_out());
    table.end(1);
    EXPECT_EQ(table.take(), 1u);
}

TEST(Namespaces, the_default_one_has_no_handle_and_numbers_are_not_reused) {
    Namespaces table(test::host());
    ASSERT_TRUE(table.create(8));
    EXPECT_EQ(table.find(0), Namespaces::kNone);
    EXPECT_EQ(table.find(make_handle(HandleType::name_space, 0)), Namespaces::kNone);
    std::set<uint64_t> given;
    for (uint32_t i = 0; i < 1000; ++i) {
        uint32_t index = table.take();
        ASSERT_NE(index, Namespaces::kNone);
        ASSERT_NE(index, Namespaces::kDefault);
        uint64_t handle = table.handle(index);
        ASSERT_TRUE(given.insert(handle).second);
        ASSERT_EQ(table.find(handle), index);
        ASSERT_EQ(table.find(handle ^ uint64_t{1} << 56), Namespaces::kNone);
        table.end(index);
        ASSERT_EQ(table.find(handle), Namespaces::kNone);
    }
    for (uint32_t i = 1; i < 8; ++i) EXPECT_NE(table.take(), Namespaces::kNone);
    EXPECT_EQ(table.take(), Namespaces::kNone);
}

}  // namespace
