/* SPDX-License-Identifier: Apache-2.0 */

#include "client.h"

#include <quire/dyn.h>

#include "nothing.h"

struct client {
    const quire_api *q;
    quire_instance *instance;
    quire_cache *cache;
    quire_step_desc desc;
    quire_step_item item;
    quire_error error;
    uint32_t next_token;
};

static void must(const client *c, quire_status status) {
    if (status >= 0) return;
    fprintf(stderr, "%s\n", c->error.message);
    exit(1);
}

client *client_open(void) {
    static client c;
    char why[512];
    quire_instance_desc host = {.struct_size = sizeof host};
    quire_group_desc group = {.struct_size = sizeof group,
                              .layer_count = 1,
                              .kv_heads = 1,
                              .k_head_dim = 1,
                              .v_head_dim = 1};
    quire_cache_desc desc = {.struct_size = sizeof desc,
                             .groups = &group,
                             .group_count = 1,
                             .group_stride = sizeof group,
                             .blocks = BENCH_BLOCKS};
    memset(&c, 0, sizeof c);
    c.desc.struct_size = sizeof c.desc;
    c.error.struct_size = sizeof c.error;
    if (quire_dyn_load(NULL, &c.q, why, sizeof why) < 0) {
        fprintf(stderr, "%s\n", why);
        exit(1);
    }
    must(&c, c.q->instance_create(&host, &c.instance, &c.error));
    must(&c, c.q->cache_create(c.instance, &desc, &c.cache, &c.error));
    return &c;
}

void client_close(client *c) {
    const quire_api *q = c->q;
    must(c, q->cache_destroy(c->cache, &c->error));
    must(c, q->instance_destroy(c->instance, &c->error));
}

void client_run_empty(client *c, uint32_t steps) {
    const quire_api *q = c->q;
    uint32_t i;
    for (i = 0; i < steps; ++i) {
        quire_step step = 0;
        must(c, q->step_begin(c->cache, &c->desc, NULL, 0, 0, NULL, 0, NULL, 0, &step, &c->error));
        must(c, q->step_commit(c->cache, step, NULL, &c->error));
        must(c, q->step_finish(c->cache, step, NULL, QUIRE_STEP_OK, &c->error));
    }
}

void client_run_nothing(client *c, uint32_t steps) {
    const quire_api *q = c->q;
    c->q = nothing_api();
    client_run_empty(c, steps);
    c->q = q;
}

static void run_step(client *c, const uint32_t *tokens, uint32_t count) {
    const quire_api *q = c->q;
    quire_step_result result;
    quire_step step = 0;
    c->item.token_count = count;
    must(c, q->step_begin(c->cache, &c->desc, &c->item, 1, sizeof c->item, tokens, count, &result,
                          sizeof result, &step, &c->error));
    must(c, q->step_commit(c->cache, step, NULL, &c->error));
    must(c, q->step_finish(c->cache, step, NULL, QUIRE_STEP_OK, &c->error));
}

void client_start(client *c) {
    quire_seq_desc desc = {.struct_size = sizeof desc};
    uint32_t prompt[BENCH_PROMPT], i;
    for (i = 0; i < BENCH_PROMPT; ++i) prompt[i] = c->next_token++;
    must(c, c->q->seq_create(c->cache, &desc, &c->item.seq, &c->error));
    run_step(c, prompt, BENCH_PROMPT);
}

void client_run_decode(client *c, uint32_t steps) {
    uint32_t i;
    for (i = 0; i < steps; ++i) {
        uint32_t token = c->next_token++;
        run_step(c, &token, 1);
    }
}

void client_end(client *c) {
    must(c, c->q->seq_end(c->cache, c->item.seq, QUIRE_END_DROP_PREFIX, &c->error));
}
