// SPDX-License-Identifier: Apache-2.0
//
// Many threads on one store: each submits and reaps, and all find, list, cancel and close.

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "effort.hpp"
#include "scene.hpp"

namespace quire::disk::tests {

namespace {

constexpr uint64_t kKeys = 200;

uint64_t size_of(uint64_t key) { return 1 + key * 613 % 20'000; }

// A request in flight, with its memory; any thread may reap it.
struct Flight {
    uint64_t key = 0;
    Bytes bytes;
    quire_store_piece piece{};
};

class Crowd {
 public:
    explicit Crowd(Store *store) : store_(store) {}

    void work(uint64_t seed, uint64_t count) {
        std::mt19937_64 random(seed);
        for (uint64_t i = 0; i < count; ++i) {
            submit(random);
            if (random() % 3 == 0) reap();
            if (random() % 20 == 0) list();
            if (random() % 20 == 0) store_->cancel(random() % (next_cookie_ + 1));
        }
        while (in_flight_ != 0) {
            pollfd waiting{store_->descriptor(), POLLIN, 0};
            ::poll(&waiting, 1, 10);
            reap();
        }
    }

    std::atomic<uint64_t> wrong{0};
    std::atomic<uint64_t> answers{0};
    std::atomic<uint64_t> hits{0};

 private:
    void submit(std::mt19937_64 &random) {
        uint64_t choice = random() % 20;
        auto flight = std::make_unique<Flight>();
        flight->key = random() % kKeys;
        quire_store_request request{};
        request.kind = QUIRE_STORE_GET;
        if (choice < 7) request.kind = QUIRE_STORE_PUT;
        if (choice == 7) request.kind = QUIRE_STORE_REMOVE;
        if (choice == 8) request.kind = QUIRE_STORE_FIND;
        if (choice == 9 && random() % 8 == 0) request.kind = QUIRE_STORE_FLUSH;
        if (choice == 10 && random() % 8 == 0) request.kind = QUIRE_STORE_COMPACT;
        bool is_whole = request.kind == QUIRE_STORE_FLUSH || request.kind == QUIRE_STORE_COMPACT;
        if (!is_whole) request.label = label_of(flight->key);
        if (request.kind <= QUIRE_STORE_GET) {
            flight->bytes = request.kind == QUIRE_STORE_PUT
                                ? value_of(flight->key, 0, size_of(flight->key))
                                : Bytes(size_of(flight->key));
            flight->piece = {flight->bytes.data(), flight->bytes.size()};
            request.pieces = &flight->piece;
            request.piece_count = 1;
        }
        {
            std::lock_guard lock(mutex_);
            request.cookie = next_cookie_++;
            flights_[request.cookie] = std::move(flight);
            ++in_flight_;
        }
        while (store_->submit(&request, 1, sizeof request) == 0) reap();
    }

    void reap() {
        quire_store_answer found[8];
        uint32_t count = store_->reap(found, 8, sizeof *found);
        for (uint32_t i = 0; i < count; ++i) {
            if (found[i].outcome >= QUIRE_STORE_NOTICE_GONE) continue;
            std::unique_ptr<Flight> flight;
            {
                std::lock_guard lock(mutex_);
                auto at = flights_.find(found[i].cookie);
                if (at == flights_.end()) {
                    ++wrong;
                    continue;
                }
                flight = std::move(at->second);
                flights_.erase(at);
            }
            check(found[i], *flight);
            ++answers;
            --in_flight_;
        }
    }

    void check(const quire_store_answer &answer, const Flight &flight) {
        bool is_get = answer.kind == QUIRE_STORE_GET;
        if (answer.outcome == QUIRE_STORE_DONE && is_get) {
            ++hits;
            wrong += flight.bytes != value_of(flight.key, 0, size_of(flight.key));
        }
        bool is_right =
            answer.outcome == QUIRE_STORE_DONE || answer.outcome == QUIRE_STORE_CANCELLED ||
            (answer.outcome == QUIRE_STORE_MISS && (is_get || answer.kind == QUIRE_STORE_FIND));
        wrong += !is_right;
    }

    void list() {
        uint64_t cursor = 0;
        quire_store_record records[16];
        std::set<std::string> seen;
        while (uint32_t count = store_->list(&cursor, records, 16, sizeof *records)) {
            for (uint32_t i = 0; i < count; ++i) {
                uint8_t found = 0;
                store_->find(&records[i].label, 1, sizeof records[i].label, &found);
                wrong += found > QUIRE_STORE_PRESENT;
            }
        }
    }

    Store *const store_;
    std::mutex mutex_;
    std::map<uint64_t, std::unique_ptr<Flight>> flights_;
    std::atomic<uint64_t> next_cookie_{1};
    std::atomic<uint64_t> in_flight_{0};
};

class DiskThreads : public testing::TestWithParam<IoChoice> {};

INSTANTIATE_TEST_SUITE_P(Io, DiskThreads, testing::Values(IoChoice::automatic, IoChoice::threads));

TEST_P(DiskThreads, share_a_store) {
    for (uint64_t seed : quire::tests::seeds(1, {9, 3, 1})) {
        Folder folder(seed % 2 == 0);
        Options options = small_options(folder.path());
        options.io = GetParam();
        options.thread_count = 3;
        options.durability = static_cast<Durability>(seed % 3);
        options.capacity_bytes = 4096 * kKiB;
        Session session(options);
        for (uint64_t key = 0; key < kKeys; key += 2) {
            session.put(label_of(key), value_of(key, 0, size_of(key)));
        }
        Crowd crowd(&session.store());
        std::vector<std::thread> threads;
        for (uint64_t i = 0; i < 4; ++i) {
            threads.emplace_back([&crowd, seed, i] { crowd.work(seed * 10 + i, 400); });
        }
        for (std::thread &thread : threads) thread.join();
        EXPECT_EQ(crowd.wrong, 0u);
        EXPECT_EQ(crowd.answers, 1600u);
        EXPECT_GT(crowd.hits, 0u);
    }
}

// Submits many puts at once, without reaping.
uint32_t submit_puts(Store *store, uint64_t count, std::deque<Bytes> *values) {
    uint32_t taken = 0;
    for (uint64_t i = 0; i < count; ++i) {
        values->push_back(value_of(i, 0, 30'000));
        quire_store_piece piece{values->back().data(), values->back().size()};
        quire_store_request request{};
        request.kind = QUIRE_STORE_PUT;
        request.cookie = i;
        request.label = label_of(i);
        request.pieces = &piece;
        request.piece_count = 1;
        taken += store->submit(&request, 1, sizeof request);
    }
    return taken;
}

TEST_P(DiskThreads, close_waits_for_all_requests) {
    Folder folder;
    Options options = small_options(folder.path());
    options.capacity_bytes = 16'384 * kKiB;
    options.io = GetParam();
    std::deque<Bytes> values;
    {
        Session session(options);
        ASSERT_EQ(submit_puts(&session.store(), 200, &values), 200u);
    }
    Session session(options);
    for (uint64_t i = 0; i < 200; ++i) ASSERT_EQ(session.get(label_of(i)), values[i]) << i;
}

// Holding the memory's mutex holds up the disk.
TEST(DiskRequests, a_cancelled_request_that_waits_has_no_effect) {
    auto memory = std::make_shared<Memory>();
    Session session(small_options(), memory);
    Bytes value = value_of(1, 0, 100);
    quire_store_piece piece{value.data(), value.size()};
    {
        std::lock_guard lock(memory->mutex);
        // Changes of one key wait for each other.
        for (uint8_t model = 1; model <= 3; ++model) {
            quire_store_request request{};
            request.kind = QUIRE_STORE_PUT;
            request.cookie = model;
            request.label = label_of(1, model);
            request.pieces = &piece;
            request.piece_count = 1;
            ASSERT_EQ(session.store().submit(&request, 1, sizeof request), 1u);
        }
        session.store().cancel(3);
        session.store().cancel(77);
        EXPECT_FALSE(session.store().close_wait(1'000'000));
    }
    std::vector<quire_store_answer> answers;
    while (answers.size() < 3) {
        ASSERT_TRUE(session.wait());
        session.reap(&answers);
    }
    for (const quire_store_answer &answer : answers) {
        EXPECT_EQ(answer.outcome, answer.cookie == 3 ? uint32_t{QUIRE_STORE_CANCELLED}
                                                     : uint32_t{QUIRE_STORE_DONE});
    }
    EXPECT_FALSE(session.has(label_of(1, 3)));
    EXPECT_TRUE(session.has(label_of(1, 2)));
}

TEST_P(DiskThreads, only_so_many_requests_are_taken) {
    Folder folder;
    Options options = small_options(folder.path());
    options.io = GetParam();
    Session session(options);
    std::vector<quire_store_request> requests(kMaxRequests + 10);
    for (quire_store_request &request : requests) request.kind = QUIRE_STORE_FIND;
    EXPECT_EQ(session.store().submit(requests.data(), kMaxRequests + 10, sizeof requests[0]),
              kMaxRequests);
    EXPECT_EQ(session.store().submit(requests.data(), 1, sizeof requests[0]), 0u);
    std::vector<quire_store_answer> answers;
    while (answers.size() < kMaxRequests) {
        ASSERT_TRUE(session.wait());
        session.reap(&answers);
    }
    pollfd waiting{session.store().descriptor(), POLLIN, 0};
    EXPECT_EQ(::poll(&waiting, 1, 0), 0);
    EXPECT_EQ(session.store().submit(requests.data(), 1, sizeof requests[0]), 1u);
    EXPECT_EQ(::poll(&waiting, 1, 0), 1);
}

}  // namespace

}  // namespace quire::disk::tests
