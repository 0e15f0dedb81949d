// SPDX-License-Identifier: Apache-2.0
//
// Ended, forged and foreign handles, and refused calls: each is an error and changes nothing.

#include <cstdlib>

#include "manager.hpp"

namespace {

using namespace quire::test;

TEST(Handle, a_double_end_is_an_error_and_changes_nothing) {
    Manager m;
    quire_seq a = m.sequence(), b = m.sequence();
    m.compute(a, tokens_from(1, 5));
    m.compute(b, tokens_from(1, 5));
    m.end(a);
    std::string before = m.books();
    EXPECT_EQ(m.api().seq_end(m.cache(), a, 0, m.error()), QUIRE_E_STALE);
    EXPECT_EQ(m.books(), before);
    quire_seq c = m.sequence();  // in a's slot
    EXPECT_NE(c, a);
    EXPECT_EQ(m.api().seq_end(m.cache(), a, 0, m.error()), QUIRE_E_STALE);
    EXPECT_EQ(m.info(c).known_tokens, 0u);
}

// Every call that takes a sequence.
void expect_stale(Manager *m, quire_seq seq) {
    const quire_api &api = m->api();
    std::string before = m->books();
    quire_seq out = 0;
    uint32_t count = 0;
    auto info = described<quire_seq_info>();
    quire_token_span span{seq, 0, 0, 0, 0};
    quire_step_result result{};
    EXPECT_EQ(api.seq_end(m->cache(), seq, 0, m->error()), QUIRE_E_STALE);
    EXPECT_EQ(api.seq_fork(m->cache(), seq, 0, &out, m->error()), QUIRE_E_STALE);
    EXPECT_EQ(api.seq_truncate(m->cache(), seq, 0, m->error()), QUIRE_E_STALE);
    EXPECT_EQ(api.seq_accept(m->cache(), seq, 0, m->error()), QUIRE_E_STALE);
    EXPECT_EQ(api.seq_get_info(m->cache(), seq, &info, m->error()), QUIRE_E_STALE);
    EXPECT_EQ(api.seq_set_tokens(m->cache(), &span, 1, sizeof span, nullptr, 0, m->error()),
              QUIRE_E_STALE);
    EXPECT_EQ(api.prefix_probe(m->cache(), seq, nullptr, 0, &count, m->error()), QUIRE_E_STALE);
    EXPECT_EQ(api.step_blocks(m->cache(), 0, seq, 0, 0, nullptr, 0, &count, m->error()),
              QUIRE_E_STALE);
    m->begin();
    EXPECT_EQ(m->try_add(seq, {1}, {}, &result), QUIRE_E_STALE);
    EXPECT_EQ(api.step_drop(m->cache(), m->open(), seq, &out, 1, &count, m->error()),
              QUIRE_E_STALE);
    EXPECT_EQ(api.step_preempt(m->cache(), m->open(), seq, 0, &count, m->error()), QUIRE_E_STALE);
    m->abort();
    EXPECT_EQ(m->books(), before);
}

TEST(Handle, an_ended_sequence_is_stale_in_every_call) {
    Manager m;
    quire_seq a = m.sequence();
    m.compute(m.sequence(), tokens_from(1, 5));
    m.end(a);
    expect_stale(&m, a);
}

TEST(Handle, a_forged_sequence_is_stale_in_every_call) {
    Manager m;
    quire_seq a = m.sequence();
    for (quire_seq forged : {quire_seq{0}, a + 1, a ^ (quire_seq{1} << 32),
                             a ^ (quire_seq{3} << 56), ~quire_seq{0}, a | 0xFFFFFFFFu}) {
        expect_stale(&m, forged);
    }
    EXPECT_EQ(m.info(a).known_tokens, 0u);
}

TEST(Handle, another_caches_sequence_is_stale_in_every_call) {
    Manager m, other;
    m.sequence();
    expect_stale(&m, other.sequence());
}

TEST(Handle, a_step_that_is_over_is_stale) {
    Manager m;
    quire_seq a = m.sequence();
    quire_step aborted = m.begin();
    m.abort();
    m.begin();
    m.add(a, {1});
    quire_step done = m.commit();
    m.finish(done);
    uint32_t count = 0;
    for (quire_step step : {aborted, done, quire_step{0}, quire_step{a}, done + 1}) {
        EXPECT_EQ(m.api().step_abort(m.cache(), step, m.error()), QUIRE_E_STALE);
        EXPECT_EQ(m.api().step_commit(m.cache(), step, nullptr, m.error()), QUIRE_E_STALE);
        EXPECT_EQ(m.api().step_finish(m.cache(), step, nullptr, 0, m.error()), QUIRE_E_STALE);
        EXPECT_EQ(m.api().step_copies(m.cache(), step, nullptr, 0, 0, &count, m.error()),
                  QUIRE_E_STALE);
    }
}

TEST(Handle, a_namespace_that_is_over_is_stale) {
    Manager m;
    quire_namespace ns = m.name_space();
    ASSERT_EQ(m.api().namespace_destroy(m.cache(), ns, m.error()), QUIRE_OK);
    EXPECT_EQ(m.api().namespace_destroy(m.cache(), ns, m.error()), QUIRE_E_STALE);
    auto info = described<quire_namespace_info>();
    EXPECT_EQ(m.api().namespace_get_info(m.cache(), ns, &info, m.error()), QUIRE_E_STALE);
    auto desc = described<quire_seq_desc>();
    desc.ns = ns;
    quire_seq out = 0;
    EXPECT_EQ(m.api().seq_create(m.cache(), &desc, &out, m.error()), QUIRE_E_STALE);
    EXPECT_EQ(m.stats().sequences, 0u);
}

// The default namespace has no handle, so no forged handle reaches it.
TEST(Handle, a_forged_namespace_never_reaches_the_default_one) {
    Manager m;
    m.compute(m.sequence(), tokens_from(1, 9));
    quire_namespace ns = m.name_space();
    std::string before = m.books();
    std::vector<quire_namespace> forged = {0, 1, ns - 1, ns + 1, ns >> 56 << 56, ~uint64_t{0}};
    for (uint32_t bit = 0; bit < 64; ++bit) forged.push_back(ns ^ uint64_t{1} << bit);
    for (uint32_t number = 0; number < 1000; ++number) forged.push_back((ns >> 56 << 56) + number);
    for (quire_namespace handle : forged) {
        if (handle == ns) continue;
        ASSERT_EQ(m.api().namespace_destroy(m.cache(), handle, m.error()), QUIRE_E_STALE);
    }
    EXPECT_EQ(m.books(), before);
    m.compute(m.sequence({.ns = m.name_space()}), tokens_from(100, 9));
    EXPECT_EQ(m.probe(tokens_from(100, 9)), 0u) << "the next namespace is not the default one";
    EXPECT_EQ(m.probe(tokens_from(1, 9)), 8u);
}

TEST(Handle, refused_calls_use_up_no_handle) {
    Manager m({.max_sequences = 1});
    quire_step first = m.begin();
    m.abort();
    auto desc = described<quire_step_desc>();
    quire_step_item item{};
    item.seq = 1;
    quire_step_result result{};
    quire_step out = 0;
    for (int i = 0; i < 100; ++i) {
        ASSERT_EQ(m.api().step_begin(m.cache(), &desc, &item, 1, sizeof item, nullptr, 0, &result,
                                     sizeof result, &out, m.error()),
                  QUIRE_E_STALE);
    }
    EXPECT_EQ(m.begin(), first + 1);
    m.abort();
    quire_seq a = m.sequence();
    auto seq_desc = described<quire_seq_desc>();
    quire_seq refused = 0;
    for (int i = 0; i < 100; ++i) {
        ASSERT_EQ(m.api().seq_create(m.cache(), &seq_desc, &refused, m.error()), QUIRE_E_LIMIT);
        ASSERT_EQ(m.api().seq_fork(m.cache(), a, 0, &refused, m.error()), QUIRE_E_LIMIT);
    }
    m.end(a);
    EXPECT_EQ(m.sequence(), a + 1);
}

TEST(Handle, more_than_2_to_the_24_sequences_are_refused_in_words) {
    Manager m;
    quire_instance *instance = nullptr;
    auto instance_desc = described<quire_instance_desc>();
    ASSERT_EQ(m.api().instance_create(&instance_desc, &instance, m.error()), QUIRE_OK);
    auto group = described<quire_group_desc>();
    group.layer_count = group.kv_heads = group.k_head_dim = group.v_head_dim = 1;
    auto desc = described<quire_cache_desc>();
    desc.groups = &group;
    desc.group_count = 1;
    desc.group_stride = sizeof group;
    desc.blocks = 8;
    desc.max_sequences = (1u << 24) + 1;
    quire_cache *cache = nullptr;
    EXPECT_EQ(m.api().cache_create(instance, &desc, &cache, m.error()), QUIRE_E_LIMIT);
    EXPECT_NE(m.message().find("max_sequences is 16777217: at most 16777216"), std::string::npos)
        << m.message();
    EXPECT_EQ(m.api().instance_destroy(instance, m.error()), QUIRE_OK);
}

TEST(Handle, a_sequence_in_the_open_step_is_busy) {
    Manager m;
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 5));
    m.begin();
    m.add(a, {6});
    std::string before = m.books();
    quire_seq out = 0;
    uint32_t freed = 0;
    quire_step_result result{};
    EXPECT_EQ(m.api().seq_end(m.cache(), a, 0, m.error()), QUIRE_E_BUSY);
    EXPECT_EQ(m.api().seq_fork(m.cache(), a, 1, &out, m.error()), QUIRE_E_BUSY);
    EXPECT_EQ(m.api().seq_truncate(m.cache(), a, 1, m.error()), QUIRE_E_BUSY);
    EXPECT_EQ(m.api().seq_accept(m.cache(), a, 0, m.error()), QUIRE_E_BUSY);
    EXPECT_EQ(m.api().step_preempt(m.cache(), m.open(), a, 0, &freed, m.error()), QUIRE_E_BUSY);
    EXPECT_EQ(m.try_add(a, {7}, {}, &result), QUIRE_E_BUSY);
    EXPECT_EQ(m.api().cache_reset(m.cache(), m.error()), QUIRE_E_BUSY);
    EXPECT_EQ(m.api().cache_destroy(m.cache(), m.error()), QUIRE_E_BUSY);
    EXPECT_EQ(m.api().step_finish(m.cache(), m.open(), nullptr, 0, m.error()), QUIRE_E_BUSY);
    quire_step second = 0;
    auto desc = described<quire_step_desc>();
    EXPECT_EQ(m.api().step_begin(m.cache(), &desc, nullptr, 0, 0, nullptr, 0, nullptr, 0, &second,
                                 m.error()),
              QUIRE_E_BUSY);
    EXPECT_EQ(m.books(), before);
}

