// SPDX-License-Identifier: Apache-2.0
//
// books: what the library counts, against what its tables list; and contents at rest.
#include "world.hpp"

namespace hybrid {
namespace {

// What tables and leases list, by three ways of counting.
struct Held {
    std::set<GroupBlock> blocks;         // (pool, number)
    std::map<uint32_t, uint64_t> by_ns;  // index: table entries and leased blocks
    uint64_t sequences = 0, leases = 0, leased = 0;
};

void add_sequence(World &world, const Sequence &sequence, const char *when, Held *held) {
    ++held->sequences;
    const auto info = world.info(sequence.handle);
    const bool swapped = (info.flags & QUIRE_SEQ_SWAPPED) != 0;
    uint32_t entries = 0;
    for (uint32_t g = 0; g < world.config.group_count(); ++g) {
        std::set<int32_t> own;
        for (const int32_t number : world.table(world.cache, world.open_step, sequence.handle, g)) {
            if (number == 0) continue;
            ++entries;
            if (swapped) continue;
            held->blocks.insert({world.config.pool_of(g), number});
            if (!own.insert(number).second)
                fail("dup_entry", when, ": sequence ", hex(sequence.handle), " group ", g,
                     " lists block ", number, " twice");
        }
    }
    if (!swapped) held->by_ns[sequence.ns] += entries;
    if (entries != info.blocks_held)
        fail("info_held", when, ": sequence ", hex(sequence.handle), " holds ", info.blocks_held,
             ", its tables list ", entries, ", swapped ", swapped);
}

void check_listed(const Lease &lease, uint32_t group, const quire_lease_block &listed,
                  const char *when) {
    const std::string where =
        join(when, ": lease ", hex(lease.handle), " group ", group, " block ", listed.block);
    const auto own = lease.blocks.find({group, listed.block});
    if (own == lease.blocks.end()) fail("lease_list", where, ": listed, and not in the model");
    if (own->second.holds != listed.holds)
        fail("lease_holds", where, ": holds ", listed.holds, ", model ", own->second.holds);
    if (((listed.flags & QUIRE_LEASE_OWNED) != 0) != own->second.owned)
        fail("lease_owned", where, ": flags ", listed.flags, ", model owned ", own->second.owned);
}

void add_lease(World &world, const Lease &lease, const char *when, Held *held) {
    ++held->leases;
    uint64_t blocks = 0, holds = 0;
    for (uint32_t g = 0; g < world.config.group_count(); ++g) {
        std::set<int32_t> own;
        for (const auto &listed : world.lease_blocks(lease.handle, g)) {
            ++blocks;
            holds += listed.holds;
            held->blocks.insert({world.config.pool_of(g), listed.block});
            if (!own.insert(listed.block).second)
                fail("lease_dup", when, ": block ", listed.block, " listed twice");
            check_listed(lease, g, listed, when);
        }
    }
    if (blocks != lease.blocks.size())
        fail("lease_count", when, ": lease ", hex(lease.handle), " lists ", blocks, ", model ",
             lease.blocks.size());
    held->leased += blocks;
    held->by_ns[lease.ns] += blocks;
    const auto info = world.lease_info(lease.handle);
    if (info.blocks_held != blocks || info.holds != holds ||
        info.ns != world.namespaces[lease.ns].handle || info.blocks_lost < lease.lost)
        fail("lease_info", when, ": blocks_held ", info.blocks_held, " holds ", info.holds,
             " blocks_lost ", info.blocks_lost, "; listed ", blocks, " and ", holds);
}

void check_stats(World &world, const Held &held, const char *when) {
    const auto stats = world.stats();
    if (stats.blocks_held != held.blocks.size())
        fail("blocks_held", when, ": blocks_held ", stats.blocks_held, ", tables and leases list ",
             held.blocks.size());
    uint64_t total = 0;
    for (const uint32_t blocks : world.pool_blocks) total += blocks - 1;
    if (stats.blocks_total != total)
        fail("blocks_total", when, ": ", stats.blocks_total, ", pools have ", total);
    if (stats.blocks_held + stats.blocks_free + stats.blocks_cached != total)
        fail("blocks_sum", when, ": held ", stats.blocks_held, " free ", stats.blocks_free,
             " cached ", stats.blocks_cached, " total ", total);
    if (stats.sequences != held.sequences || stats.leases != held.leases ||
        stats.blocks_leased != held.leased)
        fail("stat_counts", when, ": sequences ", stats.sequences, "/", held.sequences, " leases ",
             stats.leases, "/", held.leases, " leased ", stats.blocks_leased, "/", held.leased);
}

// The reads of a sequence's next token.
void check_sequence(World &world, const Sequence &sequence, const Step &reader, const char *when) {
    const auto info = world.info(sequence.handle);
    if (info.known_tokens != sequence.tokens.size())
        fail("known", when, ": sequence ", hex(sequence.handle), " known ", info.known_tokens,
             ", model ", sequence.tokens.size());
    const uint32_t computed = info.computed_tokens;
    if ((info.flags & QUIRE_SEQ_SWAPPED) != 0 || computed == 0) return;
    const auto chain = world.chain(sequence);
    Row row;
    row.handle = sequence.handle;
    row.first = computed;
    row.tenant = world.namespaces[sequence.ns].serial;
    uint64_t marks = 0;
    for (uint32_t g = 0; g < world.config.group_count(); ++g) {
        const Group &group = world.config.groups[g];
        const auto table = world.table(world.cache, 0, sequence.handle, g);
        const auto read = [&](uint32_t entry, uint32_t slot, uint64_t wanted) {
            if (entry >= table.size() || table[entry] == 0)
                fail("deep_null", when, ": sequence ", hex(sequence.handle), " computed ", computed,
                     ", group ", g, " entry ", entry, " of ", table.size(), " is null");
            world.expect(world.block(g, table[entry], "at rest")[slot], wanted, reader, row, g,
                         table[entry], slot, when, &marks);
        };
        if (group.recurrent()) {
            read(group.state_entry(computed), 0, state_content(g, chain[computed]));
            continue;
        }
        for (uint32_t p = 0; p < computed; ++p)
            if (group.sees(computed, p))
                read(p / group.block_tokens, p % group.block_tokens,
                     attention_content(g, chain[p + 1]));
    }
}

}  // namespace

void World::check_contents(const char *when) {
    execute_all();
    Step reader;  // a step that would be committed now
    reader.id = 999999;
    reader.committed_at = clock + 1;
    for (const Sequence &sequence : sequences)
        if (sequence.alive) check_sequence(*this, sequence, reader, when);
    for (const Lease &lease : leases) {
        if (!lease.alive) continue;
        for (const auto &[key, own] : lease.blocks) {
            if (!own.known) continue;
            const Block &held = block(key.first, key.second, "leased, at rest");
            for (size_t i = 0; i < own.content.size(); ++i)
                if (held[i].marks == 0 && held[i].content != own.content[i])
                    fail("lease_content", when, ": lease ", hex(lease.handle), " group ", key.first,
                         " block ", key.second, " slot ", i,
                         " was changed while held; it holds content of tenant ", held[i].tenant);
        }
    }
}

void World::check_books(const char *when) {
    int32_t status = api->cache_check(cache, message());
    if (status != 0) fail("check", when, ": ", status, " ", error.message);
    if (follower != nullptr && (status = api->cache_check(follower, message())) != 0)
        fail("check_follower", when, ": ", status, " ", error.message);
    Held held;
    for (const Sequence &sequence : sequences)
        if (sequence.alive) add_sequence(*this, sequence, when, &held);
    for (const Lease &lease : leases)
        if (lease.alive) add_lease(*this, lease, when, &held);
    check_stats(*this, held, when);
    for (uint32_t i = 0; i < namespaces.size(); ++i) {
        const Namespace &ns = namespaces[i];
        if (!ns.alive) continue;
        auto own = made<quire_namespace_info>();
        require_ok("ns_info", api->namespace_get_info(cache, ns.handle, &own, message()));
        if (own.blocks_held != held.by_ns[i])
            fail("ns_held", when, ": namespace ", i, " holds ", own.blocks_held, ", counted ",
                 held.by_ns[i]);
        if (ns.quota != 0 && own.blocks_held > ns.quota)
            fail("quota", when, ": namespace ", i, " holds ", own.blocks_held, ", quota ",
                 ns.quota);
    }
}

}  // namespace hybrid
