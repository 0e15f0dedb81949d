// SPDX-License-Identifier: Apache-2.0

#include "plan.hpp"

#include <new>
#include <utility>

#include "device.hpp"
#include "kernels/targets.hpp"
#include "quire/attention.h"
#include "shared/checks.hpp"

namespace quire::cpu {

namespace {

void set_kernels(Plan *plan) {
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

quire_status make_plan(const Device &device, const quire_be_plan_desc &, PlanOptions options,
                       quire_be_plan **out, quire_error *error) {
    auto *plan = new (std::nothrow) quire_be_plan;
    if (plan == nullptr) return fail(error, QUIRE_E_HOST_MEMORY, "no memory for a plan");
    plan->device = &device;
    plan->options = std::move(options);
    set_kernels(plan);
    *out = plan;
    return QUIRE_OK;
}

void Plan::drop_reference() {
    if (references.drop()) delete static_cast<quire_be_plan *>(this);
}

}  // namespace quire::cpu
