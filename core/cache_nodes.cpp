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

#include "core/cache.hpp"

namespace quire {

// Counts the sequence's blocks from block `from` on that are null in every group.
uint32_t Cache::bare_blocks(uint32_t sequence, uint32_t from) const {
    uint32_t begin = from, end = UINT32_MAX;
    for (uint32_t g = 0; g < geometry_.group_count; ++g) {
        if (geometry_.groups[g].cross) continue;
        const BlockTable &t = journal_.table(sequence, g);
        if (geometry_.groups[g].kept_blocks > begin) begin = geometry_.groups[g].kept_blocks;
        if (t.null_front < end) end = t.null_front;
    }
    return end > begin && end != UINT32_MAX ? end - begin : 0;
}

// Nodes without a block that the sequence keeps in the tree.
uint32_t Cache::pinned_nodes(uint32_t sequence) const {
    const SequenceState &state = sequences_[sequence].state;
    constexpr uint32_t silent = Sequence::kUnpublished | Sequence::kSwapped;
    if (state.published == 0 || (state.flags & silent) != 0) return 0;
    return journal_.tree().alive(state.cursor) ? bare_blocks(sequence, 0) : 0;
}

// True if blocks from `from` on may be published. Nodes without a block must not use the reserve.
bool Cache::has_node_room(uint32_t sequence, uint32_t from) const {
    if (geometry_.any_full) [[likely]]
        return true;
    uint32_t bare = bare_blocks(sequence, from);
    return bare == 0 || journal_.tree().free_count() >= bare + journal_.node_reserve();
}

// Makes the sequence unfindable and stops it from publishing. Goes from the tail on, because a node
// can leave only after those below it.
void Cache::silence(uint32_t sequence) {
    PrefixTree &tree = journal_.tree();
    sequences_[sequence].state.flags |= Sequence::kUnpublished;
    leader_.touch(sequence);
    auto forget_at = [&](uint32_t g, uint32_t index) {
        uint32_t block = journal_.table(sequence, g).ids.data[index];
        uint32_t node = block != kNullBlock ? journal_.pool(g)[block].node : kNone;
        if (node != kNone && !tree.has_children(node)) journal_.forget(node);
    };
    for (uint32_t g = 0; g < geometry_.group_count; ++g) {
        if (geometry_.groups[g].cross) continue;
        const BlockTable &t = journal_.table(sequence, g);
        uint32_t kept = geometry_.groups[g].kept_blocks;
        uint32_t gap_end = t.null_front > kept ? t.null_front : 0;
        for (uint32_t i = t.length; i-- > gap_end;) forget_at(g, i);
        if (gap_end == 0) continue;
        for (uint32_t i = kept; i-- > 0;) forget_at(g, i);
    }
}

// Silences the longest first; between one power of two and the next the order is arbitrary.
void Cache::silence_longest(uint64_t wanted, uint32_t spared) {
    uint32_t longest = 0;
    for (uint32_t i = 0; i < sequences_.size(); ++i) {
        if (!sequence_handles_.is_live(i)) continue;
        uint32_t pinned = pinned_nodes(i);
        if (pinned > longest) longest = pinned;
    }
    while (longest > spared && journal_.tree().free_count() < wanted) {
        uint32_t least = longest / 2 > spared ? longest / 2 : spared;
        for (uint32_t i = 0; i < sequences_.size(); ++i) {
            if (journal_.tree().free_count() >= wanted) return;
            if (sequence_handles_.is_live(i) && pinned_nodes(i) > least) silence(i);
        }
        longest = least;
    }
}

// Makes sure, before the next step can open, that as many nodes are free as it may publish.
void Cache::make_node_room() {
    if (geometry_.any_full || prefix_off_) [[likely]]
        return;
    uint64_t reserve = journal_.node_reserve();
    const PrefixTree &tree = journal_.tree();
    if (tree.free_count() >= reserve) [[likely]]
        return;
    uint64_t wanted = reserve + reserve / 2;
    uint32_t pool = reserve < kNone ? static_cast<uint32_t>(reserve) : kNone;
    silence_longest(wanted, pool);
    journal_.forget_leaves(wanted);
    silence_longest(wanted, 0);
    journal_.forget_leaves(wanted);
}

}  // namespace quire
