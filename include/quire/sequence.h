/* SPDX-License-Identifier: Apache-2.0
 *
 * sequence: one token stream of a cache: its tokens, its keys, and what is computed of it.
 *
 * The *known* tokens of a sequence are those that the library has been given; its *computed* tokens
 * are the first ones whose K and V are in blocks, or will be once the committed steps have run.
 * Steps (step.h) extend both. *Drafts* are known tokens at the end that are provisional until they
 * are accepted. *Keys* are whatever besides the tokens decides K and V.
 */
#ifndef QUIRE_SEQUENCE_H
#define QUIRE_SEQUENCE_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What kind of input besides the tokens decides K and V. */
enum { QUIRE_KEY_ADAPTER = 1, QUIRE_KEY_SALT = 2, QUIRE_KEY_MEDIA = 3, QUIRE_KEY_OTHER = 4 };

/* An array element: no struct head. A key of the whole sequence has begin = end = 0. A span, such
 * as an image at its placeholder tokens, covers the tokens [begin, end). */
typedef struct quire_key {
    uint32_t type;       /* QUIRE_KEY_* */
    uint32_t size_bytes; /* at most 4,096 */
    const void *bytes;
    uint32_t begin;
    uint32_t end;
} quire_key;

typedef struct quire_seq_desc {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    const quire_chain *next;
    quire_namespace ns;    /* 0: the default namespace */
    const quire_key *keys; /* [key_count], whole-sequence keys and spans, copied; at most 64 */
    uint32_t key_count;
    uint32_t key_stride;
    int32_t priority; /* higher is preempted later */
    /* Rows of the sequence in cross groups. Its own K and V depend on them, and no key describes
     * them, so such a sequence publishes nothing and finds nothing. */
    uint32_t cross_tokens;
} quire_seq_desc;

enum {
    QUIRE_SEQ_SWAPPED = 1 << 0,   /* its blocks are in the host tier */
    QUIRE_SEQ_LOST = 1 << 1,      /* a failed step took computed tokens back; cleared by the next
                                     item that runs */
    QUIRE_SEQ_IN_STEP = 1 << 2,   /* in the open step: with an item, or preempted in it */
    QUIRE_SEQ_PREEMPTED = 1 << 3, /* preempted and not back yet */
    /* Publishes nothing any more: quire_cache_reset was called; or, in a cache in which every group
     * has a window, the prefix tree ran out of nodes for sequences as long as this one. */
    QUIRE_SEQ_UNPUBLISHED = 1 << 4
};

typedef struct quire_seq_info {
    uint32_t struct_size;
    uint32_t flags; /* QUIRE_SEQ_*, written */
    const quire_chain *next;
    uint32_t known_tokens;
    uint32_t computed_tokens;
    uint32_t draft_tokens;     /* provisional ones at the end, see quire_seq_accept */
    uint32_t lookahead_tokens; /* reserved after the last known token by its last item */
    /* Table entries that are not null, over all groups, including shared blocks. */
    uint32_t blocks_held;
    uint32_t preemptions;
    int32_t priority;
    uint32_t reserved0;
} quire_seq_info;

/* Creates a sequence without tokens. If its keys would take the namespace past key_bytes, cached
 * prefixes of the namespace are forgotten, beginning with those whose keys have been unused for
 * longest.
 * Errors   QUIRE_E_ARG          the begin of a span is not before its end, or cross_tokens without
 *                               a cross group.
 *          QUIRE_E_STALE        no such namespace.
 *          QUIRE_E_LIMIT        max_sequences are alive, there are more than 64 keys, or a key is
 *                               longer than 4,096 bytes; or the keys do not fit key_bytes even
 *                               after forgetting: then nothing is forgotten.
 *          QUIRE_E_HOST_MEMORY  there is none for the keys; nothing changed.
 *          QUIRE_E_UNSUPPORTED  the cache has QUIRE_CACHE_LEASES_ONLY.
 * Time     O(bytes of the keys); where prefixes give way, O(cached blocks of the namespace). */
QUIRE_EXPORT quire_status quire_seq_create(quire_cache *cache, const quire_seq_desc *desc,
                                           quire_seq *out, quire_error *error);

enum {
    /* Forget the published blocks of its tokens, including those that it no longer holds (past its
     * window, swapped, preempted), except blocks that another sequence holds. Truncated tokens no
     * longer belong to it. Takes time in its known tokens. May fail with QUIRE_E_HOST_MEMORY, and
     * then changes nothing. */
    QUIRE_END_DROP_PREFIX = 1 << 0
};

/* Ends a sequence. Later work on the same queue may use its blocks at once, unless a step on
 * another queue is not done that was committed before the last step that uses them. Then, and on
 * other queues, they wait for that last step to be done. Published blocks stay cached; the last
 * ones are evicted before the first ones.
 * Errors   QUIRE_E_STALE  it was ended before.
 *          QUIRE_E_BUSY   it is in the open step.
 * Time     O(blocks of the sequence); with QUIRE_END_DROP_PREFIX O(known tokens). */
