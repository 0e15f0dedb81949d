// SPDX-License-Identifier: Apache-2.0
//
// config: the shape of a seed's cache, and what each kind of group needs to compute a token.
//
// Units: windows, sinks, intervals and spans are tokens.  Threads: none.
#pragma once
#include <cstdint>
#include <vector>

#include "quire/quire.h"
#include "rng.hpp"

namespace hybrid {

// A structure of the ABI with its size set and all else zero.
template <class T>
T made() {
    T value{};
    value.struct_size = sizeof value;
    return value;
}

struct Group {
    uint32_t kind = QUIRE_GROUP_FULL;
    uint32_t window = 0;
    uint32_t sink = 0;
    uint32_t block_tokens = 0;
    uint32_t interval = 0;  // of kept states; 0: a state in every block
    uint32_t drafts = 0;
    uint32_t blocks = 0;
    uint32_t opaque = 0;  // bytes per token; 0: K and V

    bool recurrent() const { return kind == QUIRE_GROUP_RECURRENT; }
    bool windowed() const { return kind == QUIRE_GROUP_WINDOW || kind == QUIRE_GROUP_CHUNKED; }
    bool whole() const { return kind == QUIRE_GROUP_FULL || kind == QUIRE_GROUP_LATENT; }

    // The oldest position, besides sinks, that the token at `position` sees.
    uint32_t first_seen(uint32_t position) const {
        if (kind == QUIRE_GROUP_WINDOW) return position + 1 > window ? position + 1 - window : 0;
        if (kind == QUIRE_GROUP_CHUNKED) return position - position % window;
        return 0;
    }
    bool sees(uint32_t position, uint32_t seen) const {
        return seen >= first_seen(position) || (kind == QUIRE_GROUP_WINDOW && seen < sink);
    }
    // The table's entry of the state after `computed` tokens. REQUIRES: computed > 0.
    uint32_t state_entry(uint32_t computed) const { return (computed - 1) / block_tokens; }
    // The entry that a step of `count` tokens from `first` reads its state from. REQUIRES: first.
    uint32_t entry_read(uint32_t first, uint32_t count) const {
        return state_entry(interval != 0 ? first + count : first);
    }
    // The first entry that such a step writes.
    uint32_t entry_written(uint32_t first, uint32_t count) const {
        return interval != 0 ? state_entry(first + count) : first / block_tokens;
    }
};

// A block of a run of tokens: the group, and which of the group's blocks.
struct PlaceBlock {
    uint32_t group;
    uint32_t place;
};

struct Config {
    std::vector<Group> groups;
    uint32_t block_tokens = 0;
    uint32_t span = 0;  // tokens of a hit's unit: the least common multiple of block sizes
    bool calm = false;  // a roomy cache without failures, so that hits can be predicted
    bool roomy = false;
    bool one_pool = false;
    bool mixed = false;  // groups differ in block_tokens
    bool recurrent = false;
    bool snapshots = false;  // a recurrent group has an interval
    bool windows = false;
    bool all_forget = true;  // no group keeps every token
    bool no_prefix = false;
    bool log = false;
    bool zero_on_free = false;
    uint32_t pool_blocks = 0;
    uint32_t host_blocks = 0;
    uint32_t watermark = 0;
    uint32_t victim = 0;
    uint32_t max_tokens = 0;
    uint32_t max_sequences = 0;
    uint32_t queues = 1;

    uint32_t pool_of(uint32_t group) const { return one_pool ? 0 : group; }
    uint32_t group_count() const { return static_cast<uint32_t>(groups.size()); }
    uint32_t pool_count() const { return one_pool ? 1 : group_count(); }
    uint32_t largest_block() const;
    // How many ids a place of a lease's run has, and which they are (lease.h).
    uint32_t place_blocks() const;
    std::vector<PlaceBlock> blocks_of_place(uint32_t place) const;
    std::vector<PlaceBlock> blocks_of_places(uint32_t places) const;
};

Config draw_config(Rng &rng);

// The descriptor of a cache of that shape; draws what Config does not keep.
// descs: its groups, which must outlive it.
quire_cache_desc describe(const Config &config, uint64_t hash_seed, Rng &rng,
                          std::vector<quire_group_desc> &descs);

}  // namespace hybrid
