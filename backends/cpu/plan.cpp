// SPDX-License-Identifier: Apache-2.0

#include "plan.hpp"

#include <new>

#include "device.hpp"
#include "kernels/targets.hpp"
#include "quire/attention.h"
#include "shared/checks.hpp"
#include "shared/instances.hpp"

namespace quire::cpu {

namespace {

void set_kernels(quire_be_plan *plan) {
    const PlanOptions &options = plan->options;
    const quire_be_attention_query &shape = options.shape;
    AttendPlan &attend = plan->attend;
    attend.tile = &tile_kernels();
    Format q = format_of(shape.q_dtype), k = format_of(shape.k_dtype);
    bool is_fast = plan->device->is_fast_16bit();
    attend.k_matrix = matrix_for_keys(k, q, is_fast);
    attend.v_matrix = matrix_for_values(format_of(shape.v_dtype), is_fast);
    attend.q_terms = terms_of(q, k);
    attend.q = find_value(shape.q_dtype);
    attend.scale = options.scale;
    attend.soft_cap = options.soft_cap;
    attend.alibi_slopes = options.slopes.get();
    attend.q_heads = shape.q_heads;
    attend.flags = shape.flags;
    attend.group_kind = shape.group_kind;
    attend.window = shape.window;
    attend.sink_tokens = shape.sink_tokens;
    plan->rope = {options.frequencies.get(), options.rope_magnitude, shape.rotated_dim,
                  shape.rope_pairing};
}

}  // namespace

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
    PlanOptions options;
    if (quire_status status = make_plan_options(desc, &options, error)) return status;
    auto *plan = new (std::nothrow) quire_be_plan;
    if (plan == nullptr) return fail(error, QUIRE_E_HOST_MEMORY, "no memory for a plan");
    plan->device = device;
    plan->options = std::move(options);
    set_kernels(plan);
    live_objects.fetch_add(1, std::memory_order_relaxed);
    *out = plan;
    return QUIRE_OK;
}

void plan_destroy(quire_be_plan *plan) {
    if (plan == nullptr) return;
    live_objects.fetch_sub(1, std::memory_order_relaxed);
    plan->drop_reference();
}

quire_status check_plan_fits(const quire_be_plan &plan, const quire_be_pool &pool,
                             const quire_be_device *device, quire_error *error) {
    if (plan.device != device) {
        return fail(error, QUIRE_E_ARG, "the plan was created for another device");
    }
    return check_pool_fits(plan.options, pool, error);
}

}  // namespace quire::cpu
