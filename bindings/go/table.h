/* SPDX-License-Identifier: Apache-2.0
 *
 * table: the functions of the library's table as C functions, because cgo cannot call through a
 * function pointer. The table is open before any of them is called. */
#ifndef QUIRE_GO_TABLE_H
#define QUIRE_GO_TABLE_H

#include <quire/dyn.h>

/* Go's build cache looks at the files of this folder only: a header with another table must change
 * one of them. */
_Static_assert(sizeof(quire_api) == 16 + 110 * sizeof(void *), "count the functions of api.h anew");

extern const quire_api *quire_go_table;

#define QUIRE_GO_CALL(name, parameters, arguments) \
    static inline quire_status q_##name parameters { return quire_go_table->name arguments; }

QUIRE_GO_CALL(instance_create,
              (const quire_instance_desc *desc, quire_instance **out, quire_error *e),
              (desc, out, e))
QUIRE_GO_CALL(instance_destroy, (quire_instance * instance, quire_error *e), (instance, e))
QUIRE_GO_CALL(backend_count, (quire_instance * instance, uint32_t *count, quire_error *e),
              (instance, count, e))
QUIRE_GO_CALL(backend_get_info,
              (quire_instance * instance, uint32_t i, quire_backend_info *info, quire_error *e),
              (instance, i, info, e))
QUIRE_GO_CALL(backend_load,
              (quire_instance * instance, const char *path, uint32_t *i, quire_error *e),
              (instance, path, i, e))
QUIRE_GO_CALL(device_open,
              (quire_instance * instance, const quire_device_desc *desc, quire_device **out,
               quire_error *e),
              (instance, desc, out, e))
QUIRE_GO_CALL(device_close, (quire_device * device, quire_error *e), (device, e))
QUIRE_GO_CALL(device_get_info, (quire_device * device, quire_device_info *info, quire_error *e),
              (device, info, e))
QUIRE_GO_CALL(device_abandon, (quire_device * device, quire_abandon_info *info, quire_error *e),
              (device, info, e))
QUIRE_GO_CALL(queue_create,
              (quire_device * device, const quire_native *native, quire_queue **out,
               quire_error *e),
              (device, native, out, e))
QUIRE_GO_CALL(queue_abandon, (quire_queue * queue, quire_error *e), (queue, e))
QUIRE_GO_CALL(queue_signal_native,
              (quire_queue * queue, const quire_native *native, quire_error *e), (queue, native, e))
QUIRE_GO_CALL(queue_after_native, (quire_queue * queue, const quire_native *native, quire_error *e),
              (queue, native, e))
QUIRE_GO_CALL(queue_destroy, (quire_queue * queue, quire_error *e), (queue, e))
QUIRE_GO_CALL(queue_sync, (quire_queue * queue, quire_error *e), (queue, e))
QUIRE_GO_CALL(queue_signal,
              (quire_queue * queue, quire_fence *fence, uint64_t value, quire_error *e),
              (queue, fence, value, e))
QUIRE_GO_CALL(queue_after,
              (quire_queue * queue, quire_fence *fence, uint64_t value, quire_error *e),
              (queue, fence, value, e))
QUIRE_GO_CALL(fence_create,
              (quire_device * device, uint64_t value, quire_fence **out, quire_error *e),
              (device, value, out, e))
QUIRE_GO_CALL(fence_destroy, (quire_fence * fence, quire_error *e), (fence, e))
QUIRE_GO_CALL(fence_read, (quire_fence * fence, uint64_t *value, quire_error *e), (fence, value, e))
QUIRE_GO_CALL(fence_signal, (quire_fence * fence, uint64_t value, quire_error *e),
              (fence, value, e))
QUIRE_GO_CALL(fence_wait,
              (quire_fence * fence, uint64_t value, uint64_t timeout_ns, quire_error *e),
              (fence, value, timeout_ns, e))
QUIRE_GO_CALL(memory_create,
              (quire_device * device, const quire_memory_desc *desc, quire_memory **out,
               quire_error *e),
              (device, desc, out, e))
QUIRE_GO_CALL(memory_destroy, (quire_memory * memory, quire_error *e), (memory, e))
QUIRE_GO_CALL(memory_get_info, (quire_memory * memory, quire_memory_info *info, quire_error *e),
              (memory, info, e))
QUIRE_GO_CALL(memory_copy,
              (quire_queue * queue, quire_memory *dst, uint64_t dst_offset, quire_memory *src,
               uint64_t src_offset, uint64_t size, quire_error *e),
              (queue, dst, dst_offset, src, src_offset, size, e))
