/* SPDX-License-Identifier: Apache-2.0
 *
 * memory: a store that keeps values in the memory of its process, and drops the oldest ones
 * when its capacity is reached. The smallest store that passes the whole conformance suite.
 *
 * Copy this to begin a store of your own: keep the argument checks, and replace `put`, `get` and
 * the values. The contract is quire/plugin/store.h, and `quire conform-store` shows how far
 * you are. This one does everything inside submit, because nothing it does waits; a store that
 * waits for a disk or a network takes requests there, and answers from threads of its own.
 *
 * Threads: any; one mutex per store.
 */
#define _GNU_SOURCE
#include "quire/plugin/store.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "values.h"

static const char kStoreName[] = "memory"; /* quire_store_<name>.so, and in messages */
enum { kMaxRequests = 256, kNotices = 1024 };

struct quire_store {
    pthread_mutex_t mutex;
    int descriptor; /* an eventfd; readable while answers or notices wait */
    int is_read_only;
    values values;
    /* Rings: what waits is [first, first + count). */
    quire_store_answer answers[kMaxRequests];
    uint32_t first_answer;
    uint32_t answer_count;
    quire_store_label gone[kNotices];
    uint32_t first_gone;
    uint32_t gone_count;
    int has_lost; /* notices were lost since the last reap */
    quire_store_stats stats;
};

static atomic_uint_fast64_t live_stores;

/* Messages. --------------------------------------------------------------------------------------
 */

/* Says what was wrong and what to do. The error is the caller's memory: it may be smaller than the
 * struct known here, and it outlives this plugin. */
__attribute__((format(printf, 3, 4))) static quire_status fail(quire_error *error,
                                                               quire_status status,
                                                               const char *format, ...) {
    quire_error filled;
    va_list arguments;
    if (error == NULL || error->struct_size == 0) return status;
    memset(&filled, 0, sizeof filled);
    filled.struct_size = error->struct_size;
    filled.status = status;
    filled.domain = QUIRE_DOMAIN_BACKEND;
    memcpy(filled.backend, kStoreName, sizeof kStoreName);
    va_start(arguments, format);
    vsnprintf(filled.message, sizeof filled.message, format, arguments);
    va_end(arguments);
    memcpy(error, &filled, error->struct_size < sizeof filled ? error->struct_size : sizeof filled);
    return status;
}

/* Writes an output struct up to the caller's size of it. */
static void give(void *out, uint32_t out_bytes, const void *value, uint32_t value_bytes) {
    memcpy(out, value, out_bytes < value_bytes ? out_bytes : value_bytes);
}

/* Options. ---------------------------------------------------------------------------------------
 */

static quire_status read_size(const char *text, uint64_t *size_bytes, quire_error *error) {
    static const struct {
        const char *name;
        uint32_t shift;
    } units[] = {{"", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}};
    unsigned long long number;
    char *end = NULL;
    size_t i;
    errno = 0;
    number = strtoull(text, &end, 10);
    for (i = 0; i < sizeof units / sizeof *units; ++i) {
        if (strcmp(end, units[i].name) != 0) continue;
        if (text[0] < '0' || text[0] > '9' || errno != 0 || number == 0) break;
        if (number > UINT64_MAX >> units[i].shift) break;
        *size_bytes = (uint64_t)number << units[i].shift;
        return QUIRE_OK;
    }
    return fail(error, QUIRE_E_ARG,
                "capacity is '%s': it must be a number of bytes above 0, such as 512MiB", text);
}

static quire_status read_options(const quire_store_desc *desc, uint64_t *capacity_bytes,
                                 quire_error *error) {
    int has_capacity = 0;
    uint32_t i;
    *capacity_bytes = (uint64_t)1 << 30;
    for (i = 0; i < desc->option_count; ++i) {
        quire_store_option option;
        quire_status status;
        memcpy(&option, (const char *)desc->options + (size_t)i * desc->option_stride,
               sizeof option);
        if (option.name == NULL || option.value == NULL)
            return fail(error, QUIRE_E_ARG, "option %u has no name or no value", i);
        if (strcmp(option.name, "capacity") != 0)
            return fail(error, QUIRE_E_ARG, "there is no option '%s'; the only one is 'capacity'",
                        option.name);
        if (has_capacity) return fail(error, QUIRE_E_ARG, "option 'capacity' is given twice");
        has_capacity = 1;
        status = read_size(option.value, capacity_bytes, error);
        if (status != QUIRE_OK) return status;
    }
    return QUIRE_OK;
}

