/* SPDX-License-Identifier: Apache-2.0
 *
 * values: what the memory store keeps: values by their label, the oldest put first.
 *
 * Invariant: used_bytes is at most capacity_bytes, and counts each value with its record.
 *
 * Threads: none; the store's mutex.
 */
#ifndef QUIRE_STORES_MEMORY_VALUES_H
#define QUIRE_STORES_MEMORY_VALUES_H

#include "quire/plugin/store.h"

/* A value in its bucket's list and in the list of all values in the order of their puts. */
typedef struct record {
    struct record *next_in_bucket;
    struct record *earlier;
    struct record *later;
    quire_store_label label;
    uint64_t size_bytes;
    uint64_t sequence;
    unsigned char *bytes;
} record;

typedef struct values {
    uint64_t capacity_bytes;
    uint64_t used_bytes;
    uint64_t value_bytes;
    uint64_t count;
    uint64_t last_sequence;
    record **buckets;
    uint64_t bucket_count; /* a power of 2 */
    record *first;
    record *last;
} values;

/* 0 if there is no memory. */
int values_init(values *v, uint64_t capacity_bytes);
void values_end(values *v);
/* The largest value that fits. */
uint64_t values_most_bytes(uint64_t capacity_bytes);

int labels_equal(const quire_store_label *a, const quire_store_label *b);
/* The record with this key, under any fingerprint and name space; NULL if there is no such. */
record *values_find(const values *v, const uint8_t *key);
/* The first record put after this sequence number; NULL after the last. */
record *values_after(const values *v, uint64_t sequence);
void values_drop(values *v, record *r);
/* True if a value of this size fits beside the others. */
int values_fit(const values *v, uint64_t size_bytes);
/* A record whose bytes the caller fills; NULL if there is no memory.
 * REQUIRES: it fits, and its key is not there. */
record *values_add(values *v, const quire_store_label *label, uint64_t size_bytes);

#endif /* QUIRE_STORES_MEMORY_VALUES_H */
