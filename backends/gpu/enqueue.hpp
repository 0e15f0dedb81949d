// SPDX-License-Identifier: Apache-2.0
//
// enqueue: one call's access to a queue: its checks, and the commands it then submits to the stream
// or leaves held (queue.hpp).
//
// Threads: any; while an object lives it holds the device's mutex, and once a begin succeeded the
// device's context is current.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>

#include "command.hpp"
#include "context.hpp"
#include "kernels.hpp"
#include "quire/plugin/backend.h"

namespace quire::gpu {

struct Fence;
struct Queue;

class Enqueue {
 public:
    explicit Enqueue(Queue &queue);

    // Call first: refuses if the queue or its device has failed, or its stream is captured.
    quire_status begin(quire_error *error);
    // As begin(), for a call that may be captured.
    quire_status begin_replayable(quire_error *error);
    // True if the engine captures the stream; valid once a begin was called.
    bool is_captured() const { return is_captured_; }
    // These submit a command to the stream or hold it. If the driver refuses one after others of
    // the same call, the queue fails.
    // launch() runs `group_count` groups and stores that count in the head of `arguments`.
    quire_status launch(KernelName name, uint64_t group_count, Head *arguments, quire_error *error);
    // Room for the pieces of the next launch, and its address as kernels see it. NULL: no room now,
    // or the queue holds its commands.
    BytePiece *take_pieces(uint64_t count, uint64_t *address);
    quire_status fill(uint64_t address, unsigned char byte, uint64_t size_bytes,
                      quire_error *error);
    // By the driver.
    quire_status copy(const Copies &copies, quire_error *error);
    // A signal of a fence, or a wait for one.
    quire_status use_fence(CommandKind kind, Fence *fence, uint64_t value, quire_error *error);
    // Lets a fence fail that the queue, which has failed, will not signal.
    void fail_fence(Fence *fence);
    // Resumes queues that a fence held up.
    void pump();

 private:
    quire_status add(Command &&command, quire_error *error);
    void hold(Command &&command);

    Queue *queue_;
    std::unique_lock<std::mutex> lock_;
    std::optional<Entered> entered_;
    bool has_enqueued_ = false;
    bool is_captured_ = false;
    size_t held_count_ = 0;  // of this call
};

}  // namespace quire::gpu
