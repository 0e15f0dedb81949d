// SPDX-License-Identifier: Apache-2.0

#include "core/steps/lease_prefixes.hpp"

namespace quire {

namespace {

constexpr uint32_t kBucketAhead = 24;  // buckets of the tree that publishing prefetches

}  // namespace

// A place of the tree lives as long as it names a block. Where every group has a window, that says
// nothing about the places before it. Where groups have blocks of different sizes, a place has no
// one block of each.
Status LeasePrefixes::check_tokens(const LeaseRun &run) const {
    if (!books_.geometry.any_full) {
        return fail(QUIRE_E_UNSUPPORTED,
                    "no group of the cache has full attention: its leases match and publish "
                    "nothing");
    }
    if (!books_.geometry.uniform) {
        return fail(QUIRE_E_UNSUPPORTED,
                    "groups of the cache have block_tokens of their own: its leases match and "
                    "publish nothing");
    }
    uint32_t unknown = find_unknown(run.tokens, run.token_count);
    if (unknown == run.token_count) return Status{};
    return fail(QUIRE_E_ARG, "tokens[{}] is QUIRE_TOKEN_UNKNOWN", unknown);
}

// Finds the longest verified chain that work on `queue` may read.
Status LeasePrefixes::find(uint64_t queue, uint32_t lease, const LeaseRun &run, Lookup *found) {
    uint32_t root = books_.sequences[lease].root;
    uint32_t blocks = books_.prefix_off ? 0 : books_.geometry.span.block_of(run.token_count);
    if (!prefixes_.hash_tokens(root, run.tokens, blocks, found)) return no_host_memory();
    books_.counts.bytes_hashed += uint64_t{blocks} * books_.geometry.span.tokens() * 4;
    prefixes_.match_tokens(root, run.tokens, queue, found);
    return Status{};
}

// The block of a hit that the next token sees, as the tree names it; the null block if it sees
// none there.
uint32_t LeasePrefixes::found_block(const Lookup &found, uint32_t hits, uint32_t place,
                                    uint32_t group) const {
    const Geometry &geometry = books_.geometry;
    const GroupGeometry &g = geometry.groups[group];
    if (g.cross) return kNullBlock;
    uint32_t first = g.first_visible_block(geometry.span.first_token(hits));
    if (g.is_null(place, first)) return kNullBlock;
    return books_.journal.tree().blocks(found.nodes[place])[group];
}

// The tail first, so that it is evicted first.
void LeasePrefixes::touch(const Lookup &found, uint32_t hits) {
    for (uint32_t i = hits; i-- > 0;) {
        for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
            uint32_t named = found_block(found, hits, i, g);
            if (named != kNullBlock) books_.journal.touch(g, named);
        }
    }
}

LeasePrefixes::Need LeasePrefixes::measure(const Lookup &found, uint32_t hits, uint32_t group,
                                           uint64_t barrier) const {
    Need need{};
    for (uint32_t i = 0; i < hits; ++i) {
        uint32_t named = found_block(found, hits, i, group);
        if (named == kNullBlock) continue;
        const Block &b = books_.journal.named(group, named);
        if (is_on_host(named)) {
            ++need.promoted;
        } else if (b.state == BlockState::cached && b.touch < barrier) {
            ++need.from_cached;
        }
    }
    return need;
}

// result: what is missing.
void LeasePrefixes::check_room(const Lookup &found, uint32_t hits, const StepRecord &record,
                               quire_lease_result *result, uint64_t *promoted) const {
    Need all[kMaxGroups] = {};  // by pool
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        const Need need = measure(found, hits, g, record.barrier);
        all[books_.geometry.pool_of(g)].promoted += need.promoted;
        all[books_.geometry.pool_of(g)].from_cached += need.from_cached;
    }
    for (uint32_t p = 0; p < books_.journal.pool_count(); ++p) {
        const Need &need = all[p];
        uint32_t available = books_.journal.pool(p).available(record.barrier) - need.from_cached;
        *promoted += need.promoted;
        if (need.promoted <= available || need.promoted - available <= result->blocks_short)
            continue;
        result->blocks_short = need.promoted - available;
        result->reason = QUIRE_WAIT_POOL;
    }
}

