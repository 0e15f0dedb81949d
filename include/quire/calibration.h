/* SPDX-License-Identifier: Apache-2.0
 *
 * calibration: where the scales of QUIRE_SCALE_TENSOR and QUIRE_SCALE_HEAD come from.
 *
 * A code of K or V is value / scale, so a scale that all tokens share must be known before the
 * first of them is written. It is measured: a cache of f32, f16 or bf16 that is created with
 * QUIRE_CACHE_CALIBRATE records, while it serves typical text, the largest magnitude of K and of V
 * for each layer and KV head. The calibration is those numbers, as bytes that the caller stores in
 * a file; quire_cache_desc.calibration passes them to a cache of codes:
 *
 *   measure   quire_cache_create(CALIBRATE); serve; quire_cache_save_calibration_wait; write a file
 *   merge     quire_calibration_merge: of several runs, or of the ranks of one
 *   use       read the file; quire_cache_create(calibration = its bytes)
 *
 * A calibration is of a model, not of a cache: it has all layers and all KV heads, whatever shards
 * the run had. docs/calibration.md describes the format. A calibration need not be trusted to be
 * read: damaged or foreign bytes are refused.
 */
#ifndef QUIRE_CALIBRATION_H
#define QUIRE_CALIBRATION_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Writes what the cache has measured since it was created. Waits until the finished steps have run;
 * other calls on the cache continue to work during the wait, and its queues must not be destroyed.
 * Values that a failed step wrote count too, and quire_cache_reset forgets no measurement. The
 * number of a layer and head that no shard of this cache holds is 0, which means: never written.
 * Each rank, leader or follower (log.h), saves what it holds, and quire_calibration_merge combines
 * them.
 *
 * size_bytes  receives the size of the calibration. buffer may be NULL if capacity is 0.
 * Returns  QUIRE_S_INCOMPLETE   capacity is too short; nothing was written or waited for.
 *          QUIRE_S_TIMEOUT      steps still run after timeout_ns; nothing was written. UINT64_MAX
 *                               waits forever.
 * Errors   QUIRE_E_ARG          a NaN or an infinity was written as K or V; the message names the
 *                               first layer and KV head. This cache can never save a calibration:
 *                               start a new run.
 *          QUIRE_E_BUSY         a step is committed and not finished; or one failed and a queue of
 *                               it accepts no fence.
 *          QUIRE_E_UNSUPPORTED  the cache was created without QUIRE_CACHE_CALIBRATE.
 * Time     O(numbers of the calibration), and the wait. */
QUIRE_EXPORT quire_status quire_cache_save_calibration_wait(quire_cache *cache, void *buffer,
                                                            uint64_t capacity, uint64_t *size_bytes,
                                                            uint64_t timeout_ns,
                                                            quire_error *error);

/* Writes, for each number, the larger of a's and b's. Both must have the same shape, which is also
 * that of the result.
 *
 * a, b, out   of any alignment. out may be a or b itself, but must not overlap them otherwise.
 * size_bytes  receives the size of the result. out may be NULL if capacity is 0.
 * Returns  QUIRE_S_INCOMPLETE    capacity is too short; nothing was written.
 * Errors   QUIRE_E_ARG           a or b is damaged, or they are of different models.
 *          QUIRE_E_INCOMPATIBLE  a or b has another version.
 * Threads  any; nothing is kept.
 * Time     O(a_bytes). */
QUIRE_EXPORT quire_status quire_calibration_merge(const void *a, uint64_t a_bytes, const void *b,
                                                  uint64_t b_bytes, void *out, uint64_t capacity,
                                                  uint64_t *size_bytes, quire_error *error);

typedef struct quire_calibration_info {
    uint32_t struct_size;
    uint32_t flags;
    const quire_chain *next;
    uint32_t version;
    uint32_t layer_count;  /* of the model */
    uint32_t max_kv_heads; /* of the layer that has the most */
    uint32_t unwritten;    /* numbers that are 0, over all layers: they cannot become scales */
} quire_calibration_info;

typedef struct quire_calibration_layer {
    uint32_t struct_size;
    uint32_t flags;
    const quire_chain *next;
    uint32_t kv_heads;
    uint32_t k_head_dim;
    uint32_t v_head_dim;
    uint32_t reserved0;
} quire_calibration_layer;

/* Checks a calibration and describes it. Errors as quire_calibration_merge.
 * Time     O(size_bytes). */
QUIRE_EXPORT quire_status quire_calibration_get_info(const void *bytes, uint64_t size_bytes,
                                                     quire_calibration_info *info,
                                                     quire_error *error);

/* Reads one layer's shape and its numbers: amax [2][kv_heads], K's before V's. In a latent layer
 * V's number is K's, because both are in one row.
 *
 * capacity  how many numbers amax has room for. amax may be NULL if it is 0.
 * Returns  QUIRE_S_INCOMPLETE  capacity is below 2 * kv_heads: only the shape was written.
 * Errors   QUIRE_E_ARG         no such layer; otherwise as quire_calibration_merge.
 * Time     O(size_bytes). */
QUIRE_EXPORT quire_status quire_calibration_get_layer(const void *bytes, uint64_t size_bytes,
                                                      uint32_t layer, quire_calibration_layer *info,
                                                      float *amax, uint32_t capacity,
                                                      quire_error *error);

#ifdef __cplusplus
}
#endif
#endif /* QUIRE_CALIBRATION_H */
