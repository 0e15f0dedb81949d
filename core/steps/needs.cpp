// SPDX-License-Identifier: Apache-2.0

#include "core/steps/needs.hpp"

namespace quire {

// True if the sequence may write at `position` into the block that is there.
bool Needs::tail_is_writable(uint32_t sequence, uint32_t group, uint32_t position) {
    const BlockTable &t = books_.journal.table(sequence, group);
    const BlockSize size = books_.geometry.groups[group].size;
    uint32_t index = size.block_of(position);
    if (t.writable == index) return true;
    uint32_t block = t.ids.data[index];
    if (block == kNullBlock) return false;
    const Block &b = books_.journal.pool(group)[block];
    if (b.node != kNone) return false;
    const bool is_alone = b.refs == 1 && b.touch < books_.records.open().barrier;
    // To write a state is to overwrite it, so no other sequence may read it, and no work on another
    // queue that copies it out for one that has let go of it.
    if (books_.geometry.groups[group].recurrent) return is_alone;
    uint32_t slot = size.slot_of(position);
    if (b.owner == sequence && slot >= b.frozen_slots) return true;
    return is_alone;  // it takes it over
}

// Counts the blocks that the item may give back before it takes any: those that its window or chunk
// has passed by its first position, so that none of its tokens reads them. A block that only its
// later tokens have passed is still read by the earlier ones, and stays. The step can use such a
// block if no other table names it and all work that touches it runs before the step. The
// sequence's own last step does: the step waits for it in any case (wait_for_other_queues). `touch`
// covers the work of others.
void Needs::measure_passed(Plan *plan, uint32_t group) const {
    const GroupGeometry &g = books_.geometry.groups[group];
    const BlockTable &t = books_.journal.table(plan->sequence, group);
    plan->null_front[group] = t.null_front;
    plan->passed[group] = plan->freed[group] = 0;
    if (!plan->reuses || !g.windowed) [[likely]]
        return;
    uint32_t end = g.first_visible_block(plan->position);
    uint32_t i = t.null_front > g.kept_blocks ? t.null_front : g.kept_blocks;
    if (end > t.length) end = t.length;
    if (i >= end) return;
    plan->null_front[group] = end;
    plan->passed[group] = end - i;
    for (; i < end && !plan->swapped; ++i) {
        const Block &b = books_.journal.pool(group)[t.ids.data[i]];
        if (b.refs == 1 && b.touch < books_.records.open().barrier) ++plan->freed[group];
    }
}

// Counts the blocks of the prefix that the table will name.
void Needs::measure_found(Plan *plan, uint32_t group) const {
    const GroupGeometry &geometry = books_.geometry.groups[group];
    const BlockPool &pool = books_.journal.pool(group);
    const PrefixTree &tree = books_.journal.tree();
    const uint32_t per_span = geometry.per_span, entry = tree.first_entry(group);
    uint32_t first =
        plan->swapped ? plan->null_front[group] : geometry.first_visible_block(plan->position);
    const uint32_t *blocks = nullptr, *next = plan->found.nodes;  // of block i's node, the next one
    for (uint32_t i = 0, k = per_span; i < plan->hit_blocks * per_span; ++i, ++k) {
        if (k == per_span) blocks = tree.blocks(*next++) + entry, k = 0;
        uint32_t block = blocks[k];
        if (block == kNullBlock || geometry.is_null(i, first)) continue;
        if (is_on_host(block)) {
            bool has_own = plan->swapped || plan->loaded_blocks != 0;  // a copy there
            plan->promoted[group] += has_own ? 0 : 1;
            continue;
        }
        ++plan->shared[group];
        const Block &b = pool[block];
        bool counted = b.state == BlockState::cached && b.touch < books_.records.open().barrier;
        plan->from_cached[group] += counted ? 1 : 0;
    }
}

// True if the item ends in another block than the state is in that it goes on from.
bool Needs::moves_state(const Plan &plan, uint32_t group) const {
    const uint32_t length = books_.journal.table(plan.sequence, group).length;
    return StateMove(books_.geometry.groups[group], plan.position, plan.compute, plan.room_tokens,
                     length)
        .crosses;
}

// length: of the table after hits and what is swapped in.
void Needs::measure_state(Plan *plan, uint32_t group, uint32_t length) const {
    const StateMove move(books_.geometry.groups[group], plan->position, plan->compute,
                         plan->room_tokens, length);
    plan->length[group] = move.length;
    plan->fresh[group] += move.fresh;
    plan->takes = plan->takes || move.crosses || move.fresh != 0 || plan->copy_tail[group];
}

void Needs::measure(Plan *plan) {
    plan->takes = plan->admission || books_.sequences[plan->sequence].state.move_count != 0;
    uint32_t end = plan->position + plan->compute;
    uint32_t reserved = end == plan->known ? end + plan->lookahead : end;
    plan->room_tokens = reserved;
    uint32_t cross_tokens = books_.sequences[plan->sequence].cross_tokens;
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        const GroupGeometry &group = books_.geometry.groups[g];
        const BlockTable &t = books_.journal.table(plan->sequence, g);
        uint32_t length = t.length;
        plan->fresh[g] = plan->shared[g] = plan->from_cached[g] = plan->promoted[g] = 0;
        plan->copy_tail[g] = false;
        measure_passed(plan, g);
        if (plan->admission) [[unlikely]] {
            measure_found(plan, g);
            if (plan->swapped) {
                plan->fresh[g] = group.held_entries(length, plan->null_front[g]) - plan->shared[g];
            } else if (plan->loaded_blocks != 0) {
                length = plan->loaded_blocks;
                plan->fresh[g] =
                    group.held_entries(length, group.first_visible_block(plan->position)) -
                    plan->shared[g];
            } else {
                length = group.cross ? 0 : plan->hit_blocks * group.per_span;
                plan->fresh[g] = plan->promoted[g];
                plan->copy_tail[g] = plan->part_tokens != 0 && !group.cross;
            }
        } else if (!group.size.begins_at(plan->position) && !group.cross &&
                   (group.state_interval == 0 || !moves_state(*plan, g))) {
            plan->copy_tail[g] = !tail_is_writable(plan->sequence, g, plan->position);
        }
        if (group.state_interval != 0) [[unlikely]] {
            measure_state(plan, g, length);
            continue;
        }
        uint32_t target = books_.geometry.table_length(g, reserved, cross_tokens);
        plan->length[g] = target > length ? target : length;
        plan->fresh[g] += plan->length[g] - length;
        // Passed blocks are recorded too, even if a victim's blocks left the item nothing to take.
        plan->takes =
            plan->takes || plan->fresh[g] != 0 || plan->copy_tail[g] || plan->passed[g] != 0;
    }
}