TEST(Handle, a_committed_step_can_only_be_finished) {
    Manager m;
    m.begin();
    m.add(m.sequence(), {1});
    quire_step step = m.commit();
    std::string before = m.books();
    EXPECT_EQ(m.api().step_abort(m.cache(), step, m.error()), QUIRE_E_BUSY);
    EXPECT_EQ(m.api().step_commit(m.cache(), step, nullptr, m.error()), QUIRE_E_BUSY);
    EXPECT_EQ(m.api().cache_destroy(m.cache(), m.error()), QUIRE_E_BUSY);
    EXPECT_EQ(m.api().step_finish(m.cache(), step, nullptr, 7, m.error()), QUIRE_E_ARG);
    quire_native signal{};
    signal.kind = QUIRE_NATIVE_VULKAN_SEMAPHORE;
    EXPECT_EQ(m.api().step_finish(m.cache(), step, &signal, 0, m.error()), QUIRE_E_UNSUPPORTED);
    EXPECT_EQ(m.books(), before);
}

TEST(Handle, a_namespace_with_sequences_is_busy) {
    Manager m;
    quire_namespace ns = m.name_space();
    quire_seq a = m.sequence({.ns = ns});
    EXPECT_EQ(m.api().namespace_destroy(m.cache(), ns, m.error()), QUIRE_E_BUSY);
    m.end(a);
    m.begin();
    EXPECT_EQ(m.api().namespace_destroy(m.cache(), ns, m.error()), QUIRE_E_BUSY);
    m.abort();
    EXPECT_EQ(m.api().namespace_destroy(m.cache(), ns, m.error()), QUIRE_OK);
}

