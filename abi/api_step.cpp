// SPDX-License-Identifier: Apache-2.0
//
// Exported functions of step.h.

#include "abi/cache_call.hpp"
#include "abi/step_options.hpp"

namespace {

Status make_list(const quire_step_item *items, uint32_t item_count, uint32_t item_stride,
                 const quire_token *tokens, uint32_t token_count, quire_step_result *results,
                 uint32_t result_stride, ItemList *out) {
    QUIRE_TRY(check_array(items, item_count, item_stride));
    // Results of a newer layout are accepted: bytes past the known fields stay as they are.
    if (item_count != 0 &&
        (results == nullptr || result_stride < sizeof(quire_step_result) ||
         result_stride % 4 != 0 || reinterpret_cast<uintptr_t>(results) % 4 != 0)) {
        return fail(QUIRE_E_ARG,
                    "results is NULL or misaligned, or result_stride {} is not "
                    "sizeof(quire_step_result)",
                    result_stride);
    }
    if (token_count != 0) QUIRE_TRY(need(tokens, "tokens is NULL"));
    *out = ItemList{
        reinterpret_cast<const uint8_t *>(items), item_count,   item_stride, tokens, token_count,
        reinterpret_cast<uint8_t *>(results),     result_stride};
    return Status{};
}

}  // namespace

extern "C" {

quire_status quire_step_begin(quire_cache *cache, const quire_step_desc *desc,
                              const quire_step_item *items, uint32_t item_count,
                              uint32_t item_stride, const quire_token *tokens, uint32_t token_count,
                              quire_step_result *results, uint32_t result_stride, quire_step *out,
                              quire_error *error) {
    return changing_call("step_begin", cache, error, [&](Cache &core, quire_error *sink) -> Status {
        quire_step_desc full;
        ItemList list;
        StepOptions options;
        QUIRE_TRY(read(desc, &full));
        QUIRE_TRY(need(out, "out is NULL"));
        QUIRE_TRY(make_list(items, item_count, item_stride, tokens, token_count, results,
                            result_stride, &list));
        QUIRE_TRY(make_options(cache, full, &options));
        return core.begin(options, list, out, sink);
    });
}

quire_status quire_step_add(quire_cache *cache, quire_step step, const quire_step_item *items,
                            uint32_t item_count, uint32_t item_stride, const quire_token *tokens,
                            uint32_t token_count, quire_step_result *results,
                            uint32_t result_stride, quire_error *error) {
    return deciding_call("step_add", cache, error, [&](Cache &core, quire_error *) -> Status {
        ItemList list;
        QUIRE_TRY(make_list(items, item_count, item_stride, tokens, token_count, results,
                            result_stride, &list));
        return core.add(step, list);
    });
}

quire_status quire_step_drop(quire_cache *cache, quire_step step, quire_seq seq, quire_seq *dropped,
                             uint32_t capacity, uint32_t *count, quire_error *error) {
    return deciding_call("step_drop", cache, error, [&](Cache &core, quire_error *) -> Status {
        QUIRE_TRY(need(count, "count is NULL"));
        if (capacity != 0) QUIRE_TRY(need(dropped, "dropped is NULL"));
        return core.drop(step, seq, dropped, capacity, count);
    });
}

quire_status quire_step_preempt(quire_cache *cache, quire_step step, quire_seq seq, uint32_t how,
                                uint32_t *freed_blocks, quire_error *error) {
    return deciding_call("step_preempt", cache, error, [&](Cache &core, quire_error *) -> Status {
        QUIRE_TRY(need(freed_blocks, "freed_blocks is NULL"));
        return core.preempt(step, seq, how, freed_blocks);
    });
}

quire_status quire_step_preempted(quire_cache *cache, quire_step step, quire_preemption *out,
                                  uint32_t capacity, uint32_t stride, uint32_t *count,
                                  quire_error *error) {
    return deciding_call("step_preempted", cache, error, [&](Cache &core, quire_error *) -> Status {
        QUIRE_TRY(check_output_array(out, capacity, stride));
        QUIRE_TRY(need(count, "count is NULL"));
        return core.preempted(step, reinterpret_cast<uint8_t *>(out), capacity, stride, count);
    });
}

quire_status quire_step_abort(quire_cache *cache, quire_step step, quire_error *error) {
    return deciding_call("step_abort", cache, error,
                         [&](Cache &core, quire_error *) -> Status { return core.abort(step); });
}

quire_status quire_step_commit(quire_cache *cache, quire_step step, quire_batch *batch,
                               quire_error *error) {
    return deciding_call(
        "step_commit", cache, error, [&](Cache &core, quire_error *sink) -> Status {
            if (batch != nullptr && batch->cache != cache) {
                return fail(QUIRE_E_ARG, "the batch belongs to another cache");
            }
            return core.commit(step, batch != nullptr ? &batch->core : nullptr, sink);
        });
}

quire_status quire_step_finish(quire_cache *cache, quire_step step, const quire_native *signal,
                               uint32_t outcome, quire_error *error) {
    return lasting_call("step_finish", cache, error, [&](Cache &core, quire_error *sink) -> Status {
        QUIRE_TRY(check_native(signal));
        return core.finish(step, signal, outcome, sink);
    });
}

quire_status quire_step_blocks(quire_cache *cache, quire_step step, quire_seq seq, uint32_t group,
                               uint32_t first, int32_t *ids, uint32_t capacity, uint32_t *count,
                               quire_error *error) {
    return cache_call("step_blocks", cache, error, [&](Cache &core, quire_error *) -> Status {
        QUIRE_TRY(need(count, "count is NULL"));
        if (capacity != 0) QUIRE_TRY(need(ids, "ids is NULL"));
        return core.blocks(step, seq, group, first, ids, capacity, count);
    });
}

quire_status quire_step_copies(quire_cache *cache, quire_step step, quire_block_copy *out,
                               uint32_t capacity, uint32_t stride, uint32_t *count,
                               quire_error *error) {
    return cache_call("step_copies", cache, error, [&](Cache &core, quire_error *) -> Status {
        QUIRE_TRY(check_output_array(out, capacity, stride));
        QUIRE_TRY(need(count, "count is NULL"));
        return core.copies(step, reinterpret_cast<uint8_t *>(out), capacity, stride, count);
    });
}

}  // extern "C"
