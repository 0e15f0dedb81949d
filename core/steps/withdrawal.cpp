// SPDX-License-Identifier: Apache-2.0
//
// Which sequences stop being findable when the prefix tree's nodes run short.
//
// A match is compared token by token from the first token on, so a block can be found only while
// the nodes of all tokens before it exist. If every group has a window, the blocks of those nodes
// are long gone, and a long sequence keeps far more nodes than the pool has blocks. The tree has
// five times as many nodes as the pool has blocks. When fewer are free than the next step may
// publish, these give way in turn, until half as many again are free:
//   1  sequences that keep more nodes without a block than the pool has blocks
//   2  nodes that no sequence uses, the least recently used first
//   3  the other sequences, the longest first
// A sequence that gives way goes on as before, but publishes nothing any more. A hash never stands
// in for tokens that are not there.

#include "core/steps/withdrawal.hpp"

namespace quire {

// Calls body(node, origin) for each block that a node names, on the device and in the host tier.
template <typename Body>
void Withdrawal::each_published(Body body) {
    for (uint32_t p = 0; p < books_.journal.pool_count(); ++p) {
        for (BlockPool *pool : {&books_.journal.pool(p), books_.journal.host_pool(p)}) {
            for (uint32_t b = 1; pool != nullptr && b < pool->block_count(); ++b) {
                if ((*pool)[b].node != kNone) body((*pool)[b].node, pool->origin(b));
            }
        }
    }
}

void Withdrawal::forget_all() {
    Journal &journal = books_.journal;
    each_published([&](uint32_t node, const BlockOrigin &) {
        journal.leases_only() ? journal.forget_block(node) : void(journal.forget(node));
    });
    // The tokens computed so far come from the old weights, so blocks that build on them must not
    // be found.
    for (uint32_t i = 0; i < books_.sequences.size(); ++i) {
        SequenceState &state = books_.sequences[i].state;
        if (!books_.handles.is_live(i) || state.computed == 0) continue;
        state.flags |= Sequence::kUnpublished;
        books_.touched.touch(i);
    }
}

// The node of the block in which the sequence goes on, if only this sequence holds the block; kNone
// if it may write there, or begins another one.
uint32_t Withdrawal::published_tail(uint32_t sequence, uint32_t group) const {
    const GroupGeometry &geometry = books_.geometry.groups[group];
    const uint32_t computed = books_.sequences[sequence].state.computed;
    if (geometry.cross || geometry.size.begins_at(computed)) return kNone;
    const BlockTable &t = books_.journal.table(sequence, group);
    const Block &b = books_.journal.pool(group)[t.ids.data[geometry.size.block_of(computed)]];
    return b.refs == 1 ? b.node : kNone;
}

void Withdrawal::unpublish_tail(uint32_t sequence) {
    const Sequence &s = books_.sequences[sequence];
    if ((s.state.flags & Sequence::kSwapped) != 0) return;
    uint32_t held[kMaxGroups] = {}, tails[kMaxGroups] = {};  // by pool
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        const BlockTable &t = books_.journal.table(sequence, g);
        const uint32_t p = books_.geometry.pool_of(g);
        held[p] += books_.geometry.groups[g].held_entries(t.length, t.null_front);
        tails[p] += published_tail(sequence, g) != kNone ? 1 : 0;
    }
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        const uint32_t p = books_.geometry.pool_of(g);
        const BlockPool &pool = books_.journal.pool(g);
        if (pool.held_count() != held[p] || pool.available(kNoBarrier) >= tails[p]) continue;
        const uint32_t node = published_tail(sequence, g);
        if (node == kNone) continue;
        if (books_.geometry.any_full || !books_.journal.tree().has_children(node))
            books_.journal.forget(node);
    }
}

// True if another sequence holds a block that the node for this one's span `index` names.
bool Withdrawal::used_by_others(uint32_t sequence, uint32_t index, uint32_t node) const {
    bool swapped = (books_.sequences[sequence].state.flags & Sequence::kSwapped) != 0;
    const PrefixTree &tree = books_.journal.tree();
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        const uint32_t per_span = books_.geometry.groups[g].per_span;
        for (uint32_t k = 0; k < per_span; ++k) {
            uint32_t named = tree.blocks(node)[tree.first_entry(g) + k], i = index * per_span + k;
            if (named == kNullBlock || is_on_host(named)) continue;  // no table names those
            const BlockTable &t = books_.journal.table(sequence, g);
            bool own = !swapped && i < t.length && t.ids.data[i] == named;
            if (books_.journal.pool(g)[named].refs > (own ? 1u : 0u)) return true;
        }
    }
    return false;
}

Status Withdrawal::drop_published(uint32_t sequence) {
    const Sequence &s = books_.sequences[sequence];
    if (books_.prefix_off || s.cross_tokens != 0) return Status{};
    uint32_t settled = s.state.known - s.state.drafts;
    if (s.state.first_unknown < settled) settled = s.state.first_unknown;
    Lookup lookup;
    if (!prefixes_.hash(s, books_.geometry.span.block_of(settled), &lookup))
        return no_host_memory();
    PrefixTree &tree = books_.journal.tree();
    uint64_t compared = tree.bytes_compared();
    do {
        prefixes_.match(s, kAnyQueue, &lookup);
        drop_unreachable(sequence, lookup.matched);
    } while (drop_found(sequence, lookup));
    tree.set_bytes_compared(compared);
    return Status{};
}

