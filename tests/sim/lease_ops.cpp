// SPDX-License-Identifier: Apache-2.0
//
// lease_ops: the calls of lease.h.
//
// A run of tokens is that of a document, as for sequences, so that leases and sequences publish and
// find the same blocks. The engine fills each block that it takes: at once with what no one may
// see, and with the run's content in the step that publishes it. It does not give back what the
// same step publishes.
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

}  // namespace

Lease *World::find_lease(uint32_t id) {
    for (auto &lease : leases)
        if (lease->id == id) return lease.get();
    return nullptr;
}

// A sequence that has computed the run.
Sequence World::run_of(const Lease &lease, uint32_t doc, uint32_t tokens) const {
    Sequence run;
    run.tenant = lease.tenant;
    run.base = lease.base;
    for (uint32_t p = 0; p < tokens; ++p) run.append(document_token(doc, p), false);
    run.era.assign(tokens, epoch_);
    run.computed = tokens;
    return run;
}

std::vector<Content> World::block_of(const Sequence &run, uint32_t place) const {
    std::vector<Content> contents;
    for (uint32_t p = 0; p < config.span(); ++p)
        contents.push_back(run.content(place * config.span() + p));
    return contents;
}

std::vector<quire_lease_block> World::blocks_of(const Lease &lease, uint32_t group) {
    std::vector<quire_lease_block> list(512);
    uint32_t count = 0;
    expect(q_->lease_blocks(cache_, lease.handle, group, 0, list.data(), 512, sizeof list[0],
                            &count, &error_),
           {QUIRE_OK}, "quire_lease_blocks");
    list.resize(count);
    return list;
}

bool World::make_lease(const Op &op) {
    const Namespace *space = find_namespace(op.f[1]);
    if (space == nullptr || find_lease(op.f[0]) != nullptr) return false;
    auto lease = std::make_unique<Lease>();
    lease->id = op.f[0];
    lease->ns = space->id;
    lease->tenant = space->tenant;
    lease->base = mix(mix(space->tenant, op.f[2]), op.f[3]);
    const uint32_t words[2][4] = {{op.f[2], op.f[2], op.f[2], op.f[2]},
                                  {op.f[3], op.f[3], op.f[3], op.f[3]}};
    std::vector<quire_key> keys;
    if (op.f[2] != 0) keys.push_back({QUIRE_KEY_ADAPTER, sizeof words[0], words[0], 0, 0});
    if (op.f[3] != 0) keys.push_back({QUIRE_KEY_SALT, sizeof words[1], words[1], 0, 0});
    quire_lease_desc desc{};
    desc.struct_size = sizeof desc;
    desc.ns = space->handle;
    desc.keys = keys.data();
    desc.key_count = static_cast<uint32_t>(keys.size());
    desc.key_stride = sizeof(quire_key);
    const bool full = sequences.size() + leases.size() >= config.max_sequences;
    const Snapshot before = look(full);
    const quire_status status = q_->lease_create(cache_, &desc, &lease->handle, &error_);
    expect(status, {full ? QUIRE_E_LIMIT : QUIRE_OK}, "quire_lease_create");
    if (full) {
        unchanged(before, "error-changes");
        return true;
    }
    leases.push_back(std::move(lease));
    changed_since_begin_ = true;
    return true;
}

bool World::end_lease(const Op &op) {
    Lease *lease = find_lease(op.f[0]);
    if (lease == nullptr) return false;
    const bool changed = open && open->leases_changed.count(lease->id) != 0;
    const Snapshot before = look(changed);
    std::vector<int32_t> listed;
    if (lone_)
        for (const quire_lease_block &b : blocks_of(*lease, 0)) listed.push_back(b.block);
    const quire_status status = q_->lease_end(cache_, lease->handle, &error_);
    expect(status, {changed ? QUIRE_E_BUSY : QUIRE_OK}, "quire_lease_end");
    if (changed) {
        unchanged(before, "error-changes");
        return true;
    }
    quire_lease_info info{};
    info.struct_size = sizeof info;
    expect(q_->lease_get_info(cache_, lease->handle, &info, &error_), {QUIRE_E_STALE},
           "quire_lease_get_info of one that was ended");
    std::erase_if(leases, [&](const auto &one) { return one->id == op.f[0]; });
    changed_since_begin_ = true;
    std::reverse(listed.begin(), listed.end());
    if (lone_) lone_->look();
    if (lone_) lone_->given(listed, true);
    return true;
}

