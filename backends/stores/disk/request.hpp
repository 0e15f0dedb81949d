// SPDX-License-Identifier: Apache-2.0
//
// request: what a caller asked for, from submit to reap, and the slots that requests live in.
//
// A request is in one stage at a time:
//
//   free -> queued -> active -> finished -> free
//             ^  \      |
//             |   parked (a put or removal of a key that another one is changing)
//
// Threads: the store's mutex guards all, except that the thread that works on an active request
// reads its pieces and fills its buffer without it.
#pragma once

#include <cstdint>
#include <vector>

#include "disk/buffers.hpp"
#include "disk/io.hpp"
#include "disk/list.hpp"
#include "disk/record.hpp"

namespace quire::disk {

enum class Stage { free, queued, parked, active, finished };

struct Request;
struct Segment;

struct QueueLinks {
    static Links<Request> &of(Request *request);
};
struct OpenLinks {
    static Links<Request> &of(Request *request);
};
using RequestQueue = List<Request, QueueLinks>;
using OpenRequests = List<Request, OpenLinks>;  // of all that are not free or finished

struct Request {
    Stage stage = Stage::free;
    uint64_t ticket = 0;  // grows from submit to submit
    bool is_cancelled = false;
    RequestQueue *waits_in = nullptr;  // while it is queued or parked
    std::vector<quire_store_piece> pieces;
    uint64_t size_bytes = 0;  // of the pieces
    quire_store_answer answer{};

    // While it is active.
    Record record;  // a get: the one that is read; a put or removal: the one that is written
    Segment *segment = nullptr;
    Buffer buffer;
    Transfer transfer;
    bool is_appended = false;        // its record has a place in the log
    Request *next_of_key = nullptr;  // of the holders in one bucket of KeyHolders

    Links<Request> queue;  // of its stage
    Links<Request> open;   // of all that are neither free nor finished, by ticket

    const quire_store_label &label() const { return answer.label; }
    uint32_t kind() const { return answer.kind; }
};

inline Links<Request> &QueueLinks::of(Request *request) { return request->queue; }
inline Links<Request> &OpenLinks::of(Request *request) { return request->open; }

// Which put or removal is changing a key: others of the key wait for it.
class KeyHolders {
 public:
    Request *of(const uint8_t key[32]) const;
    void add(Request *request);
    void remove(Request *request);

 private:
    static constexpr size_t kBuckets = 1024;  // a power of two
    static size_t bucket_of(const uint8_t key[32]);
    Request *buckets_[kBuckets] = {};
};

}  // namespace quire::disk
