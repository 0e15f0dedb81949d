// SPDX-License-Identifier: Apache-2.0
//
// How the open step's edits are taken back, become final, or doom what was built on them.

#include "core/blocks/journal.hpp"

namespace quire {

namespace {

constexpr uint32_t kSettleAhead = 16;  // edits between a prefetch of a node and its use

template <typename Taking>
void take_back(BlockPool *pool, const Taking &edit) {
    Block &b = (*pool)[edit.block];
    b.owner = edit.owner;
    b.frozen_slots = edit.frozen_slots;
    pool->origin(edit.block).tenant = edit.tenant;
}

void set_group(BlockPool *pool, uint32_t block, uint8_t group) {
    (*pool)[block].group = group & 0xF;
}

// If others let go of the block since, their stamp and touch stay, even when an earlier edit of the
// same block is undone after this one.
template <typename Drop>
void undo_drop(BlockPool *pool, const Drop &edit) {
    uint64_t stamp = (*pool)[edit.block].stamp;
    bool is_last = stamp == edit.new_stamp;
    pool->undo_drop_ref(edit.block, is_last ? edit.stamp : stamp);
    if (is_last) pool->undo_raise_touch(edit.block, edit.old_touch);
}

void undo_named(const NamedBlock &before, BlockPool *pool, uint32_t block) {
    Block &b = (*pool)[block];
    b.node = kNone;
    b.frozen_slots = before.frozen_slots;
    b.is_covered = before.is_covered;
    pool->origin(block).ready = before.ready;
    pool->origin(block).depends = before.depends;
}

// A dropped item that made the node took it away from the block, and the rest is left to undo.
void undo_unnamed(const NamedBlock &before, BlockPool *pool, uint32_t block) {
    if ((*pool)[block].node == kNone) undo_named(before, pool, block);
}

}  // namespace

// Caches the block again if its node still lacks it. Meanwhile the node may have been forgotten,
// may have got another block in this group, or may have lost a block in another group to an item
// that stays. Then the block becomes free, unless the whole step is undone (undo_displaced).
void Journal::undo_evict(Evict *edit) {
    BlockPool &pool = pool_of(*edit);
    uint32_t *named = &tree_.change_blocks(edit->node)[edit->entry];
    take_back(&pool, *edit);
    set_group(&pool, edit->block, edit->group);
    pool[edit->block].is_demoted = edit->was_demoted;
    if (edit->is_lost) --evictions_;
    bool is_there = tree_.generation(edit->node) == edit->generation;
    bool wanted = is_there && *named == kNullBlock;
    if (wanted) {
        *named = edit->named();
        wanted = !edit->unlinked || tree_.whole(edit->node);
        if (!wanted) *named = kNullBlock;
    }
    edit->displaced = is_there && !wanted;
    if (!wanted) {
        // The undo of a demotion counts on the block.
        if (!edit->was_demoted) pool.undo_take_free(edit->block, false);
        return;
    }
    name_again(*edit);
    if (edit->unlinked) tree_.relink(edit->node);
    pool.undo_claim(edit->block, edit->hint);
}

void Journal::name_again(const Evict &edit) {
    BlockPool &pool = pool_of(edit);
    pool[edit.block].node = edit.node;
    pool.origin(edit.block).ready = edit.ready;
    pool.origin(edit.block).depends = edit.depends;
}

// A node that several items took blocks from is whole again once the last of them is undone.
void Journal::undo_displaced(StepEdits *step, uint64_t edit_count) {
    Edit *edits = step->edits.data();
    auto each_displaced = [&](auto body) {
        for (uint64_t i = edit_count; i-- > 0;) {
            auto *edit = std::get_if<Evict>(&edits[i]);
            if (edit == nullptr || !edit->displaced) continue;
            body(edit, &tree_.change_blocks(edit->node)[edit->entry]);
        }
    };
    each_displaced([&](Evict *edit, uint32_t *named) {
        // If the node was forgotten or names another block, this one stays free.
        edit->displaced = tree_.generation(edit->node) == edit->generation && *named == kNullBlock;
        if (edit->displaced) *named = edit->named();
    });
    each_displaced([&](Evict *edit, uint32_t *named) {
        if (tree_.whole(edit->node)) return;
        *named = kNullBlock;
        edit->displaced = false;
    });
    each_displaced([&](Evict *edit, uint32_t *) {
        name_again(*edit);
        if (!tree_.linked(edit->node)) tree_.relink(edit->node);
        BlockPool &pool = pool_of(*edit);
        // A victim of the step may hold it again.
        if (pool[edit->block].state != BlockState::held) pool.cache_unused(edit->block);
    });
}

void Journal::free_bare(const StepEdits &step, uint64_t edit_count) {
    const Edit *edits = step.edits.data();
    for (uint64_t i = 0; i < edit_count && !any_full_; ++i) {
        const auto *adopt = std::get_if<Adopt>(&edits[i]);
        if (adopt != nullptr) tree_.free_if_bare(adopt->node);
        const auto *publish = std::get_if<PublishNode>(&edits[i]);
        if (publish == nullptr || publish->parent == kNone) continue;
        if (tree_.generation(publish->parent) == publish->parent_generation)
            tree_.free_if_bare(publish->parent);
    }
}

void Journal::undo_adopt(const Adopt &edit) {
    uint32_t *named = &tree_.change_blocks(edit.node)[edit.entry];
    BlockPool *pool = pools_[edit.group];
    if (*named != edit.block) return undo_unnamed(edit.before, pool, edit.block);
    *named = kNullBlock;
    undo_named(edit.before, pool, edit.block);
}

void Journal::undo_replace(const Replace &edit) {
    BlockPool &pool = *pools_[edit.group], &olders = pool_of(edit.group, edit.older);
    uint32_t older = number_of(edit.older);
    uint32_t *named = &tree_.change_blocks(edit.node)[edit.entry];
    olders.unpark_cached(older, edit.hint);
    if (*named == edit.block) {
        undo_named(edit.before, &pool, edit.block);
        *named = edit.older;
    } else {
        undo_unnamed(edit.before, &pool, edit.block);
        olders[older].node = edit.node;
        release_named(edit.group, edit.older);
    }
}

void Journal::undo_shape(const TableShape &edit, Sequence *s) {
    BlockTable &t = table(edit.sequence, edit.group);
    t.length = edit.length;
    t.null_front = edit.null_front;
    t.writable = kNone;
    ++t.epoch;
    s->blocks_held = edit.blocks_held;
}

void Journal::undo_edit(Edit *any_edit, Sequence *s) {
    std::visit(EditVisitor{
                   [&](TakeFree &edit) {
                       pools_[edit.group]->undo_take_free(edit.block, edit.is_read);
                       take_back(pools_[edit.group], edit);
                       set_group(pools_[edit.group], edit.block, edit.old_group);
                   },
                   [&](Evict &edit) { undo_evict(&edit); },
                   [&](AddRef &edit) {
                       pools_[edit.group]->undo_add_ref(edit.block,
                                                        edit.was_cached ? edit.hint : kNone);
                   },
                   [&](DropRef &edit) {
                       undo_drop(pools_[edit.group], edit);
                       if (edit.owner != kNone)
                           (*pools_[edit.group])[edit.block].owner = edit.owner;
                   },
                   [&](TableEntry &edit) {
                       BlockTable &t = table(edit.sequence, edit.group);
                       t.ids.data[edit.index] = edit.block;
                       ++t.epoch;
                   },
                   [&](TableShape &edit) { undo_shape(edit, s); },
                   [&](PublishNode &edit) {
                       detach(edit.node);
                       tree_.unlink(edit.node);
                       if (!any_full_) edit.parent = tree_.parent(edit.node);
                       if (edit.parent != kNone)
                           edit.parent_generation = tree_.generation(edit.parent);
                       tree_.free_node(edit.node);
                   },
                   [&](Adopt &edit) { undo_adopt(edit); },
                   [&](Replace &edit) { undo_replace(edit); },
                   [&](ChangeOwner &edit) {
                       Block &b = (*pools_[edit.group])[edit.block];
                       b.owner = edit.owner;
                       b.frozen_slots = edit.frozen_slots;
                   },
                   [&](TakeHost &edit) {
                       host_pools_[edit.group]->undo_take_free(edit.block, edit.is_read);
                   },
                   [&](DropHost &edit) { undo_drop(host_pools_[edit.group], edit); },
                   [&](Demote &edit) { undo_demote(edit); },
                   [&](Promote &edit) { undo_promote(edit); },
                   [&](Hold &edit) { undo_hold(edit, s); },
               },
               *any_edit);
}

void Journal::undo(StepEdits *step, const EditRange &range, Sequence *s) {
    pause();
    for (uint32_t i = range.edit_end; i > range.first_edit; --i) {
        undo_edit(&step->edits[i - 1], s);
    }
    for (uint32_t i = range.first_copy; i < range.copy_end; ++i) {
        step->copies[i].kind = kVoidCopy;
    }
}

// Fetches what settling the eviction some edits further on reads, in two goes: its node, then the
// node's neighbours. Evictions come in runs.
void Journal::prefetch_settling(const StepEdits &step, uint32_t i, uint32_t end) const {
    auto evicted = [&](uint32_t ahead) {
        return i + ahead < end ? std::get_if<Evict>(&step.edits[i + ahead]) : nullptr;
    };
    if (const Evict *later = evicted(kSettleAhead)) {
        tree_.prefetch_node(later->node);
        tree_.prefetch_links(later->node);
    }
    if (const Evict *later = evicted(kSettleAhead / 2)) tree_.prefetch_neighbours(later->node);
}

void Journal::settle_evict(const Evict &edit) {
    if (edit.is_loss && watch_ != nullptr) [[unlikely]]
        watch_->note_loss();
    if (tree_.generation(edit.node) != edit.generation) return;  // forgotten, or freed just now
    if (!tree_.linked(edit.node)) {
        if (!tree_.is_bare(edit.node)) {
            note_losses(edit.node, 0, group_count_);
            detach(edit.node);
        }
        tree_.free_node(edit.node);
    } else if (!any_full_) {
        tree_.free_if_bare(edit.node);
    }
}

void Journal::settle(const StepEdits &step, const EditRange &range) {
    pause();
    for (uint32_t i = range.first_edit; i < range.edit_end; ++i) {
        const Edit &edit = step.edits[i];
        if (const auto *evict = std::get_if<Evict>(&edit)) {
            prefetch_settling(step, i, range.edit_end);
            settle_evict(*evict);
        } else if (const auto *drop = std::get_if<DropRef>(&edit)) {
            pools_[drop->group]->raise_touch(drop->block, drop->touch);
        } else if (const auto *host = std::get_if<DropHost>(&edit)) {
            host_pools_[host->group]->raise_touch(host->block, host->touch);
        } else if (const auto *replace = std::get_if<Replace>(&edit)) {
            release_named(replace->group, replace->older);
        } else if (const auto *demote = std::get_if<Demote>(&edit)) {
            settle_demote(*demote, step.number);
        } else if (const auto *promote = std::get_if<Promote>(&edit)) {
            host_pools_[promote->group]->raise_touch(promote->older, step.number);
        }
    }
}

void Journal::mark_doomed(const StepEdits &step, const EditRange &range, bool doomed) {
    step.each_edit(range, [&](const Edit &any_edit) {
        std::visit(
            EditVisitor{
                [&](const DropRef &edit) { (*pools_[edit.group])[edit.block].given_up = doomed; },
                [&](const DropHost &edit) {
                    (*host_pools_[edit.group])[edit.block].given_up = doomed;
                },
                [&](const Adopt &edit) { (*pools_[edit.group])[edit.block].named = doomed; },
                [&](const Replace &edit) {
                    pool_of(edit.group, edit.older)[number_of(edit.older)].given_up = doomed;
                    (*pools_[edit.group])[edit.block].named = doomed;
                },
                [&](const Demote &edit) {
                    (*host_pools_[edit.group])[edit.block].given_up = doomed;
                },
                [&](const Promote &edit) {
                    (*host_pools_[edit.group])[edit.older].given_up = doomed;
                    (*pools_[edit.group])[edit.block].named = doomed;
                },
                [](const auto &) {},
            },
            any_edit);
    });
}

// True if the edit rests on what a doomed one did to its block. These kinds can:
//   TakeFree, Evict, TakeHost   the block was free or cached because a reference was dropped
//   Replace                     likewise: no table named the node's older block any more
//   Promote                     a doomed one demoted what it brings back
//   ChangeOwner                 it is written in place because a reference to it was dropped
//   AddRef                      it was found because a doomed one published it, or cached
// The others concern only the sequence itself, which has one item, or (PublishNode, Adopt) a place
// in the tree, which Prefixes::republish repairs.
bool Journal::rests_on_doomed(const Edit &any_edit) const {
    auto given_up = [&](uint32_t group, uint32_t block) -> bool {
        return named(group, block).given_up;
    };
    return std::visit(
        EditVisitor{
            [&](const AddRef &edit) -> bool {
                const Block &b = (*pools_[edit.group])[edit.block];
                return b.named || (edit.was_cached && b.given_up);
            },
            [&](const TakeFree &edit) { return given_up(edit.group, edit.block); },
            [&](const Evict &edit) { return given_up(edit.group, edit.named()); },
            [&](const Replace &edit) { return given_up(edit.group, edit.older); },
            [&](const Promote &edit) { return given_up(edit.group, edit.older | kOnHost); },
            [&](const ChangeOwner &edit) { return given_up(edit.group, edit.block); },
            [&](const TakeHost &edit) -> bool {
                return (*host_pools_[edit.group])[edit.block].given_up;
            },
            [](const auto &) { return false; },
        },
        any_edit);
}

bool Journal::rests_on_doomed(const StepEdits &step, const EditRange &range) const {
    for (uint32_t i = range.first_edit; i < range.edit_end; ++i) {
        if (rests_on_doomed(step.edits[i])) return true;
    }
    return false;
}

}  // namespace quire
