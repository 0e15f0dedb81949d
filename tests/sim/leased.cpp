// SPDX-License-Identifier: Apache-2.0
//
// leased: what steps, failures and moves do to the blocks of leases, and what must be true of them.
#include <algorithm>

#include "leases_only.hpp"
#include "world.hpp"

namespace sim {

// The step's work in blocks of leases: what it fills.
void World::write_leased(const Step &step) {
    uint8_t unfinished = step.actor.bit;
    for (const Step &other : committed) unfinished |= other.actor.bit;
    for (const LeaseUse &use : step.uses) {
        if (use.kind == LeaseUse::read) continue;
        const auto [group, id] = use.block;
        Lease *lease = find_lease(use.lease);
        const bool is_published = use.kind == LeaseUse::published;
        tenants_ran_.insert(find_namespace(lease->ns)->handle);
        for (uint32_t p = 0; p < config.block_size(group); ++p) {
            const Slot &slot = memory_.at(kDevice, group, id, p);
            const uint32_t tenant = tenant_of(slot.content);
            // "A block that is taken before it was zeroed is zeroed first."
            const bool zeroes = lone_ && (config.flags & QUIRE_CACHE_ZERO_ON_FREE) != 0;
            if (zeroes && use.kind == LeaseUse::taken && slot.content != 0)
                fail("lease-not-zeroed", "step %u lease %u takes block %d, which holds %s", step.id,
                     lease->id, id, Memory::describe(slot).c_str());
            if (tenant != 0 && tenant != lease->tenant)
                fail("lease-tenant", "step %u lease %u (tenant %u) group %u: block %d holds %s",
                     step.id, lease->id, lease->tenant, group, id, Memory::describe(slot).c_str());
            // A publication depends on every step that is not done.
            memory_.write(group, id, p, use.contents[p], is_published ? unfinished : step.actor.bit,
                          step.actor);
            if (is_published) memory_.note_token(group, id, p);
            note_slot({}, group, id, p, p, use.contents[p], true);
        }
        if (memory_.must_zero(group, id) != 0)
            fail("not-zeroed",
                 "after step %u lease %u has block %d of group %u, which a failed "
                 "step was to zero, and no step since",
                 step.id, lease->id, id, group);
        lease->contents[use.block] = use.contents;
    }
}

// ... and what it reads: the content that the run has there.
void World::read_leased(const Step &step) {
    for (const LeaseUse &use : step.uses) {
        if (use.kind != LeaseUse::read) continue;
        const auto [group, id] = use.block;
        for (uint32_t p = 0; p < config.block_size(group); ++p) {
            const Content found = memory_.read(group, id, p, step.actor);
            note_slot({}, group, id, p, p, use.contents[p], false);
            if (found == use.contents[p]) continue;
            fail("lease-content", "step %u lease %u group %u: block %d place %u holds %s", step.id,
                 use.lease, group, id, p,
                 Memory::describe(memory_.at(kDevice, group, id, p)).c_str());
        }
        if (Lease *lease = find_lease(use.lease); lease->held.count(use.block) != 0)
            lease->contents[use.block] = use.contents;
    }
    for (const auto &[ns, tokens] : step.lease_hits) {
        sums_.hits += tokens;
        find_namespace(ns)->hits += tokens;
    }
    for (const Sequence &run : step.runs) {
        note_first_block(run, 0);
        note_full_blocks(run);
    }
}

void World::put_leases_back(const Step &step) {
    for (const auto &lease : leases) lease->held.clear(), lease->contents.clear();
    for (const Lease &before : step.leases_before)
        if (Lease *lease = find_lease(before.id)) *lease = before;
}

// Blocks that leave their lease if the step `bit` fails: they must, or may.
std::map<GroupBlock, Zeros> World::foresee_leases(uint8_t bit) {
    std::map<GroupBlock, Zeros> leaving;
    for (const auto &lease : leases)
        for (const auto &[block, count] : lease->held) {
            bool touched = false;
            for (uint32_t p = 0; p < config.block_size(block.first); ++p) {
                const Slot &slot = memory_.at(kDevice, block.first, block.second, p);
                touched |= ((slot.zero_by | slot.zeroed_by | slot.heirs) & bit) != 0;
                // What filled a block that an earlier failed step was to zero is lost now.
                touched |= slot.heirs != 0 && (slot.depends & bit) != 0;
            }
            if (!touched) continue;
            const Zeros owed = memory_.zeros_owed(kDevice, block.first, block.second, bit);
            const bool must = owed == Zeros::owed && zeros_cost() == Zeros::owed;
            leaving[block] = must ? Zeros::owed : Zeros::unsure;
        }
    return leaving;
}

void World::take_failure_of_leases(const std::map<GroupBlock, Zeros> &leaving) {
    for (const auto &lease : leases) {
        std::set<GroupBlock> there;
        for (uint32_t g = 0; g < blocks_.size(); ++g)
            for (const quire_lease_block &b : blocks_of(*lease, g)) there.insert({g, b.block});
        for (auto at = lease->held.begin(); at != lease->held.end();) {
            const GroupBlock block = at->first;
            const auto expected = leaving.find(block);
            const bool stays = there.count(block) != 0;
            if (stays && expected != leaving.end() && expected->second == Zeros::owed)
                fail("lease-keeps",
                     "lease %u keeps block %d of group %u, which a failed step was "
                     "to zero",
                     lease->id, block.second, block.first);
            if (!stays && expected == leaving.end())
                fail("lease-loses",
                     "lease %u loses block %d of group %u, which the failed step was "
                     "not to zero",
                     lease->id, block.second, block.first);
            if (stays) memory_.must_zero(block.first, block.second) = 0;
            tally_->lease_lost += !stays;
            lease->left += !stays;
            if (!stays) lease->contents.erase(block);
            at = stays ? std::next(at) : lease->held.erase(at);
        }
        // Slots that depended on the step are poison now.
        std::erase_if(lease->contents, [&](const auto &known) {
            const auto [group, id] = known.first;
            for (uint32_t p = 0; p < config.block_size(group); ++p)
                if (memory_.at(kDevice, group, id, p).content & kPoison) return true;
            return false;
        });
    }
}

void World::rename_leased(const std::vector<quire_block_move> &moves) {
    std::map<GroupBlock, int32_t> ids;
    for (const quire_block_move &move : moves)
        if (move.tier == QUIRE_TIER_DEVICE) ids[{move.group, move.src}] = move.dst;
    const auto of_pool = [&](GroupBlock block) {
        return GroupBlock{config.pool_of(block.first), block.second};
    };
    for (const auto &lease : leases) {
        Lease before = *lease;
        lease->held.clear();
        lease->contents.clear();
        for (const auto &[block, count] : before.held) {
            if (ids.count(of_pool(block)) == 0)
                fail("migrate", "no move says where block %d of group %u of lease %u went",
                     block.second, block.first, lease->id);
            lease->held[{block.first, ids[of_pool(block)]}] = count;
        }
        for (const auto &[block, contents] : before.contents)
            lease->contents[{block.first, ids[of_pool(block)]}] = contents;
    }
}

// Adds what leases hold to the audit's sums, and checks each lease's list, counts and contents.
void World::audit_leases(std::vector<std::vector<uint8_t>> &named, std::vector<uint64_t> &held) {
    uint64_t total = 0;
    for (const auto &lease : leases) {
        std::map<GroupBlock, uint32_t> listed;
        uint64_t holds = 0;
        for (uint32_t g = 0; g < blocks_.size(); ++g)
            for (const quire_lease_block &b : blocks_of(*lease, g)) {
                listed[{g, b.block}] += b.holds;
                holds += b.holds;
                name_block(named, g, b.block);
            }
        if (listed != lease->held)
            fail("lease-held", "lease %u lists %zu blocks; it holds %zu", lease->id, listed.size(),
                 lease->held.size());
        quire_lease_info info{};
        info.struct_size = sizeof info;
        expect(q_->lease_get_info(cache_, lease->handle, &info, &error_), {QUIRE_OK},
               "quire_lease_get_info");
        if (info.blocks_held != listed.size() || info.holds != holds ||
            info.blocks_lost < lease->lost || info.ns != find_namespace(lease->ns)->handle)
            fail("lease-info", "lease %u says %llu blocks, %llu holds; it has %zu, %llu", lease->id,
                 static_cast<unsigned long long>(info.blocks_held),
                 static_cast<unsigned long long>(info.holds), listed.size(),
                 static_cast<unsigned long long>(holds));
        // Where nothing that is published can depend on a step, nothing is withdrawn.
        if (lone_ && info.blocks_lost != lease->left)
            fail("lease-info", "lease %u says that it lost %llu blocks; %llu left it", lease->id,
                 static_cast<unsigned long long>(info.blocks_lost),
                 static_cast<unsigned long long>(lease->left));
        lease->lost = info.blocks_lost;
        total += listed.size();
        for (size_t n = 0; n < namespaces.size(); ++n)
            if (namespaces[n].id == lease->ns) held[n] += listed.size();
        quire_namespace_info space{};
        space.struct_size = sizeof space;
        expect(q_->namespace_get_info(cache_, info.ns, &space, &error_), {QUIRE_OK},
               "quire_namespace_get_info");
        const auto lent = std::count_if(leases.begin(), leases.end(),
                                        [&](const auto &other) { return other->ns == lease->ns; });
        if (space.leases != static_cast<uint64_t>(lent))
            fail("lease-info", "namespace %u says %llu leases; it has %lld", lease->ns,
                 static_cast<unsigned long long>(space.leases), static_cast<long long>(lent));
        if (!open)
            for (const auto &[block, contents] : lease->contents)
                check_found(*lease, block, contents);
    }
    quire_cache_stats s{};
    s.struct_size = sizeof s;
    expect(q_->cache_get_stats(cache_, &s, &error_), {QUIRE_OK}, "quire_cache_get_stats");
    if (s.leases != leases.size() || s.blocks_leased != total)
        fail("lease-stats", "statistics say %llu leases with %llu blocks; %zu have %llu",
             static_cast<unsigned long long>(s.leases),
             static_cast<unsigned long long>(s.blocks_leased), leases.size(),
             static_cast<unsigned long long>(total));
}

}  // namespace sim
