// SPDX-License-Identifier: Apache-2.0
//
// plan: what attention calls have in common, checked once.
//
// Invariants
//   (1) a plan is constant
//   (2) no call refers to it after returning: what kernels need from it is copied into recordings
//
// Threads: any.
#pragma once

#include <vector>

#include "quire/plugin/backend.h"
#include "shared/plan_options.hpp"

namespace quire::vulkan {

struct Device;

struct Plan {
    const Device *device = nullptr;
    PlanOptions options;
    std::vector<uint64_t> turns;  // per rope pair: one position's angle, in 2^-64 turns
};

quire_status make_plan(const Device &device, const quire_be_plan_desc &desc, PlanOptions options,
                       quire_be_plan **out, quire_error *error);
void release_plan(quire_be_plan *plan);
// The kernels have all options: no shape lacks one.
inline const char *missing_kernel(const Device &, const quire_be_attention_query &) {
    return nullptr;
}

}  // namespace quire::vulkan

struct quire_be_plan : quire::vulkan::Plan {};
