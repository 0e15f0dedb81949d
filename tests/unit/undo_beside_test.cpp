// SPDX-License-Identifier: Apache-2.0
//
// A step is aborted after other calls created, forked, truncated and ended sequences while it was
// open: the cache is then equal to one on which only the other calls were made.
//
// Calls that publish are left out, because they depend on what the open step holds (undo_test.cpp).

#include <random>

#include "manager.hpp"
#include "tests/effort.hpp"
#include "tests/whole_state.hpp"

namespace {

using namespace quire::test;

// One of two equal caches.
struct Twin {
    explicit Twin(const CacheOptions &options) : m(options) {}
    Manager m;
    std::vector<quire_seq> seqs;

    bool in_step(size_t i) { return (m.info(seqs[i]).flags & QUIRE_SEQ_IN_STEP) != 0; }
    bool fork(size_t i, uint32_t count) {
        quire_seq child = 0;
        if (m.api().seq_fork(m.cache(), seqs[i], count, &child, m.error()) < 0) return false;
        m.adopt(child);
        seqs.push_back(child);
        return true;
    }
    bool truncate(size_t i, uint32_t count) {
        return m.api().seq_truncate(m.cache(), seqs[i], count, m.error()) >= 0;
    }
    void end(size_t i) {
        m.end(seqs[i]);
        seqs.erase(seqs.begin() + static_cast<std::ptrdiff_t>(i));
    }
    std::string state() {
        m.check();
        return equal_history(undone_state(whole_state(m.api(), m.cache())));
    }
};

class Pair {
 public:
    explicit Pair(uint32_t seed) : dice_(seed), a_(options(seed)), b_(options(seed)) {}

    void play() {
        for (uint32_t i = 0; i < 25; ++i) {
            if (below(2) == 0) {
                beside();
            } else if (!a_.seqs.empty()) {
                compute(below(a_.seqs.size()));
            }
        }
        ASSERT_EQ(difference(b_.state(), a_.state()), "") << "they were equal before";
        a_.m.begin({.queue = below(2), .may_preempt = below(2) == 0});
        for (uint32_t i = 0; i < 12; ++i) below(2) == 0 ? beside() : inside();
        a_.m.abort();
        EXPECT_EQ(difference(b_.state(), a_.state()), "") << "before: without the step";
    }
    uint64_t beside_a_step = 0, items = 0;

 private:
    static CacheOptions options(uint32_t seed) {
        CacheOptions options{.blocks = 14 + seed % 20, .host_blocks = 24};
        options.flags = QUIRE_CACHE_FIXED_HASH;  // so that hashes of tokens can be compared
        if (seed % 2 == 0) options.groups = {{0, options.blocks}, {9, options.blocks}};
        return options;
    }
    uint32_t below(size_t bound) { return static_cast<uint32_t>(dice_() % bound); }
    Tokens more(size_t i) {
        const uint32_t known = a_.m.info(a_.seqs[i]).known_tokens, family = below(4);
        Tokens tokens(below(3) == 0 ? 1 + below(18) : 1 + below(4));
        for (uint32_t k = 0; k < tokens.size(); ++k) tokens[k] = 100 * family + (known + k) % 50;
        return tokens;
    }
    void compute(size_t i) {
        const Tokens tokens = more(i);
        for (Twin *twin : {&a_, &b_}) {
            twin->m.begin();
            quire_step_result result{};
            (void)twin->m.try_add(twin->seqs[i], tokens, {}, &result);
            twin->m.finish(twin->m.commit());
        }
    }
    // A call that is not part of the step, on both caches.
    void beside() {
        beside_a_step += a_.m.open() != 0;
        const size_t i = a_.seqs.empty() ? 0 : below(a_.seqs.size());
        const uint32_t choice = a_.seqs.size() < 3 ? 0 : below(5);
        if (choice == 0 && a_.seqs.size() < 9) {
            for (Twin *twin : {&a_, &b_}) twin->seqs.push_back(twin->m.sequence());
            return;
        }
        if (a_.seqs.empty() || a_.in_step(i)) return;
        const uint32_t count = below(a_.m.info(a_.seqs[i]).known_tokens + 1);
        if (choice <= 2 && a_.seqs.size() < 9) {
            const bool forked = a_.fork(i, count);
            EXPECT_TRUE(!forked || b_.fork(i, count)) << b_.m.message();
        } else if (choice == 3) {
            const bool shortened = a_.truncate(i, count);
            EXPECT_TRUE(!shortened || b_.truncate(i, count)) << b_.m.message();
        } else {
            a_.end(i);
            b_.end(i);
        }
    }
    // A call of the step, on the first cache only.
    void inside() {
        if (a_.seqs.empty()) return;
        const size_t i = below(a_.seqs.size());
        quire_step_result result{};
        uint32_t freed = 0;
        if (below(5) == 0) {
            (void)a_.m.api().step_preempt(a_.m.cache(), a_.m.open(), a_.seqs[i], below(3), &freed,
                                          a_.m.error());
        } else {
            items += a_.m.try_add(a_.seqs[i], more(i), {}, &result) >= 0;
        }
    }

    std::mt19937 dice_;
    Twin a_, b_;
};

TEST(UndoBeside, an_aborted_step_leaves_what_the_calls_beside_it_alone_would_leave) {
    uint64_t beside = 0, items = 0;
    auto all = quire::tests::seeds(1, {.all = 1500, .usual = 300, .few = 60});
    for (uint64_t seed : all) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        Pair pair(static_cast<uint32_t>(seed));
        pair.play();
        beside += pair.beside_a_step, items += pair.items;
        if (HasFailure()) return;
    }
    EXPECT_GT(beside, 3 * all.size());
    EXPECT_GT(items, 2 * all.size());
}

}  // namespace
