// SPDX-License-Identifier: Apache-2.0
//
// binding: a shard's memory on its device: one pool per group with the numbers beside it, and the
// host tier's blocks.
//
// Vendor-free: it knows addresses and the backend's table of functions.
//
// Threads: none; Cache holds its lock.
#pragma once

#include "core/base/geometry.hpp"
#include "core/device/block_part.hpp"
#include "core/device/device.hpp"
#include "core/device/device_floats.hpp"
#include "core/scales/static_scales.hpp"
#include "quire/step.h"

namespace quire {

// Describes a group's pool to the backend, without its address.
quire_be_pool describe_pool(const GroupGeometry &group, uint32_t block_tokens);

// A group's host tier: memory of kind QUIRE_BE_MEMORY_HOST, and the device whose backend allocated
// it, which stays open as long as the tier exists.
struct HostTier {
    Device *device = nullptr;
    uint64_t address = 0;
    uint8_t *bytes = nullptr;
    uint64_t size_bytes = 0;
};

class Binding {
 public:
    Binding() = default;
    ~Binding();
    Binding(const Binding &) = delete;
    Binding &operator=(const Binding &) = delete;

    // Asks the backend whether it serves every group, and allocates. error: the backend's words.
    // calibrates: the pools get an amax.
    Status create(Device *device, const ShardGeometry &geometry, const StaticScales &scales,
                  bool calibrates, quire_error *error);

    Device *device() const { return device_; }
    // True if any layer of the group is here.
    bool holds(uint32_t group) const { return pools_[group].layer_count != 0; }
    const quire_be_pool &pool(uint32_t group) const { return pools_[group]; }
    uint32_t first_layer(uint32_t group) const { return first_layer_[group]; }
    uint32_t first_head(uint32_t group) const { return first_head_[group]; }
    // Finds the index of a group's layer among the layers that are here; false if it is not here.
    bool find_layer(const LayerInGroup &place, uint32_t *layer) const {
        *layer = place.layer - first_layer_[place.group];
        return place.layer >= first_layer_[place.group] && *layer < pools_[place.group].layer_count;
    }
    uint64_t pool_bytes() const;
    uint64_t host_bytes() const;
    // Includes the numbers beside the pools.
    void add_memory(DeviceMemory *sum) const;
    // The part of a block of the group that is here. REQUIRES: holds(group).
    BlockPart part(uint32_t group) const {
        return part_of(pools_[group], first_layer_[group], first_head_[group]);
    }
    uint64_t block_address(uint32_t group, uint32_t block) const {
        return pools_[group].address +
               uint64_t{block} * static_cast<uint64_t>(pools_[group].block_stride);
    }
    uint8_t *host_block(uint32_t group, uint32_t block) const {
        return host_[group].bytes +
               uint64_t{block} * static_cast<uint64_t>(pools_[group].block_stride);
    }
    const HostTier &host_tier(uint32_t group) const { return host_[group]; }
    // Takes over a group's host tier from another binding, which is left without one. REQUIRES:
    // this binding has none.
    void take_host_tier(uint32_t group, Binding *from) {
        std::swap(host_[group], from->host_[group]);
    }

    // Reads the largest magnitudes of a group from the device: [layer_count][2][kv_heads], as in
    // its pool. REQUIRES: holds(group), and the pools have an amax.
    Status read_amax(uint32_t group, const float **numbers, quire_error *error);
    // Host memory for such numbers, and the call that writes them to the device.
    float *amax(uint32_t group) { return amax_[group].host(); }
    Status write_amax(uint32_t group, quire_error *error) { return amax_[group].upload(error); }

    // Where a copy in a group that is here reads and writes.
    quire_be_copy describe(const quire_block_copy &copy) const;

 private:
    Status create_host_tier(uint32_t group, uint64_t size_bytes, quire_error *error);
    Status create_pool(uint32_t group, const ShardGeometry &geometry, bool calibrates,
                       quire_error *error);
    Status upload_scales(uint32_t group, const ShardGeometry &geometry, const StaticScales &scales,
                         quire_error *error);

    Device *device_ = nullptr;
    uint32_t group_count_ = 0;
    uint32_t first_layer_[kMaxGroups] = {};
    uint32_t first_head_[kMaxGroups] = {};
    quire_be_pool pools_[kMaxGroups] = {};
    HostTier host_[kMaxGroups] = {};
    DeviceFloats scales_[kMaxGroups];
    DeviceFloats amax_[kMaxGroups];
};

}  // namespace quire
