/* SPDX-License-Identifier: Apache-2.0
 *
 * device: the toy backend's device, and how its files call each other.
 *
 * Why one thread per device, not one per queue: a device looks at the heads of its queues in turn,
 * so a queue that waits holds up no other, and no thread has to outlive its queue. Why a thread at
 * all: a slot only enqueues, so another thread must run what was enqueued.
 *
 * Invariants:
 *   (1) a work stays at its queue's head until it has run, so empty queues mean an idle device
 *   (2) a device lives until it is closed and its last queue, fence and plan is given back
 *
 * Threads: any. One lock per device guards its fences and queues; kernels run without it.
 */
#ifndef QUIRE_TESTS_TOY_DEVICE_H
#define QUIRE_TESTS_TOY_DEVICE_H

#include <pthread.h>

#include "quire/plugin/backend.h"

#define TOY_NAME "toy"
#define TOY_FAILED UINT64_MAX /* a fence's value if work before it did not run */

struct work;

struct quire_be_device {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* work came or ended, a fence grew, the device is to close */
    pthread_t worker;
    quire_be_queue *queues; /* those that the worker looks at */
    uint64_t owner_count;
    int closing;
    int closed;
};

struct quire_be_queue {
    quire_be_device *device;
    quire_be_queue *next;
    struct work *head;
    struct work *tail;
    int released; /* by its user; the worker frees it when it is empty */
    int lost;     /* something did not run: nothing after it runs */
};

/* Copies what it needs of `arguments`, which are freed after it. Returns 0 if it could not run. */
typedef int (*work_fn)(const void *arguments, size_t size_bytes);

/* plugin.c: refusals, and the count of live objects. */
__attribute__((format(printf, 3, 4))) quire_status fail(quire_error *error, quire_status status,
                                                        const char *format, ...);
quire_status check_struct(const void *given, size_t known_bytes, const char *what,
                          quire_error *error);
void *object_new(size_t size_bytes, quire_error *error); /* zeroed, and counted */
void object_count(int64_t change);

/* device.c */
void device_keep(quire_be_device *device); /* REQUIRES: the lock is not held */
void device_drop(quire_be_device *device);
quire_status probe(uint32_t *device_count, quire_error *error);
quire_status device_open(const quire_be_device_desc *desc, quire_be_device **out,
                         quire_error *error);
void device_close(quire_be_device *device);
quire_status device_props(quire_be_device *device, quire_be_device_props *props,
                          quire_error *error);
quire_status mem_alloc(quire_be_device *device, uint64_t size_bytes, uint32_t kind,
                       uint64_t *address, void **host_pointer, quire_error *error);
void mem_free(quire_be_device *device, uint64_t address, uint64_t size_bytes, uint32_t kind);

/* queue.c */
void *queue_worker(void *device); /* the body of a device's thread */
quire_status queue_push(quire_be_queue *queue, work_fn run, const void *arguments,
                        size_t size_bytes, quire_error *error);
quire_status queue_bind(quire_be_device *device, const quire_native *native, quire_be_queue **out,
                        quire_error *error);
void queue_release(quire_be_queue *queue);
quire_status fence_create(quire_be_device *device, uint64_t value, quire_be_fence **out,
                          quire_error *error);
void fence_destroy(quire_be_fence *fence);
quire_status fence_read(quire_be_fence *fence, uint64_t *value, quire_error *error);
quire_status fence_signal_host(quire_be_fence *fence, uint64_t value, quire_error *error);
quire_status fence_wait_host(quire_be_fence *fence, uint64_t value, uint64_t timeout_ns,
                             quire_error *error);
quire_status fence_signal(quire_be_queue *queue, quire_be_fence *fence, uint64_t value,
                          quire_error *error);
quire_status fence_wait(quire_be_queue *queue, quire_be_fence *fence, uint64_t value,
                        quire_error *error);
quire_status quiesce(quire_be_device *device, uint64_t timeout_ns, quire_error *error);

/* transfer.c */
quire_status copy(quire_be_queue *queue, const quire_be_copy *copies, uint32_t count,
                  quire_error *error);
quire_status fill(quire_be_queue *queue, const quire_be_range *ranges, uint32_t count,
                  uint32_t byte, quire_error *error);
#endif /* QUIRE_TESTS_TOY_DEVICE_H */
