// SPDX-License-Identifier: Apache-2.0

#include "shared/checks.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>

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
    std::snprintf(filled.backend, sizeof filled.backend, "%s", kBackendName);
    std::vsnprintf(filled.message, sizeof filled.message, format, arguments);
    std::memcpy(error, &filled, std::min<size_t>(error->struct_size, sizeof filled));
}

uint32_t size_of(const void *given) {
    uint32_t struct_size = 0;
    std::memcpy(&struct_size, given, sizeof struct_size);
    return struct_size;
}

// Checks that everything past the known fields is zero.
quire_status check_unknown(const void *given, uint32_t size, uint32_t known_bytes, const char *name,
                           quire_error *error) {
    if (size > kLargestStructBytes) {
        return fail(error, QUIRE_E_STRUCT, "%s has struct_size %u, larger than in any version",
                    name, size);
    }
    const auto *bytes = static_cast<const unsigned char *>(given);
    for (uint32_t i = known_bytes; i < size; ++i) {
        if (bytes[i] == 0) continue;
        return fail(error, QUIRE_E_STRUCT,
                    "%s uses a field at byte %u that this backend does not know; "
                    "leave it zero or load a newer backend",
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

quire_status check_output(const void *given, uint32_t known_bytes, const char *name,
                          quire_error *error) {
    if (given == nullptr) return fail(error, QUIRE_E_ARG, "%s is NULL", name);
    if (uint32_t size = size_of(given); size < known_bytes) {
        return fail(error, QUIRE_E_STRUCT, "%s has struct_size %u; set it to sizeof, which is %u",
                    name, size, known_bytes);
    }
    return QUIRE_OK;
}

quire_status check_struct(const void *given, uint32_t known_bytes, const char *name,
                          quire_error *error) {
    if (quire_status status = check_output(given, known_bytes, name, error)) return status;
    return check_unknown(given, size_of(given), known_bytes, name, error);
}

quire_status read_chained(const quire_chain *given, uint32_t first_bytes, uint32_t known_bytes,
                          const char *name, void *out, quire_error *error) {
    uint32_t size = given->struct_size;
    if (size < first_bytes) {
        return fail(error, QUIRE_E_STRUCT, "%s has struct_size %u; set it to sizeof, which is %u",
                    name, size, known_bytes);
    }
    if (quire_status status = check_unknown(given, size, known_bytes, name, error)) return status;
    std::memset(out, 0, known_bytes);
    std::memcpy(out, given, std::min(size, known_bytes));
    return QUIRE_OK;
}

quire_status check_device_flags(const quire_be_device_desc &desc, quire_error *error) {
    constexpr uint32_t kKnown =
        QUIRE_BE_DEVICE_PIN_THREADS | QUIRE_BE_DEVICE_FAST_16BIT | QUIRE_BE_DEVICE_INLINE;
    if ((desc.flags & ~kKnown) != 0) {
        return fail(error, QUIRE_E_ARG,
                    "flags 0x%x contain an unknown flag; valid flags are PIN_THREADS (1), "
                    "FAST_16BIT (2) and INLINE (4)",
                    desc.flags);
    }
    if ((desc.flags & QUIRE_BE_DEVICE_PIN_THREADS) != 0 && desc.run_tasks != nullptr) {
        return fail(error, QUIRE_E_ARG,
                    "PIN_THREADS cannot be used with run_tasks; pin those threads in the engine");
    }
    if ((desc.flags & QUIRE_BE_DEVICE_INLINE) != 0 && desc.run_tasks != nullptr) {
        return fail(error, QUIRE_E_ARG,
                    "INLINE cannot be used with run_tasks, which are called from the queue's "
                    "thread");
    }
    return QUIRE_OK;
}

quire_status refuse_chain(const quire_chain *next, quire_error *error) {
    if (next == nullptr) return QUIRE_OK;
    return fail(error, QUIRE_E_UNSUPPORTED,
                "this backend does not know the extension struct_type %u in the device "
                "description; open the backend that it belongs to",
                next->struct_type);
}

}  // namespace quire
