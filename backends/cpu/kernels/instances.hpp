// SPDX-License-Identifier: Apache-2.0
//
// instances: which kernels there are, as data.
//
// The capability query, the plan's refusal and the README's matrix say what this table says. What
// has no row is unsupported, whatever the code might do.
//
// Threads: any; the table is constant.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quire/plugin/backend.h"

namespace quire::cpu {

struct Instance {
    const char *name;
    bool attends;    // false: only copies and kv_write
    uint32_t flags;  // QUIRE_ATTENTION_* that select it
    bool takes_window;
    uint32_t max_head_dim;
    uint32_t alignment_bytes;  // of the pool's address
    uint32_t support;          // QUIRE_BE_*
};

// The instance for a shape; NULL with the reason in words when there is none.
const Instance *find_instance(const quire_be_attention_query &query, char *reason,
                              size_t reason_bytes);

}  // namespace quire::cpu
