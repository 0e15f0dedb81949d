// SPDX-License-Identifier: Apache-2.0

#include "plan.hpp"

#include <algorithm>
#include <cstdio>

#include "device.hpp"
#include "kernels/calls.hpp"
#include "rounds.hpp"
#include "shared/checks.hpp"
#include "shared/instances.hpp"
#include "shared/kernel_arguments.hpp"

namespace quire::gpu {

namespace {

// Each launch carries the slopes, and its arguments are no larger than kMostBytes.
constexpr char kManySlopes[] =
    "ALiBi supports at most 512 query heads; divide the heads over devices";
static_assert(kMostSlopes == 512);

bool has_many_slopes(const quire_be_attention_query &query) {
    return (query.flags & QUIRE_BE_ATTENTION_ALIBI) != 0 && query.q_heads > kMostSlopes;
}

}  // namespace

quire_status query_attention(quire_be_device *device, const quire_be_attention_query *query,
                             quire_be_answer *answer, quire_error *error) {
    if (device == nullptr) return fail(error, QUIRE_E_ARG, "device is NULL");
    if (quire_status status = answer_query(query, answer, error)) return status;
    if (answer->support == QUIRE_BE_NO || !has_many_slopes(*query)) return QUIRE_OK;
    answer->support = QUIRE_BE_NO;
    answer->alignment = 0;
    std::snprintf(answer->reason, sizeof answer->reason, "%s", kManySlopes);
    return QUIRE_OK;
}

quire_status plan_create(quire_be_device *device, const quire_be_plan_desc *desc,
                         quire_be_plan **out, quire_error *error) {
    if (device == nullptr || out == nullptr) {
        return fail(error, QUIRE_E_ARG, "device or out is NULL");
    }
    auto plan = std::make_unique<quire_be_plan>();
    plan->device = device;
    if (quire_status status = make_plan_options(desc, &plan->options, error)) return status;
    const PlanOptions &options = plan->options;
    if (has_many_slopes(options.shape)) return fail(error, QUIRE_E_UNSUPPORTED, "%s", kManySlopes);
    plan->turns = rope_turns(plan->options);
    {
        std::lock_guard lock(device->mutex);
        device->scratch_bytes = std::max(device->scratch_bytes, scratch_bytes_of(*desc));
    }
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

}  // namespace quire::gpu
