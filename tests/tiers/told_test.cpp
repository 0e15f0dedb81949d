// SPDX-License-Identifier: Apache-2.0
//
// Events of a cache with a store below it: a router that only follows them knows what an item would
// find on the device, in the host tier and in the store together.

#include <map>
#include <random>
#include <set>

#include "tests/effort.hpp"
#include "tests/sim/tier_name.hpp"
#include "tests/tiers/tier_rig.hpp"

namespace {

using namespace quire::test;

constexpr uint32_t kBlock = RigCache::kBlockTokens;
constexpr quire::tests::Counts kSchedules{600, 200, 60};

// Follows events as a router does, and refuses those that make no sense.
class Reader {
 public:
    explicit Reader(RigCache *rig) : rig_(*rig) {}

    // Reads all that there is, `capacity` events at a time. The number of events.
    uint32_t read(uint32_t capacity = 64, uint32_t flags = 0) {
        uint32_t count = 0;
        for (uint32_t more = 1; more != 0; flags = 0) more = read_once(capacity, flags, &count);
        return count;
    }
    uint32_t read_once(uint32_t capacity, uint32_t flags, uint32_t *count) {
        std::vector<quire_cache_event> events(capacity);
        std::vector<quire_token> tokens(uint64_t{capacity} * kBlock);
        auto info = described<quire_events_info>();
        EXPECT_EQ(rig_.api.cache_events(rig_.cache, flags, events.data(), capacity,
                                        sizeof events[0], tokens.data(),
                                        static_cast<uint32_t>(tokens.size()), &info, &rig_.error),
                  QUIRE_OK)
            << rig_.error.message;
        for (uint32_t i = 0; i < info.event_count; ++i) follow(events[i], tokens);
        *count += info.event_count;
        return testing::Test::HasFailure() ? 0 : info.has_more;
    }

    // Tokens of the prompt that an item finds, one of them left to compute.
    uint32_t finds(const Tokens &prompt, quire_namespace ns = 0) const {
        uint64_t at = 0;
        uint32_t end = 0;
        while (end + kBlock < prompt.size()) {
            const auto child = children_.find(content(ns, at, prompt, end));
            if (child == children_.end()) break;
            at = *child->second.begin();
            end += kBlock;
        }
        return end;
    }
    // Places of blocks at the level.
    uint32_t count(uint32_t level) const {
        uint32_t count = 0;
        for (const auto &[number, known] : known_)
            for (const auto &[group, at] : known.places) count += at == level;
        return count;
    }
    std::set<uint64_t> numbers() const {
        std::set<uint64_t> out;
        for (const auto &[number, known] : known_) out.insert(number);
        return out;
    }
    uint64_t came_back() const { return again_; }

 private:
    using Content = std::tuple<quire_namespace, uint64_t, Tokens>;
    struct Known {
        Content content;
        uint32_t position = 0;
        uint32_t children = 0;
        std::set<std::pair<uint32_t, uint32_t>> places;  // group, level
    };

    static Content content(quire_namespace ns, uint64_t parent, const Tokens &from, uint32_t at) {
        const auto begin = from.begin() + at;
        return {ns, parent, Tokens(begin, begin + kBlock)};
    }

