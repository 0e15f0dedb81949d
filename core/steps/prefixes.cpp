// SPDX-License-Identifier: Apache-2.0

#include "core/steps/prefixes.hpp"

namespace quire {

namespace {

// How far ahead the loops prefetch: buckets, then the nodes in them, then their block records.
constexpr uint32_t kBucketAhead = 24;
constexpr uint32_t kNodeAhead = 16;
constexpr uint32_t kBlockAhead = 8;

}  // namespace

Prefixes::Prefixes(CacheBooks *books)
    : books_(*books),
      hashes_(&books->host),
      matches_(&books->host),
      named_(&books->host),
      is_named_(&books->host) {}

bool Prefixes::create(uint32_t max_sequences) {
    if (!named_.create(max_sequences) || !is_named_.create(max_sequences)) return false;
    named_.shrink(0);
    return true;
}

void Prefixes::rewind_cursor(uint32_t sequence) {
    Sequence &s = books_.sequences[sequence];
    uint32_t full = books_.geometry.span.block_of(s.state.computed);
    if (s.state.published <= full) return;
    s.state.published = full;
    if (full != 0 && (s.state.flags & Sequence::kSwapped) == 0) {
        for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
            if (books_.geometry.groups[g].cross) continue;
            const BlockTable &t = books_.journal.table(sequence, g);
            uint32_t block = t.ids.data[full * books_.geometry.groups[g].per_span - 1];
            uint32_t node = block != kNullBlock ? books_.journal.pool(g)[block].node : kNone;
            if (node == kNone) continue;
            s.state.cursor = books_.journal.tree().cursor(node);
            return;
        }
    }
    s.state.published = 0;  // walked again from the root at the next publication
    s.state.cursor = books_.journal.tree().root_cursor(s.root);
}

// The keys that the sequence's spans put on its block.
Extra Prefixes::extra_of(const Sequence &s, uint32_t block) const {
    return books_.journal.tree().extra(s.scope, books_.geometry.span.first_token(block));
}

bool Prefixes::hash(const Sequence &s, uint32_t block_count, Lookup *out) {
    waiting_ = Waiting{};
    // And a node that is found in part.
    if (!hashes_.reserve(block_count) || !matches_.reserve(block_count + 1)) return false;
    hashes_.resize_within(block_count);
    uint64_t hash = books_.journal.tree().root_cursor(s.root).hash;
    for (uint32_t i = 0; i < block_count; ++i) {
        const uint32_t *tokens =
            books_.token_pages.at(s.tokens, books_.geometry.span.first_token(i));
        hash = books_.journal.tree().hash_block(hash, tokens, extra_of(s, i));
        hashes_[i] = hash;
    }
    *out = Lookup{hashes_.data(), block_count, nullptr, 0};
    return true;
}

// True if work on the queue may read the node's blocks of full-attention groups.
bool Prefixes::visible(uint32_t node, uint64_t queue) const {
    // A state that the open step leaves is not there when the step's recurrence begins.
    const bool skips_open = books_.geometry.any_recurrent && books_.records.is_open();
    if (books_.timeline.idle() && !skips_open) return true;
    const PrefixTree &tree = books_.journal.tree();
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        for (uint32_t e = tree.first_entry(g); e < tree.first_entry(g + 1); ++e) {
            uint32_t block = tree.blocks(node)[e];
            if (block == kNullBlock) continue;
            const uint64_t ready = books_.journal.origin(g, block).ready;
            if (skips_open && ready == books_.records.open().number) return false;
            if (!books_.timeline.visible(ready, queue)) return false;
        }
    }
    return true;
}

template <typename Body>
[[gnu::always_inline]] inline bool Prefixes::each_block(uint32_t span, Body body) const {
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        const GroupGeometry &group = books_.geometry.groups[g];
        if (group.cross) continue;
        if (group.per_span == 1) [[likely]] {
            if (!body(g, span)) return false;
            continue;
        }
        for (uint32_t k = 0; k < group.per_span; ++k) {
            if (!body(g, span * group.per_span + k)) return false;
        }
    }
    return true;
}

// The node below `at` that has the content of the sequence's block, or kNone.
uint32_t Prefixes::find_child(const Sequence &s, const TreeCursor &at, uint64_t hash,
                              uint32_t block) {
    const uint32_t *tokens =
        books_.token_pages.at(s.tokens, books_.geometry.span.first_token(block));
    return books_.journal.tree().find(s.root, at, hash, tokens, extra_of(s, block));
}

