// SPDX-License-Identifier: Apache-2.0

#include "shared/instances.hpp"

#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "quire/attention.h"
#include "quire/cache.h"
#include "shared/checks.hpp"
#include "shared/element_type.hpp"

namespace quire {

namespace {

constexpr uint32_t kNotCausal = QUIRE_ATTENTION_NOT_CAUSAL;
// Allowed for every softmax. Results are batch invariant even if that is not requested.
constexpr uint32_t kPlain =
    QUIRE_ATTENTION_BATCH_INVARIANT | QUIRE_ATTENTION_SINK_LOGITS | QUIRE_BE_ATTENTION_SOFT_CAP;
// The keys of a cross group have no positions comparable with the queries'.
constexpr uint32_t kOwnKeys = kPlain | QUIRE_BE_ATTENTION_ALIBI | QUIRE_BE_ATTENTION_ROPE;
constexpr uint32_t kCausal = kOwnKeys | QUIRE_ATTENTION_MASK;
constexpr uint32_t kEvery = kCausal | kNotCausal | QUIRE_BE_ATTENTION_AMAX;

constexpr uint32_t kYes = QUIRE_BE_YES;
constexpr uint32_t kDim = kMaxHeadDim, kLatentK = kMaxLatentKDim, kLatentV = kMaxLatentVDim;

// Each row holds for every combination of the element types of q, K and V (element_type) and of the
// kinds of scales that go with them (check_scales()). A latent row holds for every type of q, with
// K and V of one type and kind.
constexpr Instance kInstances[] = {
    // name, attends, group_kind, needs, may_have, has_window, may_have_sinks, dims, alignment,
    // support
    {"kv_write", false, QUIRE_GROUP_FULL, 0, kEvery, false, false, kDim, kDim, 4, kYes},
    {"kv_write", false, QUIRE_GROUP_WINDOW, 0, kEvery, true, true, kDim, kDim, 4, kYes},
    {"kv_write", false, QUIRE_GROUP_CHUNKED, 0, kEvery, true, false, kDim, kDim, 4, kYes},
    {"kv_write", false, QUIRE_GROUP_LATENT, 0, kEvery, false, false, kLatentK, kLatentV, 4, kYes},
    {"kv_write", false, QUIRE_GROUP_CROSS, 0, kEvery, false, false, kDim, kDim, 4, kYes},
    {"causal", true, QUIRE_GROUP_FULL, 0, kCausal, false, false, kDim, kDim, 4, kYes},
    {"not causal", true, QUIRE_GROUP_FULL, kNotCausal, kOwnKeys, false, false, kDim, kDim, 4, kYes},
    {"window", true, QUIRE_GROUP_WINDOW, 0, kCausal, true, true, kDim, kDim, 4, kYes},
    {"chunked", true, QUIRE_GROUP_CHUNKED, 0, kCausal, true, false, kDim, kDim, 4, kYes},
    {"latent", true, QUIRE_GROUP_LATENT, 0, kCausal, false, false, kLatentK, kLatentV, 4, kYes},
    {"latent, not causal", true, QUIRE_GROUP_LATENT, kNotCausal, kOwnKeys, false, false, kLatentK,
     kLatentV, 4, kYes},
    {"cross", true, QUIRE_GROUP_CROSS, kNotCausal, kPlain, false, false, kDim, kDim, 4, kYes},
};

constexpr const char *kGroupNames[] = {"full", "window", "chunked", "latent", "cross"};

struct FlagName {
    uint32_t flag;
    const char *name;
};

constexpr FlagName kFlagNames[] = {
    {QUIRE_ATTENTION_NOT_CAUSAL, "NOT_CAUSAL"},
    {QUIRE_ATTENTION_MASK, "a mask"},
    {QUIRE_ATTENTION_SINK_LOGITS, "sink logits"},
    {QUIRE_BE_ATTENTION_SOFT_CAP, "a soft cap"},
    {QUIRE_BE_ATTENTION_ALIBI, "ALiBi"},
    {QUIRE_BE_ATTENTION_ROPE, "a rope"},
    {QUIRE_BE_ATTENTION_AMAX, "AMAX, an option of kv_write"},
};

struct Reason {
    char *text;
    size_t bytes;

