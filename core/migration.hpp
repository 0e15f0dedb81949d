// SPDX-License-Identifier: Apache-2.0
//
// migration: a cache's memory on other devices, while it is being filled: the target's geometry and
// bindings, which block goes where, and who gives what to whom.
//
// Shards of the target take each layer and head from one shard of the source, whatever the two cuts
// are; what lies in equal places goes as whole blocks.
//
// Made by Cache::begin_migration() and used up by Cache::end_migration(). What is in between reads
// only what does not change meanwhile, so it needs no lock of the cache.
//
// Threads: one at a time.
#pragma once

#include "quire/migrate.h"
#include "relocation.hpp"
#include "shards.hpp"

namespace quire {

// Layers and heads of a group that a target's shard takes from a source's.
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
    // Host tiers whose memory may change hands instead of being copied do so at the switch.
    void keep_host_tiers(Shards *source);
    // What will be moved, as numbers. REQUIRES: plan_shares(), keep_host_tiers(), and the ledger's
    // plan.
    void count(const Ledger &ledger, const Shards &source);
    // Copies everything. REQUIRES: `shards` is created. error: the backend's words.
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
    BlockMover *kept_ = nullptr;  // on devices that were abandoned: they are never destroyed
};

}  // namespace quire
