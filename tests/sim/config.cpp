// SPDX-License-Identifier: Apache-2.0
//
// config: see config.hpp.
#include "config.hpp"

#include <algorithm>
#include <numeric>

#include "op.hpp"
#include "quire/quire.h"
#include "rng.hpp"

namespace sim {
namespace {

constexpr const char *kConfigFields =
    "features seed block_tokens queues max_sequences max_tokens watermark host_blocks victim flags "
    "follower lag vocabulary documents swap_rate device shards cut";
constexpr uint32_t kAbandonPercent = 2;  // of the seeds
constexpr uint32_t kLeasesOnlyPercent = 12;
constexpr const char *kGroupFields = "kind window sink blocks block_tokens interval drafts";

// Leaves some of what is allowed out, each with a chance of its own. Those from `limits` on came
// later and are drawn apart, so that without them a seed is the run that it was.
FeatureSet draw_features(Rng &rng, FeatureSet allowed, uint64_t seed) {
    FeatureSet set = allowed;
    const uint32_t out = rng.below(4) == 0 ? 0 : rng.range(5, 60);  // percent
    for (uint32_t i = 0; i < static_cast<uint32_t>(Feature::limits); ++i)
        if (rng.percent(out)) set.set(static_cast<Feature>(i), false);
    if (Rng(mix(seed, 0x11317)).percent(30)) set.set(Feature::limits, false);
    if (Rng(mix(seed, 0xFA017)).percent(40)) set.set(Feature::faults, false);
    if (Rng(mix(seed, 0x11FE0)).percent(30)) set.set(Feature::live, false);
    if (Rng(mix(seed, 0x1057)).percent(50)) set.set(Feature::lost, false);
    if (Rng(mix(seed, 0xF100D)).percent(75)) set.set(Feature::flood, false);
    if (Rng(mix(seed, 0x305E)).percent(50)) set.set(Feature::move, false);
    if (!Rng(mix(seed, 0xC10C5)).percent(25)) set.set(Feature::clocks, false);
    if (Rng(mix(seed, 0x405F1)).percent(50)) set.set(Feature::host_prefixes, false);
    if (Rng(mix(seed, 0x71E2)).percent(50)) set.set(Feature::cache_tier, false);
    if (Rng(mix(seed, 0x1EA5E)).percent(60)) set.set(Feature::leases, false);
    if (Rng(mix(seed, 0xA2152E)).percent(60)) set.set(Feature::any_size, false);
    if (Rng(mix(seed, 0x1900)).percent(60)) set.set(Feature::one_pool, false);
    if (Rng(mix(seed, 0x517E)).percent(60)) set.set(Feature::sizes, false);
    if (Rng(mix(seed, 0x57A7E)).percent(70)) set.set(Feature::states, false);
    if (Rng(mix(seed, 0x9A271A1)).percent(50)) set.set(Feature::partial, false);
    if (Rng(mix(seed, 0xA70CE)).percent(30)) set.set(Feature::at_once, false);
    if (!Rng(mix(seed, 0x10E5)).percent(kLeasesOnlyPercent)) set.set(Feature::leases_only, false);
    // What is abandoned stays in memory until the process ends, 8 MB for each cache.
    if (!Rng(mix(seed, 0xABA0)).percent(kAbandonPercent)) set.set(Feature::abandon, false);
    return set;
}

GroupConfig draw_group(Rng &rng, const FeatureSet &features, uint32_t block_tokens, bool first) {
    GroupConfig group;
    const uint32_t pick = rng.below(10);
    if (pick < 4 && features.has(Feature::window)) {
        group.kind = QUIRE_GROUP_WINDOW;
        group.window = rng.range(1, 3 * block_tokens + 2);
        group.sink = rng.percent(50) ? rng.range(1, 2 * block_tokens) : 0;
    } else if (pick < 6 && features.has(Feature::chunked)) {
        group.kind = QUIRE_GROUP_CHUNKED;
        group.window = rng.range(1, 4 * block_tokens);
    } else if (pick < 7 && features.has(Feature::latent)) {
        group.kind = QUIRE_GROUP_LATENT;
    } else if (pick < 8 && !first && features.has(Feature::cross)) {
        group.kind = QUIRE_GROUP_CROSS;
    }
    group.blocks = rng.percent(70) ? rng.range(6, 24) : rng.range(6, 60);
    return group;
}

// Makes it a cache whose evicted blocks live on in the host tier: one with such a tier and a group
// that sees all tokens, which neither leads nor follows. Drawn apart.
void share_host(Config &config) {
    Rng rng(mix(config.seed, 0x405F7));
    config.flags &= ~static_cast<uint32_t>(QUIRE_CACHE_LOG | QUIRE_CACHE_NO_PREFIX);
    config.flags |= QUIRE_CACHE_HOST_PREFIXES;
    if (rng.percent(40)) config.flags |= QUIRE_CACHE_EVENTS;
    config.follower = 0;
    if (config.host_blocks == 0 || rng.percent(60)) config.host_blocks = rng.range(2, 30);
    if (!config.sees_all()) {
        config.groups[0].kind = QUIRE_GROUP_FULL;
        config.groups[0].window = config.groups[0].sink = 0;
    }
    // Short of blocks on the device, so that much is evicted and found again.
    if (rng.percent(50))
        for (GroupConfig &group : config.groups) group.blocks = rng.range(5, 14);
}

// Makes it a cache that a store can be put below: with memory and a host tier, and without groups
// of cross attention, which neither leads nor follows. Drawn apart.
void put_store_below(Config &config, FeatureSet allowed) {
    Rng rng(mix(config.seed, 0x71E27));
    config.features.set(Feature::cache_tier, allowed.has(Feature::device));
    if (!config.has(Feature::cache_tier)) return;
    config.features.set(Feature::abandon, false);
    config.device = 1;
    config.flags &= ~static_cast<uint32_t>(QUIRE_CACHE_LOG | QUIRE_CACHE_NO_PREFIX);
    config.follower = 0;
    if (config.host_blocks == 0 || rng.percent(50)) config.host_blocks = rng.range(4, 40);
    for (GroupConfig &group : config.groups)
        if (group.kind == QUIRE_GROUP_CROSS) group.kind = QUIRE_GROUP_FULL;
}

// Makes it a cache that leases are played on: one without memory. No one promises progress or room
// to others while leases hold blocks.
void make_lessor(Config &config) {
    const bool apart = config.device != 0 || config.has(Feature::cache_tier);
    if (apart) return config.features.set(Feature::leases, false);
    config.features.set(Feature::live, false);
    config.features.set(Feature::flood, false);
    config.max_sequences += 3;
}

// Some caches with leases have one group of full attention, where a run can be inserted. Drawn
// apart.
void lend_at_once(Config &config) {
    if (!config.has(Feature::leases)) return config.features.set(Feature::at_once, false);
    if (!Rng(mix(config.seed, 0xA70CE1)).percent(50)) return;
    config.groups.resize(1);
    config.groups[0].kind = QUIRE_GROUP_FULL;
    config.groups[0].window = config.groups[0].sink = 0;
    config.flags &= ~static_cast<uint32_t>(QUIRE_CACHE_HOST_PREFIXES | QUIRE_CACHE_NO_PREFIX);
    config.features.set(Feature::host_prefixes, false);
}

// Makes it a cache that has leases and no sequences, and all that goes with sequences left out.
// Drawn apart.
void leave_sequences_out(Config &config, FeatureSet allowed) {
    const bool can = allowed.has(Feature::leases) && allowed.has(Feature::at_once);
    if (!can) return config.features.set(Feature::leases_only, false);
    for (const Feature feature :
         {Feature::live, Feature::flood, Feature::host_prefixes, Feature::cache_tier,
          Feature::one_pool, Feature::sizes, Feature::states, Feature::partial, Feature::abandon,
          Feature::faults, Feature::lost, Feature::move})
        config.features.set(feature, false);
    config.features.set(Feature::leases, true);
    config.features.set(Feature::at_once, true);
    config.groups.resize(1);
    GroupConfig &group = config.groups[0];
    group = {};
    Rng rng(mix(config.seed, 0x10E57));
    group.blocks = rng.percent(70) ? rng.range(4, 24) : rng.range(6, 60);
    config.flags &= QUIRE_CACHE_FIXED_HASH | QUIRE_CACHE_ZERO_ON_FREE;
    config.flags |= QUIRE_CACHE_LEASES_ONLY;
    Rng led(mix(config.seed, 0x10E5F));
    config.follower = config.has(Feature::follower) && led.percent(60);
    if (config.follower != 0 || (config.has(Feature::log) && led.percent(20)))
        config.flags |= QUIRE_CACHE_LOG;
    config.host_blocks = config.cut = 0;
    if (config.block_tokens > 64) config.block_tokens = rng.range(1, 20);
    config.max_tokens = rng.range(2, 10) * config.block_tokens + rng.below(6);
}

// Makes it a cache without memory whose groups, two or more, take their blocks from one pool. What
// is promised of a pool that one sequence or tenant has alone is not asked there. Drawn apart.
void share_pool(Config &config) {
    const bool apart = config.device != 0 || config.groups.size() < 2 ||
                       (config.flags & QUIRE_CACHE_HOST_PREFIXES) != 0;
    if (apart) return config.features.set(Feature::one_pool, false);
    Rng rng(mix(config.seed, 0x19001));
    config.flags |= QUIRE_CACHE_ONE_POOL;
    config.features.set(Feature::live, false);
    config.features.set(Feature::flood, false);
    uint32_t blocks = 1;
    for (const GroupConfig &group : config.groups) blocks += group.blocks - 1;
    if (rng.percent(50)) blocks = std::max(8u, blocks * 2 / 3);
    for (GroupConfig &group : config.groups) group.blocks = blocks;
}

// Makes one group of a cache without memory recurrent. Its items have no drafts or mask, and
// lookahead only where they leave one state. Drawn apart.
void make_recurrent(Config &config) {
    const bool apart = config.device != 0 || (config.flags & QUIRE_CACHE_HOST_PREFIXES) != 0;
    if (apart) return config.features.set(Feature::states, false);
    Rng rng(mix(config.seed, 0x57A7E5));
    for (const Feature feature : {Feature::draft, Feature::tree, Feature::early_accept,
                                  Feature::bits, Feature::leases, Feature::live, Feature::flood})
        config.features.set(feature, false);
    GroupConfig &group = config.groups[rng.below(static_cast<uint32_t>(config.groups.size()))];
    group.kind = QUIRE_GROUP_RECURRENT;
    group.window = group.sink = 0;
    Rng one(mix(config.seed, 0x57A7E1));
    if (one.percent(50)) {
        group.interval = one.range(1, 3);
        group.drafts = one.percent(50) ? one.range(1, 3) : 0;
    } else {
        config.features.set(Feature::ahead, false);
    }
}

// Gives most caches whose places are long room for a few of them, which leases take whole.
void widen_pools(Config &config) {
    Rng rng(mix(config.seed, 0x517E1));
    if (rng.percent(25)) return;
    uint32_t all = 0;
    for (uint32_t g = 0; g < config.groups.size(); ++g) {
        GroupConfig &group = config.groups[g];
        const uint32_t place = config.span() / config.block_size(g);
        group.blocks = std::max(group.blocks, place * rng.range(2, 6) + rng.range(2, 6));
        all += group.blocks;
    }
    for (GroupConfig &group : config.groups)
        if (config.one_pool()) group.blocks = all;
}

// Gives the groups of a cache without memory, one of which sees all tokens, blocks of different
// sizes. Drawn apart.
void resize_groups(Config &config) {
    const bool apart = config.device != 0 || config.groups.size() < 2 || !config.sees_all() ||
                       (config.flags & QUIRE_CACHE_HOST_PREFIXES) != 0;
    if (apart) return config.features.set(Feature::sizes, false);
    Rng rng(mix(config.seed, 0x517E5));
    config.features.set(Feature::live, false);
    config.features.set(Feature::flood, false);
    config.block_tokens = rng.range(1, 5);
    for (GroupConfig &group : config.groups) {
        group.block_tokens = config.block_tokens * rng.range(1, 4);
        if (group.window != 0) group.window = rng.range(1, 3 * group.block_tokens + 2);
        if (group.sink != 0) group.sink = rng.range(1, 2 * group.block_tokens);
    }
    config.max_tokens = rng.range(2, 6) * config.span() + rng.below(6);
    if (config.has(Feature::leases)) widen_pools(config);
}

// Gives its blocks so many tokens, and its windows and sequences as many blocks as before.
void resize(Config &config, uint32_t block_tokens, Rng &rng) {
    const uint32_t before = config.block_tokens;
    config.block_tokens = block_tokens;
    config.max_tokens = rng.range(2, 10) * config.block_tokens + rng.below(6);
    for (GroupConfig &group : config.groups) {
        if (group.window == 0) continue;
        group.window = group.window * config.block_tokens / before + rng.below(3);
        group.window = std::max(1u, group.window);
        group.sink = group.sink * config.block_tokens / before;
    }
}

// Gives its blocks any number of tokens, which a cache without memory may have. Drawn apart.
void resize_blocks(Config &config) {
    if (config.device != 0) return config.features.set(Feature::any_size, false);
    Rng rng(mix(config.seed, 0xA2152));
    constexpr uint32_t sizes[] = {3, 5, 6, 7, 9, 11, 12, 15, 17, 48, 100, 528, 768, 1056};
    resize(config, sizes[rng.below(rng.percent(85) ? 9 : std::size(sizes))], rng);
}

// Lets hits end within a block, most often in larger blocks than before. Drawn apart.
void end_within_blocks(Config &config) {
    const bool apart =
        config.any_states() || !config.uniform() || (config.flags & QUIRE_CACHE_NO_PREFIX) != 0;
    if (apart) return config.features.set(Feature::partial, false);
    Rng rng(mix(config.seed, 0x9A271A7));
    config.flags |= QUIRE_CACHE_PARTIAL_HITS;
    if (!config.has(Feature::any_size) && rng.percent(70)) resize(config, 4u << rng.below(4), rng);
    if (!rng.percent(20) || config.block_tokens > 64) return;
    // Room for many blocks that go on differently after the same tokens.
    config.documents = 1;
    config.max_tokens = rng.range(1, 3) * config.block_tokens + rng.below(6);
    const uint32_t blocks = rng.range(60, 120);
    for (GroupConfig &group : config.groups) group.blocks = blocks;
}

}  // namespace

std::vector<uint32_t> Config::block_sizes() const {
    std::vector<uint32_t> sizes;
    for (uint32_t g = 0; g < groups.size(); ++g) sizes.push_back(block_size(g));
    return sizes;
}

std::vector<uint32_t> Config::all_places() const {
    std::vector<uint32_t> all;
    for (uint32_t g = 0; g < groups.size(); ++g) all.push_back(places(g));
    return all;
}

bool Config::uniform() const {
    const std::vector<uint32_t> sizes = block_sizes();
    return std::all_of(sizes.begin(), sizes.end(), [&](uint32_t n) { return n == block_tokens; });
}

uint32_t Config::span() const {
    uint32_t all = 1;
    bool any = false;
    for (uint32_t g = 0; g < groups.size(); ++g) {
        if (groups[g].kind == QUIRE_GROUP_CROSS) continue;
        all = std::lcm(all, block_size(g));
        any = true;
    }
    return any ? all : block_tokens;
}

std::vector<std::pair<uint32_t, uint32_t>> Config::place_blocks() const {
    std::vector<std::pair<uint32_t, uint32_t>> all;
    for (uint32_t g = 0; g < groups.size(); ++g) {
        const bool one = groups[g].kind == QUIRE_GROUP_CROSS;
        for (uint32_t begin = 0; begin < (one ? 1 : span()); begin += block_size(g))
            all.emplace_back(g, begin);
    }
    return all;
}

bool Config::cross() const {
    return std::any_of(groups.begin(), groups.end(),
                       [](const GroupConfig &g) { return g.kind == QUIRE_GROUP_CROSS; });
}

void Config::size_group(uint32_t group, quire_group_desc *desc) const {
    desc->block_tokens = groups[group].block_tokens;
    desc->state_interval = groups[group].interval * block_size(group);
    desc->draft_states = groups[group].drafts;
}

uint32_t Config::beside_states() const {
    uint32_t most = 0;
    for (const GroupConfig &group : groups)
        if (group.interval != 0) most = std::max(most, 2 * group.drafts + 1);
    return most;
}

bool Config::any_states() const {
    return std::any_of(groups.begin(), groups.end(),
                       [](const GroupConfig &g) { return g.kind == QUIRE_GROUP_RECURRENT; });
}

bool Config::dense_states() const {
    return std::any_of(groups.begin(), groups.end(), [](const GroupConfig &g) {
        return g.kind == QUIRE_GROUP_RECURRENT && g.interval == 0;
    });
}

bool Config::exact() const {
    return std::all_of(groups.begin(), groups.end(), [](const GroupConfig &g) {
        return g.kind == QUIRE_GROUP_FULL || g.kind == QUIRE_GROUP_LATENT;
    });
}

bool Config::windowless() const {
    return std::none_of(groups.begin(), groups.end(), [](const GroupConfig &g) {
        return g.kind == QUIRE_GROUP_WINDOW || g.kind == QUIRE_GROUP_CHUNKED ||
               g.kind == QUIRE_GROUP_RECURRENT;
    });
}

uint32_t Config::kv_heads(const GroupConfig &group) const {
    return group.kind == QUIRE_GROUP_LATENT || cut != 0 ? 1 : shards;
}

std::vector<quire_shard_desc> Config::shard_descs() const {
    uint32_t heads = 1;  // of the group that has the most
    for (const GroupConfig &group : groups) heads = std::max(heads, kv_heads(group));
    const auto layers = static_cast<uint32_t>(groups.size());  // one in each group
    std::vector<quire_shard_desc> descs(shards);
    for (uint32_t s = 0; s < shards; ++s) {
        descs[s].struct_size = sizeof descs[s];
        if (cut != 0) {
            descs[s].layer_begin = s * layers / shards;
            descs[s].layer_count = (s + 1) * layers / shards - descs[s].layer_begin;
        } else if (heads > 1) {
            descs[s].head_begin = s;
            descs[s].head_count = 1;
        }
    }
    return descs;
}

std::vector<quire_shard_desc> Config::other_descs(uint32_t count, bool by_layers) const {
    uint32_t heads = 1;  // of the group that has the most
    for (const GroupConfig &group : groups) heads = std::max(heads, kv_heads(group));
    const uint32_t parts = by_layers ? static_cast<uint32_t>(groups.size()) : heads;
    if (count > parts) return {};
    std::vector<quire_shard_desc> descs(count);
    for (uint32_t s = 0; s < count; ++s) {
        const uint32_t begin = s * parts / count;
        const uint32_t size = (s + 1) * parts / count - begin;
        descs[s].struct_size = sizeof descs[s];
        (by_layers ? descs[s].layer_begin : descs[s].head_begin) = begin;
        (by_layers ? descs[s].layer_count : descs[s].head_count) = size;
    }
    return descs;
}

bool Config::sees_all() const {
    return std::any_of(groups.begin(), groups.end(), [](const GroupConfig &g) {
        return g.kind == QUIRE_GROUP_FULL || g.kind == QUIRE_GROUP_LATENT;
    });
}

uint32_t Config::pool_blocks() const {
    uint32_t least = ~0u;
    for (const GroupConfig &g : groups) least = std::min(least, g.blocks - 1);
    return least;
}

Config draw_config(uint64_t seed, FeatureSet allowed) {
    Rng rng(mix(seed, 0xC0FF1C), choice_tape);
    Config config;
    config.seed = seed;
    config.features = draw_features(rng, allowed, seed);
    config.block_tokens = 1u << rng.below(4);
    const uint32_t groups = config.has(Feature::groups) ? rng.range(1, 3) : 1;
    for (uint32_t g = 0; g < groups; ++g)
        config.groups.push_back(draw_group(rng, config.features, config.block_tokens, g == 0));
    config.queues = config.has(Feature::queues) ? rng.range(1, 3) : 1;
    config.max_sequences = rng.range(3, 12);
    config.max_tokens = rng.range(2, 10) * config.block_tokens + rng.below(6);
    if (config.has(Feature::watermark) && rng.percent(30)) config.watermark = rng.range(1, 3);
    if (config.has(Feature::host)) config.host_blocks = rng.range(2, 20);
    config.victim = config.has(Feature::priority) ? rng.below(2) : 0;
    config.flags = QUIRE_CACHE_FIXED_HASH;
    if (config.has(Feature::no_prefix) && rng.percent(8)) config.flags |= QUIRE_CACHE_NO_PREFIX;
    if (config.has(Feature::zero) && rng.percent(40)) config.flags |= QUIRE_CACHE_ZERO_ON_FREE;
    config.follower = config.has(Feature::follower) && rng.percent(50);
    if (config.follower || (config.has(Feature::log) && rng.percent(70)))
        config.flags |= QUIRE_CACHE_LOG;
    if (config.has(Feature::device) && rng.percent(50)) {
        config.device = 1;
        if (config.has(Feature::shards) && rng.percent(40)) {
            config.shards = rng.range(2, 3);
            config.cut = config.groups.size() >= config.shards && rng.percent(50);
        }
    }
    config.lag = rng.percent(50) ? 0 : rng.below(4);
    config.vocabulary = rng.range(1, 4);
    config.documents = rng.range(1, 6);
    config.swap_rate = rng.percent(50) ? 0 : rng.range(1, 1000);
    if (config.has(Feature::host_prefixes)) share_host(config);
    if (config.has(Feature::cache_tier)) put_store_below(config, allowed);
    if (config.has(Feature::leases)) make_lessor(config);
    if (config.has(Feature::at_once)) lend_at_once(config);
    if (config.has(Feature::any_size)) resize_blocks(config);
    if (config.has(Feature::one_pool)) share_pool(config);
    if (config.has(Feature::states)) make_recurrent(config);
    if (config.has(Feature::sizes)) resize_groups(config);
    if (config.has(Feature::partial)) end_within_blocks(config);
    if (config.has(Feature::leases_only)) leave_sequences_out(config, allowed);
    return config;
}

std::string to_text(const Config &c) {
    const uint64_t values[] = {
        c.features.bits(), c.seed,        c.block_tokens, c.queues, c.max_sequences, c.max_tokens,
        c.watermark,       c.host_blocks, c.victim,       c.flags,  c.follower,      c.lag,
        c.vocabulary,      c.documents,   c.swap_rate,    c.device, c.shards,        c.cut};
    std::string text = "config";
    std::string names = kConfigFields;
    for (size_t i = 0, at = 0; at < names.size(); ++i) {
        const size_t end = std::min(names.find(' ', at), names.size());
        text += " " + names.substr(at, end - at) + "=" + std::to_string(values[i]);
        at = end + 1;
    }
    text += "\n";
    for (const GroupConfig &g : c.groups)
        text += "group kind=" + std::to_string(g.kind) + " window=" + std::to_string(g.window) +
                " sink=" + std::to_string(g.sink) + " blocks=" + std::to_string(g.blocks) +
                " block_tokens=" + std::to_string(g.block_tokens) +
                " interval=" + std::to_string(g.interval) + " drafts=" + std::to_string(g.drafts) +
                "\n";
    return text;
}

bool parse_config_line(const std::string &line, Config &c) {
    if (line.rfind("config", 0) == 0) {
        const std::vector<uint64_t> v = parse_fields(line, kConfigFields);
        c.features = FeatureSet::from_bits(v[0]);
        c.seed = v[1];
        uint32_t *const fields[] = {
            &c.block_tokens, &c.queues,      &c.max_sequences, &c.max_tokens,
            &c.watermark,    &c.host_blocks, &c.victim,        &c.flags,
            &c.follower,     &c.lag,         &c.vocabulary,    &c.documents,
            &c.swap_rate,    &c.device,      &c.shards,        &c.cut};
        for (size_t i = 0; i < std::size(fields); ++i) *fields[i] = static_cast<uint32_t>(v[i + 2]);
        c.shards = std::max(1u, c.shards);  // an older script says none
        return true;
    }
    if (line.rfind("group", 0) != 0) return false;
    const std::vector<uint64_t> v = parse_fields(line, kGroupFields);
    c.groups.push_back({static_cast<uint32_t>(v[0]), static_cast<uint32_t>(v[1]),
                        static_cast<uint32_t>(v[2]), static_cast<uint32_t>(v[3]),
                        static_cast<uint32_t>(v[4]), static_cast<uint32_t>(v[5]),
                        static_cast<uint32_t>(v[6])});
    return true;
}

}  // namespace sim