// Answers that a call of the open step may have besides success, whatever it asks for.
bool World::lease_is_busy(quire_status status, const Snapshot &before) {
    if (status != QUIRE_E_BUSY || committed.empty() || config.queues == 1) return false;
    unchanged(before, "error-changes");
    ++tally_->busy_answers;
    return true;
}

// A call on a lease that lacks blocks says how many, and nothing has changed.
void World::judge_shortage(const Lease &lease, const quire_lease_result &result,
                           const Snapshot &before) {
    const Namespace &space = *find_namespace(lease.ns);
    if (result.blocks_short == 0 ||
        (result.reason != QUIRE_WAIT_POOL && result.reason != QUIRE_WAIT_QUOTA))
        fail("lease-short", "lease %u lacks %u blocks for reason %u", lease.id, result.blocks_short,
             result.reason);
    if (result.reason == QUIRE_WAIT_QUOTA && space.quota == 0)
        fail("lease-short", "lease %u lacks a quota that its namespace has not", lease.id);
    unchanged(before, "error-changes");
    ++tally_->leases_short;
}

void World::hold(Lease &lease, GroupBlock block) { ++lease.held[block]; }

// Takes `count` blocks; empty: they are not there.
std::vector<int32_t> World::take_blocks(Lease &lease, uint32_t group, uint32_t count) {
    std::vector<int32_t> ids(count);
    // Items of the step that publish may keep blocks until its commit.
    const bool alone = open->rows.empty() && config.groups.size() == 1 && open->began_idle;
    const uint64_t room_before = alone ? room() : 0;
    const Snapshot before = look(true);
    const auto tree = lone_ ? lone_->look() : LeasesOnly::Before{};
    quire_lease_result result = no_result();
    const quire_status status = q_->lease_take(cache_, open->handle, lease.handle, group, count,
                                               ids.data(), &result, &error_);
    if (lease_is_busy(status, before)) return {};
    expect(status, {QUIRE_OK, QUIRE_S_NO_BLOCKS}, "quire_lease_take");
    if (lone_) lone_->judge_room(lease, status, result, count, count, tree);
    if (status == QUIRE_S_NO_BLOCKS) {
        judge_shortage(lease, result, before);
        if (result.reason == QUIRE_WAIT_POOL && room_before >= count)
            fail("lease-room", "lease %u gets no %u blocks; %llu can be had", lease.id, count,
                 static_cast<unsigned long long>(room_before));
        return {};
    }
    if (lone_) lone_->taken(ids, tree);
    std::set<int32_t> held;
    for (uint32_t g = 0; g < blocks_.size(); ++g) {
        if (config.pool_of(g) != config.pool_of(group)) continue;
        for (const auto &seq : sequences)
            if (!seq->swapped)
                for (const int32_t id : table(*seq, g)) held.insert(id);
    }
    for (const auto &other : leases)
        for (const auto &[block, count_of] : other->held)
            if (config.pool_of(block.first) == config.pool_of(group)) held.insert(block.second);
    for (const int32_t id : ids) {
        if (id <= 0 || static_cast<uint32_t>(id) >= blocks_[group] || !held.insert(id).second)
            fail("lease-take", "lease %u gets block %d of group %u, which is held", lease.id, id,
                 group);
        hold(lease, {group, id});
        const Content filler = make_content(lease.tenant, mix(mix(lease.id, ops_), 0x1EA5E));
        open->uses.push_back({LeaseUse::taken,
                              lease.id,
                              {group, id},
                              std::vector<Content>(config.block_size(group), filler)});
    }
    tenants_were_run_.insert(find_namespace(lease.ns)->handle);
    open->leases_changed.insert(lease.id);
    tally_->blocks_leased += count;
    return ids;
}

bool World::take(const Op &op) {
    Lease *lease = find_lease(op.f[0]);
    if (!open || lease == nullptr) return false;
    take_blocks(*lease, op.f[1] % static_cast<uint32_t>(blocks_.size()), op.f[2]);
    return true;
}

