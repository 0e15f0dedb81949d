// SPDX-License-Identifier: Apache-2.0
//
// plan_options: a plan's description, validated and copied.
//
// Threads: any; constant once made.
#pragma once

#include <cstdint>
#include <memory>

#include "quire/plugin/backend.h"

namespace quire {

struct PlanOptions {
    quire_be_attention_query shape{};
    uint32_t max_rows = 0;
    uint32_t max_query_tokens = 0;
    float scale = 0.0f;                    // resolved: the default has replaced 0
    float soft_cap = 0.0f;                 // 0 = none
    float rope_magnitude = 0.0f;           // of cosine and sine
    std::unique_ptr<float[]> slopes;       // [q_heads]; NULL = none
    std::unique_ptr<float[]> frequencies;  // [rotated_dim / 2]; NULL = no rope

    bool has(uint32_t flag) const { return (shape.flags & flag) != 0; }
};

// Validates all of `desc`, then fills `options`.
// Errors   QUIRE_E_UNSUPPORTED  the table of instances has no row for it; in its words.
quire_status make_plan_options(const quire_be_plan_desc *desc, PlanOptions *options,
                               quire_error *error);

// Checks that the plan was made for a pool of this shape.
quire_status check_pool_fits(const PlanOptions &options, const quire_be_pool &pool,
                             quire_error *error);

}  // namespace quire