QUIRE_GO_CALL(cache_create,
              (quire_instance * instance, const quire_cache_desc *desc, quire_cache **out,
               quire_error *e),
              (instance, desc, out, e))
QUIRE_GO_CALL(cache_abandon, (quire_cache * cache, quire_abandon_info *info, quire_error *e),
              (cache, info, e))
QUIRE_GO_CALL(cache_destroy, (quire_cache * cache, quire_error *e), (cache, e))
QUIRE_GO_CALL(cache_get_info, (quire_cache * cache, quire_cache_info *info, quire_error *e),
              (cache, info, e))
QUIRE_GO_CALL(cache_get_pool,
              (quire_cache * cache, uint32_t group, uint32_t shard, quire_pool_info *info,
               quire_error *e),
              (cache, group, shard, info, e))
QUIRE_GO_CALL(cache_get_stats, (quire_cache * cache, quire_cache_stats *stats, quire_error *e),
              (cache, stats, e))
QUIRE_GO_CALL(cache_reset, (quire_cache * cache, quire_error *e), (cache, e))
QUIRE_GO_CALL(cache_check, (quire_cache * cache, quire_error *e), (cache, e))
QUIRE_GO_CALL(cache_dump,
              (quire_cache * cache, uint32_t flags, void *buffer, uint64_t capacity, uint64_t *size,
               quire_error *e),
              (cache, flags, buffer, capacity, size, e))
QUIRE_GO_CALL(cache_migrate_wait,
              (quire_cache * cache, const quire_migrate_desc *desc, quire_migrate_info *info,
               uint64_t timeout_ns, quire_error *e),
              (cache, desc, info, timeout_ns, e))
QUIRE_GO_CALL(cache_save_calibration_wait,
              (quire_cache * cache, void *buffer, uint64_t capacity, uint64_t *size,
               uint64_t timeout_ns, quire_error *e),
              (cache, buffer, capacity, size, timeout_ns, e))
QUIRE_GO_CALL(namespace_create,
              (quire_cache * cache, const quire_namespace_desc *desc, quire_namespace *out,
               quire_error *e),
              (cache, desc, out, e))
QUIRE_GO_CALL(namespace_destroy, (quire_cache * cache, quire_namespace ns, quire_error *e),
              (cache, ns, e))
QUIRE_GO_CALL(namespace_get_info,
              (quire_cache * cache, quire_namespace ns, quire_namespace_info *info, quire_error *e),
              (cache, ns, info, e))
QUIRE_GO_CALL(seq_create,
              (quire_cache * cache, const quire_seq_desc *desc, quire_seq *out, quire_error *e),
              (cache, desc, out, e))
QUIRE_GO_CALL(seq_end, (quire_cache * cache, quire_seq seq, uint32_t flags, quire_error *e),
              (cache, seq, flags, e))
QUIRE_GO_CALL(seq_fork,
              (quire_cache * cache, quire_seq seq, uint32_t count, quire_seq *out, quire_error *e),
              (cache, seq, count, out, e))
QUIRE_GO_CALL(seq_truncate, (quire_cache * cache, quire_seq seq, uint32_t count, quire_error *e),
              (cache, seq, count, e))
QUIRE_GO_CALL(seq_accept, (quire_cache * cache, quire_seq seq, uint32_t count, quire_error *e),
              (cache, seq, count, e))
QUIRE_GO_CALL(seq_accept_path,
              (quire_cache * cache, quire_seq seq, const uint32_t *path, uint32_t count,
               quire_error *e),
              (cache, seq, path, count, e))
QUIRE_GO_CALL(seq_set_tokens,
              (quire_cache * cache, const void *spans, uint32_t span_count, uint32_t stride,
               const quire_token *tokens, uint32_t token_count, quire_error *e),
              (cache, (const quire_token_span *)spans, span_count, stride, tokens, token_count, e))
QUIRE_GO_CALL(seq_get_info,
              (quire_cache * cache, quire_seq seq, quire_seq_info *info, quire_error *e),
              (cache, seq, info, e))
QUIRE_GO_CALL(prefix_probe,
              (quire_cache * cache, quire_seq seq, const quire_token *tokens, uint32_t count,
               uint32_t *hits, quire_error *e),
              (cache, seq, tokens, count, hits, e))
QUIRE_GO_CALL(step_add,
              (quire_cache * cache, quire_step step, const void *items, uint32_t item_count,
               uint32_t item_stride, const quire_token *tokens, uint32_t token_count, void *results,
               uint32_t result_stride, quire_error *e),
              (cache, step, (const quire_step_item *)items, item_count, item_stride, tokens,
               token_count, (quire_step_result *)results, result_stride, e))
