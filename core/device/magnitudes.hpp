// SPDX-License-Identifier: Apache-2.0
//
// magnitudes: what a cache made with QUIRE_CACHE_CALIBRATE has measured, over all of its shards.
//
// Kernels raise the numbers on the device, so they are whole once every finished step has run.
//
// Ownership: it refers to a cache's geometry, places and shards, and owns nothing.
// Threads: none; Cache holds its lock.
#pragma once

#include "core/device/shards.hpp"

namespace quire {

class Magnitudes {
 public:
    Magnitudes(const HostAllocator *host, const Geometry &geometry, const LayerInGroup *places,
               Shards *shards)
        : host_(host), geometry_(geometry), places_(places), shards_(*shards) {}

    // Writes them as a calibration. Errors  QUIRE_E_ARG: a number is not finite.
    // buffer: [calibration_bytes()].
    Status save(uint8_t *buffer, quire_error *error);
    // Carries them over to each shard of the target that holds their layer and head.
    Status carry_to(Shards *target, quire_error *error);

 private:
    uint64_t number_count() const;
    Status gather(Array<float> *numbers, quire_error *error);
    Status gather_shard(uint32_t shard, Array<float> *numbers, quire_error *error);
    Status check(Array<float> *numbers) const;

    const HostAllocator *host_;
    const Geometry &geometry_;
    const LayerInGroup *places_;
    Shards &shards_;
};

}  // namespace quire