    void follow(const quire_cache_event &event, const Tokens &tokens) {
        if (event.kind == QUIRE_EVENT_CLEARED) {
            known_.clear();
            return children_.clear();
        }
        if (event.kind == QUIRE_EVENT_REMOVED) return remove(event);
        ASSERT_EQ(event.kind, uint32_t{QUIRE_EVENT_STORED});
        ASSERT_LE(event.level, uint32_t{QUIRE_LEVEL_REMOTE});
        const Content of = content(event.ns, event.parent, tokens, event.token_offset);
        ASSERT_TRUE(contents_.try_emplace(event.block, of).first->second == of)
            << "block " << event.block << " is another one now";
        uint32_t position = 0;
        if (event.parent != 0) {
            ASSERT_EQ(known_.count(event.parent), 1u) << "stored before its parent";
            position = known_.at(event.parent).position + kBlock;
        }
        EXPECT_EQ(event.position, position);
        if (event.level < QUIRE_LEVEL_STORE && event.parent != 0) {
            const auto &above = known_.at(event.parent).places;
            EXPECT_LT(above.begin()->second, uint32_t{QUIRE_LEVEL_STORE}) << "before its parent";
        }
        if (known_.count(event.block) == 0) {
            if (event.parent != 0) ++known_.at(event.parent).children;
            children_[of].insert(event.block);
            known_[event.block] = Known{of, position, 0, {}};
        } else if (event.level < QUIRE_LEVEL_STORE) {
            const auto &places = known_.at(event.block).places;
            again_ += places == decltype(known_[0].places){{event.group, QUIRE_LEVEL_STORE}};
        }
        EXPECT_TRUE(known_.at(event.block).places.insert({event.group, event.level}).second)
            << "block " << event.block << " is stored twice at level " << event.level;
    }
    void remove(const quire_cache_event &event) {
        ASSERT_EQ(known_.count(event.block), 1u) << "removed, and was not there";
        Known &known = known_.at(event.block);
        ASSERT_EQ(known.places.erase({event.group, event.level}), 1u)
            << "block " << event.block << " is removed from level " << event.level;
        EXPECT_EQ(std::get<0>(known.content), event.ns);
        if (!known.places.empty()) return;
        EXPECT_EQ(known.children, 0u) << "removed before the blocks after it";
        const uint64_t parent = std::get<1>(known.content);
        if (parent != 0) --known_.at(parent).children;
        auto at = children_.find(known.content);
        at->second.erase(event.block);
        if (at->second.empty()) children_.erase(at);
        known_.erase(event.block);
    }

