/* SPDX-License-Identifier: Apache-2.0
 *
 * queue: works in order, fences between them, and the thread that runs them.
 *
 * A failed fence fails whatever waits for it: the queue is lost, its works are removed without
 * being run, and the fences among them fail in turn. So no fence announces a result that was not
 * computed.
 *
 * Threads: any; the device's lock guards every field, and only the worker removes works.
 */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */

#include <errno.h>
#include <fenv.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device.h"

#define NANOSECONDS 1000000000ull

struct quire_be_fence {
    quire_be_device *device;
    uint64_t value;
    uint64_t owner_count; /* its user, and each work that names it */
};

enum work_kind { WORK_RUN, WORK_SIGNAL, WORK_WAIT };

struct work {
    struct work *next;
    enum work_kind kind;
    quire_be_fence *fence; /* for SIGNAL and WAIT, as is the value */
    uint64_t value;
    work_fn run; /* for RUN */
    size_t size_bytes;
    uint64_t arguments[]; /* size_bytes bytes */
};

/* REQUIRES: the lock is held. If this returns 1, the caller drops the fence's device reference. */
static int fence_unreference(quire_be_fence *fence) {
    if (--fence->owner_count > 0) return 0;
    free(fence);
    return 1;
}

static void fence_raise(quire_be_fence *fence, uint64_t value) {
    if (value > fence->value) fence->value = value;
}

/* True if the head can go now. A failed fence reads more than any value, so it ends every wait. */
static int is_ready(const quire_be_queue *queue) {
    const struct work *work = queue->head;
    if (work == NULL) return 0;
    return queue->lost || work->kind != WORK_WAIT || work->fence->value >= work->value;
}

/* Runs and removes the head of a queue. The lock is held before and after, not during a run. */
static void run_head(quire_be_device *device, quire_be_queue *queue) {
    struct work *work = queue->head;
    if (work->kind == WORK_RUN && !queue->lost) {
        int done;
        pthread_mutex_unlock(&device->lock);
        done = work->run(work->arguments, work->size_bytes);
        pthread_mutex_lock(&device->lock);
        if (!done) queue->lost = 1;
    } else if (work->kind == WORK_SIGNAL) {
        fence_raise(work->fence, queue->lost ? TOY_FAILED : work->value);
    } else if (work->kind == WORK_WAIT && work->fence->value == TOY_FAILED) {
        queue->lost = 1;
    }
    queue->head = work->next;
    if (queue->head == NULL) queue->tail = NULL;
    if (work->fence != NULL && fence_unreference(work->fence)) --device->owner_count;
    free(work);
}

/* Frees released queues once they are empty. */
static void sweep(quire_be_device *device) {
    quire_be_queue **link = &device->queues;
    while (*link != NULL) {
        quire_be_queue *queue = *link;
        if (queue->released && queue->head == NULL) {
            *link = queue->next;
            --device->owner_count;
            free(queue);
        } else {
            link = &queue->next;
        }
    }
}

static int run_ready(quire_be_device *device) {
    quire_be_queue *queue;
    int progress = 0;
    for (queue = device->queues; queue != NULL; queue = queue->next) {
        if (!is_ready(queue)) continue;
        run_head(device, queue);
        progress = 1;
    }
    return progress;
}

/* The device's thread. At closing, works that can still run do; those that wait are dropped. */
void *queue_worker(void *argument) {
    quire_be_device *device = argument;
    quire_be_queue *queue;
    fesetenv(FE_DFL_ENV); /* otherwise the opener's rounding is inherited */
    pthread_mutex_lock(&device->lock);
    for (;;) {
        if (run_ready(device)) {
            pthread_cond_broadcast(&device->changed);
        } else if (device->closing) {
            break;
        } else {
            sweep(device);
            pthread_cond_wait(&device->changed, &device->lock);
        }
    }
    for (queue = device->queues; queue != NULL; queue = queue->next) {
        queue->lost = 1;
        while (queue->head != NULL) run_head(device, queue);
    }
    sweep(device);
    device->queues = NULL;
    device->closed = 1;
    pthread_cond_broadcast(&device->changed);
    pthread_mutex_unlock(&device->lock);
    return NULL;
}

