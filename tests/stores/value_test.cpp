// SPDX-License-Identifier: Apache-2.0
//
// Values: what was put under a label is what a get of that label gives, byte for byte.

#include "subject.hpp"

namespace quire::stores {

namespace {

const uint64_t kSizes[] = {1,      255,    256,    257,     4095,      4096,     4097,
                           65'535, 65'536, 65'537, 300'001, 1'048'576, 2'097'153};

}  // namespace

TEST(Value, of_any_size_comes_back) {
    Place place;
    Store store(place);
    for (uint64_t size_bytes : kSizes) {
        if (size_bytes > store.info().max_value_bytes) continue;
        quire_store_label label = label_of(size_bytes);
        Bytes value = value_of(label, size_bytes);
        quire_store_answer answer = store.put(label, value);
        ASSERT_EQ(answer.outcome, QUIRE_STORE_DONE) << size_bytes;
        EXPECT_EQ(answer.kind, QUIRE_STORE_PUT);
        EXPECT_EQ(answer.size_bytes, size_bytes);
        EXPECT_TRUE(same(answer.label, label));
        Bytes got;
        answer = store.get(label, size_bytes, &got);
        ASSERT_EQ(answer.outcome, QUIRE_STORE_DONE) << size_bytes;
        EXPECT_EQ(answer.kind, QUIRE_STORE_GET);
        EXPECT_EQ(answer.size_bytes, size_bytes);
        EXPECT_EQ(got, value) << size_bytes;
    }
}

TEST(Value, goes_out_of_and_into_pieces_cut_anywhere) {
    Place place;
    Store store(place);
    const std::vector<uint64_t> cuts[] = {
        {}, {0}, {1}, {4096, 4096}, {1, 1, 1}, {0, 5'000, 0, 3}, {9'999}, {10'000}};
    quire_store_label label = label_of(7);
    const Bytes value = value_of(label, 10'000);
    for (const auto &put_cuts : cuts) {
        for (const auto &get_cuts : cuts) {
            std::vector<Request> requests;
            requests.push_back(put_request(1, label, value, put_cuts));
            ASSERT_EQ(store.run(requests).front().outcome, QUIRE_STORE_DONE);
            requests.clear();
            requests.push_back(get_request(2, label, 10'000, get_cuts));
            ASSERT_EQ(store.run(requests).front().outcome, QUIRE_STORE_DONE);
            ASSERT_EQ(requests.front().bytes, value);
            ASSERT_EQ(store.ask(QUIRE_STORE_REMOVE, label).outcome, QUIRE_STORE_DONE);
        }
    }
}

TEST(Value, that_was_never_put_is_a_miss) {
    Place place;
    Store store(place);
    EXPECT_EQ(store.get(label_of(1), 100, nullptr).outcome, QUIRE_STORE_MISS);
    EXPECT_EQ(store.ask(QUIRE_STORE_FIND, label_of(1)).outcome, QUIRE_STORE_MISS);
    EXPECT_EQ(store.ask(QUIRE_STORE_REMOVE, label_of(1)).outcome, QUIRE_STORE_DONE);
    EXPECT_NE(store.find(label_of(1)), QUIRE_STORE_PRESENT);
}

TEST(Value, is_found_until_it_is_removed) {
    Place place;
    Store store(place);
    quire_store_label label = label_of(1);
    for (int round = 0; round < 3; ++round) {
        ASSERT_EQ(store.put(label, value_of(label, 5'000)).outcome, QUIRE_STORE_DONE);
        EXPECT_NE(store.find(label), QUIRE_STORE_ABSENT);
        EXPECT_EQ(store.ask(QUIRE_STORE_FIND, label).outcome, QUIRE_STORE_DONE);
        ASSERT_EQ(store.ask(QUIRE_STORE_REMOVE, label).outcome, QUIRE_STORE_DONE);
        EXPECT_NE(store.find(label), QUIRE_STORE_PRESENT);
        EXPECT_EQ(store.ask(QUIRE_STORE_FIND, label).outcome, QUIRE_STORE_MISS);
        EXPECT_EQ(store.get(label, 5'000, nullptr).outcome, QUIRE_STORE_MISS);
    }
}

TEST(Value, put_again_is_kept_as_it_was) {
    Place place;
    Store store(place);
    quire_store_label label = label_of(1);
    const Bytes first = value_of(label, 3'000);
    ASSERT_EQ(store.put(label, first).outcome, QUIRE_STORE_DONE);
    EXPECT_EQ(store.put(label, Bytes(3'000, 0x11)).outcome, QUIRE_STORE_DONE);
    EXPECT_EQ(store.put(label, Bytes(77, 0x22)).outcome, QUIRE_STORE_DONE);
    Bytes got;
    ASSERT_EQ(store.get(label, 3'000, &got).outcome, QUIRE_STORE_DONE);
    EXPECT_EQ(got, first);
    EXPECT_EQ(store.stats().puts, 1u);
    EXPECT_EQ(store.stats().puts_known, 2u);
}

TEST(Value, of_another_model_or_tenant_is_never_given) {
    Place place;
    Store store(place);
    quire_store_label own = label_of(1, 1, 1), model = label_of(1, 2, 1),
                      tenant = label_of(1, 1, 2);
    ASSERT_EQ(store.put(own, value_of(own, 3'000)).outcome, QUIRE_STORE_DONE);
    for (const quire_store_label &other : {model, tenant}) {
        Bytes got;
        uint32_t outcome = store.get(other, 3'000, &got).outcome;
        EXPECT_TRUE(outcome == QUIRE_STORE_FOREIGN || outcome == QUIRE_STORE_MISS) << outcome;
        EXPECT_NE(got, value_of(own, 3'000)) << "another's bytes were given out";
        EXPECT_EQ(store.ask(QUIRE_STORE_FIND, other).outcome, QUIRE_STORE_MISS);
        if (store.has(QUIRE_STORE_INDEXED)) {
            EXPECT_EQ(store.ask(QUIRE_STORE_REMOVE, other).outcome, QUIRE_STORE_DONE);
        }
    }
    Bytes got;
    ASSERT_EQ(store.get(own, 3'000, &got).outcome, QUIRE_STORE_DONE)
        << "to remove another's label removes only that";
    EXPECT_EQ(got, value_of(own, 3'000));
    // Whichever of two the store keeps under one key, it never gives it to the other.
    ASSERT_EQ(store.put(tenant, value_of(tenant, 2'000)).outcome, QUIRE_STORE_DONE);
    if (store.get(tenant, 2'000, &got).outcome == QUIRE_STORE_DONE) {
        EXPECT_EQ(got, value_of(tenant, 2'000));
    }
    if (store.get(own, 3'000, &got).outcome == QUIRE_STORE_DONE) {
        EXPECT_EQ(got, value_of(own, 3'000));
    }
}

TEST(Value, is_not_given_into_pieces_of_another_size) {
    Place place;
    Store store(place);
    quire_store_label label = label_of(1);
    ASSERT_EQ(store.put(label, value_of(label, 5'000)).outcome, QUIRE_STORE_DONE);
    for (uint64_t size_bytes : {0u, 1u, 4'999u, 5'001u, 100'000u}) {
        quire_store_answer answer = store.get(label, size_bytes, nullptr);
        EXPECT_EQ(answer.outcome, QUIRE_STORE_SIZE) << size_bytes;
        EXPECT_EQ(answer.size_bytes, 5'000u) << size_bytes;
    }
}

TEST(Value, of_keys_that_differ_in_one_bit_are_apart) {
    Place place;
    Store store(place);
    const quire_store_label base = label_of(5);
    std::vector<quire_store_label> labels = {base};
    for (uint32_t bit = 0; bit < 256; bit += 5) {
        quire_store_label label = base;
        label.key[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
        labels.push_back(label);
    }
    for (const auto &label : labels) {
        ASSERT_EQ(store.put(label, value_of(label, 500)).outcome, QUIRE_STORE_DONE);
    }
    for (const auto &label : labels) {
        Bytes got;
        ASSERT_EQ(store.get(label, 500, &got).outcome, QUIRE_STORE_DONE);
        ASSERT_EQ(got, value_of(label, 500));
    }
}

TEST(Value, list_tells_each_record_once) {
    Place place;
    Store store(place);
    if (api().list == nullptr) GTEST_SKIP() << "the store cannot tell what it has";
    EXPECT_TRUE(store.list().empty());
    for (uint64_t i = 0; i < 40; ++i) {
        ASSERT_EQ(store.put(label_of(i), value_of(label_of(i), 100 + i)).outcome, QUIRE_STORE_DONE);
    }
    for (uint64_t i = 0; i < 40; i += 3) store.ask(QUIRE_STORE_REMOVE, label_of(i));
    for (uint32_t capacity : {1u, 7u, 100u}) {
        std::vector<quire_store_record> records = store.list(capacity);
        std::vector<int> seen(40);
        for (const quire_store_record &record : records) {
            for (uint64_t i = 0; i < 40; ++i) {
                if (!same(record.label, label_of(i))) continue;
                seen[i] += 1;
                EXPECT_EQ(record.value_bytes, 100 + i);
            }
        }
        EXPECT_EQ(records.size(), 26u);
        for (uint64_t i = 0; i < 40; ++i) EXPECT_EQ(seen[i], i % 3 == 0 ? 0 : 1) << i;
    }
    EXPECT_EQ(store.stats().records, 26u);
}

TEST(Value, counts_say_what_happened) {
    Place place;
    Store store(place);
    quire_store_label label = label_of(1, 1, 1), other = label_of(1, 1, 2);
    store.put(label, value_of(label, 1'000));
    store.put(label, value_of(label, 1'000));
    store.get(label, 1'000, nullptr);
    store.get(label, 1'000, nullptr);
    store.get(label_of(2), 1'000, nullptr);
    store.get(other, 1'000, nullptr);
    quire_store_stats stats = store.stats();
    EXPECT_EQ(stats.records, 1u);
    EXPECT_EQ(stats.value_bytes, 1'000u);
    EXPECT_GE(stats.used_bytes, 1'000u);
    EXPECT_EQ(stats.puts, 1u);
    EXPECT_EQ(stats.puts_known, 1u);
    EXPECT_EQ(stats.hits, 2u);
    EXPECT_EQ(stats.misses + stats.foreign, 2u);
    EXPECT_GE(stats.written_bytes, 1'000u);
    store.ask(QUIRE_STORE_REMOVE, label);
    stats = store.stats();
    EXPECT_EQ(stats.removed, 1u);
    EXPECT_EQ(stats.records, 0u);
    EXPECT_EQ(stats.value_bytes, 0u);
}

}  // namespace quire::stores
