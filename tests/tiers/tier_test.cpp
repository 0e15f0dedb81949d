// SPDX-License-Identifier: Apache-2.0
//
// Tiers: a store through the consumer ABI keeps values, and one that breaks its contract becomes an
// error in words.

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>

#include "tests/device/cpu_cache.hpp"
#include "tests/place.hpp"

namespace {

using namespace quire::test;

using Bytes = std::vector<uint8_t>;

quire_store_label label_of(uint8_t key) {
    quire_store_label label{};
    std::memset(label.key, key, sizeof label.key);
    label.fingerprint[0] = 1;
    return label;
}

// A mistake of the wrong store, for the length of a scope.
struct Mistake {
    explicit Mistake(const char *name) { setenv("QUIRE_WRONG_STORE", name, 1); }
    ~Mistake() { unsetenv("QUIRE_WRONG_STORE"); }
};

class Tiers : public testing::Test {
 protected:
    Tiers() {
        error.struct_size = sizeof error;
        auto desc = described<quire_instance_desc>();
        EXPECT_EQ(api.instance_create(&desc, &instance, &error), QUIRE_OK) << error.message;
    }
    ~Tiers() override {
        if (tier != nullptr) {
            EXPECT_EQ(api.tier_close_wait(tier, UINT64_MAX, &error), QUIRE_OK) << error.message;
        }
        EXPECT_EQ(api.instance_destroy(instance, &error), QUIRE_OK) << error.message;
    }

    quire_status open(const char *store, const std::vector<quire_store_option> &options = {},
                      uint32_t flags = 0) {
        auto desc = described<quire_tier_desc>();
        desc.store = store;
        desc.flags = flags;
        desc.options = options.data();
        desc.option_count = static_cast<uint32_t>(options.size());
        desc.option_stride = sizeof(quire_store_option);
        return api.tier_open(instance, &desc, &tier, &error);
    }
    quire_status open_wrong() { return open(wrong.c_str()); }
    bool says(const char *words) const {
        return std::string(error.message).find(words) != std::string::npos;
    }

    quire_status ask(uint32_t kind, uint8_t key, Bytes *value, uint64_t timeout_ns = UINT64_MAX) {
        quire_store_piece pieces[2] = {};
        quire_store_request request{};
        request.kind = kind;
        request.cookie = 77;
        if (key != 0) request.label = label_of(key);
        if (value != nullptr) {
            const uint64_t half = value->size() / 2;
            pieces[0] = {value->data(), half};
            pieces[1] = {value->data() + half, value->size() - half};
            request.pieces = pieces;
            request.piece_count = 2;
        }
        answer = {};
        return api.tier_request_wait(tier, &request, &answer, timeout_ns, &error);
    }
    uint32_t outcome_of(uint32_t kind, uint8_t key, Bytes *value = nullptr) {
        EXPECT_EQ(ask(kind, key, value), QUIRE_OK) << error.message;
        EXPECT_EQ(answer.kind, kind);
        EXPECT_EQ(answer.cookie, 77u);
        return answer.outcome;
    }