// Blocks on the device come first: room for the rest may be made by evicting.
void LeasePrefixes::pin_found(const Lookup &found, uint32_t hits, uint32_t lease, int32_t *ids) {
    const uint32_t groups = books_.geometry.group_count;
    Taker taker = tenants_.taker(lease, true);
    taker.sequence = kNone;  // it did not fill the block
    for (uint32_t g = 0; g < groups; ++g) {
        for (uint32_t i = 0; i < hits; ++i) {
            uint32_t named = found_block(found, hits, i, g);
            if (named != kNullBlock && !is_on_host(named)) leases_.hold(lease, g, named);
        }
        for (uint32_t i = 0; i < hits; ++i) {
            uint32_t named = found_block(found, hits, i, g);
            if (is_on_host(named)) {
                named = books_.journal.promote(g, found.nodes[i], taker);
                books_.journal.hold(&books_.sequences[lease], lease, g, named);
            }
            ids[uint64_t{i} * groups + g] = static_cast<int32_t>(named);
        }
    }
}

Status LeasePrefixes::pin(StepRecord *record, uint32_t lease, const Lookup &found, uint32_t hits,
                          const LeaseRun &run, quire_lease_result *result) {
    uint64_t promoted = 0;
    check_room(found, hits, *record, result, &promoted);
    if (result->reason != 0) return Status{QUIRE_S_NO_BLOCKS, nullptr, 0, 0};
    QUIRE_TRY(leases_.reserve(lease, hits,
                              uint64_t{hits} * books_.geometry.group_count * Leases::kHoldRoom +
                                  promoted * books_.journal.promote_room()));
    Change *change = leases_.open_change(record, lease);
    change->query_tokens = books_.geometry.span.first_token(found.hashed);
    change->hit_tokens = books_.geometry.span.first_token(hits);
    pin_found(found, hits, lease, run.named);
    return leases_.close_within_quota(record, lease, hits, result);
}

Status LeasePrefixes::match(uint64_t step, uint64_t handle, uint32_t how, const LeaseRun &run,
                            quire_lease_result *result) {
    StepRecord *record = nullptr;
    uint32_t lease = 0;
    if (how > QUIRE_MATCH_PIN) return fail(QUIRE_E_ARG, "how {} is not known", how);
    if (step != 0 || how == QUIRE_MATCH_PIN) {
        QUIRE_TRY(leases_.find(step, handle, &record, &lease));
    } else {
        QUIRE_TRY(books_.find_lease(handle, &lease));
    }
    QUIRE_TRY(check_tokens(run));
    if (books_.journal.leases_only()) return match_blocks(record, lease, how, run, result);
    Lookup found;
    QUIRE_TRY(find(record != nullptr ? record->queue : kAnyQueue, lease, run, &found));
    uint32_t hits = prefixes_.best_hit(found);
    if (how == QUIRE_MATCH_PIN) return pin(record, lease, found, hits, run, result);
    if (how == QUIRE_MATCH_TOUCH) touch(found, hits);
    const uint32_t groups = books_.geometry.group_count;
    for (uint32_t i = 0; i < hits; ++i) {
        for (uint32_t g = 0; g < groups; ++g) {
            uint32_t named = found_block(found, hits, i, g);
            if (is_on_host(named)) named = kNullBlock;
            run.named[uint64_t{i} * groups + g] = static_cast<int32_t>(named);
        }
    }
    result->blocks = hits;
    return Status{};
}

// In the block tree, where all content is final.
Status LeasePrefixes::match_blocks(StepRecord *record, uint32_t lease, uint32_t how,
                                   const LeaseRun &run, quire_lease_result *result) {
    Journal &journal = books_.journal;
    auto *found = reinterpret_cast<uint32_t *>(run.named);
    const uint32_t blocks = books_.geometry.span.block_of(run.token_count);
    const uint32_t hits =
        journal.block_tree().find(books_.sequences[lease].root, run.tokens, blocks, found);
    if (how == QUIRE_MATCH_TOUCH) journal.pool(0).touch_run(found, hits);
    result->blocks = hits;
    if (how != QUIRE_MATCH_PIN) return Status{};
    QUIRE_TRY(leases_.reserve(lease, hits, uint64_t{hits} * Leases::kHoldRoom));
    Change *change = leases_.open_change(record, lease);
    change->query_tokens = books_.geometry.span.first_token(blocks);
    change->hit_tokens = books_.geometry.span.first_token(hits);
    for (uint32_t i = 0; i < hits; ++i) leases_.hold(lease, 0, found[i]);
    result->blocks = 0;
    return leases_.close_within_quota(record, lease, hits, result);
}

