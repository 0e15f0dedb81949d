// SPDX-License-Identifier: Apache-2.0
//
// queue: runs a caller's work in order, asynchronously.
//
// A queue records its commands into recordings (recording.hpp) and has a timeline semaphore:
// recording n raises it to n. A fence stands for a turn on such timelines (fence.hpp), so waits
// between queues are device waits for work that was already submitted. A wait for work not yet
// submitted would block every other queue of the VkQueue: such a recording stays on the host, and
// so do later ones, until the fence is certain to be raised (Device::pump()).
//
// A command is submitted at once if its queue is idle, else together with others, at the latest at
// a signal.
//
// Lanes     Large copies between host and device go to a VkQueue of their own where there is one.
//           Recordings of one queue stay in order: one that changes lanes waits for the timeline to
//           reach the turn of the recording before it.
//
// Bound     A queue on an engine's own VkQueue submits in each call, so that it keeps its place
//           among the engine's recordings, and is never held: a wait for work not yet submitted is
//           refused. Its signals are recordings of their own, because they cover the engine's work
//           as well. It has one lane.
//
// Release   waits for nothing; enqueued work runs on. The queue stays with its device, which hands
//           it to the next caller that wants one: a driver may touch a timeline slightly longer
//           than it takes to reach its last value, so none is destroyed while the device is open. A
//           failed queue is reused too, once all of its work that will ever run has run.
// Closing   a device drops its queues' recordings that wait for a fence not yet signalled; the
// fences that these recordings would signal fail. Faults    a kernel that finds an index outside
// its pool records the recording's turn and what it found. Kernels after it do nothing, fences
// after it read all ones, and later calls on the queue report the fault, except signals, which fail
// their fences. Copies and fills after it may still run.
//
// Invariants
//   (1) recordings are submitted in the order of their turns, each after all earlier ones
//   (2) once failed, a queue runs nothing new, and every fence it signals fails
//   (3) between two calls a bound queue has no held recording, and an open one only after a failed
//       call: that recording has no commands except a barrier
//
// Threads: any. `recorder_mutex` is held while a call records, so that quiesce and closing may
// flush; everything else belongs to the device's mutex.
#pragma once

#include <deque>
#include <memory>
#include <mutex>

#include "quire/plugin/backend.h"
#include "recording.hpp"
#include "shared/checks.hpp"
#include "shared/objects.hpp"

namespace quire::vulkan {

// What a kernel records when it finds an index out of range; kernels/fault.glsl.
struct FaultRecord {
    uint32_t turn[2];  // of the recording, low word first; 0: no fault
    uint32_t code;
    uint32_t index;
    int32_t values[4];
};

struct Device;

struct Queue {
    Device *device = nullptr;
    VkQueue bound = VK_NULL_HANDLE;  // an engine's own
    References references{1};

    std::mutex recorder_mutex;        // taken before the device's
    std::unique_ptr<Recording> open;  // the recording being recorded; under `recorder_mutex`
    Buffer scratch;                   // for attention, grown as needed; under `recorder_mutex`

    // Under the device's mutex.
    VkSemaphore timeline = VK_NULL_HANDLE;
    VkCommandPool pools[kLanes] = {};
    Lane lane = Lane::compute;  // of the last submitted recording
    Buffer fault_buffer;
    std::deque<std::unique_ptr<Recording>> held;       // recorded, not submitted
    std::deque<std::unique_ptr<Recording>> submitted;  // not known to have run
    std::vector<std::unique_ptr<Recording>> spare;
    std::vector<Buffer> outgrown;  // of dropped recordings
    uint64_t next_turn = 1;
    uint64_t submitted_turn = 0;
    uint64_t reached_turn = 0;
    uint64_t failed_turn = UINT64_MAX;  // this recording and later ones did not run
    bool is_released = false;
    VkResult refused = VK_SUCCESS;  // the driver's error for one of its recordings
    char why[192] = {};             // why it failed; empty: it has not

    void drop_reference();

    // REQUIRES, for all below: the device's mutex is held.
    quire_status check_usable(quire_error *error);
    // How far the timeline has come; if the driver no longer says, how far it was seen.
    uint64_t read_timeline() const;
    // Reads how far the device has come, recycles recordings that have run, and reads any fault.
    void poll();
    bool has_reached(uint64_t turn) { return turn <= reached_turn; }
    bool has_failed_at(uint64_t turn) const { return turn >= failed_turn; }
    bool is_idle() const { return held.empty() && submitted.empty(); }
    // Recordings that were not submitted are dropped by the next pump().
    void fail_from(uint64_t turn, const char *reason);
    // Like fail_from(), for an error of the driver.
    void refuse(uint64_t turn, VkResult result, const char *what);
    // True if it is released, all of it has run, and its timeline is unreferenced.
    bool is_spare() const { return is_released && is_idle() && references.is_single(); }
    // Makes a spare queue as good as new; its timeline continues where it was.
    void begin_anew();
    bool has_failed() const { return why[0] != 0; }
    // Drops recordings that were not submitted; their fences fail.
    void drop_held();
    void release_vulkan();
};

// Makes a queue that live_objects does not count; `bound` is an engine's VkQueue or VK_NULL_HANDLE.
quire_status make_queue(Device *device, VkQueue bound, Queue **out, quire_error *error);

// Drops a reference when it goes out of scope. REQUIRES, then: the device's mutex is not held.
class QueueHold {
 public:
    explicit QueueHold(Queue *queue) : queue_(queue) {}
    QueueHold(const QueueHold &) = delete;
    QueueHold &operator=(const QueueHold &) = delete;
    ~QueueHold();

 private:
    Queue *queue_;
};

quire_status bind_queue(Device &device, const quire_native *native, quire_be_queue **out,
                        quire_error *error);
void release_queue(Queue &queue);
quire_status enqueue_signal(Queue &queue, Fence &fence, uint64_t value, quire_error *error);
quire_status enqueue_wait(Queue &queue, Fence &fence, uint64_t value, quire_error *error);

// For an engine's own semaphores.
quire_status native_signal(quire_be_queue *queue, const quire_native *native, quire_error *error);
quire_status native_wait(quire_be_queue *queue, const quire_native *native, quire_error *error);

}  // namespace quire::vulkan

struct quire_be_queue : quire::vulkan::Queue {};
