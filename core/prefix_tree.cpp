// SPDX-License-Identifier: Apache-2.0

#include "prefix_tree.hpp"

namespace quire {

namespace {

constexpr uint64_t kFirstRootBuckets = 1024;  // doubled when there are as many roots

constexpr uint32_t kInsertAhead = 4;  // records that an insertion asks for early

uint32_t round_up_words(uint32_t words) {
    constexpr uint32_t line = kCacheLine / sizeof(uint32_t);
    return (words + line - 1) / line * line;
}

}  // namespace

PrefixTree::~PrefixTree() {
    for (ExtraRecord &extra : extras_) buffers_->give_back(&extra.words);
    for (Root &root : roots_) buffers_->give_back(&root.words);
}

Status PrefixTree::create(const Geometry &geometry, uint32_t node_capacity, uint64_t seed) {
    static_assert(sizeof(Node) == 40);
    capacity_ = node_capacity;
    block_tokens_ = geometry.block_tokens;
    group_count_ = geometry.group_count;
    counts_children_ = !geometry.any_full;
    for (uint32_t g = 0; g < group_count_; ++g) full_group_[g] = geometry.groups[g].full;
    seed_ = seed;
    header_words_ = round_up_words(kHeaderWords + group_count_);
    stride_words_ = header_words_ + round_up_words(block_tokens_);
    uint64_t words = 0;
    if (!checked_mul(capacity_, stride_words_, &words)) return no_host_memory();
    uint64_t bucket_count = next_power_of_two(uint64_t{capacity_} * 2);
    bucket_mask_ = bucket_count - 1;
    if (!records_.create(words) || !buckets_.create(bucket_count) ||
        !free_stack_.create(capacity_) || !root_buckets_.create(kFirstRootBuckets)) {
        return no_host_memory();
    }
    for (uint32_t &bucket : buckets_) bucket = kNone;
    for (uint32_t &bucket : root_buckets_) bucket = kNone;
    return Status{};
}

bool PrefixTree::reserve(uint32_t node_capacity) {
    if (node_capacity <= capacity_) return true;
    uint64_t words = 0, bucket_count = next_power_of_two(uint64_t{node_capacity} * 2);
    if (!checked_mul(node_capacity, stride_words_, &words)) return false;
    Array<uint32_t> records(records_.host()), buckets(records_.host()), stack(records_.host());
    if (!records.create(words) || !buckets.create(bucket_count) || !stack.create(node_capacity)) {
        return false;
    }
    std::memcpy(records.data(), records_.data(), uint64_t{first_unused_} * stride_words_ * 4);
    std::memcpy(stack.data(), free_stack_.data(), uint64_t{free_nodes_} * 4);
    for (uint32_t &bucket : buckets) bucket = kNone;
    records_.swap(records);
    buckets_.swap(buckets);
    free_stack_.swap(stack);
    capacity_ = node_capacity;
    bucket_mask_ = bucket_count - 1;
    for (uint32_t i = 0; i < first_unused_; ++i) {
        Node &node = header(i);
        if ((node.flags & kLinked) == 0) continue;
        node.flags &= ~kLinked;
        relink(i);
    }
    return true;
}

// Chains of roots stay short on average. Without memory they grow longer.
void PrefixTree::spread_roots() {
    if (root_count_ < root_buckets_.size()) return;
    Array<uint32_t> buckets(root_buckets_.host());
    if (!buckets.create(2 * root_buckets_.size())) return;
    for (uint32_t &bucket : buckets) bucket = kNone;
    root_buckets_.swap(buckets);
    for (uint64_t i = 0; i < roots_.size(); ++i) {
        Root &root = roots_[i];
        if (root.references == 0) continue;
        root.next = root_bucket(root.hash);
        root_bucket(root.hash) = static_cast<uint32_t>(i);
    }
}

uint32_t PrefixTree::acquire_root(const uint32_t *words, uint32_t word_count) {
    uint64_t hash = chain_hash(seed_, words, uint64_t{word_count} * 4);
    for (uint32_t i = root_bucket(hash); i != kNone; i = roots_[i].next) {
        Root &root = roots_[i];
        if (root.hash == hash && root.count == word_count &&
            std::memcmp(root.words.data, words, uint64_t{word_count} * 4) == 0) {
            ++root.references;
            return i;
        }
    }
    Root fresh{};
    if (!buffers_->grow(&fresh.words, word_count, 0)) return kNone;
    uint32_t index = free_root_;
    if (index != kNone) {
        free_root_ = roots_[index].next;
    } else {
        index = static_cast<uint32_t>(roots_.size());
        if (!roots_.push_growing(fresh)) {
            buffers_->give_back(&fresh.words);
            return kNone;
        }
    }
    std::memcpy(fresh.words.data, words, uint64_t{word_count} * 4);
    fresh.count = word_count;
    fresh.references = 1;
    fresh.hash = hash;
    spread_roots();
    fresh.next = root_bucket(hash);
    roots_[index] = fresh;
    root_bucket(hash) = index;
    ++root_count_;
    return index;
}

void PrefixTree::release_root(uint32_t index) {
    Root &root = roots_[index];
    QUIRE_ASSERT(root.references > 0);
    if (--root.references != 0) return;
    --root_count_;
    uint32_t *link = &root_bucket(root.hash);
    while (*link != index) link = &roots_[*link].next;
    *link = root.next;
    buffers_->give_back(&root.words);
    root.next = free_root_;
    free_root_ = index;
}

bool PrefixTree::same_extra(uint32_t extra, const Extra &wanted) const {
    if (extra == kNone) return wanted.count == 0;
    const ExtraRecord &record = extras_[extra];
    return record.count == wanted.count &&
           std::memcmp(record.words.data, wanted.words, uint64_t{wanted.count} * 4) == 0;
}

uint32_t PrefixTree::find(uint32_t root, const TreeCursor &at, uint64_t hash,
                          const uint32_t *tokens, const Extra &extra) {
    uint64_t size_bytes = uint64_t{block_tokens_} * sizeof(uint32_t);
    for (uint32_t i = buckets_[hash & bucket_mask_]; i != kNone; i = header(i).bucket_next) {
        const Node &node = header(i);
        if (node.hash != hash || node.parent != at.node ||
            node.parent_generation != at.generation || node.root != root) {
            continue;
        }
        bytes_compared_ += size_bytes;
        if (std::memcmp(tokens_of(i), tokens, size_bytes) == 0 && same_extra(node.extra, extra)) {
            return i;
        }
    }
    return kNone;
}

bool PrefixTree::store_extra(Node *node, const Extra &extra) {
    node->extra = kNone;
    if (extra.count == 0) return true;
    ExtraRecord record{};
    if (!buffers_->grow(&record.words, extra.count, 0)) return false;
    std::memcpy(record.words.data, extra.words, uint64_t{extra.count} * 4);
    record.count = extra.count;
    uint32_t index = free_extra_;
    if (index != kNone) {
        free_extra_ = extras_[index].next_free;
        extras_[index] = record;
    } else {
        index = static_cast<uint32_t>(extras_.size());
        if (!extras_.push_growing(record)) {
            buffers_->give_back(&record.words);
            return false;
        }
    }
    node->extra = index;
    return true;
}

uint32_t PrefixTree::insert(uint32_t root, const TreeCursor &at, uint64_t hash,
                            const uint32_t *tokens, const Extra &extra) {
    uint32_t index = free_nodes_ != 0 ? free_stack_[free_nodes_ - 1] : first_unused_;
    if (index == capacity_) return kNone;
    Node &node = header(index);
    if (!store_extra(&node, extra)) return kNone;
    if (free_nodes_ != 0) {
        --free_nodes_;
        // Most insertions come in rows.
        if (free_nodes_ > kInsertAhead) prefetch_record(free_stack_[free_nodes_ - kInsertAhead]);
    } else {
        ++first_unused_;
    }
    node.hash = hash;
    node.parent = at.node;
    node.parent_generation = at.generation;
    node.generation |= 1;
    node.root = root;
    node.flags = 0;
    node.children = 0;
    for (uint32_t g = 0; g < group_count_; ++g) blocks(index)[g] = kNullBlock;
    std::memcpy(tokens_of(index), tokens, uint64_t{block_tokens_} * sizeof(uint32_t));
    ++roots_[root].references;
    if (at.node != kNone && counts_children_) ++header(at.node).children;
    ++node_count_;
    relink(index);
    return index;
}

void PrefixTree::unlink(uint32_t index) {
    Node &node = header(index);
    QUIRE_ASSERT((node.flags & kLinked) != 0);
    uint32_t *link = &buckets_[node.hash & bucket_mask_];
    while (*link != index) link = &header(*link).bucket_next;
    *link = node.bucket_next;
    node.flags &= ~kLinked;
}

void PrefixTree::relink(uint32_t index) {
    Node &node = header(index);
    QUIRE_ASSERT((node.flags & kLinked) == 0);
    uint32_t *bucket = &buckets_[node.hash & bucket_mask_];
    node.bucket_next = *bucket;
    *bucket = index;
    node.flags |= kLinked;
}

void PrefixTree::leave_parent(const Node &node) {
    if (node.parent != kNone && counts_children_ &&
        header(node.parent).generation == node.parent_generation) {
        --header(node.parent).children;
    }
    release_root(node.root);
}

void PrefixTree::free_node(uint32_t index) {
    Node &node = header(index);
    QUIRE_ASSERT((node.flags & kLinked) == 0 && (node.generation & 1) != 0);
    leave_parent(node);
    if (node.extra != kNone) {
        buffers_->give_back(&extras_[node.extra].words);
        extras_[node.extra].count = 0;
        extras_[node.extra].next_free = free_extra_;
        free_extra_ = node.extra;
    }
    ++node.generation;  // 2^31 lives of one record before a number returns
    free_stack_[free_nodes_++] = index;
    --node_count_;
}

uint32_t PrefixTree::free_if_bare(uint32_t index) {
    while (index != kNone) {
        Node &node = header(index);
        if ((node.generation & 1) == 0) return kNone;  // freed before
        if (node.children != 0) return index;
        for (uint32_t g = 0; g < group_count_; ++g) {
            if (blocks(index)[g] != kNullBlock) return index;
        }
        uint32_t parent = node.parent;
        if (parent != kNone && header(parent).generation != node.parent_generation) parent = kNone;
        if (linked(index)) unlink(index);
        free_node(index);
        index = parent;
    }
    return kNone;
}

Status PrefixTree::check(const BlockPool *const *pools) const {
    uint32_t found = 0;
    for (uint64_t bucket = 0; bucket <= bucket_mask_; ++bucket) {
        for (uint32_t i = buckets_[bucket]; i != kNone; i = header(i).bucket_next) {
            const Node &node = header(i);
            if (++found > node_count_ || (node.hash & bucket_mask_) != bucket ||
                (node.flags & kLinked) == 0) {
                return fail(QUIRE_E_INTERNAL, "prefix_tree: bucket {} is broken at node {}", bucket,
                            i);
            }
            for (uint32_t g = 0; g < group_count_; ++g) {
                uint32_t block = blocks(i)[g];
                if (block == kNullBlock && full_group_[g]) {
                    return fail(QUIRE_E_INTERNAL, "prefix_tree: node {} has no block in group {}",
                                i, g);
                }
                if (block != kNullBlock && (*pools[g])[block].node != i) {
                    return fail(QUIRE_E_INTERNAL, "prefix_tree: node {} and its block {} disagree",
                                i, block);
                }
            }
        }
    }
    for (uint32_t g = 0; g < group_count_; ++g) {
        const BlockPool &pool = *pools[g];
        for (uint32_t b = 1; b < pool.block_count(); ++b) {
            uint32_t node = pool[b].node;
            if (node == kNone || pool[b].state == BlockState::parked) continue;
            if ((generation(node) & 1) == 0 || blocks(node)[g] != b) {
                return fail(QUIRE_E_INTERNAL,
                            "prefix_tree: block {} names node {}, not the other way round", b,
                            node);
            }
        }
    }
    return Status{};
}

}  // namespace quire
