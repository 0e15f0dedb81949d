// SPDX-License-Identifier: Apache-2.0
//
// move: moves a live cache to other memory.
//
// Everything that can fail comes first: the target's pools, their books, the copies. Then comes the
// switch, which cannot fail. In between the cache answers only calls that read, so what is copied
// and what was planned stay true without its lock.
//
// Ownership: refers to the books; a Migration, which the caller owns, holds the target.
// Threads: none; Cache holds its lock.
#pragma once

#include "core/move/migration.hpp"
#include "core/steps/cache_books.hpp"

namespace quire {

// The target of a migration, as the caller described it.
struct MigrateTarget {
    const quire_migrate_desc &desc;
    const ShardRange *shards;  // [desc.shard_count]
};

// What other ranks ask of a move.
struct RankRules {
    uint32_t cache_flags = 0;  // QUIRE_CACHE_LOG or QUIRE_CACHE_FOLLOWER, if the cache is either
    // [group][block] how many table entries name a block, in a cache whose pools hold nothing;
    // nullptr: the pools know.
    const Array<uint32_t> *refs = nullptr;
    Status stopped{};  // why the cache may not move, if it may not
};

class Move {
 public:
    explicit Move(CacheBooks *books) : books_(*books) {}

    // Plans a move and allocates what it needs; m->info holds the resulting counts. *begun: false
    // if blocks or room for moves are short. REQUIRES: a Migration that was just made; no step is
    // open.
    Status begin(const MigrateTarget &target, const RankRules &rules, Migration *m, bool *begun,
                 quire_error *error);
    // Puts the cache on the target. Nothing here can fail. The memory that it left goes with *m.
    void end(const MigrateTarget &target, Migration *m);

 private:
    Status plan_target(const MigrateTarget &target, const RankRules &rules, Migration *m) const;
    Status check_movable(const quire_migrate_desc &desc) const;
    Status check_counts(const Geometry &target) const;
    Status check_moves(const Migration &m) const;
    Status plan_blocks(const RankRules &rules, Migration *m);
    Status make_books(const RankRules &rules, Migration *m);
    void write_moves(const quire_migrate_desc &desc, const Migration &m) const;
    void switch_memory(Migration *m);

    CacheBooks &books_;
};

}  // namespace quire
