// SPDX-License-Identifier: Apache-2.0
//
// migrations: moves the cache to other devices during a run, and records what each move took.
//
// If the live blocks do not fit the target, the move waits for a later step.
//
// Threads: one.

#pragma once

#include "cache.hpp"
#include "options.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace engine {

struct MigrationRecord {
    std::string to;
    size_t step = 0;     // steps run before the move
    size_t refused = 0;  // steps before which there was no room
    Moved moved;
};

class Migrations {
 public:
    // targets: moved to in order, each `every` steps after the one before. Errors   throws Failure
    // if there is no such device or the heads cannot be divided that way. This is checked before
    // the first step, not when the move is due.
    Migrations(std::span<const MigrateTo> targets, size_t every, Cache &cache, uint32_t q_heads,
               uint32_t kv_heads);

    // Call between two steps: moves when due. Errors   throws Failure with Quire's own message.
    void between_steps(size_t steps_done);

    std::span<const MigrationRecord> records() const { return records_; }
    // The run is over. Errors   throws Failure if a move has not happened yet.
    void finish() const;

 private:
    CacheTarget target_of(const MigrateTo &to) const;

    std::span<const MigrateTo> targets_;
    size_t every_;
    Cache &cache_;
    uint32_t q_heads_;
    uint32_t kv_heads_;
    size_t refused_ = 0;
    std::vector<MigrationRecord> records_;
};

}  // namespace engine
