// SPDX-License-Identifier: Apache-2.0
//
// objects: what the opaque pointers of the consumer ABI point to, and their locks.
//
// A parent counts its children and refuses to go while it has any. Objects are made with new, which
// within libquire is mimalloc's; the core's memory goes through the instance's allocator.
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
#include "core/slot.hpp"

namespace quire::abi {

// A candidate that was found: loaded, or with the reason why not.
struct Backend {
    std::string path;
    quire_backend_api api{};  // our own copy, as long as we know it
    quire_status status = QUIRE_OK;
    std::string message;
    std::string name;
    std::string version;
    bool is_probed = false;
    uint32_t device_count = 0;  // once probed
    std::atomic<uint32_t> open_devices{0};
};

// Held while a call runs; refuses a thread that holds it already, which is one in a callback.
class CallLock {
 public:
    Status enter() {
        uintptr_t self = os::thread_number();
        if (owner_.load(std::memory_order_relaxed) == self) {
            return fail(QUIRE_E_REENTRANT, "called from a callback of the same cache");
        }
        mutex_.lock();
        owner_.store(self, std::memory_order_relaxed);
        return Status{};
    }
    void leave() {
        owner_.store(0, std::memory_order_relaxed);
        mutex_.unlock();
    }

 private:
    std::mutex mutex_;
    std::atomic<uintptr_t> owner_{0};
};

// An object of the parent is no forked child's: a thread that is not here any more may have been in
// the midst of a call on it, and holds its lock for ever. process: os::process_number() when it was
// made. Before any lock.
inline Status not_inherited(uint64_t process) {
    if (process == os::process_number()) [[likely]]
        return Status{};
    return fail(QUIRE_E_FORKED,
                "the object is the parent's, and this is a forked child: make an instance here");
}

inline Status not_forked() {
    if (!os::forked()) [[likely]]
        return Status{};
    return fail(QUIRE_E_FORKED,
                "the process forked after a device was opened: only a process that did not can use "
                "devices");
}

}  // namespace quire::abi

struct quire_instance {
    quire::HostAllocator host;
    void (*log)(void *user, int32_t level, const char *component, const char *message) = nullptr;
    void *log_user = nullptr;
    std::mutex mutex;
    std::vector<std::unique_ptr<quire::abi::Backend>> backends;
    std::vector<std::string> searched;  // directories, for the words when nothing was found
    std::atomic<uint32_t> children{0};
    const quire_host_info *host_info = nullptr;
    uint64_t process = quire::os::process_number();
};

struct quire_device {
    quire::Device core;
    quire_instance *instance = nullptr;
    quire::abi::Backend *backend = nullptr;
};

struct quire_queue {
    quire::Queue core;
    quire_device *device = nullptr;
};

struct quire_fence {
    quire_be_fence *handle = nullptr;
    quire_device *device = nullptr;
};

struct quire_memory {
    quire_device *device = nullptr;
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

struct quire_cache {
    explicit quire_cache(const quire::HostAllocator &host) : core(host) {}

    quire::abi::CallLock lock;
    quire::Cache core;
    quire_instance *instance = nullptr;
    std::vector<quire_device *> devices;  // of the shards; others once the cache was migrated
    bool on_devices = false;              // for ever; else it keeps books only
    uint64_t process = 0;                 // its instance's

    // The shard that is on the device, or as many as there are.
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
