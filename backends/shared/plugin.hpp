// SPDX-License-Identifier: Apache-2.0
//
// plugin: what the tables of our own backends have in common.
//
// The query keeps nothing of the host: two libraries in one process may load the same plugin, and a
// device could not tell whose allocator was meant. So small objects come from operator new.
//
// Threads: any; nothing is kept.
#pragma once

#include <cstdint>
#include <new>

#include "quire/plugin/backend.h"
#include "shared/checks.hpp"

namespace quire {

// The first minor that our backends speak is their only one, so min(host, own) is always this one.
constexpr uint32_t kPluginMajor = 0;
constexpr uint32_t kPluginMinor = 1;

inline quire_error *error_of(quire_error *error) { return error; }
template <typename First, typename... Rest>
quire_error *error_of(First, Rest... rest) {
    return error_of(rest...);
}

// A slot that may run out of host memory, and says so.
template <auto slot>
struct Guard;
template <typename... Arguments, quire_status (*slot)(Arguments...)>
struct Guard<slot> {
    static quire_status call(Arguments... arguments) noexcept {
        try {
            return slot(arguments...);
        } catch (const std::bad_alloc &) {
            return fail(error_of(arguments...), QUIRE_E_HOST_MEMORY, "no host memory is left");
        }
    }
};

// quire_backend_query_v0, of this table.
quire_status hand_out(const quire_backend_api *api, const quire_host_info *host,
                      const quire_backend_api **out, quire_error *error);

}  // namespace quire
