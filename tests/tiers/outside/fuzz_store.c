/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_store: a store in memory that answers late, in any order, and as wrongly as it is told to.
 *
 * All stores of the process share one set of records, so that several caches share what they
 * wrote. `fuzz_control` sets the faults; fuzz_store.py has the same layout.
 * Time is the number of reaps, and one generator draws all faults, so a seed repeats them.
 *
 * Threads: any; one mutex holds everything.
 */
#include "quire/plugin/store.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { kNotices = 1024, kValueBytes = 1 << 20 };

/* How find() answers. */
enum find_mode { kFindTells, kFindUnknown, kFindSometimes, kFindLies, kFindPresentOrUnknown };

/* Names that begin with p_ are chances per mille. */
typedef struct control {
    uint32_t find_mode, max_requests, max_delay, hold, take_none, use_descriptor, remote, notices;
    uint32_t p_miss, p_failed, p_cancelled, p_damaged, p_foreign, p_flip, p_swap, p_size, p_full;
    uint32_t p_evict, p_find_miss, p_find_failed, p_find_cancelled, p_put_failed, p_put_cancelled;
    uint32_t cancel_honoured; /* 0 never, 1 half of the time, 2 always */
    uint64_t random;
    uint64_t wrong_requests;
} control;

typedef struct record {
    quire_store_label label;
    uint64_t size;
    unsigned char *bytes;
} record;

typedef struct pending {
    quire_store_request request;
    quire_store_piece *pieces;
    uint64_t size, due;
    int cancelled;
    struct pending *older;
} pending;

struct quire_store {
    int descriptor;
    uint32_t outstanding, gone_count;
    uint64_t ticks;
    pending *newest;
    quire_store_label gone[kNotices];
    int lost_notices;
    struct quire_store *next;
};

QUIRE_EXPORT control fuzz_control;
QUIRE_EXPORT void fuzz_reset(void);
QUIRE_EXPORT void fuzz_evict_all(void);
QUIRE_EXPORT uint64_t fuzz_live(void);
QUIRE_EXPORT int fuzz_has(const uint8_t *key);
QUIRE_EXPORT uint32_t fuzz_outstanding(void);

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static record *records;
static uint32_t record_count, record_room;
static struct quire_store *stores;
static uint64_t live_stores;

static uint64_t draw(void) {
    uint64_t x = fuzz_control.random;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    fuzz_control.random = x != 0 ? x : 88172645463325252u;
    return fuzz_control.random;
}

static int chance(uint32_t per_mille) { return per_mille != 0 && draw() % 1000 < per_mille; }

static int same_label(const quire_store_label *a, const quire_store_label *b) {
    return memcmp(a, b, sizeof *a) == 0;
}

static record *look(const uint8_t *key) {
    for (uint32_t i = 0; i < record_count; ++i) {
        if (memcmp(records[i].label.key, key, sizeof records[i].label.key) == 0) return &records[i];
    }
    return NULL;
}

static void tell_gone(const quire_store_label *label) {
    if (!fuzz_control.notices) return;
    for (struct quire_store *store = stores; store != NULL; store = store->next) {
        if (store->lost_notices) continue;
        if (store->gone_count == kNotices) {
            store->lost_notices = 1;
            store->gone_count = 0;
        } else {
            store->gone[store->gone_count++] = *label;
        }
    }
}

static void drop(record *dropped) {
    free(dropped->bytes);
    *dropped = records[--record_count];
}

static void evict(record *evicted) {
    tell_gone(&evicted->label);
    drop(evicted);
}

static void evict_by_chance(void) {
    if (chance(fuzz_control.p_evict) && record_count > 0) evict(&records[draw() % record_count]);
}

/* Makes the descriptor readable while anything is outstanding. */
static void signal_descriptor(struct quire_store *store) {
    if (store->descriptor < 0) return;
    uint64_t value = 0;
    int ready = store->gone_count > 0 || store->lost_notices ||
                (store->newest != NULL && !fuzz_control.hold);
    if (read(store->descriptor, &value, sizeof value) < 0) value = 0;
    value = 1;
    if (ready && write(store->descriptor, &value, sizeof value) < 0) abort();
}

