// SPDX-License-Identifier: Apache-2.0
//
// checks: how a function validates its arguments, and refuses them in words.
//
// Why here and not in each function: a reader who knows one message of a backend should recognise
// all.
//
// Threads: any; nothing is kept.
#pragma once

#include <cstdint>

#include "quire/plugin/backend.h"

namespace quire {

// Defined by each backend: the name that signs its errors, at most 31 bytes.
extern const char kBackendName[];

// Fills `error` and returns `status`, so that a function can end with it.
[[gnu::format(printf, 3, 4)]] quire_status fail(quire_error *error, quire_status status,
                                                const char *format, ...);

// As fail(), with errno as the native code.
[[gnu::format(printf, 4, 5)]] quire_status fail_os(quire_error *error, quire_status status,
                                                   int error_number, const char *format, ...);

// The struct rule of base.h: at least the size first published, and zeros past the known fields.
quire_status check_struct(const void *given, uint32_t known_bytes, const char *name,
                          quire_error *error);

// As check_struct(), for a struct that the function writes: bytes past the known ones are the
// caller's.
quire_status check_output(const void *given, uint32_t known_bytes, const char *name,
                          quire_error *error);

// The rule for chains of base.h: copies an extension that the backend knows into out[known_bytes],
// padded with zeros if it is shorter. first_bytes: the size of its first published version.
quire_status read_chained(const quire_chain *given, uint32_t first_bytes, uint32_t known_bytes,
                          const char *name, void *out, quire_error *error);

// Refuses unknown flags of a device, and pinned threads that are not the backend's own.
quire_status check_device_flags(const quire_be_device_desc &desc, quire_error *error);

// For a backend that takes no extension structs, or no further ones.
quire_status refuse_chain(const quire_chain *next, quire_error *error);

}  // namespace quire
