// SPDX-License-Identifier: Apache-2.0
//
// Events: a router that only follows them knows what a new sequence would find.

#include <algorithm>
#include <map>
#include <random>

#include "manager.hpp"

namespace {

using namespace quire::test;

constexpr uint32_t kBlock = 4;

struct Read {
    std::vector<quire_cache_event> events;
    Tokens tokens;
    uint32_t calls = 0;
};

// Follows events as a router does, and refuses those that make no sense.
class Router {
 public:
    explicit Router(Manager *m) : m_(*m) {}

    quire_status read_once(uint32_t flags, uint32_t capacity, quire_events_info *info) {
        events_.resize(capacity);
        tokens_.resize(uint64_t{capacity} * kBlock);
        *info = described<quire_events_info>();
        return m_.api().cache_events(m_.cache(), flags, events_.data(), capacity,
                                     sizeof(quire_cache_event), tokens_.data(),
                                     static_cast<uint32_t>(tokens_.size()), info, m_.error());
    }

    // Reads until nothing is left, `capacity` events at a time.
    Read read(uint32_t capacity = 64, uint32_t flags = 0) {
        Read all;
        for (uint32_t more = 1; more != 0; flags = 0, ++all.calls) {
            quire_events_info info;
            EXPECT_EQ(read_once(flags, capacity, &info), QUIRE_OK) << m_.message();
            for (uint32_t i = 0; i < info.event_count; ++i) follow(events_[i]);
            all.events.insert(all.events.end(), events_.begin(),
                              events_.begin() + info.event_count);
            more = info.has_more;
            if (all.calls > 100000) ADD_FAILURE() << "reading does not end";
            if (all.calls > 100000) break;
        }
        return all;
    }

    // The tokens that a new sequence of the namespace would find, one of them left to compute.
    uint32_t finds(const Tokens &tokens, quire_namespace ns = 0) const {
        return finds_below(0, tokens, 0, ns);
    }
    uint64_t size() const { return known_.size(); }
    // True if equal blocks follow the same one: a sequence finds the blocks after one of them only.
    bool has_equals() const {
        auto equal = [](auto &a, auto &b) { return a.first == b.first; };
        return std::adjacent_find(children_.begin(), children_.end(), equal) != children_.end();
    }

 private:
    using Place = std::tuple<quire_namespace, uint64_t, Tokens>;
    struct Known {
        Place place;
        uint32_t position;
        uint32_t children;
    };

    uint32_t finds_below(uint64_t at, const Tokens &tokens, uint32_t begin,
                         quire_namespace ns) const {
        uint32_t longest = begin, end = begin + kBlock;
        if (end >= tokens.size()) return longest;
        Tokens block(tokens.begin() + begin, tokens.begin() + end);
        auto [first, last] = children_.equal_range({ns, at, block});
        for (; first != last; ++first)
            longest = std::max(longest, finds_below(first->second, tokens, end, ns));
        return longest;
    }

    void follow(const quire_cache_event &event) {
        if (event.kind == QUIRE_EVENT_CLEARED) {
            known_.clear();
            return children_.clear();
        }
        if (event.kind == QUIRE_EVENT_REMOVED) {
            ASSERT_EQ(known_.count(event.block), 1u) << "removed, and was not there";
            const Known &known = known_.at(event.block);
            EXPECT_EQ(known.children, 0u) << "removed before the blocks after it";
            EXPECT_EQ(std::get<0>(known.place), event.ns);
            uint64_t parent = std::get<1>(known.place);
            if (parent != 0) --known_.at(parent).children;
            auto [first, last] = children_.equal_range(known.place);
            for (; first != last; ++first) {
                if (first->second != event.block) continue;
                children_.erase(first);
                break;
            }
            known_.erase(event.block);
            return;
        }
        ASSERT_EQ(event.kind, uint32_t{QUIRE_EVENT_STORED});
        EXPECT_GT(event.block, newest_) << "a number is used again";
        newest_ = event.block;
        uint32_t position = 0;
        if (event.parent != 0) {
            ASSERT_EQ(known_.count(event.parent), 1u) << "stored before its parent";
            ++known_.at(event.parent).children;
            position = known_.at(event.parent).position + kBlock;
        }
        EXPECT_EQ(event.position, position);
        EXPECT_EQ(event.token_count, kBlock);
        if ((event.flags & QUIRE_EVENT_KEYED) != 0) {
            known_[event.block] = {{event.ns, event.parent, {}}, position, 0};
            return;
        }
        ASSERT_NE(event.flags & QUIRE_EVENT_HAS_TOKENS, 0u);
        auto first = tokens_.begin() + event.token_offset;
        Place place{event.ns, event.parent, Tokens(first, first + kBlock)};
        children_.emplace(place, event.block);
        known_[event.block] = {place, position, 0};
    }

