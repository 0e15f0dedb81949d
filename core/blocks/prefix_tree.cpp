// SPDX-License-Identifier: Apache-2.0

#include "core/blocks/prefix_tree.hpp"

namespace quire {

namespace {

constexpr uint32_t kInsertAhead = 8;  // how many records ahead an insertion prefetches
constexpr uint32_t kLineWords = kCacheLine / sizeof(uint32_t);

uint32_t round_up_words(uint32_t words) {
    return (words + kLineWords - 1) / kLineWords * kLineWords;
}

}  // namespace

Status PrefixTree::create(const Geometry &geometry, uint32_t node_capacity, uint64_t seed) {
    static_assert(sizeof(Node) == 40);
    capacity_ = node_capacity;
    span_tokens_ = geometry.span.tokens();
    group_count_ = geometry.group_count;
    counts_children_ = !geometry.any_full;
    for (uint32_t g = 0; g < group_count_; ++g) {
        full_group_[g] = geometry.groups[g].full;
        first_entry_[g + 1] = first_entry_[g] + geometry.groups[g].per_span;
    }
    header_words_ = kHeaderWords + entry_count();
    stride_words_ = round_up_words(header_words_ + span_tokens_);
    if (stride_words_ > kLineWords) {
        header_words_ = round_up_words(header_words_);
        stride_words_ = header_words_ + round_up_words(span_tokens_);
    }
    uint64_t words = 0;
    if (!checked_mul(capacity_, stride_words_, &words)) return no_host_memory();
    uint64_t bucket_count = next_power_of_two(uint64_t{capacity_} * 2);
    bucket_mask_ = bucket_count - 1;
    if (!records_.create(words) || !buckets_.create(bucket_count) ||
        !free_stack_.create(capacity_) || !links_.create(capacity_) || !scopes_.create(seed)) {
        return no_host_memory();
    }
    for (uint32_t &bucket : buckets_) bucket = kNone;
    if (!geometry.partial_hits) return Status{};
    lead_tokens_ = span_tokens_ < 2 * kLeadTokens ? 1 : kLeadTokens;
    return leads_.reserve(capacity_) ? Status{} : no_host_memory();
}

bool PrefixTree::reserve(uint32_t node_capacity) {
    if (node_capacity <= capacity_) return true;
    uint64_t words = 0, bucket_count = next_power_of_two(uint64_t{node_capacity} * 2);
    if (!checked_mul(node_capacity, stride_words_, &words)) return false;
    Array<uint32_t> records(records_.host()), buckets(records_.host()), stack(records_.host());
    Array<NodeLink> links(records_.host());
    if (!records.create(words) || !buckets.create(bucket_count) || !stack.create(node_capacity) ||
        !links.create(node_capacity)) {
        return false;
    }
    for (TouchedNodes *touched : {&removed_, &changed_}) {
        if (touched->watches() && !touched->watch(node_capacity)) return false;
    }
    if (lead_tokens_ != 0 && !leads_.reserve(node_capacity)) return false;
    std::memcpy(records.data(), records_.data(), uint64_t{first_unused_} * stride_words_ * 4);
    std::memcpy(stack.data(), free_stack_.data(), uint64_t{free_nodes_} * 4);
    std::memcpy(links.data(), links_.data(), uint64_t{first_unused_} * sizeof(NodeLink));
    for (uint32_t &bucket : buckets) bucket = kNone;
    records_.swap(records);
    buckets_.swap(buckets);
    free_stack_.swap(stack);
    links_.swap(links);
    capacity_ = node_capacity;
    bucket_mask_ = bucket_count - 1;
    for (uint32_t i = 0; i < first_unused_; ++i) {
        Node &node = header(i);
        if (!node.is_linked) continue;
        node.is_linked = false;
        relink(i);
    }
    return true;
}

// True if a node of `scope` is below this root and has the spans over its block that `wanted` has.
bool PrefixTree::same_scope(uint32_t scope, uint32_t root, const Extra &wanted) const {
    if (wanted.scope == kNone) return scope == root;
    if (scope == wanted.scope) return true;
    if (scope == root || scopes_.root_of(scope) != root) return false;
    return scopes_.same_overlap(scope, wanted.scope, wanted.begin, wanted.begin + span_tokens_);
}

uint32_t PrefixTree::find(uint32_t root, const TreeCursor &at, uint64_t hash,
                          const uint32_t *tokens, const Extra &extra) {
    uint64_t size_bytes = uint64_t{span_tokens_} * sizeof(uint32_t);
    for (uint32_t i = buckets_[hash & bucket_mask_]; i != kNone; i = header(i).bucket_next) {
        const Node &node = header(i);
        if (node.hash != hash || node.parent != at.node ||
            node.parent_generation != at.generation || !same_scope(node.scope, root, extra)) {
            continue;
        }
        bytes_compared_ += size_bytes;
        if (tokens_of(i)[0] != tokens[0]) continue;
        if (span_tokens_ == 1 || std::memcmp(tokens_of(i), tokens, size_bytes) == 0) return i;
    }
    return kNone;
}

void PrefixTree::enter_scope(uint32_t node, uint32_t scope) {
    scopes_.add_node(scope);
    if (!scopes_.lists(scope)) return;
    has_lists_ = true;
    uint32_t next = scopes_.first_node(scope);
    links_[node] = NodeLink{kNone, next};
    if (next != kNone) links_[next].prev = node;
    scopes_.set_first_node(scope, node);
}

void PrefixTree::leave_scope(uint32_t node) {
    uint32_t scope = header(node).scope;
    if (!scopes_.lists(scope)) return scopes_.remove_node(scope);
    const NodeLink link = links_[node];
    if (link.next != kNone) links_[link.next].prev = link.prev;
    if (link.prev != kNone) {
        links_[link.prev].next = link.next;
    } else {
        scopes_.set_first_node(scope, link.next);
    }
    scopes_.remove_node(scope);
}

uint32_t PrefixTree::insert(uint32_t root, const TreeCursor &at, uint64_t hash,
                            const uint32_t *tokens, const Extra &extra) {
    uint32_t index = free_nodes_ != 0 ? free_stack_[free_nodes_ - 1] : first_unused_;
    if (index == capacity_) return kNone;
    Node &node = header(index);
    if (free_nodes_ != 0) {
        --free_nodes_;
        // Most insertions come in runs.
        if (free_nodes_ > kInsertAhead) prefetch_record(free_stack_[free_nodes_ - kInsertAhead]);
    } else {
        ++first_unused_;
    }
    node.hash = hash;
    node.parent = at.node;
    node.parent_generation = at.generation;
    node.generation |= 1;
    node.scope = extra.scope != kNone ? extra.scope : root;
    node.is_linked = false;
    node.children = 0;
    uint32_t *entries = change_blocks(index);
    for (uint32_t e = 0; e < entry_count(); ++e) entries[e] = kNullBlock;
    std::memcpy(tokens_of(index), tokens, uint64_t{span_tokens_} * sizeof(uint32_t));
    enter_scope(index, node.scope);
    if (at.node != kNone && counts_children_) ++header(at.node).children;
    if (lead_tokens_ != 0) [[unlikely]]
        leads_.name(index, lead_hash(at.hash, tokens));
    ++node_count_;
    relink(index);
    return index;
}

void PrefixTree::unlink(uint32_t index) {
    Node &node = header(index);
    QUIRE_ASSERT(node.is_linked);
    uint32_t *link = &buckets_[node.hash & bucket_mask_];
    while (*link != index) link = &header(*link).bucket_next;
    *link = node.bucket_next;
    node.is_linked = false;
    if (lead_tokens_ != 0) [[unlikely]]
        leads_.remove(index);
    removed_.touch(index);
}

void PrefixTree::relink(uint32_t index) {
    Node &node = header(index);
    QUIRE_ASSERT(!node.is_linked);
    uint32_t *bucket = &buckets_[node.hash & bucket_mask_];
    node.bucket_next = *bucket;
    *bucket = index;
    node.is_linked = true;
    if (lead_tokens_ != 0) [[unlikely]]
        leads_.add(index);
    changed_.touch(index);
}

void PrefixTree::leave_parent(const Node &node) {
    if (node.parent != kNone && counts_children_ &&
        header(node.parent).generation == node.parent_generation) {
        --header(node.parent).children;
    }
}

void PrefixTree::free_node(uint32_t index) {
    Node &node = header(index);
    QUIRE_ASSERT(!node.is_linked && (node.generation & 1) != 0);
    leave_parent(node);
    leave_scope(index);
    node.generation = node.generation + 1;
    removed_.touch(index);
    free_stack_[free_nodes_++] = index;
    --node_count_;
}

uint32_t PrefixTree::free_if_bare(uint32_t index) {
    while (index != kNone) {
        Node &node = header(index);
        if ((node.generation & 1) == 0) return kNone;  // freed before
        if (node.children != 0) return index;
        if (!is_bare(index)) return index;
        uint32_t parent = node.parent;
        if (parent != kNone && header(parent).generation != node.parent_generation) parent = kNone;
        if (linked(index)) unlink(index);
        free_node(index);
        index = parent;
    }
    return kNone;
}

Status PrefixTree::check_scopes() const {
    QUIRE_TRY(scopes_.check());
    uint32_t listed = 0;
    for (uint32_t i = 0; i < first_unused_; ++i) {
        if ((header(i).generation & 1) == 0) continue;
        uint32_t prev = links_[i].prev, scope = header(i).scope;
        uint32_t named = prev != kNone ? links_[prev].next : scopes_.first_node(scope);
        if (!scopes_.lists(scope) || named == i) ++listed;
    }
    if (listed == node_count_) return Status{};
    return fail(QUIRE_E_INTERNAL, "prefix_tree: {} of {} nodes are on the lists of their scopes",
                listed, node_count_);
}

// Checks that every record is in use or on the stack of free ones.
Status PrefixTree::check_records() const {
    uint32_t used = 0;
    for (uint32_t i = 0; i < first_unused_; ++i) used += header(i).generation & 1;
    if (used != node_count_ || used + free_nodes_ != first_unused_) {
        return fail(QUIRE_E_INTERNAL,
                    "prefix_tree: {} nodes are in use, {} are counted, or free nodes are lost",
                    used, node_count_);
    }
    for (uint32_t i = 0; i < free_nodes_; ++i) {
        uint32_t node = free_stack_[i];
        if (node < first_unused_ && (header(node).generation & 1) == 0) continue;
        return fail(QUIRE_E_INTERNAL, "prefix_tree: free node {} is in use", node);
    }
    return Status{};
}

// Finds the first token of the node's block. False: its chain is broken, so that cannot be known.
bool PrefixTree::find_begin(uint32_t node, uint32_t *begin) const {
    *begin = 0;
    for (; header(node).parent != kNone; *begin += span_tokens_) {
        node = parent(node);
        if (node == kNone) return false;
    }
    return true;
}

// Checks that a node's hash follows from its parent's hash, its tokens and its keys.
Status PrefixTree::check_hash(uint32_t index) const {
    const Node &node = header(index);
    uint32_t above = parent(index), root = scopes_.root_of(node.scope);
    if (above == kNone && node.parent != kNone) return Status{};  // out of reach
    if (above != kNone && scopes_.root_of(header(above).scope) != root) {
        return fail(QUIRE_E_INTERNAL, "prefix_tree: node {} has another root than its parent {}",
                    index, above);
    }
    Extra extra;
    if (node.scope != root) {
        extra.scope = node.scope;
        if (!find_begin(index, &extra.begin)) return Status{};
    }
    uint64_t before = above != kNone ? header(above).hash : scopes_.hash(root);
    if (node.hash == hash_block(before, tokens_of(index), extra)) return Status{};
    return fail(QUIRE_E_INTERNAL,
                "prefix_tree: the hash of node {} does not match its tokens and keys", index);
}

// Checks that a linked node's entries of the group and their blocks agree.
Status PrefixTree::check_entries(uint32_t index, uint32_t group, const BlockPool *device,
                                 const BlockPool *host) const {
    for (uint32_t e = first_entry_[group]; e < first_entry_[group + 1]; ++e) {
        uint32_t block = blocks(index)[e];
        if (block == kNullBlock && full_group_[group]) {
            return fail(QUIRE_E_INTERNAL, "prefix_tree: node {} has no block in group {}", index,
                        group);
        }
        if (block == kNullBlock) continue;
        const BlockPool *pool = is_on_host(block) ? host : device;
        uint32_t number = number_of(block);
        if (pool == nullptr || number >= pool->block_count() || number == kNullBlock ||
            (*pool)[number].node != index || (*pool)[number].group != group ||
            entry_of(index, group, block) != e) {
            return fail(QUIRE_E_INTERNAL,
                        is_on_host(block) ? "prefix_tree: node {} and its host block {} disagree"
                                          : "prefix_tree: node {} and its block {} disagree",
                        index, number);
        }
    }
    return Status{};
}

Status PrefixTree::check_bucket(uint64_t bucket, const BlockPool *const *pools,
                                const BlockPool *const *host_pools, uint32_t *found) const {
    for (uint32_t i = buckets_[bucket]; i != kNone; i = header(i).bucket_next) {
        if (i >= first_unused_ || ++*found > node_count_ ||
            (header(i).hash & bucket_mask_) != bucket || !linked(i)) {
            return fail(QUIRE_E_INTERNAL, "prefix_tree: bucket {} is broken at node {}", bucket, i);
        }
        QUIRE_TRY(check_hash(i));
        for (uint32_t g = 0; g < group_count_; ++g)
            QUIRE_TRY(check_entries(i, g, pools[g], host_pools[g]));
    }
    return Status{};
}

Status PrefixTree::check_bare() const {
    for (uint32_t i = 0; i < first_unused_; ++i) {
        if ((header(i).generation & 1) == 0 || header(i).children != 0 || !is_bare(i)) continue;
        return fail(QUIRE_E_INTERNAL, "prefix_tree: node {} has no block and no children", i);
    }
    return Status{};
}

// level: kOnHost or 0.
Status PrefixTree::check_named_by(const BlockPool &pool, uint32_t level) const {
    for (uint32_t b = 1; b < pool.block_count(); ++b) {
        uint32_t node = pool[b].node;
        if (node == kNone || pool[b].state == BlockState::parked) continue;
        if (node >= first_unused_ || (generation(node) & 1) == 0 || pool[b].group >= group_count_ ||
            entry_of(node, pool[b].group, b | level) == kNone) {
            return fail(QUIRE_E_INTERNAL,
                        level != 0
                            ? "prefix_tree: host block {} names node {}, which does not name it"
                            : "prefix_tree: block {} names node {}, which does not name it",
                        b, node);
        }
    }
    return Status{};
}

Status PrefixTree::check(const BlockPool *const *pools, const BlockPool *const *host_pools,
                         uint32_t pool_count) const {
    QUIRE_TRY(check_records());
    QUIRE_TRY(check_scopes());
    uint32_t found = 0, linked_nodes = 0;
    for (uint64_t b = 0; b <= bucket_mask_; ++b)
        QUIRE_TRY(check_bucket(b, pools, host_pools, &found));
    for (uint32_t i = 0; i < first_unused_; ++i) {
        if ((header(i).generation & 1) == 0 || !linked(i)) continue;
        ++linked_nodes;
        if (lead_tokens_ != 0 && !leads_.has(i))
            return fail(QUIRE_E_INTERNAL, "prefix_tree: the index of first tokens lacks {}", i);
    }
    if (found != linked_nodes) {
        return fail(QUIRE_E_INTERNAL, "prefix_tree: {} nodes are linked, but buckets hold {}",
                    linked_nodes, found);
    }
    for (uint32_t p = 0; p < pool_count; ++p) {
        QUIRE_TRY(check_named_by(*pools[p], 0));
        if (host_pools[p] != nullptr) QUIRE_TRY(check_named_by(*host_pools[p], kOnHost));
    }
    return Status{};
}

}  // namespace quire