    RigCache &rig_;
    std::map<uint64_t, Known> known_;
    std::map<uint64_t, Content> contents_;  // all that ever were
    std::map<Content, std::set<uint64_t>> children_;
    uint64_t again_ = 0;
};

constexpr uint32_t kEvents = QUIRE_CACHE_AUDIT | QUIRE_CACHE_EVENTS | QUIRE_CACHE_EVENT_TOKENS;

// The keys of the values that the store has.
std::set<std::string> keys_of(const quire_api &api, quire_tier *tier) {
    std::set<std::string> keys;
    std::vector<quire_store_record> some(64);
    quire_error error{};
    error.struct_size = sizeof error;
    uint64_t cursor = 0;
    for (uint32_t count = 1; count != 0;) {
        EXPECT_EQ(api.tier_list(tier, &cursor, some.data(), 64, sizeof some[0], &count, &error),
                  QUIRE_OK)
            << error.message;
        for (uint32_t i = 0; i < count; ++i) {
            const uint8_t *key = some[i].label.key;
            keys.insert(std::string(key, key + sizeof some[i].label.key));
        }
    }
    return keys;
}

void put(std::vector<uint8_t> *to, const std::vector<uint32_t> &words) {
    for (uint32_t word : words)
        for (uint32_t shift = 0; shift < 32; shift += 8)
            to->push_back(static_cast<uint8_t>(word >> shift));
}

// The keys of the prompt's whole blocks in the default namespace and a cache of one group, as
// docs/tiers.md has them.
std::vector<std::string> keys_of(const Tokens &prompt) {
    std::vector<uint8_t> bytes(16 + 32 + 32);
    std::memcpy(bytes.data(), "quire tier 1", 12);
    bytes[16] = 1;                // the fingerprint
    put(&bytes, {kBlock, 1, 0});  // one word: no key of the whole sequence
    sim::Digest name = sim::sha256(bytes);
    std::vector<std::string> keys;
    for (size_t at = 0; at + kBlock <= prompt.size(); at += kBlock) {
        bytes.assign(name.begin(), name.end());
        put(&bytes, {0, 0});
        put(&bytes, Tokens(prompt.begin() + at, prompt.begin() + at + kBlock));
        name = sim::sha256(bytes);
        bytes.assign(name.begin(), name.end());
        put(&bytes, {0, QUIRE_GROUP_FULL, 0, 0, 1, 1, RigCache::kDim, RigCache::kDim,
                     QUIRE_DTYPE_F32, QUIRE_DTYPE_F32, QUIRE_SCALE_NONE, QUIRE_SCALE_NONE});
        const sim::Digest key = sim::sha256(bytes);
        keys.emplace_back(key.begin(), key.end());
    }
    return keys;
}

class Told : public TierRig {
 protected:
    void attach(RigCache *rig, uint32_t write = QUIRE_TIER_WRITE_THROUGH, uint64_t most = 0) {
        auto desc = described<quire_cache_tier_desc>();
        desc.fingerprint[0] = 1;
        desc.write = write;
        desc.load_timeout_ns = desc.load_expiry_ns = UINT64_MAX / 4;
        desc.max_told_blocks = most;
        ASSERT_EQ(rig->api.cache_attach_tier(rig->cache, tier, &desc, &rig->error), QUIRE_OK)
            << rig->error.message;
    }
};

RigShape with_events(uint32_t flags = 0, uint32_t blocks = 33) {
    RigShape shape;
    shape.flags = kEvents | flags;
    shape.blocks = blocks;
    return shape;
}

TEST_F(Told, blocks_are_stored_on_the_device_and_in_the_store) {
    open_stub();
    RigCache rig(instance, with_events());
    attach(&rig);
    Reader reader(&rig);
    rig.compute(prompt(1, 40));
    reader.read();
    EXPECT_EQ(reader.count(QUIRE_LEVEL_DEVICE), 5u);
    rig.settle();
    reader.read(1);
    EXPECT_EQ(reader.count(QUIRE_LEVEL_DEVICE), 5u);
    EXPECT_EQ(reader.count(QUIRE_LEVEL_STORE), 5u);
    rig.check();
    EXPECT_EQ(rig.detach(), QUIRE_OK);
    reader.read(1);
    EXPECT_EQ(reader.count(QUIRE_LEVEL_STORE), 0u) << "nothing is loaded without a tier";
    EXPECT_EQ(reader.count(QUIRE_LEVEL_DEVICE), 5u);
    rig.check();
}

TEST_F(Told, blocks_that_leave_the_device_come_back_under_their_numbers) {
    open_stub();
    RigCache rig(instance, with_events());
    attach(&rig);
    Reader reader(&rig);
    rig.compute(prompt(1, 40));
    rig.settle();
    reader.read();
    const std::set<uint64_t> numbers = reader.numbers();
    rig.evict_all();
    rig.settle();
    reader.read(1);
    EXPECT_EQ(reader.finds(prompt(1, 41)), 40u);
    rig.evict_all();
    rig.settle();
    reader.read(2);
    const uint32_t left = reader.count(QUIRE_LEVEL_DEVICE);
    quire_seq seq = rig.create();
    EXPECT_EQ(rig.run_to_the_end(seq, prompt(1, 41)).hit_tokens, 40u);
    reader.read(3);
    EXPECT_GT(reader.count(QUIRE_LEVEL_DEVICE), 0u);
    EXPECT_LE(reader.count(QUIRE_LEVEL_DEVICE), left + 5);
    for (uint64_t number : numbers) EXPECT_EQ(reader.numbers().count(number), 1u);
    rig.end(seq);
    EXPECT_EQ(rig.detach(), QUIRE_OK);
    rig.check();
}

TEST_F(Told, a_reader_that_comes_late_hears_of_blocks_that_only_the_store_has) {
    open_stub();
    RigCache rig(instance, with_events());
    attach(&rig);
    Reader late(&rig);
    rig.compute(prompt(1, 40));
    rig.settle();
    rig.evict_all();
    rig.evict_all();
    late.read(2);
    EXPECT_EQ(late.finds(prompt(1, 41)), 40u);
    Reader next(&rig);
    next.read(3, QUIRE_EVENTS_RESTART);
    EXPECT_EQ(next.finds(prompt(1, 41)), 40u);
    EXPECT_EQ(next.count(QUIRE_LEVEL_STORE), late.count(QUIRE_LEVEL_STORE));
    rig.check();
    EXPECT_EQ(rig.detach(), QUIRE_OK);
}

TEST_F(Told, a_value_that_the_store_drops_takes_those_after_it_along) {
    const std::string path = quire::tests::place(QUIRE_STUB_STORE_PATH);
    ASSERT_EQ(open(path.c_str(), {{"capacity", "20KiB"}}), QUIRE_OK) << error.message;
    RigCache rig(instance, with_events());
    attach(&rig);
    Reader reader(&rig);
    for (uint32_t i = 0; i < 20; ++i) {
        rig.compute(prompt(i, 40));
        rig.settle();
        reader.read(1 + i % 4);
        rig.poll();
        reader.read();
        EXPECT_LE(reader.count(QUIRE_LEVEL_STORE), keys_of(api, tier).size());
        rig.check();
    }
    rig.evict_all();
    rig.settle();
    rig.poll();
    reader.read();
    const std::set<std::string> stored = keys_of(api, tier);
    for (uint32_t i = 0; i < 20; ++i) {
        const std::vector<std::string> keys = keys_of(prompt(i, 40));
        uint32_t there = 0;
        while (there < keys.size() && stored.contains(keys[there])) ++there;
        EXPECT_EQ(reader.finds(prompt(i, 41)), there * kBlock) << i;
    }
    EXPECT_EQ(rig.detach(), QUIRE_OK);
}

TEST_F(Told, no_more_blocks_are_told_than_the_tier_says) {
    open_stub();
    RigCache rig(instance, with_events());
    attach(&rig, QUIRE_TIER_WRITE_THROUGH, 7);
    Reader reader(&rig);
    for (uint32_t i = 0; i < 9; ++i) {
        rig.compute(prompt(i, 40));
        rig.settle();
        reader.read(1);
        EXPECT_LE(reader.count(QUIRE_LEVEL_STORE), 7u);
        rig.check();
    }
    EXPECT_EQ(reader.count(QUIRE_LEVEL_STORE), 7u);
    EXPECT_EQ(rig.detach(), QUIRE_OK);
}

TEST_F(Told, a_namespace_takes_its_blocks_along) {
    open_stub();
    RigCache rig(instance, with_events());
    attach(&rig);
    auto desc = described<quire_namespace_desc>();
    desc.flags = QUIRE_NAMESPACE_EVENT_TOKENS;
    desc.key = "blue";
    desc.key_size_bytes = 4;
    Reader reader(&rig);
    quire_namespace ns[2] = {};
    for (quire_namespace &one : ns) {
        ASSERT_EQ(api.namespace_create(rig.cache, &desc, &one, &error), QUIRE_OK) << error.message;
        rig.compute(prompt(3, 40), one);
        rig.settle();
        rig.evict_all();
        rig.evict_all();
        reader.read(1);
        EXPECT_EQ(reader.finds(prompt(3, 41), one), 40u);
        ASSERT_EQ(api.namespace_destroy(rig.cache, one, &error), QUIRE_OK) << error.message;
        reader.read(1);
        EXPECT_EQ(reader.finds(prompt(3, 41), one), 0u);
        rig.check();
    }
    EXPECT_EQ(rig.detach(), QUIRE_OK);
}

TEST_F(Told, a_reset_forgets_the_store) {
    open_stub();
    RigCache rig(instance, with_events());
    attach(&rig);
    Reader reader(&rig);
    rig.compute(prompt(1, 40));
    rig.settle();
    reader.read();
    ASSERT_EQ(api.cache_reset(rig.cache, &error), QUIRE_OK);
    reader.read();
    EXPECT_TRUE(reader.numbers().empty());
    EXPECT_EQ(rig.detach(), QUIRE_OK);
    rig.check();
}

// Random work, and a reader that is now quick and now slow. What an item would find is what the
// device and the host tier have (quire_prefix_probe), and after it what the store lists. A reader
// may know less where the store lost a block before one that it kept, until that is loaded.
class Walk {
 public:
    Walk(uint32_t seed, quire_instance *instance, quire_tier *tier, StubControl *stub, bool loses)
        : random_(seed),
          loses_(loses),
          tier_(tier),
          stub_(stub),
          rig_(instance, shape(seed)),
          reader_(&rig_) {
        constexpr uint32_t kPolicies[] = {QUIRE_TIER_WRITE_SELECTIVE, QUIRE_TIER_WRITE_THROUGH,
                                          QUIRE_TIER_WRITE_BACK};
        EXPECT_EQ(rig_.attach(tier, kPolicies[seed % 3]), QUIRE_OK) << rig_.error.message;
        reads_ = 1 + seed % 9;
    }
    ~Walk() {
        EXPECT_EQ(rig_.detach(), QUIRE_OK) << rig_.error.message;
        if (testing::Test::HasFailure()) return;
        reader_.read();
        EXPECT_EQ(reader_.count(QUIRE_LEVEL_STORE), 0u);
        rig_.check();
    }
    void run() {
        for (uint32_t i = 0; i < 60 && !testing::Test::HasFailure(); ++i) {
            act();
            if (below(reads_) == 0) {
                uint32_t ignored = 0;
                reader_.read_once(2 + below(20), below(30) == 0 ? QUIRE_EVENTS_RESTART : 0,
                                  &ignored);
            }
            rig_.check();
            if (below(3) == 0) compare();
        }
        loads = rig_.stats().loads_used;
        again = reader_.came_back();
    }
    uint64_t loads = 0, again = 0, found = 0, beyond = 0, more = 0;

