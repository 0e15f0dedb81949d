// SPDX-License-Identifier: Apache-2.0
//
// Logs with orders and reports of loads, damaged: each is refused, nothing changes, and the right
// one is still accepted.

#include <cstring>

#include "tests/fuzz/sealed.hpp"
#include "tests/tiers/rank_rig.hpp"
#include "tests/whole_state.hpp"

namespace {

using namespace quire::test;

constexpr uint32_t kSize = Rank::kBlockTokens;
constexpr size_t kLogHead = 88, kOrderHead = 96, kOrder = kOrderHead + 4 * kSize;

uint32_t word_at(const Bytes &bytes, size_t at) {
    uint32_t word = 0;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    return word;
}

Bytes with(Bytes bytes, size_t at, uint32_t word, const quire::fuzz::SealPlaces &places) {
    std::memcpy(bytes.data() + at, &word, sizeof word);
    quire::fuzz::seal(&bytes, places);
    return bytes;
}

// All but the number of calls.
std::string state_of(Rank &rank) {
    std::string text = whole_state(rank.api, rank.cache);
    constexpr char kCalls[] = ",\"calls\":";
    const size_t at = text.find(kCalls) + sizeof kCalls - 1;
    return text.replace(at, text.find_first_not_of("0123456789", at) - at, "-");
}

class RankDamage : public testing::Test {
 protected:
    RankDamage() {
        r.attach_all();
        r.compute(prompt);
        r.settle();
        r.evict_all();
        r.settle();
    }
    // The log of a step that begins a load of 4 blocks, after one that was told has been cut.
    Bytes log_with_orders() {
        quire_seq dropped = r.create();
        EXPECT_EQ(r.run(dropped, prompt).outcome, uint32_t{QUIRE_ITEM_LOADING});
        quire_seq written = r.create();
        r.run(written, rank_prompt(50, kSize), 0);
        while (r.leader().poll().blocks_queued != 0) {
        }
        EXPECT_EQ(r.api.cache_cancel_load(r.leader().cache, dropped, &r.error), QUIRE_OK);
        quire_seq seq = r.create();
        EXPECT_EQ(r.begin({{seq, prompt}}), QUIRE_OK);
        EXPECT_EQ(r.results[0].outcome, uint32_t{QUIRE_ITEM_LOADING});
        r.commit();
        r.finish();
        const Bytes log = f.logs.back().log;
        EXPECT_EQ(word_at(log, 80), 6u) << "an end, four loads, a write";
        f.poll();  // sees fences
        return log;
    }
    static size_t orders_at(const Bytes &log) {
        return kLogHead + 4 * size_t{word_at(log, 60)} + 24 * size_t{word_at(log, 64)} +
               32 * size_t{word_at(log, 68)} + 4 * size_t{word_at(log, 76)};
    }
    void refuse_log(const Bytes &log, const char *what) {
        const std::string before = state_of(f);
        EXPECT_EQ(f.try_apply(log), QUIRE_E_ARG) << what << ": " << f.error.message;
        EXPECT_TRUE(f.says("damaged log")) << f.error.message;
        EXPECT_EQ(state_of(f), before) << what;
    }

