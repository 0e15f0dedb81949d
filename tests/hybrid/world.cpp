// SPDX-License-Identifier: Apache-2.0
//
// world: see world.hpp. This file: the cache and queries.
#include "world.hpp"

#include <cstdio>
#include <cstring>

namespace hybrid {

void World::print(const std::string &line) { puts(line.c_str()); }

quire_error *World::message() {
    error = made<quire_error>();
    return &error;
}

void World::require_ok(const char *check, int32_t status) {
    if (status != 0) fail(check, status, " ", refusal(status));
}

void World::create() {
    config = draw_config(rng);
    std::vector<quire_group_desc> groups;
    auto desc = describe(config, play.seed, rng, groups);
    const auto own = made<quire_instance_desc>();
    require_ok("instance", api->instance_create(&own, &instance, message()));
    for (const Group &g : config.groups)
        trace("group kind ", g.kind, " window ", g.window, " sink ", g.sink, " block_tokens ",
              g.block_tokens, " interval ", g.interval, " drafts ", g.drafts, " blocks ", g.blocks,
              " opaque ", g.opaque);
    trace("cache span ", config.span, " one pool ", config.one_pool, " host ", config.host_blocks,
          " log ", config.log, " queues ", config.queues, " tokens ", config.max_tokens);
    int32_t status = api->cache_create(instance, &desc, &cache, message());
    if (status < 0) {
        cache = nullptr;
        count(join("create refused: ", error.message));
        return;
    }
    if (config.log) {
        desc.flags &= ~uint32_t{QUIRE_CACHE_LOG | QUIRE_CACHE_AUDIT | QUIRE_CACHE_ZERO_ON_FREE |
                                QUIRE_CACHE_NO_PREFIX};
        desc.flags |= QUIRE_CACHE_FOLLOWER;
        status = api->cache_create(instance, &desc, &follower, message());
        if (status < 0) fail("follower_create", error.message);
    }
    host_blocks = config.host_blocks;
    const Block empty(config.largest_block());
    for (uint32_t pool = 0; pool < config.pool_count(); ++pool) {
        pool_blocks.push_back(config.groups[pool].blocks);
        memory.emplace_back(pool_blocks[pool], empty);
        host.emplace_back(host_blocks + 1, empty);
    }
    namespaces.push_back({0, next_serial++, 0, true});
}

World::~World() {
    if (cache != nullptr) {
        if (open_step != 0) api->step_abort(cache, open_step, nullptr);
        if (api->cache_destroy(cache, nullptr) < 0) api->cache_abandon(cache, nullptr, nullptr);
    }
    if (follower != nullptr && api->cache_destroy(follower, nullptr) < 0)
        api->cache_abandon(follower, nullptr, nullptr);
    if (instance != nullptr) api->instance_destroy(instance, nullptr);
}

quire_seq_info World::info(quire_cache *of, uint64_t sequence) {
    auto info = made<quire_seq_info>();
    require_ok("get_info", api->seq_get_info(of, sequence, &info, message()));
    return info;
}

std::vector<int32_t> World::table(quire_cache *of, uint64_t step, uint64_t sequence,
                                  uint32_t group) {
    constexpr uint32_t kEntries = 400;  // more than any sequence has
    std::vector<int32_t> entries(kEntries, -7);
    uint32_t size = 0;
    require_ok("step_blocks", api->step_blocks(of, step, sequence, group, 0, entries.data(),
                                               kEntries, &size, message()));
    entries.resize(size);
    return entries;
}

quire_cache_stats World::stats() {
    auto stats = made<quire_cache_stats>();
    require_ok("stats", api->cache_get_stats(cache, &stats, message()));
    if (play.plant == Plant::books) ++stats.blocks_held;
    return stats;
}

std::vector<quire_lease_block> World::lease_blocks(uint64_t lease, uint32_t group) {
    constexpr uint32_t kBlocks = 600;  // more than a lease comes to hold
    std::vector<quire_lease_block> blocks(kBlocks);
    uint32_t size = 0;
    require_ok("lease_blocks", api->lease_blocks(cache, lease, group, 0, blocks.data(), kBlocks,
                                                 sizeof blocks[0], &size, message()));
    blocks.resize(size);
    return blocks;
}

quire_lease_info World::lease_info(uint64_t lease) {
    auto info = made<quire_lease_info>();
    api->lease_get_info(cache, lease, &info, nullptr);
    return info;
}

std::vector<uint64_t> World::snapshot(bool with_lookups) {
    auto own = stats();
    own.bytes_hashed = own.bytes_compared = 0;  // calls that change nothing hash and compare
    if (!with_lookups) own.prefix_cache_queries = own.prefix_cache_hits = 0;
    const size_t head = offsetof(quire_cache_stats, prefix_cache_queries);
    std::vector<uint64_t> words((sizeof own - head) / sizeof(uint64_t));
    memcpy(words.data(), reinterpret_cast<const char *>(&own) + head, sizeof own - head);
    for (const Sequence &sequence : sequences) {
        if (!sequence.alive) continue;
        const auto i = info(sequence.handle);
        words.insert(words.end(),
                     {i.flags, i.known_tokens, i.computed_tokens, i.draft_tokens,
                      i.lookahead_tokens, i.blocks_held, static_cast<uint64_t>(i.preemptions)});
        for (uint32_t g = 0; g < config.group_count(); ++g)
            for (const int32_t number : table(cache, open_step, sequence.handle, g))
                words.push_back(static_cast<uint64_t>(number));
    }
    for (const Lease &lease : leases) {
        if (!lease.alive) continue;
        for (uint32_t g = 0; g < config.group_count(); ++g)
            for (const auto &b : lease_blocks(lease.handle, g))
                words.insert(words.end(), {static_cast<uint64_t>(b.block), b.holds, b.flags});
    }
    for (const Namespace &ns : namespaces) {
        if (!ns.alive) continue;
        auto i = made<quire_namespace_info>();
        api->namespace_get_info(cache, ns.handle, &i, nullptr);
        words.insert(words.end(), {i.sequences, i.blocks_held, i.leases,
                                   with_lookups ? i.prefix_cache_hits : 0});
    }
    return words;
}

void World::unchanged(const std::vector<uint64_t> &before, const char *check, const char *call,
                      bool with_lookups) {
    const auto after = snapshot(with_lookups);
    if (before == after) return;
    size_t i = 0;
    while (i < before.size() && i < after.size() && before[i] == after[i]) ++i;
    const auto word = [i](const std::vector<uint64_t> &in) { return i < in.size() ? in[i] : 0; };
    fail(check, call, " changed something: word ", i, " of the snapshot, which begins with the ",
         "statistics: ", word(before), " -> ", word(after), ", sizes ", before.size(), " and ",
         after.size());
}

}  // namespace hybrid
