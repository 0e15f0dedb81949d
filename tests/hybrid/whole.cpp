// SPDX-License-Identifier: Apache-2.0
//
// whole: calls on the whole cache: migrations, evictions, resets, and its namespaces.
#include <algorithm>
#include <tuple>

#include "world.hpp"

namespace hybrid {
namespace {

using Place = std::tuple<uint32_t, uint32_t, int32_t>;  // pool, tier, block

// A migration, and what lay where before it.
struct Migration {
    std::vector<uint32_t> pool_blocks;  // wanted
    uint32_t host_blocks = 0;
    std::vector<quire_block_move> moves = std::vector<quire_block_move>(4000);
    std::vector<std::vector<std::vector<quire_lease_block>>> leased;  // per lease and group
    std::vector<quire_seq_info> sequences;
};

Migration draw_migration(World &world) {
    Migration migration;
    const auto scaled = [&](uint32_t blocks, uint32_t least) {
        const double share = 0.6 + world.rng.below(100) / 100.0;
        return std::max(least, static_cast<uint32_t>(blocks * share));
    };
    for (const uint32_t blocks : world.pool_blocks)
        migration.pool_blocks.push_back(scaled(blocks, 3));
    if (world.host_blocks != 0) migration.host_blocks = scaled(world.host_blocks, 1);
    if (world.config.log) {  // its follower keeps its sizes
        migration.pool_blocks = world.pool_blocks;
        migration.host_blocks = world.host_blocks;
    }
    for (const Lease &lease : world.leases) {
        migration.leased.emplace_back();
        for (uint32_t g = 0; lease.alive && g < world.config.group_count(); ++g)
            migration.leased.back().push_back(world.lease_blocks(lease.handle, g));
    }
    for (const Sequence &sequence : world.sequences)
        migration.sequences.push_back(sequence.alive ? world.info(sequence.handle)
                                                     : made<quire_seq_info>());
    return migration;
}

// Moves the model's memory. Returns where each block went.
std::map<Place, int32_t> move_blocks(World &world, const Migration &migration, uint32_t count) {
    const Block empty(world.config.largest_block());
    std::vector<Memory> memory, host;
    for (const uint32_t blocks : migration.pool_blocks) {
        memory.emplace_back(blocks, empty);
        host.emplace_back(migration.host_blocks + 1, empty);
    }
    std::map<Place, int32_t> went;
    std::set<Place> taken;
    for (uint32_t i = 0; i < count; ++i) {
        const auto &move = migration.moves[i];
        if (world.config.one_pool && move.group != 0)
            fail("mig_group", "one pool: a move names group ", move.group);
        const Memory &from = move.tier != 0 ? world.host[move.group] : world.memory[move.group];
        Memory &to = move.tier != 0 ? host[move.group] : memory[move.group];
        const auto outside = [](int32_t number, const Memory &in) {
            return number <= 0 || static_cast<uint32_t>(number) >= in.size();
        };
        if (outside(move.src, from) || outside(move.dst, to))
            fail("mig_range", "move tier ", move.tier, " ", move.src, " -> ", move.dst);
        if (!went.insert({{move.group, move.tier, move.src}, move.dst}).second ||
            !taken.insert({move.group, move.tier, move.dst}).second)
            fail("mig_dup", "move ", move.src, " -> ", move.dst, " twice");
        to[move.dst] = from[move.src];
    }
    world.memory = std::move(memory);
    world.host = std::move(host);
    world.pool_blocks = migration.pool_blocks;
    world.host_blocks = migration.host_blocks;
    return went;
}

void move_lease(World &world, Lease &lease,
                const std::vector<std::vector<quire_lease_block>> &before,
                const std::map<Place, int32_t> &went) {
    std::map<GroupBlock, LeaseBlock> moved;
    for (uint32_t g = 0; g < world.config.group_count(); ++g) {
        const auto after = world.lease_blocks(lease.handle, g);
        if (after.size() != before[g].size())
            fail("mig_lease", "lists ", before[g].size(), " -> ", after.size());
        for (size_t i = 0; i < after.size(); ++i) {
            const int32_t old = before[g][i].block;
            const auto to = went.find({world.config.pool_of(g), 0u, old});
            if (to == went.end() || to->second != after[i].block)
                fail("mig_lease_order", "lease entry ", i, ": ", old, " -> ", after[i].block,
                     " is not what the moves say");
            moved[{g, after[i].block}] = lease.blocks[{g, old}];
        }
    }
    lease.blocks = std::move(moved);
}

// True if a sequence on the device lists the block.
bool is_held(World &world, uint32_t pool, int32_t number) {
    for (const Sequence &sequence : world.sequences) {
        if (!sequence.alive || (world.info(sequence.handle).flags & QUIRE_SEQ_SWAPPED) != 0)
            continue;
        for (uint32_t g = 0; g < world.config.group_count(); ++g) {
            if (world.config.pool_of(g) != pool) continue;
            const auto table = world.table(world.cache, 0, sequence.handle, g);
            if (std::find(table.begin(), table.end(), number) != table.end()) return true;
        }
    }
    return false;
}

}  // namespace

void World::migrate() {
    finish_some(true);
    execute_all();
    forget_ended();
    auto migration = draw_migration(*this);
    auto desc = made<quire_migrate_desc>();
    if (config.one_pool)
        desc.blocks = migration.pool_blocks[0];
    else
        desc.group_blocks = migration.pool_blocks.data();
    desc.host_blocks = migration.host_blocks;
    desc.moves = migration.moves.data();
    desc.move_capacity = static_cast<uint32_t>(migration.moves.size());
    desc.move_stride = sizeof migration.moves[0];
    auto result = made<quire_migrate_info>();
    const auto before = snapshot();
    const int32_t status = api->cache_migrate(cache, &desc, &result, message());
    trace("cache_migrate to ", migration.pool_blocks[0], " host ", migration.host_blocks, " -> ",
          status, " moves ", result.move_count, " short ", result.blocks_short);
    if (status != 0) {
        const std::string why = refusal(status);
        if (status == QUIRE_S_NO_BLOCKS && result.blocks_short == 0)
            fail("mig_short", "NO_BLOCKS with blocks_short 0");
        unchanged(before, "refused_changed", "migrate");
        if (status == QUIRE_S_NO_BLOCKS) return count("migrate short");
        fail("migrate", status, " ", why);
    }
    count("migrate");
    published_exactly = false;
    const auto went = move_blocks(*this, migration, result.move_count);
    for (size_t i = 0; i < leases.size(); ++i)
        if (leases[i].alive) move_lease(*this, leases[i], migration.leased[i], went);
    for (size_t i = 0; i < sequences.size(); ++i) {
        if (!sequences[i].alive) continue;
        const auto after = info(sequences[i].handle);
        const auto &old = migration.sequences[i];
        if (after.computed_tokens != old.computed_tokens || after.blocks_held != old.blocks_held)
            fail("mig_seq", "computed ", old.computed_tokens, " -> ", after.computed_tokens,
                 " held ", old.blocks_held, " -> ", after.blocks_held);
    }
    check_books("after a migration");
    check_contents("after a migration");
}

void World::evict() {
    constexpr uint32_t kSpace = 8;
    const uint32_t group = rng.below(config.group_count());
    const uint32_t wanted = rng.range(0, 4);
    std::vector<int32_t> numbers(kSpace, -3);
    uint32_t evicted = 99;
    const auto before = stats();
    require_ok("evict",
               api->cache_evict(cache, group, wanted, numbers.data(), &evicted, message()));
    trace("cache_evict group ", group, " ", wanted, " -> ", evicted);
    if (evicted > wanted) fail("evict_n", evicted, " of ", wanted);
    const auto after = stats();
    if (after.blocks_free < before.blocks_free + evicted ||
        after.blocks_cached > before.blocks_cached - evicted)
        fail("evict_stats", "evicted ", evicted, ": free ", before.blocks_free, " -> ",
             after.blocks_free, " cached ", before.blocks_cached, " -> ", after.blocks_cached);
    const uint32_t pool = config.pool_of(group);
    std::set<int32_t> different;
    for (uint32_t i = 0; i < evicted; ++i) {
        if (numbers[i] <= 0 || static_cast<uint32_t>(numbers[i]) >= pool_blocks[pool] ||
            !different.insert(numbers[i]).second)
            fail("evict_ids", "block ", numbers[i]);
        if (is_held(*this, pool, numbers[i])) fail("evict_held", "evicted a held block");
    }
    for (uint32_t i = evicted; i < kSpace; ++i)
        if (numbers[i] != -3) fail("evict_wrote", "entry ", i, " past the evicted was written");
    if (evicted != 0) published_exactly = false;
    count(join("evict ", evicted != 0 ? ">0" : "0"));
}

void World::use_namespaces() {
    const auto alive = std::count_if(namespaces.begin(), namespaces.end(),
                                     [](const Namespace &ns) { return ns.alive; });
    if (rng.chance(.6) && alive < 3) {
        auto desc = made<quire_namespace_desc>();
        Namespace ns;
        if (rng.chance(.5)) desc.quota_blocks = ns.quota = rng.range(2, 30);
        require_ok("ns_create", api->namespace_create(cache, &desc, &ns.handle, message()));
        trace("namespace_create quota ", ns.quota);
        ns.serial = ++next_serial;
        ns.alive = true;
        namespaces.push_back(ns);
        return;
    }
    if (namespaces.size() == 1) return;
    const uint32_t index = rng.range(1, static_cast<uint32_t>(namespaces.size()) - 1);
    if (!namespaces[index].alive) return;
    const auto uses = [index](const auto &one) { return one.alive && one.ns == index; };
    const bool used = std::any_of(sequences.begin(), sequences.end(), uses) ||
                      std::any_of(leases.begin(), leases.end(), uses);
    const auto before = snapshot();
    const int32_t status = api->namespace_destroy(cache, namespaces[index].handle, message());
    trace("namespace_destroy ", index, " -> ", status);
    if (used) {
        if (status != QUIRE_E_BUSY) fail("ns_destroy_used", "a namespace in use answered ", status);
        return unchanged(before, "refused_changed", "namespace_destroy");
    }
    require_ok("ns_destroy", status);
    namespaces[index].alive = false;
    count("ns destroyed");
}

void World::reset() {
    const int32_t status = api->cache_reset(cache, message());
    trace("cache_reset -> ", status);
    require_ok("reset", status);
    published_exactly = false;
    count("reset");
}

}  // namespace hybrid
