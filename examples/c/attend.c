/* SPDX-License-Identifier: Apache-2.0
 *
 * A cache with memory: one layer's K and V are written into blocks, and attention reads them there.
 * The queries are zero, so every key weighs the same: the output of a token is the mean of the
 * values up to it. */
#include <quire/dyn.h>
#include <stdlib.h>

enum { TOKENS = 6, HEADS = 2, KV_HEADS = 1, DIM = 8 };

static const quire_api *q;
static quire_error error = {.struct_size = sizeof error};

/* Every call returns a status. Below 0 it failed and changed nothing, and error says why. */
static void must(quire_status status) {
    if (status >= 0) return;
    fprintf(stderr, "%s\n", error.message);
    exit(1);
}

/* 16 blocks of 4 tokens on the device. */
static quire_cache *make_cache(quire_instance *instance, quire_device *device) {
    quire_group_desc layers = {.struct_size = sizeof layers,
                               .layer_count = 1,
                               .kv_heads = KV_HEADS,
                               .k_head_dim = DIM,
                               .v_head_dim = DIM,
                               .k_dtype = QUIRE_DTYPE_F32};
    quire_shard_desc shard = {.struct_size = sizeof shard, .device = device};
    quire_cache_desc desc = {.struct_size = sizeof desc,
                             .shards = &shard,
                             .groups = &layers,
                             .shard_count = 1,
                             .shard_stride = sizeof shard,
                             .group_count = 1,
                             .group_stride = sizeof layers,
                             .block_tokens = 4,
                             .blocks = 16};
    quire_cache *cache;
    must(q->cache_create(instance, &desc, &cache, &error));
    return cache;
}

/* Holds a step's tables and the attention options. Options that no kernel serves fail here. */
static quire_batch *make_batch(quire_cache *cache) {
    quire_attention_desc attention = {.struct_size = sizeof attention, .q_heads = HEADS};
    quire_batch_desc desc = {.struct_size = sizeof desc,
                             .max_rows = 4,
                             .max_blocks_per_row = 8,
                             .max_query_tokens = 32,
                             .attention_count = 1,
                             .attention_stride = sizeof attention,
                             .attention = &attention};
    quire_batch *batch;
    must(q->batch_create(cache, &desc, &batch, &error));
    return batch;
}

/* Memory that host and device can reach; `numbers` is its address on the host. */
static quire_memory *make_memory(quire_device *device, uint32_t count, uint64_t *address,
                                 float **numbers) {
    quire_memory_desc desc = {
        .struct_size = sizeof desc, .size_bytes = count * sizeof(float), .kind = QUIRE_MEMORY_HOST};
    quire_memory_info info = {.struct_size = sizeof info};
    quire_memory *memory;
    must(q->memory_create(device, &desc, &memory, &error));
    must(q->memory_get_info(memory, &info, &error));
    *address = info.address;
    *numbers = info.host_pointer;
    return memory;
}

/* One step of one sequence. For each layer, K and V are written into the blocks, then the queries
 * attend; both calls only enqueue. */
static void run_step(quire_cache *cache, quire_batch *batch, quire_queue *queue,
                     const quire_kv_args *write, const quire_attend_args *attend) {
    uint32_t tokens[TOKENS] = {11, 12, 13, 14, 15, 16};
    quire_seq_desc chat = {.struct_size = sizeof chat};
    quire_step_desc desc = {.struct_size = sizeof desc, .queues = &queue, .queue_count = 1};
    quire_step_item item = {.token_count = TOKENS};
    quire_step_result result;
    quire_step step;
    must(q->seq_create(cache, &chat, &item.seq, &error));
    must(q->step_begin(cache, &desc, &item, 1, sizeof item, tokens, TOKENS, &result, sizeof result,
                       &step, &error));
    must(q->step_commit(cache, step, batch, &error));
    must(q->kv_write(batch, write, queue, &error));
    must(q->attend(batch, attend, queue, &error));
    must(q->step_finish(cache, step, NULL, QUIRE_STEP_OK, &error));
    must(q->queue_sync(queue, &error));
}

int main(void) {
    quire_instance_desc host = {.struct_size = sizeof host};
    quire_device_desc place = {.struct_size = sizeof place, .backend = "cpu"};
    quire_kv_args write = {.struct_size = sizeof write};
    quire_attend_args attend = {.struct_size = sizeof attend};
    quire_instance *instance;
    quire_device *device;
    quire_queue *queue;
    quire_memory *memory[3];
    float *kv, *queries, *out;
    uint32_t i;
    char why[512];
    if (quire_dyn_load(NULL, &q, why, sizeof why) < 0) return puts(why), 1;
    must(q->instance_create(&host, &instance, &error));
    must(q->device_open(instance, &place, &device, &error));
    must(q->queue_create(device, NULL, &queue, &error));
    quire_cache *cache = make_cache(instance, device);
    quire_batch *batch = make_batch(cache);
    memory[0] = make_memory(device, TOKENS * KV_HEADS * DIM, &write.k, &kv);
    memory[1] = make_memory(device, TOKENS * HEADS * DIM, &attend.q, &queries);
    memory[2] = make_memory(device, TOKENS * HEADS * DIM, &attend.out, &out);
    write.v = write.k;
    for (i = 0; i < TOKENS * KV_HEADS * DIM; ++i) kv[i] = (float)(i / (KV_HEADS * DIM));
    for (i = 0; i < TOKENS * HEADS * DIM; ++i) queries[i] = 0;

    run_step(cache, batch, queue, &write, &attend);
    for (i = 0; i < TOKENS; ++i) {
        printf("token %u: value %u, mean so far %.1f\n", (unsigned)i, (unsigned)i,
               (double)out[i * HEADS * DIM]);
    }

    must(q->batch_destroy(batch, &error));
    must(q->cache_destroy(cache, &error));
    for (i = 0; i < 3; ++i) must(q->memory_destroy(memory[i], &error));
    must(q->queue_destroy(queue, &error));
    must(q->device_close(device, &error));
    return q->instance_destroy(instance, &error) < 0;
}
