/* SPDX-License-Identifier: Apache-2.0
 *
 * handover: a sequence leaves one cache while it is computed and enters another one, in another
 * process or on another kind of device: prefill here, decode there.
 *
 * The library makes bytes and takes them; the engine carries them, over a socket or however it
 * likes. It has no thread for this, and no call here waits for the other end or for a device.
 *
 *   The prefill engine                            The decode engine
 *   quire_handover_send(cache, seq, ...)          quire_handover_receive(cache, ...)
 *   begin and commit a step of the prompt
 *   for each layer:
 *     quire_kv_write, quire_attend
 *     quire_handover_layers(..., layer, 1)
 *     quire_handover_read -> socket      ----->   socket -> quire_handover_write
 *   quire_step_finish
 *   quire_handover_read until is_whole   ----->   quire_handover_write until is_whole
 *   quire_handover_end, quire_seq_end             quire_handover_end; steps of progress.seq
 *
 * The received sequence is in the host tier, as after quire_seq_import: the next step that runs it
 * copies its blocks to the device. The engine that wants the logits of the last token shortens it
 * by one token and computes that one again.
 *
 * Failure   Until the last byte was taken there is no sequence. A receiver that is ended early,
 *           because the other end is gone or too late, gives back its memory; the engine then
 *           computes the prompt itself. Bytes that are damaged, foreign or cut are refused. So
 *           whatever happens on either side costs time and changes no token.
 * Trust     The bytes need not be trusted to be read. They are not authenticated: whoever can
 *           change them decides what the model reads.
 *
 * docs/session-format.md describes the bytes.
 */
#ifndef QUIRE_HANDOVER_H
#define QUIRE_HANDOVER_H

#include "base.h"
#include "sequence.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef uint64_t quire_handover; /* one end of a hand-over; 0: none */

typedef struct quire_handover_send_desc {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    const quire_chain *next;
    /* As in quire_export_desc: the receiver must give the same. */
    uint8_t fingerprint[32];
    uint8_t name_space[32];
    /* The tokens to hand over, all with ids: the prompt, of which the sequence need not know more
     * than it has computed. NULL: the sequence's known tokens. */
    const quire_token *tokens;
    uint32_t token_count;
    uint32_t reserved0;
    uint64_t staging_bytes; /* host memory, on each shard, for K and V that wait for
                               quire_handover_read; at least a block. 0 = 32 MiB */
} quire_handover_send_desc;

typedef struct quire_handover_receive_desc {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    const quire_chain *next;
    uint8_t fingerprint[32];
    uint8_t name_space[32];
    /* The new sequence; NULL: zeros. Its keys and cross_tokens must be those of the sent one, in
     * the same order. */
    const quire_seq_desc *seq;
    /* [token_count] the tokens that must be handed over, all that the sender gave; copied. NULL:
     * any. An engine that decodes gives its prompt: the sender may have been asked another one. */
    const quire_token *tokens;
    uint32_t token_count;
    uint32_t reserved0;
} quire_handover_receive_desc;

typedef struct quire_handover_progress {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    const quire_chain *next;
    uint32_t token_count; /* to be handed over; 0: not known yet */
    uint32_t is_whole;    /* 1: the last byte was read, or was taken and all is right */
    uint64_t cells;       /* layers of blocks to be handed over, over all groups */
    uint64_t cells_done;  /* of these, made into bytes, or taken */
    uint64_t size_bytes;  /* read or taken so far */
    quire_seq seq;        /* of a receiver that is whole: the sequence. Else 0 */
} quire_handover_progress;

/* Begins to send a sequence, at any time between its creation and its end. Several hand-overs may
 * go on at a time, one per sequence. While one goes on, the cache is neither destroyed nor
 * migrated.
 *
 * Errors   QUIRE_E_ARG          there is no token, one has no id, or they are not those that the
 *                               sequence knows.
 *          QUIRE_E_BUSY         the sequence is being handed over, exported or imported already.
 *          QUIRE_E_LIMIT        more than max_sequence_tokens tokens, or 4,096 hand-overs.
 *          QUIRE_E_UNSUPPORTED  the cache has no memory, or leads or follows others.
 * Time     O(tokens + blocks + layers of blocks). */
QUIRE_EXPORT quire_status quire_handover_send(quire_cache *cache, quire_seq seq,
                                              const quire_handover_send_desc *desc,
                                              quire_handover *out, quire_error *error);
