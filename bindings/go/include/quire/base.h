/* SPDX-License-Identifier: Apache-2.0
 *
 * base: status codes, errors, and the rules that every other header follows.
 *
 * Structs   Begin with {struct_size, flags, next}. Set struct_size to sizeof; zero is the default
 *           of every other field. Smaller than the first published size: QUIRE_E_STRUCT. Larger
 *           than the library knows: accepted when the extra bytes are zero. In an input an unknown
 *           flag bit, or a `next` that is not NULL where no extension is named: QUIRE_E_STRUCT.
 *           Elements of arrays have no such head; their explicit stride plays its part under the
 *           same rule.
 * Chains    A struct that says which extensions it takes has them in `next`, each once, in any
 *           order: {struct_type, struct_size, next} and fields under the rules above. One of
 *           another type: QUIRE_E_STRUCT; one that the backend does not know: QUIRE_E_UNSUPPORTED.
 * Outputs   Written up to the caller's struct_size, never past it.
 * Failure   A call that returns a negative status changed nothing.
 * Errors    Each call takes an optional quire_error of the caller's, filled only on failure.
 * Threads   Every function may be called from any thread unless its comment says otherwise. Calls
 *           on one cache are serialised inside. Only functions whose names end in _wait or _sync
 *           wait for a device. Destroying an object that another thread is using is the caller's
 *           mistake.
 * Memory    Nothing that the library allocated is freed by the caller, nor the other way round;
 *           every pointer given is read before the call returns and not kept, unless said.
 * Version   0.x: a minor version may change anything but what docs/compatibility.md keeps. 1.0
 *           freezes.
 */
#ifndef QUIRE_BASE_H
#define QUIRE_BASE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define QUIRE_EXPORT __attribute__((visibility("default")))
#else
#define QUIRE_EXPORT
#endif

#define QUIRE_VERSION_MAJOR 0u
#define QUIRE_VERSION_MINOR 1u

/* 0 success, above 0 success with information, below 0 failure. Tolerate values unknown to you. */
typedef int32_t quire_status;

enum {
    QUIRE_OK = 0,
    QUIRE_S_INCOMPLETE = 1, /* the output array is too short; the needed count was written */
    QUIRE_S_NO_BLOCKS = 2,  /* the pool or the host tier is short; nothing changed */
    QUIRE_S_TIMEOUT = 3,    /* a _wait ran out of time */

    QUIRE_E_ARG = -1,         /* an argument is wrong; the message says which and why */
    QUIRE_E_STALE = -2,       /* a handle is ended, foreign or forged, a batch of before a move */
    QUIRE_E_BUSY = -3,        /* the object is in use; the message says by what */
    QUIRE_E_UNSUPPORTED = -4, /* not offered by this library, backend or cache */
    QUIRE_E_STRUCT = -5, /* struct_size, flags, next or a reserved field break the struct rules */
    QUIRE_E_HOST_MEMORY = -6,   /* the host allocator returned NULL */
    QUIRE_E_DEVICE_MEMORY = -7, /* the device is out of memory */
    QUIRE_E_DEVICE_LOST = -8,   /* the device failed; its caches keep their bookkeeping */
    QUIRE_E_BACKEND = -9,       /* a backend is missing, damaged or broke its contract */
    QUIRE_E_INCOMPATIBLE = -10, /* the two sides' versions do not fit */
    QUIRE_E_REENTRANT = -11,    /* a callback called back into the object that called it */
    QUIRE_E_FORKED = -12,       /* the object is a forked child's parent's; or a device is needed,
                                   and the process forked after one was opened */
    QUIRE_E_LIMIT = -13,        /* a stated limit would be passed */
    QUIRE_E_OS = -14,           /* an operating system call failed; native_code holds errno */
    QUIRE_E_INTERNAL = -15 /* a defect of the library. A cache whose invariant broke stops: every
                                   call on it says so, but those that show it or give it up: stats,
                                   info, dump, finish, destroy of batches and itself. Other caches
                                   go on */
};

/* Where quire_error.native_code comes from. */
enum { QUIRE_DOMAIN_QUIRE = 0, QUIRE_DOMAIN_OS = 1, QUIRE_DOMAIN_BACKEND = 2 };

/* What went wrong. The caller's memory: it outlives any plugin and needs no freeing. */
typedef struct quire_error {
    uint32_t struct_size; /* sizeof(quire_error), set by the caller; with 0 nothing is written */
    quire_status status;
    uint32_t domain;
    uint32_t reserved0;
    int64_t native_code;
    char backend[32];  /* UTF-8, NUL-terminated; empty when no backend was involved */
    char message[480]; /* UTF-8, NUL-terminated: what was wrong, where, and what to do */
} quire_error;

