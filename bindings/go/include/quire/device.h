/* SPDX-License-Identifier: Apache-2.0
 *
 * device: instances, the backends they found, devices, queues, fences and device memory.
 *
 * An instance owns backends, a backend has devices, a device has queues, fences and memory. Destroy
 * children first; destroying a parent with live children is QUIRE_E_BUSY.
 * A process may fork at any time, and every call of a forked child on an object that its parent
 * made
 * is QUIRE_E_FORKED, before any lock: one that a thread of the parent held would never be released.
 * The child makes an instance of its own. Nothing device-related runs before quire_device_open;
 * once
 * a process has opened a device, its forked children can open none.
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
    /* Host allocator of the caches; both NULL for the library's own. Called from any thread, with a
     * cache's lock held: calling back into that cache is QUIRE_E_REENTRANT. Must not unwind.
     * `alignment` is a power of two. `release` gets the size that was asked for. */
    void *(*allocate)(void *user, uint64_t size_bytes, uint64_t alignment);
    void (*release)(void *user, void *pointer, uint64_t size_bytes, uint64_t alignment);
    void *allocator_user;
    /* Receives messages, from any thread, without locks held. NULL: nothing is logged. */
    void (*log)(void *user, int32_t level, const char *component, const char *message);
    void *log_user;
    /* Colon-separated directories searched for plugins before all others; NULL for none. */
    const char *plugin_path;
} quire_instance_desc;

/* Creates an instance and looks for backends: desc->plugin_path, the environment's
 * QUIRE_PLUGIN_PATH
 * (ignored in a privileged process), the directory beside libquire, the compiled-in one. Never the
 * working directory. A file that does not load leaves a reason, see quire_backend_get_info.
 * Time     O(files in the folders that are searched). */
QUIRE_EXPORT quire_status quire_instance_create(const quire_instance_desc *desc,
                                                quire_instance **out, quire_error *error);

/* Errors   QUIRE_E_BUSY  devices or bookkeeping-only caches are still open.
 * Time     O(1), and what its backends take to shut down. */
QUIRE_EXPORT quire_status quire_instance_destroy(quire_instance *instance, quire_error *error);

typedef struct quire_backend_info {
    uint32_t struct_size;
    uint32_t flags;
    const quire_chain *next;
    quire_status status; /* QUIRE_OK: loaded; else why not, and `message` says so in words */
    uint32_t device_count;
    uint32_t abi_major;
    uint32_t abi_minor; /* the version both sides speak */
    char name[32];
    char version[32];
    char path[512];
    char message[480]; /* also why there are no devices, where the backend knows */
} quire_backend_info;

/* Number of candidates found, those that did not load included.
 * Time     O(1). */
QUIRE_EXPORT quire_status quire_backend_count(quire_instance *instance, uint32_t *count,
                                              quire_error *error);

/* Time     O(1), and a probe of the backend's devices. */
QUIRE_EXPORT quire_status quire_backend_get_info(quire_instance *instance, uint32_t index,
                                                 quire_backend_info *info, quire_error *error);

/* Loads a plugin by absolute path and appends it to the list. It stays loaded until the process
 * ends. Like those that are searched for, it must be a file of this user or root that others can
 * neither write nor replace: no link, and no directory above it that the world writes (but /tmp and
 * its like, above its own directory) or a group other than its owner's own.
 * Errors   QUIRE_E_BACKEND       not there, not a plugin, or refused; nothing was added.
 *          QUIRE_E_INCOMPATIBLE  it speaks another major version.
 * Time     O(size of the file). */
QUIRE_EXPORT quire_status quire_backend_load(quire_instance *instance, const char *path,
                                             uint32_t *index, quire_error *error);

