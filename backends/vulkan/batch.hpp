// SPDX-License-Identifier: Apache-2.0
//
// batch: what one submission holds: fences to wait for, recorded commands, fences to signal.
//
// Why recording does not wait: commands depend on fences only when they run. So they are recorded
// in the call that enqueues them, with what they read from the host copied into the batch's own
// memory, and a batch that may not run yet is a finished command buffer in a list.
//
// Threads: one at a time; batches go from the caller's hands under the device's mutex.
#pragma once

#include <vector>

#include "buffer.hpp"
#include "quire/plugin/backend.h"
#include "staging.hpp"

namespace quire::vulkan {

struct FenceStep {
    quire_be_fence *fence;  // a reference is held
    uint64_t value;
};

// Memory that host and kernels reach: arguments of commands. It grows, and is used again.
class Arguments {
 public:
    // NULL: there is no memory. Aligned to 16 bytes.
    void *take(Context &context, uint64_t size_bytes, uint64_t *address);
    void reset();

 private:
    static constexpr uint64_t kPieceBytes = 16 << 10;

    std::vector<Buffer> pieces_;  // the last one is in use
    uint64_t used_bytes_ = 0;
};

// Where a batch goes: to the VkQueue that computes, or to the one that only copies.
enum class Lane { compute, transfer };
constexpr size_t kLanes = 2;

struct Batch {
    uint64_t place = 0;  // on its queue's timeline, reached when it has run
    Lane lane = Lane::compute;
    VkCommandBuffer commands[kLanes] = {};  // of each lane, made when first wanted
    bool is_recording = false;
    uint32_t command_count = 0;
    std::vector<FenceStep> waits;
    std::vector<FenceStep> signals;
    std::vector<VkSemaphoreSubmitInfo> native_waits;  // an engine's
    std::vector<VkSemaphoreSubmitInfo> native_signals;
    std::vector<quire_be_queue *> awaited;  // references: those whose timelines it waits for
    std::vector<Buffer> outgrown;           // freed when it has run
    std::vector<PieceHold> pieces;          // of the ring, which it reads and writes
    Arguments arguments;

    // Gives back what it holds. REQUIRES: the device's mutex is held.
    void drop_references();
};

}  // namespace quire::vulkan
