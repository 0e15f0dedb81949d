// SPDX-License-Identifier: Apache-2.0
//
// config: see config.hpp.
#include "config.hpp"

#include <algorithm>
#include <numeric>

namespace hybrid {
namespace {

void draw_kind(Group &group, bool first, bool mixed, Rng &rng) {
    const uint32_t choice = rng.below(10);
    if (first && (mixed || rng.chance(.7))) {
        group.kind = QUIRE_GROUP_FULL;
    } else if (choice < 2) {
        group.kind = QUIRE_GROUP_FULL;
    } else if (choice < 4) {
        group.kind = QUIRE_GROUP_WINDOW;
        group.window = rng.range(1, 14);
        if (rng.chance(.4)) group.sink = rng.range(1, 6);
    } else if (choice < 5) {
        group.kind = QUIRE_GROUP_CHUNKED;
        group.window = rng.range(1, 14);
    } else if (choice < 6 && rng.below(2) == 0) {
        group.kind = QUIRE_GROUP_LATENT;
    } else {
        group.kind = QUIRE_GROUP_RECURRENT;
    }
}

Group draw_group(const Config &config, bool first, Rng &rng) {
    Group group;
    draw_kind(group, first, config.mixed, rng);
    group.block_tokens = config.block_tokens;
    if (config.mixed && rng.chance(.6)) group.block_tokens *= rng.range(1, 3);
    if (group.recurrent() && rng.chance(.5)) {
        group.interval = group.block_tokens * rng.range(1, 3);
        if (rng.chance(.5)) group.drafts = rng.range(1, 3);
    }
    if (group.kind != QUIRE_GROUP_LATENT && rng.chance(.3)) group.opaque = rng.range(1, 999);
    return group;
}

// Sets what follows from the groups.
void derive(Config &config) {
    config.mixed = false;
    config.span = 1;
    for (const Group &group : config.groups) {
        config.mixed |= group.block_tokens != config.block_tokens;
        config.recurrent |= group.recurrent();
        config.snapshots |= group.interval != 0;
        config.windows |= group.windowed();
        config.all_forget &= !group.whole();
        config.span = std::lcm(config.span, group.block_tokens);
    }
}

void draw_pools(Config &config, uint32_t blocks_per_sequence, Rng &rng) {
    const uint32_t per = blocks_per_sequence;
    const uint32_t low = config.roomy ? per * config.max_sequences * 3 : per / 3 + 3;
    const uint32_t high = config.roomy ? per * config.max_sequences * 5 : per * 3;
    uint32_t blocks = rng.range(low, high);
    const uint32_t count = config.group_count();
    if (config.one_pool) blocks = blocks * std::max(1u, count * 2 / 3) + count;
    config.pool_blocks = blocks;
    for (Group &group : config.groups) {
        group.blocks = blocks;
        if (config.one_pool) continue;
        const double share = 0.7 + 0.6 * (rng.below(100) / 100.0);
        group.blocks = std::max(4u, static_cast<uint32_t>(blocks * share));
    }
}

quire_group_desc describe_group(const Group &group, const Config &config, Rng &rng) {
    auto desc = made<quire_group_desc>();
    desc.kind = group.kind;
    desc.window = group.window;
    desc.sink_tokens = group.sink;
    desc.layer_count = 1;
    desc.opaque_bytes = group.opaque;
    if (group.opaque == 0) {
        desc.kv_heads = 1;
        desc.k_head_dim = 8;
        desc.v_head_dim = group.kind == QUIRE_GROUP_LATENT ? 4 : 8;
    }
    desc.block_tokens = group.block_tokens;
    if (group.block_tokens == config.block_tokens && rng.chance(.5)) desc.block_tokens = 0;
    desc.state_interval = group.interval;
    desc.draft_states = group.drafts;
    if (!config.one_pool) desc.blocks = group.blocks;
    return desc;
}

}  // namespace

uint32_t Config::place_blocks() const { return static_cast<uint32_t>(blocks_of_place(0).size()); }

std::vector<PlaceBlock> Config::blocks_of_place(uint32_t place) const {
    std::vector<PlaceBlock> blocks;
    for (uint32_t g = 0; g < group_count(); ++g) {
        const uint32_t count = span / groups[g].block_tokens;
        for (uint32_t k = 0; k < count; ++k) blocks.push_back({g, place * count + k});
    }
    return blocks;
}

std::vector<PlaceBlock> Config::blocks_of_places(uint32_t places) const {
    std::vector<PlaceBlock> blocks;
    for (uint32_t i = 0; i < places; ++i) {
        const auto more = blocks_of_place(i);
        blocks.insert(blocks.end(), more.begin(), more.end());
    }
    return blocks;
}

uint32_t Config::largest_block() const {
    uint32_t largest = 0;
    for (const Group &group : groups) largest = std::max(largest, group.block_tokens);
    return largest;
}

Config draw_config(Rng &rng) {
    static constexpr uint32_t kBlockTokens[] = {1, 2, 3, 4, 4, 4, 5, 8};
    Config config;
    config.block_tokens = kBlockTokens[rng.below(8)];
    config.one_pool = rng.chance(.35);
    const uint32_t group_count = rng.range(1, 4);
    config.mixed = rng.chance(.35);
    config.roomy = rng.chance(.25);
    config.calm = rng.chance(.2);
    if (config.calm) {
        config.roomy = true;
        config.mixed = false;
    }
    for (uint32_t i = 0; i < group_count; ++i)
        config.groups.push_back(draw_group(config, i == 0, rng));
    derive(config);
    config.max_tokens = rng.range(20, 90);
    config.max_sequences = rng.range(4, 12);
    const uint32_t per_sequence = config.max_tokens / config.block_tokens + 2;
    draw_pools(config, per_sequence, rng);
    config.no_prefix = rng.chance(.08);
    config.log = rng.chance(.4);
    config.zero_on_free = rng.chance(.15);
    config.host_blocks = rng.chance(.6) ? rng.range(1, per_sequence * 2) : 0;
    config.watermark = rng.chance(.15) ? rng.range(1, 3) : 0;
    config.victim = rng.below(2);
    config.queues = config.calm || rng.chance(.5) ? 1 : rng.range(2, 3);
    return config;
}

quire_cache_desc describe(const Config &config, uint64_t hash_seed, Rng &rng,
                          std::vector<quire_group_desc> &descs) {
    for (const Group &group : config.groups) descs.push_back(describe_group(group, config, rng));
    auto desc = made<quire_cache_desc>();
    desc.groups = descs.data();
    desc.group_count = config.group_count();
    desc.group_stride = sizeof(quire_group_desc);
    desc.block_tokens = config.block_tokens;
    desc.max_sequences = 64;
    desc.max_sequence_tokens = config.max_tokens;
    desc.blocks = config.one_pool ? config.pool_blocks : 0;
    desc.host_blocks = config.host_blocks;
    desc.watermark_blocks = config.watermark;
    desc.victim = config.victim;
    desc.flags = QUIRE_CACHE_FIXED_HASH;
    if (config.one_pool) desc.flags |= QUIRE_CACHE_ONE_POOL;
    if (config.no_prefix) desc.flags |= QUIRE_CACHE_NO_PREFIX;
    if (config.log) desc.flags |= QUIRE_CACHE_LOG;
    if (config.zero_on_free) desc.flags |= QUIRE_CACHE_ZERO_ON_FREE;
    if (rng.chance(.3)) desc.flags |= QUIRE_CACHE_AUDIT;
    desc.hash_seed = hash_seed;
    if (rng.chance(.3)) {
        desc.swap_bytes_per_second = 1000;
        desc.prefill_tokens_per_second = rng.range(1, 1000);
    }
    return desc;
}

}  // namespace hybrid
