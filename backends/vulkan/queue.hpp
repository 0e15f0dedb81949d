// SPDX-License-Identifier: Apache-2.0
//
// queue: work in order behind the caller's back.
//
// A queue records its commands into batches (batch.hpp) and has a timeline semaphore: batch n
// raises it to n. What a fence stands for is a place on such timelines (fence.hpp), so waits
// between queues are waits of the device for what was submitted before. A wait for what has not
// been submitted yet would hold up every other queue of one VkQueue: such a batch stays on the
// host, and those behind it, until the fence is known to come (quire_be_device::pump()).
//
// A command is submitted at once where its queue has nothing to do, and else together with others,
// at a signal at the latest.
//
// Lanes     Much that is copied between host and device goes to a VkQueue of its own where there is
//           one. Batches of one queue stay in order: one that changes lanes waits for the timeline
//           to be where the batch before it leaves it.
//
// Bound     A queue on an engine's own VkQueue submits in each call, so that it keeps its place
//           among the engine's submissions, and is never held back: a wait for what has not been
//           submitted is refused. Its signals are batches of their own, since they stand for the
//           engine's work as well. It has one lane.
//
// Release   waits for nothing; what was enqueued runs on. The queue stays with its device, which
//           gives it to the next who wants one: a driver may touch a timeline a moment longer than
//           it takes to reach its last value, so none is destroyed while the device is open. One
//           that failed is given too, once all of it that will ever run has run.
// Closing   the device's closing drops batches that wait for a fence that nobody has signalled, and
//           their fences fail.
// Faults    a kernel that finds an index outside its pool writes down the batch's place and what it
//           found; kernels behind it do nothing, fences behind it read all ones, and later calls on
//           the queue say what was found, but for signals, which fail their fences. Copies and
//           fills behind it may still run.
//
// Invariants
//   (1) batches are submitted in the order of their places, each with all in front of it
//   (2) once failed, a queue runs nothing new, and every fence it signals fails
//   (3) between two calls a bound queue has no batch that is held, and an open one only where a
//       call failed: that has no commands but a barrier
//
// Threads: any. `recording` is held while a call records, so that quiesce and closing may flush;
// the rest belongs to the device's mutex.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>

#include "batch.hpp"
#include "quire/plugin/backend.h"
#include "shared/checks.hpp"

namespace quire::vulkan {

// What a kernel leaves when it meets an index that leads nowhere; kernels/fault.glsl.
struct FaultRecord {
    uint32_t place[2];  // of the batch, low word first; 0: none
    uint32_t code;
    uint32_t index;
    int32_t values[4];
};

quire_status queue_bind(quire_be_device *device, const quire_native *native, quire_be_queue **out,
                        quire_error *error);
void queue_release(quire_be_queue *queue);
quire_status fence_signal(quire_be_queue *queue, quire_be_fence *fence, uint64_t value,
                          quire_error *error);
quire_status fence_wait(quire_be_queue *queue, quire_be_fence *fence, uint64_t value,
                        quire_error *error);

// An engine's own semaphores.
quire_status native_signal(quire_be_queue *queue, const quire_native *native, quire_error *error);
quire_status native_wait(quire_be_queue *queue, const quire_native *native, quire_error *error);

// Makes a queue that nobody counts; `bound` is an engine's VkQueue, or VK_NULL_HANDLE.
quire_status make_queue(quire_be_device *device, VkQueue bound, quire_be_queue **out,
                        quire_error *error);

// Gives a reference back. REQUIRES, where it ends: the device's mutex is not held.
class QueueHold {
 public:
    explicit QueueHold(quire_be_queue *queue) : queue_(queue) {}
    QueueHold(const QueueHold &) = delete;
    QueueHold &operator=(const QueueHold &) = delete;
    ~QueueHold();

 private:
    quire_be_queue *queue_;
};

}  // namespace quire::vulkan

struct quire_be_queue {
    using Batch = quire::vulkan::Batch;

    quire_be_device *device = nullptr;
    VkQueue bound = VK_NULL_HANDLE;  // an engine's own
    std::atomic<uint32_t> references{1};

    std::mutex recording;           // taken before the device's
    std::unique_ptr<Batch> open;    // what is being recorded; under `recording`
    quire::vulkan::Buffer scratch;  // of attention, grown as needed; under `recording`

    // Under the device's mutex.
    VkSemaphore timeline = VK_NULL_HANDLE;
    VkCommandPool pools[quire::vulkan::kLanes] = {};
    quire::vulkan::Lane lane = quire::vulkan::Lane::compute;  // of what was submitted last
    quire::vulkan::Buffer fault_buffer;
    std::deque<std::unique_ptr<Batch>> held;       // recorded, not submitted
    std::deque<std::unique_ptr<Batch>> submitted;  // not known to have run
    std::vector<std::unique_ptr<Batch>> spare;
    std::vector<quire::vulkan::Buffer> outgrown;  // of batches that were dropped
    uint64_t next_place = 1;
    uint64_t submitted_place = 0;
    uint64_t reached_place = 0;
    uint64_t failed_place = UINT64_MAX;  // this and what comes behind did not run
    bool is_released = false;
    VkResult refused = VK_SUCCESS;  // what the driver said to a batch of it
    char why[192] = {};             // it failed

    void add_reference() { references.fetch_add(1, std::memory_order_relaxed); }
    void drop_reference();

    // REQUIRES, of all below: the device's mutex is held.
    quire_status check_usable(quire_error *error);
    // How far the timeline came; what of it was seen, where the driver no longer says.
    uint64_t read_timeline() const;
    // Looks how far the device came, takes back what has run, and learns of faults.
    void poll();
    bool has_reached(uint64_t place) { return place <= reached_place; }
    bool has_failed_at(uint64_t place) const { return place >= failed_place; }
    bool is_idle() const { return held.empty() && submitted.empty(); }
    // What was not submitted is dropped when pump() comes by.
    void fail_from(uint64_t place, const char *reason);
    // As fail_from(), for the driver would not have it.
    void refuse(uint64_t place, VkResult result, const char *what);
    // Released, all of it has run, and nobody knows its timeline any more.
    bool is_spare() const { return is_released && is_idle() && references.load() == 1; }
    // Makes a spare queue as good as new; its timeline goes on where it was.
    void begin_anew();
    bool has_failed() const { return why[0] != 0; }
    // Drops what was not submitted; its fences fail.
    void drop_held();
    void release_vulkan();
};