 private:
    static RigShape shape(uint32_t seed) {
        RigShape shape;
        shape.blocks = 14 + seed % 20;
        shape.host_blocks = 16 + seed % 20;
        shape.flags = kEvents;
        if (seed / 2 % 2 == 1) shape.flags |= QUIRE_CACHE_HOST_PREFIXES;
        return shape;
    }
    uint32_t below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
    // Prompts of few kinds, so that they share prefixes.
    Tokens some() {
        Tokens out = prompt(below(4), 12 + below(60));
        if (below(3) == 0) out[out.size() / 2] ^= 1 + below(2);
        return out;
    }

    void act() {
        switch (below(6)) {
            case 0:
                return rig_.evict_all();
            case 1:
                stub_->doubts = below(4) == 0;
                stub_->fails_puts = loses_ && below(4) == 0;
                return;
            case 2:
                return rig_.settle();
            case 3: {
                quire_seq seq = rig_.create();
                rig_.run_to_the_end(seq, some());
                return rig_.end(seq);
            }
            default:
                return rig_.compute(some());
        }
    }
    void compare() {
        // A call that writes nothing has taken the notices of the last puts.
        do {
            rig_.settle();
        } while (rig_.poll().blocks_queued != 0);
        reader_.read(2 + below(30));
        const std::set<std::string> stored = keys_of(rig_.api, tier_);
        EXPECT_LE(reader_.count(QUIRE_LEVEL_STORE), stored.size());
        for (uint32_t i = 0; i < 8; ++i) {
            const Tokens tokens = some();
            quire_seq seq = rig_.create();
            uint32_t near = 0;
            EXPECT_EQ(
                rig_.api.prefix_probe(rig_.cache, seq, tokens.data(),
                                      static_cast<uint32_t>(tokens.size()), &near, &rig_.error),
                QUIRE_OK)
                << rig_.error.message;
            rig_.end(seq);
            const std::vector<std::string> keys = keys_of(tokens);
            uint32_t far = near;
            while (far + kBlock < tokens.size() && stored.contains(keys[far / kBlock]))
                far += kBlock;
            const uint32_t told = reader_.finds(tokens);
            EXPECT_GE(told, near);
            EXPECT_LE(told, far);
            if (!loses_ && rig_.stats().blocks_evicted == 0) {
                EXPECT_EQ(told, far);
            }
            found += told != 0;
            beyond += told > near;
            more += far > told;
        }
    }

