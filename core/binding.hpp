// SPDX-License-Identifier: Apache-2.0
//
// binding: the memory of a shard on its device: one pool a group with what lies beside it, and the
// host tier's blocks.
//
// Vendor-free: it knows addresses and the backend's table of functions.
//
// Threads: none; Cache holds its lock.
#pragma once

#include "block_part.hpp"
#include "device.hpp"
#include "geometry.hpp"
#include "ledger.hpp"
#include "side_numbers.hpp"
#include "static_scales.hpp"

namespace quire {

// As the backend is told of a group's pool, its address left out.
quire_be_pool describe_pool(const GroupGeometry &group, uint32_t block_tokens);

// A group's host tier: memory of kind QUIRE_BE_MEMORY_HOST, and the device whose backend gave it,
// which stays open for as long.
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
    // With what lies beside the pools.
    void add_memory(DeviceMemory *sum) const;
    // What a block of the group holds here. REQUIRES: holds(group).
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
    // Gets another's host tier of a group, which is left without. REQUIRES: it has none.
    void take_host_tier(uint32_t group, Binding *from) {
        std::swap(host_[group], from->host_[group]);
    }

    // The largest magnitudes of a group, read from the device: [layer_count][2][kv_heads] as in its
    // pool. REQUIRES: holds(group), and the pools have an amax.
    Status read_amax(uint32_t group, const float **numbers, quire_error *error);
    // Room for such numbers, and writing them to the device.
    float *amax(uint32_t group) { return amax_[group].host(); }
    Status write_amax(uint32_t group, quire_error *error) { return amax_[group].upload(error); }

    // Where a copy of a group that is here reads and writes.
    quire_be_copy describe(const quire_block_copy &copy) const;

    void note_untracked() { is_untracked_ = true; }

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
    SideNumbers scales_[kMaxGroups];
    SideNumbers amax_[kMaxGroups];
    bool is_untracked_ = false;  // the device may run what no fence tells of
};

}  // namespace quire