/* True if `bytes` from `from` to `to` are all 0: fields that a newer host does not use. */
static int are_zero(const void *bytes, uint32_t from, uint32_t to) {
    uint32_t i;
    for (i = from; i < to; ++i) {
        if (((const unsigned char *)bytes)[i] != 0) return 0;
    }
    return 1;
}

/* Requests. --------------------------------------------------------------------------------------
 */

static void tell_gone(quire_store *store, const quire_store_label *label) {
    if (store->gone_count == kNotices) {
        store->gone_count = 0;
        store->has_lost = 1;
    }
    if (store->has_lost) return; /* until LOST was reaped, the reader knows nothing anyway */
    store->gone[(store->first_gone + store->gone_count++) % kNotices] = *label;
}

static void evict(quire_store *store, record *r) {
    tell_gone(store, &r->label);
    store->stats.evicted += 1;
    values_drop(&store->values, r);
}

/* REQUIRES: check_request() found nothing wrong. */
static uint64_t size_of(const quire_store_request *request) {
    uint64_t size_bytes = 0;
    uint32_t i;
    for (i = 0; i < request->piece_count; ++i) size_bytes += request->pieces[i].size_bytes;
    return size_bytes;
}

/* Moves bytes between the pieces and one buffer. */
static void move_pieces(const quire_store_request *request, unsigned char *buffer, int is_put) {
    uint32_t i;
    for (i = 0; i < request->piece_count; ++i) {
        const quire_store_piece *piece = &request->pieces[i];
        if (piece->size_bytes == 0) continue;
        if (is_put)
            memcpy(buffer, piece->address, piece->size_bytes);
        else
            memcpy(piece->address, buffer, piece->size_bytes);
        buffer += piece->size_bytes;
    }
}

static uint32_t put(quire_store *store, const quire_store_request *request, uint64_t *size_bytes) {
    values *v = &store->values;
    record *known = values_find(v, request->label.key);
    record *made;
    *size_bytes = size_of(request);
    if (known != NULL && labels_equal(&known->label, &request->label)) {
        store->stats.puts_known += 1;
        *size_bytes = known->size_bytes;
        return QUIRE_STORE_DONE;
    }
    if (known != NULL) evict(store, known); /* of another model or tenant: the newer one stays */
    while (!values_fit(v, *size_bytes)) evict(store, v->first);
    made = values_add(v, &request->label, *size_bytes);
    if (made == NULL) {
        store->stats.puts_refused += 1;
        return QUIRE_STORE_FULL;
    }
    move_pieces(request, made->bytes, 1);
    store->stats.written_bytes += *size_bytes;
    store->stats.puts += 1;
    return QUIRE_STORE_DONE;
}

static uint32_t get(quire_store *store, const quire_store_request *request, uint64_t *size_bytes) {
    record *found = values_find(&store->values, request->label.key);
    if (found == NULL) {
        store->stats.misses += 1;
        return QUIRE_STORE_MISS;
    }
    if (!labels_equal(&found->label, &request->label)) {
        store->stats.foreign += 1;
        return QUIRE_STORE_FOREIGN;
    }
    *size_bytes = found->size_bytes;
    if (size_of(request) != found->size_bytes) return QUIRE_STORE_SIZE;
    move_pieces(request, found->bytes, 0);
    store->stats.hits += 1;
    store->stats.read_bytes += found->size_bytes;
    return QUIRE_STORE_DONE;
}

static uint32_t serve(quire_store *store, const quire_store_request *request,
                      uint64_t *size_bytes) {
    record *found;
    switch (request->kind) {
        case QUIRE_STORE_PUT:
            return put(store, request, size_bytes);
        case QUIRE_STORE_GET:
            return get(store, request, size_bytes);
        case QUIRE_STORE_FIND:
            found = values_find(&store->values, request->label.key);
            return found != NULL && labels_equal(&found->label, &request->label) ? QUIRE_STORE_DONE
                                                                                 : QUIRE_STORE_MISS;
        case QUIRE_STORE_REMOVE:
            found = values_find(&store->values, request->label.key);
            if (found != NULL && labels_equal(&found->label, &request->label)) {
                store->stats.removed += 1;
                values_drop(&store->values, found);
            }
            return QUIRE_STORE_DONE;
        default: /* FLUSH: everything before it has ended */
            return QUIRE_STORE_DONE;
    }
}

