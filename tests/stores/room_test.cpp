// SPDX-License-Identifier: Apache-2.0
//
// Room: a store keeps to its capacity, says what it dropped for it, and goes on.

#include <algorithm>

#include "subject.hpp"

namespace quire::stores {

namespace {

constexpr uint64_t kValueBytes = 200'000;

// A store whose capacity is known.
class Room : public testing::Test {
 protected:
    void SetUp() override {
        capacity_ = store_.info().capacity_bytes;
        if (capacity_ == 0 || capacity_ > uint64_t{1} << 30) {
            GTEST_SKIP() << "give this run --option capacity=64MiB, or as small as it may be";
        }
        if (!store_.has(QUIRE_STORE_INDEXED) || api().list == nullptr) {
            GTEST_SKIP() << "the store does not know what it has";
        }
    }

    Place place_;
    Store store_{place_};
    uint64_t capacity_ = 0;
};

}  // namespace

TEST_F(Room, is_never_exceeded_and_what_goes_is_told) {
    const uint64_t count = 3 * capacity_ / kValueBytes;
    std::vector<bool> is_gone(count);
    for (uint64_t i = 0; i < count; ++i) {
        ASSERT_EQ(store_.put(label_of(i), value_of(label_of(i), kValueBytes)).outcome,
                  QUIRE_STORE_DONE)
            << i;
        quire_store_stats stats = store_.stats();
        ASSERT_LE(stats.used_bytes, capacity_) << i;
        ASSERT_LE(stats.value_bytes, stats.used_bytes) << i;
        ASSERT_NE(store_.find(label_of(i)), QUIRE_STORE_ABSENT) << "the newest is there";
    }
    while (!store_.reap().empty()) continue;
    ASSERT_FALSE(store_.has_lost);
    for (const quire_store_label &label : store_.gone) {
        for (uint64_t i = 0; i < count; ++i) {
            if (!same(label, label_of(i))) continue;
            ASSERT_FALSE(is_gone[i]) << i << " is gone twice";
            is_gone[i] = true;
        }
    }
    uint64_t kept = 0;
    for (uint64_t i = 0; i < count; ++i) {
        Bytes value;
        const quire_store_answer answer = store_.get(label_of(i), kValueBytes, &value);
        ASSERT_EQ(answer.outcome, is_gone[i] ? QUIRE_STORE_MISS : QUIRE_STORE_DONE) << i;
        if (!is_gone[i]) {
            ASSERT_EQ(value, value_of(label_of(i), kValueBytes)) << i;
        }
        kept += !is_gone[i];
    }
    EXPECT_EQ(store_.stats().records, kept);
    EXPECT_EQ(store_.stats().evicted, count - kept);
    EXPECT_GE(kept * kValueBytes, capacity_ / 2) << "at least half of the room is used";
}

TEST_F(Room, of_removed_values_can_be_used_again) {
    const uint64_t count = capacity_ / kValueBytes / 2;
    for (uint64_t round = 0; round < 4; ++round) {
        for (uint64_t i = 0; i < count; ++i) {
            const quire_store_label label = label_of(round * count + i);
            ASSERT_EQ(store_.put(label, value_of(label, kValueBytes)).outcome, QUIRE_STORE_DONE);
        }
        for (uint64_t i = 0; i < count; ++i) {
            ASSERT_EQ(store_.ask(QUIRE_STORE_REMOVE, label_of(round * count + i)).outcome,
                      QUIRE_STORE_DONE);
        }
        ASSERT_EQ(store_.stats().records, 0u);
    }
    if (store_.has(QUIRE_STORE_COMPACTS)) {
        ASSERT_EQ(store_.ask(QUIRE_STORE_COMPACT).outcome, QUIRE_STORE_DONE);
    }
    EXPECT_LE(store_.stats().used_bytes, capacity_ / 8) << "dead values take room";
    EXPECT_EQ(store_.stats().value_bytes, 0u);
}

TEST_F(Room, that_notices_take_is_bounded) {
    // Without a reap, notices pile up until they are lost; then one LOST is told.
    const uint64_t small = std::max<uint64_t>(1, capacity_ / 400);
    std::vector<Request> requests;
    quire_store_answer kept[1];
    for (uint64_t i = 0; i < 4'000; ++i) {
        Request request = put_request(i, label_of(i), value_of(label_of(i), small));
        uint32_t taken = 0;
        Error error;
        while (taken == 0) {
            must(api().submit(store_.get(), &request.raw, 1, sizeof request.raw, &taken, &error),
                 error);
        }
        uint32_t count = 0;
        while (count == 0) {
            ASSERT_TRUE(store_.wait());
            must(api().reap(store_.get(), kept, 1, sizeof kept[0], &count, &error), error);
            if (count != 0 && kept[0].kind == 0) count = 0;  // a notice
        }
        if (i % 1'000 == 0) store_.list();
    }
    std::vector<quire_store_record> before = store_.list(64);
    EXPECT_FALSE(before.empty());
}

}  // namespace quire::stores
