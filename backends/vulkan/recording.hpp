// SPDX-License-Identifier: Apache-2.0
//
// recording: what goes to a VkQueue at once: fences to wait for, recorded commands, fences to
// signal. signal.
//
// Why recording does not wait: commands depend on fences only when they run. So the call that
// enqueues commands records them, and copies what they read from the host into the recording's own
// memory. A recording that may not run yet is a finished command buffer in a list.
//
// Threads: one at a time; recordings pass from the caller to the queue under the device's mutex.
#pragma once

#include <vector>

#include "buffer.hpp"
#include "quire/plugin/backend.h"
#include "staging.hpp"

namespace quire::vulkan {

struct Fence;
struct Queue;

struct FenceStep {
    Fence *fence;  // a reference is held
    uint64_t value;
};

// Memory for commands' arguments, which host and kernels reach. It grows, and is reused.
class Arguments {
 public:
    // NULL: out of memory. Aligned to 16 bytes.
    void *take(Context &context, uint64_t size_bytes, uint64_t *address);
    void reset();

 private:
    static constexpr uint64_t kPieceBytes = 16 << 10;

    std::vector<Buffer> buffers_;  // the last one is in use
    uint64_t used_bytes_ = 0;
};

// Which VkQueue a recording goes to: the one for compute, or the one that only copies.
enum class Lane { compute, transfer };
constexpr size_t kLanes = 2;

struct Recording {
    uint64_t turn = 0;  // on its queue's timeline; reached once the recording has run
    Lane lane = Lane::compute;
    VkCommandBuffer commands[kLanes] = {};  // per lane, created at first use
    bool is_recording = false;
    uint32_t command_count = 0;
    std::vector<FenceStep> waits;
    std::vector<FenceStep> signals;
    std::vector<VkSemaphoreSubmitInfo> native_waits;  // an engine's
    std::vector<VkSemaphoreSubmitInfo> native_signals;
    std::vector<Queue *> awaited;   // references to queues whose timelines it waits for
    std::vector<Buffer> outgrown;   // freed once the recording has run
    std::vector<PieceHold> pieces;  // of the ring, which the recording reads and writes
    Arguments arguments;

    // Drops the references it holds. REQUIRES: the device's mutex is held.
    void drop_references();
};

}  // namespace quire::vulkan
