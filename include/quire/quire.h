/* SPDX-License-Identifier: Apache-2.0
 *
 * quire: a vendor-neutral paged KV cache for LLM inference. Start here; it includes everything.
 *
 *   base.h       status codes, errors, the rules for structs
 *   device.h     instance -> backends -> device -> queue, fence, memory
 *   cache.h      cache, namespaces, sequences, statistics
 *   step.h       begin / add / commit / finish, and batches with their table views
 *   attention.h  kv_write and attend on a committed batch
 *   log.h        one cache over several processes: a leader and its followers
 *   migrate.h    moving a live cache to other devices
 *   calibration.h  scales of quantised K and V, measured
 *   abandon.h    the way out when a device answers no more
 *   size.h       what a deployment will hold, from numbers alone
 *   vulkan.h     an engine's own VkDevice, VkQueue and VkSemaphore; not included here
 *   api.h        the table of all functions;  dyn.h loads it with dlopen
 *
 * One iteration of an engine:
 *
 *   quire_step_begin(cache, &desc, items, n, ...);    which sequences run, and from which position
 *   quire_step_commit(cache, step, batch, ...);       tables are in the batch, copies are enqueued
 *   for each layer: quire_kv_write(...); quire_attend(...);
 *   quire_step_finish(cache, step, NULL, QUIRE_STEP_OK, ...);
 *
 * What a call costs: the line "Time" of each function says how the time that it takes on the
 * calling thread grows, but for waiting for the cache's lock and for what the host's allocator and
 * the driver take. It is amortised where memory grows, and expected where hashes decide. What is
 * not named does not count: neither how many sequences live nor how many blocks are cached. A block
 * there stands for its tokens, for its entries in the tables of all groups, and for the spans of
 * keys over it.
 */
#ifndef QUIRE_H
#define QUIRE_H

#include "abandon.h"
#include "api.h"
#include "attention.h"
#include "base.h"
#include "cache.h"
#include "calibration.h"
#include "device.h"
#include "log.h"
#include "migrate.h"
#include "size.h"
#include "step.h"

#endif /* QUIRE_H */
