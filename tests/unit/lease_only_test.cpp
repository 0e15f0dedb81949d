// SPDX-License-Identifier: Apache-2.0
//
// Caches that have leases and no sequences (QUIRE_CACHE_LEASES_ONLY). Random calls of several
// leases run beside a cache without the flag: both must find, hold and evict the same, and what is
// found must have been inserted with exactly those tokens.

#include <algorithm>
#include <map>
#include <random>
#include <regex>

#include "leased.hpp"
#include "tests/effort.hpp"

namespace {

using namespace quire::test;

CacheOptions leases_only(uint32_t blocks, uint32_t block_tokens = 4, uint32_t flags = 0) {
    CacheOptions options;
    options.blocks = blocks;
    options.block_tokens = block_tokens;
    options.flags = QUIRE_CACHE_LEASES_ONLY | flags;
    return options;
}

Blocks part(const Blocks &ids, size_t first, size_t end) {
    return {ids.begin() + static_cast<int64_t>(first), ids.begin() + static_cast<int64_t>(end)};
}

TEST(LeasesOnly, publishes_and_lets_go_and_the_end_is_evicted_first) {
    Manager m(leases_only(16));
    Leased lease(&m);
    const Blocks ids = lease.take_in_a_step(6), own = part(ids, 0, 3);
    const Tokens tokens = tokens_from(1, 12);
    Answer named = lease.insert(wide(tokens), slots_of(own));
    ASSERT_EQ(named.status, QUIRE_OK) << m.message();
    EXPECT_EQ(named.result.blocks, 3u);
    EXPECT_EQ(named.ids, own);
    EXPECT_EQ(lease.info().blocks_held, 3u);
    EXPECT_EQ(m.stats().blocks_cached, 3u);
    EXPECT_EQ(m.stats().nodes, 3u);
    EXPECT_EQ(lease.find(wide(tokens_from(1, 15))).ids, own);
    EXPECT_EQ(lease.match(tokens_from(1, 15), QUIRE_MATCH_TOUCH).ids, own);
    EXPECT_EQ(evict(m, 2), (Blocks{own[2], own[1]}));
    EXPECT_EQ(lease.find(wide(tokens)).ids, Blocks{own[0]});
    EXPECT_EQ(m.stats().evictions, 2u);
}

TEST(LeasesOnly, leaves_the_callers_block_alone_where_the_tokens_are_there) {
    Manager m(leases_only(16));
    Leased lease(&m);
    const Blocks ids = lease.take_in_a_step(8), first = part(ids, 0, 2), other = part(ids, 2, 4),
                 second = part(ids, 4, 7);
    EXPECT_EQ(lease.insert(wide(tokens_from(1, 8)), slots_of(first)).ids, first);
    EXPECT_EQ(lease.insert(wide(tokens_from(90, 8)), slots_of(other)).ids, other);
    Answer named = lease.insert(wide(tokens_from(1, 12)), slots_of(second));
    EXPECT_EQ(named.ids, (Blocks{first[0], first[1], second[2]}));
    EXPECT_EQ(named.result.blocks, 1u);
    EXPECT_EQ(lease.insert(wide(tokens_from(1, 12)), slots_of(named.ids)).ids, named.ids);
    EXPECT_EQ(evict(m, 4), (Blocks{other[1], other[0], second[2], first[1]}));
    EXPECT_EQ(lease.give(Blocks{second[0], second[1], ids[7]}), QUIRE_OK) << m.message();
    EXPECT_EQ(m.stats().blocks_held, 0u);
}

TEST(LeasesOnly, a_block_that_is_held_twice_is_held_once_more) {
    Manager m(leases_only(8));
    Leased lease(&m);
    const Blocks ids = lease.take_in_a_step(2);
    EXPECT_EQ(lease.pin({ids[1]}).status, QUIRE_OK) << m.message();
    EXPECT_EQ(lease.insert(wide(tokens_from(1, 8)), slots_of(ids)).ids, ids);
    EXPECT_EQ(lease.info().holds, 1u);
    EXPECT_EQ(lease.blocks()[0].block, ids[1]);
    EXPECT_EQ(lease.blocks()[0].flags, uint32_t{QUIRE_LEASE_PUBLISHED | QUIRE_LEASE_OWNED});
    EXPECT_EQ(evict(m, 9), Blocks{ids[0]});
    EXPECT_EQ(lease.give({ids[1]}), QUIRE_OK);
    EXPECT_EQ(evict(m, 9), Blocks{ids[1]}) << "though nothing leads to it";
}

// Stamps and links of blocks that are held order nothing, and are not put back.
std::string settled(const std::string &books) {
    static const std::regex stale("(\"state\":\"held\".*)\"stamp\":\\d+(.*),\"prev\".*");
    return std::regex_replace(books, stale, "$1$2");
}

TEST(LeasesOnly, refuses_wrong_slots_and_tokens_and_changes_nothing) {
    for (uint32_t size : {1u, 4u}) {
        Manager m(leases_only(16, size));
        Leased lease(&m), other(&m);
        const Blocks ids = lease.take_in_a_step(5), foreign = other.take_in_a_step(2);
        const Blocks cached = part(ids, 0, 2), own = part(ids, 2, 5);
        lease.insert(wide(tokens_from(50, 2 * size)), slots_of(cached, size), size);
        const auto tokens = wide(tokens_from(1, 3 * size));
        const std::string before = settled(m.books());
        auto refused = [&](const std::vector<int64_t> &slots) {
            EXPECT_EQ(lease.insert(tokens, slots, size).status, QUIRE_E_ARG);
            EXPECT_EQ(settled(m.books()), before) << testing::PrintToString(slots);
        };
        for (int32_t wrong : {own[0], own[1], foreign[0], cached[1], 9, 0, 17, 16 << 5, -1}) {
            for (uint32_t at = 0; at < 3; ++at) {
                Blocks blocks = own;
                if (blocks[at] == wrong) continue;
                blocks[at] = wrong;
                refused(slots_of(blocks, size));
            }
        }
        for (uint32_t at = 0; at < 3 * size; ++at) {
            for (int64_t wrong : {int64_t{-1}, int64_t{1} << 40, INT64_MIN, INT64_MAX}) {
                auto slots = slots_of(own, size);
                slots[at] = wrong;
                refused(slots);
            }
        }
        for (int64_t wrong : {int64_t{-1}, int64_t{1} << 32, (int64_t{1} << 32) - 1, INT64_MIN}) {
            auto broken = tokens;
            broken[2] = wrong;
            EXPECT_EQ(lease.insert(broken, slots_of(own, size), size).status, QUIRE_E_ARG);
            EXPECT_EQ(lease.find(broken).status, QUIRE_E_ARG) << wrong;
        }
        EXPECT_EQ(settled(m.books()), before);
        EXPECT_EQ(lease.insert(tokens, slots_of(own, size), size).ids, own) << m.message();
    }
}

TEST(LeasesOnly, pins_and_forgets_what_it_finds) {
    Manager m(leases_only(16));
    quire_namespace ns = m.name_space(3);
    Leased lease(&m), limited(&m, ns);
    const Blocks ids = lease.take_in_a_step(4);
    lease.insert(wide(tokens_from(1, 16)), slots_of(ids));
    m.begin();
    EXPECT_EQ(lease.match(tokens_from(1, 12), QUIRE_MATCH_PIN).ids, part(ids, 0, 3));
    m.abort();
    EXPECT_EQ(lease.info().holds, 0u);
    m.begin();
    EXPECT_EQ(lease.match(tokens_from(1, 12), QUIRE_MATCH_PIN).ids, part(ids, 0, 3));
    m.finish(m.commit());
    EXPECT_EQ(evict(m, 9), Blocks{ids[3]});
    uint32_t forgotten = 0;
    EXPECT_EQ(limited.forget({ids[1]}, &forgotten), QUIRE_E_ARG) << "of another namespace";
    Leased second(&m);
    EXPECT_EQ(second.forget({ids[1]}, &forgotten), QUIRE_OK);
    EXPECT_EQ(forgotten, 0u) << "another lease holds it";
    EXPECT_EQ(lease.forget({ids[1]}, &forgotten), QUIRE_OK) << m.message();
    EXPECT_EQ(forgotten, 1u);
    EXPECT_EQ(lease.find(wide(tokens_from(1, 12))).ids, Blocks{ids[0]});
    EXPECT_EQ(lease.give({ids[2], ids[1], ids[0]}), QUIRE_OK);
    EXPECT_EQ(m.stats().blocks_cached, 2u) << "one of them is not found any more";
    EXPECT_EQ(evict(m, 9), (Blocks{ids[2], ids[0]}));
    const Blocks more = limited.take_in_a_step(3);
    limited.insert(wide(tokens_from(1, 12)), slots_of(more));
    limited.take_in_a_step(1);
    m.begin();
    EXPECT_EQ(limited.match(tokens_from(1, 12), QUIRE_MATCH_PIN).status, QUIRE_S_NO_BLOCKS);
    m.abort();
}

TEST(LeasesOnly, a_take_evicts_what_it_lacks_and_an_abort_does_not_bring_it_back) {
    Manager m(leases_only(6));
    Leased lease(&m);
    const Blocks ids = lease.take_in_a_step(4);
    lease.insert(wide(tokens_from(1, 16)), slots_of(ids));
    m.begin();
    EXPECT_EQ(lease.take(7).status, QUIRE_S_NO_BLOCKS);
    EXPECT_EQ(m.stats().blocks_cached, 4u) << "a take that is refused evicts nothing";
    EXPECT_EQ(lease.take(3).status, QUIRE_OK);
    m.abort();
    EXPECT_EQ(lease.find(wide(tokens_from(1, 16))).ids, part(ids, 0, 3));
    EXPECT_EQ(m.stats().blocks_free, 3u);
    EXPECT_EQ(lease.take_in_a_step(6).size(), 6u);
    EXPECT_EQ(m.stats().evictions, 4u);
}

TEST(LeasesOnly, what_running_work_may_use_is_not_evicted_by_a_take) {
    Manager m(leases_only(4));
    Leased lease(&m);
    const Blocks ids = lease.take_in_a_step(4);
    lease.insert(wide(tokens_from(1, 16)), slots_of(ids));
    EXPECT_EQ(lease.pin({ids[3]}).status, QUIRE_OK);
    m.begin({.queue = 1});
    EXPECT_EQ(lease.match(tokens_from(1, 4), QUIRE_MATCH_PIN).status, QUIRE_OK);
    quire_step running = m.commit();
    EXPECT_EQ(lease.give({ids[3], ids[0]}), QUIRE_OK);
    m.begin({.queue = 2});
    Leased other(&m);
    EXPECT_EQ(other.take(3).status, QUIRE_S_NO_BLOCKS);
    EXPECT_EQ(other.take(2).status, QUIRE_OK);
    m.finish(m.commit());
    m.finish(running);
    EXPECT_EQ(other.find(wide(tokens_from(1, 4))).ids, Blocks{ids[0]});
}

TEST(LeasesOnly, a_block_that_a_failed_step_was_to_zero_leaves_the_lease) {
    Manager m(leases_only(4));
    quire_namespace ns = m.name_space();
    Leased lease(&m), other(&m, ns);
    const Blocks ids = lease.take_in_a_step(4);
    lease.insert(wide(tokens_from(1, 16)), slots_of(ids));
    m.begin();
    EXPECT_EQ(other.take(2).status, QUIRE_OK);
    m.finish(m.commit(), QUIRE_STEP_FAILED);
    m.check();
    EXPECT_EQ(other.info().blocks_held, 0u);
    EXPECT_EQ(other.info().blocks_lost, 2u);
    EXPECT_EQ(lease.find(wide(tokens_from(1, 16))).ids, part(ids, 0, 2));
    const Blocks again = other.take_in_a_step(2);
    EXPECT_EQ(other.insert(wide(tokens_from(1, 8)), slots_of(again)).ids, again) << m.message();
    EXPECT_EQ(other.find(wide(tokens_from(1, 8))).ids, again);
}

TEST(LeasesOnly, a_namespace_that_ends_takes_its_content_along) {
    Manager m(leases_only(16, 4, QUIRE_CACHE_ZERO_ON_FREE));
    quire_namespace ns = m.name_space();
    Leased kept(&m);
    const Blocks mine = kept.take_in_a_step(2);
    kept.insert(wide(tokens_from(1, 8)), slots_of(mine));
    Leased lease(&m, ns);
    const Blocks ids = lease.take_in_a_step(4);
    lease.insert(wide(tokens_from(1, 8)), slots_of(part(ids, 0, 2)));
    lease.insert(wide(joined(tokens_from(1, 4), tokens_from(40, 8))), slots_of(part(ids, 1, 4)));
    EXPECT_EQ(lease.end(), QUIRE_OK);
    EXPECT_EQ(m.stats().blocks_cached, 6u);
    EXPECT_EQ(m.api().namespace_destroy(m.cache(), ns, m.error()), QUIRE_OK) << m.message();
    m.check();
    EXPECT_EQ(m.stats().blocks_cached, 2u);
    EXPECT_EQ(kept.find(wide(tokens_from(1, 8))).ids, mine);
}

TEST(LeasesOnly, content_of_keys_that_no_lease_has_gives_way_to_new_keys) {
    CacheOptions options = leases_only(64);
    options.key_bytes = 2048;
    Manager m(options);
    Leased filler(&m);
    for (uint32_t salt = 1; salt <= 30; ++salt) {
        const quire_key key{QUIRE_KEY_SALT, sizeof salt, &salt, 0, 0};
        Leased lease(&m, 0, {key});
        const Blocks ids = lease.take_in_a_step(2);
        EXPECT_EQ(lease.insert(wide(tokens_from(1, 8)), slots_of(ids)).ids, ids);
        EXPECT_EQ(lease.end(), QUIRE_OK);
    }
    EXPECT_LT(m.stats().blocks_cached, 40u);
    EXPECT_GT(m.stats().blocks_cached, 4u);
}

TEST(LeasesOnly, a_migration_renumbers_what_is_found) {
    Manager m(leases_only(20));
    Leased lease(&m), other(&m);
    const Blocks all = lease.take_in_a_step(20), ids = part(all, 12, 17);
    lease.insert(wide(tokens_from(1, 12)), slots_of(part(ids, 0, 3)));
    lease.insert(wide(joined(tokens_from(1, 4), tokens_from(50, 4))), slots_of({all[0], ids[3]}));
    lease.insert(wide(tokens_from(90, 4)), slots_of({ids[4]}));
    uint32_t forgotten = 0;
    EXPECT_EQ(lease.forget({ids[1]}, &forgotten), QUIRE_OK);
    EXPECT_EQ(lease.give(part(all, 0, 12)), QUIRE_OK);
    EXPECT_EQ(lease.give(part(all, 17, 20)), QUIRE_OK);
    for (uint32_t blocks : {6u, 40u}) {
        std::vector<quire_block_move> moves(64);
        auto desc = described<quire_migrate_desc>();
        auto info = described<quire_migrate_info>();
        desc.blocks = blocks;
        desc.moves = moves.data();
        desc.move_capacity = 64;
        desc.move_stride = sizeof(quire_block_move);
        const Blocks before = lease.find(wide(joined(tokens_from(1, 4), tokens_from(50, 4)))).ids;
        ASSERT_EQ(before.size(), 2u);
        ASSERT_EQ(m.api().cache_migrate(m.cache(), &desc, &info, m.error()), QUIRE_OK)
            << m.message();
        m.check();
        std::map<int32_t, int32_t> renamed;
        for (uint32_t i = 0; i < info.move_count; ++i) renamed[moves[i].src] = moves[i].dst;
        EXPECT_EQ(lease.find(wide(joined(tokens_from(1, 4), tokens_from(50, 4)))).ids,
                  (Blocks{renamed[before[0]], renamed[before[1]]}));
        EXPECT_EQ(lease.find(wide(tokens_from(90, 4))).ids.size(), 1u);
        EXPECT_EQ(lease.find(wide(tokens_from(1, 12))).ids.size(), 1u) << "the rest is lost";
    }
    EXPECT_EQ(m.stats().blocks_cached, 4u);
    EXPECT_EQ(evict(m, 9).size(), 4u);
}

TEST(LeasesOnly, a_migration_drops_what_does_not_fit) {
    Manager m(leases_only(20));
    Leased lease(&m);
    const Blocks ids = lease.take_in_a_step(10);
    lease.insert(wide(tokens_from(1, 40)), slots_of(ids));
    auto desc = described<quire_migrate_desc>();
    auto info = described<quire_migrate_info>();
    desc.blocks = 5;
    ASSERT_EQ(m.api().cache_migrate(m.cache(), &desc, &info, m.error()), QUIRE_OK) << m.message();
    m.check();
    EXPECT_EQ(info.blocks_dropped, 6u);
    EXPECT_EQ(lease.find(wide(tokens_from(1, 40))).ids.size(), 4u);
}

TEST(LeasesOnly, serves_no_sequences_and_publishes_in_no_step) {
    Manager m(leases_only(16));
    auto desc = described<quire_seq_desc>();
    quire_seq seq = 0;
    EXPECT_EQ(m.api().seq_create(m.cache(), &desc, &seq, m.error()), QUIRE_E_UNSUPPORTED);
    Leased lease(&m);
    const Blocks ids = lease.take_in_a_step(1);
    m.begin();
    EXPECT_EQ(lease.publish(tokens_from(1, 4), ids).status, QUIRE_E_UNSUPPORTED);
    EXPECT_NE(m.message().find("quire_lease_insert"), std::string::npos) << m.message();
    m.abort();
}

TEST(LeasesOnly, is_for_one_group_with_full_attention_and_few_flags) {
    auto refused = [](const CacheOptions &options) {
        auto group = described<quire_group_desc>();
        std::vector<quire_group_desc> groups;
        for (const GroupOptions &each : options.groups) {
            group.kind = each.window != 0 ? QUIRE_GROUP_WINDOW : QUIRE_GROUP_FULL;
            group.window = each.window;
            group.layer_count = group.kv_heads = 1;
            group.k_head_dim = group.v_head_dim = 16;
            groups.push_back(group);
        }
        auto desc = described<quire_cache_desc>();
        desc.flags = options.flags;
        desc.groups = groups.data();
        desc.group_count = static_cast<uint32_t>(groups.size());
        desc.group_stride = sizeof(quire_group_desc);
        desc.blocks = 8;
        desc.host_blocks = options.host_blocks;
        auto instance_desc = described<quire_instance_desc>();
        quire_instance *instance = nullptr;
        quire_cache *cache = nullptr;
        quire_error error{};
        const quire_api &api = library();
        EXPECT_EQ(api.instance_create(&instance_desc, &instance, &error), QUIRE_OK);
        const quire_status status = api.cache_create(instance, &desc, &cache, &error);
        if (cache != nullptr) api.cache_destroy(cache, &error);
        api.instance_destroy(instance, &error);
        return status;
    };
    EXPECT_EQ(refused(leases_only(8)), QUIRE_OK);
    EXPECT_EQ(refused(leases_only(8, 4, QUIRE_CACHE_AUDIT)), QUIRE_OK);
    EXPECT_EQ(refused(leases_only(8, 4, QUIRE_CACHE_LOG)), QUIRE_OK);
    for (uint32_t flag : {QUIRE_CACHE_NO_PREFIX, QUIRE_CACHE_FOLLOWER, QUIRE_CACHE_EVENTS,
                          QUIRE_CACHE_ONE_POOL, QUIRE_CACHE_PARTIAL_HITS}) {
        EXPECT_EQ(refused(leases_only(8, 4, flag)), QUIRE_E_UNSUPPORTED) << flag;
    }
    CacheOptions options = leases_only(8);
    options.host_blocks = 4;
    EXPECT_EQ(refused(options), QUIRE_E_UNSUPPORTED);
    options = leases_only(8);
    options.groups = {GroupOptions{}, GroupOptions{}};
    EXPECT_EQ(refused(options), QUIRE_E_UNSUPPORTED);
    options.groups = {GroupOptions{8}};
    EXPECT_EQ(refused(options), QUIRE_E_UNSUPPORTED);
}

// Random calls. -----------------------------------------------------------------------------------

// One of the two caches, with leases of two namespaces, two of which have the same keys.
struct Side {
    static constexpr uint32_t kLeases = 4;
    Manager m;
    std::vector<std::unique_ptr<Leased>> leases;

