/* SPDX-License-Identifier: Apache-2.0
 *
 * A cache with memory: one layer's K and V are written into blocks, and attention reads them there.
 * The queries are zero, so every key weighs the same: the output of a token is the mean of the
 * values up to it. */
#include <quire/dyn.h>
#include <stdlib.h>

enum { TOKENS = 6, HEADS = 2, KV_HEADS = 1, DIM = 8 };

static quire_error error = {.struct_size = sizeof error};

/* Every call answers with a status; below 0 it failed, changed nothing, and error says why. */
static void must(quire_status status) {
    if (status >= 0) return;
    fprintf(stderr, "%s\n", error.message);
    exit(1);
}

/* Memory that host and device reach. `numbers` is where the host sees it. */
static uint64_t make_memory(const quire_api *q, quire_device *device, uint32_t count,
                            float **numbers, quire_memory **memory) {
    quire_memory_desc desc = {.struct_size = sizeof desc,
                              .size_bytes = count * sizeof(float),
                              .kind = QUIRE_MEMORY_HOST};
    quire_memory_info info = {.struct_size = sizeof info};
    must(q->memory_create(device, &desc, memory, &error));
    must(q->memory_get_info(*memory, &info, &error));
    *numbers = info.host_pointer;
    return info.address;
}

int main(void) {
    const quire_api *q;
    quire_instance *instance;
    quire_device *device;
    quire_queue *queue;
    quire_cache *cache;
    quire_batch *batch;
    quire_memory *memory[3];
    float *kv, *queries, *out;
    uint32_t tokens[TOKENS] = {11, 12, 13, 14, 15, 16}, i;
    char why[512];
    if (quire_dyn_load(NULL, &q, why, sizeof why) < 0) return puts(why), 1;

    /* A device of a backend that was found, and a queue on it. */
    quire_instance_desc host = {.struct_size = sizeof host};
    quire_device_desc place = {.struct_size = sizeof place, .backend = "cpu"};
    must(q->instance_create(&host, &instance, &error));
    must(q->device_open(instance, &place, &device, &error));
    must(q->queue_create(device, NULL, &queue, &error));

    /* The pool: 16 blocks of 4 tokens on that device. */
    quire_group_desc layers = {.struct_size = sizeof layers,
                               .layer_count = 1,
                               .kv_heads = KV_HEADS,
                               .k_head_dim = DIM,
                               .v_head_dim = DIM,
                               .k_dtype = QUIRE_DTYPE_F32};
    quire_shard_desc shard = {.struct_size = sizeof shard, .device = device};
    quire_cache_desc cache_desc = {.struct_size = sizeof cache_desc,
                                   .shards = &shard,
                                   .shard_count = 1,
                                   .shard_stride = sizeof shard,
                                   .groups = &layers,
                                   .group_count = 1,
                                   .group_stride = sizeof layers,
                                   .block_tokens = 4,
                                   .blocks = 16};
    must(q->cache_create(instance, &cache_desc, &cache, &error));

    /* Where a step's tables go, and what its attention is like. What no kernel serves fails here. */
    quire_attention_desc attention = {.struct_size = sizeof attention, .q_heads = HEADS};
    quire_batch_desc batch_desc = {.struct_size = sizeof batch_desc,
                                   .max_rows = 4,
                                   .max_blocks_per_row = 8,
                                   .max_query_tokens = 32,
                                   .attention = &attention,
                                   .attention_count = 1,
                                   .attention_stride = sizeof attention};
    must(q->batch_create(cache, &batch_desc, &batch, &error));

    /* One step of one sequence. */
    quire_seq_desc chat = {.struct_size = sizeof chat};
    quire_step_desc step_desc = {.struct_size = sizeof step_desc, .queues = &queue, .queue_count = 1};
    quire_step_item item = {.token_count = TOKENS};
    quire_step_result result;
    quire_step step;
    must(q->seq_create(cache, &chat, &item.seq, &error));
    must(q->step_begin(cache, &step_desc, &item, 1, sizeof item, tokens, TOKENS, &result,
                       sizeof result, &step, &error));
    must(q->step_commit(cache, step, batch, &error));

    /* For each layer: its K and V go into the blocks, then its queries attend. Both only enqueue. */
    quire_kv_args write = {.struct_size = sizeof write};
    quire_attend_args attend = {.struct_size = sizeof attend};
    write.k = write.v = make_memory(q, device, TOKENS * KV_HEADS * DIM, &kv, &memory[0]);
    attend.q = make_memory(q, device, TOKENS * HEADS * DIM, &queries, &memory[1]);
    attend.out = make_memory(q, device, TOKENS * HEADS * DIM, &out, &memory[2]);
    for (i = 0; i < TOKENS * KV_HEADS * DIM; ++i) kv[i] = (float)(i / (KV_HEADS * DIM));
    for (i = 0; i < TOKENS * HEADS * DIM; ++i) queries[i] = 0;
    must(q->kv_write(batch, &write, queue, &error));
    must(q->attend(batch, &attend, queue, &error));
    must(q->step_finish(cache, step, NULL, QUIRE_STEP_OK, &error));
    must(q->queue_sync(queue, &error));
    for (i = 0; i < TOKENS; ++i) {
        printf("token %u: value %u, mean so far %.1f\n", (unsigned)i, (unsigned)i,
               (double)out[i * HEADS * DIM]);
    }

    must(q->batch_destroy(batch, &error));
    must(q->cache_destroy(cache, &error));
    for (i = 0; i < 3; ++i) must(q->memory_destroy(memory[i], &error));
    must(q->queue_destroy(queue, &error));
    must(q->device_close(device, &error));
    must(q->instance_destroy(instance, &error));
    return 0;
}
