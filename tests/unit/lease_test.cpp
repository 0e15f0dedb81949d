// SPDX-License-Identifier: Apache-2.0
//
// Blocks that a lease holds: taken, given and pinned, beside sequences of the same cache; aborted
// and failed steps; random calls against a count of holds.

#include <algorithm>
#include <map>
#include <random>

#include "leased.hpp"
#include "tests/effort.hpp"

namespace {

using namespace quire::test;

Blocks sorted(Blocks ids) {
    std::sort(ids.begin(), ids.end());
    return ids;
}

// Holding. ----------------------------------------------------------------------------------------

TEST(Lease, takes_blocks_until_the_pool_is_empty_and_then_says_how_many_lack) {
    Manager m({.blocks = 6});
    Leased lease(&m);
    m.begin();
    EXPECT_EQ(sorted(lease.take(4).ids), (Blocks{1, 2, 3, 4}));
    Answer refused = lease.take(5);
    EXPECT_EQ(refused.status, QUIRE_S_NO_BLOCKS);
    EXPECT_EQ(refused.result.blocks_short, 3u);
    EXPECT_EQ(refused.result.reason, uint32_t{QUIRE_WAIT_POOL});
    m.finish(m.commit());
    EXPECT_EQ(lease.info().blocks_held, 4u);
    EXPECT_EQ(m.stats().blocks_held, 4u);
    EXPECT_EQ(m.stats().blocks_leased, 4u);
    EXPECT_EQ(m.stats().leases, 1u);
    EXPECT_EQ(m.stats().sequences, 0u);
    EXPECT_EQ(lease.end(), QUIRE_OK);
    EXPECT_EQ(m.stats().blocks_free, 6u);
    EXPECT_EQ(m.stats().blocks_leased, 0u);
}

TEST(Lease, item_that_is_short_counts_the_blocks_and_does_not_preempt_them) {
    Manager m({.blocks = 6});
    Leased lease(&m);
    quire_seq old = m.sequence(), other = m.sequence();
    m.compute(old, tokens_from(1, 4));
    m.compute(other, tokens_from(100, 4));
    m.begin({.may_preempt = true});
    EXPECT_EQ(lease.take(4).status, QUIRE_OK);
    quire_step_result result = m.add(old, tokens_from(5, 12));
    EXPECT_EQ(result.outcome, uint32_t{QUIRE_ITEM_WAIT});
    EXPECT_EQ(result.blocks_short, 2u) << "with the one that the victim could give";
    EXPECT_EQ(m.preempted(m.open()).size(), 0u);
    m.abort();
}

TEST(Lease, quota_counts_each_block_once) {
    Manager m({.blocks = 16});
    quire_namespace ns = m.name_space(5);
    Leased lease(&m, ns);
    quire_seq seq = m.sequence({.ns = ns});
    m.compute(seq, tokens_from(1, 8));
    m.begin();
    Answer refused = lease.take(4);
    EXPECT_EQ(refused.status, QUIRE_S_NO_BLOCKS);
    EXPECT_EQ(refused.result.reason, uint32_t{QUIRE_WAIT_QUOTA});
    EXPECT_EQ(refused.result.blocks_short, 1u);
    Blocks ids = lease.take(3).ids;
    EXPECT_EQ(lease.pin(ids).status, QUIRE_OK) << "held already";
    EXPECT_EQ(lease.info().holds, 6u);
    EXPECT_EQ(lease.match(tokens_from(1, 8), QUIRE_MATCH_PIN).status, QUIRE_S_NO_BLOCKS);
    EXPECT_EQ(lease.info().blocks_held, 3u);
    m.finish(m.commit());
    EXPECT_EQ(m.info_of(ns).blocks_held, 5u);
    EXPECT_EQ(m.info_of(ns).leases, 1u);
    EXPECT_EQ(m.info_of(ns).sequences, 1u);
}

TEST(Lease, block_of_another_tenant_is_zeroed_before_it_is_taken) {
    Manager m({.blocks = 4});
    quire_namespace other = m.name_space();
    quire_seq seq = m.sequence();
    m.compute(seq, tokens_from(1, 16));
    m.end(seq);
    Leased lease(&m, other);
    m.begin();
    Blocks ids = lease.take(3).ids;
    quire_step step = m.commit();
    Blocks zeroed;
    for (const quire_block_copy &copy : m.copies(step)) {
        EXPECT_EQ(copy.kind, uint32_t{QUIRE_COPY_ZERO});
        zeroed.push_back(copy.dst);
    }
    EXPECT_EQ(zeroed, ids);
    m.finish(step);
}

TEST(Lease, give_needs_as_many_holds_as_it_takes_back) {
    Manager m({.blocks = 8});
    Leased lease(&m);
    m.begin();
    Blocks ids = lease.take(2).ids;
    EXPECT_EQ(lease.pin({ids[0]}).status, QUIRE_OK);
    EXPECT_EQ(lease.blocks()[0].holds, 2u);
    std::string before = m.snapshot();
    EXPECT_EQ(lease.give({ids[1], ids[0], ids[0], ids[0]}), QUIRE_E_ARG);
    EXPECT_EQ(lease.give({ids[1], 7}), QUIRE_E_ARG);
    EXPECT_EQ(lease.give({0}), QUIRE_E_ARG);
    EXPECT_EQ(lease.give({-1}), QUIRE_E_ARG);
    EXPECT_EQ(m.snapshot(), before);
    EXPECT_EQ(lease.give({ids[0], ids[1], ids[0]}), QUIRE_OK) << m.message();
    EXPECT_EQ(lease.info().blocks_held, 0u);
    m.finish(m.commit());
    EXPECT_EQ(m.stats().blocks_free, 8u);
}

TEST(Lease, given_block_serves_an_item_of_the_same_step) {
    Manager m({.blocks = 3});
    Leased lease(&m);
    m.begin();
    Blocks ids = lease.take(3).ids;
    m.finish(m.commit());
    quire_seq seq = m.sequence();
    m.begin();
    EXPECT_EQ(m.add(seq, tokens_from(1, 4)).outcome, uint32_t{QUIRE_ITEM_WAIT});
    EXPECT_EQ(lease.give({ids[1]}), QUIRE_OK);
    EXPECT_EQ(m.add(seq, tokens_from(1, 4)).outcome, uint32_t{QUIRE_ITEM_RUN});
    EXPECT_EQ(m.table(seq), Blocks{ids[1]});
    m.finish(m.commit());
}

// The work of step one, on queue 1, may still use the block.
TEST(Lease, given_block_is_used_by_another_queue_only_when_the_step_is_done) {
    Manager m({.blocks = 3});
    Leased lease(&m);
    m.begin({.queue = 1});
    Blocks ids = lease.take(3).ids;
    m.finish(m.commit());
    m.begin({.queue = 1});
    EXPECT_EQ(lease.give(ids), QUIRE_OK);
    quire_step running = m.commit();
    quire_seq seq = m.sequence();
    m.begin({.queue = 2});
    EXPECT_EQ(m.add(seq, tokens_from(1, 4)).outcome, uint32_t{QUIRE_ITEM_WAIT});
    m.abort();
    m.begin({.queue = 1});
    EXPECT_EQ(m.add(seq, tokens_from(1, 4)).outcome, uint32_t{QUIRE_ITEM_RUN});
    m.abort();
    m.finish(running);
    m.begin({.queue = 2});
    EXPECT_EQ(m.add(seq, tokens_from(1, 4)).outcome, uint32_t{QUIRE_ITEM_RUN});
    m.abort();
}

TEST(Lease, blocks_of_an_ended_lease_wait_for_every_committed_step) {
    Manager m({.blocks = 3});
    Leased lease(&m);
    m.begin({.queue = 1});
    lease.take(3);
    m.finish(m.commit());
    m.begin({.queue = 1});
    quire_step running = m.commit();  // its kernels may use the blocks
    EXPECT_EQ(lease.end(), QUIRE_OK) << m.message();
    quire_seq seq = m.sequence();
    m.begin({.queue = 2});
    EXPECT_EQ(m.add(seq, tokens_from(1, 4)).outcome, uint32_t{QUIRE_ITEM_WAIT});
    m.abort();
    m.finish(running);
    m.compute(seq, tokens_from(1, 4));
}

TEST(Lease, step_on_another_queue_waits_for_the_one_that_changed_it_last) {
    Manager m({.blocks = 8});
    Leased lease(&m);
    m.begin({.queue = 1});
    lease.take(1);
    quire_step first = m.commit();
    m.begin({.queue = 2});
    EXPECT_EQ(lease.take(1).status, QUIRE_E_BUSY);
    m.finish(first);
    EXPECT_EQ(lease.take(1).status, QUIRE_OK) << m.message();
    m.finish(m.commit());
}

TEST(Lease, handle_is_no_sequence_and_ends_once) {
    Manager m({.blocks = 8, .max_sequences = 2});
    Leased lease(&m);
    quire_seq seq = m.sequence();
    auto info = described<quire_seq_info>();
    auto lease_info = described<quire_lease_info>();
    const uint64_t number = (uint64_t{1} << 56) - 1;
    const uint64_t seq_type = seq & ~number, lease_type = lease.lease & ~number;
    for (uint64_t wrong : {lease.lease, seq_type | (lease.lease & number), uint64_t{0}}) {
        EXPECT_EQ(m.api().seq_get_info(m.cache(), wrong, &info, m.error()), QUIRE_E_STALE);
        EXPECT_EQ(m.api().seq_end(m.cache(), wrong, 0, m.error()), QUIRE_E_STALE);
    }
    for (uint64_t wrong : {seq, lease_type | (seq & number), uint64_t{0}}) {
        EXPECT_EQ(m.api().lease_get_info(m.cache(), wrong, &lease_info, m.error()), QUIRE_E_STALE);
        EXPECT_EQ(m.api().lease_end(m.cache(), wrong, m.error()), QUIRE_E_STALE);
    }
    auto desc = described<quire_lease_desc>();
    quire_lease out = 0;
    EXPECT_EQ(m.api().lease_create(m.cache(), &desc, &out, m.error()), QUIRE_E_LIMIT);
    EXPECT_EQ(lease.end(), QUIRE_OK);
    EXPECT_EQ(lease.end(), QUIRE_E_STALE);
    EXPECT_EQ(m.api().lease_create(m.cache(), &desc, &out, m.error()), QUIRE_OK) << m.message();
    EXPECT_EQ(m.api().seq_get_info(m.cache(), seq_type | (lease.lease & number), &info, m.error()),
              QUIRE_E_STALE);
}

TEST(Lease, zero_is_no_handle_where_none_was_given_out) {
    for (uint32_t flags : {uint32_t{0}, uint32_t{QUIRE_CACHE_LEASES_ONLY}}) {
        Manager m({.blocks = 31, .flags = flags});
        Leased none = Leased::none(&m);
        auto info = described<quire_lease_info>();
        quire_lease_block block;
        uint32_t count = 0;
        const Tokens tokens = tokens_from(1, 8);
        EXPECT_EQ(m.api().lease_get_info(m.cache(), 0, &info, m.error()), QUIRE_E_STALE);
        EXPECT_EQ(
            m.api().lease_blocks(m.cache(), 0, 0, 0, &block, 1, sizeof block, &count, m.error()),
            QUIRE_E_STALE);
        EXPECT_EQ(none.find({1, 2, 3}).status, QUIRE_E_STALE);
        EXPECT_EQ(none.find({1, 2, 3, 4, 5}, QUIRE_MATCH_TOUCH).status, QUIRE_E_STALE);
        EXPECT_EQ(none.insert({}, {}).status, QUIRE_E_STALE);
        EXPECT_EQ(none.insert({1, 2, 3, 4}, {4, 5, 6, 7}).status, QUIRE_E_STALE);
        EXPECT_EQ(none.match(tokens).status, QUIRE_E_STALE);
        EXPECT_EQ(none.give({1}), QUIRE_E_STALE);
        EXPECT_EQ(none.pin({1}).status, QUIRE_E_STALE);
        EXPECT_EQ(none.forget({1}, &count), QUIRE_E_STALE);
        EXPECT_EQ(none.end(), QUIRE_E_STALE);
        m.begin();
        EXPECT_EQ(none.take(2).status, QUIRE_E_STALE);
        EXPECT_EQ(none.give({1}), QUIRE_E_STALE);
        EXPECT_EQ(none.pin({1}).status, QUIRE_E_STALE);
        EXPECT_EQ(none.match(tokens, QUIRE_MATCH_PIN).status, QUIRE_E_STALE);
        EXPECT_EQ(none.publish(tokens, {1, 2}).status, QUIRE_E_STALE);
        m.abort();
    }
}

TEST(Lease, is_not_ended_while_the_open_step_has_changed_it) {
    Manager m({.blocks = 8});
    quire_namespace ns = m.name_space();
    Leased lease(&m, ns);
    m.begin();
    lease.take(1);
    EXPECT_EQ(lease.end(), QUIRE_E_BUSY);
    m.abort();
    EXPECT_EQ(m.api().namespace_destroy(m.cache(), ns, m.error()), QUIRE_E_BUSY);
    EXPECT_EQ(lease.end(), QUIRE_OK) << m.message();
    EXPECT_EQ(m.api().namespace_destroy(m.cache(), ns, m.error()), QUIRE_OK) << m.message();
}

TEST(Lease, spans_are_refused) {
    Manager m;
    const char bytes[] = "image";
    quire_key span{QUIRE_KEY_MEDIA, 5, bytes, 0, 4};
    auto desc = described<quire_lease_desc>();
    desc.keys = &span;
    desc.key_count = 1;
    desc.key_stride = sizeof span;
    quire_lease out = 0;
    EXPECT_EQ(m.api().lease_create(m.cache(), &desc, &out, m.error()), QUIRE_E_ARG);
    m.check();
}

// Steps. ------------------------------------------------------------------------------------------

TEST(LeaseStep, abort_takes_everything_back) {
    Manager m({.blocks = 12});
    Leased lease(&m);
    Blocks a = lease.fill(tokens_from(1, 12));
    quire_seq seq = m.sequence();
    m.compute(seq, tokens_from(100, 8));
    m.end(seq);
    std::string before = m.snapshot();
    std::vector<quire_lease_block> held = lease.blocks();
    m.begin();
    EXPECT_EQ(lease.give({a[1], a[2]}), QUIRE_OK);
    Blocks ids = lease.take(9).ids;  // evicts what is cached
    EXPECT_EQ(ids.size(), 9u);
    EXPECT_EQ(lease.publish(tokens_from(300, 12), {ids[0], ids[1], ids[2]}).status, QUIRE_OK);
    EXPECT_EQ(lease.match(tokens_from(300, 12), QUIRE_MATCH_PIN).result.blocks, 3u);
    EXPECT_EQ(lease.give({ids[0], ids[5], a[0]}), QUIRE_OK) << m.message();
    m.abort();
    EXPECT_EQ(m.snapshot(), before);
    std::vector<quire_lease_block> now = lease.blocks();
    ASSERT_EQ(now.size(), held.size());
    for (size_t i = 0; i < now.size(); ++i) {
        EXPECT_EQ(now[i].block, held[i].block);
        EXPECT_EQ(now[i].holds, held[i].holds);
        EXPECT_EQ(now[i].flags, held[i].flags);
    }
}

TEST(LeaseStep, item_that_a_lease_rests_on_is_not_dropped) {
    Manager m({.blocks = 12});
    Leased lease(&m);
    quire_seq seq = m.sequence(), other = m.sequence();
    m.begin();
    m.add(seq, tokens_from(1, 9));
    m.add(other, tokens_from(100, 9));
    EXPECT_EQ(lease.match(tokens_from(1, 8), QUIRE_MATCH_PIN).result.blocks, 2u);
    quire_seq dropped[4];
    uint32_t count = 0;
    EXPECT_EQ(m.api().step_drop(m.cache(), m.open(), seq, dropped, 4, &count, m.error()),
              QUIRE_E_BUSY);
    m.check();
    EXPECT_EQ(m.drop(other).size(), 1u);
    m.finish(m.commit());
}

TEST(LeaseStep, item_finds_what_a_lease_published_in_the_same_step) {
    Manager m({.blocks = 12});
    Leased lease(&m);
    quire_seq seq = m.sequence();
    m.begin();
    Blocks ids = lease.take(2).ids;
    lease.publish(tokens_from(1, 8), ids);
    EXPECT_EQ(m.add(seq, tokens_from(1, 9)).hit_tokens, 8u);
    EXPECT_EQ(m.drop(seq).size(), 1u);
    m.finish(m.commit());
    EXPECT_EQ(m.compute(seq, tokens_from(1, 9)).hit_tokens, 8u);
}

TEST(LeaseStep, failed_step_withdraws_what_was_published_while_it_ran) {
    Manager m({.blocks = 16});
    Leased lease(&m), pins(&m);
    Blocks safe = lease.fill(tokens_from(1, 4));
    m.begin();
    Blocks own = lease.take(2).ids;
    quire_step writes = m.commit();
    m.begin();
    EXPECT_EQ(lease.publish(tokens_from(1, 12), {safe[0], own[0], own[1]}).status, QUIRE_OK);
    quire_step names = m.commit();
    m.begin();
    EXPECT_EQ(pins.match(tokens_from(1, 12), QUIRE_MATCH_PIN).result.blocks, 3u);
    quire_step reads = m.commit();
    quire_seq seq = m.sequence();
    m.begin();
    EXPECT_EQ(m.add(seq, tokens_from(1, 13)).hit_tokens, 12u);
    quire_step last = m.commit();
    m.finish(writes, QUIRE_STEP_FAILED);
    EXPECT_EQ(lease.match(tokens_from(1, 12)).ids, safe);
    EXPECT_EQ(lease.info().blocks_lost, 2u);
    EXPECT_EQ(pins.info().blocks_lost, 2u);
    EXPECT_EQ(lease.info().blocks_held, 3u);
    EXPECT_EQ(m.info(seq).computed_tokens, 4u);
    m.finish(names);
    m.finish(reads);
    m.finish(last);
    m.begin();
    Answer again = lease.publish(tokens_from(1, 12), {safe[0], own[0], own[1]});
    EXPECT_EQ(again.status, QUIRE_E_ARG) << "another lease holds them too";
    EXPECT_EQ(pins.give({own[0], own[1]}), QUIRE_OK) << m.message();
    again = lease.publish(tokens_from(1, 12), {safe[0], own[0], own[1]});
    EXPECT_EQ(again.status, QUIRE_OK) << m.message();
    m.finish(m.commit());
}

TEST(LeaseStep, block_that_the_failed_step_was_to_zero_leaves_the_lease) {
    Manager m({.blocks = 4});
    quire_namespace other = m.name_space();
    quire_seq seq = m.sequence();
    m.compute(seq, tokens_from(1, 16));
    m.end(seq);
    Leased lease(&m, other);
    m.begin();
    Blocks ids = lease.take(2).ids;
    quire_step step = m.commit();
    m.finish(step, QUIRE_STEP_FAILED);
    EXPECT_EQ(lease.info().blocks_held, 0u);
    EXPECT_EQ(lease.info().blocks_lost, 2u);
    EXPECT_EQ(m.info_of(other).blocks_held, 0u);
    m.begin();
    EXPECT_EQ(lease.take(4).status, QUIRE_OK);
    EXPECT_EQ(m.copies(m.open()).size(), 4u) << "all are zeroed now";
    m.finish(m.commit());
}

// Random calls. -----------------------------------------------------------------------------------

// A lease's blocks, and how often it holds each, as its caller counts.
using Held = std::map<int32_t, uint32_t>;

Held held_by(Leased &lease) {
    Held out;
    for (const quire_lease_block &b : lease.blocks()) out[b.block] = b.holds;
    return out;
}

class RandomCalls {
 public:
    RandomCalls(Manager *m, uint32_t seed) : m_(*m), random_(seed) {
        for (int i = 0; i < 3; ++i) leases_.emplace_back(m), model_.emplace_back();
    }