    Side(uint32_t blocks, uint32_t size, uint32_t flags)
        : m([&] {
              CacheOptions options = leases_only(blocks, size);
              options.flags = flags;
              return options;
          }()) {
        static const uint32_t salt = 7;
        const quire_key key{QUIRE_KEY_SALT, sizeof salt, &salt, 0, 0};
        const quire_namespace ns = m.name_space(blocks / 2);
        leases.push_back(std::make_unique<Leased>(&m));
        leases.push_back(std::make_unique<Leased>(&m));
        leases.push_back(std::make_unique<Leased>(&m, 0, std::vector<quire_key>{key}));
        leases.push_back(std::make_unique<Leased>(&m, ns));
    }
};

// Runs every call on both, and knows what each published block holds.
class Pair {
 public:
    Pair(uint32_t blocks, uint32_t size, uint32_t seed)
        : plain_(blocks, size, 0),
          only_(blocks, size, QUIRE_CACHE_LEASES_ONLY),
          size_(size),
          random_(seed) {}

    void run(uint32_t calls) {
        for (uint32_t i = 0; i < calls && !testing::Test::HasFailure(); ++i) {
            const uint32_t lease = below(Side::kLeases);
            switch (below(8)) {
                case 0:
                case 1:
                    take(lease, 1 + below(8));
                    break;
                case 2:
                case 3:
                    insert(lease);
                    break;
                case 4:
                    find(lease, below(2));
                    break;
                case 5:
                    pin(lease);
                    break;
                case 6:
                    give(lease);
                    break;
                default:
                    below(2) == 0 ? forget(lease) : evict_some(1 + below(5));
            }
            compare();
        }
        EXPECT_GT(inserted_, calls / 8) << "else this shows little";
        EXPECT_GT(found_, calls / 30);
        EXPECT_GT(only_.m.stats().evictions, calls / 8);
    }