TEST(Handle, a_wrong_item_names_its_index_and_adds_none) {
    Manager m({.max_sequence_tokens = 20});
    quire_seq a = m.sequence(), b = m.sequence();
    m.compute(b, tokens_from(1, 5));
    m.begin();
    std::string before = m.books();
    Tokens tokens = tokens_from(1, 30);
    auto refuse = [&](quire_step_item second, quire_status expected) {
        quire_step_item items[2] = {};
        items[0].seq = a;
        items[0].token_count = 3;
        items[1] = second;
        quire_step_result results[2];
        EXPECT_EQ(m.api().step_add(m.cache(), m.open(), items, 2, sizeof items[0], tokens.data(),
                                   30, results, sizeof results[0], m.error()),
                  expected);
        EXPECT_NE(m.message().find("items[1]"), std::string::npos) << m.message();
        EXPECT_EQ(m.books(), before);
    };
    refuse({b, 29, 2, 0, 0, 0, 0, 0, 0, 0, 0}, QUIRE_E_ARG);          // past the tokens
    refuse({b, 0xFFFFFFFF, 2, 0, 0, 0, 0, 0, 0, 0, 0}, QUIRE_E_ARG);  // and not by wrapping around
    refuse({b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, QUIRE_E_ARG);           // nothing to compute
    refuse({b, 0, 2, 0, 3, 0, 0, 0, 0, 0, 0}, QUIRE_E_ARG);           // more drafts than tokens
    refuse({b, 0, 2, 1, 1, 0, 0, 0, 0, 0, 0}, QUIRE_E_ARG);           // drafts left uncomputed
    refuse({b, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0}, QUIRE_E_LIMIT);        // past max_sequence_tokens
    refuse({b, 0, 1, 0, 0, 0xFFFFFFFF, 0, 0, 0, 0, 0}, QUIRE_E_LIMIT);  // lookahead past it
    refuse({a, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0}, QUIRE_E_BUSY);            // twice
    refuse({b, 0, 1, 0, 0, 0, 9, 0, 0, 0, 0}, QUIRE_E_UNSUPPORTED);     // no such kind of mask
    refuse({0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0}, QUIRE_E_STALE);           // no sequence
}

TEST(Handle, sequences_past_the_limit_are_refused) {
    Manager m({.max_sequences = 2});
    quire_seq a = m.sequence();
    m.sequence();
    std::string before = m.books();
    auto desc = described<quire_seq_desc>();
    quire_seq out = 0;
    EXPECT_EQ(m.api().seq_create(m.cache(), &desc, &out, m.error()), QUIRE_E_LIMIT);
    EXPECT_EQ(m.api().seq_fork(m.cache(), a, 0, &out, m.error()), QUIRE_E_LIMIT);
    EXPECT_EQ(m.books(), before);
}

TEST(Handle, lengths_past_the_end_are_refused) {
    Manager m;
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 5));
    std::string before = m.books();
    quire_seq out = 0;
    uint32_t count = 0;
    EXPECT_EQ(m.api().seq_fork(m.cache(), a, 6, &out, m.error()), QUIRE_E_ARG);
    EXPECT_EQ(m.api().seq_truncate(m.cache(), a, 6, m.error()), QUIRE_E_ARG);
    EXPECT_EQ(m.api().seq_end(m.cache(), a, 8, m.error()), QUIRE_E_ARG);
    EXPECT_EQ(m.api().step_blocks(m.cache(), 0, a, 1, 0, nullptr, 0, &count, m.error()),
              QUIRE_E_ARG);
    EXPECT_EQ(m.api().step_blocks(m.cache(), 0, a, 0, 3, nullptr, 0, &count, m.error()),
              QUIRE_E_ARG);
    EXPECT_EQ(m.books(), before);
}

