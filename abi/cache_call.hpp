// SPDX-License-Identifier: Apache-2.0
//
// cache_call: an exported function on a cache: guarded, serialised, refused in a forked child.
#pragma once

#include "abi/objects.hpp"

using namespace quire;
using namespace quire::abi;

template <typename Body>
quire_status cache_call(const char *function, quire_cache *cache, quire_error *error,
                        Body &&body) noexcept {
    return guard(function, error, [&](quire_error *sink) -> Status {
        if (cache == nullptr) return fail(QUIRE_E_ARG, "cache is NULL");
        if (!cache->devices.empty()) QUIRE_TRY(not_forked());
        QUIRE_TRY(cache->lock.enter());
        struct Leave {
            CallLock *lock;
            ~Leave() { lock->leave(); }
        } leave{&cache->lock};
        return body(cache->core, sink);
    });
}
