// SPDX-License-Identifier: Apache-2.0
//
// instances: the kernels that our own backends have, as data.
//
// The capability query, the plan's refusal and the README's matrix all come from this table. A
// shape without a row is unsupported, whatever the code might do.
//
// Threads: any; the table is constant.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quire/plugin/backend.h"

namespace quire {

// Kernels size the buffers that hold a row by these.
constexpr uint32_t kMaxHeadDim = 256;
constexpr uint32_t kMaxLatentKDim = 576;  // DeepSeek's 512 + 64
constexpr uint32_t kMaxLatentVDim = 512;

struct Instance {
    const char *name;
    bool attends;         // false: only copies and kv_write
    uint32_t group_kind;  // QUIRE_GROUP_*
    uint32_t needs;       // QUIRE_ATTENTION_NOT_CAUSAL or 0
    uint32_t may_have;    // QUIRE_ATTENTION_*, QUIRE_BE_ATTENTION_*
    bool has_window;      // a window or chunk size: true requires one, false refuses one
    bool may_have_sinks;  // sink tokens
    uint32_t max_k_head_dim;
    uint32_t max_v_head_dim;
    uint32_t alignment_bytes;  // of the pool's address
    uint32_t support;          // QUIRE_BE_*
};

// The instance for a shape; NULL, with the reason in words, if there is none.
const Instance *find_instance(const quire_be_attention_query &query, char *reason,
                              size_t reason_bytes);

// Answers the query_attention function from the table.
quire_status answer_query(const quire_be_attention_query *query, quire_be_answer *answer,
                          quire_error *error);

}  // namespace quire
