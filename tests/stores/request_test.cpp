// SPDX-License-Identifier: Apache-2.0
//
// Requests and answers: wrong ones are refused whole, each one taken is answered once, and the
// descriptor is readable exactly while something waits.

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "subject.hpp"

namespace quire::stores {

namespace {

// Submits `bad` between two good puts, and expects that nothing of the three happened.
void expect_whole_refusal(Store &store, const Request &bad, quire_status expected) {
    Request first = put_request(1, label_of(901), value_of(label_of(901), 64));
    Request last = put_request(3, label_of(903), value_of(label_of(903), 64));
    const quire_store_request raw[] = {first.raw, bad.raw, last.raw};
    uint32_t taken = 77;
    Error error;
    expect_refused(api().submit(store.get(), raw, 3, sizeof raw[0], &taken, &error), error,
                   expected);
    EXPECT_NE(std::string(error.message).find('1'), std::string::npos)
        << "it says which request: " << error.message;
    EXPECT_TRUE(store.reap().empty());
    EXPECT_EQ(store.get(label_of(901), 64, nullptr).outcome, QUIRE_STORE_MISS);
}

bool is_readable(const Store &store) {
    pollfd asked{api().descriptor(store.get()), POLLIN, 0};
    return poll(&asked, 1, 0) == 1 && (asked.revents & POLLIN) != 0;
}

}  // namespace

TEST(Request, of_an_unknown_kind_or_flag_is_refused) {
    Place place;
    Store store(place);
    for (uint32_t kind : {0u, 7u, 16u, UINT32_MAX}) {
        expect_whole_refusal(store, other_request(2, kind), QUIRE_E_ARG);
    }
    Request bad = other_request(2, QUIRE_STORE_FIND, label_of(1));
    bad.raw.flags = 1;
    expect_whole_refusal(store, bad, QUIRE_E_STRUCT);
    bad.raw.flags = 0;
    bad.raw.reserved0 = 1;
    expect_whole_refusal(store, bad, QUIRE_E_STRUCT);
}

TEST(Request, with_wrong_pieces_is_refused) {
    Place place;
    Store store(place);
    Request bad = put_request(2, label_of(1), Bytes(10));
    bad.pieces[0].address = nullptr;
    expect_whole_refusal(store, bad, QUIRE_E_ARG);
    bad = put_request(2, label_of(1), Bytes(10));
    bad.raw.pieces = nullptr;
    expect_whole_refusal(store, bad, QUIRE_E_ARG);
    bad = put_request(2, label_of(1), Bytes(10), {4});
    bad.pieces[0].size_bytes = UINT64_MAX;
    expect_whole_refusal(store, bad, QUIRE_E_ARG);
    bad = put_request(2, label_of(1), Bytes(10));
    bad.pieces[0].size_bytes = 0;
    expect_whole_refusal(store, bad, QUIRE_E_ARG);
    bad = other_request(2, QUIRE_STORE_PUT, label_of(1));
    expect_whole_refusal(store, bad, QUIRE_E_ARG);
    const uint64_t most = store.info().max_value_bytes;
    if (most != UINT64_MAX) {
        bad = put_request(2, label_of(1), Bytes(10));
        bad.pieces[0].size_bytes = most + 1;  // refused before it is read
        expect_whole_refusal(store, bad, QUIRE_E_ARG);
    }
    for (uint32_t kind : {QUIRE_STORE_FIND, QUIRE_STORE_REMOVE, QUIRE_STORE_FLUSH}) {
        bad = put_request(2, kind == QUIRE_STORE_FLUSH ? quire_store_label{} : label_of(1),
                          Bytes(10));
        bad.raw.kind = kind;
        expect_whole_refusal(store, bad, QUIRE_E_ARG);
    }
    expect_whole_refusal(store, other_request(2, QUIRE_STORE_FLUSH, label_of(1)), QUIRE_E_ARG);
}

TEST(Request, null_pointers_and_short_strides_are_refused) {
    Place place;
    Store store(place);
    Request good = other_request(1, QUIRE_STORE_FIND, label_of(1));
    uint32_t count = 0;
    quire_store_answer answer;
    quire_store_record record;
    uint64_t cursor = 0;
    uint8_t found = 0;
    Error error;
    const auto &raw = good.raw;
    auto *handle = store.get();
    expect_refused(api().submit(nullptr, &raw, 1, sizeof raw, &count, &error), error, QUIRE_E_ARG);
    expect_refused(api().submit(handle, nullptr, 1, sizeof raw, &count, &error), error,
                   QUIRE_E_ARG);
    expect_refused(api().submit(handle, &raw, 1, sizeof raw, nullptr, &error), error, QUIRE_E_ARG);
    expect_refused(api().submit(handle, &raw, 1, 8, &count, &error), error, QUIRE_E_STRUCT);
    expect_refused(api().reap(handle, nullptr, 1, sizeof answer, &count, &error), error,
                   QUIRE_E_ARG);
    expect_refused(api().reap(handle, &answer, 1, 8, &count, &error), error, QUIRE_E_STRUCT);
    expect_refused(api().reap(handle, &answer, 1, sizeof answer, nullptr, &error), error,
                   QUIRE_E_ARG);
    expect_refused(api().find(handle, nullptr, 1, 96, &found, &error), error, QUIRE_E_ARG);
    expect_refused(api().find(handle, &raw.label, 1, 96, nullptr, &error), error, QUIRE_E_ARG);
    expect_refused(api().find(handle, &raw.label, 1, 8, &found, &error), error, QUIRE_E_STRUCT);
    if (api().list != nullptr) {
        expect_refused(api().list(handle, nullptr, &record, 1, sizeof record, &count, &error),
                       error, QUIRE_E_ARG);
        expect_refused(api().list(handle, &cursor, &record, 1, 8, &count, &error), error,
                       QUIRE_E_STRUCT);
    }
    EXPECT_EQ(api().submit(handle, nullptr, 0, sizeof raw, &count, &error), QUIRE_OK);
    EXPECT_EQ(count, 0u);
    EXPECT_TRUE(store.reap().empty());
}

TEST(Request, arrays_may_have_a_larger_stride) {
    Place place;
    Store store(place);
    struct Wide {
        quire_store_request request;
        uint64_t more[3];
    } wide[2] = {};
    Request one = put_request(1, label_of(1), value_of(label_of(1), 700));
    Request two = put_request(2, label_of(2), value_of(label_of(2), 800));
    wide[0].request = one.raw;
    wide[1].request = two.raw;
    uint32_t taken = 0;
    Error error;
    must(api().submit(store.get(), &wide[0].request, 2, sizeof wide[0], &taken, &error), error);
    ASSERT_EQ(taken, 2u);
    size_t answered = 0;
    while (answered < 2 && store.wait()) answered += store.reap().size();
    EXPECT_EQ(store.get(label_of(2), 800, nullptr).outcome, QUIRE_STORE_DONE);
    wide[1].more[2] = 1;
    expect_refused(api().submit(store.get(), &wide[0].request, 2, sizeof wide[0], &taken, &error),
                   error, QUIRE_E_STRUCT);
    struct WideLabel {
        quire_store_label label;
        uint64_t more;
    } labels[2] = {{label_of(1), 0}, {label_of(2), 0}};
    uint8_t found[2] = {9, 9};
    must(api().find(store.get(), &labels[0].label, 2, sizeof labels[0], found, &error), error);
    EXPECT_NE(found[0], QUIRE_STORE_ABSENT);
    EXPECT_NE(found[1], QUIRE_STORE_ABSENT);
    labels[1].more = 1;
    expect_refused(api().find(store.get(), &labels[0].label, 2, sizeof labels[0], found, &error),
                   error, QUIRE_E_STRUCT);
}

TEST(Answer, each_request_gets_one_with_its_cookie) {
    Place place;
    Store store(place);
    std::vector<Request> requests;
    std::map<std::pair<uint64_t, uint32_t>, int> expected;
    for (uint64_t i = 0; i < 600; ++i) {
        const quire_store_label label = label_of(i % 50);
        const uint64_t cookie = i % 7 == 0 ? 42 : i << 32 | i;  // some are equal
        switch (i % 4) {
            case 0:
                requests.push_back(put_request(cookie, label, value_of(label, 900)));
                break;
            case 1:
                requests.push_back(get_request(cookie, label, 900));
                break;
            case 2:
                requests.push_back(other_request(cookie, QUIRE_STORE_FIND, label));
                break;
            default:
                requests.push_back(other_request(cookie, QUIRE_STORE_REMOVE, label));
        }
        expected[{cookie, requests.back().raw.kind}] += 1;
    }
    for (const quire_store_answer &answer : store.run(requests)) {
        expected[{answer.cookie, answer.kind}] -= 1;
        if (answer.kind == QUIRE_STORE_REMOVE || answer.kind == QUIRE_STORE_PUT) {
            EXPECT_EQ(answer.outcome, QUIRE_STORE_DONE);
        }
    }
    for (const auto &[name, count] : expected) EXPECT_EQ(count, 0) << name.first;
    EXPECT_TRUE(store.reap().empty());
    for (const Request &request : requests) {
        if (request.raw.kind != QUIRE_STORE_GET) continue;
        // Untouched, or the value; which of the two depends on the order.
        EXPECT_TRUE(request.bytes == value_of(request.raw.label, 900) ||
                    request.bytes == Bytes(900, 0xEE));
    }
}

TEST(Answer, no_more_are_taken_than_the_store_allows) {
    Place place;
    Store store(place);
    const uint32_t most = store.info().max_requests;
    if (most > 100'000) GTEST_SKIP() << "allows " << most;
    std::vector<quire_store_request> raw;
    for (uint64_t i = 0; i < most + 10; ++i) {
        raw.push_back(other_request(i, QUIRE_STORE_FIND, label_of(i)).raw);
    }
    Error error;
    uint32_t taken = 0;
    must(api().submit(store.get(), raw.data(), most + 10, sizeof raw[0], &taken, &error), error);
    EXPECT_LE(taken, most);
    EXPECT_GE(taken, 1u);
    uint32_t more = 9;
    must(api().submit(store.get(), raw.data(), 10, sizeof raw[0], &more, &error), error);
    EXPECT_LE(taken + more, most) << "nothing was reaped in between";
    uint32_t answered = 0;
    while (answered < taken + more && store.wait()) {
        answered += static_cast<uint32_t>(store.reap().size());
    }
    must(api().submit(store.get(), raw.data(), 1, sizeof raw[0], &more, &error), error);
    EXPECT_EQ(more, 1u) << "there is room again";
    while (store.wait() && store.reap().empty()) continue;
}

TEST(Answer, descriptor_is_readable_exactly_while_something_waits) {
    Place place;
    Store store(place);
    if (api().descriptor == nullptr || api().descriptor(store.get()) < 0) {
        GTEST_SKIP() << "the store has no descriptor";
    }
    EXPECT_FALSE(is_readable(store));
    for (int round = 0; round < 20; ++round) {
        std::vector<quire_store_request> raw;
        for (uint64_t i = 0; i < 3; ++i) {
            raw.push_back(other_request(i, QUIRE_STORE_FIND, label_of(i)).raw);
        }
        uint32_t taken = 0;
        Error error;
        must(api().submit(store.get(), raw.data(), 3, sizeof raw[0], &taken, &error), error);
        ASSERT_EQ(taken, 3u);
        for (uint32_t left = 3; left != 0; --left) {
            ASSERT_TRUE(store.wait());
            quire_store_answer answer;
            uint32_t count = 0;
            must(api().reap(store.get(), &answer, 1, sizeof answer, &count, &error), error);
            ASSERT_EQ(count, 1u) << "it was readable";
        }
        EXPECT_FALSE(is_readable(store));
        EXPECT_TRUE(store.reap().empty());
    }
}

TEST(Answer, flush_comes_after_what_was_taken_before_it) {
    Place place;
    Store store(place);
    std::vector<Request> requests;
    for (uint64_t i = 0; i < 30; ++i) {
        requests.push_back(put_request(i, label_of(i), value_of(label_of(i), 40'000)));
    }
    requests.push_back(other_request(1'000, QUIRE_STORE_FLUSH));
    std::vector<quire_store_answer> answers = store.run(requests);
    ASSERT_EQ(answers.size(), 31u);
    EXPECT_EQ(answers.back().kind, QUIRE_STORE_FLUSH);
    EXPECT_EQ(answers.back().outcome, QUIRE_STORE_DONE);
}

TEST(Answer, cancelled_requests_are_answered_too) {
    Place place;
    Store store(place);
    Error error;
    EXPECT_EQ(api().cancel(store.get(), 12'345, &error), QUIRE_OK) << "no such request: no effect";
    expect_refused(api().cancel(nullptr, 1, &error), error, QUIRE_E_ARG);
    for (int round = 0; round < 20; ++round) {
        std::vector<Request> requests;
        std::vector<quire_store_request> raw;
        for (uint64_t i = 0; i < 12; ++i) {
            const quire_store_label label = label_of(100 * round + i);
            requests.push_back(put_request(i, label, value_of(label, 30'000)));
        }
        for (const Request &request : requests) raw.push_back(request.raw);
        uint32_t taken = 0;
        must(api().submit(store.get(), raw.data(), 12, sizeof raw[0], &taken, &error), error);
        for (uint64_t i = 0; i < 12; i += 2) must(api().cancel(store.get(), i, &error), error);
        std::vector<quire_store_answer> answers;
        while (answers.size() < taken && store.wait()) {
            for (const auto &answer : store.reap()) answers.push_back(answer);
        }
        ASSERT_EQ(answers.size(), taken);
        for (const quire_store_answer &answer : answers) {
            if (answer.cookie % 2 == 1) {
                ASSERT_EQ(answer.outcome, QUIRE_STORE_DONE) << answer.cookie;
            }
            const bool is_done = answer.outcome == QUIRE_STORE_DONE;
            ASSERT_TRUE(is_done || answer.outcome == QUIRE_STORE_CANCELLED) << answer.outcome;
            Bytes got;
            ASSERT_EQ(store.get(answer.label, 30'000, &got).outcome,
                      is_done ? QUIRE_STORE_DONE : QUIRE_STORE_MISS)
                << "a cancelled put had no effect";
            if (is_done) {
                ASSERT_EQ(got, value_of(answer.label, 30'000));
            }
        }
    }
}

TEST(Answer, later_requests_with_a_cancelled_cookie_go_on) {
    Place place;
    Store store(place);
    const quire_store_label label = label_of(1);
    EXPECT_EQ(store.put(label, value_of(label, 30'000)).outcome, QUIRE_STORE_DONE);
    Error error;
    for (int round = 0; round < 300; ++round) {
        must(api().cancel(store.get(), 7, &error), error);
        std::vector<Request> requests;
        requests.push_back(get_request(7, label, 30'000));
        const std::vector<quire_store_answer> answers = store.run(requests);
        ASSERT_EQ(answers.size(), 1u);
        ASSERT_EQ(answers[0].outcome, QUIRE_STORE_DONE) << "round " << round;
    }
}

}  // namespace quire::stores
