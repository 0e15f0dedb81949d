// SPDX-License-Identifier: Apache-2.0
//
// recorder: one call's commands, on their way into a queue's batch.
//
// REQUIRES: whatever can fail (arguments(), kernels, scratch) comes before the first command, so
// that a call which fails has enqueued nothing.
//
// Threads: one; it holds the queue's recording.
#pragma once

#include <cstring>
#include <mutex>

#include "device.hpp"
#include "kernels.hpp"
#include "queue.hpp"

namespace quire::vulkan {

class Recorder {
 public:
    explicit Recorder(quire_be_queue *queue) : queue_(queue), lock_(queue->recording) {}

    // Refuses where the queue has stopped; opens a batch where there is none, and closes one of the
    // other lane. First of all.
    quire_status begin(quire_error *error, Lane lane = Lane::compute);

    // What comes behind runs when the fence, or the engine's semaphore, is there.
    quire_status wait(const FenceStep &step, quire_error *error);
    quire_status wait_native(const VkSemaphoreSubmitInfo &info, quire_error *error);
    // Signals when what came before has run, on a bound queue the engine's own work too.
    quire_status signal(const FenceStep &step, quire_error *error);
    quire_status signal_native(const VkSemaphoreSubmitInfo &info, quire_error *error);

    // Memory of the ring that the commands use, and what of it belongs in host memory then. After
    // this nothing fails but the submission.
    void keep(std::vector<PieceHold> pieces, std::vector<Landing> landings);

    // Copies a kernel's arguments to where it finds them; 0: there is no memory.
    uint64_t arguments(const void *from, uint64_t size_bytes);
    // Memory of the queue's own, which the calls on it use one after another; 0: there is none.
    uint64_t scratch(uint64_t size_bytes, Span *span);

    // Groups are numbered in one row, however many there are.
    void dispatch(const Kernel &kernel, uint64_t arguments, uint64_t group_count);
    // What comes behind sees what came before.
    void barrier();
    VkCommandBuffer commands() const {
        return queue_->open->commands[static_cast<size_t>(queue_->open->lane)];
    }
    const VolkDeviceTable &vk() const { return queue_->device->context.vk; }
    quire_be_device &device() const { return *queue_->device; }

    // The call's commands are complete: they run when their turn comes. Fails where a bound queue
    // could not submit them: then they never run.
    quire_status finish(quire_error *error);
    // Begins a new batch behind what was recorded.
    void close_batch();

 private:
    // Closes the batch, and fails where it was refused.
    quire_status submit_batch(quire_error *error);
    // Opens a batch without commands. REQUIRES: the device's mutex is held.
    quire_status open_bare(quire_error *error);

    quire_be_queue *queue_;
    std::unique_lock<std::mutex> lock_;
};

}  // namespace quire::vulkan
