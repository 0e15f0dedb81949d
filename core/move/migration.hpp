// SPDX-License-Identifier: Apache-2.0
//
// migration: a cache's memory on other devices, while it is being filled: the target's geometry and
// bindings, which block goes where, and which shard supplies what to which.
//
// Each shard of the target takes each layer and head from one shard of the source, however the two
// are divided. Where both have the same layout, whole blocks are copied.
//
// Filled by Move::begin() and used up by Move::end(). Everything in between
// reads only what does not change meanwhile, so it does not need the cache's lock.
//
// Threads: one at a time.
#pragma once

#include "core/device/shards.hpp"
#include "core/move/relocation.hpp"
#include "quire/migrate.h"

namespace quire {

// Layers and heads of a group that a shard of the target takes from one of the source.
struct Share {
    uint32_t group;
    uint32_t source;
    uint32_t target;
    uint32_t first_layer;  // of the group's
    uint32_t layer_count;
    uint32_t first_head;
    uint32_t head_count;
};

class BlockMover;

class Migration {
 public:
    explicit Migration(const HostAllocator *host)
        : shards(host), relocation(host), host_(host), shares_(host), pieces_(host) {}

    Geometry geometry;
    Shards shards;
    Relocation relocation;
    quire_migrate_info info{};

    // Finds the shares. REQUIRES: `shards` is planned.
    // Errors  QUIRE_E_ARG  the target holds what no shard of the source has, or leaves out what
    //                      one has.
    Status plan_shares(const Shards &source);
    // Marks the host tiers whose memory is handed over at the switch instead of being copied.
    void keep_host_tiers(Shards *source);
    // Counts what will be moved, into `info`. refs: as in RankRules. REQUIRES: plan_shares(),
    // keep_host_tiers(), and the journal's plan.
    void count(const Journal &journal, const Shards &source, const Array<uint32_t> *refs);
    // Copies everything. REQUIRES: `shards` is created. error: filled by the backend.
    Status copy(const Shards &source, quire_error *error);

 private:
    Status check_taken(const BlockPart &part, uint32_t group) const;
    Status plan_shares_of(const Shards &source, uint32_t target, uint32_t group);
    Status find_pieces(const Shards &source, const Share &share);
    uint64_t block_bytes(const Shards &source, const Share &share) const;
    bool may_keep(const Shards &source, uint32_t from, uint32_t to, uint32_t group) const;
    Status copy_between(const Shards &source, uint32_t from, uint32_t to, quire_error *error);
    Status move_between(const Shards &source, uint32_t from, uint32_t to, BlockMover *mover,
                        quire_error *error);
    Status copy_host_tier(const Shards &source, const Share &share);

    const HostAllocator *host_;
    Array<Share> shares_;
    Array<PartPiece> pieces_;     // of one share
    BlockMover *kept_ = nullptr;  // movers on abandoned devices: never destroyed
};

}  // namespace quire
