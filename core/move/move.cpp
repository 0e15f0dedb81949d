// SPDX-License-Identifier: Apache-2.0

#include "core/move/move.hpp"

#include "core/device/magnitudes.hpp"

namespace quire {

// Plans the target as if the description were a cache's, as far as sizes and flags go.
Status Move::plan_target(const MigrateTarget &target, const RankRules &rules, Migration *m) const {
    const quire_migrate_desc &given = target.desc;
    quire_cache_desc desc{};
    desc.flags = rules.cache_flags;
    desc.blocks = given.blocks;
    desc.pool_bytes = given.pool_bytes;
    desc.pool_fraction = given.pool_fraction;
    desc.reserve_bytes = given.reserve_bytes;
    desc.host_bytes = given.host_bytes;
    desc.host_blocks = given.host_blocks;
    bool stays = given.blocks == 0 && given.pool_bytes == 0 && given.pool_fraction == 0;
    m->geometry = books_.geometry;
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        GroupGeometry &group = m->geometry.groups[g];
        if (given.group_blocks != nullptr && given.group_blocks[g] != 0) {
            group.blocks = given.group_blocks[g];
        } else if (!stays) {
            group.blocks = 0;
        }
    }
    uint32_t host_blocks = books_.geometry.groups[0].host_blocks;  // the same in each group
    if (given.host_bytes == 0 && given.host_blocks == 0 && host_blocks != 0) {
        desc.host_blocks = host_blocks - 1;
    }
    QUIRE_TRY(m->shards.divide(desc, target.shards, given.shard_count, books_.places.data(),
                               &m->geometry));
    if (!books_.journal.keeps_on_host() || m->geometry.groups[0].host_blocks != 0) return Status{};
    return fail(QUIRE_E_ARG,
                "the target would have no host tier, which QUIRE_CACHE_HOST_PREFIXES needs: give "
                "host_bytes for one block or more");
}

Status Move::check_movable(const quire_migrate_desc &desc) const {
    if (!books_.timeline.idle()) {
        return fail(QUIRE_E_BUSY,
                    "a step is committed and not done: finish it, or call "
                    "quire_cache_migrate_wait, which waits for finished steps");
    }
    if (books_.has_memory && desc.shard_count == 0) {
        return fail(QUIRE_E_ARG, "shard_count is 0: a cache with memory needs a device");
    }
    if (!books_.has_memory && desc.shard_count != 0) {
        return fail(QUIRE_E_ARG, "the cache has no memory: shard_count must be 0");
    }
    if (books_.geometry.one_pool && desc.pool_bytes != 0) {
        return fail(QUIRE_E_ARG,
                    "pool_bytes is {}: the blocks of QUIRE_CACHE_ONE_POOL have no size of their "
                    "own, so give blocks",
                    desc.pool_bytes);
    }
    if (!books_.has_memory && (desc.host_bytes != 0 || desc.pool_fraction != 0)) {
        return fail(QUIRE_E_ARG,
                    "host_bytes and pool_fraction need a device: give counts of blocks");
    }
    return Status{};
}

// The other ranks have the same block ids, and no log can tell them about different ones.
Status Move::check_counts(const Geometry &target) const {
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        const GroupGeometry &now = books_.geometry.groups[g], &then = target.groups[g];
        if (now.blocks == then.blocks && now.host_blocks == then.host_blocks) continue;
        return fail(QUIRE_E_UNSUPPORTED,
                    "group {} would change its number of blocks or host blocks: a leader or "
                    "follower must keep both, because the other ranks use the same ids",
                    g);
    }
    return Status{};
}

// Accepted tokens of a tree are moved by a later step, so the target must be able to move them.
Status Move::check_moves(const Migration &m) const {
    bool can_move = true;
    for (uint32_t i = 0; i < m.shards.planned_count(); ++i) {
        can_move = can_move && m.shards.planned_device(i)->api->move_tokens != nullptr;
    }
    for (uint32_t i = 0; i < books_.sequences.size() && !can_move; ++i) {
        if (!books_.handles.is_live(i) || books_.sequences[i].state.move_count == 0) continue;
        return fail(QUIRE_E_UNSUPPORTED,
                    "a sequence has accepted tokens that are still to be moved, which a target's "
                    "backend cannot do: run a step of it first");
    }
    return Status{};
}