// Publishing. -------------------------------------------------------------------------------------

bool LeasePrefixes::may_adopt(uint32_t lease, uint32_t group, uint32_t block) const {
    const Block &b = books_.journal.pool(group)[block];
    return b.state == BlockState::held && b.owner == lease && b.refs == 1 && b.node == kNone &&
           !b.is_offered;
}

// True if the tree has no block on the device there.
bool LeasePrefixes::lacks_block(const Lookup &found, uint32_t place, uint32_t group) const {
    if (place >= found.matched) return true;
    uint32_t named = books_.journal.tree().blocks(found.nodes[place])[group];
    return named == kNullBlock || is_on_host(named);
}

// A block that the tree is going to name is marked as offered.
Status LeasePrefixes::check_id(uint32_t lease, const Lookup &found, uint32_t place, uint32_t group,
                               int32_t id) {
    const GroupGeometry &g = books_.geometry.groups[group];
    auto block = static_cast<uint32_t>(id);
    const uint64_t at = uint64_t{place} * books_.geometry.group_count + group;
    if (block == kNullBlock && !g.full) return Status{};
    BlockPool &pool = books_.journal.pool(group);
    bool lacks = lacks_block(found, place, group);
    bool is_known = !g.cross && block != kNullBlock && block < pool.block_count();
    if (is_known && lacks && may_adopt(lease, group, block)) {
        pool[block].is_offered = true;
        return Status{};
    }
    const BlockTable &t = books_.journal.table(lease, group);
    bool is_held = is_known && books_.journal.lease_index(lease, group).find(t, block) != kNone;
    if (is_held && !lacks) return Status{};
    return fail(QUIRE_E_ARG,
                is_held ? "ids[{}] is {}: the tree has no block there, and the lease has not taken "
                          "that one, or does not hold it alone, or names it for two places"
                        : "ids[{}] is {}: the lease does not hold that block",
                at, block);
}

Status LeasePrefixes::check_ids(uint32_t lease, const Lookup &found, const LeaseRun &run) {
    const uint32_t groups = books_.geometry.group_count;
    Status checked;
    uint64_t end = uint64_t{found.hashed} * groups, at = 0;
    for (; at < end && checked.ok(); ++at) {
        checked = check_id(lease, found, static_cast<uint32_t>(at / groups),
                           static_cast<uint32_t>(at % groups), run.ids[at]);
    }
    while (at-- > 0) {
        BlockPool &pool = books_.journal.pool(static_cast<uint32_t>(at % groups));
        auto block = static_cast<uint32_t>(run.ids[at]);
        if (block < pool.block_count()) pool[block].is_offered = false;
    }
    return checked;
}

// Checks the place after those that were found: nothing may be there, and the tree needs room.
Status LeasePrefixes::check_end(uint32_t lease, const Lookup &found, const LeaseRun &run) {
    if (found.matched == found.hashed) return Status{};
    PrefixTree &tree = books_.journal.tree();
    uint32_t root = books_.sequences[lease].root, place = found.matched;
    TreeCursor at = place != 0 ? tree.cursor(found.nodes[place - 1]) : tree.root_cursor(root);
    uint32_t node = tree.find(root, at, found.hashes[place],
                              run.tokens + uint64_t{place} * books_.geometry.span.tokens(), {});
    if (node != kNone) {
        return fail(QUIRE_E_BUSY,
                    "the tree's block at place {} is of a step on another queue that is not done",
                    place);
    }
    if (tree.free_count() >= found.hashed - place) return Status{};
    return fail(QUIRE_E_LIMIT, "the prefix tree has room for {} more blocks, not for {}",
                tree.free_count(), found.hashed - place);
}

