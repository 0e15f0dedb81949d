// SPDX-License-Identifier: Apache-2.0
//
// Random schedules of a leader and its followers over stores with faults. Logs and reports arrive
// late, and some reports never; steps are aborted and fail; stores come and go; followers move. The
// model is the content itself: every block that an item is given must hold on every rank what
// follows from its tokens, and so must every value that is left in a store.

#include <random>

#include "tests/effort.hpp"
#include "tests/tiers/rank_rig.hpp"

namespace {

using namespace quire::test;

constexpr quire::tests::Counts kSchedules{3'000, 400, 60};
constexpr uint32_t kCalls = 80;

class RankSchedule {
 public:
    explicit RankSchedule(uint32_t seed) : random_(seed), r_(shape(seed)) {
        constexpr uint32_t kPolicies[] = {QUIRE_TIER_WRITE_THROUGH, QUIRE_TIER_WRITE_SELECTIVE,
                                          QUIRE_TIER_WRITE_THROUGH, QUIRE_TIER_WRITE_BACK};
        write_ = kPolicies[seed % 4];
        for (const auto &rank : r_.ranks) {
            if (below(4) == 0) rank->max_write_bytes = 1;  // one put at once
        }
        r_.attach_all(write_);
        for (const char *key : {"blue", "red"}) tenants_.push_back(r_.tenant(key));
        reports_.resize(r_.follower_count());
    }
    ~RankSchedule() {
        for (const auto &rank : r_.ranks) rank->stub->reset();
        for (const Live &one : live_) r_.end(one.seq);
        r_.deliver_logs();
        r_.detach_all();
        r_.check();
        for (const auto &rank : r_.ranks) {
            EXPECT_EQ(r_.wrong_values(rank.get(), &values_), 0u) << "rank " << rank->number;
        }
    }

    void run() {
        for (uint32_t i = 0; i < kCalls && !testing::Test::HasFailure(); ++i) {
            act();
            r_.check();
            EXPECT_EQ(r_.wrong_rows(), 0u) << "call " << i;
        }
        if (r_.leader().attached) used_ += r_.leader().stats().loads_used;
    }
    uint64_t loads_used() const { return used_; }

 private:
    struct Live {
        quire_seq seq;
        Tokens prompt;
    };

    static RanksShape shape(uint32_t seed) {
        RanksShape shape;
        const std::vector<std::vector<std::vector<Cut>>> splits = {
            kByHeads,
            {{{0, 0, 0, 1}}, {{0, 0, 1, 1}}, {{0, 0, 1, 1}}},
            {{{0, 1}}, {{1, 2}}},
            {{{0, 1, 0, 1}, {0, 1, 1, 1}}, {{1, 2, 0, 1}, {1, 2, 1, 1}}},
        };
        shape.ranks = splits[seed % splits.size()];
        shape.blocks = 20 + seed % 19;
        shape.host_blocks = 6 + seed % 37;
        shape.window = seed % 7 == 0 ? 20 : 0;
        if (seed % splits.size() > 1 && shape.window == 0) shape.layers = 3;
        if (seed / 4 % 3 == 0) shape.leader_flags |= QUIRE_CACHE_HOST_PREFIXES;
        return shape;
    }
    uint32_t below(size_t n) { return static_cast<uint32_t>(random_() % n); }
    uint32_t any_follower() { return below(r_.follower_count()); }

    void act() {
        switch (below(24)) {
            case 0:
                return spoil();
            case 1:
                return end_one();
            case 2:
                if (Rank &rank = *r_.ranks[below(r_.ranks.size())]; rank.attached) rank.poll();
                return;
            case 3:
                return cancel_one();
            case 4:
                return below(8) == 0 ? toggle_tier() : forget();
            case 5:
                return preempt_one();
            case 6:
                return below(4) == 0 ? move_one() : void();
            case 7:
                return forget();
            case 8:
            case 9:
            case 10:
                follow(any_follower());
                return;
            case 11:
            case 12:
            case 13:
                return take_report(any_follower());
            default:
                return step();
        }
    }

    // Applies a log, and sometimes asks for a report.
    void follow(uint32_t i) {
        r_.follower(i).apply();
        if (below(2) == 0) ask(i);
    }
    void ask(uint32_t i) {
        Bytes report = r_.follower(i).report();
        if (!report.empty() && below(12) != 0) reports_[i].push_back(std::move(report));
    }
    void take_report(uint32_t i) {
        ask(i);
        if (reports_[i].empty()) return;
        const Bytes report = reports_[i].front();
        reports_[i].pop_front();
        EXPECT_EQ(
            r_.api.cache_take_report(r_.leader().cache, report.data(), report.size(), &r_.error),
            QUIRE_OK)
            << r_.error.message;
    }

    // One fault of one rank's store, or none.
    void spoil() {
        StubControl &stub = *r_.ranks[below(r_.ranks.size())]->stub;
        std::atomic<bool> *const faults[] = {&stub.holds,      &stub.reverses,   &stub.takes_none,
                                             &stub.fails_gets, &stub.fails_puts, &stub.spoils,
                                             &stub.swaps,      &stub.forgets,    &stub.cuts};
        stub.reset();
        stub.doubts = below(3) == 0;
        stub.is_remote = false;
        if (below(3) == 0) stub.picks = random_();
        if (below(3) == 0) *faults[below(std::size(faults))] = true;
    }

    void end_one() {
        if (live_.empty()) return;
        const uint32_t at = below(live_.size());
        r_.end(live_[at].seq);
        live_.erase(live_.begin() + at);
    }

    void cancel_one() {
        if (!r_.leader().attached || live_.empty()) return;
        EXPECT_EQ(
            r_.api.cache_cancel_load(r_.leader().cache, live_[below(live_.size())].seq, &r_.error),
            QUIRE_OK);
    }

    void toggle_tier() {
        Rank &rank = *r_.ranks[below(r_.ranks.size())];
        rank.stub->reset();
        if (rank.attached) {
            if (rank.number == 0) used_ += rank.stats().loads_used;
            EXPECT_EQ(rank.detach(), QUIRE_OK) << rank.error.message;
        } else {
            EXPECT_EQ(rank.attach(write_), QUIRE_OK) << rank.error.message;
        }
    }

    // The device forgets what it has cached.
    void forget() {
        for (uint32_t i = 0; r_.leader().attached && i < 8; ++i) r_.leader().poll();
        while (!live_.empty() && below(4) != 0) end_one();
        r_.evict_all();
    }

    void move_one() { r_.ranks[below(r_.ranks.size())]->migrate(below(2)); }

    void preempt_one() {
        if (live_.empty()) return;
        ASSERT_EQ(r_.begin({}), QUIRE_OK) << r_.error.message;
        uint32_t freed = 0;
        quire_status status =
            r_.api.step_preempt(r_.leader().cache, r_.step, live_[below(live_.size())].seq,
                                QUIRE_PREEMPT_AUTO, &freed, &r_.error);
        EXPECT_GE(status, QUIRE_OK) << r_.error.message;
        if (below(3) == 0) return r_.abort();
        r_.commit();
        r_.finish();
    }

    void begin_one() {
        if (live_.size() == 6) return;
        const uint32_t tenant = below(3);
        Tokens own = rank_prompt(below(3), 12 + below(80));
        if (below(8) == 0) own[below(own.size())] ^= 1;
        live_.push_back({r_.create(tenant == 0 ? 0 : tenants_[tenant - 1]), own});
    }

    // What comes next of a sequence; false: nothing.
    bool next_item(const Live &one, Ranks::Item *out) {
        auto info = described<quire_seq_info>();
        EXPECT_EQ(r_.api.seq_get_info(r_.leader().cache, one.seq, &info, &r_.error), QUIRE_OK);
        const size_t known = info.known_tokens;
        size_t end = one.prompt.size();
        if (below(8) == 0 && end > known) end = known + 1 + below(end - known);
        *out = Ranks::Item{one.seq, {}, below(5) != 0 ? uint32_t{QUIRE_ITEM_MAY_LOAD} : 0, 0};
        if (end > known) {
            out->tokens.assign(one.prompt.begin() + static_cast<ptrdiff_t>(known),
                               one.prompt.begin() + static_cast<ptrdiff_t>(end));
        }
        if (below(4) == 0) out->max_compute = 1 + below(30);
        return known + out->tokens.size() > info.computed_tokens;
    }

    void step() {
        begin_one();
        std::vector<Ranks::Item> items;
        for (const Live &one : live_) {
            Ranks::Item item;
            if (below(3) != 0 && next_item(one, &item)) items.push_back(item);
        }
        const uint32_t preempt = below(3) == 0 ? uint32_t{QUIRE_PREEMPT_SWAP} : 0;
        ASSERT_EQ(r_.begin(items, preempt), QUIRE_OK) << r_.error.message;
        r_.check();
        if (below(6) == 0) return r_.abort();
        r_.commit();
        r_.check();
        r_.finish(below(10) == 0 ? QUIRE_STEP_FAILED : QUIRE_STEP_OK);
        while (r_.follower(0).logs.size() > 4) follow(any_follower());
        if (below(3) != 0) return;
        r_.deliver_logs();
        for (uint32_t i = 0; i < r_.follower_count(); ++i) take_report(i);
    }

    std::mt19937 random_;
    Ranks r_;
    uint32_t write_ = 0;
    uint64_t used_ = 0;
    uint64_t values_ = 0;
    std::vector<quire_namespace> tenants_;
    std::vector<Live> live_;
    std::vector<std::deque<Bytes>> reports_;  // on their way
};

TEST(RankTierRandom, schedules_give_every_rank_what_the_tokens_say) {
    uint64_t used = 0, count = 0;
    for (uint64_t seed : quire::tests::seeds(0, kSchedules)) {
        if (testing::Test::HasFailure()) break;
        SCOPED_TRACE(seed);
        RankSchedule schedule(static_cast<uint32_t>(seed));
        schedule.run();
        used += schedule.loads_used();
        ++count;
    }
    EXPECT_GT(used, count / 20) << "loads that were used";
    std::printf("%llu schedules, %llu loads used\n", static_cast<unsigned long long>(count),
                static_cast<unsigned long long>(used));
}

}  // namespace
