// SPDX-License-Identifier: Apache-2.0
//
// Exported functions of lease.h.

#include "abi/cache_call.hpp"
#include "abi/key_list.hpp"

namespace {

Status check_ids(const void *ids, uint32_t count) {
    return count != 0 ? need(ids, "ids is NULL") : Status{};
}

// Calls body(&full) and writes what it found, whether it lacks blocks or not.
template <typename Body>
Status with_result(quire_lease_result *result, Body body) {
    QUIRE_TRY(check_output(result));
    quire_lease_result full{};
    Status status = body(&full);
    if (status.code >= 0) write(full, result);
    return status;
}

}  // namespace

extern "C" {

quire_status quire_lease_create(quire_cache *cache, const quire_lease_desc *desc, quire_lease *out,
                                quire_error *error) {
    return changing_call("lease_create", cache, error, [&](Cache &core, quire_error *) -> Status {
        quire_lease_desc full;
        QUIRE_TRY(read(desc, &full));
        QUIRE_TRY(need(out, "out is NULL"));
        quire_key keys[kMaxKeys];
        QUIRE_TRY(read_keys(full, keys));
        return core.create_lease(full, keys, out);
    });
}

quire_status quire_lease_end(quire_cache *cache, quire_lease lease, quire_error *error) {
    return changing_call("lease_end", cache, error, [&](Cache &core, quire_error *) -> Status {
        return core.end_lease(lease);
    });
}

quire_status quire_lease_get_info(quire_cache *cache, quire_lease lease, quire_lease_info *info,
                                  quire_error *error) {
    return deciding_call("lease_get_info", cache, error, [&](Cache &core, quire_error *) -> Status {
        QUIRE_TRY(check_output(info));
        quire_lease_info full{};
        QUIRE_TRY(core.lease_info(lease, &full));
        write(full, info);
        return Status{};
    });
}

quire_status quire_lease_blocks(quire_cache *cache, quire_lease lease, uint32_t group,
                                uint32_t first, quire_lease_block *out, uint32_t capacity,
                                uint32_t stride, uint32_t *count, quire_error *error) {
    return deciding_call("lease_blocks", cache, error, [&](Cache &core, quire_error *) -> Status {
        QUIRE_TRY(check_output_array(out, capacity, stride));
        QUIRE_TRY(need(count, "count is NULL"));
        return core.lease_blocks(lease, group, first, reinterpret_cast<uint8_t *>(out), capacity,
                                 stride, count);
    });
}

quire_status quire_lease_take(quire_cache *cache, quire_step step, quire_lease lease,
                              uint32_t group, uint32_t count, int32_t *ids,
                              quire_lease_result *result, quire_error *error) {
    return deciding_call("lease_take", cache, error, [&](Cache &core, quire_error *) -> Status {
        QUIRE_TRY(check_ids(ids, count));
        return with_result(result, [&](quire_lease_result *full) {
            return core.take(step, lease, group, count, ids, full);
        });
    });
}

quire_status quire_lease_give(quire_cache *cache, quire_step step, quire_lease lease,
                              uint32_t group, const int32_t *ids, uint32_t count,
                              quire_error *error) {
    return deciding_call("lease_give", cache, error, [&](Cache &core, quire_error *) -> Status {
        QUIRE_TRY(check_ids(ids, count));
        if (step == 0) QUIRE_TRY(core.check_at_rest());
        return core.give(step, lease, group, ids, count);
    });
}

quire_status quire_lease_pin(quire_cache *cache, quire_step step, quire_lease lease, uint32_t group,
                             const int32_t *ids, uint32_t count, quire_lease_result *result,
                             quire_error *error) {
    return deciding_call("lease_pin", cache, error, [&](Cache &core, quire_error *) -> Status {
        QUIRE_TRY(check_ids(ids, count));
        if (step == 0) QUIRE_TRY(core.check_at_rest());
        return with_result(result, [&](quire_lease_result *full) {
            return core.pin(step, lease, group, ids, count, full);
        });
    });
}

quire_status quire_lease_match(quire_cache *cache, quire_step step, quire_lease lease,
                               const quire_token *tokens, uint32_t token_count, uint32_t how,
                               int32_t *ids, quire_lease_result *result, quire_error *error) {
    return changing_call("lease_match", cache, error, [&](Cache &core, quire_error *) -> Status {
        if (token_count != 0) QUIRE_TRY(need(tokens, "tokens is NULL"));
        QUIRE_TRY(check_ids(ids, token_count));
        return with_result(result, [&](quire_lease_result *full) {
            return core.match(step, lease, how, LeaseRun{tokens, token_count, nullptr, ids}, full);
        });
    });
}

quire_status quire_lease_publish(quire_cache *cache, quire_step step, quire_lease lease,
                                 const quire_token *tokens, uint32_t token_count,
                                 const int32_t *ids, int32_t *named, quire_lease_result *result,
                                 quire_error *error) {
    return deciding_call("lease_publish", cache, error, [&](Cache &core, quire_error *) -> Status {
        if (token_count != 0) QUIRE_TRY(need(tokens, "tokens is NULL"));
        QUIRE_TRY(check_ids(ids, token_count));
        if (token_count != 0) QUIRE_TRY(need(named, "named is NULL"));
        return with_result(result, [&](quire_lease_result *full) {
            return core.publish(step, lease, LeaseRun{tokens, token_count, ids, named}, full);
        });
    });
}

quire_status quire_lease_find(quire_cache *cache, quire_lease lease, const int64_t *tokens,
                              uint32_t token_count, uint32_t how, int32_t *ids,
                              quire_lease_result *result, quire_error *error) {
    return changing_call("lease_find", cache, error, [&](Cache &core, quire_error *) -> Status {
        if (token_count != 0) QUIRE_TRY(need(tokens, "tokens is NULL"));
        QUIRE_TRY(check_ids(ids, token_count));
        return with_result(result, [&](quire_lease_result *full) {
            return core.find_run(lease, how, SlotRun{tokens, nullptr, token_count, ids}, full);
        });
    });
}

quire_status quire_lease_insert(quire_cache *cache, quire_lease lease, const int64_t *tokens,
                                const int64_t *slots, uint32_t token_count, int32_t *named,
                                quire_lease_result *result, quire_error *error) {
    return changing_call("lease_insert", cache, error, [&](Cache &core, quire_error *sink) {
        if (token_count != 0) {
            QUIRE_TRY(need(tokens, "tokens is NULL"));
            QUIRE_TRY(need(slots, "slots is NULL"));
            QUIRE_TRY(need(named, "named is NULL"));
        }
        return with_result(result, [&](quire_lease_result *full) {
            return core.insert_run(lease, SlotRun{tokens, slots, token_count, named}, full, sink);
        });
    });
}

quire_status quire_lease_forget(quire_cache *cache, quire_lease lease, uint32_t group,
                                const int32_t *ids, uint32_t count, uint32_t *forgotten,
                                quire_error *error) {
    return changing_call("lease_forget", cache, error, [&](Cache &core, quire_error *) -> Status {
        QUIRE_TRY(check_ids(ids, count));
        QUIRE_TRY(need(forgotten, "forgotten is NULL"));
        return core.forget(lease, group, ids, count, forgotten);
    });
}

quire_status quire_cache_evict(quire_cache *cache, uint32_t group, uint32_t count, int32_t *ids,
                               uint32_t *evicted, quire_error *error) {
    return changing_call("cache_evict", cache, error,
                         [&](Cache &core, quire_error *sink) -> Status {
                             QUIRE_TRY(check_ids(ids, count));
                             QUIRE_TRY(need(evicted, "evicted is NULL"));
                             return core.evict(group, count, ids, evicted, sink);
                         });
}

}  // extern "C"