    const Tokens prompt = rank_prompt(4, 4 * kSize + 1);
    Ranks r{{.ranks = kByHeads}};
    Rank &f = r.follower();
};

TEST_F(RankDamage, a_log_with_a_bit_changed_is_refused) {
    const Bytes log = log_with_orders();
    const std::string before = state_of(f);
    for (size_t bit = 0; bit < log.size() * 8; ++bit) {
        Bytes wrong = log;
        wrong[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
        ASSERT_LT(f.try_apply(wrong), 0) << bit;
    }
    EXPECT_EQ(state_of(f), before);
    EXPECT_TRUE(f.apply());
}

TEST_F(RankDamage, orders_out_of_range_are_refused) {
    const Bytes log = log_with_orders();
    const size_t end = orders_at(log), load = end + kOrderHead, write = load + 4 * kOrder;
    ASSERT_EQ(word_at(log, end), 3u);
    ASSERT_EQ(word_at(log, load), 1u);
    ASSERT_EQ(word_at(log, write), 2u);
    const uint32_t serial = word_at(log, load + 8), ended = word_at(log, end + 8);
    const struct {
        const char *what;
        size_t at;
        uint32_t word;
    } cases[] = {
        {"a word after the order count", 84, 1},
        {"one order less", 80, 5},
        {"one order more", 80, 7},
        {"many orders more", 80, 0xFFFFFFFF},
        {"an end of no load", end + 8, ended + 100},
        {"an end with a group", end + 4, 1},
        {"an end past the load", end + 16, 4},
        {"an end with a block", end + 20, 1},
        {"an end with a count", end + 24, 1},
        {"an end with a reserved field", end + 28, 1},
        {"an end with a tenant", end + 32, 1},
        {"an end with a name", end + 92, 1},
        {"a kind of none", load, 0},
        {"an unknown kind", load, 5},
        {"a write among loads", load + kOrder, 2},
        {"an unknown group", load + 4, 1},
        {"another serial", load + 8, serial + 7},
        {"an old serial", load + 8, ended},
        {"no serial", load + 8, 0},
        {"another serial later", load + 2 * kOrder + 8, serial + 1},
        {"an index past all sequences", load + 16, 0x10000000},
        {"an index that does not rise", load + kOrder + 16, 0},
        {"the null block", load + 20, 0},
        {"a block past the host tier", load + 20, 33},
        {"no count", load + 24, 0},
        {"a count too small", load + 24, 3},
        {"a count too large", load + 24, 5},
        {"a count past the host tier", load + 24, 0xFFFFFFFF},
        {"another count later", load + kOrder + 24, 3},
        {"a reserved field", load + 28, 1},
        {"another tenant later", load + kOrder + 32, 1},
        {"a token without an id", load + kOrderHead, QUIRE_TOKEN_UNKNOWN},
        {"a write with a serial", write + 8, 1},
        {"a write with a count", write + 24, 1},
        {"a write of the null block", write + 20, 0},
        {"a write of a block past the pool", write + 20, 33},
        {"an unknown kind at last", write, 9},
    };
    for (const auto &one : cases)
        refuse_log(with(log, one.at, one.word, quire::fuzz::kLogSeal), one.what);
    EXPECT_TRUE(f.apply());  // the right one
    // The same load once more, in the next log.
    f.poll();
    r.empty_step();
    Bytes next = f.logs.front().log;
    next.insert(next.begin() + static_cast<ptrdiff_t>(orders_at(next)),
                log.begin() + static_cast<ptrdiff_t>(load),
                log.begin() + static_cast<ptrdiff_t>(write));
    refuse_log(with(next, 80, 4, quire::fuzz::kLogSeal), "a load that has begun already");
    EXPECT_TRUE(f.apply());
}

TEST_F(RankDamage, a_damaged_report_is_refused) {
    log_with_orders();
    r.deliver_logs();
    while (f.poll().loads_running != 0) {
    }
    const Bytes report = f.report();
    ASSERT_EQ(report.size(), 56u + 16u);
    auto take = [&](const Bytes &bytes) {
        return r.api.cache_take_report(r.leader().cache, bytes.data(), bytes.size(), &r.error);
    };
    while (r.leader().poll().blocks_queued != 0) {
    }
    std::string before = state_of(r.leader());
    for (size_t bit = 0; bit < report.size() * 8; ++bit) {
        Bytes wrong = report;
        wrong[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
        ASSERT_EQ(take(wrong), QUIRE_E_ARG) << bit;
    }
    for (size_t size = 0; size < report.size(); ++size) {
        Bytes cut(report.begin(), report.begin() + static_cast<ptrdiff_t>(size));
        ASSERT_EQ(take(cut), QUIRE_E_ARG);
        quire::fuzz::seal(&cut, quire::fuzz::kReportSeal);
        ASSERT_EQ(take(cut), QUIRE_E_ARG);
    }
    const struct {
        const char *what;
        size_t at;
        uint32_t word;
        quire_status status;
    } cases[] = {
        {"another version", 4, 2, QUIRE_E_INCOMPATIBLE},
        {"another leader", 16, 1, QUIRE_E_ARG},
        {"report number 0", 32, 0, QUIRE_E_ARG},
        {"a count too small", 48, 0, QUIRE_E_ARG},
        {"a count too large", 48, 2, QUIRE_E_ARG},
        {"a count far too large", 48, 0xFFFFFFFF, QUIRE_E_ARG},
        {"a reserved field", 52, 1, QUIRE_E_ARG},
        {"a reserved field of an outcome", 68, 1, QUIRE_E_ARG},
    };
    for (const auto &one : cases) {
        EXPECT_EQ(take(with(report, one.at, one.word, quire::fuzz::kReportSeal)), one.status)
            << one.what << ": " << r.error.message;
    }
    EXPECT_EQ(state_of(r.leader()), before);
    // A report of an unknown load is taken, and nothing comes of it. So is one after a gap.
    EXPECT_EQ(take(with(report, 56, 0x7777, quire::fuzz::kReportSeal)), QUIRE_OK);
    EXPECT_EQ(r.leader().poll().loads_running, 1u);
    EXPECT_EQ(take(report), QUIRE_E_ARG);
    const std::string words = r.error.message;
    EXPECT_NE(words.find("repeated report"), std::string::npos) << words;
    EXPECT_EQ(take(with(report, 32, 9, quire::fuzz::kReportSeal)), QUIRE_OK);
    while (r.leader().poll().loads_running != 0) {
    }
    EXPECT_EQ(r.leader().poll().loads_ready, 1u);
    // The leader has one follower.
    EXPECT_EQ(take(with(report, 24, 1, quire::fuzz::kReportSeal)), QUIRE_E_ARG);
    r.check();
}

}  // namespace
