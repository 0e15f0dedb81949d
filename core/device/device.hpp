// SPDX-License-Identifier: Apache-2.0
//
// device: an opened device of a backend, and its queues, as the core sees them.
//
// Threads: a Device is constant once open, except for its counts. A queue's lock serialises what is
// enqueued on it.
#pragma once

#include <atomic>

#include "core/base/status.hpp"
#include "core/base/turnstile.hpp"
#include "quire/plugin/backend.h"

namespace quire {

struct Device {
    const quire_backend_api *api = nullptr;
    quire_be_device *handle = nullptr;
    quire_be_device_props props{};
    uint32_t flags = 0;                 // QUIRE_DEVICE_*, as requested
    std::atomic<uint32_t> children{0};  // queues, fences, memories, caches
    // Bytes allocated on it, and imported; maintained by backend_call.hpp.
    mutable std::atomic<uint64_t> device_bytes{0};
    mutable std::atomic<uint64_t> host_bytes{0};
    mutable std::atomic<uint64_t> engine_bytes{0};
    // Work may run of which no one can tell when it ends: the device's memory is never freed then.
    mutable std::atomic<bool> may_run_on{false};

    // Registers a cache on the device. False if the device was abandoned.
    [[nodiscard]] bool join() {
        if ((caches_.fetch_add(1) & kAbandoned) == 0) return true;
        --caches_;
        return false;
    }
    void leave() { --caches_; }
    // Abandons the device if no cache is on it. Else *caches is their number, or 0 if the device
    // was abandoned before.
    bool abandon(uint32_t *caches) {
        uint32_t now = 0;
        if (caches_.compare_exchange_strong(now, kAbandoned)) return true;
        *caches = now & ~kAbandoned;
        return false;
    }
    bool is_abandoned() const { return (caches_.load() & kAbandoned) != 0; }

 private:
    static constexpr uint32_t kAbandoned = 1u << 31;
    std::atomic<uint32_t> caches_{0};  // neither destroyed nor abandoned
};

// Bytes that a device can reach: its own and the host's.
struct DeviceMemory {
    uint64_t device_bytes = 0;
    uint64_t host_bytes = 0;
};

struct Queue {
    Device *device = nullptr;
    quire_be_queue *handle = nullptr;
    quire_be_fence *fence = nullptr;  // signalled once per finished step
    uint64_t signalled = 0;           // last value enqueued; under the lock
    uint64_t number = 0;              // names the queue on the timeline
    bool is_engines = false;          // a stream of the engine's own
    std::atomic<uint32_t> unfinished_steps{0};
    Turnstile lock;
};

// Holds a queue's lock for a scope, unless the queue was abandoned.
class QueueUse {
 public:
    explicit QueueUse(Queue *queue) : queue_(queue), holds_(queue->lock.enter()) {}
    ~QueueUse() {
        if (holds_) queue_->lock.leave();
    }
    QueueUse(const QueueUse &) = delete;
    QueueUse &operator=(const QueueUse &) = delete;

    Status status() const {
        if (holds_) [[likely]]
            return Status{};
        return fail(QUIRE_E_STALE, "the queue was abandoned");
    }

 private:
    Queue *queue_;
    bool holds_;
};

}  // namespace quire
