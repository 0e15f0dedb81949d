// SPDX-License-Identifier: Apache-2.0
//
// Persistence: what was flushed is there after the next open, and a reader changes nothing.

#include "subject.hpp"

namespace quire::stores {

namespace {

class Persist : public testing::Test {
 protected:
    void SetUp() override {
        Store store(place_);
        if (!store.has(QUIRE_STORE_PERSISTENT)) {
            GTEST_SKIP() << "the store does not outlive its process";
        }
    }

    // A store with values 0 to 29, of which every third was removed.
    void fill() {
        Store store(place_);
        for (uint64_t i = 0; i < 30; ++i) {
            ASSERT_EQ(store.put(label_of(i, 1, i % 2), value_of(label_of(i, 1, i % 2), 2'000 + i))
                          .outcome,
                      QUIRE_STORE_DONE);
        }
        for (uint64_t i = 0; i < 30; i += 3) {
            ASSERT_EQ(store.ask(QUIRE_STORE_REMOVE, label_of(i, 1, i % 2)).outcome,
                      QUIRE_STORE_DONE);
        }
        ASSERT_EQ(store.ask(QUIRE_STORE_FLUSH).outcome, QUIRE_STORE_DONE);
    }

    void expect_filled(Store &store) {
        for (uint64_t i = 0; i < 30; ++i) {
            const quire_store_label label = label_of(i, 1, i % 2);
            Bytes value;
            const uint32_t outcome = store.get(label, 2'000 + i, &value).outcome;
            ASSERT_EQ(outcome, i % 3 == 0 ? QUIRE_STORE_MISS : QUIRE_STORE_DONE) << i;
            if (i % 3 != 0) {
                ASSERT_EQ(value, value_of(label, 2'000 + i)) << i;
            }
        }
        EXPECT_EQ(store.stats().records, 20u);
    }

    Place place_;
};

}  // namespace

TEST_F(Persist, what_was_flushed_is_there_again) {
    fill();
    for (int round = 0; round < 3; ++round) {
        Store store(place_, QUIRE_STORE_OPEN_EXISTING);
        expect_filled(store);
        EXPECT_EQ(store.stats().recovered, 20u);
    }
}

TEST_F(Persist, what_was_removed_may_be_put_again) {
    fill();
    {
        Store store(place_);
        const quire_store_label label = label_of(3, 1, 1);
        ASSERT_EQ(store.put(label, value_of(label, 99)).outcome, QUIRE_STORE_DONE);
    }
    Store store(place_);
    Bytes value;
    ASSERT_EQ(store.get(label_of(3, 1, 1), 99, &value).outcome, QUIRE_STORE_DONE);
    EXPECT_EQ(value, value_of(label_of(3, 1, 1), 99));
}

TEST_F(Persist, reader_sees_all_and_changes_nothing) {
    fill();
    {
        Store store(place_, QUIRE_STORE_OPEN_EXISTING | QUIRE_STORE_OPEN_READ_ONLY);
        expect_filled(store);
        for (uint32_t kind : {QUIRE_STORE_PUT, QUIRE_STORE_REMOVE}) {
            Request request = put_request(1, label_of(1, 1, 1), Bytes(10));
            if (kind == QUIRE_STORE_REMOVE) {
                request = other_request(1, kind, label_of(1, 1, 1));
            }
            uint32_t taken = 0;
            Error error;
            expect_refused(
                api().submit(store.get(), &request.raw, 1, sizeof request.raw, &taken, &error),
                error, QUIRE_E_UNSUPPORTED);
        }
    }
    Store store(place_);
    expect_filled(store);
}

TEST_F(Persist, sequence_numbers_grow_over_openings) {
    fill();
    if (api().list == nullptr) GTEST_SKIP() << "the store cannot tell what it has";
    uint64_t last = 0;
    {
        Store store(place_);
        for (const quire_store_record &record : store.list()) {
            last = std::max(last, record.sequence);
        }
    }
    if (last == 0) GTEST_SKIP() << "the store numbers no puts";
    Store store(place_);
    ASSERT_EQ(store.put(label_of(500), value_of(label_of(500), 10)).outcome, QUIRE_STORE_DONE);
    bool is_listed = false;
    for (const quire_store_record &record : store.list()) {
        if (!same(record.label, label_of(500))) continue;
        is_listed = true;
        EXPECT_GT(record.sequence, last);
    }
    EXPECT_TRUE(is_listed);
}

}  // namespace quire::stores