    Manager &m_;
    std::vector<quire_cache_event> events_;
    Tokens tokens_;
    std::map<uint64_t, Known> known_;
    std::multimap<Place, uint64_t> children_;
    uint64_t newest_ = 0;
};

constexpr uint32_t kWithTokens = QUIRE_CACHE_EVENTS | QUIRE_CACHE_EVENT_TOKENS;

TEST(Events, begin_with_cleared_and_name_blocks_after_their_parents) {
    Manager m({.flags = kWithTokens});
    Router router(&m);
    m.compute(m.sequence(), tokens_from(1, 13));
    Read read = router.read();
    ASSERT_EQ(read.events.size(), 4u);
    EXPECT_EQ(read.events[0].kind, uint32_t{QUIRE_EVENT_CLEARED});
    EXPECT_EQ(read.events[1].parent, 0u);
    EXPECT_EQ(read.events[2].parent, read.events[1].block);
    EXPECT_EQ(read.events[3].parent, read.events[2].block);
    EXPECT_EQ(router.finds(tokens_from(1, 20)), 12u);
    EXPECT_TRUE(router.read().events.empty());
}

TEST(Events, of_an_open_step_come_after_its_commit_and_never_after_its_abort) {
    Manager m({.flags = kWithTokens});
    Router router(&m);
    quire_seq a = m.sequence(), b = m.sequence();
    router.read();
    m.begin();
    m.add(a, tokens_from(1, 9));
    EXPECT_TRUE(router.read().events.empty());
    m.abort();
    EXPECT_TRUE(router.read().events.empty());
    m.begin();
    m.add(b, tokens_from(1, 9));
    quire_step step = m.commit();
    EXPECT_EQ(router.read().events.size(), 2u);
    m.finish(step);
}

TEST(Events, of_a_failed_step_are_taken_back_the_last_block_first) {
    Manager m({.flags = kWithTokens});
    Router router(&m);
    quire_seq a = m.sequence();
    m.begin();
    m.add(a, tokens_from(1, 13));
    quire_step step = m.commit();
    Read stored = router.read();
    m.finish(step, QUIRE_STEP_FAILED);
    Read removed = router.read();
    ASSERT_EQ(removed.events.size(), 3u);
    for (uint32_t i = 0; i < 3; ++i) {
        EXPECT_EQ(removed.events[i].kind, uint32_t{QUIRE_EVENT_REMOVED});
        EXPECT_EQ(removed.events[i].block, stored.events[3 - i].block);
    }
    EXPECT_EQ(router.size(), 0u);
}

TEST(Events, that_cancel_each_other_between_two_reads_are_not_told) {
    Manager m({.flags = kWithTokens});
    Router router(&m);
    router.read();
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 13));
    m.end(a, QUIRE_END_DROP_PREFIX);
    EXPECT_TRUE(router.read().events.empty());
}

