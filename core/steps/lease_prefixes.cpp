// SPDX-License-Identifier: Apache-2.0

#include "core/steps/lease_prefixes.hpp"

namespace quire {

namespace {

constexpr uint32_t kBucketAhead = 24;  // buckets of the tree that publishing prefetches

}  // namespace

// A place of the tree lives as long as it names a block. Where every group has a window, that says
// nothing about the places before it.
Status LeasePrefixes::check_tokens(const LeaseRun &run) const {
    if (!books_.geometry.any_full) {
        return fail(QUIRE_E_UNSUPPORTED,
                    "no group of the cache has full attention: its leases match and publish "
                    "nothing");
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
                                    const Entry &entry) const {
    const Geometry &geometry = books_.geometry;
    const GroupGeometry &g = geometry.groups[entry.group];
    if (g.cross) return kNullBlock;
    const uint32_t first = g.first_visible_block(geometry.span.first_token(hits));
    if (g.is_null(place * g.per_span + entry.in_group, first)) return kNullBlock;
    return books_.journal.tree().blocks(found.nodes[place])[entry.number];
}

// The tail first, so that it is evicted first.
void LeasePrefixes::touch(const Lookup &found, uint32_t hits) {
    for (uint32_t i = hits; i-- > 0;) {
        each_entry([&](const Entry &entry) {
            uint32_t named = found_block(found, hits, i, entry);
            if (named != kNullBlock) books_.journal.touch(entry.group, named);
        });
    }
}

void LeasePrefixes::measure(const Lookup &found, uint32_t hits, uint64_t barrier,
                            Need *needs) const {
    for (uint32_t i = 0; i < hits; ++i) {
        each_entry([&](const Entry &entry) {
            const uint32_t named = found_block(found, hits, i, entry);
            if (named == kNullBlock) return;
            Need &need = needs[books_.geometry.pool_of(entry.group)];
            const Block &b = books_.journal.named(entry.group, named);
            if (is_on_host(named)) {
                ++need.promoted;
            } else if (b.state == BlockState::cached && b.touch < barrier) {
                ++need.from_cached;
            }
        });
    }
}

// result: what is missing.
void LeasePrefixes::check_room(const Lookup &found, uint32_t hits, const StepRecord &record,
                               quire_lease_result *result, uint64_t *promoted) const {
    Need all[kMaxGroups] = {};  // by pool
    measure(found, hits, record.barrier, all);
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
    const uint64_t width = entry_count();
    Taker taker = tenants_.taker(lease, true);
    taker.sequence = kNone;  // it did not fill the block
    for (uint32_t i = 0; i < hits; ++i) {
        each_entry([&](const Entry &entry) {
            uint32_t named = found_block(found, hits, i, entry);
            if (named != kNullBlock && !is_on_host(named)) leases_.hold(lease, entry.group, named);
        });
    }
    for (uint32_t i = 0; i < hits; ++i) {
        each_entry([&](const Entry &entry) {
            uint32_t named = found_block(found, hits, i, entry);
            if (is_on_host(named)) {
                named = books_.journal.promote(entry.group, found.nodes[i], taker);
                books_.journal.hold(&books_.sequences[lease], lease, entry.group, named);
            }
            ids[i * width + entry.number] = static_cast<int32_t>(named);
        });
    }
}

Status LeasePrefixes::pin(StepRecord *record, uint32_t lease, const Lookup &found, uint32_t hits,
                          const LeaseRun &run, quire_lease_result *result) {
    uint64_t promoted = 0;
    check_room(found, hits, *record, result, &promoted);
    if (result->reason != 0) return Status{QUIRE_S_NO_BLOCKS, nullptr, 0, 0};
    QUIRE_TRY(leases_.reserve_places(lease, hits,
                                     uint64_t{hits} * entry_count() * Leases::kHoldRoom +
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
    const uint64_t width = entry_count();
    for (uint32_t i = 0; i < hits; ++i) {
        each_entry([&](const Entry &entry) {
            uint32_t named = found_block(found, hits, i, entry);
            if (is_on_host(named)) named = kNullBlock;
            run.named[i * width + entry.number] = static_cast<int32_t>(named);
        });
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
    return b.state == BlockState::held && b.owner == lease && b.group == group && b.refs == 1 &&
           b.node == kNone && !b.is_offered;
}

// True if the tree has no block on the device there.
bool LeasePrefixes::lacks_block(const Lookup &found, uint32_t place, const Entry &entry) const {
    if (place >= found.matched) return true;
    uint32_t named = books_.journal.tree().blocks(found.nodes[place])[entry.number];
    return named == kNullBlock || is_on_host(named);
}

// A block that the tree is going to name is marked as offered.
Status LeasePrefixes::check_id(uint32_t lease, const Lookup &found, uint32_t place,
                               const Entry &entry, int32_t id) {
    const GroupGeometry &g = books_.geometry.groups[entry.group];
    auto block = static_cast<uint32_t>(id);
    if (block == kNullBlock && !g.full) return Status{};
    BlockPool &pool = books_.journal.pool(entry.group);
    bool lacks = lacks_block(found, place, entry);
    bool is_known = !g.cross && block != kNullBlock && block < pool.block_count();
    if (is_known && lacks && may_adopt(lease, entry.group, block)) {
        pool[block].is_offered = true;
        return Status{};
    }
    const BlockTable &t = books_.journal.table(lease, entry.group);
    const LeaseIndex &index = books_.journal.lease_index(lease, entry.group);
    bool is_held = is_known && index.find(t, block) != kNone;
    if (is_held && !lacks) return Status{};
    return fail(QUIRE_E_ARG,
                is_held ? "ids[{}] is {}: the tree has no block there, and the lease has not taken "
                          "that one, or does not hold it alone, or names it for two places"
                        : "ids[{}] is {}: the lease does not hold that block",
                uint64_t{place} * entry_count() + entry.number, block);
}

Status LeasePrefixes::check_ids(uint32_t lease, const Lookup &found, const LeaseRun &run) {
    const uint64_t width = entry_count();
    Status checked;
    for (uint32_t i = 0; i < found.hashed && checked.ok(); ++i) {
        each_entry([&](const Entry &entry) {
            if (checked.ok())
                checked = check_id(lease, found, i, entry, run.ids[i * width + entry.number]);
        });
    }
    for (uint32_t i = 0; i < found.hashed; ++i) {
        each_entry([&](const Entry &entry) {
            BlockPool &pool = books_.journal.pool(entry.group);
            auto block = static_cast<uint32_t>(run.ids[i * width + entry.number]);
            if (block < pool.block_count()) pool[block].is_offered = false;
        });
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
    const uint64_t width = entry_count();
    uint64_t count = 0;
    for (uint32_t i = 0; i < found.matched; ++i) {
        each_entry([&](const Entry &entry) {
            if (lacks_block(found, i, entry)) return;
            const uint32_t there = journal.tree().blocks(found.nodes[i])[entry.number];
            if (there == static_cast<uint32_t>(run.ids[i * width + entry.number])) return;
            const BlockTable &t = journal.table(lease, entry.group);
            count += journal.lease_index(lease, entry.group).find(t, there) == kNone ? 1 : 0;
        });
    }
    return count;
}

// ids, named: [entry_count()]
void LeasePrefixes::name_place(uint32_t lease, uint32_t node, const Content &content,
                               const int32_t *ids, int32_t *named) {
    Journal &journal = books_.journal;
    each_entry([&](const Entry &entry) {
        const uint32_t g = entry.group;
        auto own = static_cast<uint32_t>(ids[entry.number]);
        uint32_t there = journal.tree().blocks(node)[entry.number];
        if ((there == kNullBlock || is_on_host(there)) && own != kNullBlock) {
            journal.adopt(g, own, node, entry.number, content);
            there = own;
        } else if (there != own && there != kNullBlock && !is_on_host(there)) {
            const BlockTable &t = journal.table(lease, g);
            if (journal.lease_index(lease, g).find(t, there) == kNone)
                leases_.hold(lease, g, there);
        }
        named[entry.number] = is_on_host(there) ? 0 : static_cast<int32_t>(there);
    });
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
        return fail(QUIRE_E_ARG,
                    geometry.uniform ? "token_count is {}: blocks of {} tokens are published whole"
                                     : "token_count is {}: a prefix is published in spans of {} "
                                       "tokens, which are whole blocks of all groups",
                    run.token_count, geometry.span.tokens());
    }
    Lookup found;
    QUIRE_TRY(find(record->queue, lease, run, &found));
    QUIRE_TRY(check_end(lease, found, run));
    QUIRE_TRY(check_ids(lease, found, run));
    if (!leases_.fits_quota(lease, count_extra(lease, found, run), result))
        return Status{QUIRE_S_NO_BLOCKS, nullptr, 0, 0};
    const uint64_t width = entry_count(), blocks = found.hashed;
    QUIRE_TRY(leases_.reserve_places(lease, found.matched,
                                     blocks * (Journal::kPublish + books_.journal.attach_room()) +
                                         found.matched * width * Leases::kHoldRoom));
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
        name_place(lease, node, content, run.ids + i * width, run.named + i * width);
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
    Journal &journal = books_.journal;
    for (*evicted = 0; *evicted < count;) {
        if (!journal.leases_only()) {
            const uint32_t gone = journal.evict_oldest(group, ids + *evicted, count - *evicted);
            if (gone == 0) break;
            *evicted += gone;
            continue;
        }
        const uint32_t block = journal.evict_block(books_.timeline.oldest());
        if (block == kNone) break;
        ids[(*evicted)++] = static_cast<int32_t>(block);
    }
    return Status{};
}

}  // namespace quire