    // A step with some calls; half of the steps are aborted.
    void step() {
        std::string before = m_.snapshot();
        std::vector<Held> model = model_;
        m_.begin();
        for (uint32_t i = 0; i < 6; ++i) call();
        if (below(2) == 0) {
            m_.abort();
            EXPECT_EQ(m_.snapshot(), before);
            model_ = model;
        } else {
            m_.finish(m_.commit());
        }
        for (size_t i = 0; i < leases_.size(); ++i) EXPECT_EQ(held_by(leases_[i]), model_[i]);
    }
    void finish() {
        for (Leased &lease : leases_) EXPECT_EQ(lease.end(), QUIRE_OK) << m_.message();
        EXPECT_EQ(m_.stats().blocks_held, 0u);
    }

 private:
    uint32_t below(uint32_t end) { return random_() % end; }
    Tokens some_tokens() { return tokens_from(1 + below(3) * 100, 4 * (1 + below(4))); }
    Blocks some_held(const Held &held) {
        Blocks out;
        for (const auto &[block, count] : held) {
            for (uint32_t i = 0; i < count; ++i) {
                if (below(3) == 0) out.push_back(block);
            }
        }
        std::shuffle(out.begin(), out.end(), random_);
        return out;
    }
    void call() {
        size_t at = below(3);
        Leased &lease = leases_[at];
        Held &held = model_[at];
        switch (below(6)) {
            case 0: {
                Answer taken = lease.take(1 + below(5));
                if (taken.status != QUIRE_OK) return;
                for (int32_t id : taken.ids) EXPECT_EQ(held[id]++, 0u);
                return;
            }
            case 1:
                return give(&lease, &held, some_held(held));
            case 2: {
                Blocks ids = some_held(held);
                EXPECT_EQ(lease.pin(ids).status, QUIRE_OK) << m_.message();
                for (int32_t id : ids) ++held[id];
                return;
            }
            case 3: {
                Answer found = lease.match(some_tokens(), QUIRE_MATCH_PIN);
                EXPECT_EQ(found.status, QUIRE_OK) << m_.message();
                for (int32_t id : found.ids) ++held[id];
                return;
            }
            case 4:
                return publish(&lease, &held);
            default: {
                Blocks wrong = some_held(held);
                wrong.push_back(0);
                std::string before = m_.snapshot();
                EXPECT_EQ(lease.give(wrong), QUIRE_E_ARG);
                EXPECT_EQ(m_.snapshot(), before);
            }
        }
    }
    void give(Leased *lease, Held *held, const Blocks &ids) {
        EXPECT_EQ(lease->give(ids), QUIRE_OK) << m_.message();
        for (int32_t id : ids) {
            if (--(*held)[id] == 0) held->erase(id);
        }
    }
    void publish(Leased *lease, Held *held) {
        Tokens tokens = some_tokens();
        Answer taken = lease->take(static_cast<uint32_t>(tokens.size()) / 4);
        if (taken.status != QUIRE_OK) return;
        for (int32_t id : taken.ids) ++(*held)[id];
        Answer named = lease->publish(tokens, taken.ids);
        EXPECT_EQ(named.status, QUIRE_OK) << m_.message();
        Blocks duplicates;
        for (size_t i = 0; i < named.ids.size(); ++i) {
            if (named.ids[i] == taken.ids[i]) continue;
            if ((*held)[named.ids[i]] == 0) (*held)[named.ids[i]] = 1;
            duplicates.push_back(taken.ids[i]);
        }
        give(lease, held, duplicates);
    }

    Manager &m_;
    std::mt19937 random_;
    std::vector<Leased> leases_;
    std::vector<Held> model_;
};

TEST(LeaseRandom, random_calls_agree_with_a_count_of_holds) {
    for (uint64_t seed : quire::tests::seeds(0, {.all = 100, .usual = 20, .few = 4})) {
        Manager m({.blocks = 24});
        RandomCalls calls(&m, static_cast<uint32_t>(seed));
        for (int i = 0; i < 30; ++i) {
            calls.step();
            ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed << ", step " << i;
        }
        calls.finish();
    }
}

}  // namespace
