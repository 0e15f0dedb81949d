// SPDX-License-Identifier: Apache-2.0
//
// Threads: every function may be called from any thread, also at the same time.

#include <atomic>
#include <random>
#include <thread>

#include "subject.hpp"

namespace quire::stores {

namespace {

constexpr uint64_t kLabels = 40;
constexpr uint64_t kThreads = 4;
constexpr uint64_t kRequests = 400;  // of each
uint64_t bytes_of(uint64_t key) { return 1'000 + key * 997; }

// A request in flight; any thread may reap its answer. The cookie is its index.
struct Flight {
    Request request;
    std::atomic<int> answers{0};
};

struct Shared {
    explicit Shared(Store &used) : store(used) {}
    Store &store;
    std::vector<Flight> flights{kThreads * kRequests};
    std::atomic<uint64_t> submitted{0};
    std::atomic<uint64_t> answered{0};
    std::atomic<uint64_t> wrong{0};
};

void reap_some(Shared *shared) {
    quire_store_answer answers[8];
    uint32_t count = 0;
    Error error;
    if (api().reap(shared->store.get(), answers, 8, sizeof answers[0], &count, &error) !=
        QUIRE_OK) {
        shared->wrong += 1;
        return;
    }
    for (uint32_t i = 0; i < count; ++i) {
        if (answers[i].kind == 0) continue;
        if (answers[i].cookie >= shared->flights.size() ||
            shared->flights[answers[i].cookie].answers++ != 0) {
            shared->wrong += 1;
            continue;
        }
        const Request &request = shared->flights[answers[i].cookie].request;
        if (answers[i].kind == QUIRE_STORE_GET && answers[i].outcome == QUIRE_STORE_DONE &&
            request.bytes != value_of(request.raw.label, request.bytes.size())) {
            shared->wrong += 1;
        }
        if (answers[i].kind != request.raw.kind) shared->wrong += 1;
        shared->answered += 1;
    }
}

void work(Shared *shared, uint64_t thread) {
    std::mt19937_64 random(thread);
    for (uint64_t i = thread * kRequests; i < (thread + 1) * kRequests; ++i) {
        const uint64_t key = random() % kLabels;
        const quire_store_label label = label_of(key);
        Request *request = &shared->flights[i].request;
        switch (random() % 6) {
            case 0:
            case 1:
                *request = put_request(0, label, value_of(label, bytes_of(key)));
                break;
            case 2:
            case 3:
                *request = get_request(0, label, bytes_of(key));
                break;
            case 4:
                *request = other_request(0, QUIRE_STORE_REMOVE, label);
                break;
            default:
                *request = other_request(0, QUIRE_STORE_FLUSH);
                break;
        }
        request->raw.cookie = i;
        request->raw.pieces = request->pieces.data();
        uint32_t taken = 0;
        Error error;
        while (taken == 0) {
            if (api().submit(shared->store.get(), &request->raw, 1, sizeof request->raw, &taken,
                             &error) != QUIRE_OK) {
                shared->wrong += 1;
                return;
            }
            if (taken == 0) reap_some(shared);
        }
        shared->submitted += 1;
        if (random() % 3 == 0) reap_some(shared);
        if (random() % 10 == 0) api().cancel(shared->store.get(), random() % 1'000, &error);
        if (random() % 10 == 0) shared->store.find(label);
        if (random() % 20 == 0) shared->store.stats();
        if (random() % 50 == 0 && api().list != nullptr) shared->store.list();
    }
}

}  // namespace

TEST(Threads, work_on_one_store_at_the_same_time) {
    Place place;
    Store store(place);
    Shared shared(store);
    std::vector<std::thread> threads;
    for (uint64_t i = 0; i < kThreads; ++i) threads.emplace_back(work, &shared, i);
    for (std::thread &thread : threads) thread.join();
    while (shared.answered < shared.submitted) {
        ASSERT_TRUE(store.wait());
        reap_some(&shared);
    }
    EXPECT_EQ(shared.wrong, 0u);
    EXPECT_EQ(shared.answered, shared.submitted);
    for (uint64_t key = 0; key < kLabels; ++key) {
        Bytes value;
        if (store.get(label_of(key), bytes_of(key), &value).outcome == QUIRE_STORE_DONE) {
            EXPECT_EQ(value, value_of(label_of(key), bytes_of(key)));
        }
    }
}

TEST(Threads, open_and_close_stores_of_their_own) {
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (uint64_t i = 0; i < 4; ++i) {
        threads.emplace_back([i, &wrong] {
            for (int round = 0; round < 5; ++round) {
                Place place;
                Store store(place);
                const quire_store_label label = label_of(i);
                Bytes value;
                if (store.put(label, value_of(label, 3'000)).outcome != QUIRE_STORE_DONE ||
                    store.get(label, 3'000, &value).outcome != QUIRE_STORE_DONE ||
                    value != value_of(label, 3'000)) {
                    wrong += 1;
                }
            }
        });
    }
    for (std::thread &thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
}

}  // namespace quire::stores
