// SPDX-License-Identifier: Apache-2.0

#include "core/steps/rollback.hpp"

namespace quire {

// Keeps only the first valid_tokens computed tokens. Drafts are forgotten: none was accepted yet.
void Rollback::lose(uint32_t sequence, uint32_t valid_tokens) {
    Sequence &s = books_.sequences[sequence];
    SequenceState &state = s.state;
    if (state.computed <= valid_tokens) return;
    state.flags |= Sequence::kLost;
    state.known -= state.drafts;
    state.drafts = state.lookahead = 0;
    if (state.first_unknown >= state.known) state.first_unknown = kNone;
    retreat_.lower_computed(sequence, valid_tokens < state.known ? valid_tokens : state.known,
                            valid_tokens);
}

// Marks the blocks that may still hold what the failed step's copies should have overwritten, and
// those that later steps copied it to. Each is zeroed when it is next taken. True if there are any.
bool Rollback::suspect_copies(const StepRecord &failed) {
    bool any = false;
    auto is_whole = [](const quire_block_copy &copy) {
        return copy.kind == QUIRE_COPY_ZERO || copy.kind == QUIRE_COPY_ON_WRITE ||
               copy.kind == QUIRE_COPY_SWAP_IN || copy.kind == QUIRE_COPY_SWAP_OUT;
    };
    for (const quire_block_copy &copy : failed.copies) {
        if (!is_whole(copy)) continue;
        books_.journal.target(copy).is_suspect = true;
        any = true;
    }
    if (!any) return false;
    for (uint64_t step = failed.number + 1; step < books_.timeline.next(); ++step) {
        const StepRecord &later = books_.records[Timeline::ring_index(step)];
        if (later.number != step) continue;
        for (const quire_block_copy &copy : later.copies) {
            if (!is_whole(copy)) continue;
            bool zeroes = copy.kind == QUIRE_COPY_ZERO;
            books_.journal.target(copy).is_suspect =
                !zeroes && books_.journal.source(copy).is_suspect;
        }
    }
    books_.journal.mark_suspects_mixed();
    return true;
}

// A suspect block whose slots a sequence has all written, in steps that did not fail, shows nothing
// of other tenants. That stays so when the sequence gives tokens up, until one of the steps fails.
void Rollback::cover_suspects() {
    for (uint32_t i = 0; i < books_.sequences.size(); ++i) {
        if (!books_.handles.is_live(i)) continue;
        for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
            if (!books_.geometry.groups[g].cross) cover_table(i, g);
        }
    }
}

void Rollback::cover_table(uint32_t sequence, uint32_t group) {
    const Sequence &s = books_.sequences[sequence];
    const BlockTable &t = books_.journal.table(sequence, group);
    bool swapped = (s.state.flags & Sequence::kSwapped) != 0;
    BlockPool &pool = swapped ? *books_.journal.host_pool(group) : books_.journal.pool(group);
    const BlockSize size = books_.geometry.groups[group].size;
    uint32_t full = size.block_of(s.state.computed);
    const Dependence depends = prefixes_.depends(s);
    for (uint32_t i = 0; i < full && i < t.length; ++i) {
        uint32_t block = t.ids.data[i];
        if (block == kNullBlock) continue;
        if (!pool[block].is_suspect || pool[block].is_covered) continue;
        pool.cover(block,
                   Cover{books_.timeline.next() - 1, depends.up_to(size.first_token(i + 1))});
    }
}

// The table's first block that is suspect and not completely written: its unwritten slots may hold
// another tenant's content. kNone if there is no such block. REQUIRES: cover_suspects().
uint32_t Rollback::first_suspect(uint32_t sequence, uint32_t group) const {
    const Sequence &s = books_.sequences[sequence];
    const BlockTable &t = books_.journal.table(sequence, group);
    bool swapped = (s.state.flags & Sequence::kSwapped) != 0;
    const BlockPool &pool = swapped ? *books_.journal.host_pool(group) : books_.journal.pool(group);
    uint32_t written = books_.geometry.groups[group].cross && s.state.computed != 0
                           ? s.cross_tokens
                           : s.state.computed;
    for (uint32_t i = books_.geometry.groups[group].size.block_of(written); i < t.length; ++i) {
        uint32_t block = t.ids.data[i];
        if (block == kNullBlock) continue;
        if (pool[block].is_suspect && !pool[block].is_covered) return i;
    }
    return kNone;
}

