// SPDX-License-Identifier: Apache-2.0
//
// attention_plan: a group's attention options in the form of a request to a backend.
//
// Threads: none. The description points into the plan and the options; both must outlive it.
#pragma once

#include "core/base/geometry.hpp"
#include "core/device/rope.hpp"
#include "quire/plugin/backend.h"

namespace quire {

struct AttentionPlan {
    explicit AttentionPlan(const HostAllocator *host) : rope_(host) {}
    AttentionPlan(const AttentionPlan &) = delete;
    AttentionPlan &operator=(const AttentionPlan &) = delete;

    // Fills in everything except the capacities. kv_heads: those of the pool that is attended.
    Status describe(const quire_attention_desc &options, const GroupGeometry &group,
                    uint32_t kv_heads, uint32_t block_tokens);

    quire_be_plan_desc desc{};

 private:
    Status describe_rope(const quire_rope_desc &rope, const GroupGeometry &group);

    Rope rope_;
    quire_be_rope be_rope_{};
};

}  // namespace quire
