// SPDX-License-Identifier: Apache-2.0
//
// Calibration: what a cache made with QUIRE_CACHE_CALIBRATE has measured, over all of its shards.
//
// Kernels raise the numbers on the device, so they are whole once every finished step has run.

#include <algorithm>
#include <bit>

#include "core/cache.hpp"
#include "core/device/backend_call.hpp"
#include "core/scales/calibration.hpp"

namespace quire {

Status Cache::calibration_size(uint64_t *size_bytes) const {
    if (!calibrates_) {
        return fail(QUIRE_E_UNSUPPORTED,
                    "the cache measures nothing: create it with QUIRE_CACHE_CALIBRATE");
    }
    *size_bytes = calibration_bytes(geometry_, places_.data());
    return Status{};
}

Status Cache::await_writes(Awaited *out, quire_error *error) {
    *out = Awaited{};
    QUIRE_TRY(poll(error));
    for (uint64_t step = timeline_.oldest(); step < timeline_.next(); ++step) {
        const StepRecord &record = records_[Timeline::slot(step)];
        if (record.phase == StepPhase::committed) {
            return fail(QUIRE_E_BUSY, "a step is committed and not finished: finish it first");
        }
        if (record.phase != StepPhase::finished) continue;
        for (uint32_t i = 0; i < record.shard_count; ++i) {
            if (record.fence_values[i] == 0) continue;  // none of its work can run there
            Queue *queue = record.queues[i];
            uint64_t value = 0;
            QUIRE_TRY(ask<&quire_backend_api::fence_read>(*queue->device->api, error, queue->fence,
                                                          &value));
            if (value >= record.fence_values[i]) continue;
            *out = Awaited{queue->device->api, queue->fence, record.fence_values[i]};
            return Status{};
        }
    }
    return Status{};
}

uint64_t Cache::calibration_numbers() const {
    uint64_t count = 0;
    for (uint32_t layer = 0; layer < geometry_.layer_count; ++layer) {
        count += uint64_t{geometry_.groups[places_[layer].group].kv_heads} * 2;
    }
    return count;
}

// Raises the model's numbers by those of one shard. Compares their bits, so that a NaN stays.
Status Cache::gather_amax(uint32_t shard, Array<float> *numbers, quire_error *error) {
    Binding &binding = shards_[shard];
    const float *read[kMaxGroups] = {};
    for (uint32_t g = 0; g < geometry_.group_count; ++g) {
        if (binding.holds(g)) QUIRE_TRY(binding.read_amax(g, &read[g], error));
    }
    uint64_t at = 0;
    for (uint32_t layer = 0; layer < geometry_.layer_count; ++layer) {
        const LayerPlace &place = places_[layer];
        uint64_t heads = geometry_.groups[place.group].kv_heads;
        const quire_be_pool &pool = binding.pool(place.group);
        uint32_t held = 0;
        if (binding.find_layer(place, &held)) {
            const float *from = read[place.group] + uint64_t{held} * 2 * pool.kv_heads;
            float *to = numbers->data() + at + binding.first_head(place.group);
            for (uint32_t i = 0; i < 2 * pool.kv_heads; ++i) {
                float &number = to[i < pool.kv_heads ? i : heads + i - pool.kv_heads];
                number = std::bit_cast<float>(
                    std::max(std::bit_cast<uint32_t>(number), std::bit_cast<uint32_t>(from[i])));
            }
        }
        at += 2 * heads;
    }
    return Status{};
}

// Checks that all are finite. V of a latent layer gets the value of its K: both are one row.
Status Cache::check_amax(Array<float> *numbers) const {
    constexpr uint32_t kInfinity = 0x7F800000u;
    uint64_t at = 0;
    for (uint32_t layer = 0; layer < geometry_.layer_count; ++layer) {
        const GroupGeometry &g = geometry_.groups[places_[layer].group];
        float *layer_numbers = numbers->data() + at;
        if (g.kind == QUIRE_GROUP_LATENT) layer_numbers[1] = layer_numbers[0];
        for (uint32_t i = 0; i < 2 * g.kv_heads; ++i) {
            if (std::bit_cast<uint32_t>(layer_numbers[i]) < kInfinity) continue;
            bool is_k = i < g.kv_heads;
            return fail(QUIRE_E_ARG,
                        is_k ? "K of layer {}, KV head {} received a NaN or an infinity, which "
                               "makes the measurement useless: start again without it"
                             : "V of layer {}, KV head {} received a NaN or an infinity, which "
                               "makes the measurement useless: start again without it",
                        layer, is_k ? i : i - g.kv_heads);
        }
        at += 2 * uint64_t{g.kv_heads};
    }
    return Status{};
}

Status Cache::save_calibration(uint8_t *buffer, quire_error *error) {
    uint64_t size_bytes = calibration_bytes(geometry_, places_.data());
    Array<float> numbers(&host_);
    if (!numbers.create(calibration_numbers())) return no_host_memory();
    for (uint32_t i = 0; i < shards_.count(); ++i) QUIRE_TRY(gather_amax(i, &numbers, error));
    QUIRE_TRY(check_amax(&numbers));
    write_calibration(geometry_, places_.data(), numbers.data(), size_bytes, buffer);
    return Status{};
}

}  // namespace quire
