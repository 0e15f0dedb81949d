// SPDX-License-Identifier: Apache-2.0

#include "plan.hpp"

#include <memory>
#include <utility>

#include "shared/kernel_arguments.hpp"

namespace quire::vulkan {

quire_status make_plan(const Device &device, const quire_be_plan_desc &, PlanOptions options,
                       quire_be_plan **out, quire_error *) {
    auto plan = std::make_unique<quire_be_plan>();
    plan->device = &device;
    plan->options = std::move(options);
    plan->turns = rope_turns(plan->options);
    *out = plan.release();
    return QUIRE_OK;
}

void release_plan(quire_be_plan *plan) { delete plan; }

}  // namespace quire::vulkan
