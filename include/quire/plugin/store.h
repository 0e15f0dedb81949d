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
 * Structs   As base.h says. No array element has reserved room that a caller may use.
 * Memory    Labels and arrays are read before a call returns. Pieces belong to the store from the
 *           submit that takes their request until its answer is reaped.
 * Version   As backend.h: the plugin returns min(host minor, own minor) in abi_minor.
 */
#ifndef QUIRE_PLUGIN_STORE_H
#define QUIRE_PLUGIN_STORE_H

#include "../tier.h"
#include "host.h"

#ifdef __cplusplus
extern "C" {
#endif

#define QUIRE_STORE_ABI_MAJOR 0u
#define QUIRE_STORE_ABI_MINOR 1u
#define QUIRE_STORE_ENTRY "quire_store_query_v0"

typedef struct quire_store quire_store;

typedef struct quire_store_desc {
    uint32_t struct_size;
    uint32_t flags; /* QUIRE_STORE_OPEN_* */
    const quire_store_option *options;
    uint32_t option_count;
    uint32_t option_stride;
} quire_store_desc;

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
    /* Asks that requests with the cookie that were taken before end soon. Each still gets its
     * answer: CANCELLED, or whatever it came to. */
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