/* Refuses what the contract does not allow. Writes no state. */
static quire_status check_request(const quire_store *store, const quire_store_request *request,
                                  uint32_t index, quire_error *error) {
    static const quire_store_label zeros;
    int has_value = request->kind == QUIRE_STORE_PUT || request->kind == QUIRE_STORE_GET;
    int is_whole = request->kind == QUIRE_STORE_FLUSH || request->kind == QUIRE_STORE_COMPACT;
    uint64_t size_bytes = 0;
    uint32_t i;
    if (request->kind < QUIRE_STORE_PUT || request->kind > QUIRE_STORE_COMPACT)
        return fail(error, QUIRE_E_ARG, "request %u: there is no kind %u", index, request->kind);
    if (request->flags != 0 || request->reserved0 != 0)
        return fail(error, QUIRE_E_STRUCT, "request %u: flags and reserved0 must be 0", index);
    if (request->kind == QUIRE_STORE_COMPACT)
        return fail(error, QUIRE_E_UNSUPPORTED,
                    "request %u: memory of removed values is given back at once", index);
    if (store->is_read_only &&
        (request->kind == QUIRE_STORE_PUT || request->kind == QUIRE_STORE_REMOVE))
        return fail(error, QUIRE_E_UNSUPPORTED, "request %u: the store is open READ_ONLY", index);
    if (is_whole && !labels_equal(&request->label, &zeros))
        return fail(error, QUIRE_E_ARG, "request %u: FLUSH takes a label of zeros", index);
    if (!has_value && request->piece_count != 0)
        return fail(error, QUIRE_E_ARG, "request %u: only PUT and GET have pieces", index);
    if (request->piece_count != 0 && request->pieces == NULL)
        return fail(error, QUIRE_E_ARG, "request %u: pieces is NULL", index);
    for (i = 0; i < request->piece_count; ++i) {
        const quire_store_piece *piece = &request->pieces[i];
        if (piece->size_bytes > UINT64_MAX - size_bytes)
            return fail(error, QUIRE_E_ARG, "request %u: the sizes of its pieces overflow", index);
        if (piece->size_bytes != 0 && piece->address == NULL)
            return fail(error, QUIRE_E_ARG, "request %u: the address of piece %u is NULL", index,
                        i);
        size_bytes += piece->size_bytes;
    }
    if (request->kind == QUIRE_STORE_PUT &&
        (size_bytes == 0 || size_bytes > values_most_bytes(store->values.capacity_bytes)))
        return fail(error, QUIRE_E_ARG,
                    "request %u: a value of %llu bytes; at least 1 and at most %llu fit", index,
                    (unsigned long long)size_bytes,
                    (unsigned long long)values_most_bytes(store->values.capacity_bytes));
    return QUIRE_OK;
}

/* After each change of the rings: the descriptor is readable exactly while something waits.
 * REQUIRES: the mutex is held. */
static void update_descriptor(quire_store *store) {
    uint64_t value;
    ssize_t done;
    /* Reading empties it; it cannot block (EFD_NONBLOCK). */
    do done = read(store->descriptor, &value, sizeof value);
    while (done < 0 && errno == EINTR);
    if (store->answer_count + store->gone_count + (uint32_t)store->has_lost == 0) return;
    value = 1;
    do done = write(store->descriptor, &value, sizeof value);
    while (done < 0 && errno == EINTR);
}

/* The table. -------------------------------------------------------------------------------------
 */

