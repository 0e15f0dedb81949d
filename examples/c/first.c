/* SPDX-License-Identifier: Apache-2.0 */
/* Two chats share a system prompt: the second finds its blocks in the cache. */
#include <quire/dyn.h>

int main(void) {
    const quire_api *q;
    quire_instance *instance;
    quire_cache *cache;
    uint32_t tokens[40], i;
    char why[512];
    quire_instance_desc host = {.struct_size = sizeof host};
    quire_group_desc layers = {.struct_size = sizeof layers,
                               .layer_count = 32,
                               .kv_heads = 8,
                               .k_head_dim = 128,
                               .v_head_dim = 128};
    quire_cache_desc desc = {.struct_size = sizeof desc,
                             .groups = &layers,
                             .group_count = 1,
                             .group_stride = sizeof layers,
                             .blocks = 64}; /* of 16 tokens */
    quire_seq_desc chat = {.struct_size = sizeof chat};
    quire_step_desc step_desc = {.struct_size = sizeof step_desc};

    if (quire_dyn_load(NULL, &q, why, sizeof why) < 0) return puts(why), 1;
    if (q->instance_create(&host, &instance, NULL) < 0) return 1;
    if (q->cache_create(instance, &desc, &cache, NULL) < 0) return 1; /* no device: books only */
    for (i = 0; i < 40; ++i) tokens[i] = i;
    for (i = 0; i < 2; ++i) {
        quire_step_item item = {.token_count = 40};
        quire_step_result result;
        quire_step step;
        int32_t blocks[3];
        uint32_t count;
        tokens[39] = 1000 + i; /* the question differs */
        if (q->seq_create(cache, &chat, &item.seq, NULL) < 0) return 1;
        if (q->step_begin(cache, &step_desc, &item, 1, sizeof item, tokens, 40, &result,
                          sizeof result, &step, NULL) < 0)
            return 1;
        q->step_blocks(cache, step, item.seq, 0, 0, blocks, 3, &count, NULL);
        q->step_commit(cache, step, NULL, NULL); /* then an engine enqueues its kernels */
        q->step_finish(cache, step, NULL, QUIRE_STEP_OK, NULL);
        printf("chat %u: %u tokens found, %u to compute, blocks %d %d %d\n", (unsigned)i,
               (unsigned)result.hit_tokens, (unsigned)result.compute_count, (int)blocks[0],
               (int)blocks[1], (int)blocks[2]);
    }
    return q->cache_destroy(cache, NULL) < 0 || q->instance_destroy(instance, NULL) < 0;
}
