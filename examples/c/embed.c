/* SPDX-License-Identifier: Apache-2.0
 *
 * An engine that keeps its own memory and kernels, and lets Quire manage the blocks. Its model is a
 * toy: the K and V of a token are one number, and the next token follows from the sum of all of
 * them, which a wrong block would change. The pool is too small for all requests at once. */
#include <quire/dyn.h>

enum { BLOCK_TOKENS = 4, BLOCKS = 12, REQUESTS = 3, PROMPT = 9, LENGTH = 24 };

typedef struct request {
    quire_seq seq;
    uint32_t tokens[LENGTH];
    uint32_t length, told, found; /* tokens: so far, known to Quire, found in the cache */
} request;

static const quire_api *q;
static quire_error error = {.struct_size = sizeof error};
static float kv[BLOCKS * BLOCK_TOKENS]; /* the engine's pool: [block][slot] */
static void must(quire_status status) {
    if (status >= 0) return;
    fprintf(stderr, "%s\n", error.message);
    exit(1);
}

static uint32_t next_token(double sum) { return (uint32_t)sum * 31 % 251; }

/* Without shards Quire keeps books only. */
static quire_cache *make_cache(quire_instance *instance) {
    quire_group_desc layers = {.struct_size = sizeof layers,
                               .layer_count = 1,
                               .kv_heads = 1,
                               .k_head_dim = 1,
                               .v_head_dim = 1};
    quire_cache_desc desc = {.struct_size = sizeof desc,
                             .groups = &layers,
                             .group_count = 1,
                             .group_stride = sizeof layers,
                             .block_tokens = BLOCK_TOKENS,
                             .blocks = BLOCKS};
    quire_cache *cache;
    must(q->cache_create(instance, &desc, &cache, &error));
    return cache;
}

static quire_batch *make_batch(quire_cache *cache) {
    quire_batch_desc desc = {
        .struct_size = sizeof desc,
        .max_rows = REQUESTS,
        .max_blocks_per_row = LENGTH / BLOCK_TOKENS,
        .max_query_tokens = REQUESTS * LENGTH,
        .views = QUIRE_VIEW_BLOCK_TABLE | QUIRE_VIEW_SLOTS | QUIRE_VIEW_LENGTHS};
    quire_batch *batch;
    must(q->batch_create(cache, &desc, &batch, &error));
    return batch;
}

/* The kernels of a row: writes new K and V into their slots, then reads the row's blocks. */
static uint32_t run_row(const request *r, const quire_step_result *result,
                        const quire_batch_views *views, const int64_t **slots) {
    const int32_t *table = (const int32_t *)(uintptr_t)views->block_table +
                           (size_t)result->row * views->block_table_stride;
    int32_t length = ((const int32_t *)(uintptr_t)views->lengths)[result->row];
    double sum = 0;
    int32_t i;
    for (i = 0; i < (int32_t)result->compute_count; ++i)
        kv[*(*slots)++] = (float)r->tokens[result->first_position + i];
    for (i = 0; i < length; ++i)
        sum += kv[table[i / BLOCK_TOKENS] * BLOCK_TOKENS + i % BLOCK_TOKENS];
    return next_token(sum);
}

/* One token of each request that has room. The oldest come first: later ones are preempted. */
static uint32_t run_step(quire_cache *cache, quire_batch *batch, request *requests) {
    quire_step_desc desc = {.struct_size = sizeof desc,
                            .flags = QUIRE_STEP_MAY_PREEMPT,
                            .preempt = QUIRE_PREEMPT_RECOMPUTE};
    quire_batch_views views = {.struct_size = sizeof views};
    quire_step_item items[REQUESTS] = {{0}};
    quire_step_result results[REQUESTS];
    quire_block_copy copies[BLOCKS];
    request *of[REQUESTS];
    uint32_t tokens[REQUESTS * LENGTH], count = 0, copy_count, i, n = 0;
    const int64_t *slots;
    quire_step step;
    for (i = 0; i < REQUESTS; ++i) {
        request *r = requests + i;
        if (r->length == LENGTH) continue;
        items[n].seq = r->seq;
        items[n].token_offset = count;
        items[n].token_count = r->length - r->told;
        while (r->told < r->length) tokens[count++] = r->tokens[r->told++];
        of[n++] = r;
    }
    if (n == 0) return n;
    must(q->step_begin(cache, &desc, items, n, sizeof items[0], tokens, count, results,
                       sizeof results[0], &step, &error));
    must(q->step_commit(cache, step, batch, &error));
    /* The copies that the commit needs: whole blocks of the pool, since nothing is swapped. */
    must(q->step_copies(cache, step, copies, BLOCKS, sizeof copies[0], &copy_count, &error));
    for (i = 0; i < copy_count; ++i)
        memcpy(kv + copies[i].dst * BLOCK_TOKENS, kv + copies[i].src * BLOCK_TOKENS,
               sizeof(float) * BLOCK_TOKENS);
    must(q->batch_get_views(batch, 0, 0, &views, &error));
    slots = (const int64_t *)(uintptr_t)views.slots;
    for (i = 0; i < n; ++i) {
        if (results[i].outcome != QUIRE_ITEM_RUN) {
            of[i]->told -= items[i].token_count; /* it waits: Quire knows none of these */
            continue;
        }
        of[i]->found += results[i].hit_tokens;
        of[i]->tokens[of[i]->length] = run_row(of[i], &results[i], &views, &slots);
        if (++of[i]->length == LENGTH) must(q->seq_end(cache, of[i]->seq, 0, &error));
    }
    must(q->step_finish(cache, step, NULL, QUIRE_STEP_OK, &error));
    return n;
}

int main(void) {
    quire_instance_desc host = {.struct_size = sizeof host};
    quire_cache_stats stats = {.struct_size = sizeof stats};
    quire_seq_desc chat = {.struct_size = sizeof chat};
    static request requests[REQUESTS];
    quire_instance *instance;
    uint32_t i, j;
    char why[512];
    if (quire_dyn_load(NULL, &q, why, sizeof why) < 0) return puts(why), 1;
    must(q->instance_create(&host, &instance, &error));
    quire_cache *cache = make_cache(instance);
    quire_batch *batch = make_batch(cache);
    for (i = 0; i < REQUESTS; ++i) {
        must(q->seq_create(cache, &chat, &requests[i].seq, &error));
        for (j = 0; j < PROMPT; ++j) requests[i].tokens[requests[i].length++] = j;
        requests[i].tokens[PROMPT - 1] += i; /* the question differs */
    }
    while (run_step(cache, batch, requests) != 0) continue;
    for (i = 0; i < REQUESTS; ++i) {
        double sum = 0;
        for (j = 0; j < LENGTH; sum += requests[i].tokens[j++]) {
            if (j >= PROMPT && requests[i].tokens[j] != next_token(sum)) return puts("wrong"), 1;
        }
        printf("request %u: %u tokens, %u found in the cache\n", i, LENGTH, requests[i].found);
    }
    must(q->cache_get_stats(cache, &stats, &error));
    printf("%u preempted\n", (unsigned)stats.num_preemptions);
    must(q->batch_destroy(batch, &error));
    must(q->cache_destroy(cache, &error));
    return q->instance_destroy(instance, &error) < 0;
}
