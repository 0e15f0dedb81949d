/* SPDX-License-Identifier: Apache-2.0
 *
 * log: one cache over several processes: a leader decides, and followers apply its log.
 *
 * The leader is a cache created with QUIRE_CACHE_LOG. Every step that it commits has a log: bytes
 * that say what changed since the step before, and what the step does. The engine sends the logs to
 * the other ranks, together with the tokens and positions that those need. Each rank applies them
 * to its follower, a cache created with QUIRE_CACHE_FOLLOWER, in their order and each once:
 *
 *   leader     quire_step_begin ... commit;  quire_step_log;  send;        kernels;  finish
 *   follower                                 receive;  quire_log_apply;    kernels;  finish
 *
 * A follower has the leader's tables, lengths and handles of sequences, and writes them to batches
 * as a commit does. It has no prefixes and makes no decisions: a call that would make one is
 * QUIRE_E_UNSUPPORTED. QUIRE_SEQ_UNPUBLISHED of a sequence may reach it one log late.
 *
 * All ranks describe the same groups, layer_groups, block_tokens, max_sequences and
 * max_sequence_tokens, and have the same numbers of blocks and host blocks: set `blocks` to the
 * smallest number that any rank can hold. Each describes the shards that it holds itself, or none.
 *
 * docs/follower-log.md describes the format. A log need not be trusted to be read: a damaged or
 * foreign log is refused. Logs are not authenticated: whoever can write to the channel decides.
 */
#ifndef QUIRE_LOG_H
#define QUIRE_LOG_H

#include "base.h"
#include "step.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Copies the log of a committed step. Available from commit until finish, as often as wanted. Read
 * the log of every step: a follower that misses one refuses all later ones. A step that fails
 * later, or that commit undid with QUIRE_E_DEVICE_LOST, appears in the next log
 * as shorter sequences.
 *
 * size_bytes  receives the size of the log. buffer may be NULL if capacity is 0.
 * Returns  QUIRE_S_INCOMPLETE   capacity is too short; nothing was written.
 * Errors   QUIRE_E_BUSY         the step is not committed.
 *          QUIRE_E_UNSUPPORTED  the cache writes no log.
 * Time     O(size of the log). */
QUIRE_EXPORT quire_status quire_step_log(quire_cache *cache, quire_step step, void *buffer,
                                         uint64_t capacity, uint64_t *size_bytes,
                                         quire_error *error);

/* Applies the next log: enqueues its copies, writes the batch, and returns a committed step, which
 * must be finished with QUIRE_STEP_OK. If the leader knew that an earlier step comes before this
 * one, and that step may still run here on other queues, this step's queues wait for it.
 *
 * bytes    [size_bytes] of any alignment, from any source.
 * desc     the step's queues, one per shard (or queue_tag); flags and preempt are 0.
 * batch    NULL if the engine reads tables with quire_step_blocks.
 * Errors   QUIRE_E_ARG           the log is damaged, repeated, out of order, or of another leader
 *                                or geometry; the message says which. Nothing changed, and the
 *                                right log is still accepted.
 *          QUIRE_E_INCOMPATIBLE  the log's format has another version. Nothing changed.
 *          QUIRE_E_UNSUPPORTED   the log moves tokens (quire_seq_accept_path), and a device here
 *                                cannot. Nothing changed.
 *          QUIRE_E_LIMIT, QUIRE_E_BUSY  as for commit; or an earlier step that comes before this
 *                                       one, on other queues, is not finished. Nothing changed,
 *                                       however often it is tried.
 *          QUIRE_E_INTERNAL      the log would lead to another state than the leader's. Nothing
 *                                changed, and this follower stopped: every later quire_log_apply,
 *                                and every migration, returns this error.
 *          QUIRE_E_DEVICE_LOST   a device refused its part (QUIRE_E_BACKEND: its backend violated
 *                                the contract). The tables are the leader's, but the memory is not;
 *                                this follower stopped.
 * Time     O(size_bytes + entries written to the views). */
QUIRE_EXPORT quire_status quire_log_apply(quire_cache *cache, const void *bytes,
                                          uint64_t size_bytes, const quire_step_desc *desc,
                                          quire_batch *batch, quire_step *out, quire_error *error);

#ifdef __cplusplus
}
#endif
#endif /* QUIRE_LOG_H */
