/* SPDX-License-Identifier: Apache-2.0
 *
 * log: one cache over several processes: a leader decides, followers do as its log says.
 *
 * The leader is a cache made with QUIRE_CACHE_LOG: every step that it commits has a log, the bytes
 * that say what changed since the step before and what the step does. The engine carries them to
 * the other ranks, beside the tokens and positions that those need, and each rank applies them to
 * its follower, made with QUIRE_CACHE_FOLLOWER, in their order and each once:
 *
 *   leader     quire_step_begin ... commit;  quire_step_log;  send;        kernels;  finish
 *   follower                                 receive;  quire_log_apply;    kernels;  finish
 *
 * A follower has the leader's tables, lengths and handles of sequences, and writes batches of them
 * as a commit does. It has no prefixes, and takes no decision: every call that would is
 * QUIRE_E_UNSUPPORTED.
 *
 * All ranks describe the same groups, layer_groups, block_tokens, max_sequences and
 * max_sequence_tokens, and have the same numbers of blocks and host blocks: state `blocks`, the
 * smallest that any rank can hold. Each describes the shards that it holds itself, or none.
 *
 * The format is docs/follower-log.md. Reading it needs no trust: what is damaged or foreign is
 * refused. It is no authentication; whoever can write to the channel decides.
 */
#ifndef QUIRE_LOG_H
#define QUIRE_LOG_H

#include "base.h"
#include "step.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Copies the log of a committed step, from commit until finish, which may be asked for again.
 * Steps that no log was read of are missing to the followers. A step that fails later, or that
 * commit answered with QUIRE_E_DEVICE_LOST, shows in the next log as shorter sequences.
 *
 * size_bytes  gets the size of the log. buffer may be NULL when capacity is 0.
 * Returns  QUIRE_S_INCOMPLETE   capacity is too short; nothing was written.
 * Errors   QUIRE_E_BUSY         the step is not committed.
 *          QUIRE_E_UNSUPPORTED  the cache writes no log.
 * Time     O(size of the log). */
QUIRE_EXPORT quire_status quire_step_log(quire_cache *cache, quire_step step, void *buffer,
                                         uint64_t capacity, uint64_t *size_bytes,
                                         quire_error *error);

/* Applies the next log: enqueues its copies, writes the batch and gives a committed step, to be
 * finished with QUIRE_STEP_OK. Where the leader knew that an earlier step comes before this one,
 * and here it may still run on other queues, the queues wait for it.
 *
 * bytes    [size_bytes] of any alignment, from anywhere.
 * desc     its queues, one a shard (or queue_tag); flags and preempt are 0.
 * batch    NULL when the engine reads tables with quire_step_blocks.
 * Errors   QUIRE_E_ARG           the log is damaged, repeated, out of order, or of another leader
 *                                or geometry; the message says which. Nothing changed, and the
 *                                right log is still taken.
 *          QUIRE_E_INCOMPATIBLE  its format is of another version. Nothing changed.
 *          QUIRE_E_UNSUPPORTED   it moves tokens (quire_seq_accept_path), and a device here cannot.
 *                                Nothing changed.
 *          QUIRE_E_LIMIT, QUIRE_E_BUSY  as for commit; or an earlier step that comes before it, on
 *                                other queues, is not finished. Nothing changed, however often.
 *          QUIRE_E_INTERNAL      it would lead to another state than the leader's. Nothing changed,
 *                                and this follower stopped: every later call says so.
 *          QUIRE_E_DEVICE_LOST   a device refused its part. The tables are the leader's, the memory
 *                                is not; this follower stopped.
 * Time     O(size_bytes + entries written to the views). */
QUIRE_EXPORT quire_status quire_log_apply(quire_cache *cache, const void *bytes,
                                          uint64_t size_bytes, const quire_step_desc *desc,
                                          quire_batch *batch, quire_step *out, quire_error *error);

#ifdef __cplusplus
}
#endif
#endif /* QUIRE_LOG_H */
