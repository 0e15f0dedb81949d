// SPDX-License-Identifier: Apache-2.0

#include "schedule.hpp"

#include <algorithm>

#include "fence.hpp"

namespace quire::gpu {

namespace {

// True if nothing that runs or is held still uses the fence's words.
bool is_out_of_reach(const Fence &fence) {
    return fence.held == 0 &&
           std::all_of(fence.uses.begin(), fence.uses.end(),
                       [](const Fence::Use &use) { return use.queue->has_passed(use.place); });
}

}  // namespace

Work work_of(const Device &device) {
    Work most = Work::none;
    for (Queue *queue : device.queues) most = std::max(most, queue->work());
    return most;
}

void look(Device &device, const Entered &entered) {
    if (device.is_closed || device.is_lost) return;
    Result result = entered.result();
    if (result == 0) result = device.context.driver->stream_query(device.service->stream);
    // Any other result counts as lost: a query reports errors of earlier work.
    if (result != 0 && !device.context.driver->is_not_ready(result)) device.lose();
}

void pump(Device &device, const Entered &entered) {
    if (device.is_closed) return;
    if (!entered.is_in()) device.lose();
    bool goes_on = true;
    while (goes_on) {
        goes_on = false;
        for (Fence *fence : device.fences) goes_on |= fence->fail_if_due();
        for (Queue *queue : device.queues) goes_on |= queue->advance();
    }
}

void sweep(Device &device) {
    for (Queue *queue : device.queues) {
        queue->poll();
        queue->settle_failed();
    }
    for (size_t i = 0; i < device.fences.size();) {
        Fence *fence = device.fences[i];
        if (!fence->is_released || !is_out_of_reach(*fence)) {
            ++i;
            continue;
        }
        fence->forget_failing();
        device.pinned.give_back(fence->cell);
        device.fences[i] = device.fences.back();
        device.fences.pop_back();
        fence->drop_reference();
    }
    if (!device.allocations.has_released() || has_held_queue(device)) return;
    device.is_good(device.allocations.free_released());
}

bool needs_pump(const Device &device) {
    return device.failing_fences != 0 || has_held_queue(device);
}

bool has_held_queue(const Device &device) {
    return std::any_of(device.queues.begin(), device.queues.end(),
                       [](const Queue *queue) { return !queue->held.empty(); });
}

}  // namespace quire::gpu
