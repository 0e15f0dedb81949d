// SPDX-License-Identifier: Apache-2.0
//
// The host allocator fails at its first call, its second, and so on: each failure gives a clear
// error, leaks nothing, and leaves the cache unchanged.

#include <string>

#include "counting_host.hpp"
#include "tests/unit/manager.hpp"

namespace {

using namespace quire::test;

constexpr uint64_t kMostCalls = 500;  // made by one call into the library

struct Case {
    const quire_api &api = library();
    CountingHost host;
    quire_instance *instance = nullptr;
    quire_cache *cache = nullptr;
    quire_error error{};

    Case() {
        error.struct_size = sizeof error;
        auto desc = host.description();
        EXPECT_EQ(api.instance_create(&desc, &instance, &error), QUIRE_OK) << error.message;
    }
    ~Case() {
        host.fail_at = UINT64_MAX;
        if (cache != nullptr) {
            EXPECT_EQ(api.cache_destroy(cache, &error), QUIRE_OK) << error.message;
        }
        EXPECT_EQ(host.live_bytes, 0);
        EXPECT_EQ(host.live_blocks, 0);
        EXPECT_EQ(api.instance_destroy(instance, &error), QUIRE_OK) << error.message;
    }

    quire_status create_cache() {
        quire_group_desc groups[2] = {};
        for (quire_group_desc &group : groups) {
            group.struct_size = sizeof group;
            group.layer_count = group.kv_heads = group.k_head_dim = group.v_head_dim = 1;
        }
        groups[1].kind = QUIRE_GROUP_WINDOW;
        groups[1].window = 6;
        auto desc = described<quire_cache_desc>();
        desc.groups = groups;
        desc.group_count = 2;
        desc.group_stride = sizeof groups[0];
        desc.blocks = 400;
        desc.host_blocks = 100;
        desc.block_tokens = 4;
        desc.max_sequences = 300;
        return api.cache_create(instance, &desc, &cache, &error);
    }
    quire_seq sequence() {
        quire_seq out = 0;
        EXPECT_EQ(create_sequence(&out), QUIRE_OK) << error.message;
        return out;
    }
    // With a key and a span, so that every buffer is needed.
    quire_status create_sequence(quire_seq *out, const char *salt = "salt") {
        const std::string picture(100, 'p');
        quire_key keys[] = {{QUIRE_KEY_SALT, 4, salt, 0, 0},
                            {QUIRE_KEY_MEDIA, 100, picture.data(), 3, 9}};
        auto desc = described<quire_seq_desc>();
        desc.keys = keys;
        desc.key_count = 2;
        desc.key_stride = sizeof keys[0];
        return api.seq_create(cache, &desc, out, &error);
    }
    quire_status begin(const std::vector<quire_seq> &seqs, uint32_t count, quire_step *step) {
        std::vector<quire_step_item> items(seqs.size());
        std::vector<quire_step_result> results(seqs.size());
        Tokens tokens = tokens_from(1, count);
        for (size_t i = 0; i < seqs.size(); ++i) {
            items[i].seq = seqs[i];
            items[i].token_count = count;
        }
        auto desc = described<quire_step_desc>();
        return api.step_begin(cache, &desc, items.data(), static_cast<uint32_t>(items.size()),
                              sizeof items[0], tokens.data(), count, results.data(),
                              sizeof results[0], step, &error);
    }
    void run(const std::vector<quire_seq> &seqs, uint32_t count) {
        quire_step step = 0;
        ASSERT_EQ(begin(seqs, count, &step), QUIRE_OK) << error.message;
        ASSERT_EQ(api.step_commit(cache, step, nullptr, &error), QUIRE_OK);
        ASSERT_EQ(api.step_finish(cache, step, nullptr, QUIRE_STEP_OK, &error), QUIRE_OK);
    }
    std::string state() {
        EXPECT_EQ(api.cache_check(cache, &error), QUIRE_OK) << error.message;
        auto s = described<quire_cache_stats>();
        EXPECT_EQ(api.cache_get_stats(cache, &s, &error), QUIRE_OK);
        std::string out;
        for (uint64_t value : {s.sequences, s.blocks_free, s.blocks_cached, s.blocks_held, s.nodes,
                               s.forks, s.steps, s.host_blocks_used}) {
            out += std::to_string(value) + " ";
        }
        return out;
    }
    // Repeats the call with the n-th allocation failing, for n = 1, 2, ... until the call makes
    // fewer than n. Each failure must leave the state unchanged. Returns the number of failures.
    template <typename Call>
    uint64_t fail_each(Call call) {
        std::string before = cache != nullptr ? state() : "";
        for (uint64_t n = 1; n <= kMostCalls; ++n) {
            host.fail_at = host.calls + n;
            quire_status status = call();
            bool reached = host.calls >= host.fail_at;
            host.fail_at = UINT64_MAX;
            if (!reached) {
                EXPECT_EQ(status, QUIRE_OK) << error.message;
                return n - 1;
            }
            EXPECT_EQ(status, QUIRE_E_HOST_MEMORY) << "allocation " << n << ": " << error.message;
            EXPECT_NE(std::string(error.message).find("memory"), std::string::npos);
            EXPECT_EQ(cache != nullptr ? state() : "", before) << "allocation " << n;
        }
        ADD_FAILURE() << "still allocating after " << kMostCalls << " calls";
        return kMostCalls;
    }
};

TEST(HostMemoryFailure, cache_create_leaks_nothing) {
    Case c;
    int64_t before = c.host.live_bytes;
    uint64_t failed = c.fail_each([&] {
        quire_status status = c.create_cache();
        EXPECT_TRUE(status == QUIRE_OK || c.host.live_bytes == before);
        return status;
    });
    EXPECT_GT(failed, 10u);
}

TEST(HostMemoryFailure, seq_create_changes_nothing) {
    Case c;
    ASSERT_EQ(c.create_cache(), QUIRE_OK);
    quire_seq out = 0;
    EXPECT_GT(c.fail_each([&] { return c.create_sequence(&out); }), 0u);
    EXPECT_EQ(c.state().rfind("1 ", 0), 0u);
}

TEST(HostMemoryFailure, step_begin_opens_no_step) {
    Case c;
    ASSERT_EQ(c.create_cache(), QUIRE_OK);
    std::vector<quire_seq> seqs;
    for (int i = 0; i < 5; ++i) seqs.push_back(c.sequence());
    quire_step step = 0;
    EXPECT_GT(c.fail_each([&] { return c.begin(seqs, 100, &step); }), 5u);
    ASSERT_EQ(c.api.step_commit(c.cache, step, nullptr, &c.error), QUIRE_OK);
    ASSERT_EQ(c.api.step_finish(c.cache, step, nullptr, QUIRE_STEP_OK, &c.error), QUIRE_OK);
}

// Whichever allocation fails, a step that runs publishes every block that it fills.
TEST(HostMemoryFailure, a_step_publishes_all_of_its_blocks_under_spans_or_is_refused) {
    constexpr uint32_t kTokens = 200;
    const std::string picture(4096, 'p');
    std::vector<quire_key> keys(64, quire_key{QUIRE_KEY_MEDIA, 4096, picture.data(), 0, kTokens});
    for (uint32_t i = 0; i < keys.size(); ++i) keys[i].begin = i;
    keys[0] = quire_key{QUIRE_KEY_MEDIA, 4095, picture.data(), 0, kTokens};
    uint64_t refused = 0;
    bool reached = true;
    for (uint64_t n = 1; reached && n <= kMostCalls; ++n) {
        Case c;
        ASSERT_EQ(c.create_cache(), QUIRE_OK);
        auto desc = described<quire_seq_desc>();
        desc.keys = keys.data();
        desc.key_count = static_cast<uint32_t>(keys.size());
        desc.key_stride = sizeof keys[0];
        std::string before = c.state();
        // The state check allocates elsewhere: only the calls fail.
        uint64_t left = n;
        auto state = [&] {
            left = c.host.fail_at > c.host.calls ? c.host.fail_at - c.host.calls : 0;
            c.host.fail_at = UINT64_MAX;
            std::string now = c.state();
            if (left != 0) c.host.fail_at = c.host.calls + left;
            return now;
        };
        c.host.fail_at = c.host.calls + n;
        quire_seq seq = 0, other = 0;
        quire_step step = 0;
        if (c.api.seq_create(c.cache, &desc, &seq, &c.error) != QUIRE_OK) {
            EXPECT_EQ(state(), before);
            ASSERT_EQ(c.api.seq_create(c.cache, &desc, &seq, &c.error), QUIRE_OK);
        }
        before = state();
        if (c.begin({seq}, kTokens, &step) != QUIRE_OK) {
            EXPECT_EQ(state(), before);
            ASSERT_EQ(c.begin({seq}, kTokens, &step), QUIRE_OK) << c.error.message;
        }
        if (c.api.step_commit(c.cache, step, nullptr, &c.error) != QUIRE_OK) {
            ASSERT_EQ(c.api.step_commit(c.cache, step, nullptr, &c.error), QUIRE_OK);
        }
        (void)state();
        reached = left == 0;
        refused += reached ? 1 : 0;
        c.host.fail_at = UINT64_MAX;
        ASSERT_EQ(c.api.step_finish(c.cache, step, nullptr, QUIRE_STEP_OK, &c.error), QUIRE_OK);
        ASSERT_EQ(c.api.seq_create(c.cache, &desc, &other, &c.error), QUIRE_OK);
        uint32_t hits = 0;
        Tokens tokens = tokens_from(1, kTokens);
        ASSERT_EQ(c.api.prefix_probe(c.cache, other, tokens.data(), kTokens, &hits, &c.error),
                  QUIRE_OK);
        EXPECT_EQ(hits, kTokens - 4) << "allocation " << n;
        EXPECT_EQ(c.api.cache_check(c.cache, &c.error), QUIRE_OK) << c.error.message;
    }
    EXPECT_GT(refused, 10u);
}

TEST(HostMemoryFailure, step_add_leaves_the_open_step_as_it_was) {
    Case c;
    ASSERT_EQ(c.create_cache(), QUIRE_OK);
    std::vector<quire_seq> seqs = {c.sequence(), c.sequence()};
    quire_step step = 0;
    ASSERT_EQ(c.begin({seqs[0]}, 5, &step), QUIRE_OK);
    Tokens tokens = tokens_from(1, 300);
    quire_step_item item{seqs[1], 0, 300, 0, 0, 0, 0, 0, 0, 0, 0};
    quire_step_result result{};
    EXPECT_GT(c.fail_each([&] {
        return c.api.step_add(c.cache, step, &item, 1, sizeof item, tokens.data(), 300, &result,
                              sizeof result, &c.error);
    }),
              0u);
    EXPECT_EQ(c.api.step_abort(c.cache, step, &c.error), QUIRE_OK);
    EXPECT_EQ(c.api.cache_check(c.cache, &c.error), QUIRE_OK) << c.error.message;
}

TEST(HostMemoryFailure, preemption_leaves_the_victim_running) {
    Case c;
    ASSERT_EQ(c.create_cache(), QUIRE_OK);
    quire_seq seq = c.sequence();
    c.run({seq}, 300);
    quire_step step = 0;
    ASSERT_EQ(c.begin({}, 0, &step), QUIRE_OK);
    uint32_t freed = 0;
    EXPECT_GT(c.fail_each([&] {
        return c.api.step_preempt(c.cache, step, seq, QUIRE_PREEMPT_SWAP, &freed, &c.error);
    }),
              0u);
    EXPECT_EQ(c.api.step_abort(c.cache, step, &c.error), QUIRE_OK);
}

TEST(HostMemoryFailure, fork_makes_no_sequence) {
    Case c;
    ASSERT_EQ(c.create_cache(), QUIRE_OK);
    quire_seq parent = c.sequence(), child = 0;
    c.run({parent}, 200);
    EXPECT_GT(c.fail_each([&] { return c.api.seq_fork(c.cache, parent, 190, &child, &c.error); }),
              0u);
}

TEST(HostMemory, a_fork_takes_it_for_tables_and_not_for_tokens) {
    Case c;
    ASSERT_EQ(c.create_cache(), QUIRE_OK);
    quire_seq parent = c.sequence(), child = 0;
    c.run({parent}, 1500);
    int64_t before = c.host.live_bytes;
    ASSERT_EQ(c.api.seq_fork(c.cache, parent, 1500, &child, &c.error), QUIRE_OK);
    EXPECT_LE(c.host.live_bytes - before, 2 * 512 * 4 + 64) << "1,500 tokens are 6,000 bytes";
}

TEST(HostMemoryFailure, probe_finds_nothing_and_says_why) {
    Case c;
    ASSERT_EQ(c.create_cache(), QUIRE_OK);
    quire_seq seq = c.sequence();
    Tokens tokens = tokens_from(1, 200);
    uint32_t hits = 0;
    EXPECT_GT(c.fail_each([&] {
        return c.api.prefix_probe(c.cache, seq, tokens.data(), 200, &hits, &c.error);
    }),
              0u);
}

TEST(HostMemoryFailure, batch_create_leaks_nothing) {
    Case c;
    ASSERT_EQ(c.create_cache(), QUIRE_OK);
    auto desc = described<quire_batch_desc>();
    desc.max_rows = desc.max_blocks_per_row = desc.max_query_tokens = 16;
    desc.views = QUIRE_VIEW_BLOCK_TABLE;
    quire_batch *batch = nullptr;
    int64_t before = c.host.live_bytes;
    EXPECT_GT(c.fail_each([&] {
        quire_status status = c.api.batch_create(c.cache, &desc, &batch, &c.error);
        EXPECT_TRUE(status == QUIRE_OK || c.host.live_bytes == before);
        return status;
    }),
              1u);
    EXPECT_EQ(c.api.batch_destroy(batch, &c.error), QUIRE_OK);
    EXPECT_EQ(c.host.live_bytes, before);
}

TEST(Reentrancy, a_callback_that_calls_its_own_cache_is_refused) {
    Case c;
    ASSERT_EQ(c.create_cache(), QUIRE_OK);
    quire_status inner = QUIRE_OK;
    auto stats = described<quire_cache_stats>();
    c.host.on_allocate = [&] { inner = c.api.cache_get_stats(c.cache, &stats, nullptr); };
    quire_seq seq = 0;
    EXPECT_EQ(c.create_sequence(&seq), QUIRE_OK) << c.error.message;
    c.host.on_allocate = nullptr;
    EXPECT_EQ(inner, QUIRE_E_REENTRANT);
    EXPECT_EQ(c.api.cache_get_stats(c.cache, &stats, nullptr), QUIRE_OK);
}

}  // namespace