void fuzz_reset(void) {
    pthread_mutex_lock(&mutex);
    while (record_count > 0) drop(&records[0]);
    memset(&fuzz_control, 0, sizeof fuzz_control);
    fuzz_control.max_requests = 64;
    fuzz_control.random = 1;
    pthread_mutex_unlock(&mutex);
}

void fuzz_evict_all(void) {
    pthread_mutex_lock(&mutex);
    while (record_count > 0) evict(&records[0]);
    pthread_mutex_unlock(&mutex);
}

uint64_t fuzz_live(void) { return live_stores; }

int fuzz_has(const uint8_t *key) {
    pthread_mutex_lock(&mutex);
    int has = look(key) != NULL;
    pthread_mutex_unlock(&mutex);
    return has;
}

uint32_t fuzz_outstanding(void) {
    uint32_t count = 0;
    for (struct quire_store *store = stores; store != NULL; store = store->next) {
        count += store->outstanding;
    }
    return count;
}

static quire_status store_open(const quire_store_desc *desc, quire_store **out,
                               quire_error *error) {
    (void)desc;
    (void)error;
    struct quire_store *store = calloc(1, sizeof *store);
    if (store == NULL) abort();
    store->descriptor = fuzz_control.use_descriptor ? eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC) : -1;
    pthread_mutex_lock(&mutex);
    store->next = stores;
    stores = store;
    ++live_stores;
    pthread_mutex_unlock(&mutex);
    *out = store;
    return QUIRE_OK;
}

static void forget(pending *ended) {
    free(ended->pieces);
    free(ended);
}

static quire_status store_close_wait(quire_store *store, uint64_t timeout_ns, quire_error *error) {
    (void)timeout_ns;
    (void)error;
    pthread_mutex_lock(&mutex);
    if (store->newest != NULL && fuzz_control.hold) {
        pthread_mutex_unlock(&mutex);
        return QUIRE_S_TIMEOUT;
    }
    while (store->newest != NULL) {
        pending *ended = store->newest;
        store->newest = ended->older;
        forget(ended);
    }
    struct quire_store **at = &stores;
    while (*at != store) at = &(*at)->next;
    *at = store->next;
    --live_stores;
    pthread_mutex_unlock(&mutex);
    if (store->descriptor >= 0) close(store->descriptor);
    free(store);
    return QUIRE_OK;
}

static quire_status store_get_info(quire_store *store, quire_store_info *info, quire_error *error) {
    (void)store;
    (void)error;
    uint32_t size = info->struct_size;
    quire_store_info full = {.struct_size = size,
                             .flags = fuzz_control.remote ? QUIRE_STORE_REMOTE : 0,
                             .max_value_bytes = kValueBytes,
                             .max_requests = fuzz_control.max_requests};
    snprintf(full.place, sizeof full.place, "fuzz");
    memcpy(info, &full, size < sizeof full ? size : sizeof full);
    return QUIRE_OK;
}

static quire_status store_get_stats(quire_store *store, quire_store_stats *stats,
                                    quire_error *error) {
    (void)store;
    (void)error;
    uint32_t size = stats->struct_size;
    quire_store_stats full = {.struct_size = size, .records = record_count};
    memcpy(stats, &full, size < sizeof full ? size : sizeof full);
    return QUIRE_OK;
}

static const quire_store_request *request_at(const quire_store_request *requests, uint32_t index,
                                             uint32_t stride) {
    return (const void *)((const char *)requests + (size_t)index * stride);
}

static int is_wrong(const quire_store_request *request) {
    uint64_t size = 0;
    for (uint32_t i = 0; i < request->piece_count; ++i) {
        const quire_store_piece *piece = &request->pieces[i];
        if (piece->address == NULL && piece->size_bytes > 0) return 1;
        size += piece->size_bytes;
    }
    if (request->kind < QUIRE_STORE_PUT || request->kind > QUIRE_STORE_FLUSH) return 1;
    if (request->flags != 0 || request->reserved0 != 0) return 1;
    return request->kind == QUIRE_STORE_PUT && (size == 0 || size > kValueBytes);
}

