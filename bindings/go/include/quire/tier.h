/* SPDX-License-Identifier: Apache-2.0
 *
 * tier: a store below the device, on disk or on other machines, opened through its plugin.
 *
 * A tier maps labels to values. It serves tools and engines that keep values of their own, or one
 * cache, below its prefixes (cache_tier.h). The plugin is found as backends are, as
 * quire_store_NAME.so; it implements plugin/store.h.
 *
 * Threads  Any. Calls on one tier are serialised, also those that wait; close it last.
 * Trust    A store that breaks its contract is QUIRE_E_BACKEND. A value is given out only under the
 *          very label that it was put under.
 */
#ifndef QUIRE_TIER_H
#define QUIRE_TIER_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which value. Two labels are equal if all their bytes are. */
typedef struct quire_store_label {
    uint8_t key[32];         /* digest of all that decides the content: what a store looks up */
    uint8_t fingerprint[32]; /* of the model, and of the types and layout of its blocks */
    uint8_t name_space[32];  /* digest of the tenant; zeros: the default one */
} quire_store_label;

/* One setting as text, for example {"directory", "/var/cache/quire"}. A plugin documents its
 * names. Sizes may end in KiB, MiB, GiB or TiB. */
typedef struct quire_store_option {
    const char *name;
    const char *value;
} quire_store_option;

enum {
    QUIRE_STORE_OPEN_EXISTING = 1 << 0, /* QUIRE_E_ARG where there is no store yet */
    QUIRE_STORE_OPEN_READ_ONLY = 1 << 1 /* puts, removals and compaction are refused, and nothing
                                           that outlives the process is changed */
};

enum {
    QUIRE_STORE_INDEXED = 1 << 0,    /* find never answers UNKNOWN */
    QUIRE_STORE_PERSISTENT = 1 << 1, /* what was flushed is there after the next open */
    QUIRE_STORE_REMOTE = 1 << 2,     /* other processes put and remove too */
    QUIRE_STORE_COMPACTS = 1 << 3    /* knows QUIRE_STORE_COMPACT */
};

typedef struct quire_store_info {
    uint32_t struct_size;
    uint32_t flags; /* QUIRE_STORE_* of the enum above, written */
    const quire_chain *next;
    uint64_t max_value_bytes; /* a larger put is refused */
    uint64_t capacity_bytes; /* of values with all that the store keeps beside them; 0: not known */
    uint32_t max_requests;   /* taken and not yet reaped, at least 1 */
    uint32_t reserved0;
    char place[256]; /* for people: where it keeps values, NUL-terminated UTF-8 */
} quire_store_info;

/* Counts since open, except for records, value_bytes and used_bytes, which are as of now. */
typedef struct quire_store_stats {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    const quire_chain *next;
    uint64_t records;       /* that find would find */
    uint64_t value_bytes;   /* of their values */
    uint64_t used_bytes;    /* of the capacity, removed records that still take room too */
    uint64_t puts;          /* new values that were stored */
    uint64_t puts_known;    /* there was an equal label already */
    uint64_t puts_refused;  /* FULL, or FAILED */
    uint64_t hits;          /* gets that were DONE */
    uint64_t misses;        /* gets that were MISS */
    uint64_t foreign;       /* gets that were FOREIGN */
    uint64_t damaged;       /* records that failed their check, in a get or at open */
    uint64_t failed_reads;  /* gets that were FAILED */
    uint64_t removed;       /* by REMOVE */
    uint64_t evicted;       /* dropped for room */
    uint64_t written_bytes; /* to the disk or network, with headers and padding */
    uint64_t read_bytes;
    uint64_t recovered;     /* records that were there at open */
    uint64_t skipped_bytes; /* at open, that are no record */
} quire_store_stats;

/* Part of a value in the caller's memory. */
typedef struct quire_store_piece {
    void *address;
    uint64_t size_bytes;
} quire_store_piece;

enum {
    QUIRE_STORE_PUT = 1,    /* stores the pieces, one after another, as the label's value; a value
                                that is there already is kept */
    QUIRE_STORE_GET = 2,    /* fills the pieces with the value, which must be exactly as long */
    QUIRE_STORE_FIND = 3,   /* is there a value? DONE or MISS */
    QUIRE_STORE_REMOVE = 4, /* DONE also where there was no value */
    QUIRE_STORE_FLUSH = 5,  /* DONE: all requests taken before it have ended, and their effects
                                survive a crash of the machine, if the store is persistent */
    QUIRE_STORE_COMPACT = 6 /* gives back the room of removed records; size_bytes says how much */
};

/* FIND, REMOVE, FLUSH and COMPACT have no pieces; FLUSH and COMPACT have a label of zeros. */
typedef struct quire_store_request {
    uint32_t kind;   /* QUIRE_STORE_PUT .. COMPACT */
    uint32_t flags;  /* 0 */
    uint64_t cookie; /* the caller's, comes back in the answer; equal ones may be in flight */
    quire_store_label label;
    const quire_store_piece *pieces;
    uint32_t piece_count;
    uint32_t reserved0;
} quire_store_request;