uint32_t Prefixes::find_block(const Sequence &s, const Lookup &found, uint32_t block) {
    PrefixTree &tree = books_.journal.tree();
    TreeCursor at = block != 0 ? tree.cursor(found.nodes[block - 1]) : tree.root_cursor(s.root);
    return find_child(s, at, found.hashes[block], block);
}

// child(at, block): the node of the block below `at`, or kNone.
template <typename Child>
void Prefixes::walk(uint32_t root, uint64_t queue, Lookup *found, Child child) {
    uint32_t max_blocks = found->hashed;
    PrefixTree &tree = books_.journal.tree();
    matches_.resize_within(max_blocks);
    found->nodes = matches_.data();
    found->matched = 0;
    for (uint32_t i = 0; i < kBucketAhead && i < max_blocks; ++i)
        tree.prefetch_bucket(found->hashes[i]);
    TreeCursor at = tree.root_cursor(root);
    for (uint32_t i = 0; i < max_blocks; ++i) {
        if (i + kBucketAhead < max_blocks) tree.prefetch_bucket(found->hashes[i + kBucketAhead]);
        if (i + kNodeAhead < max_blocks) tree.prefetch_candidate(found->hashes[i + kNodeAhead]);
        if (i + kBlockAhead < max_blocks) {
            uint32_t ahead = tree.candidate(found->hashes[i + kBlockAhead]);
            if (ahead != kNone && !is_on_host(tree.blocks(ahead)[0]))
                __builtin_prefetch(&books_.journal.pool(0)[tree.blocks(ahead)[0]]);
        }
        uint32_t node = child(at, i);
        if (node == kNone || !visible(node, queue)) return;
        matches_[i] = node;
        found->matched = i + 1;
        at = tree.cursor(node);
    }
}

void Prefixes::match(const Sequence &s, uint64_t queue, Lookup *found) {
    walk(s.root, queue, found, [&](const TreeCursor &at, uint32_t block) {
        return find_child(s, at, found->hashes[block], block);
    });
}

// True if all groups have the node's block on the device, with content that is there when the open
// step begins: its copies come before what its items compute.
bool Prefixes::can_copy(uint32_t node, uint64_t queue) const {
    if (!visible(node, queue)) return false;
    const PrefixTree &tree = books_.journal.tree();
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        if (books_.geometry.groups[g].cross) continue;
        const uint32_t block = tree.blocks(node)[g];
        if (block == kNullBlock || is_on_host(block)) return false;
        if (books_.records.is_open() &&
            books_.journal.origin(g, block).ready == books_.records.open().number) {
            return false;
        }
    }
    return true;
}

uint32_t Prefixes::find_part(const Sequence &s, uint32_t blocks, uint32_t end, uint64_t queue,
                             const Lookup &found) {
    const BlockSize span = books_.geometry.span;
    const uint32_t begin = span.first_token(blocks);
    if (end <= begin || extra_of(s, blocks).scope != kNone) return 0;
    const PrefixTree &tree = books_.journal.tree();
    const TreeCursor at =
        blocks != 0 ? tree.cursor(found.nodes[blocks - 1]) : tree.root_cursor(s.root);
    const uint32_t count = end - begin < span.tokens() ? end - begin : span.tokens();
    const Part part = tree.find_part(s.root, at, books_.token_pages.at(s.tokens, begin), count,
                                     [&](uint32_t node) { return can_copy(node, queue); });
    if (part.tokens == 0) return 0;
    matches_.resize_within(blocks + 1);
    matches_[blocks] = part.node;
    return part.tokens;
}

bool Prefixes::hash_tokens(uint32_t root, const uint32_t *tokens, uint32_t block_count,
                           Lookup *out) {
    waiting_ = Waiting{};
    if (!hashes_.reserve(block_count) || !matches_.reserve(block_count)) return false;
    hashes_.resize_within(block_count);
    const PrefixTree &tree = books_.journal.tree();
    uint64_t hash = tree.root_cursor(root).hash;
    for (uint32_t i = 0; i < block_count; ++i) {
        hash = tree.hash_block(hash, tokens + uint64_t{i} * books_.geometry.span.tokens(), {});
        hashes_[i] = hash;
    }
    *out = Lookup{hashes_.data(), block_count, nullptr, 0};
    return true;
}

void Prefixes::match_tokens(uint32_t root, const uint32_t *tokens, uint64_t queue, Lookup *found) {
    PrefixTree &tree = books_.journal.tree();
    walk(root, queue, found, [&](const TreeCursor &at, uint32_t block) {
        return tree.find(root, at, found->hashes[block],
                         tokens + uint64_t{block} * books_.geometry.span.tokens(), {});
    });
}

