// SPDX-License-Identifier: Apache-2.0
//
// Exported functions of cache.h and sequence.h.

#include "abi/cache_call.hpp"
#include "abi/key_list.hpp"
#include "abi/shard_list.hpp"

namespace {

Status read_groups(const quire_cache_desc &desc, quire_group_desc *groups) {
    if (desc.group_count == 0 || desc.group_count > kMaxGroups) {
        return fail(QUIRE_E_ARG, "group_count is {}: must be 1 to {}", desc.group_count,
                    kMaxGroups);
    }
    for (uint32_t g = 0; g < desc.group_count; ++g) {
        QUIRE_TRY(read_element(desc.groups, g, desc.group_stride, &groups[g]));
    }
    return Status{};
}

Status draw_seeds(const quire_cache_desc &desc, CacheSeeds *seeds) {
    bool drawn = os::random_bytes(seeds, sizeof *seeds);
    if (!drawn) return fail(QUIRE_E_OS, "the system returned no random bytes for the cache's keys");
    if ((desc.flags & QUIRE_CACHE_FIXED_HASH) != 0) seeds->hash = desc.hash_seed;
    return Status{};
}

Status create_cache(quire_instance *instance, const quire_cache_desc &desc, quire_cache **out,
                    quire_error *sink) {
    quire_group_desc groups[kMaxGroups];
    ShardRange ranges[kMaxShards];
    CacheSeeds seeds{};
    QUIRE_TRY(draw_seeds(desc, &seeds));
    auto cache = std::make_unique<quire_cache>(instance->host);
    cache->instance = instance;
    cache->process = instance->process;
    QUIRE_TRY(
        read_shards(desc.shards, desc.shard_count, desc.shard_stride, ranges, &cache->devices));
    cache->on_devices = desc.shard_count != 0;
    QUIRE_TRY(read_groups(desc, groups));
    if (desc.shard_count != 0) QUIRE_TRY(not_forked());
    DeviceStay stay;
    QUIRE_TRY(stay.begin(cache->devices));
    QUIRE_TRY(cache->core.create(desc, groups, ranges, seeds, sink));
    stay.last();
    cache->note_memory();
    ++instance->children;
    *out = cache.release();
    return Status{};
}

}  // namespace

