/* SPDX-License-Identifier: Apache-2.0
 *
 * events: what the prefix cache can find, as changes that a router or a store follows.
 *
 * A cache created with QUIRE_CACHE_EVENTS notes which of its published blocks may have changed. A
 * reader calls quire_cache_events from time to time and gets the difference between what it was
 * told before and what is committed now. So nothing is ever lost, however rarely it reads, and no
 * step waits for a reader: between two reads the changes of one block add up to at most a removal
 * and a new block. A block that came and went in between is not mentioned.
 *
 * A store below the cache (cache_tier.h) is a level of its own: a block may be there and on the
 * device or in the host tier at once, and is stored once for each. A reader learns which blocks the
 * cache gave to the store, found in it, or loaded from it, since it was attached; until the store
 * says that one is gone, a load does not get it, or the tier is detached. Nothing finds a block in
 * the store if a block before it is nowhere: it is removed then, and stored again once a load
 * brings it, or it is computed and the store turns out to have it.
 *
 * Where groups have block_tokens of their own (quire_cache_desc.block_tokens), a block here is a
 * span, which is cached as one: the group's blocks of these tokens. It is stored for a group that
 * has all of them, and removed once one is gone.
 *
 * Two blocks with equal tokens may follow the same block for a while, after a step was dropped or
 * aborted in part: a sequence then finds what follows one of them.
 *
 * One reader per cache: hand the events on if several need them. A reader that lost what it knew
 * begins again with QUIRE_EVENTS_RESTART.
 */
#ifndef QUIRE_EVENTS_H
#define QUIRE_EVENTS_H

#include "base.h"
#include "cache.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    /* A sequence with these tokens after those of `parent` finds the block. In a cache where no
     * group sees all tokens, `parent` may be a block of which no group holds anything any more. */
    QUIRE_EVENT_STORED = 1,
    /* The block is not found any more. The blocks after it were removed before it. */
    QUIRE_EVENT_REMOVED = 2,
    /* No block is found any more, whatever was stored before; only `kind` is set. */
    QUIRE_EVENT_CLEARED = 3
};

enum {
    /* token_count tokens from token_offset on were written: the namespace gives its tokens away. */
    QUIRE_EVENT_HAS_TOKENS = 1 << 0,
    /* More than tokens decides what the block or one before it holds: an adapter, a salt, media. A
     * reader that looks blocks up by tokens alone must pass over it. */
    QUIRE_EVENT_KEYED = 1 << 1
};

/* A block that moves between levels is stored in the new one before it is removed from the old
 * one. It lies on the device or in the host tier, and in the store as well or alone. */
enum {
    QUIRE_LEVEL_DEVICE = 0,
    QUIRE_LEVEL_HOST = 1,
    QUIRE_LEVEL_STORE = 2, /* in the store below the cache (cache_tier.h) */
    QUIRE_LEVEL_REMOTE = 3 /* there too, and the store is QUIRE_STORE_REMOTE */
};

typedef struct quire_cache_event {
    uint32_t kind;      /* QUIRE_EVENT_* */
    uint32_t flags;     /* QUIRE_EVENT_HAS_TOKENS, QUIRE_EVENT_KEYED; of a stored block */
    uint64_t block;     /* the block's number, never 0. It is never another block's: one that was in
                           the store alone has it still when a load brings it back */
    uint64_t parent;    /* of a stored block: the number of the block before it; 0 if it is first */
    quire_namespace ns; /* whose sequences find it; 0 = the default namespace */
    uint32_t group;     /* a block is stored and removed once per group and level that hold it */
    uint32_t level;     /* where it lies, or lay: QUIRE_LEVEL_* */
    uint32_t position;  /* of a stored block: the place of its first token */
    uint32_t token_count;  /* of a stored block: block_tokens, or a span */
    uint32_t token_offset; /* into the token array */
    uint32_t reserved;     /* 0 */
} quire_cache_event;

enum {
    /* Forget what this reader was told. The next event is QUIRE_EVENT_CLEARED; everything that is
     * found follows as stored, over as many calls as it takes. */
    QUIRE_EVENTS_RESTART = 1 << 0
};

typedef struct quire_events_info {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    const quire_chain *next;
    uint32_t event_count; /* events written */
    uint32_t token_count; /* tokens written */
    uint32_t has_more; /* 1: the arrays are full, or this call has looked at enough: call again */
    uint32_t reserved; /* 0 */
} quire_events_info;

/* Reads what changed since the last call. A block comes after its parent, and goes before it. What
 * the open step did is told after its commit; a step that fails later takes its blocks back, which
 * is told as removals. The events that were written count as told.
 *
 * events   [capacity], stride bytes apart. At least one entry per group, with
 *          QUIRE_CACHE_HOST_PREFIXES two.
 * tokens   [token_capacity] the tokens of stored blocks whose namespace has
 *          QUIRE_NAMESPACE_EVENT_TOKENS, or for the default namespace QUIRE_CACHE_EVENT_TOKENS. At
 *          least those of a block, if the cache ever had one of these; else may be NULL.
 * Errors   QUIRE_E_ARG          an array is shorter than that; nothing changed.
 *          QUIRE_E_UNSUPPORTED  the cache was created without QUIRE_CACHE_EVENTS, or follows a
 *                               leader.
 *          QUIRE_E_HOST_MEMORY  after a migration to more blocks; nothing changed.
 * Time     O(capacity), with the cache's lock held, and O(blocks of its sequence) before the first
 *          block of a sequence. */
QUIRE_EXPORT quire_status quire_cache_events(quire_cache *cache, uint32_t flags,
                                             quire_cache_event *events, uint32_t capacity,
                                             uint32_t stride, quire_token *tokens,
                                             uint32_t token_capacity, quire_events_info *info,
                                             quire_error *error);

#ifdef __cplusplus
}
#endif
#endif /* QUIRE_EVENTS_H */
