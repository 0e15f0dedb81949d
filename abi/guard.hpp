// SPDX-License-Identifier: Apache-2.0
//
// guard: wraps every exported function: nothing unwinds past it, and a failure becomes a
// quire_error with a message.
//
// Threads: any.
#pragma once

#include <new>

#include "abi/structs.hpp"
#include "core/base/host_memory.hpp"

namespace quire::abi {

// Holds the backend's own message. Only what is needed is initialised, because it lives on the
// stack of hot calls.
struct ErrorSink {
    quire_error error;

    ErrorSink() {
        error.struct_size = sizeof error;
        error.status = QUIRE_OK;
        error.domain = QUIRE_DOMAIN_QUIRE;
        error.reserved0 = 0;
        error.native_code = 0;
        error.backend[0] = error.message[0] = '\0';
    }
};

// The unwinder linked into this library fills its table of register sizes when it first walks a
// stack. An exception thrown by a plugin or a callback brings an unwinder of its own, and our
// handlers would then run with an empty table, which ends the process. So call this once before
// either runs.
void wake_unwinder();

// Writes the caller's error: function name, the status's text, the backend's words.
void report(const char *function, const Status &status, const ErrorSink &sink, quire_error *out);

// From now on a broken invariant is thrown to the guard of the call that met it.
void throw_broken_invariants();
// Writes what broke into `error` and returns QUIRE_E_INTERNAL.
Status broken(const BrokenInvariant &what, quire_error *error);

template <typename Body>
quire_status guard(const char *function, quire_error *out, Body &&body) noexcept {
    ErrorSink sink;
    Status status;
    try {
        status = body(&sink.error);
    } catch (const BrokenInvariant &what) {
        status = broken(what, &sink.error);
    } catch (const std::bad_alloc &) {
        status = no_host_memory();
    } catch (...) {
        status =
            fail(QUIRE_E_INTERNAL, "an exception reached the ABI boundary: a bug in the library");
    }
    if (status.code < 0) [[unlikely]]
        report(function, status, sink, out);
    return status.code;
}

}  // namespace quire::abi
