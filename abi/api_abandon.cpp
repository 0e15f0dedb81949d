// SPDX-License-Identifier: Apache-2.0
//
// Exported functions of abandon.h. None takes a lock that is held while a backend is called.

#include "abi/objects.hpp"

using namespace quire;
using namespace quire::abi;

namespace {

// All abandoned objects, linked through the objects themselves: recording one takes neither a lock
// nor memory.
std::atomic<Kept *> g_kept{nullptr};

void write_kept(uint64_t device_bytes, uint64_t host_bytes, uint64_t engine_bytes,
                quire_abandon_info *info) {
    quire_abandon_info full{};
    full.device_bytes = device_bytes;
    full.host_bytes = host_bytes;
    full.engine_bytes = engine_bytes;
    write(full, info);
}

// The object no longer counts as a child, but what remains of it uses the instance's allocator and
// backends.
void leave_instance(quire_instance *instance) {
    instance->has_abandoned = true;
    --instance->children;
}

}  // namespace

void quire::abi::keep_for_ever(Kept *kept) {
    kept->next = g_kept.load();
    while (!g_kept.compare_exchange_weak(kept->next, kept)) {
    }
}

extern "C" {

quire_status quire_cache_abandon(quire_cache *cache, quire_abandon_info *info, quire_error *error) {
    return guard("cache_abandon", error, [&](quire_error *) -> Status {
        QUIRE_TRY(need(cache, "cache is NULL"));
        QUIRE_TRY(not_inherited(cache->process));
        QUIRE_TRY(check_output(info));
        if (!cache->lock.abandon()) return fail(QUIRE_E_STALE, "the cache is already abandoned");
        keep_for_ever(&cache->kept);
        write_kept(cache->device_bytes, cache->host_bytes, 0, info);
        {
            std::lock_guard<std::mutex> lock(cache->devices_mutex);
            for (quire_device *device : cache->devices) device->core.leave();
            // Calls that move the cache may be stuck inside a driver, and leave nothing any more.
            for (DeviceStay *stay = cache->moves; stay != nullptr; stay = stay->next) stay->end();
        }
        leave_instance(cache->instance);
        return Status{};
    });
}

quire_status quire_queue_abandon(quire_queue *queue, quire_error *error) {
    return guard("queue_abandon", error, [&](quire_error *) -> Status {
        QUIRE_TRY(need(queue, "queue is NULL"));
        QUIRE_TRY(usable(queue->device));
        if (!queue->core.lock.abandon()) {
            return fail(QUIRE_E_STALE, "the queue is already abandoned");
        }
        return Status{};
    });
}

quire_status quire_device_abandon(quire_device *device, quire_abandon_info *info,
                                  quire_error *error) {
    return guard("device_abandon", error, [&](quire_error *) -> Status {
        QUIRE_TRY(need(device, "device is NULL"));
        QUIRE_TRY(usable(device));
        QUIRE_TRY(check_output(info));
        uint32_t caches = 0;
        if (!device->core.abandon(&caches)) {
            if (caches == 0) return fail(QUIRE_E_STALE, "the device is already abandoned");
            return fail(QUIRE_E_BUSY,
                        "caches are on the device, {} of them: destroy or abandon them first",
                        caches);
        }
        keep_for_ever(&device->kept);
        const Device &core = device->core;
        write_kept(core.device_bytes, core.host_bytes, core.engine_bytes, info);
        {
            std::lock_guard<std::mutex> lock(device->parts_mutex);
            for (DevicePart *part = device->parts; part != nullptr; part = part->next) {
                if (part->queue != nullptr) part->queue->core.lock.abandon();
            }
        }
        leave_instance(device->instance);
        return Status{};
    });
}

}  // extern "C"
