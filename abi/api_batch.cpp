// SPDX-License-Identifier: Apache-2.0
//
// Exported functions of batch.h and attention.h. A launch does not take the cache's lock.

#include "abi/cache_call.hpp"

namespace {

Status create_batch(quire_cache *cache, quire_batch_desc desc, quire_batch **out,
                    quire_error *sink) {
    if (desc.attention_count > kMaxGroups * kMaxShards) {
        return fail(QUIRE_E_ARG, "attention_count is {}: at most one per group and shard",
                    desc.attention_count);
    }
    std::vector<quire_attention_desc> attention(desc.attention_count);
    std::vector<quire_rope_desc> ropes(desc.attention_count);
    for (uint32_t i = 0; i < desc.attention_count; ++i) {
        QUIRE_TRY(read_element(desc.attention, i, desc.attention_stride, &attention[i]));
        if (attention[i].rope == nullptr) continue;
        QUIRE_TRY(read(attention[i].rope, &ropes[i]));
        attention[i].rope = &ropes[i];
    }
    desc.attention = attention.data();
    constexpr uint32_t known_views = (QUIRE_VIEW_SHARED_PREFIX << 1) - 1;
    if ((desc.views & ~known_views) != 0) {
        return fail(QUIRE_E_UNSUPPORTED, "views {} has a bit that this version does not know",
                    desc.views);
    }
    auto batch = std::make_unique<quire_batch>(&cache->instance->host);
    batch->cache = cache;
    QUIRE_TRY(cache->core.create_batch(desc, &batch->core, sink));
    cache->note_memory();
    *out = batch.release();
    return Status{};
}

// Where a launch goes: the shard on the queue's device, the layer's group, and the layer's index
// among the group's layers there.
struct Launch {
    uint32_t shard;
    uint32_t group;
    uint32_t layer;
};

// The checks that both launches share. Takes no lock of the cache: it reads only what an earlier
// commit wrote.
Status check_launch(const quire_batch *batch, const quire_queue *queue, uint32_t layer,
                    Launch *launch) {
    QUIRE_TRY(need(batch, "batch is NULL"));
    QUIRE_TRY(need(queue, "queue is NULL"));
    const quire_cache *cache = batch->cache;
    if (!cache->on_devices) {
        return fail(QUIRE_E_UNSUPPORTED, "the cache has no device memory: it only keeps books");
    }
    QUIRE_TRY(cache->lock.check());
    QUIRE_TRY(usable(queue->device));
    QUIRE_TRY(batch->core.check_fresh());
    // From here on the cache stays in place: it migrates only while no step is committed.
    if (!batch->core.committed())
        return fail(QUIRE_E_ARG, "the batch has no committed, unfinished step with rows");
    launch->shard = cache->shard_on(queue->device);
    if (launch->shard == cache->devices.size())
        return fail(QUIRE_E_ARG, "the queue's device holds no shard of the cache");
    const LayerInGroup *place = cache->core.place(layer);
    if (place == nullptr) return fail(QUIRE_E_ARG, "layer is {}: the cache has fewer", layer);
    launch->group = place->group;
    if (cache->core.shards()[launch->shard].find_layer(*place, &launch->layer)) return Status{};
    return fail(QUIRE_E_ARG, "layer is {}: shard {}, on the queue's device, does not hold it",
                layer, launch->shard);
}

Status describe_kv_write(const Batch &batch, const quire_kv_args &args, const Launch &launch,
                         quire_be_kv_write *out) {
    out->struct_size = sizeof *out;
    batch.fill_kv_write(launch.shard, launch.group, out);
    const quire_be_pool &pool = *out->pool;
    if (out->slots == 0)
        return fail(QUIRE_E_ARG, "the batch keeps no slots: create it with QUIRE_VIEW_SLOTS");
    bool latent = pool.group_kind == QUIRE_GROUP_LATENT;
    int64_t k_dense = int64_t{pool.kv_heads} * (latent ? pool.v_head_dim : pool.k_head_dim);
    int64_t v_dense = latent ? int64_t{pool.k_head_dim} - pool.v_head_dim
                             : int64_t{pool.kv_heads} * pool.v_head_dim;
    if (out->token_count != 0 && (args.k == 0 || (args.v == 0 && v_dense != 0))) {
        return fail(QUIRE_E_ARG, "k or v is 0");
    }
    if (args.q != 0 && !batch.has_rope(launch.shard, launch.group)) {
        return fail(QUIRE_E_ARG, "q is given to be rotated, but the layer's attention has no rope");
    }
    out->layer = launch.layer;
    out->dtype = args.dtype != 0 ? args.dtype : uint32_t{QUIRE_DTYPE_F32};
    if (dtype_size_bytes(out->dtype) == 0) {
        return fail(QUIRE_E_UNSUPPORTED, "dtype {dtype} is not f32, f16 or bf16", args.dtype);
    }
    out->k = args.k;
    out->v = args.v;
    out->q = args.q;
    out->k_token_stride = args.k_token_stride != 0 ? args.k_token_stride : k_dense;
    out->v_token_stride = args.v_token_stride != 0 ? args.v_token_stride : v_dense;
    out->q_token_stride =
        args.q_token_stride != 0
            ? args.q_token_stride
            : int64_t{batch.q_heads(launch.shard, launch.group)} * pool.k_head_dim;
    return Status{};
}

Status describe_attention(const Batch &batch, const quire_attend_args &args, const Launch &launch,
                          quire_be_attention *out) {
    if (args.q == 0 || args.out == 0) return fail(QUIRE_E_ARG, "q or out is 0");
    if ((args.sinks != 0) != batch.has_sinks(launch.shard, launch.group)) {
        return fail(QUIRE_E_ARG,
                    args.sinks == 0
                        ? "sinks is 0, but the attention has QUIRE_ATTENTION_SINK_LOGITS"
                        : "sinks are given, but the attention was created without "
                          "QUIRE_ATTENTION_SINK_LOGITS");
    }
    out->struct_size = sizeof *out;
    batch.fill_attention(launch.shard, launch.group, out);
    out->layer = launch.layer;
    out->q = args.q;
    out->out = args.out;
    out->lse = args.lse;
    out->sinks = args.sinks;
    int64_t q_heads = batch.q_heads(launch.shard, launch.group);
    out->q_token_stride =
        args.q_token_stride != 0 ? args.q_token_stride : q_heads * out->pool->k_head_dim;
    out->out_token_stride =
        args.out_token_stride != 0 ? args.out_token_stride : q_heads * out->pool->v_head_dim;
    return Status{};
}

Status check_merge(const quire_merge_args &args, quire_be_merge *out) {
    if (args.parts == 0 || args.lses == 0 || args.out == 0) {
        return fail(QUIRE_E_ARG, "parts, lses or out is 0");
    }
    if (args.part_count == 0 || args.heads == 0 || args.head_dim == 0) {
        return fail(QUIRE_E_ARG, "part_count, heads and head_dim must not be 0");
    }
    uint32_t dtype = args.dtype != 0 ? args.dtype : uint32_t{QUIRE_DTYPE_F32};
    if (dtype_size_bytes(dtype) == 0) {
        return fail(QUIRE_E_UNSUPPORTED, "dtype {dtype} is not f32, f16 or bf16", args.dtype);
    }
    uint64_t size = dtype_size_bytes(dtype);
    for (uint32_t factor : {args.part_count, args.token_count, args.heads, args.head_dim}) {
        if (!checked_mul(size, factor, &size) || size >> 48 != 0) {
            return fail(QUIRE_E_LIMIT, "the parts are larger than 2^48 bytes");
        }
    }
    *out = quire_be_merge{sizeof *out, args.part_count, args.token_count, args.heads, args.head_dim,
                          dtype,       args.parts,      args.lses,        args.out,   args.lse};
    return Status{};
}

}  // namespace

