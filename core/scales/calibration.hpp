// SPDX-License-Identifier: Apache-2.0
//
// calibration: the largest magnitudes of a model's K and V as bytes, in the format of
// docs/calibration.md.
//
// It covers the whole model, all layers and all KV heads, so that every way of cutting the model
// into shards and ranks reads the same scales from it.
//
// Invariant of a Calibration that open() returned: every number is finite and not below 0, and
// every record lies within the bytes.
//
// Threads: any; the bytes are the caller's.
#pragma once

#include "core/base/geometry.hpp"

namespace quire {

constexpr uint64_t kCalibrationMagic = 0x4C41434552495551;  // "QUIRECAL"
constexpr uint32_t kCalibrationVersion = 1;

struct CalibrationHeader {
    uint64_t magic;
    uint32_t version;
    uint32_t layer_count;
    uint64_t size_bytes;  // of the whole calibration
    uint64_t checksum;    // XXH3, 64 bits, with 0 in this place
};
static_assert(sizeof(CalibrationHeader) == 32);

// One per layer, after the header. After them come f32 [2][kv_heads] for each layer.
struct CalibrationLayer {
    uint32_t kv_heads;
    uint32_t k_head_dim;
    uint32_t v_head_dim;
    uint32_t reserved0;
};
static_assert(sizeof(CalibrationLayer) == 16);

class Calibration {
 public:
    // Checks everything that the bytes say; they may be anything, and must outlive *out.
    static Status open(const void *bytes, uint64_t size_bytes, Calibration *out);

    uint32_t layer_count() const { return header_.layer_count; }
    uint64_t size_bytes() const { return header_.size_bytes; }
    // REQUIRES: layer < layer_count().
    CalibrationLayer layer(uint32_t layer) const;
    // Copies the layer's numbers, [2][kv_heads]; O(layers).
    void read_numbers(uint32_t layer, float *to) const;

    // The numbers of all layers, one layer after another.
    const uint8_t *numbers() const { return bytes_ + numbers_at(); }
    uint64_t number_count() const { return (header_.size_bytes - numbers_at()) / sizeof(float); }

    // Calls visit(layer, record, at); the layer's numbers begin at `at`.
    template <typename Visit>
    void each_layer(Visit visit) const {
        uint64_t at = numbers_at();
        for (uint32_t i = 0; i < header_.layer_count; ++i) {
            CalibrationLayer record = layer(i);
            visit(i, record, bytes_ + at);
            at += uint64_t{record.kv_heads} * 2 * sizeof(float);
        }
    }

 private:
    uint64_t numbers_at() const {
        return sizeof(CalibrationHeader) + uint64_t{header_.layer_count} * sizeof(CalibrationLayer);
    }
    Status check_layers() const;
    Status check_numbers() const;

    const uint8_t *bytes_ = nullptr;
    CalibrationHeader header_{};
};

// Element `index` of numbers that may be unaligned.
inline float number_at(const uint8_t *numbers, uint64_t index) {
    float value = 0;
    std::memcpy(&value, numbers + index * sizeof value, sizeof value);
    return value;
}

// Size of the calibration of such a model.
uint64_t calibration_bytes(const Geometry &geometry, const LayerInGroup *places);

// Writes calibration_bytes() bytes. numbers: [2][kv_heads] for each layer of the model, one layer
// after another, finite and not below 0.
void write_calibration(const Geometry &geometry, const LayerInGroup *places, const float *numbers,
                       uint64_t size_bytes, uint8_t *out);

// OK if both have the same shape.
Status check_mergeable(const Calibration &a, const Calibration &b);
// Writes the larger of the two's numbers; a.size_bytes() bytes. `out` may be the bytes of either.
void merge_calibrations(const Calibration &a, const Calibration &b, uint8_t *out);

}  // namespace quire
