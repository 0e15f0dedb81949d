// SPDX-License-Identifier: Apache-2.0
//
// Opening and closing: mistakes are refused in words, and leave nothing open.

#include <cstring>

#include "subject.hpp"

namespace quire::stores {

namespace {

uint64_t live() {
    uint64_t count = 99;
    Error error;
    must(api().shutdown(&count, &error), error);
    return count;
}

// Opens with these settings, expecting a refusal that names `word`.
void expect_setting_refused(const Settings &settings, const std::string &word) {
    Place place(settings);
    quire_store *store = nullptr;
    Error error;
    expect_refused(place.try_open(0, &store, &error), error, QUIRE_E_ARG);
    EXPECT_EQ(store, nullptr);
    EXPECT_NE(std::string(error.message).find(word), std::string::npos)
        << "the message names " << word << ": " << error.message;
}

}  // namespace

TEST(Open, stores_are_counted_until_they_are_closed) {
    EXPECT_EQ(live(), 0u);
    Place one, two;
    {
        Store first(one);
        EXPECT_EQ(live(), 1u);
        Store second(two);
        EXPECT_EQ(live(), 2u);
    }
    EXPECT_EQ(live(), 0u);
}

TEST(Open, unknown_and_repeated_options_are_named) {
    expect_setting_refused({{"colour", "blue"}}, "colour");
    Settings given = options().settings;
    if (given.empty()) GTEST_SKIP() << "this run gives the store no option to repeat";
    // Place drops what it gets twice, so one is added by hand here.
    Place place;
    std::vector<quire_store_option> raw;
    for (const auto &[name, value] : place.settings()) raw.push_back({name.c_str(), value.c_str()});
    raw.push_back(raw.front());
    quire_store_desc desc{};
    desc.struct_size = sizeof desc;
    desc.options = raw.data();
    desc.option_count = static_cast<uint32_t>(raw.size());
    desc.option_stride = sizeof raw[0];
    quire_store *store = nullptr;
    Error error;
    expect_refused(api().open(&desc, &store, &error), error, QUIRE_E_ARG);
    EXPECT_NE(std::string(error.message).find(raw.front().name), std::string::npos)
        << error.message;
}

TEST(Open, option_without_name_or_value_is_refused) {
    for (quire_store_option option : {quire_store_option{nullptr, "1"}, {"capacity", nullptr}}) {
        quire_store_desc desc{};
        desc.struct_size = sizeof desc;
        desc.options = &option;
        desc.option_count = 1;
        desc.option_stride = sizeof option;
        quire_store *store = nullptr;
        Error error;
        expect_refused(api().open(&desc, &store, &error), error, QUIRE_E_ARG);
    }
}

TEST(Open, capacity_that_is_no_size_is_refused) {
    if (std::string(api().help).find("capacity") == std::string::npos) {
        GTEST_SKIP() << "this store has no option 'capacity'";
    }
    for (const char *value : {"", "0", "-1", "ten", "1.5GiB", "5XiB", "99999999999999999999",
                              "18446744073709551615TiB", "1 GiB", "0x10"}) {
        SCOPED_TRACE(value);
        expect_setting_refused({{"capacity", value}}, "capacity");
    }
}

TEST(Open, struct_rules_hold) {
    Place place;
    quire_store *store = nullptr;
    Error error;
    expect_refused(place.try_open(1u << 30, &store, &error), error, QUIRE_E_STRUCT);
    struct Longer {
        quire_store_desc desc;
        uint64_t more;
    } longer{};
    longer.desc.struct_size = 8;
    expect_refused(api().open(&longer.desc, &store, &error), error, QUIRE_E_STRUCT);
    longer.desc.struct_size = sizeof longer;
    longer.more = 1;
    expect_refused(api().open(&longer.desc, &store, &error), error, QUIRE_E_STRUCT);
    longer.desc.struct_size = sizeof longer.desc;
    longer.desc.option_count = 1;
    expect_refused(api().open(&longer.desc, &store, &error), error, QUIRE_E_ARG);
    expect_refused(api().open(nullptr, &store, &error), error, QUIRE_E_ARG);
    longer.desc.option_count = 0;
    expect_refused(api().open(&longer.desc, nullptr, &error), error, QUIRE_E_ARG);
    EXPECT_EQ(store, nullptr);
    EXPECT_EQ(live(), 0u);
}

TEST(Open, existing_is_refused_where_there_is_no_store) {
    Place place;
    quire_store *store = nullptr;
    Error error;
    quire_status status = place.try_open(QUIRE_STORE_OPEN_EXISTING, &store, &error);
    if (status == QUIRE_OK) {
        quire_store_info info{};
        info.struct_size = sizeof info;
        must(api().get_info(store, &info, &error), error);
        must(api().close_wait(store, UINT64_MAX, &error), error);
        ASSERT_TRUE(info.flags & QUIRE_STORE_REMOTE) << "a store appeared from nothing";
        GTEST_SKIP() << "a remote store is there whether or not it was used";
    }
    expect_refused(status, error, QUIRE_E_ARG);
    EXPECT_EQ(store, nullptr);
}

// Calls an output function with a struct of this size, with bytes after it that must stay.
template <typename Output>
void expect_bounded(Store &store, quire_status (*get)(quire_store *, Output *, quire_error *)) {
    unsigned char bytes[sizeof(Output) + 16];
    for (uint32_t size_bytes : {uint32_t{4}, uint32_t{sizeof(Output) - 8}, uint32_t{sizeof(Output)},
                                uint32_t{sizeof(Output) + 8}}) {
        Error error;
        std::memset(bytes, 0, sizeof(Output));
        std::memset(bytes + sizeof(Output), 0x5A, 16);
        std::memcpy(bytes, &size_bytes, sizeof size_bytes);
        quire_status status = get(store.get(), reinterpret_cast<Output *>(bytes), &error);
        if (size_bytes < sizeof(Output)) {
            expect_refused(status, error, QUIRE_E_STRUCT);
        } else {
            EXPECT_EQ(status, QUIRE_OK) << error.message;
        }
        for (size_t i = sizeof(Output) + 8; i < sizeof bytes; ++i) ASSERT_EQ(bytes[i], 0x5A) << i;
    }
}

TEST(Open, info_and_stats_are_refused_if_short_and_written_up_to_their_size_only) {
    Place place;
    Store store(place);
    expect_bounded(store, api().get_info);
    expect_bounded(store, api().get_stats);
}

TEST(Open, info_is_plausible) {
    Place place;
    Store store(place);
    quire_store_info info = store.info();
    EXPECT_GE(info.max_requests, 1u);
    EXPECT_GE(info.max_value_bytes, 1u);
    EXPECT_NE(std::memchr(info.place, 0, sizeof info.place), nullptr);
    EXPECT_NE(info.place[0], 0) << "people want to know where it keeps values";
    if (info.capacity_bytes != 0) {
        EXPECT_LE(info.max_value_bytes, info.capacity_bytes);
    }
}

TEST(Open, a_place_has_one_owner) {
    Place place;
    Store store(place);
    if (!store.has(QUIRE_STORE_PERSISTENT) || store.has(QUIRE_STORE_REMOTE)) {
        GTEST_SKIP() << "nothing of it lies in a place that only one may have open";
    }
    quire_store *second = nullptr;
    Error error;
    expect_refused(place.try_open(0, &second, &error), error, QUIRE_E_BUSY);
    EXPECT_EQ(second, nullptr);
    EXPECT_EQ(store.put(label_of(1), value_of(label_of(1), 100)).outcome, QUIRE_STORE_DONE)
        << "the first one goes on";
    store.close();
    Store again(place);
    EXPECT_EQ(again.get(label_of(1), 100, nullptr).outcome, QUIRE_STORE_DONE);
}

TEST(Close, ends_what_is_under_way_and_drops_its_answers) {
    Place place;
    for (int round = 0; round < 5; ++round) {
        Store store(place);
        std::vector<Request> requests;
        std::vector<quire_store_request> raw;
        for (uint64_t i = 0; i < 16; ++i) {
            requests.push_back(put_request(i, label_of(i), value_of(label_of(i), 20'000)));
        }
        for (const Request &request : requests) raw.push_back(request.raw);
        uint32_t taken = 0;
        Error error;
        must(api().submit(store.get(), raw.data(), static_cast<uint32_t>(raw.size()), sizeof raw[0],
                          &taken, &error),
             error);
        store.close();
        // The store let go of the pieces: to write them now hurts no value.
        for (Request &request : requests) std::memset(request.bytes.data(), 0, 20'000);
    }
    Store store(place);
    for (uint64_t i = 0; i < 16; ++i) {
        Bytes value;
        quire_store_answer answer = store.get(label_of(i), 20'000, &value);
        if (answer.outcome == QUIRE_STORE_DONE) {
            EXPECT_EQ(value, value_of(label_of(i), 20'000)) << i;
        } else {
            EXPECT_EQ(answer.outcome, QUIRE_STORE_MISS) << i;
        }
    }
}

TEST(Close, null_is_refused) {
    Error error;
    expect_refused(api().close_wait(nullptr, 0, &error), error, QUIRE_E_ARG);
}

}  // namespace quire::stores
