// SPDX-License-Identifier: Apache-2.0
//
// enqueue: one call's way into a queue: what it asks first, and what it then gives the stream or
// has held (queue.hpp).
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

class Enqueue {
 public:
    explicit Enqueue(quire_be_queue *queue);

    // First of all: refuses where the queue has failed, or its device, or its stream is captured.
    quire_status begin(quire_error *error);
    // As begin(), for a call that may be captured.
    quire_status begin_replayable(quire_error *error);
    // By the engine; known once a begin was called.
    bool is_captured() const { return is_captured_; }
    // These give the stream a command, or hold it. Where the driver refuses one behind others of
    // the same call, the queue fails.
    // One group for each of `group_count`, which the head of `arguments` learns of.
    quire_status launch(KernelName name, uint64_t group_count, Head *arguments, quire_error *error);
    // Room for the pieces of a launch that is given next, and its address as kernels know it. NULL:
    // there is none now, or the queue holds its commands.
    BytePiece *take_pieces(uint64_t count, uint64_t *address);
    quire_status fill(uint64_t address, unsigned char byte, uint64_t size_bytes,
                      quire_error *error);
    // By the driver.
    quire_status copy(const Copies &copies, quire_error *error);
    // A signal of a fence, or a wait for it.
    quire_status use_fence(CommandKind kind, quire_be_fence *fence, uint64_t value,
                           quire_error *error);
    // Queues that a fence held up go on.
    void pump();

 private:
    quire_status add(Command &&command, quire_error *error);
    void hold(Command &&command);

    quire_be_queue *queue_;
    std::unique_lock<std::mutex> lock_;
    std::optional<Entered> entered_;
    bool has_enqueued_ = false;
    bool is_captured_ = false;
    size_t held_count_ = 0;  // of this call
};

}  // namespace quire::gpu
