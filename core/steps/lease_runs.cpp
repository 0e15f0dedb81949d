// SPDX-License-Identifier: Apache-2.0

#include "core/steps/lease_runs.hpp"

namespace quire {

namespace {

// How far ahead the loops prefetch.
constexpr uint32_t kBucketAhead = 24;
constexpr uint32_t kBlockAhead = 32;

// The block of a slot that is not negative.
uint32_t block_of_slot(BlockSize size, int64_t slot) {
    if (slot <= int64_t{UINT32_MAX}) [[likely]]
        return size.block_of(static_cast<uint32_t>(slot));
    return static_cast<uint32_t>(slot / size.tokens());
}

Status refuse_block(uint32_t block) {
    return fail(QUIRE_E_ARG,
                "the tree has no block at a place, and block {} is not one that the lease has "
                "taken and holds alone, or it is named for two places",
                block);
}

}  // namespace

// Makes tokens_ the run's tokens. One pass without branches finds out that all of them fit; a
// second one says which does not.
Status LeaseRuns::narrow(const SlotRun &run) {
    if (!tokens_.reserve(run.token_count)) return no_host_memory();
    tokens_.resize_within(run.token_count);
    quire_token *out = tokens_.data();
    const int64_t *in = run.tokens;
    const uint32_t count = run.token_count;  // a local one need not be read again after each write
    uint64_t wrong = 0;
    for (uint32_t i = 0; i < count; ++i) {
        const auto token = static_cast<uint64_t>(in[i]);
        wrong |= (token | (token + 1)) >> 32;  // 2^32 - 1 is QUIRE_TOKEN_UNKNOWN
        out[i] = static_cast<quire_token>(token);
    }
    if (wrong == 0) [[likely]]
        return Status{};
    for (uint32_t i = 0; i < run.token_count; ++i) {
        if (run.tokens[i] >= 0 && run.tokens[i] < int64_t{QUIRE_TOKEN_UNKNOWN}) continue;
        return fail(QUIRE_E_ARG, "tokens[{}] is not a number from 0 to 2^32 - 2", i);
    }
    return Status{};
}

Status LeaseRuns::find(uint64_t handle, uint32_t how, const SlotRun &run,
                       quire_lease_result *result) {
    if (how > QUIRE_MATCH_TOUCH) {
        return fail(QUIRE_E_ARG, "how is {}: QUIRE_MATCH_LOOK or QUIRE_MATCH_TOUCH without a step",
                    how);
    }
    uint32_t lease = 0;
    QUIRE_TRY(books_.find_lease(handle, &lease));
    QUIRE_TRY(narrow(run));
    if (!is_plain()) {
        const LeaseRun same{tokens_.data(), run.token_count, nullptr, run.named};
        return found_.match(0, handle, how, same, result);
    }
    auto *blocks = reinterpret_cast<uint32_t *>(run.named);
    if (books_.journal.leases_only()) {
        const uint32_t root = books_.sequences[lease].root;
        result->blocks = books_.journal.block_tree().find(
            root, tokens_.data(), books_.geometry.span.block_of(run.token_count), blocks);
        if (how == QUIRE_MATCH_TOUCH) books_.journal.pool(0).touch_run(blocks, result->blocks);
        return Status{};
    }
    Lookup found;
    QUIRE_TRY(look_up(lease, &found));
    read_found(found, blocks);
    if (how == QUIRE_MATCH_TOUCH) books_.journal.pool(0).touch_run(blocks, found.matched);
    result->blocks = found.matched;
    return Status{};
}

// True if the cache has one group, with full attention, and each node's block is on the device.
bool LeaseRuns::is_plain() const {
    return books_.geometry.group_count == 1 && books_.geometry.groups[0].full &&
           !books_.journal.keeps_on_host() && !books_.prefix_off;
}

Status LeaseRuns::look_up(uint32_t lease, Lookup *found) {
    const uint32_t root = books_.sequences[lease].root;
    const auto token_count = static_cast<uint32_t>(tokens_.size());
    const uint32_t blocks = books_.geometry.span.block_of(token_count);
    if (!prefixes_.hash_tokens(root, tokens_.data(), blocks, found)) return no_host_memory();
    books_.counts.bytes_hashed += uint64_t{blocks} * books_.geometry.span.tokens() * 4;
    prefixes_.match_tokens(root, tokens_.data(), kAnyQueue, found);
    return Status{};
}

// out: [found.matched] receives the blocks, as the tree names them.
void LeaseRuns::read_found(const Lookup &found, uint32_t *out) const {
    const PrefixTree &tree = books_.journal.tree();
    for (uint32_t i = 0; i < found.matched; ++i) out[i] = tree.blocks(found.nodes[i])[0];
}

// Inserting. --------------------------------------------------------------------------------------

Status LeaseRuns::check_cache(uint32_t token_count) const {
    const Geometry &geometry = books_.geometry;
    if (books_.prefix_off)
        return fail(QUIRE_E_UNSUPPORTED, "QUIRE_CACHE_NO_PREFIX publishes nothing");
    if (!is_plain()) {
        return fail(
            QUIRE_E_UNSUPPORTED,
            "slots are those of one group with full attention, all of it on the device, and "
            "the cache has other groups, or QUIRE_CACHE_HOST_PREFIXES");
    }
    if (!geometry.span.begins_at(token_count)) {
        return fail(QUIRE_E_ARG, "token_count is {}: blocks of {} tokens are published whole",
                    token_count, geometry.span.tokens());
    }
    if (token_count <= geometry.max_sequence_tokens) return Status{};
    return fail(QUIRE_E_LIMIT, "{} tokens are more than max_sequence_tokens {}", token_count,
                geometry.max_sequence_tokens);
}

// Makes blocks_ those that the slots are of.
Status LeaseRuns::read_slots(const SlotRun &run) {
    const uint32_t size = books_.geometry.span.tokens(), count = run.token_count / size;
    if (!blocks_.reserve(count)) return no_host_memory();
    blocks_.resize_within(count);
    uint64_t wrong = 0;  // a bit of it is set if a slot is
    const int64_t most = int64_t{books_.journal.pool(0).block_count()} * size;
    uint32_t *blocks = blocks_.data();
    if (size == 1) {
        const int64_t *slots = run.slots;
        for (uint32_t i = 0; i < count; ++i) {
            const auto slot = static_cast<uint64_t>(slots[i]), end = static_cast<uint64_t>(most);
            wrong |= (slot | (end - 1 - slot)) >> 63;  // one of them is below 0
            blocks[i] = static_cast<uint32_t>(slot);
        }
    }
    for (uint32_t i = 0; i < count && size != 1; ++i) {
        const int64_t *slots = run.slots + uint64_t{i} * size, first = slots[0];
        const auto begin = static_cast<uint64_t>(first);  // differences of wild slots wrap
        const bool is_one = first >= 0 && first < most;
        const uint32_t block = is_one ? block_of_slot(books_.geometry.span, first) : kNullBlock;
        wrong |= static_cast<uint64_t>(int64_t{block} * size ^ first);
        for (uint32_t k = 1; k < size; ++k) wrong |= static_cast<uint64_t>(slots[k]) - begin - k;
        blocks[i] = block;
    }
    if (wrong == 0) [[likely]]
        return Status{};
    for (uint32_t i = 0; i < run.token_count; ++i) {
        const bool is_in_range = run.slots[i] >= 0 && run.slots[i] < most;
        if (is_in_range && run.slots[i] == int64_t{blocks_[i / size]} * size + i % size) continue;
        return fail(QUIRE_E_ARG, "slots[{}] does not go on with a whole block of {} tokens", i,
                    size);
    }
    return Status{};
}

// True if the block's content is nothing to others: it may enter the tree.
bool LeaseRuns::may_insert(uint32_t lease, uint32_t block) const {
    const Block &b = books_.journal.pool(0)[block];
    return b.state == BlockState::held && b.owner == lease && b.refs == 1 && b.node == kNone &&
           !b.is_offered;
}

// Marks the blocks of the places after those that were found as offered, if all of them may be.
Status LeaseRuns::check_blocks(uint32_t lease, const Lookup &found) {
    BlockPool &pool = books_.journal.pool(0);
    for (uint32_t i = found.matched; i < found.hashed; ++i) {
        if (i + kBlockAhead < found.hashed) pool.prefetch(blocks_[i + kBlockAhead]);
        if (may_insert(lease, blocks_[i])) [[likely]] {
            pool[blocks_[i]].is_offered = true;
            continue;
        }
        const uint32_t wrong = blocks_[i];
        while (i-- > found.matched) pool[blocks_[i]].is_offered = false;
        return refuse_block(wrong);
    }
    return Status{};
}

// Makes a node for each place that was not found.
void LeaseRuns::name_new(uint32_t lease, const Lookup &found) {
    PrefixTree &tree = books_.journal.tree();
    const uint32_t root = books_.sequences[lease].root;
    const uint32_t size = books_.geometry.span.tokens();
    const Content content{books_.timeline.next() - 1, 0};  // no step is unfinished
    TreeCursor at =
        found.matched != 0 ? tree.cursor(found.nodes[found.matched - 1]) : tree.root_cursor(root);
    for (uint32_t i = found.matched; i < found.hashed; ++i) {
        if (i + kBucketAhead < found.hashed) tree.prefetch_bucket(found.hashes[i + kBucketAhead]);
        uint32_t node = books_.journal.publish(root, at, found.hashes[i],
                                               tokens_.data() + uint64_t{i} * size, {});
        QUIRE_ASSERT(node != kNone);  // insert() has seen that there is room
        books_.journal.adopt(0, blocks_[i], node, 0, content);
        books_.journal.pool(0)[blocks_[i]].is_offered = false;
        at = tree.cursor(node);
        if (books_.unsaved.takes_published()) books_.unsaved.note(node, at.generation);
    }
}

// The end first, so that it is evicted first.
void LeaseRuns::let_go(uint32_t lease, const Lookup &found) {
    Journal &journal = books_.journal;
    Sequence &s = books_.sequences[lease];
    const uint32_t held_before = s.charged();
    journal.let_run_go(&s, lease, 0, blocks_.data() + found.matched, found.hashed - found.matched);
    read_found(found, blocks_.data());
    journal.pool(0).touch_run(blocks_.data(), found.matched);
    tenants_.charge(s, held_before);
    books_.touched.touch(lease);
}

// The end is evicted first, so what was found is touched last.
Status LeaseRuns::insert_blocks(uint32_t lease, const SlotRun &run, quire_lease_result *result) {
    Journal &journal = books_.journal;
    Sequence &s = books_.sequences[lease];
    const auto count = static_cast<uint32_t>(blocks_.size());
    if (!found_blocks_.reserve(count)) return no_host_memory();
    uint32_t *found = found_blocks_.data();
    const uint32_t matched = journal.block_tree().find(s.root, tokens_.data(), count, found);
    const uint32_t held_before = s.charged();
    const uint32_t before = matched != 0 ? found[matched - 1] : kNullBlock;
    const uint32_t *tokens = tokens_.data() + uint64_t{matched} * books_.geometry.span.tokens();
    const uint32_t *fresh = blocks_.data() + matched;
    const uint32_t inserted =
        journal.insert_run(&s, lease, BlockRun{s.root, before, tokens, fresh, count - matched});
    if (inserted != count - matched) return refuse_block(fresh[inserted]);
    journal.pool(0).touch_run(found, matched);
    tenants_.charge(s, held_before);
    books_.touched.touch(lease);
    if (matched != 0) std::memcpy(run.named, found, uint64_t{matched} * 4);
    if (matched != count) std::memcpy(run.named + matched, fresh, uint64_t{count - matched} * 4);
    result->blocks = count - matched;
    return Status{};
}

Status LeaseRuns::insert(uint64_t handle, const SlotRun &run, quire_lease_result *result) {
    uint32_t lease = 0;
    QUIRE_TRY(leases_.find_at_rest(handle, &lease));
    if (!books_.timeline.idle()) {
        return fail(QUIRE_E_BUSY,
                    "{} steps are not done: publish in a step, which says where its work runs",
                    books_.timeline.next() - books_.timeline.oldest());
    }
    QUIRE_TRY(check_cache(run.token_count));
    QUIRE_TRY(narrow(run));
    QUIRE_TRY(read_slots(run));
    if (books_.journal.leases_only()) return insert_blocks(lease, run, result);
    PrefixTree &tree = books_.journal.tree();
    Lookup found;
    QUIRE_TRY(look_up(lease, &found));
    const uint32_t fresh = found.hashed - found.matched;
    if (tree.free_count() < fresh) {
        return fail(QUIRE_E_LIMIT, "the prefix tree has room for {} more blocks, not for {}",
                    tree.free_count(), fresh);
    }
    QUIRE_TRY(check_blocks(lease, found));
    name_new(lease, found);
    let_go(lease, found);
    if (found.hashed != 0) std::memcpy(run.named, blocks_.data(), uint64_t{found.hashed} * 4);
    result->blocks = fresh;
    return Status{};
}

}  // namespace quire