/* Says that the K and V that a committed step computes of the sequence in layers
 * [first_layer, first_layer + layer_count) of the model are enqueued on the step's queues. Of
 * blocks that the step completes, or that were complete before, these layers are copied to host
 * memory by queues of the library's own, while the step's queues go on; the step ends after the
 * copies. What the staging memory has no room for is copied once the sequence's last step has run.
 * The call is optional: without it everything is copied then.
 *
 * Errors   QUIRE_E_ARG          the sequence is not in the step, or there are no such layers.
 *          QUIRE_E_BUSY         the step is open or finished; a later step has the sequence; or the
 *                               engine is capturing a stream of its own that is a queue of the
 *                               step.
 *          QUIRE_E_DEVICE_LOST  a device refused a copy. The hand-over has failed; the step has
 *                               not.
 *          as for quire_handover_read, if it failed before.
 * Time     O(blocks of the sequence x layer_count). */
QUIRE_EXPORT quire_status quire_handover_layers(quire_cache *cache, quire_handover handover,
                                                quire_step step, uint32_t first_layer,
                                                uint32_t layer_count, quire_error *error);
/* Gives the next bytes, as many as there are now: none while the device still computes. Once all
 * tokens were computed and their step has run, the sequence is kept as it is until the last byte
 * was made: no step takes it, no other call changes it, and it is not preempted.
 *
 * buffer      [capacity] any part of the stream fits into any buffer.
 * size_bytes  how many bytes were written.
 * progress    NULL: not wanted.
 * Errors   QUIRE_E_STALE        the sequence was ended; or it lost tokens that were sent: a step
 *                               failed, or it was preempted or truncated.
 *          QUIRE_E_ARG          it has other tokens, or went on so far that a window has passed
 *                               what was to be sent.
 *          QUIRE_E_DEVICE_LOST  a copy failed.
 *          QUIRE_E_UNSUPPORTED  the sequence was computed before quire_cache_reset.
 *          A hand-over that failed stays so: end it.
 * Time     O(capacity + bytes of a block + unfinished steps). */
QUIRE_EXPORT quire_status quire_handover_read(quire_cache *cache, quire_handover handover,
                                              void *buffer, uint64_t capacity, uint64_t *size_bytes,
                                              quire_handover_progress *progress,
                                              quire_error *error);
/* Begins to receive a sequence. It counts as one from now on.
 * Errors   QUIRE_E_LIMIT        4,096 hand-overs go on; or as for quire_seq_create, as the others.
 *          QUIRE_E_UNSUPPORTED  as for quire_handover_send.
 * Time     as quire_seq_create. */
QUIRE_EXPORT quire_status quire_handover_receive(quire_cache *cache,
                                                 const quire_handover_receive_desc *desc,
                                                 quire_handover *out, quire_error *error);
/* Takes the next bytes, cut anywhere. What comes first says which model, tenant, groups and tokens
 * these are, and is judged before any K and V.
 *
 * used        how many bytes were taken: fewer than size_bytes at the end of the hand-over, or if
 *             blocks are short. What is left belongs to whatever comes next.
 * progress    NULL: not wanted.
 * Returns  QUIRE_S_NO_BLOCKS    the host tier is short of blocks now. Give the rest again later,
 *                               or end the hand-over.
 * Errors   as for quire_seq_import, and QUIRE_E_ARG for a hand-over of other tokens than
 *          desc.tokens, or one that says it is complete and is not. It gave back all that it held,
 *          and stays so: end it.
 * Time     O(size_bytes + blocks when the head is complete). */
QUIRE_EXPORT quire_status quire_handover_write(quire_cache *cache, quire_handover handover,
                                               const void *bytes, uint64_t size_bytes,
                                               uint64_t *used, quire_handover_progress *progress,
                                               quire_error *error);
/* Ends either end of a hand-over, in whatever state it is. A sender's sequence stays; so does a
 * received one that is whole. What came of another one is gone.
 * Errors   QUIRE_E_STALE  no such hand-over: it was ended, or belongs to another cache.
 * Time     O(blocks of the sequence). */
QUIRE_EXPORT quire_status quire_handover_end(quire_cache *cache, quire_handover handover,
                                             quire_error *error);

#ifdef __cplusplus
}
#endif
#endif /* QUIRE_HANDOVER_H */
