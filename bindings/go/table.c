/* SPDX-License-Identifier: Apache-2.0 */

#include "table.h"

#include <string.h>

#include "_cgo_export.h"

const quire_api *quire_go_table;

quire_status quire_go_open(const char *path, char *why, size_t why_size) {
    const quire_api *table;
    quire_status status = quire_dyn_load(path, &table, why, why_size);
    if (status >= 0) quire_go_table = table;
    return status;
}

static quire_step_desc describe(quire_queue *const *queues, uint32_t queue_count, uint32_t flags,
                                uint32_t preempt, uint64_t tag) {
    quire_step_desc desc = {.struct_size = sizeof desc,
                            .flags = flags,
                            .queues = queues,
                            .queue_count = queue_count,
                            .preempt = preempt,
                            .queue_tag = tag};
    return desc;
}

quire_status quire_go_step_begin(quire_cache *cache, quire_queue *const *queues,
                                 uint32_t queue_count, uint32_t flags, uint32_t preempt,
                                 uint64_t tag, const void *items, uint32_t item_count,
                                 const quire_token *tokens, uint32_t token_count, void *results,
                                 quire_step *out, quire_error *e) {
    quire_step_desc desc = describe(queues, queue_count, flags, preempt, tag);
    return quire_go_table->step_begin(cache, &desc, items, item_count, sizeof(quire_step_item),
                                      tokens, token_count, results, sizeof(quire_step_result), out,
                                      e);
}

quire_status quire_go_step_begin_commit(quire_cache *cache, quire_queue *const *queues,
                                        uint32_t queue_count, uint32_t flags, uint32_t preempt,
                                        uint64_t tag, const void *items, uint32_t item_count,
                                        const quire_token *tokens, uint32_t token_count,
                                        void *results, quire_batch *batch, quire_step *out,
                                        quire_error *e) {
    quire_status status =
        quire_go_step_begin(cache, queues, queue_count, flags, preempt, tag, items, item_count,
                            tokens, token_count, results, out, e);
    if (status < 0) return status;
    status = quire_go_table->step_commit(cache, *out, batch, e);
    /* On a lost device the commit has already undone the step; abort then fails as stale. */
    if (status < 0) quire_go_table->step_abort(cache, *out, NULL);
    return status;
}

quire_status quire_go_log_apply(quire_cache *cache, const void *bytes, uint64_t size,
                                quire_queue *const *queues, uint32_t queue_count, uint64_t tag,
                                quire_batch *batch, quire_step *out, quire_error *e) {
    quire_step_desc desc = describe(queues, queue_count, 0, 0, tag);
    return quire_go_table->log_apply(cache, bytes, size, &desc, batch, out, e);
}

static quire_status write_to_go(void *user, const void *bytes, uint64_t size_bytes) {
    return quireGoSessionWrite((uintptr_t)user, (void *)bytes, size_bytes);
}

static quire_status read_from_go(void *user, void *bytes, uint64_t size_bytes) {
    return quireGoSessionRead((uintptr_t)user, bytes, size_bytes);
}

quire_status quire_go_export(quire_cache *cache, quire_seq seq, const uint8_t *fingerprint,
                             const uint8_t *name_space, const char *path, uintptr_t handle,
                             quire_session_info *info, uint64_t timeout_ns, quire_error *e) {
    quire_export_desc desc = {.struct_size = sizeof desc};
    memcpy(desc.fingerprint, fingerprint, sizeof desc.fingerprint);
    memcpy(desc.name_space, name_space, sizeof desc.name_space);
    if (path != NULL)
        return quire_go_table->seq_save_wait(cache, seq, &desc, path, info, timeout_ns, e);
    desc.write = write_to_go;
    desc.user = (void *)handle;
    return quire_go_table->seq_export_wait(cache, seq, &desc, info, timeout_ns, e);
}

quire_status quire_go_import(quire_cache *cache, const quire_seq_desc *seq,
                             const uint8_t *fingerprint, const uint8_t *name_space,
                             const char *path, uintptr_t handle, quire_seq *out, quire_error *e) {
    quire_import_desc desc = {.struct_size = sizeof desc, .seq = seq};
    memcpy(desc.fingerprint, fingerprint, sizeof desc.fingerprint);
    memcpy(desc.name_space, name_space, sizeof desc.name_space);
    if (path != NULL) return quire_go_table->seq_restore(cache, &desc, path, out, NULL, e);
    desc.read = read_from_go;
    desc.user = (void *)handle;
    return quire_go_table->seq_import(cache, &desc, out, NULL, e);
}

static void log_to_go(void *user, int32_t level, const char *component, const char *message) {
    quireGoLog((uintptr_t)user, level, (char *)component, (char *)message);
}

void quire_go_set_log(quire_instance_desc *desc, uintptr_t handle) {
    desc->log = log_to_go;
    desc->log_user = (void *)handle;
}

static void run_tasks_in_go(void *user, uint32_t count, quire_task task, void *context) {
    quireGoRunTasks((uintptr_t)user, count, (void *)task, context);
}

void quire_go_set_run_tasks(quire_device_desc *desc, uintptr_t handle) {
    desc->run_tasks = run_tasks_in_go;
    desc->run_tasks_user = (void *)handle;
}

void quire_go_run_task(quire_task task, void *context, uint32_t i) { task(context, i); }