static quire_status store_open(const quire_store_desc *desc, quire_store **out,
                               quire_error *error) {
    const uint32_t known_flags = QUIRE_STORE_OPEN_EXISTING | QUIRE_STORE_OPEN_READ_ONLY;
    quire_store *store;
    uint64_t capacity_bytes = 0;
    quire_status status;
    if (desc == NULL || out == NULL) return fail(error, QUIRE_E_ARG, "desc or out is NULL");
    if (desc->struct_size < sizeof *desc || !are_zero(desc, sizeof *desc, desc->struct_size))
        return fail(error, QUIRE_E_STRUCT,
                    "desc.struct_size is %u: %u is known, and what follows must be 0",
                    desc->struct_size, (unsigned)sizeof *desc);
    if ((desc->flags & ~known_flags) != 0)
        return fail(error, QUIRE_E_STRUCT, "desc.flags 0x%x has unknown bits", desc->flags);
    if (desc->option_count != 0 && desc->options == NULL)
        return fail(error, QUIRE_E_ARG, "desc.options is NULL");
    if (desc->option_count != 0 && desc->option_stride < sizeof(quire_store_option))
        return fail(error, QUIRE_E_STRUCT, "desc.option_stride is %u, but an option has %u bytes",
                    desc->option_stride, (unsigned)sizeof(quire_store_option));
    status = read_options(desc, &capacity_bytes, error);
    if (status != QUIRE_OK) return status;
    if (values_most_bytes(capacity_bytes) == 0)
        return fail(error, QUIRE_E_ARG, "capacity is %llu bytes: too small for one value",
                    (unsigned long long)capacity_bytes);
    if ((desc->flags & QUIRE_STORE_OPEN_EXISTING) != 0)
        return fail(error, QUIRE_E_ARG, "EXISTING: this store begins empty each time it is opened");
    store = calloc(1, sizeof *store);
    if (store == NULL || !values_init(&store->values, capacity_bytes)) {
        free(store);
        return fail(error, QUIRE_E_HOST_MEMORY, "there is no memory for the store");
    }
    store->descriptor = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (store->descriptor < 0) {
        int code = errno;
        values_end(&store->values);
        free(store);
        return fail(error, QUIRE_E_OS, "eventfd: %s", strerror(code));
    }
    pthread_mutex_init(&store->mutex, NULL);
    store->is_read_only = (desc->flags & QUIRE_STORE_OPEN_READ_ONLY) != 0;
    atomic_fetch_add(&live_stores, 1);
    *out = store;
    return QUIRE_OK;
}

static quire_status store_close_wait(quire_store *store, uint64_t timeout_ns, quire_error *error) {
    (void)timeout_ns; /* no request is ever under way */
    if (store == NULL) return fail(error, QUIRE_E_ARG, "store is NULL");
    close(store->descriptor);
    pthread_mutex_destroy(&store->mutex);
    values_end(&store->values);
    free(store);
    atomic_fetch_sub(&live_stores, 1);
    return QUIRE_OK;
}

static quire_status store_get_info(quire_store *store, quire_store_info *info, quire_error *error) {
    quire_store_info own;
    if (store == NULL || info == NULL) return fail(error, QUIRE_E_ARG, "store or info is NULL");
    if (info->struct_size < sizeof own)
        return fail(error, QUIRE_E_STRUCT, "info.struct_size is %u, but it has %u bytes",
                    info->struct_size, (unsigned)sizeof own);
    memset(&own, 0, sizeof own);
    own.struct_size = info->struct_size;
    own.flags = QUIRE_STORE_INDEXED;
    own.max_value_bytes = values_most_bytes(store->values.capacity_bytes);
    own.capacity_bytes = store->values.capacity_bytes;
    own.max_requests = kMaxRequests;
    snprintf(own.place, sizeof own.place, "memory of process %ld", (long)getpid());
    give(info, info->struct_size, &own, sizeof own);
    return QUIRE_OK;
}

static quire_status store_get_stats(quire_store *store, quire_store_stats *stats,
                                    quire_error *error) {
    quire_store_stats own;
    if (store == NULL || stats == NULL) return fail(error, QUIRE_E_ARG, "store or stats is NULL");
    if (stats->struct_size < sizeof own)
        return fail(error, QUIRE_E_STRUCT, "stats.struct_size is %u, but it has %u bytes",
                    stats->struct_size, (unsigned)sizeof own);
    pthread_mutex_lock(&store->mutex);
    own = store->stats;
    own.records = store->values.count;
    own.value_bytes = store->values.value_bytes;
    own.used_bytes = store->values.used_bytes;
    pthread_mutex_unlock(&store->mutex);
    own.struct_size = stats->struct_size;
    give(stats, stats->struct_size, &own, sizeof own);
    return QUIRE_OK;
}

