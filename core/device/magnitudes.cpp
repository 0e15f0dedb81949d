// SPDX-License-Identifier: Apache-2.0

#include "core/device/magnitudes.hpp"

#include <algorithm>
#include <bit>

#include "core/scales/calibration.hpp"

namespace quire {

uint64_t Magnitudes::number_count() const {
    uint64_t count = 0;
    for (uint32_t layer = 0; layer < geometry_.layer_count; ++layer) {
        count += uint64_t{geometry_.groups[places_[layer].group].kv_heads} * 2;
    }
    return count;
}

// Raises the model's numbers by those of one shard. Compares their bits, so that a NaN stays.
Status Magnitudes::gather_shard(uint32_t shard, Array<float> *numbers, quire_error *error) {
    Binding &binding = shards_[shard];
    const float *read[kMaxGroups] = {};
    for (uint32_t g = 0; g < geometry_.group_count; ++g) {
        if (binding.holds(g)) QUIRE_TRY(binding.read_amax(g, &read[g], error));
    }
    uint64_t at = 0;
    for (uint32_t layer = 0; layer < geometry_.layer_count; ++layer) {
        const LayerInGroup &place = places_[layer];
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
Status Magnitudes::check(Array<float> *numbers) const {
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

Status Magnitudes::save(uint8_t *buffer, quire_error *error) {
    uint64_t size_bytes = calibration_bytes(geometry_, places_);
    Array<float> numbers(host_);
    QUIRE_TRY(gather(&numbers, error));
    QUIRE_TRY(check(&numbers));
    write_calibration(geometry_, places_, numbers.data(), size_bytes, buffer);
    return Status{};
}

// All numbers of the model, over all shards.
Status Magnitudes::gather(Array<float> *numbers, quire_error *error) {
    if (!numbers->create(number_count())) return no_host_memory();
    for (uint32_t i = 0; i < shards_.count(); ++i) QUIRE_TRY(gather_shard(i, numbers, error));
    return Status{};
}

// Carries over what was measured so far, over all shards, to each target shard that holds it.
Status Magnitudes::carry_to(Shards *target, quire_error *error) {
    Array<float> numbers(host_);
    QUIRE_TRY(gather(&numbers, error));
    for (uint32_t i = 0; i < target->count(); ++i) {
        Binding &binding = (*target)[i];
        uint64_t at = 0;
        for (uint32_t layer = 0; layer < geometry_.layer_count; ++layer) {
            const LayerInGroup &place = places_[layer];
            uint64_t heads = geometry_.groups[place.group].kv_heads;
            uint32_t held = 0, kv_heads = binding.pool(place.group).kv_heads;
            if (binding.find_layer(place, &held)) {
                const float *from = numbers.data() + at + binding.first_head(place.group);
                float *to = binding.amax(place.group) + uint64_t{held} * 2 * kv_heads;
                std::memcpy(to, from, kv_heads * sizeof *to);
                std::memcpy(to + kv_heads, from + heads, kv_heads * sizeof *to);
            }
            at += 2 * heads;
        }
        for (uint32_t g = 0; g < geometry_.group_count; ++g) {
            if (binding.holds(g)) QUIRE_TRY(binding.write_amax(g, error));
        }
    }
    return Status{};
}

}  // namespace quire
