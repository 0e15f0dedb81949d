// SPDX-License-Identifier: Apache-2.0
//
// objects: what the opaque pointers of the consumer ABI point to, and their locks.
//
// A parent counts its children and cannot be destroyed while it has any. Objects are made with new,
// which inside libquire is mimalloc's; the core's memory goes through the instance's allocator.
//
// Threads: an instance's backends are guarded by its mutex, a cache by its own; the rest is
// constant once made, or atomic.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "abi/guard.hpp"
#include "abi/os.hpp"
#include "core/cache.hpp"
#include "core/device/backend_call.hpp"

namespace quire::abi {

// A candidate that was found: loaded, or with the reason why it is not.
struct Backend {
    std::string path;
    quire_backend_api api{};  // our copy, up to the size that we know
    quire_status status = QUIRE_OK;
    std::string message;
    std::string name;
    std::string version;
    bool is_probed = false;
    uint32_t device_count = 0;  // valid once probed
    std::atomic<uint32_t> open_devices{0};
};

// In every object that can be abandoned. An abandoned object is never freed; the list keeps it
// reachable, so leak checkers see that this is intended.
struct Kept {
    Kept *next = nullptr;
};
void keep_for_ever(Kept *kept);

// Held while a call runs. Refuses a thread that holds it already (it is in a callback), and every
// caller once the object was abandoned.
class CallLock {
 public:
    Status enter() {
        uintptr_t self = os::thread_number();
        if (owner_.load(std::memory_order_relaxed) == self) {
            return fail(QUIRE_E_REENTRANT, "called from a callback of the same cache");
        }
        if (!turnstile_.enter()) return check();
        owner_.store(self, std::memory_order_relaxed);
        return Status{};
    }
    void leave() {
        owner_.store(0, std::memory_order_relaxed);
        turnstile_.leave();
    }
    bool abandon() { return turnstile_.abandon(); }
    bool is_abandoned() const { return turnstile_.is_abandoned(); }
    // For calls that do not enter.
    Status check() const {
        if (!is_abandoned()) [[likely]]
            return Status{};
        return fail(QUIRE_E_STALE, "the cache was abandoned");
    }

 private:
    Turnstile turnstile_;
    std::atomic<uintptr_t> owner_{0};
};

// A forked child cannot use an object of its parent: a thread that does not exist in the child may
// have been in the middle of a call on it and then holds its lock for ever. Check this before
// taking any lock. process: os::process_number() when the object was made.
inline Status not_inherited(uint64_t process) {
    if (process == os::process_number()) [[likely]]
        return Status{};
    return fail(QUIRE_E_FORKED,
                "the object belongs to the parent process: make an instance in this forked child");
}

inline Status not_forked() {
    if (!os::forked()) [[likely]]
        return Status{};
    return fail(QUIRE_E_FORKED,
                "this process was forked after a device was opened, so it cannot use devices");
}

}  // namespace quire::abi

struct quire_instance {
    quire::HostAllocator host;
    void (*log)(void *user, int32_t level, const char *component, const char *message) = nullptr;
    void *log_user = nullptr;
    std::mutex mutex;
    std::vector<std::unique_ptr<quire::abi::Backend>> backends;
    std::vector<std::string> searched;  // directories, for the message when nothing was found
    std::atomic<uint32_t> children{0};
    std::atomic<bool> has_abandoned{false};  // abandoned children use it for ever
    quire::abi::Kept kept;
    const quire_host_info *host_info = nullptr;
    uint64_t process = quire::os::process_number();
};

namespace quire::abi {

// A queue, fence or memory in its device's list: an abandoned device keeps them.
struct DevicePart {
    DevicePart *previous = nullptr;
    DevicePart *next = nullptr;
    quire_queue *queue = nullptr;  // set if it is a queue
};

}  // namespace quire::abi

struct quire_device {
    quire::Device core;
    quire_instance *instance = nullptr;
    quire::abi::Backend *backend = nullptr;
    std::mutex parts_mutex;  // guards `parts`; no backend is called under it
    quire::abi::DevicePart *parts = nullptr;
    quire::abi::Kept kept;

    void add(quire::abi::DevicePart *part) {
        ++core.children;
        std::lock_guard<std::mutex> lock(parts_mutex);
        part->next = parts;
        if (parts != nullptr) parts->previous = part;
        parts = part;
        if (core.is_abandoned() && part->queue != nullptr) give_up(part->queue);
    }
    void remove(quire::abi::DevicePart *part) {
        --core.children;
        if (quire::os::forked()) return;  // a thread of the parent may hold the lock for ever
        std::lock_guard<std::mutex> lock(parts_mutex);
        (part->previous != nullptr ? part->previous->next : parts) = part->next;
        if (part->next != nullptr) part->next->previous = part->previous;
    }

