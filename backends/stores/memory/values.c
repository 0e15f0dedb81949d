/* SPDX-License-Identifier: Apache-2.0 */

#include "values.h"

#include <stdlib.h>
#include <string.h>

enum { kFirstBuckets = 64 };

int values_init(values *v, uint64_t capacity_bytes) {
    memset(v, 0, sizeof *v);
    v->capacity_bytes = capacity_bytes;
    v->bucket_count = kFirstBuckets;
    v->buckets = calloc(kFirstBuckets, sizeof *v->buckets);
    return v->buckets != NULL;
}

void values_end(values *v) {
    while (v->first != NULL) values_drop(v, v->first);
    free(v->buckets);
}

uint64_t values_most_bytes(uint64_t capacity_bytes) {
    return capacity_bytes > sizeof(record) ? capacity_bytes - sizeof(record) : 0;
}

int labels_equal(const quire_store_label *a, const quire_store_label *b) {
    return memcmp(a, b, sizeof *a) == 0;
}

static record **bucket_of(const values *v, const uint8_t *key) {
    uint64_t hash; /* a key is a digest, so any part of it is as good as a hash */
    memcpy(&hash, key, sizeof hash);
    return &v->buckets[hash & (v->bucket_count - 1)];
}

static void add_to_bucket(values *v, record *r) {
    record **at = bucket_of(v, r->label.key);
    r->next_in_bucket = *at;
    *at = r;
}

record *values_find(const values *v, const uint8_t *key) {
    record *at = *bucket_of(v, key);
    while (at != NULL && memcmp(at->label.key, key, sizeof at->label.key) != 0)
        at = at->next_in_bucket;
    return at;
}

record *values_after(const values *v, uint64_t sequence) {
    record *at = v->first;
    while (at != NULL && at->sequence <= sequence) at = at->later;
    return at;
}

void values_drop(values *v, record *r) {
    record **at = bucket_of(v, r->label.key);
    while (*at != r) at = &(*at)->next_in_bucket;
    *at = r->next_in_bucket;
    *(r->earlier != NULL ? &r->earlier->later : &v->first) = r->later;
    *(r->later != NULL ? &r->later->earlier : &v->last) = r->earlier;
    v->used_bytes -= r->size_bytes + sizeof *r;
    v->value_bytes -= r->size_bytes;
    v->count -= 1;
    free(r->bytes);
    free(r);
}

int values_fit(const values *v, uint64_t size_bytes) {
    return size_bytes <= values_most_bytes(v->capacity_bytes - v->used_bytes);
}

/* As many buckets as records. Without memory for more, the lists just get longer. */
static void grow(values *v) {
    uint64_t count = v->bucket_count * 2;
    record **buckets;
    record *r;
    if (v->count < v->bucket_count) return;
    buckets = calloc(count, sizeof *buckets);
    if (buckets == NULL) return;
    free(v->buckets);
    v->buckets = buckets;
    v->bucket_count = count;
    for (r = v->first; r != NULL; r = r->later) add_to_bucket(v, r);
}

record *values_add(values *v, const quire_store_label *label, uint64_t size_bytes) {
    record *made = calloc(1, sizeof *made);
    if (made != NULL) made->bytes = malloc(size_bytes);
    if (made == NULL || made->bytes == NULL) {
        free(made);
        return NULL;
    }
    grow(v);
    made->label = *label;
    made->size_bytes = size_bytes;
    made->sequence = ++v->last_sequence;
    made->earlier = v->last;
    *(v->last != NULL ? &v->last->later : &v->first) = made;
    v->last = made;
    add_to_bucket(v, made);
    v->used_bytes += size_bytes + sizeof *made;
    v->value_bytes += size_bytes;
    v->count += 1;
    return made;
}