static quire_status store_submit(quire_store *store, const quire_store_request *requests,
                                 uint32_t count, uint32_t stride, uint32_t *taken,
                                 quire_error *error) {
    uint32_t i;
    if (store == NULL || taken == NULL) return fail(error, QUIRE_E_ARG, "store or taken is NULL");
    if (count != 0 && requests == NULL) return fail(error, QUIRE_E_ARG, "requests is NULL");
    if (count != 0 && stride < sizeof *requests)
        return fail(error, QUIRE_E_STRUCT, "stride is %u, but a request has %u bytes", stride,
                    (unsigned)sizeof *requests);
    for (i = 0; i < count; ++i) {
        const quire_store_request *request =
            (const quire_store_request *)((const char *)requests + (size_t)i * stride);
        quire_status status = check_request(store, request, i, error);
        if (status != QUIRE_OK) return status;
        if (!are_zero(request, sizeof *request, stride))
            return fail(error, QUIRE_E_STRUCT, "request %u: bytes past the known ones are not 0",
                        i);
    }
    pthread_mutex_lock(&store->mutex);
    for (i = 0; i < count && store->answer_count < kMaxRequests; ++i) {
        const quire_store_request *request =
            (const quire_store_request *)((const char *)requests + (size_t)i * stride);
        quire_store_answer *answer =
            &store->answers[(store->first_answer + store->answer_count) % kMaxRequests];
        memset(answer, 0, sizeof *answer);
        answer->kind = request->kind;
        answer->cookie = request->cookie;
        answer->label = request->label;
        answer->outcome = serve(store, request, &answer->size_bytes);
        store->answer_count += 1;
    }
    update_descriptor(store);
    pthread_mutex_unlock(&store->mutex);
    *taken = i;
    return QUIRE_OK;
}

/* Takes the next answer or notice out of its ring. REQUIRES: the mutex is held. */
static int take_next(quire_store *store, quire_store_answer *out) {
    if (store->answer_count != 0) {
        *out = store->answers[store->first_answer];
        store->first_answer = (store->first_answer + 1) % kMaxRequests;
        store->answer_count -= 1;
        return 1;
    }
    memset(out, 0, sizeof *out);
    if (store->has_lost) {
        out->outcome = QUIRE_STORE_NOTICE_LOST;
        store->has_lost = 0;
        return 1;
    }
    if (store->gone_count == 0) return 0;
    out->outcome = QUIRE_STORE_NOTICE_GONE;
    out->label = store->gone[store->first_gone];
    store->first_gone = (store->first_gone + 1) % kNotices;
    store->gone_count -= 1;
    return 1;
}

static quire_status store_reap(quire_store *store, quire_store_answer *answers, uint32_t capacity,
                               uint32_t stride, uint32_t *count, quire_error *error) {
    uint32_t i;
    if (store == NULL || count == NULL) return fail(error, QUIRE_E_ARG, "store or count is NULL");
    if (capacity != 0 && answers == NULL) return fail(error, QUIRE_E_ARG, "answers is NULL");
    if (capacity != 0 && stride < sizeof *answers)
        return fail(error, QUIRE_E_STRUCT, "stride is %u, but an answer has %u bytes", stride,
                    (unsigned)sizeof *answers);
    pthread_mutex_lock(&store->mutex);
    for (i = 0; i < capacity; ++i) {
        quire_store_answer next;
        if (!take_next(store, &next)) break;
        memcpy((char *)answers + (size_t)i * stride, &next, sizeof next);
    }
    update_descriptor(store);
    pthread_mutex_unlock(&store->mutex);
    *count = i;
    return QUIRE_OK;
}

static quire_status store_cancel(quire_store *store, uint64_t cookie, quire_error *error) {
    (void)cookie; /* every request has its answer already */
    if (store == NULL) return fail(error, QUIRE_E_ARG, "store is NULL");
    return QUIRE_OK;
}

static int32_t store_descriptor(quire_store *store) {
    return store == NULL ? -1 : store->descriptor;
}

