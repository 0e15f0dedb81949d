// SPDX-License-Identifier: Apache-2.0
//
// namespace_ops: tenants, and calls on the whole cache: reset and migration.
#include <algorithm>

#include "follower.hpp"

namespace sim {

bool World::create_namespace(const Op &op) {
    if (find_namespace(op.f[0]) != nullptr) return false;
    uint32_t key[2] = {op.f[1], op.f[1]};
    quire_namespace_desc desc{};
    desc.struct_size = sizeof desc;
    desc.key = key;
    desc.key_size_bytes = sizeof key;
    desc.quota_blocks = op.f[2];
    Namespace ns;
    ns.id = op.f[0];
    ns.quota = op.f[2];
    ns.tenant = next_tenant_++;
    if (ns.tenant >= 4095) return false;
    expect(q_->namespace_create(cache_, &desc, &ns.handle, &error_), {QUIRE_OK},
           "quire_namespace_create");
    namespaces.push_back(ns);
    changed_since_begin_ = true;
    return true;
}

bool World::destroy_namespace(const Op &op) {
    Namespace *ns = find_namespace(op.f[0]);
    if (ns == nullptr) return false;
    bool lived_in = false;
    for (const auto &seq : sequences) lived_in |= seq->ns == ns->id;
    const bool busy = lived_in || open;
    const Snapshot before = look(busy || ns->id == 0);
    const quire_status status = q_->namespace_destroy(cache_, ns->handle, &error_);
    if (ns->id == 0) {
        expect(status, {QUIRE_E_ARG, QUIRE_E_STALE, QUIRE_E_BUSY}, "destroying namespace 0");
        unchanged(before, "error-changes");
    } else if (busy) {
        expect(status, {QUIRE_E_BUSY}, "quire_namespace_destroy of one in use");
        unchanged(before, "error-changes");
    } else {
        expect(status, {QUIRE_OK}, "quire_namespace_destroy");
        stale_spaces_.push_back(ns->handle);
        namespaces.erase(namespaces.begin() + (ns - namespaces.data()));
    }
    return true;
}

bool World::reset() {
    const Snapshot before = look(open != nullptr);
    const quire_status status = q_->cache_reset(cache_, &error_);
    if (open) {
        expect(status, {QUIRE_E_BUSY}, "quire_cache_reset with an open step");
        unchanged(before, "error-changes");
        return true;
    }
    expect(status, {QUIRE_OK}, "quire_cache_reset");
    ++epoch_;
    full_blocks_.clear();
    nodes_most_ = 0;
    for (auto &seq : sequences) {
        // Nothing is said of sequences that have nothing computed: the library's answer stands.
        const quire_seq_info got = info(*seq);
        const bool unpublished = (got.flags & QUIRE_SEQ_UNPUBLISHED) != 0;
        if (seq->computed != 0 && !unpublished && (config.flags & QUIRE_CACHE_NO_PREFIX) == 0)
            fail("reset", "sequence %u has computed tokens and still publishes", seq->id);
        seq->unpublished = unpublished;
        compare(*seq, "reset");
    }
    if (committed.empty() && !on_device()) {
        quire_cache_stats s{};
        s.struct_size = sizeof s;
        expect(q_->cache_get_stats(cache_, &s, &error_), {QUIRE_OK}, "quire_cache_get_stats");
        if (s.blocks_cached != 0)
            fail("reset", "%llu blocks are findable after a reset",
                 static_cast<unsigned long long>(s.blocks_cached));
    }
    return true;
}

bool World::migrate(const Op &op) {
    std::vector<uint32_t> device = blocks_;
    for (uint32_t &blocks : device)
        if (op.f[0] != 0) blocks = std::max(2u, op.f[0]);
    const uint32_t host = op.f[1] != 0 ? op.f[1] : host_blocks_;
    std::vector<quire_block_move> moves(op.f[2] != 0 ? op.f[2] : 1024);
    quire_migrate_desc desc{};
    desc.struct_size = sizeof desc;
    desc.group_blocks = device.data();
    desc.moves = moves.data();
    desc.move_capacity = static_cast<uint32_t>(moves.size());
    desc.move_stride = sizeof moves[0];
    desc.host_blocks = op.f[1];
    std::vector<quire_shard_desc> shards;
    if (on_device()) {
        shards = shard_descs();
        desc.shards = shards.data();
        desc.shard_count = config.shards;
        desc.shard_stride = sizeof shards[0];
        desc.host_blocks = 0;
        desc.host_bytes = host == host_blocks_ ? 0
                                               : static_cast<uint64_t>(host) * config.block_tokens *
                                                     8 * blocks_.size();
    }
    quire_migrate_info got{};
    got.struct_size = sizeof got;
    // On a device bytes are asked for, which may come to the same number of host blocks.
    const bool fixed = (config.flags & QUIRE_CACHE_LOG) != 0 &&
                       (device != blocks_ || (!on_device() && host != host_blocks_));
    const bool may_be_fixed = (config.flags & QUIRE_CACHE_LOG) != 0 && host != host_blocks_;
    const bool busy = open || !committed.empty();
    const Snapshot before = look(true);
    const uint64_t struck = strikes();
    const quire_status status = q_->cache_migrate(cache_, &desc, &got, &error_);
    if (strikes() != struck && status < 0 && status != QUIRE_E_BUSY) {
        ++tally_->migrations_failed;
        expect(status, {QUIRE_E_DEVICE_MEMORY, QUIRE_E_DEVICE_LOST, QUIRE_E_OS},
               "quire_cache_migrate on a device that refuses");
        unchanged(before, "error-changes");
        return true;
    }
    // On a device steps may be done and not noticed yet.
    if (on_device() && status == QUIRE_E_BUSY) {
        unchanged(before, "error-changes");
        return true;
    }
    if (busy || fixed) {
        if (!(fixed && status == QUIRE_E_UNSUPPORTED))
            expect(status, {busy ? QUIRE_E_BUSY : QUIRE_E_UNSUPPORTED}, "quire_cache_migrate");
        unchanged(before, "error-changes");
        return true;
    }
    if (may_be_fixed && status == QUIRE_E_UNSUPPORTED) {
        unchanged(before, "error-changes");
        return true;
    }
    expect(status, {QUIRE_OK, QUIRE_S_NO_BLOCKS, QUIRE_S_INCOMPLETE}, "quire_cache_migrate");
    if (status != QUIRE_OK) {
        if (status == QUIRE_S_INCOMPLETE && got.move_count <= moves.size())
            fail("migrate", "%u moves fit into %zu", got.move_count, moves.size());
        if (status == QUIRE_S_NO_BLOCKS && got.blocks_short == 0)
            fail("migrate", "no blocks, and none is short");
        if (status == QUIRE_S_NO_BLOCKS && device == blocks_ && host == host_blocks_)
            fail("migrate", "a cache does not fit into its own size");
        unchanged(before, "error-changes");
        return true;
    }
    adopt_migration(got, moves, device, host);
    return true;
}

// The cache has moved: so does the model, and batches of before are of no use.
void World::adopt_migration(const quire_migrate_info &got, std::vector<quire_block_move> &moves,
                            const std::vector<uint32_t> &device, uint32_t host) {
    moves.resize(got.move_count);
    blocks_ = device;
    host_blocks_ = host;
    if (on_device()) settle_devices();
    move_memory(moves, device, host_blocks());
    tally_->migrated_blocks += got.move_count;
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
    next.reset(config.block_tokens, device, host);
    std::vector<std::vector<uint8_t>> taken[2];
    for (uint32_t tier = 0; tier < 2; ++tier)
        for (const uint32_t blocks : tier == kDevice ? device : host)
            taken[tier].push_back(std::vector<uint8_t>(blocks + 1, 0));
    for (const quire_block_move &move : moves) {
        if (move.group >= blocks_.size() || move.tier > 1)
            fail("migrate", "a move of group %u, tier %u", move.group, move.tier);
        const Tier tier = move.tier == QUIRE_TIER_DEVICE ? kDevice : kHost;
        for (uint32_t place = 0; place < config.block_tokens; ++place) {
            Slot &to = next.at(tier, move.group, move.dst, place);
            to.content = memory_.at(tier, move.group, move.src, place).content;
            to.writer = memory_.at(tier, move.group, move.src, place).writer;
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
