/* SPDX-License-Identifier: Apache-2.0
 *
 * host: what the core offers every plugin, of backend.h and of store.h.
 */
#ifndef QUIRE_PLUGIN_HOST_H
#define QUIRE_PLUGIN_HOST_H

#include "../base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Services for a plugin. `self` is the first argument of each function. abi_major and abi_minor are
 * those of the header whose query is called. */
typedef struct quire_host_info {
    uint32_t struct_size;
    uint32_t abi_major;
    uint32_t abi_minor;
    uint32_t reserved0;
    void *self;
    void *(*allocate)(void *self, uint64_t size_bytes, uint64_t alignment);
    void (*release)(void *self, void *pointer, uint64_t size_bytes, uint64_t alignment);
    void (*log)(void *self, int32_t level, const char *component, const char *message);
} quire_host_info;

#ifdef __cplusplus
}
#endif
#endif /* QUIRE_PLUGIN_HOST_H */