QUIRE_GO_CALL(step_drop,
              (quire_cache * cache, quire_step step, quire_seq seq, quire_seq *dropped,
               uint32_t capacity, uint32_t *count, quire_error *e),
              (cache, step, seq, dropped, capacity, count, e))
QUIRE_GO_CALL(step_preempt,
              (quire_cache * cache, quire_step step, quire_seq seq, uint32_t how, uint32_t *freed,
               quire_error *e),
              (cache, step, seq, how, freed, e))
QUIRE_GO_CALL(step_preempted,
              (quire_cache * cache, quire_step step, void *out, uint32_t capacity, uint32_t stride,
               uint32_t *count, quire_error *e),
              (cache, step, (quire_preemption *)out, capacity, stride, count, e))
QUIRE_GO_CALL(step_abort, (quire_cache * cache, quire_step step, quire_error *e), (cache, step, e))
QUIRE_GO_CALL(step_commit,
              (quire_cache * cache, quire_step step, quire_batch *batch, quire_error *e),
              (cache, step, batch, e))
QUIRE_GO_CALL(step_finish,
              (quire_cache * cache, quire_step step, const quire_native *signal, uint32_t outcome,
               quire_error *e),
              (cache, step, signal, outcome, e))
QUIRE_GO_CALL(step_blocks,
              (quire_cache * cache, quire_step step, quire_seq seq, uint32_t group, uint32_t first,
               int32_t *ids, uint32_t capacity, uint32_t *count, quire_error *e),
              (cache, step, seq, group, first, ids, capacity, count, e))
QUIRE_GO_CALL(step_copies,
              (quire_cache * cache, quire_step step, void *out, uint32_t capacity, uint32_t stride,
               uint32_t *count, quire_error *e),
              (cache, step, (quire_block_copy *)out, capacity, stride, count, e))
QUIRE_GO_CALL(cache_events,
              (quire_cache * cache, uint32_t flags, void *events, uint32_t capacity,
               uint32_t stride, quire_token *tokens, uint32_t token_capacity,
               quire_events_info *info, quire_error *e),
              (cache, flags, (quire_cache_event *)events, capacity, stride, tokens, token_capacity,
               info, e))
QUIRE_GO_CALL(batch_create,
              (quire_cache * cache, const quire_batch_desc *desc, quire_batch **out,
               quire_error *e),
              (cache, desc, out, e))
QUIRE_GO_CALL(batch_destroy, (quire_batch * batch, quire_error *e), (batch, e))
QUIRE_GO_CALL(batch_get_views,
              (quire_batch * batch, uint32_t group, uint32_t shard, quire_batch_views *views,
               quire_error *e),
              (batch, group, shard, views, e))
QUIRE_GO_CALL(kv_write,
              (quire_batch * batch, const quire_kv_args *args, quire_queue *queue, quire_error *e),
              (batch, args, queue, e))
QUIRE_GO_CALL(attend,
              (quire_batch * batch, const quire_attend_args *args, quire_queue *queue,
               quire_error *e),
              (batch, args, queue, e))
QUIRE_GO_CALL(attention_merge, (quire_queue * queue, const quire_merge_args *args, quire_error *e),
              (queue, args, e))
QUIRE_GO_CALL(step_log,
              (quire_cache * cache, quire_step step, void *buffer, uint64_t capacity,
               uint64_t *size, quire_error *e),
              (cache, step, buffer, capacity, size, e))
QUIRE_GO_CALL(calibration_get_info,
              (const void *bytes, uint64_t size, quire_calibration_info *info, quire_error *e),
              (bytes, size, info, e))
QUIRE_GO_CALL(calibration_get_layer,
              (const void *bytes, uint64_t size, uint32_t layer, quire_calibration_layer *info,
               float *amax, uint32_t capacity, quire_error *e),
              (bytes, size, layer, info, amax, capacity, e))
QUIRE_GO_CALL(calibration_merge,
              (const void *a, uint64_t a_bytes, const void *b, uint64_t b_bytes, void *out,
               uint64_t capacity, uint64_t *size, quire_error *e),
              (a, a_bytes, b, b_bytes, out, capacity, size, e))
QUIRE_GO_CALL(size_estimate, (const quire_size_desc *desc, quire_size_info *info, quire_error *e),
              (desc, info, e))
QUIRE_GO_CALL(tier_open,
              (quire_instance * instance, const quire_tier_desc *desc, quire_tier **out,
               quire_error *e),
              (instance, desc, out, e))
