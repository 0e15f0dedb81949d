// SPDX-License-Identifier: Apache-2.0

#include "core/blocks/block_tree.hpp"

namespace quire {

Status BlockTree::create(uint32_t block_count, uint32_t block_tokens, uint64_t seed,
                         Scopes *scopes) {
    uint64_t words = 0;
    if (!checked_mul(block_count, block_tokens, &words)) return no_host_memory();
    if (!tokens_.create(words) || !next_.create(block_count) || !places_.create(block_count) ||
        !siblings_.create(block_count) ||
        !table_.create(next_power_of_two(uint64_t{block_count} * 2))) {
        return no_host_memory();
    }
    for (Place &place : places_) place = Place{kNullBlock, kNone};
    scopes_ = scopes;
    seed_ = seed;
    size_ = block_tokens;
    return Status{};
}

// Finding. ---------------------------------------------------------------------------------------

// The number of a block is below 2^31, so that of a root cannot be taken for it.
uint32_t BlockTree::hash(uint32_t root, uint32_t before, const uint32_t *tokens) const {
    const uint64_t after = before != kNullBlock ? before : uint64_t{root} | uint64_t{1} << 32;
    return static_cast<uint32_t>(chain_hash(seed_ ^ after, tokens, uint64_t{size_} * 4));
}

// The block with these tokens after `before`, or of the root, if it is in the hash table.
uint32_t BlockTree::look_up(uint32_t root, uint32_t before, const uint32_t *tokens) const {
    const uint64_t mask = table_.size() - 1;
    const uint32_t wanted = hash(root, before, tokens);
    for (uint64_t at = wanted & mask; table_[at].block != kNullBlock; at = (at + 1) & mask) {
        const uint32_t block = table_[at].block;
        const Place &place = places_[block];
        if (table_[at].hash == wanted && place.root == root && place.before == before &&
            has_tokens(block, tokens)) {
            return block;
        }
    }
    return kNullBlock;
}

// With blocks of one token a match follows a thousand links, so this is a loop of its own.
template <bool kOneToken>
uint32_t BlockTree::follow(uint32_t root, uint32_t first, const uint32_t *tokens, uint32_t count,
                           uint32_t *found) const {
    const uint32_t *next = next_.data(), *own = tokens_.data();
    const uint64_t size = kOneToken ? 1 : size_;
    uint32_t matched = 1, at = first;
    found[0] = at;
    for (; matched < count; found[matched++] = at) {
        tokens += size;
        const uint32_t oldest = next[at];
        if (oldest == kNullBlock) break;
        const bool is_same = kOneToken ? own[oldest] == *tokens
                                       : std::memcmp(own + oldest * size, tokens, size * 4) == 0;
        if (is_same) [[likely]] {
            at = oldest;
            continue;
        }
        if (siblings_[oldest].next == kNullBlock) break;
        at = look_up(root, at, tokens);
        if (at == kNullBlock) break;
    }
    return matched;
}

uint32_t BlockTree::find(uint32_t root, const uint32_t *tokens, uint32_t count, uint32_t *found) {
    const uint32_t first = count != 0 ? look_up(root, kNullBlock, tokens) : kNullBlock;
    if (first == kNullBlock) return 0;
    const uint32_t matched = size_ == 1 ? follow<true>(root, first, tokens, count, found)
                                        : follow<false>(root, first, tokens, count, found);
    bytes_compared_ += uint64_t{matched} * size_ * 4;
    return matched;
}

uint32_t BlockTree::next_of(uint32_t block) const {
    if (next_[block] != kNullBlock) return next_[block];
    while (siblings_[block].next == kNullBlock) {
        const uint32_t before = places_[block].before;
        if (before == kNullBlock || before == kNone) return kNone;
        block = before;
    }
    return siblings_[block].next;
}

// The hash table. --------------------------------------------------------------------------------

void BlockTree::enter(uint32_t block) {
    const uint64_t mask = table_.size() - 1;
    const Place &place = places_[block];
    const uint32_t own = hash(place.root, place.before, tokens(block));
    uint64_t at = own & mask;
    while (table_[at].block != kNullBlock) at = (at + 1) & mask;
    table_[at] = Entry{block, own};
}

// Every entry after the gap that lies between its home and its place would no longer be reached, so
// the nearest of them moves into the gap, and leaves another.
void BlockTree::erase(uint32_t block) {
    const uint64_t mask = table_.size() - 1;
    const Place &place = places_[block];
    uint64_t gap = hash(place.root, place.before, tokens(block)) & mask;
    while (table_[gap].block != block) gap = (gap + 1) & mask;
    for (uint64_t at = (gap + 1) & mask; table_[at].block != kNullBlock; at = (at + 1) & mask) {
        if (((at - table_[at].hash) & mask) < ((at - gap) & mask)) continue;
        table_[gap] = table_[at];
        gap = at;
    }
    table_[gap] = Entry{};
}

// Lists. -----------------------------------------------------------------------------------------

void BlockTree::link_to_root(uint32_t block, uint32_t root) {
    const uint32_t first = scopes_->first_node(root);
    if (first != kNone) {
        siblings_[block].next = first;
        siblings_[first].prev = block;
    }
    scopes_->set_first_node(root, block);
}

// REQUIRES: the block's tokens are there, and it has no neighbours.
void BlockTree::link(uint32_t block, uint32_t root, uint32_t before) {
    places_[block] = Place{before, root};
    if (before == kNullBlock) {
        link_to_root(block, root);
        enter(block);
        return;
    }
    const uint32_t oldest = next_[before];
    if (oldest == kNullBlock) {
        next_[before] = block;
        return;
    }
    const uint32_t next = siblings_[oldest].next;
    siblings_[block] = Siblings{oldest, next};
    siblings_[oldest].next = block;
    if (next != kNullBlock) siblings_[next].prev = block;
    enter(block);
}

// Takes the block off its list. The next one of a list whose first leaves is not hashed any more.
void BlockTree::unlink(uint32_t block) {
    const auto [before, root] = places_[block];
    const auto [prev, next] = siblings_[block];
    if (is_hashed(block)) erase(block);
    if (prev != kNullBlock) {
        siblings_[prev].next = next;
    } else if (before == kNullBlock || before == kNone) {
        scopes_->set_first_node(root, next != kNullBlock ? next : kNone);
    } else {
        if (next != kNullBlock) erase(next);
        next_[before] = next;
    }
    if (next != kNullBlock) siblings_[next].prev = prev;
    siblings_[block] = Siblings{};
}

// Publishing. ------------------------------------------------------------------------------------

void BlockTree::insert(uint32_t root, uint32_t before, const uint32_t *tokens,
                       const uint32_t *blocks, uint32_t count) {
    uint32_t *own = tokens_.data(), *next = next_.data();
    Place *places = places_.data();
    const uint64_t size = size_;
    for (uint32_t i = 0; i < count; ++i) {
        const uint32_t block = blocks[i];
        if (size == 1) [[likely]]
            own[block] = tokens[i];
        else
            std::memcpy(own + block * size, tokens + i * size, size * 4);
    }
    link(blocks[0], root, before);
    for (uint32_t i = 1; i < count; ++i) {
        places[blocks[i]] = Place{blocks[i - 1], root};
        next[blocks[i - 1]] = blocks[i];
    }
    scopes_->add_nodes(root, count);
    count_ += count;
}

// Puts a block that follows one that leaves among the root's.
void BlockTree::lose(uint32_t block) {
    const uint32_t root = places_[block].root;
    siblings_[block] = Siblings{};
    places_[block].before = kNone;
    link_to_root(block, root);
}

void BlockTree::remove(uint32_t block) {
    const uint32_t root = places_[block].root, oldest = next_[block];
    for (uint32_t after = oldest; after != kNullBlock;) {
        const uint32_t next = siblings_[after].next;
        if (after != oldest) erase(after);
        lose(after);
        after = next;
    }
    next_[block] = kNullBlock;
    unlink(block);
    places_[block] = Place{kNullBlock, kNone};
    --count_;
    scopes_->remove_node(root);
}

void BlockTree::take_over(BlockTree *old, const uint32_t *ids) {
    auto renumbered = [&](uint32_t block) {
        return block != kNullBlock && block != kNone ? ids[block] : block;
    };
    for (uint32_t i = 1; i < old->places_.size(); ++i) {
        if (!old->names(i)) continue;
        const uint32_t own = ids[i];
        const Place place = old->places_[i];
        places_[own] = Place{renumbered(place.before), place.root};
        next_[own] = renumbered(old->next_[i]);
        siblings_[own] =
            Siblings{renumbered(old->siblings_[i].prev), renumbered(old->siblings_[i].next)};
        std::memcpy(&tokens_[uint64_t{own} * size_], old->tokens(i), uint64_t{size_} * 4);
    }
    // A root's first block is renumbered once.
    for (uint32_t i = 1; i < old->places_.size(); ++i) {
        if (!old->names(i)) continue;
        const Place &place = old->places_[i];
        const bool is_of_root = place.before == kNullBlock || place.before == kNone;
        if (is_of_root && old->siblings_[i].prev == kNullBlock)
            scopes_->set_first_node(place.root, ids[i]);
        if (old->is_hashed(i)) enter(ids[i]);
    }
    count_ = old->count_;
    bytes_compared_ = old->bytes_compared_;
}

void BlockTree::swap(BlockTree *other) {
    tokens_.swap(other->tokens_);
    next_.swap(other->next_);
    places_.swap(other->places_);
    siblings_.swap(other->siblings_);
    table_.swap(other->table_);
    std::swap(scopes_, other->scopes_);
    std::swap(seed_, other->seed_);
    std::swap(size_, other->size_);
    std::swap(count_, other->count_);
    std::swap(bytes_compared_, other->bytes_compared_);
}

// Checking. --------------------------------------------------------------------------------------

// Checks one list, and that each of its blocks is found where it should be.
Status BlockTree::check_list(uint32_t first, uint32_t before, uint32_t root,
                             uint32_t *found) const {
    uint32_t prev = kNullBlock;
    for (uint32_t b = first; b != kNullBlock; prev = b, b = siblings_[b].next) {
        if (b >= places_.size() || ++*found > count_ || siblings_[b].prev != prev ||
            places_[b].root != root) {
            return fail(QUIRE_E_INTERNAL, "block_tree: the list after block {} is broken at {}",
                        before, b);
        }
        const bool is_lost = before == kNullBlock && places_[b].before == kNone;
        if (is_lost) continue;
        if (places_[b].before != before) {
            return fail(QUIRE_E_INTERNAL, "block_tree: block {} is on the list of block {}", b,
                        before);
        }
        const bool is_first = before != kNullBlock && prev == kNullBlock;
        if (is_first != !is_hashed(b) || look_up(root, before, tokens(b)) != (is_first ? 0 : b)) {
            return fail(QUIRE_E_INTERNAL,
                        "block_tree: block {} is not found by its tokens, or another is", b);
        }
        if (!is_first && before != kNullBlock && has_tokens(next_[before], tokens(b))) {
            return fail(QUIRE_E_INTERNAL, "block_tree: blocks {} and {} have the same tokens", b,
                        next_[before]);
        }
    }
    return Status{};
}

Status BlockTree::check_table() const {
    uint32_t entered = 0, hashed = 0;
    for (uint32_t b = 1; b < places_.size(); ++b) hashed += names(b) && is_hashed(b) ? 1 : 0;
    for (const Entry &entry : table_) {
        if (entry.block == kNullBlock) continue;
        ++entered;
        const bool is_right =
            entry.block < places_.size() && names(entry.block) && is_hashed(entry.block);
        if (!is_right) {
            return fail(QUIRE_E_INTERNAL, "block_tree: block {} is in the hash table", entry.block);
        }
    }
    if (entered == hashed) return Status{};
    return fail(QUIRE_E_INTERNAL,
                "block_tree: {} blocks are in the hash table, but {} belong there", entered,
                hashed);
}

Status BlockTree::check(const BlockPool &pool) const {
    uint32_t named = 0, found = 0;
    for (uint32_t b = 0; b < places_.size(); ++b) {
        const bool is_published = pool[b].node != kNone;
        if (names(b) != is_published || (is_published && pool[b].node != b)) {
            return fail(QUIRE_E_INTERNAL, "block_tree: block {} and its record disagree", b);
        }
        named += names(b) ? 1 : 0;
        const bool is_bare = next_[b] == kNullBlock && siblings_[b].prev == kNullBlock &&
                             siblings_[b].next == kNullBlock;
        if (!names(b) && !is_bare) {
            return fail(QUIRE_E_INTERNAL, "block_tree: block {} left the tree with its links", b);
        }
    }
    if (named != count_) {
        return fail(QUIRE_E_INTERNAL, "block_tree: {} blocks are named, but {} are counted", named,
                    count_);
    }
    for (uint32_t b = 1; b < places_.size(); ++b) {
        if (!names(b)) continue;
        QUIRE_TRY(check_list(next_[b], b, places_[b].root, &found));
    }
    for (uint32_t root = 0; root < scopes_->used(); ++root) {
        if (scopes_->references(root) == 0 || scopes_->first_node(root) == kNone) continue;
        QUIRE_TRY(check_list(scopes_->first_node(root), kNullBlock, root, &found));
    }
    if (found != count_) {
        return fail(QUIRE_E_INTERNAL, "block_tree: {} blocks are on lists, but {} are counted",
                    found, count_);
    }
    return check_table();
}

}  // namespace quire
