// SPDX-License-Identifier: Apache-2.0
//
// Exported functions of cache_tier.h. Those that wait do it without the cache's lock.

#include <algorithm>

#include "abi/cache_call.hpp"
#include "abi/tier_object.hpp"

namespace {

// A store without a descriptor is asked again after this long, and so is a device's queue.
constexpr uint64_t kLookAgainNs = 1'000'000;

Status check_free(const quire_tier &tier) {
    if (tier.cache != nullptr && tier.cache->lock.is_abandoned()) {
        return fail(QUIRE_E_STALE,
                    "the tier served a cache that was abandoned: close it and open it again");
    }
    if (tier.cache != nullptr) return fail(QUIRE_E_BUSY, "the tier serves a cache already");
    if (tier.late.empty()) return Status{};
    return fail(QUIRE_E_BUSY, "{} requests that timed out are still under way", tier.late.size());
}

Status attach(quire_cache *cache, Cache &core, quire_tier *tier, const quire_cache_tier_desc &desc,
              quire_error *sink) {
    std::lock_guard<std::mutex> lock(tier->mutex);
    QUIRE_TRY(check_free(*tier));
    const quire_store_api &api = tier->plugin.api;
    quire_store_info info{};
    info.struct_size = sizeof info;
    QUIRE_TRY(call_store<&quire_store_api::get_info>(api, sink, tier->store, &info));
    QUIRE_TRY(core.check_tier(desc, info, tier->is_read_only));
    // The store still uses the requests of an earlier link.
    if (tier->link != nullptr && tier->link->transfers.count() != 0)
        return fail(QUIRE_E_BUSY, "the tier broke its contract before: close it and open it again");
    auto link = std::make_unique<TierLink>(cache->instance->host, &api, tier->store);
    QUIRE_TRY(core.attach_tier(desc, info, link.get()));
    tier->link = std::move(link);
    tier->cache = cache;
    cache->tier = tier;
    return Status{};
}

// The progress, and how long it may take until something is due, apart from answers of the store.
Status tell(quire_cache *cache, Cache &core, quire_cache_tier_progress *progress,
            quire_error *sink) {
    *progress = quire_cache_tier_progress{};
    progress->descriptor = -1;
    QUIRE_TRY(core.poll_tier(progress, sink));
    progress->descriptor = cache->tier->link->descriptor();
    return Status{};
}

quire_status poll_once(const char *function, quire_cache *cache, quire_cache_tier_progress *out,
                       quire_cache_tier_progress *full, quire_error *error) {
    return resting_call(function, cache, error, [&](Cache &core, quire_error *sink) -> Status {
        if (out != nullptr) QUIRE_TRY(check_output(out));
        QUIRE_TRY(tell(cache, core, full, sink));
        if (out != nullptr) write(*full, out);
        return Status{};
    });
}

}  // namespace

