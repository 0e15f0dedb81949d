// SPDX-License-Identifier: Apache-2.0
//
// Exported functions of calibration.h.

#include "abi/cache_call.hpp"
#include "core/scales/calibration.hpp"

namespace {

constexpr const char *kSave = "cache_save_calibration_wait";

// Saves if no work that measures is running, and otherwise waits for it without the cache's lock.
// The check and the save are one call on the cache: between two calls another thread could begin a
// step.
quire_status save(quire_cache *cache, uint8_t *buffer, uint64_t timeout_ns, quire_error *error) {
    uint64_t begin = os::monotonic_ns();
    for (;;) {
        Cache::Awaited awaited;
        quire_status status =
            cache_call(kSave, cache, error, [&](Cache &core, quire_error *sink) -> Status {
                QUIRE_TRY(core.await_writes(&awaited, sink));
                return awaited.fence != nullptr ? Status{} : core.save_calibration(buffer, sink);
            });
        if (status != QUIRE_OK || awaited.fence == nullptr) return status;
        status = guard(kSave, error, [&](quire_error *sink) -> Status {
            return call<&quire_backend_api::fence_wait_host>(
                *awaited.api, sink, awaited.fence, awaited.value, os::time_left(begin, timeout_ns));
        });
        if (status != QUIRE_OK) return status;
    }
}

}  // namespace

extern "C" {

quire_status quire_cache_save_calibration_wait(quire_cache *cache, void *buffer, uint64_t capacity,
                                               uint64_t *size_bytes, uint64_t timeout_ns,
                                               quire_error *error) {
    quire_status status =
        cache_call(kSave, cache, error, [&](Cache &core, quire_error *) -> Status {
            QUIRE_TRY(need(size_bytes, "size_bytes is NULL"));
            if (capacity != 0) QUIRE_TRY(need(buffer, "buffer is NULL"));
            QUIRE_TRY(core.calibration_size(size_bytes));
            return capacity < *size_bytes ? Status{QUIRE_S_INCOMPLETE, nullptr, 0, 0} : Status{};
        });
    if (status != QUIRE_OK) return status;
    return save(cache, static_cast<uint8_t *>(buffer), timeout_ns, error);
}

quire_status quire_calibration_merge(const void *a, uint64_t a_bytes, const void *b,
                                     uint64_t b_bytes, void *out, uint64_t capacity,
                                     uint64_t *size_bytes, quire_error *error) {
    return guard("calibration_merge", error, [&](quire_error *) -> Status {
        QUIRE_TRY(need(size_bytes, "size_bytes is NULL"));
        if (capacity != 0) QUIRE_TRY(need(out, "out is NULL"));
        Calibration first, second;
        QUIRE_TRY(Calibration::open(a, a_bytes, &first));
        QUIRE_TRY(Calibration::open(b, b_bytes, &second));
        QUIRE_TRY(check_mergeable(first, second));
        *size_bytes = first.size_bytes();
        if (capacity < first.size_bytes()) return Status{QUIRE_S_INCOMPLETE, nullptr, 0, 0};
        merge_calibrations(first, second, static_cast<uint8_t *>(out));
        return Status{};
    });
}

quire_status quire_calibration_get_info(const void *bytes, uint64_t size_bytes,
                                        quire_calibration_info *info, quire_error *error) {
    return guard("calibration_get_info", error, [&](quire_error *) -> Status {
        QUIRE_TRY(check_output(info));
        Calibration calibration;
        QUIRE_TRY(Calibration::open(bytes, size_bytes, &calibration));
        quire_calibration_info full{};
        full.version = kCalibrationVersion;
        full.layer_count = calibration.layer_count();
        for (uint32_t i = 0; i < full.layer_count; ++i) {
            uint32_t heads = calibration.layer(i).kv_heads;
            if (heads > full.max_kv_heads) full.max_kv_heads = heads;
        }
        for (uint64_t i = 0; i < calibration.number_count(); ++i) {
            full.unwritten += number_at(calibration.numbers(), i) == 0.0f;
        }
        write(full, info);
        return Status{};
    });
}

quire_status quire_calibration_get_layer(const void *bytes, uint64_t size_bytes, uint32_t layer,
                                         quire_calibration_layer *info, float *amax,
                                         uint32_t capacity, quire_error *error) {
    return guard("calibration_get_layer", error, [&](quire_error *) -> Status {
        QUIRE_TRY(check_output(info));
        if (capacity != 0) QUIRE_TRY(need(amax, "amax is NULL"));
        Calibration calibration;
        QUIRE_TRY(Calibration::open(bytes, size_bytes, &calibration));
        if (layer >= calibration.layer_count()) {
            return fail(QUIRE_E_ARG, "layer is {}: the calibration has {}", layer,
                        calibration.layer_count());
        }
        CalibrationLayer record = calibration.layer(layer);
        quire_calibration_layer full{};
        full.kv_heads = record.kv_heads;
        full.k_head_dim = record.k_head_dim;
        full.v_head_dim = record.v_head_dim;
        write(full, info);
        uint64_t count = uint64_t{record.kv_heads} * 2;
        if (capacity < count) return Status{QUIRE_S_INCOMPLETE, nullptr, 0, 0};
        calibration.read_numbers(layer, amax);
        return Status{};
    });
}

}  // extern "C"
