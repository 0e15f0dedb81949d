// SPDX-License-Identifier: Apache-2.0

#include "shared/plan_options.hpp"

#include <algorithm>
#include <cmath>
#include <new>

#include "quire/attention.h"
#include "shared/checks.hpp"
#include "shared/instances.hpp"

namespace quire {

namespace {

bool are_finite(const float *values, uint32_t count) {
    return std::all_of(values, values + count, [](float value) { return std::isfinite(value); });
}

// An option must be given if, and only if, its flag is set.
quire_status check_given(bool is_flagged, bool is_given, const char *flag, const char *name,
                         quire_error *error) {
    if (is_flagged == is_given) return QUIRE_OK;
    return fail(error, QUIRE_E_ARG, "desc->%s is %s, but shape.flags %s QUIRE_BE_ATTENTION_%s",
                name, is_given ? "given" : "0", is_given ? "does not contain" : "contains", flag);
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
                    "the rope's magnitude must be above 0 and finite; the usual value is 1");
    }
    return QUIRE_OK;
}

// Copies `count` numbers; returns false if there is no memory.
bool copy_numbers(const float *from, uint32_t count, std::unique_ptr<float[]> *to) {
    to->reset(new (std::nothrow) float[count]);
    if (*to == nullptr) return false;
    std::copy_n(from, count, to->get());
    return true;
}

bool copy_arrays(const quire_be_plan_desc &desc, PlanOptions *options) {
    const quire_be_attention_query &shape = desc.shape;
    if (desc.alibi_slopes != nullptr &&
        !copy_numbers(desc.alibi_slopes, shape.q_heads, &options->slopes)) {
        return false;
    }
    if (desc.rope == nullptr) return true;
    options->rope_magnitude = desc.rope->magnitude;
    return copy_numbers(desc.rope->frequencies, shape.rotated_dim / 2, &options->frequencies);
}

}  // namespace

quire_status make_plan_options(const quire_be_plan_desc *desc, PlanOptions *options,
                               quire_error *error) {
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
    if (!copy_arrays(*desc, options)) {
        return fail(error, QUIRE_E_HOST_MEMORY, "no memory for a plan");
    }
    double plain_scale = 1.0 / std::sqrt(static_cast<double>(shape.k_head_dim));
    options->shape = shape;
    options->max_rows = desc->max_rows;
    options->max_query_tokens = desc->max_query_tokens;
    options->scale = desc->scale != 0.0f ? desc->scale : static_cast<float>(plain_scale);
    options->soft_cap = desc->soft_cap;
    return QUIRE_OK;
}

quire_status check_pool_fits(const PlanOptions &options, const quire_be_pool &pool,
                             quire_error *error) {
    const quire_be_attention_query &shape = options.shape;
    if (pool.kv_heads == shape.kv_heads && pool.k_head_dim == shape.k_head_dim &&
        pool.v_head_dim == shape.v_head_dim && pool.k_dtype == shape.k_dtype &&
        pool.v_dtype == shape.v_dtype && pool.k_scale_kind == shape.k_scale_kind &&
        pool.v_scale_kind == shape.v_scale_kind && pool.block_tokens == shape.block_tokens &&
        pool.group_kind == shape.group_kind) {
        return QUIRE_OK;
    }
    return fail(error, QUIRE_E_ARG,
                "the pool does not match the plan: group kind, heads, head dims, types, scale "
                "kinds and block_tokens must be equal");
}

}  // namespace quire
