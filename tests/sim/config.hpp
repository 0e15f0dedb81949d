// SPDX-License-Identifier: Apache-2.0
//
// config: the cache that a run is about, drawn from its seed or read from a script.
//
// Pools are small on purpose: pressure, eviction and reuse should happen all the time.
//
// Threads: none; values.  Units: counts are blocks unless a name says tokens.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "features.hpp"
#include "quire/cache.h"

namespace sim {

struct GroupConfig {
    uint32_t kind = 0;  // QUIRE_GROUP_*
    uint32_t window = 0;
    uint32_t sink = 0;
    uint32_t blocks = 0;        // the null block included
    uint32_t block_tokens = 0;  // 0: the cache's
    uint32_t interval = 0;      // state_interval, in blocks of the group
    uint32_t drafts = 0;        // draft_states
};

struct Config {
    FeatureSet features;
    uint64_t seed = 0;
    uint32_t block_tokens = 4;
    uint32_t queues = 1;
    uint32_t max_sequences = 8;
    uint32_t max_tokens = 64;  // of a sequence
    uint32_t watermark = 0;
    uint32_t host_blocks = 0;
    uint32_t victim = 0;
    uint32_t flags = 0;  // QUIRE_CACHE_*
    uint32_t follower = 0;
    uint32_t lag = 0;  // logs that the follower may be late by
    uint32_t vocabulary = 3;
    uint32_t documents = 4;
    uint32_t device = 0;     // 1: simulated devices, else bookkeeping only
    uint32_t shards = 1;     // devices
    uint32_t cut = 0;        // 0: each shard holds one KV head; 1: each holds some of the layers
    uint32_t swap_rate = 0;  // bytes per second; 0: swap whenever there is room
    std::vector<GroupConfig> groups;

    // The shards' ranges; not their devices.
    std::vector<quire_shard_desc> shard_descs() const;
    // Those of another number of shards, which divide the layers or the KV heads. Empty: it cannot.
    std::vector<quire_shard_desc> other_descs(uint32_t count, bool by_layers) const;
    uint32_t kv_heads(const GroupConfig &group) const;
    // Tokens of a block that a hit must have to end within it.
    uint32_t least_part() const { return block_tokens < 8 ? 1 : 4; }
    bool has(Feature feature) const { return features.has(feature); }
    bool cross() const;
    // All groups take their blocks from one pool.
    bool one_pool() const { return (flags & QUIRE_CACHE_ONE_POOL) != 0; }
    // Pools that hold different blocks, and the group's.
    uint32_t pool_count() const { return one_pool() ? 1 : static_cast<uint32_t>(groups.size()); }
    uint32_t pool_of(uint32_t group) const { return one_pool() ? 0 : group; }
    // Tokens of a block of the group.
    uint32_t block_size(uint32_t group) const {
        const uint32_t own = groups[group].block_tokens;
        return own != 0 ? own : block_tokens;
    }
    std::vector<uint32_t> block_sizes() const;
    // Fills in the tokens and the states of the group's blocks.
    void size_group(uint32_t group, quire_group_desc *desc) const;
    bool recurrent(uint32_t group) const { return groups[group].kind == QUIRE_GROUP_RECURRENT; }
    // Its items leave one state, at their ends.
    bool one_state(uint32_t group) const { return groups[group].interval != 0; }
    bool any_states() const;  // a recurrent group
    // Blocks that an item may need beside those of its tokens: for drafts, some of which may have
    // moved, and the state that it goes on from.
    uint32_t beside_states() const;
    // A recurrent group whose items leave a state in each block.
    bool dense_states() const;
    // Places of a block's memory that the model has: one for each token, or for the one state.
    uint32_t places(uint32_t group) const { return recurrent(group) ? 1 : block_size(group); }
    std::vector<uint32_t> all_places() const;
    // Where in its block the token's content is.
    uint32_t place_of(uint32_t group, uint32_t p) const { return p % places(group); }
    // All groups have the cache's block_tokens.
    bool uniform() const;
    // The least tokens that are whole blocks of all groups but those of cross attention: there a
    // prefix ends.
    uint32_t span() const;
    // The blocks of a place of span() tokens, in the order in which leases name them: their groups,
    // and where in the place they begin.
    std::vector<std::pair<uint32_t, uint32_t>> place_blocks() const;
    // All groups are full or latent, so lengths are exact: nothing falls out of a window.
    bool exact() const;
    // No group drops tokens: what is found has all that is before it.
    bool windowless() const;
    // A group sees all tokens before: there a prefix is found only if all of it is published.
    bool sees_all() const;
    uint32_t pool_blocks() const;  // the smallest pool, without its null block
};

Config draw_config(uint64_t seed, FeatureSet allowed);
std::string to_text(const Config &config);
// Takes a `config` or `group` line; false if it is neither. Throws std::string.
bool parse_config_line(const std::string &line, Config &config);

}  // namespace sim
