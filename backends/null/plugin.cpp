// SPDX-License-Identifier: Apache-2.0
//
// null: a backend that loads, reports no devices, and can do nothing else.
//
// Copy this to begin a backend for your hardware; "Write a backend in a day" (backends/README.md)
// gives an order in which to fill the table. The contract is quire/plugin/backend.h, and `quire
// conform` shows how far you are.
//
// Threads: any.

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "quire/plugin/backend.h"

namespace quire::null {

namespace {

constexpr char kBackendName[] = "null";  // quire_backend_<name>.so, and the first word of messages
constexpr uint32_t kMajor = 0;
constexpr uint32_t kMinor = 1;

// Says what was wrong and what to do. The error is the caller's memory: it may be smaller than the
// struct known here, and it outlives this plugin.
[[gnu::format(printf, 3, 4)]] quire_status fail(quire_error *error, quire_status status,
                                                const char *format, ...) {
    if (error == nullptr || error->struct_size == 0) return status;
    quire_error filled{};
    filled.struct_size = error->struct_size;
    filled.status = status;
    filled.domain = QUIRE_DOMAIN_BACKEND;
    std::memcpy(filled.backend, kBackendName, sizeof kBackendName);
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(filled.message, sizeof filled.message, format, arguments);
    va_end(arguments);
    std::memcpy(error, &filled, std::min<size_t>(error->struct_size, sizeof filled));
    return status;
}

// Look for your driver here with dlopen; never link it, so that the plugin loads and explains
// itself on a machine without the hardware. If there is no driver, return 0 devices and QUIRE_OK;
// if a driver is present but cannot be used, return an error that says why. Do not open anything
// yet: a process may still fork.
quire_status probe(uint32_t *device_count, quire_error *error) {
    if (device_count == nullptr) return fail(error, QUIRE_E_ARG, "device_count is NULL");
    *device_count = 0;
    return QUIRE_OK;
}

// A NULL function means "unsupported". Never put a function here that returns success and does
// nothing: the core believes it. A function is filled in when its part of the conformance suite
// passes.
constexpr quire_backend_api kApi = {
    .struct_size = sizeof(quire_backend_api),
    .abi_major = kMajor,
    .abi_minor = kMinor,       // min(host's minor, the newest that you implement)
    .min_host_minor = kMinor,  // the oldest host that you can serve
    .name = kBackendName,
    .version = "0.1.0",
    .probe = probe,

    // A context, and the device's properties. Count every object you hand out, for shutdown.
    .device_open = nullptr,
    .device_close = nullptr,
    .device_props = nullptr,
    // Answer from one table of kernel instances, the same table that plan_create uses to refuse.
    .query_attention = nullptr,

    // Zeroed, aligned to 4,096 bytes; HOST memory is what your copies read fastest (pinned).
    .mem_alloc = nullptr,
    .mem_free = nullptr,

    // QUIRE_NATIVE_NONE makes a queue of your own; a kind that you know binds the engine's queue.
    .queue_bind = nullptr,
    .queue_release = nullptr,

    // A 64-bit value that only grows. All ones means failure: set it when work did not run.
    .fence_create = nullptr,
    .fence_destroy = nullptr,
    .fence_read = nullptr,
    .fence_signal_host = nullptr,
    .fence_wait_host = nullptr,
    .fence_signal = nullptr,
    .fence_wait = nullptr,

    // Enqueue and return. Copy the arguments; device memory that they name is read when the command
    // runs.
    .copy = nullptr,
    .fill = nullptr,
    .kv_write = nullptr,

    // A plan holds everything that selects a kernel. Refuse at plan_create an option that you have
    // no kernel for; never ignore it.
    .plan_create = nullptr,
    .plan_destroy = nullptr,
    .attention = nullptr,

    .quiesce = nullptr,
    .shutdown = nullptr,

    // Merges attention states over parts of a context into one, in the order of the parts. A part
    // with LSE -inf may hold NaN.
    .merge = nullptr,
    // Moves tokens from slot to slot, as if one after another. `moves` is host memory, read before
    // the call returns.
    .move_tokens = nullptr,

    // The engine's semaphores of another API: one is signalled after a queue's work, or waited for.
    .native_signal = nullptr,
    .native_wait = nullptr,
    // The engine's own host memory, which copies read and write in place.
    .mem_import = nullptr,

    // Which optional fields of structs it reads: QUIRE_BE_FEATURE_*.
    .features = 0,
};

}  // namespace

}  // namespace quire::null

// Pure; may be called any number of times: starts no thread, opens no driver, keeps nothing of the
// host's.
quire_status quire_backend_query_v0(const quire_host_info *host, const quire_backend_api **out,
                                    quire_error *error) {
    using namespace quire::null;
    if (host == nullptr || out == nullptr) return fail(error, QUIRE_E_ARG, "host or out is NULL");
    if (host->struct_size < sizeof *host) {
        return fail(error, QUIRE_E_STRUCT,
                    "host has struct_size %u; set it to sizeof, which is %zu", host->struct_size,
                    sizeof *host);
    }
    if (host->abi_major != kMajor || host->abi_minor < kMinor) {
        return fail(error, QUIRE_E_INCOMPATIBLE,
                    "the host speaks backend ABI %u.%u, this backend %u.%u; "
                    "install the backend that came with the library",
                    host->abi_major, host->abi_minor, kMajor, kMinor);
    }
    *out = &kApi;
    return QUIRE_OK;
}