TEST(Events, go_without_tokens_where_the_namespace_keeps_them) {
    Manager m({.flags = QUIRE_CACHE_EVENTS});
    m.compute(m.sequence(), tokens_from(1, 5));
    quire_cache_event events[4];
    auto info = described<quire_events_info>();
    ASSERT_EQ(
        m.api().cache_events(m.cache(), 0, events, 4, sizeof *events, nullptr, 0, &info, m.error()),
        QUIRE_OK);
    ASSERT_EQ(info.event_count, 2u);
    EXPECT_EQ(info.token_count, 0u);
    EXPECT_EQ(events[1].flags & QUIRE_EVENT_HAS_TOKENS, 0u);
}

TEST(Events, say_which_blocks_are_found_by_more_than_tokens) {
    Manager m({.flags = kWithTokens});
    Router router(&m);
    quire_key salt{QUIRE_KEY_SALT, 2, "ab", 0, 0}, media{QUIRE_KEY_MEDIA, 1, "x", 4, 6};
    m.compute(m.sequence({.keys = {salt}}), tokens_from(1, 5));
    m.compute(m.sequence({.keys = {media}}), tokens_from(50, 13));
    Read read = router.read();
    ASSERT_EQ(read.events.size(), 5u);
    EXPECT_NE(read.events[1].flags & QUIRE_EVENT_KEYED, 0u);
    EXPECT_EQ(read.events[2].flags & QUIRE_EVENT_KEYED, 0u) << "the span begins after it";
    EXPECT_NE(read.events[3].flags & QUIRE_EVENT_KEYED, 0u);
    EXPECT_NE(read.events[4].flags & QUIRE_EVENT_KEYED, 0u) << "a block before it has a key";
}

TEST(Events, are_refused_with_too_little_room_and_where_nothing_is_noted) {
    Manager m({.flags = kWithTokens, .groups = {{}, {.window = 4}}});
    quire_cache_event event;
    quire_token tokens[4];
    auto info = described<quire_events_info>();
    EXPECT_EQ(
        m.api().cache_events(m.cache(), 0, &event, 1, sizeof event, tokens, 4, &info, m.error()),
        QUIRE_E_ARG);
    EXPECT_NE(m.message().find("one event per group"), std::string::npos) << m.message();
    Manager plain;
    EXPECT_EQ(plain.api().cache_events(plain.cache(), 0, &event, 1, sizeof event, tokens, 4, &info,
                                       plain.error()),
              QUIRE_E_UNSUPPORTED);
    EXPECT_NE(plain.message().find("QUIRE_CACHE_EVENTS"), std::string::npos) << plain.message();
}

TEST(Events, say_in_which_groups_a_block_lies) {
    Manager m({.flags = QUIRE_CACHE_EVENTS, .groups = {{}, {.window = 4, .blocks = 3}}});
    quire_seq a = m.sequence();
    for (quire_token first : {1u, 5u, 9u, 13u}) m.compute(a, tokens_from(first, 4));
    quire_cache_event events[16];
    auto info = described<quire_events_info>();
    ASSERT_EQ(m.api().cache_events(m.cache(), 0, events, 16, sizeof *events, nullptr, 0, &info,
                                   m.error()),
              QUIRE_OK);
    std::map<uint64_t, std::vector<uint32_t>> groups;
    for (uint32_t i = 1; i < info.event_count; ++i)
        groups[events[i].block].push_back(events[i].group);
    ASSERT_EQ(groups.size(), 4u);
    EXPECT_EQ(groups.begin()->second, (std::vector<uint32_t>{0}))
        << "evicted from the window group";
    EXPECT_EQ(groups.rbegin()->second, (std::vector<uint32_t>{0, 1}));
}

// What the random test does to the cache, apart from reading.
struct Engine {
    Engine(Manager *manager, uint64_t seed) : m(*manager), random(seed) {}

