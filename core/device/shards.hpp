// SPDX-License-Identifier: Apache-2.0
//
// shards: the devices that a cache is bound to, what each holds of it, and a step's work on all of
// them.
//
// A shard is a range of the model's layers and a range of KV heads on one device. Block ids are the
// same on all, so that tables, tree and decisions know nothing of shards: only memory, copies,
// uploads, launches and fences do. A bookkeeping-only cache has no shards.
//
// Head ranges count the heads of the group that has most. In a group with fewer a shard holds the
// same fraction of the heads, rounded outwards: a single head (latent groups) is held by every
// shard.
//
// Invariants: (1) every layer and head of every group is held by some shard of this cache or, with
// a leader and followers, of any of those; (2) no two shards have the same device object, because
// the device of a launch's queue says which shard the launch is for.
//
// Threads: none; Cache holds its lock. Everything that launches read is constant once created.
#pragma once

#include "core/blocks/journal.hpp"
#include "core/device/binding.hpp"

namespace quire {

// A shard as the caller describes it.
struct ShardRange {
    Device *device;
    uint32_t layer_begin;
    uint32_t layer_count;  // 0: all
    uint32_t head_begin;
    uint32_t head_count;  // 0: all
};

class Shards {
 public:
    explicit Shards(const HostAllocator *host)
        : host_(host), parts_(host), kept_(host), descriptors_(host), moves_(host), ranges_(host) {}
    ~Shards();
    Shards(const Shards &) = delete;
    Shards &operator=(const Shards &) = delete;

    // Validates the ranges and sizes every group's pool; nothing is allocated on a device.
    // `geometry` has its shape and receives its sizes. Without ranges only its sizes are computed.
    Status divide(const quire_cache_desc &desc, const ShardRange *ranges, uint32_t count,
                  const LayerInGroup *places, Geometry *geometry);
    // Allocates what was planned. error: filled by the backend.
    Status create(const StaticScales &scales, bool calibrates, quire_error *error);

    uint32_t planned_count() const { return static_cast<uint32_t>(parts_.size()); }
    // Between divide() and create(): the part of a group that a shard will hold, and where.
    // layer_count 0: nothing.
    BlockPart planned_part(uint32_t shard, uint32_t group) const;
    Device *planned_device(uint32_t shard) const { return devices_[shard]; }
    // Between divide() and create(): a group's host tier will not be allocated, because `from` has
    // it already; see take_host_tiers().
    void keep_host_tier(uint32_t shard, uint32_t group, Binding *from);
    // The binding that the host tier is taken from; nullptr: the tier is allocated.
    const Binding *kept_host_tier(uint32_t shard, uint32_t group) const {
        return kept_[uint64_t{shard} * kMaxGroups + group];
    }
    // Takes the kept host tiers over. REQUIRES: the bindings that had them still exist.
    void take_host_tiers();
    // Swaps devices and memory; the room that reserve() made stays here.
    void swap(Shards &other);

    uint32_t count() const { return count_; }
    DeviceMemory memory() const {
        DeviceMemory sum;
        for (uint32_t i = 0; i < count_; ++i) bindings_[i]->add_memory(&sum);
        return sum;
    }
    Binding &operator[](uint32_t shard) { return *bindings_[shard]; }
    const Binding &operator[](uint32_t shard) const { return *bindings_[shard]; }

    // Makes room for the descriptors of this many copies, so that enqueue() cannot fail for lack of
    // memory.
    bool reserve(uint64_t copies) {
        return count_ == 0 ||
               (descriptors_.reserve(copies) && moves_.reserve(copies) && ranges_.reserve(copies));
    }
    // True if all backends can move tokens within their pools.
    bool can_move() const;
    // Enqueues a step's copies on one shard in their order; independent neighbours are passed in
    // one call. REQUIRES: the queue's mutex is held.
    Status enqueue(uint32_t shard, Queue *queue, const Array<quire_block_copy> &copies,
                   Journal *journal, quire_error *error);

 private:
    Status compute(const ShardRange *ranges, uint32_t count, const LayerInGroup *places,
                   const Geometry &whole, bool partial, ShardGeometry *out) const;
    Status move(const Binding &binding, Queue *queue, const Array<quire_block_copy> &copies,
                uint64_t *i, quire_error *error);
    Status zero(const Binding &binding, Queue *queue, const Array<quire_block_copy> &copies,
                Journal *journal, uint64_t *i, quire_error *error);
    bool joins_run(const quire_block_copy &copy, Journal *journal);
    void begin_run(Journal *journal);

    const HostAllocator *host_;
    Array<ShardGeometry> parts_;  // planned
    Array<Binding *> kept_;       // [shard][kMaxGroups] where the host tier comes from
    Device *devices_[kMaxShards] = {};
    uint32_t count_ = 0;
    Binding *bindings_[kMaxShards] = {};
    Array<quire_be_copy> descriptors_;
    Array<quire_be_move> moves_;
    Array<quire_be_range> ranges_;
    uint32_t run_ = 0;  // number of the current run of independent copies; blocks have 0 at first
};

}  // namespace quire
