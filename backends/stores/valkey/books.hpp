// SPDX-License-Identifier: Apache-2.0
//
// books: what the threads of a store share: answers that wait to be reaped, the index, the counts,
// and what open() waits for.
//
// Invariants
//   (1) the descriptor is readable exactly while an answer or a notice waits
//   (2) a FLUSH is answered when no earlier request is open
//   (3) a request is taken, cancelled and answered without memory of its own: that may run out
//
// Threads: `mutex` guards all of it. Nothing here waits.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "valkey/index.hpp"
#include "valkey/options.hpp"
#include "valkey/request.hpp"

namespace quire::valkey {

struct Outcome {
    uint32_t code;  // QUIRE_STORE_DONE ..
    uint64_t size_bytes = 0;
    int64_t native_code = 0;
    bool is_known = false;  // PUT: the label was there; REMOVE: it was
    // FOREIGN: what is there; a PUT that is done: what was there, if `has_found`.
    quire_store_label found_label = {};
    bool has_found = false;
};

struct Counts {
    uint64_t connects = 0;
    uint64_t lost_connections = 0;
    uint64_t redirects = 0;
    uint64_t timeouts = 0;
    uint64_t breaks = 0;  // of breakers
    uint32_t nodes = 0;   // of the first lane
    uint32_t open_breakers = 0;
};

class Books {
 public:
    static constexpr uint32_t kMostRequests = 1024;
    static constexpr uint32_t kMostNotices = 4096;

    explicit Books(const Options &options) : index(options.known_count) {}
    Books(const Books &) = delete;
    Books &operator=(const Books &) = delete;
    ~Books();
    // 0 or a negative errno. Throws std::bad_alloc.
    int open();

    // Takes the mutex; the others below require it.
    void finish(Request *request, const Outcome &outcome);

    void add_open(Request *request);
    void add_flush(Request *flush);
    // Answers flushes, and marks the others for their lanes.
    void cancel(uint64_t cookie);
    bool take(quire_store_answer *out, Request **freed);
    void tell_lost();
    int descriptor() const { return descriptor_; }

    mutable std::mutex mutex;
    std::condition_variable changed;
    Index index;
    quire_store_stats stats{};
    Counts counts;
    uint32_t open_count = 0;  // of requests
    bool has_topology = false;
    bool has_scanned = false;
    bool has_asked_all = false;  // no seed gave a topology
    int open_error_number = 0;   // of the last seed
    std::string open_error;

    // Not guarded: counted by the lanes.
    std::atomic<uint64_t> written_bytes{0};
    std::atomic<uint64_t> read_bytes{0};

 private:
    void settle(Request *request, const Outcome &outcome);
    void know(const quire_store_label &label, uint64_t size_bytes);
    void forget(const Request &request);
    void note_get(const Request &request, const Outcome &outcome);
    void note_put(const Request &request, const Outcome &outcome);
    void add_answer(Request *request);
    void end_flushes();
    void tell_gone(const quire_store_label &label);
    void update_descriptor();

    int descriptor_ = -1;
    bool is_readable_ = false;
    RequestQueue finished_;
    std::deque<quire_store_label> gone_;
    bool has_lost_ = false;
    std::vector<Request *> open_;     // without flushes
    std::vector<Request *> flushes_;  // by ticket
};

}  // namespace quire::valkey