    uint32_t roll(uint32_t count) { return static_cast<uint32_t>(random() % count); }
    Tokens text() {
        Tokens tokens = tokens_from(1000 * roll(4), 4 + roll(40));
        if (roll(2) == 0) tokens[roll(static_cast<uint32_t>(tokens.size()))] = 7;
        return tokens;
    }
    void step() {
        m.begin({.may_preempt = true});
        uint32_t items = 1 + roll(3);
        for (uint32_t i = 0; i < items; ++i) {
            if (live.size() < 6) live.push_back({m.sequence({.ns = spaces[roll(3)]}), false});
            auto &[seq, has_text] = live[roll(static_cast<uint32_t>(live.size()))];
            if (std::find(in_step.begin(), in_step.end(), seq) != in_step.end()) continue;
            quire_step_result result{};
            Tokens tokens = has_text ? tokens_from(5000 + roll(3), 1 + roll(5)) : text();
            if (m.try_add(seq, tokens, {}, &result) != QUIRE_OK) continue;
            if (result.outcome != QUIRE_ITEM_RUN) continue;
            has_text = true;
            in_step.push_back(seq);
        }
        if (roll(4) == 0 && !in_step.empty()) m.drop(in_step[roll(uint32_t(in_step.size()))]);
        in_step.clear();
    }
    void close() {
        if (roll(6) == 0) return m.abort();
        quire_step done = m.commit();
        m.finish(done, roll(8) == 0 ? QUIRE_STEP_FAILED : QUIRE_STEP_OK);
    }
    void beside() {
        if (roll(60) == 0) {
            EXPECT_EQ(m.api().cache_reset(m.cache(), m.error()), QUIRE_OK) << m.message();
        }
        if (live.empty() || roll(3) != 0) return;
        uint32_t one = roll(static_cast<uint32_t>(live.size()));
        m.end(live[one].first, roll(4) == 0 ? QUIRE_END_DROP_PREFIX : 0);
        live.erase(live.begin() + one);
    }

    Manager &m;
    std::mt19937_64 random;
    std::vector<std::pair<quire_seq, bool>> live;
    std::vector<quire_seq> in_step;
    quire_namespace spaces[3] = {};
};

void follow_random_work(uint64_t seed, uint32_t capacity) {
    Manager m({.blocks = 40, .flags = kWithTokens});
    Router router(&m);
    Engine engine(&m, seed);
    auto desc = described<quire_namespace_desc>();
    desc.flags = QUIRE_NAMESPACE_EVENT_TOKENS;
    for (uint32_t i = 1; i < 3; ++i) {
        ASSERT_EQ(m.api().namespace_create(m.cache(), &desc, &engine.spaces[i], m.error()),
                  QUIRE_OK);
    }
    uint64_t found = 0;
    for (uint32_t round = 0; round < 300; ++round) {
        engine.step();
        if (engine.roll(4) == 0) router.read(capacity);
        engine.close();
        engine.beside();
        if (engine.roll(3) != 0) continue;
        bool restarts = engine.roll(10) == 0;
        router.read(capacity, restarts ? uint32_t{QUIRE_EVENTS_RESTART} : 0);
        for (uint32_t i = 0; i < 20; ++i) {
            Tokens tokens = engine.text();
            quire_namespace ns = engine.spaces[engine.roll(3)];
            uint32_t finds = m.probe(tokens, {.ns = ns});
            if (router.has_equals()) {
                ASSERT_GE(router.finds(tokens, ns), finds);
                continue;
            }
            ASSERT_EQ(router.finds(tokens, ns), finds) << "seed " << seed << ", round " << round;
            found += finds;
        }
    }
    EXPECT_GT(found, 0u) << "the test looked for nothing that is there";
    EXPECT_GT(m.stats().evictions, 0u) << "and nothing was evicted";
}

TEST(Events, tell_a_router_what_is_found_through_evictions_failures_and_resets) {
    for (uint64_t seed = 1; seed <= 12; ++seed) follow_random_work(seed, 64);
}

TEST(Events, tell_it_with_room_for_one_event_at_a_time) {
    for (uint64_t seed = 21; seed <= 24; ++seed) follow_random_work(seed, 1);
}

}  // namespace