enum {
    /* Each worker thread stays on one core: thread i on the i-th of those that the process may use
     * when the device is opened, again from the first when there are more threads. A queue's own
     * thread is thread 0. Not together with run_tasks. */
    QUIRE_DEVICE_PIN_THREADS = 1 << 0,
    /* Attention over K and V of f16 and bf16 may use instructions that multiply elements of 16
     * bits, where the device has them; where it has none, and for other types, this changes
     * nothing. quire_device_info.flags says whether the device has them.
     * What is kept: the bounds of errors, for each product is exact and summed up in f32; and the
     * same bits for a row whatever is in its batch, on devices opened alike. What is not: the bits
     * of a device that was opened without it; an infinity in K or V may count as a NaN; and what is
     * below 2^-126 counts as 0. */
    QUIRE_DEVICE_FAST_16BIT = 1 << 1
};

/* threads, run_tasks and QUIRE_DEVICE_PIN_THREADS are for backends whose kernels run on threads of
 * the host; others need none and look at none of them. */
typedef struct quire_device_desc {
    uint32_t struct_size;
    uint32_t flags;          /* QUIRE_DEVICE_* */
    const quire_chain *next; /* QUIRE_STRUCT_VULKAN_DEVICE: on an engine's own VkDevice */
    const char *backend;     /* name, such as "cpu"; NULL: the first backend that has a device */
    uint32_t index;          /* which device of that backend; 0 where `next` names it */
    uint32_t threads;        /* that run a kernel; 0 = one per core */
    /* The engine's own threads, so that its kernels and the library's do not contend for cores;
     * NULL for threads of the library's. run_tasks(run_tasks_user, task_count, task, context) runs
     * task(context, i) once for each i of [0, task_count), in any order, on any threads, at the
     * same time or one after another, and returns when all have returned. task_count is `threads`
     * at most.
     * Threads    called from a thread of the library's, one for each queue, which itself only waits
     *            meanwhile; one call at a time for a device. A task changes no rounding mode for
     *            whoever runs it.
     * Must not   unwind, or leave a task by longjmp; that is undefined. Nor wait for this device,
     *            or destroy anything of it.
     * Errors     a task that is left out, runs twice, or runs when run_tasks has returned, is
     *            counted and stops the device's queues: calls on them are QUIRE_E_DEVICE_LOST and
     *            say so. After quire_device_close no task may run at all. */
    quire_run_tasks run_tasks;
    void *run_tasks_user;
} quire_device_desc;

typedef struct quire_device_info {
    uint32_t struct_size;
    uint32_t flags; /* QUIRE_DEVICE_*: of those asked for, what is in effect */
    const quire_chain *next;
    uint64_t memory_total_bytes;
    uint64_t memory_free_bytes;
    uint32_t copy_alignment; /* best alignment of copies, bytes */
    uint32_t host_visible;   /* 1: device addresses are host pointers */
    char name[64];
    char backend[32];
} quire_device_info;

/* Errors   QUIRE_E_ARG  QUIRE_DEVICE_PIN_THREADS with run_tasks, or no such device.
 *          QUIRE_E_OS   threads cannot be started, or not be kept on their cores.
 * Time     O(1), and what the device's driver takes. */
QUIRE_EXPORT quire_status quire_device_open(quire_instance *instance, const quire_device_desc *desc,
                                            quire_device **out, quire_error *error);
/* Time     O(1), and what the device's driver takes. */
QUIRE_EXPORT quire_status quire_device_close(quire_device *device, quire_error *error);
/* Time     O(1). */
QUIRE_EXPORT quire_status quire_device_get_info(quire_device *device, quire_device_info *info,
                                                quire_error *error);

