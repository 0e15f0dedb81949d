/* SPDX-License-Identifier: Apache-2.0
 *
 * api: every function as one list, and the table that quire_get_api returns.
 *
 * A program that opens libquire with dlopen resolves one symbol, quire_get_api; dyn.h does it. The
 * list is append-only within a major version: the table of a later minor version begins with that
 * of an earlier one. The other headers document the functions, at their declarations.
 */
#ifndef QUIRE_API_H
#define QUIRE_API_H

#include "abandon.h"
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

#ifdef __cplusplus
extern "C" {
#endif

/* QUIRE_FN(name, (parameters)): all return quire_status. */
#define QUIRE_API_LIST(QUIRE_FN)                                                                   \
    QUIRE_FN(instance_create,                                                                      \
             (const quire_instance_desc *desc, quire_instance **out, quire_error *error))          \
    QUIRE_FN(instance_destroy, (quire_instance * instance, quire_error * error))                   \
    QUIRE_FN(backend_count, (quire_instance * instance, uint32_t *count, quire_error *error))      \
    QUIRE_FN(backend_get_info, (quire_instance * instance, uint32_t index,                         \
                                quire_backend_info *info, quire_error *error))                     \
    QUIRE_FN(backend_load,                                                                         \
             (quire_instance * instance, const char *path, uint32_t *index, quire_error *error))   \
    QUIRE_FN(device_open, (quire_instance * instance, const quire_device_desc *desc,               \
                           quire_device **out, quire_error *error))                                \
    QUIRE_FN(device_close, (quire_device * device, quire_error * error))                           \
    QUIRE_FN(device_get_info,                                                                      \
             (quire_device * device, quire_device_info * info, quire_error * error))               \
    QUIRE_FN(queue_create, (quire_device * device, const quire_native *native, quire_queue **out,  \
                            quire_error *error))                                                   \
    QUIRE_FN(queue_destroy, (quire_queue * queue, quire_error * error))                            \
    QUIRE_FN(queue_sync, (quire_queue * queue, quire_error * error))                               \
    QUIRE_FN(fence_create,                                                                         \
             (quire_device * device, uint64_t value, quire_fence **out, quire_error *error))       \
    QUIRE_FN(fence_destroy, (quire_fence * fence, quire_error * error))                            \
    QUIRE_FN(fence_read, (quire_fence * fence, uint64_t *value, quire_error *error))               \
    QUIRE_FN(fence_signal, (quire_fence * fence, uint64_t value, quire_error *error))              \
    QUIRE_FN(fence_wait,                                                                           \
             (quire_fence * fence, uint64_t value, uint64_t timeout_ns, quire_error *error))       \
    QUIRE_FN(queue_signal,                                                                         \
             (quire_queue * queue, quire_fence * fence, uint64_t value, quire_error *error))       \
    QUIRE_FN(queue_after,                                                                          \
             (quire_queue * queue, quire_fence * fence, uint64_t value, quire_error *error))       \
    QUIRE_FN(memory_create, (quire_device * device, const quire_memory_desc *desc,                 \
                             quire_memory **out, quire_error *error))                              \
    QUIRE_FN(memory_destroy, (quire_memory * memory, quire_error * error))                         \
    QUIRE_FN(memory_get_info,                                                                      \
             (quire_memory * memory, quire_memory_info * info, quire_error * error))               \
    QUIRE_FN(memory_copy,                                                                          \
             (quire_queue * queue, quire_memory * dst, uint64_t dst_offset, quire_memory *src,     \
              uint64_t src_offset, uint64_t size_bytes, quire_error *error))                       \
    QUIRE_FN(cache_create, (quire_instance * instance, const quire_cache_desc *desc,               \
                            quire_cache **out, quire_error *error))                                \
    QUIRE_FN(cache_destroy, (quire_cache * cache, quire_error * error))                            \
    QUIRE_FN(cache_get_info, (quire_cache * cache, quire_cache_info * info, quire_error * error))  \
    QUIRE_FN(cache_get_pool, (quire_cache * cache, uint32_t group, uint32_t shard,                 \
                              quire_pool_info *info, quire_error *error))                          \
    QUIRE_FN(cache_get_stats,                                                                      \
             (quire_cache * cache, quire_cache_stats * stats, quire_error * error))                \
    QUIRE_FN(cache_reset, (quire_cache * cache, quire_error * error))                              \
    QUIRE_FN(cache_check, (quire_cache * cache, quire_error * error))                              \
    QUIRE_FN(namespace_create, (quire_cache * cache, const quire_namespace_desc *desc,             \
                                quire_namespace *out, quire_error *error))                         \
    QUIRE_FN(namespace_destroy, (quire_cache * cache, quire_namespace ns, quire_error * error))    \
    QUIRE_FN(namespace_get_info, (quire_cache * cache, quire_namespace ns,                         \
                                  quire_namespace_info * info, quire_error * error))               \
    QUIRE_FN(seq_create, (quire_cache * cache, const quire_seq_desc *desc, quire_seq *out,         \
                          quire_error *error))                                                     \
    QUIRE_FN(seq_end, (quire_cache * cache, quire_seq seq, uint32_t flags, quire_error *error))    \
    QUIRE_FN(seq_fork, (quire_cache * cache, quire_seq seq, uint32_t token_count, quire_seq *out,  \
                        quire_error *error))                                                       \
    QUIRE_FN(seq_truncate,                                                                         \
             (quire_cache * cache, quire_seq seq, uint32_t token_count, quire_error *error))       \
    QUIRE_FN(seq_accept, (quire_cache * cache, quire_seq seq, uint32_t count, quire_error *error)) \
    QUIRE_FN(seq_set_tokens,                                                                       \
             (quire_cache * cache, const quire_token_span *spans, uint32_t span_count,             \
              uint32_t span_stride, const quire_token *tokens, uint32_t token_count,               \
              quire_error *error))                                                                 \
    QUIRE_FN(seq_get_info,                                                                         \
             (quire_cache * cache, quire_seq seq, quire_seq_info * info, quire_error * error))     \
    QUIRE_FN(prefix_probe, (quire_cache * cache, quire_seq seq, const quire_token *tokens,         \
                            uint32_t token_count, uint32_t *hit_tokens, quire_error *error))       \
    QUIRE_FN(step_begin,                                                                           \
             (quire_cache * cache, const quire_step_desc *desc, const quire_step_item *items,      \
              uint32_t item_count, uint32_t item_stride, const quire_token *tokens,                \
              uint32_t token_count, quire_step_result *results, uint32_t result_stride,            \
              quire_step *out, quire_error *error))                                                \
    QUIRE_FN(step_add, (quire_cache * cache, quire_step step, const quire_step_item *items,        \
                        uint32_t item_count, uint32_t item_stride, const quire_token *tokens,      \
                        uint32_t token_count, quire_step_result *results, uint32_t result_stride,  \
                        quire_error *error))                                                       \
    QUIRE_FN(step_drop, (quire_cache * cache, quire_step step, quire_seq seq, quire_seq * dropped, \
                         uint32_t capacity, uint32_t *count, quire_error *error))                  \
    QUIRE_FN(step_preempt, (quire_cache * cache, quire_step step, quire_seq seq, uint32_t how,     \
                            uint32_t *freed_blocks, quire_error *error))                           \
    QUIRE_FN(step_preempted,                                                                       \
             (quire_cache * cache, quire_step step, quire_preemption * out, uint32_t capacity,     \
              uint32_t stride, uint32_t *count, quire_error *error))                               \
    QUIRE_FN(step_abort, (quire_cache * cache, quire_step step, quire_error * error))              \
    QUIRE_FN(step_commit,                                                                          \
             (quire_cache * cache, quire_step step, quire_batch * batch, quire_error * error))     \
    QUIRE_FN(step_finish, (quire_cache * cache, quire_step step, const quire_native *signal,       \
                           uint32_t outcome, quire_error *error))                                  \
    QUIRE_FN(step_blocks,                                                                          \
             (quire_cache * cache, quire_step step, quire_seq seq, uint32_t group, uint32_t first, \
              int32_t *ids, uint32_t capacity, uint32_t *count, quire_error *error))               \
    QUIRE_FN(step_copies,                                                                          \
             (quire_cache * cache, quire_step step, quire_block_copy * out, uint32_t capacity,     \
              uint32_t stride, uint32_t *count, quire_error *error))                               \
    QUIRE_FN(batch_create, (quire_cache * cache, const quire_batch_desc *desc, quire_batch **out,  \
                            quire_error *error))                                                   \
    QUIRE_FN(batch_destroy, (quire_batch * batch, quire_error * error))                            \
    QUIRE_FN(batch_get_views, (quire_batch * batch, uint32_t group, uint32_t shard,                \
                               quire_batch_views *views, quire_error *error))                      \
    QUIRE_FN(kv_write, (quire_batch * batch, const quire_kv_args *args, quire_queue *queue,        \
                        quire_error *error))                                                       \
    QUIRE_FN(attend, (quire_batch * batch, const quire_attend_args *args, quire_queue *queue,      \
                      quire_error *error))                                                         \
    QUIRE_FN(size_estimate,                                                                        \
             (const quire_size_desc *desc, quire_size_info *info, quire_error *error))             \
    QUIRE_FN(seq_accept_path, (quire_cache * cache, quire_seq seq, const uint32_t *path,           \
                               uint32_t count, quire_error *error))                                \
    QUIRE_FN(attention_merge,                                                                      \
             (quire_queue * queue, const quire_merge_args *args, quire_error *error))              \
    QUIRE_FN(step_log, (quire_cache * cache, quire_step step, void *buffer, uint64_t capacity,     \
                        uint64_t *size_bytes, quire_error *error))                                 \
    QUIRE_FN(log_apply, (quire_cache * cache, const void *bytes, uint64_t size_bytes,              \
                         const quire_step_desc *desc, quire_batch *batch, quire_step *out,         \
                         quire_error *error))                                                      \
    QUIRE_FN(cache_save_calibration_wait,                                                          \
             (quire_cache * cache, void *buffer, uint64_t capacity, uint64_t *size_bytes,          \
              uint64_t timeout_ns, quire_error *error))                                            \
    QUIRE_FN(calibration_merge,                                                                    \
             (const void *a, uint64_t a_bytes, const void *b, uint64_t b_bytes, void *out,         \
              uint64_t capacity, uint64_t *size_bytes, quire_error *error))                        \
    QUIRE_FN(calibration_get_info, (const void *bytes, uint64_t size_bytes,                        \
                                    quire_calibration_info *info, quire_error *error))             \
    QUIRE_FN(calibration_get_layer,                                                                \
             (const void *bytes, uint64_t size_bytes, uint32_t layer,                              \
              quire_calibration_layer *info, float *amax, uint32_t capacity, quire_error *error))  \
    QUIRE_FN(cache_migrate, (quire_cache * cache, const quire_migrate_desc *desc,                  \
                             quire_migrate_info *info, quire_error *error))                        \
    QUIRE_FN(cache_migrate_wait,                                                                   \
             (quire_cache * cache, const quire_migrate_desc *desc, quire_migrate_info *info,       \
              uint64_t timeout_ns, quire_error *error))                                            \
    QUIRE_FN(queue_signal_native,                                                                  \
             (quire_queue * queue, const quire_native *native, quire_error *error))                \
    QUIRE_FN(queue_after_native,                                                                   \
             (quire_queue * queue, const quire_native *native, quire_error *error))                \
    QUIRE_FN(cache_dump, (quire_cache * cache, uint32_t flags, void *buffer, uint64_t capacity,    \
                          uint64_t *size_bytes, quire_error *error))                               \
    QUIRE_FN(cache_abandon, (quire_cache * cache, quire_abandon_info * info, quire_error * error)) \
    QUIRE_FN(queue_abandon, (quire_queue * queue, quire_error * error))                            \
    QUIRE_FN(device_abandon,                                                                       \
             (quire_device * device, quire_abandon_info * info, quire_error * error))              \
    QUIRE_FN(cache_events, (quire_cache * cache, uint32_t flags, quire_cache_event *events,        \
                            uint32_t capacity, uint32_t stride, quire_token *tokens,               \
                            uint32_t token_capacity, quire_events_info *info, quire_error *error)) \
    QUIRE_FN(seq_export_wait, (quire_cache * cache, quire_seq seq, const quire_export_desc *desc,  \
                               quire_session_info *info, uint64_t timeout_ns, quire_error *error)) \
    QUIRE_FN(seq_import, (quire_cache * cache, const quire_import_desc *desc, quire_seq *out,      \
                          quire_session_info *info, quire_error *error))                           \
    QUIRE_FN(seq_save_wait,                                                                        \
             (quire_cache * cache, quire_seq seq, const quire_export_desc *desc, const char *path, \
              quire_session_info *info, uint64_t timeout_ns, quire_error *error))                  \
    QUIRE_FN(seq_restore, (quire_cache * cache, const quire_import_desc *desc, const char *path,   \
                           quire_seq *out, quire_session_info *info, quire_error *error))          \
    QUIRE_FN(tier_open, (quire_instance * instance, const quire_tier_desc *desc, quire_tier **out, \
                         quire_error *error))                                                      \
    QUIRE_FN(tier_close_wait, (quire_tier * tier, uint64_t timeout_ns, quire_error *error))        \
    QUIRE_FN(tier_get_info, (quire_tier * tier, quire_store_info * info, quire_error * error))     \
    QUIRE_FN(tier_get_stats, (quire_tier * tier, quire_store_stats * stats, quire_error * error))  \
    QUIRE_FN(tier_list, (quire_tier * tier, uint64_t *cursor, quire_store_record *records,         \
                         uint32_t capacity, uint32_t stride, uint32_t *count, quire_error *error)) \
    QUIRE_FN(tier_request_wait,                                                                    \
             (quire_tier * tier, const quire_store_request *request, quire_store_answer *answer,   \
              uint64_t timeout_ns, quire_error *error))                                            \
    QUIRE_FN(cache_attach_tier, (quire_cache * cache, quire_tier * tier,                           \
                                 const quire_cache_tier_desc *desc, quire_error *error))           \
    QUIRE_FN(cache_detach_tier_wait,                                                               \
             (quire_cache * cache, uint64_t timeout_ns, quire_error *error))                       \
    QUIRE_FN(cache_poll_tier,                                                                      \
             (quire_cache * cache, quire_cache_tier_progress * progress, quire_error * error))     \
    QUIRE_FN(cache_load_wait, (quire_cache * cache, uint64_t timeout_ns,                           \
                               quire_cache_tier_progress *progress, quire_error *error))           \
    QUIRE_FN(cache_cancel_load, (quire_cache * cache, quire_seq seq, quire_error * error))         \
    QUIRE_FN(cache_get_tier_stats,                                                                 \
             (quire_cache * cache, quire_cache_tier_stats * stats, quire_error * error))           \
    QUIRE_FN(lease_create, (quire_cache * cache, const quire_lease_desc *desc, quire_lease *out,   \
                            quire_error *error))                                                   \
    QUIRE_FN(lease_end, (quire_cache * cache, quire_lease lease, quire_error * error))             \
    QUIRE_FN(lease_get_info, (quire_cache * cache, quire_lease lease, quire_lease_info * info,     \
                              quire_error * error))                                                \
    QUIRE_FN(lease_blocks, (quire_cache * cache, quire_lease lease, uint32_t group,                \
                            uint32_t first, quire_lease_block *out, uint32_t capacity,             \
                            uint32_t stride, uint32_t *count, quire_error *error))                 \
    QUIRE_FN(lease_take,                                                                           \
             (quire_cache * cache, quire_step step, quire_lease lease, uint32_t group,             \
              uint32_t count, int32_t *ids, quire_lease_result *result, quire_error *error))       \
    QUIRE_FN(lease_give, (quire_cache * cache, quire_step step, quire_lease lease, uint32_t group, \
                          const int32_t *ids, uint32_t count, quire_error *error))                 \
    QUIRE_FN(lease_pin,                                                                            \
             (quire_cache * cache, quire_step step, quire_lease lease, uint32_t group,             \
              const int32_t *ids, uint32_t count, quire_lease_result *result, quire_error *error)) \
    QUIRE_FN(lease_match, (quire_cache * cache, quire_step step, quire_lease lease,                \
                           const quire_token *tokens, uint32_t token_count, uint32_t how,          \
                           int32_t *ids, quire_lease_result *result, quire_error *error))          \
    QUIRE_FN(lease_publish, (quire_cache * cache, quire_step step, quire_lease lease,              \
                             const quire_token *tokens, uint32_t token_count, const int32_t *ids,  \
                             int32_t *named, quire_lease_result *result, quire_error *error))      \
    QUIRE_FN(lease_forget,                                                                         \
             (quire_cache * cache, quire_lease lease, uint32_t group, const int32_t *ids,          \
              uint32_t count, uint32_t *forgotten, quire_error *error))                            \
    QUIRE_FN(cache_evict, (quire_cache * cache, uint32_t group, uint32_t count, int32_t *ids,      \
                           uint32_t *evicted, quire_error *error))                                 \
    QUIRE_FN(handover_send,                                                                        \
             (quire_cache * cache, quire_seq seq, const quire_handover_send_desc *desc,            \
              quire_handover *out, quire_error *error))                                            \
    QUIRE_FN(handover_layers, (quire_cache * cache, quire_handover handover, quire_step step,      \
                               uint32_t first_layer, uint32_t layer_count, quire_error *error))    \
    QUIRE_FN(handover_read,                                                                        \
             (quire_cache * cache, quire_handover handover, void *buffer, uint64_t capacity,       \
              uint64_t *size_bytes, quire_handover_progress *progress, quire_error *error))        \
    QUIRE_FN(handover_receive, (quire_cache * cache, const quire_handover_receive_desc *desc,      \
                                quire_handover *out, quire_error *error))                          \
    QUIRE_FN(handover_write, (quire_cache * cache, quire_handover handover, const void *bytes,     \
                              uint64_t size_bytes, uint64_t *used,                                 \
                              quire_handover_progress *progress, quire_error *error))              \
    QUIRE_FN(handover_end, (quire_cache * cache, quire_handover handover, quire_error * error))    \
    QUIRE_FN(cache_report_loads, (quire_cache * cache, void *buffer, uint64_t capacity,            \
                                  uint64_t *size_bytes, quire_error *error))                       \
    QUIRE_FN(cache_take_report,                                                                    \
             (quire_cache * cache, const void *bytes, uint64_t size_bytes, quire_error *error))    \
    QUIRE_FN(lease_find,                                                                           \
             (quire_cache * cache, quire_lease lease, const int64_t *tokens, uint32_t token_count, \
              uint32_t how, int32_t *ids, quire_lease_result *result, quire_error *error))         \
    QUIRE_FN(lease_insert, (quire_cache * cache, quire_lease lease, const int64_t *tokens,         \
                            const int64_t *slots, uint32_t token_count, int32_t *named,            \
                            quire_lease_result *result, quire_error *error))

typedef struct quire_api {
    uint32_t struct_size; /* bytes of the table that the library filled */
    uint32_t major;
    uint32_t minor;
    uint32_t reserved0;
#define QUIRE_API_SLOT(name, parameters) quire_status(*name) parameters;
    QUIRE_API_LIST(QUIRE_API_SLOT)
#undef QUIRE_API_SLOT
} quire_api;

/* Returns the table of a major version, of at least the given minor version. The table is constant
 * memory of the library.
 * Errors   QUIRE_E_INCOMPATIBLE  the library has another major version, or is older; the message
 *                                names both versions.
 * Time     O(1). */
QUIRE_EXPORT quire_status quire_get_api(uint32_t major, uint32_t min_minor, const quire_api **out,
                                        quire_error *error);
typedef quire_status (*quire_get_api_fn)(uint32_t major, uint32_t min_minor, const quire_api **out,
                                         quire_error *error);

/* Returns the name of a status, such as "QUIRE_E_STALE", or "unknown status" for an unknown one.
 * Time     O(1). */
QUIRE_EXPORT const char *quire_status_name(quire_status status);

#ifdef __cplusplus
}
#endif
#endif /* QUIRE_API_H */