TEST(Handle, more_unfinished_steps_than_promised_are_busy) {
    Manager m;
    quire_seq a = m.sequence();
    std::vector<quire_step> steps;
    for (quire_token i = 0; i < QUIRE_UNFINISHED_STEPS; ++i) {
        m.begin();
        m.add(a, {i});
        steps.push_back(m.commit());
    }
    quire_step out = 0;
    auto desc = described<quire_step_desc>();
    EXPECT_EQ(m.api().step_begin(m.cache(), &desc, nullptr, 0, 0, nullptr, 0, nullptr, 0, &out,
                                 m.error()),
              QUIRE_E_BUSY);
    m.finish(steps[0]);
    m.begin();
}

TEST(Handle, keys_are_checked_and_named) {
    Manager m;
    auto refuse = [&](quire_key key, quire_status expected) {
        quire_key keys[] = {{QUIRE_KEY_SALT, 1, "s", 0, 0}, key};
        auto desc = described<quire_seq_desc>();
        desc.keys = keys;
        desc.key_count = 2;
        desc.key_stride = sizeof keys[0];
        quire_seq out = 0;
        EXPECT_EQ(m.api().seq_create(m.cache(), &desc, &out, m.error()), expected);
        EXPECT_NE(m.message().find("keys[1]"), std::string::npos) << m.message();
        EXPECT_EQ(m.stats().sequences, 0u);
    };
    refuse({0, 1, "a", 0, 0}, QUIRE_E_UNSUPPORTED);
    refuse({9, 1, "a", 0, 0}, QUIRE_E_UNSUPPORTED);
    refuse({QUIRE_KEY_SALT, 4097, "a", 0, 0}, QUIRE_E_LIMIT);
    refuse({QUIRE_KEY_SALT, 1, nullptr, 0, 0}, QUIRE_E_ARG);
    refuse({QUIRE_KEY_MEDIA, 1, "a", 5, 5}, QUIRE_E_ARG);
    refuse({QUIRE_KEY_MEDIA, 1, "a", 5, 4}, QUIRE_E_ARG);
}

