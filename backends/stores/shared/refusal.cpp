// SPDX-License-Identifier: Apache-2.0

#include "shared/refusal.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

namespace quire {

namespace {

// No later version of a struct is larger than this: such a size is garbage.
constexpr uint32_t kLargestStructBytes = 4096;

void fill(quire_error *error, quire_status status, uint32_t domain, int64_t native_code,
          const char *format, va_list arguments) {
    if (error == nullptr || error->struct_size == 0) return;
    quire_error filled{};
    filled.struct_size = error->struct_size;
    filled.status = status;
    filled.domain = domain;
    filled.native_code = native_code;
    std::snprintf(filled.backend, sizeof filled.backend, "%s", kStoreName);
    std::vsnprintf(filled.message, sizeof filled.message, format, arguments);
    std::memcpy(error, &filled, std::min<size_t>(error->struct_size, sizeof filled));
}

quire_status check_unknown(const void *given, uint32_t size, uint32_t known_bytes, const char *name,
                           quire_error *error) {
    if (size > kLargestStructBytes) {
        return fail(error, QUIRE_E_STRUCT, "%s has %u bytes, more than in any version", name, size);
    }
    const auto *bytes = static_cast<const unsigned char *>(given);
    for (uint32_t i = known_bytes; i < size; ++i) {
        if (bytes[i] == 0) continue;
        return fail(error, QUIRE_E_STRUCT,
                    "%s uses a field at byte %u that this store does not know; leave it zero or "
                    "load a newer store",
                    name, i);
    }
    return QUIRE_OK;
}

}  // namespace

quire_status fail(quire_error *error, quire_status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fill(error, status, QUIRE_DOMAIN_BACKEND, 0, format, arguments);
    va_end(arguments);
    return status;
}

quire_status fail_os(quire_error *error, quire_status status, int error_number, const char *format,
                     ...) {
    va_list arguments;
    va_start(arguments, format);
    fill(error, status, QUIRE_DOMAIN_OS, error_number, format, arguments);
    va_end(arguments);
    return status;
}

quire_status check_output(const void *given, uint32_t first_bytes, const char *name,
                          quire_error *error) {
    if (given == nullptr) return fail(error, QUIRE_E_ARG, "%s is NULL", name);
    uint32_t size = 0;
    std::memcpy(&size, given, sizeof size);
    if (size >= first_bytes) return QUIRE_OK;
    return fail(error, QUIRE_E_STRUCT, "%s has struct_size %u; set it to sizeof, which is %u", name,
                size, first_bytes);
}

quire_status check_struct(const void *given, uint32_t known_bytes, const char *name,
                          quire_error *error) {
    if (given == nullptr) return fail(error, QUIRE_E_ARG, "%s is NULL", name);
    uint32_t size = 0;
    std::memcpy(&size, given, sizeof size);
    if (size < known_bytes) {
        return fail(error, QUIRE_E_STRUCT, "%s has struct_size %u; set it to sizeof, which is %u",
                    name, size, known_bytes);
    }
    return check_unknown(given, size, known_bytes, name, error);
}

quire_status check_array(const void *elements, uint32_t count, uint32_t stride,
                         uint32_t known_bytes, const char *name, quire_error *error) {
    if (count == 0) return QUIRE_OK;
    if (elements == nullptr) return fail(error, QUIRE_E_ARG, "%s is NULL", name);
    if (stride >= known_bytes) return QUIRE_OK;
    return fail(error, QUIRE_E_STRUCT, "the stride of %s is %u; an element has %u bytes", name,
                stride, known_bytes);
}

quire_status check_input_array(const void *elements, uint32_t count, uint32_t stride,
                               uint32_t known_bytes, const char *name, quire_error *error) {
    if (quire_status status = check_array(elements, count, stride, known_bytes, name, error)) {
        return status;
    }
    for (uint32_t i = 0; i < count; ++i) {
        const char *at = static_cast<const char *>(elements) + size_t{i} * stride;
        if (quire_status status = check_unknown(at, stride, known_bytes, name, error)) {
            return status;
        }
    }
    return QUIRE_OK;
}

}  // namespace quire