QUIRE_EXPORT quire_status quire_seq_end(quire_cache *cache, quire_seq seq, uint32_t flags,
                                        quire_error *error);
/* Creates a sequence with the first `token_count` known tokens of another, sharing their blocks.
 * Neither sees what the other writes: the sequence that may write to a shared block in place writes
 * after the slots that the other reads, and any other writer gets a copy of the block. Tokens that
 * were computed, counting committed steps, are computed in the fork too. The fork belongs to its
 * parent's namespace, which is charged for its table as well.
 * Errors   QUIRE_E_BUSY   the sequence is in the open step, is swapped out, or has drafts that were
 *                         not accepted.
 *          QUIRE_E_LIMIT  max_sequences are alive, or the namespace's quota would be exceeded.
 * Time     O(blocks of the fork). */
QUIRE_EXPORT quire_status quire_seq_fork(quire_cache *cache, quire_seq seq, uint32_t token_count,
                                         quire_seq *out, quire_error *error);
/* Shortens a sequence to its first `token_count` known tokens and gives back the blocks after them.
 * With window groups *computed* may fall further, to the longest length whose windows are whole.
 * A last block that is then not full, and that others could find, is copied when the sequence goes
 * on. If the sequence alone holds all blocks of a pool, the block is withdrawn from the prefix tree
 * instead.
 * Time     O(blocks given back). */
QUIRE_EXPORT quire_status quire_seq_truncate(quire_cache *cache, quire_seq seq,
                                             uint32_t token_count, quire_error *error);
/* Keeps the first `count` drafts of the last item and forgets the others. A count above the number
 * of drafts extends into that item's lookahead: the tokens that the engine wrote there become
 * computed and known, as QUIRE_TOKEN_UNKNOWN until quire_seq_set_tokens names them. Drafts must be
 * accepted before the sequence's next item.
 * Errors   QUIRE_E_ARG  count is above drafts + lookahead; or, under the item's mask, one of these
 *                       drafts is not a child of the one before it.
 *          QUIRE_E_UNSUPPORTED  count is above the drafts, and the cache has a recurrent group.
 * Time     O(count + blocks given back). */
QUIRE_EXPORT quire_status quire_seq_accept(quire_cache *cache, quire_seq seq, uint32_t count,
                                           quire_error *error);

/* Keeps the drafts on a path through the tree that the item's mask describes, and forgets the
 * others. Tokens that are then not at their place in the cache are moved on the device when the
 * sequence's next step is committed. Until then a fork takes only the tokens before the first such
 * token, and a swap gives up the tokens to be moved, which are then computed again.
 *
 * path     [count] indices of drafts of the last item, increasing, each a child of the one before
 *          it. NULL if count is 0. An empty path on a sequence without drafts changes nothing.
 * Errors   QUIRE_E_ARG          an index is not above the one before it or is not a draft's; or the
 *                               path is not a path in the mask.
 *          QUIRE_E_UNSUPPORTED  tokens would have to be moved, and the backend cannot move them.
 * Time     O(count + blocks given back). */
QUIRE_EXPORT quire_status quire_seq_accept_path(quire_cache *cache, quire_seq seq,
                                                const uint32_t *path, uint32_t count,
                                                quire_error *error);

/* Tokens to name. An array element: no struct head. */
typedef struct quire_token_span {
    quire_seq seq;
    uint32_t position;     /* of the first token named */
    uint32_t token_offset; /* into `tokens` */
    uint32_t token_count;
    uint32_t reserved0;
} quire_token_span;

/* Sets the ids of tokens that were added as QUIRE_TOKEN_UNKNOWN. Blocks that are then completely
 * named are published. All spans are checked before any of them is applied.
 * Errors   QUIRE_E_ARG   a position holds a named token, or is past the end.
 *          QUIRE_E_BUSY  a sequence is in the open step.
 * Time     O(spans + tokens named), and the search for the next unknown token. */
QUIRE_EXPORT quire_status quire_seq_set_tokens(quire_cache *cache, const quire_token_span *spans,
                                               uint32_t span_count, uint32_t span_stride,
                                               const quire_token *tokens, uint32_t token_count,
                                               quire_error *error);
/* Time     O(1). */
QUIRE_EXPORT quire_status quire_seq_get_info(quire_cache *cache, quire_seq seq,
                                             quire_seq_info *info, quire_error *error);

/* Counts how many tokens, of the sequence's known tokens followed by `tokens`, would be found if
 * they were added now on the queue that wrote them; drafts, masks and max_hit_tokens, which limit
 * what an item finds, are not considered. 0 if any of its tokens are computed. Changes nothing,
 * statistics included.
 * Time     O(known tokens + token_count). */
QUIRE_EXPORT quire_status quire_prefix_probe(quire_cache *cache, quire_seq seq,
                                             const quire_token *tokens, uint32_t token_count,
                                             uint32_t *hit_tokens, quire_error *error);

#ifdef __cplusplus
}
#endif
#endif /* QUIRE_SEQUENCE_H */
