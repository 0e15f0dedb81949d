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

#include "kernels/attend_call.hpp"
#include "kernels/rope.hpp"
#include "quire/plugin/backend.h"
#include "shared/objects.hpp"
#include "shared/plan_options.hpp"

namespace quire::cpu {

struct Device;

struct Plan {
    const Device *device = nullptr;
    References references{1};  // one for the owner and one per command
    PlanOptions options;
    AttendPlan attend{};  // what kernels read; points into options
    Rope rope{};

    void drop_reference();
};

// Makes a plan of checked options. Its kernels have all options: no shape lacks one.
quire_status make_plan(const Device &device, const quire_be_plan_desc &desc, PlanOptions options,
                       quire_be_plan **out, quire_error *error);
inline void release_plan(Plan *plan) { plan->drop_reference(); }
inline const char *missing_kernel(const Device &, const quire_be_attention_query &) {
    return nullptr;
}

}  // namespace quire::cpu

struct quire_be_plan : quire::cpu::Plan {};