extern "C" {

quire_status quire_cache_create(quire_instance *instance, const quire_cache_desc *desc,
                                quire_cache **out, quire_error *error) {
    return guard("cache_create", error, [&](quire_error *sink) -> Status {
        quire_cache_desc full;
        QUIRE_TRY(read(desc, &full));
        QUIRE_TRY(need(instance, "instance is NULL"));
        QUIRE_TRY(not_inherited(instance->process));
        QUIRE_TRY(need(out, "out is NULL"));
        return create_cache(instance, full, out, sink);
    });
}

quire_status quire_cache_destroy(quire_cache *cache, quire_error *error) {
    quire_status status =
        lasting_call("cache_destroy", cache, error, [&](Cache &core, quire_error *sink) -> Status {
            QUIRE_TRY(core.check_at_rest());
            if (core.has_tier()) return fail(QUIRE_E_BUSY, "the cache has a tier: detach it first");
            if (core.batch_count() != 0) {
                return fail(QUIRE_E_BUSY, "batches still exist, {} of them: destroy them first",
                            core.batch_count());
            }
            return core.check_idle(sink);
        });
    if (status < 0) return status;
    return guard("cache_destroy", error, [&](quire_error *) -> Status {
        quire_instance *instance = cache->instance;
        std::vector<quire_device *> devices;
        devices.swap(cache->devices);
        delete cache;
        for (quire_device *device : devices) device->core.leave();
        --instance->children;
        return Status{};
    });
}

quire_status quire_cache_get_info(quire_cache *cache, quire_cache_info *info, quire_error *error) {
    return lasting_call("cache_get_info", cache, error, [&](Cache &core, quire_error *) -> Status {
        QUIRE_TRY(check_output(info));
        quire_cache_info full{};
        core.info(&full);
        write(full, info);
        return Status{};
    });
}

quire_status quire_cache_get_pool(quire_cache *cache, uint32_t group, uint32_t shard,
                                  quire_pool_info *info, quire_error *error) {
    return lasting_call("cache_get_pool", cache, error, [&](Cache &core, quire_error *) -> Status {
        QUIRE_TRY(check_output(info));
        quire_pool_info full{};
        QUIRE_TRY(core.pool_info(group, shard, &full));
        write(full, info);
        return Status{};
    });
}

quire_status quire_cache_get_stats(quire_cache *cache, quire_cache_stats *stats,
                                   quire_error *error) {
    return lasting_call("cache_get_stats", cache, error, [&](Cache &core, quire_error *) -> Status {
        QUIRE_TRY(check_output(stats));
        quire_cache_stats full{};
        core.stats(&full);
        write(full, stats);
        return Status{};
    });
}

quire_status quire_cache_reset(quire_cache *cache, quire_error *error) {
    return changing_call("cache_reset", cache, error,
                         [&](Cache &core, quire_error *) -> Status { return core.reset(); });
}

quire_status quire_cache_check(quire_cache *cache, quire_error *error) {
    return cache_call("cache_check", cache, error,
                      [&](Cache &core, quire_error *sink) -> Status { return core.check(sink); });
}

quire_status quire_cache_dump(quire_cache *cache, uint32_t flags, void *buffer, uint64_t capacity,
                              uint64_t *size_bytes, quire_error *error) {
    return lasting_call("cache_dump", cache, error, [&](Cache &core, quire_error *) -> Status {
        QUIRE_TRY(need(size_bytes, "size_bytes is NULL"));
        if (capacity != 0) QUIRE_TRY(need(buffer, "buffer is NULL"));
        if ((flags & ~uint32_t{QUIRE_DUMP_TOKENS}) != 0) {
            return fail(QUIRE_E_ARG, "flags {} has a bit that this version does not know", flags);
        }
        bool with_tokens = (flags & QUIRE_DUMP_TOKENS) != 0;
        return core.dump(with_tokens, static_cast<char *>(buffer), capacity, size_bytes);
    });
}

quire_status quire_namespace_create(quire_cache *cache, const quire_namespace_desc *desc,
                                    quire_namespace *out, quire_error *error) {
    return changing_call("namespace_create", cache, error,
                         [&](Cache &core, quire_error *) -> Status {
                             quire_namespace_desc full;
                             QUIRE_TRY(read(desc, &full));
                             QUIRE_TRY(need(out, "out is NULL"));
                             return core.create_namespace(full, out);
                         });
}

quire_status quire_namespace_destroy(quire_cache *cache, quire_namespace ns, quire_error *error) {
    return changing_call(
        "namespace_destroy", cache, error,
        [&](Cache &core, quire_error *) -> Status { return core.destroy_namespace(ns); });
}

quire_status quire_namespace_get_info(quire_cache *cache, quire_namespace ns,
                                      quire_namespace_info *info, quire_error *error) {
    return deciding_call("namespace_get_info", cache, error,
                         [&](Cache &core, quire_error *) -> Status {
                             QUIRE_TRY(check_output(info));
                             quire_namespace_info full{};
                             QUIRE_TRY(core.namespace_info(ns, &full));
                             write(full, info);
                             return Status{};
                         });
}

quire_status quire_seq_create(quire_cache *cache, const quire_seq_desc *desc, quire_seq *out,
                              quire_error *error) {
    return changing_call("seq_create", cache, error, [&](Cache &core, quire_error *) -> Status {
        quire_seq_desc full;
        QUIRE_TRY(read(desc, &full));
        QUIRE_TRY(need(out, "out is NULL"));
        quire_key keys[kMaxKeys];
        QUIRE_TRY(read_keys(full, keys));
        return core.create_sequence(full, keys, out);
    });
}

quire_status quire_seq_end(quire_cache *cache, quire_seq seq, uint32_t flags, quire_error *error) {
    return changing_call("seq_end", cache, error, [&](Cache &core, quire_error *) -> Status {
        return core.end_sequence(seq, flags);
    });
}

quire_status quire_seq_fork(quire_cache *cache, quire_seq seq, uint32_t token_count, quire_seq *out,
                            quire_error *error) {
    return changing_call("seq_fork", cache, error, [&](Cache &core, quire_error *) -> Status {
        QUIRE_TRY(need(out, "out is NULL"));
        return core.fork_sequence(seq, token_count, out);
    });
}

quire_status quire_seq_truncate(quire_cache *cache, quire_seq seq, uint32_t token_count,
                                quire_error *error) {
    return changing_call("seq_truncate", cache, error, [&](Cache &core, quire_error *) -> Status {
        return core.truncate(seq, token_count);
    });
}

quire_status quire_seq_accept(quire_cache *cache, quire_seq seq, uint32_t count,
                              quire_error *error) {
    return changing_call("seq_accept", cache, error, [&](Cache &core, quire_error *) -> Status {
        return core.accept(seq, count);
    });
}

quire_status quire_seq_accept_path(quire_cache *cache, quire_seq seq, const uint32_t *path,
                                   uint32_t count, quire_error *error) {
    return changing_call("seq_accept_path", cache, error,
                         [&](Cache &core, quire_error *) -> Status {
                             if (count != 0) QUIRE_TRY(need(path, "path is NULL"));
                             return core.accept_path(seq, path, count);
                         });
}

quire_status quire_seq_set_tokens(quire_cache *cache, const quire_token_span *spans,
                                  uint32_t span_count, uint32_t span_stride,
                                  const quire_token *tokens, uint32_t token_count,
                                  quire_error *error) {
    return changing_call("seq_set_tokens", cache, error, [&](Cache &core, quire_error *) -> Status {
        QUIRE_TRY(check_array(spans, span_count, span_stride));
        if (token_count != 0) QUIRE_TRY(need(tokens, "tokens is NULL"));
        return core.set_tokens(reinterpret_cast<const uint8_t *>(spans), span_count, span_stride,
                               tokens, token_count);
    });
}

quire_status quire_seq_get_info(quire_cache *cache, quire_seq seq, quire_seq_info *info,
                                quire_error *error) {
    return cache_call("seq_get_info", cache, error, [&](Cache &core, quire_error *) -> Status {
        QUIRE_TRY(check_output(info));
        quire_seq_info full{};
        QUIRE_TRY(core.sequence_info(seq, &full));
        write(full, info);
        return Status{};
    });
}

quire_status quire_prefix_probe(quire_cache *cache, quire_seq seq, const quire_token *tokens,
                                uint32_t token_count, uint32_t *hit_tokens, quire_error *error) {
    return deciding_call("prefix_probe", cache, error, [&](Cache &core, quire_error *) -> Status {
        QUIRE_TRY(need(hit_tokens, "hit_tokens is NULL"));
        if (token_count != 0) QUIRE_TRY(need(tokens, "tokens is NULL"));
        return core.probe(seq, tokens, token_count, hit_tokens);
    });
}

}  // extern "C"