// A follower's pools hold nothing: its tables name blocks, and which others its leader has cached
// or is loading it does not know. So every block goes along, with the id that it has.
Status Move::plan_blocks(const RankRules &rules, Migration *m) {
    QUIRE_TRY(m->relocation.assign(books_.journal, m->geometry));
    if (rules.refs == nullptr) return Status{};
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        for (Array<uint32_t> *ids : {&m->relocation.ids[g], &m->relocation.host_ids[g]}) {
            for (uint32_t b = 0; b < ids->size(); ++b) (*ids)[b] = b != kNullBlock ? b : kNone;
        }
    }
    return Status{};
}

// The target's books. They come after its device memory, because they take time and host memory
// for every block of it, and a device that is too small says so at once.
Status Move::make_books(const RankRules &rules, Migration *m) {
    QUIRE_TRY(m->relocation.make_pools(&books_.journal, m->geometry));
    bool has_tree = rules.refs == nullptr;
    return !has_tree || books_.journal.reserve_nodes(m->geometry) ? Status{} : no_host_memory();
}

Status Move::begin(const MigrateTarget &target, const RankRules &rules, Migration *m, bool *begun,
                   quire_error *error) {
    *begun = false;
    QUIRE_TRY(check_movable(target.desc));
    QUIRE_TRY(rules.stopped);
    QUIRE_TRY(plan_target(target, rules, m));
    if (rules.cache_flags != 0) QUIRE_TRY(check_counts(m->geometry));
    QUIRE_TRY(m->plan_shares(books_.shards));
    QUIRE_TRY(check_moves(*m));
    QUIRE_TRY(plan_blocks(rules, m));
    m->info.blocks_short = m->relocation.blocks_short;
    if (m->info.blocks_short != 0) return Status{QUIRE_S_NO_BLOCKS, nullptr, 0, 0};
    bool copies_host = (target.desc.flags & QUIRE_MIGRATE_COPY_HOST_TIER) != 0;
    if (!copies_host) m->keep_host_tiers(&books_.shards);
    m->count(books_.journal, books_.shards, rules.refs);
    if (target.desc.moves != nullptr && target.desc.move_capacity < m->info.move_count) {
        return Status{QUIRE_S_INCOMPLETE, nullptr, 0, 0};
    }
    QUIRE_TRY(m->shards.create(books_.scales, books_.calibrates, error));
    if (books_.calibrates) {
        Magnitudes measured(&books_.host, books_.geometry, books_.places.data(), &books_.shards);
        QUIRE_TRY(measured.carry_to(&m->shards, error));
    }
    QUIRE_TRY(make_books(rules, m));
    *begun = true;
    return Status{};
}

void Move::write_moves(const quire_migrate_desc &desc, const Migration &m) const {
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
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        write(g, QUIRE_TIER_DEVICE, m.relocation.ids[g]);
        write(g, QUIRE_TIER_HOST, m.relocation.host_ids[g]);
    }
}

// Nothing here can fail. Batches give their memory back first, while the bindings that they refer
// to still exist.
void Move::switch_memory(Migration *m) {
    books_.batches.invalidate();
    m->shards.take_host_tiers();
    books_.shards.swap(m->shards);
    books_.geometry = m->geometry;
    books_.can_move = books_.shards.can_move();
    m->relocation.apply(&books_.journal);
    for (uint32_t i = 0; i < books_.sequences.size(); ++i) {
        if (!books_.handles.is_live(i)) continue;
        bool swapped = (books_.sequences[i].state.flags & Sequence::kSwapped) != 0;
        m->relocation.renumber_tables(&books_.journal, i, swapped);
    }
    ++books_.counts.migrations;
    books_.counts.bytes_migrated += m->info.bytes_moved + m->info.host_bytes_copied;
}

void Move::end(const MigrateTarget &target, Migration *m) {
    write_moves(target.desc, *m);
    switch_memory(m);
}

}  // namespace quire