// Full-attention groups have a block in every node.
uint32_t Prefixes::best_hit(const Lookup &found) const {
    uint32_t matched = found.matched;
    if (!books_.geometry.any_window) return matched;
    const PrefixTree &tree = books_.journal.tree();
    uint32_t run[kMaxGroups] = {};   // present blocks of each window group that end here
    uint32_t kept[kMaxGroups] = {};  // those that begin at the first block
    uint32_t best = 0;
    for (uint32_t n = 1; n <= matched; ++n) {
        bool whole = true;
        const uint32_t *blocks = tree.blocks(found.nodes[n - 1]);
        for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
            const GroupGeometry &group = books_.geometry.groups[g];
            if (!group.windowed) continue;
            const uint32_t end = n * group.per_span;  // in blocks of the group
            for (uint32_t k = 0; k < group.per_span; ++k) {
                run[g] = blocks[tree.first_entry(g) + k] != kNullBlock ? run[g] + 1 : 0;
                if (run[g] == end - group.per_span + k + 1) kept[g] = run[g];
            }
            uint32_t tokens = books_.geometry.span.first_token(n);
            whole = whole && run[g] >= group.needed_before(tokens) &&
                    kept[g] >= (group.kept_blocks < end ? group.kept_blocks : end);
        }
        if (whole) best = n;
    }
    return best;
}

Room Prefixes::publish_room(uint32_t sequence, uint64_t end, bool swapped) const {
    const Sequence &s = books_.sequences[sequence];
    uint64_t blocks = books_.geometry.span.block_of(static_cast<uint32_t>(end));
    if (blocks <= s.state.published && !swapped) return Room{};
    if ((s.state.flags & Sequence::kUnpublished) != 0) return Room{};
    uint32_t walked =
        books_.journal.tree().alive(s.state.cursor) && !swapped ? s.state.published : 0;
    if (blocks <= walked || !has_node_room(sequence, walked)) return Room{};
    return (blocks - walked) * (Journal::kPublish + books_.journal.attach_room());
}

[[gnu::always_inline]] inline bool Prefixes::named_elsewhere(uint32_t sequence, uint32_t index) {
    return !each_block(index, [&](uint32_t g, uint32_t i) {
        uint32_t block = books_.journal.table(sequence, g).ids.data[i];
        return block == kNullBlock || books_.journal.pool(g)[block].node == kNone;
    });
}

// Full-attention groups have a block in every span.
[[gnu::always_inline]] inline bool Prefixes::is_bare(uint32_t sequence, uint32_t index) const {
    return !books_.geometry.any_full && each_block(index, [&](uint32_t g, uint32_t i) {
        return books_.journal.table(sequence, g).ids.data[i] == kNullBlock ||
               !books_.geometry.groups[g].is_snapshot(i);
    });
}

// Blocks that may be published. Without a full-attention group the last ones may all have left
// their windows, and a node that names no block would stay for ever.
uint32_t Prefixes::publishable(uint32_t sequence) const {
    const Sequence &s = books_.sequences[sequence];
    uint32_t full = s.publishable(books_.geometry.span);
    while (full > s.state.published && is_bare(sequence, full - 1)) --full;
    return full;
}

// A block that was just published and that another sequence computed depends only on what that
// sequence depends on, while the publisher may have computed the tokens before it again, in other
// blocks.
void Prefixes::leave_to_owner(uint32_t publisher, uint32_t group, uint32_t index) {
    uint32_t block = books_.journal.table(publisher, group).ids.data[index];
    Block &b = books_.journal.pool(group)[block];
    const BlockTable &t = books_.journal.table(b.owner, group);
    const Sequence &owner = books_.sequences[b.owner];
    bool is_swapped = (owner.state.flags & Sequence::kSwapped) != 0;
    if (owner.is_lease) return;  // its tables have no order
    bool holds = books_.handles.is_live(b.owner) && !is_swapped && index < t.length &&
                 t.ids.data[index] == block;
    const BlockSize size = books_.geometry.groups[group].size;
    if (holds)
        books_.journal.pool(group).origin(block).depends &=
            depends(owner).up_to(size.first_token(index + 1));
}

// A block that was full before its span was may have lost its owner since. Then it depends on no
// step after the last one that may have touched it.
void Prefixes::leave_to_past(uint32_t group, uint32_t block) {
    Block &b = books_.journal.pool(group)[block];
    if (b.owner != kNone) return;
    BlockOrigin &origin = books_.journal.pool(group).origin(block);
    uint64_t step = books_.timeline.oldest();
    for (step = step > b.touch ? step : b.touch + 1; step <= origin.ready; ++step)
        origin.depends &= ~depends_bit(step);
}

