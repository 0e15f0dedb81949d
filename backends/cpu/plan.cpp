// SPDX-License-Identifier: Apache-2.0

#include "plan.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>

#include "checks.hpp"
#include "device.hpp"
#include "kernels/instances.hpp"
#include "kernels/targets.hpp"
#include "quire/attention.h"

namespace quire::cpu {

namespace {

bool are_finite(const float *values, uint32_t count) {
    return std::all_of(values, values + count, [](float value) { return std::isfinite(value); });
}

// What a flag says is there must be there, and nothing else.
quire_status check_given(bool is_flagged, bool is_given, const char *flag, const char *name,
                         quire_error *error) {
    if (is_flagged == is_given) return QUIRE_OK;
    return fail(error, QUIRE_E_ARG, "desc->%s is %s, but shape.flags %s QUIRE_BE_ATTENTION_%s",
                name, is_given ? "given" : "0", is_given ? "lack" : "have", flag);
}

quire_status check_options(const quire_be_plan_desc &desc, quire_error *error) {
    const quire_be_attention_query &shape = desc.shape;
    bool has_cap = (shape.flags & QUIRE_BE_ATTENTION_SOFT_CAP) != 0;
    bool has_slopes = (shape.flags & QUIRE_BE_ATTENTION_ALIBI) != 0;
    bool has_rope = (shape.flags & QUIRE_BE_ATTENTION_ROPE) != 0;
    if (quire_status status =
            check_given(has_cap, desc.soft_cap != 0.0f, "SOFT_CAP", "soft_cap", error)) {
        return status;
    }
    if (quire_status status =
            check_given(has_slopes, desc.alibi_slopes != nullptr, "ALIBI", "alibi_slopes", error)) {
        return status;
    }
    if (quire_status status = check_given(has_rope, desc.rope != nullptr, "ROPE", "rope", error)) {
        return status;
    }
    if (!std::isfinite(desc.scale)) return fail(error, QUIRE_E_ARG, "scale is not finite");
    if (has_cap && !(desc.soft_cap > 0.0f && std::isfinite(desc.soft_cap))) {
        return fail(error, QUIRE_E_ARG, "soft_cap must be above 0 and finite");
    }
    if (has_slopes && !are_finite(desc.alibi_slopes, shape.q_heads)) {
        return fail(error, QUIRE_E_ARG, "an ALiBi slope is not finite");
    }
    return QUIRE_OK;
}

quire_status check_rope(const quire_be_plan_desc &desc, quire_error *error) {
    if (desc.rope == nullptr) return QUIRE_OK;
    const quire_be_rope &rope = *desc.rope;
    if (quire_status status = check_struct(&rope, sizeof rope, "desc->rope", error)) return status;
    if (rope.frequencies == nullptr) {
        return fail(error, QUIRE_E_ARG, "desc->rope->frequencies is NULL");
    }
    if (!are_finite(rope.frequencies, desc.shape.rotated_dim / 2)) {
        return fail(error, QUIRE_E_ARG, "a frequency of the rope is not finite");
    }
    if (!(rope.magnitude > 0.0f && std::isfinite(rope.magnitude))) {
        return fail(error, QUIRE_E_ARG,
                    "the rope's magnitude must be above 0 and finite; 1 is plain");
    }
    return QUIRE_OK;
}

// Copies `count` numbers. False: there is no memory.
bool copy_numbers(const float *from, uint32_t count, std::unique_ptr<float[]> *to) {
    to->reset(new (std::nothrow) float[count]);
    if (*to == nullptr) return false;
    std::copy_n(from, count, to->get());
    return true;
}

bool copy_options(const quire_be_plan_desc &desc, quire_be_plan *plan) {
    const quire_be_attention_query &shape = desc.shape;
    if (desc.alibi_slopes != nullptr &&
        !copy_numbers(desc.alibi_slopes, shape.q_heads, &plan->slopes)) {
        return false;
    }
    if (desc.rope == nullptr) return true;
    plan->rope.magnitude = desc.rope->magnitude;
    plan->rope.rotated_dim = shape.rotated_dim;
    plan->rope.pairing = shape.rope_pairing;
    bool is_copied =
        copy_numbers(desc.rope->frequencies, shape.rotated_dim / 2, &plan->frequencies);
    plan->rope.frequencies = plan->frequencies.get();
    return is_copied;
}

void set_attend(const quire_be_plan_desc &desc, quire_be_plan *plan) {
    const quire_be_attention_query &shape = desc.shape;
    double plain_scale = 1.0 / std::sqrt(static_cast<double>(shape.k_head_dim));
    AttendPlan &attend = plan->attend;
    attend.tile = &tile_kernels();
    attend.matrix = matrix_kernels();
    attend.q = find_value(shape.q_dtype);
    attend.scale = desc.scale != 0.0f ? desc.scale : static_cast<float>(plain_scale);
    attend.soft_cap = desc.soft_cap;
    attend.alibi_slopes = plan->slopes.get();
    attend.q_heads = shape.q_heads;
    attend.flags = shape.flags;
    attend.group_kind = shape.group_kind;
    attend.window = shape.window;
    attend.sink_tokens = shape.sink_tokens;
}

}  // namespace

quire_status query_attention(quire_be_device *device, const quire_be_attention_query *query,
                             quire_be_answer *answer, quire_error *error) {
    if (device == nullptr) return fail(error, QUIRE_E_ARG, "device is NULL");
    if (quire_status status = check_struct(query, sizeof *query, "query", error)) return status;
    if (quire_status status = check_output(answer, sizeof *answer, "answer", error)) return status;
    char reason[sizeof answer->reason] = {};
    const Instance *instance = find_instance(*query, reason, sizeof reason);
    answer->support = instance != nullptr ? instance->support : uint32_t{QUIRE_BE_NO};
    answer->alignment = instance != nullptr ? instance->alignment_bytes : 0;
    answer->reserved0 = 0;
    answer->workspace_bytes = 0;
    std::memcpy(answer->reason, reason, sizeof reason);
    return QUIRE_OK;
}

quire_status plan_create(quire_be_device *device, const quire_be_plan_desc *desc,
                         quire_be_plan **out, quire_error *error) {
    if (device == nullptr || out == nullptr) {
        return fail(error, QUIRE_E_ARG, "device or out is NULL");
    }
    if (quire_status status = check_struct(desc, sizeof *desc, "desc", error)) return status;
    const quire_be_attention_query &shape = desc->shape;
    if (quire_status status = check_struct(&shape, sizeof shape, "desc->shape", error)) {
        return status;
    }
    if (shape.q_heads == 0) {
        return fail(error, QUIRE_E_ARG, "desc->shape.q_heads is 0; a plan is for attention");
    }
    char reason[160] = {};
    if (find_instance(shape, reason, sizeof reason) == nullptr) {
        return fail(error, QUIRE_E_UNSUPPORTED, "%s", reason);
    }
    if (quire_status status = check_options(*desc, error)) return status;
    if (quire_status status = check_rope(*desc, error)) return status;
    auto *plan = new (std::nothrow) quire_be_plan;
    if (plan == nullptr || !copy_options(*desc, plan)) {
        delete plan;
        return fail(error, QUIRE_E_HOST_MEMORY, "no memory for a plan");
    }
    plan->device = device;
    plan->shape = shape;
    plan->max_rows = desc->max_rows;
    plan->max_query_tokens = desc->max_query_tokens;
    set_attend(*desc, plan);
    live_objects.fetch_add(1, std::memory_order_relaxed);
    *out = plan;
    return QUIRE_OK;
}

void plan_destroy(quire_be_plan *plan) {
    if (plan == nullptr) return;
    live_objects.fetch_sub(1, std::memory_order_relaxed);
    plan->drop_reference();
}

quire_status check_pool_fits(const quire_be_plan &plan, const quire_be_pool &pool,
                             const quire_be_device *device, quire_error *error) {
    const quire_be_attention_query &shape = plan.shape;
    if (plan.device != device) {
        return fail(error, QUIRE_E_ARG, "the plan was made for another device");
    }
    if (pool.kv_heads == shape.kv_heads && pool.k_head_dim == shape.k_head_dim &&
        pool.v_head_dim == shape.v_head_dim && pool.k_dtype == shape.k_dtype &&
        pool.v_dtype == shape.v_dtype && pool.k_scale_kind == shape.k_scale_kind &&
        pool.v_scale_kind == shape.v_scale_kind && pool.block_tokens == shape.block_tokens &&
        pool.group_kind == shape.group_kind) {
        return QUIRE_OK;
    }
    return fail(error, QUIRE_E_ARG,
                "the pool has another shape than the plan: group kind, heads, head dims, types, "
                "kinds of scales and block_tokens must be equal");
}

}  // namespace quire::cpu
