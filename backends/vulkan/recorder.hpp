// SPDX-License-Identifier: Apache-2.0
//
// recorder: puts one call's commands into a queue's recording.
//
// REQUIRES: whatever can fail (arguments(), kernels, scratch) comes before the first command, so
// that a call that fails has enqueued nothing.
//
// Threads: one; it holds the queue's recorder_mutex.
#pragma once

#include <cstring>
#include <mutex>

#include "device.hpp"
#include "kernels.hpp"
#include "queue.hpp"

namespace quire::vulkan {

class Recorder {
 public:
    explicit Recorder(Queue &queue) : queue_(&queue), lock_(queue.recorder_mutex) {}

    // Call first. Refuses if the queue has stopped; opens a recording if there is none, and closes
    // one of the other lane.
    quire_status begin(quire_error *error, Lane lane = Lane::compute);

    // Later commands run once the fence, or the engine's semaphore, is reached.
    quire_status wait(const FenceStep &step, quire_error *error);
    quire_status wait_native(const VkSemaphoreSubmitInfo &info, quire_error *error);
    // Signals once earlier commands have run; on a bound queue, once the engine's own work has run
    // too.
    quire_status signal(const FenceStep &step, quire_error *error);
    quire_status signal_native(const VkSemaphoreSubmitInfo &info, quire_error *error);

    // Keeps ring memory that the commands use, and records which of it goes to host memory
    // afterwards. After this nothing can fail except the recording.
    void keep(std::vector<PieceHold> pieces, std::vector<Landing> landings);

    // Copies a kernel's arguments to where the kernel reads them; 0: out of memory.
    uint64_t arguments(const void *from, uint64_t size_bytes);
    // The queue's scratch memory, shared by the calls on it one after another; 0: out of memory.
    uint64_t scratch(uint64_t size_bytes, Span *span);

    // Groups are numbered consecutively, however many there are.
    void dispatch(const Kernel &kernel, uint64_t arguments, uint64_t workgroup_count);
    // Later commands see what earlier ones wrote.
    void barrier();
    VkCommandBuffer commands() const {
        return queue_->open->commands[static_cast<size_t>(queue_->open->lane)];
    }
    const VolkDeviceTable &vk() const { return queue_->device->context.vk; }
    Device &device() const { return *queue_->device; }

    // The call's commands are complete and run when their turn comes. Fails if a bound queue could
    // not submit them; then they never run.
    quire_status finish(quire_error *error);
    // Later commands go to a new recording.
    void close_recording();

 private:
    // Closes the recording; fails if it was refused.
    quire_status submit(quire_error *error);
    // Opens a recording without commands. REQUIRES: the device's mutex is held.
    quire_status open_bare(quire_error *error);

    Queue *queue_;
    std::unique_lock<std::mutex> lock_;
};

}  // namespace quire::vulkan
