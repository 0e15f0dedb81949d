// SPDX-License-Identifier: Apache-2.0

#include "core/scales/static_scales.hpp"

#include <algorithm>
#include <cmath>

namespace quire {

namespace {

// One side of a layer: its kind of scale and its type, and the texts of its errors.
struct Side {
    uint32_t kind;
    uint32_t dtype;
    const char *unwritten;  // the error for a magnitude of 0
    const char *out_of_range;
};

Side k_side(const GroupGeometry &g) {
    return {
        g.k_scale, g.k_dtype,
        "the calibration has no magnitude for K of layer {}, KV head {}: its run wrote only zeros "
        "there. Calibrate over more text, merge calibrations, or use QUIRE_SCALE_TOKEN_HEAD",
        "K's scale of layer {}, KV head {} is out of f32's range: see calibration_margin"};
}

Side v_side(const GroupGeometry &g) {
    return {
        g.v_scale, g.v_dtype,
        "the calibration has no magnitude for V of layer {}, KV head {}: its run wrote only zeros "
        "there. Calibrate over more text, merge calibrations, or use QUIRE_SCALE_TOKEN_HEAD",
        "V's scale of layer {}, KV head {} is out of f32's range: see calibration_margin"};
}

// Computes the scales of a side's heads. With TENSOR, heads that were never written do not matter
// if one was.
Status scale_side(const Side &side, float margin, uint32_t layer, uint32_t heads,
                  const uint8_t *numbers, float *scales) {
    if (!is_static(side.kind)) return Status{};
    float largest = 0.0f;
    for (uint32_t h = 0; h < heads; ++h) largest = std::max(largest, number_at(numbers, h));
    for (uint32_t h = 0; h < heads; ++h) {
        float amax = side.kind == QUIRE_SCALE_TENSOR ? largest : number_at(numbers, h);
        if (!(amax > 0.0f)) return fail(QUIRE_E_ARG, side.unwritten, layer, h);
        scales[h] = amax * margin / largest_code(side.dtype);
        if (!(scales[h] > 0.0f) || !std::isfinite(scales[h])) {
            return fail(QUIRE_E_ARG, side.out_of_range, layer, h);
        }
    }
    return Status{};
}

// Checks that the calibration's layer has this model's shape.
Status check_shape(const Calibration &calibration, uint32_t layer, const GroupGeometry &g) {
    CalibrationLayer record = calibration.layer(layer);
    if (record.kv_heads != g.kv_heads) {
        return fail(QUIRE_E_ARG,
                    "the calibration is for another model: its layer {} has {} KV heads, unlike "
                    "the cache's group",
                    layer, record.kv_heads);
    }
    if (record.k_head_dim != g.k_head_dim || record.v_head_dim != g.v_head_dim) {
        return fail(QUIRE_E_ARG,
                    "the calibration is for another model: its layer {} has other head dims than "
                    "the cache's group",
                    layer);
    }
    return Status{};
}

}  // namespace

float largest_code(uint32_t dtype) {
    switch (dtype) {
        case QUIRE_DTYPE_I4:
            return 7.0f;
        case QUIRE_DTYPE_I8:
            return 127.0f;
        case QUIRE_DTYPE_F8_E4M3FN:
            return 448.0f;
        default:
            QUIRE_ASSERT(dtype == QUIRE_DTYPE_F8_E5M2);
            return 57344.0f;
    }
}

// Makes zeros for every group that has a static side; a side that is not static keeps them.
Status StaticScales::reserve(const Geometry &geometry) {
    uint64_t count = 0;
    for (uint32_t g = 0; g < geometry.group_count; ++g) {
        const GroupGeometry &group = geometry.groups[g];
        bool has_any = is_static(group.k_scale) || is_static(group.v_scale);
        heads_[g] = group.kv_heads;
        first_[g] = has_any ? count : kNowhere;
        if (has_any) count += uint64_t{group.layer_count} * 2 * group.kv_heads;  // < 2^12+1+32
    }
    return numbers_.create(count) ? Status{} : no_host_memory();
}

Status StaticScales::fill(const Calibration &calibration, float margin, const Geometry &geometry,
                          const LayerInGroup *places) {
    Status first_fault{};
    calibration.each_layer([&](uint32_t layer, const CalibrationLayer &, const uint8_t *numbers) {
        const LayerInGroup &place = places[layer];
        const GroupGeometry &g = geometry.groups[place.group];
        if (!first_fault.ok() || first_[place.group] == kNowhere) return;
        auto fill_layer = [&]() -> Status {
            QUIRE_TRY(check_shape(calibration, layer, g));
            float *scales =
                numbers_.data() + first_[place.group] + uint64_t{place.layer} * 2 * g.kv_heads;
            QUIRE_TRY(scale_side(k_side(g), margin, layer, g.kv_heads, numbers, scales));
            return scale_side(v_side(g), margin, layer, g.kv_heads,
                              numbers + uint64_t{g.kv_heads} * sizeof(float), scales + g.kv_heads);
        };
        first_fault = fill_layer();
    });
    return first_fault;
}

Status StaticScales::create(const quire_cache_desc &desc, const Geometry &geometry,
                            const LayerInGroup *places) {
    float margin = desc.calibration_margin;
    if (margin == 0.0f) margin = 1.0f;
    if (!(margin > 0.0f) || !std::isfinite(margin)) {
        return fail(QUIRE_E_ARG, "calibration_margin must be finite and above 0; 0 means 1");
    }
    QUIRE_TRY(reserve(geometry));
    if (desc.calibration == nullptr && desc.calibration_bytes == 0) {
        for (uint32_t g = 0; g < geometry.group_count; ++g) {
            if (first_[g] == kNowhere) continue;
            return fail(
                QUIRE_E_ARG,
                "groups[{}]: scales per tensor and per head come from a calibration, but none is "
                "given. Make one: serve typical text from an f16 cache created with "
                "QUIRE_CACHE_CALIBRATE, save it with quire_cache_save_calibration_wait, and pass "
                "its bytes as `calibration`; or use QUIRE_SCALE_TOKEN_HEAD, which needs none",
                g);
        }
        return Status{};
    }
    Calibration calibration;
    QUIRE_TRY(Calibration::open(desc.calibration, desc.calibration_bytes, &calibration));
    if (calibration.layer_count() != geometry.layer_count) {
        return fail(QUIRE_E_ARG,
                    "the calibration is for another model: it has {} layers, the cache {}",
                    calibration.layer_count(), geometry.layer_count);
    }
    return fill(calibration, margin, geometry, places);
}

}  // namespace quire