// The blocks that the lease holds in the group, each as often, but for those that the step
// publishes.
std::vector<int32_t> World::some_held(const Lease &lease, uint32_t group, uint32_t pick) const {
    Rng rng(pick);
    std::vector<int32_t> ids;
    for (const auto &[block, count] : lease.held) {
        if (block.first != group || is_published_now(block)) continue;
        for (uint32_t i = 0; i < count; ++i)
            if (rng.percent(40)) ids.push_back(block.second);
    }
    for (size_t i = ids.size(); i > 1; --i)
        std::swap(ids[i - 1], ids[rng.below(static_cast<uint32_t>(i))]);
    return ids;
}

// Blocks that the lease's namespace has published, for a call that may name them.
void World::add_published(const Lease &lease, uint32_t pick, std::vector<int32_t> &ids) const {
    Rng rng(mix(pick, 0xADD));
    if (!rng.percent(50)) return;
    for (const int32_t block : lone_->published(lease.tenant))
        if (rng.percent(30)) ids.push_back(block);
}

uint64_t World::new_to(const Lease &lease, const std::vector<int32_t> &ids) const {
    const std::set<int32_t> once(ids.begin(), ids.end());
    return static_cast<uint64_t>(std::count_if(
        once.begin(), once.end(), [&](int32_t id) { return lease.held.count({0, id}) == 0; }));
}

bool World::is_published_now(GroupBlock block) const {
    return open && std::any_of(open->uses.begin(), open->uses.end(), [&](const LeaseUse &use) {
               return use.block == block && use.kind == LeaseUse::published;
           });
}

// The open step's work does not use what it gives back.
void World::give_blocks(Lease &lease, uint32_t group, const std::vector<int32_t> &ids) {
    for (const int32_t id : ids) {
        const GroupBlock block{group, id};
        if (--lease.held[block] != 0) continue;
        lease.held.erase(block);
        lease.contents.erase(block);
        if (!open) continue;
        std::erase_if(open->uses, [&](const LeaseUse &use) {
            return use.block == block && use.lease == lease.id;
        });
    }
    if (lone_) lone_->given(ids, false);
    if (!open) return;
    open->leases_changed.insert(lease.id);
    open->gave |= !ids.empty();
}

bool World::give(const Op &op) {
    Lease *lease = find_lease(op.f[0]);
    const bool now = op.f[4] != 0;
    if ((!open && !now) || lease == nullptr) return false;
    const uint32_t group = op.f[1] % static_cast<uint32_t>(blocks_.size());
    std::vector<int32_t> ids = some_held(*lease, group, op.f[2]);
    int32_t wrong = static_cast<int32_t>(op.f[3] % (blocks_[group] + 1));
    const bool bad = op.f[3] != 0 && lease->held.count({group, wrong}) == 0;
    if (bad) ids.push_back(wrong);
    if (now) return give_now(*lease, group, ids, bad);
    const Snapshot before = look(true);
    if (lone_) lone_->look();
    const quire_status status =
        q_->lease_give(cache_, open->handle, lease->handle, group, ids.data(),
                       static_cast<uint32_t>(ids.size()), &error_);
    if (lease_is_busy(status, before)) return true;
    expect(status, {bad ? QUIRE_E_ARG : QUIRE_OK}, "quire_lease_give");
    if (bad)
        unchanged(before, "error-changes");
    else
        give_blocks(*lease, group, ids);
    return true;
}

bool World::pin(const Op &op) {
    Lease *lease = find_lease(op.f[0]);
    const bool now = op.f[4] != 0;
    if ((!open && !now) || lease == nullptr) return false;
    const uint32_t group = op.f[1] % static_cast<uint32_t>(blocks_.size());
    std::vector<int32_t> ids = some_held(*lease, group, op.f[2]);
    if (lone_) add_published(*lease, op.f[2], ids);
    // A block that no one of the lease's namespace has published is refused.
    int32_t wrong = 0;
    for (const auto &other : leases)
        for (const auto &[block, count] : other->held)
            if (block.first == group && other->tenant != lease->tenant) wrong = block.second;
    const bool bad = op.f[3] != 0;
    if (bad) ids.push_back(wrong);
    if (now) {
        pin_now(*lease, group, ids, bad);
        return true;
    }
    const Snapshot before = look(true);
    const auto tree = lone_ ? lone_->look() : LeasesOnly::Before{};
    quire_lease_result result = no_result();
    const quire_status status =
        q_->lease_pin(cache_, open->handle, lease->handle, group, ids.data(),
                      static_cast<uint32_t>(ids.size()), &result, &error_);
    if (lease_is_busy(status, before)) return true;
    expect(status, {bad ? QUIRE_E_ARG : QUIRE_OK, lone_ && !bad ? QUIRE_S_NO_BLOCKS : QUIRE_E_ARG},
           "quire_lease_pin");
    if (bad) {
        unchanged(before, "error-changes");
        return true;
    }
    if (lone_) lone_->judge_room(*lease, status, result, new_to(*lease, ids), 0, tree);
    if (status == QUIRE_S_NO_BLOCKS) {
        judge_shortage(*lease, result, before);
        return true;
    }
    for (const int32_t id : ids) hold(*lease, {group, id});
    open->leases_changed.insert(lease->id);
    return true;
}

