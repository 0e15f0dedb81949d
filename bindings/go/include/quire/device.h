/* SPDX-License-Identifier: Apache-2.0
 *
 * device: instances, the backends they found, devices and device memory.
 *
 * An instance owns backends, a backend has devices, a device has queues and fences (queue.h) and
 * memory. Destroy children first: destroying a parent with live children is QUIRE_E_BUSY.
 *
 * A process may fork at any time. In the child every call on an object that the parent created is
 * QUIRE_E_FORKED. The check comes before any lock, because a lock that a thread of the parent held
 * would never be released. The child can create an instance of its own. Nothing related to devices
 * runs before quire_device_open. Once a process has opened a device, its forked children cannot
 * open any.
 */
#ifndef QUIRE_DEVICE_H
#define QUIRE_DEVICE_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { QUIRE_LOG_ERROR = 1, QUIRE_LOG_WARNING = 2, QUIRE_LOG_INFO = 3 };

typedef struct quire_instance_desc {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    const quire_chain *next;
    /* Host allocator of the caches; both NULL for the library's own. Called from any thread with
     * the lock of a cache held: calling back into that cache is QUIRE_E_REENTRANT. Must not unwind.
     * `alignment` is a power of two. `release` receives the size that was requested. */
    void *(*allocate)(void *user, uint64_t size_bytes, uint64_t alignment);
    void (*release)(void *user, void *pointer, uint64_t size_bytes, uint64_t alignment);
    void *allocator_user;
    /* Receives messages, from any thread, with no lock held. NULL: nothing is logged. */
    void (*log)(void *user, int32_t level, const char *component, const char *message);
    void *log_user;
    /* Colon-separated directories that are searched for plugins first; NULL for none. */
    const char *plugin_path;
} quire_instance_desc;

/* Creates an instance and searches for backends in desc->plugin_path, in the environment variable
 * QUIRE_PLUGIN_PATH (ignored in a privileged process), in the directory next to libquire, and in
 * the compiled-in one; never in the working directory. For a file that does not load,
 * quire_backend_get_info says why.
 * Time     O(files in the folders that are searched). */
QUIRE_EXPORT quire_status quire_instance_create(const quire_instance_desc *desc,
                                                quire_instance **out, quire_error *error);

/* Errors   QUIRE_E_BUSY  devices, tiers or bookkeeping-only caches are still open.
 * Time     O(1), and the time that its backends take to shut down. */
QUIRE_EXPORT quire_status quire_instance_destroy(quire_instance *instance, quire_error *error);

typedef struct quire_backend_info {
    uint32_t struct_size;
    uint32_t flags;
    const quire_chain *next;
    quire_status status; /* QUIRE_OK: loaded; else why not, and `message` explains it */
    uint32_t device_count;
    uint32_t abi_major;
    uint32_t abi_minor; /* the version that both sides use */
    char name[32];
    char version[32];
    char path[512];
    char message[480]; /* also why there are no devices, if the backend knows */
} quire_backend_info;

/* Counts the candidates that were found, including those that did not load.
 * Time     O(1). */
QUIRE_EXPORT quire_status quire_backend_count(quire_instance *instance, uint32_t *count,
                                              quire_error *error);

/* Time     O(1), and a probe of the backend's devices. */
QUIRE_EXPORT quire_status quire_backend_get_info(quire_instance *instance, uint32_t index,
                                                 quire_backend_info *info, quire_error *error);

/* Loads a plugin by absolute path and appends it to the list. It stays loaded until the process
 * ends. Like the plugins that are searched for, it must be a file owned by this user or root that
 * others can neither write nor replace: not a link, and with no directory above it that is writable
 * by the world (except directories like /tmp above its own directory) or by a group other than its
 * owner's own.
 * Errors   QUIRE_E_BACKEND       not found, not a plugin, or refused; nothing was added.
 *          QUIRE_E_INCOMPATIBLE  it has another major version.
 * Time     O(size of the file). */
QUIRE_EXPORT quire_status quire_backend_load(quire_instance *instance, const char *path,
                                             uint32_t *index, quire_error *error);

enum {
    /* Each worker thread stays on one core: thread i on the i-th core that the process may use when
     * the device is opened, starting over with the first if there are more threads than cores. A
     * queue's own thread is thread 0. Not together with run_tasks. */
    QUIRE_DEVICE_PIN_THREADS = 1 << 0,
    /* Attention over K and V of f16 and bf16 may use instructions that multiply 16-bit elements, if
     * the device has them (quire_device_info.flags says so). Otherwise, and for other types, the
     * flag has no effect.
     * Guaranteed with it: the error bounds, because each product is exact and sums are f32; and the
     * same bits for a row whatever else is in its batch, on devices opened with the same flags. Not
     * guaranteed: the same bits as on a device opened without it. An infinity in K or V may be
     * treated as a NaN, and values below 2^-126 as 0. */
    QUIRE_DEVICE_FAST_16BIT = 1 << 1,
    /* A call that enqueues work also runs it, and what was enqueued before it, before it returns,
     * unless another thread runs the queue's work or a fence is waited for. This spares small
     * kernels two changes of thread each; an engine that enqueues ahead loses the overlap. Errors
     * of the work are still the queue's, not the call's. The calling thread needs 64 KiB of stack.
     * Not together with run_tasks. */
    QUIRE_DEVICE_INLINE = 1 << 2
};

