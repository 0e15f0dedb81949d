/* SPDX-License-Identifier: Apache-2.0
 *
 * The loop of an engine that owns its memory and kernels: requests of different lengths share a
 * pool that is too small for all of them, so some wait and some are preempted. docs/guide.md
 * explains it. */
#include <quire/dyn.h>
#include <stdlib.h>

enum { REQUESTS = 4, PROMPT = 20, LIMIT = 48, BLOCKS = 9, BLOCK_TOKENS = 16, CHUNK = 12 };

struct request {
    quire_seq seq;
    uint32_t tokens[LIMIT];
    uint32_t count; /* of tokens */
    uint32_t told;  /* of them, those that Quire knows */
    uint32_t waits;
};

static const quire_api *q;
static quire_error error = {.struct_size = sizeof error};

static void must(quire_status status) {
    if (status >= 0) return;
    fprintf(stderr, "%s\n", error.message);
    exit(1);
}

static quire_cache *make_cache(quire_instance *instance) {
    quire_group_desc layers = {.struct_size = sizeof layers,
                               .layer_count = 32,
                               .kv_heads = 8,
                               .k_head_dim = 128,
                               .v_head_dim = 128};
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

/* Where a model would sample: any token that differs between requests. */
static uint32_t sample(const struct request *of) { return of->tokens[0] * 1000 + of->count; }

/* What the engine's kernels do with the step, from copies to logits. */
static void run_kernels(quire_cache *cache, quire_step step) {
    quire_block_copy copies[BLOCKS];
    uint32_t count;
    must(q->step_copies(cache, step, copies, BLOCKS, sizeof *copies, &count, &error));
}

static void add_item(const struct request *of, uint32_t *flat, uint32_t *flat_count,
                     quire_step_item *item) {
    *item = (quire_step_item){.seq = of->seq,
                              .token_offset = *flat_count,
                              .token_count = of->count - of->told,
                              .max_compute = CHUNK};
    memcpy(flat + *flat_count, of->tokens + of->told, item->token_count * sizeof *flat);
    *flat_count += item->token_count;
}

/* One step of all requests that are not done, the oldest first. Returns how many there were. */
static uint32_t run_step(quire_cache *cache, struct request *requests, uint32_t *preempted) {
    quire_step_desc desc = {.struct_size = sizeof desc, .flags = QUIRE_STEP_MAY_PREEMPT};
    quire_step_item items[REQUESTS];
    quire_step_result results[REQUESTS];
    struct request *of[REQUESTS];
    quire_preemption victims[REQUESTS];
    uint32_t flat[REQUESTS * LIMIT], flat_count = 0, item_count = 0, victim_count, i;
    quire_step step;
    for (i = 0; i < REQUESTS; ++i) {
        if (requests[i].count == LIMIT) continue;
        add_item(&requests[i], flat, &flat_count, &items[item_count]);
        of[item_count++] = &requests[i];
    }
    if (item_count == 0) return 0;
    must(q->step_begin(cache, &desc, items, item_count, sizeof *items, flat, flat_count, results,
                       sizeof *results, &step, &error));
    must(q->step_preempted(cache, step, victims, REQUESTS, sizeof *victims, &victim_count, &error));
    *preempted += victim_count;
    must(q->step_commit(cache, step, NULL, &error));
    run_kernels(cache, step);
    must(q->step_finish(cache, step, NULL, QUIRE_STEP_OK, &error));
    for (i = 0; i < item_count; ++i) {
        if (results[i].outcome != QUIRE_ITEM_RUN) {
            ++of[i]->waits; /* the same item is sent again */
            continue;
        }
        of[i]->told = of[i]->count;
        if (results[i].first_position + results[i].compute_count < of[i]->count) continue;
        of[i]->tokens[of[i]->count] = sample(of[i]);
        if (++of[i]->count == LIMIT) must(q->seq_end(cache, of[i]->seq, 0, &error));
    }
    return item_count;
}

int main(void) {
    quire_instance_desc host = {.struct_size = sizeof host};
    quire_seq_desc chat = {.struct_size = sizeof chat};
    quire_instance *instance;
    quire_cache *cache;
    struct request requests[REQUESTS] = {{0}};
    uint32_t steps = 0, preempted = 0, waits = 0, i, k;
    char why[512];
    if (quire_dyn_load(NULL, &q, why, sizeof why) < 0) return puts(why), 1;
    must(q->instance_create(&host, &instance, &error));
    cache = make_cache(instance);
    for (i = 0; i < REQUESTS; ++i) {
        must(q->seq_create(cache, &chat, &requests[i].seq, &error));
        requests[i].count = PROMPT + i;
        for (k = 0; k < requests[i].count; ++k) requests[i].tokens[k] = i + 1 + k;
    }
    while (run_step(cache, requests, &preempted) != 0) ++steps;
    for (i = 0; i < REQUESTS; ++i) waits += requests[i].waits;
    printf("%u requests in %u steps: items waited %u times, %u preemptions\n", (unsigned)REQUESTS,
           (unsigned)steps, (unsigned)waits, (unsigned)preempted);
    must(q->cache_destroy(cache, &error));
    return q->instance_destroy(instance, &error) < 0;
}