/* Queues. ---------------------------------------------------------------------------------------*/

quire_status queue_bind(quire_be_device *device, const quire_native *native, quire_be_queue **out,
                        quire_error *error) {
    quire_be_queue *queue;
    if (device == NULL || out == NULL) return fail(error, QUIRE_E_ARG, "device or out is NULL");
    if (native != NULL && native->kind != QUIRE_NATIVE_NONE) {
        return fail(error, QUIRE_E_UNSUPPORTED, "native kind %u is unknown; use QUIRE_NATIVE_NONE",
                    (unsigned)native->kind);
    }
    queue = object_new(sizeof *queue, error);
    if (queue == NULL) return QUIRE_E_HOST_MEMORY;
    queue->device = device;
    pthread_mutex_lock(&device->lock);
    ++device->owner_count;
    queue->next = device->queues;
    device->queues = queue;
    pthread_mutex_unlock(&device->lock);
    *out = queue;
    return QUIRE_OK;
}

void queue_release(quire_be_queue *queue) {
    quire_be_device *device;
    int orphan;
    if (queue == NULL) return;
    device = queue->device;
    pthread_mutex_lock(&device->lock);
    queue->released = 1;
    orphan = device->closed; /* the worker has ended and cannot free it */
    pthread_cond_broadcast(&device->changed);
    pthread_mutex_unlock(&device->lock);
    object_count(-1);
    if (!orphan) return;
    free(queue);
    device_drop(device);
}

static quire_status push(quire_be_queue *queue, const struct work *head, const void *arguments,
                         quire_error *error) {
    struct work *work = malloc(sizeof *work + head->size_bytes);
    quire_be_device *device = queue->device;
    if (work == NULL) return fail(error, QUIRE_E_HOST_MEMORY, "no memory to enqueue work");
    *work = *head;
    if (work->size_bytes > 0) memcpy(work->arguments, arguments, work->size_bytes);
    pthread_mutex_lock(&device->lock);
    if (queue->lost) {
        pthread_mutex_unlock(&device->lock);
        free(work);
        return fail(
            error, QUIRE_E_DEVICE_LOST,
            "the queue is lost: its device was closed, or work on it failed; create another");
    }
    if (queue->tail != NULL) {
        queue->tail->next = work;
    } else {
        queue->head = work;
    }
    queue->tail = work;
    if (work->fence != NULL) ++work->fence->owner_count;
    pthread_cond_broadcast(&device->changed);
    pthread_mutex_unlock(&device->lock);
    return QUIRE_OK;
}

quire_status queue_push(quire_be_queue *queue, work_fn run, const void *arguments,
                        size_t size_bytes, quire_error *error) {
    struct work head = {.kind = WORK_RUN, .run = run, .size_bytes = size_bytes};
    return push(queue, &head, arguments, error);
}

static quire_status push_fence(quire_be_queue *queue, enum work_kind kind, quire_be_fence *fence,
                               uint64_t value, quire_error *error) {
    struct work head = {.kind = kind, .fence = fence, .value = value};
    if (queue == NULL || fence == NULL) return fail(error, QUIRE_E_ARG, "queue or fence is NULL");
    if (queue->device != fence->device) {
        return fail(error, QUIRE_E_ARG, "the fence and the queue belong to different devices");
    }
    return push(queue, &head, NULL, error);
}

/* Fences. ---------------------------------------------------------------------------------------*/

quire_status fence_create(quire_be_device *device, uint64_t value, quire_be_fence **out,
                          quire_error *error) {
    quire_be_fence *fence;
    if (device == NULL || out == NULL) return fail(error, QUIRE_E_ARG, "device or out is NULL");
    fence = object_new(sizeof *fence, error);
    if (fence == NULL) return QUIRE_E_HOST_MEMORY;
    fence->device = device;
    fence->value = value;
    fence->owner_count = 1;
    device_keep(device);
    *out = fence;
    return QUIRE_OK;
}

void fence_destroy(quire_be_fence *fence) {
    quire_be_device *device;
    int last;
    if (fence == NULL) return;
    device = fence->device;
    pthread_mutex_lock(&device->lock);
    last = fence_unreference(fence);
    pthread_mutex_unlock(&device->lock);
    object_count(-1);
    if (last) device_drop(device);
}

