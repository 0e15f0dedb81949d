/* SPDX-License-Identifier: Apache-2.0
 *
 * store: what keeps blocks below the device: on disk, or on other machines. One shared object, one
 * exported symbol, one table.
 *
 * A store maps labels to values. It never looks into a value (docs/canonical-form.md says what the
 * library puts there), and a lost or damaged value is a miss: the library computes it again. So a
 * store may drop anything at any time; it may never answer with bytes that were not put under that
 * very label.
 *
 * A plugin exports quire_store_query_v0. The library calls it once per load; it is pure: no
 * threads, no files, no environment writes. To begin, copy backends/stores/memory.
 *
 * Threads   Every function may be called from any thread, also at the same time. A store that needs
 *           threads owns them, and no thread outlives close_wait. No function may unwind or install
 *           signal handlers. A store is not usable in a forked child.
 * Waiting   Only open and close_wait may wait. All others return without waiting for a disk, a
 *           network, or a thread that does; what takes time is a request, and its answer is reaped.
 * Failure   A negative status means that nothing happened and nothing will. `error` is never NULL.
 *           What can go wrong later is an outcome in an answer, not a status.
 * Structs   As base.h says, except that arrays have a stride. Outputs are written up to the
 *           caller's struct_size or stride. An unknown flag is QUIRE_E_STRUCT.
 * Memory    Labels and arrays are read before a call returns. Pieces belong to the store from the
 *           submit that takes their request until its answer is reaped.
 * Version   As backend.h: the plugin returns min(host minor, own minor) in abi_minor.
 */
#ifndef QUIRE_PLUGIN_STORE_H
#define QUIRE_PLUGIN_STORE_H

#include "host.h"

#ifdef __cplusplus
extern "C" {
#endif

#define QUIRE_STORE_ABI_MAJOR 0u
#define QUIRE_STORE_ABI_MINOR 1u
#define QUIRE_STORE_ENTRY "quire_store_query_v0"

typedef struct quire_store quire_store;

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

typedef struct quire_store_desc {
    uint32_t struct_size;
    uint32_t flags; /* QUIRE_STORE_OPEN_* */
    const quire_store_option *options;
    uint32_t option_count;
    uint32_t option_stride;
} quire_store_desc;

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
    uint32_t flags;           /* QUIRE_STORE_* of the enum above */
    uint64_t max_value_bytes; /* a larger put is refused */
    uint64_t capacity_bytes; /* of values with all that the store keeps beside them; 0: not known */
    uint32_t max_requests;   /* taken and not yet reaped, at least 1 */
    uint32_t reserved0;
    char place[256]; /* for people: where it keeps values, NUL-terminated UTF-8 */
} quire_store_info;

/* Counts since open, except for records, value_bytes and used_bytes, which are as of now. */
typedef struct quire_store_stats {
    uint32_t struct_size;
    uint32_t reserved0;
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

    /* Not answers to a request; kind and cookie are 0. GONE: the label's value, which find found, is
     * evicted, displaced or damaged; it can be reaped as soon as find stops finding the value. A
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

/* What list tells of a record. */
typedef struct quire_store_record {
    quire_store_label label;
    uint64_t value_bytes;
    uint64_t sequence; /* grows from put to put over the life of the store; 0: not known */
} quire_store_record;

typedef struct quire_store_api {
    uint32_t struct_size;
    uint32_t abi_major;
    uint32_t abi_minor;
    uint32_t min_host_minor;
    const char *name;    /* 1 to 31 bytes of a-z, 0-9, _ and -: quire_store_<name>.so */
    const char *version; /* at most 31 bytes */
    const char *help;    /* its options for people, one per line: name, default, meaning */

    /* An unknown option, or one given twice, is QUIRE_E_ARG; so is a wrong value, and the message
     * says which. A place that another store object has open, of this process or another one, is
     * QUIRE_E_BUSY, unless the store is REMOTE. */
    quire_status (*open)(const quire_store_desc *desc, quire_store **out, quire_error *error);
    /* Ends the store once all taken requests have ended; answers that were not reaped are dropped.
     * QUIRE_S_TIMEOUT: the time ran out, the store is still open, and takes no more requests. */
    quire_status (*close_wait)(quire_store *store, uint64_t timeout_ns, quire_error *error);
    quire_status (*get_info)(quire_store *store, quire_store_info *info, quire_error *error);
    quire_status (*get_stats)(quire_store *store, quire_store_stats *stats, quire_error *error);

    /* Takes requests in their order, all of them or as many as max_requests allows; `taken` says
     * how many. Each one taken gets one answer. If any of the `count` is wrong (its kind, flags,
     * pieces of an address NULL, sizes that overflow, a put of 0 bytes or of more than
     * max_value_bytes), none is taken. Requests may end in any order; one that was answered before
     * another was submitted has its effect before it. */
    quire_status (*submit)(quire_store *store, const quire_store_request *requests, uint32_t count,
                           uint32_t stride, uint32_t *taken, quire_error *error);
    /* Writes up to `capacity` answers and notices. */
    quire_status (*reap)(quire_store *store, quire_store_answer *answers, uint32_t capacity,
                         uint32_t stride, uint32_t *count, quire_error *error);
    /* Asks that requests with the cookie end soon. Each still gets its answer: CANCELLED, or
     * whatever it came to. */
    quire_status (*cancel)(quire_store *store, uint64_t cookie, quire_error *error);
    /* A descriptor that poll() reports readable while answers or notices wait to be reaped. It is
     * the store's: not to be read or closed. NULL or -1: there is no such thing here. */
    int32_t (*descriptor)(quire_store *store);

    /* found[i] = QUIRE_STORE_ABSENT, PRESENT or UNKNOWN (ask with a request), from memory alone. It
     * goes by the key: a record under another fingerprint or name space is ABSENT if the store
     * knows that without reading it. */
    quire_status (*find)(quire_store *store, const quire_store_label *labels, uint32_t count,
                         uint32_t stride, uint8_t *found, quire_error *error);
    /* Writes up to `capacity` records and advances *cursor, which begins at 0; count 0 means that
     * all were listed. A record that is there from the first call to the last is listed once. NULL:
     * the store cannot tell. */
    quire_status (*list)(quire_store *store, uint64_t *cursor, quire_store_record *records,
                         uint32_t capacity, uint32_t stride, uint32_t *count, quire_error *error);
    /* live_objects receives how many stores were opened and not closed. */
    quire_status (*shutdown)(uint64_t *live_objects, quire_error *error);
} quire_store_api;

QUIRE_EXPORT quire_status quire_store_query_v0(const quire_host_info *host,
                                               const quire_store_api **out, quire_error *error);
typedef quire_status (*quire_store_query_fn)(const quire_host_info *host,
                                             const quire_store_api **out, quire_error *error);

#ifdef __cplusplus
}
#endif
#endif /* QUIRE_PLUGIN_STORE_H */
