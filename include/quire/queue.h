/* SPDX-License-Identifier: Apache-2.0
 *
 * queue: work that a device runs in order, and the fences and semaphores that order queues.
 *
 * Work on one queue runs in the order of the calls. Queues run independently of each other, except
 * on an engine's own device (vulkan.h).
 */
#ifndef QUIRE_QUEUE_H
#define QUIRE_QUEUE_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Creates a queue. If `native` names a stream of the engine, the queue is bound to it: work is
 * enqueued on that stream in the order of calls, together with what the engine itself enqueues
 * there.
 *
 * native   NULL; QUIRE_NATIVE_VULKAN_QUEUE (vulkan.h); or QUIRE_NATIVE_CUDA_STREAM or
 *          QUIRE_NATIVE_HIP_STREAM: a stream of the device, on CUDA of its primary context. The
 *          value 2 is the calling thread's own stream: then only that thread may call functions on
 *          the queue, except quire_queue_destroy; for other threads they are QUIRE_E_ARG.
 * Graphs   While the engine captures the stream, quire_kv_write, quire_attend and
 *          quire_attention_merge are added to its graph and run at each launch (batch.h says what a
 *          graph serves). Other calls on the queue are QUIRE_E_BUSY. The graph uses memory of the
 *          queue: destroy it before the queue. Any capture mode is allowed.
 *          While the engine captures a stream that streams 0 and 1 wait for, all calls on a queue
 *          bound to one of these are QUIRE_E_BUSY. So are calls on a stream whose capture was
 *          invalidated, until the engine has ended the capture.
 * Errors   QUIRE_E_ARG          the stream belongs to another context or device, or the driver does
 *                               not know it.
 *          QUIRE_E_BUSY         the engine is capturing the stream, or one that it waits for:
 *                               create the queue before or after the capture.
 *          QUIRE_E_UNSUPPORTED  the backend or its driver has no such streams: HIP has stream 1
 *                               since ROCm 6.3.
 * Ownership  The engine owns the stream and keeps it alive until quire_device_close has returned,
 *            which waits until the stream is idle. If the engine is capturing it, the call waits
 *            for the work enqueued before the capture, and does not disturb the capture.
 * Time     O(1), and the time of the device's driver. */
QUIRE_EXPORT quire_status quire_queue_create(quire_device *device, const quire_native *native,
                                             quire_queue **out, quire_error *error);
/* Destroys a queue without waiting: enqueued work still runs.
 * Errors   QUIRE_E_BUSY  a step that is not done uses it. A step becomes done when a later call on
 *                        its cache notices that its work has run (step.h).
 * Time     O(1), and the time of the device's driver. */
QUIRE_EXPORT quire_status quire_queue_destroy(quire_queue *queue, quire_error *error);
/* Waits until all enqueued work has run.
 * Errors   QUIRE_E_DEVICE_LOST  the device failed; or work on the queue failed, for example with an
 *                               index outside a pool. The next call on the queue says which. If
 *                               only the work failed, the device still works: create another queue.
 * Time     O(1), and the wait. */
QUIRE_EXPORT quire_status quire_queue_sync(quire_queue *queue, quire_error *error);

/* A fence is a 64-bit value that only grows. QUIRE_FENCE_FAILED: work before the fence failed. */
#define QUIRE_FENCE_FAILED 0xFFFFFFFFFFFFFFFFull

/* Time     O(1), and the time of the driver. */
QUIRE_EXPORT quire_status quire_fence_create(quire_device *device, uint64_t value,
                                             quire_fence **out, quire_error *error);
/* Time     O(1), and the time of the driver. */
QUIRE_EXPORT quire_status quire_fence_destroy(quire_fence *fence, quire_error *error);
/* Time     O(1). */
QUIRE_EXPORT quire_status quire_fence_read(quire_fence *fence, uint64_t *value, quire_error *error);
/* Sets the value from the host.
 * Errors   QUIRE_E_ARG  it would not grow.
 * Time     O(1). */
QUIRE_EXPORT quire_status quire_fence_signal(quire_fence *fence, uint64_t value,
                                             quire_error *error);
/* Waits until the fence has reached the value.
 * Returns  QUIRE_S_TIMEOUT  it had not after timeout_ns.
 * Time     O(1), and the wait. */
QUIRE_EXPORT quire_status quire_fence_wait(quire_fence *fence, uint64_t value, uint64_t timeout_ns,
                                           quire_error *error);
/* Enqueues a signal: the fence is set to `value` when all earlier work on the queue has run.
 * Time     O(1). */
QUIRE_EXPORT quire_status quire_queue_signal(quire_queue *queue, quire_fence *fence, uint64_t value,
                                             quire_error *error);
/* Enqueues a wait: later work on the queue runs after the fence has reached `value`.
 * Errors   QUIRE_E_BUSY  the queue is bound to the engine's own stream, and no signal of that value
 *                        has been made on the host, or enqueued in work that will run without
 *                        further calls: signal first. The library could not hold back what the
 *                        engine enqueues meanwhile.
 * Time     O(1). */
QUIRE_EXPORT quire_status quire_queue_after(quire_queue *queue, quire_fence *fence, uint64_t value,
                                            quire_error *error);

/* Enqueues a signal of the engine's own semaphore: it is signalled when all earlier work on the
 * queue has run.
 *
 * native   QUIRE_NATIVE_VULKAN_SEMAPHORE: the value must be above the semaphore's current one and
 *          above every value still to be signalled. QUIRE_NATIVE_CUDA_EVENT,
 *          QUIRE_NATIVE_HIP_EVENT: the event is recorded.
 * Errors   QUIRE_E_UNSUPPORTED  the backend has no such semaphores.
 *          QUIRE_E_BUSY         the queue waits for a fence without a pending signal, from the host
 *                               or from running work: signal it first. So the signal is submitted
 *                               when the call returns.
 *          QUIRE_E_DEVICE_LOST  the queue has stopped. If it stops later, the semaphore may or may
 *                               not be signalled: quire_queue_sync reports the failure in both
 *                               cases.
 * Ownership  The engine owns the semaphore and keeps it alive until the queue's work up to the
 *            signal has run, which a later fence signal on the queue shows, or quire_queue_sync.
 * Time     O(1). */
QUIRE_EXPORT quire_status quire_queue_signal_native(quire_queue *queue, const quire_native *native,
                                                    quire_error *error);
/* Enqueues a wait: later work on the queue runs after the engine's own semaphore was signalled. The
 * device performs the wait, which also holds up everything else submitted to the same queue of the
 * device (vulkan.h). So the signal must have been submitted before, or come from the host, or from
 * a queue that does not wait for any of this.
 * For a CUDA or HIP event the wait is for its latest recording at the time of the call.
 * Errors and ownership as above; QUIRE_E_BUSY only with an event.
 * Time     O(1). */
QUIRE_EXPORT quire_status quire_queue_after_native(quire_queue *queue, const quire_native *native,
                                                   quire_error *error);

#ifdef __cplusplus
}
#endif
#endif /* QUIRE_QUEUE_H */