enum {
    QUIRE_STORE_DONE = 0,
    QUIRE_STORE_MISS = 1,      /* no such value */
    QUIRE_STORE_FOREIGN = 2,   /* the key is there under another fingerprint or name space */
    QUIRE_STORE_DAMAGED = 3,   /* it was there and failed its check; it is not found any more */
    QUIRE_STORE_SIZE = 4,      /* GET: the value is there and has size_bytes, unlike the pieces */
    QUIRE_STORE_FULL = 5,      /* PUT: no room, and none could be made */
    QUIRE_STORE_FAILED = 6,    /* the disk or network failed; native_code holds its errno */
    QUIRE_STORE_CANCELLED = 7, /* had no effect, except that a GET may have written its pieces */

    /* Not answers to a request; kind and cookie are 0. GONE: the label's value, which find found,
     * is evicted, displaced or damaged; it can be reaped as soon as find stops finding the value. A
     * store keeps a bounded number of notices that were not reaped, at least 1,000; past them it
     * tells LOST instead of all that wait, and list says what is there. REMOVE is not told. */
    QUIRE_STORE_NOTICE_GONE = 16,
    QUIRE_STORE_NOTICE_LOST = 17
};

/* After any outcome but DONE, a GET's pieces may hold anything. */
typedef struct quire_store_answer {
    uint32_t outcome; /* QUIRE_STORE_DONE .. */
    uint32_t kind;    /* of the request; 0 in a notice */
    uint64_t cookie;
    quire_store_label label;
    uint64_t size_bytes; /* GET and PUT: of the value; COMPACT: given back */
    int64_t native_code;
} quire_store_answer;

enum { QUIRE_STORE_ABSENT = 0, QUIRE_STORE_PRESENT = 1, QUIRE_STORE_UNKNOWN = 2 };

/* A record as list tells of it. */
typedef struct quire_store_record {
    quire_store_label label;
    uint64_t value_bytes;
    uint64_t sequence; /* grows from put to put over the life of the store; 0: not known */
} quire_store_record;

typedef struct quire_tier quire_tier;

typedef struct quire_tier_desc {
    uint32_t struct_size;
    uint32_t flags; /* QUIRE_STORE_OPEN_* */
    const quire_chain *next;
    const char *store;                 /* the plugin's name, such as "disk" */
    const quire_store_option *options; /* [option_count]; the plugin's help names them */
    uint32_t option_count;
    uint32_t option_stride;
} quire_tier_desc;

/* Opens a store.
 * Errors   QUIRE_E_BACKEND  no such plugin, or it does not load; the message says what was found.
 *          QUIRE_E_ARG      an option is unknown, repeated or wrong.
 *          QUIRE_E_BUSY     another owner has it open.
 * Time     as the store needs to find what it has; a disk is scanned. */
QUIRE_EXPORT quire_status quire_tier_open(quire_instance *instance, const quire_tier_desc *desc,
                                          quire_tier **out, quire_error *error);
/* Ends the tier once the store's requests have ended.
 * Returns  QUIRE_S_TIMEOUT  not in time; the tier still exists, and takes no more requests.
 * Time     O(records). */
QUIRE_EXPORT quire_status quire_tier_close_wait(quire_tier *tier, uint64_t timeout_ns,
                                                quire_error *error);
/* Time     O(1). */
QUIRE_EXPORT quire_status quire_tier_get_info(quire_tier *tier, quire_store_info *info,
                                              quire_error *error);
/* Time     O(segments) on disk, else O(1). */
QUIRE_EXPORT quire_status quire_tier_get_stats(quire_tier *tier, quire_store_stats *stats,
                                               quire_error *error);
/* Lists records: up to `capacity` more, and advances *cursor, which begins at 0; *count 0 means
 * that all were listed.
 * Errors   QUIRE_E_UNSUPPORTED  the store cannot tell what it has.
 * Time     O(records skipped and listed). */
QUIRE_EXPORT quire_status quire_tier_list(quire_tier *tier, uint64_t *cursor,
                                          quire_store_record *records, uint32_t capacity,
                                          uint32_t stride, uint32_t *count, quire_error *error);

/* One request, and its answer.
 *
 * request  kind, label and pieces; flags and reserved0 are 0, and the cookie comes back. The value
 *          passes through memory of the tier's own, so the pieces are the caller's again when the
 *          call returns, whatever the store does.
 * answer   its outcome (QUIRE_STORE_DONE, _MISS, ...) is a result: the call is QUIRE_OK.
 * Returns  QUIRE_S_TIMEOUT  no answer in time. The request was asked to end; it may still have its
 *                           effect.
 * Errors   QUIRE_E_ARG          the request is wrong.
 *          QUIRE_E_BUSY         the store has as many requests under way as it takes, all of them
 *                               timed out.
 *          QUIRE_E_UNSUPPORTED  the store is open READ_ONLY, or does not know the kind.
 * Time     O(bytes of the value), and what the store takes. */
QUIRE_EXPORT quire_status quire_tier_request_wait(quire_tier *tier,
                                                  const quire_store_request *request,
                                                  quire_store_answer *answer, uint64_t timeout_ns,
                                                  quire_error *error);

#ifdef __cplusplus
}
#endif
#endif /* QUIRE_TIER_H */
