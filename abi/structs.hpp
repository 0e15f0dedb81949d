// SPDX-License-Identifier: Apache-2.0
//
// structs: the rules of base.h for every struct that crosses the boundary, from one table.
//
// read() gives the library its own full copy: shorter structs are filled up with zeros, longer ones
// are accepted when what is beyond is zero, unknown flags, `next` and reserved fields are refused.
// After it no code needs to ask how large the caller's struct was.
//
// Threads: any.
#pragma once

#include <cstddef>
#include <cstring>

#include "core/status.hpp"
#include "quire/quire.h"

namespace quire::abi {

// Where a reserved field lies; size 0 = none.
struct ReservedField {
    uint32_t offset;
    uint32_t size_bytes;
};

struct StructRule {
    const char *name;
    uint32_t first_size;  // of its first published version: frozen
    uint32_t size;
    uint32_t known_flags;
    ReservedField reserved;
};

template <typename T>
struct RuleOf;

#define QUIRE_RULE(type, first_bytes, flags_mask, ...)                    \
    template <>                                                           \
    struct RuleOf<type> {                                                 \
        static constexpr StructRule value{                                \
            #type, first_bytes, sizeof(type), flags_mask, {__VA_ARGS__}}; \
        static_assert(first_bytes <= sizeof(type));                       \
    };

#define QUIRE_RESERVED(type, field) offsetof(type, field), sizeof(type::field)

// Inputs.
QUIRE_RULE(quire_instance_desc, 64, 0, 0, 0)
QUIRE_RULE(quire_device_desc, 32, 0, 0, 0)
QUIRE_RULE(quire_memory_desc, 32, 0, QUIRE_RESERVED(quire_memory_desc, reserved0))
QUIRE_RULE(quire_group_desc, 56, 0, QUIRE_RESERVED(quire_group_desc, reserved0))
QUIRE_RULE(quire_shard_desc, 40, 0, 0, 0)
QUIRE_RULE(quire_cache_desc, 136, QUIRE_CACHE_NO_PREFIX | QUIRE_CACHE_FIXED_HASH,
           QUIRE_RESERVED(quire_cache_desc, reserved0))
QUIRE_RULE(quire_namespace_desc, 32, 0, 0, 0)
QUIRE_RULE(quire_seq_desc, 48, 0, QUIRE_RESERVED(quire_seq_desc, reserved0))
QUIRE_RULE(quire_step_desc, 40, QUIRE_STEP_MAY_PREEMPT, 0, 0)
QUIRE_RULE(quire_batch_desc, 56, QUIRE_BATCH_PAD_NULL_SLOT,
           QUIRE_RESERVED(quire_batch_desc, reserved0))
QUIRE_RULE(quire_attention_desc, 32, QUIRE_ATTENTION_NOT_CAUSAL,
           QUIRE_RESERVED(quire_attention_desc, reserved0))
QUIRE_RULE(quire_kv_args, 56, 0, 0, 0)
QUIRE_RULE(quire_attend_args, 64, 0, QUIRE_RESERVED(quire_attend_args, reserved0))
QUIRE_RULE(quire_size_desc, 112, 0, 0, 0)
// Outputs.
QUIRE_RULE(quire_backend_info, 1088, 0, 0, 0)
QUIRE_RULE(quire_device_info, 136, 0, 0, 0)
QUIRE_RULE(quire_memory_info, 40, 0, 0, 0)
QUIRE_RULE(quire_cache_info, 64, 0, 0, 0)
QUIRE_RULE(quire_pool_info, 104, 0, 0, 0)
QUIRE_RULE(quire_cache_stats, 200, 0, 0, 0)
QUIRE_RULE(quire_namespace_info, 56, 0, 0, 0)
QUIRE_RULE(quire_seq_info, 48, 0, 0, 0)
QUIRE_RULE(quire_batch_views, 104, 0, 0, 0)
QUIRE_RULE(quire_size_info, 80, 0, 0, 0)

#undef QUIRE_RULE

Status read_struct(const StructRule &rule, const void *in, void *out);
Status check_output(const StructRule &rule, const void *out);

// Checks an array of headless elements: pointer, stride, alignment, and that bytes of an element
// beyond the `size` known ones are zero.
Status check_array(const void *array, uint32_t count, uint32_t stride, uint32_t size,
                   uint32_t alignment);

template <typename T>
Status read(const T *in, T *out) {
    return read_struct(RuleOf<T>::value, in, out);
}

template <typename T>
Status check_output(const T *out) {
    return check_output(RuleOf<T>::value, out);
}

// Writes `full` into the caller's struct, up to the caller's size; of its head only the flags.
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
    if (array == nullptr) return fail(QUIRE_E_ARG, "an array of the description is NULL");
    if (stride < RuleOf<T>::value.first_size || stride % 8 != 0) {
        return fail(QUIRE_E_ARG, "an array's stride is {}: set it to sizeof of its element",
                    stride);
    }
    const char *at = reinterpret_cast<const char *>(array) + uint64_t{index} * stride;
    const T *element = reinterpret_cast<const T *>(at);
    if (element->struct_size > stride) {
        return fail(QUIRE_E_STRUCT, "an element's struct_size {} is above its stride {}",
                    element->struct_size, stride);
    }
    return read(element, out);
}

}  // namespace quire::abi
