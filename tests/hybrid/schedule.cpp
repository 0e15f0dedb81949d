// SPDX-License-Identifier: Apache-2.0
//
// schedule: which operation comes next, and the end of a seed.
#include "world.hpp"

namespace hybrid {
namespace {

// Where the share of each operation ends, of a hundred; the rest are checks of contents.
constexpr uint32_t kSteps = 52;
constexpr uint32_t kCreations = 62;
constexpr uint32_t kEnds = 67;
constexpr uint32_t kForks = 72;
constexpr uint32_t kTruncations = 76;
constexpr uint32_t kNamings = 79;
constexpr uint32_t kLeases = 86;
constexpr uint32_t kEvictions = 88;
constexpr uint32_t kNamespaces = 90;
constexpr uint32_t kMigrations = 92;
constexpr uint32_t kResets = 93;
constexpr uint32_t kFinishes = 97;

void play_op(World &world, uint32_t choice) {
    Rng &rng = world.rng;
    if (choice < kSteps) return world.play_step();
    if (choice < kCreations) return world.create_sequence();
    if (choice < kEnds) return world.end_sequence();
    if (choice < kForks) return world.fork_sequence();
    if (choice < kTruncations) return world.truncate_sequence();
    if (choice < kNamings) return world.name_tokens();
    if (choice < kLeases) return world.use_lease_outside();
    if (choice < kEvictions) return world.evict();
    if (choice < kNamespaces) {
        if (rng.chance(.4)) world.use_namespaces();
    } else if (choice < kMigrations) {
        if (rng.chance(.5)) world.migrate();
    } else if (choice < kResets) {
        if (rng.chance(.3)) world.reset();
    } else if (choice < kFinishes) {
        world.finish_some(rng.chance(.4));
    } else {
        world.check_contents("between operations");
    }
}

void end_all(World &world) {
    for (Sequence &sequence : world.sequences) {
        if (!sequence.alive) continue;
        world.require_ok("seq_end2",
                         world.api->seq_end(world.cache, sequence.handle, 0, world.message()));
        sequence.alive = false;
    }
    for (Lease &lease : world.leases) {
        if (!lease.alive) continue;
        world.api->lease_end(world.cache, lease.handle, nullptr);
        lease.alive = false;
        lease.blocks.clear();
    }
    world.check_books("after all ended");
    const auto stats = world.stats();
    if (stats.blocks_held != 0 || stats.host_blocks_used != 0 || stats.blocks_leased != 0)
        fail("leak", "held ", stats.blocks_held, " host ", stats.host_blocks_used, " leased ",
             stats.blocks_leased, " after all ended");
}

}  // namespace

void World::run() {
    create();
    if (cache == nullptr) return;
    for (uint32_t i = 0; i < play.ops; ++i) {
        uint32_t choice = rng.below(100);
        // A calm cache has few forks, and nothing after which hits cannot be predicted.
        if (config.calm && ((choice >= kForks && choice < kResets) ||
                            (choice >= kEnds && choice < kForks && rng.chance(.7))))
            choice = kSteps + rng.below(15);
        play_op(*this, choice);
        if (rng.chance(.5)) check_books("between operations");
    }
    finish_some(true);
    execute_all();
    forget_ended();
    check_contents("at the end");
    check_books("at the end");
    end_all(*this);
}

}  // namespace hybrid
