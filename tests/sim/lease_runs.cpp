// SPDX-License-Identifier: Apache-2.0
//
// lease_runs: quire_lease_match and quire_lease_publish: a run of tokens is found and published in
// places, each with blocks of all groups (Config::place_blocks).
#include <algorithm>

#include "device.hpp"
#include "leases_only.hpp"
#include "world.hpp"

namespace sim {
namespace {

quire_lease_result no_result() {
    quire_lease_result result{};
    result.struct_size = sizeof result;
    return result;
}

// What is wrong with a publication.
enum : uint32_t { kNoPlace = 1, kNoToken = 2, kTwice = 3, kNoBlock = 4, kOtherGroup = 5 };

}  // namespace

// The content of block number `entry` of the run, in the order in which leases name them.
std::vector<Content> World::block_at(const Sequence &run, size_t entry) const {
    const auto parts = config.place_blocks();
    const auto place = static_cast<uint32_t>(entry / parts.size());
    const auto [group, at] = parts[entry % parts.size()];
    const uint32_t begin = place * config.span() + at;
    std::vector<Content> contents;
    for (uint32_t p = begin; p < begin + config.block_size(group); ++p)
        contents.push_back(run.content(p));
    return contents;
}

// Content that is found is the run's. What the open step makes of it, its commit decides.
void World::check_found(const Lease &lease, GroupBlock block, const std::vector<Content> &wanted) {
    for (uint32_t p = 0; p < config.block_size(block.first); ++p) {
        const Slot &slot = memory_.at(kDevice, block.first, block.second, p);
        if (slot.content != wanted[p])
            fail("lease-content", "lease %u finds block %d of group %u, whose place %u holds %s",
                 lease.id, block.second, block.first, p, Memory::describe(slot).c_str());
    }
}

bool World::match(const Op &op) {
    Lease *lease = find_lease(op.f[0]);
    const uint32_t how = op.f[3] % 3;
    if (lease == nullptr || (how == QUIRE_MATCH_PIN && !open)) return false;
    const uint32_t tokens = op.f[2];
    const uint32_t places = tokens / config.span();
    const auto parts = config.place_blocks();
    const Sequence run = run_of(*lease, op.f[1], tokens);
    std::vector<int32_t> ids(places * parts.size() + 1);
    quire_lease_result result = no_result();
    const Snapshot before = look(true);
    const auto tree = lone_ ? lone_->look() : LeasesOnly::Before{};
    const quire_status status =
        q_->lease_match(cache_, how == QUIRE_MATCH_PIN ? open->handle : 0, lease->handle,
                        run.tokens.data(), tokens, how, ids.data(), &result, &error_);
    if (how == QUIRE_MATCH_PIN && lease_is_busy(status, before)) return true;
    if (!config.sees_all()) {
        expect(status, {QUIRE_E_UNSUPPORTED}, "quire_lease_match where all groups have windows");
        return true;
    }
    expect(status, {QUIRE_OK, how == QUIRE_MATCH_PIN ? QUIRE_S_NO_BLOCKS : QUIRE_OK},
           "quire_lease_match");
    if (lone_ && how == QUIRE_MATCH_PIN)
        lone_->judge_room(*lease, status, result, new_to(*lease, lone_->find(run, places)), 0,
                          tree);
    if (status == QUIRE_S_NO_BLOCKS) {
        judge_shortage(*lease, result, before);
        return true;
    }
    // Two blocks of a group, where the place has them.
    for (size_t at = 1; at < parts.size() && result.blocks != 0; ++at)
        if (parts[at].first == parts[at - 1].first && makes(kFaultSwapped))
            std::swap(ids[at], ids[at - 1]);
    if (lone_) lone_->judge_found(*lease, run, places, ids.data(), result.blocks);
    if (lone_ && how == QUIRE_MATCH_TOUCH) lone_->touched(ids.data(), result.blocks);
    if (how != QUIRE_MATCH_PIN) unchanged(before, "match-effect");
    if (result.blocks > places)
        fail("lease-match", "lease %u finds %u places of %u tokens", lease->id, result.blocks,
             tokens);
    tally_->lease_hits += result.blocks;
    for (size_t at = 0; at < result.blocks * parts.size(); ++at) {
        const uint32_t g = parts[at % parts.size()].first;
        const uint32_t kind = config.groups[g].kind;
        const bool in_host = shares_host() && how != QUIRE_MATCH_PIN;
        if (ids[at] == 0 && !in_host && (kind == QUIRE_GROUP_FULL || kind == QUIRE_GROUP_LATENT))
            fail("lease-match", "lease %u finds place %zu without a block of group %u", lease->id,
                 at / parts.size(), g);
        if (ids[at] == 0) continue;
        tally_->blocks_of_sizes += !config.uniform();
        if (how == QUIRE_MATCH_PIN) {
            hold(*lease, {g, ids[at]});
            open->uses.push_back({LeaseUse::read, lease->id, {g, ids[at]}, block_at(run, at)});
        } else if (!open) {
            check_found(*lease, {g, ids[at]}, block_at(run, at));
        }
    }
    if (how != QUIRE_MATCH_PIN) return true;
    open->leases_changed.insert(lease->id);
    open->lease_hits.emplace_back(lease->ns, result.blocks * config.span());
    return true;
}

// Takes the blocks of so many places, in each group. False: they are not there.
bool World::take_places(Lease &lease, uint32_t places, std::vector<int32_t> &ids) {
    const auto parts = config.place_blocks();
    ids.assign(places * parts.size(), 0);
    for (uint32_t g = 0; g < blocks_.size(); ++g) {
        if (config.groups[g].kind == QUIRE_GROUP_CROSS) continue;
        const uint32_t count = places * (config.span() / config.block_size(g));
        const std::vector<int32_t> taken = take_blocks(lease, g, count);
        if (taken.empty()) return false;
        size_t next = 0;
        for (size_t at = 0; at < ids.size(); ++at)
            if (parts[at % parts.size()].first == g) ids[at] = taken[next++];
    }
    return true;
}

// Takes blocks for the run in each group, publishes them, and gives back what was there already.
bool World::publish(const Op &op) {
    Lease *lease = find_lease(op.f[0]);
    const uint32_t places = std::min(op.f[2], config.max_tokens / config.span());
    if (!open || lease == nullptr || places == 0) return false;
    std::vector<int32_t> ids;
    if (!take_places(*lease, places, ids)) return true;
    // A run whose blocks are wrong is no document's, so that the tree has none of it.
    const uint32_t bad = op.f[3];
    const Sequence run = run_of(*lease, op.f[1], places * config.span());
    std::vector<uint32_t> tokens = run.tokens;
    std::vector<int32_t> sent = ids;
    const auto parts = config.place_blocks();
    const size_t own = op.f[4] % ids.size();
    const uint32_t kind = config.groups[parts[own % parts.size()].first].kind;
    if (bad == kNoPlace && config.span() == 1) return true;
    if (bad > kNoToken) tokens[0] = config.vocabulary + static_cast<uint32_t>(ops_);
    if (bad == kNoPlace) tokens.pop_back();
    if (bad == kNoToken) tokens[op.f[4] % tokens.size()] = QUIRE_TOKEN_UNKNOWN;
    for (size_t at = 0; at < ids.size(); ++at) {
        const uint32_t g = parts[at % parts.size()].first;
        const bool same = g == parts[own % parts.size()].first;
        if (at == own || ids[at] == 0 || ids[own] == 0) continue;
        if ((bad == kTwice && same) || (bad == kOtherGroup && !same && config.one_pool()))
            sent[own] = ids[at];
        // Blocks of windows need not be there.
        const bool windowed = config.groups[g].kind == QUIRE_GROUP_WINDOW ||
                              config.groups[g].kind == QUIRE_GROUP_CHUNKED;
        if (bad == 0 && windowed && op.f[4] != 0 && mix(op.f[4], at) % 3 == 0) sent[at] = 0;
    }
    if (bad == kNoBlock && kind == QUIRE_GROUP_FULL) sent[own] = 0;
    if (bad > kNoToken && sent == ids) return true;
    std::vector<int32_t> named(ids.size());
    quire_lease_result result = no_result();
    const Snapshot before = look(true);
    const quire_status status = q_->lease_publish(
        cache_, open->handle, lease->handle, tokens.data(), static_cast<uint32_t>(tokens.size()),
        sent.data(), named.data(), &result, &error_);
    if (lease_is_busy(status, before) || judge_publish(bad, status, before)) return true;
    if (status == QUIRE_S_NO_BLOCKS) {
        judge_shortage(*lease, result, before);
        return true;
    }
    note_named(*lease, run, sent, named, result.blocks);
    open->runs.push_back(run);
    open->leases_changed.insert(lease->id);
    return true;
}

// True if it had to be refused.
bool World::judge_publish(uint32_t bad, quire_status status, const Snapshot &before) {
    const bool can = config.sees_all() && !lone_ && (config.flags & QUIRE_CACHE_NO_PREFIX) == 0;
    if (can && bad == 0) {
        expect(status, {QUIRE_OK, QUIRE_S_NO_BLOCKS}, "quire_lease_publish");
        return false;
    }
    expect(status,
           {can ? QUIRE_E_ARG : QUIRE_E_UNSUPPORTED, bad != 0 ? QUIRE_E_ARG : QUIRE_E_UNSUPPORTED},
           "quire_lease_publish that cannot be");
    unchanged(before, "error-changes");
    tally_->publishes_refused += can;
    return true;
}

// blocks: how many places are new, as the call says.
void World::note_named(Lease &lease, const Sequence &run, const std::vector<int32_t> &ids,
                       const std::vector<int32_t> &named, uint32_t blocks) {
    const auto parts = config.place_blocks();
    std::vector<std::vector<int32_t>> duplicates(blocks_.size());
    std::set<size_t> old;  // places that the tree had
    for (size_t at = 0; at < ids.size(); ++at) {
        const uint32_t g = parts[at % parts.size()].first;
        if (ids[at] == 0 && named[at] == 0) continue;
        const bool is_own = named[at] == ids[at];
        if (!is_own && (named[at] <= 0 || static_cast<uint32_t>(named[at]) >= blocks_[g]))
            fail("lease-named", "block %d of group %u is named", named[at], g);
        open->uses.push_back({is_own ? LeaseUse::published : LeaseUse::read,
                              lease.id,
                              {g, named[at]},
                              block_at(run, at)});
        tally_->lease_published += is_own;
        tally_->lease_duplicates += !is_own;
        tally_->blocks_of_sizes += !config.uniform();
        if (is_own) continue;
        old.insert(at / parts.size());
        if (lease.held.count({g, named[at]}) == 0) hold(lease, {g, named[at]});
        if (ids[at] != 0) duplicates[g].push_back(ids[at]);
    }
    const size_t anew = ids.size() / parts.size() - old.size();
    if (config.windowless() && !shares_host() && blocks != anew)
        fail("lease-named", "%u places are new, says a publication; the tree lacked %zu", blocks,
             anew);
    for (uint32_t g = 0; g < blocks_.size(); ++g) {
        expect(q_->lease_give(cache_, open->handle, lease.handle, g, duplicates[g].data(),
                              static_cast<uint32_t>(duplicates[g].size()), &error_),
               {QUIRE_OK}, "quire_lease_give of duplicates");
        give_blocks(lease, g, duplicates[g]);
    }
}

// "Where a group of full attention has several blocks in a place, those that are cached go
// together." nodes, cached: before the eviction; none where it is not judged.
void World::judge_together(uint32_t group, const std::vector<Node> &nodes,
                           const std::set<int32_t> &cached, const std::set<int32_t> &evicted) {
    const auto parts = config.place_blocks();
    if (config.groups[group].kind != QUIRE_GROUP_FULL || config.one_pool()) return;
    for (const Node &node : nodes) {
        uint32_t gone = 0;
        uint32_t all = 0;
        for (size_t i = 0; i < std::min(parts.size(), node.blocks.size()); ++i) {
            const auto id = static_cast<int32_t>(node.blocks[i]);
            if (parts[i].first != group || cached.count(id) == 0) continue;
            ++all;
            gone += evicted.count(id) != 0;
        }
        tally_->places_together += all > 1 && gone == all;
        if (gone != 0 && gone != all)
            fail("evict-together", "%u of %u cached blocks of a place in group %u are evicted",
                 gone, all, group);
    }
}

}  // namespace sim