QUIRE_GO_CALL(tier_close_wait, (quire_tier * tier, uint64_t timeout_ns, quire_error *e),
              (tier, timeout_ns, e))
QUIRE_GO_CALL(tier_get_info, (quire_tier * tier, quire_store_info *info, quire_error *e),
              (tier, info, e))
QUIRE_GO_CALL(tier_list,
              (quire_tier * tier, uint64_t *cursor, quire_store_record *records, uint32_t capacity,
               uint32_t *count, quire_error *e),
              (tier, cursor, records, capacity, sizeof *records, count, e))
QUIRE_GO_CALL(tier_request_wait,
              (quire_tier * tier, const quire_store_request *request, quire_store_answer *answer,
               uint64_t timeout_ns, quire_error *e),
              (tier, request, answer, timeout_ns, e))
QUIRE_GO_CALL(tier_get_stats, (quire_tier * tier, quire_store_stats *stats, quire_error *e),
              (tier, stats, e))
QUIRE_GO_CALL(cache_attach_tier,
              (quire_cache * cache, quire_tier *tier, const quire_cache_tier_desc *desc,
               quire_error *e),
              (cache, tier, desc, e))
QUIRE_GO_CALL(cache_detach_tier_wait, (quire_cache * cache, uint64_t timeout_ns, quire_error *e),
              (cache, timeout_ns, e))
QUIRE_GO_CALL(cache_poll_tier,
              (quire_cache * cache, quire_cache_tier_progress *progress, quire_error *e),
              (cache, progress, e))
QUIRE_GO_CALL(cache_load_wait,
              (quire_cache * cache, uint64_t timeout_ns, quire_cache_tier_progress *progress,
               quire_error *e),
              (cache, timeout_ns, progress, e))
QUIRE_GO_CALL(cache_cancel_load, (quire_cache * cache, quire_seq seq, quire_error *e),
              (cache, seq, e))
QUIRE_GO_CALL(cache_get_tier_stats,
              (quire_cache * cache, quire_cache_tier_stats *stats, quire_error *e),
              (cache, stats, e))
QUIRE_GO_CALL(lease_create,
              (quire_cache * cache, const quire_lease_desc *desc, quire_lease *out, quire_error *e),
              (cache, desc, out, e))
QUIRE_GO_CALL(lease_end, (quire_cache * cache, quire_lease lease, quire_error *e),
              (cache, lease, e))
QUIRE_GO_CALL(lease_get_info,
              (quire_cache * cache, quire_lease lease, quire_lease_info *info, quire_error *e),
              (cache, lease, info, e))
QUIRE_GO_CALL(lease_blocks,
              (quire_cache * cache, quire_lease lease, uint32_t group, uint32_t first, void *out,
               uint32_t capacity, uint32_t stride, uint32_t *count, quire_error *e),
              (cache, lease, group, first, (quire_lease_block *)out, capacity, stride, count, e))
QUIRE_GO_CALL(lease_take,
              (quire_cache * cache, quire_step step, quire_lease lease, uint32_t group,
               uint32_t count, int32_t *ids, quire_lease_result *result, quire_error *e),
              (cache, step, lease, group, count, ids, result, e))
QUIRE_GO_CALL(lease_give,
              (quire_cache * cache, quire_step step, quire_lease lease, uint32_t group,
               const int32_t *ids, uint32_t count, quire_error *e),
              (cache, step, lease, group, ids, count, e))
QUIRE_GO_CALL(lease_pin,
              (quire_cache * cache, quire_step step, quire_lease lease, uint32_t group,
               const int32_t *ids, uint32_t count, quire_lease_result *result, quire_error *e),
              (cache, step, lease, group, ids, count, result, e))
QUIRE_GO_CALL(lease_match,
              (quire_cache * cache, quire_step step, quire_lease lease, const quire_token *tokens,
               uint32_t token_count, uint32_t how, int32_t *ids, quire_lease_result *result,
               quire_error *e),
              (cache, step, lease, tokens, token_count, how, ids, result, e))
QUIRE_GO_CALL(lease_publish,
              (quire_cache * cache, quire_step step, quire_lease lease, const quire_token *tokens,
               uint32_t token_count, const int32_t *ids, int32_t *named, quire_lease_result *result,
               quire_error *e),
              (cache, step, lease, tokens, token_count, ids, named, result, e))
QUIRE_GO_CALL(lease_forget,
              (quire_cache * cache, quire_lease lease, uint32_t group, const int32_t *ids,
               uint32_t count, uint32_t *forgotten, quire_error *e),
              (cache, lease, group, ids, count, forgotten, e))
