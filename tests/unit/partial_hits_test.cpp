// SPDX-License-Identifier: Apache-2.0
//
// QUIRE_CACHE_PARTIAL_HITS: a hit may end within a block, which is copied.

#include <map>
#include <random>

#include "followed.hpp"
#include "random_walk.hpp"
#include "tests/effort.hpp"

namespace {

using namespace quire::test;

CacheOptions partial(uint32_t blocks = 32, uint32_t block_tokens = 8) {
    CacheOptions options;
    options.blocks = blocks;
    options.block_tokens = block_tokens;
    options.flags = QUIRE_CACHE_PARTIAL_HITS;
    return options;
}

Tokens joined(Tokens a, const Tokens &b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

// A step of one item, whose copies are left in `copies`.
quire_step_result run(Manager &m, quire_seq seq, const Tokens &tokens,
                      std::vector<quire_block_copy> *copies = nullptr,
                      const ItemOptions &options = {}) {
    m.begin();
    const quire_step_result result = m.add(seq, tokens, options);
    EXPECT_EQ(result.outcome, uint32_t{QUIRE_ITEM_RUN});
    const quire_step step = m.commit();
    if (copies != nullptr) *copies = m.copies(step);
    m.finish(step);
    m.check();
    return result;
}

void put(Manager &m, const Tokens &tokens) {
    quire_seq a = m.sequence();
    m.compute(a, tokens);
    m.end(a);
}

TEST(PartialHits, the_block_that_agrees_for_longest_is_copied) {
    Manager m(partial());
    put(m, joined(tokens_from(1, 8), tokens_from(50, 8)));
    put(m, joined(tokens_from(1, 13), tokens_from(70, 3)));
    const Tokens prompt = joined(tokens_from(1, 14), tokens_from(90, 4));
    EXPECT_EQ(m.probe(prompt), 13u);
    std::vector<quire_block_copy> copies;
    quire_seq b = m.sequence();
    const quire_step_result result = run(m, b, prompt, &copies);
    EXPECT_EQ(result.hit_tokens, 13u);
    EXPECT_EQ(result.first_position, 13u);
    EXPECT_EQ(result.compute_count, 5u);
    ASSERT_EQ(copies.size(), 1u);
    EXPECT_EQ(copies[0].kind, uint32_t{QUIRE_COPY_ON_WRITE});
    EXPECT_EQ(copies[0].dst, m.table(b)[1]);
    EXPECT_NE(copies[0].src, copies[0].dst);
    EXPECT_EQ(m.stats().prefix_cache_hits, 8u + 13u);
}

TEST(PartialHits, a_prompt_that_is_cached_whole_computes_its_last_token) {
    Manager m(partial());
    put(m, tokens_from(1, 16));
    quire_seq b = m.sequence();
    EXPECT_EQ(run(m, b, tokens_from(1, 16)).hit_tokens, 15u);
    // It has computed the same content again, so what is cached stays as it is.
    EXPECT_EQ(m.stats().blocks_held, 2u);
    m.end(b);
    EXPECT_EQ(m.probe(tokens_from(1, 17)), 16u);
}

TEST(PartialHits, too_few_tokens_are_not_worth_a_copy) {
    Manager m(partial());
    put(m, tokens_from(1, 16));
    EXPECT_EQ(m.probe(joined(tokens_from(1, 11), tokens_from(90, 9))), 8u);
    EXPECT_EQ(m.probe(joined(tokens_from(1, 12), tokens_from(90, 9))), 12u);
    Manager small(partial(32, 4));
    put(small, tokens_from(1, 8));
    EXPECT_EQ(small.probe(joined(tokens_from(1, 5), tokens_from(90, 9))), 5u);
}

TEST(PartialHits, a_limit_ends_a_hit_within_a_block) {
    Manager m(partial());
    put(m, tokens_from(1, 24));
    quire_seq b = m.sequence();
    EXPECT_EQ(run(m, b, tokens_from(1, 24), nullptr, {.max_hits = 14}).hit_tokens, 14u);
    quire_seq c = m.sequence();
    EXPECT_EQ(run(m, c, tokens_from(1, 24), nullptr, {.max_hits = 10}).hit_tokens, 8u);
}

TEST(PartialHits, an_item_without_room_for_the_copy_runs_without_it) {
    Manager m(partial(2));
    put(m, tokens_from(1, 16));
    quire_seq b = m.sequence();
    EXPECT_EQ(run(m, b, tokens_from(1, 16)).hit_tokens, 8u);
    Manager roomy(partial(3));
    put(roomy, tokens_from(1, 16));
    b = roomy.sequence();
    EXPECT_EQ(run(roomy, b, tokens_from(1, 16)).hit_tokens, 15u);
}

TEST(PartialHits, what_the_same_step_computes_is_not_copied) {
    Manager m(partial());
    quire_seq a = m.sequence(), b = m.sequence();
    m.begin();
    m.add(a, tokens_from(1, 16));
    EXPECT_EQ(m.add(b, tokens_from(1, 16)).hit_tokens, 8u);  // whole blocks may be shared
    m.finish(m.commit());
    quire_seq c = m.sequence();
    EXPECT_EQ(run(m, c, tokens_from(1, 16)).hit_tokens, 15u);
}

TEST(PartialHits, namespaces_and_keys_are_apart) {
    Manager m(partial());
    put(m, tokens_from(1, 16));
    const quire_namespace other = m.name_space();
    EXPECT_EQ(m.probe(tokens_from(1, 15), {.ns = other}), 0u);
    quire_key key{};
    const char salt[] = "salt";
    key.type = QUIRE_KEY_SALT;
    key.bytes = salt;
    key.size_bytes = sizeof salt;
    EXPECT_EQ(m.probe(tokens_from(1, 15), {.keys = {key}}), 0u);
    EXPECT_EQ(m.probe(tokens_from(1, 15)), 14u);
}

TEST(PartialHits, every_group_must_have_the_block) {
    CacheOptions options = partial();
    options.groups = {{}, {.window = 9}};
    Manager m(options);
    quire_seq a = m.sequence();
    for (uint32_t i = 0; i < 40; i += 8) m.compute(a, tokens_from(1 + i, 8));
    m.end(a);
    quire_seq b = m.sequence();
    const quire_step_result result = run(m, b, tokens_from(1, 40));
    EXPECT_EQ(result.hit_tokens, 39u);
    EXPECT_EQ(m.table(b, 1)[2], 0);
    EXPECT_NE(m.table(b, 1)[3], 0);
    EXPECT_NE(m.table(b, 1)[4], 0);
}

TEST(PartialHits, a_failed_step_takes_back_the_tokens_of_the_copy) {
    Manager m(partial());
    put(m, tokens_from(1, 16));
    quire_seq b = m.sequence();
    m.begin();
    EXPECT_EQ(m.add(b, tokens_from(1, 20)).hit_tokens, 16u);
    m.abort();
    m.begin();
    EXPECT_EQ(m.add(b, joined(tokens_from(1, 14), tokens_from(80, 6))).hit_tokens, 14u);
    m.finish(m.commit(), QUIRE_STEP_FAILED);
    EXPECT_EQ(m.info(b).computed_tokens, 8u);
    m.check();
    EXPECT_EQ(m.probe(tokens_from(1, 17)), 16u);
}

TEST(PartialHits, what_cannot_have_them_is_refused_in_words) {
    const auto expect = [](uint32_t flags, uint32_t kind, uint32_t block_tokens, quire_status code,
                           const char *word) {
        std::vector<quire_group_desc> groups(2, described<quire_group_desc>());
        for (quire_group_desc &g : groups)
            g.layer_count = g.kv_heads = g.k_head_dim = g.v_head_dim = 1;
        groups[1].kind = kind;
        groups[1].block_tokens = block_tokens;
        auto desc = described<quire_cache_desc>();
        desc.groups = groups.data();
        desc.group_count = 2;
        desc.group_stride = sizeof(quire_group_desc);
        desc.flags = flags | QUIRE_CACHE_PARTIAL_HITS;
        desc.blocks = 9;
        auto instance_desc = described<quire_instance_desc>();
        auto error = described<quire_error>();
        quire_instance *instance = nullptr;
        quire_cache *cache = nullptr;
        ASSERT_EQ(library().instance_create(&instance_desc, &instance, &error), QUIRE_OK);
        EXPECT_EQ(library().cache_create(instance, &desc, &cache, &error), code) << error.message;
        EXPECT_NE(std::string(error.message).find(word), std::string::npos) << error.message;
        if (cache != nullptr) library().cache_destroy(cache, &error);
        library().instance_destroy(instance, &error);
    };
    expect(0, QUIRE_GROUP_FULL, 0, QUIRE_OK, "");
    expect(QUIRE_CACHE_ONE_POOL, QUIRE_GROUP_CROSS, 0, QUIRE_OK, "");
    expect(QUIRE_CACHE_NO_PREFIX, QUIRE_GROUP_FULL, 0, QUIRE_E_ARG, "NO_PREFIX");
    expect(QUIRE_CACHE_FOLLOWER, QUIRE_GROUP_FULL, 0, QUIRE_E_ARG, "follower");
    expect(0, QUIRE_GROUP_RECURRENT, 0, QUIRE_E_UNSUPPORTED, "recurrent");
    expect(0, QUIRE_GROUP_FULL, 32, QUIRE_E_UNSUPPORTED, "block_tokens");
}

TEST(PartialHits, any_order_of_operations_keeps_its_books) {
    for (uint32_t seed = 1; seed <= 12; ++seed) {
        CacheOptions options = partial(12 + seed, 1 + seed % 9);
        if (seed % 2 == 0) options.groups.push_back({.window = 9});
        if (seed % 3 == 0) options.flags |= QUIRE_CACHE_ONE_POOL;
        if (seed % 3 == 0) options.blocks *= 2;
        options.host_blocks = seed % 4 == 0 ? 20 : 0;
        if (seed % 12 == 4) options.flags |= QUIRE_CACHE_HOST_PREFIXES;
        Manager m(options);
        walk_randomly(m, seed, {.most_tokens = 11, .drops_prefixes = true, .forks_whole = true});
    }
}

// What every slot holds: the tokens up to its own, as the engine's kernels would write it. A step
// is executed as it says: its copies in their order, then what its items compute.
class Contents {
 public:
    explicit Contents(Manager *m, uint32_t groups, uint32_t block_tokens)
        : m_(*m), groups_(groups), block_tokens_(block_tokens) {}

    void copy(const std::vector<quire_block_copy> &copies) {
        for (const quire_block_copy &c : copies) {
            for (uint32_t slot = 0; slot < block_tokens_; ++slot)
                slots_[{c.group, c.dst, slot}] = slots_[{c.group, c.src, slot}];
        }
    }
    void write(quire_seq seq, const Tokens &tokens, uint32_t begin, uint32_t end) {
        each(seq, begin, end, [&](const Slot &slot, uint32_t at) {
            slots_[slot] = Tokens(tokens.begin(), tokens.begin() + at + 1);
        });
    }
    void expect(quire_seq seq, const Tokens &tokens, uint32_t end) {
        each(seq, 0, end, [&](const Slot &slot, uint32_t at) {
            EXPECT_EQ(slots_[slot], Tokens(tokens.begin(), tokens.begin() + at + 1)) << at;
        });
    }

 private:
    struct Slot {
        uint32_t group;
        int32_t block;
        uint32_t index;
        auto operator<=>(const Slot &) const = default;
    };
    template <typename Body>
    void each(quire_seq seq, uint32_t begin, uint32_t end, Body body) {
        for (uint32_t g = 0; g < groups_; ++g) {
            const Blocks table = m_.table(seq, g);
            for (uint32_t at = begin; at < end; ++at) {
                const int32_t block = table[at / block_tokens_];
                if (block != 0) body(Slot{g, block, at % block_tokens_}, at);
            }
        }
    }

    Manager &m_;
    uint32_t groups_, block_tokens_;
    std::map<Slot, Tokens> slots_;
};

struct Live {
    quire_seq seq;
    Tokens tokens;
};

// Prompts that often leave each other within a block, in a small pool; some steps fail.
void play(uint32_t seed, uint64_t *in_part) {
    std::mt19937 generator(seed);
    auto below = [&](uint32_t end) { return static_cast<uint32_t>(generator() % end); };
    CacheOptions options = partial(10 + below(20), 2 + below(12));
    options.groups.resize(1 + below(2));
    if (options.groups.size() == 2) options.groups[1].window = 3 + below(20);
    Manager m(options);
    Contents contents(&m, static_cast<uint32_t>(options.groups.size()), options.block_tokens);
    std::vector<Live> live;
    for (uint32_t i = 0; i < 150; ++i) {
        if (live.size() == 4 || (!live.empty() && below(3) == 0)) {
            const uint32_t at = below(static_cast<uint32_t>(live.size()));
            m.end(live[at].seq);
            live.erase(live.begin() + at);
        }
        if (live.size() < 4 && below(2) == 0) live.push_back({m.sequence(), {}});
        m.begin();
        std::vector<std::pair<uint32_t, quire_step_result>> ran;
        for (uint32_t k = 0; k < live.size(); ++k) {
            if (below(2) == 0) continue;
            Tokens more;
            for (uint32_t n = 1 + below(3 * options.block_tokens); n != 0; --n)
                more.push_back(7 + (below(12) == 0 ? 1 : 0));
            const quire_step_result result = m.add(live[k].seq, more);
            if (result.outcome != QUIRE_ITEM_RUN) continue;
            live[k].tokens = joined(live[k].tokens, more);
            if (result.hit_tokens % options.block_tokens != 0) ++*in_part;
            ran.emplace_back(k, result);
        }
        const quire_step step = m.commit();
        contents.copy(m.copies(step));
        for (const auto &[k, result] : ran) {
            const uint32_t begin = result.first_position;
            contents.write(live[k].seq, live[k].tokens, begin, begin + result.compute_count);
        }
        m.finish(step, below(9) == 0 ? QUIRE_STEP_FAILED : QUIRE_STEP_OK);
        m.check();
        for (const Live &l : live) contents.expect(l.seq, l.tokens, m.info(l.seq).computed_tokens);
    }
}

TEST(PartialHits, every_slot_that_a_sequence_sees_holds_its_tokens) {
    uint64_t in_part = 0;
    const auto all = quire::tests::seeds(1, {.all = 300, .usual = 60, .few = 12});
    for (uint64_t seed : all) {
        SCOPED_TRACE(seed);
        if (testing::Test::HasFailure()) break;
        play(static_cast<uint32_t>(seed), &in_part);
    }
    EXPECT_GT(3 * in_part, 10 * all.size());
}

TEST(PartialHits, a_follower_has_the_leaders_tables) {
    CacheOptions options = partial();
    options.flags |= QUIRE_CACHE_LOG;
    Manager leader(options);
    options.flags = QUIRE_CACHE_FOLLOWER;
    Manager follower(options);
    const auto step_of = [&](quire_seq seq, const Tokens &tokens) {
        leader.begin();
        leader.add(seq, tokens);
        const quire_step step = leader.commit();
        const quire_step applied = apply_log(follower, leader, step);
        EXPECT_EQ(follower.copies(applied).size(), leader.copies(step).size());
        finish_applied(follower, applied);
        leader.finish(step);
        EXPECT_EQ(follower.table(seq), leader.table(seq));
    };
    step_of(leader.sequence(), tokens_from(1, 24));
    const quire_seq b = leader.sequence();
    step_of(b, tokens_from(1, 22));
    EXPECT_EQ(leader.info(b).computed_tokens, 22u);
    EXPECT_EQ(leader.stats().prefix_cache_hits, 21u);
}

}  // namespace