static void take(struct quire_store *store, const quire_store_request *request) {
    pending *taken = calloc(1, sizeof *taken);
    quire_store_piece *pieces = calloc(request->piece_count + 1u, sizeof *pieces);
    if (taken == NULL || pieces == NULL) abort();
    for (uint32_t i = 0; i < request->piece_count; ++i) {
        pieces[i] = request->pieces[i];
        taken->size += pieces[i].size_bytes;
    }
    taken->request = *request;
    taken->pieces = pieces;
    uint32_t delay = fuzz_control.max_delay;
    taken->due = store->ticks + (delay != 0 ? draw() % (delay + 1) : 0);
    taken->older = store->newest;
    store->newest = taken;
    ++store->outstanding;
}

static quire_status store_submit(quire_store *store, const quire_store_request *requests,
                                 uint32_t count, uint32_t stride, uint32_t *taken,
                                 quire_error *error) {
    pthread_mutex_lock(&mutex);
    for (uint32_t i = 0; i < count; ++i) {
        if (!is_wrong(request_at(requests, i, stride))) continue;
        ++fuzz_control.wrong_requests;
        pthread_mutex_unlock(&mutex);
        error->status = QUIRE_E_ARG;
        snprintf(error->message, sizeof error->message, "fuzz: request %u is wrong", i);
        return QUIRE_E_ARG;
    }
    *taken = 0;
    while (!fuzz_control.take_none && *taken < count &&
           store->outstanding < fuzz_control.max_requests) {
        take(store, request_at(requests, (*taken)++, stride));
    }
    evict_by_chance();
    signal_descriptor(store);
    pthread_mutex_unlock(&mutex);
    return QUIRE_OK;
}

static void gather(const pending *put, unsigned char *bytes) {
    for (uint32_t i = 0; i < put->request.piece_count; ++i) {
        quire_store_piece piece = put->pieces[i];
        if (piece.size_bytes > 0) memcpy(bytes, piece.address, piece.size_bytes);
        bytes += piece.size_bytes;
    }
}

static void scatter(const pending *get, const unsigned char *bytes) {
    for (uint32_t i = 0; i < get->request.piece_count; ++i) {
        quire_store_piece piece = get->pieces[i];
        if (piece.size_bytes > 0) memcpy(piece.address, bytes, piece.size_bytes);
        bytes += piece.size_bytes;
    }
}

static unsigned char *room_for(uint64_t size) {
    unsigned char *bytes = malloc(size + 1);
    if (bytes == NULL) abort();
    return bytes;
}

/* A cancelled get leaves other bytes in its pieces. */
static uint32_t answer_cancelled(const pending *cancelled) {
    if (cancelled->request.kind == QUIRE_STORE_GET) {
        unsigned char *bytes = room_for(cancelled->size);
        memset(bytes, 0xAB, cancelled->size);
        scatter(cancelled, bytes);
        free(bytes);
    }
    return QUIRE_STORE_CANCELLED;
}

static uint32_t answer_failed(quire_store_answer *answer) {
    answer->native_code = EIO;
    return QUIRE_STORE_FAILED;
}

static uint32_t answer_find(int has, quire_store_answer *answer) {
    if (chance(fuzz_control.p_find_failed)) return answer_failed(answer);
    if (chance(fuzz_control.p_find_cancelled)) return QUIRE_STORE_CANCELLED;
    return !has || chance(fuzz_control.p_find_miss) ? QUIRE_STORE_MISS : QUIRE_STORE_DONE;
}

static void add_record(const pending *put) {
    if (record_count == record_room) {
        record_room = record_room != 0 ? record_room * 2 : 256;
        records = realloc(records, record_room * sizeof *records);
        if (records == NULL) abort();
    }
    record *added = &records[record_count++];
    *added = (record){put->request.label, put->size, room_for(put->size)};
    gather(put, added->bytes);
}

