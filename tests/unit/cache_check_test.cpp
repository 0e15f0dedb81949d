// SPDX-License-Identifier: Apache-2.0
//
// quire_cache_check against planted faults: each case breaks one thing in a cache whose books are
// correct, and expects the message that names it.

#include "inside.hpp"

namespace {

using namespace quire;
using namespace quire::test;

constexpr const char *kTrue = "";

// Sequence 0 has computed 10 tokens, in blocks 1 to 3, of which two are full and published.
// Sequence 1 is its fork.
struct Forked : Books {
    quire_seq parent, child;

    explicit Forked(uint32_t flags = 0) : Books(flags) {
        parent = sequence();
        compute(parent, 100, 10);
        child = fork(parent, 10);
        EXPECT_EQ(check(), kTrue);
    }
};

// References and tables ------------------------------------------------------------------------

TEST(CacheCheck, sees_a_reference_too_many) {
    Forked b;
    b.pool()[1].refs = 5;
    EXPECT_EQ(b.check(),
              "block 1 of group 0 has 5 references, but tables name it 2 times, including that of "
              "sequence 1");
}

TEST(CacheCheck, sees_a_block_that_no_table_names) {
    Forked b;
    b.table(0).ids.data[0] = b.table(1).ids.data[0] = 2;
    EXPECT_EQ(b.check(), "block 1 of group 0 has 2 references, but no table names it");
}

TEST(CacheCheck, sees_a_table_that_names_no_block_of_the_pool) {
    Forked b;
    b.table(0).ids.data[0] = 99;
    EXPECT_EQ(b.check(), "sequence 0 names block 99 at 0 in group 0, which has 17 blocks");
}

TEST(CacheCheck, sees_a_null_block_outside_of_a_gap) {
    Forked b;
    b.table(0).ids.data[1] = kNullBlock;
    EXPECT_EQ(b.check(), "sequence 0 names block 0 at 1 in group 0, where its gap ends at 0");
}

TEST(CacheCheck, sees_a_table_too_short_for_what_is_computed) {
    Forked b;
    b.table(0).length = 2;
    EXPECT_EQ(b.check(), "sequence 0 has 2 blocks in group 0, but its 10 computed tokens take 3");
}

TEST(CacheCheck, sees_a_table_past_its_memory) {
    Forked b;
    b.table(0).length = 1000;
    EXPECT_EQ(b.check(), "sequence 0 has a table of 1000 blocks in group 0, but room for only 16");
}

TEST(CacheCheck, sees_a_count_of_blocks_that_is_not_the_tables) {
    Forked b;
    b.at(0).blocks_held = 7;
    EXPECT_EQ(b.check(), "sequence 0 counts 7 blocks, but its tables name 3");
}

TEST(CacheCheck, sees_a_host_block_that_two_have) {
    Books b;
    quire_seq one = b.sequence();
    b.compute(one, 1, 6);
    b.begin();
    b.swap_out(one);
    b.commit();
    b.finish(b.step);
    ASSERT_EQ(b.check(), kTrue);
    (*Inside::journal(b.cache).host_pool(0))[2].refs = 2;
    EXPECT_EQ(b.check(),
              "host block 2 of group 0 has 2 references, but swapped tables name it 1 times: at "
              "most one may");
    (*Inside::journal(b.cache).host_pool(0))[2].refs = 1;
    b.table(0).ids.data[0] = b.table(0).ids.data[1];
    EXPECT_EQ(b.check().substr(0, 30), "host block 1 of group 0 has 1 ");
    b.table(0).ids.data[0] = 9;
    EXPECT_EQ(b.check(),
              "sequence 0 names block 9 at 0 in group 0, which has 9 blocks in the host tier");
}

// Sequences and steps --------------------------------------------------------------------------

TEST(CacheCheck, sees_more_computed_than_known) {
    Forked b;
    b.at(0).state.known = 9;
    EXPECT_EQ(b.check(), "sequence 0 knows 9 tokens, has computed 10, and 0 of them are drafts");
}

TEST(CacheCheck, sees_an_unnamed_token_elsewhere) {
    Forked b;
    b.at(0).state.first_unknown = 3;
    EXPECT_EQ(b.check(), "sequence 0 has its first unknown token at 10, but records it at 3");
}

TEST(CacheCheck, sees_a_sequence_that_ran_in_a_step_that_is_none) {
    Forked b;
    b.at(1).last_step = 7;
    EXPECT_EQ(b.check(), "sequence 1 ran in step 7, but the next one is 2");
}

TEST(CacheCheck, sees_an_unfinished_step_without_its_record) {
    Forked b;
    b.begin();
    b.commit();
    Inside::record(b.cache, 2).number = 10;
    EXPECT_EQ(b.check(), "step 2 is not done, but its record belongs to step 10 in phase 2");
    Inside::record(b.cache, 2).number = 2;
    b.begin();
    ASSERT_EQ(b.check(), kTrue);
    Inside::record(b.cache, 3).number = 11;
    EXPECT_EQ(b.check(), "step 11 is open, but the next step number is 3");
}

TEST(CacheCheck, sees_a_change_that_its_sequence_does_not_know) {
    Forked b;
    b.begin();
    b.add(b.parent, 110, 1);
    ASSERT_EQ(b.check(), kTrue);
    b.at(0).change = 1;
    EXPECT_EQ(b.check(), "change 0 of step 2 belongs to sequence 0, which does not refer to it");
    b.at(0).change = 0;
    b.at(1).change = 0;
    EXPECT_EQ(b.check(), "2 sequences are in the open step, which has 1 changes");
    b.at(1).change = kNone;
    Inside::record(b.cache, 2).rows = 2;
    EXPECT_EQ(b.check(), "step 2 counts 2 rows, but has 1 items");
}

// Who may write --------------------------------------------------------------------------------

TEST(CacheCheck, sees_an_owner_without_the_block) {
    Forked b;
    b.pool()[3].owner = 5;
    EXPECT_EQ(b.check(),
              "block 3 of group 0 may be written by sequence 5, which does not hold it; sequence 1 "
              "does");
}

TEST(CacheCheck, sees_an_adopted_block_with_two_holders) {
    Forked b;
    // As if the fork had adopted the block that its parent gave up, and the parent had got it back.
    b.pool()[3].owner = 1;
    b.pool()[3].frozen_slots = 0;
    EXPECT_EQ(b.check(),
              "block 3 of group 0: sequence 0 reads 2 of its slots, of which 0 are frozen, and 2 "
              "references hold it; sequence 1 may write the others");
    b.pool()[3].owner = kNone;
    EXPECT_EQ(b.check(),
              "block 3 of group 0: sequence 0 reads 2 of its slots, of which 0 are frozen, and 2 "
              "references hold it; sequence -1 may write the others");
}

TEST(CacheCheck, sees_a_tail_that_is_not_writable_any_more) {
    Books b;
    b.compute(b.sequence(), 1, 6);
    ASSERT_EQ(b.check(), kTrue);
    ASSERT_EQ(b.table(0).writable, 1u);
    b.pool()[2].frozen_slots = 3;
    EXPECT_EQ(b.check(),
              "block 2 of group 0: sequence 0 would write from slot 2 on, but 3 are frozen, "
              "sequence 0 owns it, node -1 names it");
}

TEST(CacheCheck, sees_an_item_that_writes_what_others_may_read) {
    Forked b;
    b.begin();
    b.add(b.parent, 110, 1);
    b.table(0).writable = kNone;
    b.pool()[3].frozen_slots = 4;
    EXPECT_EQ(b.check(),
              "block 3 of group 0: sequence 0 writes from slot 2 on in step 2, but 4 are frozen, "
              "sequence 0 owns it, step 0 published it");
}

TEST(CacheCheck, sees_an_item_that_writes_what_was_published) {
    Books b;
    quire_seq seq = b.sequence();
    b.compute(seq, 1, 6);
    b.begin();
    b.add(seq, 7, 2);
    ASSERT_EQ(b.check(), kTrue);
    b.pool().origin(2).ready = 1;
    EXPECT_EQ(b.check(),
              "block 2 of group 0: sequence 0 writes from slot 2 on in step 2, but 4 are frozen, "
              "sequence 0 owns it, step 1 published it");
}

// Work that may still run -----------------------------------------------------------------------

// Step 2, which is not finished, copies block 3 for the fork's next token.
struct Copied : Forked {
    explicit Copied(uint32_t flags = 0) : Forked(flags) {
        begin();
        add(child, 200, 1);
        commit();
        EXPECT_EQ(check(), kTrue);
    }
};

TEST(CacheCheck, sees_a_copy_from_a_block_that_others_may_have) {
    Copied b;
    b.pool()[3].touch = 0;
    EXPECT_EQ(b.check(),
              "block 3 of group 0: step 2 copies from it and may still run, but the last step "
              "recorded as touching it is 1");
}

TEST(CacheCheck, sees_a_copy_to_a_block_that_others_may_have) {
    Copied b;
    b.at(1).last_step = 1;
    EXPECT_EQ(b.check(),
              "block 4 of group 0: step 2 copies to it and may still run, but the last step "
              "recorded as touching it is 1");
}

TEST(CacheCheck, sees_a_block_that_is_given_away_while_a_step_reads_it) {
    // As if undoing a drop had also undone what a later end of a sequence noted.
    Forked b(QUIRE_CACHE_AUDIT);
    b.begin();
    b.add(b.child, 200, 1);
    b.commit();
    EXPECT_TRUE(b.cache.end_sequence(b.child, 0).ok());
    ASSERT_EQ(b.check(), kTrue);
    b.pool()[1].touch = 0;
    EXPECT_EQ(b.check(),
              "block 1 of group 0: step 2 reads it and may still run, but the last step recorded "
              "as touching it is 1");
    Forked unaudited;
    unaudited.begin();
    unaudited.add(unaudited.child, 200, 1);
    unaudited.commit();
    EXPECT_TRUE(unaudited.cache.end_sequence(unaudited.child, 0).ok());
    unaudited.pool()[1].touch = 0;
    EXPECT_EQ(unaudited.check(), kTrue) << "nothing in its books says so";
}

// Steps 2 and 3 run on queues 7 and `queue`, each for a sequence of its own with one block.
struct Parallel : Books {
    explicit Parallel(uint64_t queue) : Books(QUIRE_CACHE_AUDIT) {
        quire_seq a = sequence(0, 1), c = sequence(0, 2);
        begin();
        commit();
        finish(step);
        begin(7);
        add(a, 1, 3);
        commit();
        begin(queue);
        add(c, 1, 3);
        commit();
        EXPECT_EQ(check(), kTrue);
        // Both blocks may be touched up to step 3, and step 3 touched block 1 as well.
        pool()[1].touch = pool()[2].touch = 3;
        Inside::seen(cache, 3, 0).block = 1;
    }
};

TEST(CacheCheck, sees_two_writers_of_a_slot_on_two_queues) {
    Parallel apart(8);
    EXPECT_EQ(apart.check(),
              "block 1 of group 0: step 2 reads its slots up to 3 and writes 0 to 3, step 3 reads "
              "up to 3 and writes 0 to 3, and the two are unordered");
    Parallel in_order(7);
    EXPECT_EQ(in_order.check(), kTrue);
    Parallel waits(8);
    Inside::record(waits.cache, 3).waited = 1u << Timeline::ring_index(2);
    EXPECT_EQ(waits.check(), kTrue);
}

TEST(CacheCheck, sees_a_reader_of_what_another_queue_writes) {
    Parallel b(8);
    Seen &seen = Inside::seen(b.cache, 3, 0);
    seen.write_begin = seen.write_end = 0;
    seen.read_end = 2;
    EXPECT_EQ(b.check(),
              "block 1 of group 0: step 2 reads its slots up to 3 and writes 0 to 3, step 3 reads "
              "up to 2 and writes 0 to 0, and the two are unordered");
    Inside::seen(b.cache, 2, 0).write_begin = 2;
    EXPECT_EQ(b.check(), kTrue) << "they touch other slots";
}

TEST(CacheCheck, sees_two_items_of_a_step_that_write_one_slot) {
    Books b(QUIRE_CACHE_AUDIT);
    quire_seq a = b.sequence(0, 1), c = b.sequence(0, 2);
    b.begin();
    b.add(a, 1, 3);
    b.add(c, 1, 3);
    b.commit();
    ASSERT_EQ(b.check(), kTrue);
    Inside::seen(b.cache, 1, 1).block = 1;
    EXPECT_EQ(b.check(),
              "block 1 of group 0: step 1 reads its slots up to 3 and writes 0 to 3, step 1 reads "
              "up to 3 and writes 0 to 3, and the two are unordered");
}

// Namespaces -----------------------------------------------------------------------------------

TEST(CacheCheck, sees_a_namespace_that_is_charged_wrongly) {
    Forked b;
    Inside::namespaces(b.cache)[0].blocks_held = 5;
    EXPECT_EQ(b.check(), "namespace 0 counts 2 sequences and 5 blocks; 2 live in it and hold 6");
    Inside::namespaces(b.cache)[0].blocks_held = 6;
    b.at(0).name_space = 9;
    EXPECT_EQ(b.check(), "sequence 0 belongs to namespace 9, but only 1 were ever created");
}

TEST(CacheCheck, sees_a_quota_that_a_drop_would_break) {
    Forked b;
    Namespace &ns = Inside::namespaces(b.cache)[0];
    ns.quota_blocks = 6;
    ASSERT_EQ(b.check(), kTrue);
    ns.quota_blocks = 5;
    EXPECT_EQ(b.check(), "namespace 0 holds 6 blocks, and 0 may come back to it; its quota is 5");
    ns.quota_blocks = 0;
    ns.returned = 2;
    EXPECT_EQ(b.check(),
              "namespace 0 counts 2 and 0 blocks that the open step gave back; its changes gave 0 "
              "and 0");
}

TEST(CacheCheck, sees_a_sequence_whose_keys_are_of_another_namespace) {
    Books b;
    b.sequence(b.name_space());
    ASSERT_EQ(b.check(), kTrue);
    uint64_t number = Inside::namespaces(b.cache)[1].number;
    b.at(0).name_space = 0;
    Inside::namespaces(b.cache)[0].sequences = 1;
    Inside::namespaces(b.cache)[1].sequences = 0;
    EXPECT_EQ(b.check(),
              "sequence 0 belongs to namespace 0, but its root 0 to " + std::to_string(number));
}

TEST(CacheCheck, sees_a_block_of_another_tenant) {
    Forked b;
    b.pool().origin(1).tenant = 7;
    EXPECT_EQ(b.check(),
              "block 1 of group 0: namespace 7 wrote it, but only 0 is recorded as having written "
              "any block");
    Inside::mixed(b.cache) = true;
    EXPECT_EQ(b.check(),
              "block 1 of group 0: namespace 7 wrote it, but node 0, which names it, belongs to "
              "namespace 0");
    b.pool().origin(1).tenant = 0;
    b.pool().origin(3).tenant = 7;
    EXPECT_EQ(b.check(),
              "block 3 of group 0: namespace 7 wrote it, but sequence 0, which owns it, belongs to "
              "namespace 0");
}

// Content --------------------------------------------------------------------------------------

TEST(CacheCheck, sees_a_block_that_is_found_by_other_tokens_than_its_holders) {
    Forked b;
    Inside::token(b.cache, 0, 1) ^= 1;
    EXPECT_EQ(b.check(),
              "block 1 of group 0: node 0 has another token for it than sequence 0 at position 1");
}

TEST(CacheCheck, lets_two_forks_name_a_token_that_neither_knew) {
    Books b;
    quire_seq parent = b.sequence();
    b.compute(parent, QUIRE_TOKEN_UNKNOWN - 3, 4);  // the last one is unknown
    quire_seq child = b.fork(parent, 4);
    quire_token tokens[2] = {7, 8};
    quire_token_span spans[2] = {{parent, 3, 0, 1, 0}, {child, 3, 1, 1, 0}};
    EXPECT_TRUE(
        b.cache.set_tokens(reinterpret_cast<const uint8_t *>(spans), 2, sizeof spans[0], tokens, 2)
            .ok());
    EXPECT_EQ(b.check(), kTrue);
    Inside::token(b.cache, 1, 0) ^= 1;
    EXPECT_EQ(b.check(),
              "block 1 of group 0: node 0 has another token for it than sequence 1 at position 0");
}

TEST(CacheCheck, sees_a_node_whose_tokens_changed) {
    Forked b;
    Inside::tokens(b.cache, 1)[2] ^= 1;
    EXPECT_EQ(b.check(), "prefix_tree: the hash of node 1 does not match its tokens and keys");
}

TEST(CacheCheck, sees_a_block_of_other_keys_than_its_holders) {
    Books b;
    quire_seq plain = b.sequence(0, 0, 77), other = b.sequence(0, 0, 78);
    b.compute(plain, 1, 6);
    b.compute(other, 1, 6);
    ASSERT_EQ(b.check(), kTrue);
    std::swap(b.at(0).scope, b.at(1).scope);
    EXPECT_EQ(b.check(),
              "block 1 of group 0: sequence 0 holds it at 0, but node 0 names it with other keys");
}

TEST(CacheCheck, sees_a_block_of_another_root) {
    Books b;
    b.compute(b.sequence(0, 1), 1, 6);
    b.sequence(0, 2);
    ASSERT_EQ(b.check(), kTrue);
    b.at(0).root = 1;
    EXPECT_EQ(
        b.check(),
        "block 1 of group 0: sequence 0 with root 1 holds it, but node 0 with root 0 names it");
    Books empty;
    empty.sequence(0, 1);
    empty.at(0).root = 9;
    EXPECT_EQ(empty.check(), "sequence 0 has root 9, but only 1 scopes exist");
}

TEST(CacheCheck, sees_a_scope_that_is_counted_wrongly) {
    Forked b;
    Inside::sequences_of(b.cache, 0) = 1;
    EXPECT_EQ(b.check(), "scope 0 counts 1 sequences and 2 nodes, but 2 and 2 use it");
}

TEST(CacheCheck, sees_a_node_of_another_root_than_its_parent) {
    Books b;
    b.compute(b.sequence(0, 1), 1, 6);
    b.compute(b.sequence(0, 2), 1, 6);
    ASSERT_EQ(b.check(), kTrue);
    Inside::hang(b.cache, 1, 0);
    EXPECT_EQ(b.check(), "prefix_tree: node 1 has another root than its parent 0");
}

TEST(CacheCheck, sees_a_node_that_is_neither_used_nor_free) {
    Forked b;
    Inside::free_nodes(b.cache) = 1;
    EXPECT_EQ(b.check(), "prefix_tree: 2 nodes are in use, 2 are counted, or free nodes are lost");
}

TEST(CacheCheck, sees_what_is_published_before_it_is_written) {
    Forked b;
    b.pool().origin(1).ready = 99;
    EXPECT_EQ(b.check(), "block 1 of group 0 is published as of step 99, but the newest is 1");
    b.pool().origin(1).ready = 1;
    b.pool()[1].frozen_slots = 2;
    EXPECT_EQ(b.check(),
              "block 1 of group 0 is published as node 0, but only 2 of its 4 slots are frozen");
}

// Failures to come -----------------------------------------------------------------------------

// Sequence 0 computes block 1 in step 1 and block 2 in step 2; neither is finished.
struct Unfinished : Books {
    explicit Unfinished(uint32_t flags = 0) : Books(flags) {
        quire_seq seq = sequence();
        begin();
        add(seq, 1, 4);
        commit();
        begin();
        add(seq, 5, 4);
        commit();
        EXPECT_EQ(check(), kTrue);
    }
};

TEST(CacheCheck, sees_a_sequence_that_would_not_be_lost_with_its_blocks) {
    Unfinished b;
    b.at(0).pending_step[Timeline::ring_index(1)] = 0;
    EXPECT_EQ(
        b.check(),
        "block 1 of group 0 depends on step 1, but sequence 0, which holds it at 0, does not");
}

TEST(CacheCheck, sees_a_block_that_would_outlive_what_it_was_computed_on) {
    Unfinished b;
    b.pool().origin(2).depends = depends_bit(2);
    EXPECT_EQ(b.check(),
              "block 2 of group 0 does not depend on step 1, but the content that sequence 0 holds "
              "before it, at 1, does");
}

TEST(CacheCheck, sees_what_is_left_of_a_failed_step) {
    Unfinished b;
    auto fail = [&](uint64_t step) {
        Inside::record(b.cache, step).phase = StepPhase::finished;
        Inside::record(b.cache, step).failed = true;
    };
    fail(2);
    EXPECT_EQ(b.check(),
              "block 2 of group 0 depends on step 2, which failed, and is published as node 1");
    Unfinished unpublished(QUIRE_CACHE_NO_PREFIX);
    StepRecord &record = Inside::record(unpublished.cache, 2);
    record.phase = StepPhase::finished;
    record.failed = true;
    EXPECT_EQ(
        unpublished.check(),
        "sequence 0 has computed 8 tokens, but those from 4 on depend on step 2, which failed");
}

// Pools ----------------------------------------------------------------------------------------

TEST(CacheCheck, sees_a_block_that_is_free_too_early) {
    Forked b;
    b.pool()[9].touch = 2;
    EXPECT_EQ(b.check(), "block_pool: block 9 is free, but step 2 may still touch it");
}

TEST(CacheCheck, sees_a_block_that_waits_for_nothing) {
    Copied b;
    EXPECT_TRUE(b.cache.end_sequence(b.child, 0).ok());
    ASSERT_EQ(b.pool()[4].state, BlockState::draining);
    b.pool()[4].touch = 10;  // a step with the same slot
    EXPECT_EQ(b.check(), "block_pool: block 4 drains for step 10, which is not running");
}

TEST(CacheCheck, sees_states_that_lists_do_not_have) {
    Forked b;
    b.pool()[9].state = BlockState::draining;
    EXPECT_EQ(b.check(), "block_pool: block 9 is on list 0, where it does not belong");
    b.pool()[9].state = BlockState::null;
    EXPECT_EQ(b.check(), "block_pool: block 9 is on list 0, where it does not belong");
    b.pool()[9].state = BlockState::free;
    b.pool()[0].state = BlockState::free;
    EXPECT_EQ(b.check(), "block_pool: block 0 is in invalid state 0");
}

TEST(CacheCheck, needs_memory_for_its_counts_and_says_so) {
    Forked b(QUIRE_CACHE_AUDIT);
    b.begin();
    b.add(b.parent, 110, 1);
    b.commit();
    uint64_t before = b.host.calls, live = b.host.live();
    ASSERT_EQ(b.check(), kTrue);
    uint64_t calls = b.host.calls - before;
    ASSERT_GT(calls, 2u);
    for (uint64_t n = 1; n <= calls; ++n) {
        b.host.fail_at = b.host.calls + n;
        EXPECT_EQ(b.cache.check(&b.error).code, QUIRE_E_HOST_MEMORY) << n;
        EXPECT_EQ(b.host.live(), live);
    }
    b.host.fail_at = UINT64_MAX;
    EXPECT_EQ(b.check(), kTrue);
}

TEST(CacheAudit, a_commit_without_memory_for_it_leaves_the_step_open) {
    Books b(QUIRE_CACHE_AUDIT);
    b.begin();
    b.add(b.sequence(), 1, 6);
    b.host.fail_at = b.host.calls + 1;
    EXPECT_EQ(b.cache.commit(b.step, nullptr, &b.error).code, QUIRE_E_HOST_MEMORY);
    b.host.fail_at = UINT64_MAX;
    EXPECT_EQ(b.check(), kTrue);
    b.commit();
    EXPECT_EQ(b.check(), kTrue);
}

TEST(CacheAudit, a_follower_refuses_it) {
    Host host;
    Cache cache(host.allocator);
    quire_group_desc group{};
    group.layer_count = group.kv_heads = group.k_head_dim = group.v_head_dim = 1;
    quire_cache_desc desc{};
    desc.flags = QUIRE_CACHE_AUDIT | QUIRE_CACHE_FOLLOWER;
    desc.group_count = 1;
    desc.blocks = 8;
    quire_error error{};
    Status made = cache.create(desc, &group, nullptr, CacheSeeds{1, 1, 1}, &error);
    EXPECT_EQ(made.code, QUIRE_E_ARG);
}

}  // namespace
