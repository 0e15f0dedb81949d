// SPDX-License-Identifier: Apache-2.0
//
// device: the machine's processor, opened: a thread pool and the list of running queues.
//
// Invariants
//   (1) the memory of a device outlives its children: each holds a reference
//   (2) device_close returns once no thread of the device is running
//   (3) unfinished == commands enqueued and not yet run or dropped, over all queues
//
// Threads: any. Lock order: device mutex, then queue mutex; attention_turn, then the pool's locks.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "kernels/attend.hpp"
#include "memory.hpp"
#include "quire/plugin/backend.h"
#include "threads.hpp"
#include "work_list.hpp"

namespace quire::cpu {

// Devices, queues, fences, plans and allocations created and not yet released, over all devices.
extern std::atomic<uint64_t> live_objects;

quire_status probe(uint32_t *device_count, quire_error *error);
quire_status device_open(const quire_be_device_desc *desc, quire_be_device **out,
                         quire_error *error);
void device_close(quire_be_device *device);
quire_status device_props(quire_be_device *device, quire_be_device_props *props,
                          quire_error *error);
quire_status quiesce(quire_be_device *device, uint64_t timeout_ns, quire_error *error);
quire_status shutdown(uint64_t *live_object_count, quire_error *error);

// The end of a wait that begins now. A timeout too long for the clock never expires.
class Deadline {
 public:
    explicit Deadline(uint64_t timeout_ns);

    // Waits for `reached` or the timeout; returns false if the timeout came first.
    template <typename Reached>
    bool wait(std::condition_variable &changed, std::unique_lock<std::mutex> &lock,
              Reached reached) const {
        if (never_) {
            changed.wait(lock, reached);
            return true;
        }
        return changed.wait_until(lock, end_, reached);
    }

 private:
    bool never_ = false;
    std::chrono::steady_clock::time_point end_;
};

}  // namespace quire::cpu

struct quire_be_device {
    std::atomic<uint32_t> references{1};
    uint32_t flags = 0;  // in effect
    quire::cpu::ThreadPool pool;
    quire::cpu::Pages scratch_pages;
    quire::cpu::AttendScratch *scratch = nullptr;  // one per thread of the pool
    std::mutex attention_turn;                     // held for a whole attention call
    quire::cpu::Pages work_pages;
    quire::cpu::WorkList *works = nullptr;  // under attention_turn

    std::mutex mutex;
    std::condition_variable changed;           // a fence grew, unfinished reached 0, a worker left
    std::atomic<bool> closing{false};          // written under the mutex
    std::atomic<uint64_t> unfinished{0};       // commands
    quire_be_queue *running_queues = nullptr;  // those with a running worker; under the mutex

    void add_reference() { references.fetch_add(1, std::memory_order_relaxed); }
    void drop_reference();
    bool is_fast_16bit() const { return (flags & QUIRE_BE_DEVICE_FAST_16BIT) != 0; }
    void finish_commands(uint64_t count);
};
