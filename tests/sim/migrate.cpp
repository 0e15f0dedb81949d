// SPDX-License-Identifier: Apache-2.0
//
// migrate: the cache moves: to pools of another size, or to other devices, whose number may be
// another too, and which may refuse.
//
// "The whole cache, or nothing": after any failure it works where it is, and devices that it did
// not move to can be closed. So can those that it has left.
#include <algorithm>

#include "device.hpp"
#include "follower.hpp"
#include "leases_only.hpp"

namespace sim {

// The devices to move to, with their faults; none: the cache stays on its own. `descs` receives
// what each shard of the target holds.
std::vector<Shard> World::target(const Op &op, std::vector<quire_shard_desc> &descs) {
    descs = shard_descs();
    if (op.f[3] == 0) return {};
    std::vector<quire_shard_desc> others = config.other_descs(1 + op.f[3] % 3, op.f[4] != 0);
    if (others.empty()) others = config.shard_descs();
    descs = others;
    std::vector<Shard> fresh = open_shards(static_cast<uint32_t>(descs.size()));
    for (size_t s = 0; s < descs.size(); ++s) descs[s].device = fresh[s].device;
    if (op.f[5] != 0 && !calm_)
        fresh[op.f[6] % fresh.size()].fake->plant(make_fault(op.f[5], op.f[6], op.f[7], 0, 0));
    ++tally_->moves;
    return fresh;
}

quire_status World::call_migrate(const Op &op, const quire_migrate_desc &desc,
                                 quire_migrate_info &got) {
    if (op.f[8] == 0) return q_->cache_migrate(cache_, &desc, &got, &error_);
    bool may_hang = fault_armed();
    for (const Shard &shard : shards_) may_hang |= shard.fake->hung();
    const uint64_t timeouts[] = {0, 1000000, may_hang || op.f[5] != 0 ? 1000000 : UINT64_MAX};
    return q_->cache_migrate_wait(cache_, &desc, &got, timeouts[op.f[8] % 3], &error_);
}

// Closes devices that the cache is not on.
void World::leave(const std::vector<Shard> &shards) {
    for (const Shard &shard : shards) shard.fake->plant({});
    for (size_t i = 0; i < shards.size(); ++i)
        for (const Shard &shard : shards) shard.fake->drain();
    check_findings(shards);
    close_shards(shards);
}

bool World::migrate(const Op &op) {
    Migration m;
    m.device = blocks_;
    for (uint32_t &blocks : m.device)
        if (op.f[0] != 0) blocks = std::max(2u, op.f[0]);
    m.host = op.f[1] != 0 ? op.f[1] : host_blocks_;
    m.moves.resize(op.f[2] != 0 ? op.f[2] : 1024);
    quire_migrate_desc desc{};
    desc.struct_size = sizeof desc;
    desc.group_blocks = m.device.data();
    desc.moves = m.moves.data();
    desc.move_capacity = static_cast<uint32_t>(m.moves.size());
    desc.move_stride = sizeof m.moves[0];
    desc.host_blocks = op.f[1];
    std::vector<quire_shard_desc> shards;
    std::vector<Shard> fresh;
    if (on_device()) {
        fresh = target(op, shards);
        if (!fresh.empty()) m.host = host_blocks_;
        desc.shards = shards.data();
        desc.shard_count = static_cast<uint32_t>(shards.size());
        desc.shard_stride = sizeof shards[0];
        desc.host_blocks = 0;
        desc.host_bytes = m.host == host_blocks_ ? 0
                                                 : static_cast<uint64_t>(m.host) *
                                                       config.block_tokens * 8 * blocks_.size();
    }
    m.got.struct_size = sizeof m.got;
    m.waits = op.f[8] != 0;
    const Snapshot before = look(true);
    const auto tree = lone_ ? lone_->look() : LeasesOnly::Before{};
    m.struck = strikes();
    m.status = call_migrate(op, desc, m.got);
    m.struck = strikes() - m.struck;
    for (const Shard &shard : fresh) m.struck += shard.fake->strikes();
    if (m.status == QUIRE_OK && !fresh.empty()) {
        tally_->moves_resharded += fresh.size() != shards_.size();
        descs_ = shards;
        fresh.swap(shards_);
        ++tally_->moves_made;
    }
    const bool has_moved = judge_migration(m);
    if (has_moved && lone_) {  // by who held the blocks before
        m.moves.resize(m.got.move_count);
        lone_->moved(m.moves, m.got.blocks_dropped, tree, m.device[0]);
    }
    if (has_moved)
        adopt_migration(m);
    else
        unchanged(before, "error-changes");
    leave(fresh);
    return true;
}

// True if the cache has moved. Else the answer is one that the headers allow, and nothing changed.
bool World::judge_migration(const Migration &m) {
    const bool leads = (config.flags & QUIRE_CACHE_LOG) != 0;
    const bool busy = open || !committed.empty();
    if (m.struck != 0 && m.waits && m.status == QUIRE_S_TIMEOUT) return false;
    // The queue of a failed step may refuse its fence again.
    if (m.struck != 0 && m.waits && m.status == QUIRE_E_BUSY) return false;
    const bool says_why = m.status == QUIRE_E_BUSY || m.status == QUIRE_E_UNSUPPORTED;
    if (m.struck != 0 && m.status < 0 && !says_why) {
        ++tally_->migrations_failed;
        expect(m.status, {QUIRE_E_DEVICE_MEMORY, QUIRE_E_DEVICE_LOST, QUIRE_E_OS},
               "quire_cache_migrate on a device that refuses");
        return false;
    }
    // Steps may be done and not noticed yet, and then only a call that waits looks.
    if (on_device() && m.status == QUIRE_E_BUSY && (busy || !m.waits)) return false;
    if (m.waits && m.status == QUIRE_S_TIMEOUT && !device_idle()) {
        ++tally_->moves_timed_out;
        return false;
    }
    // On a device bytes are asked for, which may come to the same number of host blocks.
    const bool fixed = leads && (m.device != blocks_ || (!on_device() && m.host != host_blocks_));
    if (busy || fixed) {
        if (!(fixed && m.status == QUIRE_E_UNSUPPORTED))
            expect(m.status, {busy ? QUIRE_E_BUSY : QUIRE_E_UNSUPPORTED}, "quire_cache_migrate");
        return false;
    }
    if (leads && m.host != host_blocks_ && m.status == QUIRE_E_UNSUPPORTED) return false;
    // Bytes may be too few for one block of a shard that holds several heads: then there would be
    // no host tier, and a cache whose evicted blocks live on there needs one.
    const bool no_tier = shares_host() && on_device() && m.host < config.shards;
    expect(m.status,
           {QUIRE_OK, QUIRE_S_NO_BLOCKS, QUIRE_S_INCOMPLETE, no_tier ? QUIRE_E_ARG : QUIRE_OK,
            no_tier ? QUIRE_E_UNSUPPORTED : QUIRE_OK},
           "quire_cache_migrate");
    if (m.status == QUIRE_OK) return true;
    if (m.status < 0) return false;
    if (m.status == QUIRE_S_INCOMPLETE && m.got.move_count <= m.moves.size())
        fail("migrate", "%u moves fit into %zu", m.got.move_count, m.moves.size());
    if (m.status == QUIRE_S_NO_BLOCKS && m.got.blocks_short == 0)
        fail("migrate", "no blocks, and none is short");
    if (m.status == QUIRE_S_NO_BLOCKS && m.device == blocks_ && m.host == host_blocks_)
        fail("migrate", "a cache does not fit into its own size");
    return false;
}

// The cache has moved: so does the model, and batches of before are of no use.
void World::adopt_migration(Migration &m) {
    m.moves.resize(m.got.move_count);
    if ((config.flags & QUIRE_CACHE_LOG) != 0)
        for (const quire_block_move &move : m.moves)
            if (move.src != move.dst)
                fail("migrate-ids", "block %d of a leader's group %u becomes block %d", move.src,
                     move.group, move.dst);
    forget_loads();
    blocks_ = m.device;
    host_blocks_ = m.host;
    if (on_device()) settle_devices();
    move_memory(m.moves, m.device, host_blocks());
    rename_leased(m.moves);
    tally_->migrated_blocks += m.got.move_count;
    for (Batch &batch : batches) {
        quire_batch *old = batch.batch;
        expect(q_->batch_destroy(old, &error_), {QUIRE_OK}, "quire_batch_destroy after a move");
    }
    batches.clear();
    for (auto &seq : sequences) {
        seq->in_host.clear();  // nothing is unfinished: it depends on no step
        compare(*seq, "migrate");
    }
    audit();
}

void World::move_memory(const std::vector<quire_block_move> &moves,
                        const std::vector<uint32_t> &device, const std::vector<uint32_t> &host) {
    Memory next;
    next.reset(config.all_places(), device, host, config.one_pool());
    std::vector<std::vector<uint8_t>> taken[2];
    for (uint32_t tier = 0; tier < 2; ++tier)
        for (const uint32_t blocks : tier == kDevice ? device : host)
            taken[tier].push_back(std::vector<uint8_t>(blocks + 1, 0));
    for (const quire_block_move &move : moves) {
        if (move.group >= blocks_.size() || move.tier > 1)
            fail("migrate", "a move of group %u, tier %u", move.group, move.tier);
        const Tier tier = move.tier == QUIRE_TIER_DEVICE ? kDevice : kHost;
        for (uint32_t place = 0; place < memory_.places(tier, move.group); ++place) {
            Slot &to = next.at(tier, move.group, move.dst, place);
            to.content = memory_.at(tier, move.group, move.src, place).content;
            to.writer = memory_.at(tier, move.group, move.src, place).writer;
            to.group = memory_.at(tier, move.group, move.src, place).group;
        }
        if (tier == kDevice)
            next.must_zero(move.group, move.dst) = memory_.must_zero(move.group, move.src);
        uint8_t &mark = taken[tier][move.group][static_cast<size_t>(move.dst)];
        if (mark != 0 || (tier == kDevice && (move.dst == 0 || move.src == 0)))
            fail("migrate", "two blocks of group %u go to block %d", move.group, move.dst);
        mark = 1;
    }
    next.distrust_copies(config.has(Feature::failed_copies));
    next.take_accesses(memory_);
    memory_ = std::move(next);
}

}  // namespace sim
