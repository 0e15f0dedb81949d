// SPDX-License-Identifier: Apache-2.0
//
// Exported functions of log.h.

#include "abi/cache_call.hpp"
#include "abi/step_options.hpp"

extern "C" {

quire_status quire_step_log(quire_cache *cache, quire_step step, void *buffer, uint64_t capacity,
                            uint64_t *size_bytes, quire_error *error) {
    return deciding_call("step_log", cache, error, [&](Cache &core, quire_error *) -> Status {
        QUIRE_TRY(need(size_bytes, "size_bytes is NULL"));
        if (capacity != 0) QUIRE_TRY(need(buffer, "buffer is NULL"));
        return core.step_log(step, buffer, capacity, size_bytes);
    });
}

quire_status quire_log_apply(quire_cache *cache, const void *bytes, uint64_t size_bytes,
                             const quire_step_desc *desc, quire_batch *batch, quire_step *out,
                             quire_error *error) {
    return cache_call("log_apply", cache, error, [&](Cache &core, quire_error *sink) -> Status {
        quire_step_desc full;
        StepOptions options;
        QUIRE_TRY(read(desc, &full));
        QUIRE_TRY(need(out, "out is NULL"));
        if (size_bytes != 0) QUIRE_TRY(need(bytes, "bytes is NULL"));
        if (full.flags != 0 || full.preempt != 0) {
            return fail(QUIRE_E_ARG, "flags and preempt must be 0: a follower cannot preempt");
        }
        if (batch != nullptr && batch->cache != cache) {
            return fail(QUIRE_E_ARG, "the batch belongs to another cache");
        }
        QUIRE_TRY(core.check_at_rest());
        QUIRE_TRY(make_options(cache, full, &options));
        return core.apply_log(static_cast<const uint8_t *>(bytes), size_bytes, options,
                              batch != nullptr ? &batch->core : nullptr, out, sink);
    });
}

}  // extern "C"
