// SPDX-License-Identifier: Apache-2.0
//
// cache_parts: all parts of one cache, each built from those before it.
//
// Why a struct beside the façade: checks and dumps read every part, and the façade calls them.
//
// Ownership: owns every part; they refer to each other, so it is neither copied nor moved.
// Threads: none; Cache holds its lock.
#pragma once

#include "core/move/move.hpp"
#include "core/replica/announcer.hpp"
#include "core/replica/follower_cache.hpp"
#include "core/replica/log_writer.hpp"
#include "core/session/handover.hpp"
#include "core/steps/drafts.hpp"
#include "core/steps/lease_runs.hpp"
#include "core/steps/sequences.hpp"
#include "core/steps/steps.hpp"
#include "core/tiers/cache_tier.hpp"
#include "core/tiers/follower_tier.hpp"

namespace quire {

// Random numbers for a cache: the prefix hash's key; its identity as a leader; and where the
// sequence handles of the process begin, if this is the first cache.
struct CacheSeeds {
    uint64_t hash;
    uint64_t identity;
    uint64_t handles;
};

struct CacheParts {
    explicit CacheParts(const HostAllocator &host) : books(host) {}
    CacheParts(const CacheParts &) = delete;
    CacheParts &operator=(const CacheParts &) = delete;

    // shards: [desc.shard_count].
    Status create(const quire_cache_desc &desc, const quire_group_desc *groups,
                  const ShardRange *shards, const CacheSeeds &seeds, quire_error *error);

    CacheBooks books;
    Tenants tenants{&books};
    Prefixes prefixes{&books};
    Withdrawal withdrawal{&books, &prefixes};
    Changes changes{&books, &tenants};
    Retreat retreat{&books, &tenants, &prefixes};
    Sequences sequences{&books, &tenants, &prefixes, &withdrawal, &retreat};
    Drafts drafts{&books, &prefixes, &retreat};
    Leases leases{&books, &tenants, &changes, &sequences};
    LeasePrefixes lease_prefixes{&books, &tenants, &prefixes, &leases};
    LeaseRuns lease_runs{&books, &tenants, &prefixes, &leases, &lease_prefixes};
    Preemption preemption{&books, &tenants};
    Needs needs{&books};
    Taking taking{&books, &tenants, &prefixes};
    Admission admission{&books, &prefixes, &changes, &preemption, &needs, &taking};
    Runs runs{&books};
    Rollback rollback{&books, &prefixes, &withdrawal, &retreat};
    Witness witness{&books};
    Steps steps{&books, &tenants, &prefixes, &changes, &admission, &runs, &rollback, &witness};
    LogWriter log_writer{&books};
    Announcer announcer{&books};
    FollowerTier follower_tier{&books};
    FollowerCache follower{&books, &runs, &follower_tier};
    Move move{&books};
    CacheTier tier{&books};
    KnownFollowers followers;  // of a leader
    uint64_t identity = 0;     // as a leader or follower
    Handovers handovers{&books, &sequences};
    bool migrating = false;
    BrokenInvariant why_stopped{};  // while books.is_stopped

 private:
    Status create_memory(const quire_cache_desc &desc, const ShardRange *shards,
                         quire_error *error);
    Status create_ranks(const quire_cache_desc &desc, const CacheSeeds &seeds,
                        uint32_t max_sequences);
};

}  // namespace quire