QUIRE_GO_CALL(cache_evict,
              (quire_cache * cache, uint32_t group, uint32_t count, int32_t *ids, uint32_t *evicted,
               quire_error *e),
              (cache, group, count, ids, evicted, e))
QUIRE_GO_CALL(handover_send,
              (quire_cache * cache, quire_seq seq, const quire_handover_send_desc *desc,
               quire_handover *out, quire_error *e),
              (cache, seq, desc, out, e))
QUIRE_GO_CALL(handover_layers,
              (quire_cache * cache, quire_handover handover, quire_step step, uint32_t first,
               uint32_t count, quire_error *e),
              (cache, handover, step, first, count, e))
QUIRE_GO_CALL(handover_read,
              (quire_cache * cache, quire_handover handover, void *buffer, uint64_t capacity,
               uint64_t *size, quire_handover_progress *progress, quire_error *e),
              (cache, handover, buffer, capacity, size, progress, e))
QUIRE_GO_CALL(handover_receive,
              (quire_cache * cache, const quire_handover_receive_desc *desc, quire_handover *out,
               quire_error *e),
              (cache, desc, out, e))
QUIRE_GO_CALL(handover_write,
              (quire_cache * cache, quire_handover handover, const void *bytes, uint64_t size,
               uint64_t *used, quire_handover_progress *progress, quire_error *e),
              (cache, handover, bytes, size, used, progress, e))
QUIRE_GO_CALL(handover_end, (quire_cache * cache, quire_handover handover, quire_error *e),
              (cache, handover, e))
QUIRE_GO_CALL(cache_report_loads,
              (quire_cache * cache, void *buffer, uint64_t capacity, uint64_t *size,
               quire_error *e),
              (cache, buffer, capacity, size, e))
QUIRE_GO_CALL(cache_take_report,
              (quire_cache * cache, const void *bytes, uint64_t size, quire_error *e),
              (cache, bytes, size, e))
QUIRE_GO_CALL(lease_find,
              (quire_cache * cache, quire_lease lease, const int64_t *tokens, uint32_t token_count,
               uint32_t how, int32_t *ids, quire_lease_result *result, quire_error *e),
              (cache, lease, tokens, token_count, how, ids, result, e))
QUIRE_GO_CALL(lease_insert,
              (quire_cache * cache, quire_lease lease, const int64_t *tokens, const int64_t *slots,
               uint32_t token_count, int32_t *named, quire_lease_result *result, quire_error *e),
              (cache, lease, tokens, slots, token_count, named, result, e))

#undef QUIRE_GO_CALL

/* Opens the library, once per process; path NULL: where dyn.h looks. */
quire_status quire_go_open(const char *path, char *why, size_t why_size);

quire_status quire_go_step_begin(quire_cache *cache, quire_queue *const *queues,
                                 uint32_t queue_count, uint32_t flags, uint32_t preempt,
                                 uint64_t tag, const void *items, uint32_t item_count,
                                 const quire_token *tokens, uint32_t token_count, void *results,
                                 quire_step *out, quire_error *e);

/* Begin and commit in one call from Go; a commit that fails undoes the begin. */
quire_status quire_go_step_begin_commit(quire_cache *cache, quire_queue *const *queues,
                                        uint32_t queue_count, uint32_t flags, uint32_t preempt,
                                        uint64_t tag, const void *items, uint32_t item_count,
                                        const quire_token *tokens, uint32_t token_count,
                                        void *results, quire_batch *batch, quire_step *out,
                                        quire_error *e);

quire_status quire_go_log_apply(quire_cache *cache, const void *bytes, uint64_t size,
                                quire_queue *const *queues, uint32_t queue_count, uint64_t tag,
                                quire_batch *batch, quire_step *out, quire_error *e);

/* A sequence's session. `handle` names a Go stream; path NULL: the session goes through it. */
quire_status quire_go_export(quire_cache *cache, quire_seq seq, const uint8_t *fingerprint,
                             const uint8_t *name_space, const char *path, uintptr_t handle,
                             quire_session_info *info, uint64_t timeout_ns, quire_error *e);
quire_status quire_go_import(quire_cache *cache, const quire_seq_desc *seq,
                             const uint8_t *fingerprint, const uint8_t *name_space,
                             const char *path, uintptr_t handle, quire_seq *out, quire_error *e);

/* Calls back into Go. */
void quire_go_set_log(quire_instance_desc *desc, uintptr_t handle);
void quire_go_set_run_tasks(quire_device_desc *desc, uintptr_t handle);
void quire_go_run_task(quire_task task, void *context, uint32_t i);

#endif /* QUIRE_GO_TABLE_H */