Short Needs::quota_shortage(const Plan &plan) const {
    const Namespace &ns = books_.namespaces[books_.sequences[plan.sequence].name_space];
    if (ns.quota_blocks == 0) [[likely]]
        return Short{};
    uint64_t wanted = 0, returned = 0;
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        wanted += plan.fresh[g] + plan.shared[g];
        returned += plan.swapped ? 0 : plan.passed[g];
    }
    uint64_t over = ns.over_quota(ns.blocks_held + wanted - returned);
    return over != 0 ? Short{static_cast<uint32_t>(over), QUIRE_WAIT_QUOTA} : Short{};
}

Short Needs::shortage(const Plan &plan) const {
    uint64_t barrier = books_.records.open().barrier;
    Short out;
    const uint32_t pools = books_.journal.pool_count();
    const uint32_t each = pools != 1 ? 1 : books_.geometry.group_count;  // groups of a pool
    for (uint32_t p = 0; p < pools; ++p) {
        const BlockPool &pool = books_.journal.pool(p);
        uint32_t need = 0, freed = 0, from_cached = 0;
        for (uint32_t g = p; g < p + each; ++g) {
            need += plan.fresh[g] + (plan.copy_tail[g] ? 1 : 0);
            freed += plan.freed[g];
            from_cached += plan.from_cached[g];
        }
        if (need == 0 && !plan.admission) continue;
        uint32_t available = pool.available(barrier) + freed - from_cached;
        uint32_t reason = QUIRE_WAIT_POOL;
        if (need <= available && plan.admission && pool.held_count() != 0) {
            // Newcomers must leave what running sequences will need soon.
            available = available > watermark_ ? available - watermark_ : 0;
            reason = QUIRE_WAIT_WATERMARK;
        }
        if (need > available && need - available > out.blocks) {
            out = Short{need - available, reason};
        }
    }
    return out.reason != 0 ? out : quota_shortage(plan);
}

}  // namespace quire