/* Makes a queue, or binds the engine's own stream when `native` names one: work then goes to that
 * stream in the order of calls, between what the engine enqueues there itself. Work on a queue runs
 * in order; queues run independently, but on an engine's own device (vulkan.h).
 *
 * native   NULL; QUIRE_NATIVE_VULKAN_QUEUE (vulkan.h); or QUIRE_NATIVE_CUDA_STREAM or
 *          QUIRE_NATIVE_HIP_STREAM: a stream of the device, on CUDA of its primary context. 2 is
 *          the calling thread's own stream: calls on the queue, but for quire_queue_destroy, are
 *          then that thread's alone, and QUIRE_E_ARG of others.
 * Graphs   while the engine captures the stream, quire_kv_write, quire_attend and
 *          quire_attention_merge go to its graph, and run at each launch (step.h says at
 *          quire_batch_views what a graph serves); other calls on the queue are QUIRE_E_BUSY. The
 *          graph uses memory of the queue's: destroy it before the queue. Any capture mode will do.
 *          While the engine captures a stream that streams 0 and 1 wait for, all calls on a queue
 *          of these are QUIRE_E_BUSY; so are those on a stream whose capture is broken, until the
 *          engine has ended it.
 * Errors   QUIRE_E_ARG          the stream is of another context or device, or the driver knows no
 *                               such stream.
 *          QUIRE_E_BUSY         the engine captures the stream, or one that it waits for: make the
 *                               queue before the capture or after it.
 *          QUIRE_E_UNSUPPORTED  the backend has no such streams, nor its driver: HIP's knows stream
 *                               1 since ROCm 6.3.
 * Ownership  the stream stays the engine's, and alive until quire_device_close has returned, which
 *            waits until it has nothing to do. While the engine captures it, that waits for what
 *            was enqueued there before, and leaves the capture whole.
 * Time     O(1), and what the device's driver takes. */
QUIRE_EXPORT quire_status quire_queue_create(quire_device *device, const quire_native *native,
                                             quire_queue **out, quire_error *error);
/* Errors   QUIRE_E_BUSY  a step that is not finished uses it. Waits for nothing: enqueued work runs
 * on. What is finished and has run counts once a later call on the cache noticed (step.h).
 * Time     O(1), and what the device's driver takes. */
QUIRE_EXPORT quire_status quire_queue_destroy(quire_queue *queue, quire_error *error);
/* Waits until all that was enqueued has run.
 * Errors   QUIRE_E_DEVICE_LOST  the device failed, or work of the queue did, as with an index that
 *                               leads outside a pool: the next call on the queue says which. Where
 *                               it was the work, the device goes on: make another queue.
 * Time     O(1), and the wait. */
QUIRE_EXPORT quire_status quire_queue_sync(quire_queue *queue, quire_error *error);

/* A fence is a 64-bit value that only grows; QUIRE_FENCE_FAILED means that work before it
 * failed. */
#define QUIRE_FENCE_FAILED 0xFFFFFFFFFFFFFFFFull

/* Time     O(1), and what the device's driver takes. */
QUIRE_EXPORT quire_status quire_fence_create(quire_device *device, uint64_t value,
                                             quire_fence **out, quire_error *error);
/* Time     O(1), and what the device's driver takes. */
QUIRE_EXPORT quire_status quire_fence_destroy(quire_fence *fence, quire_error *error);
/* Time     O(1). */
QUIRE_EXPORT quire_status quire_fence_read(quire_fence *fence, uint64_t *value, quire_error *error);
/* Sets the value from the host. Errors   QUIRE_E_ARG  it would not grow.
 * Time     O(1). */
QUIRE_EXPORT quire_status quire_fence_signal(quire_fence *fence, uint64_t value,
                                             quire_error *error);
/* Waits for the value or the time, whichever comes first (then QUIRE_S_TIMEOUT).
 * Time     O(1), and the wait. */
QUIRE_EXPORT quire_status quire_fence_wait(quire_fence *fence, uint64_t value, uint64_t timeout_ns,
                                           quire_error *error);
/* Enqueues: the fence gets `value` when all earlier work on the queue has run.
 * Time     O(1). */
QUIRE_EXPORT quire_status quire_queue_signal(quire_queue *queue, quire_fence *fence, uint64_t value,
                                             quire_error *error);
/* Enqueues: later work on the queue runs after the fence reached `value`.
 * Errors   QUIRE_E_BUSY  the queue is the engine's own stream, and nobody has signalled that value
 *                        yet, on the host or by work that goes on by itself: signal first. What the
 *                        engine enqueues meanwhile could not be kept behind the wait.
 * Time     O(1). */
