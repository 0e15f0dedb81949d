// SPDX-License-Identifier: Apache-2.0
//
// quire_cache_check against planted faults in the books of leases.

#include "inside.hpp"

namespace {

using namespace quire;
using namespace quire::test;

// Sequence 0 is a lease that holds blocks 1 to 3, the second twice.
struct OneLease : Books {
    uint64_t lease = 0;

    OneLease() : Books(0) {
        quire_lease_desc desc{};
        EXPECT_TRUE(cache.create_lease(desc, nullptr, &lease).ok());
        begin();
        int32_t ids[3] = {};
        quire_lease_result result{};
        EXPECT_EQ(cache.take(step, lease, 0, 3, ids, &result).code, QUIRE_OK);
        EXPECT_EQ(cache.pin(step, lease, 0, ids + 1, 1, &result).code, QUIRE_OK);
        EXPECT_EQ(check(), "");
    }
    LeaseIndex &index() { return Inside::journal(cache).lease_index(0, 0); }
};

TEST(LeaseCheck, sees_an_entry_that_is_not_held) {
    OneLease b;
    b.index().holds(1) = 0;
    EXPECT_EQ(b.check(),
              "lease 0 holds block 2 of group 0 0 times as its entry 1, but its index has entry 1 "
              "for it");
}

TEST(LeaseCheck, sees_an_entry_that_the_index_does_not_find) {
    OneLease b;
    b.index().leave(b.table(0), 3);
    EXPECT_EQ(b.check(),
              "lease 0 holds block 3 of group 0 1 times as its entry 2, but its index has entry -1 "
              "for it");
}

TEST(LeaseCheck, sees_a_lease_that_has_tokens) {
    OneLease b;
    b.at(0).state.flags = Sequence::kLost;
    EXPECT_EQ(b.check(), "lease 0 has 0 known tokens, flags 2, or published 0 blocks by itself");
}

TEST(LeaseCheck, sees_a_lease_that_passes_for_a_sequence) {
    OneLease b;
    b.at(0).is_lease = false;
    EXPECT_EQ(b.check(), "change 0 of step 1 belongs to sequence 0, which does not refer to it");
    b.at(0).change = kNone;
    Inside::record(b.cache, 1).changes.shrink(0);
    EXPECT_EQ(b.check(), "sequence 0 has the handle of another kind than it is");
}

TEST(LeaseCheck, sees_a_change_that_its_lease_does_not_reach) {
    OneLease b;
    Inside::record(b.cache, 1).changes[1].previous = kNone;
    EXPECT_EQ(b.check(), "change 0 of step 1 belongs to sequence 0, which does not refer to it");
}

TEST(LeaseCheck, sees_a_wrong_count_of_leases) {
    OneLease b;
    ++Inside::books(b.cache).leases;
    EXPECT_EQ(b.check(), "1 leases hold 3 blocks, but 2 and 3 are counted");
    --Inside::books(b.cache).leases;
    ++Inside::namespaces(b.cache)[0].leases;
    EXPECT_EQ(b.check(), "namespace 0 counts 1 sequences and 3 blocks; 1 live in it and hold 3");
}

}  // namespace