// Takes from the sequence what its first suspect block in the group may show.
void Rollback::lose_suspects_of(uint32_t sequence, uint32_t group) {
    Sequence &s = books_.sequences[sequence];
    if ((s.state.flags & Sequence::kSwapped) != 0 &&
        books_.journal.table(sequence, group).length == 0)
        return;
    uint32_t first = first_suspect(sequence, group);
    if (first == kNone) return;
    const Geometry &geometry = books_.geometry;
    uint32_t valid =
        geometry.groups[group].cross ? 0 : geometry.groups[group].size.first_token(first);
    // Tokens that are still to be moved may lie there.
    bool moves_away = s.state.move_count != 0 && s.covered() > valid;
    if (moves_away && s.state.move_begin < valid) valid = s.state.move_begin;
    if (s.state.computed > valid) {
        books_.counts.sequences_lost += s.marked != books_.call;
        lose(sequence, valid);
        return;
    }
    uint32_t room = valid > s.state.known ? valid - s.state.known : 0;
    if (s.state.lookahead > room) s.state.lookahead = room;
    retreat_.release_from(sequence, valid, kNone);
    books_.touched.touch(sequence);
}

// A later step may have handed out a block that the failed one should have zeroed. Zeroing it now
// would destroy what its holder has written since, so the holder computes that again, in a block
// that is zeroed.
void Rollback::lose_suspects() {
    for (uint32_t i = 0; i < books_.sequences.size(); ++i) {
        if (!books_.handles.is_live(i)) continue;
        for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
            books_.sequences[i].is_lease ? lose_suspects_of_lease(i, g) : lose_suspects_of(i, g);
        }
    }
}

// Which slots a lease's caller has written is known only of a block that it published.
void Rollback::lose_suspects_of_lease(uint32_t lease, uint32_t group) {
    Sequence &s = books_.sequences[lease];
    const BlockTable &t = books_.journal.table(lease, group);
    const BlockPool &pool = books_.journal.pool(group);
    uint64_t newest = books_.timeline.next() - 1;  // any step may touch the block
    for (uint32_t i = t.length; i-- > 0;) {
        const Block &b = pool[t.ids.data[i]];
        if (!b.is_suspect || b.is_covered) continue;
        if (b.node != kNone && books_.journal.leases_only()) {
            books_.journal.forget_block(b.node);
        } else if (b.node != kNone) {
            books_.journal.forget(b.node);
        }
        books_.journal.lose_entry(&s, lease, group, i, newest);
        --books_.namespaces[s.name_space].blocks_held;
        ++s.blocks_lost;
        books_.touched.touch(lease);
    }
}

// Counts the blocks of leases that are about to be withdrawn.
void Rollback::count_withdrawn(uint64_t step) {
    for (uint32_t i = 0; i < books_.sequences.size() && books_.leases != 0; ++i) {
        Sequence &s = books_.sequences[i];
        if (!books_.handles.is_live(i) || !s.is_lease) continue;
        for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
            const BlockTable &t = books_.journal.table(i, g);
            for (uint32_t k = 0; k < t.length; ++k) {
                const Block &b = books_.journal.pool(g)[t.ids.data[k]];
                if (b.node != kNone && books_.journal.node_depends(b.node, step)) ++s.blocks_lost;
            }
        }
    }
}

void Rollback::fail_step(StepRecord *failed) {
    const StepRecord &record = *failed;
    failed->failed = true;
    if (books_.is_stopped) return;  // nothing that it holds is used any more
    count_withdrawn(record.number);
    bool any_suspect = suspect_copies(record);
    any_suspect |= books_.journal.uncover(record.number);
    uint32_t ring = Timeline::ring_index(record.number);
    ++books_.call;
    for (const Change &change : record.changes) {
        if (books_.handles.handle(change.sequence) == change.handle)
            books_.sequences[change.sequence].marked = books_.call;
    }
    for (uint32_t i = 0; i < books_.sequences.size(); ++i) {
        const Sequence &s = books_.sequences[i];
        if (!books_.handles.is_live(i) || s.pending_step[ring] != record.number) continue;
        bool of_the_step = s.marked == books_.call;
        if (s.state.computed <= s.pending_position[ring]) continue;
        books_.counts.sequences_lost += !of_the_step;
        lose(i, s.pending_position[ring]);
    }
    if (any_suspect) {
        if (books_.journal.can_cover()) cover_suspects();
        if (books_.journal.may_show_others()) lose_suspects();
        books_.journal.clear_suspects();
    }
    withdrawal_.withdraw_published(record.number);
}

}  // namespace quire
