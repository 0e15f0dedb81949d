// SPDX-License-Identifier: Apache-2.0

#include "core/device/attention_plan.hpp"

#include <cmath>

namespace quire {

Status AttentionPlan::describe_rope(const quire_rope_desc &rope, const GroupGeometry &group) {
    bool latent = group.kind == QUIRE_GROUP_LATENT;
    if (latent && group.k_head_dim == group.v_head_dim) {
        return fail(
            QUIRE_E_ARG,
            "rope: the latent group's rows have no rotated part: k_head_dim equals v_head_dim");
    }
    QUIRE_TRY(compute_rope(rope, latent ? group.k_head_dim - group.v_head_dim : group.k_head_dim,
                           &rope_));
    be_rope_ = quire_be_rope{sizeof be_rope_, rope_.magnitude, rope_.frequencies.data()};
    desc.rope = &be_rope_;
    desc.shape.flags |= QUIRE_BE_ATTENTION_ROPE;
    desc.shape.rotated_dim = rope_.rotated_dim;
    desc.shape.rope_pairing = rope.pairing;
    return Status{};
}

Status AttentionPlan::describe(const quire_attention_desc &options, const GroupGeometry &group,
                               uint32_t kv_heads, uint32_t block_tokens) {
    desc = quire_be_plan_desc{};
    desc.struct_size = sizeof desc;
    quire_be_attention_query &shape = desc.shape;
    shape.struct_size = sizeof shape;
    shape.flags = options.flags;
    shape.q_heads = options.q_heads;
    shape.kv_heads = kv_heads;
    shape.k_head_dim = group.k_head_dim;
    shape.v_head_dim = group.v_head_dim;
    shape.q_dtype = options.q_dtype != 0 ? options.q_dtype : uint32_t{QUIRE_DTYPE_F32};
    shape.k_dtype = group.k_dtype;
    shape.v_dtype = group.v_dtype;
    shape.k_scale_kind = group.k_scale;
    shape.v_scale_kind = group.v_scale;
    shape.block_tokens = block_tokens;
    shape.window = group.window;
    shape.group_kind = group.kind;
    shape.sink_tokens = group.sink_tokens;
    desc.scale = options.scale;
    if (!std::isfinite(options.soft_cap) || options.soft_cap < 0) {
        return fail(QUIRE_E_ARG, "soft_cap must be finite and at least 0");
    }
    if (options.soft_cap != 0) {
        shape.flags |= QUIRE_BE_ATTENTION_SOFT_CAP;
        desc.soft_cap = options.soft_cap;
    }
    if (options.alibi_slopes != nullptr) {
        shape.flags |= QUIRE_BE_ATTENTION_ALIBI;
        desc.alibi_slopes = options.alibi_slopes;
        for (uint32_t i = 0; i < options.q_heads; ++i) {
            if (std::isfinite(options.alibi_slopes[i])) continue;
            return fail(QUIRE_E_ARG, "alibi_slopes[{}] is not finite", i);
        }
    }
    if (group.cross) {
        // Masks and positions are about the sequence's own tokens.
        shape.flags &= ~uint32_t{QUIRE_ATTENTION_MASK};
        shape.flags |= QUIRE_ATTENTION_NOT_CAUSAL;
        return Status{};
    }
    return options.rope != nullptr ? describe_rope(*options.rope, group) : Status{};
}

}  // namespace quire