/* threads, run_tasks, QUIRE_DEVICE_PIN_THREADS and QUIRE_DEVICE_INLINE are for backends whose
 * kernels run on host threads; other backends ignore them. */
typedef struct quire_device_desc {
    uint32_t struct_size;
    uint32_t flags;          /* QUIRE_DEVICE_* */
    const quire_chain *next; /* QUIRE_STRUCT_VULKAN_DEVICE: on an engine's own VkDevice */
    const char *backend;     /* name, such as "cpu"; NULL: the first backend that has a device */
    uint32_t index;          /* which device of that backend; 0 if `next` names it */
    uint32_t threads;        /* that run a kernel; 0 = one per core */
    /* Runs kernels on the engine's own threads, so that its kernels and the library's do not
     * compete for cores; NULL for threads of the library. run_tasks(run_tasks_user, task_count,
     * task, context) runs task(context, i) once for each i in [0, task_count), in any order, on any
     * threads, concurrently or not, and returns when all have returned. task_count is at most
     * `threads`.
     * Threads    Called from a thread of the library, one per queue, which only waits meanwhile;
     *            one call at a time per device. A task does not change the rounding mode of the
     *            thread that runs it.
     * Must not   unwind, or leave a task by longjmp (undefined behaviour); wait for this device; or
     *            destroy any of its objects.
     * Errors     A task that is left out, runs twice, or runs after run_tasks has returned is
     *            counted and stops the device's queues: calls on them are QUIRE_E_DEVICE_LOST and
     *            say so. After quire_device_close no task may run. */
    quire_run_tasks run_tasks;
    void *run_tasks_user;
} quire_device_desc;

typedef struct quire_device_info {
    uint32_t struct_size;
    uint32_t flags; /* QUIRE_DEVICE_*: the requested ones that are in effect */
    const quire_chain *next;
    uint64_t memory_total_bytes;
    uint64_t memory_free_bytes;
    uint32_t copy_alignment; /* preferred alignment of copies, bytes */
    uint32_t host_visible;   /* 1: device addresses are host pointers */
    char name[64];
    char backend[32];
} quire_device_info;

/* Errors   QUIRE_E_ARG  QUIRE_DEVICE_PIN_THREADS with run_tasks, or no such device.
 *          QUIRE_E_OS   threads cannot be started or pinned.
 * Time     O(1), and the time of the device's driver. */
QUIRE_EXPORT quire_status quire_device_open(quire_instance *instance, const quire_device_desc *desc,
                                            quire_device **out, quire_error *error);
/* Time     O(1), and the time of the driver. */
QUIRE_EXPORT quire_status quire_device_close(quire_device *device, quire_error *error);
/* Time     O(1). */
QUIRE_EXPORT quire_status quire_device_get_info(quire_device *device, quire_device_info *info,
                                                quire_error *error);

enum {
    QUIRE_MEMORY_DEVICE = 0,
    QUIRE_MEMORY_HOST = 1 /* host memory that the device can access */
};

typedef struct quire_memory_desc {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    const quire_chain *next;
    uint64_t size_bytes;
    uint32_t kind;
    uint32_t reserved0;
    /* With QUIRE_MEMORY_HOST: the engine's own memory, which copies read and write in place. Its
     * content is kept, and the engine keeps it mapped until quire_memory_destroy has returned.
     * NULL: the library allocates zeroed memory. GPUs need a pointer and a size that are multiples
     * of a page; the message says of which size. If a Vulkan driver cannot access the memory, only
     * copies work on it, kernels are refused, and the bytes of a copy have arrived once a later
     * fence of this library on the queue was read or waited for. */
    void *host_pointer;
} quire_memory_desc;

typedef struct quire_memory_info {
    uint32_t struct_size;
    uint32_t flags;
    const quire_chain *next;
    uint64_t address;   /* for arguments of kernels */
    void *host_pointer; /* NULL if the host cannot access it */
    uint64_t size_bytes;
} quire_memory_info;

/* Creates memory, for example for activations; zeroed if host_pointer is NULL.
 * Errors   QUIRE_E_UNSUPPORTED  host_pointer is given, and the backend or its driver cannot import
 *                               memory: pass NULL and write to the memory that is allocated.
 * Time     O(1), and the time of the device's driver. */
QUIRE_EXPORT quire_status quire_memory_create(quire_device *device, const quire_memory_desc *desc,
                                              quire_memory **out, quire_error *error);
/* Time     O(1), and the time of the driver. */
QUIRE_EXPORT quire_status quire_memory_destroy(quire_memory *memory, quire_error *error);
/* Time     O(1). */
QUIRE_EXPORT quire_status quire_memory_get_info(quire_memory *memory, quire_memory_info *info,
                                                quire_error *error);
/* Enqueues a copy between two memories of the queue's device, of any kind. The ranges must not
 * overlap.
 * Time     O(1), and O(size_bytes) on the device. */
QUIRE_EXPORT quire_status quire_memory_copy(quire_queue *queue, quire_memory *dst,
                                            uint64_t dst_offset, quire_memory *src,
                                            uint64_t src_offset, uint64_t size_bytes,
                                            quire_error *error);

#ifdef __cplusplus
}
#endif
#endif /* QUIRE_DEVICE_H */
