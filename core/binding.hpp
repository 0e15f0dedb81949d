// SPDX-License-Identifier: Apache-2.0
//
// binding: the memory of a shard on its device: one pool a group with what lies beside it, and the
// host tier's blocks.
//
// Vendor-free: it knows addresses and the backend's table of functions.
//
// Threads: none; Cache holds its lock.
#pragma once

#include "device.hpp"
#include "geometry.hpp"
#include "ledger.hpp"
#include "side_numbers.hpp"
#include "static_scales.hpp"

namespace quire {

// As the backend is told of a group's pool, its address left out.
quire_be_pool describe_pool(const GroupGeometry &group, uint32_t block_tokens);

class Binding {
 public:
    Binding() = default;
    ~Binding();
    Binding(const Binding &) = delete;
    Binding &operator=(const Binding &) = delete;

    // Asks the backend whether it serves every group, and allocates. error: the backend's words.
    // calibrates: the pools have an amax.
    Status create(Device *device, const ShardGeometry &geometry, const StaticScales &scales,
                  bool calibrates, quire_error *error);

    Device *device() const { return device_; }
    // Is any layer of the group here?
    bool holds(uint32_t group) const { return pools_[group].layer_count != 0; }
    const quire_be_pool &pool(uint32_t group) const { return pools_[group]; }
    uint32_t first_layer(uint32_t group) const { return first_layer_[group]; }
    uint32_t first_head(uint32_t group) const { return first_head_[group]; }
    // The place of a group's layer among those that are here.
    bool find_layer(const LayerPlace &place, uint32_t *layer) const {
        *layer = place.layer - first_layer_[place.group];
        return place.layer >= first_layer_[place.group] && *layer < pools_[place.group].layer_count;
    }
    uint64_t pool_bytes() const;
    uint64_t host_bytes() const;

    // The largest magnitudes of a group, read from the device: [layer_count][2][kv_heads] as in its
    // pool. REQUIRES: holds(group), and the pools have an amax.
    Status read_amax(uint32_t group, const float **numbers, quire_error *error);

    // Where a copy of a group that is here reads and writes.
    quire_be_copy describe(const quire_block_copy &copy) const;

 private:
    struct HostMemory {
        uint64_t address;
        uint64_t size_bytes;
    };

    Status create_pool(uint32_t group, const ShardGeometry &geometry, bool calibrates,
                       quire_error *error);
    Status upload_scales(uint32_t group, const ShardGeometry &geometry, const StaticScales &scales,
                         quire_error *error);

    Device *device_ = nullptr;
    uint32_t group_count_ = 0;
    uint32_t first_layer_[kMaxGroups] = {};
    uint32_t first_head_[kMaxGroups] = {};
    quire_be_pool pools_[kMaxGroups] = {};
    HostMemory host_[kMaxGroups] = {};
    SideNumbers scales_[kMaxGroups];
    SideNumbers amax_[kMaxGroups];
};

}  // namespace quire
