/* SPDX-License-Identifier: Apache-2.0
 *
 * quire: a vendor-neutral paged KV cache for LLM inference. Start here; it includes everything.
 *
 *   base.h       status codes, errors, the rules for structs
 *   device.h     instance, backends, device, memory
 *   queue.h      queues, fences, an engine's own streams and semaphores
 *   cache.h      cache, pools, statistics, namespaces
 *   sequence.h   sequences: create, fork, truncate, accept drafts, name tokens, end
 *   session.h    a sequence as bytes or a file, and back
 *   handover.h   a sequence on its way to another cache while it is computed
 *   step.h       begin / add / commit / finish
 *   lease.h      blocks held by something that is not a sequence
 *   batch.h      the tables of a step in the layouts that kernels read; graphs
 *   attention.h  kv_write and attend on a committed batch
 *   tier.h       stores below the device, on disk or on other machines
 *   cache_tier.h a store below a cache's prefixes
 *   events.h     what the prefix cache can find, for routers and stores
 *   log.h        one cache over several processes: a leader and its followers
 *   migrate.h    moving a live cache to other devices
 *   calibration.h  measuring the scales of quantised K and V
 *   abandon.h    giving up a device that no longer answers
 *   size.h       what a deployment will hold, from numbers alone
 *   vulkan.h     an engine's own VkDevice, VkQueue and VkSemaphore; not included here
 *   api.h        the table of all functions; dyn.h loads it with dlopen
 *
 * docs/guide.md is a guide for the author of an engine. One iteration of an engine:
 *
 *   quire_step_begin(cache, &desc, items, n, ...);    says which sequences run, and from where
 *   quire_step_commit(cache, step, batch, ...);       writes the tables, enqueues the copies
 *   for each layer: quire_kv_write(...); quire_attend(...);
 *   quire_step_finish(cache, step, NULL, QUIRE_STEP_OK, ...);
 *
 * Cost: the line "Time" of each function says how its time on the calling thread grows, not
 * counting waits for the cache's lock and the time of the host allocator and the driver. The time
 * is amortised where memory grows, and expected where hashes are involved. Quantities that are not
 * named do not matter: neither the number of live sequences nor the number of cached blocks. "A
 * block" there includes its tokens, its entries in the tables of all groups, and the spans of keys
 * over it.
 */
#ifndef QUIRE_H
#define QUIRE_H

#include "abandon.h"
#include "api.h"
#include "attention.h"
#include "base.h"
#include "batch.h"
#include "cache.h"
#include "cache_tier.h"
#include "calibration.h"
#include "device.h"
#include "events.h"
#include "handover.h"
#include "lease.h"
#include "log.h"
#include "migrate.h"
#include "queue.h"
#include "sequence.h"
#include "session.h"
#include "size.h"
#include "step.h"
#include "tier.h"

#endif /* QUIRE_H */
