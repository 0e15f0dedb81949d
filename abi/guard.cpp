// SPDX-License-Identifier: Apache-2.0

#include "abi/guard.hpp"

#include <unwind.h>

#include <cstdio>
#include <cstring>

#include "core/base/dtype_name.hpp"

namespace quire::abi {

namespace {

constexpr uint32_t kFirstErrorSize = 536;

// Text that grows within a fixed field and is always terminated.
struct Writer {
    char *out;
    uint64_t capacity;
    uint64_t length = 0;

    void put(const char *text, uint64_t count) {
        for (uint64_t i = 0; i < count && length + 1 < capacity; ++i) out[length++] = text[i];
        out[length] = '\0';
    }
    void put(const char *text) { put(text, std::strlen(text)); }
};

void put_number(Writer *writer, uint64_t number, bool is_dtype) {
    const char *name = is_dtype ? dtype_name(static_cast<uint32_t>(number)) : nullptr;
    char digits[24];
    std::snprintf(digits, sizeof digits, is_dtype ? "0x%llx" : "%llu",
                  static_cast<unsigned long long>(number));
    writer->put(name != nullptr ? name : digits);
}

void put_text(Writer *writer, const Status &status) {
    constexpr const char *kNumber = "{}";
    constexpr const char *kDtype = "{dtype}";
    uint64_t numbers[2] = {status.first, status.second};
    uint32_t used = 0;
    for (const char *at = status.text; *at != '\0';) {
        bool is_number = std::strncmp(at, kNumber, std::strlen(kNumber)) == 0;
        bool is_dtype = std::strncmp(at, kDtype, std::strlen(kDtype)) == 0;
        if ((is_number || is_dtype) && used < 2) {
            put_number(writer, numbers[used++], is_dtype);
            at += std::strlen(is_dtype ? kDtype : kNumber);
        } else {
            writer->put(at++, 1);
        }
    }
}

}  // namespace

void wake_unwinder() {
    _Unwind_Backtrace([](_Unwind_Context *, void *) { return _URC_END_OF_STACK; }, nullptr);
}

void throw_broken_invariants() {
    set_assertion_hook([](const char *expression, const char *file, int line) {
        throw BrokenInvariant{expression, file, line};
    });
}

Status broken(const BrokenInvariant &what, quire_error *error) {
    std::snprintf(error->message, sizeof error->message,
                  "broken invariant (a bug in the library): %s (%s:%d)", what.expression, what.file,
                  what.line);
    return fail(QUIRE_E_INTERNAL, nullptr);
}

void report(const char *function, const Status &status, const ErrorSink &sink, quire_error *out) {
    if (out == nullptr || out->struct_size < kFirstErrorSize) return;
    out->status = status.code;
    out->reserved0 = 0;
    out->domain = sink.error.domain;
    out->native_code = sink.error.native_code;
    Writer backend{out->backend, sizeof out->backend};
    backend.put(sink.error.backend, strnlen(sink.error.backend, sizeof sink.error.backend));
    Writer message{out->message, sizeof out->message};
    message.put("quire_");
    message.put(function);
    message.put(": ");
    if (status.text != nullptr) put_text(&message, status);
    message.put(sink.error.message, strnlen(sink.error.message, sizeof sink.error.message));
}

}  // namespace quire::abi
