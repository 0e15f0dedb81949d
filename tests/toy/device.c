/* SPDX-License-Identifier: Apache-2.0
 *
 * device: opening and closing the host as a device, and its memory.
 *
 * Why mmap: it gives zeroed pages that cost nothing until they are touched, so pools may be larger
 * than the machine as long as they are used sparsely.
 *
 * Threads: any.
 */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS, _SC_AVPHYS_PAGES */

#include "device.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

quire_status probe(uint32_t *device_count, quire_error *error) {
    if (device_count == NULL) return fail(error, QUIRE_E_ARG, "device_count is NULL");
    *device_count = 1;
    return QUIRE_OK;
}

void device_keep(quire_be_device *device) {
    pthread_mutex_lock(&device->lock);
    ++device->owner_count;
    pthread_mutex_unlock(&device->lock);
}

void device_drop(quire_be_device *device) {
    int last;
    pthread_mutex_lock(&device->lock);
    last = --device->owner_count == 0;
    pthread_mutex_unlock(&device->lock);
    if (!last) return;
    pthread_cond_destroy(&device->changed);
    pthread_mutex_destroy(&device->lock);
    free(device);
}

/* The thread options are hints: this device has one thread of its own. */
quire_status device_open(const quire_be_device_desc *desc, quire_be_device **out,
                         quire_error *error) {
    quire_status status;
    quire_be_device *device;
    pthread_condattr_t clock;
    sigset_t all, before;
    int failure;
    const uint32_t known_flags =
        QUIRE_BE_DEVICE_PIN_THREADS | QUIRE_BE_DEVICE_FAST_16BIT | QUIRE_BE_DEVICE_INLINE;
    if (out == NULL) return fail(error, QUIRE_E_ARG, "out is NULL");
    status = check_struct(desc, sizeof *desc, "desc", error);
    if (status != QUIRE_OK) return status;
    if (desc->index != 0) {
        return fail(error, QUIRE_E_ARG, "there is no device %u; the only one is 0",
                    (unsigned)desc->index);
    }
    if ((desc->flags & ~known_flags) != 0 ||
        ((desc->flags & (QUIRE_BE_DEVICE_PIN_THREADS | QUIRE_BE_DEVICE_INLINE)) != 0 &&
         desc->run_tasks != NULL)) {
        return fail(error, QUIRE_E_ARG,
                    "flags 0x%x contain an unknown flag, or PIN_THREADS or INLINE together with "
                    "run_tasks",
                    (unsigned)desc->flags);
    }
    if (desc->next != NULL) {
        return fail(error, QUIRE_E_UNSUPPORTED, "unknown extension struct_type %u",
                    (unsigned)desc->next->struct_type);
    }
    device = object_new(sizeof *device, error);
    if (device == NULL) return QUIRE_E_HOST_MEMORY;
    device->owner_count = 1;
    pthread_mutex_init(&device->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&device->changed, &clock);
    pthread_condattr_destroy(&clock);
    sigfillset(&all); /* inherited by the worker, so that no signal of the process reaches it */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failure = pthread_create(&device->worker, NULL, queue_worker, device);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failure != 0) {
        object_count(-1);
        device_drop(device);
        return fail(error, QUIRE_E_OS, "cannot start the device's thread: %s", strerror(failure));
    }
    *out = device;
    return QUIRE_OK;
}

void device_close(quire_be_device *device) {
    if (device == NULL) return;
    pthread_mutex_lock(&device->lock);
    device->closing = 1;
    pthread_cond_broadcast(&device->changed);
    pthread_mutex_unlock(&device->lock);
    pthread_join(device->worker, NULL);
    object_count(-1);
    device_drop(device);
}

quire_status device_props(quire_be_device *device, quire_be_device_props *props,
                          quire_error *error) {
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    quire_be_device_props filled;
    if (device == NULL || props == NULL) {
        return fail(error, QUIRE_E_ARG, "device or props is NULL");
    }
    if (props->struct_size < sizeof filled) {
        return fail(error, QUIRE_E_STRUCT,
                    "props has struct_size %u; set it to sizeof, which is %zu",
                    (unsigned)props->struct_size, sizeof filled);
    }
    memset(&filled, 0, sizeof filled);
    filled.struct_size = props->struct_size;
    filled.host_visible = 1;
    filled.memory_total_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * page_bytes;
    filled.memory_free_bytes = (uint64_t)sysconf(_SC_AVPHYS_PAGES) * page_bytes;
    filled.copy_alignment = 1;
    strcpy(filled.name, "the host, one token at a time");
    memcpy(props, &filled, sizeof filled);
    return QUIRE_OK;
}

quire_status mem_alloc(quire_be_device *device, uint64_t size_bytes, uint32_t kind,
                       uint64_t *address, void **host_pointer, quire_error *error) {
    void *memory;
    if (device == NULL || address == NULL || host_pointer == NULL) {
        return fail(error, QUIRE_E_ARG, "device, address or host_pointer is NULL");
    }
    if (size_bytes == 0) {
        return fail(error, QUIRE_E_ARG, "size_bytes is 0; request at least 1 byte");
    }
    if (kind != QUIRE_BE_MEMORY_DEVICE && kind != QUIRE_BE_MEMORY_HOST) {
        return fail(error, QUIRE_E_ARG, "memory kind %u is neither DEVICE (0) nor HOST (1)",
                    (unsigned)kind);
    }
    memory = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        return fail(error, QUIRE_E_DEVICE_MEMORY,
                    "cannot allocate %llu bytes; make the pool smaller",
                    (unsigned long long)size_bytes);
    }
    object_count(1);
    *address = (uintptr_t)memory;
    *host_pointer = memory;
    return QUIRE_OK;
}

void mem_free(quire_be_device *device, uint64_t address, uint64_t size_bytes, uint32_t kind) {
    (void)kind;
    if (device == NULL || address == 0) return;
    munmap((void *)(uintptr_t)address, size_bytes);
    object_count(-1);
}
