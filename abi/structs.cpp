// SPDX-License-Identifier: Apache-2.0

#include "abi/structs.hpp"

namespace quire::abi {

namespace {

constexpr uint32_t kLargestStruct =
    4096;  // a struct_size beyond it is garbage, not a newer version

// Every struct begins alike.
struct Head {
    uint32_t struct_size;
    uint32_t flags;
    const quire_chain *next;
};

bool all_zero(const char *bytes, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
        if (bytes[i] != 0) return false;
    }
    return true;
}

}  // namespace

Status read_struct(const StructRule &rule, const void *in, void *out) {
    if (in == nullptr) return fail(QUIRE_E_ARG, "the description is NULL");
    uint32_t size = 0;
    std::memcpy(&size, in, sizeof size);
    if (size < rule.first_size || size > kLargestStruct) {
        return fail(QUIRE_E_STRUCT, "struct_size is {}: set it to sizeof, here {}", size,
                    rule.size);
    }
    const char *bytes = static_cast<const char *>(in);
    if (size > rule.size && !all_zero(bytes + rule.size, size - rule.size)) {
        return fail(QUIRE_E_STRUCT,
                    "a field beyond byte {} is set, which this version does not know", rule.size);
    }
    uint32_t known = size < rule.size ? size : rule.size;
    std::memcpy(out, in, known);
    std::memset(static_cast<char *>(out) + known, 0, rule.size - known);
    Head head;
    std::memcpy(&head, out, sizeof head);
    if ((head.flags & ~rule.known_flags) != 0) {
        return fail(QUIRE_E_STRUCT, "flags {} holds a bit that this version does not know",
                    head.flags);
    }
    if (head.next != nullptr)
        return fail(QUIRE_E_STRUCT, "next is not NULL: no extension is known");
    const char *reserved = static_cast<const char *>(out) + rule.reserved.offset;
    if (!all_zero(reserved, rule.reserved.size_bytes)) {
        return fail(QUIRE_E_STRUCT, "the reserved field at byte {} is not 0", rule.reserved.offset);
    }
    return Status{};
}

Status check_output(const StructRule &rule, const void *out) {
    if (out == nullptr) return fail(QUIRE_E_ARG, "the struct to write is NULL");
    uint32_t size = 0;
    std::memcpy(&size, out, sizeof size);
    if (size < rule.first_size || size > kLargestStruct) {
        return fail(QUIRE_E_STRUCT, "struct_size is {}: set it to sizeof, here {}", size,
                    rule.size);
    }
    return Status{};
}

Status check_array(const void *array, uint32_t count, uint32_t stride, uint32_t size,
                   uint32_t alignment) {
    if (count == 0) return Status{};
    if (array == nullptr) return fail(QUIRE_E_ARG, "an array is NULL, but its count is {}", count);
    if (stride < size || stride % alignment != 0) {
        return fail(QUIRE_E_ARG, "a stride is {}: set it to sizeof of the element, here {}", stride,
                    size);
    }
    if (reinterpret_cast<uintptr_t>(array) % alignment != 0) {
        return fail(QUIRE_E_ARG, "an array is not aligned to {} bytes", alignment);
    }
    if (stride == size) [[likely]]
        return Status{};
    const char *bytes = static_cast<const char *>(array);
    for (uint32_t i = 0; i < count; ++i) {
        if (!all_zero(bytes + uint64_t{i} * stride + size, stride - size)) {
            return fail(QUIRE_E_STRUCT, "element {} of an array sets a field that is not known", i);
        }
    }
    return Status{};
}

}  // namespace quire::abi
