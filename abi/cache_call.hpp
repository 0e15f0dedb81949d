// SPDX-License-Identifier: Apache-2.0
//
// cache_call: an exported function on a cache: guarded, serialised, refused in a forked child.
// deciding_call: one that decides what the cache holds; refused on a follower.
// changing_call: one that changes the cache, with or without an open step; refused while it moves.
// resting_call: one that a follower can do too; refused while it moves.
// lasting_call: one that still works on a cache that was stopped by a broken invariant.
#pragma once

#include "abi/objects.hpp"

using namespace quire;
using namespace quire::abi;

template <typename Body>
quire_status lasting_call(const char *function, quire_cache *cache, quire_error *error,
                          Body &&body) noexcept {
    return guard(function, error, [&](quire_error *sink) -> Status {
        if (cache == nullptr) return fail(QUIRE_E_ARG, "cache is NULL");
        QUIRE_TRY(not_inherited(cache->process));
        QUIRE_TRY(cache->lock.enter());
        struct Leave {
            CallLock *lock;
            ~Leave() { lock->leave(); }
        } leave{&cache->lock};
        try {
            Status status = body(cache->core, sink);
            // Abandoned meanwhile: what failed of it is not worth another word.
            return status.code < 0 && cache->lock.is_abandoned() ? cache->lock.check() : status;
        } catch (const BrokenInvariant &what) {
            cache->core.stop(what);
            return broken(what, sink);
        }
    });
}

template <typename Body>
quire_status cache_call(const char *function, quire_cache *cache, quire_error *error,
                        Body &&body) noexcept {
    return lasting_call(function, cache, error, [&](Cache &core, quire_error *sink) -> Status {
        if (core.why_stopped() != nullptr) [[unlikely]]
            return broken(*core.why_stopped(), sink);
        return body(core, sink);
    });
}

template <typename Body>
quire_status deciding_call(const char *function, quire_cache *cache, quire_error *error,
                           Body &&body) noexcept {
    return cache_call(function, cache, error, [&](Cache &core, quire_error *sink) -> Status {
        if (core.follows()) [[unlikely]] {
            return fail(QUIRE_E_UNSUPPORTED,
                        "the cache follows a leader and cannot do this: call it on the leader's");
        }
        return body(core, sink);
    });
}

template <typename Body>
quire_status resting_call(const char *function, quire_cache *cache, quire_error *error,
                          Body &&body) noexcept {
    return cache_call(function, cache, error, [&](Cache &core, quire_error *sink) -> Status {
        QUIRE_TRY(core.check_at_rest());
        return body(core, sink);
    });
}

template <typename Body>
quire_status changing_call(const char *function, quire_cache *cache, quire_error *error,
                           Body &&body) noexcept {
    return deciding_call(function, cache, error, [&](Cache &core, quire_error *sink) -> Status {
        QUIRE_TRY(core.check_at_rest());
        return body(core, sink);
    });
}