extern "C" {

quire_status quire_batch_create(quire_cache *cache, const quire_batch_desc *desc, quire_batch **out,
                                quire_error *error) {
    return cache_call("batch_create", cache, error, [&](Cache &core, quire_error *sink) -> Status {
        QUIRE_TRY(core.check_at_rest());
        quire_batch_desc full;
        QUIRE_TRY(read(desc, &full));
        QUIRE_TRY(need(out, "out is NULL"));
        return create_batch(cache, full, out, sink);
    });
}

quire_status quire_batch_destroy(quire_batch *batch, quire_error *error) {
    quire_cache *cache = batch != nullptr ? batch->cache : nullptr;
    return lasting_call(
        "batch_destroy", cache, error, [&](Cache &core, quire_error *sink) -> Status {
            QUIRE_TRY(core.poll(sink));
            if (core.batch_busy(batch->core)) {
                return fail(QUIRE_E_BUSY,
                            "a step that was committed into the batch is not finished");
            }
            core.forget_batch(&batch->core);
            cache->note_memory();
            delete batch;
            return Status{};
        });
}

quire_status quire_batch_get_views(quire_batch *batch, uint32_t group, uint32_t shard,
                                   quire_batch_views *views, quire_error *error) {
    quire_cache *cache = batch != nullptr ? batch->cache : nullptr;
    return cache_call("batch_get_views", cache, error, [&](Cache &core, quire_error *) -> Status {
        QUIRE_TRY(check_output(views));
        QUIRE_TRY(batch->core.check_fresh());
        QUIRE_TRY(core.check_shard(shard));
        quire_batch_views full{};
        QUIRE_TRY(batch->core.views(group, shard, &full));
        write(full, views);
        return Status{};
    });
}

quire_status quire_kv_write(quire_batch *batch, const quire_kv_args *args, quire_queue *queue,
                            quire_error *error) {
    return guard("kv_write", error, [&](quire_error *sink) -> Status {
        quire_kv_args full;
        QUIRE_TRY(read(args, &full));
        Launch launch{};
        QUIRE_TRY(check_launch(batch, queue, full.layer, &launch));
        quire_be_kv_write write{};
        QUIRE_TRY(describe_kv_write(batch->core, full, launch, &write));
        if (write.token_count == 0) return Status{};
        QueueUse use(&queue->core);
        QUIRE_TRY(use.status());
        return call<&quire_backend_api::kv_write>(*queue->device->core.api, sink,
                                                  queue->core.handle,
                                                  static_cast<const quire_be_kv_write *>(&write));
    });
}

quire_status quire_attend(quire_batch *batch, const quire_attend_args *args, quire_queue *queue,
                          quire_error *error) {
    return guard("attend", error, [&](quire_error *sink) -> Status {
        quire_attend_args full;
        QUIRE_TRY(read(args, &full));
        Launch launch{};
        QUIRE_TRY(check_launch(batch, queue, full.layer, &launch));
        quire_be_plan *plan = batch->core.attention_plan(launch.shard, launch.group);
        if (plan == nullptr) return fail(QUIRE_E_ARG, "the batch has no attention options");
        quire_be_attention attention{};
        QUIRE_TRY(describe_attention(batch->core, full, launch, &attention));
        const quire_backend_api &api = *queue->device->core.api;
        // A plugin of earlier headers refuses what it does not know, unless it is 0.
        if ((api.features & QUIRE_BE_FEATURE_ROWS_ID) == 0) attention.rows_id = 0;
        QueueUse use(&queue->core);
        QUIRE_TRY(use.status());
        return call<&quire_backend_api::attention>(
            api, sink, queue->core.handle, plan,
            static_cast<const quire_be_attention *>(&attention));
    });
}

quire_status quire_attention_merge(quire_queue *queue, const quire_merge_args *args,
                                   quire_error *error) {
    return guard("attention_merge", error, [&](quire_error *sink) -> Status {
        quire_merge_args full;
        QUIRE_TRY(read(args, &full));
        QUIRE_TRY(need(queue, "queue is NULL"));
        QUIRE_TRY(usable(queue->device));
        quire_be_merge merge{};
        QUIRE_TRY(check_merge(full, &merge));
        const quire_backend_api &api = *queue->device->core.api;
        if (api.merge == nullptr)
            return fail(QUIRE_E_UNSUPPORTED, "the backend cannot merge attention states");
        QueueUse use(&queue->core);
        QUIRE_TRY(use.status());
        return call<&quire_backend_api::merge>(api, sink, queue->core.handle,
                                               static_cast<const quire_be_merge *>(&merge));
    });
}

}  // extern "C"
