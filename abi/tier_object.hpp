// SPDX-License-Identifier: Apache-2.0
//
// tier_object: what quire_tier points to.
//
// A tier that serves a cache answers no requests of others. Its link outlives the cache, because
// the store may use the memory of requests until it is closed.
//
// Threads: `mutex` guards all but what is constant. A call that holds a cache's lock may take it,
// never the other way round.
#pragma once

#include "abi/store_call.hpp"
#include "abi/store_loader.hpp"
#include "core/tiers/store_link.hpp"

namespace quire::abi {

// A request that was given to the store. Its value passes through memory of ours, so that a store
// that answers late, or never, holds nothing of the caller's.
struct TierRequest {
    uint64_t cookie = 0;
    std::vector<uint8_t> value;
    quire_store_piece piece{};
};

// A store, as a cache reaches it.
class TierLink final : public StoreLink {
 public:
    TierLink(const HostAllocator &host, const quire_store_api *api, quire_store *store)
        : StoreLink(host), api_(*api), store_(store) {}

    Status submit(const quire_store_request *requests, uint32_t count, uint32_t *taken,
                  quire_error *error) override {
        Status given = call_store<&quire_store_api::submit>(
            api_, error, store_, requests, count, uint32_t{sizeof(quire_store_request)}, taken);
        if (given.ok() && *taken <= count) return Status{};
        if (given.ok())
            given = store_lied(api_, error, "submit took more requests than there were");
        *taken = given.code == QUIRE_E_BACKEND ? count : 0;
        return given;
    }
    Status reap(quire_store_answer *answers, uint32_t capacity, uint32_t *count,
                quire_error *error) override {
        QUIRE_TRY(call_store<&quire_store_api::reap>(api_, error, store_, answers, capacity,
                                                     uint32_t{sizeof(quire_store_answer)}, count));
        if (*count <= capacity) return Status{};
        return store_lied(api_, error, "reap gave more answers than were asked for");
    }
    Status cancel(uint64_t cookie, quire_error *error) override {
        return call_store<&quire_store_api::cancel>(api_, error, store_, cookie);
    }
    Status find(const quire_store_label *labels, uint32_t count, uint8_t *found,
                quire_error *error) override {
        return call_store<&quire_store_api::find>(api_, error, store_, labels, count,
                                                  uint32_t{sizeof(quire_store_label)}, found);
    }
    uint64_t now_ns() override { return os::monotonic_ns(); }

    int32_t descriptor() const { return api_.descriptor != nullptr ? api_.descriptor(store_) : -1; }

 private:
    const quire_store_api &api_;
    quire_store *store_;
};

}  // namespace quire::abi

struct quire_tier {
    quire_instance *instance = nullptr;
    quire::abi::StorePlugin plugin;
    quire_store *store = nullptr;
    std::mutex mutex;  // held while a call runs, also while it waits
    uint64_t last_cookie = 0;
    uint64_t max_value_bytes = 0;
    bool is_read_only = false;
    std::vector<std::unique_ptr<quire::abi::TierRequest>> late;  // their callers wait no more
    quire_cache *cache = nullptr;                                // that it serves
    std::unique_ptr<quire::abi::TierLink> link;                  // of the last cache that it served
};

namespace quire::abi {

inline Status usable(const quire_tier *tier) {
    QUIRE_TRY(need(tier, "tier is NULL"));
    return not_inherited(tier->instance->process);
}

// A cache that was abandoned needs its tier no more. REQUIRES: the mutex.
inline Status not_serving(const quire_tier &tier) {
    if (tier.cache == nullptr || tier.cache->lock.is_abandoned()) return Status{};
    return fail(QUIRE_E_BUSY, "the tier serves a cache: detach it first");
}

}  // namespace quire::abi
