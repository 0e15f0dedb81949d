// SPDX-License-Identifier: Apache-2.0
//
// plan: what attention calls have in common, checked once.
//
// Invariants
//   (1) a plan is constant
//   (2) no call refers to it after returning: what kernels need from it is copied into batches
//
// Threads: any.
#pragma once

#include <vector>

#include "quire/plugin/backend.h"
#include "shared/plan_options.hpp"

namespace quire::vulkan {

quire_status query_attention(quire_be_device *device, const quire_be_attention_query *query,
                             quire_be_answer *answer, quire_error *error);
quire_status plan_create(quire_be_device *device, const quire_be_plan_desc *desc,
                         quire_be_plan **out, quire_error *error);
void plan_destroy(quire_be_plan *plan);

// Checks that the plan was made for this device and for such a pool.
quire_status check_plan_fits(const quire_be_plan &plan, const quire_be_pool &pool,
                             const quire_be_device *device, quire_error *error);

}  // namespace quire::vulkan

struct quire_be_plan {
    quire_be_device *device = nullptr;
    quire::PlanOptions options;
    std::vector<uint64_t> turns;  // per rope pair: one position's angle, in 2^-64 turns
};