    std::mt19937 random_;
    bool loses_;
    quire_tier *tier_;
    StubControl *stub_;
    RigCache rig_;
    Reader reader_;
    uint32_t reads_ = 1;
};

TEST_F(Told, a_reader_knows_what_an_item_finds) {
    uint64_t loads = 0, again = 0, found = 0, beyond = 0, more = 0, count = 0;
    const std::string path = quire::tests::place(QUIRE_STUB_STORE_PATH);
    const char *sizes[] = {"24KiB", "60KiB", "16MiB"};
    open_stub();
    close();
    for (uint64_t seed : quire::tests::seeds(0, kSchedules)) {
        if (HasFailure()) break;
        SCOPED_TRACE(seed);
        const uint64_t size = seed / 3 % 3;
        ASSERT_EQ(open(path.c_str(), {{"capacity", sizes[size]}}), QUIRE_OK) << error.message;
        {
            Walk walk(static_cast<uint32_t>(seed), instance, tier, stub, size != 2);
            walk.run();
            loads += walk.loads;
            again += walk.again;
            found += walk.found;
            beyond += walk.beyond;
            more += walk.more;
        }
        close();
        ++count;
    }
    EXPECT_GT(loads, count) << "loads that were used";
    EXPECT_GT(again, count) << "blocks that came back from the store";
    EXPECT_GT(beyond, 10 * count) << "prompts of which the store has more";
    EXPECT_LT(more, beyond / 10) << "prompts of which the reader knows less than there is";
    std::printf(
        "%llu walks, %llu loads; of %llu prompts %llu go on in the store, and %llu more "
        "than was told\n",
        static_cast<unsigned long long>(count), static_cast<unsigned long long>(loads),
        static_cast<unsigned long long>(found), static_cast<unsigned long long>(beyond),
        static_cast<unsigned long long>(more));
}

}  // namespace
