// SPDX-License-Identifier: Apache-2.0
//
// Exported functions on batches: their life, and the two launches, which take no lock of the cache.

#include "abi/cache_call.hpp"

namespace {

Status create_batch(quire_cache *cache, quire_batch_desc desc, quire_batch **out,
                    quire_error *sink) {
    if (desc.attention_count > kMaxGroups * kMaxShards) {
        return fail(QUIRE_E_ARG, "attention_count is {}: at most one a group and shard",
                    desc.attention_count);
    }
    std::vector<quire_attention_desc> attention(desc.attention_count);
    for (uint32_t i = 0; i < desc.attention_count; ++i) {
        QUIRE_TRY(read_element(desc.attention, i, desc.attention_stride, &attention[i]));
    }
    desc.attention = attention.data();
    constexpr uint32_t known_views = (QUIRE_VIEW_CU_Q << 1) - 1;
    if ((desc.views & ~known_views) != 0) {
        return fail(QUIRE_E_UNSUPPORTED, "views {} names one that is not known", desc.views);
    }
    auto batch = std::make_unique<quire_batch>(&cache->instance->host);
    batch->cache = cache;
    QUIRE_TRY(cache->core.create_batch(desc, &batch->core, sink));
    ++cache->core.batches;
    *out = batch.release();
    return Status{};
}

// Where a launch goes: the shard on the queue's device, the layer's group, and its place there.
struct Launch {
    uint32_t shard;
    uint32_t group;
    uint32_t layer;
};

// What both launches check. Without the cache's lock: only what a commit before wrote is read.
Status check_launch(const quire_batch *batch, const quire_queue *queue, uint32_t layer,
                    Launch *launch) {
    QUIRE_TRY(need(batch, "batch is NULL"));
    QUIRE_TRY(need(queue, "queue is NULL"));
    const quire_cache *cache = batch->cache;
    if (cache->devices.empty()) {
        return fail(QUIRE_E_UNSUPPORTED, "the cache has no memory: it keeps books only");
    }
    QUIRE_TRY(not_forked());
    launch->shard = cache->shard_on(queue->device);
    if (launch->shard == cache->devices.size())
        return fail(QUIRE_E_ARG, "the queue is of another device");
    if (!batch->core.committed())
        return fail(QUIRE_E_ARG, "no step with rows is committed in the batch");
    const LayerPlace *place = cache->core.place(layer);
    if (place == nullptr) return fail(QUIRE_E_ARG, "layer is {}: the cache has fewer", layer);
    launch->group = place->group;
    if (cache->core.shards()[launch->shard].find_layer(*place, &launch->layer)) return Status{};
    return fail(QUIRE_E_ARG, "layer is {}: shard {}, the queue's, does not hold it", layer,
                launch->shard);
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
        return fail(QUIRE_E_UNSUPPORTED, "dtype {} is not known", args.dtype);
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
    return cache_call("batch_create", cache, error, [&](Cache &, quire_error *sink) -> Status {
        quire_batch_desc full;
        QUIRE_TRY(read(desc, &full));
        QUIRE_TRY(need(out, "out is NULL"));
        return create_batch(cache, full, out, sink);
    });
}

quire_status quire_batch_destroy(quire_batch *batch, quire_error *error) {
    quire_cache *cache = batch != nullptr ? batch->cache : nullptr;
    return cache_call("batch_destroy", cache, error, [&](Cache &core, quire_error *sink) -> Status {
        QUIRE_TRY(core.poll(sink));
        if (core.batch_busy(batch->core)) {
            return fail(QUIRE_E_BUSY, "a step that was committed into it is not done");
        }
        --core.batches;
        delete batch;
        return Status{};
    });
}

quire_status quire_batch_get_views(quire_batch *batch, uint32_t group, uint32_t shard,
                                   quire_batch_views *views, quire_error *error) {
    quire_cache *cache = batch != nullptr ? batch->cache : nullptr;
    return cache_call("batch_get_views", cache, error, [&](Cache &core, quire_error *) -> Status {
        QUIRE_TRY(check_output(views));
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
        write.struct_size = sizeof write;
        batch->core.fill_kv_write(launch.shard, launch.group, &write);
        if (write.slots == 0)
            return fail(QUIRE_E_ARG, "the batch keeps no slots: QUIRE_VIEW_SLOTS");
        if (full.k == 0 || full.v == 0) return fail(QUIRE_E_ARG, "k or v is 0");
        write.layer = launch.layer;
        write.dtype = full.dtype != 0 ? full.dtype : uint32_t{QUIRE_DTYPE_F32};
        if (dtype_size_bytes(write.dtype) == 0) {
            return fail(QUIRE_E_UNSUPPORTED, "dtype {} is not known", full.dtype);
        }
        write.k = full.k;
        write.v = full.v;
        int64_t heads = write.pool->kv_heads;
        write.k_token_stride =
            full.k_token_stride != 0 ? full.k_token_stride : heads * write.pool->k_head_dim;
        write.v_token_stride =
            full.v_token_stride != 0 ? full.v_token_stride : heads * write.pool->v_head_dim;
        std::lock_guard<std::mutex> lock(queue->core.mutex);
        return ask<&quire_backend_api::kv_write>(*queue->device->core.api, sink, queue->core.handle,
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
        quire_be_plan *plan = batch->core.plan(launch.shard, launch.group);
        if (plan == nullptr) return fail(QUIRE_E_ARG, "the batch has no attention options");
        if (full.q == 0 || full.out == 0) return fail(QUIRE_E_ARG, "q or out is 0");
        quire_be_attention attention{};
        attention.struct_size = sizeof attention;
        batch->core.fill_attention(launch.shard, launch.group, &attention);
        attention.layer = launch.layer;
        attention.q = full.q;
        attention.out = full.out;
        attention.lse = full.lse;
        int64_t q_heads = batch->core.q_heads(launch.shard, launch.group);
        attention.q_token_stride =
            full.q_token_stride != 0 ? full.q_token_stride : q_heads * attention.pool->k_head_dim;
        attention.out_token_stride = full.out_token_stride != 0
                                         ? full.out_token_stride
                                         : q_heads * attention.pool->v_head_dim;
        std::lock_guard<std::mutex> lock(queue->core.mutex);
        return ask<&quire_backend_api::attention>(
            *queue->device->core.api, sink, queue->core.handle, plan,
            static_cast<const quire_be_attention *>(&attention));
    });
}

quire_status quire_attention_merge(quire_queue *queue, const quire_merge_args *args,
                                   quire_error *error) {
    return guard("attention_merge", error, [&](quire_error *sink) -> Status {
        quire_merge_args full;
        QUIRE_TRY(read(args, &full));
        QUIRE_TRY(need(queue, "queue is NULL"));
        QUIRE_TRY(not_forked());
        quire_be_merge merge{};
        QUIRE_TRY(check_merge(full, &merge));
        const quire_backend_api &api = *queue->device->core.api;
        if (api.merge == nullptr) return fail(QUIRE_E_UNSUPPORTED, "the backend merges no states");
        std::lock_guard<std::mutex> lock(queue->core.mutex);
        return ask<&quire_backend_api::merge>(api, sink, queue->core.handle,
                                              static_cast<const quire_be_merge *>(&merge));
    });
}

}  // extern "C"
