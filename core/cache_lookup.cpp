// SPDX-License-Identifier: Apache-2.0
//
// Finding prefixes: all blocks are hashed first, then probed with prefetch, then verified in order.
// Publishing: full blocks of computed, known tokens become nodes of the tree.

#include "core/cache.hpp"

namespace quire {

namespace {

// How far ahead the loops prefetch: buckets, then the nodes in them, then their block records.
constexpr uint32_t kBucketAhead = 24;
constexpr uint32_t kNodeAhead = 16;
constexpr uint32_t kBlockAhead = 8;

}  // namespace

// The keys that the sequence's spans put on its block.
Extra Cache::extra_of(const Sequence &s, uint32_t block) const {
    return journal_.tree().extra(s.scope, block << geometry_.block_shift);
}

// Fills hashes_[0, block_count) with the chain from the sequence's root.
bool Cache::hash_blocks(const Sequence &s, uint32_t block_count) {
    waiting_ = Waiting{};
    if (!hashes_.reserve(block_count) || !matches_.reserve(block_count)) return false;
    hashes_.resize_within(block_count);
    uint64_t hash = journal_.tree().root_cursor(s.root).hash;
    for (uint32_t i = 0; i < block_count; ++i) {
        const uint32_t *tokens = token_pages_.at(s.tokens, i << geometry_.block_shift);
        hash = journal_.tree().hash_block(hash, tokens, extra_of(s, i));
        hashes_[i] = hash;
    }
    hashed_ = block_count;
    return true;
}

// True if work on the queue may read the node's blocks of full-attention groups.
bool Cache::visible(uint32_t node, uint64_t queue) const {
    if (timeline_.idle()) return true;
    for (uint32_t g = 0; g < geometry_.group_count; ++g) {
        uint32_t block = journal_.tree().blocks(node)[g];
        if (block == kNullBlock) continue;
        if (!timeline_.visible(journal_.pool(g)[block].ready, queue)) return false;
    }
    return true;
}

// Fills matches_ with the nodes of the longest verified chain. REQUIRES: hash_blocks(max_blocks).
uint32_t Cache::match(const Sequence &s, uint32_t max_blocks, uint64_t queue) {
    PrefixTree &tree = journal_.tree();
    matches_.resize_within(max_blocks);
    for (uint32_t i = 0; i < kBucketAhead && i < max_blocks; ++i) tree.prefetch_bucket(hashes_[i]);
    TreeCursor at = tree.root_cursor(s.root);
    for (uint32_t i = 0; i < max_blocks; ++i) {
        if (i + kBucketAhead < max_blocks) tree.prefetch_bucket(hashes_[i + kBucketAhead]);
        if (i + kNodeAhead < max_blocks) tree.prefetch_candidate(hashes_[i + kNodeAhead]);
        if (i + kBlockAhead < max_blocks) {
            uint32_t ahead = tree.candidate(hashes_[i + kBlockAhead]);
            if (ahead != kNone) __builtin_prefetch(&journal_.pool(0)[tree.blocks(ahead)[0]]);
        }
        const uint32_t *tokens = token_pages_.at(s.tokens, i << geometry_.block_shift);
        uint32_t node = tree.find(s.root, at, hashes_[i], tokens, extra_of(s, i));
        if (node == kNone || !visible(node, queue)) return i;
        matches_[i] = node;
        at = tree.cursor(node);
    }
    return max_blocks;
}

// The longest hit within the matched chain for which every window is whole; full-attention groups
// have a block in every node.
uint32_t Cache::best_hit(uint32_t matched) const {
    if (!geometry_.any_window) return matched;
    uint32_t run[kMaxGroups] = {};   // present blocks of each window group that end here
    uint32_t kept[kMaxGroups] = {};  // those that begin at the first block
    uint32_t best = 0;
    for (uint32_t n = 1; n <= matched; ++n) {
        bool whole = true;
        const uint32_t *blocks = journal_.tree().blocks(matches_[n - 1]);
        for (uint32_t g = 0; g < geometry_.group_count; ++g) {
            const GroupGeometry &group = geometry_.groups[g];
            if (!group.windowed) continue;
            run[g] = blocks[g] != kNullBlock ? run[g] + 1 : 0;
            if (run[g] == n) kept[g] = n;
            uint32_t tokens = n << geometry_.block_shift;
            whole = whole && run[g] >= group.needed_before(tokens, geometry_.block_tokens) &&
                    kept[g] >= (group.kept_blocks < n ? group.kept_blocks : n);
        }
        if (whole) best = n;
    }
    return best;
}

// Counts what publish() records for a sequence that has computed the plan.
Room Cache::publish_room(const Plan &plan) const {
    const Sequence &s = sequences_[plan.sequence];
    uint64_t blocks = (uint64_t{plan.position} + plan.compute) >> geometry_.block_shift;
    if (blocks <= s.state.published && !plan.swapped) return Room{};
    if ((s.state.flags & Sequence::kUnpublished) != 0) return Room{};
    uint32_t walked =
        journal_.tree().alive(s.state.cursor) && !plan.swapped ? s.state.published : 0;
    if (blocks <= walked || !has_node_room(plan.sequence, walked)) return Room{};
    return (blocks - walked) * (Journal::kPublish + journal_.attach_room());
}

bool Cache::named_elsewhere(uint32_t sequence, uint32_t index) {
    for (uint32_t g = 0; g < geometry_.group_count; ++g) {
        if (geometry_.groups[g].cross) continue;
        uint32_t block = journal_.table(sequence, g).ids.data[index];
        if (block != kNullBlock && journal_.pool(g)[block].node != kNone) return true;
    }
    return false;
}

// Blocks that may be published. Without a full-attention group the last ones may all have left
// their windows, and a node that names no block would stay for ever.
uint32_t Cache::publishable(uint32_t sequence) const {
    const Sequence &s = sequences_[sequence];
    uint32_t full = s.publishable(geometry_.block_shift);
    if (geometry_.any_full) return full;
    auto is_bare = [&](uint32_t index) {
        for (uint32_t g = 0; g < geometry_.group_count; ++g) {
            const BlockTable &t = journal_.table(sequence, g);
            if (!geometry_.groups[g].cross && t.ids.data[index] != kNullBlock) return false;
        }
        return true;
    };
    while (full > s.state.published && is_bare(full - 1)) --full;
    return full;
}

// The unfinished steps that the sequence's first `end` tokens depend on, including those that the
// open step makes it depend on, in the form of Block::depends.
uint64_t Cache::depends(const Sequence &s, uint32_t end) const {
    uint64_t steps = 0;
    uint32_t found = 0, first_new = UINT32_MAX;
    if (s.change != kNone) {
        const StepRecord &record = records_[open_slot_];
        const Change &change = record.changes[s.change];
        found = change.found_tokens;
        first_new = change.first_position;
        if (change.valid_tokens < end) steps |= depends_bit(record.number);
        for (uint64_t step = timeline_.oldest(); change.has_pending && step < record.number;
             ++step) {
            if (change.pending_position[Timeline::slot(step)] < end) steps |= depends_bit(step);
        }
    }
    for (uint32_t i = 0; i < kMaxUnfinished; ++i) {
        uint64_t step = s.pending_step[i];
        if (step == 0 || timeline_.done(step)) continue;
        uint32_t position = s.pending_position[i] > found ? s.pending_position[i] : found;
        if (position < end && position < first_new) steps |= depends_bit(step);
    }
    return steps;
}

// Publishes the blocks that became full and known; `ready` is the step that computes them. If the
// tree is full it stops early and goes on at the next publication.
void Cache::publish(uint32_t sequence, uint64_t ready) {
    Sequence &s = sequences_[sequence];
    SequenceState &state = s.state;
    uint32_t full = publishable(sequence);
    constexpr uint32_t silent = Sequence::kUnpublished | Sequence::kSwapped;
    if (full <= state.published || prefix_off_ || (state.flags & silent) != 0) return;
    if (s.cross_tokens != 0) return;  // its K and V depend on more than tokens and keys
    PrefixTree &tree = journal_.tree();
    if (!tree.alive(state.cursor)) {
        state.published = 0;
        state.cursor = tree.root_cursor(s.root);
    }
    if (!has_node_room(sequence, state.published)) return;
    bool under_new = false;  // once set, no child can exist already
    for (uint32_t i = state.published; i < full; ++i) {
        if (i + kBucketAhead < hashed_) tree.prefetch_bucket(hashes_[i + kBucketAhead]);
        const uint32_t *tokens = token_pages_.at(s.tokens, i << geometry_.block_shift);
        const Extra extra = extra_of(s, i);
        uint64_t hash =
            i < hashed_ ? hashes_[i] : tree.hash_block(state.cursor.hash, tokens, extra);
        if (i >= hashed_) counts_.bytes_hashed += uint64_t{geometry_.block_tokens} * 4;
        uint32_t node = under_new ? kNone : tree.find(s.root, state.cursor, hash, tokens, extra);
        if (node == kNone) {
            // An eviction above made the node that names the block unreachable: the block stays
            // with that node.
            if (named_elsewhere(sequence, i)) return;
            node = journal_.publish(s.root, state.cursor, hash, tokens, extra);
            if (node == kNone) return;
            under_new = true;
        }
        journal_.attach(sequence, i, node,
                        Content{ready, depends(s, (i + 1) << geometry_.block_shift)});
        state.cursor = tree.cursor(node);
        state.published = i + 1;
    }
}

Status Cache::probe(uint64_t handle, const quire_token *tokens, uint32_t token_count,
                    uint32_t *hits) {
    uint32_t index = 0;
    QUIRE_TRY(find_sequence(handle, &index));
    Sequence &s = sequences_[index];
    *hits = 0;
    if (prefix_off_ || s.state.computed != 0 || s.change != kNone || s.cross_tokens != 0)
        return Status{};
    uint64_t total = uint64_t{s.state.known} + token_count;
    if (total > geometry_.max_sequence_tokens) {
        return fail(QUIRE_E_LIMIT, "{} tokens are more than max_sequence_tokens {}", total,
                    geometry_.max_sequence_tokens);
    }
    uint32_t known = static_cast<uint32_t>(total);
    if (!token_pages_.prepare(&s.tokens, s.state.known, known)) return no_host_memory();
    token_pages_.write(&s.tokens, s.state.known, tokens, token_count);
    uint32_t settled = s.state.first_unknown;
    if (settled == kNone) settled = s.state.known + find_unknown(tokens, token_count);
    if (settled == known && known != 0) --settled;  // one token is always computed
    if (!hash_blocks(s, settled >> geometry_.block_shift)) return no_host_memory();
    uint64_t compared = journal_.tree().bytes_compared();
    uint32_t matched = match(s, hashed_, kAnyQueue);
    journal_.tree().set_bytes_compared(compared);
    *hits = best_hit(matched) << geometry_.block_shift;
    hashed_ = 0;
    return Status{};
}

}  // namespace quire