    // Returns false, so that a check can end with it.
    [[gnu::format(printf, 2, 3)]] bool says(const char *format, ...) {
        va_list arguments;
        va_start(arguments, format);
        std::vsnprintf(text, bytes, format, arguments);
        va_end(arguments);
        return false;
    }
};

bool check_types(const quire_be_attention_query &query, Reason reason) {
    if (find_type(query.k_dtype) == nullptr || find_type(query.v_dtype) == nullptr) {
        return reason.says("unknown K or V type (0x%x, 0x%x); valid types are %s", query.k_dtype,
                           query.v_dtype, kPoolElementNames);
    }
    if (query.q_heads != 0 && find_value_type(query.q_dtype) == nullptr) {
        return reason.says("unknown q type 0x%x; valid types are %s", query.q_dtype, kElementNames);
    }
    if (query.kv_heads == 0 || query.block_tokens == 0) {
        return reason.says("kv_heads and block_tokens must be at least 1");
    }
    if (query.q_heads % query.kv_heads != 0) {
        return reason.says("q_heads %u is not a multiple of kv_heads %u", query.q_heads,
                           query.kv_heads);
    }
    return true;
}

bool check_side(const ElementType &element, uint32_t kind, uint32_t head_dim, char side,
                Reason reason) {
    if (kind > QUIRE_SCALE_TOKEN_HEAD) {
        return reason.says("%c has the unknown scale kind %u; valid kinds are 0 to 3", side, kind);
    }
    if (element.holds_codes() != (kind != QUIRE_SCALE_NONE)) {
        return reason.says("%c is %s with scale kind %u: %s", side, element.name, kind,
                           element.holds_codes() ? "codes need a scale" : "values have no scale");
    }
    if (element.bits == 4 && head_dim % 2 != 0) {
        return reason.says(
            "%c is %s, which packs two elements per byte, but its head dim %u is odd", side,
            element.name, head_dim);
    }
    return true;
}

bool check_scales(const quire_be_attention_query &query, Reason reason) {
    return check_side(*find_type(query.k_dtype), query.k_scale_kind, query.k_head_dim, 'K',
                      reason) &&
           check_side(*find_type(query.v_dtype), query.v_scale_kind, query.v_head_dim, 'V', reason);
}

const Instance *find_row(const quire_be_attention_query &query, Reason reason) {
    bool attends = query.q_heads != 0;
    const Instance *of_kind = nullptr;
    for (const Instance &instance : kInstances) {
        if (instance.attends != attends || instance.group_kind != query.group_kind) continue;
        of_kind = &instance;
        if (!attends || instance.needs == (query.flags & kNotCausal)) return &instance;
    }
    if (of_kind == nullptr) {
        reason.says("unknown group kind %u", query.group_kind);
    } else {
        reason.says("attention in a %s group %s NOT_CAUSAL", kGroupNames[query.group_kind],
                    of_kind->needs != 0 ? "requires" : "does not support");
    }
    return nullptr;
}

bool check_flags(const Instance &row, uint32_t flags, Reason reason) {
    uint32_t excess = flags & ~(row.needs | row.may_have);
    if (excess == 0) return true;
    for (const FlagName &one : kFlagNames) {
        if ((excess & one.flag) == 0) continue;
        return reason.says("'%s' attention does not support %s", row.name, one.name);
    }
    return reason.says("no kernel supports attention flags 0x%x", excess);
}

bool check_window(const Instance &row, const quire_be_attention_query &query, Reason reason) {
    const char *group = kGroupNames[row.group_kind];
    if (row.has_window && query.window == 0) {
        return reason.says("a %s group needs a window of at least 1 token", group);
    }
    if (!row.has_window && query.window != 0) {
        return reason.says(
            "a window of %u tokens in a %s group: only window and chunked groups take a window",
            query.window, group);
    }
    if (!row.may_have_sinks && query.sink_tokens != 0) {
        return reason.says("%u sink tokens in a %s group: only window groups support sink tokens",
                           query.sink_tokens, group);
    }
    return true;
}

bool check_dims(const Instance &row, const quire_be_attention_query &query, Reason reason) {
    if (query.k_head_dim == 0 || query.k_head_dim > row.max_k_head_dim || query.v_head_dim == 0 ||
        query.v_head_dim > row.max_v_head_dim) {
        return reason.says(
            "head dims %u (K) and %u (V) in a %s group are out of range: K takes 1 to %u, V 1 to "
            "%u",
            query.k_head_dim, query.v_head_dim, kGroupNames[row.group_kind], row.max_k_head_dim,
            row.max_v_head_dim);
    }
    if (row.group_kind != QUIRE_GROUP_LATENT) return true;
    if (query.kv_heads != 1 || query.v_head_dim > query.k_head_dim ||
        query.k_dtype != query.v_dtype || query.k_scale_kind != query.v_scale_kind) {
        return reason.says(
            "a latent group needs one KV head and a V that is the beginning of K: a head dim no "
            "larger than K's, and K's type and scale kind");
    }
    return true;
}

bool check_rope(const quire_be_attention_query &query, Reason reason) {
    bool has_rope = (query.flags & QUIRE_BE_ATTENTION_ROPE) != 0;
    if (!has_rope && (query.rotated_dim != 0 || query.rope_pairing != 0)) {
        return reason.says(
            "rotated_dim %u and rope_pairing %u are set, but flags lack QUIRE_BE_ATTENTION_ROPE",
            query.rotated_dim, query.rope_pairing);
    }
    if (!has_rope) return true;
    bool is_latent = query.group_kind == QUIRE_GROUP_LATENT;
    uint32_t most = query.k_head_dim - (is_latent ? query.v_head_dim : 0);
    if (query.rotated_dim == 0 || query.rotated_dim % 2 != 0 || query.rotated_dim > most) {
        return reason.says("rotated_dim is %u; it must be even, above 0 and at most %u here",
                           query.rotated_dim, most);
    }
    if (query.rope_pairing > QUIRE_ROPE_PAIRS) {
        return reason.says("unknown rope pairing %u", query.rope_pairing);
    }
    return true;
}

}  // namespace

const Instance *find_instance(const quire_be_attention_query &query, char *reason_text,
                              size_t reason_bytes) {
    Reason reason = {reason_text, reason_bytes};
    if (!check_types(query, reason) || !check_scales(query, reason)) return nullptr;
    const Instance *row = find_row(query, reason);
    if (row == nullptr || !check_flags(*row, query.flags, reason) ||
        !check_window(*row, query, reason) || !check_dims(*row, query, reason) ||
        !check_rope(query, reason)) {
        return nullptr;
    }
    return row;
}

quire_status answer_query(const quire_be_attention_query *query, quire_be_answer *answer,
                          quire_error *error) {
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

}  // namespace quire
