// SPDX-License-Identifier: Apache-2.0
//
// structs: the rules of base.h for every struct that crosses the boundary, from one table.
//
// read() gives the library its own full copy: shorter structs are padded with zeros, longer ones
// are accepted if the bytes past the known fields are zero, and unknown flags, `next` and reserved
// fields are refused. After that no code needs to ask how large the caller's struct was. For a
// struct that takes extensions, read() has checked those in its chain, and find_chained() copies
// one.
//
// Threads: any.
#pragma once

#include <cstddef>
#include <cstring>

#include "core/base/status.hpp"
#include "quire/quire.h"
#include "quire/vulkan.h"

namespace quire::abi {

// Where a reserved field lies; size 0: the struct has no such field.
struct ReservedField {
    uint32_t offset;
    uint32_t size_bytes;
};

struct StructRule {
    const char *name;
    const char *null_text;
    uint32_t first_size;  // of its first published version: frozen
    uint32_t size;
    uint32_t known_flags;
    ReservedField reserved;
    bool takes_chain;
};

template <typename T>
struct RuleOf;

constexpr uint32_t kAttentionFlags = QUIRE_ATTENTION_NOT_CAUSAL | QUIRE_ATTENTION_BATCH_INVARIANT |
                                     QUIRE_ATTENTION_MASK | QUIRE_ATTENTION_SINK_LOGITS;

constexpr uint32_t kDeviceFlags =
    QUIRE_DEVICE_PIN_THREADS | QUIRE_DEVICE_FAST_16BIT | QUIRE_DEVICE_INLINE;

constexpr uint32_t kCacheFlags =
    QUIRE_CACHE_NO_PREFIX | QUIRE_CACHE_FIXED_HASH | QUIRE_CACHE_LOG | QUIRE_CACHE_FOLLOWER |
    QUIRE_CACHE_CALIBRATE | QUIRE_CACHE_ZERO_ON_FREE | QUIRE_CACHE_AUDIT | QUIRE_CACHE_EVENTS |
    QUIRE_CACHE_EVENT_TOKENS | QUIRE_CACHE_HOST_PREFIXES | QUIRE_CACHE_ONE_POOL |
    QUIRE_CACHE_LEASES_ONLY | QUIRE_CACHE_PARTIAL_HITS;

// type, size of the first published version, known flags, reserved field: QUIRE_RESERVED or 0, 0.
#define QUIRE_INPUT_RULES(RULE)                                                                 \
    RULE(quire_instance_desc, 64, 0, 0, 0)                                                      \
    RULE(quire_device_desc, 32, kDeviceFlags, 0, 0)                                             \
    RULE(quire_memory_desc, 32, 0, QUIRE_RESERVED(quire_memory_desc, reserved0))                \
    RULE(quire_group_desc, 56, 0, 0, 0)                                                         \
    RULE(quire_shard_desc, 40, 0, 0, 0)                                                         \
    RULE(quire_cache_desc, 136, kCacheFlags, 0, 0)                                              \
    RULE(quire_namespace_desc, 32, QUIRE_NAMESPACE_EVENT_TOKENS, 0, 0)                          \
    RULE(quire_seq_desc, 48, 0, 0, 0)                                                           \
    RULE(quire_lease_desc, 40, 0, 0, 0)                                                         \
    RULE(quire_step_desc, 40, QUIRE_STEP_MAY_PREEMPT, 0, 0)                                     \
    RULE(quire_batch_desc, 56, QUIRE_BATCH_PAD_NULL_SLOT | QUIRE_BATCH_SHARED_PREFIX,           \
         QUIRE_RESERVED(quire_batch_desc, reserved0))                                           \
    RULE(quire_attention_desc, 32, kAttentionFlags, 0, 0)                                       \
    RULE(quire_rope_desc, 72, 0, QUIRE_RESERVED(quire_rope_desc, reserved0))                    \
    RULE(quire_kv_args, 56, 0, 0, 0)                                                            \
    RULE(quire_attend_args, 64, 0, QUIRE_RESERVED(quire_attend_args, reserved0))                \
    RULE(quire_merge_args, 72, 0, QUIRE_RESERVED(quire_merge_args, reserved0))                  \
    RULE(quire_size_desc, 112, QUIRE_SIZE_LATENT, QUIRE_RESERVED(quire_size_desc, reserved0))   \
    RULE(quire_migrate_desc, 96, QUIRE_MIGRATE_COPY_HOST_TIER,                                  \
         QUIRE_RESERVED(quire_migrate_desc, reserved0))                                         \
    RULE(quire_export_desc, 96, 0, 0, 0)                                                        \
    RULE(quire_import_desc, 104, 0, 0, 0)                                                       \
    RULE(quire_tier_desc, 40, QUIRE_STORE_OPEN_EXISTING | QUIRE_STORE_OPEN_READ_ONLY, 0, 0)     \
    RULE(quire_cache_tier_desc, 88, 0, QUIRE_RESERVED(quire_cache_tier_desc, reserved0))        \
    RULE(quire_handover_send_desc, 104, 0, QUIRE_RESERVED(quire_handover_send_desc, reserved0)) \
    RULE(quire_handover_receive_desc, 88, 0, 0, 0)

#define QUIRE_OUTPUT_RULES(RULE)                 \
    RULE(quire_backend_info, 1088, 0, 0, 0)      \
    RULE(quire_device_info, 136, 0, 0, 0)        \
    RULE(quire_memory_info, 40, 0, 0, 0)         \
    RULE(quire_cache_info, 64, 0, 0, 0)          \
    RULE(quire_pool_info, 104, 0, 0, 0)          \
    RULE(quire_cache_stats, 200, 0, 0, 0)        \
    RULE(quire_namespace_info, 56, 0, 0, 0)      \
    RULE(quire_seq_info, 48, 0, 0, 0)            \
    RULE(quire_lease_info, 48, 0, 0, 0)          \
    RULE(quire_lease_result, 32, 0, 0, 0)        \
    RULE(quire_batch_views, 104, 0, 0, 0)        \
    RULE(quire_size_info, 80, 0, 0, 0)           \
    RULE(quire_calibration_info, 32, 0, 0, 0)    \
    RULE(quire_calibration_layer, 32, 0, 0, 0)   \
    RULE(quire_migrate_info, 80, 0, 0, 0)        \
    RULE(quire_abandon_info, 40, 0, 0, 0)        \
    RULE(quire_events_info, 32, 0, 0, 0)         \
    RULE(quire_session_info, 40, 0, 0, 0)        \
    RULE(quire_store_info, 296, 0, 0, 0)         \
    RULE(quire_store_stats, 152, 0, 0, 0)        \
    RULE(quire_cache_tier_progress, 48, 0, 0, 0) \
    RULE(quire_cache_tier_stats, 168, 0, 0, 0)   \
    RULE(quire_handover_progress, 56, 0, 0, 0)

#define QUIRE_RESERVED(type, field) offsetof(type, field), sizeof(type::field)

template <typename T>
inline constexpr bool kTakesChain = false;
template <>
inline constexpr bool kTakesChain<quire_device_desc> = true;

#define QUIRE_RULE(type, first_bytes, flags_mask, ...)                    \
    template <>                                                           \
    struct RuleOf<type> {                                                 \
        static constexpr StructRule value{                                \
            #type,      #type " is NULL", first_bytes,      sizeof(type), \
            flags_mask, {__VA_ARGS__},    kTakesChain<type>};             \
        static_assert(first_bytes <= sizeof(type));                       \
    };
QUIRE_INPUT_RULES(QUIRE_RULE)
QUIRE_OUTPUT_RULES(QUIRE_RULE)
#undef QUIRE_RULE

// An extension, which is a struct in a chain; the texts name it.
struct ChainRule {
    uint32_t type;
    uint32_t first_size;
    uint32_t size;
    const char *size_text;
    const char *unknown_text;
    const char *twice_text;
};

template <typename T>
struct ChainOf;

#define QUIRE_CHAINED(name, number, first_bytes)                                                \
    template <>                                                                                 \
    struct ChainOf<name> {                                                                      \
        static constexpr ChainRule value{                                                       \
            number,                                                                             \
            first_bytes,                                                                        \
            sizeof(name),                                                                       \
            "struct_size of the " #name " in the chain is {}: set it to sizeof, here {}",       \
            "a field of the " #name " beyond byte {} is set, which this version does not know", \
            "the chain holds " #name " twice"};                                                 \
        static_assert(first_bytes <= sizeof(name));                                             \
    };
QUIRE_CHAINED(quire_vulkan_device, QUIRE_STRUCT_VULKAN_DEVICE, 112)
#undef QUIRE_CHAINED

// The elements of an array, which have no head; the texts name the type.
struct ArrayRule {
    uint32_t first_size;  // of its first published version: frozen
    uint32_t size;
    uint32_t alignment;
    const char *null_text;
    const char *stride_text;
    const char *alignment_text;
    const char *unknown_text;
};

template <typename T>
struct ArrayOf;

#define QUIRE_ARRAY(type, first_bytes)                                               \
    template <>                                                                      \
    struct ArrayOf<type> {                                                           \
        static constexpr ArrayRule value{                                            \
            first_bytes,                                                             \
            sizeof(type),                                                            \
            alignof(type),                                                           \
            "the array of " #type " is NULL, but its count is {}",                   \
            "the stride of the array of " #type " is {}: set it to sizeof, here {}", \
            "the array of " #type " is not aligned to {} bytes",                     \
            "element {} of the array of " #type " sets a field that is not known"};  \
        static_assert(first_bytes <= sizeof(type));                                  \
    };
QUIRE_ARRAY(quire_key, 24)
QUIRE_ARRAY(quire_token_span, 24)
QUIRE_ARRAY(quire_step_item, 40)
#undef QUIRE_ARRAY

// Checks the reserved field of a native object, which has no head. NULL is for the caller to judge.
Status check_native(const quire_native *native);

Status read_struct(const StructRule &rule, const void *in, void *out);
Status check_output(const StructRule &rule, const void *out);
// Copies the struct of that type; false: the chain has none. REQUIRES: read_struct() checked the
// chain.
bool copy_chained(const ChainRule &rule, const quire_chain *next, void *out);

// Checks an array of headless elements: pointer, stride, alignment, and that the bytes of each
// element past the known fields are zero. Elements of an older version, which are shorter, pass.
Status check_array(const ArrayRule &rule, const void *array, uint32_t count, uint32_t stride);

// Checks an argument that may not be NULL; `text` names it.
inline Status need(const void *pointer, const char *text) {
    if (pointer != nullptr) [[likely]]
        return Status{};
    return fail(QUIRE_E_ARG, text);
}

template <typename T>
Status check_array(const T *array, uint32_t count, uint32_t stride) {
    return check_array(ArrayOf<T>::value, array, count, stride);
}

template <typename T>
Status read(const T *in, T *out) {
    return read_struct(RuleOf<T>::value, in, out);
}

template <typename T>
bool find_chained(const quire_chain *next, T *out) {
    return copy_chained(ChainOf<T>::value, next, out);
}

template <typename T>
Status check_output(const T *out) {
    return check_output(RuleOf<T>::value, out);
}

// Writes `full` into the caller's struct, up to the caller's size; only the flags of its head.
// REQUIRES: check_output().
template <typename T>
void write(const T &full, T *out) {
    constexpr uint32_t head = offsetof(T, next) + sizeof(T::next);
    uint32_t size = out->struct_size < sizeof(T) ? out->struct_size : uint32_t{sizeof(T)};
    out->flags = full.flags;
    std::memcpy(reinterpret_cast<char *>(out) + head, reinterpret_cast<const char *>(&full) + head,
                size - head);
}

// Reads element `index` of an array of structs that have heads.
template <typename T>
Status read_element(const T *array, uint32_t index, uint32_t stride, T *out) {
    QUIRE_TRY(need(array, RuleOf<T>::value.null_text));
    if (stride < RuleOf<T>::value.first_size || stride % 8 != 0) {
        return fail(QUIRE_E_ARG,
                    "an array's stride is {}: set it to sizeof of its element, here {}", stride,
                    sizeof(T));
    }
    if (reinterpret_cast<uintptr_t>(array) % alignof(T) != 0) {
        return fail(QUIRE_E_ARG, "an array is not aligned to {} bytes", alignof(T));
    }
    const char *at = reinterpret_cast<const char *>(array) + uint64_t{index} * stride;
    const T *element = reinterpret_cast<const T *>(at);
    if (element->struct_size > stride) {
        return fail(QUIRE_E_STRUCT, "an element's struct_size {} is above its stride {}",
                    element->struct_size, stride);
    }
    return read(element, out);
}

// Checks an array that the function writes, of structs without heads.
template <typename T>
Status check_output_array(const T *out, uint32_t capacity, uint32_t stride) {
    if (capacity == 0) return Status{};
    if (out == nullptr || stride < sizeof(T) || stride % alignof(T) != 0) {
        return fail(QUIRE_E_ARG, "out is NULL, or stride {} is not sizeof of its element", stride);
    }
    return Status{};
}

}  // namespace quire::abi
