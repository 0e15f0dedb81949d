// SPDX-License-Identifier: Apache-2.0
//
// queue: a stream of the driver's, and what it says of itself.
//
// What has to do with fences has a place on its queue, counted from 1; the queue's record in pinned
// memory tells the host which was passed last, and what a kernel found wrong.
//
// Release   waits for nothing; what was enqueued runs on. The queue stays with its device, which
//           gives it to the next who wants one: a driver may wait when a stream is destroyed.
// Faults    a kernel that finds an index outside its pool sets the queue's fault word; kernels
//           behind it do nothing, fences behind it read all ones, and later calls on the queue say
//           what was found, but for signals, which fail their fences. Fills and large copies behind
//           it may still run.
//
// Invariants
//   (1) once failed, every fence that the queue signals fails
//   (2) a call that fails has enqueued nothing; where it had, the queue has failed
//
// Threads: any; all fields belong to the device's mutex.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "cells.hpp"
#include "context.hpp"
#include "kernels.hpp"
#include "quire/plugin/backend.h"

namespace quire::gpu {

quire_status queue_bind(quire_be_device *device, const quire_native *native, quire_be_queue **out,
                        quire_error *error);
void queue_release(quire_be_queue *queue);
quire_status fence_signal(quire_be_queue *queue, quire_be_fence *fence, uint64_t value,
                          quire_error *error);
quire_status fence_wait(quire_be_queue *queue, quire_be_fence *fence, uint64_t value,
                        quire_error *error);

// Makes a queue that nobody counts. REQUIRES: the context is current, the mutex held or the device
// not yet known to anybody.
quire_status make_queue(quire_be_device *device, quire_be_queue **out, quire_error *error);

}  // namespace quire::gpu

struct quire_be_queue {
    quire_be_device *device = nullptr;
    std::atomic<uint32_t> references{2};  // the caller's, and the device's
    quire::gpu::Stream stream = nullptr;
    quire::gpu::Cell record;
    quire::gpu::Cell word;    // of device memory: not 0 once a kernel found a fault
    uint64_t place = 0;       // handed out last
    uint64_t wait_place = 0;  // of the last wait
    uint64_t reached = 0;
    uint64_t scratch = 0;  // address, of attention
    uint64_t scratch_bytes = 0;
    std::vector<uint64_t> outgrown;  // scratch that calls may still use
    bool is_released = false;
    char why[192] = {};  // it failed

    void drop_reference();

    // REQUIRES, of all below: the device's mutex is held; of those that call the driver: the
    // context is current.
    uint64_t next_place() { return ++place; }
    quire_status check_usable(quire_error *error);
    // Looks how far the device came, and learns of faults.
    void poll();
    bool has_passed(uint64_t at) const { return at <= reached; }
    bool has_failed() const { return why[0] != 0; }
    bool may_be_held() const { return wait_place > reached; }
    bool is_idle();
    // Released, all of it has run.
    bool is_spare();
    void fail(const char *reason);
    // One group for each of `group_count`, which the head of `arguments` learns of.
    quire::gpu::Result launch(quire::gpu::KernelName name, uint64_t group_count,
                              quire::gpu::Head *arguments);
    // At least so many bytes, which the calls on this queue use one after another.
    quire::gpu::Result reserve_scratch(uint64_t size_bytes);
    void close();
};

namespace quire::gpu {

// One call's way into a queue: holds the device's mutex, its context being current.
class Enqueue {
 public:
    explicit Enqueue(quire_be_queue *queue);

    // First of all: refuses where the queue has failed, or its device.
    quire_status begin(quire_error *error);
    // Judges a driver call that enqueues. Where it failed behind others of the same call, the queue
    // fails.
    quire_status add(Result result, quire_error *error);
    quire_status launch(KernelName name, uint64_t group_count, Head *arguments, quire_error *error);
    const Driver &driver() const;

 private:
    quire_be_queue *queue_;
    std::unique_lock<std::mutex> lock_;
    std::optional<Entered> entered_;
    bool has_enqueued_ = false;
};

}  // namespace quire::gpu