quire_status fence_read(quire_be_fence *fence, uint64_t *value, quire_error *error) {
    if (fence == NULL || value == NULL) return fail(error, QUIRE_E_ARG, "fence or value is NULL");
    pthread_mutex_lock(&fence->device->lock);
    *value = fence->value;
    pthread_mutex_unlock(&fence->device->lock);
    return QUIRE_OK;
}

quire_status fence_signal_host(quire_be_fence *fence, uint64_t value, quire_error *error) {
    uint64_t before;
    if (fence == NULL) return fail(error, QUIRE_E_ARG, "fence is NULL");
    pthread_mutex_lock(&fence->device->lock);
    before = fence->value;
    fence_raise(fence, value);
    pthread_cond_broadcast(&fence->device->changed);
    pthread_mutex_unlock(&fence->device->lock);
    if (value > before) return QUIRE_OK;
    return fail(error, QUIRE_E_ARG, "a fence only grows: it is at %llu and cannot be set to %llu",
                (unsigned long long)before, (unsigned long long)value);
}

quire_status fence_signal(quire_be_queue *queue, quire_be_fence *fence, uint64_t value,
                          quire_error *error) {
    return push_fence(queue, WORK_SIGNAL, fence, value, error);
}

quire_status fence_wait(quire_be_queue *queue, quire_be_fence *fence, uint64_t value,
                        quire_error *error) {
    return push_fence(queue, WORK_WAIT, fence, value, error);
}

/* Waits. ----------------------------------------------------------------------------------------*/

static struct timespec deadline_after(uint64_t timeout_ns) {
    struct timespec deadline;
    uint64_t nanoseconds;
    clock_gettime(CLOCK_MONOTONIC, &deadline);
    nanoseconds = (uint64_t)deadline.tv_nsec + timeout_ns % NANOSECONDS;
    deadline.tv_sec += (time_t)(timeout_ns / NANOSECONDS + nanoseconds / NANOSECONDS);
    deadline.tv_nsec = (long)(nanoseconds % NANOSECONDS);
    return deadline;
}

/* Waits for a change. REQUIRES: the lock is held. Returns 0 on a timeout. */
static int await_change(quire_be_device *device, uint64_t timeout_ns,
                        const struct timespec *deadline) {
    if (timeout_ns == UINT64_MAX) return pthread_cond_wait(&device->changed, &device->lock) == 0;
    return pthread_cond_timedwait(&device->changed, &device->lock, deadline) != ETIMEDOUT;
}

quire_status fence_wait_host(quire_be_fence *fence, uint64_t value, uint64_t timeout_ns,
                             quire_error *error) {
    struct timespec deadline = deadline_after(timeout_ns);
    quire_status status = QUIRE_OK;
    if (fence == NULL) return fail(error, QUIRE_E_ARG, "fence is NULL");
    pthread_mutex_lock(&fence->device->lock);
    while (status == QUIRE_OK && fence->value < value) {
        if (!await_change(fence->device, timeout_ns, &deadline) && fence->value < value) {
            status = QUIRE_S_TIMEOUT;
        }
    }
    if (fence->value == TOY_FAILED) status = QUIRE_E_DEVICE_LOST;
    pthread_mutex_unlock(&fence->device->lock);
    if (status >= 0) return status;
    return fail(error, status, "the fence failed: work before it did not run");
}

static int is_idle(const quire_be_device *device) {
    const quire_be_queue *queue;
    for (queue = device->queues; queue != NULL; queue = queue->next) {
        if (queue->head != NULL) return 0;
    }
    return 1;
}

quire_status quiesce(quire_be_device *device, uint64_t timeout_ns, quire_error *error) {
    struct timespec deadline = deadline_after(timeout_ns);
    quire_status status = QUIRE_OK;
    if (device == NULL) return fail(error, QUIRE_E_ARG, "device is NULL");
    pthread_mutex_lock(&device->lock);
    while (status == QUIRE_OK && !is_idle(device)) {
        if (!await_change(device, timeout_ns, &deadline) && !is_idle(device)) {
            status = QUIRE_S_TIMEOUT;
        }
    }
    pthread_mutex_unlock(&device->lock);
    return status;
}
