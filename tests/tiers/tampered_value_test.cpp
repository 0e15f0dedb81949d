// SPDX-License-Identifier: Apache-2.0
//
// Values whose header was changed by someone who knows the format, so that the checksum is right:
// each is a miss that is counted, whatever the field and the number.

#include "tests/tiers/tier_rig.hpp"

namespace {

using namespace quire::test;

constexpr uint32_t kHeaderBytes = 256, kChecksumAt = 24;

class TamperedValue : public TierRig {
 protected:
    // Loads one block whose word at `at` is `to`; false: it was that before.
    bool try_word(RigCache &rig, const Tokens &tokens, uint32_t at, uint32_t to) {
        const quire_cache_tier_stats before = rig.stats();
        stub->tampers_to = to;
        stub->tampers_at = at;
        quire_seq seq = rig.create();
        EXPECT_EQ(rig.begin({{seq, tokens}}), QUIRE_OK) << rig.error.message;
        EXPECT_EQ(rig.results[0].outcome, uint32_t{QUIRE_ITEM_LOADING});
        rig.abort();
        EXPECT_EQ(api.cache_load_wait(rig.cache, UINT64_MAX, nullptr, &error), QUIRE_OK);
        const quire_cache_tier_stats after = rig.stats();
        const uint64_t wrong = after.values_damaged - before.values_damaged + after.values_foreign -
                               before.values_foreign;
        stub->tampers_at = UINT32_MAX;
        const bool differs = stub->tampered != to;
        EXPECT_EQ(wrong, differs ? 1u : 0u) << "byte " << at << " = " << to;
        EXPECT_EQ(after.loads_missed - before.loads_missed, differs ? 1u : 0u);
        EXPECT_EQ(after.loads_ready - before.loads_ready, differs ? 0u : 1u);
        if (differs) {
            EXPECT_EQ(rig.begin({{seq, tokens}}), QUIRE_OK) << rig.error.message;
            EXPECT_EQ(rig.results[0].outcome, uint32_t{QUIRE_ITEM_RUN});
            EXPECT_EQ(rig.results[0].hit_tokens, 0u);
            rig.abort();
        }
        rig.end(seq);
        return differs;
    }
    void try_all_words(const RigShape &shape, uint8_t model) {
        RigCache rig(instance, shape);
        ASSERT_EQ(rig.attach(tier, QUIRE_TIER_WRITE_THROUGH, model), QUIRE_OK) << rig.error.message;
        const Tokens tokens = prompt(1, RigCache::kBlockTokens + 1);
        rig.compute(tokens);
        rig.settle();
        rig.evict_all();
        rig.settle();
        uint32_t tried = 0;
        for (uint32_t at = 0; at < kHeaderBytes && !HasFailure(); at += 4) {
            if (at == kChecksumAt || at == kChecksumAt + 4) continue;
            stub->tampered = 0;
            for (uint32_t to : {0u, 1u, 2u, 3u, 4u, 5u, 7u, 16u, 4'097u, 0x7FFFFFF9u, UINT32_MAX})
                tried += try_word(rig, tokens, at, to) ? 1 : 0;
        }
        EXPECT_GT(tried, 62u * 9);
        rig.check();
        ASSERT_EQ(rig.detach(), QUIRE_OK) << rig.error.message;
    }
};

TEST_F(TamperedValue, is_a_miss_in_every_word_of_its_header) {
    open_stub();
    try_all_words({}, 1);
    RigShape small;
    small.k_dtype = QUIRE_DTYPE_F16;
    try_all_words(small, 2);
}

}  // namespace
