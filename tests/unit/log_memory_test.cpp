// SPDX-License-Identifier: Apache-2.0
//
// A leader's commit and a follower's apply, with host memory failing at each allocation in turn.

#include <vector>

#include "manager.hpp"
#include "tests/abi/counting_host.hpp"

namespace {

using namespace quire::test;

TEST(Log, commit_and_apply_change_nothing_when_memory_is_short) {
    CountingHost host;
    const quire_api &api = library();
    auto error = described<quire_error>();
    quire_instance_desc instance_desc = host.description();
    quire_instance *instance = nullptr;
    ASSERT_GE(api.instance_create(&instance_desc, &instance, &error), 0);
    auto group = described<quire_group_desc>();
    group.layer_count = group.kv_heads = group.k_head_dim = group.v_head_dim = 1;
    auto desc = described<quire_cache_desc>();
    desc.groups = &group;
    desc.group_count = 1;
    desc.group_stride = sizeof group;
    desc.blocks = 1000;
    quire_cache *leader = nullptr, *follower = nullptr;
    desc.flags = QUIRE_CACHE_LOG;
    ASSERT_GE(api.cache_create(instance, &desc, &leader, &error), 0) << error.message;
    desc.flags = QUIRE_CACHE_FOLLOWER;
    ASSERT_GE(api.cache_create(instance, &desc, &follower, &error), 0) << error.message;

    auto seq_desc = described<quire_seq_desc>();
    auto step_desc = described<quire_step_desc>();
    quire_seq seq = 0;
    quire_step step = 0, applied = 0;
    ASSERT_GE(api.seq_create(leader, &seq_desc, &seq, &error), 0);
    Tokens tokens = tokens_from(1, 4000);
    quire_step_item item{};
    item.seq = seq;
    item.token_count = 4000;
    quire_step_result result{};
    ASSERT_GE(api.step_begin(leader, &step_desc, &item, 1, sizeof item, tokens.data(), 4000,
                             &result, sizeof result, &step, &error),
              0);
    auto fails_before = [&](auto call) {
        uint32_t failed = 0;
        while (true) {
            host.fail_at = host.calls + failed + 1;
            quire_status status = call();
            bool reached = host.calls >= host.fail_at;
            host.fail_at = UINT64_MAX;
            if (!reached) {
                EXPECT_EQ(status, QUIRE_OK) << error.message;
                return failed;
            }
            EXPECT_EQ(status, QUIRE_E_HOST_MEMORY);
            ++failed;
        }
    };
    EXPECT_GE(fails_before([&] { return api.step_commit(leader, step, nullptr, &error); }), 2u);
    std::vector<uint8_t> log(1 << 16);
    uint64_t size = 0;
    ASSERT_EQ(api.step_log(leader, step, log.data(), log.size(), &size, &error), QUIRE_OK);
    EXPECT_GE(fails_before([&] {
                  return api.log_apply(follower, log.data(), size, &step_desc, nullptr, &applied,
                                       &error);
              }),
              1u);
    EXPECT_EQ(api.step_finish(leader, step, nullptr, QUIRE_STEP_OK, &error), QUIRE_OK);
    EXPECT_EQ(api.step_finish(follower, applied, nullptr, QUIRE_STEP_OK, &error), QUIRE_OK);
    EXPECT_EQ(api.cache_check(follower, &error), QUIRE_OK) << error.message;
    EXPECT_EQ(api.cache_destroy(leader, &error), QUIRE_OK);
    EXPECT_EQ(api.cache_destroy(follower, &error), QUIRE_OK);
    EXPECT_EQ(api.instance_destroy(instance, &error), QUIRE_OK);
    EXPECT_EQ(host.live_bytes, 0);
}

}  // namespace
