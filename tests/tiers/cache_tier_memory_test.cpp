// SPDX-License-Identifier: Apache-2.0
//
// A cache with a tier whose host allocator refuses each of its requests in turn: the call fails and
// changes nothing, or does without.

#include <cstdlib>

#include "tests/tiers/tier_rig.hpp"

namespace {

using namespace quire::test;

// Refuses one request, the one that `refused` more were granted before.
struct Refusing {
    uint64_t left = 0;
    bool is_armed = false;
    bool has_refused = false;

    void arm(uint64_t granted) {
        left = granted;
        is_armed = true;
        has_refused = false;
    }
    // True if a request was refused since.
    bool disarm() {
        is_armed = false;
        return has_refused;
    }
};

void *allocate(void *user, uint64_t size_bytes, uint64_t alignment) {
    auto &own = *static_cast<Refusing *>(user);
    if (own.is_armed && !own.has_refused && own.left-- == 0) {
        own.has_refused = true;
        return nullptr;
    }
    return std::aligned_alloc(alignment, (size_bytes + alignment - 1) / alignment * alignment);
}

void release(void *, void *pointer, uint64_t, uint64_t) { std::free(pointer); }

class CacheTierMemory : public testing::Test {
 protected:
    CacheTierMemory() {
        error.struct_size = sizeof error;
        auto desc = described<quire_instance_desc>();
        desc.allocate = allocate;
        desc.release = release;
        desc.allocator_user = &refusing;
        EXPECT_EQ(api.instance_create(&desc, &instance, &error), QUIRE_OK) << error.message;
        auto tier_desc = described<quire_tier_desc>();
        tier_desc.store = "memory";
        EXPECT_EQ(api.tier_open(instance, &tier_desc, &tier, &error), QUIRE_OK) << error.message;
    }
    ~CacheTierMemory() override {
        EXPECT_EQ(api.tier_close_wait(tier, UINT64_MAX, &error), QUIRE_OK) << error.message;
        EXPECT_EQ(api.instance_destroy(instance, &error), QUIRE_OK) << error.message;
    }

    const quire_api &api = library();
    quire_error error{};
    Refusing refusing;
    quire_instance *instance = nullptr;
    quire_tier *tier = nullptr;
};

TEST_F(CacheTierMemory, that_is_short_refuses_an_attach_and_changes_nothing) {
    uint64_t count = 0;
    for (bool refused = true; refused; ++count) {
        RigCache rig(instance);
        refusing.arm(count);
        const quire_status status = rig.attach(tier);
        refused = refusing.disarm();
        EXPECT_EQ(status, refused ? QUIRE_E_HOST_MEMORY : QUIRE_OK) << rig.error.message;
        rig.check();
        if (refused) {
            EXPECT_EQ(rig.attach(tier), QUIRE_OK) << rig.error.message;
        }
        rig.compute(prompt(1, 20));
        EXPECT_EQ(rig.detach(), QUIRE_OK);
    }
    EXPECT_GE(count, 3u);
}

TEST_F(CacheTierMemory, that_is_short_costs_hits_while_loading_and_writing) {
    const Tokens tokens = prompt(1, 100);
    uint64_t count = 0;
    for (bool refused = true; refused && !HasFailure(); ++count) {
        SCOPED_TRACE(count);
        RigCache rig(instance);
        ASSERT_EQ(rig.attach(tier), QUIRE_OK) << rig.error.message;
        rig.compute(prompt(40 + static_cast<uint32_t>(count), 60));
        quire_seq seq = rig.create();
        refusing.arm(count);
        const quire_status status = rig.begin({{seq, tokens}});
        refused = refusing.disarm();
        EXPECT_TRUE(status == QUIRE_OK || (refused && status == QUIRE_E_HOST_MEMORY))
            << rig.error.message;
        rig.check();
        if (status == QUIRE_OK) {
            rig.commit_and_compute();
            rig.finish();
        }
        refusing.arm(count);
        rig.settle();
        refused |= refusing.disarm();
        rig.check();
        const bool has_run = status == QUIRE_OK && rig.results[0].outcome == QUIRE_ITEM_RUN;
        if (!has_run) {
            EXPECT_EQ(rig.run_to_the_end(seq, tokens).outcome, uint32_t{QUIRE_ITEM_RUN});
        }
        rig.end(seq);
        EXPECT_EQ(rig.detach(), QUIRE_OK);
    }
    EXPECT_GE(count, 3u);
}

}  // namespace
