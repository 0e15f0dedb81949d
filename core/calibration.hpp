// SPDX-License-Identifier: Apache-2.0
//
// calibration: the largest magnitudes of a model's K and V as bytes; the format of
// docs/calibration.md.
//
// It is of the model: all layers, all KV heads, so that every way of cutting it into shards and
// ranks reads the same scales out of it.
//
// Invariant of a Calibration that open() gave: every number is finite and not below 0, and every
// record lies within the bytes.
//
// Threads: any; the bytes are the caller's.
#pragma once

#include "geometry.hpp"

namespace quire {

constexpr uint64_t kCalibrationMagic = 0x4C41434552495551;  // "QUIRECAL"
constexpr uint32_t kCalibrationVersion = 1;

struct CalibrationHeader {
    uint64_t magic;
    uint32_t version;
    uint32_t layer_count;
    uint64_t size_bytes;  // of all of it
    uint64_t checksum;    // XXH3, 64 bits, with 0 in this place
};
static_assert(sizeof(CalibrationHeader) == 32);

// One a layer, behind the header; behind them f32 [2][kv_heads] of each layer.
struct CalibrationLayer {
    uint32_t kv_heads;
    uint32_t k_head_dim;
    uint32_t v_head_dim;
    uint32_t reserved0;
};
static_assert(sizeof(CalibrationLayer) == 16);

class Calibration {
 public:
    // Checks all that the bytes say. REQUIRES: nothing of them; they outlive this.
    static Status open(const void *bytes, uint64_t size_bytes, Calibration *out);

    uint32_t layer_count() const { return header_.layer_count; }
    uint64_t size_bytes() const { return header_.size_bytes; }
    // REQUIRES: layer < layer_count().
    CalibrationLayer layer(uint32_t layer) const;
    // Copies the layer's [2][kv_heads]; O(layers).
    void read_numbers(uint32_t layer, float *to) const;

    // Those of all layers, one behind another.
    const uint8_t *numbers() const { return bytes_ + numbers_at(); }
    uint64_t number_count() const { return (header_.size_bytes - numbers_at()) / sizeof(float); }

    // Calls visit(layer, record, at), `at` being where the layer's numbers begin.
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

// Element `index` of numbers of any alignment.
inline float number_at(const uint8_t *numbers, uint64_t index) {
    float value = 0;
    std::memcpy(&value, numbers + index * sizeof value, sizeof value);
    return value;
}

// Bytes of the calibration of such a model.
uint64_t calibration_bytes(const Geometry &geometry, const LayerPlace *places);

// Writes calibration_bytes(). numbers: of each layer of the model [2][kv_heads], one behind
// another, finite and not below 0.
void write_calibration(const Geometry &geometry, const LayerPlace *places, const float *numbers,
                       uint64_t size_bytes, uint8_t *out);

// Are they of one shape?
Status check_mergeable(const Calibration &a, const Calibration &b);
// Writes the larger numbers of the two, a.size_bytes(). `out` may be the bytes of one of them.
void merge_calibrations(const Calibration &a, const Calibration &b, uint8_t *out);

}  // namespace quire
