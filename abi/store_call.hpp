// SPDX-License-Identifier: Apache-2.0
//
// store_call: the one way in which the library calls a function of a store.
//
// A store is foreign code, so what backend_call.hpp says of backends holds here: an exception, a
// status that the contract does not have, and a function that is missing become a status that this
// library knows, with a message that names the store.
//
// Threads: any.
#pragma once

#include <cstdio>
#include <type_traits>

#include "core/device/backend_call.hpp"
#include "quire/plugin/store.h"

namespace quire::abi {

inline Status store_lied(const quire_store_api &api, quire_error *error, const char *what) {
    error->domain = QUIRE_DOMAIN_BACKEND;
    std::snprintf(error->backend, sizeof error->backend, "%s", api.name);
    std::snprintf(error->message, sizeof error->message, "the store broke its contract: %s", what);
    return fail(QUIRE_E_BACKEND, nullptr);
}

// Calls a function that returns a status: call_store<&quire_store_api::reap>(api, error, ...).
// REQUIRES: error is not nullptr.
template <auto Function, typename... Arguments>
Status call_store(const quire_store_api &api, quire_error *error, Arguments... arguments) noexcept {
    if (api.*Function == nullptr)
        return fail(QUIRE_E_UNSUPPORTED, "the store has no such function");
    quire_status status = QUIRE_OK;
    try {
        status = (api.*Function)(arguments..., error);
    } catch (...) {
        return store_lied(api, error, "a function threw an exception");
    }
    if (status == QUIRE_OK) [[likely]]
        return Status{};
    if constexpr (std::is_same_v<decltype(Function), decltype(&quire_store_api::close_wait)>) {
        if (Function == &quire_store_api::close_wait && status == QUIRE_S_TIMEOUT)
            return Status{QUIRE_S_TIMEOUT, nullptr, 0, 0};
    }
    if (!known_failure(status))
        return store_lied(api, error, "a function returned a status that is not in the contract");
    error->domain = QUIRE_DOMAIN_BACKEND;
    std::snprintf(error->backend, sizeof error->backend, "%s", api.name);
    error->message[sizeof error->message - 1] = '\0';
    if (error->message[0] == '\0')
        std::snprintf(error->message, sizeof error->message, "the store gave no reason");
    return fail(status, nullptr);
}

}  // namespace quire::abi
