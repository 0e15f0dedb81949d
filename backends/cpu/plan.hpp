// SPDX-License-Identifier: Apache-2.0
//
// plan: the parameters that attention calls share, checked once.
//
// Invariants
//   (1) a plan is constant
//   (2) it lives until it is destroyed and every command that holds it has run or was dropped
//
// Threads: any.
#pragma once

#include <atomic>

#include "kernels/attend_call.hpp"
#include "kernels/rope.hpp"
#include "quire/plugin/backend.h"
#include "shared/plan_options.hpp"

namespace quire::cpu {

quire_status query_attention(quire_be_device *device, const quire_be_attention_query *query,
                             quire_be_answer *answer, quire_error *error);
quire_status plan_create(quire_be_device *device, const quire_be_plan_desc *desc,
                         quire_be_plan **out, quire_error *error);
void plan_destroy(quire_be_plan *plan);

// Checks that the plan was made for this device and for a pool like this one.
quire_status check_plan_fits(const quire_be_plan &plan, const quire_be_pool &pool,
                             const quire_be_device *device, quire_error *error);

}  // namespace quire::cpu

struct quire_be_plan {
    quire_be_device *device = nullptr;
    std::atomic<uint32_t> references{1};  // one for the owner and one per command
    quire::PlanOptions options;
    quire::cpu::AttendPlan attend{};  // what kernels read; points into options
    quire::cpu::Rope rope{};

    void add_reference() { references.fetch_add(1, std::memory_order_relaxed); }
    void drop_reference() {
        if (references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
    }
};
