// SPDX-License-Identifier: Apache-2.0

#include "abi/structs.hpp"

#include <iterator>

namespace quire::abi {

namespace {

constexpr uint32_t kLargestStruct =
    4096;  // a struct_size beyond it is garbage, not a newer version

// Every struct begins with these fields.
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

constexpr const ChainRule *kChained[] = {&ChainOf<quire_vulkan_device>::value};

Status check_chained(const quire_chain &one) {
    for (const ChainRule *rule : kChained) {
        if (one.struct_type != rule->type) continue;
        if (one.struct_size < rule->first_size || one.struct_size > kLargestStruct) {
            return fail(QUIRE_E_STRUCT, rule->size_text, one.struct_size, rule->size);
        }
        const char *bytes = reinterpret_cast<const char *>(&one);
        if (one.struct_size <= rule->size ||
            all_zero(bytes + rule->size, one.struct_size - rule->size)) {
            return Status{};
        }
        return fail(QUIRE_E_STRUCT, rule->unknown_text, rule->size);
    }
    return fail(QUIRE_E_STRUCT, "the chain holds a struct_type {} that this version does not know",
                one.struct_type);
}

Status check_chain(const quire_chain *next) {
    bool is_there[std::size(kChained)] = {};
    for (const quire_chain *one = next; one != nullptr; one = one->next) {
        QUIRE_TRY(check_chained(*one));
        for (size_t i = 0; i < std::size(kChained); ++i) {
            if (kChained[i]->type != one->struct_type) continue;
            // This also ends a chain that loops back into itself.
            if (is_there[i]) return fail(QUIRE_E_STRUCT, kChained[i]->twice_text);
            is_there[i] = true;
        }
    }
    return Status{};
}

}  // namespace

bool copy_chained(const ChainRule &rule, const quire_chain *next, void *out) {
    const quire_chain *one = next;
    while (one != nullptr && one->struct_type != rule.type) one = one->next;
    if (one == nullptr) return false;
    uint32_t known = one->struct_size < rule.size ? one->struct_size : rule.size;
    std::memset(out, 0, rule.size);
    std::memcpy(out, one, known);
    // The copy stands alone, without the rest of the chain.
    static_cast<quire_chain *>(out)->struct_size = rule.size;
    static_cast<quire_chain *>(out)->next = nullptr;
    return true;
}

Status check_native(const quire_native *native) {
    if (native == nullptr || native->reserved0 == 0) return Status{};
    return fail(QUIRE_E_STRUCT, "reserved0 of a quire_native is {}: leave it 0", native->reserved0);
}

Status read_struct(const StructRule &rule, const void *in, void *out) {
    if (in == nullptr) return fail(QUIRE_E_ARG, rule.null_text);
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
    if (known < rule.size) std::memset(static_cast<char *>(out) + known, 0, rule.size - known);
    Head head;
    std::memcpy(&head, out, sizeof head);
    if ((head.flags & ~rule.known_flags) != 0) {
        return fail(QUIRE_E_STRUCT, "flags {} holds a bit that this version does not know",
                    head.flags);
    }
    if (head.next != nullptr && !rule.takes_chain) {
        return fail(QUIRE_E_STRUCT, "next is not NULL, but this struct takes no extension");
    }
    QUIRE_TRY(check_chain(head.next));
    const char *reserved = static_cast<const char *>(out) + rule.reserved.offset;
    if (!all_zero(reserved, rule.reserved.size_bytes)) {
        return fail(QUIRE_E_STRUCT, "the reserved field at byte {} is not 0", rule.reserved.offset);
    }
    return Status{};
}

Status check_output(const StructRule &rule, const void *out) {
    if (out == nullptr) return fail(QUIRE_E_ARG, rule.null_text);
    uint32_t size = 0;
    std::memcpy(&size, out, sizeof size);
    if (size < rule.first_size || size > kLargestStruct) {
        return fail(QUIRE_E_STRUCT, "struct_size is {}: set it to sizeof, here {}", size,
                    rule.size);
    }
    return Status{};
}

Status check_array(const ArrayRule &rule, const void *array, uint32_t count, uint32_t stride) {
    if (count == 0) return Status{};
    uint32_t size = rule.size;
    if (array == nullptr) return fail(QUIRE_E_ARG, rule.null_text, count);
    if (stride < rule.first_size || stride % rule.alignment != 0) {
        return fail(QUIRE_E_ARG, rule.stride_text, stride, size);
    }
    if (reinterpret_cast<uintptr_t>(array) % rule.alignment != 0) {
        return fail(QUIRE_E_ARG, rule.alignment_text, rule.alignment);
    }
    if (stride <= size) [[likely]]
        return Status{};
    const char *bytes = static_cast<const char *>(array);
    for (uint32_t i = 0; i < count; ++i) {
        if (!all_zero(bytes + uint64_t{i} * stride + size, stride - size)) {
            return fail(QUIRE_E_STRUCT, rule.unknown_text, i);
        }
    }
    return Status{};
}

}  // namespace quire::abi
