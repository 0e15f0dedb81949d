// SPDX-License-Identifier: Apache-2.0
//
// ranks: a leader and its followers (log.h), each with a store below its cache (cache_tier.h), as
// one game: what a seed draws is played on all of them.
//
// The engine computes only what the leader's steps say, each rank its layers and heads. The game
// decides when a log or a report arrives, when a device or a store works, and which store loses,
// damages or refuses what. What must hold: every slot that a row sees on every rank (rank.hpp),
// every value that a rank puts, a follower's tables after each log, the deadline of a load, and, at
// the end, that a load brings what every rank's store has.
//
// Threads: none.
#pragma once
#include <cstdint>

#include "quire/quire.h"

namespace sim {

struct RanksTally {
    uint64_t steps = 0, rows = 0, logs = 0, reports = 0, reports_lost = 0, refused = 0;
    uint64_t loading = 0, loads_begun = 0, loads_used = 0, loads_missed = 0, loads_late = 0;
    uint64_t loads_cancelled = 0, tokens_loaded = 0, hits = 0, follower_moves = 0, leader_moves = 0;
    uint64_t swaps = 0, failed_steps = 0, values = 0, slots = 0, store_faults = 0, detaches = 0;
    uint64_t partial_games = 0, partial_hits = 0, partial_followed = 0, partial_tokens = 0;
    uint64_t cached = 0;   // tokens that the caches had at the end
    uint64_t brought = 0;  // loads at the end that had to bring what all stores have
};

// Plays one seed. Throws Finding.
void play_ranks(const quire_api *api, quire_instance *instance, uint64_t seed, uint32_t ops,
                RanksTally *tally);

}  // namespace sim