// Makes the node name the blocks of the sequence's span that it lacks.
void Prefixes::attach(uint32_t sequence, uint32_t index, uint32_t node, uint64_t ready,
                      const Dependence &depends_on) {
    if (!books_.geometry.uniform) [[unlikely]]
        return attach_parts(sequence, index, node, ready, depends_on);
    const Content content{ready, depends_on.up_to(books_.geometry.span.first_token(index + 1))};
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        const GroupGeometry &group = books_.geometry.groups[g];
        if (group.cross || !group.is_snapshot(index)) continue;
        if (books_.journal.attach_block(sequence, g, index, node, g, content)) [[unlikely]]
            leave_to_owner(sequence, g, index);
    }
}

// The same where groups have blocks of different sizes.
void Prefixes::attach_parts(uint32_t sequence, uint32_t index, uint32_t node, uint64_t ready,
                            const Dependence &depends_on) {
    const PrefixTree &tree = books_.journal.tree();
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        const GroupGeometry &group = books_.geometry.groups[g];
        if (group.cross) continue;
        for (uint32_t k = 0; k < group.per_span; ++k) {
            const uint32_t i = index * group.per_span + k, entry = tree.first_entry(g) + k;
            if (!group.is_snapshot(i)) continue;
            const Content content{ready, depends_on.up_to(group.size.first_token(i + 1))};
            if (books_.journal.attach_block(sequence, g, i, node, entry, content))
                leave_to_owner(sequence, g, i);
            const uint32_t named = tree.blocks(node)[entry];
            if (named != kNullBlock) leave_to_past(g, named);
        }
    }
}

Dependence Prefixes::depends(const Sequence &s) const {
    Dependence on;
    uint32_t found = 0, first_new = UINT32_MAX;
    if (s.change != kNone) {
        const StepRecord &record = books_.records.open();
        const Change &change = record.changes[s.change];
        found = change.found_tokens;
        first_new = change.first_position;
        on.add(record.number, change.valid_tokens);
        for (uint64_t step = books_.timeline.oldest(); change.has_pending && step < record.number;
             ++step) {
            on.add(step, change.pending_position[Timeline::ring_index(step)]);
        }
    }
    for (uint32_t i = 0; i < kMaxUnfinished; ++i) {
        uint64_t step = s.pending_step[i];
        if (step == 0 || books_.timeline.done(step)) continue;
        uint32_t position = s.pending_position[i] > found ? s.pending_position[i] : found;
        if (position < first_new) on.add(step, position);
    }
    return on;
}

void Prefixes::publish(uint32_t sequence, uint64_t ready, const Lookup &found) {
    Sequence &s = books_.sequences[sequence];
    SequenceState &state = s.state;
    uint32_t full = publishable(sequence);
    constexpr uint32_t silent = Sequence::kUnpublished | Sequence::kSwapped;
    if (full <= state.published || books_.prefix_off || (state.flags & silent) != 0) return;
    if (s.cross_tokens != 0) return;  // its K and V depend on more than tokens and keys
    PrefixTree &tree = books_.journal.tree();
    if (!tree.alive(state.cursor)) {
        state.published = 0;
        state.cursor = tree.root_cursor(s.root);
    }
    if (!has_node_room(sequence, state.published)) return;
    const Dependence depends_on = depends(s);
    bool under_new = false;  // once set, no child can exist already
    uint32_t checked = 0;    // nodes before this one may be made
    for (uint32_t i = state.published; i < full; ++i) {
        if (i + kBucketAhead < found.hashed) tree.prefetch_bucket(found.hashes[i + kBucketAhead]);
        const uint32_t *tokens =
            books_.token_pages.at(s.tokens, books_.geometry.span.first_token(i));
        const Extra extra = extra_of(s, i);
        uint64_t hash =
            i < found.hashed ? found.hashes[i] : tree.hash_block(state.cursor.hash, tokens, extra);
        if (i >= found.hashed)
            books_.counts.bytes_hashed += uint64_t{books_.geometry.span.tokens()} * 4;
        uint32_t node = under_new ? kNone : tree.find(s.root, state.cursor, hash, tokens, extra);
        if (node == kNone) {
            // An eviction above made the node that names the block unreachable: the block stays
            // with that node. Nodes without a block that would only lead there are not made either,
            // for nothing would ever free them.
            if (i >= checked) {
                checked = i;
                while (is_bare(sequence, checked)) ++checked;
                if (named_elsewhere(sequence, checked++)) return;
            }
            node = books_.journal.publish(s.root, state.cursor, hash, tokens, extra);
            if (node == kNone) return;
            under_new = true;
        }
        attach(sequence, i, node, ready, depends_on);
        state.cursor = tree.cursor(node);
        state.published = i + 1;
        if (books_.unsaved.takes_published()) [[unlikely]]
            books_.unsaved.note(node, state.cursor.generation);
    }
}

