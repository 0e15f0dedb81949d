// SPDX-License-Identifier: Apache-2.0

#include "recording.hpp"

#include <algorithm>

#include "fence.hpp"
#include "queue.hpp"

namespace quire::vulkan {

void *Arguments::take(Context &context, uint64_t size_bytes, uint64_t *address) {
    uint64_t wanted = (size_bytes + 15) / 16 * 16;
    if (buffers_.empty() || buffers_.back().size_bytes() - used_bytes_ < wanted) {
        Buffer piece;
        if (piece.make(context, std::max(wanted, kPieceBytes), BufferKind::host) != VK_SUCCESS) {
            return nullptr;
        }
        buffers_.push_back(std::move(piece));
        used_bytes_ = 0;
    }
    *address = buffers_.back().address() + used_bytes_;
    void *taken = buffers_.back().host() + used_bytes_;
    used_bytes_ += wanted;
    return taken;
}

void Arguments::reset() {
    // The first has the usual size; a recording seldom needs more.
    if (buffers_.size() > 1) buffers_.resize(1);
    used_bytes_ = 0;
}

void Recording::drop_references() {
    for (const FenceStep &step : waits) step.fence->drop_reference();
    for (const FenceStep &step : signals) step.fence->drop_reference();
    for (Queue *queue : awaited) queue->drop_reference();
    awaited.clear();
    waits.clear();
    signals.clear();
    native_waits.clear();
    native_signals.clear();
    outgrown.clear();
    pieces.clear();
}

}  // namespace quire::vulkan