// Numbers of at most 18 bits: needs a test build that runs with QUIRE_TEST_LIMITS=handle_bits=18.
class Numbers : public testing::Test {
 protected:
    static constexpr uint32_t kMost = 1u << 18;
    void SetUp() override {
        const char *limits = std::getenv("QUIRE_TEST_LIMITS");
        if (limits == nullptr || std::string(limits).find("handle_bits=18") == std::string::npos)
            GTEST_SKIP() << "numbers do not run out: QUIRE_TEST_LIMITS does not limit them";
    }
    Manager m;
};

TEST_F(Numbers, of_steps_run_out_in_words_and_the_cache_goes_on) {
    quire_seq seq = m.sequence();
    m.compute(seq, tokens_from(1, 5));
    m.begin();
    m.add(seq, {6});
    quire_step last = m.commit();
    auto desc = described<quire_step_desc>();
    quire_step step = 0;
    quire_status status = QUIRE_OK;
    for (uint32_t i = 0; i <= kMost && status == QUIRE_OK; ++i) {
        status = m.api().step_begin(m.cache(), &desc, nullptr, 0, 0, nullptr, 0, nullptr, 0, &step,
                                    m.error());
        if (status == QUIRE_OK) {
            ASSERT_EQ(m.api().step_abort(m.cache(), step, m.error()), QUIRE_OK);
        }
    }
    EXPECT_EQ(status, QUIRE_E_LIMIT) << m.message();
    m.finish(last);
    EXPECT_EQ(m.info(seq).computed_tokens, 6u);
    m.end(m.fork(seq, 5));
    m.end(seq);
    EXPECT_EQ(m.stats().blocks_held, 0u);
}

TEST_F(Numbers, of_sequences_run_out_in_words_and_the_living_go_on) {
    quire_seq seq = m.sequence();
    auto desc = described<quire_seq_desc>();
    quire_status status = QUIRE_OK;
    for (uint32_t i = 0; i <= kMost && status == QUIRE_OK; ++i) {
        quire_seq out = 0;
        status = m.api().seq_create(m.cache(), &desc, &out, m.error());
        if (status == QUIRE_OK) {
            ASSERT_EQ(m.api().seq_end(m.cache(), out, 0, m.error()), QUIRE_OK);
        }
    }
    EXPECT_EQ(status, QUIRE_E_LIMIT) << m.message();
    EXPECT_EQ(m.info(seq).known_tokens, 0u);
    std::string before = m.books();
    quire_seq child = 0;
    EXPECT_EQ(m.api().seq_fork(m.cache(), seq, 0, &child, m.error()), QUIRE_E_LIMIT);
    EXPECT_EQ(m.books(), before);
}

TEST_F(Numbers, of_namespaces_run_out_in_words) {
    quire_namespace kept = m.name_space();
    quire_status status = QUIRE_OK;
    auto desc = described<quire_namespace_desc>();
    for (uint32_t i = 0; i <= kMost && status == QUIRE_OK; ++i) {
        quire_namespace out = 0;
        status = m.api().namespace_create(m.cache(), &desc, &out, m.error());
        if (status == QUIRE_OK) {
            ASSERT_EQ(m.api().namespace_destroy(m.cache(), out, m.error()), QUIRE_OK);
        }
    }
    EXPECT_EQ(status, QUIRE_E_LIMIT) << m.message();
    m.end(m.sequence({.ns = kept}));
}

}  // namespace