static quire_status store_find(quire_store *store, const quire_store_label *labels, uint32_t count,
                               uint32_t stride, uint8_t *found, quire_error *error) {
    uint32_t i;
    if (store == NULL) return fail(error, QUIRE_E_ARG, "store is NULL");
    if (count != 0 && (labels == NULL || found == NULL))
        return fail(error, QUIRE_E_ARG, "labels or found is NULL");
    if (count != 0 && stride < sizeof *labels)
        return fail(error, QUIRE_E_STRUCT, "stride is %u, but a label has %u bytes", stride,
                    (unsigned)sizeof *labels);
    for (i = 0; i < count; ++i) {
        if (!are_zero((const char *)labels + (size_t)i * stride, sizeof *labels, stride))
            return fail(error, QUIRE_E_STRUCT, "label %u: bytes past the known ones are not 0", i);
    }
    pthread_mutex_lock(&store->mutex);
    for (i = 0; i < count; ++i) {
        const quire_store_label *label =
            (const quire_store_label *)((const char *)labels + (size_t)i * stride);
        const record *at = values_find(&store->values, label->key);
        found[i] = at != NULL && labels_equal(&at->label, label) ? QUIRE_STORE_PRESENT
                                                                 : QUIRE_STORE_ABSENT;
    }
    pthread_mutex_unlock(&store->mutex);
    return QUIRE_OK;
}

/* The cursor is the sequence number of the last record listed, so that records that come and go
 * meanwhile do not disturb the others. */
static quire_status store_list(quire_store *store, uint64_t *cursor, quire_store_record *records,
                               uint32_t capacity, uint32_t stride, uint32_t *count,
                               quire_error *error) {
    const record *next;
    if (store == NULL || cursor == NULL || count == NULL)
        return fail(error, QUIRE_E_ARG, "store, cursor or count is NULL");
    if (capacity == 0 || records == NULL)
        return fail(error, QUIRE_E_ARG, "capacity is 0 or records is NULL");
    if (stride < sizeof *records)
        return fail(error, QUIRE_E_STRUCT, "stride is %u, but a record has %u bytes", stride,
                    (unsigned)sizeof *records);
    pthread_mutex_lock(&store->mutex);
    next = values_after(&store->values, *cursor);
    for (*count = 0; *count < capacity && next != NULL; ++*count) {
        quire_store_record out;
        memset(&out, 0, sizeof out);
        out.label = next->label;
        out.value_bytes = next->size_bytes;
        out.sequence = *cursor = next->sequence;
        memcpy((char *)records + (size_t)*count * stride, &out, sizeof out);
        next = next->later;
    }
    pthread_mutex_unlock(&store->mutex);
    return QUIRE_OK;
}

static quire_status store_shutdown(uint64_t *live_objects, quire_error *error) {
    if (live_objects == NULL) return fail(error, QUIRE_E_ARG, "live_objects is NULL");
    *live_objects = atomic_load(&live_stores);
    return QUIRE_OK;
}

static const quire_store_api kApi = {
    sizeof(quire_store_api),
    QUIRE_STORE_ABI_MAJOR,
    QUIRE_STORE_ABI_MINOR,
    QUIRE_STORE_ABI_MINOR,
    kStoreName,
    "0.1.0",
    "capacity  bytes of values and records, default 1GiB; the oldest go first\n",
    store_open,
    store_close_wait,
    store_get_info,
    store_get_stats,
    store_submit,
    store_reap,
    store_cancel,
    store_descriptor,
    store_find,
    store_list,
    store_shutdown,
};

quire_status quire_store_query_v0(const quire_host_info *host, const quire_store_api **out,
                                  quire_error *error) {
    if (host == NULL || out == NULL) return fail(error, QUIRE_E_ARG, "host or out is NULL");
    if (host->struct_size < sizeof *host)
        return fail(error, QUIRE_E_STRUCT, "host.struct_size is %u, but %u bytes are needed",
                    host->struct_size, (unsigned)sizeof *host);
    if (host->abi_major != QUIRE_STORE_ABI_MAJOR)
        return fail(error, QUIRE_E_INCOMPATIBLE,
                    "the host has version %u of the store ABI, and this plugin %u", host->abi_major,
                    QUIRE_STORE_ABI_MAJOR);
    if (host->abi_minor < QUIRE_STORE_ABI_MINOR)
        return fail(error, QUIRE_E_INCOMPATIBLE,
                    "the host has minor version %u of the store ABI, and %u is needed",
                    host->abi_minor, QUIRE_STORE_ABI_MINOR);
    *out = &kApi;
    return QUIRE_OK;
}