Status Prefixes::probe(uint64_t handle, const quire_token *tokens, uint32_t token_count,
                       uint32_t *hits) {
    uint32_t index = 0;
    QUIRE_TRY(books_.find_sequence(handle, &index));
    Sequence &s = books_.sequences[index];
    *hits = 0;
    if (books_.prefix_off || s.state.computed != 0 || s.change != kNone || s.cross_tokens != 0)
        return Status{};
    uint64_t total = uint64_t{s.state.known} + token_count;
    if (total > books_.geometry.max_sequence_tokens) {
        return fail(QUIRE_E_LIMIT, "{} tokens are more than max_sequence_tokens {}", total,
                    books_.geometry.max_sequence_tokens);
    }
    uint32_t known = static_cast<uint32_t>(total);
    if (!books_.token_pages.prepare(&s.tokens, s.state.known, known)) return no_host_memory();
    books_.token_pages.write(&s.tokens, s.state.known, tokens, token_count);
    uint32_t settled = s.state.first_unknown;
    if (settled == kNone) settled = s.state.known + find_unknown(tokens, token_count);
    if (settled == known && known != 0) --settled;  // one token is always computed
    Lookup found;
    if (!hash(s, books_.geometry.span.block_of(settled), &found)) return no_host_memory();
    uint64_t compared = books_.journal.tree().bytes_compared();
    match(s, kAnyQueue, &found);
    books_.journal.tree().set_bytes_compared(compared);
    const uint32_t blocks = best_hit(found);
    *hits = books_.geometry.span.first_token(blocks);
    if (books_.geometry.partial_hits) *hits += find_part(s, blocks, settled, kAnyQueue, found);
    return Status{};
}

uint32_t Prefixes::bare_blocks(uint32_t sequence, uint32_t from) const {
    uint32_t begin = from, end = UINT32_MAX;
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        if (books_.geometry.groups[g].cross) continue;
        const BlockTable &t = books_.journal.table(sequence, g);
        const GroupGeometry &group = books_.geometry.groups[g];
        const auto kept = static_cast<uint32_t>(ceil_div(group.kept_blocks, group.per_span));
        if (kept > begin) begin = kept;
        if (t.null_front / group.per_span < end) end = t.null_front / group.per_span;
    }
    return end > begin && end != UINT32_MAX ? end - begin : 0;
}

// True if blocks from `from` on may be published. Nodes without a block must not use the reserve.
bool Prefixes::has_node_room(uint32_t sequence, uint32_t from) const {
    if (books_.geometry.any_full) [[likely]]
        return true;
    uint32_t bare = bare_blocks(sequence, from);
    return bare == 0 || books_.journal.tree().free_count() >= bare + books_.journal.node_reserve();
}

// Publishes the sequence's blocks from the root on, if its place in the tree no longer exists.
void Prefixes::republish(uint32_t sequence, uint64_t ready) {
    PrefixTree &tree = books_.journal.tree();
    Sequence &s = books_.sequences[sequence];
    const TreeCursor &at = s.state.cursor;
    if (tree.alive(at) && tree.reachable(at.node)) return;
    if ((s.state.flags & Sequence::kSwapped) != 0) return;
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        const BlockTable &t = books_.journal.table(sequence, g);
        for (uint32_t i = 0; i < t.length; ++i) {
            if (t.ids.data[i] == kNullBlock) continue;
            uint32_t node = books_.journal.pool(g)[t.ids.data[i]].node;
            if (node != kNone && !tree.reachable(node)) books_.journal.forget(node);
        }
    }
    s.state.published = 0;
    s.state.cursor = tree.root_cursor(s.root);
    publish(sequence, ready);
}

void Prefixes::publish_again(const StepRecord &record) {
    for (const Change &change : record.changes) {
        if (change.kind == ChangeKind::item) republish(change.sequence, record.number);
    }
}

void Prefixes::note_named(uint32_t sequence) {
    if (!books_.records.is_open() || is_named_[sequence] != 0) return;
    is_named_[sequence] = 1;
    named_.push(sequence);
}

void Prefixes::settle_all_named(bool undone) {
    for (uint32_t sequence : named_) {
        is_named_[sequence] = 0;
        if (undone && books_.handles.is_live(sequence))
            republish(sequence, books_.sequences[sequence].last_step);
    }
    named_.shrink(0);
}

}  // namespace quire