// Blocks of the tree that the lease will hold beside the caller's.
uint64_t LeasePrefixes::count_extra(uint32_t lease, const Lookup &found,
                                    const LeaseRun &run) const {
    const Journal &journal = books_.journal;
    const uint32_t groups = books_.geometry.group_count;
    uint64_t count = 0;
    for (uint32_t i = 0; i < found.matched; ++i) {
        for (uint32_t g = 0; g < groups; ++g) {
            if (lacks_block(found, i, g)) continue;
            uint32_t there = journal.tree().blocks(found.nodes[i])[g];
            if (there == static_cast<uint32_t>(run.ids[uint64_t{i} * groups + g])) continue;
            bool held = journal.lease_index(lease, g).find(journal.table(lease, g), there) != kNone;
            count += held ? 0 : 1;
        }
    }
    return count;
}

void LeasePrefixes::name_place(uint32_t lease, uint32_t node, const Content &content,
                               const int32_t *ids, int32_t *named) {
    Journal &journal = books_.journal;
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        auto own = static_cast<uint32_t>(ids[g]);
        uint32_t there = journal.tree().blocks(node)[g];
        if ((there == kNullBlock || is_on_host(there)) && own != kNullBlock) {
            journal.adopt(g, own, node, journal.tree().first_entry(g), content);
            there = own;
        } else if (there != own && there != kNullBlock && !is_on_host(there)) {
            const BlockTable &t = journal.table(lease, g);
            if (journal.lease_index(lease, g).find(t, there) == kNone)
                leases_.hold(lease, g, there);
        }
        named[g] = is_on_host(there) ? 0 : static_cast<int32_t>(there);
    }
}

Status LeasePrefixes::publish(uint64_t step, uint64_t handle, const LeaseRun &run,
                              quire_lease_result *result) {
    StepRecord *record = nullptr;
    uint32_t lease = 0;
    QUIRE_TRY(leases_.find(step, handle, &record, &lease));
    const Geometry &geometry = books_.geometry;
    // Before the tokens are read: the array of a count gone wrong is shorter.
    if (run.token_count > geometry.max_sequence_tokens) {
        return fail(QUIRE_E_LIMIT, "{} tokens are more than max_sequence_tokens {}",
                    run.token_count, geometry.max_sequence_tokens);
    }
    QUIRE_TRY(check_tokens(run));
    if (books_.prefix_off)
        return fail(QUIRE_E_UNSUPPORTED, "QUIRE_CACHE_NO_PREFIX publishes nothing");
    if (books_.journal.leases_only()) {
        return fail(QUIRE_E_UNSUPPORTED,
                    "QUIRE_CACHE_LEASES_ONLY publishes outside of steps: use quire_lease_insert");
    }
    if (!geometry.span.begins_at(run.token_count)) {
        return fail(QUIRE_E_ARG, "token_count is {}: blocks of {} tokens are published whole",
                    run.token_count, geometry.span.tokens());
    }
    Lookup found;
    QUIRE_TRY(find(record->queue, lease, run, &found));
    QUIRE_TRY(check_end(lease, found, run));
    QUIRE_TRY(check_ids(lease, found, run));
    if (!leases_.fits_quota(lease, count_extra(lease, found, run), result))
        return Status{QUIRE_S_NO_BLOCKS, nullptr, 0, 0};
    const uint64_t groups = geometry.group_count, blocks = found.hashed;
    QUIRE_TRY(leases_.reserve(lease, found.matched,
                              blocks * (Journal::kPublish + books_.journal.attach_room()) +
                                  found.matched * groups * Leases::kHoldRoom));
    PrefixTree &tree = books_.journal.tree();
    Content content{record->number, depends_bit(record->number)};
    for (uint64_t older = books_.timeline.oldest(); older < record->number; ++older)
        content.depends |= depends_bit(older);
    uint32_t root = books_.sequences[lease].root;
    TreeCursor at = tree.root_cursor(root);
    leases_.open_change(record, lease);
    for (uint32_t i = 0; i < blocks; ++i) {
        if (i + kBucketAhead < blocks) tree.prefetch_bucket(found.hashes[i + kBucketAhead]);
        const quire_token *tokens = run.tokens + uint64_t{i} * geometry.span.tokens();
        uint32_t node = i < found.matched
                            ? found.nodes[i]
                            : books_.journal.publish(root, at, found.hashes[i], tokens, {});
        QUIRE_ASSERT(node != kNone);  // check_end()
        name_place(lease, node, content, run.ids + i * groups, run.named + i * groups);
        at = tree.cursor(node);
        if (books_.unsaved.takes_published()) books_.unsaved.note(node, at.generation);
    }
    leases_.close_change(record, lease);
    result->blocks = static_cast<uint32_t>(blocks) - found.matched;
    return Status{};
}

