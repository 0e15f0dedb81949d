// SPDX-License-Identifier: Apache-2.0

#include "kernels/instances.hpp"

#include <cstdarg>
#include <cstdio>

#include "kernels/attend.hpp"
#include "kernels/element.hpp"
#include "quire/attention.h"

namespace quire::cpu {

namespace {

// Each row holds for every combination of the element types of q, K and V (kernels/element).
constexpr Instance kInstances[] = {
    // name, attends, flags, takes_window, max_head_dim, alignment_bytes, support
    {"kv_write", false, 0, true, kMaxHeadDim, 4, QUIRE_BE_YES},
    {"causal", true, 0, true, kMaxHeadDim, 4, QUIRE_BE_YES},
    {"not causal", true, QUIRE_ATTENTION_NOT_CAUSAL, false, kMaxHeadDim, 4, QUIRE_BE_YES},
};

struct Reason {
    char *text;
    size_t bytes;

    // Returns NULL, for find_instance() to end with.
    [[gnu::format(printf, 2, 3)]] const Instance *says(const char *format, ...) {
        va_list arguments;
        va_start(arguments, format);
        std::vsnprintf(text, bytes, format, arguments);
        va_end(arguments);
        return nullptr;
    }
};

}  // namespace

const Instance *find_instance(const quire_be_attention_query &query, char *reason_text,
                              size_t reason_bytes) {
    Reason reason = {reason_text, reason_bytes};
    bool attends = query.q_heads != 0;
    if (find_element(query.k_dtype) == nullptr || find_element(query.v_dtype) == nullptr) {
        return reason.says("K and V types 0x%x and 0x%x: known are %s", query.k_dtype,
                           query.v_dtype, kElementNames);
    }
    if (attends && find_element(query.q_dtype) == nullptr) {
        return reason.says("q type 0x%x: known are %s", query.q_dtype, kElementNames);
    }
    if (query.kv_heads == 0 || query.block_tokens == 0) {
        return reason.says("kv_heads and block_tokens must be at least 1");
    }
    if (attends && query.q_heads % query.kv_heads != 0) {
        return reason.says("q_heads %u is not a multiple of kv_heads %u", query.q_heads,
                           query.kv_heads);
    }
    const Instance *found = nullptr;
    for (const Instance &instance : kInstances) {
        if (instance.attends != attends) continue;
        if (!attends || instance.flags == query.flags) found = &instance;
    }
    if (found == nullptr) return reason.says("no kernel for attention flags 0x%x", query.flags);
    if (query.window != 0 && !found->takes_window) {
        return reason.says("a window of %u tokens is not defined for '%s' attention", query.window,
                           found->name);
    }
    uint32_t most = found->max_head_dim;
    if (query.k_head_dim == 0 || query.k_head_dim > most || query.v_head_dim == 0 ||
        query.v_head_dim > most) {
        return reason.says("head dims %u (K) and %u (V): each must be 1 to %u", query.k_head_dim,
                           query.v_head_dim, most);
    }
    return found;
}

}  // namespace quire::cpu