static uint32_t answer_put(const pending *put, record *found, int same,
                           quire_store_answer *answer) {
    answer->size_bytes = put->size;
    if (chance(fuzz_control.p_full)) return QUIRE_STORE_FULL;
    if (chance(fuzz_control.p_put_failed)) return answer_failed(answer);
    if (chance(fuzz_control.p_put_cancelled)) return QUIRE_STORE_CANCELLED;
    if (same) {
        answer->size_bytes = found->size;
        return QUIRE_STORE_DONE;
    }
    if (found != NULL) evict(found);
    add_record(put);
    return QUIRE_STORE_DONE;
}

/* The value with one bit flipped. */
static void give_flipped(const pending *get, const record *found) {
    unsigned char *bytes = room_for(found->size);
    memcpy(bytes, found->bytes, found->size);
    uint64_t at = draw() % found->size;
    bytes[at] ^= (unsigned char)(1u << (draw() % 8));
    scatter(get, bytes);
    free(bytes);
}

static void give_value(const pending *get, const record *found) {
    if (chance(fuzz_control.p_flip)) {
        give_flipped(get, found);
        return;
    }
    if (chance(fuzz_control.p_swap)) {
        const record *other = &records[draw() % record_count];
        if (other->size == get->size) found = other;
    }
    scatter(get, found->bytes);
}

static uint32_t answer_get(const pending *get, record *found, int same,
                           quire_store_answer *answer) {
    if (chance(fuzz_control.p_failed)) return answer_failed(answer);
    if (chance(fuzz_control.p_cancelled)) return QUIRE_STORE_CANCELLED;
    if (found == NULL || chance(fuzz_control.p_miss)) return QUIRE_STORE_MISS;
    if (!same || chance(fuzz_control.p_foreign)) return QUIRE_STORE_FOREIGN;
    if (chance(fuzz_control.p_damaged)) {
        evict(found);
        return QUIRE_STORE_DAMAGED;
    }
    answer->size_bytes = found->size;
    if (found->size != get->size || chance(fuzz_control.p_size)) {
        if (found->size == get->size) answer->size_bytes = found->size + 64;
        return QUIRE_STORE_SIZE;
    }
    give_value(get, found);
    return QUIRE_STORE_DONE;
}

static uint32_t outcome_of(const pending *ended, quire_store_answer *answer) {
    uint32_t kind = ended->request.kind;
    record *found = look(ended->request.label.key);
    int same = found != NULL && same_label(&found->label, &ended->request.label);
    if (ended->cancelled && kind != QUIRE_STORE_FLUSH) return answer_cancelled(ended);
    if (kind == QUIRE_STORE_FIND) return answer_find(same, answer);
    if (kind == QUIRE_STORE_PUT) return answer_put(ended, found, same, answer);
    if (kind == QUIRE_STORE_GET) return answer_get(ended, found, same, answer);
    if (kind == QUIRE_STORE_REMOVE && same) drop(found);
    return QUIRE_STORE_DONE;
}

/* A flush ends after everything older than it. */
static int may_end(const struct quire_store *store, const pending *waiting) {
    if (waiting->request.kind == QUIRE_STORE_FLUSH && waiting->older != NULL) return 0;
    return waiting->due <= store->ticks || waiting->cancelled;
}

/* Takes one of the requests that may end out of the list; NULL: there is no such request. */
static pending *take_out(struct quire_store *store) {
    uint64_t count = 0;
    for (pending *each = store->newest; each != NULL; each = each->older) {
        count += (uint64_t)may_end(store, each);
    }
    if (count == 0) return NULL;
    uint64_t left = draw() % count;
    pending **at = &store->newest;
    while (!may_end(store, *at) || left-- > 0) at = &(*at)->older;
    pending *chosen = *at;
    *at = chosen->older;
    --store->outstanding;
    return chosen;
}

static quire_store_answer end_request(pending *ended) {
    quire_store_answer answer = {.kind = ended->request.kind,
                                 .cookie = ended->request.cookie,
                                 .label = ended->request.label};
    answer.outcome = outcome_of(ended, &answer);
    forget(ended);
    return answer;
}

