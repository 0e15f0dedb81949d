// SPDX-License-Identifier: Apache-2.0
//
// device: an opened device of a backend, and its queues, as the core sees them.
//
// Threads: a Device is constant once open. A queue's mutex serialises what is enqueued on it.
#pragma once

#include <atomic>
#include <mutex>

#include "quire/plugin/backend.h"
#include "status.hpp"

namespace quire {

struct Device {
    const quire_backend_api *api = nullptr;
    quire_be_device *handle = nullptr;
    quire_be_device_props props{};
    uint32_t flags = 0;                 // QUIRE_DEVICE_*: asked for
    std::atomic<uint32_t> children{0};  // queues, fences, memories, caches
};

struct Queue {
    Device *device = nullptr;
    quire_be_queue *handle = nullptr;
    quire_be_fence *fence = nullptr;  // signalled once a finished step
    uint64_t signalled = 0;           // last value enqueued; under the mutex
    uint64_t number = 0;              // names the queue on the timeline
    bool is_engines = false;          // a stream of the engine's own
    std::atomic<uint32_t> unfinished_steps{0};
    std::mutex mutex;
};

}  // namespace quire
