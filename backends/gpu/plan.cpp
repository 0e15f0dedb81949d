// SPDX-License-Identifier: Apache-2.0

#include "plan.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "device.hpp"
#include "kernels/calls.hpp"
#include "rounds.hpp"
#include "shared/kernel_arguments.hpp"

namespace quire::gpu {

namespace {

// Each launch carries the slopes, and its arguments are no larger than kMostBytes.
constexpr char kManySlopes[] =
    "ALiBi supports at most 512 query heads; divide the heads over devices";
static_assert(kMostSlopes == 512);

}  // namespace

const char *missing_kernel(const Device &, const quire_be_attention_query &shape) {
    bool has_alibi = (shape.flags & QUIRE_BE_ATTENTION_ALIBI) != 0;
    return has_alibi && shape.q_heads > kMostSlopes ? kManySlopes : nullptr;
}

quire_status make_plan(Device &device, const quire_be_plan_desc &desc, PlanOptions options,
                       quire_be_plan **out, quire_error *) {
    auto plan = std::make_unique<quire_be_plan>();
    plan->device = &device;
    plan->options = std::move(options);
    plan->turns = rope_turns(plan->options);
    {
        std::lock_guard lock(device.mutex);
        device.scratch_bytes = std::max(device.scratch_bytes, scratch_bytes_of(desc));
    }
    *out = plan.release();
    return QUIRE_OK;
}

void release_plan(quire_be_plan *plan) { delete plan; }

}  // namespace quire::gpu
