/* SPDX-License-Identifier: Apache-2.0
 *
 * step: one decode step of many sequences, as an engine in C does it. For each number on a line of
 * standard input, it takes that many steps and prints the nanoseconds per step. */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include <quire/dyn.h>
#include <time.h>

#include "step.h"

static const quire_api *q;
static quire_error error = {.struct_size = sizeof error};

static void must(quire_status status) {
    if (status >= 0) return;
    fprintf(stderr, "step: %s\n", error.message);
    exit(1);
}

static quire_cache *make_cache(quire_instance *instance) {
    quire_group_desc group = {.struct_size = sizeof group,
                              .layer_count = 32,
                              .kv_heads = 8,
                              .k_head_dim = 128,
                              .v_head_dim = 128};
    quire_cache_desc desc = {.struct_size = sizeof desc,
                             .groups = &group,
                             .group_count = 1,
                             .group_stride = sizeof group,
                             .blocks = STEP_BLOCKS};
    quire_cache *cache;
    must(q->cache_create(instance, &desc, &cache, &error));
    return cache;
}

static quire_batch *make_batch(quire_cache *cache) {
    quire_batch_desc desc = {.struct_size = sizeof desc,
                             .max_rows = STEP_SEQUENCES,
                             .max_blocks_per_row = STEP_ROW_BLOCKS,
                             .max_query_tokens = STEP_SEQUENCES,
                             .views = QUIRE_VIEW_BLOCK_TABLE | QUIRE_VIEW_SLOTS};
    quire_batch *batch;
    must(q->batch_create(cache, &desc, &batch, &error));
    return batch;
}

/* Fills the items anew, as from an engine's own list of requests. */
static void take_step(quire_cache *cache, quire_batch *batch, const quire_seq *seqs,
                      uint32_t number) {
    static quire_step_item items[STEP_SEQUENCES];
    static quire_step_result results[STEP_SEQUENCES];
    static uint32_t tokens[STEP_SEQUENCES];
    quire_step_desc desc = {.struct_size = sizeof desc};
    quire_step step;
    uint32_t i;
    for (i = 0; i < STEP_SEQUENCES; ++i) {
        tokens[i] = i * 4096 + number;
        items[i].seq = seqs[i];
        items[i].token_offset = i;
        items[i].token_count = 1;
    }
    must(q->step_begin(cache, &desc, items, STEP_SEQUENCES, sizeof items[0], tokens, STEP_SEQUENCES,
                       results, sizeof results[0], &step, &error));
    must(q->step_commit(cache, step, batch, &error));
    must(q->step_finish(cache, step, NULL, QUIRE_STEP_OK, &error));
}

static double now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

int main(void) {
    static quire_seq seqs[STEP_SEQUENCES];
    quire_instance_desc host = {.struct_size = sizeof host};
    quire_seq_desc chat = {.struct_size = sizeof chat};
    quire_instance *instance;
    quire_cache *cache;
    quire_batch *batch;
    uint32_t number = 0, i, count;
    char why[512], line[32];
    if (quire_dyn_load(NULL, &q, why, sizeof why) < 0) return puts(why), 1;
    must(q->instance_create(&host, &instance, &error));
    cache = make_cache(instance);
    batch = make_batch(cache);
    for (i = 0; i < STEP_SEQUENCES; ++i) must(q->seq_create(cache, &chat, &seqs[i], &error));
    while (fgets(line, sizeof line, stdin) != NULL) {
        double start = now_ns();
        count = (uint32_t)strtoul(line, NULL, 10);
        for (i = 0; i < count; ++i) take_step(cache, batch, seqs, number++);
        printf("%.1f\n", (now_ns() - start) / count);
        fflush(stdout);
    }
    return 0;
}
