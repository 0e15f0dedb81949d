// SPDX-License-Identifier: Apache-2.0
//
// Random work against a model: a map of what was put. The store may forget, if it says so; it may
// never answer with other bytes.

#include <cstring>
#include <map>
#include <random>
#include <set>

#include "subject.hpp"
#include "tests/effort.hpp"

namespace quire::stores {

namespace {

constexpr uint64_t kKeys = 60;

uint64_t size_for(uint64_t key) { return 1 + key * key * 37 % 70'000; }

quire_store_label label_for(std::mt19937_64 &random) {
    return label_of(random() % kKeys, 1 + random() % 8 / 7, random() % 8 / 7);
}

uint64_t key_of(const quire_store_label &label) {
    for (uint64_t key = 0; key < kKeys; ++key) {
        if (std::memcmp(label_of(key).key, label.key, sizeof label.key) == 0) return key;
    }
    return kKeys;
}

// What the store must have: a label for each key. Labels of one key displace each other.
class Model {
 public:
    void check(const Request &request, const quire_store_answer &answer) {
        const uint64_t key = key_of(request.raw.label);
        const bool is_known = held_.contains(key) && same(held_[key], request.raw.label);
        switch (request.raw.kind) {
            case QUIRE_STORE_PUT:
                ASSERT_EQ(answer.outcome, QUIRE_STORE_DONE);
                held_[key] = request.raw.label;
                break;
            case QUIRE_STORE_GET:
                if (answer.outcome == QUIRE_STORE_DONE) {
                    ASSERT_TRUE(is_known) << "a value that was never put, or is gone";
                    ASSERT_EQ(request.bytes, value_of(request.raw.label, size_for(key)));
                } else {
                    ASSERT_FALSE(is_known) << "a value is gone, outcome " << answer.outcome;
                    ASSERT_TRUE(answer.outcome == QUIRE_STORE_MISS ||
                                answer.outcome == QUIRE_STORE_FOREIGN);
                }
                break;
            case QUIRE_STORE_FIND:
                ASSERT_EQ(answer.outcome, is_known ? QUIRE_STORE_DONE : QUIRE_STORE_MISS);
                break;
            default:
                ASSERT_EQ(answer.outcome, QUIRE_STORE_DONE);
                if (is_known) held_.erase(key);
        }
    }
    // Labels that the store said are gone; a later put of the same key came after the notice.
    void forget(const std::vector<quire_store_label> &gone) {
        for (const quire_store_label &label : gone) {
            const uint64_t key = key_of(label);
            if (held_.contains(key) && same(held_[key], label)) held_.erase(key);
        }
    }
    void expect_same(const Store &store) const {
        quire_store_stats stats = store.stats();
        uint64_t value_bytes = 0;
        for (const auto &[key, label] : held_) value_bytes += size_for(key);
        ASSERT_EQ(stats.records, held_.size());
        ASSERT_EQ(stats.value_bytes, value_bytes);
        for (const auto &[key, label] : held_) {
            ASSERT_NE(store.find(label), QUIRE_STORE_ABSENT) << key;
        }
        if (api().list == nullptr) return;
        std::set<uint64_t> listed;
        for (const quire_store_record &record : store.list()) {
            const uint64_t key = key_of(record.label);
            ASSERT_TRUE(listed.insert(key).second) << "listed twice";
            ASSERT_TRUE(held_.contains(key) && same(held_.at(key), record.label));
            ASSERT_EQ(record.value_bytes, size_for(key));
        }
        ASSERT_EQ(listed.size(), held_.size());
    }

 private:
    std::map<uint64_t, quire_store_label> held_;
};

Request random_request(std::mt19937_64 &random) {
    const quire_store_label label = label_for(random);
    const uint64_t size_bytes = size_for(key_of(label));
    std::vector<uint64_t> cuts;
    if (random() % 2 == 0) cuts.push_back(random() % (size_bytes + 1));
    switch (random() % 8) {
        case 0:
        case 1:
        case 2:
            return put_request(random(), label, value_of(label, size_bytes), cuts);
        case 3:
        case 4:
        case 5:
            return get_request(random(), label, size_bytes, cuts);
        case 6:
            return other_request(random(), QUIRE_STORE_FIND, label);
        default:
            return other_request(random(), QUIRE_STORE_REMOVE, label);
    }
}

// One request after another, so that the order of effects is known. With `reopen` the store is
// closed and opened now and then, and remembers if it is persistent.
void play(uint64_t seed, const Settings &more, bool reopen) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    Place place(more);
    auto store = std::make_unique<Store>(place);
    if (reopen && !store->has(QUIRE_STORE_PERSISTENT)) {
        GTEST_SKIP() << "the store does not outlive its process";
    }
    Model model;
    for (int i = 0; i < 600; ++i) {
        std::vector<Request> requests;
        requests.push_back(random_request(random));
        quire_store_answer answer = store->run(requests).front();
        // A put tells what it displaced or evicted.
        const std::vector<quire_store_label> gone = std::exchange(store->gone, {});
        ASSERT_FALSE(store->has_lost);
        if (requests.front().raw.kind == QUIRE_STORE_PUT) model.forget(gone);
        model.check(requests.front(), answer);
        if (requests.front().raw.kind != QUIRE_STORE_PUT) model.forget(gone);
        if (testing::Test::HasFatalFailure()) return;
        if (i % 100 == 99) {
            if (reopen) {
                ASSERT_EQ(store->ask(QUIRE_STORE_FLUSH).outcome, QUIRE_STORE_DONE);
                store = nullptr;
                store = std::make_unique<Store>(place);
            }
            if (store->has(QUIRE_STORE_COMPACTS) && i % 200 == 199) {
                ASSERT_EQ(store->ask(QUIRE_STORE_COMPACT).outcome, QUIRE_STORE_DONE);
                while (!store->reap().empty()) continue;
                model.forget(std::exchange(store->gone, {}));
            }
            model.expect_same(*store);
        }
    }
}

}  // namespace

TEST(Model, of_random_work_agrees) {
    for (uint64_t seed : tests::seeds(0, {60, 10, 3})) play(seed, {}, false);
}

TEST(Model, of_random_work_agrees_over_reopenings) {
    for (uint64_t seed : tests::seeds(1'000, {60, 10, 3})) {
        play(seed, {}, true);
        if (testing::Test::IsSkipped()) return;
    }
}

}  // namespace quire::stores