static quire_store_answer take_notice(struct quire_store *store) {
    quire_store_answer answer = {.outcome = QUIRE_STORE_NOTICE_LOST};
    if (store->lost_notices) {
        store->lost_notices = 0;
        return answer;
    }
    answer.outcome = QUIRE_STORE_NOTICE_GONE;
    answer.label = store->gone[--store->gone_count];
    return answer;
}

static quire_status store_reap(quire_store *store, quire_store_answer *answers, uint32_t capacity,
                               uint32_t stride, uint32_t *count, quire_error *error) {
    (void)error;
    pthread_mutex_lock(&mutex);
    ++store->ticks;
    evict_by_chance();
    char *at = (char *)answers;
    pending *ended = NULL;
    *count = 0;
    while (*count < capacity && !fuzz_control.hold && (ended = take_out(store)) != NULL) {
        quire_store_answer answer = end_request(ended);
        memcpy(at + (size_t)(*count)++ * stride, &answer, sizeof answer);
    }
    while (*count < capacity && (store->gone_count > 0 || store->lost_notices)) {
        quire_store_answer notice = take_notice(store);
        memcpy(at + (size_t)(*count)++ * stride, &notice, sizeof notice);
    }
    signal_descriptor(store);
    pthread_mutex_unlock(&mutex);
    return QUIRE_OK;
}

static quire_status store_cancel(quire_store *store, uint64_t cookie, quire_error *error) {
    (void)error;
    pthread_mutex_lock(&mutex);
    uint32_t honoured = fuzz_control.cancel_honoured;
    for (pending *each = store->newest; honoured > 0 && each != NULL; each = each->older) {
        if (each->request.cookie == cookie && (honoured > 1 || draw() % 2)) each->cancelled = 1;
    }
    pthread_mutex_unlock(&mutex);
    return QUIRE_OK;
}

static int32_t store_descriptor(quire_store *store) { return store->descriptor; }

static uint8_t presence(int has) {
    uint8_t truth = has ? QUIRE_STORE_PRESENT : QUIRE_STORE_ABSENT;
    switch (fuzz_control.find_mode) {
        case kFindUnknown:
            return QUIRE_STORE_UNKNOWN;
        case kFindSometimes:
            return draw() % 2 ? QUIRE_STORE_UNKNOWN : truth;
        case kFindLies:
            return (uint8_t)(draw() % 3);
        case kFindPresentOrUnknown:
            return has ? QUIRE_STORE_PRESENT : QUIRE_STORE_UNKNOWN;
        default:
            return truth;
    }
}

static quire_status store_find(quire_store *store, const quire_store_label *labels, uint32_t count,
                               uint32_t stride, uint8_t *found, quire_error *error) {
    (void)store;
    (void)error;
    pthread_mutex_lock(&mutex);
    for (uint32_t i = 0; i < count; ++i) {
        const quire_store_label *label = (const void *)((const char *)labels + (size_t)i * stride);
        const record *at = look(label->key);
        found[i] = presence(at != NULL && same_label(&at->label, label));
    }
    pthread_mutex_unlock(&mutex);
    return QUIRE_OK;
}

static quire_status store_shutdown(uint64_t *live_objects, quire_error *error) {
    (void)error;
    *live_objects = live_stores;
    return QUIRE_OK;
}

static const quire_store_api api = {
    .struct_size = sizeof api,
    .abi_major = QUIRE_STORE_ABI_MAJOR,
    .abi_minor = QUIRE_STORE_ABI_MINOR,
    .min_host_minor = QUIRE_STORE_ABI_MINOR,
    .name = "fuzz",
    .version = "1",
    .help = "none\n",
    .open = store_open,
    .close_wait = store_close_wait,
    .get_info = store_get_info,
    .get_stats = store_get_stats,
    .submit = store_submit,
    .reap = store_reap,
    .cancel = store_cancel,
    .descriptor = store_descriptor,
    .find = store_find,
    .shutdown = store_shutdown,
};

quire_status quire_store_query_v0(const quire_host_info *host, const quire_store_api **out,
                                  quire_error *error) {
    (void)host;
    (void)error;
    *out = &api;
    return QUIRE_OK;
}