extern "C" {

quire_status quire_cache_attach_tier(quire_cache *cache, quire_tier *tier,
                                     const quire_cache_tier_desc *desc, quire_error *error) {
    return resting_call(
        "cache_attach_tier", cache, error, [&](Cache &core, quire_error *sink) -> Status {
            quire_cache_tier_desc full;
            QUIRE_TRY(read(desc, &full));
            QUIRE_TRY(usable(tier));
            if (tier->instance != cache->instance)
                return fail(QUIRE_E_ARG, "the tier was opened with another instance");
            return attach(cache, core, tier, full, sink);
        });
}

quire_status quire_cache_detach_tier_wait(quire_cache *cache, uint64_t timeout_ns,
                                          quire_error *error) {
    const uint64_t start = os::monotonic_ns();
    bool begun = false;
    for (;;) {
        bool drained = false;
        int32_t descriptor = -1;
        quire_status status = lasting_call(
            "cache_detach_tier_wait", cache, error, [&](Cache &core, quire_error *) -> Status {
                if (!begun) QUIRE_TRY(core.begin_detach_tier());
                if (cache->tier == nullptr)
                    return fail(QUIRE_E_ARG, "another call detached the tier");
                begun = true;
                core.drain_tier(&drained);
                if (!drained) {
                    descriptor = cache->tier->link->descriptor();
                    return Status{};
                }
                core.end_detach_tier();
                std::lock_guard<std::mutex> lock(cache->tier->mutex);
                cache->tier->cache = nullptr;
                cache->tier = nullptr;
                return Status{};
            });
        if (status != QUIRE_OK || drained) return status;
        const uint64_t left = os::time_left(start, timeout_ns);
        if (left == 0) return QUIRE_S_TIMEOUT;
        // Copies from a device show at no descriptor.
        os::wait_readable(descriptor, std::min(left, kLookAgainNs));
    }
}

quire_status quire_cache_poll_tier(quire_cache *cache, quire_cache_tier_progress *progress,
                                   quire_error *error) {
    quire_cache_tier_progress full;
    quire_status checked = guard("cache_poll_tier", error, [&](quire_error *) -> Status {
        return need(progress, "progress is NULL");
    });
    if (checked != QUIRE_OK) return checked;
    return poll_once("cache_poll_tier", cache, progress, &full, error);
}

quire_status quire_cache_load_wait(quire_cache *cache, uint64_t timeout_ns,
                                   quire_cache_tier_progress *progress, quire_error *error) {
    const uint64_t start = os::monotonic_ns();
    uint64_t ended = UINT64_MAX;
    for (;;) {
        quire_cache_tier_progress now;
        quire_status status = poll_once("cache_load_wait", cache, progress, &now, error);
        if (status != QUIRE_OK) return status;
        if (ended == UINT64_MAX) ended = now.loads_ended;
        if (now.loads_running == 0 || now.loads_ended != ended) return QUIRE_OK;
        const uint64_t left = os::time_left(start, timeout_ns);
        if (left == 0) return QUIRE_S_TIMEOUT;
        // Deadlines of loads show at no descriptor.
        os::wait_readable(now.descriptor, std::min(left, 10 * kLookAgainNs));
    }
}

quire_status quire_cache_cancel_load(quire_cache *cache, quire_seq seq, quire_error *error) {
    return changing_call("cache_cancel_load", cache, error,
                         [&](Cache &core, quire_error *) { return core.cancel_load(seq); });
}

quire_status quire_cache_get_tier_stats(quire_cache *cache, quire_cache_tier_stats *stats,
                                        quire_error *error) {
    return lasting_call("cache_get_tier_stats", cache, error,
                        [&](Cache &core, quire_error *) -> Status {
                            QUIRE_TRY(check_output(stats));
                            quire_cache_tier_stats full{};
                            QUIRE_TRY(core.tier_stats(&full));
                            write(full, stats);
                            return Status{};
                        });
}

quire_status quire_cache_report_loads(quire_cache *cache, void *buffer, uint64_t capacity,
                                      uint64_t *size_bytes, quire_error *error) {
    return resting_call(
        "cache_report_loads", cache, error, [&](Cache &core, quire_error *sink) -> Status {
            QUIRE_TRY(need(size_bytes, "size_bytes is NULL"));
            if (capacity != 0) QUIRE_TRY(need(buffer, "buffer is NULL"));
            return core.report_loads(static_cast<uint8_t *>(buffer), capacity, size_bytes, sink);
        });
}

quire_status quire_cache_take_report(quire_cache *cache, const void *bytes, uint64_t size_bytes,
                                     quire_error *error) {
    return changing_call(
        "cache_take_report", cache, error, [&](Cache &core, quire_error *sink) -> Status {
            if (size_bytes != 0) QUIRE_TRY(need(bytes, "bytes is NULL"));
            return core.take_report(static_cast<const uint8_t *>(bytes), size_bytes, sink);
        });
}

}  // extern "C"
