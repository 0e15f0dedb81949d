/* SPDX-License-Identifier: Apache-2.0
 *
 * plugin: the toy backend's table, and what its slots share: refusals, the struct rule, the count.
 *
 * The toy proves "Write a backend in a day" (backends/README.md): it was written in C99 by
 * following that page and nothing else, for clarity and not for speed. It is neither shipped nor
 * installed. backends/cpu is the one to run.
 *
 * Threads: any.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention.h"
#include "device.h"
#include "pool.h"

static int64_t live_objects; /* changed and read by __atomic_* only */

/* The error is the caller's memory, and may be smaller than the struct known here. */
quire_status fail(quire_error *error, quire_status status, const char *format, ...) {
    quire_error filled;
    va_list arguments;
    if (error == NULL || error->struct_size == 0) return status;
    memset(&filled, 0, sizeof filled);
    filled.struct_size = error->struct_size;
    filled.status = status;
    filled.domain = QUIRE_DOMAIN_BACKEND;
    strcpy(filled.backend, TOY_NAME);
    va_start(arguments, format);
    vsnprintf(filled.message, sizeof filled.message, format, arguments);
    va_end(arguments);
    memcpy(error, &filled, filled.struct_size < sizeof filled ? filled.struct_size : sizeof filled);
    return status;
}

/* An input begins with its size: less than known is refused, and extra bytes must be zero. */
quire_status check_struct(const void *given, size_t known_bytes, const char *what,
                          quire_error *error) {
    const unsigned char *bytes = given;
    uint32_t size_bytes, i;
    if (given == NULL) return fail(error, QUIRE_E_ARG, "%s is NULL", what);
    memcpy(&size_bytes, given, sizeof size_bytes);
    if (size_bytes < known_bytes) {
        return fail(error, QUIRE_E_STRUCT, "%s has struct_size %u; set it to sizeof, which is %zu",
                    what, (unsigned)size_bytes, known_bytes);
    }
    for (i = (uint32_t)known_bytes; i < size_bytes; ++i) {
        if (bytes[i] != 0) {
            return fail(
                error, QUIRE_E_STRUCT,
                "%s is longer than the %zu bytes that this backend knows, and byte %u is not zero",
                what, known_bytes, (unsigned)i);
        }
    }
    return QUIRE_OK;
}

void object_count(int64_t change) { __atomic_add_fetch(&live_objects, change, __ATOMIC_RELAXED); }

void *object_new(size_t size_bytes, quire_error *error) {
    void *object = calloc(1, size_bytes);
    if (object == NULL) {
        fail(error, QUIRE_E_HOST_MEMORY, "no memory for an object of %zu bytes", size_bytes);
    } else {
        object_count(1);
    }
    return object;
}

static quire_status shutdown_backend(uint64_t *live, quire_error *error) {
    if (live == NULL) return fail(error, QUIRE_E_ARG, "live_objects is NULL");
    *live = (uint64_t)__atomic_load_n(&live_objects, __ATOMIC_RELAXED);
    return QUIRE_OK;
}

static const quire_backend_api api = {
    .struct_size = sizeof(quire_backend_api),
    .abi_major = 0,
    .abi_minor = 1,
    .min_host_minor = 1,
    .name = TOY_NAME,
    .version = "0.1.0",
    .probe = probe,
    .device_open = device_open,
    .device_close = device_close,
    .device_props = device_props,
    .mem_alloc = mem_alloc,
    .mem_free = mem_free,
    .queue_bind = queue_bind,
    .queue_release = queue_release,
    .fence_create = fence_create,
    .fence_destroy = fence_destroy,
    .fence_read = fence_read,
    .fence_signal_host = fence_signal_host,
    .fence_wait_host = fence_wait_host,
    .fence_signal = fence_signal,
    .fence_wait = fence_wait,
    .copy = copy,
    .fill = fill,
    .query_attention = query_attention,
    .kv_write = kv_write,
    .plan_create = plan_create,
    .plan_destroy = plan_destroy,
    .attention = attention,
    .quiesce = quiesce,
    .shutdown = shutdown_backend,
};

quire_status quire_backend_query_v0(const quire_host_info *host, const quire_backend_api **out,
                                    quire_error *error) {
    if (host == NULL || out == NULL) return fail(error, QUIRE_E_ARG, "host or out is NULL");
    if (host->struct_size < sizeof *host) {
        return fail(error, QUIRE_E_STRUCT,
                    "host has struct_size %u; set it to sizeof, which is %zu",
                    (unsigned)host->struct_size, sizeof *host);
    }
    if (host->abi_major != api.abi_major || host->abi_minor < api.abi_minor) {
        return fail(error, QUIRE_E_INCOMPATIBLE,
                    "the host speaks backend ABI %u.%u, this backend %u.%u; "
                    "build the two from one tree",
                    (unsigned)host->abi_major, (unsigned)host->abi_minor, (unsigned)api.abi_major,
                    (unsigned)api.abi_minor);
    }
    *out = &api;
    return QUIRE_OK;
}