/* Head of an extension struct. */
typedef struct quire_chain {
    uint32_t struct_type;
    uint32_t struct_size;
    const struct quire_chain *next;
} quire_chain;

enum { QUIRE_STRUCT_VULKAN_DEVICE = 0x300 /* vulkan.h, on quire_device_desc */ };

/* A stream or event of another API as a tagged integer. A backend refuses a kind that it does not
 * know with QUIRE_E_UNSUPPORTED. reserved0, and what a kind does not name, is 0, else
 * QUIRE_E_STRUCT. Where one may be NULL, QUIRE_NATIVE_NONE says the same. */
typedef struct quire_native {
    uint32_t kind;
    uint32_t reserved0;
    uint64_t value;
    uint64_t aux0;
    uint64_t aux1;
} quire_native;

enum {
    QUIRE_NATIVE_NONE = 0,
    QUIRE_NATIVE_CUDA_STREAM = 0x100,     /* value: CUstream, or 0, 1 or 2 as CUDA means them */
    QUIRE_NATIVE_CUDA_EVENT = 0x101,      /* value: CUevent */
    QUIRE_NATIVE_HIP_STREAM = 0x200,      /* value: hipStream_t, or 0, 1 or 2 as HIP means them */
    QUIRE_NATIVE_HIP_EVENT = 0x201,       /* value: hipEvent_t */
    QUIRE_NATIVE_VULKAN_QUEUE = 0x300,    /* value: VkQueue; vulkan.h */
    QUIRE_NATIVE_VULKAN_SEMAPHORE = 0x301 /* value: VkSemaphore, a timeline; aux0: its value */
};

/* Element types. The value is DLPack's: code << 16 | bits << 8 | lanes.
 * The integers and the 8-bit floats are types of K and V in a pool only, never of q, of out or of
 * what kv_write is given; what they hold are codes, and a value is its code times a scale
 * (cache.h, QUIRE_SCALE_*). The 8-bit floats are OCP OFP8; the FNUZ ones are other types. */
enum {
    QUIRE_DTYPE_I4 = (0 << 16) | (4 << 8) | 1, /* -7 to 7 in two's complement; element 2 i lies in
                                                  the low half of byte i, 2 i + 1 in the high one */
    QUIRE_DTYPE_I8 = (0 << 16) | (8 << 8) | 1, /* -127 to 127 */
    QUIRE_DTYPE_F16 = (2 << 16) | (16 << 8) | 1,
    QUIRE_DTYPE_F32 = (2 << 16) | (32 << 8) | 1,
    QUIRE_DTYPE_BF16 = (4 << 16) | (16 << 8) | 1,
    QUIRE_DTYPE_F8_E4M3FN = (10 << 16) | (8 << 8) | 1, /* up to 448; no infinity, one NaN a sign */
    QUIRE_DTYPE_F8_E5M2 = (12 << 16) | (8 << 8) | 1    /* up to 57344 */
};

/* Handles: type 8 | number 56. 0 is never a live handle. A handle belongs to its cache and may be
 * used from any thread. None is given twice in a process, whatever it is of: one that was ended, is
 * another cache's, or was made up is QUIRE_E_STALE. Only a follower (log.h) knows handles of
 * another
 * process: exactly its leader's. A call that is refused uses up no number.
 *   quire_step, quire_namespace  the number counts: 2^56 of each, 2,283 years of a million a
 *   second.
 *   quire_seq  the low bits are a slot, of 65,536 or more (at least twice max_sequences), reused in
 *              the order in which they became free; the high bits say which round of which cache.
 *              At least 2^53 sequences in a process, 285 years of a million a second, and 2^39
 *              caches. */
typedef uint64_t quire_seq;
typedef uint64_t quire_step;
typedef uint64_t quire_namespace;

/* A token id; any value but QUIRE_TOKEN_UNKNOWN, which stands for one that is still being
 * sampled. */
typedef uint32_t quire_token;
#define QUIRE_TOKEN_UNKNOWN 0xFFFFFFFFu

/* A list of tasks that may run at the same time: task(context, i) for each i of [0, task_count). */
typedef void (*quire_task)(void *context, uint32_t index);
typedef void (*quire_run_tasks)(void *user, uint32_t task_count, quire_task task, void *context);

/* Objects. Each may be shared between threads, and destroyed from any. */
typedef struct quire_instance quire_instance;
typedef struct quire_device quire_device;
typedef struct quire_queue quire_queue;
typedef struct quire_fence quire_fence;
typedef struct quire_memory quire_memory;
typedef struct quire_cache quire_cache;
typedef struct quire_batch quire_batch;

#ifdef __cplusplus
}
#endif
#endif /* QUIRE_BASE_H */