    const quire_api &api = library();
    quire_error error{};
    quire_instance *instance = nullptr;
    quire_tier *tier = nullptr;
    quire_store_answer answer{};
    const std::string wrong = quire::tests::place(QUIRE_WRONG_STORE_PATH);
};

TEST_F(Tiers, keep_values_until_they_are_removed) {
    ASSERT_EQ(open("memory", {{"capacity", "1MiB"}}), QUIRE_OK) << error.message;
    Bytes value(1'001, 7), read(1'001);
    EXPECT_EQ(outcome_of(QUIRE_STORE_GET, 1, &read), QUIRE_STORE_MISS);
    EXPECT_EQ(outcome_of(QUIRE_STORE_PUT, 1, &value), QUIRE_STORE_DONE);
    EXPECT_EQ(outcome_of(QUIRE_STORE_GET, 1, &read), QUIRE_STORE_DONE);
    EXPECT_EQ(read, value);
    EXPECT_EQ(outcome_of(QUIRE_STORE_FIND, 1), QUIRE_STORE_DONE);
    Bytes small(5, 9);
    EXPECT_EQ(outcome_of(QUIRE_STORE_GET, 1, &small), QUIRE_STORE_SIZE);
    EXPECT_EQ(answer.size_bytes, 1'001u);
    EXPECT_EQ(small, Bytes(5, 9)) << "nothing was written";
    EXPECT_EQ(outcome_of(QUIRE_STORE_REMOVE, 1), QUIRE_STORE_DONE);
    EXPECT_EQ(outcome_of(QUIRE_STORE_FIND, 1), QUIRE_STORE_MISS);
    EXPECT_EQ(outcome_of(QUIRE_STORE_FLUSH, 0), QUIRE_STORE_DONE);
    auto stats = described<quire_store_stats>();
    EXPECT_EQ(api.tier_get_stats(tier, &stats, &error), QUIRE_OK);
    EXPECT_EQ(stats.puts, 1u);
    EXPECT_EQ(stats.hits, 1u);
    EXPECT_EQ(stats.records, 0u);
}

TEST_F(Tiers, list_all_records) {
    ASSERT_EQ(open("memory"), QUIRE_OK) << error.message;
    for (uint8_t key = 1; key <= 20; ++key) {
        Bytes value(key, key);
        ASSERT_EQ(outcome_of(QUIRE_STORE_PUT, key, &value), QUIRE_STORE_DONE);
    }
    quire_store_record records[7];
    uint64_t cursor = 0, sum = 0;
    for (uint32_t count = 1; count != 0;) {
        ASSERT_EQ(api.tier_list(tier, &cursor, records, 7, sizeof records[0], &count, &error),
                  QUIRE_OK);
        for (uint32_t i = 0; i < count; ++i) sum += records[i].value_bytes;
    }
    EXPECT_EQ(sum, 210u);
    uint32_t count = 0;
    auto *e = &error;
    EXPECT_EQ(api.tier_list(tier, nullptr, records, 7, sizeof records[0], &count, e), QUIRE_E_ARG);
    EXPECT_EQ(api.tier_list(tier, &cursor, nullptr, 7, sizeof records[0], &count, e), QUIRE_E_ARG);
    EXPECT_EQ(api.tier_list(tier, &cursor, records, 7, sizeof records[0], nullptr, e), QUIRE_E_ARG);
    EXPECT_EQ(api.tier_list(tier, &cursor, records, 0, sizeof records[0], &count, e), QUIRE_E_ARG);
    EXPECT_EQ(api.tier_list(tier, &cursor, records, 7, 8, &count, e), QUIRE_E_STRUCT);
}

TEST_F(Tiers, on_disk_outlive_the_instance) {
    std::string folder = (std::filesystem::temp_directory_path() / "quire-tier-XXXXXX").string();
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    Bytes value(70'000, 3), read(70'000);
    ASSERT_EQ(open("disk", {{"directory", folder.c_str()}, {"capacity", "64MiB"}}), QUIRE_OK)
        << error.message;
    EXPECT_EQ(outcome_of(QUIRE_STORE_PUT, 4, &value), QUIRE_STORE_DONE);
    auto info = described<quire_store_info>();
    EXPECT_EQ(api.tier_get_info(tier, &info, &error), QUIRE_OK);
    EXPECT_NE(std::string(info.place).find(folder), std::string::npos) << info.place;
    quire_tier *first = tier;
    EXPECT_EQ(open("disk", {{"directory", folder.c_str()}}), QUIRE_E_BUSY);
    tier = first;
    EXPECT_EQ(api.tier_close_wait(tier, UINT64_MAX, &error), QUIRE_OK);
    tier = nullptr;
    ASSERT_EQ(open("disk", {{"directory", folder.c_str()}, {"capacity", "64MiB"}},
                   QUIRE_STORE_OPEN_EXISTING | QUIRE_STORE_OPEN_READ_ONLY),
              QUIRE_OK)
        << error.message;
    EXPECT_EQ(outcome_of(QUIRE_STORE_GET, 4, &read), QUIRE_STORE_DONE);
    EXPECT_EQ(read, value);
    EXPECT_EQ(ask(QUIRE_STORE_PUT, 5, &value), QUIRE_E_UNSUPPORTED);
    std::filesystem::remove_all(folder);
}

TEST_F(Tiers, that_cannot_be_opened_say_why) {
    struct {
        const char *store;
        quire_status status;
        const char *words;
    } const cases[] = {
        {"abacus", QUIRE_E_BACKEND, "quire_store_abacus.so"},
        {"../memory", QUIRE_E_BACKEND, "../memory"},
        {"Memory", QUIRE_E_ARG, "a-z"},
        {"", QUIRE_E_ARG, "name"},
        {nullptr, QUIRE_E_ARG, "desc.store is NULL"},
    };
    for (const auto &one : cases) {
        EXPECT_EQ(open(one.store), one.status) << error.message;
        EXPECT_TRUE(says(one.words)) << error.message;
        EXPECT_EQ(tier, nullptr);
    }
    EXPECT_EQ(open("memory", {{"colour", "blue"}}), QUIRE_E_ARG);
    EXPECT_TRUE(says("colour")) << error.message;
    EXPECT_EQ(open("memory", {}, 1u << 9), QUIRE_E_STRUCT);
    auto desc = described<quire_tier_desc>();
    desc.store = "memory";
    desc.option_count = 1;
    EXPECT_EQ(api.tier_open(instance, &desc, &tier, &error), QUIRE_E_ARG);
    quire_store_option option{"capacity", "1MiB"};
    desc.options = &option;
    desc.option_stride = 8;
    EXPECT_EQ(api.tier_open(instance, &desc, &tier, &error), QUIRE_E_STRUCT);
    desc.option_stride = sizeof option;
    EXPECT_EQ(api.tier_open(nullptr, &desc, &tier, &error), QUIRE_E_ARG);
    EXPECT_EQ(api.tier_open(instance, &desc, nullptr, &error), QUIRE_E_ARG);
}

TEST_F(Tiers, wrong_requests_are_refused) {
    ASSERT_EQ(open("memory", {{"capacity", "1MiB"}}), QUIRE_OK) << error.message;
    quire_store_request request{};
    request.kind = QUIRE_STORE_PUT;
    request.label = label_of(1);
    auto refused = [&](quire_status expected) {
        EXPECT_EQ(api.tier_request_wait(tier, &request, &answer, UINT64_MAX, &error), expected)
            << error.message;
    };
    refused(QUIRE_E_ARG);  // a put of nothing
    request.piece_count = 1;
    refused(QUIRE_E_ARG);
    uint8_t byte = 0;
    quire_store_piece pieces[2] = {{&byte, uint64_t{1} << 40}, {&byte, UINT64_MAX}};
    request.pieces = pieces;
    refused(QUIRE_E_ARG);
    pieces[0].size_bytes = 1;
    request.piece_count = 2;
    refused(QUIRE_E_ARG);
    pieces[1] = {nullptr, 1};
    refused(QUIRE_E_ARG);
    request.piece_count = 1;
    request.kind = 99;
    refused(QUIRE_E_ARG);
    request.kind = QUIRE_STORE_COMPACT;
    request.label = {};
    request.piece_count = 0;
    refused(QUIRE_E_UNSUPPORTED);
    EXPECT_EQ(api.tier_request_wait(nullptr, &request, &answer, 0, &error), QUIRE_E_ARG);
    EXPECT_EQ(api.tier_request_wait(tier, nullptr, &answer, 0, &error), QUIRE_E_ARG);
    EXPECT_EQ(api.tier_request_wait(tier, &request, nullptr, 0, &error), QUIRE_E_ARG);
    EXPECT_EQ(api.tier_get_info(tier, nullptr, &error), QUIRE_E_ARG);
    EXPECT_EQ(api.tier_get_stats(nullptr, nullptr, &error), QUIRE_E_ARG);
    EXPECT_EQ(api.tier_close_wait(nullptr, 0, &error), QUIRE_E_ARG);
}

TEST_F(Tiers, are_used_by_several_threads) {
    ASSERT_EQ(open("memory"), QUIRE_OK) << error.message;
    std::vector<std::thread> threads;
    std::atomic<int> wrong_answers{0};
    for (uint8_t thread = 1; thread <= 4; ++thread) {
        threads.emplace_back([this, thread, &wrong_answers] {
            for (int i = 0; i < 200; ++i) {
                Bytes value(100, thread), read(100);
                quire_store_piece piece{value.data(), value.size()};
                quire_store_request request{};
                request.kind = QUIRE_STORE_PUT;
                request.label = label_of(thread);
                request.pieces = &piece;
                request.piece_count = 1;
                quire_store_answer own{};
                quire_error why{};
                api.tier_request_wait(tier, &request, &own, UINT64_MAX, &why);
                request.kind = QUIRE_STORE_GET;
                piece.address = read.data();
                api.tier_request_wait(tier, &request, &own, UINT64_MAX, &why);
                wrong_answers += read != value;
            }
        });
    }
    for (std::thread &thread : threads) thread.join();
    EXPECT_EQ(wrong_answers, 0);
}

TEST_F(Tiers, a_plugin_that_is_wrong_is_not_loaded) {
    for (const char *name :
         {"query throws", "query refuses", "there is no table", "the table is short",
          "a function is missing", "the version is another", "the name is wrong"}) {
        Mistake mistake(name);
        EXPECT_EQ(open_wrong(), QUIRE_E_BACKEND) << name;
        EXPECT_TRUE(says("quire_store_wrong.so")) << error.message;
    }
    for (const char *name : {"open throws", "open gives nothing"}) {
        Mistake mistake(name);
        EXPECT_EQ(open_wrong(), QUIRE_E_BACKEND) << name;
        EXPECT_STREQ(error.backend, "wrong");
    }
    {
        Mistake mistake("open gives no reason");
        EXPECT_EQ(open_wrong(), QUIRE_E_ARG);
        EXPECT_TRUE(says("no reason")) << error.message;
    }
    {
        Mistake mistake("get_info fails");
        EXPECT_EQ(open_wrong(), QUIRE_E_OS);
    }
    EXPECT_EQ(open_wrong(), QUIRE_OK) << error.message;
}

TEST_F(Tiers, a_store_that_breaks_its_contract_is_an_error_and_no_crash) {
    ASSERT_EQ(open_wrong(), QUIRE_OK) << error.message;
    Bytes value(100, 1);
    for (const char *name : {"reap throws", "reap returns nonsense", "reap counts too many",
                             "answers have foreign cookies", "outcomes are unknown"}) {
        Mistake mistake(name);
        EXPECT_EQ(ask(QUIRE_STORE_PUT, 1, &value), QUIRE_E_BACKEND) << name;
        EXPECT_EQ(error.domain, uint32_t{QUIRE_DOMAIN_BACKEND});
        EXPECT_NE(error.message[0], 0);
    }
    quire_store_record record;
    uint64_t cursor = 0;
    uint32_t count = 0;
    Mistake mistake("list counts too many");
    EXPECT_EQ(api.tier_list(tier, &cursor, &record, 1, sizeof record, &count, &error),
              QUIRE_E_BACKEND);
}

TEST_F(Tiers, a_store_that_falls_silent_holds_nothing_of_the_callers) {
    ASSERT_EQ(open_wrong(), QUIRE_OK) << error.message;
    Bytes value(100, 1);
    {
        Mistake mistake("no answer comes");
        for (int i = 0; i < 300; ++i) {
            Bytes read(100, 0xEE);
            const quire_status status = ask(QUIRE_STORE_GET, 1, &read, 1'000);
            // Until the store takes no more.
            ASSERT_TRUE(status == QUIRE_S_TIMEOUT || status == QUIRE_E_BUSY) << error.message;
            ASSERT_EQ(read, Bytes(100, 0xEE));
        }
        EXPECT_EQ(ask(QUIRE_STORE_FIND, 1, nullptr, 1'000), QUIRE_E_BUSY);
        EXPECT_TRUE(says("timed out")) << error.message;
    }
    // It speaks again: late answers are dropped, and the next ones count.
    EXPECT_EQ(outcome_of(QUIRE_STORE_PUT, 1, &value), QUIRE_STORE_DONE);
    Bytes read(100);
    EXPECT_EQ(outcome_of(QUIRE_STORE_GET, 1, &read), QUIRE_STORE_DONE);
    EXPECT_EQ(read, value);
    Mistake mistake("closing takes for ever");
    EXPECT_EQ(api.tier_close_wait(tier, 1'000, &error), QUIRE_S_TIMEOUT);
}

TEST_F(Tiers, functions_that_a_store_leaves_out_are_unsupported_or_done_without) {
    quire_store_record record;
    uint64_t cursor = 0;
    uint32_t count = 0;
    {
        Mistake mistake("nothing can be listed");
        ASSERT_EQ(open_wrong(), QUIRE_OK) << error.message;
        EXPECT_EQ(api.tier_list(tier, &cursor, &record, 1, sizeof record, &count, &error),
                  QUIRE_E_UNSUPPORTED);
        EXPECT_EQ(api.tier_close_wait(tier, UINT64_MAX, &error), QUIRE_OK);
        tier = nullptr;
    }
    Mistake mistake("there is no descriptor");
    ASSERT_EQ(open_wrong(), QUIRE_OK) << error.message;
    Bytes value(100, 1);
    EXPECT_EQ(outcome_of(QUIRE_STORE_PUT, 1, &value), QUIRE_STORE_DONE);
}

TEST_F(Tiers, hold_the_instance) {
    ASSERT_EQ(open("memory"), QUIRE_OK) << error.message;
    EXPECT_EQ(api.instance_destroy(instance, &error), QUIRE_E_BUSY);
}

}  // namespace