// Forgets the nodes that were found. True if a node with the same content as one of them is still
// there: an item that evicts a node may be dropped after another item published the content again.
bool Withdrawal::drop_found(uint32_t sequence, const Lookup &found) {
    const Sequence &s = books_.sequences[sequence];
    PrefixTree &tree = books_.journal.tree();
    bool has_twin = false;
    for (uint32_t i = found.matched; i-- > 0;) {
        uint32_t node = found.nodes[i];
        // The tail goes first, and may have removed its bare ancestors with it.
        if (!tree.in_use(node) || used_by_others(sequence, i, node)) continue;
        if (!books_.geometry.any_full) {
            books_.journal.strip(node);
            continue;
        }
        books_.journal.forget(node);
        has_twin = has_twin || prefixes_.find_block(s, found, i) != kNone;
    }
    return has_twin;
}

// Forgets nodes of the sequence's spans from `first` on, which no walk from the root reaches.
void Withdrawal::drop_unreachable(uint32_t sequence, uint32_t first) {
    if ((books_.sequences[sequence].state.flags & Sequence::kSwapped) != 0) return;
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        const BlockTable &t = books_.journal.table(sequence, g);
        const uint32_t per_span = books_.geometry.groups[g].per_span;
        for (uint32_t i = t.length; i-- > first * per_span;) {
            if (t.ids.data[i] == kNullBlock) continue;
            uint32_t node = books_.journal.pool(g)[t.ids.data[i]].node;
            if (node != kNone && !used_by_others(sequence, i / per_span, node))
                books_.journal.forget(node);
        }
    }
}

// Nodes without a block that the sequence keeps in the tree.
uint32_t Withdrawal::pinned_nodes(uint32_t sequence) const {
    const SequenceState &state = books_.sequences[sequence].state;
    constexpr uint32_t silent = Sequence::kUnpublished | Sequence::kSwapped;
    if (state.published == 0 || (state.flags & silent) != 0) return 0;
    return books_.journal.tree().alive(state.cursor) ? prefixes_.bare_blocks(sequence, 0) : 0;
}

// Makes the sequence unfindable and stops it from publishing. Goes from the tail on, because a node
// can leave only after those below it.
void Withdrawal::silence(uint32_t sequence) {
    PrefixTree &tree = books_.journal.tree();
    books_.sequences[sequence].state.flags |= Sequence::kUnpublished;
    books_.touched.touch(sequence);
    auto forget_at = [&](uint32_t g, uint32_t index) {
        uint32_t block = books_.journal.table(sequence, g).ids.data[index];
        uint32_t node = block != kNullBlock ? books_.journal.pool(g)[block].node : kNone;
        if (node != kNone && !tree.has_children(node)) books_.journal.forget(node);
    };
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        if (books_.geometry.groups[g].cross) continue;
        const BlockTable &t = books_.journal.table(sequence, g);
        uint32_t kept = books_.geometry.groups[g].kept_blocks;
        uint32_t gap_end = t.null_front > kept ? t.null_front : 0;
        for (uint32_t i = t.length; i-- > gap_end;) forget_at(g, i);
        if (gap_end == 0) continue;
        for (uint32_t i = kept; i-- > 0;) forget_at(g, i);
    }
}

// Silences the longest first; between one power of two and the next the order is arbitrary.
void Withdrawal::silence_longest(uint64_t wanted, uint32_t spared) {
    uint32_t longest = 0;
    for (uint32_t i = 0; i < books_.sequences.size(); ++i) {
        if (!books_.handles.is_live(i)) continue;
        uint32_t pinned = pinned_nodes(i);
        if (pinned > longest) longest = pinned;
    }
    while (longest > spared && books_.journal.tree().free_count() < wanted) {
        uint32_t least = longest / 2 > spared ? longest / 2 : spared;
        for (uint32_t i = 0; i < books_.sequences.size(); ++i) {
            if (books_.journal.tree().free_count() >= wanted) return;
            if (books_.handles.is_live(i) && pinned_nodes(i) > least) silence(i);
        }
        longest = least;
    }
}

void Withdrawal::make_node_room() {
    if (books_.geometry.any_full || books_.prefix_off) [[likely]]
        return;
    uint64_t reserve = books_.journal.node_reserve();
    const PrefixTree &tree = books_.journal.tree();
    if (tree.free_count() >= reserve) [[likely]]
        return;
    uint64_t wanted = reserve + reserve / 2;
    uint32_t pool = reserve < kNone ? static_cast<uint32_t>(reserve) : kNone;
    silence_longest(wanted, pool);
    books_.journal.forget_leaves(wanted);
    silence_longest(wanted, 0);
    books_.journal.forget_leaves(wanted);
}

void Withdrawal::withdraw_published(uint64_t step) {
    each_published([&](uint32_t node, const BlockOrigin &origin) {
        if (depends_on(origin, step)) books_.journal.forget(node);
    });
}

}  // namespace quire
