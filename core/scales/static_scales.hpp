// SPDX-License-Identifier: Apache-2.0
//
// static_scales: the scales of a cache's TENSOR and HEAD sides, made from a calibration.
//
// They are made for the whole model and divided into shards afterwards, so that every shard and
// every rank has the same scales, which a digest proves.
//
// Why no default: a unit scale would give wrong results without an error. A side without a measured
// magnitude is refused.
//
// Threads: none; constant once created.
#pragma once

#include "core/scales/calibration.hpp"

namespace quire {

class StaticScales {
 public:
    explicit StaticScales(const HostAllocator *host) : numbers_(host) {}

    // Reads the description's calibration. REQUIRES: geometry has its shape.
    Status create(const quire_cache_desc &desc, const Geometry &geometry,
                  const LayerInGroup *places);

    // The scales of a group's layer, [2][kv_heads] as in quire_be_pool; NULL: the group has none.
    const float *of(uint32_t group, uint32_t layer) const {
        return first_[group] == kNowhere
                   ? nullptr
                   : numbers_.data() + first_[group] + uint64_t{layer} * 2 * heads_[group];
    }
    // KV heads of a group, over all shards.
    uint32_t heads(uint32_t group) const { return heads_[group]; }
    // The scales of all groups, one group after another.
    const Array<float> &numbers() const { return numbers_; }

 private:
    static constexpr uint64_t kNowhere = UINT64_MAX;

    Status reserve(const Geometry &geometry);
    Status fill(const Calibration &calibration, float margin, const Geometry &geometry,
                const LayerInGroup *places);

    Array<float> numbers_;
    uint64_t first_[kMaxGroups] = {};
    uint32_t heads_[kMaxGroups] = {};
};

// QUIRE_SCALE_TENSOR or QUIRE_SCALE_HEAD.
inline bool is_static(uint32_t scale_kind) {
    return scale_kind == QUIRE_SCALE_TENSOR || scale_kind == QUIRE_SCALE_HEAD;
}

// The largest code of a type that holds codes, as a number.
float largest_code(uint32_t dtype);

}  // namespace quire
