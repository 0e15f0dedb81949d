// SPDX-License-Identifier: Apache-2.0
//
// store_link: a store as the core reaches it, and the requests that it has.
//
// The core calls no plugin of a store and reads no clock: both come in here. None of the functions
// waits.
//
// Ownership: its maker's, which keeps it until the store has ended all requests, because their
// memory is in `transfers`.
// Threads: none; Cache holds its lock.
#pragma once

#include "core/tiers/transfers.hpp"

namespace quire {

class StoreLink {
 public:
    explicit StoreLink(const HostAllocator &host) : transfers(host) {}
    virtual ~StoreLink() = default;
    StoreLink(const StoreLink &) = delete;
    StoreLink &operator=(const StoreLink &) = delete;

    // Failed: *taken is 0; or `count` with QUIRE_E_BACKEND, where the store broke its contract, so
    // that no one knows which of them it has.
    virtual Status submit(const quire_store_request *requests, uint32_t count, uint32_t *taken,
                          quire_error *error) = 0;
    virtual Status reap(quire_store_answer *answers, uint32_t capacity, uint32_t *count,
                        quire_error *error) = 0;
    virtual Status cancel(uint64_t cookie, quire_error *error) = 0;
    virtual Status find(const quire_store_label *labels, uint32_t count, uint8_t *found,
                        quire_error *error) = 0;
    virtual uint64_t now_ns() = 0;

    Transfers transfers;
};

}  // namespace quire