 private:
    static void give_up(quire_queue *queue);
};

struct quire_queue {
    quire::Queue core;
    quire_device *device = nullptr;
    quire::abi::DevicePart part;
};

inline void quire_device::give_up(quire_queue *queue) { queue->core.lock.abandon(); }

struct quire_fence {
    quire_be_fence *handle = nullptr;
    quire_device *device = nullptr;
    quire::abi::DevicePart part;
};

namespace quire::abi {

// For calls that release something; they are allowed in a forked child too.
inline Status check_kept(const quire_device *device) {
    if (!device->core.is_abandoned()) [[likely]]
        return Status{};
    return fail(QUIRE_E_STALE, "the device was abandoned");
}
// For all other calls on a device and its parts.
inline Status usable(const quire_device *device) {
    QUIRE_TRY(not_forked());
    return check_kept(device);
}

}  // namespace quire::abi

struct quire_memory {
    quire_device *device = nullptr;
    quire::abi::DevicePart part;
    uint64_t address = 0;
    void *host_pointer = nullptr;
    uint64_t size_bytes = 0;
    uint32_t kind = 0;
    bool is_imported = false;

    uint32_t backend_kind() const {
        if (is_imported) return QUIRE_BE_MEMORY_IMPORTED;
        return kind == QUIRE_MEMORY_HOST ? QUIRE_BE_MEMORY_HOST : QUIRE_BE_MEMORY_DEVICE;
    }
};

namespace quire::abi {

// A cache's presence on its devices; a device checks it before it is abandoned.
class DeviceStay {
 public:
    DeviceStay *next = nullptr;  // that of another migration of the same cache

    DeviceStay() = default;
    ~DeviceStay() { end(); }
    DeviceStay(const DeviceStay &) = delete;
    DeviceStay &operator=(const DeviceStay &) = delete;

    // devices: must live as long as this object.
    Status begin(const std::vector<quire_device *> &devices) {
        devices_ = &devices;
        for (quire_device *device : devices) {
            if (!device->core.join()) return fail(QUIRE_E_STALE, "a shard's device was abandoned");
            ++count_;
        }
        return Status{};
    }
    // The presence outlasts this object: the cache owns it now.
    void last() { count_ = 0; }
    // The cache took over the devices; the array now holds `count` others, which the cache left.
    void hand_over(size_t count) { count_ = count; }
    void end() {
        while (count_ > 0) (*devices_)[--count_]->core.leave();
    }

 private:
    const std::vector<quire_device *> *devices_ = nullptr;
    size_t count_ = 0;
};

}  // namespace quire::abi

struct quire_cache {
    explicit quire_cache(const quire::HostAllocator &host) : core(host) {}

    quire::abi::CallLock lock;
    quire::Cache core;
    quire_instance *instance = nullptr;
    std::vector<quire_device *> devices;  // of the shards; a migration changes them
    quire_tier *tier = nullptr;           // below it; under the lock
    bool on_devices = false;              // constant; false: it keeps books only
    uint64_t process = 0;                 // that of its instance
    // Guards `devices` and `moves` against an abandon; no backend is called under it.
    std::mutex devices_mutex;
    quire::abi::DeviceStay *moves = nullptr;  // of running migrations, on their target devices
    // Bytes that devices hold for the cache. Written under the lock; an abandon reads them without
    // it.
    std::atomic<uint64_t> device_bytes{0};
    std::atomic<uint64_t> host_bytes{0};
    quire::abi::Kept kept;

    // REQUIRES: the lock is held, or no other thread knows the cache yet.
    void note_memory(const quire::DeviceMemory &beside = {}) {
        quire::DeviceMemory memory = core.memory();
        device_bytes = memory.device_bytes + beside.device_bytes;
        host_bytes = memory.host_bytes + beside.host_bytes;
    }

    // The shard on the device; the number of shards if no shard is there.
    uint32_t shard_on(const quire_device *device) const {
        uint32_t shard = 0;
        while (shard < devices.size() && devices[shard] != device) ++shard;
        return shard;
    }
};

struct quire_batch {
    explicit quire_batch(const quire::HostAllocator *host) : core(host) {}

    quire::Batch core;
    quire_cache *cache = nullptr;
};
