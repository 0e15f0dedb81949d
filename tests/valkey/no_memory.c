/* SPDX-License-Identifier: Apache-2.0
 *
 * no_memory: to be loaded first: memory runs out for one library now and then.
 */
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *address, size_t size);

static _Atomic uintptr_t begin, end;
static _Atomic uint32_t one_of, seed, failed;

/* From now on: of the calls out of this range of addresses one in so many fails; 0: none. */
__attribute__((visibility("default"))) void no_memory_within(uintptr_t from, uintptr_t to,
                                                             uint32_t times) {
    begin = from;
    end = to;
    one_of = times;
}

__attribute__((visibility("default"))) uint32_t no_memory_count(void) { return failed; }

static int fails(const void *caller) {
    const uintptr_t at = (uintptr_t)caller;
    if (one_of == 0 || at < begin || at >= end) return 0;
    const uint32_t number = atomic_fetch_add(&seed, 1) * 2654435761u;
    if ((number >> 8) % one_of != 0) return 0;
    ++failed;
    return 1;
}

__attribute__((visibility("default"))) void *malloc(size_t size) {
    return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(size);
}

__attribute__((visibility("default"))) void *calloc(size_t count, size_t size) {
    return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(count, size);
}

__attribute__((visibility("default"))) void *realloc(void *address, size_t size) {
    return fails(__builtin_return_address(0)) ? NULL : __libc_realloc(address, size);
}
