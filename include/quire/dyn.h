/* SPDX-License-Identifier: Apache-2.0
 *
 * dyn: opens libquire at run time; header only, C99, needs only dlopen.
 *
 *   const quire_api *q;
 *   char why[512];
 *   if (quire_dyn_load(NULL, &q, why, sizeof why) < 0) { puts(why); exit(1); }
 *   q->instance_create(&desc, &instance, &error);
 *
 * The library is never closed: its threads and tables may still be in use at any later point.
 */
#ifndef QUIRE_DYN_H
#define QUIRE_DYN_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <sys/auxv.h>
#endif

#include "api.h"

/* Opens `path`; NULL: the file that the environment variable QUIRE_LIBRARY names (ignored in a
 * privileged process), else libquire.so.0 where the dynamic linker searches. On failure writes to
 * why[why_size] what was tried and why it failed. */
static inline quire_status quire_dyn_load(const char *path, const quire_api **out, char *why,
                                          size_t why_size) {
    void *library;
    void *symbol;
    quire_get_api_fn get_api;
    quire_error error;
    quire_status status;
    int privileged = 0;

    *out = NULL;
#if defined(__linux__)
    privileged = getauxval(AT_SECURE) != 0;
#endif
    if (path == NULL && !privileged) path = getenv("QUIRE_LIBRARY");
    if (path == NULL || path[0] == '\0') path = "libquire.so.0";
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        const char *reason = dlerror();
        snprintf(why, why_size, "cannot open %s: %s; set QUIRE_LIBRARY to the file's path", path,
                 reason != NULL ? reason : "no reason given");
        return QUIRE_E_OS;
    }
    symbol = dlsym(library, "quire_get_api");
    if (symbol == NULL) {
        snprintf(why, why_size, "%s has no quire_get_api: it is not libquire", path);
        return QUIRE_E_INCOMPATIBLE;
    }
    memcpy(&get_api, &symbol, sizeof get_api);
    memset(&error, 0, sizeof error);
    error.struct_size = (uint32_t)sizeof error;
    status = get_api(QUIRE_VERSION_MAJOR, QUIRE_VERSION_MINOR, out, &error);
    if (status < 0) {
        snprintf(why, why_size, "%s: %s", path, error.message);
        return status;
    }
    if ((*out)->struct_size < sizeof(quire_api)) {
        snprintf(why, why_size, "%s is older than the headers: its table has %u bytes, not %u",
                 path, (unsigned)(*out)->struct_size, (unsigned)sizeof(quire_api));
        *out = NULL;
        return QUIRE_E_INCOMPATIBLE;
    }
    return status;
}

#endif /* QUIRE_DYN_H */
