// SPDX-License-Identifier: Apache-2.0
//
// Random schedules over a store with faults. The model knows which prefixes each tenant has ever
// computed: nothing else may be found, and every block that is found holds the right bits. The
// books are checked after every call.

#include <random>
#include <set>

#include "tests/effort.hpp"
#include "tests/tiers/tier_rig.hpp"

namespace {

using namespace quire::test;

constexpr quire::tests::Counts kSchedules{3'000, 600, 100};
constexpr uint32_t kCalls = 60;

struct Live {
    quire_seq seq;
    uint32_t tenant;
    Tokens prompt;
};

class Schedule {
 public:
    Schedule(uint32_t seed, quire_instance *instance, quire_tier *tier, StubControl *stub)
        : random_(seed), tier_(tier), stub_(stub), rig_(instance, shape(seed)) {
        constexpr uint32_t kPolicies[] = {QUIRE_TIER_WRITE_SELECTIVE, QUIRE_TIER_WRITE_THROUGH,
                                          QUIRE_TIER_WRITE_BACK};
        write_ = kPolicies[seed % 3];
        attach();
        for (const char *key : {"blue", "red"}) tenants_.push_back(rig_.tenant(key));
    }
    ~Schedule() {
        stub_->reset();
        for (const Live &one : live_) rig_.end(one.seq);
        if (attached_) {
            EXPECT_EQ(rig_.detach(), QUIRE_OK) << rig_.error.message;
        }
        rig_.check();
    }

    void run() {
        for (uint32_t i = 0; i < kCalls && !testing::Test::HasFailure(); ++i) {
            act();
            rig_.check();
        }
        if (attached_) used_ += rig_.stats().loads_used;
    }
    uint64_t loads_used() const { return used_; }

 private:
    static RigShape shape(uint32_t seed) {
        RigShape shape;
        shape.blocks = 20 + seed % 20;
        shape.host_blocks = 6 + seed % 40;
        shape.shards = 1 + seed % 2;
        shape.window = seed % 5 == 0 ? 20 : 0;
        if (seed / 2 % 2 == 1) shape.flags |= QUIRE_CACHE_HOST_PREFIXES;
        return shape;
    }
    uint32_t below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
    void attach() {
        EXPECT_EQ(rig_.attach(tier_, write_), QUIRE_OK) << rig_.error.message;
        attached_ = true;
    }

    void act() {
        switch (below(20)) {
            case 0:
                return spoil();
            case 1:
                return end_one();
            case 2:
                if (attached_) rig_.poll();
                return;
            case 3:
                if (attached_ && !live_.empty()) {
                    EXPECT_EQ(rig_.api.cache_cancel_load(rig_.cache, live_[below(live_.size())].seq,
                                                         &rig_.error),
                              QUIRE_OK);
                }
                return;
            case 4:
                return below(6) == 0 ? toggle_tier() : forget();
            case 5:
                return preempt_one();
            default:
                return step();
        }
    }

    // One fault, or none.
    void spoil() {
        std::atomic<bool> *const faults[] = {
            &stub_->holds,      &stub_->reverses,   &stub_->takes_none,
            &stub_->fails_gets, &stub_->fails_puts, &stub_->spoils,
            &stub_->swaps,      &stub_->forgets,    &stub_->fails_finds};
        stub_->reset();
        stub_->doubts = below(3) == 0;
        if (below(4) == 0) stub_->denies = random_();
        if (below(3) == 0) *faults[below(std::size(faults))] = true;
    }

    void end_one() {
        if (live_.empty()) return;
        const uint32_t at = below(live_.size());
        rig_.end(live_[at].seq);
        live_.erase(live_.begin() + at);
    }

    void toggle_tier() {
        stub_->reset();
        if (attached_) {
            used_ += rig_.stats().loads_used;
            EXPECT_EQ(rig_.detach(), QUIRE_OK) << rig_.error.message;
            attached_ = false;
        } else {
            attach();
        }
    }

    // The device forgets what it has cached.
    void forget() {
        for (uint32_t i = 0; attached_ && i < 8; ++i) rig_.poll();
        while (!live_.empty() && below(4) != 0) end_one();
        rig_.evict_all();
    }

    void preempt_one() {
        if (live_.empty()) return;
        ASSERT_EQ(rig_.begin({}), QUIRE_OK) << rig_.error.message;
        uint32_t freed = 0;
        quire_status status =
            rig_.api.step_preempt(rig_.cache, rig_.step, live_[below(live_.size())].seq,
                                  QUIRE_PREEMPT_AUTO, &freed, &rig_.error);
        EXPECT_GE(status, QUIRE_OK) << rig_.error.message;
        rig_.check();
        if (below(3) == 0) return rig_.abort();
        rig_.commit_and_compute();
        rig_.finish();
    }

    void begin_one() {
        if (live_.size() == 6) return;
        const uint32_t tenant = below(3);
        Tokens own = prompt(below(3), 12 + below(80));
        if (below(8) == 0) own[below(own.size())] ^= 1;
        const quire_seq seq = rig_.create(tenant == 0 ? 0 : tenants_[tenant - 1]);
        live_.push_back({seq, tenant, own});
    }

    // What comes next of a sequence; false: nothing.
    bool next_item(const Live &one, RigCache::Item *out) {
        auto info = described<quire_seq_info>();
        EXPECT_EQ(rig_.api.seq_get_info(rig_.cache, one.seq, &info, &rig_.error), QUIRE_OK);
        const size_t known = info.known_tokens;
        size_t end = one.prompt.size();
        if (below(8) == 0 && end > known) end = known + 1 + below(end - known);
        *out = RigCache::Item{one.seq, {}, below(5) != 0 ? uint32_t{QUIRE_ITEM_MAY_LOAD} : 0, 0};
        if (end > known) {
            out->tokens.assign(one.prompt.begin() + static_cast<ptrdiff_t>(known),
                               one.prompt.begin() + static_cast<ptrdiff_t>(end));
        }
        if (below(4) == 0) out->max_compute = 1 + below(30);
        return known + out->tokens.size() > info.computed_tokens;
    }

    void step() {
        begin_one();
        if (attached_ && below(2) == 0) rig_.poll();
        std::vector<RigCache::Item> items;
        std::vector<Live> of;
        for (const Live &one : live_) {
            RigCache::Item item;
            if (below(3) == 0 || !next_item(one, &item)) continue;
            items.push_back(item);
            of.push_back(one);
        }
        ASSERT_EQ(rig_.begin(items), QUIRE_OK) << rig_.error.message;
        rig_.check();
        note_computed(of);
        for (size_t i = 0; i < items.size(); ++i) check_found(of[i], rig_.results[i]);
        if (below(6) == 0) return rig_.abort();
        if (below(6) == 0 && drop_one(items)) return rig_.abort();
        rig_.commit_and_compute();
        rig_.check();
        rig_.finish(below(10) == 0 ? QUIRE_STEP_FAILED : QUIRE_STEP_OK);
    }

    bool drop_one(const std::vector<RigCache::Item> &items) {
        for (size_t i = 0; i < items.size(); ++i) {
            if (rig_.results[i].outcome != QUIRE_ITEM_RUN) continue;
            quire_seq dropped[8];
            uint32_t count = 0;
            EXPECT_EQ(rig_.api.step_drop(rig_.cache, rig_.step, items[i].seq, dropped, 8, &count,
                                         &rig_.error),
                      QUIRE_OK)
                << rig_.error.message;
            rig_.check();
            return true;
        }
        return false;
    }

    void note_computed(const std::vector<Live> &of) {
        for (size_t i = 0; i < of.size(); ++i) {
            const quire_step_result &r = rig_.results[i];
            if (r.outcome != QUIRE_ITEM_RUN) continue;
            for (uint32_t end = RigCache::kBlockTokens; end <= r.first_position + r.compute_count;
                 end += RigCache::kBlockTokens) {
                if (end > r.first_position) computed_.insert(prefix(of[i], end));
            }
        }
    }
    void check_found(const Live &one, const quire_step_result &r) {
        if (r.outcome != QUIRE_ITEM_RUN || r.hit_tokens == 0) return;
        EXPECT_TRUE(computed_.contains(prefix(one, r.hit_tokens)))
            << r.hit_tokens << " tokens that tenant " << one.tenant << " never computed";
    }
    static std::pair<uint32_t, Tokens> prefix(const Live &one, uint32_t end) {
        return {one.tenant, Tokens(one.prompt.begin(), one.prompt.begin() + end)};
    }

    std::mt19937 random_;
    quire_tier *tier_;
    StubControl *stub_;
    RigCache rig_;
    uint32_t write_ = 0;
    bool attached_ = false;
    uint64_t used_ = 0;
    std::vector<quire_namespace> tenants_;
    std::vector<Live> live_;
    std::set<std::pair<uint32_t, Tokens>> computed_;
};

class CacheTierRandom : public TierRig {};

TEST_F(CacheTierRandom, schedules_find_only_what_was_computed) {
    uint64_t used = 0, count = 0;
    for (uint64_t seed : quire::tests::seeds(0, kSchedules)) {
        if (HasFailure()) break;
        SCOPED_TRACE(seed);
        open_stub();
        {
            Schedule schedule(static_cast<uint32_t>(seed), instance, tier, stub);
            schedule.run();
            used += schedule.loads_used();
        }
        close();
        ++count;
    }
    EXPECT_GT(used, count / 20) << "loads that were used";
    std::printf("%llu schedules, %llu loads used\n", static_cast<unsigned long long>(count),
                static_cast<unsigned long long>(used));
}

}  // namespace
