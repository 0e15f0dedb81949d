// SPDX-License-Identifier: Apache-2.0
//
// lease_at_once: the calls on leases that need no step and are final at once: quire_lease_find,
// quire_lease_insert, and give and pin with step 0.
//
// The engine fills a block before it inserts it, when all steps are done. Which blocks are cached,
// and in which order they are evicted, is asked of quire_cache_dump and quire_cache_evict.
#include <algorithm>
#include <numeric>

#include "device.hpp"
#include "leases_only.hpp"
#include "records.hpp"
#include "world.hpp"

namespace sim {
namespace {

constexpr uint32_t kHostQueue = kMaxQueues - 1;  // whose clock is the host's own
constexpr int32_t kUnwritten = -77;
constexpr int64_t kNoToken = 0xFFFFFFFFll;  // one past the last

quire_lease_result no_result() {
    quire_lease_result result{};
    result.struct_size = sizeof result;
    return result;
}

// Tokens as engines keep them.
std::vector<int64_t> wide_tokens(const Sequence &run) {
    return {run.tokens.begin(), run.tokens.end()};
}

}  // namespace

// How many leading places of the run have a node, by what its blocks hold. REQUIRES: no step is
// open, and no group has a window.
uint32_t World::places_cached(const Sequence &run, uint32_t places) {
    if (lone_) return static_cast<uint32_t>(lone_->find(run, places).size());
    const std::vector<Node> nodes = linked_nodes();
    uint32_t cached = 0;
    while (cached < places && node_before(nodes, run, (cached + 1) * config.span()) != nullptr)
        ++cached;
    return cached;
}

// The blocks of the group that are cached, and held by no one.
std::set<int32_t> World::cached_in(uint32_t group) {
    if (lone_) return lone_->cached();
    std::set<int32_t> ids;
    each_record(dump(), [&](std::string_view record) {
        if (has(record, "\"record\":\"block\"") && has(record, "\"tier\":\"device\"") &&
            number_in(record, "group") == group && number_in(record, "node") >= 0 &&
            number_in(record, "refs") == 0)
            ids.insert(static_cast<int32_t>(number_in(record, "id")));
    });
    return ids;
}

bool World::find_blocks(const Op &op) {
    Lease *lease = find_lease(op.f[0]);
    if (lease == nullptr) return false;
    const uint32_t how = op.f[3];  // 2: with LOOK, and pinned then; 3: wrong; 4: a wrong token
    const uint32_t tokens = std::min(op.f[2], config.max_tokens);
    const auto parts = config.place_blocks();
    const auto entries = static_cast<uint32_t>(parts.size());
    const uint32_t places = tokens / config.span();
    const Sequence run = run_of(*lease, op.f[1], tokens);
    std::vector<int64_t> wide = wide_tokens(run);
    const bool bad = how == 3 || (how == 4 && tokens != 0);
    if (how == 4 && tokens != 0) wide[tokens / 2] = op.f[2] % 2 != 0 ? -1 : kNoToken;
    const size_t room = size_t{places} * entries + 1;
    std::vector<int32_t> ids(room, kUnwritten);
    std::vector<int32_t> matched(room, kUnwritten);
    quire_lease_result result = no_result();
    quire_lease_result match = no_result();
    uint32_t sent = how == 3 ? QUIRE_MATCH_PIN : how == 1 ? QUIRE_MATCH_TOUCH : QUIRE_MATCH_LOOK;
    if (how == 1 && makes(kFaultTouch)) sent = QUIRE_MATCH_LOOK;
    const Snapshot before = look(true);
    const bool can = config.sees_all();
    const bool judges = !open && can && config.windowless() && q_->cache_dump != nullptr &&
                        (config.flags & QUIRE_CACHE_NO_PREFIX) == 0;
    const uint32_t cached = judges ? places_cached(run, places) : 0;
    if (can && !bad)
        expect(q_->lease_match(cache_, 0, lease->handle, run.tokens.data(), tokens,
                               QUIRE_MATCH_LOOK, matched.data(), &match, &error_),
               {QUIRE_OK}, "quire_lease_match");
    const quire_status status = q_->lease_find(cache_, lease->handle, wide.data(), tokens, sent,
                                               ids.data(), &result, &error_);
    unchanged(before, "find-effect");
    if (!can || bad) {
        expect(status,
               {can ? QUIRE_E_ARG : QUIRE_E_UNSUPPORTED, bad ? QUIRE_E_ARG : QUIRE_E_UNSUPPORTED},
               "quire_lease_find that cannot be");
        return true;
    }
    expect(status, {QUIRE_OK}, "quire_lease_find");
    if (result.blocks != 0 && makes(kFaultShorter)) {
        result.blocks = match.blocks = result.blocks - 1;
        ids[result.blocks * entries] = matched[result.blocks * entries] = kUnwritten;
    }
    if (result.blocks != match.blocks || ids != matched)
        fail("lease-find", "lease %u finds %u blocks of %u tokens, and matches %u", lease->id,
             result.blocks, tokens, match.blocks);
    if (result.blocks > places || !std::all_of(ids.begin() + result.blocks * entries, ids.end(),
                                               [](int32_t id) { return id == kUnwritten; }))
        fail("lease-find", "lease %u finds %u blocks of %u tokens, or more was written", lease->id,
             result.blocks, tokens);
    if (judges && result.blocks != cached)
        fail("lease-find", "lease %u finds %u blocks of %u tokens; the tree has %u", lease->id,
             result.blocks, tokens, cached);
    if (lone_) lone_->judge_found(*lease, run, places, ids.data(), result.blocks);
    if (lone_ && how == 1) {
        lone_->look();
        lone_->touched(ids.data(), result.blocks);
    }
    ++tally_->lease_finds;
    tally_->lease_found += result.blocks;
    for (uint32_t i = 0; i < result.blocks * entries; ++i)
        if (ids[i] != 0 && !open)
            check_found(*lease, {parts[i % entries].first, ids[i]}, block_at(run, i));
    if (how == 1) note_released(ids, result.blocks, false);
    if (how == 2) pin_found(*lease, run, ids, result.blocks);
    return true;
}

// The lease holds once more what it found.
void World::pin_found(Lease &lease, const Sequence &run, const std::vector<int32_t> &ids,
                      uint32_t places) {
    const auto parts = config.place_blocks();
    for (uint32_t g = 0; g < blocks_.size(); ++g) {
        std::vector<size_t> own;
        std::vector<int32_t> named;
        for (size_t at = 0; at < places * parts.size(); ++at) {
            if (parts[at % parts.size()].first != g || ids[at] == 0) continue;
            own.push_back(at);
            named.push_back(ids[at]);
        }
        if (!pin_now(lease, g, named, false)) return;
        for (const size_t at : own) lease.contents[{g, ids[at]}] = block_at(run, at);
    }
}

// True: they are held once more.
bool World::pin_now(Lease &lease, uint32_t group, const std::vector<int32_t> &ids, bool bad) {
    const Snapshot before = look(true);
    const auto tree = lone_ ? lone_->look() : LeasesOnly::Before{};
    quire_lease_result result = no_result();
    const quire_status status = q_->lease_pin(cache_, 0, lease.handle, group, ids.data(),
                                              static_cast<uint32_t>(ids.size()), &result, &error_);
    if (open || bad) {
        expect(status, {open ? QUIRE_E_BUSY : QUIRE_E_ARG, bad ? QUIRE_E_ARG : QUIRE_E_BUSY},
               "quire_lease_pin at once that cannot be");
        unchanged(before, "error-changes");
        return false;
    }
    expect(status, {QUIRE_OK, QUIRE_S_NO_BLOCKS}, "quire_lease_pin at once");
    if (lone_) lone_->judge_room(lease, status, result, new_to(lease, ids), 0, tree);
    if (status == QUIRE_S_NO_BLOCKS) {
        if (result.reason != QUIRE_WAIT_QUOTA)
            fail("lease-short", "lease %u lacks blocks to pin for reason %u", lease.id,
                 result.reason);
        judge_shortage(lease, result, before);
        return false;
    }
    for (const int32_t id : ids) hold(lease, {group, id});
    tally_->pinned_at_once += ids.size();
    return true;
}

bool World::give_now(Lease &lease, uint32_t group, const std::vector<int32_t> &ids, bool bad) {
    const Snapshot before = look(true);
    const quire_status status = q_->lease_give(cache_, 0, lease.handle, group, ids.data(),
                                               static_cast<uint32_t>(ids.size()), &error_);
    if (open || bad) {
        expect(status, {open ? QUIRE_E_BUSY : QUIRE_E_ARG, bad ? QUIRE_E_ARG : QUIRE_E_BUSY},
               "quire_lease_give at once that cannot be");
        unchanged(before, "error-changes");
        return true;
    }
    expect(status, {QUIRE_OK}, "quire_lease_give at once");
    if (lone_) lone_->look();
    give_blocks(lease, group, ids);
    tally_->given_at_once += ids.size();
    return true;
}

// The lease's blocks of the first group that it took, has published nowhere and holds alone: others
// may have found those that were withdrawn since.
std::vector<int32_t> World::own_blocks(const Lease &lease) {
    std::set<int32_t> others;
    for (const auto &seq : sequences)
        if (!seq->swapped)
            for (const int32_t id : table(*seq, 0)) others.insert(id);
    for (const auto &other : leases)
        for (const auto &[block, count] : other->held)
            if (other->id != lease.id && block.first == 0) others.insert(block.second);
    std::vector<int32_t> ids;
    for (const quire_lease_block &b : blocks_of(lease, 0))
        if (b.flags == QUIRE_LEASE_OWNED && others.count(b.block) == 0) ids.push_back(b.block);
    return ids;
}

// The engine's work, when all steps are done.
void World::fill_block(const Sequence &run, uint32_t place, int32_t block) {
    Actor actor;
    actor.queue = kHostQueue;
    actor.clock = host_clock_;
    actor.clock[kHostQueue] = ++host_clock_[kHostQueue];
    if (on_device()) actor.clock.fill(~0u);
    const std::vector<Content> contents = block_of(run, place);
    const bool wrong = makes(kFaultFill);
    for (uint32_t p = 0; p < config.block_tokens; ++p) {
        const Slot &slot = memory_.at(kDevice, 0, block, p);
        const uint32_t tenant = tenant_of(slot.content);
        if (tenant != 0 && tenant != run.tenant)
            fail("lease-tenant", "block %d of a lease of tenant %u holds %s", block, run.tenant,
                 Memory::describe(slot).c_str());
        Content content = contents[p];
        if (wrong) content ^= 1;
        memory_.write(0, block, p, content, 0, actor);
        memory_.note_token(0, block, p);
    }
    write_now(contents, block);
}

// What its `bad` does to the call; false: that cannot be done here.
bool World::spoil_insert(const Lease &lease, uint32_t bad, uint32_t lacking, Inserted &call) {
    const uint32_t bt = config.block_tokens;
    const size_t last = call.tokens.size() - 1;
    if (bad > 7) {
        const int32_t other = lacking >= 1 && lone_ ? lone_->not_to_insert(lease, bad) : 0;
        for (size_t i = last + 1 - bt; i <= last; ++i)
            call.slots[i] = int64_t{other} * bt + static_cast<int64_t>(i % bt);
        return other != 0;
    }
    switch (bad) {
        case 1:  // no whole block
            call.count -= 1;
            return bt > 1;
        case 2:
            call.tokens[last] = kNoToken;
            return true;
        case 3:
            call.tokens[last / 2] = -1;
            return true;
        case 4:  // not in its place
            call.slots[last] += 1;
            return bt > 1;
        case 5:  // the null block
            for (size_t i = last + 1 - bt; i <= last; ++i) call.slots[i] %= bt;
            return lacking >= 1;
        case 6:  // a block twice
            if (lacking < 2) return false;
            for (size_t i = last + 1 - bt; i <= last; ++i) call.slots[i] = call.slots[i - bt];
            return true;
        case 7:  // past the pool
            for (size_t i = last + 1 - bt; i <= last; ++i)
                call.slots[i] += int64_t{blocks_[0]} * bt;
            return lacking >= 1;
        default:
            return false;
    }
}

bool World::insert(const Op &op) {
    Lease *lease = find_lease(op.f[0]);
    if (lease == nullptr) return false;
    const uint32_t bt = config.block_tokens;
    std::vector<int32_t> own = own_blocks(*lease);
    if (op.f[3] % 2 != 0) std::reverse(own.begin(), own.end());
    const uint32_t most = std::min(op.f[2], config.max_tokens / bt);
    // The engine knows by a match which blocks the tree has, and names those.
    std::vector<int32_t> known;
    if (lone_ && op.f[5] != 0) known = lone_->find(run_of(*lease, op.f[1], most * bt), most);
    own.insert(own.begin(), known.begin(), known.end());
    const uint32_t places = std::min(most, static_cast<uint32_t>(own.size()));
    if (places == 0) return false;
    own.resize(places);
    const auto from_tree = static_cast<uint32_t>(known.size());
    const bool busy = open || !committed.empty();
    if (!busy) wait_for_devices();
    const bool full = config.groups[0].kind == QUIRE_GROUP_FULL;
    const bool latent = config.groups[0].kind == QUIRE_GROUP_LATENT;
    const bool can = config.groups.size() == 1 && (full || latent) &&
                     (config.flags & (QUIRE_CACHE_NO_PREFIX | QUIRE_CACHE_HOST_PREFIXES)) == 0;
    const Sequence run = run_of(*lease, op.f[1], places * bt);
    Inserted call;
    call.tokens = wide_tokens(run);
    for (uint32_t i = 0; i < places * bt; ++i)
        call.slots.push_back(int64_t{own[i / bt]} * bt + i % bt);
    call.count = places * bt;
    const bool judges = can && !busy && q_->cache_dump != nullptr;
    const uint32_t cached = judges ? places_cached(run, places) : 0;
    const bool bad = op.f[4] != 0 && judges && spoil_insert(*lease, op.f[4], places - cached, call);
    if (op.f[4] != 0 && !bad) return false;
    std::vector<int32_t> named(places + 1, kUnwritten);
    quire_lease_result result = no_result();
    const Snapshot before = look(true);
    if (!busy && can && !bad)
        for (uint32_t i = from_tree; i < places; ++i) fill_block(run, i, own[i]);
    if (lone_) lone_->look();
    const quire_status status =
        q_->lease_insert(cache_, lease->handle, call.tokens.data(), call.slots.data(), call.count,
                         named.data(), &result, &error_);
    const bool unsure = can && latent && status == QUIRE_E_UNSUPPORTED;
    if (busy || !can || bad || unsure) {
        expect(status,
               {busy && can ? QUIRE_E_BUSY
                : !can      ? QUIRE_E_UNSUPPORTED
                : bad       ? QUIRE_E_ARG
                            : QUIRE_E_UNSUPPORTED,
                busy ? QUIRE_E_BUSY : QUIRE_E_UNSUPPORTED},
               "quire_lease_insert that cannot be");
        unchanged(before, "error-changes");
        if (named != std::vector<int32_t>(places + 1, kUnwritten))
            fail("lease-named", "quire_lease_insert failed, and blocks are named");
        ++tally_->inserts_refused;
        return true;
    }
    expect(status, {QUIRE_OK}, "quire_lease_insert");
    take_inserted(*lease, run, own, named, result.blocks, cached, from_tree);
    return true;
}

// The run is cached or held now, in the lease's blocks where the tree had none. The first of `own`
// are the tree's.
void World::take_inserted(Lease &lease, const Sequence &run, const std::vector<int32_t> &own,
                          const std::vector<int32_t> &named, uint32_t blocks, uint32_t cached,
                          uint32_t from_tree) {
    const auto places = static_cast<uint32_t>(own.size());
    uint32_t anew = 0;
    for (uint32_t i = 0; i < places; ++i) {
        if (named[i] <= 0 || static_cast<uint32_t>(named[i]) >= blocks_[0])
            fail("lease-named", "block %d is named", named[i]);
        check_found(lease, {0, named[i]}, block_of(run, i));
        if (i < from_tree) continue;
        const GroupBlock block{0, own[i]};
        lease.contents[block] = block_of(run, i);
        if (named[i] != own[i]) continue;
        ++anew;
        give_blocks(lease, 0, {own[i]});
        if (i < cached)
            fail("lease-insert", "lease %u publishes place %u, which the tree had", lease.id, i);
    }
    if (named[places] != kUnwritten) fail("output-past", "a block was named past the last place");
    if (blocks != anew || (q_->cache_dump != nullptr && anew != places - cached))
        fail("lease-insert",
             "lease %u publishes %u of %u blocks anew, and says %u; the tree had %u", lease.id,
             anew, places, blocks, cached);
    if (lone_) lone_->inserted(lease, run, {named.begin(), named.begin() + places}, cached);
    ++tally_->inserts;
    tally_->inserted_blocks += anew;
    tally_->inserted_there += places - anew;
    note_first_block(run, 0);
    note_full_blocks(run);
    note_released({named.begin(), named.begin() + places}, places, true);
}

// What an eviction takes last now. in_order: of them the first ones last.
void World::note_released(const std::vector<int32_t> &ids, uint32_t places, bool in_order) {
    const auto parts = config.place_blocks();
    released_.assign(blocks_.size(), {});
    for (size_t at = 0; at < places * parts.size(); ++at)
        released_[parts[at % parts.size()].first].push_back(ids[at]);
    released_in_order_ = in_order;
    released_at_ = changes_;
}

// No call came between, nothing is unfinished, and the group has blocks of its own.
bool World::judges_order(uint32_t group) const {
    if (released_at_ == 0 || released_at_ + 1 != changes_ || !committed.empty() || open)
        return false;
    if (on_device()) return false;  // a step that is done may not have been noticed
    return !config.one_pool() && config.windowless() && group < released_.size() &&
           q_->cache_dump != nullptr;
}

// "The least recently used first": what was used last goes when nothing else is left.
void World::judge_order(uint32_t group, const std::set<int32_t> &before,
                        const std::vector<int32_t> &ids) {
    if (!judges_order(group)) return;
    const std::vector<int32_t> &last = released_[group];
    const std::set<int32_t> evicted(ids.begin(), ids.end());
    const std::set<int32_t> released(last.begin(), last.end());
    const auto is_evicted = [&](int32_t id) { return evicted.count(id) != 0; };
    const auto others = std::count_if(before.begin(), before.end(), [&](int32_t id) {
        return released.count(id) == 0 && !is_evicted(id);
    });
    const auto early = std::find_if(last.begin(), last.end(), is_evicted);
    ++tally_->orders_judged;
    tally_->orders_reached += early != last.end();
    if (early != last.end() && others != 0)
        fail("evict-order",
             "block %d of group %u, which was used last, is evicted, and %lld others are still "
             "cached",
             *early, group, static_cast<long long>(others));
    if (!released_in_order_) return;
    for (auto at = early; at != last.end(); ++at)
        if (before.count(*at) != 0 && !is_evicted(*at))
            fail("evict-order",
                 "block %d of group %u is evicted, and block %d, which comes after "
                 "it, is not",
                 *early, group, *at);
}

}  // namespace sim
