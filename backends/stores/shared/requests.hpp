// SPDX-License-Identifier: Apache-2.0
//
// requests: refuses requests that store.h does not allow, before a store takes any of them.
//
// Threads: any; nothing is kept.
#pragma once

#include <cstdint>

#include "quire/plugin/store.h"

namespace quire {

struct RequestLimits {
    uint64_t max_value_bytes = 0;
    bool is_read_only = false;
    bool compacts = false;
};

// Checks all `count` requests; the message of a refusal names the one that is wrong.
quire_status check_requests(const RequestLimits &limits, const quire_store_request *requests,
                            uint32_t count, uint32_t stride, quire_error *error);

}  // namespace quire
