// SPDX-License-Identifier: Apache-2.0
//
// Followers of a cache that has leases and no sequences: after every step they hold what its
// leases hold, also by calls that need no step.

#include <algorithm>
#include <random>
#include <sstream>

#include "followed.hpp"
#include "leased.hpp"
#include "tests/effort.hpp"

namespace {

using namespace quire::test;

CacheOptions books(uint32_t flags) {
    CacheOptions options;
    options.blocks = 24;
    options.max_sequences = 8;
    options.max_sequence_tokens = 64;
    options.flags = flags;
    return options;
}

// The blocks of each table, in order, as the dump has them.
std::string tables(Manager &m) {
    std::string dump(1 << 18, '\0');
    uint64_t size = 0;
    EXPECT_EQ(m.api().cache_dump(m.cache(), 0, dump.data(), dump.size(), &size, m.error()),
              QUIRE_OK);
    dump.resize(size);
    std::istringstream lines(dump);
    std::string line, out;
    const std::string wanted = R"({"record":"table")", blocks = R"("blocks":[)";
    while (std::getline(lines, line)) {
        const size_t at = line.find(blocks);
        if (line.rfind(wanted, 0) != 0 || at == std::string::npos) continue;
        const size_t end = line.find(']', at);
        if (end == at + blocks.size()) continue;  // it holds nothing
        out += line.substr(0, line.find(',', wanted.size() + 1)) + line.substr(at, end - at) + "\n";
    }
    return out;
}

// A leader and a follower, and calls on the leader's leases.
class Ranks {
 public:
    explicit Ranks(uint32_t seed)
        : leader_(books(QUIRE_CACHE_LEASES_ONLY | QUIRE_CACHE_LOG)),
          follower_(books(QUIRE_CACHE_FOLLOWER)),
          random_(seed) {
        const quire_namespace other = leader_.name_space();
        for (uint32_t i = 0; i < kLeases; ++i)
            leases_.push_back(std::make_unique<Leased>(&leader_, i == 2 ? other : 0));
    }

    void run(uint32_t steps) {
        for (uint32_t i = 0; i < steps && !testing::Test::HasFailure(); ++i) {
            for (uint32_t k = below(4); k-- > 0;) call_at_once();
            leader_.begin();
            for (uint32_t k = 1 + below(3); k-- > 0;) call_in_step();
            if (below(6) == 0) {
                leader_.abort();
                continue;
            }
            follow(leader_.commit());
        }
        EXPECT_GT(zeroed_, 0u);
        EXPECT_GT(inserted_, steps / 4);
    }

 private:
    static constexpr uint32_t kLeases = 3;

    uint32_t below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
    Leased &any() { return *leases_[below(kLeases)]; }
    Blocks some_of(Leased &lease, uint32_t flags) {
        Blocks out;
        for (const quire_lease_block &held : lease.blocks()) {
            if ((held.flags & flags) == flags && below(2) == 0) out.push_back(held.block);
        }
        return out;
    }

    void call_in_step() {
        Leased &lease = any();
        switch (below(3)) {
            case 0:
                lease.take(1 + below(6));
                break;
            case 1:
                EXPECT_EQ(lease.give(some_of(lease, 0)), QUIRE_OK) << leader_.message();
                break;
            default:
                lease.match(tokens_from(1 + below(3), 4 * (1 + below(4))), QUIRE_MATCH_PIN);
        }
    }

    void call_at_once() {
        Leased &lease = any();
        Blocks own = some_of(lease, QUIRE_LEASE_OWNED);
        switch (below(4)) {
            case 0:
                EXPECT_EQ(lease.give(some_of(lease, 0)), QUIRE_OK) << leader_.message();
                break;
            case 1:
                evict(leader_, 1 + below(3));
                break;
            default: {
                const auto count = static_cast<uint32_t>(own.size());
                const Tokens tokens = tokens_from(1 + below(3), 4 * count);
                const Answer named = lease.insert(wide(tokens), slots_of(own));
                inserted_ += named.status == QUIRE_OK ? named.result.blocks : 0;
            }
        }
    }

    void follow(quire_step step) {
        for (const quire_block_copy &copy : leader_.copies(step))
            zeroed_ += copy.kind == QUIRE_COPY_ZERO ? 1 : 0;
        finish_applied(follower_, apply_log(follower_, leader_, step));
        EXPECT_EQ(follower_.stats().blocks_held, leader_.stats().blocks_held);
        EXPECT_EQ(tables(follower_), tables(leader_));
        leader_.finish(step);
    }

    Manager leader_, follower_;
    std::vector<std::unique_ptr<Leased>> leases_;
    std::mt19937 random_;
    uint32_t zeroed_ = 0, inserted_ = 0;
};

TEST(LeasesOnlyLog, followers_hold_what_the_leases_hold) {
    for (uint64_t seed : quire::tests::seeds(1, {.all = 200, .usual = 40, .few = 8})) {
        SCOPED_TRACE(seed);
        if (HasFailure()) break;
        Ranks(static_cast<uint32_t>(seed)).run(60);
    }
}

}  // namespace
