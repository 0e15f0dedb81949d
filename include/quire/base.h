/* SPDX-License-Identifier: Apache-2.0
 *
 * base: status codes, errors, and the rules that every other header follows.
 *
 * Structs   Begin with {struct_size, flags, next}. Set struct_size to sizeof; zero is the default
 *           of every other field. A size smaller than the first published one is QUIRE_E_STRUCT. A
 *           size larger than the library knows is accepted if the extra bytes are zero. An unknown
 *           flag bit in an input, or a `next` that is not NULL in a struct that takes no
 *           extension, is QUIRE_E_STRUCT. Array elements have no such head; their explicit stride
 *           takes the place of struct_size under the same rules.
 * Chains    A struct whose comment names extensions takes them in `next`, each at most once, in
 *           any order. An extension begins with {struct_type, struct_size, next} and follows the
 *           rules above. An extension of any other type is QUIRE_E_STRUCT; one that the backend
 *           does not know is QUIRE_E_UNSUPPORTED.
 * Outputs   Written up to the caller's struct_size, never past it.
 * Failure   A call that returns a negative status changed nothing, unless its comment says
 *           otherwise: a commit with QUIRE_E_DEVICE_LOST has failed its step.
 * Errors    Each call takes an optional quire_error, owned by the caller and filled only on
 *           failure.
 * Threads   Every function may be called from any thread unless its comment says otherwise. Calls
 *           on one cache are serialised inside. Only functions whose names end in _wait or _sync
 *           wait for a device. Destroying an object that another thread is using is an error of the
 *           caller.
 * Memory    The caller never frees what the library allocated, and the library never frees what
 *           the caller allocated. Unless a comment says otherwise, every pointer is read before
 *           the call returns and not kept.
 * Version   0.x: a minor version may change anything except what docs/compatibility.md guarantees.
 *           1.0 freezes the ABI.
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

/* 0 is success, above 0 success with information, below 0 failure. Accept values that you do not
 * know. */
typedef int32_t quire_status;

enum {
    QUIRE_OK = 0,
    QUIRE_S_INCOMPLETE = 1, /* the output array is too short; the needed count was written */
    QUIRE_S_NO_BLOCKS = 2,  /* the pool or the host tier is short; nothing changed */
    QUIRE_S_TIMEOUT = 3,    /* a _wait ran out of time */

    QUIRE_E_ARG = -1,         /* an argument is wrong; the message says which and why */
    QUIRE_E_STALE = -2,       /* the handle was ended, belongs to another cache or was never given
                                 out; or the batch was made before a migration */
    QUIRE_E_BUSY = -3,        /* the object is in use; the message says by what */
    QUIRE_E_UNSUPPORTED = -4, /* not offered by this library, backend or cache */
    QUIRE_E_STRUCT = -5, /* struct_size, flags, next or a reserved field break the struct rules */
    QUIRE_E_HOST_MEMORY = -6,   /* the host allocator returned NULL */
    QUIRE_E_DEVICE_MEMORY = -7, /* the device is out of memory */
    QUIRE_E_DEVICE_LOST = -8,   /* the device failed; its caches keep their bookkeeping */
    QUIRE_E_BACKEND = -9,       /* a backend is missing, damaged or broke its contract */
    QUIRE_E_INCOMPATIBLE = -10, /* the versions of the two sides do not match */
    QUIRE_E_REENTRANT = -11,    /* a callback called back into the object that called it */
    QUIRE_E_FORKED = -12,       /* in a forked child: the object belongs to the parent; or a device
                                   is needed, and the parent had opened one before the fork */
    QUIRE_E_LIMIT = -13,        /* a stated limit would be exceeded */
    QUIRE_E_OS = -14,           /* an operating system call failed; native_code holds errno */
    /* A defect of the library. A cache whose invariant broke stops: every call on it returns this,
     * except stats, info, dump, finish, and the destruction of its batches and of the cache itself.
     * Other caches are not affected. */
    QUIRE_E_INTERNAL = -15
};

/* Where quire_error.native_code comes from. */
enum { QUIRE_DOMAIN_QUIRE = 0, QUIRE_DOMAIN_OS = 1, QUIRE_DOMAIN_BACKEND = 2 };

/* Describes a failure. Caller's memory, so it outlives any plugin and is never freed. */
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
 * know with QUIRE_E_UNSUPPORTED. reserved0 and the fields that a kind does not use must be 0, else
 * QUIRE_E_STRUCT. Wherever NULL is allowed, QUIRE_NATIVE_NONE means the same. */
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
 * The integers and the 8-bit floats are storage types of K and V in a pool only. They are never the
 * type of q, of out, or of the input of kv_write. They hold codes: value = code * scale (cache.h,
 * QUIRE_SCALE_*). The 8-bit floats are OCP OFP8; the FNUZ formats are not supported. */
enum {
    QUIRE_DTYPE_I4 = (0 << 16) | (4 << 8) | 1, /* -7 to 7 in two's complement; element 2 i is in the
                                                  low half of byte i, element 2 i + 1 in the high
                                                  half */
    QUIRE_DTYPE_I8 = (0 << 16) | (8 << 8) | 1, /* -127 to 127 */
    QUIRE_DTYPE_F16 = (2 << 16) | (16 << 8) | 1,
    QUIRE_DTYPE_F32 = (2 << 16) | (32 << 8) | 1,
    QUIRE_DTYPE_BF16 = (4 << 16) | (16 << 8) | 1,
    QUIRE_DTYPE_F8_E4M3FN = (10 << 16) | (8 << 8) | 1, /* to 448; no infinity, one NaN per sign */
    QUIRE_DTYPE_F8_E5M2 = (12 << 16) | (8 << 8) | 1    /* to 57344 */
};

/* Handles: 8 bits of type, 56 bits of number. 0 is never a live handle. A handle belongs to one
 * cache and may be used from any thread. No handle is given out twice in a process: one that was
 * ended, belongs to another cache, or was made up is QUIRE_E_STALE. Only a follower (log.h) accepts
 * handles of another process, and exactly its leader's. A refused call uses up no number.
 *   quire_step, quire_namespace  the number is a counter: 2^56 of each, 2,283 years at a million
 *              per second.
 *   quire_seq, quire_lease  the low bits are an index out of 65,536 or more (at least twice
 *              max_sequences), reused in the order in which indices became free; the high bits are
 *              the cache and how often it reused the index. At least 2^53 of both together per
 *              process, 285 years at a million per second, and 2^39 caches. */
typedef uint64_t quire_seq;
typedef uint64_t quire_step;
typedef uint64_t quire_namespace;
typedef uint64_t quire_lease;

/* A token id: any value except QUIRE_TOKEN_UNKNOWN, which stands for a token that is still being
 * sampled. */
typedef uint32_t quire_token;
#define QUIRE_TOKEN_UNKNOWN 0xFFFFFFFFu

/* Tasks that may run concurrently: task(context, i) for each i in [0, task_count). */
typedef void (*quire_task)(void *context, uint32_t index);
typedef void (*quire_run_tasks)(void *user, uint32_t task_count, quire_task task, void *context);

/* Objects. Each may be shared between threads and destroyed from any of them. */
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
