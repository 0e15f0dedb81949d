// SPDX-License-Identifier: Apache-2.0

#include "plan.hpp"

#include "device.hpp"
#include "shared/checks.hpp"
#include "shared/instances.hpp"
#include "shared/kernel_arguments.hpp"

namespace quire::vulkan {

quire_status query_attention(quire_be_device *device, const quire_be_attention_query *query,
                             quire_be_answer *answer, quire_error *error) {
    if (device == nullptr) return fail(error, QUIRE_E_ARG, "device is NULL");
    return answer_query(query, answer, error);
}

quire_status plan_create(quire_be_device *device, const quire_be_plan_desc *desc,
                         quire_be_plan **out, quire_error *error) {
    if (device == nullptr || out == nullptr) {
        return fail(error, QUIRE_E_ARG, "device or out is NULL");
    }
    auto plan = std::make_unique<quire_be_plan>();
    plan->device = device;
    if (quire_status status = make_plan_options(desc, &plan->options, error)) return status;
    plan->turns = rope_turns(plan->options);
    live_objects.fetch_add(1, std::memory_order_relaxed);
    *out = plan.release();
    return QUIRE_OK;
}

void plan_destroy(quire_be_plan *plan) {
    if (plan == nullptr) return;
    live_objects.fetch_sub(1, std::memory_order_relaxed);
    delete plan;
}

quire_status check_plan_fits(const quire_be_plan &plan, const quire_be_pool &pool,
                             const quire_be_device *device, quire_error *error) {
    if (plan.device != device) {
        return fail(error, QUIRE_E_ARG, "the plan was created for another device");
    }
    return check_pool_fits(plan.options, pool, error);
}

}  // namespace quire::vulkan
