// SPDX-License-Identifier: Apache-2.0
//
// counted_queue: a queue of the library's own, with a fence that counts what has run on it.
//
// Threads: none; one thread at a time.
#pragma once

#include "core/device/device.hpp"

namespace quire {

class CountedQueue {
 public:
    ~CountedQueue();
    // error: the backend's words, here and below.
    Status create(const Device *device, quire_error *error);
    Status copy(const quire_be_copy *copies, uint32_t count, quire_error *error);
    // Work that is enqueued from now on runs after another queue's fence has reached the value.
    Status after(quire_be_fence *fence, uint64_t value, quire_error *error);
    // Another queue of the device goes on only after this one's fence has reached the value.
    Status hold(quire_be_queue *other, uint64_t value, quire_error *error);
    // Gives the value that the fence reaches when everything enqueued so far has run.
    Status mark(uint64_t *value, quire_error *error);
    // The same with a value of the caller's, above all before.
    Status mark_as(uint64_t value, quire_error *error);
    Status wait(uint64_t value, quire_error *error);
    // *reached: true if the fence has reached the value. Returns at once.
    Status look(uint64_t value, bool *reached, quire_error *error);
    // Returns when nothing runs on the queue any more, even if an earlier call failed.
    void settle();

 private:
    const Device *device_ = nullptr;
    quire_be_queue *queue_ = nullptr;
    quire_be_fence *fence_ = nullptr;
    uint64_t marked_ = 0;
    uint64_t reached_ = 0;
    bool unmarked_ = false;  // copies were enqueued after the last mark
};

}  // namespace quire
