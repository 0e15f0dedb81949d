// SPDX-License-Identifier: Apache-2.0
//
// plan: what attention calls have in common, checked once.
//
// Invariants
//   (1) a plan is constant
//   (2) no call refers to it after returning: launches carry copies of what kernels need from it
//
// Threads: any.
#pragma once

#include <vector>

#include "quire/plugin/backend.h"
#include "shared/plan_options.hpp"

namespace quire::gpu {

struct Device;

struct Plan {
    const Device *device = nullptr;
    PlanOptions options;
    uint64_t serial = 0;          // no other plan's
    bool decodes = false;         // by the kernels of kernels/decode.cu; the shape alone decides
    std::vector<uint64_t> turns;  // per rope pair: one position's angle, in 2^-64 turns
};

// In words, what a shape lacks a kernel for; NULL: nothing.
const char *missing_kernel(const Device &device, const quire_be_attention_query &shape);
quire_status make_plan(Device &device, const quire_be_plan_desc &desc, PlanOptions options,
                       quire_be_plan **out, quire_error *error);
void release_plan(quire_be_plan *plan);

}  // namespace quire::gpu

struct quire_be_plan : quire::gpu::Plan {};
