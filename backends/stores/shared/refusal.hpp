// SPDX-License-Identifier: Apache-2.0
//
// refusal: how a store refuses a call in words, and checks the rules of structs and arrays.
//
// As backends/shared/checks.hpp, in the words of stores: there is no device here.
//
// Threads: any; nothing is kept.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "quire/plugin/store.h"

namespace quire {

// Defined by each store: the name that signs its errors, at most 31 bytes.
extern const char kStoreName[];

// Fills `error` and returns `status`, so that a function can end with it.
[[gnu::format(printf, 3, 4)]] quire_status fail(quire_error *error, quire_status status,
                                                const char *format, ...);
// As fail(), with errno as the native code.
[[gnu::format(printf, 4, 5)]] quire_status fail_os(quire_error *error, quire_status status,
                                                   int error_number, const char *format, ...);

// The struct rule of base.h, for an input: a size of at least the known bytes, zeros past them.
quire_status check_struct(const void *given, uint32_t known_bytes, const char *name,
                          quire_error *error);
// For a struct that the function writes: at least as large as its first published version.
quire_status check_output(const void *given, uint32_t first_bytes, const char *name,
                          quire_error *error);
// For an array whose elements are `stride` bytes apart: elements of an input that may grow in later
// versions also have zeros past the known bytes.
quire_status check_input_array(const void *elements, uint32_t count, uint32_t stride,
                               uint32_t known_bytes, const char *name, quire_error *error);
quire_status check_array(const void *elements, uint32_t count, uint32_t stride,
                         uint32_t known_bytes, const char *name, quire_error *error);

// Element `index` of an array with a stride, copied out and in: it may lie at any address.
template <typename Element>
Element element_of(const void *elements, uint32_t index, uint32_t stride) {
    Element element;
    std::memcpy(&element, static_cast<const char *>(elements) + size_t{index} * stride,
                sizeof element);
    return element;
}

template <typename Element>
void set_element(void *elements, uint32_t index, uint32_t stride, const Element &element) {
    std::memcpy(static_cast<char *>(elements) + size_t{index} * stride, &element, sizeof element);
}

// Writes a struct up to the caller's struct_size, which is kept.
template <typename Struct>
void give(Struct *out, Struct filled) {
    filled.struct_size = out->struct_size;
    std::memcpy(out, &filled, std::min<size_t>(filled.struct_size, sizeof filled));
}

}  // namespace quire