bool World::forget_blocks(const Op &op) {
    Lease *lease = find_lease(op.f[0]);
    if (lease == nullptr) return false;
    const uint32_t group = op.f[1] % static_cast<uint32_t>(blocks_.size());
    std::vector<int32_t> ids = some_held(*lease, group, op.f[2]);
    if (lone_) add_published(*lease, op.f[2], ids);
    uint32_t forgotten = 0;
    const Snapshot before = look(open != nullptr);
    if (lone_) lone_->look();
    const quire_status status =
        q_->lease_forget(cache_, lease->handle, group, ids.data(),
                         static_cast<uint32_t>(ids.size()), &forgotten, &error_);
    expect(status,
           {open                ? QUIRE_E_BUSY
            : config.sees_all() ? QUIRE_OK
                                : QUIRE_E_UNSUPPORTED},
           "quire_lease_forget");
    if (open) unchanged(before, "error-changes");
    if (lone_ && !open && !makes(kFaultForget)) lone_->forgotten(*lease, ids, forgotten);
    return true;
}

// The block was evicted: no one may hold it in the group.
void World::judge_evicted(uint32_t group, int32_t id) {
    for (const auto &lease : leases)
        if (lease->held.count({group, id}) != 0)
            fail("evict-held", "block %d of group %u is evicted; lease %u holds it", id, group,
                 lease->id);
    for (const auto &seq : sequences) {
        if (seq->swapped) continue;
        for (const int32_t held : table(*seq, group))
            if (held == id)
                fail("evict-held", "block %d of group %u is evicted; sequence %u holds it", id,
                     group, seq->id);
    }
}

bool World::evict(const Op &op) {
    const uint32_t group = op.f[0] % static_cast<uint32_t>(blocks_.size());
    std::vector<int32_t> ids(op.f[1] + 1);
    uint32_t evicted = 0;
    const std::set<int32_t> cached = judges_order(group) ? cached_in(group) : std::set<int32_t>{};
    std::vector<Node> nodes;
    std::set<int32_t> all;
    if (!config.uniform() && committed.empty() && !open && q_->cache_dump != nullptr) {
        nodes = linked_nodes();
        all = cached_in(group);
    }
    const Snapshot before = look(open != nullptr);
    const auto tree = lone_ ? lone_->look() : LeasesOnly::Before{};
    const quire_status status =
        q_->cache_evict(cache_, group, op.f[1], ids.data(), &evicted, &error_);
    expect(status, {open ? QUIRE_E_BUSY : QUIRE_OK}, "quire_cache_evict");
    if (open) {
        unchanged(before, "error-changes");
        return true;
    }
    for (uint32_t i = 0; i < evicted; ++i)
        for (uint32_t g = 0; g < blocks_.size(); ++g)
            if (config.pool_of(g) == config.pool_of(group)) judge_evicted(g, ids[i]);
    judge_order(group, cached, {ids.begin(), ids.begin() + evicted});
    if (!nodes.empty() && evicted != 0 && makes(kFaultApart)) --evicted;
    judge_together(group, nodes, all, {ids.begin(), ids.begin() + evicted});
    if (lone_) lone_->evicted({ids.begin(), ids.begin() + evicted}, op.f[1], tree);
    evicted_by_call_ += evicted;
    tally_->evicted_by_call += evicted;
    return true;
}

}  // namespace sim
