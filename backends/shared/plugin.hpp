// SPDX-License-Identifier: Apache-2.0
//
// plugin: code that the tables of our own backends share.
//
// The query keeps nothing of the host's: two libraries in one process may load the same plugin, and
// a device could not tell whose allocator to use. So small objects come from operator new.
//
// Threads: any; nothing is kept.
#pragma once

#include <cstdint>
#include <new>

#include "quire/plugin/backend.h"
#include "shared/checks.hpp"

namespace quire {

// Our backends speak only their first minor version, so min(host, own) is always this one.
constexpr uint32_t kPluginMajor = 0;
constexpr uint32_t kPluginMinor = 1;

inline quire_error *error_of(quire_error *error) { return error; }
template <typename First, typename... Rest>
quire_error *error_of(First, Rest... rest) {
    return error_of(rest...);
}

// A function that may run out of host memory, and then returns QUIRE_E_HOST_MEMORY.
template <auto function>
struct Guard;
template <typename... Arguments, quire_status (*function)(Arguments...)>
struct Guard<function> {
    static quire_status call(Arguments... arguments) noexcept {
        try {
            return function(arguments...);
        } catch (const std::bad_alloc &) {
            return fail(error_of(arguments...), QUIRE_E_HOST_MEMORY, "no host memory is left");
        }
    }
};

// Implements quire_backend_query_v0 for this table.
quire_status hand_out(const quire_backend_api *api, const quire_host_info *host,
                      const quire_backend_api **out, quire_error *error);

}  // namespace quire
