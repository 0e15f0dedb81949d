// SPDX-License-Identifier: Apache-2.0
//
// Migration: moves a live cache to other memory.
//
// Everything that can fail comes first: the target's pools, their books, the copies. Then comes the
// switch, which cannot fail. In between the cache answers only calls that read, so what is copied
// and what was planned stay true without its lock.

#include "core/cache.hpp"

namespace quire {

// Plans the target as if the description were a cache's, as far as sizes and flags go.
Status Cache::plan_target(const MigrateTarget &target, Migration *m) const {
    const quire_migrate_desc &given = target.desc;
    quire_cache_desc desc{};
    if (leader_.active()) desc.flags |= QUIRE_CACHE_LOG;
    if (follower_.active()) desc.flags |= QUIRE_CACHE_FOLLOWER;
    desc.blocks = given.blocks;
    desc.pool_bytes = given.pool_bytes;
    desc.pool_fraction = given.pool_fraction;
    desc.reserve_bytes = given.reserve_bytes;
    desc.host_bytes = given.host_bytes;
    desc.host_blocks = given.host_blocks;
    bool stays = given.blocks == 0 && given.pool_bytes == 0 && given.pool_fraction == 0;
    m->geometry = geometry_;
    for (uint32_t g = 0; g < geometry_.group_count; ++g) {
        GroupGeometry &group = m->geometry.groups[g];
        if (given.group_blocks != nullptr && given.group_blocks[g] != 0) {
            group.blocks = given.group_blocks[g];
        } else if (!stays) {
            group.blocks = 0;
        }
    }
    uint32_t host_blocks = geometry_.groups[0].host_blocks;  // the same in each group
    if (given.host_bytes == 0 && given.host_blocks == 0 && host_blocks != 0) {
        desc.host_blocks = host_blocks - 1;
    }
    return m->shards.plan(desc, target.shards, given.shard_count, places_.data(), &m->geometry);
}

Status Cache::check_closed() const {
    if (step_open()) return fail(QUIRE_E_BUSY, "a step is open: commit or abort it first");
    return check_at_rest();
}

Status Cache::check_movable(const quire_migrate_desc &desc) const {
    if (!timeline_.idle()) {
        return fail(QUIRE_E_BUSY,
                    "a step is committed and not done: finish it, or call "
                    "quire_cache_migrate_wait, which waits for finished steps");
    }
    if (has_memory_ && desc.shard_count == 0) {
        return fail(QUIRE_E_ARG, "shard_count is 0: a cache with memory needs a device");
    }
    if (!has_memory_ && desc.shard_count != 0) {
        return fail(QUIRE_E_ARG, "the cache has no memory: shard_count must be 0");
    }
    if (!has_memory_ && (desc.host_bytes != 0 || desc.pool_fraction != 0)) {
        return fail(QUIRE_E_ARG,
                    "host_bytes and pool_fraction need a device: give counts of blocks");
    }
    return follower_.active() ? follower_.stopped() : Status{};
}

// The other ranks have the same block ids, and no log can tell them about different ones.
Status Cache::check_counts(const Geometry &target) const {
    if (!leader_.active() && !follower_.active()) return Status{};
    for (uint32_t g = 0; g < geometry_.group_count; ++g) {
        const GroupGeometry &now = geometry_.groups[g], &then = target.groups[g];
        if (now.blocks == then.blocks && now.host_blocks == then.host_blocks) continue;
        return fail(QUIRE_E_UNSUPPORTED,
                    "group {} would change its number of blocks or host blocks: a leader or "
                    "follower must keep both, because the other ranks use the same ids",
                    g);
    }
    return Status{};
}

// Accepted tokens of a tree are moved by a later step, so the target must be able to move them.
Status Cache::check_moves(const Migration &m) const {
    bool can_move = true;
    for (uint32_t i = 0; i < m.shards.planned_count(); ++i) {
        can_move = can_move && m.shards.planned_device(i)->api->move_tokens != nullptr;
    }
    for (uint32_t i = 0; i < sequences_.size() && !can_move; ++i) {
        if (!sequence_handles_.is_live(i) || sequences_[i].state.move_count == 0) continue;
        return fail(QUIRE_E_UNSUPPORTED,
                    "a sequence has accepted tokens that are still to be moved, which a target's "
                    "backend cannot do: run a step of it first");
    }
    return Status{};
}

// A follower's books are its tables: blocks keep their ids, and pools hold nothing.
Status Cache::plan_blocks(Migration *m) {
    QUIRE_TRY(m->relocation.plan(journal_, m->geometry));
    if (!follower_.active()) {
        return journal_.reserve_nodes(m->geometry) ? Status{} : no_host_memory();
    }
    for (uint32_t g = 0; g < geometry_.group_count; ++g) {
        Array<uint32_t> &ids = m->relocation.ids[g], &host_ids = m->relocation.host_ids[g];
        for (uint32_t b = 0; b < ids.size(); ++b) ids[b] = follower_.names(g, b) ? b : kNone;
        for (uint32_t b = 0; b < host_ids.size(); ++b) {
            host_ids[b] = follower_.names_host(g, b) ? b : kNone;
        }
    }
    return Status{};
}

// Carries over what was measured so far, over all shards, to each target shard that holds it.
Status Cache::carry_amax(Migration *m, quire_error *error) {
    if (!calibrates_) return Status{};
    Array<float> numbers(&host_);
    if (!numbers.create(calibration_numbers())) return no_host_memory();
    for (uint32_t i = 0; i < shards_.count(); ++i) QUIRE_TRY(gather_amax(i, &numbers, error));
    for (uint32_t i = 0; i < m->shards.count(); ++i) {
        Binding &binding = m->shards[i];
        uint64_t at = 0;
        for (uint32_t layer = 0; layer < geometry_.layer_count; ++layer) {
            const LayerPlace &place = places_[layer];
            uint64_t heads = geometry_.groups[place.group].kv_heads;
            uint32_t held = 0, kv_heads = binding.pool(place.group).kv_heads;
            if (binding.find_layer(place, &held)) {
                const float *from = numbers.data() + at + binding.first_head(place.group);
                float *to = binding.amax(place.group) + uint64_t{held} * 2 * kv_heads;
                std::memcpy(to, from, kv_heads * sizeof *to);
                std::memcpy(to + kv_heads, from + heads, kv_heads * sizeof *to);
            }
            at += 2 * heads;
        }
        for (uint32_t g = 0; g < geometry_.group_count; ++g) {
            if (binding.holds(g)) QUIRE_TRY(binding.write_amax(g, error));
        }
    }
    return Status{};
}

Status Cache::begin_migration(const MigrateTarget &target, Migration *m, bool *begun,
                              quire_error *error) {
    *begun = false;
    QUIRE_TRY(check_closed());
    QUIRE_TRY(poll(error));
    QUIRE_TRY(check_movable(target.desc));
    QUIRE_TRY(plan_target(target, m));
    QUIRE_TRY(check_counts(m->geometry));
    QUIRE_TRY(m->plan_shares(shards_));
    QUIRE_TRY(check_moves(*m));
    QUIRE_TRY(plan_blocks(m));
    m->info.blocks_short = m->relocation.blocks_short;
    if (m->info.blocks_short != 0) return Status{QUIRE_S_NO_BLOCKS, nullptr, 0, 0};
    bool copies_host = (target.desc.flags & QUIRE_MIGRATE_COPY_HOST_TIER) != 0;
    if (!copies_host) m->keep_host_tiers(&shards_);
    m->count(journal_, shards_);
    if (target.desc.moves != nullptr && target.desc.move_capacity < m->info.move_count) {
        return Status{QUIRE_S_INCOMPLETE, nullptr, 0, 0};
    }
    QUIRE_TRY(m->shards.create(scales_, calibrates_, error));
    QUIRE_TRY(carry_amax(m, error));
    *begun = migrating_ = true;
    return Status{};
}

void Cache::write_moves(const quire_migrate_desc &desc, const Migration &m) const {
    if (desc.moves == nullptr) return;
    auto *out = reinterpret_cast<uint8_t *>(desc.moves);
    auto write = [&](uint32_t group, uint32_t tier, const Array<uint32_t> &ids) {
        for (uint32_t b = 0; b < ids.size(); ++b) {
            if (ids[b] == kNone) continue;
            quire_block_move move{group, tier, static_cast<int32_t>(b),
                                  static_cast<int32_t>(ids[b])};
            std::memcpy(out, &move, sizeof move);
            out += desc.move_stride;
        }
    };
    for (uint32_t g = 0; g < geometry_.group_count; ++g) {
        write(g, QUIRE_TIER_DEVICE, m.relocation.ids[g]);
        write(g, QUIRE_TIER_HOST, m.relocation.host_ids[g]);
    }
}

// Nothing here can fail. Batches give their memory back first, while the bindings that they refer
// to still exist.
void Cache::switch_memory(Migration *m) {
    for (Batch *batch = batches_; batch != nullptr; batch = batch->next) batch->retire();
    m->shards.take_host_tiers();
    shards_.swap(m->shards);
    geometry_ = m->geometry;
    can_move_ = shards_.can_move();
    m->relocation.apply(&journal_);
    for (uint32_t i = 0; i < sequences_.size(); ++i) {
        if (!sequence_handles_.is_live(i)) continue;
        bool swapped = (sequences_[i].state.flags & Sequence::kSwapped) != 0;
        m->relocation.renumber_tables(&journal_, i, swapped);
    }
    ++counts_.migrations;
    counts_.bytes_migrated += m->info.bytes_moved + m->info.host_bytes_copied;
}

void Cache::end_migration(const MigrateTarget &target, const Status &copied, Migration *m) {
    migrating_ = false;
    if (!copied.ok()) return;
    write_moves(target.desc, *m);
    switch_memory(m);
}

}  // namespace quire