 private:
    uint32_t below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
    template <typename Call>
    Answer both(uint32_t lease, Call call) {
        Answer a = call(plain_.m, *plain_.leases[lease]);
        Answer b = call(only_.m, *only_.leases[lease]);
        EXPECT_EQ(a.status, b.status) << plain_.m.message() << "; " << only_.m.message();
        EXPECT_EQ(a.ids, b.ids);
        EXPECT_EQ(a.result.blocks, b.result.blocks);
        EXPECT_EQ(a.result.blocks_short, b.result.blocks_short);
        return b;
    }
    Tokens some_tokens() {
        Tokens tokens;
        for (uint32_t place = 0, n = 1 + below(7); place < n; ++place)
            for (uint32_t k = 0, first = below(2); k < size_; ++k) tokens.push_back(first + k);
        return tokens;
    }
    // Each block as often as it is held, in the order of the lease's list.
    static Blocks held_by(const Side &side, uint32_t lease) {
        Blocks ids;
        for (const quire_lease_block &each : side.leases[lease]->blocks())
            ids.insert(ids.end(), each.holds, each.block);
        return ids;
    }
    Blocks held(uint32_t lease, bool is_published) {
        Blocks ids;
        for (const quire_lease_block &each : only_.leases[lease]->blocks())
            if (((each.flags & QUIRE_LEASE_PUBLISHED) != 0) == is_published)
                ids.push_back(each.block);
        return ids;
    }
    // Leases with the same namespace and keys find the same.
    static uint32_t space_of(uint32_t lease) { return lease == 1 ? 0 : lease; }