// Withdrawing. ------------------------------------------------------------------------------------

// True if a sequence or another lease holds one of the node's blocks.
bool LeasePrefixes::is_held_elsewhere(uint32_t lease, uint32_t node) const {
    const Journal &journal = books_.journal;
    const PrefixTree &tree = journal.tree();
    if (journal.leases_only()) {
        bool own = journal.lease_index(lease, 0).find(journal.table(lease, 0), node) != kNone;
        return journal.pool(0)[node].refs > (own ? 1u : 0u);
    }
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        for (uint32_t e = tree.first_entry(g); e < tree.first_entry(g + 1); ++e) {
            uint32_t named = tree.blocks(node)[e];
            if (named == kNullBlock || is_on_host(named)) continue;  // no table names those
            bool own = journal.lease_index(lease, g).find(journal.table(lease, g), named) != kNone;
            if (journal.pool(g)[named].refs > (own ? 1u : 0u)) return true;
        }
    }
    return false;
}

Status LeasePrefixes::forget(uint64_t handle, uint32_t group, const int32_t *ids, uint32_t count,
                             uint32_t *forgotten) {
    uint32_t lease = 0;
    QUIRE_TRY(books_.find_lease(handle, &lease));
    QUIRE_TRY(leases_.check_group(group));
    if (books_.records.is_open())
        return fail(QUIRE_E_BUSY, "a step is open: commit or abort it first");
    if (!books_.geometry.any_full)
        return fail(QUIRE_E_UNSUPPORTED, "no group of the cache has full attention");
    for (uint32_t i = 0; i < count; ++i) {
        auto block = static_cast<uint32_t>(ids[i]);
        if (leases_.may_hold(lease, group, block)) continue;
        return fail(QUIRE_E_ARG,
                    "ids[{}] is {}: the lease does not hold that block, and its namespace has not "
                    "published it",
                    i, block);
    }
    *forgotten = 0;
    for (uint32_t i = 0; i < count; ++i) {
        const auto block = static_cast<uint32_t>(ids[i]);
        const Block &b = books_.journal.pool(group)[block];
        uint32_t node = b.node;
        if (books_.geometry.groups[group].recurrent && node != kNone) {
            const BlockTable &own = books_.journal.table(lease, group);
            const bool holds = books_.journal.lease_index(lease, group).find(own, block) != kNone;
            if (b.refs > (holds ? 1u : 0u)) continue;
            books_.journal.withdraw(group, block);
            ++*forgotten;
            continue;
        }
        if (node == kNone || is_held_elsewhere(lease, node)) continue;
        books_.journal.leases_only() ? books_.journal.forget_block(node)
                                     : void(books_.journal.forget(node));
        ++*forgotten;
    }
    return Status{};
}

Status LeasePrefixes::evict(uint32_t group, uint32_t count, int32_t *ids, uint32_t *evicted) {
    QUIRE_TRY(leases_.check_group(group));
    if (books_.records.is_open())
        return fail(QUIRE_E_BUSY, "a step is open: commit or abort it first");
    for (*evicted = 0; *evicted < count; ++*evicted) {
        uint32_t block = books_.journal.leases_only()
                             ? books_.journal.evict_block(books_.timeline.oldest())
                             : books_.journal.evict_oldest(group);
        if (block == kNone) break;
        ids[*evicted] = static_cast<int32_t>(block);
    }
    return Status{};
}

}  // namespace quire