QUIRE_EXPORT quire_status quire_queue_after(quire_queue *queue, quire_fence *fence, uint64_t value,
                                            quire_error *error);

/* Enqueues: the engine's own semaphore is signalled when all earlier work on the queue has run.
 *
 * native   QUIRE_NATIVE_VULKAN_SEMAPHORE: its value is above the semaphore's own, and above each
 *          that is still to be signalled. QUIRE_NATIVE_CUDA_EVENT, QUIRE_NATIVE_HIP_EVENT: it is
 *          recorded.
 * Errors   QUIRE_E_UNSUPPORTED  the backend has no such semaphores.
 *          QUIRE_E_BUSY         the queue waits for a fence that nobody has signalled yet, on the
 *                               host or by work that runs: signal that first. So the signal is on
 *                               its way when the call returns.
 *          QUIRE_E_DEVICE_LOST  the queue has stopped. Where it stops later the semaphore may be
 *                               signalled or not: ask quire_queue_sync in either case.
 * Ownership  the semaphore stays the engine's, and alive until the queue's work behind it has run:
 *            a fence that the queue signals behind it says so, or quire_queue_sync.
 * Time     O(1). */
QUIRE_EXPORT quire_status quire_queue_signal_native(quire_queue *queue, const quire_native *native,
                                                    quire_error *error);
/* Enqueues: later work on the queue runs after the engine's own semaphore was signalled. The device
 * waits for it, and with it whatever is submitted to the same queue of the device's (vulkan.h). So
 * what signals it was submitted before, or comes from the host, or from a queue that does not wait
 * for any of this.
 * An event of CUDA's or HIP's is waited for as it was recorded last when the call is made.
 * Errors and ownership as above; QUIRE_E_BUSY only with an event.
 * Time     O(1). */
QUIRE_EXPORT quire_status quire_queue_after_native(quire_queue *queue, const quire_native *native,
                                                   quire_error *error);

enum { QUIRE_MEMORY_DEVICE = 0, QUIRE_MEMORY_HOST = 1 /* the host's, reachable by the device */ };

typedef struct quire_memory_desc {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    const quire_chain *next;
    uint64_t size_bytes;
    uint32_t kind;
    uint32_t reserved0;
    /* With QUIRE_MEMORY_HOST: the engine's own memory, which copies then read and write where it
     * lies. It keeps what it holds, and stays the engine's, mapped until quire_memory_destroy has
     * returned. NULL: memory is made, and zeroed. A GPU wants the pointer and the size to be
     * multiples of a page; the message says of which. A Vulkan driver that cannot reach it has
     * copies alone, whose bytes are there once a fence of this library's behind them was read or
     * waited for; kernels are refused. */
    void *host_pointer;
} quire_memory_desc;

typedef struct quire_memory_info {
    uint32_t struct_size;
    uint32_t flags;
    const quire_chain *next;
    uint64_t address;   /* for the arguments of kernels */
    void *host_pointer; /* NULL where the host cannot reach it */
    uint64_t size_bytes;
} quire_memory_info;

/* Memory for an engine's activations, zeroed where host_pointer is NULL.
 * Errors   QUIRE_E_UNSUPPORTED  host_pointer, and the backend or its driver imports none: let it
 *                               be made, and write there.
 * Time     O(1), and what the device's driver takes. */
QUIRE_EXPORT quire_status quire_memory_create(quire_device *device, const quire_memory_desc *desc,
                                              quire_memory **out, quire_error *error);
/* Time     O(1), and what the device's driver takes. */
QUIRE_EXPORT quire_status quire_memory_destroy(quire_memory *memory, quire_error *error);
/* Time     O(1). */
QUIRE_EXPORT quire_status quire_memory_get_info(quire_memory *memory, quire_memory_info *info,
                                                quire_error *error);
/* Enqueues a copy between two memories of the queue's device, of any kinds. The ranges must not
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