    // What a step evicted stays evicted in one of them alone if the step is aborted.
    void take(uint32_t lease, uint32_t count) {
        const bool evicts = count > only_.m.stats().blocks_free;
        const uint32_t how = below(4);
        both(lease, [&](Manager &m, Leased &l) {
            m.begin();
            Answer out = l.take(count);
            if (out.status != QUIRE_OK) out.ids.clear();
            if (how == 0 && !evicts) {
                m.abort();
            } else {
                m.finish(m.commit(), how == 1 ? QUIRE_STEP_FAILED : QUIRE_STEP_OK);
            }
            m.check();
            return out;
        });
    }
    void insert(uint32_t lease) {
        const Tokens tokens = some_tokens();
        const size_t count = tokens.size() / size_;
        Blocks own = held(lease, false);
        std::sort(own.begin(), own.end());
        std::shuffle(own.begin(), own.end(), random_);
        if (own.size() < count) return;
        own.resize(count);
        if (below(10) == 0) own[below(static_cast<uint32_t>(count))] = static_cast<int32_t>(1);
        Answer named = both(lease, [&](Manager &, Leased &l) {
            return l.insert(wide(tokens), slots_of(own, size_), size_);
        });
        if (named.status != QUIRE_OK) return;
        for (size_t i = 0; i < count; ++i) {
            const Tokens path(tokens.begin(), tokens.begin() + static_cast<long>((i + 1) * size_));
            auto &content = contents_[named.ids[i]];
            const auto now = std::make_pair(space_of(lease), path);
            if (named.ids[i] == own[i]) content = now, ++inserted_;
            EXPECT_EQ(content, now) << "block " << named.ids[i];
        }
    }
    void find(uint32_t lease, uint32_t how) {
        const Tokens tokens = some_tokens();
        Answer found = both(lease, [&](Manager &, Leased &l) { return l.find(wide(tokens), how); });
        found_ += found.ids.size();
        for (size_t i = 0; i < found.ids.size(); ++i) {
            const Tokens path(tokens.begin(), tokens.begin() + static_cast<long>((i + 1) * size_));
            EXPECT_EQ(contents_[found.ids[i]], std::make_pair(space_of(lease), path));
        }
    }
    void pin(uint32_t lease) {
        if (below(2) == 0) {
            const Tokens tokens = some_tokens();
            both(lease, [&](Manager &m, Leased &l) {
                m.begin();
                Answer out = l.match(tokens, QUIRE_MATCH_PIN);
                m.finish(m.commit());
                return out;
            });
            return;
        }
        const Blocks ids{static_cast<int32_t>(1 + below(30)), static_cast<int32_t>(1 + below(30))};
        both(lease, [&](Manager &, Leased &l) { return l.pin(ids); });
    }
    void give(uint32_t lease) {
        Blocks ids = held(lease, below(4) != 0);
        std::sort(ids.begin(), ids.end());
        std::shuffle(ids.begin(), ids.end(), random_);
        ids.resize(ids.size() - ids.size() / 3);
        if (below(10) == 0) ids.push_back(1);
        both(lease, [&](Manager &m, Leased &l) {
            Answer out;
            if (ids.size() % 2 == 0) {
                out.status = l.give(ids);
            } else {
                m.begin();
                out.status = l.give(ids);
                ids.size() % 3 == 0 ? m.abort() : m.finish(m.commit());
            }
            return out;
        });
    }
    void forget(uint32_t lease) {
        const Blocks ids{static_cast<int32_t>(1 + below(30))};
        both(lease, [&](Manager &, Leased &l) {
            Answer out;
            out.status = l.forget(ids, &out.result.blocks);
            return out;
        });
    }
    void evict_some(uint32_t count) {
        EXPECT_EQ(quire::test::evict(plain_.m, count), quire::test::evict(only_.m, count));
    }
    void compare() {
        const quire_cache_stats a = plain_.m.stats(), b = only_.m.stats();
        EXPECT_EQ(a.blocks_free, b.blocks_free);
        EXPECT_EQ(a.blocks_cached, b.blocks_cached);
        EXPECT_EQ(a.blocks_held, b.blocks_held);
        EXPECT_EQ(a.evictions, b.evictions);
        for (uint32_t i = 0; i < Side::kLeases; ++i) {
            EXPECT_EQ(held_by(plain_, i), held_by(only_, i));
            EXPECT_EQ(plain_.leases[i]->info().blocks_lost, only_.leases[i]->info().blocks_lost);
        }
    }

    Side plain_, only_;
    uint32_t size_;
    size_t inserted_ = 0, found_ = 0;
    std::mt19937 random_;
    std::map<int32_t, std::pair<uint32_t, Tokens>> contents_;
};

TEST(LeasesOnly, random_calls_have_the_results_that_they_have_without_it) {
    for (uint64_t seed : quire::tests::seeds(1, {.all = 40, .usual = 8, .few = 2}))
        for (uint32_t size : {1u, 4u}) Pair(30, size, static_cast<uint32_t>(seed)).run(1000);
}

}  // namespace
